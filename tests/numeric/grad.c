// Every gradient rule of the op table against finite differences of the evaluator. Pointwise ops get their cases from
// the table, the others from grad.hir; an op with a gradient that no case uses fails the test.
#include "tests/numeric/finite.h"
#include "ir/base/parts.h"

// Parameter k has its values on a lattice of its own, so that no two operands of max, min or relu come within reach of
// the difference's step of each other or of zero.
static void fill(Tensor t, uint64_t *state, bool positive, int k) {
    for (int64_t i = 0, n = hd_type_count(t.type); i < n; i++) {
        if (!hd_dtype_is_float(t.type->dtype)) t.data[i] = floor(uniform(state, 0, 6));
        else if (positive) t.data[i] = uniform(state, 0.5, 2);
        else t.data[i] = 0.1 * floor(uniform(state, -15, 15)) + 0.02 + 0.03 * k;
    }
}

static void run(Test *t, const char *text, int micro, int samples) {
    Ctx *cx = hd_ctx_new();
    Arena *a = hd_arena_new();
    uint32_t base = hd_source_add(&cx->diags, t->name, text, strlen(text), 1);
    Module *m = hd_parse_module(cx, text, strlen(text), base);
    PassCx pass = {.scratch = a};
    t->arena = a;
    bool ok = m && hd_verify(m) && hd_pass_autodiff(m, &pass) == CHANGED && hd_verify(m);
    if (!ok) {
        Out out = hd_out(a);
        hd_diags_print(&cx->diags, &out);
        fail(t, "does not compile:\n%s%s", text, out.text);
    } else {
        uint64_t state = 1;
        for (const char *c = text; *c; c++) state = state * 31 + (unsigned char)*c;
        Func *eval = hd_func_find(m, "eval");
        for (const Op *o = hd_func_find(m, "micro")->first; o; o = o->next) t->covered[o->kind] = true;
        Eval *e = hd_eval_new(m, EVAL_EXACT, a);
        Tensor in[8];
        for (int i = 0; i < eval->n_args; i++) fill(in[i] = hd_tensor(a, eval->args[i]->type), &state, false, 0);
        int k = 0;
        for (const Symbol *s = m->symbols; s; s = s->next)
            if (s->kind == SYM_PARAM) fill(hd_eval_storage(e, s->name), &state, t->positive, k++ % 3);
        compare(t, e, m, in, micro, samples, &state);
    }
    hd_arena_free(a);
    hd_ctx_free(cx);
}

// --- cases
// Appends `func @loss` whose body ends in %y: f32 or f64 of a shape; the loss is a random projection of y.
static void put_loss(Out *o, const char *body, const char *shape, const char *dtype, bool targets) {
    int rank = 0;
    for (const char *c = shape; *c; c++) rank += *c == ',' || c == shape;
    hd_printf(o, "func @loss(%s", targets ? "%t: i32[2,4]" : "");
    if (rank) hd_printf(o, "%s%%r: %s[%s]", targets ? ", " : "", dtype, shape);
    hd_printf(o, ") -> %s with {kind = loss} {\n%s", dtype, body);
    if (!rank) {
        hd_printf(o, "return %%y\n}\n");
        return;
    }
    hd_printf(o, "%%p = mul %%y, %%r : %s[%s]\n%%l = sum %%p {axes = [", dtype, shape);
    for (int i = 0; i < rank; i++) hd_printf(o, i ? ", %d" : "%d", i);
    hd_printf(o, "]} : %s\nreturn %%l\n}\n", dtype);
}

static void pointwise_case(Test *t, OpKind k, int n, const char *a_shape, const char *b_shape, const char *y_shape) {
    Arena *a = hd_arena_new();
    Out o = hd_out(a), body = hd_out(a);
    const char *shapes[2] = {a_shape, b_shape};
    hd_printf(&o, "config @train {micro = 1}\n");
    for (int i = 0; i < n; i++) {
        char type[40];
        snprintf(type, sizeof type, shapes[i][0] ? "f32[%s]" : "f32%s", shapes[i]);
        hd_printf(&o, "param @%c : %s\n", 'a' + i, type);
        hd_printf(&body, "%%%d = param {param = @%c} : %s\n", i, 'a' + i, type);
    }
    hd_printf(&body, "%%y = %s %%0%s : f32", hd_op_info(k)->mnemonic, n == 2 ? ", %1" : "");
    hd_printf(&body, y_shape[0] ? "[%s]\n" : "%s\n", y_shape);
    put_loss(&o, body.text, y_shape, "f32", false);
    run(t, o.text, 1, 100);
    hd_arena_free(a);
}

