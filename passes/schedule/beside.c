// Gradients of weights on a stream of their own. Nothing reads such a gradient before its reduction or the optimizer,
// so the product that makes it, and the kernel that adds up the columns of a bias gradient, may run beside the chain of
// activation gradients. Where the chain's products have fewer tiles than the device has multiprocessors, this fills the
// others.
//   [compute] gemm %dy, %x {ta, bwd, into = @b.grad}         [grads] gemm %dy, %x {ta, bwd, into = @b.grad}
//   [compute] %dx = gemm %dy, %w {bwd}                 ->    [compute] %dx = gemm %dy, %w {bwd}
//   [compute] begin {life = @a.grad}                         [compute] begin {life = @a.grad, after = [@b.grad]}
//
// Every operand of such an op is kept until the main stream has seen that the op has ended. So that this is soon, a
// gradient begins after the one before it is complete, where nothing else holds its `begin` up. `auto` also wants the
// device to be idle for a third of the time of the chain's products, and the estimated peak to rise by at most 1 %: the
// gradients that are made last, when most bytes are live, stay on the main stream if need be. The sums of squares for
// the norm of all gradients go there as well (norm.c).
#include "ir/machine/cost.h"
#include "ir/machine/device_model.h"
#include "ir/shapes.h"
#include "passes/analysis/access.h"
#include "passes/schedule/schedule.h"
#include "passes/settings.h"
#include "ir/base/ints.h"
#include <string.h>

enum { TILE = 128, LEAST_IDLE_PERCENT = 33, MOST_BYTES_PERCENT = 1 };

typedef struct {
    Func *f;
    PassCx *cx;
    const char *main, *beside;
    VEC(Op *) ops;    // that may run beside the main stream, in order
    VEC(Op *) begins; // that wait for nothing
    bool *written;    // by symbol id: scratch of place()
} Beside;

bool hd_is_beside(const Op *o) { return o->stream && !strcmp(o->stream, HD_STREAM_GRADS); }

// --- which ops

static const Symbol *gradient_written(const Op *o) {
    const Symbol *b = hd_named(o, A_INTO);
    return b && !strcmp(hd_word(&b->attrs, A_CLASS, ""), "gradients") ? b : NULL;
}

// The gradient that all results of a kernel are stored to; NULL: something else reads one of them.
static const Symbol *gradient_stored(const Op *o, const Uses *uses) {
    const Symbol *into = NULL;
    for (int i = 0; i < o->n_out; i++) {
        const Value *v = o->out[i];
        const Op *store = uses->count[v->id] == 1 ? uses->users[v->id][0] : NULL;
        const Symbol *b = store && store->kind == OP_STORE && !hd_has(&store->attrs, A_ON) ? gradient_written(store)
                                                                                            : NULL;
        if (!b || (into && b != into)) return NULL;
        into = b;
    }
    return into;
}

static void find_ops(Beside *x, const Uses *uses) {
    for (Op *o = x->f->first; o; o = o->next) {
        if (hd_op_is(o, TRAIT_BEGINS) && !hd_has(&o->attrs, A_AFTER)) hd_push(x->cx->scratch, &x->begins, o);
        if (!hd_has(&o->attrs, A_BWD)) continue;
        const Symbol *b = o->kind == OP_GEMM && !o->n_out ? gradient_written(o)
                          : hd_op_is(o, TRAIT_LAUNCH)          ? gradient_stored(o, uses)
                                                          : NULL;
        if (!b) continue;
        hd_push(x->cx->scratch, &x->ops, o);
        for (int i = 0; i < o->n_out; i++) hd_push(x->cx->scratch, &x->ops, uses->users[o->out[i]->id][0]);
    }
}

// --- whether it pays

// The part of the time of the main stream's products, backward, in which multiprocessors have no tile.
static double idle_part(const Beside *x, const DeviceModel *d) {
    const int64_t sms = hd_model_multiprocessors(d);
    double all = 0, idle = 0;
    for (const Op *o = x->f->first; o; o = o->next) {
        if (o->kind != OP_GEMM || !o->n_out || !hd_has(&o->attrs, A_BWD)) continue;
        const Product p = hd_product(o);
        const int64_t tiles = p.batches * hd_ceil_div(p.m, TILE) * hd_ceil_div(p.n, TILE);
        const double seconds = hd_model_seconds(d, o), places = (double)(hd_ceil_div(tiles, sms) * sms);
        all += seconds;
        idle += seconds * (1 - (double)tiles / places);
    }
    return all > 0 ? idle / all : 0;
}

static bool pays(const Beside *x) {
    const Attrs *target = hd_settings(x->f->module, "target");
    if (strcmp(hd_word(target, A_TARGET, ""), "cuda")) return false;
    const DeviceModel *d = hd_model(x->f->module);
    return d && idle_part(x, d) * 100 >= LEAST_IDLE_PERCENT;
}

// --- the schedule

// All of them but the last `kept` run beside the main stream.
static void place(const Beside *x, int kept) {
    Module *m = x->f->module;
    memset(x->written, 0, sizeof *x->written * (size_t)m->n_symbols);
    for (int i = 0; i < x->ops.n; i++) {
        const bool beside = i < x->ops.n - kept;
        const Symbol *into = hd_named(x->ops.at[i], A_INTO);
        x->ops.at[i]->stream = beside ? x->beside : x->main;
        if (beside && into) x->written[into->id] = true;
    }
    for (int i = 0; i < x->begins.n; i++) {
        Attrs *as = &x->begins.at[i]->attrs;
        const Symbol *before = i ? hd_named(x->begins.at[i - 1], A_LIFE) : NULL;
        hd_unset(as, A_AFTER);
        if (before && x->written[before->id]) hd_set_words(m->cx, as, A_AFTER, 1, (const char *[]){before->name});
    }
}

int64_t hd_persistent_bytes(const Module *m) {
    int64_t n = 0;
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER && s->type && !hd_has(&s->attrs, A_TRANSIENT) && !hd_space(&s->attrs))
            n += hd_align(hd_type_bytes(s->type));
    return n;
}

Order hd_order_beside(Func *f, const char *main, PassCx *cx) {
    Module *m = f->module;
    const Order alone = hd_find_order(f, main, cx->scratch);
    Symbol *schedule = hd_symbol_find(m, "schedule");
    const char *setting = hd_word(hd_settings(m, "schedule"), A_OVERLAP_GRADS, "off");
    if (!strcmp(setting, "off")) return alone;
    const Uses uses = hd_uses(f, cx->scratch);
    Beside x = {.f = f, .cx = cx, .main = main, .beside = hd_intern(m->cx, HD_STREAM_GRADS),
                .written = HD_NEWN(cx->scratch, bool, m->n_symbols + 1)};
    find_ops(&x, &uses);
    const bool forced = !strcmp(setting, "on");
    if (!x.ops.n || (!forced && !pays(&x))) return alone;
    const int64_t most = alone.peak + (hd_persistent_bytes(m) + alone.peak) * MOST_BYTES_PERCENT / 100;
    for (int kept = 0; kept < x.ops.n; kept += kept ? kept : 1) {
        place(&x, kept);
        const Order order = hd_find_order(f, main, cx->scratch);
        if (!forced && order.peak > most) continue;
        hd_count(cx, "ops beside the main stream", x.ops.n - kept);
        hd_set_int(m->cx, &schedule->attrs, A_OVERLAP_BYTES, order.peak > alone.peak ? order.peak - alone.peak : 0);
        return hd_norm_beside(f, main, x.beside, cx->scratch) ? hd_find_order(f, main, cx->scratch) : order;
    }
    place(&x, x.ops.n);
    return alone;
}
