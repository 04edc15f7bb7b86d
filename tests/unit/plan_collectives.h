// Collectives of the machine of plan_machine.h: every rank reads before any writes.
#ifndef TESTS_UNIT_PLAN_COLLECTIVES_H
#define TESTS_UNIT_PLAN_COLLECTIVES_H
#include "tests/unit/plan_cells.h"

static void use_rank(Machine *x, int rank) {
    x->rank = rank;
    x->cell = x->memory[rank];
}

// The one cell of a number that two cells of f32 are rounded to, in a type of 16 bits.
static uint64_t rounded(uint64_t low, uint64_t high, DType to) { return mix(mix(low, high), 16 + (uint64_t)to); }

// The two cells of f32 of a number in one cell. Zeros stay zeros: padding is added up, too.
static uint64_t widened(uint64_t c, int half) { return c ? mix(c, 32 + (uint64_t)half) : 0; }

// The part of a gather that quantizes, in its type: two elements of one byte a cell, each of its number and its row,
// for the row has the scale; or the scales, two cells of f32 each.
static uint64_t *quantized(Machine *x, const Op *o, const uint64_t *c, int64_t wide, int64_t count, int64_t *n) {
    const int64_t row = hd_int(&o->attrs, A_QUANTIZED, 1), rows = count / row;
    const bool scales = hd_has(&o->attrs, A_SCALES);
    uint64_t *copy = HD_NEWN(x->a, uint64_t, count + 2 * rows + 1);
    *n = scales ? 2 * rows : (count + 1) / 2;
    for (int64_t r = 0; r < rows; r++) {
        uint64_t scale = 8;
        for (int64_t i = r * row * wide; i < (r + 1) * row * wide; i++) scale = mix(scale, c[i]);
        for (int k = 0; k < 2 && scales; k++) copy[2 * r + k] = mix(scale, (uint64_t)k);
        for (int64_t i = r * row; i < (r + 1) * row && !scales; i++) {
            copy[i / 2] = mix(copy[i / 2], scale);
            for (int64_t j = i * wide; j < (i + 1) * wide; j++) copy[i / 2] = mix(copy[i / 2], c[j]);
        }
    }
    return copy;
}

static int64_t bucket_element(const Machine *x, const Op *o, int64_t count, int64_t i) { // of a rank's part
    return hd_mesh_number(&x->mesh, hd_axes(&hd_named(o, A_COMM)->attrs, A_OVER), x->rank) * count + i;
}

static int tensor_of(const Attr *list, int64_t at) { // -1: none is there
    for (int t = 0; list && t < list->n / 2; t++)
        if (at >= list->ints[2 * t] && at < list->ints[2 * t + 1]) return t;
    return -1;
}

// Where tensors have one scale: each element is of its number and that scale, two cells of f32 in a buffer.
static uint64_t *of_tensors(Machine *x, const Op *o, const uint64_t *c, int64_t wide, int64_t count, int64_t *n) {
    const Symbol *scales = buffer_of(x, o, A_SCALES_IN);
    uint64_t *copy = HD_NEWN(x->a, uint64_t, count + 1);
    int64_t m;
    const uint64_t *scale = cells(x, at_of(x, &scales->place), hd_type_bytes(scales->type), &m);
    *n = (count + 1) / 2;
    for (int64_t i = 0; i < count; i++) {
        const int t = tensor_of(hd_tensors(x->m, buffer_of(x, o, A_BUFFER)), bucket_element(x, o, count, i));
        const int64_t at = 2 * HD_SCALE_STRIDE * (hd_int(&o->attrs, A_FIRST, 0) + t);
        for (int k = 0; k < 2 && t >= 0; k++) copy[i / 2] = mix(copy[i / 2], at + k < m ? scale[at + k] : fresh(x));
        for (int64_t j = i * wide; j < (i + 1) * wide; j++) copy[i / 2] = mix(copy[i / 2], c[j]);
    }
    return copy;
}

// What a rank has of the tensors of all_max's buffers: a sum for each, which has no order, of its elements.
static uint64_t *own_scales(Machine *x, const Op *o) {
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    uint64_t *scale = HD_NEWN(x->a, uint64_t, hd_type_count(hd_result_type(o, 0)) + 1);
    int64_t done = 0, n;
    for (int b = 0; b < list->n; b++) {
        const Symbol *part = buffer_of_name(x, list->strs[b]);
        const Attr *tensors = hd_tensors(x->m, part);
        const int64_t count = hd_type_count(part->type), wide = hd_dtype_bytes(part->type->dtype) / 2;
        const uint64_t *c = cells(x, at_of(x, &part->place), hd_type_bytes(part->type), &n);
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = bucket_element(x, o, count, i);
            const int t = tensor_of(tensors, at);
            for (int64_t j = i * wide; j < (i + 1) * wide && t >= 0; j++)
                scale[done + t] += mix((uint64_t)at, j < n ? c[j] : fresh(x));
        }
        done += tensors->n / 2;
    }
    return scale;
}

