// The functions of the language for mixtures of experts.
#include "frontend/builtins/builtins.h"
#include "ir/shapes.h"

// The first n results of the op that made v, as a list.
static Val results(Front *f, Value *v, int n) {
    if (!v) return bad;
    Val *list = HD_NEWN(f->arena, Val, n);
    for (int i = 0; i < n; i++) list[i] = tensor(v->def->out[i]);
    return (Val){.kind = VAL_LIST, .n = n, .list = list};
}

static bool integers(Front *f, const BoundArgs *a, int k, const char *what) {
    if (type_at(a, k)->dtype == TY_I32) return true;
    return hd_front_error(f, a->nodes[k]->span, "%s must be i32, not %s", what, hd_type_text(f->cx, type_at(a, k)));
}

Val hd_call_top_k(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    hd_set_int(f->cx, &attrs, A_K, a->v[1].i);
    return results(f, hd_emit(f, a->span, OP_TOP_K, 1, &a->v[0].tensor, &attrs, NULL), 2);
}

// index == 0, 1, ..., n - 1, in f32, which holds integers up to 2^24.
Val hd_call_one_hot(Front *f, BoundArgs *a) {
    enum { EXACT = 1 << 24 };
    const int64_t n = a->v[1].i;
    const Type *t = type_at(a, 0);
    if (!integers(f, a, 0, "one_hot: the index")) return bad;
    if (n < 1 || n > EXACT || t->rank >= HD_MAX_DIMS)
        return hd_front_bad(f, a->nodes[1]->span, "one_hot: n = %lld for %s; it is 1 to %d, and makes one more axis",
                            (long long)n, hd_type_text(f->cx, t), EXACT);
    Type column = *t;
    column.dim[column.rank++] = 1;
    Attrs f32 = {0};
    hd_set_word(f->cx, &f32, A_OUT, "f32");
    Value *index = hd_emit(f, a->span, OP_RESHAPE, 1, &a->v[0].tensor, NULL,
                           hd_type(f->cx, TY_I32, column.rank, column.dim));
    if (index) index = hd_emit(f, a->span, OP_CAST, 1, &index, &f32, NULL);
    Value *all = index ? hd_emit(f, a->span, OP_IOTA, 0, NULL, NULL, hd_type(f->cx, TY_I32, 1, &n)) : NULL;
    if (all) all = hd_emit(f, a->span, OP_CAST, 1, &all, &f32, NULL);
    return all ? tensor(hd_emit(f, a->span, OP_EQ, 2, (Value *[]){index, all}, NULL, NULL)) : bad;
}

// Of the source of a dispatch, the slots say where each row of x went.
Val hd_call_take(Front *f, BoundArgs *a) {
    if (!integers(f, a, 1, "take: the index")) return bad;
    const Op *by = hd_dispatch_of(a->v[1].tensor, 0);
    const bool all = by && hd_type_rows(by->out[1]->type) == hd_type_rows(type_at(a, 0));
    Value *in[] = {a->v[0].tensor, a->v[1].tensor, all ? by->out[1] : NULL};
    return tensor(hd_emit(f, a->span, OP_TAKE, 2 + all, in, NULL, NULL));
}

// How many elements are at least `least`, as f32.
static Value *count(Front *f, Span s, Value *v, int64_t least, const int64_t *below) {
    Attrs f32 = {0}, all = {0};
    hd_set_word(f->cx, &f32, A_OUT, "f32");
    const Type *number = hd_type(f->cx, TY_F32, 0, NULL);
    const int64_t axes[] = {0, 1, 2, 3, 4, 5, 6, 7};
    _Static_assert(sizeof axes / sizeof *axes >= HD_MAX_DIMS, "all axes of a value");
    hd_set_ints(f->cx, &all, A_AXES, v->type->rank, axes);
    Value *x = hd_emit(f, s, OP_CAST, 1, &v, &f32, NULL), *from = hd_emit_const(f, s, (double)least, number);
    Value *is = hd_emit(f, s, OP_GE, 2, (Value *[]){x, from}, NULL, NULL);
    if (below) {
        Value *end = hd_emit_const(f, s, (double)*below, number);
        Value *inside = hd_emit(f, s, OP_LT, 2, (Value *[]){x, end}, NULL, NULL);
        is = hd_emit(f, s, OP_MUL, 2, (Value *[]){is, inside}, NULL, NULL);
    }
    return hd_emit(f, s, OP_SUM, 1, &is, &all, NULL);
}

// Choices of an expert that got no row are counted, and a run reports how many a step had.
static bool report_drops(Front *f, Span s, const Op *dispatch) {
    const int64_t experts = hd_int(&dispatch->attrs, A_EXPERTS, 0);
    if (!hd_updates_happen(f)) return true;
    Value *chosen = count(f, s, dispatch->in[0], 0, &experts), *placed = count(f, s, dispatch->out[1], 0, NULL);
    Value *dropped = hd_emit(f, s, OP_SUB, 2, (Value *[]){chosen, placed}, NULL, NULL);
    const Type *one = hd_type(f->cx, TY_F32, 1, (int64_t[]){1});
    dropped = hd_emit(f, s, OP_RESHAPE, 1, &dropped, NULL, one);
    return dropped && hd_updates_count(f, s, "dropped", dropped);
}

Val hd_call_dispatch(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    if (!integers(f, a, 0, "dispatch: the choices")) return bad;
    hd_set_int(f->cx, &attrs, A_EXPERTS, a->v[1].i);
    if (given(a, 2)) hd_set_int(f->cx, &attrs, A_CAPACITY, a->v[2].i);
    Value *source = hd_emit(f, a->span, OP_DISPATCH, 1, &a->v[0].tensor, &attrs, NULL);
    if (source && given(a, 2) && !report_drops(f, a->span, source->def)) return bad;
    return results(f, source, 3);
}

Val hd_call_grouped(Front *f, BoundArgs *a) {
    Attrs attrs = {0};
    hd_set_flag(f->cx, &attrs, A_TB);
    if (!integers(f, a, 2, "grouped: counts")) return bad;
    Value *in[] = {a->v[0].tensor, a->v[1].tensor, a->v[2].tensor};
    return tensor(hd_emit(f, a->span, OP_GROUPED, 3, in, &attrs, NULL));
}

Val hd_call_combine(Front *f, BoundArgs *a) {
    const Op *by = hd_dispatch_of(a->v[1].tensor, 1);
    if (!by)
        return hd_front_bad(f, a->nodes[1]->span,
                            "combine needs the slots of a dispatch: let source, slots, counts = dispatch(...)");
    Value *in[] = {a->v[0].tensor, by->out[1], a->v[2].tensor, by->out[3]};
    return tensor(hd_emit(f, a->span, OP_COMBINE, 4, in, NULL, NULL));
}

Val hd_call_total(Front *f, BoundArgs *a) {
    return hd_front_bad(f, a->span, "total(x) is the sum over a step, which only an update of a buffer knows: 'update "
                                    "b = ... total(x) ...;'");
}
