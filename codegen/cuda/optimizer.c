// The parameter update: gradient norm, scalars of the step, the optimizer; and the keys of dropout. Sizes are
// kernel arguments, so that one kernel serves all buckets. Buffers start at multiples of HD_ALIGN bytes, so 16 at a
// time is always right.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/bins.h"
#include "ir/optimizer.h"
#include "ir/rounding.h"
#include <string.h>

static const char *number(Emit *e, double v, bool f64) {
    Out o = hd_out(e->a);
    hd_puts(&o, "(");
    hd_put_float(&o, f64 ? v : (double)(float)v);
    hd_puts(&o, f64 ? ")" : "f)");
    return o.text;
}

static const char *scale_text(Emit *e, const Op *o) {
    return number(e, (double)hd_int(&o->attrs, A_LOSS_SCALE, 1), true);
}

typedef struct { const char *blocks, *total, *text; } NormKernels;

static NormKernels norm_kernels(Emit *e, const Op *o) {
    const char *numbers =
        hd_sprintf(e->a, "#define GN_VEC 4\n#define GN_BLOCK %d\n#define GN_SCALE %s\n", HD_NORM_BLOCK,
                   scale_text(e, o));
    NormKernels k = {hd_cuda_name(e, "grad_norm_blocks", numbers), hd_cuda_name(e, "grad_norm_total", numbers), NULL};
    k.text = hd_cuda_template(
        e, "grad_norm",
        hd_sprintf(e->a, "#define GN_BLOCKS %s\n#define GN_TOTAL %s\n%s", k.blocks, k.total, numbers));
    return k;
}

// The sum of squares of every block of the op's buffers, as f64 from `sums` on. Returns how many there are; launches
// nothing when `sums` is below 0.
static int64_t put_block_sums(Emit *e, const Op *o, int64_t sums) {
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    const NormKernels k = norm_kernels(e, o);
    int64_t done = 0;
    for (int i = 0; i < list->n; i++) {
        const Symbol *s = hd_symbol_find(e->m, list->strs[i]);
        int64_t at = hd_emit_buffer(e, o, list->strs[i], 0), n = hd_type_count(s->type),
                blocks = hd_ceil_div(n, HD_NORM_BLOCK);
        if (blocks && sums >= 0)
            HD_CUDA_LAUNCH(e, o, k.blocks, k.text, blocks, 1, 256, 0, hd_cuda_device(e, at),
                           hd_sprintf(e->a, "%lld", ll(n)), hd_cuda_device(e, sums + 8 * done));
        done += blocks;
    }
    return done;
}

static void put_root(Emit *e, const Op *o, int64_t sums, int64_t n, const Value *norm) {
    const NormKernels k = norm_kernels(e, o);
    HD_CUDA_LAUNCH(e, o, k.total, k.text, 1, 1, 1024, 0, hd_cuda_device(e, sums),
                   hd_sprintf(e->a, "%lld", ll(n)), hd_cuda_device(e, hd_emit_value(e, norm)));
}

void hd_cuda_print_grad_norm(Emit *e, const Op *o) {
    int64_t space = hd_emit_workspace(e, o), n = put_block_sums(e, o, space);
    put_root(e, o, space < 0 ? 0 : space, n, o->out[0]);
}

typedef struct { const char *add, *root, *text; } ExactKernels;

static ExactKernels exact_kernels(Emit *e, const Op *o) {
    const char *numbers = hd_sprintf(e->a, "#define EN_BINS %d\n#define EN_BITS %d\n#define EN_LEAST (%d)\n"
                                           "#define EN_SCALE %s\n", HD_BINS, HD_BIN_BITS, HD_BIN_LEAST,
                                     scale_text(e, o));
    ExactKernels k = {hd_cuda_name(e, "exact_norm_add", numbers), hd_cuda_name(e, "exact_norm_root", numbers), NULL};
    k.text = hd_cuda_template(e, "exact_norm", hd_sprintf(e->a, "#define EN_ADD %s\n#define EN_ROOT %s\n%s", k.add,
                                                          k.root, numbers));
    return k;
}

// Blocks that are at work at once on any device; each takes a part of the runs.
enum { EXACT_BLOCKS = 1024, EXACT_ELEMENTS = 1024 };

