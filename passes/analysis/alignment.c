// See alignment.h.
#include "passes/analysis/alignment.h"
#include "ir/shapes.h"

static void include(int *align, int64_t address) {
    while (address % *align) *align /= 2;
}

static void include_value(int *align, const Value *v, const int64_t *part, int n, DType d) {
    if (!v->place.placed || hd_type_count(v->type) <= 1) return;
    include(align, v->place.offset);
    for (int i = 0; i < n; i++) include(align, part[i] * hd_dtype_bytes(d));
}

int hd_alignment(const Op *o) {
    int align = HD_WIDE, parts = 0;
    AttentionShape s = {.grad = false};
    if (hd_op_is(o, TRAIT_ATTENTION)) s = hd_attention_shape(o), parts = s.packed ? 3 : 0;
    for (int i = 0; i < o->n_in; i++) include_value(&align, o->in[i], s.part, i == s.grad ? parts : 0, s.dtype);
    for (int i = 0; i < o->n_out; i++) include_value(&align, o->out[i], NULL, 0, s.dtype); // parts are like in[grad]'s
    const AttrId kept[] = {A_KEYS, A_VALUES};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const Symbol *cache = hd_named(o, kept[i]);
        if (cache && cache->place.placed) include(&align, cache->place.offset);
    }
    const Symbol *into = hd_named(o, A_INTO);
    const Type *t = into ? hd_result_type(o, 0) : NULL;
    if (t && into->type && hd_type_count(t) > 1)
        include(&align, into->place.offset + hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(into->type->dtype));
    return align;
}

void hd_set_alignment(Op *o) {
    if (!hd_attr_allowed(hd_op_info(o->kind)->attrs, A_ALIGN)) return;
    Ctx *cx = o->func->module->cx;
    const int bytes = hd_alignment(o);
    hd_unset(&o->attrs, A_ALIGN);
    if (bytes == HD_WIDE) return;
    hd_set_int(cx, &o->attrs, A_ALIGN, bytes);
    if (!hd_op_is(o, TRAIT_ATTENTION) || !hd_has(&o->attrs, A_IMPL)) return;
    hd_set_word(cx, &o->attrs, A_IMPL, hd_intern(cx, "generated"));
    hd_unset(&o->attrs, A_ELSE);
}
