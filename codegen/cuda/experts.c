// Mixtures of experts: the launches of templates/top_k.cu, dispatch.cu, take.cu, combine.cu, grouped.cu,
// grouped_mma.cu, grouped_wgmma.cu (with wgmma.cu) and of their gradients.
#include "codegen/cuda/cuda.h"
#include "ir/machine/arch.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

static const char *device(Emit *e, const Value *v) { return hd_cuda_device(e, hd_emit_value(e, v)); }
static const char *dtype(const Value *v) { return hd_dtype_text(v->type->dtype); }
static const char *type(const Value *v) { return hd_cuda_type(v->type->dtype); }

// --- choices

static const char *top_k_text(Emit *e, const char *name, bool grad, const Value *x, int64_t k) {
    return hd_cuda_template(e, grad ? "top_k_grad" : "top_k",
                            hd_sprintf(e->a,
                                       "#define %s %s\n#define TK_T %s\n#define TK_ROWS %lld\n#define TK_N "
                                       "%lld\n#define TK_K %lld\n",
                                       grad ? "TK_GRAD" : "TK_KERNEL", name, type(x), ll(hd_type_rows(x->type)),
                                       ll(hd_type_cols(x->type)), ll(k)));
}

static const char *top_k_name(Emit *e, const char *base, const Value *x, int64_t k) {
    return hd_sprintf(e->a, "%s_%s_%lldx%lld_%lld", base, dtype(x), ll(hd_type_rows(x->type)),
                      ll(hd_type_cols(x->type)), ll(k));
}

void hd_cuda_print_top_k(Emit *e, const Op *o) {
    const Value *x = o->in[0];
    const int64_t k = hd_int(&o->attrs, A_K, 0);
    if (!hd_cuda_in_f32(e, o, x)) return;
    const char *name = top_k_name(e, "top_k", x, k), *text = top_k_text(e, name, false, x, k);
    HD_CUDA_LAUNCH(e, o, name, text, hd_ceil_div(hd_type_rows(x->type), 8), 1, 256, 0, device(e, x),
                   device(e, o->out[0]), device(e, o->out[1]));
}

void hd_cuda_print_top_k_grad(Emit *e, const Op *o) {
    const Value *dx = o->out[0];
    const int64_t k = hd_type_cols(o->in[0]->type);
    if (!hd_cuda_in_f32(e, o, dx)) return;
    const char *name = top_k_name(e, "top_k_grad", dx, k), *text = top_k_text(e, name, true, dx, k);
    HD_CUDA_LAUNCH(e, o, name, text, hd_ceil_div(hd_type_count(dx->type), 256), 1, 256, 0, device(e, o->in[0]),
                   device(e, o->in[1]), device(e, dx));
}

void hd_cuda_print_dispatch(Emit *e, const Op *o) {
    enum { FEW = 4096 }; // choices that a block of 256 threads reads as fast
    const int64_t n = hd_type_count(o->in[0]->type), k = hd_type_cols(o->in[0]->type);
    const int64_t experts = hd_int(&o->attrs, A_EXPERTS, 0), capacity = hd_int(&o->attrs, A_CAPACITY, n);
    const int64_t rows = hd_type_count(o->out[0]->type), runs = hd_int(&o->attrs, A_RUNS, 1);
    const unsigned threads = n > FEW ? 1024 : 256;
    const char *base = hd_sprintf(e->a, "dispatch_%lldx%lld_%lld_%lld%s", ll(n / (k ? k : 1)), ll(k), ll(experts),
                                  ll(capacity < n ? capacity : n), runs > 1 ? hd_sprintf(e->a, "_%lld", ll(runs)) : "");
    const char *name[] = {hd_sprintf(e->a, "%s_count", base), hd_sprintf(e->a, "%s_place", base)};
    const char *text = hd_cuda_template(
        e, "dispatch",
        hd_sprintf(e->a,
                   "#define DI_COUNT %s\n#define DI_PLACE %s\n#define DI_N %lld\n#define DI_K %lld\n#define "
                   "DI_EXPERTS %lld\n#define DI_CAPACITY %lld\n#define DI_RUNS %lld\n#define DI_ROWS %lld\n#define "
                   "DI_THREADS %u\n",
                   name[0], name[1], ll(n), ll(k), ll(experts), ll(capacity < n ? capacity : n), ll(runs), ll(rows),
                   threads));
    const char *index = device(e, o->in[0]), *counts = device(e, o->out[2]);
    HD_CUDA_LAUNCH(e, o, name[0], text, experts, 1, threads, 0, index, counts);
    HD_CUDA_LAUNCH(e, o, name[1], text, experts, 1, threads, 0, index, counts, device(e, o->out[0]),
                   device(e, o->out[1]), device(e, o->out[3]));
}

