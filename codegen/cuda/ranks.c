// Calls of the runtime: collectives, of which one has a kernel that adds in a tree, copies, cleared ranges.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/mesh.h"

// `rows` rows of n elements in dtype d at device address `from`, added in f32: in a tree, or from row `first`, C, on in
// a circle.
static void put_row_sum(Emit *e, const Op *o, DType d, int64_t rows, int64_t n, const char *from, const char *to,
                        const char *first) {
    const int vec = n % 8 == 0 && d != TY_F32 ? 8 : n % 4 == 0 && d == TY_F32 ? 4 : 1;
    const char *what = hd_sprintf(e->a, "#define TS_ROWS %lld\n#define TS_VEC %d\n#define TS_FROM %s\n", ll(rows), vec,
                                  hd_cuda_type(d));
    const char *of = first ? "row_sum" : "tree_sum", *name = hd_cuda_name(e, of, what);
    const char *text = hd_cuda_template(e, of, hd_sprintf(e->a, "#define TS_KERNEL %s\n%s", name, what));
    const char *count = hd_sprintf(e->a, "%lld", ll(n));
    const int64_t blocks = hd_ceil_div(n, 256 * vec);
    if (n && first) HD_CUDA_LAUNCH(e, o, name, text, blocks, 1, 256, 0, from, to, count, first);
    else if (n) HD_CUDA_LAUNCH(e, o, name, text, blocks, 1, 256, 0, from, to, count);
}

void hd_cuda_print_tree_sum(Emit *e, const Op *o) {
    put_row_sum(e, o, TY_F32, o->in[0]->type->dim[0], hd_type_count(o->out[0]->type),
                hd_cuda_device(e, hd_emit_value(e, o->in[0])), hd_cuda_device(e, hd_emit_value(e, o->out[0])), NULL);
}

static void put_exchange(Emit *e, const Op *o, int comm, DType d, const char *from, const char *to, int64_t n,
                         int64_t stride) {
    hd_emit_line(e, o, "hd_cuda_exchange(x, %d, %d, %s, %s, %s, %lld, %lld);", hd_emit_stream(e, o), comm,
                 hd_emit_dtype(d), from, to, ll(n), ll(stride));
}

// Every rank receives the parts that it adds up.
static void put_exchanged_sum(Emit *e, const Op *o, const Exchange *x) {
    const int64_t space = hd_emit_workspace(e, o), n = hd_type_count(x->part);
    const char *parts = hd_cuda_device(e, space < 0 ? 0 : space);
    const Symbol *buffer = hd_named(o, A_BUFFER);
    const DType d = (buffer ? buffer->type : o->in[0]->type)->dtype;
    put_exchange(e, o, x->comm, d, hd_cuda_device(e, x->from), parts, n, n);
    const Mesh mesh = hd_mesh(e->m);
    const char *own = hd_sprintf(e->a, "(uint64_t)hd_own_part(x, %d, 1)", x->comm);
    put_row_sum(e, o, d, hd_mesh_ranks(&mesh, hd_axes(&hd_named(o, A_COMM)->attrs, A_OVER)), n, parts,
                hd_cuda_device(e, x->to), hd_has(&o->attrs, A_TREE) ? NULL : own);
}

