// Contributions: what the functions of a step do together. In the first micro-batch (@micro_only, @micro_first) the first write to
// each element of a buffer overwrites and later ones add; in the others all add; every element of every parameter's gradient is
// written in each [V20], by as many contributions in each [V6], and so is the loss; @update writes nothing twice and touches every
// bucket once, by buffers that exist [V5], after a norm over every gradient; somebody writes every buffer of state; the loss that is
// stored and the loss whose gradient is taken are scaled alike [V21].
#include "passes/range_map.h"
#include "passes/verify_plan.h"
#include <math.h>

typedef long long ll;
typedef struct { PlanCheck *c; const Func *f; bool first; const Symbol **buffer; RangeMap *map; int n; } Micro; // map: elements; holds: writes

static bool is_micro(const Func *f, bool *first) {
    *first = strcmp(f->name, "micro_only") == 0 || strcmp(f->name, "micro_first") == 0;
    return *first || strcmp(f->name, "micro") == 0 || strcmp(f->name, "micro_last") == 0;
}

static void find_written(Micro *u) {
    const Module *m = u->c->m;
    int n = 0;
    for (const Symbol *s = m->symbols; s; s = s->next) n += s->kind == SYM_BUFFER;
    u->buffer = HD_NEWN(u->c->a, const Symbol *, n + 1);
    u->map = HD_NEWN(u->c->a, RangeMap, n + 1);
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER || hd_type_count(s->type) == 0) continue;
        u->buffer[u->n] = s;
        u->map[u->n++] = hd_ranges(u->c->a, hd_type_bytes(s->type), (Cell){.writer = -1});
    }
}

static RangeMap *map_of(const Micro *u, const Symbol *b) {
    for (int i = 0; i < u->n; i++)
        if (u->buffer[i] == b) return &u->map[i];
    return NULL;
}

static void contribute(Micro *u, const Op *o, const Access *x) {
    RangeMap *m = map_of(u, x->buffer);
    if (!m) return;
    bool adds = hd_has(&o->attrs, A_ACCUMULATE), said = false;
    int64_t size = hd_dtype_bytes(x->buffer->type->dtype);
    int end, first = hd_ranges_cut(m, x->lo, x->hi, &end);
    for (int i = first; i < end; i++) {
        Cell *cell = &m->v.at[i].cell;
        ll lo = (ll)(m->v.at[i].lo / size), hi = (ll)(hd_range_hi(m, i) / size);
        if (!said && adds && u->first && cell->holds == 0) {
            hd_plan_wrong(u->c, o, o->span, "adds to elements [%lld, %lld) of @%s, which hold the last step's sum: the first contribution must overwrite", lo, hi, x->buffer->name);
            said = true;
        } else if (!said && !adds && cell->holds > 0) {
            hd_plan_wrong(u->c, o, o->span, "overwrites elements [%lld, %lld) of @%s and with them the contribution of %s", lo, hi, x->buffer->name, hd_plan_op(u->c, u->c->ops[cell->writer]));
            said = true;
        } else if (!said && !adds && !u->first) {
            hd_plan_wrong(u->c, o, o->span, "overwrites elements [%lld, %lld) of @%s and with them the sum of the micro-batches before", lo, hi, x->buffer->name);
            said = true;
        }
        cell->holds++;
        cell->writer = o->id;
    }
}

// Writes to elements [from, from + count) of a buffer: the least and the most that one of them gets.
static void count_writes(const Micro *u, const Symbol *b, int64_t from, int64_t count, int *least, int *most) {
    *least = *most = 0;
    RangeMap *m = b ? map_of(u, b) : NULL;
    int64_t size = b ? hd_dtype_bytes(b->type->dtype) : 1;
    if (!m || count == 0 || (from + count) * size > m->top) return;
    int end, first = hd_ranges_cut(m, from * size, (from + count) * size, &end);
    *least = INT32_MAX;
    for (int i = first; i < end; i++) {
        if (m->v.at[i].cell.holds < *least) *least = m->v.at[i].cell.holds;
        if (m->v.at[i].cell.holds > *most) *most = m->v.at[i].cell.holds;
    }
}

// --- scales: a value as constant + factor * argument of its kernel

typedef struct { bool known; double constant, factor; } Affine;

