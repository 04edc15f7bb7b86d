// Attention in blocks of 64 queries by 64 keys (the online softmax of FlashAttention): no matrix of seq x seq is ever
// stored.
//
// Backward recomputes the probabilities from the log-sum-exp: once for the gradient of the queries, where a thread owns
// a block of queries, and once for those of keys and values, where it owns a block of keys. So no two threads add to
// one place and every sum has one order.
#include "runtime/host/blas.h"
#include "runtime/host/scratch.h"

enum { ROWS = 64, MAX_SIZE = HD_HOST_MAX_HEAD };

typedef struct {
    float q[ROWS * MAX_SIZE], k[ROWS * MAX_SIZE], v[ROWS * MAX_SIZE], o[ROWS * MAX_SIZE], sum[ROWS * MAX_SIZE],
        sum2[ROWS * MAX_SIZE], s[ROWS * ROWS], p[ROWS * ROWS], whole[ROWS * ROWS], slope[ROWS * ROWS];
} AttentionTiles;
static AttentionTiles *tiles(void) { return hd_host_scratch(HD_SCRATCH_ATTENTION, sizeof(AttentionTiles)); }

typedef struct { int64_t first, n; } Block;                  // consecutive positions of one sequence
typedef struct { const float *at; int64_t stride; } Rows; // rows of one head

static Block block_at(int64_t index, int64_t seq) {
    const int64_t first = index * ROWS;
    return (Block){first, seq - first < ROWS ? seq - first : ROWS};
}

static int64_t blocks_of(const HdAttention *t) { return (t->seq + ROWS - 1) / ROWS; }

// f32 is read in place, other dtypes through the buffer.
static Rows load(const HdAttention *t, const void *src, int64_t stride, int64_t batch, int64_t head, Block b,
                 float *buffer) {
    const int64_t start = (batch * t->seq + b.first) * stride + head * t->size;
    if (t->dtype == HD_F32) return (Rows){(const float *)src + start, stride};
    for (int64_t r = 0; r < b.n; r++) hd_load_f32(t->dtype, src, start + r * stride, t->size, buffer + r * t->size);
    return (Rows){buffer, t->size};
}

static void store(const HdAttention *t, void *dst, int64_t stride, int64_t batch, int64_t head, Block b,
                  const float *src) {
    for (int64_t r = 0; r < b.n; r++)
        hd_store_f32(t->dtype, src + r * t->size, t->size, dst,
                     (batch * t->seq + b.first + r) * stride + head * t->size);
}

// d (m x n) = alpha a b + beta d. ta: a is stored k x m; tb: b is stored n x k.
static void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, Rows a, Rows b, float beta,
                    float *d, int64_t stride) {
    hd_host_product(&(HostProduct){ta, tb, m, n, k, a.stride, b.stride, stride}, alpha, a.at, b.at, beta, d);
}

// The first key that a query sees. It never decreases from query to query. `starts`: of documents, the sequence's.
static int64_t first_key(const HdAttention *t, const int32_t *starts, int64_t query) {
    const int64_t first = t->window && query >= t->window ? query + 1 - t->window : 0;
    return starts && starts[query] > first ? starts[query] : first;
}

static const int32_t *of_sequence(const HdAttention *t, const int32_t *starts, int64_t batch) {
    return starts ? starts + batch * t->seq : NULL;
}

// Before which block the queries end that see a key of this block. The first of them are in that block when causal.
static int64_t blocks_that_see(const HdAttention *t, const int32_t *starts, Block k) {
    int64_t n = t->causal ? k.first / ROWS + 1 : blocks_of(t);
    while (n < blocks_of(t) && first_key(t, starts, n * ROWS) < k.first + k.n) n++;
    return n;
}

// s = scale q k^T, bent by softcap, with -infinity where a query must not look.
static void scores(const HdAttention *t, const int32_t *starts, Block q, Block k, Rows qx, Rows kx, float *s) {
    product(false, true, q.n, k.n, t->size, t->scale, qx, kx, 0, s, ROWS);
    for (int64_t i = 0; t->softcap > 0 && i < q.n; i++)
        for (int64_t j = 0; j < k.n; j++) s[i * ROWS + j] = t->softcap * tanhf(s[i * ROWS + j] / t->softcap);
    for (int64_t i = 0; t->causal && i < q.n; i++)
        for (int64_t j = q.first + i + 1 > k.first ? q.first + i + 1 - k.first : 0; j < k.n; j++)
            s[i * ROWS + j] = -INFINITY;
    for (int64_t i = 0; i < q.n; i++) {
        const int64_t first = first_key(t, starts, q.first + i);
        for (int64_t j = 0; j < k.n && k.first + j < first; j++) s[i * ROWS + j] = -INFINITY;
    }
}

