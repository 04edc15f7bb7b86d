// Reads the textual form of a module. It infers and simplifies nothing: result types are taken as written and verify.c
// checks them. After an error it skips to the next line, so that one run reports several.
#include "ir/layout.h"
#include "ir/base/ptr_map.h"
#include "ir/base/text_kind.h"
#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>

typedef struct {
    Ctx *cx;
    Module *m;
    const char *text, *p, *end;
    uint32_t base;
    Arena *scratch;
    jmp_buf line; // recovery point: an error gives up the line
    PtrMap names;       // of the values of the function being read, to their numbers in `values`
    VEC(Value *) values;
    ArenaMark empty;    // of the scratch memory, where a function begins
    Func *f;
    const char *seal; // NULL: none
    bool broken; // a line of this function was skipped: names that it would have defined are missing
} Parser;

static Span span_at(const Parser *ps, const char *lo, const char *hi) {
    return (Span){ps->base + (uint32_t)(lo - ps->text), ps->base + (uint32_t)(hi - ps->text)};
}

#define FAIL(ps, lo, ...)                                                                                              \
    do {                                                                                                               \
        hd_error((ps)->cx, span_at((ps), (lo), (ps)->p > (lo) ? (ps)->p : (lo) + 1), __VA_ARGS__);                     \
        longjmp((ps)->line, 1);                                                                                        \
    } while (0)

static void skip_blanks(Parser *ps) { // within a line
    while (ps->p < ps->end && (*ps->p == ' ' || *ps->p == '\t' || *ps->p == '\r')) ps->p++;
}

static bool at_line_end(Parser *ps) {
    skip_blanks(ps);
    return ps->p == ps->end || *ps->p == '\n' || (ps->p + 1 < ps->end && ps->p[0] == '/' && ps->p[1] == '/');
}

static void skip_line(Parser *ps) {
    while (ps->p < ps->end && *ps->p != '\n') ps->p++;
    if (ps->p < ps->end) ps->p++;
}

static bool next_line(Parser *ps) { // to the first character of the next line that is not blank
    while (ps->p < ps->end && at_line_end(ps)) skip_line(ps);
    return ps->p < ps->end;
}

static bool accept(Parser *ps, const char *s) {
    skip_blanks(ps);
    size_t n = strlen(s);
    if ((size_t)(ps->end - ps->p) < n || memcmp(ps->p, s, n)) return false;
    ps->p += n;
    return true;
}

static void expect(Parser *ps, const char *s) {
    skip_blanks(ps);
    if (!accept(ps, s)) FAIL(ps, ps->p, "expected '%s'", s);
}

static bool word_char(const Parser *ps, const char *p) {
    if (p >= ps->end) return false;
    unsigned char c = (unsigned char)*p;
    if (isalnum(c) || c == '_' || c == '.') return true;
    return c == '-' && p + 1 < ps->end && isalnum((unsigned char)p[1]);
}

static const char *word(Parser *ps, const char *what) {
    skip_blanks(ps);
    const char *lo = ps->p;
    while (word_char(ps, ps->p)) ps->p++;
    if (ps->p == lo) FAIL(ps, lo, "expected %s", what);
    return hd_intern(ps->cx, hd_strndup(ps->scratch, lo, (size_t)(ps->p - lo)));
}

static const char *number_text(Parser *ps) {
    skip_blanks(ps);
    const char *lo = ps->p;
    if (ps->p < ps->end && *ps->p == '-') ps->p++;
    while (ps->p < ps->end && (isalnum((unsigned char)*ps->p) || *ps->p == '.' ||
                               ((*ps->p == '-' || *ps->p == '+') && (ps->p[-1] == 'e'))))
        ps->p++;
    if (ps->p == lo) FAIL(ps, lo, "expected a number");
    return hd_strndup(ps->scratch, lo, (size_t)(ps->p - lo));
}

static int64_t integer(Parser *ps) {
    skip_blanks(ps);
    const char *lo = ps->p, *t = number_text(ps);
    char *e;
    errno = 0;
    long long v = strtoll(t, &e, 0);
    if (*e || errno) FAIL(ps, lo, "'%s' is not a 64-bit integer", t);
    return v;
}

static double number(Parser *ps) {
    skip_blanks(ps);
    const char *lo = ps->p, *t = number_text(ps);
    char *e;
    double v = strtod(t, &e);
    if (*e) FAIL(ps, lo, "'%s' is not a number", t);
    return v;
}