void hd_cuda_print_route(Emit *e, const Op *o) {
    enum { FEW = 4096 };
    const int64_t n = hd_type_rows(o->in[0]->type), k = hd_type_cols(o->in[0]->type),
                  ranks = hd_type_cols(o->out[1]->type), experts = hd_int(&o->attrs, A_EXPERTS, 0),
                  most = hd_int(&o->attrs, A_CAPACITY, n);
    const unsigned threads = n > FEW ? 1024 : 256;
    const char *name = hd_sprintf(e->a, "route_%lldx%lld_%lld_%lld_%lld", ll(n), ll(k), ll(experts), ll(ranks),
                                  ll(most));
    const char *text = hd_cuda_template(
        e, "route",
        hd_sprintf(e->a,
                   "#define RO_KERNEL %s\n#define RO_N %lld\n#define RO_K %lld\n#define RO_OWNED %lld\n#define "
                   "RO_RANKS %lld\n#define RO_CAPACITY %lld\n#define RO_THREADS %u\n",
                   name, ll(n), ll(k), ll(experts / ranks), ll(ranks), ll(most), threads));
    const char *wanted = hd_has(&o->attrs, A_CAPACITY) ? hd_cuda_device(e, hd_emit_bound_wanted(e)) : "0";
    HD_CUDA_LAUNCH(e, o, name, text, ranks, 1, threads, 0, device(e, o->in[0]), hd_emit_own_part(e, o, 1),
                   device(e, o->out[0]), device(e, o->out[1]), device(e, o->out[2]), wanted);
}

// --- rows

static const char *narrow(int vec, int64_t cols) { return vec == 1 && cols % 2 == 0 ? "_narrow" : ""; }

void hd_cuda_print_take(Emit *e, const Op *o) {
    const Value *x = o->in[0];
    if (!hd_cuda_in_f32(e, o, x)) return;
    const int64_t n = hd_type_count(o->in[1]->type), rows = hd_type_rows(x->type), cols = hd_type_cols(x->type);
    const int vec = hd_cuda_vector(o, x->type->dtype, cols);
    const char *name = hd_sprintf(e->a, "take_%s_%lldx%lld_%lld%s", dtype(x), ll(rows), ll(cols), ll(n),
                                  narrow(vec, cols));
    const char *text = hd_cuda_template(
        e, "take",
        hd_sprintf(e->a,
                   "#define TA_KERNEL %s\n#define TA_T %s\n#define TA_ROWS %lld\n#define TA_COLS %lld\n#define TA_N "
                   "%lld\n#define TA_VEC %d\n",
                   name, type(x), ll(rows), ll(cols), ll(n), vec));
    HD_CUDA_LAUNCH(e, o, name, text, hd_ceil_div(n * cols, 256 * vec), 1, 256, 0, device(e, x), device(e, o->in[1]),
                   device(e, o->out[0]));
}

typedef struct { int64_t rows, tokens, k, cols; int vec; } Combined;

