// The cost column of ops.def: one rule per name. A multiplication and an addition count as two operations; ops.def says
// what exp, tanh and the like count; attention counts the pairs of positions that see each other: half when causal.
#include "ir/machine/cost.h"
#include "ir/mesh.h"
#include "ir/optimizer.h"
#include "ir/shapes.h"
#include "ir/ssd.h"

typedef struct { double flops, bytes; } Cost;

static double count(const Value *v) { return (double)hd_type_count(v->type); }

// Bytes of the buffers that an attribute of the op names.
static double bytes_of_buffers(const Op *o, const Attr *a) {
    unsigned uses = hd_operand_uses(a->id);
    int times = !!(uses & USE_READ) + !!(uses & USE_WRITE);
    double n = 0;
    const char *const *names;
    for (int i = times ? hd_names(a, &names) : 0; i-- > 0;)
        n += times * (double)hd_type_bytes(hd_symbol_find(o->func->module, names[i])->type);
    if (uses & USE_RESULT)
        n += (hd_has(&o->attrs, A_ACCUMULATE) ? 2 : 1) * (double)hd_type_bytes(hd_result_type(o, 0));
    return n;
}

static double operands_and_results(const Op *o) {
    double n = 0;
    for (int i = 0; i < o->n_in; i++) n += (double)hd_type_bytes(o->in[i]->type);
    for (int i = 0; i < o->n_out; i++) n += (double)hd_type_bytes(o->out[i]->type);
    for (int i = 0; i < o->attrs.n; i++) n += bytes_of_buffers(o, &o->attrs.at[i]);
    return n;
}

// A square and a sum for every element of gradient buffers.
static Cost cost_squares(const Op *o) {
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    double n = 0;
    for (int i = 0; i < list->n; i++)
        n += 2.0 * (double)hd_type_count(hd_symbol_find(o->func->module, list->strs[i])->type);
    return (Cost){n, operands_and_results(o)};
}

// One operation for each op of the kernel, unless it depends on constants alone, for every element.
static double update_flops(const Op *o) {
    const Func *k = hd_update_kernel(o);
    double n = 0;
    for (const Op *b = k ? k->first : NULL; b; b = b->next) {
        bool varies = false;
        for (int i = 0; i < b->n_in; i++) varies |= !b->in[i]->def || !hd_op_is(b->in[i]->def, TRAIT_CONSTANT);
        n += varies && !hd_op_is(b, TRAIT_RETURN);
    }
    return n * (double)hd_type_count(hd_named(o, A_MASTER_WEIGHTS)->type);
}

// The products of an optimizer that orthogonalizes, on the rank that has most to do.
static double turn_flops(const Op *o) {
    const Mesh mesh = hd_mesh(o->func->module);
    Arena *a = hd_arena_new();
    const Turned *list;
    const int n = hd_turned(o, a, &list);
    const int64_t ranks = hd_mesh_ranks(&mesh, HD_ALL_AXES);
    double most = 0;
    for (int64_t rank = 0; n && rank < ranks; rank++) {
        double flops = 0;
        for (int i = 0; i < n; i++) {
            const double r = (double)list[i].rows, c = (double)list[i].cols, least = r < c ? r : c;
            if (list[i].rank == rank) flops += HD_TURNS * (4 * least * r * c + 2 * least * least * least);
        }
        if (flops > most) most = flops;
    }
    hd_arena_free(a);
    return most;
}

// The gradients and weights that each mean of elements reads again.
static double averaged_bytes(const Op *o) {
    const Func *k = hd_update_kernel(o);
    if (!hd_has_lines(k)) return 0;
    Arena *a = hd_arena_new();
    int *per = HD_NEWN(a, int, k->n_values + 1), means = 0;
    hd_optimizer_per(k, per);
    for (const Op *p = k->first; p; p = p->next)
        means += hd_op_is(p, TRAIT_AVERAGES) && per[p->in[0]->id] == PER_ELEMENT;
    hd_arena_free(a);
    return 8.0 * means * (double)hd_type_count(hd_named(o, A_MASTER_WEIGHTS)->type);
}

static Cost cost_update(const Op *o) {
    const bool turns = hd_optimizer_turn(hd_update_kernel(o)) != NULL;
    const TurnedSpace s = hd_turned_space(o, true);
    const double moved = operands_and_results(o);
    return (Cost){update_flops(o) + (turns ? turn_flops(o) : 0),
                  turns ? moved + 4.0 * (double)s.x : moved + averaged_bytes(o)};
}

static Cost cost_move(const Op *o) { return (Cost){0, operands_and_results(o)}; }

// Not the whole table.
static Cost cost_lookup(const Op *o) {
    return (Cost){0, 2.0 * (double)hd_type_bytes(o->out[0]->type) + (double)hd_type_bytes(o->in[1]->type)};
}

