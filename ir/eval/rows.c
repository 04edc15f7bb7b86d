// The meaning of reductions and of the ops over the last axis. Sums run in f64 in row-major order, so that they are a
// reference for every order of summation.
#include "ir/eval/rules.h"
#include "ir/shapes.h"
#include <math.h>

// --- reductions
// Steps of the result along the axes of the operand: 0 where the axis is reduced.
static Steps reduced_steps(const Op *o, const Type *t) {
    const unsigned reduced = hd_reduced_axes(o);
    Type kept = *t;
    for (int i = 0; i < t->rank; i++)
        if (reduced >> i & 1) kept.dim[i] = 1;
    return hd_eval_steps(t, &kept);
}

const char *hd_eval_sum(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    Steps s = reduced_steps(o, in[0].type);
    for (int64_t i = 0, n = hd_type_count(in[0].type); i < n; i++)
        out->data[hd_eval_source(in[0].type, &s, i)] += in[0].data[i];
    return NULL;
}

const char *hd_eval_reduce_max(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    Steps s = reduced_steps(o, in[0].type);
    for (int64_t i = 0, n = hd_type_count(out->type); i < n; i++) out->data[i] = -(double)INFINITY;
    for (int64_t i = 0, n = hd_type_count(in[0].type); i < n; i++) {
        double *m = &out->data[hd_eval_source(in[0].type, &s, i)], v = in[0].data[i];
        if (v > *m || isnan(v)) *m = isnan(*m) ? *m : v;
    }
    return NULL;
}

const char *hd_eval_sum_to(Eval *e, const Op *o, const Tensor *in, Tensor *out) { return hd_eval_sum(e, o, in, out); }

// --- normalisations: layer_norm takes the mean out and adds in[2]; rms_norm has a mean of 0 and neither result nor
// operand for it
static const char *normalise(const Op *o, const Tensor *in, Tensor *out, bool layer) {
    int64_t n = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0].data + r * n;
        double mean = 0, square = 0;
        for (int64_t i = 0; layer && i < n; i++) mean += x[i];
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
        double rstd = 1.0 / sqrt(square / (double)n + hd_float(&o->attrs, A_EPS, 0.0));
        for (int64_t i = 0; i < n; i++)
            out[0].data[r * n + i] = (x[i] - mean) * rstd * in[1].data[i] + (layer ? in[2].data[i] : 0);
        if (layer) out[1].data[r] = mean;
        out[1 + layer].data[r] = rstd;
    }
    return NULL;
}

const char *hd_eval_layer_norm(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    return normalise(o, in, out, true);
}
const char *hd_eval_rms_norm(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    return normalise(o, in, out, false);
}

// With h = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - h mean(g h)),  dw = sum dy h,  db = sum dy. Without
// a mean, mean(g) is left out as well.
static const char *normalise_grad(const Tensor *in, Tensor *out, bool layer) {
    int64_t n = hd_type_cols(in[1].type), rows = hd_type_rows(in[1].type);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = in[0].data + r * n, *x = in[1].data + r * n, *w = in[2].data;
        double mean = layer ? in[3].data[r] : 0, rstd = in[3 + layer].data[r], g_mean = 0, gh_mean = 0;
        for (int64_t i = 0; i < n; i++) {
            double h = (x[i] - mean) * rstd;
            if (layer) g_mean += dy[i] * w[i] / (double)n;
            gh_mean += dy[i] * w[i] * h / (double)n;
            out[1].data[i] += dy[i] * h;
            if (layer) out[2].data[i] += dy[i];
        }
        for (int64_t i = 0; i < n; i++)
            out[0].data[r * n + i] = rstd * (dy[i] * w[i] - g_mean - (x[i] - mean) * rstd * gh_mean);
    }
    return NULL;
}

const char *hd_eval_layer_norm_grad(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    return normalise_grad(in, out, true);
}
const char *hd_eval_rms_norm_grad(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    return normalise_grad(in, out, false);
}

// In the roundings of f32 that the definition has, which decide to which side q is rounded.
double hd_eval_quantized(const Eval *e, DType d, const double *x, int64_t n, double *q) {
    const DType f32 = e->mode == EVAL_EXACT ? TY_F64 : TY_F32;
    double most = 0x1p-100;
    for (int64_t i = 0; i < n; i++)
        if (fabs(x[i]) > most || isnan(x[i])) most = isnan(most) ? most : fabs(x[i]);
    const double scale = hd_round(f32, most / hd_dtype_info(d)->largest), inverse = hd_round(f32, 1 / scale);
    for (int64_t i = 0; q && i < n; i++) q[i] = hd_round(f32, x[i] * inverse);
    return scale;
}

