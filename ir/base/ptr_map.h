// A map from pointers (symbols, interned names) to small numbers: open addressing, on an arena. A missing key gives -1.
// Nothing iterates over it, so no order depends on addresses.
#ifndef IR_BASE_PTR_MAP_H
#define IR_BASE_PTR_MAP_H
#include "ir/base/arena.h"
#include <stdint.h>

typedef struct { const void *key; int value; } PtrSlot;
typedef struct { PtrSlot *slots; uint32_t size; int n; } PtrMap; // size: 0 or a power of two

static inline PtrSlot *hd_ptr_slot(const PtrMap *m, const void *key) {
    uint64_t h = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u;
    for (uint32_t i = (uint32_t)(h >> 32);; i++) {
        PtrSlot *s = &m->slots[i & (m->size - 1)];
        if (!s->key || s->key == key) return s;
    }
}

static inline int hd_ptr_get(const PtrMap *m, const void *key) {
    const PtrSlot *s = m->size ? hd_ptr_slot(m, key) : NULL;
    return s && s->key ? s->value : -1;
}

static inline void hd_ptr_set(Arena *a, PtrMap *m, const void *key, int value) {
    if ((uint32_t)m->n * 2 >= m->size) {
        PtrMap wider = {HD_NEWN(a, PtrSlot, m->size ? m->size * 2 : 32), m->size ? m->size * 2 : 32, m->n};
        for (uint32_t i = 0; i < m->size; i++)
            if (m->slots[i].key) *hd_ptr_slot(&wider, m->slots[i].key) = m->slots[i];
        *m = wider;
    }
    PtrSlot *s = hd_ptr_slot(m, key);
    m->n += !s->key;
    *s = (PtrSlot){key, value};
}
#endif
