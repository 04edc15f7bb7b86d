// See shapes.h.
#include "ir/shapes.h"
#include "ir/base/ints.h"
#include <math.h>
#include <string.h>

// As many operations as one product of all rows: how many rows a group has is known on the device alone.
static Product grouped(const Op *o) {
    const Type *a = o->in[0]->type, *b = o->in[1]->type;
    if (hd_is_backward(o))
        return (Product){.batches = 1, .m = hd_type_cols(a), .n = hd_type_cols(b), .k = hd_type_rows(a),
                         .b_k = hd_type_rows(b), .ta = true};
    const bool tb = hd_has(&o->attrs, A_TB);
    const int64_t last = hd_type_cols(b), before = b->rank > 1 ? b->dim[b->rank - 2] : 0;
    const int source = hd_operand_of(o, ROLE_SOURCE);
    const int64_t rows = source < 0 ? hd_type_rows(a) : hd_type_count(o->in[source]->type);
    return (Product){.batches = 1, .m = rows, .n = tb ? before : last,
                     .k = hd_type_cols(a), .b_k = tb ? last : before, .tb = tb};
}

Product hd_product(const Op *o) {
    if (hd_operand_of(o, ROLE_COUNTS) >= 0) return grouped(o);
    const Type *a = o->in[0]->type, *b = o->in[1]->type;
    Product p = {
        .batches = hd_int(&o->attrs, A_BATCHES, 1), .ta = hd_has(&o->attrs, A_TA), .tb = hd_has(&o->attrs, A_TB)};
    int64_t a_rows, b_rows, a_cols = hd_type_cols(a), b_cols = hd_type_cols(b);
    if (o->kind == OP_BMM) {
        for (int i = 0; i < a->rank - 2; i++) p.batches *= a->dim[i];
        a_rows = a->dim[a->rank - 2], b_rows = b->dim[b->rank - 2];
    } else {
        a_rows = hd_type_rows(a) / p.batches, b_rows = hd_type_rows(b) / p.batches;
    }
    p.m = p.ta ? a_cols : a_rows;
    p.k = p.ta ? a_rows : a_cols;
    p.n = p.tb ? b_rows : b_cols;
    p.b_k = p.tb ? b_cols : b_rows;
    return p;
}

bool hd_scales_of_rows(const Op *o) {
    const Type *a = o->in[hd_operand_of(o, ROLE_SCALE_A)]->type, *b = o->in[hd_operand_of(o, ROLE_SCALE_B)]->type;
    return !hd_has(&o->attrs, A_BLOCKS) && hd_type_count(a) == hd_type_rows(o->in[0]->type) &&
           hd_type_count(b) == hd_type_rows(o->in[1]->type);
}

// A row of scales of squares starts at a multiple of 16 bytes.
Blocks hd_blocks(const Type *x, bool squares, bool across) {
    Blocks b = {.rows = hd_type_rows(x), .cols = hd_type_cols(x), .squares = squares, .across = across};
    const int64_t n = across ? b.rows : b.cols;
    b.scale_rows = squares ? b.rows / HD_BLOCK : n / HD_BLOCK;
    b.scale_cols = squares ? hd_round_up(n / HD_BLOCK, 4) : across ? b.cols : b.rows;
    return b;
}

Blocks hd_quantized_blocks(const Op *o) {
    return hd_blocks(o->in[0]->type, hd_has(&o->attrs, A_SQUARES), hd_has(&o->attrs, A_ACROSS));
}

static bool has_scales_of(const Type *scale, Blocks b) {
    return scale->rank == 2 && scale->dim[0] == b.scale_rows && scale->dim[1] == b.scale_cols;
}

bool hd_scales_of_squares(const Op *o) {
    const Type *scale = o->in[hd_operand_of(o, ROLE_SCALE_B)]->type;
    return hd_has(&o->attrs, A_BLOCKS) && has_scales_of(scale, hd_blocks(o->in[1]->type, true, false));
}

unsigned hd_reduced_axes(const Op *o) {
    const Type *in = o->in[0]->type, *out = o->out[0]->type;
    const Attr *list = hd_attr(&o->attrs, A_AXES);
    unsigned axes = 0;
    for (int i = 0; list && i < list->n; i++) axes |= 1u << list->ints[i];
    for (int i = 0; o->kind == OP_SUM_TO && i < in->rank; i++) {
        int to = i - (in->rank - out->rank);
        if (to < 0 || (out->dim[to] == 1 && in->dim[i] != 1)) axes |= 1u << i;
    }
    return axes;
}

void hd_strides(const Type *t, int64_t *stride) {
    int64_t s = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= t->dim[i];
    }
}

int64_t hd_table_rows(const Op *o) { return o->n_out ? o->out[0]->type->dim[0] : hd_int(&o->attrs, A_ROWS, 0); }