const char *hd_eval_quantize(Eval *e, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    const int64_t n = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type);
    for (int64_t r = 0; r < rows; r++)
        out[1].data[r] =
            hd_eval_quantized(e, out[0].type->dtype, in[0].data + r * n, n, out[0].data + r * n);
    return NULL;
}

// Blocks of 128 elements of a row, of a column, or of 128 rows, which are one after another in `x`.
static void quantize_blocks(const Eval *e, Blocks b, const Tensor *in, Tensor *out) {
    double x[HD_BLOCK * HD_BLOCK], q[HD_BLOCK * HD_BLOCK];
    const int64_t tall = b.squares || b.across ? HD_BLOCK : 1, wide = b.across ? 1 : HD_BLOCK;
    for (int64_t r = 0; r < b.rows; r += tall)
        for (int64_t c = 0; c < b.cols; c += wide) {
            for (int64_t i = 0; i < tall * wide; i++)
                x[i] = in[0].data[(r + i / wide) * b.cols + c + i % wide];
            const double scale = hd_eval_quantized(e, out[0].type->dtype, x, tall * wide, q);
            for (int64_t i = 0; i < tall * wide; i++)
                out[0].data[b.across ? c * b.rows + r + i : (r + i / wide) * b.cols + c + i % wide] = q[i];
            const int64_t at = b.squares ? r / HD_BLOCK * b.scale_cols + c / HD_BLOCK
                               : b.across ? r / HD_BLOCK * b.cols + c : c / HD_BLOCK * b.rows + r;
            out[1].data[at] = scale;
        }
}

const char *hd_eval_quantize_blocks(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    quantize_blocks(e, hd_quantized_blocks(o), in, out);
    return NULL;
}

const char *hd_eval_quantize_both(Eval *e, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    for (int i = 0; i < 2; i++) quantize_blocks(e, hd_blocks(in[0].type, false, i), in, out + 2 * i);
    return NULL;
}

const char *hd_eval_requantize(Eval *e, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    const int64_t n = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type);
    const DType f32 = e->mode == EVAL_EXACT ? TY_F64 : TY_F32;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            out[0].data[i * rows + r] = hd_round(f32, in[0].data[r * n + i] * in[1].data[r]);
    return NULL;
}

const char *hd_eval_cumsum(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const Type *t = in[0].type;
    const int64_t axis = hd_int(&o->attrs, A_AXIS, 0), n = t->dim[axis], total = hd_type_count(t);
    int64_t inner = 1;
    for (int i = (int)axis + 1; i < t->rank; i++) inner *= t->dim[i];
    const bool reverse = hd_has(&o->attrs, A_REVERSE);
    for (int64_t k = 0; k < total; k++) {
        const int64_t at = reverse ? total - 1 - k : k, i = at / inner % n;
        const bool first = i == (reverse ? n - 1 : 0);
        out[0].data[at] = in[0].data[at] + (first ? 0 : out[0].data[reverse ? at + inner : at - inner]);
    }
    return NULL;
}

const char *hd_eval_documents(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const Attr *eot = hd_attr(&o->attrs, A_EOT), *bos = hd_attr(&o->attrs, A_BOS);
    const int64_t n = hd_type_cols(in[0].type);
    for (int64_t at = 0, start = 0; at < hd_type_count(in[0].type); at++) {
        const int64_t t = at % n;
        const double *x = in[0].data + at;
        const bool new = t && (eot || bos ? (eot && x[-1] == (double)eot->i) || (bos && x[0] == (double)bos->i)
                                          : x[0] != x[-1]);
        start = new ? t : t ? start : 0;
        out[0].data[at] = (double)(hd_has(&o->attrs, A_WITHIN) ? t - start : start);
    }
    return NULL;
}

// --- convolutions of columns

// Where position t of sequence o is, in rows: a convolution in reverse is one of the mirrored sequence.
static int64_t conv_row(const ConvShape *s, int64_t o, int64_t t) {
    return o * s->seq + (s->reverse ? s->seq - 1 - t : t);
}

