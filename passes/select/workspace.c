// Workspace formulas. A comment at each says what the bytes are for; all results are multiples of 256 bytes, so that
// workspaces can be placed one after another.
#include "passes/select/workspace.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

enum { CUBLASLT_BYTES = 32 << 20 };

static int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

// cuda: the workspace offered to cuBLASLt, whose documentation asks for 32 MiB on Hopper. host: none, since narrower
// factors are converted a tile at a time in memory of each thread.
static int64_t gemm_bytes(bool cuda) { return cuda ? CUBLASLT_BYTES : 0; }

// Partial sums of a kernel's column results: one f32 row for each HD_PARTIAL_ROWS of the iteration space (see
// passes/fuse/fuse.c).
static int64_t launch_bytes(const Op *o) {
    const Func *k = hd_func_find(o->func->module, hd_word(&o->attrs, A_KERNEL, ""));
    const Op *ret = k ? hd_return(k) : NULL;
    int64_t n = 0, rows = k ? hd_int(&k->attrs, A_ROWS, 1) : 1, cols = k ? hd_int(&k->attrs, A_COLS, 1) : 1;
    for (int i = 0; ret && i < ret->n_in; i++) {
        if (hd_result_class(ret->in[i]) == 'c' && hd_type_count(ret->in[i]->type) == cols &&
            hd_kind(&k->attrs) == KIND_ROWS)
            n += blocks(rows, HD_PARTIAL_ROWS) * cols * 4;
    }
    return n;
}

// rowsum(dout * o), f32 [batch, heads, seq]; the forward needs none.
static int64_t attention_bytes(const Op *o) {
    AttentionShape s = hd_attention_shape(o);
    return s.grad ? s.batch * s.heads * s.seq * 4 : 0;
}

int64_t hd_workspace_cudnn(const Op *o) {
    AttentionShape s = hd_attention_shape(o);
    if (!s.grad) return 1024;
    // The sums above, the bytes that every plan needs, the matrix of the repeatable backward, and dk and dv before
    // heads share them.
    int64_t matrix = s.batch * s.heads * s.seq * s.seq * 2,
            shared = s.kv_heads < s.heads ? 4 * s.batch * s.heads * s.seq * s.size : 0;
    return hd_round_up(attention_bytes(o) + 1024 + matrix + shared, 256);
}

// Positions by index, in integers. host: the first position of each row of the table, and the next of each position.
// cuda, for a sort (see codegen/cuda/templates/embedding_grad.cu): counts and starts by row of the table, rows with
// many positions, positions before and after the sort.
static int64_t embedding_grad_bytes(const Op *o, bool cuda) {
    int64_t rows = hd_table_rows(o), n = hd_type_count(o->in[1]->type);
    return (cuda ? 2 * rows + 2 + n / 16 + 1 + 2 * n : rows + n) * 4;
}

static int64_t grad_norm_bytes(const Op *o) { // one f64 partial sum for each block of each buffer
    int64_t n = 0;
    const Attr *b = hd_attr(&o->attrs, A_BUFFERS);
    for (int i = 0; i < b->n; i++)
        n += blocks(hd_type_count(hd_symbol_find(o->func->module, b->strs[i])->type), HD_NORM_BLOCK);
    return n * 8;
}

int64_t hd_workspace_bytes(const Op *o, bool cuda) {
    int64_t n = 0;
    switch (o->kind) {
    case OP_GEMM: n = gemm_bytes(cuda); break;
    case OP_LAUNCH: n = launch_bytes(o); break;
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD: n = attention_bytes(o); break;
    case OP_CROSS_ENTROPY:
    case OP_CROSS_ENTROPY_GRAD:
        n = hd_type_rows(o->in[0]->type) * 4;
        break; // a loss for each row, for the mean in order
    case OP_EMBEDDING_GRAD:
        n = embedding_grad_bytes(o, cuda);
        break;
    case OP_GRAD_NORM: n = grad_norm_bytes(o); break;
    default: break;
    }
    return hd_round_up(n, 256);
}
