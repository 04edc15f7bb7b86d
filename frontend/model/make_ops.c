// Makes ops of @loss. A type error of an op is the user's: it is reported at the expression, in the words of the type
// rule.
#include "frontend/model/sema.h"
#include <math.h>

static bool may_emit(Front *f, Span s, OpKind k) {
    if (f->stop) return false;
    if (!f->frame)
        return hd_front_error(f, s, "'%s' makes a tensor: only numbers known at compile time are allowed here",
                              hd_op_info(k)->mnemonic);
    const int64_t n_ops = f->func->n_ops;
    if (n_ops >= 1024 && !(n_ops & (n_ops - 1))) // every so often, for the error where memory runs out
        hd_memory_used_by("the loss of %lld operations so far%s,", (long long)n_ops, hd_grown(f->module, f->scratch));
    if (n_ops < f->cx->max_ops) return true;
    const char *grown = hd_grown(f->module, f->scratch);
    hd_front_error(f, s, "the model has more than %lld operations%s: make it smaller, or allow more with --max-ops=N",
                   (long long)f->cx->max_ops, grown);
    f->stop = true;
    return false;
}

Value *hd_emit(Front *f, Span s, OpKind k, int n, Value *const *in, const Attrs *attrs, const Type *declared) {
    if (!may_emit(f, s, k) || !hd_updates_may_read(f, s, n, in)) return NULL;
    Op *o = hd_op_new(f->func, k, n, in);
    if (attrs) o->attrs = *attrs;
    const char *wrong = hd_infer(o, declared != NULL, &declared);
    if (wrong) {
        const char *mnemonic = hd_op_info(k)->mnemonic;
        bool named = !strncmp(wrong, mnemonic, strlen(mnemonic));
        hd_front_error(f, s, "%s%s%s", named ? "" : mnemonic, named ? "" : ": ", wrong);
        return NULL;
    }
    o->loc = hd_front_loc(f, f->frame->path, s);
    o->span = hd_front_site(f, s);
    hd_append(f->func, o);
    return o->out[0];
}

Value *hd_emit_const(Front *f, Span s, double v, const Type *t) {
    Attrs attrs = {0};
    hd_set_float(f->cx, &attrs, A_VALUE, v);
    return hd_emit(f, s, OP_CONST, 0, NULL, &attrs, t);
}

Value *hd_emit_tensor(Front *f, Span s, Val v) {
    if (v.kind == VAL_TENSOR) return v.tensor;
    if (hd_val_is_number(v)) return hd_emit_const(f, s, hd_val_number(v), hd_type(f->cx, TY_F32, 0, NULL));
    hd_front_error(f, s, "a tensor is needed, not %s", hd_val_text(f, v));
    return NULL;
}

Val hd_emit_float(Front *f, Span s, Val v) {
    if (v.tensor->type->dtype == TY_F32) return v;
    Attrs attrs = {0};
    hd_set_word(f->cx, &attrs, A_OUT, "f32");
    Value *x = hd_emit(f, s, OP_CAST, 1, &v.tensor, &attrs, NULL);
    return x ? (Val){.kind = VAL_TENSOR, .tensor = x} : (Val){0};
}

Val hd_emit_elementwise(Front *f, Span s, OpKind k, int n, const Val *args) {
    Val result = {0};
    bool numbers = true;
    for (int i = 0; i < n; i++) numbers &= hd_val_is_number(args[i]);
    if (numbers) {
        hd_scalar_op(k, n, args, &result);
        if (result.kind == VAL_INT || isfinite(result.f)) return result;
        hd_front_error(f, s, "%s of %s is not a finite number", hd_op_info(k)->mnemonic, hd_val_text(f, args[0]));
        return (Val){0};
    }
    if (hd_integers(n, args)) return hd_emit_integers(f, s, k, n, args);
    Value *in[3];
    for (int i = 0; i < n; i++)
        if (!(in[i] = hd_emit_tensor(f, s, args[i]))) return result;
    Value *v = hd_emit(f, s, k, n, in, NULL, NULL);
    return v ? (Val){.kind = VAL_TENSOR, .tensor = v} : result;
}
