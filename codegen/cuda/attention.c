// Attention: a call of the runtime with a descriptor. The plan says what runs it, and what does where cuDNN is missing
// or refuses: templates/attention.cu with attention_backward.cu (tensor_cores), attention_forward.cu and
// attention_hopper.cu (wgmma), attention_ordered.cu (wgmma_ordered) or attention_any.cu (generated), each after
// attention_seen.cu.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/machine/arch.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include <string.h>

enum { QUERIES = HD_ATTENTION_QUERIES, KEYS = 64 }; // KEYS: rows of a block of dkv

typedef struct { const char *suffix; int64_t gx, gy, gz; unsigned block; int64_t shared; } KernelShape;

// The launches of the tensor core kernels. The kernels derive the same sizes themselves and compare them with these.
static const char *fast_parts(Emit *e, const AttentionShape *s, KernelShape part[4]) {
    const int64_t row = 2 * (s->size + 8), tile = hd_attention_tile(s);
    const unsigned threads = s->size <= 128 ? 128 : 256;     // of dkv
    const int64_t of_query = 4 * (s->documents ? 6 : 4), of_pairs = s->size <= 128 ? 0 : 4 * 32 * 16 * 4; // of dkv
    part[0] = (KernelShape){"forward", hd_ceil_div(s->seq, QUERIES),       s->heads,
                     s->batch,  s->size <= 64 ? 128 : 256, (QUERIES + 4 * tile) * row};
    part[1] = (KernelShape){"delta", hd_ceil_div(s->batch * s->seq * s->heads, 8), 1, 1, 256, 0};
    part[2] = (KernelShape){"dkv", hd_ceil_div(s->seq, KEYS), s->kv_heads, s->batch, threads,
                            (2 * KEYS + 4 * tile) * row + of_query * tile + of_pairs};
    part[3] = (KernelShape){"dq", hd_ceil_div(s->seq, QUERIES), s->heads, s->batch, 256, hd_attention_shared(s, true)};
    return hd_sprintf(e->a, "#define ATT_LAUNCH {%d, %d, %u, %u, %lld, %lld, %lld}\n", QUERIES, KEYS, part[0].block,
                      part[2].block, ll(part[0].shared), ll(part[2].shared), ll(part[3].shared));
}

// Forward on wgmma: queries of an item, 64 for each team of 128 threads, and keys of a tile.
static int64_t forward_queries(const AttentionShape *s) { return s->size <= 96 ? 192 : 128; }
static int64_t forward_keys(const AttentionShape *s) {
    return s->size == 64 || s->size == 128 ? 128 : s->size <= 192 ? 96 : 64;
}

// A block takes one item after the other.
static const char *forward_parts(Emit *e, const AttentionShape *s, KernelShape part[4]) {
    enum { SMS = 132, STEPS = 2 }; // SMS: of an H100 or H200
    const int64_t rows = forward_queries(s), keys = forward_keys(s);
    const int64_t items = s->batch * s->heads * hd_ceil_div(s->seq, rows);
    const int64_t shared = (rows + 2 * STEPS * keys) * 128 * hd_ceil_div(s->size, 64) + 8 * (2 + 4 * STEPS) + 1024;
    part[0] = (KernelShape){"forward", items < SMS ? items : SMS, 1, 1, (unsigned)(128 + 2 * rows), shared};
    return hd_sprintf(e->a, "#define ATT_LAUNCH {%lld, %lld, %lld}\n", ll(rows), ll(keys), ll(shared));
}

