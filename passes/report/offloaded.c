// Offloaded values, in both forms of the report: for each value when it leaves and returns, and how long the
// main stream waits for its copies, by the simulation of the step; and what waits on the device.
#include "passes/report/facts.h"
#include "ir/base/ints.h"

typedef struct {
    const Op *out, *back, *reader; // copied out, copied back; what waits for the copy back
    int64_t bytes;
    const SimAction *leaves, *returns; // NULL: no time is known
    double stall;
} Away;
typedef struct {
    const Func *f;
    VEC(Away) values;
    int64_t away, here; // bytes of the forward pass that the backward pass reads: in host memory, on the device
    double stall;
    const SimAction **action; // by op id: in the first run of f
} Offloaded;

static void find_values(Offloaded *x, Arena *a) {
    const Uses uses = hd_uses(x->f, a);
    for (const Op *o = x->f->first; o; o = o->next) {
        if (!hd_copies_to_host(o)) continue;
        Away v = {.out = o, .bytes = hd_type_bytes(o->out[0]->type), .leaves = x->action[o->id]};
        for (int i = 0; i < uses.count[o->out[0]->id]; i++)
            if (hd_op_is(uses.users[o->out[0]->id][i], TRAIT_COPIES)) v.back = uses.users[o->out[0]->id][i];
        if (v.back) v.returns = x->action[v.back->id];
        x->away += v.bytes;
        hd_push(a, &x->values, v);
    }
}

// The storages that stay.
static void count_waiting(Offloaded *x, Arena *a) {
    const Home *homes = hd_homes(x->f, a);
    bool *seen = HD_NEWN(a, bool, x->f->n_values + 1);
    for (const Op *o = x->f->first; o; o = o->next)
        for (int i = 0; i < o->n_in && hd_has(&o->attrs, A_BWD) && !hd_op_is(o, TRAIT_ORDERS) && !hd_is_alias(o); i++) {
            const Value *v = homes[o->in[i]->id].root;
            if (!v || !v->def || seen[v->id] || v->place.space || hd_has(&v->def->attrs, A_BWD)) continue;
            seen[v->id] = true;
            x->here += hd_type_bytes(v->type);
        }
}

// The main stream is free at `free` and goes on when the copies that an op waits for have ended, one after another.
static void wait_for(Offloaded *x, Away *v, const SimAction *copy, double *free) {
    if (!copy || copy->end <= *free) return;
    v->stall += copy->end - *free;
    x->stall += copy->end - *free;
    *free = copy->end;
}

static Away *value_of(Offloaded *x, const Value *host, bool back) {
    for (int i = 0; i < x->values.n; i++) {
        const Op *o = back ? x->values.at[i].back : x->values.at[i].out;
        if (o && o->out[0] == host) return &x->values.at[i];
    }
    return NULL;
}

static void find_stalls(Offloaded *x, Arena *a) {
    const Home *homes = hd_homes(x->f, a);
    const char *main = x->f->last->stream;
    double free = x->f->first && x->action[x->f->first->id] ? x->action[x->f->first->id]->start : 0;
    for (const Op *o = x->f->first; o; o = o->next) {
        if (o->stream != main || hd_is_alias(o) || hd_op_is(o, TRAIT_SYNC)) continue;
        for (int i = 0; i < o->n_in; i++) {
            const Value *root = homes[o->in[i]->id].root;
            const bool fence = hd_op_is(o, TRAIT_ORDERS);
            Away *v = !root || !root->def || !hd_op_is(root->def, TRAIT_COPIES) ? NULL : value_of(x, root, !fence);
            if (!v || (!fence && v->reader)) continue;
            wait_for(x, v, fence ? v->leaves : v->returns, &free);
            if (!fence) v->reader = o;
        }
        if (x->action[o->id] && x->action[o->id]->end > free) free = x->action[o->id]->end;
    }
}

