// Attention of one token: the launch of templates/attention_step.cu.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include <math.h>
#include <string.h>

void hd_cuda_print_attention_step(Emit *e, const Op *o) {
    const int64_t heads = hd_int(&o->attrs, A_HEADS, 1), kv = hd_int(&o->attrs, A_KV_HEADS, heads),
                  size = hd_type_cols(o->in[0]->type) / heads, positions = hd_cached_positions(o),
                  window = hd_int(&o->attrs, A_WINDOW, positions);
    const double scale = hd_float(&o->attrs, A_SCALE, 1 / sqrt((double)size));
    const double softcap = hd_float(&o->attrs, A_SOFTCAP, 0);
    const Value *sink = hd_attention_sink(o);
    const char *arg[8];
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    if (size > 512 || positions > INT32_MAX || positions * kv * size > INT64_MAX / 8)
        hd_emit_error(e, o->span, "target cuda runs attention_step with heads of up to 512 values, not %lld", ll(size));
    const char *scale_text = hd_emit_number(e->a, scale, false);
    const char *name = hd_sprintf(e->a, "attention_step_%s_%lldx%lldx%lld_%lld_%lld",
                                  hd_dtype_text(o->in[0]->type->dtype), ll(heads), ll(kv), ll(size), ll(positions),
                                  ll(window));
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
                   "#define AS_SCALE %s\n%s%s",
                   name, hd_cuda_type(o->in[0]->type->dtype), ll(heads), ll(heads / kv), ll(size), ll(kv * size),
                   ll(positions), ll(window), scale_text, more, sink ? "#define AS_SINK 1\n" : ""));
    for (int i = 0; i < 4; i++) arg[i] = hd_cuda_device(e, hd_emit_value(e, o->in[i]));
    arg[4] = hd_cuda_device(e, hd_emit_buffer(e, o, hd_named(o, A_KEYS)->name, 0));
    arg[5] = hd_cuda_device(e, hd_emit_buffer(e, o, hd_named(o, A_VALUES)->name, 0));
    arg[6] = hd_cuda_device(e, hd_emit_result(e, o, 0));
    if (sink) arg[7] = hd_cuda_device(e, hd_emit_value(e, sink));
    hd_cuda_launch_kernel(e, o, name, text, heads, 1, 256, 0, sink ? 8 : 7, arg);
}
