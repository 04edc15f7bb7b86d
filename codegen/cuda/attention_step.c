// Attention of one token: the launch of templates/attention_step.cu.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/machine/arch.h"
#include "ir/shapes.h"
#include <math.h>
#include <string.h>

// How threads share the work. A row of keys is read by the fewest threads, each with a vector. Where blocks can share
// memory, a head has as many of them as there may be rows for.
typedef struct { int vec, lanes, blocks; } StepShape;

static StepShape step_shape(const Op *o, int64_t heads, int64_t size, int64_t seen) {
    enum { WARPS = 8, AHEAD = 4, MOST_BLOCKS = 8, ENOUGH = 512 }; // AHEAD: rows that a thread reads at once
    StepShape s = {hd_cuda_vector(o, o->in[0]->type->dtype, size), 1, 1};
    while (s.lanes < 32 && (int64_t)s.lanes * s.vec < size) s.lanes *= 2;
    if (hd_target_arch(o->func->module).arch < 90) return s;
    while (s.blocks < MOST_BLOCKS && s.blocks * WARPS * AHEAD * (32 / s.lanes) < seen && 2 * s.blocks * heads <= ENOUGH)
        s.blocks *= 2;
    return s;
}

void hd_cuda_print_attention_step(Emit *e, const Op *o) {
    const StepParts p = hd_step_parts(o);
    const int64_t heads = p.heads, kv = p.kv_heads, size = p.size, positions = hd_cached_positions(o),
                  window = hd_int(&o->attrs, A_WINDOW, positions);
    const double scale = hd_float(&o->attrs, A_SCALE, 1 / sqrt((double)size));
    const double softcap = hd_float(&o->attrs, A_SOFTCAP, 0);
    const Value *sink = hd_attention_sink(o);
    const char *arg[8];
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    if (size > 512 || positions > INT32_MAX || positions * kv * size > INT64_MAX / 8)
        hd_emit_error(e, o->span, "target cuda runs attention_step with heads of up to 512 values, not %lld", ll(size));
    const char *scale_text = hd_emit_number(e->a, scale, false);
    const StepShape s = step_shape(o, heads, size, window < positions ? window : positions);
    const bool early = hd_cuda_early(e, o, o->in[1]); // then rows of other positions are there, too
    const char *name = hd_sprintf(e->a, "attention_step_%s_%lldx%lldx%lld_%lld_%lld%s%s",
                                  hd_dtype_text(o->in[0]->type->dtype), ll(heads), ll(kv), ll(size), ll(positions),
                                  ll(window), hd_has(&o->attrs, A_ALIGN) ? "_narrow" : "", early ? "" : "_late");
    if (hd_has(&o->attrs, A_SCALE))
        name = hd_sprintf(e->a, "%s_%s", name, hd_hash(e->a, scale_text, strlen(scale_text)));
    if (softcap > 0) {
        const char *cap = hd_emit_number(e->a, softcap, false);
        name = hd_sprintf(e->a, "%s_softcap_%s", name, hd_hash(e->a, cap, strlen(cap)));
    }
    if (sink) name = hd_sprintf(e->a, "%s_sink", name);
    const char *more = softcap > 0 ? hd_sprintf(e->a, "#define AS_CAP %s\n", hd_emit_number(e->a, softcap, false)) : "";
    const char *text = hd_cuda_template(
        e, "attention_step",
        hd_sprintf(e->a,
                   "#define AS_KERNEL %s\n#define AS_T %s\n#define AS_HEADS %lld\n#define AS_GROUP %lld\n"
                   "#define AS_SIZE %lld\n#define AS_ROW %lld\n#define AS_POSITIONS %lld\n#define AS_WINDOW %lld\n"
                   "#define AS_SCALE %s\n#define AS_VEC %d\n#define AS_LANES %d\n#define AS_BLOCKS %d\n"
                   "#define AS_%s 1\n%s%s",
                   name, hd_cuda_type(o->in[0]->type->dtype), ll(heads), ll(heads / kv), ll(size), ll(kv * size),
                   ll(positions), ll(window), scale_text, s.vec, s.lanes, s.blocks,
                   early ? "EARLY" : "LATE", more, sink ? "#define AS_SINK 1\n" : ""));
    for (int i = 0; i < 3; i++)
        arg[i ? i + 1 : 0] = hd_cuda_device(e, hd_emit_value(e, o->in[p.in[i]]) +
                                                   p.at[i] * hd_dtype_bytes(o->in[0]->type->dtype));
    arg[1] = hd_cuda_device(e, hd_emit_value(e, o->in[1]));
    arg[4] = hd_cuda_device(e, hd_emit_buffer(e, o, hd_named(o, A_KEYS)->name, 0));
    arg[5] = hd_cuda_device(e, hd_emit_buffer(e, o, hd_named(o, A_VALUES)->name, 0));
    arg[6] = hd_cuda_device(e, hd_emit_result(e, o, 0));
    if (sink) arg[7] = hd_cuda_device(e, hd_emit_value(e, sink));
    CudaArgs args = {0};
    for (int i = 0; i < (sink ? 8 : 7); i++) hd_push(e->a, &args, arg[i]);
    const unsigned cluster = s.blocks > 1 ? (unsigned)s.blocks : 0;
    const CudaGrid grid = {(unsigned)heads * (unsigned)s.blocks, 1, 1, 256, 0, {cluster, cluster > 0, cluster > 0}};
    hd_cuda_put_launch(e, o, hd_cuda_kernel(e, name, text, 0, false), &grid, &args);
}