static Affine affine_op(const Op *o, Affine a, Affine b) {
    Affine no = {0};
    if (!a.known || (o->n_in > 1 && !b.known)) return no;
    switch (o->kind) {
    case OP_CAST: case OP_RESHAPE: case OP_BROADCAST: return a;
    case OP_NEG: return (Affine){true, -a.constant, -a.factor};
    case OP_ADD: return (Affine){true, a.constant + b.constant, a.factor + b.factor};
    case OP_SUB: return (Affine){true, a.constant - b.constant, a.factor - b.factor};
    case OP_MUL:
        if (a.factor != 0 && b.factor != 0) return no;
        return (Affine){true, a.constant * b.constant, a.factor * b.constant + b.factor * a.constant};
    case OP_DIV: return b.factor != 0 || b.constant == 0 ? no : (Affine){true, a.constant / b.constant, a.factor / b.constant};
    default: return no;
    }
}

// The result of a kernel as a function of its argument `of`; unknown when it depends on another or is not affine.
static Affine kernel_result(PlanCheck *c, const Func *k, int result, int of) {
    const Op *ret = k ? hd_return(k) : NULL;
    if (!ret || result >= ret->n_in) return (Affine){0};
    Affine *at = HD_NEWN(c->a, Affine, k->n_values + 1);
    if (of >= 0 && of < k->n_args) at[k->args[of]->id] = (Affine){true, 0, 1};
    for (const Op *o = k->first; o != ret; o = o->next) {
        if (o->n_out != 1) continue;
        if (o->kind == OP_CONST) at[o->out[0]->id] = (Affine){true, hd_float(&o->attrs, A_VALUE, 0), 0};
        else if (o->n_in == 1 || o->n_in == 2) at[o->out[0]->id] = affine_op(o, at[o->in[0]->id], at[o->in[o->n_in - 1]->id]);
    }
    return at[ret->in[result]->id];
}

// v = constant + factor * source, through reshapes and launches of kernels with one argument or none.
static Affine trace(PlanCheck *c, const Value *v, const Value *source, int depth) {
    if (v == source) return (Affine){true, 0, 1};
    const Op *o = v->def;
    if (!o || depth > 16) return (Affine){0};
    if (hd_op_is(o, TRAIT_ALIAS)) return trace(c, o->in[0], source, depth + 1);
    if (o->kind != OP_LAUNCH || o->n_in > 1) return (Affine){0};
    Affine k = kernel_result(c, hd_func_find(c->m, hd_word(&o->attrs, A_KERNEL, "")), v->index, 0);
    if (!k.known || k.factor == 0 || o->n_in == 0) return k;
    Affine in = trace(c, o->in[0], source, depth + 1);
    return (Affine){in.known, k.constant + k.factor * in.constant, k.factor * in.factor};
}

static void check_scale(PlanCheck *c, const Func *f) {
    const Op *loss = NULL, *store = NULL;
    for (const Op *o = f->first; o; o = o->next) {
        if (o->kind == OP_CROSS_ENTROPY_GRAD) {
            if (loss) return; // several losses: their weights are the model's business
            loss = o;
        }
        if (o->kind == OP_STORE && strcmp(hd_word(&o->attrs, A_INTO, ""), "state.loss") == 0) store = o;
    }
    if (!loss || !store) return;
    Affine seed = trace(c, loss->in[2], NULL, 0), kept = trace(c, store->in[0], loss->out[0], 0);
    if (!seed.known || !kept.known || seed.factor != 0 || kept.factor == 0) return;
    if (fabs(seed.constant - kept.factor) > 1e-6 * fabs(kept.factor))
        hd_plan_wrong(c, loss, loss->span, "takes gradients of %g times the loss, but %s stores %g times the loss", seed.constant, hd_plan_op(c, store), kept.factor);
}

// --- the optimizer

static void check_update(PlanCheck *c, const Func *f) {
    for (const Symbol *b = c->m->symbols; b; b = b->next) {
        if (b->kind != SYM_BUCKET) continue;
        const Op *seen = NULL;
        for (const Op *o = f->first; o; o = o->next) {
            if (o->kind != OP_ADAMW || strcmp(hd_word(&o->attrs, A_BUCKET, ""), b->name) != 0) continue;
            if (seen) hd_plan_wrong(c, o, o->span, "updates bucket @%s a second time, after %s", b->name, hd_plan_op(c, seen));
            seen = o;
        }
        if (!seen && hd_bucket_buffer(c->m, b->name, "grad")) hd_plan_wrong(c, NULL, f->span, "no op updates bucket @%s", b->name);
        static const char *const roles[] = {"grad", "master", "moment1", "moment2"};
        for (int i = 0; seen && i < 4; i++)
            if (!hd_bucket_buffer(c->m, b->name, roles[i])) hd_plan_wrong(c, seen, seen->span, "needs a buffer of bucket @%s with role %s", b->name, roles[i]);
    }
    for (const Op *o = f->first; o; o = o->next) {
        if (o->kind != OP_GRAD_NORM) continue;
        const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
        for (const Symbol *s = c->m->symbols; s; s = s->next) {
            if (s->kind != SYM_BUFFER || strcmp(hd_word(&s->attrs, A_ROLE, ""), "grad") != 0) continue;
            int n = 0;
            for (int i = 0; list && i < list->n; i++) n += strcmp(list->strs[i], s->name) == 0;
            if (n != 1) hd_plan_wrong(c, o, o->span, "counts gradient buffer @%s %d times", s->name, n);
        }
    }
}

