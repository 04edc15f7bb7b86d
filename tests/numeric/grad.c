// Every gradient rule of the op table against finite differences of the evaluator. Pointwise ops get their cases from
// the table, the others from the list below; an op with a gradient that no case uses fails the test.
#include "tests/numeric/finite.h"

// Structured ops: parameters @a, @b, @c in. `loss` makes @loss of %y. A case is text so that it reads as the printed
// IR.
static const char *const cases[] = {
    "cast",
    "param @a : f32[3,4]\n---\n%0 = param {param = @a} : f32[3,4]\n%y = cast %0 {out = f64} : f64[3,4]\n",
    "reshape",
    "param @a : f32[3,4]\n---\n%0 = param {param = @a} : f32[3,4]\n%y = reshape %0 : f32[2,6]\n",
    "broadcast",
    "param @a : f32[3,1]\n---\n%0 = param {param = @a} : f32[3,1]\n%y = broadcast %0 : f32[2,3,4]\n",
    "transpose",
    "param @a : f32[2,3,4]\n---\n%0 = param {param = @a} : f32[2,3,4]\n%y = transpose %0 {perm = [2, 0, 1]} : "
    "f32[4,2,3]\n",
    // one slice that leaves both ends, slices with a gap, slices that overlap, slices of two axes
    "slice",
    "param @a : f32[3,5]\n---\n%0 = param {param = @a} : f32[3,5]\n%y = slice %0 {axis = 1, start = 1, size = 3} : "
    "f32[3,3]\n",
    "slice",
    "param @a : f32[6,2]\n---\n%0 = param {param = @a} : f32[6,2]\n%1 = square %0 : f32[6,2]\n"
    "%2 = slice %1 {axis = 0, start = 0, size = 2} : f32[2,2]\n%3 = slice %1 {axis = 0, start = 2, size = 2} : "
    "f32[2,2]\n"
    "%4 = slice %1 {axis = 0, start = 4, size = 2} : f32[2,2]\n%5 = mul %2, %3 : f32[2,2]\n%y = mul %5, %4 : "
    "f32[2,2]\n",
    "slice",
    "param @a : f32[6,2]\n---\n%0 = param {param = @a} : f32[6,2]\n%1 = square %0 : f32[6,2]\n"
    "%2 = slice %1 {axis = 0, start = 3, size = 2} : f32[2,2]\n%3 = slice %1 {axis = 0, start = 1, size = 2} : "
    "f32[2,2]\n"
    "%4 = slice %1 {axis = 0, start = 2, size = 2} : f32[2,2]\n%5 = slice %1 {axis = 1, start = 1, size = 1} : "
    "f32[6,1]\n"
    "%6 = slice %5 {axis = 0, start = 0, size = 2} : f32[2,1]\n%7 = mul %2, %3 : f32[2,2]\n%8 = mul %7, %4 : f32[2,2]\n"
    "%9 = mul %8, %6 : f32[2,2]\n%y = mul %9, %2 : f32[2,2]\n",
    "concat",
    "param @a : f32[2,3]\nparam @b : f32[2,1]\n---\n%0 = param {param = @a} : f32[2,3]\n%1 = param {param = @b} : "
    "f32[2,1]\n"
    "%2 = const {value = 2} : f32[2,2]\n%y = concat %0, %2, %1 {axis = 1} : f32[2,6]\n",
    "sum",
    "param @a : f32[2,3,4]\n---\n%0 = param {param = @a} : f32[2,3,4]\n%y = sum %0 {axes = [0, 2]} : f32[3]\n",
    "sum",
    "param @a : f32[2,3,4]\n---\n%0 = param {param = @a} : f32[2,3,4]\n%y = sum %0 {axes = [1], keep} : f32[2,1,4]\n",
    // a base of 0, and an exponent of 0
    "pow",
    "param @a : f32[3,4]\nparam @b : f32[4]\n---\n%0 = param {param = @a} : f32[3,4]\n"
    "%1 = param {param = @b} : f32[4]\n%2 = relu %0 : f32[3,4]\n%3 = square %1 : f32[4]\n"
    "%4 = const {value = 1.5} : f32\n%5 = add %3, %4 : f32[4]\n%6 = pow %2, %5 : f32[3,4]\n"
    "%7 = const {value = 0} : f32\n%8 = pow %2, %7 : f32[3,4]\n%y = add %6, %8 : f32[3,4]\n",
    "where",
    "param @a : f32[3,4]\nparam @b : f32[4]\nparam @c : f32[3,1]\n---\n%0 = param {param = @a} : f32[3,4]\n"
    "%1 = param {param = @b} : f32[4]\n%2 = param {param = @c} : f32[3,1]\n%3 = lt %0, %1 : f32[3,4]\n"
    "%4 = square %0 : f32[3,4]\n%5 = where %3, %4, %2 : f32[3,4]\n%6 = le %5, %0 : f32[3,4]\n"
    "%y = where %6, %1, %5 : f32[3,4]\n",
    // the logarithm of a negative number is not taken: no NaN reaches its operand
    "where",
    "param @a : f32[3,4]\n---\n%0 = param {param = @a} : f32[3,4]\n%1 = const {value = 0} : f32\n"
    "%2 = gt %0, %1 : f32[3,4]\n%3 = const {value = 1} : f32\n%4 = where %2, %0, %3 : f32[3,4]\n"
    "%5 = log %4 : f32[3,4]\n%y = where %2, %5, %0 : f32[3,4]\n",
    "reduce_max",
    "param @a : f32[2,3,4]\n---\n%0 = param {param = @a} : f32[2,3,4]\n%1 = const {value = 0.01} : f32\n"
    "%2 = iota : f32[24]\n%3 = mul %2, %1 : f32[24]\n%4 = reshape %3 : f32[2,3,4]\n%5 = add %0, %4 : f32[2,3,4]\n"
    "%y = reduce_max %5 {axes = [0, 2]} : f32[3]\n",
    "reduce_max",
    "param @a : f32[5,7]\n---\n%0 = param {param = @a} : f32[5,7]\n%1 = const {value = 0.01} : f32\n"
    "%2 = iota : f32[7]\n%3 = mul %2, %1 : f32[7]\n%4 = add %0, %3 : f32[5,7]\n"
    "%y = reduce_max %4 {axes = [1], keep} : f32[5,1]\n",
    // elements that are always equal share the gradient: their sum moves as the one they are made of
    "reduce_max",
    "param @a : f32[5,1]\n---\n%0 = param {param = @a} : f32[5,1]\n%1 = broadcast %0 : f32[5,7]\n"
    "%y = reduce_max %1 {axes = [1]} : f32[5]\n",
    "cumsum",
    "param @a : f32[3,5]\n---\n%0 = param {param = @a} : f32[3,5]\n%y = cumsum %0 {axis = 1} : f32[3,5]\n",
    "cumsum",
    "param @a : f32[4,3,2]\n---\n%0 = param {param = @a} : f32[4,3,2]\n%1 = cumsum %0 {axis = 0, reverse} : "
    "f32[4,3,2]\n%2 = square %1 : f32[4,3,2]\n%y = cumsum %2 {axis = 1} : f32[4,3,2]\n",
    "matmul",
    "param @a : f32[3,4]\nparam @b : f32[4,5]\n---\n%0 = param {param = @a} : f32[3,4]\n%1 = param {param = @b} : "
    "f32[4,5]\n"
    "%y = matmul %0, %1 : f32[3,5]\n",
    "matmul",
    "param @a : f32[2,3,4]\nparam @b : f32[5,4]\n---\n%0 = param {param = @a} : f32[2,3,4]\n%1 = param {param = @b} : "
    "f32[5,4]\n"
    "%y = matmul %0, %1 {tb} : f32[2,3,5]\n",
    "matmul",
    "param @a : f32[2,2,3]\nparam @b : f32[2,2,5]\n---\n%0 = param {param = @a} : f32[2,2,3]\n%1 = param {param = @b} "
    ": f32[2,2,5]\n"
    "%y = matmul %0, %1 {ta} : f32[3,5]\n",
    "matmul",
    "param @a : f32[4,3]\nparam @b : f32[5,4]\n---\n%0 = param {param = @a} : f32[4,3]\n%1 = param {param = @b} : "
    "f32[5,4]\n"
    "%y = matmul %0, %1 {ta, tb} : f32[3,5]\n",
    "matmul",
    "param @a : f32[4]\nparam @b : f32[4,5]\n---\n%0 = param {param = @a} : f32[4]\n%1 = param {param = @b} : "
    "f32[4,5]\n"
    "%y = matmul %0, %1 : f32[5]\n",
    "bmm",
    "param @a : f32[2,3,4]\nparam @b : f32[2,4,5]\n---\n%0 = param {param = @a} : f32[2,3,4]\n%1 = param {param = @b} "
    ": f32[2,4,5]\n"
    "%y = bmm %0, %1 : f32[2,3,5]\n",
    "bmm",
    "param @a : f32[2,3,4]\nparam @b : f32[2,5,4]\n---\n%0 = param {param = @a} : f32[2,3,4]\n%1 = param {param = @b} "
    ": f32[2,5,4]\n"
    "%y = bmm %0, %1 {tb} : f32[2,3,5]\n",
    "bmm",
    "param @a : f32[2,2,4,3]\nparam @b : f32[2,2,4,5]\n---\n%0 = param {param = @a} : f32[2,2,4,3]\n"
    "%1 = param {param = @b} : f32[2,2,4,5]\n%y = bmm %0, %1 {ta} : f32[2,2,3,5]\n",
    "bmm",
    "param @a : f32[2,4,3]\nparam @b : f32[2,5,4]\n---\n%0 = param {param = @a} : f32[2,4,3]\n%1 = param {param = @b} "
    ": f32[2,5,4]\n"
    "%y = bmm %0, %1 {ta, tb} : f32[2,3,5]\n",
    "embedding",
    "param @a : f32[7,3]\n---\n%0 = param {param = @a} : f32[7,3]\n%y = embedding %0, %t : f32[2,4,3]\n",
    "layer_norm",
    "param @a : f32[2,3,5]\nparam @b : f32[5]\nparam @c : f32[5]\n---\n%0 = param {param = @a} : f32[2,3,5]\n"
    "%1 = param {param = @b} : f32[5]\n%2 = param {param = @c} : f32[5]\n"
    "%y, %m, %s = layer_norm %0, %1, %2 {eps = 1e-05} : f32[2,3,5], f32[2,3], f32[2,3]\n",
    "rms_norm",
    "param @a : f32[2,3,5]\nparam @b : f32[5]\n---\n%0 = param {param = @a} : f32[2,3,5]\n%1 = param {param = @b} : "
    "f32[5]\n"
    "%y, %s = rms_norm %0, %1 {eps = 1e-05} : f32[2,3,5], f32[2,3]\n",
    "softmax",
    "param @a : f32[3,5]\n---\n%0 = param {param = @a} : f32[3,5]\n%y = softmax %0 : f32[3,5]\n",
    "softmax",
    "param @a : f32[2,4,4]\n---\n%0 = param {param = @a} : f32[2,4,4]\n%y = softmax %0 {causal} : f32[2,4,4]\n",
    "logsumexp",
    "param @a : f32[2,3,5]\n---\n%0 = param {param = @a} : f32[2,3,5]\n%y = logsumexp %0 : f32[2,3]\n",
    "logsumexp",
    "param @a : f32[4,7]\n---\n%0 = param {param = @a} : f32[4,7]\n%1 = logsumexp %0 {keep} : f32[4,1]\n"
    "%y = sub %0, %1 : f32[4,7]\n",
    "rope",
    "param @a : f32[2,3,8]\n---\n%0 = param {param = @a} : f32[2,3,8]\n%y = rope %0 {heads = 2, theta = 10000} : "
    "f32[2,3,8]\n",
    "rope",
    "param @a : f32[3,4]\n---\n%0 = param {param = @a} : f32[3,4]\n%y = rope %0 {heads = 1, theta = 100, inverse} : "
    "f32[3,4]\n",
    "attention",
    "param @a : f32[2,4,6]\nparam @b : f32[2,4,6]\nparam @c : f32[2,4,6]\n---\n%0 = param {param = @a} : f32[2,4,6]\n"
    "%1 = param {param = @b} : f32[2,4,6]\n%2 = param {param = @c} : f32[2,4,6]\n"
    "%y, %s = attention %0, %1, %2 {heads = 2, causal} : f32[2,4,6], f32[2,2,4]\n",
    "attention",
    "param @a : f32[1,3,8]\nparam @b : f32[1,3,4]\nparam @c : f32[1,3,4]\n---\n%0 = param {param = @a} : f32[1,3,8]\n"
    "%1 = param {param = @b} : f32[1,3,4]\n%2 = param {param = @c} : f32[1,3,4]\n"
    "%y, %s = attention %0, %1, %2 {heads = 4, kv_heads = 2, scale = 0.3} : f32[1,3,8], f32[1,4,3]\n",
    "attention",
    "param @a : f32[2,3,16]\n---\n%0 = param {param = @a} : f32[2,3,16]\n"
    "%y, %s = attention %0 {heads = 4, kv_heads = 2, causal, packed} : f32[2,3,8], f32[2,4,3]\n",
    "cross_entropy",
    "param @a : f32[2,4,6]\n---\n%0 = param {param = @a} : f32[2,4,6]\n%y = cross_entropy %0, %t : f32\n",
    // the loss is used on its own way, so that it cannot come out of cross_entropy_grad
    "cross_entropy",
    "param @a : f32[2,4,6]\n---\n%0 = param {param = @a} : f32[2,4,6]\n%1 = cross_entropy %0, %t : f32\n"
    "%y = square %1 : f32\n",
    // two losses of which the second needs the first's value, and a parameter read in three places
    "param",
    "param @a : f32[2,4,6]\n---\n%0 = param {param = @a} : f32[2,4,6]\n%1 = square %0 : f32[2,4,6]\n"
    "%2 = cross_entropy %1, %t : f32\n%3 = param {param = @a} : f32[2,4,6]\n%4 = cross_entropy %3, %t : f32\n"
    "%y = mul %2, %4 : f32\n",
};

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
        for (const Op *o = eval->first; o; o = o->next) t->covered[o->kind] = true;
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

