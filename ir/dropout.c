// See dropout.h.
#include "ir/dropout.h"
#include "ir/mesh.h"
#include "ir/shapes.h"
#include <math.h>

bool hd_draws(const Op *o) {
    return (o->kind == OP_DROPOUT || hd_op_is(o, TRAIT_ATTENTION)) &&
           hd_has(&o->attrs, A_P);
}

int hd_without_key(const Op *o) {
    if (o->kind == OP_DROPOUT) return 1;
    return hd_attention_operands(o) + hd_has(&o->attrs, A_DOCUMENTS) + hd_has(&o->attrs, A_SINK);
}

Value *hd_key(const Op *o) {
    if (!hd_draws(o)) return NULL;
    const int others = hd_without_key(o);
    return o->n_in > others ? o->in[others] : NULL;
}

int64_t hd_dropout_ranks(const Op *o) {
    const Mesh mesh = hd_mesh(o->func->module);
    return hd_has(&o->attrs, A_OVER) ? hd_mesh_ranks(&mesh, hd_axes(&o->attrs, A_OVER)) : 1;
}

int64_t hd_dropout_run(const Op *o) {
    const Type *t = o->in[0]->type;
    const Attr *dims = hd_attr(&o->attrs, A_DIMS);
    int64_t n = 1;
    for (int i = dims ? (int)dims->ints[0] : 1; i < t->rank; i++) n *= t->dim[i];
    return n;
}

uint32_t hd_dropout_threshold(const Op *o) {
    const double scaled = nearbyint(hd_float(&o->attrs, A_P, 0) * 0x1p32);
    return scaled < 0x1p32 ? (uint32_t)scaled : UINT32_MAX;
}

double hd_dropout_factor(const Op *o) {
    const double factor = 1 / (1 - hd_float(&o->attrs, A_P, 0));
    return o->in[0]->type->dtype == TY_F64 ? factor : (double)(float)factor;
}

void hd_philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t word[4]) {
    uint32_t k0 = key[0], k1 = key[1], c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(word, c, sizeof c);
}

bool hd_dropout_keeps(const uint32_t key[HD_KEY], int64_t sequence, int64_t element, uint32_t threshold) {
    const uint64_t number = ((uint64_t)key[3] << 32 | key[2]) + (uint64_t)sequence;
    uint32_t word[4];
    hd_philox4x32(key, (uint32_t[]){(uint32_t)(element / 4), key[4], (uint32_t)number, (uint32_t)(number >> 32)}, word);
    return word[element % 4] >= threshold;
}
