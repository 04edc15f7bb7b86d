// Strings, types, attributes and ops as data, below the level of text.
#include "ir/ir.h"
#include "ir/ranges.h"
#include "tests/unit/check.h"

TEST(interning) {
    Ctx *cx = hd_ctx_new();
    char a[] = "name", b[] = "name";
    CHECK(hd_intern(cx, a) == hd_intern(cx, b));
    CHECK(hd_internf(cx, "na%s", "me") == hd_intern(cx, a));
    CHECK(hd_intern(cx, "") == hd_intern(cx, ""));
    CHECK(hd_intern(cx, "other") != hd_intern(cx, a));
    const char *many[5000];
    for (int i = 0; i < 5000; i++) many[i] = hd_internf(cx, "s%d", i);
    for (int i = 0; i < 5000; i++) CHECK(hd_internf(cx, "s%d", i) == many[i]);
    hd_ctx_free(cx);
}

TEST(types) {
    Ctx *cx = hd_ctx_new();
    const Type *t = hd_type(cx, TY_F32, 3, (int64_t[]){2, 3, 4});
    CHECK(t == hd_type(cx, TY_F32, 3, (int64_t[]){2, 3, 4}));
    CHECK(t != hd_type(cx, TY_BF16, 3, (int64_t[]){2, 3, 4}));
    CHECK_TEXT(hd_type_text(cx, t), "f32[2,3,4]");
    CHECK_INT(hd_type_count(t), 24);
    CHECK_INT(hd_type_bytes(t), 96);
    CHECK_INT(hd_type_rows(t), 6);
    CHECK_INT(hd_type_cols(t), 4);
    const Type *s = hd_type(cx, TY_F32, 0, NULL);
    CHECK_TEXT(hd_type_text(cx, s), "f32");
    CHECK_INT(hd_type_count(s), 1);
    CHECK_INT(hd_type_cols(s), 1);
    CHECK_INT(hd_type_count(hd_type(cx, TY_I32, 2, (int64_t[]){0, 5})), 0);
    CHECK(hd_type_with(cx, TY_BF16, t) == hd_type(cx, TY_BF16, 3, t->dim));
    hd_ctx_free(cx);
}

TEST(many_types) { // of shapes whose sizes are alike
    Ctx *cx = hd_ctx_new();
    enum { N = 60 };
    static const Type *made[N][N][2];
    for (int64_t a = 0; a < N; a++)
        for (int64_t b = 0; b < N; b++)
            for (int r = 0; r < 2; r++) made[a][b][r] = hd_type(cx, TY_F32, 2 + r, (int64_t[]){a << 10, b << 8, 1});
    for (int64_t a = 0; a < N; a++)
        for (int64_t b = 0; b < N; b++)
            for (int r = 0; r < 2; r++) {
                const Type *t = made[a][b][r];
                CHECK(t == hd_type(cx, TY_F32, 2 + r, (int64_t[]){a << 10, b << 8, 1}));
                CHECK(t->dim[0] == a << 10 && t->dim[1] == b << 8 && t->rank == 2 + r);
            }
    hd_ctx_free(cx);
}

TEST(types_out_of_range) {
    Ctx *cx = hd_ctx_new();
    int64_t big = (int64_t)1 << 40;
    CHECK(!hd_type(cx, TY_F32, 2, (int64_t[]){big, big}));
    CHECK(!hd_type(cx, TY_F32, 1, (int64_t[]){-1}));
    CHECK(!hd_type(cx, TY_F32, HD_MAX_DIMS + 1, (int64_t[HD_MAX_DIMS + 1]){1, 1, 1, 1, 1, 1, 1}));
    CHECK(!hd_type(cx, TY_F32, 3, (int64_t[]){INT64_MAX, 0, INT64_MAX}));
    hd_ctx_free(cx);
}

TEST(broadcasting) {
    Ctx *cx = hd_ctx_new();
    const Type *a = hd_type(cx, TY_F32, 2, (int64_t[]){3, 1}), *b = hd_type(cx, TY_F32, 3, (int64_t[]){2, 1, 4});
    CHECK_TEXT(hd_type_text(cx, hd_type_broadcast(cx, a, b)), "f32[2,3,4]");
    CHECK(!hd_type_broadcast(cx, hd_type(cx, TY_F32, 1, (int64_t[]){3}), hd_type(cx, TY_F32, 1, (int64_t[]){4})));
    CHECK(hd_type_broadcast(cx, a, hd_type(cx, TY_F32, 0, NULL)) == a);
    hd_ctx_free(cx);
}

