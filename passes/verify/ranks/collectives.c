// Collectives and their bounds. Every collective of a group runs on the group's stream, so the group has one order,
// that of the program. All ranks run the same text, so every rank has this order [V26]. A wait is for an event that an
// earlier op records (verify_order), so no collective waits for a later one, and streams never wait in a circle [V32].
//
// The number of transient buffers of a class that are alive at once, however the streams run: buffer A is gone when
// buffer B begins if all accesses of A happen before the op that begins B. When most buffers are alive, let B be the
// one that begins last in the program; the others began earlier and are not gone. So the maximum is 1 + the number of
// those, for the worst B. Two bounds are proved:
//   gathered weights  when a unit is gathered, at most `prefetch` others are alive whose last use is before its first
//                     one [V13]
//   gradients         when one begins, at most `live_grads` - 1 others are alive whose last write is before it [V14]
// Buffers still in use are not counted: a root whose embedding is tied to its head is used, or written, throughout the
// function.
#include "passes/analysis/clocks.h"
#include "passes/verify/verify_plan.h"
#include "ir/base/ints.h"

typedef struct {
    const Symbol *buffer;
    const Op *begin, *use, *write; // first access, first read, last write
    int last;                      // id of the last access
    int *last_on;                  // by stream: id of the last access there; -1: none
} Life;
typedef struct {
    PlanCheck *c;
    const Func *f;
    Clocks clocks;
    const char *class;
    int *slot;         // by symbol id: its index in `lives`, plus 1
    VEC(Life) lives;   // in the order in which they begin
    VEC(int) alive;    // of those
    bool one_stream;   // all begin on one stream, so a buffer that is gone stays gone
    int most;
    bool said;
} Lives;

static void access_buffer(Lives *l, const Op *o, const Symbol *b, bool write) {
    if (!hd_has(&b->attrs, A_TRANSIENT) || strcmp(hd_word(&b->attrs, A_CLASS, ""), l->class) != 0) return;
    if (l->c->part_of[b->id] == PART_GRAD) return; // it waits for the optimizer, not for a reduction
    if (hd_elements_each(b) > 1) return; // scales live as long as the rows that they are of
    if (!l->slot[b->id]) {
        Life fresh = {.buffer = b, .begin = o, .last_on = HD_NEWN(l->c->a, int, l->clocks.n_streams)};
        for (int s = 0; s < l->clocks.n_streams; s++) fresh.last_on[s] = -1;
        hd_push(l->c->a, &l->lives, fresh);
        l->slot[b->id] = l->lives.n;
    }
    Life *x = &l->lives.at[l->slot[b->id] - 1];
    if (write) x->write = o;
    else if (!x->use) x->use = o;
    x->last = x->last_on[l->clocks.stream_of[o->id]] = o->id;
}

static void find_lives(Lives *l) {
    const Home *homes = hd_homes(l->f, l->c->a);
    Accesses list = {0};
    for (const Op *o = l->f->first; o; o = o->next) {
        if (l->c->joined && o->id == l->c->joined->tail) // what the tail used lives another time
            memset(l->slot, 0, sizeof *l->slot * (size_t)l->c->m->n_symbols);
        hd_accesses(o, l->c->a, &list);
        for (int i = 0; i < list.n; i++) {
            const Access *x = &list.at[i];
            const Symbol *b = x->order ? NULL : x->at == AT_VALUE ? homes[x->value->id].buffer : x->buffer;
            if (b) access_buffer(l, o, b, x->write);
        }
    }
}

static bool is_gone(const Lives *l, const Life *a, const Life *b) {
    for (int s = 0; s < l->clocks.n_streams; s++)
        if (a->last_on[s] >= 0 && !hd_before(&l->clocks, a->last_on[s], b->begin->id)) return false;
    return true;
}

static const char *unit_of(const Lives *l, const Life *x) {
    const BucketParts *k = hd_plan_bucket(l->c, x->buffer);
    return k ? hd_word(&k->symbol->attrs, A_UNIT, k->symbol->name) : x->buffer->name;
}

// Buckets of one unit, for weights of different dtypes, are gathered together and count as one: whether an earlier
// bucket of its unit was counted.
static bool counts(const Lives *l, int i, const Life *b) {
    const Life *x = &l->lives.at[l->alive.at[i]];
    if (hd_plan_bucket(l->c, x->buffer) != hd_plan_bucket(l->c, b->buffer) && unit_of(l, x) == unit_of(l, b))
        return false;
    for (int k = 0; k < i; k++) {
        const Life *y = &l->lives.at[l->alive.at[k]];
        if (hd_plan_bucket(l->c, x->buffer) != hd_plan_bucket(l->c, y->buffer) && unit_of(l, x) == unit_of(l, y))
            return false;
    }
    return true;
}