static Offloaded find(const Facts *r, Arena *a) {
    const Module *m = r->at ? r->at->module : NULL;
    const Symbol *step = m ? hd_step(m, KIND_TRAIN) : NULL;
    Offloaded x = {0};
    for (int i = 0; !x.values.n && step && (x.f = hd_segment(m, step, i, NULL)); i++) {
        x = (Offloaded){.f = x.f, .action = HD_NEWN(a, const SimAction *, x.f->n_ops + 1)};
        for (int k = r->sim.n_actions; k-- > 0;) // the first run is the last to be seen
            if (r->sim.actions[k].op->func == x.f) x.action[r->sim.actions[k].op->id] = &r->sim.actions[k];
        find_values(&x, a);
        count_waiting(&x, a);
    }
    if (x.values.n) find_stalls(&x, a);
    return x;
}

static double since(const Offloaded *x, double t) { // the start of the function
    for (const Op *o = x->f->first; o; o = o->next)
        if (x->action[o->id]) return t - x->action[o->id]->start;
    return t;
}

static const char *path(const Op *o) { return o->loc.path ? o->loc.path : ""; }

void hd_report_offloaded(const Facts *r, Out *o) {
    Arena *a = hd_arena_new();
    const Offloaded x = find(r, a);
    if (!x.values.n) {
        hd_arena_free(a);
        return;
    }
    hd_put_json(o, "  \"offload\": {\"bytes\": %lld, \"waiting_bytes\": %lld, \"waiting_bytes_without\": %lld",
                ll(x.away), ll(x.here), ll(x.here + x.away));
    if (r->device) hd_put_json(o, ", \"stall_seconds\": %.9f", x.stall);
    hd_puts(o, ", \"values\": [");
    for (int i = 0; i < x.values.n; i++) {
        const Away *v = &x.values.at[i];
        hd_put_json(o, "%s\n    {\"place\": \"%s\", \"bytes\": %lld, \"out\": %d, \"back\": %d", i ? "," : "",
                    path(v->out), ll(v->bytes), v->out->id, v->back ? v->back->id : -1);
        if (v->leaves && v->returns)
            hd_put_json(o, ", \"out_seconds\": [%.9f, %.9f], \"back_seconds\": [%.9f, %.9f], \"stall_seconds\": %.9f",
                        since(&x, v->leaves->start), since(&x, v->leaves->end), since(&x, v->returns->start),
                        since(&x, v->returns->end), v->stall);
        hd_puts(o, "}");
    }
    hd_puts(o, "]},\n");
    hd_arena_free(a);
}

void hd_report_offloaded_text(const Facts *r, Out *o) {
    enum { MOST = 40 };
    Arena *a = hd_arena_new();
    const Offloaded x = find(r, a);
    if (x.values.n) {
        hd_show(o, "\n%20lld  bytes that the backward pass reads are offloaded; ", ll(x.away));
        hd_show(o, "%lld stay on the device, without offload %lld\n", ll(x.here), ll(x.here + x.away));
        hd_show(o, "%20s  %-19s  %-19s  %8s\n", "bytes", "out, ms", "back, ms", "stall");
    }
    for (int i = 0; i < x.values.n && i < MOST; i++) {
        const Away *v = &x.values.at[i];
        hd_show(o, "%20lld  ", ll(v->bytes));
        if (v->leaves && v->returns)
            hd_show(o, "%8.3f - %8.3f  %8.3f - %8.3f  %8.3f", 1e3 * since(&x, v->leaves->start),
                    1e3 * since(&x, v->leaves->end), 1e3 * since(&x, v->returns->start),
                    1e3 * since(&x, v->returns->end), 1e3 * v->stall);
        else hd_show(o, "by op %-13d  by op %-13d  %8s", v->out->id, v->back ? v->back->id : -1, "");
        hd_show(o, "  %s\n", path(v->out));
    }
    if (x.values.n > MOST) hd_show(o, "%20s  and %d more\n", "", x.values.n - MOST);
    if (x.values.n && r->device) hd_show(o, "%20s  the main stream waits %.3f ms for them\n", "", 1e3 * x.stall);
    hd_arena_free(a);
}
