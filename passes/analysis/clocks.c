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

Clocks hd_clocks(const Func *f, Arena *a) {
    Clocks c = {0};
    int *stream_of = HD_NEWN(a, int, f->n_ops + 1), *place = HD_NEWN(a, int, f->n_ops + 1);
    find_streams(f, a, &c, stream_of);
    int n = c.n_streams;
    int *clock = HD_NEWN(a, int, (int64_t)(f->n_ops + 1) * n), *now = HD_NEWN(a, int, (int64_t)n * n + 1);
    VEC(int) record = {0}; // by event: the op that records it, plus 1
    for (const Op *o = f->first; o; o = o->next) {
        int s = stream_of[o->id], *mine = now + s * n;
        int64_t event = hd_int(&o->attrs, A_EVENT, -1);
        if (o->kind == OP_WAIT && event >= 0 && event < record.n && record.at[event]) {
            int r = record.at[event] - 1;
            hd_clocks_join(mine, clock + r * n, n);
            if (place[r] > mine[stream_of[r]]) mine[stream_of[r]] = place[r];
        }
        memcpy(clock + o->id * n, mine, sizeof(int) * (size_t)n);
        place[o->id] = ++mine[s];
        if (o->kind == OP_RECORD && event >= 0 && event < 1 << 20) {
            while (record.n <= event) hd_push(a, &record, 0);
            record.at[event] = o->id + 1;
        }
    }
    c.stream_of = stream_of;
    c.place = place;
    c.clock = clock;
    return c;
}
