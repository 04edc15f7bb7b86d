// The type rules of values in one byte and their scales.
#include "ir/type_rules.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

static const Type *scale_of_rows(Rule *r, const Type *x) { return hd_type(r->cx, TY_F32, x->rank - 1, x->dim); }

const char *hd_rule_quantize(Rule *r) {
    const Type *x = IN(0);
    const DType d = hd_rule_out(r, TY_F32);
    if (!hd_dtype_is_fp8(d)) WRONG("out = %s: quantize makes e4m3 or e5m2", hd_word(&r->o->attrs, A_OUT, ""));
    if (!x->rank || !hd_dtype_in_f32(x->dtype) || hd_dtype_is_fp8(x->dtype))
        WRONG("quantize needs rows of f32, bf16 or f16, not %s", TEXT(x));
    const char *e = hd_rule_give(r, hd_type_with(r->cx, d, x));
    return e ? e : hd_rule_give(r, scale_of_rows(r, x));
}

static const char *blocks(Rule *r, bool squares, bool across) {
    const Type *x = IN(0);
    const DType d = hd_rule_out(r, TY_F32);
    const char *name = hd_op_info(r->o->kind)->mnemonic;
    if (!hd_dtype_is_fp8(d)) WRONG("out = %s: %s makes e4m3 or e5m2", hd_word(&r->o->attrs, A_OUT, ""), name);
    if (!x->rank || !hd_dtype_in_f32(x->dtype) || hd_dtype_is_fp8(x->dtype))
        WRONG("%s needs rows of f32, bf16 or f16, not %s", name, TEXT(x));
    if (squares && across) return "squares are the same across rows: quantize_blocks is one of the two";
    const Blocks b = hd_blocks(x, squares, across);
    if ((!across && b.cols % HD_BLOCK) || ((squares || across) && b.rows % HD_BLOCK))
        WRONG("blocks of %d do not divide the %s of %s", HD_BLOCK,
              across || b.cols % HD_BLOCK == 0 ? "rows" : "columns", TEXT(x));
    const Type *turned = hd_type(r->cx, d, 2, (int64_t[]){b.cols, b.rows});
    const char *e = hd_rule_give(r, across ? turned : hd_type_with(r->cx, d, x));
    return e ? e : hd_rule_give(r, hd_type(r->cx, TY_F32, 2, (int64_t[]){b.scale_rows, b.scale_cols}));
}

const char *hd_rule_quantize_blocks(Rule *r) {
    return blocks(r, hd_has(&r->o->attrs, A_SQUARES), hd_has(&r->o->attrs, A_ACROSS));
}

const char *hd_rule_quantize_both(Rule *r) {
    const char *e = blocks(r, false, false);
    return e ? e : blocks(r, false, true);
}

const char *hd_rule_requantize(Rule *r) { // rows become columns, of one axis
    const Type *q = IN(0);
    const DType d = hd_rule_out(r, TY_F32);
    if (!hd_dtype_is_fp8(d)) WRONG("out = %s: requantize makes e4m3 or e5m2", hd_word(&r->o->attrs, A_OUT, ""));
    if (!q->rank || !hd_dtype_is_fp8(q->dtype)) WRONG("requantize needs rows of e4m3 or e5m2, not %s", TEXT(q));
    const Type *f = scale_of_rows(r, q);
    if (IN(1) != f) WRONG("%s needs a factor for each row, %s, not %s", TEXT(q), TEXT(f), TEXT(IN(1)));
    return hd_rule_give(r, hd_type(r->cx, d, 2, (int64_t[]){hd_type_cols(q), hd_type_rows(q)}));
}