// A rank's rows in their place in the whole, or their scales, which are sent from there.
static void put_gather_quantized(Emit *e, const Op *o, const Exchange *x) {
    const int64_t row = hd_int(&o->attrs, A_QUANTIZED, 1), rows = hd_type_count(x->part) / row;
    const bool scales = hd_has(&o->attrs, A_SCALES);
    DType d;
    if (!hd_dtype_parse(hd_word(&o->attrs, A_OUT, ""), &d)) HD_BUG("quantizes to no type");
    const int vec = row % 16 ? 1 : 16 / hd_dtype_bytes(x->part->dtype);
    const char *what = hd_sprintf(
        e->a,
        "#define QR_FROM %s\n#define QR_TO %s\n#define QR_COLS %lld\n#define QR_VEC %d\n#define QR_LARGEST %.1ff\n"
        "#define QR_SCALES %d\n",
        hd_cuda_type(x->part->dtype), hd_cuda_type(scales ? TY_F32 : d), ll(row), vec, hd_dtype_info(d)->largest,
        scales);
    const char *name = hd_cuda_name(e, scales ? "row_scales" : "quantize_rows", what);
    const char *text = hd_cuda_template(e, "quantize_rows", hd_sprintf(e->a, "#define QR_KERNEL %s\n%s", name, what));
    const DType sent = scales ? TY_F32 : d;
    const int64_t n = scales ? rows : rows * row;
    const char *to = hd_cuda_device(e, x->to);
    const char *own = hd_sprintf(e->a, "%s + hd_own_part(x, %d, %lld)", to, x->comm, ll(n * hd_dtype_bytes(sent)));
    if (n)
        HD_CUDA_LAUNCH(e, o, name, text, hd_ceil_div(rows, 8), 1, 256, 0, hd_cuda_device(e, x->from), own,
                       hd_sprintf(e->a, "%lld", ll(rows)));
    hd_emit_line(e, o, "hd_cuda_all_gather(x, %d, %d, %s, %s, %s, %lld);", hd_emit_stream(e, o), x->comm,
                 hd_emit_dtype(sent), own, to, ll(n));
}

// The defines of a kernel over a rank's part of a bucket with tensors.
static const char *tensor_defines(Emit *e, const Symbol *part, int *vec) {
    const Attr *list = hd_tensors(e->m, part);
    *vec = 16 / hd_dtype_bytes(part->type->dtype);
    for (int i = 0; i < list->n; i++)
        if (list->ints[i] % *vec) *vec = 1;
    if (hd_type_count(part->type) % *vec) *vec = 1;
    return hd_sprintf(e->a, "#define TQ_FROM %s\n#define TQ_N %d\n#define TQ_TENSORS %s\n#define TQ_VEC %d\n"
                            "#define TQ_LARGEST %.1ff\n#define TQ_STRIDE %d\n",
                      hd_cuda_type(part->type->dtype), list->n / 2, hd_emit_tensors(e, part), *vec,
                      hd_dtype_info(TY_E4M3)->largest, HD_SCALE_STRIDE);
}

// A kernel of quantize_tensors.cu over a part; `scales` has those of its tensors.
static void put_tensors(Emit *e, const Op *o, const Symbol *part, const char *of, const char *scales, const char *q) {
    int vec;
    const char *what = tensor_defines(e, part, &vec), *name = hd_cuda_name(e, of, what);
    const char *kind = q ? "QUANTIZE" : "SCALES", *defines = hd_sprintf(e->a, "#define TQ_%s %s\n%s", kind, name, what);
    const char *text = hd_cuda_template(e, "quantize_tensors", defines);
    const int64_t n = hd_type_count(part->type), blocks = hd_ceil_div(n, 8 * 8 * 32 * vec); // of 8 warps
    const char *from = hd_cuda_device(e, hd_emit_buffer(e, o, part->name, 0)), *count = hd_sprintf(e->a, "%lld", ll(n));
    const char *first = hd_sprintf(e->a, "(uint64_t)hd_own_part(x, %d, %lld)", hd_emit_comm(e, o), ll(n));
    if (n && q) HD_CUDA_LAUNCH(e, o, name, text, blocks, 1, 256, 0, from, first, count, scales, q);
    else if (n) HD_CUDA_LAUNCH(e, o, name, text, blocks, 1, 256, 0, from, first, count, scales);
}

// Scales are not negative, so they are in the order of their bits as whole numbers, with NaN above all of them: NCCL's
// largest of floats would drop a NaN.
void hd_cuda_print_all_max(Emit *e, const Op *o) {
    const Attr *parts = hd_attr(&o->attrs, A_BUFFERS);
    const int64_t to = hd_emit_result(e, o, 0), n = hd_type_count(hd_result_type(o, 0));
    int64_t done = 0;
    hd_emit_line(e, o, "hd_cuda_zero(x, %d, %s, %lld);", hd_emit_stream(e, o), hd_cuda_device(e, to),
                 ll(n * hd_dtype_bytes(TY_F32)));
    for (int i = 0; i < parts->n; i++) {
        const Symbol *part = hd_symbol_find(e->m, parts->strs[i]);
        put_tensors(e, o, part, "tensor_scales", hd_cuda_device(e, to + done * hd_dtype_bytes(TY_F32)), NULL);
        done += HD_SCALE_STRIDE * (hd_tensors(e->m, part)->n / 2);
    }
    hd_emit_line(e, o, "hd_cuda_all_max(x, %d, %d, HD_I32, %s, %lld);", hd_emit_stream(e, o), hd_emit_comm(e, o),
                 hd_cuda_device(e, to), ll(n));
}

