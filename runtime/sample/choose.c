// See choose.h. All arithmetic is f64, in an order that the logits alone decide: equal logits and an equal seed give
// equal tokens, with the same C library (`exp`).
#include "runtime/sample/choose.h"
#include "runtime/philox.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

double hd_choose_at(uint64_t seed, uint64_t index) {
    enum { STREAM = 0x73616d70 };
    uint32_t word[4];
    hd_philox(seed, STREAM, index, word);
    return (double)(((uint64_t)word[0] << 32 | word[1]) >> 11) * 0x1p-53;
}

// The first of the largest; -1 where one is not finite. A vocabulary is long, so loops over LANES logits, each with a
// result of its own, are made to be vectorised.
static int64_t largest(int64_t n, const float *logits) {
    enum { LANES = 16 };
    float most[LANES];
    int bad[LANES] = {0};
    int64_t at = 0;
    for (int j = 0; j < LANES; j++) most[j] = -FLT_MAX;
    for (; at + LANES <= n; at += LANES)
        for (int j = 0; j < LANES; j++) {
            const float x = logits[at + j];
            bad[j] |= !(fabsf(x) <= FLT_MAX);
            most[j] = x > most[j] ? x : most[j];
        }
    for (; at < n; at++) {
        bad[0] |= !(fabsf(logits[at]) <= FLT_MAX);
        most[0] = logits[at] > most[0] ? logits[at] : most[0];
    }
    for (int j = 1; j < LANES; j++) {
        bad[0] |= bad[j];
        most[0] = most[j] > most[0] ? most[j] : most[0];
    }
    if (bad[0]) return -1;
    int64_t best = 0;
    for (int there = 0; !there && best + LANES <= n; best += there ? 0 : LANES)
        for (int j = 0; j < LANES; j++) there |= logits[best + j] == most[0];
    while (best < n && logits[best] != most[0]) best++;
    return best < n ? best : 0;
}

static int by_share(const void *x, const void *y) { // the likeliest first
    const HdChance *a = x, *b = y;
    if (a->share != b->share) return a->share > b->share ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

// How many of the likeliest may be chosen.
static int64_t kept(const HdChoice *c, int64_t n, HdChance *chances) {
    const int64_t most = c->top_k && c->top_k < n ? c->top_k : n;
    if (most == n && c->top_p >= 1) return n;
    qsort(chances, (size_t)n, sizeof *chances, by_share);
    double all = 0, sum = 0;
    int64_t k = 0;
    for (int64_t i = 0; i < most; i++) all += chances[i].share;
    while (k < most && sum < c->top_p * all) sum += chances[k++].share;
    return k ? k : 1;
}

int64_t hd_choose(const HdChoice *c, int64_t n, const float *logits, double at, HdChance *room) {
    const int64_t best = largest(n, logits);
    if (best < 0 || c->temperature == 0) return best;
    for (int64_t i = 0; i < n; i++)
        room[i] = (HdChance){exp(((double)logits[i] - (double)logits[best]) / c->temperature), i};
    const int64_t k = kept(c, n, room);
    double all = 0, sum = 0;
    for (int64_t i = 0; i < k; i++) all += room[i].share;
    for (int64_t i = 0; i < k; i++)
        if ((sum += room[i].share) > at * all) return room[i].token;
    return room[k - 1].token;
}
