// The optimizer's update of weights that are kept in bf16 (ir/rounding.h). The arithmetic is the reference evaluator's.
#include "runtime/host/scratch.h"

// The words of elements 4 n .. 4 n + 3 of a whole parameter.
static void words_of(const HdRounding *r, const HdRounded *p, uint32_t step, int64_t n, uint32_t word[4]) {
    const uint32_t key[] = {(uint32_t)r->seed[0], (uint32_t)r->seed[1] ^ r->key};
    const uint32_t counter[] = {(uint32_t)n, (uint32_t)((uint64_t)n >> 32), p->number, step};
    hd_philox_words(key, counter, word);
}

static uint16_t round_by(float y, uint32_t word) {
    return isnan(y) ? hd_to_bf16(y) : (uint16_t)((hd_bits_of(y) + (word >> 16)) >> 16);
}

// `n` numbers, elements of one parameter from element `at` of the rank's part on.
static void round_run(const HdRounding *r, const HdRounded *p, uint32_t step, int64_t at, int64_t n, const float *from,
                      uint16_t *to) {
    uint32_t word[4] = {0};
    int64_t known = -1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = at + i, e = p->ranks == 1 ? k
                                                    : k / p->run * p->run * p->ranks + r->place * p->run + k % p->run;
        if (e / 4 != known) words_of(r, p, step, known = e / 4, word);
        to[i] = round_by(from[i], word[e % 4]);
    }
}

void hd_host_update_rounded(HdUpdate *update, int64_t count, int64_t decayed, float weight_decay, float lr_scale,
                            const float *grad, void *master, int n_states, HdDtype dtype, void *const *states,
                            const float *scalars, const HdRounding *r) {
    enum { BLOCK = 2048 };
    const uint32_t step = (uint32_t)((int64_t)scalars[4] + (int64_t)scalars[5]);
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
    for (int64_t at = 0; at < count; at += BLOCK) {
        const int64_t n = at + BLOCK < count ? BLOCK : count - at, first = (r ? r->before : 0) + at;
        float wide[HD_STATES][BLOCK], *parts[HD_STATES], weights[BLOCK];
        uint16_t *const to = (uint16_t *)master + at;
        for (int i = 0; i < n_states; i++) hd_load_f32(dtype, states[i], at, n, parts[i] = wide[i]);
        hd_load_f32(HD_BF16, master, at, n, weights);
        hd_host_update(update, n, decayed - at, weight_decay, lr_scale, grad + at, weights, n_states, parts, NULL,
                       HD_F32, scalars);
        for (int i = 0; i < n_states; i++) hd_store_f32(dtype, wide[i], n, states[i], at);
        if (!r) hd_store_f32(HD_BF16, weights, n, master, at);
        for (int k = 0; r && k < r->n; k++) {
            const HdRounded *p = &r->list[k];
            const int64_t from = p->at > first ? p->at : first;
            const int64_t end = k + 1 < r->n && p[1].at < first + n ? p[1].at : first + n;
            round_run(r, p, step, from - p->at, end - from, weights + (from - first), to + (from - first));
        }
    }
}