// Backward alone, two kernels: dq leaves what dk and dv need. Blocks of all heads start before the next, shorter ones:
// in the order of heads the last head's longest would start last, and most multiprocessors would wait for them.
static const char *wgmma_parts(Emit *e, const AttentionShape *s, KernelShape part[4]) {
    enum { ROWS = 128, THREADS = 384, REST = 256 + 1024 }; // REST: barriers, alignment
    const bool small = s->size <= 64, large = s->size > 128;
    const int64_t row = hd_ceil_div(s->size, 64) * 128, numbers = s->documents ? 12 : 8, keys = large ? 64 : ROWS;
    const int64_t tile = small ? 128 : 64, stages = s->size <= 192 ? 3 : 2, q_tile = large ? 32 : tile;
    const int64_t of_dkv = 2 * keys * row + stages * tile * (2 * row + numbers) + (large ? keys * tile * 4 : 0) + REST;
    const int64_t of_dq = 2 * ROWS * row + 3 * q_tile * (2 * row + numbers) + REST;
    part[1] = (KernelShape){"dq", s->heads, hd_ceil_div(s->seq, ROWS), s->batch, THREADS, of_dq};
    part[2] = (KernelShape){"dkv", s->kv_heads, hd_ceil_div(s->seq, keys), s->batch, THREADS, of_dkv};
    part[3] = (KernelShape){.suffix = NULL};
    return hd_sprintf(e->a, "#define ATT_LAUNCH {%d, %lld, %d, %lld, %lld}\n", ROWS, ll(keys), THREADS, ll(of_dq),
                      ll(of_dkv));
}

// Backward alone, two kernels: one of the row sums and counters, one of the gradients.
static const char *ordered_parts(Emit *e, const AttentionShape *s, KernelShape part[4]) {
    // SMS: of an H100 or H200; a block takes items until none is left. BARRIERS: 8 bytes each, with the items' numbers
    enum { ROWS = 128, SMS = 132, STAGES = 2, BARRIERS = 20 };
    const int64_t tile = hd_attention_ordered_tile(s), tiles = hd_ceil_div(s->seq, tile);
    const int64_t items = s->batch * s->kv_heads * hd_ceil_div(s->seq, ROWS);
    const int64_t keys = 2 * 2 * ROWS * s->size * 2, numbers = s->documents ? 12 : 8;
    const int64_t stages = STAGES * (2 * tile * s->size * 2 + numbers * tile);
    const int64_t shared = keys + stages + 2 * tile * ROWS * 2 + 8 * BARRIERS + 1024;
    part[1] = (KernelShape){"begin", s->heads, tiles, s->batch, 256, 0};
    part[2] = (KernelShape){"all", items < SMS ? items : SMS, 1, 1, 384, shared};
    part[3] = (KernelShape){.suffix = NULL};
    return hd_sprintf(e->a, "#define ATT_LAUNCH {%lld, %lld, %lld}\n", ll(tile), ll(shared),
                      ll(hd_attention_ordered_bytes(s)));
}

static const char *any_parts(Emit *e, const AttentionShape *s, KernelShape part[4]) {
    int64_t shared = hd_attention_shared(s, false);
    part[0] = (KernelShape){"forward", hd_ceil_div(s->seq, 8), s->heads, s->batch, 256, shared};
    part[1] = (KernelShape){"delta", hd_ceil_div(s->batch * s->seq * s->heads, 8), 1, 1, 256, 0};
    part[2] = (KernelShape){"dkv", hd_ceil_div(s->seq, 8), s->kv_heads, s->batch, 256, shared};
    part[3] = (KernelShape){"dq", hd_ceil_div(s->seq, 8), s->heads, s->batch, 256, shared};
    return hd_sprintf(e->a, "#define ATT_LAUNCH %lld\n", ll(shared));
}

