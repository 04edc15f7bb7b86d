// What the pass `fp8` makes of products and their gradients, against the products in f64: with a weight in one form for
// both passes, in one for each, and in the chunks of a loss. A result is as far off as factors of e4m3 are. In mutants
// of the module an op reads no scale, or that of other rows, of another block or of another factor: they are further
// off. And what the pass `fp8-counts` counts, beside what the type makes of each element.
#include "ir/eval/eval.h"
#include "ir/shapes.h"
#include "passes/manager/manager.h"
#include "tests/unit/check.h"
#include "tests/unit/module.h"
#include <math.h>

enum { MOST = 10 }; // results
// A factor of e4m3 is off by 2^-4 at most and by some 0.026 in the root mean square. A product has two, and in a
// gradient of a weight one of them is rounded twice: 0.026 sqrt(3).
static const double most = 0.05;

typedef struct { Ctx *cx; Arena *a; Module *m; Func *f; } Program;
typedef struct { const char *file, *pipeline; bool once; } Case;

static Program program(const Case *c, bool passes) {
    Program p = {.cx = hd_ctx_new(), .a = hd_arena_new()};
    p.m = test_module(p.cx, c->file);
    p.f = hd_func_find(p.m, "micro");
    Pipeline pipeline = {0};
    const ManagerOptions options = hd_manager_defaults();
    if (!c->once) hd_unset(&hd_symbol_find(p.m, "train")->attrs, A_FP8_WEIGHTS);
    if (passes) CHECK(hd_pipeline_parse(p.cx, c->pipeline, &pipeline) && hd_manager_run(p.m, &pipeline, &options));
    return p;
}

static void end(Program *p) {
    hd_arena_free(p->a);
    hd_ctx_free(p->cx);
}

// Rows of very different sizes, and columns of others; of an argument s all are small, so that logits are.
static void fill(Tensor t, int argument, bool small) {
    const int64_t n = hd_type_cols(t.type);
    for (int64_t i = 0, count = hd_type_count(t.type); i < count; i++) {
        const double row = exp(0.9 * sin(1.7 * (double)(i / n) + argument)) / (small ? 32 : 1);
        const int64_t block = i / n / HD_BLOCK * 2 + i % n / HD_BLOCK * 3;
        const double of_block = n < HD_BLOCK ? 0 : sin(0.7 * (double)block + argument);
        const double column = exp(0.4 * cos(0.9 * (double)(i % n)) + of_block);
        uint64_t noise = ((uint64_t)i * 8 + (uint64_t)argument + 1) * 0x9e3779b97f4a7c15u;
        noise = (noise ^ noise >> 30) * 0xbf58476d1ce4e5b9u;
        t.data[i] = t.type->dtype == TY_I32 ? (double)(noise >> 32 & 15)
                                            : hd_round(TY_BF16, row * column * ((double)(noise >> 32) * 0x1p-31 - 1));
    }
}

static void run(const Program *p, EvalMode mode, Tensor *out) {
    Tensor in[8];
    for (int i = 0; i < p->f->n_args; i++) {
        in[i] = hd_tensor(p->a, p->f->args[i]->type);
        fill(in[i], i, p->f->args[i]->name[0] == 's');
    }
    const char *wrong = hd_eval(hd_eval_new(p->m, mode, p->a), p->f, in, out);
    CHECK_TEXT(wrong ? wrong : "", "");
}

// The largest error of a result, in the root mean square, as a share of it.
static double error(const Func *f, const Tensor *got, const Tensor *want) {
    double largest = 0;
    for (int k = 0; k < hd_return(f)->n_in; k++) {
        double off = 0, all = 0;
        for (int64_t i = 0; i < hd_type_count(want[k].type); i++) {
            off += (got[k].data[i] - want[k].data[i]) * (got[k].data[i] - want[k].data[i]);
            all += want[k].data[i] * want[k].data[i];
        }
        largest = fmax(largest, sqrt(off / all));
    }
    return largest;
}

static double error_of(const Program *p, const Tensor *want) {
    Tensor got[MOST];
    run(p, EVAL_ROUNDED, got);
    return error(p->f, got, want);
}