static Combined combined(const Op *o, const Value *y, const Value *slots) {
    Combined c = {hd_type_rows(y->type), hd_type_rows(slots->type), hd_type_cols(slots->type), hd_type_cols(y->type),
                  .vec = 1};
    c.vec = hd_cuda_vector(o, y->type->dtype, c.cols);
    return c;
}

static const char *combine_name(Emit *e, const char *base, const Value *y, const Combined *c) {
    return hd_sprintf(e->a, "%s_%s_%lldx%lld_%lldx%lld%s", base, dtype(y), ll(c->rows), ll(c->cols), ll(c->tokens),
                      ll(c->k), narrow(c->vec, c->cols));
}

static const char *combine_text(Emit *e, bool grad, const char *name, const Value *y, const Combined *c, bool weighted,
                                bool stepwise) {
    return hd_cuda_template(e, grad ? "combine_grad" : "combine",
                            hd_sprintf(e->a,
                                       "#define %s %s\n#define CO_T %s\n#define CO_ROWS %lld\n#define CO_TOKENS "
                                       "%lld\n#define CO_K %lld\n#define CO_COLS %lld\n#define CO_VEC %d\n#define "
                                       "CO_WEIGHTED %d\n#define CO_STEPWISE %d\n",
                                       grad ? "CO_GRAD" : "CO_KERNEL", name, type(y), ll(c->rows), ll(c->tokens),
                                       ll(c->k), ll(c->cols), c->vec, weighted, stepwise));
}

void hd_cuda_print_combine(Emit *e, const Op *o) {
    const Value *y = o->in[0];
    const bool weighted = o->n_in > 2, stepwise = hd_has(&o->attrs, A_STEPWISE);
    if (!hd_cuda_in_f32(e, o, y)) return;
    const Combined c = combined(o, y, o->in[1]);
    const char *name = combine_name(e, stepwise ? "combine_steps" : weighted ? "combine" : "combine_sum", y, &c);
    const char *text = combine_text(e, false, name, y, &c, weighted, stepwise);
    HD_CUDA_LAUNCH(e, o, name, text, hd_ceil_div(c.tokens * c.cols, 256 * c.vec), 1, 256, 0, device(e, y),
                   device(e, o->in[1]), device(e, o->in[weighted ? 2 : 1]), device(e, o->out[0]));
}

void hd_cuda_print_combine_grad(Emit *e, const Op *o) {
    const Value *y = o->in[1];
    if (!hd_cuda_in_f32(e, o, y)) return;
    const Combined c = combined(o, y, o->in[2]);
    const int64_t choices = c.tokens * c.k;
    const char *name = combine_name(e, "combine_grad", y, &c);
    const char *text = combine_text(e, true, name, y, &c, true, false);
    HD_CUDA_LAUNCH(e, o, name, text, hd_ceil_div(choices > c.rows ? choices : c.rows, 8), 1, 256, 0,
                   device(e, o->in[0]), device(e, y), device(e, o->in[2]), device(e, o->in[3]), device(e, o->in[4]),
                   device(e, o->out[0]), device(e, o->out[1]));
}

// --- products by groups of rows

typedef struct { // of a launch; m and n: columns of the operands, of the result without `grad`
    const char *name;
    int64_t rows, groups, m, n, from; // from: rows of a table, of which an operand's are gathered; 0: none are
    bool tb, grad;
} Grouped;

static const Value *source_of(const Op *o) { // any integers where no rows are gathered
    const int at = hd_operand_of(o, ROLE_SOURCE);
    return o->in[at < 0 ? hd_operand_of(o, ROLE_COUNTS) : at];
}