static int64_t indexed_table(const Op *o) { return o->in[0]->type->rank ? o->in[0]->type->dim[0] : 0; }
static int64_t indexed_taken(const Op *o) { return hd_type_rows(o->in[0]->type); }
static int64_t indexed_rows(const Op *o) { return hd_table_rows(o); }
static int64_t indexed_cached(const Op *o) { return hd_cached_positions(o); }
static int64_t indexed_logits(const Op *o) { return hd_type_cols(o->in[0]->type); }

int64_t hd_index_parts(const Op *o) {
    const bool parts = hd_has(&o->attrs, A_PARTS) || o->kind == OP_LOSS_PART || o->kind == OP_LOSS_PART_GRAD;
    return parts && o->n_in > 1 && o->in[1]->type->rank ? o->in[1]->type->dim[0] : 1;
}

int64_t hd_indexed(const Op *o) {
    static const struct { OpKind of; int64_t (*rule)(const Op *); } rules[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define indexes(x) .rule = indexed_##x,
#include "ir/ops.def"
    };
    if (hd_has(&o->attrs, A_PARTS)) return -1; // rows that no part has are 0
    return rules[o->kind].rule ? rules[o->kind].rule(o) : -1;
}

StepParts hd_step_parts(const Op *o) {
    const int64_t heads = hd_int(&o->attrs, A_HEADS, 1), kv = hd_int(&o->attrs, A_KV_HEADS, heads),
                  row = hd_type_cols(o->in[0]->type);
    if (!hd_has(&o->attrs, A_PACKED)) return (StepParts){heads, kv, row / heads, {0}, {0, 2, 3}};
    const int64_t size = row / (heads + 2 * kv);
    return (StepParts){heads, kv, size, {0, heads * size, (heads + kv) * size}, {0}};
}

int64_t hd_cached_positions(const Op *o) {
    const Symbol *keys = hd_named(o, A_KEYS);
    const StepParts p = hd_step_parts(o);
    const int64_t cols = p.kv_heads * p.size;
    return keys && keys->type && cols ? hd_type_count(keys->type) / cols : 0;
}

int64_t hd_loss_ignored(const Op *o) { return hd_int(&o->attrs, A_IGNORE, -1); }

Value *hd_loss_weights(const Op *o) {
    const int at = hd_is_backward(o) ? 3 : 2;
    return hd_op_is(o, TRAIT_LOSS) && o->n_in > at ? o->in[at] : NULL;
}

int hd_attention_operands(const Op *o) {
    return (hd_has(&o->attrs, A_PACKED) ? 1 : 3) + (hd_is_backward(o) ? 3 : 0);
}

int hd_keys_operand(const Op *o) {
    const bool apart = hd_op_is(o, TRAIT_ATTENTION) && !hd_has(&o->attrs, A_PACKED);
    return apart ? 1 + hd_is_backward(o) : -1;
}

Value *hd_attention_starts(const Op *o) {
    const int at = hd_attention_operands(o);
    return hd_has(&o->attrs, A_DOCUMENTS) && at < o->n_in ? o->in[at] : NULL;
}

int hd_attention_sink_at(const Op *o) {
    if (o->kind == OP_SINK_GRAD) return 3;
    if (!hd_has(&o->attrs, A_SINK)) return -1;
    if (o->kind == OP_ATTENTION_STEP) return hd_step_operands(o);
    return hd_attention_operands(o) + hd_has(&o->attrs, A_DOCUMENTS);
}

Value *hd_attention_sink(const Op *o) {
    const int at = hd_attention_sink_at(o);
    return at >= 0 && at < o->n_in ? o->in[at] : NULL;
}

bool hd_attention_masked(const AttentionShape *s) { return s->window < s->seq || s->documents; }

AttentionShape hd_attention_shape(const Op *o) {
    AttentionShape s = {.grad = hd_is_backward(o), .packed = hd_has(&o->attrs, A_PACKED),
                        .causal = hd_has(&o->attrs, A_CAUSAL), .documents = hd_has(&o->attrs, A_DOCUMENTS),
                        .sink = hd_has(&o->attrs, A_SINK), .softcap = hd_float(&o->attrs, A_SOFTCAP, 0),
                        .heads = hd_int(&o->attrs, A_HEADS, 1)};
    const Type *q = o->in[s.grad]->type; // or packed q, k, v
    s.kv_heads = hd_int(&o->attrs, A_KV_HEADS, s.heads);
    s.dtype = q->dtype, s.batch = q->dim[0], s.seq = q->dim[1], s.q_stride = q->dim[2];
    s.size = s.q_stride / (s.packed ? s.heads + 2 * s.kv_heads : s.heads);
    s.o_stride = s.heads * s.size;
    s.kv_stride = s.packed ? s.q_stride : s.kv_heads * s.size;
    if (s.packed) s.part[1] = s.heads * s.size, s.part[2] = (s.heads + s.kv_heads) * s.size;
    s.scale = hd_float(&o->attrs, A_SCALE, 1.0 / sqrt((double)s.size));
    s.window = hd_int(&o->attrs, A_WINDOW, s.seq);
    if (s.window > s.seq) s.window = s.seq;
    return s;
}

