// Storage that a function writes, and its effect on the ops that read it: an op that reads a view stays after the last
// write to the buffer before it, and before the next one. Kernels may be placed anywhere in between:
//
//   all_gather {into = @g, ...}                          after
//   %0 = view {buffer = @g, ...};  %1 = exp %0           an op with these bounds
//   store %2 {into = @g, ...}                            before
//
// So a gathered weight ties its readers to its window and to nothing else. Waiting for a buffer (`after`) counts as a
// write: a reader that moved past it would keep the buffer alive for longer than the schedule allows.
#include "passes/analysis/access.h"
#include "passes/fuse/fuse.h"
#include "ir/base/ptr_map.h"
#include "ir/base/search.h"

typedef VEC(int) Writes; // ids of ops, in program order

typedef struct { Arena *a; PtrMap buffers; VEC(Writes) of_buffer; } Written;

static void note_write(Written *w, const Symbol *buffer, int op) {
    int k = hd_ptr_get(&w->buffers, buffer);
    if (k < 0) {
        hd_ptr_set(w->a, &w->buffers, buffer, k = w->of_buffer.n);
        hd_push(w->a, &w->of_buffer, (Writes){0});
    }
    Writes *list = &w->of_buffer.at[k];
    if (!list->n || list->at[list->n - 1] != op) hd_push(w->a, list, op);
}

static void find_writes(Written *w, const Func *f) {
    Accesses list = {0};
    for (const Op *o = f->first; o; o = o->next) {
        if (hd_is_pure(o)) continue;
        hd_accesses(o, w->a, &list);
        for (int i = 0; i < list.n; i++)
            if (list.at[i].at == AT_BUFFER && list.at[i].write) note_write(w, list.at[i].buffer, o->id);
    }
}

static void bound(const Writes *w, int op, Bounds *b) {
    int i; // the first write after `op`
    HD_FIRST(i, 0, w->n, w->at[i] > op);
    if (i < w->n && w->at[i] < b->before) b->before = w->at[i];
    while (i > 0 && w->at[i - 1] == op) i--;
    if (i > 0 && w->at[i - 1] > b->after) b->after = w->at[i - 1];
}

Bounds *hd_fuse_bounds(const Func *f, Arena *a) {
    Written w = {.a = a};
    find_writes(&w, f);
    Bounds *bounds = HD_NEWN(a, Bounds, f->n_ops + 1);
    for (const Op *o = f->first; o; o = o->next) {
        Bounds *b = &bounds[o->id];
        *b = (Bounds){-1, f->n_ops};
        for (int i = 0; i < o->n_in; i++) {
            const Op *view = hd_unaliased(o->in[i])->def;
            if (!view || !hd_op_is(view, TRAIT_SOURCE)) continue;
            int k = hd_ptr_get(&w.buffers, hd_named(view, A_BUFFER));
            if (k >= 0) bound(&w.of_buffer.at[k], o->id, b);
        }
    }
    return bounds;
}
