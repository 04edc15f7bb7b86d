// The functions of the language that mix the positions of a sequence, and keep its documents apart.
#include "frontend/builtins/builtins.h"

// Argument k is the probability of a dropout: the attributes of its op, with the next number; none at 0.
void hd_dropout_attrs(Front *f, const BoundArgs *a, int k, Attrs *attrs) {
    const double p = hd_val_number(a->v[k]);
    const int64_t site = f->n_sites++;
    if (p == 0) return;
    hd_set_float(f->cx, attrs, A_P, p);
    hd_set_int(f->cx, attrs, A_SITE, site);
    hd_set_int(f->cx, attrs, A_BATCH, f->batch);
}

// Where documents begin, by numbers that neighbours do not share. The starts themselves are such numbers.
static Value *starts_of(Front *f, const BoundArgs *a, Value *numbers) {
    const Op *def = numbers->def;
    if (def && def->kind == OP_DOCUMENTS && !hd_has(&def->attrs, A_WITHIN)) return numbers;
    return hd_emit(f, a->span, OP_DOCUMENTS, 1, &numbers, NULL, NULL);
}

Val hd_call_positions(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    hd_set_flag(f->cx, &attrs, A_WITHIN);
    return tensor(hd_emit(f, a->span, OP_DOCUMENTS, 1, &a->v[0].tensor, &attrs, NULL));
}

Val hd_call_attention(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    hd_set_int(f->cx, &attrs, A_HEADS, a->v[3].i);
    if (given(a, 4) && a->v[4].i != a->v[3].i) hd_set_int(f->cx, &attrs, A_KV_HEADS, a->v[4].i);
    if (given(a, 5) && a->v[5].i) hd_set_flag(f->cx, &attrs, A_CAUSAL);
    if (given(a, 6)) hd_set_float(f->cx, &attrs, A_SCALE, hd_val_number(a->v[6]));
    if (given(a, 7)) hd_dropout_attrs(f, a, 7, &attrs);
    // a window that no sequence is longer than is none
    const Type *q = type_at(a, 0);
    if (given(a, 8) && (q->rank != 3 || a->v[8].i < q->dim[1])) hd_set_int(f->cx, &attrs, A_WINDOW, a->v[8].i);
    if (given(a, 10)) hd_set_float(f->cx, &attrs, A_SOFTCAP, hd_val_number(a->v[10]));
    Value *in[5] = {a->v[0].tensor, a->v[1].tensor, a->v[2].tensor};
    int n = 3;
    if (given(a, 9)) {
        hd_set_flag(f->cx, &attrs, A_DOCUMENTS);
        if (!(in[n++] = starts_of(f, a, a->v[9].tensor))) return bad;
    }
    if (given(a, 11)) hd_set_flag(f->cx, &attrs, A_SINK), in[n++] = a->v[11].tensor;
    return tensor(hd_emit(f, a->span, OP_ATTENTION, n, in, &attrs, NULL));
}

Val hd_call_conv1d(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    Value *in[4];
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (given(a, i)) in[n++] = a->v[i].tensor;
    if (given(a, 3) && a->v[3].i) hd_set_flag(f->cx, &attrs, A_SILU);
    if (given(a, 4) && a->v[4].i) hd_set_flag(f->cx, &attrs, A_REVERSE);
    if (given(a, 5)) {
        hd_set_flag(f->cx, &attrs, A_DOCUMENTS);
        if (!(in[n++] = starts_of(f, a, a->v[5].tensor))) return bad;
    }
    return tensor(hd_emit(f, a->span, OP_CONV1D, n, in, &attrs, NULL));
}

// exp(x), through casts and other shapes.
static bool positive(const Value *v) {
    while (v->def && hd_op_is(v->def, TRAIT_CARRIES)) v = v->def->in[0];
    return v->def && v->def->kind == OP_EXP;
}

Val hd_call_ssd(Front *f, BoundArgs *a) {
    enum { CHUNK = 256 };
    Attrs attrs = {0};
    Value *in[7];
    int n = 0;
    const Type *x = type_at(a, 0);
    int64_t chunk = given(a, 6) ? a->v[6].i : CHUNK;
    if (x->rank == 4 && chunk > x->dim[1]) chunk = x->dim[1]; // all positions are in one
    hd_set_int(f->cx, &attrs, A_CHUNK, chunk);
    if (positive(a->v[2].tensor))
        hd_warning(f->cx, hd_front_site(f, a->span),
                   "ssd: a is the result of exp, which is positive, so that the state grows from position to position; "
                   "Mamba-2 has a = -exp(...)");
    for (int i = 0; i < 6; i++)
        if (given(a, i)) in[n++] = a->v[i].tensor;
    if (given(a, 7)) {
        hd_set_flag(f->cx, &attrs, A_DOCUMENTS);
        if (!(in[n++] = starts_of(f, a, a->v[7].tensor))) return bad;
    }
    return tensor(hd_emit(f, a->span, OP_SSD, n, in, &attrs, NULL));
}
