// See rounding.h.
#include "ir/rounding.h"
#include "ir/dropout.h"
#include "ir/layout.h"
#include <math.h>
#include <stdlib.h>

static RoundedParam param_of(const Mesh *mesh, const Symbol *p, uint32_t number) {
    RoundedParam x = {.at = hd_int(&p->attrs, A_OFFSET, 0), .run = 1, .number = number,
                      .ranks = hd_mesh_ranks(mesh, hd_layout_axes(p->layout))};
    int along = 0;
    for (int a = 0; a < N_AXES; a++)
        if (hd_layout_dim(hd_layout_at(p->layout, a)) > 0) along = hd_layout_dim(hd_layout_at(p->layout, a));
    for (int i = along; i < p->type->rank; i++) x.run *= p->type->dim[i];
    return x;
}

static int by_place(const void *a, const void *b) {
    const RoundedParam *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

int hd_rounded_params(const Module *m, const Symbol *bucket, Arena *a, const RoundedParam **list) {
    const Mesh mesh = hd_mesh(m);
    VEC(RoundedParam) found = {0};
    uint32_t number = 0;
    for (const Symbol *p = m->symbols; p; p = p->next) {
        if (p->kind != SYM_PARAM) continue;
        if (!strcmp(hd_word(&p->attrs, A_BUCKET, ""), bucket->name) && hd_type_count(p->type))
            hd_push(a, &found, param_of(&mesh, p, number));
        number++;
    }
    if (found.n) qsort(found.at, (size_t)found.n, sizeof *found.at, by_place);
    *list = found.at;
    return found.n;
}

Axes hd_rounded_over(const Module *m, const Symbol *bucket) {
    for (const Symbol *p = m->symbols; p; p = p->next)
        if (p->kind == SYM_PARAM && !strcmp(hd_word(&p->attrs, A_BUCKET, ""), bucket->name))
            return hd_layout_axes(p->layout);
    return 0;
}

uint32_t hd_rounding_word(const uint32_t seed[2], uint32_t step, const RoundedParam *p, int64_t place, int64_t i) {
    const int64_t e = p->ranks == 1 ? i : i / p->run * p->run * p->ranks + place * p->run + i % p->run;
    const uint32_t key[] = {seed[0], seed[1] ^ HD_ROUNDING_KEY};
    uint32_t word[4];
    hd_philox4x32(key, (uint32_t[]){(uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), p->number, step}, word);
    return word[e % 4];
}

double hd_round_by(double x, uint32_t word) {
    float f = (float)x;
    uint32_t bits;
    if (isnan(x)) return x;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits + (word >> 16)) & 0xffff0000u;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}