static const char *quoted(Parser *ps) {
    expect(ps, "\"");
    const char *lo = ps->p;
    Out o = hd_out(ps->scratch);
    while (ps->p < ps->end && *ps->p != '"' && *ps->p != '\n') {
        char c = *ps->p++;
        if (c == '\\' && ps->p < ps->end) {
            c = *ps->p++;
            if (c == 'n') c = '\n';
            else if (c == 'x' && ps->end - ps->p >= 2) {
                char hex[3] = {ps->p[0], ps->p[1], 0};
                c = (char)strtol(hex, NULL, 16);
                ps->p += 2;
            }
        }
        if (c) hd_putn(&o, &c, 1);
    }
    if (ps->p == ps->end || *ps->p != '"') FAIL(ps, lo, "the text has no closing quote");
    ps->p++;
    return hd_intern(ps->cx, o.text);
}

static const Type *type(Parser *ps) {
    skip_blanks(ps);
    const char *lo = ps->p, *name = word(ps, "a type");
    DType d;
    int64_t dim[HD_MAX_DIMS];
    int rank = 0;
#define DTYPE(id, text, ...) ", " #text
    static const char known[] =
#include "runtime/dtypes.def"
        ;
    if (!hd_dtype_parse(name, &d)) FAIL(ps, lo, "no element type '%s'; there are %s", name, known + 2);
    if (accept(ps, "[")) {
        do {
            if (rank == HD_MAX_DIMS) FAIL(ps, lo, "more than %d axes", HD_MAX_DIMS);
            dim[rank++] = integer(ps);
        } while (accept(ps, ","));
        expect(ps, "]");
    }
    const Type *t = hd_type(ps->cx, d, rank, dim);
    if (!t) FAIL(ps, lo, "type too large or with a negative size");
    return t;
}

// `over {tensor: 0, shard: sum}` behind a type; absent: whole.
static Layout layout(Parser *ps) {
    Layout l = 0;
    if (!accept(ps, "over {")) return 0;
    do {
        skip_blanks(ps);
        const char *lo = ps->p;
        const int axis = hd_axis_called(word(ps, "an axis of the mesh"));
        if (axis == N_AXES) FAIL(ps, lo, "no such axis; there are %s", hd_axes_text(ps->cx->arena, HD_ALL_AXES));
        if (hd_layout_at(l, axis)) FAIL(ps, lo, "axis %s given twice", hd_axis_name(axis));
        expect(ps, ":");
        skip_blanks(ps);
        lo = ps->p;
        const bool uneven = accept(ps, "uneven ");
        int at = LAYOUT_SUM;
        while (!uneven && at <= LAYOUT_ROUTED && !accept(ps, hd_layout_word(at))) at++;
        const bool says = !uneven && at <= LAYOUT_ROUTED;
        const int64_t d = says ? 0 : integer(ps);
        if (d >= HD_MAX_DIMS || d < 0) FAIL(ps, lo, "a dimension is 0 to %d", HD_MAX_DIMS - 1);
        l = hd_layout_with(l, axis, says ? at : (uneven ? LAYOUT_UNEVEN : LAYOUT_SPLIT) + (int)d);
    } while (accept(ps, ","));
    expect(ps, "}");
    return l;
}

static Place place(Parser *ps) {
    Place p = {0};
    skip_blanks(ps);
    if (ps->p < ps->end && *ps->p == '@') {
        ps->p++;
        p.placed = true;
        for (int i = 1; i < N_SPACES && !p.space; i++)
            if (accept(ps, hd_space_text((Space)i))) p.space = (Space)i, expect(ps, ":");
        p.offset = integer(ps);
    }
    return p;
}

static Loc loc(Parser *ps) {
    Loc l = {0};
    if (!accept(ps, "loc(")) return l;
    if (!accept(ps, "-,") && !accept(ps, "-)")) {
        l.path = word(ps, "a path");
        if (accept(ps, ")")) return l;
        expect(ps, ",");
    } else if (ps->p[-1] == ')') {
        return l;
    }
    l.file = quoted(ps);
    expect(ps, ",");
    l.line = (int)integer(ps);
    expect(ps, ")");
    return l;
}