TEST(attributes) {
    Ctx *cx = hd_ctx_new();
    Attrs as = {0};
    hd_set_int(cx, &as, A_SIZE, 3);
    hd_set_float(cx, &as, A_EPS, 0.5);
    hd_set_flag(cx, &as, A_TA);
    hd_set_word(cx, &as, A_PARAM, "head.w");
    hd_set_ints(cx, &as, A_PERM, 2, (int64_t[]){1, 0});
    hd_set_words(cx, &as, A_BUFFERS, 2, (const char *[]){"a", "b"});
    hd_set_int(cx, &as, A_SIZE, 4);
    CHECK_INT(as.n, 6);
    for (int i = 1; i < as.n; i++) CHECK(as.at[i - 1].id < as.at[i].id);
    CHECK_INT(hd_int(&as, A_SIZE, 0), 4);
    CHECK(hd_float(&as, A_EPS, 0) == 0.5);
    CHECK(hd_has(&as, A_TA) && !hd_has(&as, A_TB));
    CHECK_TEXT(hd_word(&as, A_PARAM, ""), "head.w");
    CHECK_INT(hd_int(&as, A_AXIS, 7), 7);
    Attrs copy = hd_attrs_copy(cx, &as);
    CHECK(hd_attrs_equal(&as, &copy));
    hd_set_ints(cx, &copy, A_PERM, 2, (int64_t[]){0, 1});
    CHECK(!hd_attrs_equal(&as, &copy));
    hd_unset(&copy, A_PERM);
    CHECK_INT(copy.n, 5);
    CHECK_INT(as.n, 6);
    Out o = hd_out(cx->arena);
    hd_print_attrs(&as, &o);
    CHECK(strstr(o.text, "size = 4"));
    CHECK(strstr(o.text, "buffers = [@a, @b]"));
    hd_ctx_free(cx);
}

TEST(tables) {
    for (int k = 0; k < N_OPS; k++) {
        OpKind found;
        CHECK(hd_op_find(hd_op_info((OpKind)k)->mnemonic, &found) && (int)found == k);
    }
    for (int k = 0; k < N_ATTRS; k++) {
        AttrId found;
        CHECK(hd_attr_find(hd_attr_info((AttrId)k)->text, &found) && (int)found == k);
    }
    CHECK_INT(hd_attr_allowed("axis start? size", A_AXIS), 2);
    CHECK_INT(hd_attr_allowed("axis start? size", A_START), 1);
    CHECK_INT(hd_attr_allowed("axis start? size", A_AXES), 0);
    OpKind none;
    CHECK(!hd_op_find("ad", &none) && !hd_op_find("", &none));
}

// A function is edited in place: insert, replace, erase, renumber.
TEST(editing) {
    Ctx *cx = hd_ctx_new();
    Module *m = hd_module_new(cx, STAGE_TENSOR);
    Func *f = hd_func_add(m, "f", false);
    CHECK(!hd_func_add(m, "f", false));
    const Type *t = hd_type(cx, TY_F32, 1, (int64_t[]){4});
    Value *x = hd_arg_add(f, t, "x");
    Builder b = {.f = f};
    Value *e = hd_build1(&b, OP_EXP, x, NULL, NULL, NULL);
    Value *n = hd_build1(&b, OP_NEG, e, NULL, NULL, NULL);
    hd_build(&b, OP_RETURN, 2, (Value *[]){n, e}, NULL, NULL);
    CHECK(hd_verify(m));
    Arena *a = hd_arena_new();
    Uses u = hd_uses(f, a);
    CHECK_INT(u.count[e->id], 2);
    CHECK(u.users[e->id][0] == n->def && u.users[e->id][1] == f->last);
    Builder before = {.f = f, .before = n->def};
    Value *s = hd_build1(&before, OP_SQUARE, x, NULL, NULL, NULL);
    hd_replace_uses(e, s);
    hd_erase(e->def);
    hd_renumber(f);
    CHECK(hd_verify(m));
    CHECK_INT(f->n_ops, 3);
    CHECK_INT(s->id, 1);
    Func *copy = hd_func_clone(m, f, "g");
    CHECK(hd_verify(m) && copy->n_ops == f->n_ops && copy->first->out[0]->type == t);
    hd_func_remove(m, f);
    CHECK(m->funcs == copy && m->last_func == copy);
    hd_arena_free(a);
    hd_ctx_free(cx);
}

