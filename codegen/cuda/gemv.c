// The product of one row, as of a token that is written: the launch of templates/gemv.cu.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

enum { WARPS = 8, THREADS = 256 };

void hd_cuda_gemv(Emit *e, const Op *o) {
    const Product p = hd_product(o);
    const DType d = o->in[0]->type->dtype, out = hd_result_type(o, 0)->dtype;
    const int bias = hd_operand_of(o, ROLE_BIAS);
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    const int vec = hd_cuda_vector(o, d, p.tb ? p.k : p.n);
    // Many rows of W: a warp takes several, and reads x once for them. Without tb the columns of a block fill a sector
    // of memory, 32 bytes, or two where that leaves blocks enough.
    const int each = p.n >= 16384 ? 4 : 1, lanes = (p.n >= 8192 ? 64 : 32) / (vec * hd_dtype_bytes(d)),
              columns = p.tb ? WARPS * each : lanes * vec;
    const char *name = hd_sprintf(e->a, "gemv_%s_%s_%lldx%lld%s%s%s", hd_dtype_text(d), hd_dtype_text(out), ll(p.k),
                                  ll(p.n), p.tb ? "_tb" : "", bias < 0 ? "" : "_bias",
                                  hd_has(&o->attrs, A_ALIGN) ? "_narrow" : "");
    const char *text = hd_cuda_template(
        e, "gemv",
        hd_sprintf(e->a,
                   "#define GV_KERNEL %s\n#define GV_T %s\n#define GV_OUT %s\n#define GV_N %lld\n#define GV_K %lld\n"
                   "#define GV_VEC %d\n#define GV_TB %d\n#define GV_EACH %d\n#define GV_LANES %d\n#define GV_BIAS %d\n",
                   name, hd_cuda_type(d), hd_cuda_type(out), ll(p.n), ll(p.k), vec, p.tb, each, lanes, bias >= 0));
    const char *arg[4];
    int n = 0;
    for (int i = 0; i < o->n_in; i++) arg[n++] = hd_cuda_device(e, hd_emit_value(e, o->in[i]));
    arg[n++] = hd_cuda_device(e, hd_emit_result(e, o, 0));
    hd_cuda_launch_kernel(e, o, name, text, hd_ceil_div(p.n, columns), 1, THREADS, 0, n, arg);
}