static void list(Parser *ps, Attr *a, AttrKind k) {
    VEC(int64_t) ints = {0};
    VEC(double) floats = {0};
    VEC(const char *) strs = {0};
    Arena *keep = ps->cx->arena;
    expect(ps, "[");
    if (!accept(ps, "]")) {
        do {
            a->n++;
            if (k == AK_INTS) hd_push(keep, &ints, integer(ps));
            else if (k == AK_FLOATS) hd_push(keep, &floats, number(ps));
            else {
                if (k == AK_SYMS) expect(ps, "@");
                hd_push(keep, &strs, word(ps, "a name"));
            }
        } while (accept(ps, ","));
        expect(ps, "]");
    }
    if (k == AK_INTS) a->ints = ints.at;
    else if (k == AK_FLOATS) a->floats = floats.at;
    else a->strs = (const char *const *)strs.at;
}

static void attrs(Parser *ps, Attrs *as) {
    if (!accept(ps, "{")) return;
    if (accept(ps, "}")) return;
    do {
        skip_blanks(ps);
        const char *lo = ps->p, *name = word(ps, "an attribute");
        Attr a = {0};
        if (!hd_attr_find(name, &a.id)) FAIL(ps, lo, "no attribute '%s'", name);
        if (hd_has(as, a.id)) FAIL(ps, lo, "attribute '%s' given twice", name);
        AttrKind k = hd_attr_info(a.id)->kind;
        a.i = 1;
        if (k != AK_FLAG) expect(ps, "=");
        switch (k) {
        case AK_FLAG: break;
        case AK_INT: a.i = integer(ps); break;
        case AK_FLOAT: a.f = number(ps); break;
        case AK_WORD: a.s = word(ps, "a word"); break;
        case AK_STR: a.s = quoted(ps); break;
        case AK_SYM: expect(ps, "@"); a.s = word(ps, "a name"); break;
        default: list(ps, &a, k); break;
        }
        hd_set_attr(ps->cx, as, &a);
    } while (accept(ps, ","));
    expect(ps, "}");
}

static void define(Parser *ps, const char *at, const char *name, Value *v) {
    if (hd_ptr_get(&ps->names, name) >= 0) FAIL(ps, at, "%%%s is defined twice", name);
    hd_ptr_set(ps->scratch, &ps->names, name, ps->values.n);
    hd_push(ps->scratch, &ps->values, v);
}

static Value *use(Parser *ps) {
    skip_blanks(ps);
    const char *lo = ps->p;
    expect(ps, "%");
    const char *name = word(ps, "a value name");
    const int at = hd_ptr_get(&ps->names, name);
    if (at >= 0) return ps->values.at[at];
    if (ps->broken) longjmp(ps->line, 1); // most likely a consequence of the error already reported
    FAIL(ps, lo, "%%%s is not defined before this use", name);
}

static void end_of_line(Parser *ps) {
    if (!at_line_end(ps)) FAIL(ps, ps->p, "unexpected text at the end of the line");
}

// Where a result is: an address, or elements of a buffer, and then it has no name. Symbols come before functions.
typedef struct { Layout layout; Place place; const Symbol *into; int64_t at; } Where;

static Where where(Parser *ps, Layout l) {
    Where w = {.layout = l, .place = place(ps)};
    skip_blanks(ps);
    const char *lo = ps->p;
    Attrs as = {0};
    if (w.place.placed || ps->p == ps->end || *ps->p != '{') return w;
    attrs(ps, &as);
    const char *into = hd_word(&as, A_INTO, NULL);
    if (as.n != 2 || !into || !hd_has(&as, A_OFFSET))
        FAIL(ps, lo, "a result says {offset = ELEMENT, into = @BUFFER}, or nothing in braces");
    w.into = hd_symbol_find(ps->m, into);
    w.at = hd_int(&as, A_OFFSET, 0);
    if (!w.into) FAIL(ps, lo, "no buffer @%s before this function", into);
    return w;
}