static bool is_scale(const Value *v) {
    const Op *o = v->def;
    if (o && o->kind == OP_QUANTIZE_BOTH) return v == o->out[1] || v == o->out[3];
    if (!o || o->kind == OP_QUANTIZE || o->kind == OP_QUANTIZE_BLOCKS) return o && v == o->out[1];
    bool scale = false;
    const bool moves = hd_op_is(o, TRAIT_MOVES) || o->kind == OP_RESHAPE || o->kind == OP_DIV;
    for (int i = 0; i < o->n_in && moves; i++) scale |= is_scale(o->in[i]);
    return scale;
}

// Of the scales of blocks: those of the block before, along axis `axis`, of which there are n.
static Value *other_blocks(Builder *b, Value *v, int axis, int64_t n) {
    Ctx *cx = b->f->module->cx;
    const int64_t from[] = {n - 1, 0, n}, size[] = {1, n - 1, v->type->dim[axis] - n};
    Value *parts[3];
    int n_parts = 0;
    Attrs along = {0};
    hd_set_int(cx, &along, A_AXIS, axis);
    for (int i = 0; i < 3; i++) {
        Attrs as = hd_attrs_copy(cx, &along);
        hd_set_int(cx, &as, A_START, from[i]);
        hd_set_int(cx, &as, A_SIZE, size[i]);
        if (size[i]) parts[n_parts++] = hd_build1(b, OP_SLICE, v, NULL, &as, NULL);
    }
    return hd_build(b, OP_CONCAT, n_parts, parts, &along, NULL)->out[0];
}

// Of a product with blocks: its scales of other blocks of what it adds over, and of other squares.
static int blocks_of(Builder *b, const Op *o, int i, Value **others) {
    if (!hd_has(&o->attrs, A_BLOCKS)) return 0;
    const bool squares = i == hd_operand_of(o, ROLE_SCALE_B) && hd_scales_of_squares(o);
    const int64_t blocks = hd_product(o).k / HD_BLOCK, squares_down = hd_product(o).n / HD_BLOCK;
    int n = 0;
    if (blocks > 1) others[n++] = other_blocks(b, o->in[i], squares, blocks);
    if (squares && squares_down > 1) others[n++] = other_blocks(b, o->in[i], 0, squares_down);
    return n;
}

// An op reads something else as operand i: ones, or another scale of as many rows, or other rows.
static int mutants_of(Program *p, Op *o, int i, const Tensor *want, int *missed) {
    Value *was = o->in[i];
    Builder b = hd_builder_before(o);
    Attrs one = {0};
    hd_set_float(p->cx, &one, A_VALUE, 1);
    Value *others[64] = {hd_build1(&b, OP_CONST, NULL, NULL, &one, was->type)};
    int n = 1 + blocks_of(&b, o, i, others + 1);
    for (Op *maker = p->f->first; maker != o; maker = maker->next)
        for (int k = 0; k < maker->n_out; k++)
            if (maker->out[k] != was && maker->out[k]->type == was->type && is_scale(maker->out[k]) && n < 64)
                others[n++] = maker->out[k];
    for (int k = 0; k < n; k++) {
        o->in[i] = others[k];
        const double e = error_of(p, want);
        if (e > most) continue;
        ++*missed;
        fprintf(stderr, "operand %d of %%%d = %s: as good with another one (%g)\n", i, o->n_out ? o->out[0]->id : -1,
                hd_op_info(o->kind)->mnemonic, e);
    }
    o->in[i] = was;
    return n;
}

static int mutants(Case c) {
    Program p = program(&c, true), exact = program(&c, false);
    Tensor want[MOST];
    int n = 0, missed = 0;
    run(&exact, EVAL_EXACT, want);
    const double e = error_of(&p, want);
    printf("%s, %s: off by %.4f\n", c.file, c.once ? "once" : "each", e);
    CHECK(e < most && e > most / 4);
    for (Op *o = p.f->first; o; o = o->next)
        for (int i = 0; i < o->n_in && o->kind != OP_RETURN; i++)
            if (is_scale(o->in[i])) n += mutants_of(&p, o, i, want, &missed);
    CHECK_INT(missed, 0);
    printf("%d mutants, %d missed\n", n, missed);
    end(&exact);
    end(&p);
    return n;
}

static const char passes[] = "fp8,simplify,cse,dce", chunks[] = "fp8,loss-chunks,fp8-heads,cse,dce";