static void put_gather_tensors(Emit *e, const Op *o, const Exchange *x) {
    const int64_t bytes = hd_type_count(x->part);
    const int64_t scales = hd_emit_buffer(e, o, hd_word(&o->attrs, A_SCALES_IN, ""),
                                          HD_SCALE_STRIDE * hd_int(&o->attrs, A_FIRST, 0));
    const char *to = hd_cuda_device(e, x->to);
    const char *own = hd_sprintf(e->a, "%s + hd_own_part(x, %d, %lld)", to, x->comm, ll(bytes));
    put_tensors(e, o, hd_named(o, A_BUFFER), "quantize_tensors", hd_cuda_device(e, scales), own);
    hd_emit_line(e, o, "hd_cuda_all_gather(x, %d, %d, HD_E4M3, %s, %s, %lld);", hd_emit_stream(e, o), x->comm, own, to,
                 ll(bytes));
}

// The part that a rank holds gives the bytes that each rank sends or receives; the whole has as many parts as there are
// ranks. A part of another dtype than the whole is rounded in its place there, and sent from it.
void hd_cuda_print_collective(Emit *e, const Op *o) {
    Exchange x = hd_emit_exchange(e, o);
    const DType dtype = hd_result_type(o, 0)->dtype;
    const int64_t n = hd_type_count(x.part), bytes = n * hd_dtype_bytes(dtype);
    if (hd_exchanges(o)) {
        put_exchanged_sum(e, o, &x);
        return;
    }
    if (hd_has(&o->attrs, A_QUANTIZED)) {
        if (hd_int(&o->attrs, A_QUANTIZED, 1)) put_gather_quantized(e, o, &x);
        else put_gather_tensors(e, o, &x);
        return;
    }
    const char *from = hd_cuda_device(e, x.from), *to = hd_cuda_device(e, x.to);
    if (hd_collective(o)->exchanges) {
        put_exchange(e, o, x.comm, dtype, from, to, hd_emit_moved(e, o), n);
        return;
    }
    if (dtype != x.part->dtype) {
        const char *own = hd_sprintf(e->a, "%s + hd_own_part(x, %d, %lld)", to, x.comm, ll(bytes));
        if (n) hd_cuda_convert(e, o, x.part->dtype, dtype, false, n, bytes % 16 == 0, from, own);
        from = own;
    }
    hd_emit_line(e, o, "hd_cuda_%s(x, %d, %d, %s, %s, %s, %lld);", hd_op_info(o->kind)->mnemonic,
                 hd_emit_stream(e, o), x.comm, hd_emit_dtype(dtype), from, to, ll(n));
}

static const char *anywhere(Emit *e, Place p) {
    if (p.space == SPACE_DEVICE) return hd_cuda_device(e, p.offset);
    return hd_sprintf(e->a, "(uint64_t)hd_pinned(x, 0x%llx)", (unsigned long long)p.offset);
}

void hd_cuda_print_copy(Emit *e, const Op *o) {
    Place to, from = hd_emit_copied(e, o, &to);
    hd_emit_line(e, o, "hd_cuda_copy(x, %d, %s, %s, %lld);", hd_emit_stream(e, o), anywhere(e, to), anywhere(e, from),
                 ll(hd_type_bytes(hd_result_type(o, 0))));
}

void hd_cuda_print_zero(Emit *e, const Op *o) {
    hd_emit_line(e, o, "hd_cuda_zero(x, %d, %s, %lld);", hd_emit_stream(e, o),
                 hd_cuda_device(e, hd_emit_result(e, o, 0)), ll(hd_type_bytes(hd_result_type(o, 0))));
}
