#include "passes/analysis/row_space.h"
#include "ir/shapes.h"

static int64_t last_axis(const Type *t) { return t->rank ? t->dim[t->rank - 1] : 1; }

static RowSpace space_of(const Type *t) { return (RowSpace){hd_type_rows(t), last_axis(t)}; }
static bool pointwise(const Op *o) { return hd_op_is(o, TRAIT_SCALAR); }

// Whether an operand of a pointwise op reaches the elements of the result in one of the ways that a row kernel knows.
// (A middle axis of size 1, as in [B,1,C] against [B,T,C], is not one of them.)
static bool operand_fits(const Type *t, const Type *result, RowSpace s) {
    RowClass c = hd_row_class(t, s);
    int lead = 0;
    switch (c) {
    case ROW_NONE: return false;
    case ROW_SCALAR:
    case ROW_COLUMN: return true;
    case ROW_STAT: // the same shape but for a last axis of 1
        if (t->rank != result->rank) return false;
        for (int i = 0; i + 1 < t->rank; i++)
            if (t->dim[i] != result->dim[i]) return false;
        return last_axis(t) == 1;
    default: // the last axes of the result, after axes of 1
        while (lead < t->rank && t->dim[lead] == 1) lead++;
        for (int i = lead; i < t->rank; i++)
            if (t->dim[i] != result->dim[result->rank - t->rank + i]) return false;
        return true;
    }
}

static bool only_last_axis(const Op *o) {
    const int rank = o->in[0]->type->rank;
    return rank && hd_reduced_axes(o) == 1u << (rank - 1);
}

// Parts of rows: all of one size, so that they are values of one space.
static bool equal_parts(const Op *o) {
    const Type *t = o->in[0]->type;
    bool equal = t->rank && hd_int(&o->attrs, A_AXIS, 0) == t->rank - 1;
    for (int i = 1; i < o->n_in; i++) equal &= hd_type_cols(o->in[i]->type) == hd_type_cols(t);
    return equal;
}

bool hd_row_natural(const Op *o, RowSpace *s) {
    const Type *t = NULL;
    if (pointwise(o)) {
        t = o->out[0]->type;
        *s = space_of(t);
        for (int i = 0; i < o->n_in; i++)
            if (!operand_fits(o->in[i]->type, t, *s)) return false;
        return hd_type_count(t) > 0;
    }
    const OpInfo *info = hd_op_info(o->kind);
    if (!info->row || !info->classes || (hd_has(&o->attrs, A_AXES) && !only_last_axis(o))) return false;
    if (hd_in_parts(o) && !equal_parts(o)) return false;
    const Type *r = o->out[0]->type;
    t = hd_operand_class(o, 0) == 'd' ? o->in[0]->type : r;
    if (o->kind == OP_SUM_TO &&
        (!t->rank || last_axis(r) != last_axis(t) || hd_type_count(r) != last_axis(t) || last_axis(t) == 1 ||
         (r->dtype != TY_F32 && r->dtype != TY_F64)))
        return false;
    *s = space_of(t);
    return hd_type_count(t) > 0;
}

bool hd_row_fits(const Op *o, RowSpace s) {
    RowSpace own;
    if (!hd_row_natural(o, &own)) return false;
    if (own.rows == s.rows && own.cols == s.cols) return true;
    if (!pointwise(o) || hd_row_class(o->out[0]->type, s) != ROW_STAT) return false;
    for (int i = 0; i < o->n_in; i++) {
        RowClass c = hd_row_class(o->in[i]->type, s);
        if (c != ROW_STAT && c != ROW_SCALAR) return false;
    }
    return true;
}

RowReads hd_row_reads(const Op *o, int i, RowSpace s) {
    switch (hd_operand_class(o, i)) {
    case 'i':
    case 's': return (RowReads){.row = true};
    case 'w': return (RowReads){.column = true};
    case 't':
    case 'p': return (RowReads){0};
    default: {
        RowClass is = hd_row_class(o->in[i]->type, s);
        return (RowReads){is == ROW_STAT, is == ROW_COLUMN};
    }
    }
}

bool hd_row_reads_agree(RowReads r, RowSpace s) { return !r.row || !r.column || s.rows <= 1 || s.cols <= 1; }

bool hd_row_leaves(const Value *v) { return hd_result_class(v) == 'c' || hd_result_class(v) == 'p'; }

bool hd_row_external(const Op *o, int i) {
    const char c = hd_operand_class(o, i);
    return c == 'w' || c == 't' || c == 'i' || c == 'p';
}
