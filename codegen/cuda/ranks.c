// Calls of the runtime that need no kernel: collectives, copies, cleared ranges.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"

// The part that a rank holds gives the bytes that each rank sends or receives; the whole has as many parts as there are
// ranks. A part of another dtype than the whole is rounded in its place there, and sent from it.
void hd_cuda_print_collective(Emit *e, const Op *o) {
    Exchange x = hd_emit_exchange(e, o);
    const DType dtype = hd_result_type(o, 0)->dtype;
    const int64_t n = hd_type_count(x.part), bytes = n * hd_dtype_bytes(dtype);
    const char *from = hd_cuda_device(e, x.from), *to = hd_cuda_device(e, x.to);
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