static void run_all_max(Machine *x, const Op *o) {
    const Symbol *into = buffer_of(x, o, A_INTO);
    const Axes over = hd_axes(&buffer_of(x, o, A_COMM)->attrs, A_OVER);
    const int64_t to = at_of(x, &into->place) + hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(into->type->dtype);
    uint64_t **own = HD_NEWN(x->a, uint64_t *, x->ranks);
    for (int r = 0; r < x->ranks; r++) {
        use_rank(x, r);
        own[r] = own_scales(x, o);
    }
    for (int r = 0; r < x->ranks; r++) {
        int64_t n;
        use_rank(x, r);
        uint64_t *out = cells(x, to, hd_type_bytes(hd_result_type(o, 0)), &n);
        memset(out, 0, (size_t)n * sizeof *out);
        for (int64_t k = 0; k < hd_mesh_ranks(&x->mesh, over); k++)
            for (int64_t i = 0; i < n; i++)
                out[i] += mix(own[hd_mesh_member(&x->mesh, over, r, k)][i / 2 / HD_SCALE_STRIDE],
                              8 + (uint64_t)(i % (2 * HD_SCALE_STRIDE)));
    }
}

static uint64_t *copy_of(Machine *x, const Op *o, int64_t *n) { // what a collective takes, in the type of its result
    const Symbol *b = buffer_of(x, o, A_BUFFER);
    const Type *t = o->n_in ? o->in[0]->type : b->type;
    const DType to = hd_result_type(o, 0)->dtype;
    const uint64_t *c = cells(x, o->n_in ? at_of(x, &o->in[0]->place) : at_of(x, &b->place), hd_type_bytes(t), n);
    const int64_t wide = hd_dtype_bytes(t->dtype) < 4 ? 1 : 2, count = *n / wide;
    if (!hd_int(&o->attrs, A_QUANTIZED, 1)) return of_tensors(x, o, c, wide, count, n);
    if (hd_has(&o->attrs, A_QUANTIZED)) return quantized(x, o, c, wide, count, n);
    uint64_t *copy = HD_NEWN(x->a, uint64_t, 2 * *n + 1);
    const bool narrows = wide == 2 && hd_dtype_bytes(to) == 2, widens = wide == 1 && to == TY_F32;
    *n = narrows ? count : widens ? 2 * count : *n;
    for (int64_t i = 0; i < *n; i++)
        copy[i] = narrows ? rounded(c[2 * i], c[2 * i + 1], to) : widens ? widened(c[i / 2], (int)(i % 2)) : c[i];
    return copy;
}

static void run_collective(Machine *x, const Op *o) {
    const Symbol *into = buffer_of(x, o, A_INTO), *comm = buffer_of(x, o, A_COMM);
    int64_t to = into ? at_of(x, &into->place) + hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(into->type->dtype)
                      : at_of(x, &o->out[0]->place);
    uint64_t **in = HD_NEWN(x->a, uint64_t *, x->ranks);
    Axes over = hd_axes(&comm->attrs, A_OVER);
    int64_t n = 0, m, ranks = hd_mesh_ranks(&x->mesh, over);
    for (int r = 0; r < x->ranks; r++) {
        use_rank(x, r);
        in[r] = copy_of(x, o, &n);
    }
    for (int r = 0; r < x->ranks; r++) {
        int64_t mine = hd_mesh_number(&x->mesh, over, r);
        use_rank(x, r);
        uint64_t *out = cells(x, to, hd_type_bytes(hd_result_type(o, 0)), &m);
        if (o->kind != OP_ALL_GATHER) memset(out, 0, (size_t)m * sizeof *out);
        for (int k = 0; k < ranks; k++) {
            const uint64_t *from = in[hd_mesh_member(&x->mesh, over, r, k)];
            if (o->kind == OP_ALL_GATHER)
                for (int64_t i = 0; i < n && k * n + i < m; i++) out[k * n + i] = from[i];
            else
                for (int64_t i = 0; i < m; i++) out[i] += mine * m + i < n ? from[mine * m + i] : fresh(x);
        }
        if (o->kind == OP_ALL_GATHER)
            for (int64_t i = ranks * n; i < m; i++) out[i] = fresh(x);
    }
}
#endif
