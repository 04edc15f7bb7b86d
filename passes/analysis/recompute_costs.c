// The cost of computing the results of an op again, and the bytes that then wait for the backward pass. Views cost
// nothing and hold no bytes of their own. Pointwise work joins the kernel that reads its result, so it costs what it
// writes, and only where a product or another op that is no row kernel reads it.
#include "passes/analysis/recompute_costs.h"
#include "ir/machine/cost.h"
#include "ir/mesh.h"
#include <string.h>

enum { FUSED_SHARE = 16 }; // of its bytes that an op in another op's kernel is taken to cost
static const double nominal_bytes = 3e12, nominal_flops = 6e14; // a second

static double seconds_of(const Costs *c, const Op *o) {
    double flops, bytes;
    if (c->model) return hd_model_seconds(c->model, o);
    hd_cost(o, &flops, &bytes);
    return flops / nominal_flops > bytes / nominal_bytes ? flops / nominal_flops : bytes / nominal_bytes;
}

static bool is_forward(const Op *o) { return !hd_has(&o->attrs, A_BWD); }

static bool is_pointwise(const Op *o) {
    return hd_op_is(o, TRAIT_SCALAR) || o->kind == OP_BROADCAST;
}

bool hd_recompute_possible(const Op *o) {
    if (hd_op_is(o, TRAIT_PURE)) return true;
    const Symbol *comm = o->kind == OP_ALL_GATHER && o->n_in == 1 && o->n_out == 1 ? hd_named(o, A_COMM) : NULL;
    return comm && !(hd_axes(&comm->attrs, A_OVER) & HD_DATA_AXES); // a value, from ranks that share it
}

bool hd_recompute_cheap(const Op *o) {
    if (is_pointwise(o) || hd_op_is(o, TRAIT_ALIAS)) return true;
    const Op *part_of = o->kind == OP_SLICE ? o->in[0]->def : NULL;
    return hd_op_is(o, TRAIT_LIGHT) || (part_of && hd_op_is(part_of, TRAIT_CONVOLUTION));
}

// Whether an op that is no row kernel reads a result in the backward pass.
static bool is_written(const Costs *c, const Op *o) {
    for (int i = 0; i < o->n_out; i++)
        for (int k = 0; k < c->uses.count[o->out[i]->id]; k++) {
            const Op *user = c->uses.users[o->out[i]->id][k];
            if (hd_op_is(user, TRAIT_ALIAS) ? is_written(c, user) : !is_forward(user) && !is_pointwise(user))
                return true;
        }
    return false;
}

static double seconds_again(const Costs *c, const Op *o) {
    double in = 0, out = 0;
    if (hd_op_is(o, TRAIT_ALIAS)) return 0;
    for (int i = 0; i < o->n_in; i++) in += (double)hd_type_bytes(o->in[i]->type);
    for (int i = 0; i < o->n_out; i++) out += (double)hd_type_bytes(o->out[i]->type);
    double alone = seconds_of(c, o);
    if (!is_pointwise(o) || in + out <= 0) return alone;
    return alone * out / (in + out) / (is_written(c, o) ? 1 : FUSED_SHARE);
}

// zero3 gathers weights for each pass again, and what quantizes them is done again with it (passes/fsdp/windows.c).
static bool gathers_again(const Module *m) {
    const Symbol *schedule = hd_symbol_find(m, "schedule");
    const Mesh mesh = hd_mesh(m);
    return schedule && !strcmp(hd_word(&schedule->attrs, A_FSDP, ""), "zero3") &&
           hd_mesh_ranks(&mesh, HD_SPLIT_AXES) > 1;
}

// Parameters, arguments, constants and their casts and reshapes: they are there anyway.
static const bool *find_storage(const Func *f, Arena *a) {
    bool *storage = HD_NEWN(a, bool, f->n_ops + 1);
    const bool again = gathers_again(f->module);
    for (const Op *o = f->first; o; o = o->next) {
        const Op *def = o->n_in ? o->in[0]->def : NULL;
        const bool carries = hd_op_is(o, TRAIT_CARRIES) || (hd_op_is(o, TRAIT_QUANTIZES) && again && def);
        storage[o->id] = !o->n_in || (carries && (!def || storage[def->id]));
    }
    return storage;
}

bool hd_read_backward(const Uses *uses, const Value *v) {
    for (int k = 0; k < uses->count[v->id]; k++)
        if (!is_forward(uses->users[v->id][k])) return true;
    return false;
}

bool *hd_recompute_waiting(const Costs *c, const bool *again) {
    bool *kept = HD_NEWN(c->a, bool, c->f->n_values + 1), *waiting = HD_NEWN(c->a, bool, c->f->n_values + 1);
    for (const Op *o = c->f->last; o; o = o->prev) {
        if (!is_forward(o)) continue;
        for (int i = 0; i < o->n_out; i++) {
            const Value *v = o->out[i];
            bool waits = kept[v->id] || hd_read_backward(&c->uses, v);
            for (int k = 0; again && k < c->uses.count[v->id]; k++) waits |= again[c->uses.users[v->id][k]->id];
            if (!waits || (again && again[o->id]) || c->storage[o->id]) continue;
            if (hd_op_is(o, TRAIT_ALIAS)) kept[o->in[0]->id] = true;
            else waiting[v->id] = true;
        }
    }
    return waiting;
}

double hd_recompute_kept(const Costs *c, const bool *again) {
    const bool *waiting = hd_recompute_waiting(c, again);
    double bytes = 0;
    for (const Op *o = c->f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++)
            if (waiting[o->out[i]->id]) bytes += (double)hd_type_bytes(o->out[i]->type);
    return bytes;
}

Costs hd_recompute_costs(const Func *f, const bool *may, bool dear, Arena *a) {
    Costs c = {.f = f, .model = hd_model(f->module), .a = a, .uses = hd_uses(f, a), .storage = find_storage(f, a),
               .seconds = HD_NEWN(a, double, f->n_ops + 1)};
    for (const Op *o = f->first; o; o = o->next) {
        const bool open = is_forward(o) && !c.storage[o->id] && may[o->id] && !hd_op_info(o->kind)->chosen &&
                          (dear || hd_recompute_cheap(o));
        c.seconds[o->id] = open ? seconds_again(&c, o) : -1;
        if (hd_op_is(o, TRAIT_MATMUL)) c.products += seconds_of(&c, o);
    }
    return c;
}

bool hd_has_backward(const Func *f) {
    for (const Op *o = f->first; o; o = o->next)
        if (hd_has(&o->attrs, A_BWD)) return true;
    return false;
}