TEST(copies_of_modules) {
    const char *text = "stage plan\nconfig @target {device_memory_bytes = 12000}\n"
                       "buffer @w : f32[64] {class = weights} @0x0\nbuffer @g : f32[64] {class = grads} @0x100\n"
                       "stream @compute\n"
                       "func @f(%x: f32[8,8] @0x200) -> f32[8,8] {\n"
                       "  [compute] %0 = view {buffer = @w, offset = 0} : f32[8,8] @0x0\n"
                       "  [compute] gemm %x, %0 {ta} : f32[8,8] {offset = 0, into = @g} loc(a.b, \"m.hd\", 3)\n"
                       "  [compute] %2 = launch %0 {kernel = @k} : f32[8,8] @0x300\n  [compute] return %2\n}\n"
                       "kernel @k(%x: f32[8,8]) -> f32[8,8] with {kind = rows, rows = 8, cols = 8} {\n"
                       "  %0 = neg %x : f32[8,8]\n  return %0\n}\n";
    Ctx *cx = hd_ctx_new();
    Module *m = hd_parse_module(cx, text, strlen(text), 0);
    CHECK(m);
    Out before = hd_out(cx->arena), after = hd_out(cx->arena), copied = hd_out(cx->arena);
    hd_print_module(m, &before);
    const size_t bytes = hd_arena_bytes(cx->arena);
    Ctx *inner = hd_ctx_within(cx), *innermost = hd_ctx_within(inner);
    Module *c = hd_module_clone(inner, m), *d = hd_module_clone(innermost, c);
    hd_print_module(d, &copied);
    CHECK_TEXT(copied.text, before.text);
    CHECK(hd_intern(innermost, "compute") == hd_intern(cx, "compute"));
    CHECK(hd_type(innermost, TY_F32, 2, (int64_t[]){8, 8}) == hd_type(cx, TY_F32, 2, (int64_t[]){8, 8}));
    const char *own = hd_intern(inner, "a name of the copy");
    CHECK(hd_intern(innermost, "a name of the copy") == own);
    hd_erase(hd_func_find(c, "f")->first);
    hd_func_remove(c, hd_func_find(c, "k"));
    hd_set_int(inner, &hd_symbol_find(c, "target")->attrs, A_DEVICE_MEMORY_BYTES, 1);
    hd_ctx_free(innermost);
    hd_ctx_free(inner);
    hd_print_module(m, &after);
    CHECK_TEXT(after.text, before.text);
    CHECK(hd_arena_bytes(cx->arena) <= bytes + 16 * 1024);
    hd_ctx_free(cx);
}

// A quotient in f32 is not whole before a cast rounds it: 10 / 3 * 3 is 10.
TEST(ranges_of_whole_numbers) {
    const IndexRange ten = {true, 0, 10}, three = {true, 3, 3}, both = {true, -4, 2}, from_zero = {true, 0, 2};
    const IndexRange parts = hd_computed_range(OP_DIV, (IndexRange[]){ten, three});
    CHECK(parts.known && parts.low == 0 && parts.high == 4);
    const IndexRange back = hd_computed_range(OP_MUL, (IndexRange[]){parts, three});
    CHECK(back.known && back.low <= 0 && back.high >= 10);
    const IndexRange size = hd_computed_range(OP_ABS, &both);
    CHECK(size.known && size.low == 0 && size.high == 4);
    CHECK(!hd_computed_range(OP_DIV, (IndexRange[]){ten, from_zero}).known);
    CHECK(!hd_computed_range(OP_DIV, (IndexRange[]){ten, both}).known);
    CHECK(!hd_computed_range(OP_EXP, &ten).known && !hd_computed_range(OP_ADD, (IndexRange[]){ten, {0}}).known);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
