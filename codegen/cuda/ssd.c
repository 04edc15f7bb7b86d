// State-space duality: the launches of templates/ssd.cu.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
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

void hd_cuda_print_ssd(Emit *e, const Op *o) {
    const SsdShape s = hd_ssd_shape(o);
    const char *name[KERNELS] = {0}, *in[8], *out[6] = {0}, *none = "0";
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    const char *base = hd_sprintf(
        e->a, "ssd%s_%s_%s_%s%s_%lldx%lldx%lldx%lld_%lldx%lld_%lld%s", s.grad ? "_grad" : "", hd_dtype_text(s.dtype),
        hd_dtype_text(o->in[s.grad + 1]->type->dtype), hd_dtype_text(o->in[s.grad + 2]->type->dtype),
        s.skip ? hd_sprintf(e->a, "_%s", hd_dtype_text(hd_ssd_skip(o)->type->dtype)) : "", ll(s.batch), ll(s.seq),
        ll(s.heads), ll(s.size), ll(s.groups), ll(s.state), ll(s.chunk), s.documents ? "_documents" : "");
    const char *text = hd_cuda_template(e, "ssd", defines_of(e, o, &s, base, name));
    const char *w = hd_cuda_device(e, hd_emit_workspace(e, o));
    for (int i = 0; i < o->n_in; i++) in[i] = hd_cuda_device(e, hd_emit_place(e, o->in[i]));
    for (int i = 0; i < o->n_out; i++) out[i] = hd_cuda_device(e, hd_emit_result(e, o, i));
    const char *const *v = in + s.grad, *x = v[0], *dt = v[1], *a = v[2], *b = v[3], *c = v[4];
    const char *d = s.skip ? v[5] : none, *starts = s.documents ? in[o->n_in - 1] : none;
    const int64_t chunks = s.batch * s.chunks, tiles = hd_ceil_div(s.chunk, HD_SSD_TILE);
    const int64_t wide = hd_ceil_div(s.size, HD_SSD_TILE), deep = hd_ceil_div(s.state, HD_SSD_TILE);
    const int64_t heads = chunks * s.heads, groups = chunks * s.groups;
    const int64_t elements = hd_ceil_div(s.batch * s.heads * s.size * s.state, 256);
    RUN(CLOCK, hd_ceil_div(heads, 256), dt, a, w);
    RUN(SCORES, groups * tiles * tiles, b, c, w);
    RUN(STATES, heads * wide * deep, x, dt, b, starts, w);
    RUN(PASS, elements, starts, w);
    if (!s.grad) {
        RUN(Y, heads * tiles * wide, x, dt, c, d, starts, out[0], w);
        return;
    }
    const char *dy = in[0];
    RUN(DSTATES, heads * wide * deep, dy, dt, c, starts, w);
    RUN(DPASS, elements, starts, w);
    RUN(PAIRS, groups * tiles * tiles, dy, x, dt, starts, w);
    RUN(DX, heads * tiles, dy, x, dt, b, d, starts, out[0], w);
    RUN(CAME, heads * tiles, dy, c, starts, w);
    RUN(DC, groups * tiles * deep, dy, dt, b, starts, out[4], w);
    RUN(DB, groups * tiles * deep, x, dt, c, starts, out[3], w);
    RUN(DECAYS, heads, w);
    RUN(TIMES, hd_ceil_div(heads, 256), dt, a, starts, out[1], w);
    RUN(RATES, hd_ceil_div(s.heads, 256), out[2], s.skip ? out[5] : none, w);
}