static void op(Parser *ps) {
    const char *names[HD_MAX_IN], *name_at[HD_MAX_IN];
    Value *in[HD_MAX_IN];
    const Type *types[HD_MAX_IN];
    Where places[HD_MAX_IN];
    int n_names = 0, n_in = 0, n_types = 0, unnamed = 0;
    skip_blanks(ps);
    const char *lo = ps->p, *stream = NULL;
    if (accept(ps, "[")) {
        stream = word(ps, "a stream");
        expect(ps, "]");
        skip_blanks(ps);
    }
    if (ps->p < ps->end && *ps->p == '%') {
        do {
            skip_blanks(ps);
            if (n_names == HD_MAX_IN) FAIL(ps, lo, "more than %d results", HD_MAX_IN);
            name_at[n_names] = ps->p;
            expect(ps, "%");
            names[n_names++] = word(ps, "a value name");
        } while (accept(ps, ","));
        expect(ps, "=");
    }
    skip_blanks(ps);
    const char *at = ps->p, *mnemonic = word(ps, "an op");
    OpKind kind;
    if (!hd_op_find(mnemonic, &kind)) FAIL(ps, at, "no op '%s'; heddle-opt --list-ops lists them", mnemonic);
    skip_blanks(ps);
    if (ps->p < ps->end && *ps->p == '%') {
        do {
            if (n_in == HD_MAX_IN) FAIL(ps, lo, "more than %d operands", HD_MAX_IN);
            in[n_in++] = use(ps);
        } while (accept(ps, ","));
    }
    Op *o = hd_op_new(ps->f, kind, n_in, in);
    o->stream = stream;
    attrs(ps, &o->attrs);
    if (accept(ps, ":")) {
        do {
            if (n_types == HD_MAX_IN) FAIL(ps, lo, "more than %d results", HD_MAX_IN);
            types[n_types] = type(ps);
            places[n_types] = where(ps, layout(ps));
            unnamed += places[n_types++].into != NULL;
        } while (accept(ps, ","));
    }
    if (unnamed && n_types - unnamed != n_names)
        FAIL(ps, lo, "%d names for %d results: one that says `into` has no name", n_names, n_types - unnamed);
    if (n_types - unnamed != n_names) FAIL(ps, lo, "%d results but %d result types", n_names, n_types);
    o->loc = loc(ps);
    o->span = span_at(ps, lo, ps->p);
    end_of_line(ps);
    hd_set_results(o, n_types, types);
    for (int i = 0, k = 0; i < n_types; i++) {
        o->out[i]->place = places[i].place;
        o->out[i]->layout = places[i].layout;
        if (places[i].into) hd_set_into(o->out[i], places[i].into, places[i].at);
        else define(ps, name_at[k], names[k], o->out[i]), k++;
    }
    hd_append(ps->f, o);
}

static void header(Parser *ps, bool is_kernel) {
    skip_blanks(ps);
    const char *lo = ps->p;

    expect(ps, "@");
    const char *name = word(ps, "a function name");
    ps->f = hd_func_add(ps->m, name, is_kernel);
    if (!ps->f) FAIL(ps, lo, "@%s is defined twice", name);
    ps->f->span = span_at(ps, lo, ps->p);
}

static void arguments(Parser *ps) {
    expect(ps, "(");
    if (accept(ps, ")")) return;
    do {
        skip_blanks(ps);
        const char *at = ps->p;
        expect(ps, "%");
        const char *name = word(ps, "an argument name");
        if (isdigit((unsigned char)name[0]))
            FAIL(ps, at, "argument %%%s: names of arguments start with a letter", name);
        expect(ps, ":");
        Value *v = hd_arg_add(ps->f, type(ps), name);
        v->layout = layout(ps);
        v->place = place(ps);
        define(ps, at, name, v);
    } while (accept(ps, ","));
    expect(ps, ")");
}

static bool function(Parser *ps, bool is_kernel) { // false: the rest of the text is skipped
    const Type *results[HD_MAX_IN];
    volatile int n_results = 0;
    hd_arena_rewind(ps->scratch, ps->empty);
    memset(&ps->names, 0, sizeof ps->names);
    memset(&ps->values, 0, sizeof ps->values);
    ps->broken = false;
    header(ps, is_kernel);
    arguments(ps);
    if (accept(ps, "->")) {
        do {
            if (n_results == HD_MAX_IN) FAIL(ps, ps->p, "more than %d results", HD_MAX_IN);
            results[n_results] = type(ps);
            n_results = n_results + 1;
        } while (accept(ps, ","));
    }
    if (accept(ps, "with")) attrs(ps, &ps->f->attrs);
    expect(ps, "{");
    end_of_line(ps);
    skip_line(ps);
    jmp_buf outer;
    memcpy(&outer, &ps->line, sizeof outer);
    while (next_line(ps) && *ps->p != '}') {
        if (!setjmp(ps->line)) op(ps);
        else ps->broken = true;
        skip_line(ps);
    }
    memcpy(&ps->line, &outer, sizeof outer);
    if (ps->p >= ps->end) return hd_error(ps->cx, ps->f->span, "function @%s has no closing '}'", ps->f->name);
    ps->p++;
    const Op *ret = hd_return(ps->f);
    bool same = ret && ret->n_in == n_results;
    for (int i = 0; same && i < n_results; i++) same = ret->in[i]->type == results[i];
    if (ret && !same) hd_error(ps->cx, ps->f->span, "the results of @%s are not what its return gives", ps->f->name);
    end_of_line(ps);
    return true;
}