// Dropout of the probabilities p of queries and keys, and of as many numbers of another matrix, which may be NULL: they
// become 0 or are multiplied by the factor. The elements of a sequence are numbered by head, query and key.
static void drop(const HdAttention *t, const int32_t *key, int64_t batch, int64_t head, Block q, Block k, float *p,
                 float *other) {
    uint32_t word[4];
    for (int64_t i = 0; t->each && i < q.n; i++) {
        const int64_t of_all = head + (t->part ? key[5] * t->heads : 0),
                      row = (batch % t->each * t->heads + of_all) * t->seq + q.first + i;
        for (int64_t j = 0; j < k.n; j++) {
            const uint64_t at = (uint64_t)(row * t->seq + k.first + j);
            if (!j || at % 4 == 0) hd_dropout_words(key, (uint64_t)(batch / t->each), at / 4, word);
            const bool keeps = word[at % 4] >= t->threshold;
            p[i * ROWS + j] = keeps ? p[i * ROWS + j] * t->factor : 0;
            if (other) other[i * ROWS + j] = keeps ? other[i * ROWS + j] * t->factor : 0;
        }
    }
}

static void forward_block(const HdAttention *t, int64_t batch, int64_t head, Block q, const void *qp, const void *kp,
                          const void *vp, void *op, float *lse, const int32_t *starts, const float *sink,
                          const int32_t *key) {
    AttentionTiles *x = tiles();
    const int64_t kv = head / (t->heads / t->kv_heads);
    float top[ROWS], total[ROWS];
    for (int64_t i = 0; i < q.n; i++) { top[i] = sink ? sink[head] : -INFINITY; total[i] = sink ? 1 : 0; }
    memset(x->sum, 0, (size_t)(q.n * t->size) * sizeof(float));
    const Rows qx = load(t, qp, t->q_stride, batch, head, q, x->q);
    for (int64_t b = first_key(t, starts, q.first) / ROWS; b < blocks_of(t); b++) {
        const Block k = block_at(b, t->seq);
        if (t->causal && k.first >= q.first + q.n) break;
        const Rows kx = load(t, kp, t->k_stride, batch, kv, k, x->k), vx = load(t, vp, t->v_stride, batch, kv, k, x->v);
        scores(t, starts, q, k, qx, kx, x->s);
        for (int64_t i = 0; i < q.n; i++) {
            float *s = x->s + i * ROWS;
            const float m = hd_row_max(s, k.n), now = (top[i] > m || top[i] != top[i]) ? top[i] : m,
                        base = now == -INFINITY ? 0 : now, // a row that sees no key yet
                        shrink = hd_exp(top[i] - base);
            for (int64_t j = 0; j < k.n; j++) s[j] = hd_exp(s[j] - base);
            total[i] = total[i] * shrink + hd_row_sum(s, k.n);
            top[i] = now;
            for (int64_t c = 0; c < t->size; c++) x->sum[i * t->size + c] *= shrink;
        }
        drop(t, key, batch, head, q, k, x->s, NULL);
        product(false, false, q.n, t->size, k.n, 1, (Rows){x->s, ROWS}, vx, 1, x->sum, t->size);
    }
    for (int64_t i = 0; i < q.n; i++) {
        for (int64_t c = 0; c < t->size; c++) x->sum[i * t->size + c] /= total[i];
        lse[(batch * t->heads + head) * t->seq + q.first + i] = top[i] + logf(total[i]);
    }
    store(t, op, t->o_stride, batch, head, q, x->sum);
}

void hd_host_attention(const HdAttention *t, const void *q, const void *k, const void *v, void *o, float *lse,
                       const int32_t *starts, const float *sink, const int32_t *key, void *workspace) {
    (void)workspace;
    const int64_t n = blocks_of(t), work = t->batch * t->heads * n;
    hd_host_blas_start();
#pragma omp parallel for schedule(static, 1) if (work > 1)
    for (int64_t i = 0; i < work; i++)
        forward_block(t, i / (t->heads * n), i / n % t->heads, block_at(i % n, t->seq), q, k, v, o, lse,
                      of_sequence(t, starts, i / (t->heads * n)), sink, key);
}

typedef struct {
    const HdAttention *t;
    const void *dout, *q, *k, *v, *o;
    const float *lse;
    void *dq, *dk, *dv;
    const int32_t *starts, *key; // of all sequences
} Backward;

typedef struct { Rows q, dout; float delta[ROWS]; } Queries; // delta[i]: sum(dout * o) of row i

static void load_queries(const Backward *w, int64_t batch, int64_t head, Block q, Queries *out) {
    const HdAttention *t = w->t;
    AttentionTiles *x = tiles();
    const Rows o = load(t, w->o, t->o_stride, batch, head, q, x->q); // in q's buffer, temporarily
    out->dout = load(t, w->dout, t->o_stride, batch, head, q, x->o);
    for (int64_t i = 0; i < q.n; i++)
        out->delta[i] = hd_row_dot(out->dout.at + i * out->dout.stride, o.at + i * o.stride, t->size);
    out->q = load(t, w->q, t->q_stride, batch, head, q, x->q);
}