static const char *defines(Emit *e, const Op *o, const AttentionShape *s, bool fast, const char *base) {
    Out t = hd_out(e->a);
    static const char *const part[] = {"FWD", "DELTA", "DKV", "DQ", "BEGIN", "ALL"},
                      *const word[] = {"forward", "delta", "dkv", "dq", "begin", "all"};
    for (int i = 0; i < 6; i++) hd_printf(&t, "#define ATT_%s %s_%s\n", part[i], base, word[i]);
    hd_printf(&t,
              "#define ATT_B %lld\n#define ATT_T %lld\n#define ATT_H %lld\n#define ATT_KV %lld\n#define ATT_D %lld\n",
              ll(s->batch), ll(s->seq), ll(s->heads), ll(s->kv_heads), ll(s->size));
    hd_printf(&t, "#define ATT_QS %lld\n#define ATT_KS %lld\n#define ATT_VS %lld\n#define ATT_OS %lld\n",
              ll(s->q_stride), ll(s->kv_stride), ll(s->kv_stride), ll(s->o_stride));
    hd_printf(&t, "#define ATT_CAUSAL %d\n#define ATT_WINDOW %lld\n#define ATT_DOCUMENTS %d\n", s->causal,
              ll(s->window < s->seq ? s->window : 0), s->documents);
    hd_printf(&t, "#define ATT_SCALE %s\n", hd_emit_number(e->a, (double)(float)s->scale, false));
    if (s->softcap > 0) hd_printf(&t, "#define ATT_CAP %s\n", hd_emit_number(e->a, (double)(float)s->softcap, false));
    if (s->sink) hd_puts(&t, "#define ATT_SINK 1\n");
    if (hd_draws(o))
        hd_printf(&t, "#define ATT_EACH %lld\n#define ATT_FIRST %s\n#define ATT_DROP 0x%08xu\n#define ATT_BY %s\n",
                  ll(s->batch / hd_int(&o->attrs, A_BATCH, 1)),
                  hd_has(&o->attrs, A_OVER) ? "(key[5] * ATT_H)" : "0", hd_dropout_threshold(o),
                  hd_emit_number(e->a, hd_dropout_factor(o), s->dtype == TY_F64));
    if (fast && s->dtype == TY_F16) hd_puts(&t, "#define ATT_F16 1\n");
    if (!fast) hd_printf(&t, "#define ATT_ELEM %s\n", hd_cuda_type(s->dtype));
    return t.text;
}

typedef struct {
    const char *name, *texts; // of the kernels; templates
    const char *(*parts)(Emit *, const AttentionShape *, KernelShape[4]);
    bool fast, wgmma; // on some kind of tensor cores; on wgmma
} Kernels;
static const Kernels *kernels_of(const Op *o) {
    static const Kernels
        ordered = {"_ordered", "attention_wgmma attention_ordered", ordered_parts, true, true},
        backward = {"_hopper", "attention_wgmma attention_hopper", wgmma_parts, true, true},
        forward = {"_hopper", "attention_wgmma attention_forward", forward_parts, true, true},
        cores = {"", "attention attention_backward", fast_parts, true, false},
        any = {"_any", "attention_any", any_parts, false, false};
    if (hd_attention_on(o, "wgmma_ordered")) return &ordered;
    if (hd_attention_on(o, "wgmma")) return hd_is_backward(o) ? &backward : &forward;
    return hd_attention_on(o, "tensor_cores") ? &cores : &any;
}

