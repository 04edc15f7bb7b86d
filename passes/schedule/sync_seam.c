// sync, second part: events over the seams of a step. A stream in `overlaps` runs on when its function returns. All
// that it still does is the function's tail, and one event tells the functions that may follow that the tail has ended:
//
//   @micro: ...                                           @micro_last: ...
//   [reduce] reduce_scatter {...}                         [compute] wait {event = 12}
//   [reduce] record {event = 12}     (the tail's end)     [compute] begin {life = @micro_last.b.gradient, ...}
//   [compute] return                                      ...
//
// The event has a number that no other one has, so its last record before the wait is that of the function before.
// The main stream waits as late as it may, such that the tail has the forward pass to end in:
//   - where it needs something of the tail, and where a life begins whose bytes the next tail takes along: this
//     function's tail has the places in memory that the one before had;
//   - before the first `begin`: gradients that begin count against the same bound as those of the tail (live_grads);
//   - before the bytes that the tail holds and those that are live here are together more than the most that are live
//     anywhere: overlap costs no memory then;
//   - at the return, so that no tail outlives the function that follows.
// Where the main stream sees a later op of the tail's stream before that, it waits for nothing more. Another stream
// waits on its own where it needs something of the tail that the main stream's wait does not promise.
#include "passes/analysis/clocks.h"
#include "passes/analysis/deps.h"
#include "passes/analysis/live.h"
#include "passes/schedule/schedule.h"
#include "ir/base/ints.h"

typedef struct { Op *before; const char *stream; } Wait;
typedef VEC(Wait) Waits;
typedef struct {
    Module *m;
    Arena *a;
    const Seams *seams;
    Joined *joined; // by seam
    int64_t peak;   // most bytes live in any function
} Cross;

static bool in_tail(const Joined *j, const char *stream) {
    for (const Op *o = j->f->first; o->id < j->tail; o = o->next)
        if (o->stream == stream && !hd_is_alias(o) && !hd_op_is(o, TRAIT_SYNC)) return true;
    return false;
}

static int64_t held_by(const Joined *j, Arena *a) {
    Carried c = hd_carried(j, a);
    int64_t n = 0;
    for (int i = 0; i < c.n; i++) n += hd_align(hd_type_bytes(c.at[i]->type));
    return n;
}

// --- what an op of the function must wait for

// By symbol id: transient buffers that the tail of f takes along.
static bool *taken_along(const Cross *x, const Func *f) {
    bool *taken = HD_NEWN(x->a, bool, x->m->n_symbols + 1);
    for (int i = 0; i < x->seams->n; i++) {
        if (x->seams->at[i].before != f) continue;
        Carried c = hd_carried(&x->joined[i], x->a);
        for (int k = 0; k < c.n; k++) taken[c.at[k]->id] = true;
    }
    return taken;
}

static bool begins_one(const Op *o, const Home *homes, bool *taken, Arena *a) {
    Accesses list = {0};
    hd_accesses(o, a, &list);
    bool any = false;
    for (int i = 0; i < list.n; i++) {
        const Symbol *b = list.at[i].at == AT_VALUE ? homes[list.at[i].value->id].buffer : list.at[i].buffer;
        any |= b && taken[b->id];
        if (b) taken[b->id] = false;
    }
    return any;
}

// By op id of f: whether it comes after what a tail on `stream` leaves.
static bool *find_needs(const Cross *x, const Func *f, const char *stream) {
    bool *needs = HD_NEWN(x->a, bool, f->n_ops + 1), *taken = taken_along(x, f);
    const Home *homes = hd_homes(f, x->a);
    for (const Op *o = f->first; o; o = o->next) needs[o->id] = begins_one(o, homes, taken, x->a);
    for (int i = 0; i < x->seams->n; i++) {
        const Joined *j = &x->joined[i];
        if (x->seams->at[i].after != f || !in_tail(j, stream)) continue;
        Deps deps = hd_deps(j->f, x->a);
        const char **of = HD_NEWN(x->a, const char *, j->tail + 1);
        for (const Op *o = j->f->first; o->id < j->tail; o = o->next) of[o->id] = o->stream;
        for (int k = j->tail; k < j->f->n_ops; k++)
            for (int e = deps.start[k]; e < deps.start[k + 1]; e++)
                needs[k - j->tail] |= deps.pred[e] < j->tail && of[deps.pred[e]] == stream;
    }
    return needs;
}

// The first op of f during which its live bytes and those that the function before may still hold are more than the
// peak; the return: there is none.
static const Op *first_over(const Cross *x, const Func *f) {
    int64_t held = 0;
    for (int i = 0; i < x->seams->n; i++) {
        int64_t n = x->seams->at[i].after == f ? held_by(&x->joined[i], x->a) : 0;
        if (n > held) held = n;
    }
    Live live = hd_live(f, 0, SPACE_DEVICE, x->a);
    int64_t *change = HD_NEWN(x->a, int64_t, f->n_ops + 2), now = 0;
    for (int i = 0; i < live.n; i++) {
        change[live.at[i].from] += live.at[i].bytes;
        change[live.at[i].to + 1] -= live.at[i].bytes;
    }
    for (const Op *o = f->first; o; o = o->next)
        if ((now += change[o->id]) + held > x->peak) return o;
    return f->last;
}

// --- waits