static void put_exact_sums(Emit *e, const Op *o, int64_t bins) {
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    const ExactKernels k = exact_kernels(e, o);
    hd_emit_line(e, o, "hd_cuda_zero(x, %d, %s, %d);", hd_emit_stream(e, o), hd_cuda_device(e, bins), HD_BINS * 8);
    for (int i = 0; i < list->n; i++) {
        const int64_t n = hd_type_count(hd_symbol_find(e->m, list->strs[i])->type);
        const int64_t blocks = hd_ceil_div(n, EXACT_ELEMENTS);
        if (n)
            HD_CUDA_LAUNCH(e, o, k.add, k.text, blocks < EXACT_BLOCKS ? blocks : EXACT_BLOCKS, 1, 256, 0,
                           hd_cuda_device(e, hd_emit_buffer(e, o, list->strs[i], 0)), hd_sprintf(e->a, "%lld", ll(n)),
                           hd_cuda_device(e, bins));
    }
}

void hd_cuda_print_square_sums(Emit *e, const Op *o) {
    if (hd_has(&o->attrs, A_EXACT)) put_exact_sums(e, o, hd_emit_value(e, o->out[0]));
    else put_block_sums(e, o, hd_emit_value(e, o->out[0]));
}

void hd_cuda_print_root_sum(Emit *e, const Op *o) {
    if (hd_has(&o->attrs, A_EXACT)) {
        const ExactKernels k = exact_kernels(e, o);
        HD_CUDA_LAUNCH(e, o, k.root, k.text, 1, 1, 32, 0, hd_cuda_device(e, hd_emit_value(e, o->in[0])),
                       hd_sprintf(e->a, "%lld", ll(hd_type_count(o->in[0]->type))),
                       hd_cuda_device(e, hd_emit_value(e, o->out[0])));
        return;
    }
    put_root(e, o, hd_emit_value(e, o->in[0]), hd_type_count(o->in[0]->type), o->out[0]);
}

static int word_of(const char *word, const char *words) { // its place among them; 0: it is none of them
    const size_t n = strlen(word);
    for (int i = 0; *words; i++, words += strcspn(words, " "), words += *words == ' ')
        if (n == strcspn(words, " ") && !strncmp(word, words, n)) return i;
    return 0;
}

void hd_cuda_print_step_scalars(Emit *e, const Op *o) {
    const Attrs *as = &o->attrs;
    const Attr *points = hd_attr(as, A_LR_STEPS);
    const char *numbers = hd_sprintf(
        e->a,
        "#define SS_KIND %d\n#define SS_PEAK %s\n#define SS_FLOOR %s\n#define SS_WARMUP %s\n#define SS_TOTAL %s\n"
        "#define SS_CLIP %s\n#define SS_SCALE %s\n#define SS_BETA1 %s\n#define SS_BETA2 %s\n",
        word_of(hd_word(as, A_LR, ""), "constant linear cosine wsd inverse_sqrt points"),
        number(e, hd_float(as, A_LR_PEAK, 0), true), number(e, hd_float(as, A_LR_FLOOR, 0), true),
        number(e, (double)hd_int(as, A_LR_WARMUP, 0), true), number(e, (double)hd_int(as, A_LR_TOTAL, 0), true),
        number(e, hd_float(as, A_CLIP, 0), true), scale_text(e, o), number(e, hd_emit_beta(o, 0), true),
        number(e, hd_emit_beta(o, 1), true));
    numbers = hd_sprintf(e->a, "%s#define SS_NORM %d\n", numbers, o->n_in > 0);
    if (hd_has(as, A_ON_NAN)) numbers = hd_sprintf(e->a, "%s#define SS_SKIPS 1\n", numbers);
    if (hd_has(as, A_HISTORY))
        numbers = hd_sprintf(e->a, "%s#define SS_HISTORY %d\n#define SS_LOSS_Z %s\n#define SS_NORM_Z %s\n", numbers,
                             HD_HISTORY_STEPS, number(e, hd_float(as, A_SKIP_LOSS_Z, 0), true),
                             number(e, hd_float(as, A_SKIP_NORM_Z, 0), true));
    if (hd_has(as, A_LR_DECAY))
        numbers = hd_sprintf(e->a, "%s#define SS_DECAY %s\n#define SS_SHAPE %d\n", numbers,
                             number(e, (double)hd_int(as, A_LR_DECAY, 0), true),
                             word_of(hd_word(as, A_LR_SHAPE, ""), "linear cosine sqrt"));
    if (points)
        numbers = hd_sprintf(e->a, "%s#define SS_POINTS %d\n#define SS_STEPS %s\n#define SS_RATES %s\n", numbers,
                             points->n, hd_emit_points(e, as, A_LR_STEPS), hd_emit_points(e, as, A_LR_RATES));
    const char *name = hd_cuda_name(e, "step_scalars", numbers);
    const char *score = hd_has(as, A_HISTORY) ? hd_sprintf(e->a, "#define SS_SCORE %s_score\n", name) : "";
    const char *text = hd_cuda_template(e, "step_scalars", hd_sprintf(e->a, "#define SS_KERNEL %s\n%s%s", name,
                                                                  score, numbers));
    int64_t step = hd_emit_buffer(e, o, hd_word(as, A_COUNTER, ""), 0);
    const char *norm = o->n_in ? hd_cuda_device(e, hd_emit_value(e, o->in[0])) : "0",
               *at = hd_cuda_device(e, step), *out = hd_cuda_device(e, hd_emit_value(e, o->out[0]));
    if (hd_has(as, A_HISTORY))
        HD_CUDA_LAUNCH(e, o, name, text, 1, 1, 1, 0, norm, at, out, hd_cuda_device(e, hd_emit_value(e, o->in[1])),
                       hd_cuda_device(e, hd_emit_buffer(e, o, hd_word(as, A_HISTORY, ""), 0)));
    else HD_CUDA_LAUNCH(e, o, name, text, 1, 1, 1, 0, norm, at, out);
}

