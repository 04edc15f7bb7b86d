// Dead code: one walk from the end of each function. An op is needed when it has an effect or a needed op reads one of
// its results; in SSA order all readers of a value come after its definition. Then kernels that no launch names are
// removed. Symbols stay: an unread parameter is still part of the model.
#include "passes/pass.h"
#include "ir/base/search.h"
#include <stdlib.h>

static int sweep(Func *f, Arena *scratch) {
    bool *read = HD_NEWN(scratch, bool, f->n_values + 1);
    int removed = 0;
    for (Op *o = f->last, *prev; o; o = prev) {
        prev = o->prev;
        bool needed = !hd_is_pure(o);
        for (int i = 0; i < o->n_out; i++) needed |= read[o->out[i]->id];
        if (!needed) {
            hd_erase(o);
            removed++;
            continue;
        }
        for (int i = 0; i < o->n_in; i++) read[o->in[i]->id] = true;
    }
    hd_renumber(f);
    return removed;
}

static bool launched(const char *const *names, int n, const char *kernel) { // names are sorted
    int i;
    HD_FIRST(i, 0, n, strcmp(names[i], kernel) >= 0);
    return i < n && !strcmp(names[i], kernel);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static int remove_kernels(Module *m, Arena *scratch) {
    VEC(const char *) names = {0};
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o; o = o->next)
            if (hd_op_is(o, TRAIT_LAUNCH)) hd_push(scratch, &names, hd_word(&o->attrs, A_KERNEL, ""));
    if (names.n) qsort(names.at, (size_t)names.n, sizeof *names.at, by_text);
    int removed = 0;
    for (Func *f = m->funcs, *next; f; f = next) {
        next = f->next;
        const bool optimizer = hd_kind(&f->attrs) == KIND_OPTIMIZER;
        if (!f->is_kernel || optimizer || launched(names.at, names.n, f->name)) continue;
        hd_func_remove(m, f);
        removed++;
    }
    return removed;
}

Change hd_pass_dce(Module *m, PassCx *cx) {
    int ops = 0;
    for (Func *f = m->funcs; f; f = f->next) ops += sweep(f, cx->scratch);
    int kernels = remove_kernels(m, cx->scratch);
    hd_count(cx, "ops removed", ops);
    hd_count(cx, "kernels removed", kernels);
    return ops || kernels ? CHANGED : UNCHANGED;
}