// x->p = probabilities after dropout; with p before it, x->s = scale p (dropout(dout v^T) - delta), times the slope of
// softcap: the gradient of q k^T.
static void probabilities(const Backward *w, int64_t batch, int64_t head, Block q, Block k, const Queries *qs, Rows kx,
                          Rows vx) {
    const HdAttention *t = w->t;
    AttentionTiles *x = tiles();
    const float *lse = w->lse + (batch * t->heads + head) * t->seq + q.first;
    scores(t, of_sequence(t, w->starts, batch), q, k, qs->q, kx, x->p);
    product(false, true, q.n, k.n, t->size, 1, qs->dout, vx, 0, x->s, ROWS);
    const float *p = x->p;
    for (int64_t i = 0; t->softcap > 0 && i < q.n; i++) // what is masked has no slope, and p = 0
        for (int64_t j = 0; j < k.n; j++) {
            const float bent = x->p[i * ROWS + j] == -INFINITY ? 0 : x->p[i * ROWS + j] / t->softcap;
            x->slope[i * ROWS + j] = 1 - bent * bent;
        }
    for (int64_t i = 0; i < q.n; i++)
        for (int64_t j = 0; j < k.n; j++) x->p[i * ROWS + j] = hd_exp(x->p[i * ROWS + j] - lse[i]);
    if (t->each) {
        p = memcpy(x->whole, x->p, sizeof x->whole);
        drop(t, w->key, batch, head, q, k, x->p, x->s);
    }
    for (int64_t i = 0; i < q.n; i++)
        for (int64_t j = 0; j < k.n; j++)
            x->s[i * ROWS + j] = p[i * ROWS + j] * (x->s[i * ROWS + j] - qs->delta[i]) * t->scale;
    for (int64_t i = 0; t->softcap > 0 && i < q.n; i++)
        for (int64_t j = 0; j < k.n; j++) x->s[i * ROWS + j] *= x->slope[i * ROWS + j];
}

static void query_grad(const Backward *w, int64_t batch, int64_t head, Block q) {
    const HdAttention *t = w->t;
    AttentionTiles *x = tiles();
    const int64_t kv = head / (t->heads / t->kv_heads);
    const int32_t *starts = of_sequence(t, w->starts, batch);
    Queries qs;
    memset(x->sum, 0, (size_t)(q.n * t->size) * sizeof(float));
    load_queries(w, batch, head, q, &qs);
    for (int64_t b = first_key(t, starts, q.first) / ROWS; b < blocks_of(t); b++) {
        const Block k = block_at(b, t->seq);
        if (t->causal && k.first >= q.first + q.n) break;
        const Rows kx = load(t, w->k, t->k_stride, batch, kv, k, x->k),
                   vx = load(t, w->v, t->v_stride, batch, kv, k, x->v);
        probabilities(w, batch, head, q, k, &qs, kx, vx);
        product(false, false, q.n, t->size, k.n, 1, (Rows){x->s, ROWS}, kx, 1, x->sum, t->size);
    }
    store(t, w->dq, t->q_stride, batch, head, q, x->sum);
}

static void key_grad(const Backward *w, int64_t batch, int64_t kv, Block k) {
    const HdAttention *t = w->t;
    AttentionTiles *x = tiles();
    const int64_t group = t->heads / t->kv_heads, end = blocks_that_see(t, of_sequence(t, w->starts, batch), k);
    Queries qs;
    memset(x->sum, 0, (size_t)(k.n * t->size) * sizeof(float));
    memset(x->sum2, 0, (size_t)(k.n * t->size) * sizeof(float));
    const Rows kx = load(t, w->k, t->k_stride, batch, kv, k, x->k), vx = load(t, w->v, t->v_stride, batch, kv, k, x->v);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t b = t->causal ? k.first / ROWS : 0; b < end; b++) {
            const Block q = block_at(b, t->seq);
            load_queries(w, batch, head, q, &qs);
            probabilities(w, batch, head, q, k, &qs, kx, vx);
            product(true, false, k.n, t->size, q.n, 1, (Rows){x->s, ROWS}, qs.q, 1, x->sum, t->size);
            product(true, false, k.n, t->size, q.n, 1, (Rows){x->p, ROWS}, qs.dout, 1, x->sum2, t->size);
        }
    store(t, w->dk, t->k_stride, batch, kv, k, x->sum);
    store(t, w->dv, t->v_stride, batch, kv, k, x->sum2);
}

void hd_host_attention_grad(const HdAttention *t, const void *dout, const void *q, const void *k, const void *v,
                            const void *o, const float *lse, void *dq, void *dk, void *dv, const int32_t *starts,
                            const int32_t *key, void *workspace) {
    (void)workspace;
    const Backward w = {t, dout, q, k, v, o, lse, dq, dk, dv, starts, key};
    const int64_t n = blocks_of(t), queries = t->batch * t->heads * n, keys = t->batch * t->kv_heads * n;
    hd_host_blas_start();
#pragma omp parallel if (queries > 1)
    {
#pragma omp for schedule(static, 1) nowait
        for (int64_t i = 0; i < queries; i++)
            query_grad(&w, i / (t->heads * n), i / n % t->heads, block_at(i % n, t->seq));
#pragma omp for schedule(static, 1)
        for (int64_t i = 0; i < keys; i++)
            key_grad(&w, i / (t->kv_heads * n), i / n % t->kv_heads, block_at(i % n, t->seq));
    }
}
