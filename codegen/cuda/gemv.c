// The product of one row, as of a token that is written: the launch of templates/gemv.cu.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/machine/arch.h"
#include "ir/shapes.h"
#include "ir/writes.h"

enum { WARPS = 8, THREADS = 256, STAGED_BYTES = 40 << 10, BLOCKS = 2 }; // BLOCKS: of a multiprocessor

bool hd_cuda_early(Emit *e, const Op *o, const Value *v) {
    CudaModule *cm = hd_cuda_module(e);
    if (hd_kind(&o->func->attrs) != KIND_DECODE) return false;
    while (v->def && hd_op_is(v->def, TRAIT_ALIAS)) v = v->def->in[0];
    if (!v->def) return true;
    const Symbol *s = hd_op_is(v->def, TRAIT_SOURCE) ? hd_named(v->def, A_BUFFER) : NULL;
    if (!s || hd_has(&s->attrs, A_TRANSIENT)) return false;
    if (cm->written_in != o->func) {
        cm->written_in = o->func;
        cm->written = HD_NEWN(e->a, bool, e->m->n_symbols + 1);
        for (const Op *x = o->func->first; x; x = x->next) {
            Write w;
            for (int i = 0; hd_next_write(x, &i, &w);)
                if (w.buffer) cm->written[w.buffer->id] = true;
        }
    }
    return !cm->written[s->id];
}

void hd_cuda_gemv(Emit *e, const Op *o) {
    const Product p = hd_product(o);
    const DType d = o->in[0]->type->dtype, out = hd_result_type(o, 0)->dtype;
    const int bias = hd_operand_of(o, ROLE_BIAS);
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    const int vec = hd_cuda_vector(o, d, p.tb ? p.k : p.n);
    // A warp takes as many rows of W as there are more than warps on the device. Without tb the columns of a block fill
    // a sector of memory, 32 bytes, or two where that leaves blocks enough.
    const int64_t warps = (int64_t)hd_target_arch(e->m).processors * BLOCKS * WARPS, rows = hd_ceil_div(p.n, warps);
    const int lanes = (p.n >= 8192 ? 64 : 32) / (vec * hd_dtype_bytes(d));
    const int64_t columns = p.tb ? WARPS * rows : lanes * vec;
    const bool early = p.tb && hd_cuda_early(e, o, o->in[1]) && (bias < 0 || hd_cuda_early(e, o, o->in[bias]));
    const char *name = hd_sprintf(e->a, "gemv_%s_%s_%lldx%lld%s%s%s%s", hd_dtype_text(d), hd_dtype_text(out), ll(p.k),
                                  ll(p.n), p.tb ? "_tb" : "", bias < 0 ? "" : "_bias",
                                  hd_has(&o->attrs, A_ALIGN) ? "_narrow" : "", early ? "_early" : "");
    const char *text = hd_cuda_template(
        e, "gemv",
        hd_sprintf(e->a,
                   "#define GV_KERNEL %s\n#define GV_T %s\n#define GV_OUT %s\n#define GV_N %lld\n#define GV_K %lld\n"
                   "#define GV_VEC %d\n#define GV_TB %d\n#define GV_ROWS %lld\n#define GV_STAGED %d\n"
                   "#define GV_%s 1\n#define GV_LANES %d\n#define GV_BIAS %d\n",
                   name, hd_cuda_type(d), hd_cuda_type(out), ll(p.n), ll(p.k), vec, p.tb, ll(rows),
                   p.k * hd_dtype_bytes(d) <= STAGED_BYTES, early ? "EARLY" : "LATE", lanes, bias >= 0));
    const char *arg[4];
    int n = 0;
    for (int i = 0; i < o->n_in; i++) arg[n++] = hd_cuda_device(e, hd_emit_value(e, o->in[i]));
    arg[n++] = hd_cuda_device(e, hd_emit_result(e, o, 0));
    hd_cuda_launch_kernel(e, o, name, text, hd_ceil_div(p.n, columns), 1, THREADS, 0, n, arg);
}
