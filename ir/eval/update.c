// The meaning of the ops of the parameter update: the norm of all gradients, the scalars of a step, AdamW. Rounded
// arithmetic is f32, operation by operation in the order written here (rounding a double operation to float gives the
// float operation).
#include "ir/eval/rules.h"
#include "ir/mesh.h"
#include <math.h>

static double scale_of(const Op *o) { return (double)hd_int(&o->attrs, A_LOSS_SCALE, 1); }

static double round32(const Eval *e, double v) { return e->mode == EVAL_EXACT ? v : (double)(float)v; }

// The next block of HD_NORM_BLOCK elements from `*i` on.
static double square_sum(Tensor t, int64_t *i) {
    double sum = 0;
    for (int64_t n = hd_type_count(t.type), end = *i + HD_NORM_BLOCK < n ? *i + HD_NORM_BLOCK : n; *i < end; ++*i)
        sum += t.data[*i] * t.data[*i];
    return sum;
}

// Blocks are summed in order, buffer after buffer.
const char *hd_eval_grad_norm(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    const Attr *buffers = hd_attr(&o->attrs, A_BUFFERS);
    double total = 0;
    for (int k = 0; k < buffers->n; k++) {
        Tensor t = hd_eval_storage(e, buffers->strs[k]);
        for (int64_t i = 0; i < hd_type_count(t.type);) total += square_sum(t, &i);
    }
    out->data[0] = sqrt(total) / scale_of(o);
    return NULL;
}

const char *hd_eval_square_sums(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    const Attr *buffers = hd_attr(&o->attrs, A_BUFFERS);
    double *sum = out->data;
    for (int k = 0; k < buffers->n; k++) {
        Tensor t = hd_eval_storage(e, buffers->strs[k]);
        for (int64_t i = 0; i < hd_type_count(t.type);) *sum++ = square_sum(t, &i);
    }
    return NULL;
}

const char *hd_eval_root_sum(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    double total = 0;
    for (int64_t i = 0, n = hd_type_count(in[0].type); i < n; i++) total += in[0].data[i];
    out->data[0] = sqrt(total) / scale_of(o);
    return NULL;
}

// The learning rate of step t, counted from 1. In f64; the result is rounded to f32 once.
//   t <= warmup:  peak t / warmup
//   then, with p = min(1, (t - warmup) / max(1, total - warmup)):
//   constant:     peak
//   linear:       floor + (peak - floor) (1 - p)
//   cosine:       floor + (peak - floor) (1 + cos(pi p)) / 2
static double learning_rate(const Attrs *as, double t) {
    double peak = hd_float(as, A_LR_PEAK, 0.0), floor_rate = hd_float(as, A_LR_FLOOR, 0.0);
    double warmup = (double)hd_int(as, A_LR_WARMUP, 0), total = (double)hd_int(as, A_LR_TOTAL, 0);
    const char *kind = hd_word(as, A_LR, "constant");
    if (t <= warmup) return peak * t / warmup;
    double p = fmin(1.0, (t - warmup) / fmax(1.0, total - warmup));
    if (strcmp(kind, "linear") == 0) return floor_rate + (peak - floor_rate) * (1.0 - p);
    if (strcmp(kind, "cosine") == 0)
        return floor_rate + (peak - floor_rate) * (1.0 + cos(3.14159265358979323846 * p)) / 2.0;
    return peak;
}

const char *hd_eval_step_scalars(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    double *step = hd_eval_range(e, hd_word(&o->attrs, A_COUNTER, ""), 0, 1);
    if (!step) return hd_eval_wrong(e, "the step counter has no element");
    double t = *step += 1, clip = hd_float(&o->attrs, A_CLIP, 0.0), norm = o->n_in ? in[0].data[0] : 0;
    const double *betas = hd_attr(&o->attrs, A_BETAS)->floats;
    out->data[0] = learning_rate(&o->attrs, t);
    out->data[1] = (clip > 0 && norm > clip ? clip / norm : 1.0) / scale_of(o);
    out->data[2] = 1.0 - pow(betas[0], t);
    out->data[3] = 1.0 - pow(betas[1], t);
    out->data[4] = t;
    return NULL;
}

// m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g g,  p -= lr (m/c1 / (sqrt(v/c2) + eps) + decay p), with g = clip factor
// (which takes out the scale of the loss) * gradient.
const char *hd_eval_adamw(Eval *e, const Op *o, const Tensor *in, Tensor *out HD_UNUSED) {
    const double *scalars = in[0].data, *betas = hd_attr(&o->attrs, A_BETAS)->floats;
    const Tensor part[] = {hd_eval_storage(e, hd_word(&o->attrs, A_MASTER_WEIGHTS, "")),
                           hd_eval_storage(e, hd_state(e->module, &o->attrs, 0)->name),
                           hd_eval_storage(e, hd_state(e->module, &o->attrs, 1)->name),
                           hd_eval_storage(e, hd_word(&o->attrs, A_GRADIENT, ""))};
    const char *weights = hd_word(&o->attrs, A_WEIGHTS, NULL);
    int64_t n = hd_type_count(part[0].type);
    double b1 = round32(e, betas[0]), b2 = round32(e, betas[1]), eps = round32(e, hd_float(&o->attrs, A_EPS, 0.0));
    double weight_decay = round32(e, hd_float(&o->attrs, A_WEIGHT_DECAY, 0.0));
    // this rank has the elements from there on
    const Mesh mesh = hd_mesh(e->module);
    const Axes split = hd_axes(&hd_named(o, A_MASTER_WEIGHTS)->attrs, A_SPLIT);
    int64_t decayed = hd_int(&o->attrs, A_DECAYED, 0) - n * hd_mesh_number(&mesh, split, e->rank);
    for (int64_t i = 0; i < n; i++) {
        double *p = &part[0].data[i], *m = &part[1].data[i], *v = &part[2].data[i];
        double g = round32(e, part[3].data[i] * scalars[1]), decay = i < decayed ? weight_decay : 0.0;
        *m = round32(e, round32(e, b1 * *m) + round32(e, round32(e, 1.0 - b1) * g));
        *v = round32(e, round32(e, b2 * *v) + round32(e, round32(e, round32(e, 1.0 - b2) * g) * g));
        double root = round32(e, sqrt(round32(e, *v / scalars[3])));
        double direction = round32(e, round32(e, *m / scalars[2]) / round32(e, root + eps));
        *p = round32(e, *p - round32(e, scalars[0] * round32(e, direction + round32(e, decay * *p))));
        if (weights) {
            Tensor c = hd_eval_storage(e, weights);
            c.data[i] = e->mode == EVAL_EXACT ? *p : hd_round(c.type->dtype, *p);
        }
    }
    return NULL;
}
