// Text and lists known at compile time: a pattern of layers, such as "M-M*-", or a number for each layer. They have
// elements counted from 0, parts, a size, `+`, `*` with an integer, and comparison. Repeated modules have elements too.
#include "frontend/model/sema.h"

enum { MAX_ELEMENTS = 1 << 20 };

Val hd_val_word(Front *f, const char *text) {
    return (Val){.kind = VAL_TEXT, .n = (int)strlen(text), .text = hd_intern(f->cx, text)};
}

bool hd_val_is_constant(Val v) {
    if (v.kind != VAL_LIST) return v.kind == VAL_TEXT || hd_val_is_number(v);
    for (int k = 0; k < v.n; k++)
        if (!hd_val_is_constant(v.list[k])) return false;
    return true;
}

static bool is_sequence(Val v) { return v.kind == VAL_TEXT || v.kind == VAL_LIST; }

// --- elements

static Val part(Front *f, Val of, int64_t first, int64_t last) { // of text or a list
    const int n = (int)(last - first + 1);
    if (of.kind == VAL_LIST) return (Val){.kind = VAL_LIST, .n = n, .list = of.list + first};
    return hd_val_word(f, hd_sprintf(f->scratch, "%.*s", n, of.text + first));
}

static Val element(Front *f, Val of, int64_t k) {
    if (of.kind == VAL_LIST) return of.list[k];
    if (of.kind == VAL_REPEAT) return (Val){.kind = VAL_INSTANCE, .instance = of.repeat[k]};
    return part(f, of, k, k);
}

static bool in_range(Front *f, Span s, Val of, int64_t k) {
    if (k >= 0 && k < of.n) return true;
    if (!of.n) return hd_front_error(f, s, "index %lld of %s, which has no elements", (long long)k, hd_val_text(f, of));
    return hd_front_error(f, s, "index %lld is out of range for %s: 0 to %d", (long long)k, hd_val_text(f, of),
                          of.n - 1);
}

// `pattern[i]` in `repeat(i < n) Layer(pattern[i])`: a pattern of another length is a slip.
static bool has_count(Front *f, const Node *n, Val of) {
    const RepeatIndex *x = f->index;
    if (!x || n->b != n->c || n->b->kind != N_NAME || n->b->name != x->binding.name || x->count == of.n) return true;
    return hd_front_error(f, n->span, "%s has %d element%s, and repeat(%s < %lld) has %lld instances",
                          hd_val_text(f, of), of.n, of.n == 1 ? "" : "s", x->binding.name, (long long)x->count,
                          (long long)x->count);
}

// `of[first]`, `of[first..last]` (both included) and `of[first..]` (to the end).
Val hd_sequence_index(Front *f, Instance *scope, const Node *n) {
    Val of = hd_lower_expr(f, scope, n->a);
    int64_t first, last;
    if (of.kind == VAL_BAD) return of;
    if (!is_sequence(of) && of.kind != VAL_REPEAT)
        return hd_front_bad(f, n->span, "%s has no elements: text, lists and repeated modules have; of tensors, "
                            "'slice' takes a part", hd_val_text(f, of));
    if (!has_count(f, n, of) || !hd_lower_int(f, scope, n->b, "an index", &first)) return (Val){0};
    if (!in_range(f, n->b->span, of, first)) return (Val){0};
    if (n->c == n->b) return element(f, of, first);
    if (of.kind == VAL_REPEAT) return hd_front_bad(f, n->span, "of repeated modules one is taken at a time");
    last = of.n - 1;
    if (n->c && (!hd_lower_int(f, scope, n->c, "an index", &last) || !in_range(f, n->c->span, of, last)))
        return (Val){0};
    if (last < first)
        return hd_front_bad(f, n->span, "the part ends before it begins: %lld..%lld", (long long)first,
                            (long long)last);
    return part(f, of, first, last);
}

// --- operators

static bool equal(Val l, Val r) {
    if (l.kind == VAL_TEXT || r.kind == VAL_TEXT) return l.kind == r.kind && l.text == r.text;
    if (l.kind == VAL_LIST || r.kind == VAL_LIST) {
        if (l.kind != r.kind || l.n != r.n) return false;
        for (int k = 0; k < l.n; k++)
            if (!equal(l.list[k], r.list[k])) return false;
        return true;
    }
    if (l.kind == VAL_INT && r.kind == VAL_INT) return l.i == r.i;
    return hd_val_number(l) == hd_val_number(r);
}

static bool fits(Front *f, Span s, int64_t n) {
    if (n <= MAX_ELEMENTS) return true;
    return hd_front_error(f, s, "text or a list of %lld elements: at most %d are possible", (long long)n, MAX_ELEMENTS);
}

static Val joined(Front *f, Span s, Val l, Val r) {
    if (!fits(f, s, (int64_t)l.n + r.n)) return (Val){0};
    if (l.kind == VAL_TEXT) return hd_val_word(f, hd_sprintf(f->scratch, "%s%s", l.text, r.text));
    Val *list = HD_NEWN(f->arena, Val, l.n + r.n + 1);
    for (int k = 0; k < l.n + r.n; k++) list[k] = k < l.n ? l.list[k] : r.list[k - l.n];
    return (Val){.kind = VAL_LIST, .n = l.n + r.n, .list = list};
}

static Val repeated(Front *f, Span s, Val of, Val times) {
    if (times.kind != VAL_INT || times.i < 0)
        return hd_front_bad(f, s, "%s times %s: an integer of at least 0 is needed", hd_val_text(f, of),
                            hd_val_text(f, times));
    int64_t n;
    if (__builtin_mul_overflow((int64_t)of.n, times.i, &n)) n = INT64_MAX;
    if (!fits(f, s, n)) return (Val){0};
    if (of.kind == VAL_TEXT) {
        char *text = HD_NEWN(f->scratch, char, n + 1);
        for (int64_t k = 0; k < n; k++) text[k] = of.text[k % of.n];
        return hd_val_word(f, text);
    }
    Val *list = HD_NEWN(f->arena, Val, n + 1);
    for (int64_t k = 0; k < n; k++) list[k] = of.list[k % of.n];
    return (Val){.kind = VAL_LIST, .n = (int)n, .list = list};
}

// false: this is no operation on text or lists.
bool hd_sequence_binary(Front *f, Span s, Operator op, Val l, Val r, Val *result) {
    if (!is_sequence(l) && !is_sequence(r)) return false;
    const bool compares = (op == BIN_EQ || op == BIN_NE) && hd_val_is_constant(l) && hd_val_is_constant(r);
    if (compares && l.kind == r.kind) *result = hd_val_int(equal(l, r) == (op == BIN_EQ));
    else if (op == BIN_ADD && l.kind == r.kind) *result = joined(f, s, l, r);
    else if (op == BIN_MUL && is_sequence(l) && hd_val_is_number(r)) *result = repeated(f, s, l, r);
    else if (op == BIN_MUL && is_sequence(r) && hd_val_is_number(l)) *result = repeated(f, s, r, l);
    else if (compares)
        *result = hd_front_bad(f, s, "'%s' compares text with text, a list with a list and a number with a number, "
                               "not %s with %s", hd_operator_text(op), hd_val_text(f, l), hd_val_text(f, r));
    else return false;
    return true;
}