static void pointwise(Test *t, OpKind k, int n) {
    t->name = hd_op_info(k)->mnemonic;
    t->positive = k == OP_LOG || k == OP_SQRT || k == OP_RSQRT || k == OP_DIV ||
                  k == OP_POW; // away from where they have no derivative
    if (n == 1) {
        pointwise_case(t, k, 1, "3,4", "", "3,4");
        pointwise_case(t, k, 1, "", "", "");
    } else {
        static const char *const shapes[][3] = {{"3,4", "3,4", "3,4"}, {"2,3,4", "4", "2,3,4"},
                                                {"3,1", "1,4", "3,4"}, {"", "3,4", "3,4"},
                                                {"4", "", "4"},        {"4", "2,1,1", "2,1,4"}};
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            pointwise_case(t, k, 2, shapes[i][0], shapes[i][1], shapes[i][2]);
    }
    t->positive = false;
}

// A part of grad.hir: parameters, and a function whose body computes %y.
static void structured(Test *t, const char *text, size_t n) {
    Arena *a = hd_arena_new();
    text = hd_strndup(a, text, n);
    while (!strncmp(text, "//", 2)) text = strchr(text, '\n') + 1;
    const char *func = strstr(text, "func @"), *body = strstr(func, "{\n") + 2, *type = strstr(func, "-> ") + 3;
    const char *end = strstr(body, "  return %y");
    t->name = hd_strndup(a, func + 6, strcspn(func + 6, "("));
    char *dtype = hd_strndup(a, type, 3), *shape = hd_strdup(a, "");
    if (type[3] == '[') shape = hd_strndup(a, type + 4, strcspn(type + 4, "]"));
    Out o = hd_out(a);
    hd_printf(&o, "config @train {micro = 4}\n");
    hd_putn(&o, text, (size_t)(func - text));
    Out lines = hd_out(a);
    for (const char *s = body; s < end; s = strchr(s, '\n') + 1) hd_putn(&lines, s + 2, strcspn(s, "\n") - 1);
    put_loss(&o, lines.text, shape, dtype, strncmp(strchr(func, '('), "(%t", 3) == 0);
    run(t, o.text, 4, 100);
    hd_arena_free(a);
}

static void structured_cases(Test *t) {
    Arena *a = hd_arena_new();
    size_t n;
    const char *text = hd_read_file(a, "tests/numeric/grad.hir", &n), *end = text + n;
    if (!text) fail(t, "cannot read tests/numeric/grad.hir");
    int line = 1;
    for (const char *s = text; text && s < end;) {
        const char *e = hd_part_end(s, end);
        structured(t, s, (size_t)(e - s));
        s = hd_part_next(e, end, &line);
    }
    hd_arena_free(a);
}

int main(void) {
    Test t = {0};
    structured_cases(&t);
#define ELT(id, mnemonic, n, traits, by, flops, meaning)                                                               \
    if (HAS_GRADIENT(#by) && n < 3) pointwise(&t, OP_##id, n);
#define OP(id, ...)
#define HAS_GRADIENT(by) (strcmp(by, "") != 0 && strcmp(by, "none") != 0 && strcmp(by, "zero") != 0)
#include "ir/ops.def"
    t.name = "ops.def";
#define NO_CASE "no gradient case uses %s: add one to tests/numeric/grad.hir"
#define ELT(id, mnemonic, n, traits, by, flops, meaning)                                                               \
    if (HAS_GRADIENT(#by) && !t.covered[OP_##id]) fail(&t, NO_CASE, mnemonic);
#define grad(x) #x
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc)                                                              \
    if (HAS_GRADIENT("" fields) && !t.covered[OP_##id]) fail(&t, NO_CASE, mnemonic);
#include "ir/ops.def"
    printf("%d gradient elements compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