TEST(one_form) { CHECK(mutants((Case){"fp8.hir", passes, true}) > 60); }
TEST(a_form_for_each) { CHECK(mutants((Case){"fp8.hir", passes, false}) > 35); }
TEST(chunks_in_one_form) { CHECK(mutants((Case){"fp8_head.hir", chunks, true}) > 30); }
TEST(chunks_in_a_form_for_each) { CHECK(mutants((Case){"fp8_head.hir", chunks, false}) > 30); }

TEST(blocks) { CHECK(mutants((Case){"fp8_block.hir", passes, false}) > 40); }

// --- counts

// What the type makes of y where it has larger numbers: 2^-9 y is not near its ends.
static bool is_clamped(DType d, double y) {
    return isfinite(y) && fabs(y) > 1 && fabs(hd_round(d, y * 0x1p-9)) * 0x1p9 > hd_dtype_info(d)->largest;
}

// Numbers about the ends of both types, ties among them, zeros and numbers that are none.
static void fill_ends(Tensor x, Tensor s) {
    static const double ends[] = {448,     464,     0x1.d00002p8, 480,     -1e30,    57344,     61440,  61439, -70000,
                                  0x1p-9,  0x1p-10, 0x1.8p-10,    0x1p-11, -0x1p-10, 0x1p-16,   0x1p-17, -0x1p-18,
                                  0,       -0.0,    1,            -3,      0x1p-140, 0x1.000002p-17,
                                  INFINITY, NAN,    -INFINITY};
    enum { N = sizeof ends / sizeof *ends };
    for (int r = 0; r < 16; r++) s.data[r] = ldexp(1, r % 5 - 2);
    for (int i = 0; i < 16 * 32; i++) {
        const double scaled = ends[(i * 7 + i / 32) % (i / 32 < 8 ? N - 3 : N)]; // in half of the rows all are finite
        x.data[i] = isfinite(scaled) ? hd_round(TY_F32, scaled / s.data[i / 32]) : scaled;
    }
}

TEST(counts) {
    const Case c = {"fp8_counts.hir", "fp8-counts", true};
    Program p = program(&c, true);
    Tensor in[2] = {hd_tensor(p.a, p.f->args[0]->type), hd_tensor(p.a, p.f->args[1]->type)}, out[2];
    double want[4][HD_COUNTS] = {{0}};
    const Op *ret = hd_return(p.f);
    const Attr *names = hd_attr(&ret->attrs, A_COUNTED);
    fill_ends(in[0], in[1]);
    for (int r = 0; r < 16; r++) {
        double most_of_row = 0x1p-100;
        for (int i = 0; i < 32; i++) {
            const double x = fabs(in[0].data[32 * r + i]);
            if (!(x <= most_of_row)) most_of_row = isnan(most_of_row) ? most_of_row : x;
        }
        const double scale = hd_round(TY_F32, most_of_row / 448), inverse = hd_round(TY_F32, 1 / scale);
        for (int i = 0; i < 32; i++)
            for (int k = 0; k < 4; k++) {
                const double x = in[0].data[32 * r + i], y = hd_round(TY_F32, x * (k < 2 ? in[1].data[r] : inverse));
                const DType d = k == 1 ? TY_E5M2 : TY_E4M3;
                want[k][0] += x != 0 && hd_round(d, y) == 0;
                want[k][1] += is_clamped(d, y);
                want[k][2] += !isfinite(x);
            }
    }
    CHECK_INT(names ? names->n : 0, 4);
    CHECK_TEXT(names->strs[0], "a.input");
    CHECK_TEXT(names->strs[1], "b.input");
    CHECK_TEXT(names->strs[2], "c.input");
    CHECK_TEXT(names->strs[3], "d.input");
    const char *wrong = hd_eval(hd_eval_new(p.m, EVAL_ROUNDED, p.a), p.f, in, out);
    CHECK_TEXT(wrong ? wrong : "", "");
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < HD_COUNTS; i++) CHECK_INT((int)out[1].data[HD_COUNTS * k + i], (int)want[k][i]);
    CHECK(want[0][0] > 20 && want[0][1] > 20 && want[0][2] > 10 && want[1][1] > 5 && want[2][1] == 0);
    end(&p);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
