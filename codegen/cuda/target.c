// The CUDA target: how each op of a plan becomes statements of the C host program, and kernel functions become CUDA
// text.
#include "codegen/cuda/cuda.h"
#include "ir/machine/arch.h"
#include <string.h>

static CudaLaunches kernel_launches(Emit *e, const Func *k, bool wide) {
    const char *name = hd_emit_kernel_name(e, k);
    if (!wide) name = hd_sprintf(e->a, "%s_narrow", name);
    if (hd_kind(&k->attrs) == KIND_ROWS) return hd_cuda_rows(k, name, wide ? 8 : 1, hd_shared_bytes(e->m), e->a);
    if (hd_kind(&k->attrs) == KIND_MAP) return hd_cuda_map(k, name, wide ? 8 : 1, e->a);
    HD_BUG("kernel @%s has no kind", k->name);
}

static void kernels(Emit *e) {
    for (const Func *f = e->m->funcs; f; f = f->next) {
        if (!f->is_kernel || hd_kind(&f->attrs) == KIND_OPTIMIZER || hd_kind(&f->attrs) == KIND_PRODUCT)
            continue; // printed where it is used
        CudaLaunches list = kernel_launches(e, f, true);
        for (int i = 0; i < list.n; i++)
            hd_cuda_kernel(e, list.at[i].name, list.at[i].text, (int)list.at[i].shared, false);
    }
}

void hd_cuda_print_launch(Emit *e, const Op *o) {
    const Func *k = hd_launched(o);
    if (hd_kind(&k->attrs) == KIND_PRODUCT) {
        hd_cuda_row_product(e, o);
        return;
    }
    CudaLaunches list = kernel_launches(e, k, !hd_has(&o->attrs, A_ALIGN));
    for (int i = 0; i < list.n; i++) {
        const CudaLaunch *l = &list.at[i];
        CudaArgs args = {0};
        for (int j = 0; j < l->args.n; j++) {
            CudaArg x = l->args.at[j];
            int64_t at = x.kind == CUDA_IN    ? hd_emit_value(e, o->in[x.index])
                         : x.kind == CUDA_OUT ? hd_emit_value(e, o->out[x.index])
                                              : hd_emit_workspace(e, o);
            hd_push(e->a, &args, hd_cuda_device(e, at));
        }
        int kernel = hd_cuda_kernel(e, l->name, l->text, (int)l->shared, false);
        hd_cuda_put_launch(e, o, kernel, &(CudaGrid){l->gx, l->gy, l->gz, l->block, l->shared, {0}}, &args);
    }
}

void hd_cuda_print_gemm(Emit *e, const Op *o) {
    if (hd_has(&o->attrs, A_IMPL)) {
        hd_cuda_gemv(e, o);
        return;
    }
    const int64_t workspace = hd_emit_workspace(e, o);
    const int bias = hd_operand_of(o, ROLE_BIAS), scale = hd_operand_of(o, ROLE_SCALE_A);
    if (scale >= 0) {
        const int scale_b = hd_operand_of(o, ROLE_SCALE_B);
        hd_emit_line(e, o, "hd_cuda_gemm_scaled(x, %d, %d, %s, %s, %s, %s, %s, %s);", hd_emit_stream(e, o),
                     hd_emit_gemm(e, o), hd_cuda_device(e, hd_emit_value(e, o->in[0])),
                     hd_cuda_device(e, hd_emit_value(e, o->in[1])), hd_cuda_device(e, hd_emit_value(e, o->in[scale])),
                     hd_cuda_device(e, hd_emit_value(e, o->in[scale_b])), hd_cuda_device(e, hd_emit_result(e, o, 0)),
                     workspace < 0 ? "0" : hd_cuda_device(e, workspace));
        return;
    }
    hd_emit_line(e, o, "hd_cuda_gemm(x, %d, %d, %s, %s, %s, %s, %s);", hd_emit_stream(e, o), hd_emit_gemm(e, o),
                 hd_cuda_device(e, hd_emit_value(e, o->in[0])), hd_cuda_device(e, hd_emit_value(e, o->in[1])),
                 bias < 0 ? "0" : hd_cuda_device(e, hd_emit_value(e, o->in[bias])),
                 hd_cuda_device(e, hd_emit_result(e, o, 0)),
                 workspace < 0 ? "0" : hd_cuda_device(e, workspace));
}

void hd_cuda_print_event(Emit *e, const Op *o) {
    hd_emit_line(e, o, "hd_cuda_%s%s(x, %d, %d);", hd_op_info(o->kind)->mnemonic,
                 hd_has(&o->attrs, A_EXTERNAL) ? "_external" : "", hd_emit_stream(e, o), hd_emit_event(e, o));
}

static const char *const prologue[] = {NULL};
static const OpPrinter ops[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define print(x) .print = hd_cuda_print_##x,
#include "ir/ops.def"
};

const Target hd_cuda_target = {.name = "cuda",
                               .backend = "hd_cuda_backend",
                               .kernels = kernels, .prologue = prologue, .op = ops, .finish = hd_cuda_finish,
                               .attention = hd_cuda_attention_fields};
