// A vocabulary that is split over ranks: the launches of templates/own_index.cu and loss_of_parts.cu.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

static const char *device(Emit *e, const Value *v) { return hd_cuda_device(e, hd_emit_value(e, v)); }

void hd_cuda_print_own_index(Emit *e, const Op *o) {
    const int64_t n = hd_type_count(o->in[0]->type);
    const char *name = hd_sprintf(e->a, "own_index_%lld", ll(n));
    const char *text = hd_cuda_template(
        e, "own_index", hd_sprintf(e->a, "#define OI_KERNEL %s\n#define OI_N %lld\n", name, ll(n)));
    const char *first = hd_emit_own_part(e, o, hd_int(&o->attrs, A_ROWS, 0));
    HD_CUDA_LAUNCH(e, o, name, text, hd_ceil_div(n, 256), 1, 256, 0, device(e, o->in[0]), first, device(e, o->out[0]));
}

void hd_cuda_print_loss_of_parts(Emit *e, const Op *o) {
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    const bool weighted = o->n_in > 3;
    const int64_t parts = o->in[0]->type->dim[0], rows = hd_type_count(o->out[1]->type), ignore = hd_loss_ignored(o);
    const char *name = hd_sprintf(e->a, "loss_of_parts_%lldx%lld", ll(parts), ll(rows));
    if (weighted)
        name = hd_sprintf(e->a, "%s_weighted_%s%lld", name, ignore < 0 ? "minus" : "",
                          ll(ignore < 0 ? -ignore : ignore));
    const char *text = hd_cuda_template(
        e, "loss_of_parts",
        hd_sprintf(e->a, "#define LP_KERNEL %s\n#define LP_PARTS %lld\n#define LP_ROWS %lld\n#define LP_WEIGHTED %d\n"
                         "#define LP_IGNORE %lld\n", name, ll(parts), ll(rows), weighted, ll(ignore)));
    const char *in[6] = {device(e, o->in[0]), device(e, o->in[1])};
    int n = 2;
    if (weighted) in[n++] = device(e, o->in[2]), in[n++] = device(e, o->in[3]);
    in[n++] = device(e, o->out[0]);
    in[n++] = device(e, o->out[1]);
    hd_cuda_launch_kernel(e, o, name, text, 1, 1, 1024, 0, n, in);
}