static void symbol(Parser *ps, SymbolKind kind) {
    skip_blanks(ps);
    const char *lo = ps->p;
    expect(ps, "@");
    const char *name = word(ps, "a name");
    const Type *t = accept(ps, ":") ? type(ps) : NULL;
    Symbol *s = hd_symbol_add(ps->m, kind, name, t);
    if (!s) FAIL(ps, lo, "@%s is defined twice", name);
    s->span = span_at(ps, lo, ps->p);
    if (t) s->layout = layout(ps);
    attrs(ps, &s->attrs);
    s->place = place(ps);
    s->loc = loc(ps);
    end_of_line(ps);
}

static void skip_item(Parser *ps) { // the rest of a bad line, and the body when it opens one
    const char *line = ps->p;
    while (line > ps->text && line[-1] != '\n') line--;
    size_t n = (size_t)(ps->end - line);
    bool body = (n > 4 && !memcmp(line, "func", 4)) || (n > 6 && !memcmp(line, "kernel", 6));
    skip_line(ps);
    while (body && next_line(ps)) {
        body = *ps->p != '}';
        skip_line(ps);
    }
}

static bool item(Parser *ps) {
    skip_blanks(ps);
    const char *lo = ps->p, *w = word(ps, "'stage', a symbol or a function");
    if (!strcmp(w, "func") || !strcmp(w, "kernel")) return function(ps, w[0] == 'k');
    if (!strcmp(w, "seal")) {
        ps->seal = word(ps, "a hash");
        end_of_line(ps);
        return true;
    }
    if (!strcmp(w, "stage")) {
        const char *name = word(ps, "a stage");
        for (int i = 0; i < N_STAGES; i++)
            if (!strcmp(name, hd_stage_text((Stage)i))) {
                ps->m->stage = (Stage)i;
                end_of_line(ps);
                return true;
            }
        FAIL(ps, lo, "no stage '%s'; there are tensor, sharded, kernels, plan", name);
    }
    for (int i = 0; i < N_SYMBOL_KINDS; i++)
        if (!strcmp(w, hd_symbol_keyword((SymbolKind)i))) {
            symbol(ps, (SymbolKind)i);
            return true;
        }
    FAIL(ps, lo, "unexpected '%s'; expected stage, func, kernel, config, param, bucket, buffer, step, arena or stream",
         w);
}

// A module whose text was changed after it was printed computes what only that text says.
static void check_seal(Parser *ps) {
    if (!hd_fingerprint(ps->m)) return;
    const char *seal = hd_seal(ps->m, ps->scratch);
    if (ps->seal && !strcmp(ps->seal, seal)) return;
    Symbol *model = hd_symbol_find(ps->m, "model");
    hd_set_word(ps->cx, &model->attrs, A_FINGERPRINT, hd_sprintf(ps->scratch, "edited %s", seal));
}

Module *hd_parse_module(Ctx *cx, const char *text, size_t len, uint32_t base) {
    int errors = cx->diags.errors;
    size_t at;
    const char *wrong = hd_text_wrong(text, len, TEXT_IR, &at);
    if (wrong) {
        hd_error(cx, (Span){base + (uint32_t)at, base + (uint32_t)at}, "%s", wrong);
        return NULL;
    }
    Parser *ps = HD_NEW(cx->arena, Parser);
    *ps = (Parser){
        .cx = cx, .m = hd_module_new(cx, STAGE_TENSOR), .text = text, .p = text, .end = text + len, .base = base};
    ps->scratch = hd_arena_new();
    ps->empty = hd_arena_mark(ps->scratch);
    while (next_line(ps)) {
        if (setjmp(ps->line)) skip_item(ps);
        else if (!item(ps)) break;
        else skip_line(ps);
    }
    if (cx->diags.errors == errors && hd_check_ops(ps->m, "the text")) check_seal(ps);
    hd_arena_free(ps->scratch);
    ps->scratch = NULL;
    return cx->diags.errors == errors ? ps->m : NULL;
}
