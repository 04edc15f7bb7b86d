// The meaning of matrix products and attention.
#include "ir/eval/rules.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include <math.h>

static void product(const Product *s, const double *a, const double *b, double *d) {
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < s->k; p++)
                sum += (s->ta ? a[p * s->m + i] : a[i * s->k + p]) * (s->tb ? b[j * s->k + p] : b[p * s->n + j]);
            d[i * s->n + j] += sum;
        }
}

static void products(const Product *s, const Tensor *in, double *d) {
    for (int64_t i = 0; i < s->batches; i++)
        product(s, in[0].data + i * s->m * s->k, in[1].data + i * s->k * s->n, d + i * s->m * s->n);
}

// The sum of each block, times the scales of that block.
static void blocks(const Product *s, const Op *o, const Tensor *in, double *d) {
    const double *sa = in[hd_operand_of(o, ROLE_SCALE_A)].data, *sb = in[hd_operand_of(o, ROLE_SCALE_B)].data;
    const bool squares = hd_scales_of_squares(o);
    const int64_t line = hd_type_cols(in[hd_operand_of(o, ROLE_SCALE_B)].type);
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++)
            for (int64_t k = 0; k < s->k / HD_BLOCK; k++) {
                double sum = 0;
                for (int64_t p = k * HD_BLOCK; p < (k + 1) * HD_BLOCK; p++)
                    sum += in[0].data[i * s->k + p] * in[1].data[j * s->k + p];
                d[i * s->n + j] += sum * sa[k * s->m + i] * sb[squares ? j / HD_BLOCK * line + k : k * line + j];
            }
}

static void scale_rows(const Product *s, const Op *o, const Tensor *in, double *d) {
    const int a = hd_operand_of(o, ROLE_SCALE_A), b = hd_operand_of(o, ROLE_SCALE_B);
    const bool rows = a >= 0 && hd_scales_of_rows(o);
    for (int64_t i = 0; a >= 0 && i < s->m * s->n; i++)
        d[i] *= in[a].data[rows ? i / s->n : 0] * in[b].data[rows ? i % s->n : 0];
}

static void scaled_products(const Product *s, const Op *o, const Tensor *in, double *d) {
    if (hd_has(&o->attrs, A_BLOCKS)) {
        blocks(s, o, in, d);
        return;
    }
    products(s, in, d);
    scale_rows(s, o, in, d);
}

const char *hd_eval_matmul(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    Product s = hd_product(o);
    scaled_products(&s, o, in, out->data);
    return NULL;
}

const char *hd_eval_gemm(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    Product s = hd_product(o);
    const int bias = hd_operand_of(o, ROLE_BIAS);
    scaled_products(&s, o, in, out->data);
    for (int64_t i = 0, n = s.batches * s.m * s.n; i < n && bias >= 0; i++) out->data[i] += in[bias].data[i % s.n];
    return NULL;
}

// --- attention
typedef struct {
    const double *at;
    double *to;
    int64_t stride;
} HeadPart; // of q, k, v or a gradient: row stride in elements
// q, k and v (or their gradients): three tensors, or three parts of one tensor's rows.
static void parts_of(const AttentionShape *h, const Tensor *t, HeadPart part[3]) {
    for (int i = 0; i < 3; i++) {
        const Tensor *from = h->packed ? t : t + i;
        double *data = from->data + h->part[i];
        part[i] = (HeadPart){data, data, from->type->dim[2]};
    }
}