// Whether the sum at position t reads position `from`, which is not after it: both are of one document. The later of
// the two in memory says where that begins.
static bool conv_reads(const ConvShape *s, const double *starts, int64_t o, int64_t t, int64_t from) {
    if (from < 0 || t >= s->seq || !s->documents) return from >= 0;
    const int64_t a = conv_row(s, o, t), b = conv_row(s, o, from), later = a > b ? a : b;
    return (double)((a > b ? b : a) % s->seq) >= starts[later];
}

// The sum at position t of sequence o, column c, before SiLU. x: [x, taps, bias, starts].
static double convolved(const ConvShape *s, const Tensor *x, int64_t o, int64_t t, int64_t c) {
    const double *starts = s->documents ? x[2 + s->bias].data : NULL;
    double sum = 0;
    for (int64_t j = 0, from = t - (s->taps - 1); j < s->taps; j++, from++)
        if (conv_reads(s, starts, o, t, from))
            sum +=
                x[1].data[j * s->dim + c] * x[0].data[conv_row(s, o, from) * s->wide + s->start + c];
    return s->bias ? sum + x[2].data[c] : sum;
}

const char *hd_eval_conv1d(Eval *e, const Op *op, const Tensor *in, Tensor *out) {
    (void)e;
    const ConvShape s = hd_conv_shape(op);
    for (int64_t i = 0; i < s.outer * s.seq * s.dim; i++) {
        const int64_t o = i / s.dim / s.seq, t = i / s.dim % s.seq, c = i % s.dim;
        const double y = convolved(&s, in, o, t, c);
        out[0].data[conv_row(&s, o, t) * s.dim + c] = s.silu ? y / (1 + exp(-y)) : y;
    }
    return NULL;
}

// The gradient of the sum at position t, 0 after the last one.
static double conv_slope(const ConvShape *s, const Tensor *in, int64_t o, int64_t t, int64_t c) {
    if (t >= s->seq) return 0;
    const double dy = in[0].data[conv_row(s, o, t) * s->dim + c];
    if (!s->silu) return dy;
    const double y = convolved(s, in + 1, o, t, c), gate = 1 / (1 + exp(-y));
    return dy * gate * (1 + y * (1 - gate));
}

const char *hd_eval_conv1d_grad(Eval *e, const Op *op, const Tensor *in, Tensor *out) {
    (void)e;
    const ConvShape s = hd_conv_shape(op);
    const int64_t runs = s.outer ? s.runs / s.outer : 0;
    const double *starts = s.documents ? in[3 + s.bias].data : NULL;
    for (int64_t i = 0; i < s.runs * s.taps * s.dim; i++) out[1].data[i] = 0;
    for (int64_t i = 0; s.bias && i < s.runs * s.dim; i++) out[2].data[i] = 0;
    for (int64_t i = 0; i < s.outer * s.seq * s.dim; i++) {
        const int64_t o = i / s.dim / s.seq, t = i / s.dim % s.seq, c = i % s.dim, run = o * runs + t / HD_CONV_RUN;
        const double slope = conv_slope(&s, in, o, t, c);
        double dx = 0;
        for (int64_t j = 0; j < s.taps; j++) {
            const int64_t from = t - (s.taps - 1) + j;
            const int64_t reader = t + (s.taps - 1) - j;
            if (conv_reads(&s, starts, o, reader, t))
                dx += in[2].data[j * s.dim + c] * conv_slope(&s, in, o, reader, c);
            if (conv_reads(&s, starts, o, t, from))
                out[1].data[(run * s.taps + j) * s.dim + c] +=
                    slope * in[1].data[conv_row(&s, o, from) * s.wide + s.start + c];
        }
        out[0].data[conv_row(&s, o, t) * s.dim + c] = dx;
        if (s.bias) out[2].data[run * s.dim + c] += slope;
    }
    return NULL;
}

// --- softmax and the loss
static double largest(const double *x, int64_t n) { // a NaN wins
    double top = -(double)INFINITY;
    for (int64_t i = 0; i < n; i++) top = x[i] > top || isnan(x[i]) ? x[i] : top;
    return top;
}

// log of the sum of exp over x[0 .. n-1]; the largest element is taken out first, so that nothing overflows.
static double log_sum_exp(const double *x, int64_t n) {
    double top = largest(x, n), sum = 0;
    if (!isfinite(top)) top = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - top);
    return top + log(sum);
}

const char *hd_eval_logsumexp(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    int64_t n = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type);
    for (int64_t r = 0; r < rows; r++) out[0].data[r] = log_sum_exp(in[0].data + r * n, n);
    return NULL;
}

