// recompute auto: the fewest bytes to keep, such that recompute of everything else that the backward pass reads is
// cheap. A minimum cut in a graph of ops and values decides:
//
//   source -> op     bytes * price of its time (an op that is dear to repeat: never cut, so it is not repeated)
//   op -> result     bytes of the result: cut where the value is kept although its op is not repeated
//   value -> reader  never cut: an op can be repeated only where its operands are there
//   value -> sink    never cut, where the backward pass reads the value
//
// Ops on the sink's side are recomputed. With a price p the cut is the least of bytes + p * seconds. The lowest
// price whose choice stays within the budget of time is found by bisection over a fixed series of prices, so the result
// depends on nothing but the program and the table of the device.
//
// Only work whose time is that of its memory traffic is repeated: pointwise work, casts, norms, rope. The
// budget is a part of the time of products: of attention nothing is known yet, since no implementation is chosen.
#include "passes/plan/choose.h"
#include "passes/plan/min_cut.h"
#include <string.h>

static bool is_forward(const Op *o) { return !hd_has(&o->attrs, A_BWD); }
static bool is_kept(const Costs *c, const Value *v) { return v->def && !c->storage[v->def->id]; }

// Nodes: the ops by id, then the values by id, source and sink. `price`: bytes for a second.
static Recomputed choose(const Costs *c, double price) {
    const Func *f = c->f;
    int values = f->n_ops, source = values + f->n_values, sink = source + 1;
    Arena *a = hd_arena_new();
    MinCut cut = hd_min_cut(a, sink + 1);
    for (const Op *o = f->first; o; o = o->next) {
        if (!is_forward(o) || !o->n_out || c->storage[o->id]) continue;
        double again = c->seconds[o->id];
        int64_t dear = again < 0 || again * price > (double)HD_NEVER_CUT ? HD_NEVER_CUT : (int64_t)(again * price);
        hd_min_cut_edge(&cut, source, o->id, dear);
        for (int i = 0; i < o->n_in; i++)
            if (is_kept(c, o->in[i])) hd_min_cut_edge(&cut, values + o->in[i]->id, o->id, HD_NEVER_CUT);
        for (int i = 0; i < o->n_out; i++) {
            int64_t bytes = hd_op_is(o, TRAIT_ALIAS) ? HD_NEVER_CUT : hd_type_bytes(o->out[i]->type);
            hd_min_cut_edge(&cut, o->id, values + o->out[i]->id, bytes);
            if (hd_read_backward(&c->uses, o->out[i]))
                hd_min_cut_edge(&cut, values + o->out[i]->id, sink, HD_NEVER_CUT);
        }
    }
    Recomputed r = {.again = HD_NEWN(c->a, bool, f->n_ops + 1)};
    memcpy(r.again, hd_min_cut_solve(&cut, source, sink), sizeof *r.again * (size_t)f->n_ops);
    hd_arena_free(a);
    for (const Op *o = f->first; o; o = o->next) {
        r.again[o->id] &= c->seconds[o->id] >= 0;
        if (r.again[o->id]) r.seconds += c->seconds[o->id];
    }
    r.kept = hd_recompute_kept(c, r.again);
    return r;
}

static double price(int k) { return (double)((int64_t)1 << 46) / (double)((int64_t)1 << k); }

Recomputed hd_recompute_auto(const Costs *c, double slower) {
    int good = 0, bad = HD_RECOMPUTE_PRICES;
    Recomputed best = {.again = HD_NEWN(c->a, bool, c->f->n_ops + 1)};
    best.kept = hd_recompute_kept(c, best.again);
    while (bad - good > 1) {
        int k = good + (bad - good) / 2;
        Recomputed r = choose(c, price(k));
        if (r.seconds <= slower * c->products) good = k, best = r;
        else bad = k;
    }
    return best;
}

int hd_recompute_choices(const Costs *c, int every, Recomputed *list) {
    int n = 0;
    for (int k = (HD_RECOMPUTE_PRICES - 1) % every; k < HD_RECOMPUTE_PRICES; k += every) {
        const Recomputed r = choose(c, price(k));
        if (!n || memcmp(r.again, list[n - 1].again, (size_t)c->f->n_ops) != 0) list[n++] = r;
    }
    return n;
}