void hd_cuda_print_dropout_keys(Emit *e, const Op *o) {
    const int64_t counter = hd_emit_buffer(e, o, hd_word(&o->attrs, A_COUNTER, ""), 0);
    HD_CUDA_LAUNCH(e, o, "dropout_keys", hd_cuda_template(e, "dropout_keys", ""), 1, 1, 128, 0,
                   hd_cuda_device(e, counter), hd_cuda_device(e, hd_emit_result(e, o, 0)),
                   hd_sprintf(e->a, "%lld", ll(hd_int(&o->attrs, A_SITES, 0))),
                   hd_sprintf(e->a, "%lld", ll(hd_int(&o->attrs, A_STRIDE, 0))),
                   hd_has(&o->attrs, A_OVER) ? hd_emit_own_part(e, o, 1) : "0");
}

static const char *rate_text(Emit *e, double scale) { // no compiler leaves out a rounded product by 1
    return scale == 1 ? "lr" : hd_sprintf(e->a, "__fmul_rn(lr, %s)", number(e, scale, false));
}

// The states of an update: their type, and the formals, names and addresses of kernels that take them.
typedef struct { int n; const char *type, *formals, *list, *at[HD_MAX_STATES]; } States;

static States states_of(Emit *e, const Op *o) {
    States s = {.type = hd_cuda_type(TY_F32)};
    Out formals = hd_out(e->a), list = hd_out(e->a);
    for (const Symbol *x; (x = hd_state(e->m, &o->attrs, s.n)); s.n++) {
        s.at[s.n] = hd_cuda_device(e, hd_emit_buffer(e, o, x->name, 0));
        s.type = hd_cuda_type(x->type->dtype);
        hd_printf(&formals, ", %s *state%d", s.type, s.n);
        hd_printf(&list, "%sstate%d", s.n ? ", " : "", s.n);
    }
    s.formals = s.n ? formals.text : "";
    s.list = s.n ? list.text : "0";
    return s;
}

static const char *decayed_of(Emit *e, const Op *o) {
    return hd_sprintf(e->a, hd_int(&o->attrs, A_RANKS, 1) > 1 ? "(uint64_t)%s" : "%s", hd_emit_decayed(e, o));
}

// A function `NAME_one` of a kernel's arguments.
static const char *function_of(Emit *e, const Func *k, const char *result, const char *name, const char *weights,
                               const char *more, const char *body) {
    return hd_sprintf(e->a, "__device__ __forceinline__ %s %s_one(float %s, float %sweights, float lr, float decay,\n"
                            "                                       float correction1, float correction2, float "
                            "*state%s)"
                            " {\n%s}\n", result, name, k->args[OPT_GRADIENT]->name, weights, more, body);
}

static DType turned_in(const Op *o) {
    DType d = TY_F32;
    hd_dtype_parse(hd_word(&hd_optimizer_turn(hd_update_kernel(o))->attrs, A_OUT, ""), &d);
    return d;
}

