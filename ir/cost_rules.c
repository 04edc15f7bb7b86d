// The cost column of ops.def: one rule per name. A multiplication and an addition count as two operations; ops.def says
// what exp, tanh and the like count; causal attention counts the half that it computes.
#include "ir/cost.h"
#include "ir/shapes.h"

typedef struct { double flops, bytes; } Cost;

static double count(const Value *v) { return (double)hd_type_count(v->type); }

static double operands_and_results(const Op *o) {
    double n = 0;
    for (int i = 0; i < o->n_in; i++) n += (double)hd_type_bytes(o->in[i]->type);
    for (int i = 0; i < o->n_out; i++) n += (double)hd_type_bytes(o->out[i]->type);
    return n;
}

static const Symbol *symbol(const Op *o, AttrId a) {
    const Symbol *s = hd_symbol_find(o->func->module, hd_word(&o->attrs, a, ""));
    return s && s->type ? s : NULL;
}

static Cost cost_free(const Op *o) {
    (void)o;
    return (Cost){0, 0};
}

// AdamW: 16 operations an element; the gradient is read, master weights and moments are read and written, weights
// are written.
static Cost adamw(const Op *o) {
    static const struct { AttrId part; double times; } parts[] = {
        {A_GRADIENT, 1}, {A_MOMENT1, 2}, {A_MOMENT2, 2}, {A_MASTER_WEIGHTS, 2}, {A_WEIGHTS, 1}};
    Cost c = {0, 0};
    for (int i = 0; i < 5; i++) {
        const Symbol *s = symbol(o, parts[i].part);
        c.bytes += s ? parts[i].times * (double)hd_type_bytes(s->type) : 0;
        if (s && parts[i].part == A_MASTER_WEIGHTS) c.flops = 16.0 * (double)hd_type_count(s->type);
    }
    return c;
}

static Cost grad_norm(const Op *o) {
    Cost c = {0, 0};
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    for (int i = 0; list && i < list->n; i++) {
        const Symbol *s = hd_symbol_find(o->func->module, list->strs[i]);
        if (!s || !s->type) continue;
        c.flops += 2.0 * (double)hd_type_count(s->type);
        c.bytes += (double)hd_type_bytes(s->type);
    }
    return c;
}

// Of an op that writes to a buffer instead of giving a result; what it adds to is read as well.
static double into_bytes(const Op *o) {
    const Symbol *into = symbol(o, A_INTO);
    return into ? (double)(hd_into_count(o) * hd_dtype_bytes(into->type->dtype)) *
                      (hd_has(&o->attrs, A_ACCUMULATE) ? 2.0 : 1.0)
                : 0;
}

static Cost cost_move(const Op *o) {
    Cost c = {0, operands_and_results(o)};
    switch (o->kind) {
    case OP_EMBEDDING:
        c.bytes = 2.0 * (double)hd_type_bytes(o->out[0]->type) + (double)hd_type_bytes(o->in[1]->type);
        break; // not the whole table
    case OP_EMBEDDING_GRAD:
        c.flops = count(o->in[0]), c.bytes += into_bytes(o);
        break;
    case OP_STORE: c.bytes *= hd_has(&o->attrs, A_INPLACE) ? 0.0 : hd_has(&o->attrs, A_ACCUMULATE) ? 3.0 : 2.0; break;
    case OP_ADAMW: return adamw(o);
    case OP_GRAD_NORM:
    case OP_SQUARE_SUMS: return grad_norm(o);
    case OP_ZERO:
        c.bytes = into_bytes(o);
        break;
    default: break;
    }
    return c;
}

static Cost cost_sum(const Op *o) { return (Cost){count(o->in[0]), operands_and_results(o)}; }

static Cost cost_matmul(const Op *o) {
    Product p = hd_product(o);
    double results = (double)p.batches * (double)p.m * (double)p.n;
    Cost c = {2.0 * results * (double)p.k, operands_and_results(o)};
    c.bytes += into_bytes(o);
    if (o->n_in > 2) c.flops += results; // bias
    return c;
}

// Products of [seq x size] by [size x seq] and back: two forward, five backward (scores again, dv, dp, dq, dk).
static Cost cost_attention(const Op *o) {
    AttentionShape s = hd_attention_shape(o);
    double flops = (s.grad ? 5 : 2) * 2.0 * (double)(s.batch * s.seq * s.heads * s.size) * (double)s.seq;
    return (Cost){s.causal ? flops / 2 : flops, operands_and_results(o)};
}

// Bytes that cross the link of one rank: what it receives from the others, which equals what it sends.
static Cost cost_comm(const Op *o) {
    const Symbol *part = symbol(o, o->kind == OP_ALL_GATHER ? A_BUFFER : A_INTO),
                 *whole = symbol(o, o->kind == OP_ALL_GATHER ? A_INTO : A_BUFFER);
    if (!part || !whole) return (Cost){0, 0};
    double moved = (double)hd_type_bytes(whole->type) - (double)hd_type_bytes(part->type);
    return (Cost){o->kind == OP_REDUCE_SCATTER ? (double)hd_type_count(whole->type) - (double)hd_type_count(part->type)
                                               : 0,
                  moved};
}

// A kernel computes its whole body and touches memory only at its operands and results; of a table it reads the rows
// that it looks up.
static Cost cost_launch(const Op *o) {
    Cost c = {0, operands_and_results(o)};
    const Func *k = hd_func_find(o->func->module, hd_word(&o->attrs, A_KERNEL, ""));
    for (const Op *b = k ? k->first : NULL; b; b = b->next) {
        double flops, bytes;
        hd_cost(b, &flops, &bytes);
        c.flops += flops;
        if (b->kind == OP_EMBEDDING && !b->in[0]->def)
            c.bytes += (double)hd_type_bytes(b->out[0]->type) - (double)hd_type_bytes(b->in[0]->type);
    }
    return c;
}

static Cost cost_elementwise(const Op *o) {
    return (Cost){(double)hd_op_info(o->kind)->flops * count(o->out[0]), operands_and_results(o)};
}

static Cost per_element(const Op *o);
#define cost_each(n) per_element, .each = n
static const struct { Cost (*rule)(const Op *); int each; } rules[] = {
#define ELT(id, ...) {.rule = cost_elementwise},
#define OP(id, mnemonic, n_in, n_out, attrs, stages, traits, classes, row, type, eval, grad, cost, ...)        \
    {.rule = cost_##cost},
#include "ir/ops.def"
#undef ELT
#undef OP
};

static Cost per_element(const Op *o) {
    return (Cost){rules[o->kind].each * count(o->in[0]), operands_and_results(o)};
}

void hd_cost(const Op *o, double *flops, double *bytes) {
    Cost c = rules[o->kind].rule(o);
    *flops = c.flops;
    *bytes = c.bytes;
}

void hd_cost_of_func(const Func *f, double *flops, double *bytes) {
    *flops = *bytes = 0;
    for (const Op *o = f->first; o; o = o->next) {
        double x, y;
        hd_cost(o, &x, &y);
        *flops += x;
        *bytes += y;
    }
}
