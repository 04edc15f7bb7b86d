// The meaning of dropout and of the keys that it draws by (ir/dropout.h).
#include "ir/dropout.h"
#include "ir/eval/rules.h"
#include "ir/mesh.h"

void hd_eval_seed(Eval *e, int64_t seed, int64_t sequence) {
    const uint64_t words[] = {(uint64_t)seed, (uint64_t)sequence};
    for (int i = 0; i < 4; i++) e->random[i] = (uint32_t)(words[i / 2] >> i % 2 * 32);
}

static uint32_t place(const Eval *e, const Op *o) {
    const Mesh mesh = hd_mesh(e->module);
    return hd_has(&o->attrs, A_OVER) ? (uint32_t)hd_mesh_number(&mesh, hd_axes(&o->attrs, A_OVER), e->rank) : 0;
}

void hd_eval_key(const Eval *e, const Op *o, const Tensor *key, uint32_t *words) {
    memset(words, 0, sizeof *words * HD_KEY);
    for (int i = 0; i < HD_KEY && key; i++) words[i] = (uint32_t)(int64_t)key->data[i];
    if (key) return;
    memcpy(words, e->random, sizeof e->random);
    words[4] = (uint32_t)hd_int(&o->attrs, A_SITE, 0);
    words[HD_KEY_PLACE] = place(e, o);
}

const char *hd_eval_dropout(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    const int64_t n = hd_type_count(in[0].type), each = n / hd_int(&o->attrs, A_BATCH, 1);
    const bool f32 = e->mode == EVAL_ROUNDED && out->type->dtype != TY_F64;
    const double factor = e->mode == EVAL_EXACT ? 1 / (1 - hd_float(&o->attrs, A_P, 0)) : hd_dropout_factor(o);
    const uint32_t threshold = hd_dropout_threshold(o);
    const int64_t ranks = hd_dropout_ranks(o), run = hd_dropout_run(o);
    uint32_t key[HD_KEY];
    hd_eval_key(e, o, o->n_in > 1 ? &in[1] : NULL, key);
    for (int64_t i = 0; i < n; i++) {
        const double y = in[0].data[i] * factor;
        const int64_t at = ranks == 1 ? i % each
                                      : i % each / run * run * ranks + key[HD_KEY_PLACE] * run + i % each % run;
        out->data[i] = !hd_dropout_keeps(key, i / each, at, threshold) ? 0 : f32 ? (double)(float)y : y;
    }
    return NULL;
}

const char *hd_eval_dropout_keys(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    double *counter = hd_eval_range(e, hd_word(&o->attrs, A_COUNTER, ""), 0, 4);
    if (!counter) return hd_eval_wrong(e, "the counter has fewer than four elements");
    for (int64_t s = 0; s < hd_int(&o->attrs, A_SITES, 0); s++) {
        memcpy(out->data + s * HD_KEY, counter, sizeof *counter * 4);
        out->data[s * HD_KEY + 4] = (double)s;
        out->data[s * HD_KEY + HD_KEY_PLACE] = place(e, o);
    }
    const uint64_t next = ((uint64_t)(uint32_t)(int64_t)counter[3] << 32 | (uint32_t)(int64_t)counter[2]) +
                          (uint64_t)hd_int(&o->attrs, A_STRIDE, 0);
    counter[2] = (double)(int32_t)(uint32_t)next;
    counter[3] = (double)(int32_t)(uint32_t)(next >> 32);
    return NULL;
}
