// Vector clocks over streams and events, in one pass in program order. See clocks.h.
#include "passes/analysis/clocks.h"

static void find_streams(const Func *f, Arena *a, Clocks *c, int *stream_of) {
    VEC(const char *) names = {0};
    for (const Op *o = f->first; o; o = o->next) {
        const char *name = o->stream ? o->stream : "";
        int i = 0;
        while (i < names.n && strcmp(names.at[i], name) != 0) i++;
        if (i == names.n) hd_push(a, &names, name);
        stream_of[o->id] = i;
    }
    c->n_streams = names.n;
    c->stream = names.at;
}

void hd_clocks_join(int *into, const int *from, int n) {
    for (int i = 0; i < n; i++)
        if (from[i] > into[i]) into[i] = from[i];
}

typedef struct { int *stream_of, *place, *clock, *now; } Walk; // now: [stream * n + stream]

static Walk begin(const Func *f, Arena *a, Clocks *c) {
    Walk w = {.stream_of = HD_NEWN(a, int, f->n_ops + 1), .place = HD_NEWN(a, int, f->n_ops + 1)};
    find_streams(f, a, c, w.stream_of);
    const int n = c->n_streams;
    w.clock = HD_NEWN(a, int, (int64_t)(f->n_ops + 1) * n);
    w.now = HD_NEWN(a, int, (int64_t)n * n + 1);
    c->stream_of = w.stream_of;
    c->place = w.place;
    c->clock = w.clock;
    return w;
}

// The stream of an op has seen that op `on` has ended.
static void see(const Walk *w, int n, int stream, int on) {
    int *mine = w->now + stream * n;
    hd_clocks_join(mine, w->clock + on * n, n);
    if (w->place[on] > mine[w->stream_of[on]]) mine[w->stream_of[on]] = w->place[on];
}

static void start(const Walk *w, int n, const Op *o) {
    int *mine = w->now + w->stream_of[o->id] * n;
    memcpy(w->clock + o->id * n, mine, sizeof(int) * (size_t)n);
    w->place[o->id] = ++mine[w->stream_of[o->id]];
}

Clocks hd_clocks(const Func *f, Arena *a) {
    Clocks c = {0};
    const Walk w = begin(f, a, &c);
    VEC(int) record = {0}; // by event: the op that records it, plus 1
    for (const Op *o = f->first; o; o = o->next) {
        int64_t event = hd_int(&o->attrs, A_EVENT, -1);
        if (hd_op_is(o, TRAIT_WAITS) && event >= 0 && event < record.n && record.at[event])
            see(&w, c.n_streams, w.stream_of[o->id], record.at[event] - 1);
        start(&w, c.n_streams, o);
        if (hd_op_is(o, TRAIT_RECORDS) && event >= 0 && event < 1 << 20) {
            while (record.n <= event) hd_push(a, &record, 0);
            record.at[event] = o->id + 1;
        }
    }
    return c;
}

Clocks hd_clocks_of_deps(const Func *f, const Deps *deps, Arena *a) {
    Clocks c = {0};
    const Walk w = begin(f, a, &c);
    for (const Op *o = f->first; o; o = o->next) {
        for (int k = deps->start[o->id]; k < deps->start[o->id + 1]; k++)
            if (w.stream_of[deps->pred[k]] != w.stream_of[o->id])
                see(&w, c.n_streams, w.stream_of[o->id], deps->pred[k]);
        start(&w, c.n_streams, o);
    }
    return c;
}
