// The workspace column of ops.def (workspace.h). Each rule says in its comment what is kept there.
#include "ir/machine/workspace.h"
#include "ir/base/ints.h"
#include "ir/machine/arch.h"
#include "ir/optimizer.h"
#include "ir/shapes.h"
#include "ir/ssd.h"

static Workspace exactly(int64_t bytes) { return (Workspace){bytes, bytes}; }

// cuda: what cuBLASLt is offered; its documentation asks for 32 MiB on Hopper, and it makes do with less. host:
// nothing, narrower factors are converted a tile at a time in memory of each thread. gemv needs nothing.
static Workspace workspace_gemm(const Op *o, bool cuda) {
    return (Workspace){0, cuda && !hd_has(&o->attrs, A_IMPL) ? 32 << 20 : 0};
}

// host: rows that are gathered.
static Workspace workspace_grouped(const Op *o, bool cuda) {
    const Product p = hd_product(o);
    const bool gathers = !cuda && hd_operand_of(o, ROLE_SOURCE) >= 0;
    return exactly(gathers ? p.m * p.k * hd_dtype_bytes(o->in[0]->type->dtype) : 0);
}

// Partial sums of a kernel's column results: an f32 row for each hd_partial_rows of the iteration space (see
// passes/fuse/fuse.c).
static Workspace workspace_launch(const Op *o, bool cuda HD_UNUSED) {
    const Func *k = hd_launched(o);
    const Op *ret = k && hd_kind(&k->attrs) == KIND_ROWS ? hd_return(k) : NULL;
    int64_t n = 0, rows = k ? hd_int(&k->attrs, A_ROWS, 1) : 1, cols = k ? hd_int(&k->attrs, A_COLS, 1) : 1;
    for (int i = 0; ret && i < ret->n_in; i++)
        if (hd_result_class(ret->in[i]) == 'c' && hd_type_count(ret->in[i]->type) == cols)
            n += hd_ceil_div(rows, hd_partial_rows(rows)) * cols * 4;
    return exactly(n);
}

// The backward pass needs rowsum(dout * o), f32 [batch, heads, seq]. cuDNN is offered what every plan of it asks for
// and, in the backward pass, the matrix of the repeatable one, and dk, dv before heads share them. wgmma_ordered adds
// dq up there.
static Workspace workspace_attention(const Op *o, bool cuda HD_UNUSED) {
    AttentionShape s = hd_attention_shape(o);
    Workspace w = exactly(s.grad ? s.batch * s.heads * s.seq * 4 : 0);
    if (!strcmp(hd_word(&o->attrs, A_IMPL, ""), "wgmma_ordered")) return exactly(hd_attention_ordered_bytes(&s));
    if (strcmp(hd_word(&o->attrs, A_IMPL, ""), "cudnn")) return w;
    w.good += 1024;
    // a matrix beyond any memory is not asked for, and its size might not be a number here
    const bool thinkable = (double)(s.batch * s.heads * s.seq) * (double)s.seq < 0x1p56;
    if (s.grad && thinkable) w.good += s.batch * s.heads * s.seq * s.seq * 2;
    if (s.grad && s.kv_heads < s.heads) w.good += 4 * s.batch * s.heads * s.seq * s.size;
    return w;
}

// host: a score in f32 for each head and position.
static Workspace workspace_attention_step(const Op *o, bool cuda) {
    return exactly(cuda ? 0 : hd_int(&o->attrs, A_HEADS, 1) * hd_cached_positions(o) * 4);
}

bool hd_ssd_on_cores(const Op *o) {
    const SsdShape s = hd_ssd_shape(o);
    return hd_ssd_suits_cores(&s) && hd_target_arch(o->func->module).arch == 90;
}

// cuda: SsdCoreSpace or SsdSpace. host, in f32: the states that come into chunks; backward also the gradients of
// those that leave them, the scores of chunks and their gradients, db, dc and the parts of da and dd
// (runtime/host/ssd.c).
static Workspace workspace_ssd(const Op *o, bool cuda) {
    const SsdShape s = hd_ssd_shape(o);
    const int64_t chunks = s.batch * s.chunks, states = chunks * s.heads * s.size * s.state;
    const int64_t more = 2 * chunks * s.groups * s.chunk * s.chunk + 2 * s.batch * s.seq * s.groups * s.state +
                         2 * chunks * s.heads;
    if (cuda) return exactly((hd_ssd_on_cores(o) ? hd_ssd_core_space(&s).all : hd_ssd_space(&s).all) * 4);
    return exactly((s.grad ? 2 * states + more : states) * 4);
}

// A loss for each row, for the mean in order.
static Workspace workspace_cross_entropy(const Op *o, bool cuda HD_UNUSED) {
    return exactly(hd_type_rows(o->in[0]->type) * 4);
}

// Positions by index, in integers. host: the first position of each row of the table, and the next of each position.
// cuda, for a sort (see codegen/cuda/templates/embedding_grad.cu): counts and starts by row of the table, rows with
// many positions, positions before and after the sort.
static Workspace workspace_embedding_grad(const Op *o, bool cuda) {
    int64_t rows = hd_table_rows(o), n = hd_type_count(o->in[1]->type);
    return exactly((cuda ? 2 * rows + 2 + n / 16 + 1 + 2 * n : rows + n) * 4);
}

// host: its rows in f32.
static Workspace workspace_top_k(const Op *o, bool cuda) {
    return exactly(cuda ? 0 : hd_type_count(o->in[0]->type) * 4);
}

// host: of each expert its next row, and how many more rows it may have.
static Workspace workspace_dispatch(const Op *o, bool cuda) {
    return exactly(cuda ? 0 : hd_int(&o->attrs, A_EXPERTS, 0) * 8);
}

// One f64 partial sum for each block of each buffer.
static Workspace workspace_grad_norm(const Op *o, bool cuda HD_UNUSED) {
    int64_t n = 0;
    const Attr *b = hd_attr(&o->attrs, A_BUFFERS);
    for (int i = 0; i < b->n; i++)
        n += hd_ceil_div(hd_type_count(hd_symbol_find(o->func->module, b->strs[i])->type), HD_NORM_BLOCK);
    return exactly(n * 8);
}

// Of an optimizer that orthogonalizes or has means of lines (ir/optimizer.h).
static Workspace workspace_update(const Op *o, bool cuda) {
    return exactly(hd_turned_space(o, cuda).all + hd_line_space(o).all);
}

// cuda: the parts that a rank receives, before it adds them up. host: it reads those of the other ranks in place.
static Workspace workspace_exchange(const Op *o, bool cuda) {
    const Symbol *buffer = hd_named(o, A_BUFFER);
    return exactly(cuda && hd_exchanges(o) ? hd_type_bytes(buffer ? buffer->type : o->in[0]->type) : 0);
}

static const struct { OpKind of; Workspace (*rule)(const Op *, bool); } rules[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define workspace(x) .rule = workspace_##x,
#include "ir/ops.def"
};

Workspace hd_workspace(const Op *o, bool cuda) {
    Workspace w = rules[o->kind].rule ? rules[o->kind].rule(o, cuda) : (Workspace){0, 0};
    w.good = hd_align(w.good);
    return w;
}