// What a kernel orthogonalizes, into the workspace.
static void put_direction(Emit *e, const Op *o, const States *s) {
    const Func *k = hd_update_kernel(o);
    const int64_t n = hd_type_count(hd_named(o, A_MASTER_WEIGHTS)->type);
    const char *arg[6 + HD_MAX_STATES];
    const char *numbers = hd_sprintf(
        e->a, "#define DI_T %s\n#define DI_STATES %d\n#define DI_STATE %s\n#define DI_FORMALS %s\n#define DI_LIST %s\n"
              "#define DI_DECAY %s\n#define DI_RATE(lr) %s\n", hd_cuda_type(turned_in(o)), s->n, s->type, s->formals,
        s->list, number(e, hd_float(&o->attrs, A_WEIGHT_DECAY, 0), false),
        rate_text(e, hd_float(&o->attrs, A_LR_SCALE, 1)));
    const char *body = hd_sprintf(e->a, "    float direction;\n%s    return direction;\n",
                                  hd_emit_direction(e, k, "    ", "state[", "]"));
    const char *name = hd_cuda_name(e, hd_sprintf(e->a, "%s_direction", hd_emit_identifier(e, k)),
                                    hd_sprintf(e->a, "%s%s", numbers, body));
    const char *text = hd_sprintf(
        e->a, "%s%s", function_of(e, k, "float", name, "", "", body),
        hd_cuda_template(e, "direction", hd_sprintf(e->a, "#define DI_KERNEL %s\n#define DI_ONE %s_one\n%s", name, name,
                                                   numbers)));
    arg[0] = hd_cuda_device(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_GRADIENT, ""), 0));
    arg[1] = hd_cuda_device(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_MASTER_WEIGHTS, ""), 0));
    arg[2] = hd_cuda_device(e, hd_emit_workspace(e, o));
    arg[3] = hd_cuda_device(e, hd_emit_value(e, o->in[0]));
    arg[4] = hd_sprintf(e->a, "%lld", ll(n));
    arg[5] = decayed_of(e, o);
    for (int i = 0; i < s->n; i++) arg[6 + i] = s->at[i];
    hd_cuda_launch_kernel(e, o, name, text, hd_ceil_div(n, 1024), 1, 256, 0, 6 + s->n, arg);
}

static const char *put_symmetric(Emit *e, const Op *o, bool deep, bool adds) {
    enum { STAGES = 3, BOX = 8192, SHARED = STAGES * (4 * BOX + 16) + 1024 };
    const DType type = turned_in(o);
    const char *name = hd_sprintf(e->a, "symmetric_%s%s", hd_dtype_text(type), adds ? "_adds" : deep ? "_deep" : "");
    const char *defines = hd_sprintf(
        e->a, "#define SY_KERNEL %s\n#define SY_T %s\n#define SY_DEEP %d\n#define SY_ADDS %d\n"
              "#define SY_ALPHA %s\n#define SY_BETA %s\n#define SY_SHARED %d\n", name, hd_cuda_type(type), deep, adds,
        number(e, adds ? HD_TURN_C : 1, false), number(e, adds ? HD_TURN_B : 0, false), SHARED);
    const int kernel = hd_cuda_kernel(e, name, hd_cuda_template(e, "wgmma symmetric", defines), SHARED, false);
    return hd_sprintf(e->a, "{%d, %d}", kernel, SHARED);
}

static void put_turn(Emit *e, const Op *o) {
    const char *type = hd_cuda_type(turned_in(o));
    const char *numbers = hd_sprintf(e->a, "#define TU_T %s\n#define TU_LEAST %s\n", type,
                                     number(e, HD_TURN_LEAST, false));
    const char *squares = hd_cuda_name(e, "turn_squares", numbers), *scale = hd_cuda_name(e, "turn_scale", numbers);
    const char *text = hd_cuda_template(
        e, "turn", hd_sprintf(e->a, "#define TU_SQUARES %s\n#define TU_SCALE %s\n%s", squares, scale, numbers));
    const int first = hd_cuda_kernel(e, squares, text, 0, false), second = hd_cuda_kernel(e, scale, text, 0, false);
    const char *kernels = hd_sprintf(e->a, ", .squares = %d, .scale = %d", first, second);
    hd_emit_line(e, o, "hd_cuda_orthogonalize(x, %d, %s, %s);", hd_emit_stream(e, o),
                 hd_emit_turn(e, o, put_symmetric, kernels), hd_cuda_device(e, hd_emit_workspace(e, o)));
}

// Weights in bf16: more defines of the template, of a kernel of that name, and the arguments behind `decayed`.
static const char *rounding_of(Emit *e, const char *name) {
    return hd_sprintf(e->a, "#define UP_PARAMS %s_params\n#define UP_ROUNDING %s_rounding\n#define UP_KEY 0x%xu\n"
                            "#define UP_TABLE %s\n", name, name, HD_ROUNDING_KEY, hd_emit_rounded(e));
}

