// Kinds of formals in builtins.def: their words, and which values they take.
#include "frontend/model/sema.h"

static bool is_ints(Val v) {
    bool ok = v.kind == VAL_LIST;
    for (int i = 0; ok && i < v.n; i++) ok = v.list[i].kind == VAL_INT;
    return ok;
}

static bool is_numbers(Val v) {
    bool ok = v.kind == VAL_LIST;
    for (int i = 0; ok && i < v.n; i++) ok = hd_val_is_number(v.list[i]);
    return ok;
}

const char *hd_kind_text(char kind) {
    static const char *const text[128] = {
        ['t'] = "a floating-point tensor", ['x'] = "a tensor", ['v'] = "a tensor or a number",
        ['i'] = "an integer", ['f'] = "a number", ['b'] = "true or false", ['n'] = "a list of numbers",
        ['s'] = "a tensor, text, a list or repeated modules"};
    return text[(unsigned char)kind] ? text[(unsigned char)kind] : "integers";
}

bool hd_has_kind(char kind, Val v) {
    switch (kind) {
    case 't': return v.kind == VAL_TENSOR && hd_dtype_is_float(v.tensor->type->dtype);
    case 'x': return v.kind == VAL_TENSOR;
    case 'v': return v.kind == VAL_TENSOR || hd_val_is_number(v);
    case 'i': case 'b': return v.kind == VAL_INT;
    case 'f': return hd_val_is_number(v);
    case 'n': return is_numbers(v);
    case 's': return v.kind == VAL_TENSOR || v.kind == VAL_TEXT || v.kind == VAL_LIST || v.kind == VAL_REPEAT;
    default: return v.kind == VAL_INT || is_ints(v);
    }
}