static void structured(Test *t, const char *name, const char *text) {
    t->name = name;
    Arena *a = hd_arena_new();
    const char *body = strstr(text, "---\n") + 4, *y = strstr(body, "%y"), *type = strstr(y, " : ") + 3;
    char *dtype = hd_strndup(a, type, 3), *shape = hd_strdup(a, "");
    if (type[3] == '[') shape = hd_strndup(a, type + 4, strcspn(type + 4, "]"));
    Out o = hd_out(a);
    hd_printf(&o, "config @train {micro = 4}\n");
    hd_putn(&o, text, (size_t)(body - 4 - text));
    put_loss(&o, body, shape, dtype, strstr(body, "%t") != NULL);
    run(t, o.text, 4, 100);
    hd_arena_free(a);
}

int main(void) {
    Test t = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += 2) structured(&t, cases[i], cases[i + 1]);
#define ELT(id, mnemonic, n, traits, grad, flops, meaning)                                                             \
    if (HAS_GRADIENT(grad) && n < 3) pointwise(&t, OP_##id, n);
#define OP(id, ...)
#define HAS_GRADIENT(grad) (strcmp(#grad, "none") != 0 && strcmp(#grad, "zero") != 0)
#include "ir/ops.def"
#undef ELT
#undef OP
    t.name = "ops.def";
#define ELT(id, mnemonic, n, traits, grad, flops, meaning)                                                             \
    if (HAS_GRADIENT(grad) && !t.covered[OP_##id]) fail(&t, "no gradient case uses %s", mnemonic);
#define OP(id, mnemonic, n_in, n_out, attrs, stages, traits, classes, row, type, eval, grad, ...)                      \
    if (HAS_GRADIENT(grad) && !t.covered[OP_##id]) fail(&t, "no gradient case uses %s", mnemonic);
#include "ir/ops.def"
    printf("%d gradient elements compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
