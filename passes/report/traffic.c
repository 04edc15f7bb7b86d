// The bytes that ranks exchange in a step, and how many of them are exposed: a collective is exposed when no matrix
// product and no attention may run beside it under happens-before (other work is too short to hide much), in its
// function or, where it is part of a tail that each of them runs beside, in the functions after. Bytes are
// those that one rank receives.
#include "ir/machine/cost.h"
#include "passes/report/facts.h"
#include "ir/base/search.h"
#include <string.h>

static bool is_collective(const Op *o) { return hd_op_is(o, TRAIT_COLLECTIVE); }
static bool is_long(const Op *o) { return hd_op_is(o, TRAIT_MATMUL | TRAIT_ATTENTION); }

static Traffic *of_name(Traffics *list, const char *name, Arena *a) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->at[i].name, name) == 0) return &list->at[i];
    hd_push(a, list, (Traffic){.name = name});
    return &list->at[list->n - 1];
}

typedef struct { const Op **at; int n; } StreamOps; // in order

static StreamOps find_work(const Func *f, Arena *a) {
    StreamOps w = {HD_NEWN(a, const Op *, f->n_ops + 1), 0};
    for (const Op *o = f->first; o; o = o->next)
        if (is_long(o)) w.at[w.n++] = o;
    return w;
}

// All ops of one stream: first those that end before the collective starts, then those that may run beside it, then
// those that start after it.
static bool has_company(const Clocks *c, const StreamOps *w, const Op *o) {
    int i;
    HD_FIRST(i, 0, w->n, !hd_before(c, w->at[i]->id, o->id));
    return i < w->n && !hd_before(c, o->id, w->at[i]->id);
}

static void count(Traffics *list, const char *name, int64_t runs, int64_t bytes, bool exposed, Arena *a) {
    Traffic *t = of_name(list, name, a);
    t->count += runs;
    t->bytes += runs * bytes;
    t->exposed += exposed ? runs * bytes : 0;
}

// By op id of f: whether work of every function that may follow runs beside it.
static const bool *find_hidden(const Func *f, const Seams *b, Arena *a) {
    bool *hidden = HD_NEWN(a, bool, f->n_ops + 1), *seen = HD_NEWN(a, bool, f->n_ops + 1);
    for (int i = 0; i < b->n; i++) {
        if (b->at[i].before != f) continue;
        Joined j = hd_join(&b->at[i], a);
        Clocks clocks = hd_clocks(j.f, a);
        StreamOps work = find_work(j.f, a);
        for (const Op *o = j.f->first; o->id < j.tail; o = o->next) {
            const int at = j.from[o->id];
            hidden[at] = (hidden[at] || !seen[at]) && is_collective(o) && has_company(&clocks, &work, o);
            seen[at] = true;
        }
    }
    return hidden;
}

void hd_report_traffic(const Func *f, int64_t runs, const Seams *b, Facts *r, Arena *a) {
    bool any = false;
    for (const Op *o = f->first; o; o = o->next) any |= is_collective(o);
    if (!any || runs == 0) return;
    Clocks clocks = hd_clocks(f, a);
    StreamOps work = find_work(f, a);
    const bool *hidden = find_hidden(f, b, a);
    for (const Op *o = f->first; o; o = o->next) {
        if (!is_collective(o)) continue;
        double flops, bytes;
        hd_cost(o, &flops, &bytes);
        bool exposed = !has_company(&clocks, &work, o) && !hidden[o->id];
        count(&r->kinds, hd_op_info(o->kind)->mnemonic, runs, (int64_t)bytes, exposed, a);
        count(&r->streams, o->stream ? o->stream : "compute", runs, (int64_t)bytes, exposed, a);
    }
}