static void launch_plain(Emit *e, const Op *o, const Grouped *g) {
    enum { TILE = 64 };
    const char *defines = hd_sprintf(
        e->a,
        "#define %s %s\n#define GR_T %s\n#define GR_OUT %s\n#define GR_ROWS %lld\n#define GR_M %lld\n#define GR_N "
        "%lld\n#define GR_GROUPS %lld\n#define GR_TB %d\n#define GR_FROM %lld\n",
        g->grad ? "GR_GRAD" : "GR_KERNEL", g->name, type(o->in[0]), type(o->out[0]), ll(g->rows), ll(g->m), ll(g->n),
        ll(g->groups), g->tb, ll(g->from));
    const int64_t across = hd_ceil_div(g->n, TILE);
    // Tiles of rows: of every group the last may be a part of one, and so may those that are in none.
    const char *text = hd_cuda_template(e, g->grad ? "grouped_grad" : "grouped", defines);
    if (g->grad)
        HD_CUDA_LAUNCH(e, o, g->name, text, hd_ceil_div(g->m, TILE) * across, g->groups, 256, 0, device(e, o->in[0]),
                       device(e, o->in[1]), device(e, o->in[2]), device(e, o->out[0]));
    else
        HD_CUDA_LAUNCH(e, o, g->name, text, g->rows / TILE + g->groups + 1, across, 256, 0, device(e, o->in[0]),
                       device(e, o->in[1]), device(e, o->in[2]), device(e, source_of(o)), device(e, o->out[0]));
}

enum { WIDE = 128 }; // rows of a tile on tensor cores
static int64_t tiles_down(const Grouped *g) {
    return g->grad ? hd_ceil_div(g->m, WIDE) * g->groups : g->rows / WIDE + g->groups + 1;
}

static void launch_mma(Emit *e, const Op *o, const Grouped *g) {
    enum { SHARED = 4 * 2 * 10240 };
    const char *defines = hd_sprintf(
        e->a,
        "#define GM_KERNEL %s\n#define GM_T %s\n#define GM_OUT %s\n#define GM_ROWS %lld\n#define GM_GROUPS %lld\n"
        "#define GM_M %lld\n#define GM_N %lld\n#define GM_TB %d\n#define GM_GRAD %d\n#define GM_FROM %lld\n",
        g->name, type(o->in[0]), type(o->out[0]), ll(g->rows), ll(g->groups), ll(g->m), ll(g->n), g->tb, g->grad,
        ll(g->from));
    HD_CUDA_LAUNCH(e, o, g->name, hd_cuda_template(e, "mma grouped_mma", defines),
                   tiles_down(g) * hd_ceil_div(g->n, WIDE), 1, 256, SHARED, device(e, o->in[0]), device(e, o->in[1]),
                   device(e, o->in[2]), device(e, source_of(o)), device(e, o->out[0]));
}

static void launch_wgmma(Emit *e, const Op *o, const Grouped *g) {
    enum { BOX = 8192, STAGES = 4, LEAVING = 4 };
    // columns of a tile: as few outside of the result as there can be
    const int64_t cols = hd_ceil_div(g->n, 128) % 2 && g->n < 1024 ? 128 : 256;
    const int64_t shared = STAGES * ((WIDE + cols) / 64 * BOX + 16) + LEAVING * BOX + 1024;
    const int64_t most = hd_target_arch(e->m).processors / 2, items = tiles_down(g) * hd_ceil_div(g->n, cols);
    const char *defines = hd_sprintf(
        e->a,
        "#define GW_KERNEL %s\n#define GW_T %s\n#define GW_OUT %s\n#define GW_ROWS %lld\n#define GW_GROUPS %lld\n"
        "#define GW_M %lld\n#define GW_N %lld\n#define GW_TB %d\n#define GW_GRAD %d\n#define GW_COLS %lld\n"
        "#define GW_SHARED %lld\n#define GW_FROM %lld\n",
        g->name, type(o->in[0]), type(o->out[0]), ll(g->rows), ll(g->groups), ll(g->m), ll(g->n), g->tb, g->grad,
        ll(cols), ll(shared), ll(g->from));
    const char *text = hd_cuda_template(e, "wgmma grouped_wgmma", defines);
    const int kernel = hd_cuda_kernel(e, g->name, text, (int)shared, false);
    const int64_t of[3][3] = {{g->m, g->from ? g->from : g->rows, 1},
                              {g->tb ? g->m : g->n, g->grad ? g->rows : g->tb ? g->n : g->m, g->grad ? 1 : g->groups},
                              {g->n, g->grad ? g->m : g->rows, g->grad ? g->groups : 1}};
    const char *matrices = "";
    for (int i = 0; i < 3; i++)
        matrices = hd_sprintf(e->a, "%s(HdMatrices){%lld, %lld, %lld}, ", matrices, ll(of[i][0]), ll(of[i][1]),
                              ll(of[i][2]));
    hd_emit_line(e, o,
                 "hd_cuda_grouped(x, %d, %d, (HdGrid){%lld, 1, 1, 384, %lld, {2, 1, 1}}, %s, %s, %s%s, %s, %s, %s, "
                 "%s);",
                 hd_emit_stream(e, o), kernel, ll(2 * (items < most ? items : most)), ll(shared),
                 hd_emit_dtype(o->in[0]->type->dtype), hd_emit_dtype(o->out[0]->type->dtype), matrices,
                 device(e, o->in[0]), device(e, o->in[1]), device(e, o->in[2]), device(e, o->out[0]),
                 g->from ? device(e, source_of(o)) : "0");
}