// The op of the main stream before which it must have seen the tail, which is at most the one at `limit`.
static Op *main_place(Func *f, const bool *needs, const Op *limit) {
    const char *main = f->last->stream;
    Op *at = NULL;
    for (Op *o = f->first; o; o = o->next) {
        if (o->stream == main && !hd_is_alias(o)) {
            at = o;
            if (needs[o->id] || hd_op_is(o, TRAIT_BEGINS)) return o;
        }
        if (o == limit && at) return at;
    }
    return f->last;
}

static int stream_number(const Clocks *c, const char *stream) {
    int i = 0;
    while (i < c->n_streams && strcmp(c->stream[i], stream) != 0) i++;
    return i;
}

// The first op of the main stream that starts after one of `stream`, up to `end`; NULL: none does.
static const Op *sees(const Func *f, const Clocks *c, const char *stream, const Op *end) {
    int t = stream_number(c, stream);
    for (const Op *o = f->first; o && t < c->n_streams; o = o->next) {
        if (o->stream == f->last->stream && c->clock[o->id * c->n_streams + t] > 0) return o;
        if (o == end) break;
    }
    return NULL;
}

static void find_waits(const Cross *x, Func *f, const char *stream, const Op *limit, Waits *waits) {
    const bool *needs = find_needs(x, f, stream);
    Clocks c = hd_clocks(f, x->a);
    Op *at = main_place(f, needs, limit);
    const Op *seen = sees(f, &c, stream, at);
    const char *main = f->last->stream;
    if (!seen) {
        Wait w = {at, main};
        hd_push(x->a, waits, w);
        seen = at;
    }
    bool *done = HD_NEWN(x->a, bool, c.n_streams + 1);
    for (Op *o = f->first; o; o = o->next) { // streams that the main one's wait does not reach in time
        int s = c.stream_of[o->id];
        if (!needs[o->id] || o->stream == stream || o->stream == main || done[s] || hd_before(&c, seen->id, o->id))
            continue;
        Wait w = {o, o->stream};
        hd_push(x->a, waits, w);
        done[s] = true;
    }
}

static void record(Func *f, const char *stream, int64_t event) {
    Op *last = NULL;
    for (Op *o = f->first; o; o = o->next)
        if (o->stream == stream && !hd_is_alias(o)) last = o;
    Op *r = hd_sync_op(f, OP_RECORD, event, last ? stream : f->last->stream);
    if (last) r->loc = last->loc, hd_insert_after(last, r);
    else hd_insert_before(f->last, r);
}

// Every function that may precede one that waits records the event.
static bool is_awaited(const Cross *x, const Func *f, const Func *const *waiting, int n) {
    for (int i = 0; i < x->seams->n; i++)
        for (int k = 0; k < n && x->seams->at[i].before == f; k++)
            if (x->seams->at[i].after == waiting[k]) return true;
    return false;
}

typedef struct { const char *name; int64_t event; Waits waits; const Func **waiting; int n_waiting; } Stream;

static void find_stream(const Cross *x, Stream *s) {
    s->waiting = HD_NEWN(x->a, const Func *, x->seams->n + 1);
    for (Func *f = x->m->funcs; f; f = f->next) {
        bool any = false;
        for (int i = 0; i < x->seams->n; i++)
            any |= x->seams->at[i].after == f && in_tail(&x->joined[i], s->name);
        if (!any || !hd_follows(x->seams, f)) continue;
        int before = s->waits.n;
        find_waits(x, f, s->name, first_over(x, f), &s->waits);
        if (s->waits.n > before) s->waiting[s->n_waiting++] = f;
    }
}

static int insert(const Cross *x, const Stream *s) {
    for (Func *f = x->m->funcs; f; f = f->next)
        if (!f->is_kernel && is_awaited(x, f, s->waiting, s->n_waiting)) record(f, s->name, s->event);
    for (int i = 0; i < s->waits.n; i++) {
        Op *before = s->waits.at[i].before;
        Op *w = hd_sync_op(before->func, OP_WAIT, s->event, s->waits.at[i].stream);
        w->loc = before->loc;
        hd_insert_before(before, w);
    }
    return s->waits.n;
}

static int64_t first_free_event(const Module *m) {
    int64_t n = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o && !f->is_kernel; o = o->next) {
            int64_t event = hd_int(&o->attrs, A_EVENT, -1);
            if (event >= n) n = event + 1;
        }
    return n;
}

int hd_sync_seams(Module *m, const Seams *b, Arena *a) {
    if (!b->n) return 0;
    Cross x = {m, a, b, HD_NEWN(a, Joined, b->n), 0};
    for (int i = 0; i < b->n; i++) x.joined[i] = hd_join(&b->at[i], a);
    for (const Func *f = m->funcs; f; f = f->next) {
        int64_t peak = f->is_kernel ? 0 : hd_live(f, 0, SPACE_DEVICE, a).peak;
        if (peak > x.peak) x.peak = peak;
    }
    VEC(Stream) streams = {0};
    int64_t event = first_free_event(m);
    for (const Symbol *s = m->symbols; s; s = s->next) {
        Stream stream = {.name = s->name, .event = event};
        if (s->kind == SYM_STREAM) find_stream(&x, &stream);
        if (!stream.waits.n) continue;
        hd_push(a, &streams, stream);
        event++;
    }
    int n = 0;
    for (int i = 0; i < streams.n; i++) n += insert(&x, &streams.at[i]);
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) hd_renumber(f);
    return n;
}
