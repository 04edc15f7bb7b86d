// Collectives and the ops around them: the runtime's calls of NCCL, cleared ranges, the norm of gradients held in
// parts.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"

// The part that a rank holds gives the bytes that each rank sends or receives; the whole has as many parts as there are
// ranks.
static void put_collective(Emit *e, const Op *o, const char *call, AttrId part_at) {
    const char *from = hd_word(&o->attrs, A_BUFFER, ""), *to = hd_word(&o->attrs, A_INTO, "");
    const Symbol *part = hd_symbol_find(e->m, hd_word(&o->attrs, part_at, ""));
    if (!part || !part->type) HD_BUG("%s of no buffer", hd_op_info(o->kind)->mnemonic);
    hd_emit_line(e, o, "%s(x, %d, %d, %s, %s, %s, %lld);", call, hd_emit_stream(e, o), hd_emit_comm(e, o),
                 hd_emit_dtype(part->type->dtype), hd_cuda_device(e, hd_emit_buffer(e, o, from, 0)),
                 hd_cuda_device(e, hd_emit_buffer(e, o, to, 0)), ll(hd_type_count(part->type)));
}

void hd_cuda_all_gather_op(Emit *e, const Op *o) { put_collective(e, o, "hd_cuda_all_gather", A_BUFFER); }
void hd_cuda_reduce_scatter_op(Emit *e, const Op *o) { put_collective(e, o, "hd_cuda_reduce_scatter", A_INTO); }

void hd_cuda_zero_op(Emit *e, const Op *o) {
    const char *into = hd_word(&o->attrs, A_INTO, "");
    const Symbol *s = hd_symbol_find(e->m, into);
    if (!s || !s->type) HD_BUG("zero of no buffer");
    hd_emit_line(e, o, "hd_cuda_zero(x, %d, %s, %lld);", hd_emit_stream(e, o),
                 hd_cuda_device(e, hd_emit_buffer(e, o, into, hd_int(&o->attrs, A_OFFSET, 0))),
                 ll(hd_int(&o->attrs, A_SIZE, 0) * hd_dtype_bytes(s->type->dtype)));
}