// The kernels of products by groups, the best first; the first one that suits is launched.
typedef struct {
    int arch;   // the only one that has it; 0: all have
    bool cores; // for operands of 16 bits, whose rows begin and end at 16 bytes
    void (*launch)(Emit *e, const Op *o, const Grouped *g);
} GroupedKernel;
static const GroupedKernel grouped_kernels[] = {
    {90, true, launch_wgmma}, {0, true, launch_mma}, {0, false, launch_plain}};

static void launch_grouped(Emit *e, const Op *o, const Grouped *g) {
    const bool cores = hd_dtype_is_half(o->in[0]->type->dtype) && g->m % 8 == 0 && g->n % 8 == 0 &&
                       !hd_has(&o->attrs, A_ALIGN) && tiles_down(g) <= INT32_MAX / hd_ceil_div(g->n, WIDE);
    const GroupedKernel *k = grouped_kernels;
    while ((k->arch && k->arch != hd_target_arch(e->m).arch) || (k->cores && !cores)) k++;
    k->launch(e, o, g);
}

void hd_cuda_print_grouped(Emit *e, const Op *o) {
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    const Product p = hd_product(o);
    const int64_t groups = hd_type_count(o->in[2]->type);
    const int64_t from = hd_has(&o->attrs, A_GATHERED) ? hd_type_rows(o->in[0]->type) : 0;
    const char *name = hd_sprintf(e->a, "grouped%s_%s_%lldx%lldx%lld_%lld%s%s", p.tb ? "_t" : "", dtype(o->in[0]),
                                  ll(p.m), ll(p.n), ll(p.k), ll(groups),
                                  from ? hd_sprintf(e->a, "_of_%lld", ll(from)) : "",
                                  hd_has(&o->attrs, A_ALIGN) ? "_narrow" : "");
    launch_grouped(e, o, &(Grouped){name, p.m, groups, p.k, p.n, from, p.tb, false});
}

void hd_cuda_print_grouped_grad(Emit *e, const Op *o) {
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    const Product p = hd_product(o);
    const int64_t groups = hd_type_count(o->in[2]->type);
    const char *name = hd_sprintf(e->a, "grouped_grad_%s_%s_%lldx%lldx%lld_%lld%s", dtype(o->in[0]), dtype(o->out[0]),
                                  ll(p.k), ll(p.m), ll(p.n), ll(groups), hd_has(&o->attrs, A_ALIGN) ? "_narrow" : "");
    launch_grouped(e, o, &(Grouped){name, p.k, groups, p.m, p.n, 0, false, true});
}
