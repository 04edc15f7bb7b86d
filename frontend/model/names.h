// Where interned names are in a list that grows at its end: few are compared one by one, many are hashed.
#ifndef FRONTEND_MODEL_NAMES_H
#define FRONTEND_MODEL_NAMES_H
#include "ir/base/ptr_map.h"
#include "ir/base/vec.h"

typedef VEC(const char *) Names;
typedef struct { Names list; PtrMap map; } NameIndex; // map: empty while there are few

enum { HD_FEW_NAMES = 8 };

// the place of the name in the list; -1: it is not there
static inline int hd_name_at(const NameIndex *x, const char *name) {
    if (x->map.size) return hd_ptr_get(&x->map, name);
    int k = x->list.n - 1;
    while (k >= 0 && x->list.at[k] != name) k--;
    return k;
}

static inline void hd_name_add(Arena *a, NameIndex *x, const char *name) {
    const int first = x->map.size || x->list.n < HD_FEW_NAMES ? x->list.n : 0; // of those that are not hashed yet
    for (int k = first; k < x->list.n; k++) hd_ptr_set(a, &x->map, x->list.at[k], k);
    if (x->map.size) hd_ptr_set(a, &x->map, name, x->list.n);
    hd_push(a, &x->list, name);
}

// Only the first n names stay.
static inline void hd_name_cut(Arena *a, NameIndex *x, int n) {
    while (x->list.n > n) {
        x->list.n--;
        if (x->map.size) hd_ptr_set(a, &x->map, x->list.at[x->list.n], -1);
    }
}
#endif