static Cost cost_added(const Op *o) { return (Cost){count(o->in[0]), operands_and_results(o)}; }

static Cost cost_sum(const Op *o) { return (Cost){count(o->in[0]), operands_and_results(o)}; }

static Cost cost_matmul(const Op *o) {
    Product p = hd_product(o);
    double results = (double)p.batches * (double)p.m * (double)p.n;
    Cost c = {2.0 * results * (double)p.k, operands_and_results(o)};
    if (hd_operand_of(o, ROLE_BIAS) >= 0) c.flops += results;
    return c;
}

// Products of [seq x size] by [size x seq] and back: two forward, five backward (scores again, dv, dp, dq, dk).
static Cost cost_attention(const Op *o) {
    AttentionShape s = hd_attention_shape(o);
    return (Cost){(s.grad ? 5 : 2) * 2.0 * (double)(s.batch * s.heads * s.size) * hd_attention_pairs(&s),
                  operands_and_results(o)};
}

// As if half of the positions were there. It reads and writes its buffers beside its operands.
static Cost cost_attention_step(const Op *o) {
    const StepParts p = hd_step_parts(o);
    const double cached = (double)hd_cached_positions(o) / 2, row = (double)(p.kv_heads * p.size);
    return (Cost){4 * cached * (double)(p.heads * p.size),
                  operands_and_results(o) + 2 * cached * row * (double)hd_dtype_bytes(o->in[0]->type->dtype)};
}

// Of a chunk of q positions, where a position meets (q + 1) / 2 others: forward the scores c b' of each group, and of
// each head their product with x, the state that it adds and what y reads of the one that came in. Backward the scores
// and states again, and two products for each one's gradients.
static Cost cost_ssd(const Op *o) {
    const SsdShape s = hd_ssd_shape(o);
    const double met = ((double)(s.chunk < s.seq ? s.chunk : s.seq) + 1) / 2, n = (double)s.state, p = (double)s.size;
    const double scores = 2 * met * n * (double)s.groups, heads = (double)s.heads;
    const double each = s.grad ? 3 * scores + heads * (2 * met * p * 2 + 2 * n * p * 5)
                               : scores + heads * (2 * met * p + 2 * n * p * 2);
    return (Cost){(double)(s.batch * s.seq) * each, operands_and_results(o)};
}

// Bytes that cross the link of one rank: what it receives from the others, which equals what it sends.
static Cost cost_comm(const Op *o) {
    const Type *from = o->n_in ? o->in[0]->type : hd_named(o, A_BUFFER)->type, *to = hd_result_type(o, 0);
    if (hd_collective(o)->exchanges) {
        const Mesh mesh = hd_mesh(o->func->module);
        const double ranks = (double)hd_mesh_ranks(&mesh, hd_axes(&hd_named(o, A_COMM)->attrs, A_OVER));
        const double all = (double)hd_type_rows(to) / ranks, rows = (double)hd_int(&o->attrs, A_CAPACITY, (int64_t)all);
        return (Cost){0, (double)hd_type_bytes(to) / ranks * (ranks - 1) * rows / all};
    }
    const int64_t row = hd_has(&o->attrs, A_SCALES) ? hd_int(&o->attrs, A_QUANTIZED, 1) : 1; // a scale for each
    const DType sent = (hd_exchanges(o) ? from : to)->dtype;
    double more = (double)(hd_type_count(to) - hd_type_count(from) / row), bytes = (double)hd_dtype_bytes(sent);
    return more < 0 ? (Cost){-more, -more * bytes} : (Cost){0, more * bytes};
}

// A ring sends all numbers twice, but for one rank's part.
static Cost cost_all_max(const Op *o) {
    const Mesh mesh = hd_mesh(o->func->module);
    const double ranks = (double)hd_mesh_ranks(&mesh, hd_axes(&hd_named(o, A_COMM)->attrs, A_OVER));
    const double bytes = (double)hd_type_bytes(hd_result_type(o, 0));
    return (Cost){0, 2 * bytes * (ranks - 1) / ranks};
}

// A kernel computes its whole body and touches memory only at its operands and results; of a table it reads the rows
// that it looks up.
static Cost cost_launch(const Op *o) {
    Cost c = {0, operands_and_results(o)};
    const Func *k = hd_launched(o);
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
static const struct { OpKind of; Cost (*rule)(const Op *); int each; } rules[N_OPS] = {
#define ELT(id, ...) [OP_##id] = {.rule = cost_elementwise},
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define cost(x) .rule = cost_##x,
#include "ir/ops.def"
};

static Cost per_element(const Op *o) {
    return (Cost){rules[o->kind].each * count(o->in[0]), operands_and_results(o)};
}

void hd_cost(const Op *o, double *flops, double *bytes) {
    const Cost c = rules[o->kind].rule ? rules[o->kind].rule(o) : (Cost){0, 0};
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
