// Calls of the runtime that need no kernel: collectives, copies, cleared ranges.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"

// The part that a rank holds gives the bytes that each rank sends or receives; the whole has as many parts as there are
// ranks.
static void put_collective(Emit *e, const Op *o, const char *call) {
    Exchange x = hd_emit_exchange(e, o);
    hd_emit_line(e, o, "%s(x, %d, %d, %s, %s, %s, %lld);", call, hd_emit_stream(e, o), x.comm,
                 hd_emit_dtype(x.part->dtype), hd_cuda_device(e, x.from), hd_cuda_device(e, x.to),
                 ll(hd_type_count(x.part)));
}

void hd_cuda_print_all_gather(Emit *e, const Op *o) { put_collective(e, o, "hd_cuda_all_gather"); }
void hd_cuda_print_reduce_scatter(Emit *e, const Op *o) { put_collective(e, o, "hd_cuda_reduce_scatter"); }

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
