// schedule: assigns each op a stream and a position. A collective runs on the stream of its communicator, an op with
// `on` on the one it names, weight gradients beside the main stream on @grads (beside.c), every other op on @compute.
// Every function gets one total order (order.c), in which alias ops come before their first user. Dependences (deps.h)
// keep reads and writes of buffers in their order, so sums are added in the order written.
//   %1 = gemm %x, %w : bf16[8,64]                                 ->  [compute] %1 = gemm %x, %w : bf16[8,64]
//   all_gather {buffer = @a.master, into = @w, comm = @comm.gather}    [gather] all_gather {...}
#include "passes/schedule/schedule.h"
#include "passes/analysis/access.h"
#include "passes/pass.h"
#include "passes/settings.h"

static const char *const MAIN = "compute";

static const char *stream_of(const Op *o) {
    const Symbol *comm = hd_named(o, A_COMM);
    return hd_word(comm ? &comm->attrs : &o->attrs, A_ON, MAIN);
}

static void place(Op *o, Func *f, bool *placed);

static void emit_aliases(const Op *o, Func *f, bool *placed) {
    for (int i = 0; i < o->n_in; i++)
        if (o->in[i]->def && hd_is_alias(o->in[i]->def)) place(o->in[i]->def, f, placed);
}

static void place(Op *o, Func *f, bool *placed) {
    if (placed[o->id]) return;
    placed[o->id] = true;
    emit_aliases(o, f, placed);
    hd_detach(o);
    hd_append(f, o);
}

void hd_set_order(Func *f, Op *const *ops, int n, Arena *a) {
    bool *placed = HD_NEWN(a, bool, f->n_ops + 1);
    Op *end = f->last, **all = HD_NEWN(a, Op *, f->n_ops + 1);
    for (Op *o = f->first; o; o = o->next) all[o->id] = o;
    for (int i = 0; i < n; i++) place(ops[i], f, placed);
    for (int i = 0; i < f->n_ops; i++) // aliases that only the return reads, or that are not read
        if (all[i] != end) place(all[i], f, placed);
    hd_detach(end);
    hd_append(f, end);
}

static bool reorder(Func *f, const Order *order, Arena *a) {
    Op **all = HD_NEWN(a, Op *, f->n_ops + 1), **ops = HD_NEWN(a, Op *, order->n + 1);
    bool changed = false;
    for (Op *o = f->first; o; o = o->next) all[o->id] = o;
    for (int i = 0; i < order->n; i++) ops[i] = all[order->op[i]];
    hd_set_order(f, ops, order->n, a);
    int i = 0;
    for (const Op *o = f->first; o; o = o->next) changed |= o->id != i++;
    hd_renumber(f);
    return changed;
}

// The op whose result a `begin` of a gradient could let be written straight to its first part: the store of it comes
// directly after the `begin`, but for zeros in the padding. NULL: there is none.
static Op *maker_of_first_part(const Op *begin, const Uses *uses) {
    const Symbol *b = hd_named(begin, A_LIFE);
    const Op *store = begin->next;
    while (store && (hd_is_alias(store) || store->kind == OP_ZERO)) store = store->next;
    if (!b || !store || store->kind != OP_STORE || hd_named(store, A_INTO) != b) return NULL;
    const Value *v = store->in[0];
    bool straight = uses->count[v->id] == 1 && v->def && !hd_is_alias(v->def) && hd_store_may_be_in_place(store);
    return straight && v->def->id < begin->id ? v->def : NULL;
}

// The life of a gradient that stays until the optimizer begins before the op that makes its first part. Otherwise that
// op could not write there: a kernel of the unit behind often makes it, the sum of a bias gradient's columns. A `begin`
// that waits for something (`after`) is left where it is, or the op would wait as well.
static bool begin_before_first_part(Func *f, Arena *a) {
    const Uses uses = hd_uses(f, a);
    bool moved = false;
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        const Symbol *b = hd_has(&o->attrs, A_AFTER) ? NULL : hd_named(o, A_LIFE);
        Op *maker = b && hd_stays(f->module, b) ? maker_of_first_part(o, &uses) : NULL;
        if (!maker) continue;
        hd_detach(o);
        hd_insert_before(maker, o);
        moved = true;
    }
    if (moved) hd_renumber(f);
    return moved;
}

static bool schedule_function(Func *f, PassCx *cx) {
    hd_renumber(f);
    bool moved = begin_before_first_part(f, cx->scratch);
    const char *main = hd_intern(f->module->cx, MAIN);
    for (Op *o = f->first; o; o = o->next) o->stream = hd_intern(f->module->cx, hd_is_alias(o) ? main : stream_of(o));
    Order order = hd_order_tail(f, main, hd_order_beside(f, main, cx), cx);
    order = hd_order_cover(f, main, order, cx);
    hd_count(cx, "bytes off the peaks of functions", order.saved);
    moved |= reorder(f, &order, cx->scratch);
    return hd_hold_bounds(f, cx) || moved;
}

static bool declare_stream(Module *m, const char *name) {
    const Symbol *s = hd_symbol_find(m, name);
    if (!s) s = hd_symbol_add(m, SYM_STREAM, name, NULL);
    if (s && s->kind == SYM_STREAM) return true;
    const Func *f = s ? NULL : hd_func_find(m, name);
    hd_error(m->cx,
             s   ? s->span
             : f ? f->span
                 : (Span){0},
             "@%s names a stream of this plan; this %s needs another name", name,
             s ? hd_symbol_keyword(s->kind) : "function");
    return false;
}

// Declares the streams that ops run on: the main one, the others in order of first use.
static bool declare_streams(Module *m) {
    if (!declare_stream(m, MAIN)) return false;
    const char *last = NULL;
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        for (const Op *o = f->first; o; o = o->next) {
            if (o->stream != last && !declare_stream(m, o->stream)) return false;
            last = o->stream;
        }
    }
    return true;
}

static void warn_not_beside(const Module *m) {
    bool backward = false;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next) {
            if (o->stream && !strcmp(o->stream, HD_STREAM_GRADS)) return;
            backward |= hd_has(&o->attrs, A_BWD);
        }
    if (backward && !strcmp(hd_word(hd_settings(m, "schedule"), A_OVERLAP_GRADS, "off"), "on"))
        hd_warning(m->cx, hd_symbol_find(m, "schedule")->span,
                   "schedule.overlap_grads = on changes nothing: no product and no sum of a bias gradient can be "
                   "computed beside the gradients of activations");
}

Change hd_pass_schedule(Module *m, PassCx *cx) {
    const int errors = m->cx->diags.errors;
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        if (!hd_return(f)) {
            hd_error(m->cx, f->span, "@%s has no return", f->name);
            return FAILED;
        }
        hd_count(cx, "functions reordered", schedule_function(f, cx));
    }
    if (m->cx->diags.errors > errors) return FAILED; // the table of the device cannot be read
    if (!declare_streams(m)) return FAILED;
    warn_not_beside(m);
    m->stage = STAGE_PLAN;
    return CHANGED;
}
