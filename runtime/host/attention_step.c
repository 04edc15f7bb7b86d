// Attention of one token over the keys and values that are kept of those before it. A thread has a head, so every sum
// has one order, whatever the number of threads.
#include "runtime/host/scratch.h"
#include "runtime/bits.h"
#include <math.h>
#include <string.h>

enum { SIZE = HD_HOST_MAX_HEAD };

typedef struct { // of a head
    const HdAttentionStep *t;
    const void *keys, *values;
    int64_t part, from, n; // the first element in a row; the positions that it sees
    const float *q;
    float *scores;         // n
    float sink;            // -INFINITY: there is none
} Head;

static const float *row(const HdAttentionStep *t, const void *rows, int64_t at, float *room) {
    if (t->dtype == HD_F32) return (const float *)rows + at;
    hd_load_f32(t->dtype, rows, at, t->size, room);
    return room;
}

static float largest_score(const Head *h) {
    const int64_t width = h->t->kv_heads * h->t->size;
    float room[SIZE], most = h->sink;
    for (int64_t j = 0; j < h->n; j++) {
        const float *k = row(h->t, h->keys, (h->from + j) * width + h->part, room);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < h->t->size; c++) sum += h->q[c] * k[c];
        h->scores[j] = sum * h->t->scale;
        if (h->t->softcap > 0) h->scores[j] = h->t->softcap * tanhf(h->scores[j] / h->t->softcap);
        most = h->scores[j] > most || isnan(h->scores[j]) ? h->scores[j] : most;
    }
    return most;
}

static void attend(const Head *h, void *o, int64_t at) {
    const int64_t width = h->t->kv_heads * h->t->size;
    const float most = largest_score(h);
    float room[SIZE], y[SIZE] = {0}, sum = h->sink == -INFINITY ? 0 : expf(h->sink - most);
    for (int64_t j = 0; j < h->n; j++) sum += h->scores[j] = expf(h->scores[j] - most);
    for (int64_t j = 0; j < h->n; j++) {
        const float *v = row(h->t, h->values, (h->from + j) * width + h->part, room), p = h->scores[j] / sum;
#pragma omp simd
        for (int64_t c = 0; c < h->t->size; c++) y[c] += p * v[c];
    }
    hd_store_f32(h->t->dtype, y, h->t->size, o, at);
}

void hd_host_attention_step(const HdAttentionStep *t, const void *q, const int32_t *position, const void *k,
                            const void *v, const float *sink, void *keys, void *values, void *o, float *workspace) {
    const int64_t at = *position, width = t->kv_heads * t->size, bytes = width * (int64_t)hd_dtypes[t->dtype].bytes,
                  n = at + 1 < t->window ? at + 1 : t->window;
    if (at < 0 || at >= t->positions) return; // the runtime asks for no such position
    memcpy((char *)keys + at * bytes, k, (size_t)bytes);
    memcpy((char *)values + at * bytes, v, (size_t)bytes);
#pragma omp parallel for schedule(static) if ((double)n * (double)(t->heads * t->size) > 32768.0)
    for (int64_t head = 0; head < t->heads; head++) {
        float room[SIZE];
        const Head h = {t, keys, values, head / (t->heads / t->kv_heads) * t->size, at + 1 - n, n,
                        row(t, q, head * t->size, room), workspace + head * t->positions,
                        sink ? sink[head] : -INFINITY};
        attend(&h, o, head * t->size);
    }
}
