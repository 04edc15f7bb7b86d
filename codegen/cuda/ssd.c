// State-space duality: the launches of templates/ssd.cu, or of templates/ssd_mma.cu with ssd_mma_forward.cu or
// ssd_mma_grad.cu.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/machine/workspace.h"
#include "ir/ssd.h"

enum { KERNELS = 15 };
static const struct { const char *define, *name; bool forward, backward; } kernels[KERNELS] = {
    {"SD_CLOCK", "clock", true, true},       {"SD_SCORES", "scores", true, true},
    {"SD_STATES", "states", true, true},     {"SD_PASS", "pass", true, true},
    {"SD_Y", "y", true, false},              {"SD_DSTATES", "dstates", false, true},
    {"SD_DPASS", "dpass", false, true},      {"SD_PAIRS", "pairs", false, true},
    {"SD_DX", "dx", false, true},            {"SD_CAME", "came", false, true},
    {"SD_DC", "dc", false, true},            {"SD_DB", "db", false, true},
    {"SD_DECAYS", "decays", false, true},    {"SD_TIMES", "times", false, true},
    {"SD_RATES", "rates", false, true}};

static const char *type(const Value *v) { return hd_cuda_type(v->type->dtype); }

static const char *defines_of(Emit *e, const Op *o, const SsdShape *s, const char *base, const char **name) {
    const SsdSpace w = hd_ssd_space(s);
    const Value *d = hd_ssd_skip(o);
    Out t = hd_out(e->a);
    for (int i = 0; i < KERNELS; i++) {
        if (!(s->grad ? kernels[i].backward : kernels[i].forward)) continue;
        name[i] = hd_sprintf(e->a, "%s_%s", base, kernels[i].name);
        hd_printf(&t, "#define %s %s\n", kernels[i].define, name[i]);
    }
    hd_printf(&t, "#define SD_SPACE %s\n#define SD_T %s\n#define SD_DT %s\n#define SD_A %s\n#define SD_D %s\n", base,
              hd_cuda_type(s->dtype), type(o->in[s->grad + 1]), type(o->in[s->grad + 2]), d ? type(d) : "float");
    const struct { const char *name; int64_t value; } numbers[] = {
        {"SD_BATCH", s->batch}, {"SD_SEQ", s->seq}, {"SD_HEADS", s->heads}, {"SD_SIZE", s->size},
        {"SD_GROUPS", s->groups}, {"SD_STATE", s->state}, {"SD_CHUNK", s->chunk}, {"SD_CHUNKS", s->chunks},
        {"SD_SKIP", s->skip}, {"SD_PACKED", s->documents}, {"SD_GRAD", s->grad}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hd_printf(&t, "#define %s %lld\n", numbers[i].name, ll(numbers[i].value));
    const struct { const char *name; int64_t at; } parts[] = {
        {"CLOCK", w.clock}, {"SCORES", w.scores}, {"STATES", w.states}, {"DSTATES", w.dstates},
        {"DSCORES", w.dscores}, {"ROWS", w.rows}, {"COLS", w.cols}, {"CAME", w.came}, {"LEFT", w.left},
        {"KEPT", w.kept}, {"DECAYS", w.decays}, {"DA", w.da}, {"DD", w.dd}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hd_printf(&t, "#define SD_AT_%s %lldll\n", parts[i].name, ll(parts[i].at));
    return t.text;
}

enum { CLOCK, SCORES, STATES, PASS, Y, DSTATES, DPASS, PAIRS, DX, CAME, DC, DB, DECAYS, TIMES, RATES };
#define RUN(kernel, blocks, ...) HD_CUDA_LAUNCH(e, o, name[kernel], text, blocks, 1, 256, 0, __VA_ARGS__)

typedef struct { const char *in[8], *out[6], *workspace; } SsdArgs; // device addresses

static SsdArgs args_of(Emit *e, const Op *o) {
    SsdArgs a = {.workspace = hd_cuda_device(e, hd_emit_workspace(e, o))};
    for (int i = 0; i < o->n_in; i++) a.in[i] = hd_cuda_device(e, hd_emit_value(e, o->in[i]));
    for (int i = 0; i < o->n_out; i++) a.out[i] = hd_cuda_device(e, hd_emit_result(e, o, i));
    return a;
}

static const char *base_of(Emit *e, const Op *o, const SsdShape *s, const char *kind) {
    return hd_sprintf(
        e->a, "ssd%s%s_%s_%s_%s%s_%lldx%lldx%lldx%lld_%lldx%lld_%lld%s", kind, s->grad ? "_grad" : "",
        hd_dtype_text(s->dtype), hd_dtype_text(o->in[s->grad + 1]->type->dtype),
        hd_dtype_text(o->in[s->grad + 2]->type->dtype),
        s->skip ? hd_sprintf(e->a, "_%s", hd_dtype_text(hd_ssd_skip(o)->type->dtype)) : "", ll(s->batch), ll(s->seq),
        ll(s->heads), ll(s->size), ll(s->groups), ll(s->state), ll(s->chunk), s->documents ? "_documents" : "");
}

static void print_plain(Emit *e, const Op *o, const SsdShape *s, const SsdArgs *at) {
    const char *name[KERNELS] = {0}, *none = "0", *w = at->workspace, *const *out = at->out;
    const char *text = hd_cuda_template(e, "ssd", defines_of(e, o, s, base_of(e, o, s, ""), name));
    const char *const *v = at->in + s->grad, *x = v[0], *dt = v[1], *a = v[2], *b = v[3], *c = v[4];
    const char *d = s->skip ? v[5] : none, *starts = s->documents ? at->in[o->n_in - 1] : none;
    const int64_t chunks = s->batch * s->chunks, tiles = hd_ceil_div(s->chunk, HD_SSD_TILE);
    const int64_t wide = hd_ceil_div(s->size, HD_SSD_TILE), deep = hd_ceil_div(s->state, HD_SSD_TILE);
    const int64_t heads = chunks * s->heads, groups = chunks * s->groups;
    const int64_t elements = hd_ceil_div(s->batch * s->heads * s->size * s->state, 256);
    RUN(CLOCK, hd_ceil_div(heads, 256), dt, a, w);
    RUN(SCORES, groups * tiles * tiles, b, c, w);
    RUN(STATES, heads * wide * deep, x, dt, b, starts, w);
    RUN(PASS, elements, starts, w);
    if (!s->grad) {
        RUN(Y, heads * tiles * wide, x, dt, c, d, starts, out[0], w);
        return;
    }
    const char *dy = at->in[0];
    RUN(DSTATES, heads * wide * deep, dy, dt, c, starts, w);
    RUN(DPASS, elements, starts, w);
    RUN(PAIRS, groups * tiles * tiles, dy, x, dt, starts, w);
    RUN(DX, heads * tiles, dy, x, dt, b, d, starts, out[0], w);
    RUN(CAME, heads * tiles, dy, c, starts, w);
    RUN(DC, groups * tiles * deep, dy, dt, b, starts, out[4], w);
    RUN(DB, groups * tiles * deep, x, dt, c, starts, out[3], w);
    RUN(DECAYS, heads, w);
    RUN(TIMES, hd_ceil_div(heads, 256), dt, a, starts, out[1], w);
    RUN(RATES, hd_ceil_div(s->heads, 256), out[2], s->skip ? out[5] : none, w);
}

// --- on tensor cores

static const char *core_defines(Emit *e, const Op *o, const SsdShape *s, const char *base) {
    const SsdCoreSpace w = hd_ssd_core_space(s);
    const Value *d = hd_ssd_skip(o);
    Out t = hd_out(e->a);
    hd_printf(&t, "#define SC_SPACE %s\n#define SC_DT %s\n#define SC_A %s\n#define SC_D %s\n", base,
              type(o->in[s->grad + 1]), type(o->in[s->grad + 2]), d ? type(d) : "float");
    static const char *const kernel[][2] = {{"CLOCK", "clock"}, {"Y", "y"},     {"STATES", "states"},
                                            {"PAIRS", "pairs"}, {"SUM", "sum"}, {"RATES", "rates"}};
    for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++)
        hd_printf(&t, "#define SC_%s %s_%s\n", kernel[i][0], base, kernel[i][1]);
    const struct { const char *name; int64_t value; } numbers[] = {
        {"BATCH", s->batch}, {"SEQ", s->seq}, {"HEADS", s->heads}, {"GROUPS", s->groups}, {"STATE", s->state},
        {"SKIP", s->skip}, {"PACKED", s->documents}, {"SPLITS", w.splits}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hd_printf(&t, "#define SC_%s %lld\n", numbers[i].name, ll(numbers[i].value));
    const struct { const char *name; int64_t at; } parts[] = {
        {"CLOCK", w.clock}, {"DT", w.dt}, {"STATES", w.states}, {"DSTATES", w.dstates}, {"PARTS", w.parts},
        {"DA", w.da}, {"DD", w.dd}, {"POWERS", w.powers}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hd_printf(&t, "#define SC_AT_%s %lldll\n", parts[i].name, ll(parts[i].at));
    return t.text;
}

#define RUN_CORE(kernel, blocks, threads, shared, ...)                                                                 \
    HD_CUDA_LAUNCH(e, o, hd_sprintf(e->a, "%s_" kernel, base), text, blocks, 1, threads, (unsigned)(shared),           \
                   __VA_ARGS__)

// Shared memory: as the templates say beside each kernel.
static void print_on_cores(Emit *e, const Op *o, const SsdShape *s, const SsdArgs *at) {
    const char *base = base_of(e, o, s, "_mma"), *none = "0", *w = at->workspace, *const *out = at->out;
    const char *text = hd_cuda_template(e, s->grad ? "mma ssd_mma ssd_mma_grad" : "mma ssd_mma ssd_mma_forward",
                                        core_defines(e, o, s, base));
    const char *const *v = at->in + s->grad, *x = v[0], *dt = v[1], *a = v[2], *b = v[3], *c = v[4];
    const char *d = s->skip ? v[5] : none, *starts = s->documents ? at->in[o->n_in - 1] : none;
    const int64_t steps = s->batch * hd_ceil_div(s->seq, HD_SSD_TILE), heads = s->batch * s->heads;
    const int64_t x_tile = 64 * (s->size + 8) * 2, b_tile = 64 * (s->state + 8) * 2, numbers = 1024;
    RUN_CORE("clock", steps * hd_ceil_div(s->heads, 32), 256, 0, dt, a, w);
    if (!s->grad) {
        RUN_CORE("y", heads, 128, 2 * (2 * b_tile + x_tile + numbers) + b_tile, x, b, c, d, starts, out[0], w);
        return;
    }
    const char *dy = at->in[0];
    const int64_t splits = hd_ssd_core_space(s).splits;
    RUN_CORE("states", 2 * heads, 128, 2 * (b_tile + x_tile + numbers), dy, x, b, c, starts, w);
    RUN_CORE("pairs", steps * s->groups * splits, 256, 4 * (b_tile + x_tile) + 2 * numbers + 2 * b_tile + 6144, dy, x,
             a, b, c, d, starts, out[0], out[1], out[3], out[4], w);
    if (splits > 1)
        RUN_CORE("sum", hd_ceil_div(2 * s->batch * s->seq * s->groups * s->state, 256), 256, 0, out[3], out[4], w);
    RUN_CORE("rates", s->heads, 256, 0, out[2], s->skip ? out[5] : none, w);
}

void hd_cuda_print_ssd(Emit *e, const Op *o) {
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    const SsdShape s = hd_ssd_shape(o);
    const SsdArgs at = args_of(e, o);
    (hd_ssd_on_cores(o) ? print_on_cores : print_plain)(e, o, &s, &at);
}