static void begin(Lives *l, int index, int64_t bound, bool by_writes) {
    const Life *b = &l->lives.at[index], *oldest = NULL;
    int n = 0, all = 1, settled = 0;
    l->one_stream &= l->clocks.stream_of[b->begin->id] == l->clocks.stream_of[l->lives.at[0].begin->id];
    for (int i = 0; i < l->alive.n; i++)
        if (!l->one_stream || !is_gone(l, &l->lives.at[l->alive.at[i]], b)) l->alive.at[n++] = l->alive.at[i];
    l->alive.n = n;
    for (int i = 0; i < n; i++) {
        const Life *x = &l->lives.at[l->alive.at[i]];
        if (!counts(l, i, b) || (!l->one_stream && is_gone(l, x, b))) continue;
        all++;
        const Op *until = by_writes ? b->begin : b->use;
        int last = !by_writes ? x->last : x->write ? x->write->id : -1; // a tail may only read what it was left
        if (!until || last >= until->id) continue;
        settled++;
        if (!oldest) oldest = x;
    }
    if (all > l->most) l->most = all;
    if (bound >= 0 && settled > bound && !l->said) {
        const Op *last = l->c->ops[oldest->last];
        const char *edge = hd_sprintf(l->c->a, "record an event on %s after op %s and wait for it on %s before op %s",
                                      last->stream, hd_plan_number(l->c, last), b->begin->stream,
                                      hd_plan_number(l->c, b->begin));
        hd_plan_wrong(
            l->c, b->begin, b->begin->span,
            "begins the life of @%s while %d others are alive, the oldest @%s until %s; %s = %lld allows %lld: %s",
            b->buffer->name, settled, oldest->buffer->name, hd_plan_op(l->c, last),
            by_writes ? "live_grads" : "prefetch", ll(by_writes ? bound + 1 : bound), ll(bound), edge);
        l->said = true;
    }
    hd_push(l->c->a, &l->alive, index);
}

static int most_alive(PlanCheck *c, const Clocks *clocks, const char *class, int64_t bound, bool by_writes) {
    Lives l = {.c = c, .f = c->f, .clocks = *clocks, .class = class, .slot = HD_NEWN(c->a, int, c->m->n_symbols + 1),
               .one_stream = true};
    find_lives(&l);
    for (int i = 0; i < l.lives.n; i++) begin(&l, i, bound, by_writes);
    return l.most;
}

static void count_alive(PlanCheck *c, PlanMaxima *most) {
    const Symbol *schedule = hd_symbol_find(c->m, "schedule");
    int64_t prefetch = schedule ? hd_int(&schedule->attrs, A_PREFETCH, -1) : -1;
    int64_t live = schedule ? hd_int(&schedule->attrs, A_LIVE_GRADS, 0) : 0;
    Clocks clocks = hd_clocks(c->f, c->a);
    int gathered = most_alive(c, &clocks, "weights", prefetch, false),
        gradients = most_alive(c, &clocks, "gradients", live - 1, true);
    if (gathered > most->gathered_units) most->gathered_units = gathered;
    if (gradients > most->live_gradients) most->live_gradients = gradients;
}

static void check_stream(PlanCheck *c, const Op *o) {
    const Symbol *comm = hd_named(o, A_COMM);
    const char *group = comm ? hd_word(&comm->attrs, A_ON, "") : NULL, *on = hd_word(&o->attrs, A_ON, NULL);
    if (!o->stream) return; // already reported
    if (group && strcmp(group, o->stream) != 0)
        hd_plan_wrong(
            c, o, o->span,
            "is a collective of @%s, whose order is that of stream %s: it runs there, or it takes a comm of stream %s",
            comm->name, group, o->stream);
    if (on && strcmp(on, o->stream) != 0) hd_plan_wrong(c, o, o->span, "must run on stream %s", on);
}

void hd_check_streams(PlanCheck *c) {
    for (const Op *o = c->f->first; o; o = o->next) check_stream(c, o);
}

void hd_check_alive(PlanCheck *c) {
    PlanMaxima most = {0};
    count_alive(c, &most);
}

PlanMaxima hd_plan_maxima(const Module *m, Arena *a) {
    PlanCheck c = {.m = m, .a = a};
    PlanMaxima most = {0};
    hd_check_layout(&c);
    for (const Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) hd_plan_enter(&c, f), count_alive(&c, &most);
    Seams seams = hd_seams(m, a);
    for (int i = 0; i < seams.n; i++) {
        Joined j = hd_join(&seams.at[i], a);
        hd_plan_join(&c, &j);
        count_alive(&c, &most);
    }
    return most;
}