static int rounding_arguments(Emit *e, const Op *o, const char **arg) {
    const EmitRounding r = hd_emit_rounding(e, o);
    arg[0] = hd_cuda_device(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_ROUNDING, ""), 0));
    arg[1] = hd_sprintf(e->a, "(uint64_t)(%s)", r.before), arg[2] = hd_sprintf(e->a, "(uint64_t)%s", r.place);
    arg[3] = hd_sprintf(e->a, "%d", r.first), arg[4] = hd_sprintf(e->a, "%d", r.n);
    return 5;
}

// A template around the kernel's ops; the states are its last arguments.
void hd_cuda_print_update(Emit *e, const Op *o) {
    const Func *k = hd_update_kernel(o);
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS), *weights = hd_named(o, A_WEIGHTS);
    const DType compute = weights ? weights->type->dtype : TY_F32;
    const int64_t n = hd_type_count(master->type);
    const States s = states_of(e, o);
    const bool turns = hd_optimizer_turn(k) != NULL, rounds = hd_has(&o->attrs, A_ROUNDING);
    const char *arg[12 + HD_MAX_STATES], *name = hd_sprintf(e->a, "%s_%s%s", hd_emit_identifier(e, k),
                                                            hd_dtype_text(weights ? compute : master->type->dtype),
                                                            weights ? "" : "_master");
    if (!n) return;
    if (hd_has_lines(k)) {
        hd_cuda_put_lines(e, o, s.n, s.at);
        return;
    }
    if (turns) put_direction(e, o, &s), put_turn(e, o);
    const char *turned = turns    ? hd_sprintf(e->a, ", const %s *turned", hd_cuda_type(turned_in(o)))
                         : rounds ? ", const int *seed, i64 before, i64 place, int param, int params"
                                  : "";
    const char *numbers = hd_sprintf(e->a,
                                     "#define UP_MASTER %s\n#define UP_T %s\n#define UP_COMPUTE %d\n"
                                     "#define UP_VEC 4\n#define UP_STATES %d\n#define UP_STATE %s\n"
                                     "#define UP_FORMALS %s%s\n#define UP_LIST %s\n#define UP_DECAY %s\n"
                                     "#define UP_RATE(lr) %s\n#define UP_GIVEN(gradient) %s\n#define UP_TURN(i) %s\n",
                                     hd_cuda_type(master->type->dtype), hd_cuda_type(compute), weights != NULL, s.n,
                                     s.type, turned, s.formals, s.list,
                                     number(e, hd_float(&o->attrs, A_WEIGHT_DECAY, 0), false),
                                     rate_text(e, hd_float(&o->attrs, A_LR_SCALE, 1)),
                                     hd_is_rule(k) ? "(factor != factor ? factor : (gradient))"
                                                   : "__fmul_rn(gradient, factor)",
                                     turns ? ", widen(turned[i])" : "");
    const char *body = hd_emit_update(e, k, "    ", "state[", "]");
    name = hd_cuda_name(e, name, hd_sprintf(e->a, "%s%s", numbers, body));
    if (rounds) numbers = hd_sprintf(e->a, "%s%s", numbers, rounding_of(e, name));
    const char *text = hd_sprintf(
        e->a, "%s%s", function_of(e, k, "void", name, "&", turns ? ", float turned" : "", body),
        hd_cuda_template(e, "update",
                         hd_sprintf(e->a, "#define UP_KERNEL %s\n#define UP_ONE %s_one\n%s", name, name, numbers)));
    int args = 0;
    arg[args++] = hd_cuda_device(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_GRADIENT, ""), 0));
    arg[args++] = hd_cuda_device(e, hd_emit_buffer(e, o, master->name, 0));
    arg[args++] = weights ? hd_cuda_device(e, hd_emit_buffer(e, o, weights->name, 0)) : arg[1];
    arg[args++] = hd_cuda_device(e, hd_emit_value(e, o->in[0]));
    arg[args++] = hd_sprintf(e->a, "%lld", ll(n));
    arg[args++] = decayed_of(e, o);
    if (turns) arg[args++] = hd_cuda_device(e, hd_emit_workspace(e, o));
    if (rounds) args += rounding_arguments(e, o, arg + args);
    for (int i = 0; i < s.n; i++) arg[args++] = s.at[i];
    hd_cuda_launch_kernel(e, o, name, text, hd_ceil_div(n, 1024), 1, 256, 0, args, arg);
}