// Where head `head` of row `row` of batch `b` begins.
static int64_t row_at(const HeadPart *p, const AttentionShape *h, int64_t seq, int64_t b, int64_t row, int64_t head) {
    return (b * seq + row) * p->stride + head * h->size;
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

// Dropout multiplies each probability by a factor. `in` are the operands of the op.
typedef struct {
    uint32_t key[HD_KEY], threshold;
    int64_t each, others; // batches of a sequence; heads of the ranks before this one
    double factor;
} Dropped;

static Dropped dropped(const Eval *e, const Op *o, const Tensor *in) {
    Dropped d = {.each = 0};
    if (!hd_draws(o)) return d;
    const int at = hd_without_key(o);
    hd_eval_key(e, o, o->n_in > at ? &in[at] : NULL, d.key);
    if (hd_has(&o->attrs, A_OVER)) d.others = d.key[HD_KEY_PLACE] * hd_attention_shape(o).heads;
    d.threshold = hd_dropout_threshold(o);
    d.each = hd_attention_shape(o).batch / hd_int(&o->attrs, A_BATCH, 1);
    d.factor = e->mode == EVAL_EXACT ? 1 / (1 - hd_float(&o->attrs, A_P, 0)) : hd_dropout_factor(o);
    return d;
}

static double kept(const Dropped *d, const AttentionShape *h, int64_t b, int64_t head, int64_t i, int64_t j) {
    if (!d->each) return 1;
    const int64_t element = ((b % d->each * h->heads + d->others + head) * h->seq + i) * h->seq + j;
    return hd_dropout_keeps(d->key, b / d->each, element, d->threshold) ? d->factor : 0;
}

// The keys that a row of batch b sees: from the first to before the end. `starts` of documents; NULL: there are none.
static int64_t first_seen(const AttentionShape *h, const Tensor *starts, int64_t b, int64_t row) {
    const int64_t first = row < h->window ? 0 : row + 1 - h->window,
                  start = starts ? (int64_t)starts->data[b * h->seq + row] : 0;
    return start > first ? start : first;
}

static int64_t end_seen(const AttentionShape *h, int64_t row) {
    return h->causal && row + 1 < h->seq ? row + 1 : h->seq;
}

static double capped(double softcap, double score) { return softcap > 0 ? softcap * tanh(score / softcap) : score; }

const char *hd_eval_attention(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    AttentionShape h = hd_attention_shape(o);
    HeadPart p[3], po = {out[0].data, out[0].data, h.heads * h.size};
    parts_of(&h, in, p);
    double *score = HD_NEWN(e->arena, double, h.seq + 1);
    const Tensor *starts = h.documents ? in + hd_attention_operands(o) : NULL,
                 *sink = h.sink ? in + hd_attention_sink_at(o) : NULL;
    const Dropped drop = dropped(e, o, in);
    for (int64_t b = 0; b < h.batch; b++)
        for (int64_t head = 0; head < h.heads; head++)
            for (int64_t i = 0; i < h.seq; i++) {
                int64_t kv = head / (h.heads / h.kv_heads), from = first_seen(&h, starts, b, i), n = end_seen(&h, i);
                const double *q = p[0].at + row_at(&p[0], &h, h.seq, b, i, head);
                double top = sink ? sink->data[head] : -(double)INFINITY, sum = 0,
                       *y = po.to + row_at(&po, &h, h.seq, b, i, head);
                for (int64_t j = from; j < n; j++) {
                    const double *k = p[1].at + row_at(&p[1], &h, h.seq, b, j, kv);
                    score[j] = capped(h.softcap, h.scale * dot(q, k, h.size));
                    top = fmax(top, score[j]);
                }
                if (sink) sum = exp(sink->data[head] - top);
                for (int64_t j = from; j < n; j++) sum += exp(score[j] - top);
                for (int64_t j = from; j < n; j++) {
                    const double *v = p[2].at + row_at(&p[2], &h, h.seq, b, j, kv);
                    const double weight = exp(score[j] - top) / sum * kept(&drop, &h, b, head, i, j);
                    for (int64_t c = 0; c < h.size; c++) y[c] += weight * v[c];
                }
                out[1].data[(b * h.heads + head) * h.seq + i] = top + log(sum);
            }
    return NULL;
}

const char *hd_eval_attention_step(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    Tensor keys = hd_eval_storage(e, hd_word(&o->attrs, A_KEYS, "")),
           values = hd_eval_storage(e, hd_word(&o->attrs, A_VALUES, ""));
    const StepParts p = hd_step_parts(o);
    const double *part_of[3];
    for (int i = 0; i < 3; i++) part_of[i] = in[p.in[i]].data + p.at[i];
    const int64_t heads = p.heads, size = p.size, row = p.kv_heads * size, group = heads / p.kv_heads,
                  at = (int64_t)in[1].data[0],
                  window = hd_int(&o->attrs, A_WINDOW, at + 1), from = at >= window ? at + 1 - window : 0;
    const double scale = hd_float(&o->attrs, A_SCALE, 1 / sqrt((double)size)),
                 softcap = hd_float(&o->attrs, A_SOFTCAP, 0);
    const Tensor *sink = hd_has(&o->attrs, A_SINK) ? in + hd_attention_sink_at(o) : NULL;
    if (at < 0 || at >= hd_cached_positions(o)) return "attention_step: the position is outside of its buffers";
    memcpy(keys.data + at * row, part_of[1], (size_t)row * sizeof(double));
    memcpy(values.data + at * row, part_of[2], (size_t)row * sizeof(double));
    double *score = HD_NEWN(e->arena, double, at + 1);
    for (int64_t head = 0; head < heads; head++) {
        const int64_t part = head / group * size;
        double top = sink ? sink->data[head] : -(double)INFINITY, sum = 0, *y = out[0].data + head * size;
        for (int64_t j = from; j <= at; j++) {
            score[j] = capped(softcap, scale * dot(part_of[0] + head * size, keys.data + j * row + part, size));
            top = fmax(top, score[j]);
        }
        if (sink) sum = exp(sink->data[head] - top);
        for (int64_t j = from; j <= at; j++) sum += exp(score[j] - top);
        for (int64_t j = from; j <= at; j++)
            for (int64_t c = 0; c < size; c++)
                y[c] += exp(score[j] - top) / sum * values.data[j * row + part + c];
    }
    return NULL;
}

// With P = exp(scale q k' - lse) and the factors M of dropout:  dv = (P M)' do,  dP = M do v',  dS = P (dP - do.o),
// dq = scale dS k,  dk = scale dS' q. With softcap, s = softcap tanh(scale q k' / softcap) is in place of scale q k',
// and dS is multiplied by 1 - (s / softcap)^2.
const char *hd_eval_attention_grad(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    const Dropped drop = dropped(e, o, in);
    bool packed = hd_has(&o->attrs, A_PACKED);
    const Tensor *result = in + (packed ? 2 : 4), *lse = result + 1,
                 *starts = hd_has(&o->attrs, A_DOCUMENTS) ? in + hd_attention_operands(o) : NULL;
    AttentionShape h = hd_attention_shape(o);
    HeadPart p[3], d[3], po = {result->data, NULL, h.heads * h.size}, pdo = {in[0].data, NULL, h.heads * h.size};
    parts_of(&h, in + 1, p);
    parts_of(&h, out, d);
    for (int64_t b = 0; b < h.batch; b++)
        for (int64_t head = 0; head < h.heads; head++)
            for (int64_t i = 0; i < h.seq; i++) {
                int64_t kv = head / (h.heads / h.kv_heads), q_at = row_at(&p[0], &h, h.seq, b, i, head);
                int64_t o_at = row_at(&po, &h, h.seq, b, i, head), dq_at = row_at(&d[0], &h, h.seq, b, i, head);
                const double *q = p[0].at + q_at, *dout = pdo.at + o_at;
                double delta = dot(dout, po.at + o_at, h.size);
                for (int64_t j = first_seen(&h, starts, b, i); j < end_seen(&h, i); j++) {
                    int64_t k_at = row_at(&p[1], &h, h.seq, b, j, kv), v_at = row_at(&p[2], &h, h.seq, b, j, kv);
                    int64_t dk_at = row_at(&d[1], &h, h.seq, b, j, kv), dv_at = row_at(&d[2], &h, h.seq, b, j, kv);
                    const double *k = p[1].at + k_at;
                    const double score = capped(h.softcap, h.scale * dot(q, k, h.size));
                    double prob = exp(score - lse->data[(b * h.heads + head) * h.seq + i]);
                    double keep = kept(&drop, &h, b, head, i, j);
                    double ds = h.scale * prob * (keep * dot(dout, p[2].at + v_at, h.size) - delta);
                    if (h.softcap > 0) ds *= 1 - score / h.softcap * (score / h.softcap);
                    for (int64_t c = 0; c < h.size; c++) {
                        d[0].to[dq_at + c] += ds * k[c];
                        d[1].to[dk_at + c] += ds * q[c];
                        d[2].to[dv_at + c] += prob * keep * dout[c];
                    }
                }
            }
    return NULL;
}

const char *hd_eval_sink_grad(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const int64_t seq = in[2].type->dim[2], heads = in[2].type->dim[1], size = o->in[0]->type->dim[2] / heads;
    for (int64_t i = 0; i < hd_type_count(out[0].type); i++) { // batch, position, head
        const int64_t head = i % heads, row = i / heads;
        const double lse = in[2].data[(row / seq * heads + head) * seq + row % seq];
        out[0].data[i] = -exp(in[3].data[head] - lse) * dot(in[0].data + i * size, in[1].data + i * size, size);
    }
    return NULL;
}