const char *hd_eval_softmax(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const Type *t = in[0].type;
    int64_t n = hd_type_cols(t), rows = hd_type_rows(t);
    bool causal = hd_has(&o->attrs, A_CAUSAL);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = causal ? r % t->dim[t->rank - 2] : n, count = row + 1 < n ? row + 1 : n;
        const double *x = in[0].data + r * n, top = largest(x, count); // an infinite one makes every element NaN
        double *y = out[0].data + r * n, sum = 0;
        for (int64_t i = 0; i < count; i++) sum += y[i] = exp(x[i] - top);
        for (int64_t i = 0; i < count; i++) y[i] /= sum;
    }
    return NULL;
}

const char *hd_eval_softmax_grad(Eval *e HD_UNUSED, const Op *o HD_UNUSED, const Tensor *in, Tensor *out) {
    int64_t n = hd_type_cols(in[1].type), rows = hd_type_rows(in[1].type);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = in[0].data + r * n, *y = in[1].data + r * n;
        double dot = 0;
        for (int64_t i = 0; i < n; i++) dot += dy[i] * y[i];
        for (int64_t i = 0; i < n; i++) out[0].data[r * n + i] = y[i] * (dy[i] - dot);
    }
    return NULL;
}

// The mean of -log softmax(logits)[target], or its sum by weights; where dlogits is wanted, dlogits = dloss * share
// (softmax(logits) - onehot(target)), where the share of a row is 1 / rows or its weight.
static const char *loss_rows(Eval *e, const Op *o, const Tensor *in, double *loss, double dloss, double *dlogits) {
    const int64_t n = hd_type_cols(in[0].type), rows = hd_type_rows(in[0].type);
    const double *weights = hd_loss_weights(o) ? in[o->n_in - 1].data : NULL;
    for (int64_t r = 0; r < rows; r++) {
        const double *z = in[0].data + r * n, target = in[1].data[r];
        const bool ignored = hd_has(&o->attrs, A_IGNORE) && target == (double)hd_int(&o->attrs, A_IGNORE, 0);
        const double share = ignored ? 0 : weights ? weights[r] : 1.0 / (double)rows;
        for (int64_t i = 0; dlogits && share == 0 && i < n; i++) dlogits[r * n + i] = 0;
        if (share == 0) continue;
        if (!(target >= 0 && target < (double)n))
            return hd_eval_wrong(e, "target %g at position %lld is outside a vocabulary of %lld", target, (long long)r,
                                 (long long)n);
        const double lse = log_sum_exp(z, n), by = weights ? dloss * share : dloss / (double)rows;
        *loss += weights ? (lse - z[(int64_t)target]) * share : (lse - z[(int64_t)target]) / (double)rows;
        for (int64_t i = 0; dlogits && i < n; i++)
            dlogits[r * n + i] = by * (exp(z[i] - lse) - (i == (int64_t)target ? 1.0 : 0.0));
    }
    return NULL;
}

const char *hd_eval_cross_entropy(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    return loss_rows(e, o, in, out[0].data, 0.0, NULL);
}

const char *hd_eval_cross_entropy_grad(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    return loss_rows(e, o, in, out[0].data, in[2].data[0], out[1].data);
}

// Position p of a sequence turns the pair (i, i + size/2) of each head by the angle p theta^(-2i/size).
const char *hd_eval_rope(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    const Type *t = in[0].type;
    const int64_t apart = hd_rope_apart(o), width = hd_type_cols(t) * apart, seq = hd_rope_seq(o),
                  size = width / hd_int(&o->attrs, A_HEADS, 1), half = size / 2, turned = hd_rope_columns(o) * apart;
    double turn = hd_has(&o->attrs, A_INVERSE) ? -1.0 : 1.0;
    for (int64_t at = 0, n = hd_type_count(t); at < n; at++) {
        if (at % width >= turned) {
            out[0].data[at] = in[0].data[at];
            continue;
        }
        int64_t position = o->n_in > 1 ? (int64_t)in[1].data[at / width] : at / width % seq, i = at % width % size;
        double angle = turn * (double)position * hd_rope_rate(&o->attrs, i % half, size);
        double other = i < half ? -in[0].data[at + half] : in[0].data[at - half];
        out[0].data[at] = in[0].data[at] * cos(angle) + other * sin(angle);
    }
    return NULL;
}