double hd_attention_pairs(const AttentionShape *s) {
    const double seq = (double)s->seq, window = (double)s->window;
    return s->causal ? window * (seq - window / 2) : seq * seq;
}

int hd_partial_rows(int64_t rows) {
    enum { RUNS = 256 };
    int run = HD_MOST_PARTIAL_ROWS;
    while (run > HD_LEAST_PARTIAL_ROWS && rows / run < RUNS) run /= 2;
    return run;
}

bool hd_attention_on(const Op *o, const char *impl) {
    return !strcmp(hd_word(&o->attrs, A_IMPL, ""), impl) || !strcmp(hd_word(&o->attrs, A_ELSE, ""), impl);
}

bool hd_attention_suits_tensor_cores(const AttentionShape *s) {
    return hd_dtype_is_half(s->dtype) && s->size && s->size % 16 == 0 && s->size <= 256;
}

int64_t hd_attention_tile(const AttentionShape *s) { return s->size <= 128 ? 64 : 32; }

bool hd_attention_suits_wgmma(const AttentionShape *s) {
    const bool size = s->size == 64 || s->size == 96 || s->size == 128 || s->size == 192 || s->size == 256;
    return hd_dtype_is_half(s->dtype) && size;
}

bool hd_attention_suits_ordered(const AttentionShape *s) {
    return s->grad && hd_attention_suits_wgmma(s) && (s->size == 64 || s->size == 128);
}

int64_t hd_attention_ordered_tile(const AttentionShape *s) { return s->size <= 64 ? 128 : 64; }

int64_t hd_attention_ordered_bytes(const AttentionShape *s) {
    const double rows = (double)s->batch * (double)s->heads * (double)(s->seq + 128);
    if (rows > 0x1p50) return INT64_MAX / 2; // beyond any memory
    const int64_t tile = hd_attention_ordered_tile(s), tiles = s->batch * s->heads * hd_ceil_div(s->seq, tile);
    const int64_t spans = s->batch * (hd_ceil_div(s->seq, tile) + hd_ceil_div(s->seq, HD_ATTENTION_QUERIES));
    return 4 * (tiles * (tile * s->size + (s->documents ? 3 : 2) * tile + 1) + 1 + (s->documents ? spans : 0));
}

int64_t hd_attention_shared(const AttentionShape *s, bool tensor_cores) {
    if (tensor_cores) return (2 * HD_ATTENTION_QUERIES + 4 * hd_attention_tile(s)) * 2 * (s->size + 8);
    return (2 * 32 * (s->size + 1) + 16 * s->size) * (s->dtype == TY_F64 ? 8 : 4);
}

// The scaling is that of Llama 3.1 (Meta, "The Llama 3 Herd of Models", 2024).
double hd_rope_rate(const Attrs *rope, int64_t i, int64_t size) {
    const double rate = pow(hd_float(rope, A_THETA, 10000.0), -2.0 * (double)i / (double)size);
    const Attr *scaling = hd_attr(rope, A_SCALING);
    if (!scaling) return rate;
    const double factor = scaling->floats[0], low = scaling->floats[1], high = scaling->floats[2];
    const double turns = rate * scaling->floats[3] / (2 * 3.14159265358979323846);
    const double kept = turns <= low ? 0 : turns >= high ? 1 : (turns - low) / (high - low);
    return rate * (kept + (1 - kept) / factor);
}

int64_t hd_rope_apart(const Op *rope) {
    return hd_has(&rope->attrs, A_APART) ? hd_int(&rope->attrs, A_HEADS, 1) : 1;
}

int64_t hd_rope_seq(const Op *rope) {
    const Type *t = rope->in[0]->type;
    return t->dim[t->rank - 2 - hd_has(&rope->attrs, A_APART)];
}

int64_t hd_rope_columns(const Op *rope) {
    const int64_t heads = hd_int(&rope->attrs, A_HEADS, 1) / hd_rope_apart(rope);
    return hd_type_cols(rope->in[0]->type) / heads * hd_int(&rope->attrs, A_TURNED, heads);
}

ConvShape hd_conv_shape(const Op *o) {
    const bool grad = hd_is_backward(o);
    const Type *x = o->in[grad]->type, *taps = o->in[grad + 1]->type;
    ConvShape s = {.grad = grad, .bias = o->n_in - hd_has(&o->attrs, A_DOCUMENTS) > grad + 2,
                   .silu = hd_has(&o->attrs, A_SILU), .reverse = hd_has(&o->attrs, A_REVERSE),
                   .documents = hd_has(&o->attrs, A_DOCUMENTS), .outer = 1, .seq = x->dim[x->rank - 2],
                   .dim = taps->dim[1], .taps = taps->dim[0], .wide = hd_type_cols(x),
                   .start = hd_int(&o->attrs, A_START, 0)};
    for (int i = 0; i < x->rank - 2; i++) s.outer *= x->dim[i];
    s.runs = s.outer * hd_ceil_div(s.seq, HD_CONV_RUN);
    return s;
}
