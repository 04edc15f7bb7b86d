// See times.h.
//   [compute] capture {..}                      [compute] capture {..}
//   [compute] %0 = gemm ...                     [compute] %0 = gemm ...
//   [compute] record {event = 1, external}      [compute] record {event = 1, external}
//   [compute] %1 = gemm ...              ->     [gather] wait {event = 1}
//   [compute] capture_end {..}                  [gather] all_gather ...
//   [gather] wait {event = 1}                   [compute] %1 = gemm ...
//   [gather] all_gather ...                     [compute] capture_end {..}
//
// An op of another stream starts as soon as the op before it on its stream and what it waits for have. In the order of
// issue each has all of these before it, so it is never later here than there, seen from the main stream.
#include "passes/analysis/times.h"
#include <string.h>

typedef struct { const char *stream; VEC(const Op *) ops; int next; } Queue;
typedef struct {
    Arena *a;
    int tail, n;
    int *time;            // by op id; -1: none yet
    int *answer;          // by op id of a wait: the op that records its event, plus 1; 0: none of this function does
    VEC(Queue) queues;    // of the other streams
} Times;

static bool moves_others(const Func *f) {
    for (const Op *o = f->first; o; o = o->next) {
        const Symbol *region = hd_op_is(o, TRAIT_OPENS) ? hd_named(o, A_REGION) : NULL;
        if (region && hd_kind(&region->attrs) != KIND_WHOLE) return true;
    }
    return false;
}

static void find_answers(Times *t, const Func *f) {
    VEC(int) record = {0}; // by event: the last op that records it, plus 1
    for (const Op *o = f->first; o; o = o->next) {
        const int64_t event = hd_int(&o->attrs, A_EVENT, -1);
        if (event < 0 || event >= 1 << 20) continue;
        while (record.n <= event) hd_push(t->a, &record, 0);
        if (hd_op_is(o, TRAIT_RECORDS)) record.at[event] = o->id + 1;
        if (hd_op_is(o, TRAIT_WAITS)) t->answer[o->id] = record.at[event];
    }
}

static Queue *queue_of(Times *t, const char *stream) {
    for (int i = 0; i < t->queues.n; i++)
        if (!strcmp(t->queues.at[i].stream, stream)) return &t->queues.at[i];
    Queue q = {.stream = stream};
    hd_push(t->a, &t->queues, q);
    return &t->queues.at[t->queues.n - 1];
}

static void start(Times *t, const Op *o) { t->time[o->id] = t->n++; }

static void start_others(Times *t) {
    for (int i = 0; i < t->queues.n; i++) {
        Queue *q = &t->queues.at[i];
        bool any = false;
        for (; q->next < q->ops.n; q->next++, any = true) {
            const Op *o = q->ops.at[q->next];
            const int answer = t->answer[o->id];
            if (answer && t->time[answer - 1] < 0) break;
            start(t, o);
        }
        if (any) i = -1; // another may have waited for it
    }
}

const int *hd_times(const Func *f, int tail, Arena *a) {
    Times t = {.a = a, .tail = tail, .time = HD_NEWN(a, int, f->n_ops + 1), .answer = HD_NEWN(a, int, f->n_ops + 1)};
    for (int i = 0; i < f->n_ops; i++) t.time[i] = i;
    if (!f->last || !f->last->stream || !moves_others(f)) return t.time;
    const char *main = f->last->stream;
    find_answers(&t, f);
    for (const Op *o = f->first; o; o = o->next) {
        if (o->id < tail) continue;
        t.time[o->id] = -1;
        if (o->stream && strcmp(o->stream, main)) hd_push(a, &queue_of(&t, o->stream)->ops, o);
    }
    t.n = tail;
    start_others(&t);
    for (const Op *o = f->first; o; o = o->next) {
        if (o->id < tail || t.time[o->id] >= 0) continue;
        if (o->stream && strcmp(o->stream, main)) HD_BUG("@%s: an op of stream %s never starts", f->name, o->stream);
        start(&t, o);
        start_others(&t);
    }
    return t.time;
}
