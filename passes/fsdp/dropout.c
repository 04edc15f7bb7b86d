// Dropout: a micro-batch begins with the keys of all its dropouts, which the forward pass, what is recomputed and the
// gradients read.
//
//   %1 = dropout %0 {p = 0.1, site = 2, batch = 8}
//                                     ->
//   dropout_keys {counter = @state.random, sites = 3, stride = 16, into = @micro_only.random, offset = 0}
//   %1 = view {buffer = @micro_only.random, offset = 16} : i32[8]
//   %2 = dropout %0, %1 {p = 0.1, batch = 8}
//
// The keys are data, so that dropouts that differ in nothing else share a kernel. Sequences go in order to
// micro-batches and, within each, to the ranks that read different ones (runtime/run/run.c): `stride` is how many one
// micro-batch of all of them has. Of values that are split over ranks each draws its part (`over`).
#include "ir/dropout.h"
#include "passes/fsdp/fsdp.h"

Symbol *hd_fsdp_random_state(Fsdp *s) {
    if (s->random) return s->random;
    s->random = hd_symbol_add(s->m, SYM_BUFFER, hd_free_name(s->m, "state.random"),
                              hd_type(s->m->cx, TY_I32, 1, (int64_t[]){4}));
    hd_set_word(s->m->cx, &s->random->attrs, A_CLASS, "optimizer");
    return s->random;
}

// The number of sites: one more than the largest number of a site; 0: there is no dropout.
static int64_t count_sites(const Func *f, int64_t *batch, Axes *over) {
    int64_t n = 0;
    for (const Op *o = f->first; o; o = o->next) {
        const int64_t site = hd_int(&o->attrs, A_SITE, 0);
        if (!hd_draws(o) || hd_key(o)) continue;
        if (site >= n) n = site + 1;
        if (hd_has(&o->attrs, A_OVER)) *over |= hd_axes(&o->attrs, A_OVER);
        *batch = hd_int(&o->attrs, A_BATCH, 1);
    }
    return n;
}

static void add_key(Fsdp *s, Op *o, const Symbol *table) {
    Builder b = {.f = o->func, .before = o, .loc = o->loc, .span = o->span, .bwd = hd_has(&o->attrs, A_BWD)};
    const Type *key = hd_type(s->m->cx, TY_I32, 1, (int64_t[]){HD_KEY});
    Value **in = HD_NEWN(s->m->cx->arena, Value *, o->n_in + 1);
    memcpy(in, o->in, sizeof *in * (size_t)o->n_in);
    in[o->n_in] = hd_fsdp_view(s, &b, table, hd_int(&o->attrs, A_SITE, 0) * HD_KEY, key);
    if (hd_has(&o->attrs, A_RECOMPUTED)) hd_set_flag(s->m->cx, &in[o->n_in]->def->attrs, A_RECOMPUTED);
    o->n_in++;
    o->in = in;
    hd_unset(&o->attrs, A_SITE);
}

void hd_fsdp_dropout(Fsdp *s, Func *f) {
    Ctx *cx = s->m->cx;
    Axes over = 0;
    int64_t batch = 1, sites = count_sites(f, &batch, &over);
    if (!sites) return;
    const Symbol *table = hd_fsdp_transient(s, f, NULL, "random", "staging", TY_I32, sites * HD_KEY);
    for (Op *o = f->first; o; o = o->next)
        if (hd_draws(o) && !hd_key(o)) add_key(s, o, table);
    Builder b = {.f = f, .before = f->first};
    Attrs as = {0};
    hd_set_word(cx, &as, A_COUNTER, hd_fsdp_random_state(s)->name);
    hd_set_int(cx, &as, A_SITES, sites);
    hd_set_int(cx, &as, A_STRIDE, batch * s->ranks);
    if (over) hd_set_axes(cx, &as, A_OVER, over);
    hd_set_word(cx, &as, A_INTO, table->name);
    hd_set_int(cx, &as, A_OFFSET, 0);
    hd_build(&b, OP_DROPOUT_KEYS, 0, NULL, &as, NULL);
}
