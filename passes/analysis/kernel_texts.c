// See kernel_texts.h.
#include "passes/analysis/kernel_texts.h"
#include <string.h>

typedef struct Entry { uint64_t hash; const char *text; const char *kernel; struct Entry *next; } Entry;
struct KernelTexts { Arena *arena; int n; Entry *slot[256]; };

KernelTexts *hd_kernel_texts(Arena *a) {
    KernelTexts *t = HD_NEW(a, KernelTexts);
    t->arena = a;
    return t;
}

static uint64_t hash_text(const char *s) { // FNV-1a
    uint64_t h = 14695981039346656037u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

Func *hd_kernel_open(KernelTexts *t, Module *m, KindId kind) {
    Func *k;
    do k = hd_func_add(m, hd_internf(m->cx, "k%d", t->n), true);
    while (!k && ++t->n);
    hd_set_kind(m->cx, &k->attrs, kind);
    return k;
}

const char *hd_kernel_close(KernelTexts *t, Func *k, int n, Value *const *returned, bool *fresh) {
    Builder b = {.f = k};
    hd_build(&b, OP_RETURN, n, returned, NULL, NULL);
    hd_renumber(k);
    Out text = hd_out(t->arena);
    hd_print_func(k, &text);
    const char *body = strchr(text.text, '(');
    const uint64_t h = hash_text(body);
    Entry **slot = &t->slot[h % 256];
    *fresh = false;
    for (Entry *at = *slot; at; at = at->next)
        if (at->hash == h && !strcmp(at->text, body)) {
            hd_func_remove(k->module, k);
            return at->kernel;
        }
    Entry *e = HD_NEW(t->arena, Entry);
    *e = (Entry){h, body, k->name, *slot};
    *slot = e;
    t->n++;
    *fresh = true;
    return e->kernel;
}