static void enter(PlanCheck *c, const Func *f) {
    c->f = f;
    c->ops = HD_NEWN(c->a, Op *, f->n_ops + 1);
    for (Op *o = f->first; o; o = o->next) c->ops[o->id] = o;
}

static void count_contributions(PlanCheck *c, Micro *u) {
    Accesses list = {0};
    find_written(u);
    for (const Op *o = u->f->first; o; o = o->next) {
        if (o->kind == OP_ADAMW) continue; // check_update counts those
        hd_accesses(o, c->a, &list);
        for (int i = 0; i < list.n; i++)
            if (list.at[i].at == AT_BUFFER && list.at[i].write) contribute(u, o, &list.at[i]);
    }
}

static void check_parameter(PlanCheck *c, const Micro *micro, int n, const Symbol *p, const Symbol *b) {
    int least, most, expected = 0;
    for (int i = 0; i < n; i++) {
        c->f = micro[i].f;
        count_writes(&micro[i], b, hd_int(&p->attrs, A_OFFSET, 0), hd_type_count(p->type), &least, &most);
        if (hd_type_count(p->type) && least == 0) hd_plan_wrong(c, NULL, c->f->span, "parameter @%s: %s of its gradient is written", p->name, most ? "not all" : "nothing");
        else if (least != most) hd_plan_wrong(c, NULL, c->f->span, "parameter @%s: some elements of its gradient get %d contributions and some %d", p->name, least, most);
        else if (i && expected && least != expected) hd_plan_wrong(c, NULL, c->f->span, "parameter @%s gets %d contributions to its gradient, and %d in @%s", p->name, least, expected, micro[0].f->name);
        if (i == 0) expected = least;
    }
}

// Loss and other state: every micro-batch writes it as often as the first. State and gradients: somebody writes them at all.
static void check_buffer(PlanCheck *c, const Micro *part, int n, const Symbol *b) {
    int least, most, expected = 0, all = 0;
    for (int i = 0, micros = 0; i < n; i++) {
        c->f = part[i].f;
        count_writes(&part[i], b, 0, hd_type_count(b->type), &least, &most);
        all += most;
        if (strcmp(part[i].f->name, "update") == 0 || strcmp(hd_word(&b->attrs, A_ROLE, ""), "state") != 0) continue;
        if (micros++ && (least != expected || most != expected)) hd_plan_wrong(c, NULL, c->f->span, "writes buffer @%s %d times, where the first micro-batch does %d times", b->name, least != expected ? least : most, expected);
        else if (micros == 1) expected = most;
    }
    c->f = NULL;
    if (n > 1 && all == 0) hd_plan_wrong(c, NULL, b->span, "no function of a step writes buffer @%s", b->name);
}

void hd_check_contributions(PlanCheck *c) {
    Micro part[5]; // micro-batches first
    int n = 0, n_micro = 0;
    const char *bucket = NULL;
    const Symbol *grad = NULL;
    for (int pass = 0; pass < 2; pass++)
        for (const Func *f = c->m->funcs; f; f = f->next) {
            bool first, micro = is_micro(f, &first), update = strcmp(f->name, "update") == 0;
            if (f->is_kernel || n == 5 || !(pass ? update : micro)) continue;
            enter(c, f);
            part[n] = (Micro){.c = c, .f = f, .first = first || update};
            count_contributions(c, &part[n++]);
            if (update) check_update(c, f);
            else check_scale(c, f), n_micro++;
        }
    for (const Symbol *s = c->m->symbols; n && s; s = s->next) {
        const char *of = s->kind == SYM_PARAM ? hd_word(&s->attrs, A_BUCKET, NULL) : NULL;
        if (of && (!bucket || strcmp(of, bucket) != 0)) grad = hd_bucket_buffer(c->m, bucket = of, "grad"); // neighbours share a bucket
        if (of) check_parameter(c, part, n_micro, s, grad);
        const char *role = hd_word(&s->attrs, A_ROLE, "");
        if (s->kind == SYM_BUFFER && (strcmp(role, "state") == 0 || strcmp(role, "grad") == 0)) check_buffer(c, part, n, s);
    }
    c->f = NULL;
}