const char *hd_cuda_attention_fields(Emit *e, const Op *o) {
    AttentionShape s = hd_attention_shape(o);
    bool cudnn = !strcmp(hd_word(&o->attrs, A_IMPL, "generated"), "cudnn");
    if (cudnn && !hd_has(&o->attrs, A_ELSE)) return ", .impl = HD_ATTENTION_CUDNN, .kernel = {-1, -1, -1}";
    const Kernels *k = kernels_of(o);
    int64_t shared = hd_attention_shared(&s, k->fast), most = hd_shared_bytes(e->m);
    if (shared > most && !k->wgmma)
        hd_emit_error(e, o->span,
                      "attention heads of %lld values in %s need %lld bytes of shared memory and a block has %lld: use "
                      "more heads",
                      ll(s.size), hd_dtype_text(s.dtype), ll(shared), ll(most));
    const char *base = hd_sprintf(e->a, "attention%s_%s_%lldx%lldx%lldx%lldx%lld%s%s",
                                  k->name, hd_dtype_text(s.dtype), ll(s.batch), ll(s.seq), ll(s.heads),
                                  ll(s.kv_heads), ll(s.size), s.packed ? "_packed" : "", s.causal ? "_causal" : "");
    if (s.window < s.seq) base = hd_sprintf(e->a, "%s_window%lld", base, ll(s.window));
    if (s.documents) base = hd_sprintf(e->a, "%s_documents", base);
    if (s.softcap > 0) base = hd_sprintf(e->a, "%s_softcap", base);
    if (s.sink) base = hd_sprintf(e->a, "%s_sink", base);
    if (hd_draws(o)) base = hd_sprintf(e->a, "%s_dropout%s", base, hd_has(&o->attrs, A_OVER) ? "_part" : "");
    base = hd_cuda_name(e, base,
                        hd_sprintf(e->a, "%s %s %s %lld", hd_emit_number(e->a, hd_float(&o->attrs, A_SCALE, 0), false),
                                   hd_emit_number(e->a, s.softcap, false),
                                   hd_emit_number(e->a, hd_float(&o->attrs, A_P, 0), true),
                                   ll(hd_int(&o->attrs, A_BATCH, 0))));
    KernelShape part[4];
    const char *launch = k->parts(e, &s, part), *names = hd_sprintf(e->a, "attention_seen %s", k->texts);
    const char *text = hd_cuda_template(e, names, hd_sprintf(e->a, "%s%s", defines(e, o, &s, k->fast, base), launch));
    Out kernels = hd_out(e->a), grids = hd_out(e->a);
    for (int i = s.grad ? 1 : 0; i < (s.grad ? 4 : 1); i++) {
        const KernelShape *p = &part[i];
        const char *comma = i > 1 ? ", " : "";
        if (!p->suffix) {
            hd_printf(&kernels, "%s-1", comma);
            continue;
        }
        hd_printf(&kernels, "%s%d", comma,
                  hd_cuda_kernel(e, hd_sprintf(e->a, "%s_%s", base, p->suffix), text, (int)p->shared, true));
        hd_printf(&grids, "%s{%lld, %lld, %lld, %u, %lld}", comma, ll(p->gx), ll(p->gy), ll(p->gz), p->block,
                  ll(p->shared));
    }
    const char *boxes = !s.grad && k->wgmma ? hd_sprintf(e->a, ", .boxes = {%lld, %lld}", ll(forward_queries(&s)),
                                                         ll(forward_keys(&s))) : "";
    return hd_sprintf(e->a, "%s, .impl = %s, .kernel = {%s%s}, .grid = {%s}", boxes,
                      cudnn ? "HD_ATTENTION_CUDNN" : "HD_ATTENTION_KERNEL", kernels.text, s.grad ? "" : ", -1, -1",
                      grids.text);
}

static const char *list(Emit *e, int n, const int64_t *at) {
    Out t = hd_out(e->a);
    for (int i = 0; i < n; i++) hd_printf(&t, ", %s", hd_cuda_device(e, at[i]));
    return t.text;
}

static const char *workspace(Emit *e, const Op *o) {
    int64_t at = hd_emit_workspace(e, o);
    return at < 0 ? "0" : hd_cuda_device(e, at);
}

void hd_cuda_print_attention(Emit *e, const Op *o) {
    int64_t at[9];
    int n = hd_emit_attention_operands(e, o, at);
    const char *rest[3] = {"0", "0", "0"};
    const Value *of[3] = {hd_attention_starts(o), hd_attention_sink(o), hd_key(o)};
    for (int i = 0; i < 3; i++)
        if (of[i]) rest[i] = hd_cuda_device(e, hd_emit_value(e, of[i]));
    const char *sink = hd_is_backward(o) ? "" : hd_sprintf(e->a, "%s, ", rest[1]);
    hd_emit_line(e, o, "hd_cuda_attention%s(x, %d, &attentions[%d]%s, %s, %s%s, %s);",
                 hd_is_backward(o) ? "_grad" : "", hd_emit_stream(e, o), hd_emit_attention(e, o),
                 list(e, n, at), rest[0], sink, rest[2], workspace(e, o));
}
