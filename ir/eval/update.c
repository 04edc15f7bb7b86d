// The meaning of the ops of the parameter update: the norm of all gradients, the scalars of a step, the optimizer.
// Rounded arithmetic is f32, operation by operation in the order written here (rounding a double operation to float
// gives the float operation).
#include "ir/eval/rules.h"
#include "ir/bins.h"
#include "ir/mesh.h"
#include "ir/optimizer.h"
#include "ir/rounding.h"
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

// Adds a number to bins (ir/bins.h).
static void add_to_bins(double *bins, double v) {
    double above = 0; // the digits from bin k + 1 on, in units of bin k
    for (int k = HD_BINS - 1; k >= 0; k--) {
        const double unit = ldexp(1, HD_BIN_LEAST + k * HD_BIN_BITS), digits = floor(v / unit);
        bins[k] += (digits - above) * unit;
        above = ldexp(digits, HD_BIN_BITS);
    }
}

static void add_exact_squares(Tensor t, double *bins) {
    for (int64_t i = 0; i < hd_type_count(t.type); i += HD_BIN_RUN) {
        double sum = 0;
        for (int64_t k = i; k < i + HD_BIN_RUN; k++) sum += t.data[k] * t.data[k];
        add_to_bins(bins, sum);
    }
}

const char *hd_eval_square_sums(Eval *e, const Op *o, const Tensor *in HD_UNUSED, Tensor *out) {
    const Attr *buffers = hd_attr(&o->attrs, A_BUFFERS);
    double *sum = out->data;
    for (int k = 0; k < buffers->n; k++) {
        Tensor t = hd_eval_storage(e, buffers->strs[k]);
        if (hd_has(&o->attrs, A_EXACT)) add_exact_squares(t, out->data);
        else
            for (int64_t i = 0; i < hd_type_count(t.type);) *sum++ = square_sum(t, &i);
    }
    return NULL;
}

const char *hd_eval_root_sum(Eval *e HD_UNUSED, const Op *o, const Tensor *in, Tensor *out) {
    double total = 0;
    const int64_t n = hd_type_count(in[0].type);
    for (int64_t i = 0; !hd_has(&o->attrs, A_EXACT) && i < n; i++) total += in[0].data[i];
    for (int k = HD_BINS - 1; hd_has(&o->attrs, A_EXACT) && k >= 0; k--) {
        double bin = 0;
        for (int64_t i = k; i < n; i += HD_BINS) bin += in[0].data[i];
        total += bin;
    }
    out->data[0] = sqrt(total) / scale_of(o);
    return NULL;
}

// The learning rate of step t, counted from 1. In f64; the result is rounded to f32 once.
//   t <= warmup:  peak t / warmup
//   then, with p = min(1, (t - warmup) / max(1, total - warmup)):
//   constant:     peak
//   linear:       floor + (peak - floor) (1 - p)
//   cosine:       floor + (peak - floor) (1 + cos(pi p)) / 2
//   wsd:          with q = (t - (total - decay)) / max(1, decay), from 0 to 1: floor + (peak - floor) s(q), where s is
//                 1 - q (linear), (1 + cos(pi q)) / 2 (cosine) or 1 - sqrt(q) (sqrt)
//   inverse_sqrt: max(floor, peak sqrt(max(1, warmup) / t))
//   points:       on a straight line from point to point; before the first and from the last on, the rate there
static double of_points(const Attrs *as, double t) {
    const Attr *steps = hd_attr(as, A_LR_STEPS), *rates = hd_attr(as, A_LR_RATES);
    const int last = steps->n - 1;
    int i = 0;
    if (t < (double)steps->ints[0]) return rates->floats[0];
    while (i < last && t >= (double)steps->ints[i + 1]) i++;
    if (i == last) return rates->floats[last];
    const double from = (double)steps->ints[i], to = (double)steps->ints[i + 1];
    return rates->floats[i] + (rates->floats[i + 1] - rates->floats[i]) * ((t - from) / (to - from));
}

static double fallen(const char *shape, double q) {
    if (strcmp(shape, "cosine") == 0) return (1.0 + cos(3.14159265358979323846 * q)) / 2.0;
    return 1.0 - (strcmp(shape, "sqrt") == 0 ? sqrt(q) : q);
}

static double learning_rate(const Attrs *as, double t) {
    double peak = hd_float(as, A_LR_PEAK, 0.0), floor_rate = hd_float(as, A_LR_FLOOR, 0.0);
    double warmup = (double)hd_int(as, A_LR_WARMUP, 0), total = (double)hd_int(as, A_LR_TOTAL, 0);
    const char *kind = hd_word(as, A_LR, "constant");
    if (strcmp(kind, "points") == 0) return of_points(as, t);
    if (t <= warmup) return peak * t / warmup;
    if (strcmp(kind, "inverse_sqrt") == 0) return fmax(floor_rate, peak * sqrt(fmax(1.0, warmup) / t));
    if (strcmp(kind, "wsd") == 0) {
        double decay = (double)hd_int(as, A_LR_DECAY, 0),
               q = fmin(1.0, fmax(0.0, (t - (total - decay)) / fmax(1.0, decay)));
        return floor_rate + (peak - floor_rate) * fallen(hd_word(as, A_LR_SHAPE, "linear"), q);
    }
    double p = fmin(1.0, (t - warmup) / fmax(1.0, total - warmup));
    if (strcmp(kind, "linear") == 0) return floor_rate + (peak - floor_rate) * (1.0 - p);
    if (strcmp(kind, "cosine") == 0)
        return floor_rate + (peak - floor_rate) * (1.0 + cos(3.14159265358979323846 * p)) / 2.0;
    return peak;
}

// The z-score of v among the last numbers, which it joins (ir/optimizer.h).
static double z_score(const Eval *e, double *last, double v) {
    const int n = HD_HISTORY_STEPS, seen = (int)last[n];
    double mean = 0, square = 0;
    if (!isfinite(v)) return (double)NAN;
    last[seen % n] = v;
    last[n] = seen + 1 < 2 * n ? seen + 1 : n;
    if (seen < n) return (double)NAN;
    for (int i = 0; i < n; i++) mean += last[i] / n;
    for (int i = 0; i < n; i++) square += (last[i] - mean) * (last[i] - mean) / n;
    return square > 0 ? round32(e, (v - mean) / sqrt(square)) : 0.0;
}

static bool is_outlier(Eval *e, const Op *o, double loss, double norm) {
    double *h = hd_eval_range(e, hd_word(&o->attrs, A_HISTORY, ""), 0, HD_HISTORY), *z = h + HD_HISTORY_Z;
    z[0] = z_score(e, h, loss);
    z[1] = z_score(e, h + HD_HISTORY_STEPS + 1, norm);
    return z[0] > hd_float(&o->attrs, A_SKIP_LOSS_Z, (double)INFINITY) ||
           z[1] > hd_float(&o->attrs, A_SKIP_NORM_Z, (double)INFINITY);
}

const char *hd_eval_step_scalars(Eval *e, const Op *o, const Tensor *in, Tensor *out) {
    double *step = hd_eval_range(e, hd_word(&o->attrs, A_COUNTER, ""), 0, 1);
    if (!step) return hd_eval_wrong(e, "the step counter has no element");
    double t = *step += 1, clip = hd_float(&o->attrs, A_CLIP, 0.0), norm = o->n_in ? in[0].data[0] : 0;
    const Attr *betas = hd_attr(&o->attrs, A_BETAS);
    out->data[0] = learning_rate(&o->attrs, t);
    out->data[1] = (clip > 0 && norm > clip ? clip / norm : 1.0) / scale_of(o);
    if (hd_has(&o->attrs, A_ON_NAN) && !isfinite(norm)) out->data[1] = (double)NAN;
    if (hd_has(&o->attrs, A_HISTORY) && is_outlier(e, o, in[1].data[0], norm)) out->data[1] = (double)NAN;
    for (int i = 0; betas && i < 2 && i < betas->n; i++) out->data[2 + i] = 1.0 - pow(betas->floats[i], t);
    out->data[4] = (double)(float)t;
    out->data[5] = t - out->data[4];
    return NULL;
}

// --- the optimizer

typedef struct {
    Eval *e;
    const Op *o;
    const Func *k;
    Tensor grad, compute, part[1 + HD_MAX_STATES]; // part: the master weights, then the states
    const char *weights;                           // `compute` is there; NULL: it is not
    int n_parts;
    int64_t decayed; // of the elements that this rank has
    double rate, weight_decay, factor, correction[2];
    double *v;       // the numbers of one element, by value id of the kernel
    int *per;        // of those (ir/optimizer.h)
    double *turned;  // of each element: what the kernel orthogonalizes, and then the result; NULL: nothing
    const Lined *in; // the parameter that elements are of, where the kernel has lines, and
    double *means[HD_MAX_MEANS]; // what its line_means have given so far, by row or column or both
} Updating;

static Updating updating(Eval *e, const Op *o, const double *scalars) {
    const Mesh mesh = hd_mesh(e->module);
    Updating u = {.e = e, .o = o, .k = hd_update_kernel(o), .weights = hd_word(&o->attrs, A_WEIGHTS, NULL),
                  .grad = hd_eval_storage(e, hd_word(&o->attrs, A_GRADIENT, "")),
                  .part = {hd_eval_storage(e, hd_word(&o->attrs, A_MASTER_WEIGHTS, ""))},
                  .rate = round32(e, scalars[0] * round32(e, hd_float(&o->attrs, A_LR_SCALE, 1))),
                  .weight_decay = round32(e, hd_float(&o->attrs, A_WEIGHT_DECAY, 0.0)),
                  .factor = scalars[1], .correction = {scalars[2], scalars[3]}};
    if (u.weights) u.compute = hd_eval_storage(e, u.weights);
    u.n_parts = 1 + u.k->n_args - OPT_STATE;
    u.per = HD_NEWN(e->arena, int, u.k->n_values + 1);
    hd_optimizer_per(u.k, u.per);
    for (int s = 1; s < u.n_parts; s++) u.part[s] = hd_eval_storage(e, hd_state(e->module, &o->attrs, s - 1)->name);
    // this rank has the elements from there on
    const Axes split = hd_axes(&hd_named(o, A_MASTER_WEIGHTS)->attrs, A_SPLIT);
    u.decayed = hd_int(&o->attrs, A_DECAYED, 0) -
                hd_type_count(u.part[0].type) * hd_mesh_number(&mesh, split, e->rank);
    u.v = HD_NEWN(e->arena, double, u.k->n_values + 1);
    return u;
}

// The number of an element among those that a row, a column or the whole parameter has; i: of a rank's part.
static int64_t number_in(const Updating *u, int per, int64_t i) {
    const int64_t e = i - u->in->at, row = e / u->in->cols, column = e % u->in->cols;
    return per == PER_ELEMENT ? e : per == PER_ROW ? row : per == PER_COLUMN ? column : 0;
}

static double *state_at(const Updating *u, int state, int64_t i) {
    const int per = hd_state_per(u->k, state);
    return u->part[1 + state].data + (per == PER_ELEMENT ? i : u->in->line[state] + number_in(u, per, i));
}

// Runs the kernel for one element, as far as `end`.
static void run_element(const Updating *u, int64_t i, const Op *end) {
    const Eval *e = u->e;
    double *v = u->v;
    const double total = isnan(u->factor) ? u->factor : u->grad.data[i];
    const double given[OPT_STATE] = {hd_is_rule(u->k) ? total : round32(e, u->grad.data[i] * u->factor),
                                     u->part[0].data[i], u->rate, i < u->decayed ? u->weight_decay : 0.0,
                                     u->correction[0], u->correction[1]};
    for (int a = 0; a < u->k->n_args; a++)
        v[u->k->args[a]->id] = a < OPT_STATE ? given[a] : *state_at(u, a - OPT_STATE, i);
    int mean = 0;
    for (const Op *o = u->k->first; o != end; o = o->next) {
        double x[3] = {0};
        for (int k = 0; k < o->n_in; k++) x[k] = v[o->in[k]->id];
        v[o->out[0]->id] =
            hd_op_is(o, TRAIT_CONSTANT)   ? round32(e, hd_float(&o->attrs, A_VALUE, 0))
            : o->kind == OP_ORTHOGONALIZE ? u->turned[i]
            : hd_op_is(o, TRAIT_AVERAGES) ? u->means[mean++][number_in(u, u->per[o->out[0]->id], i)]
                                          : hd_eval_elt(o->kind, e->mode == EVAL_ROUNDED, x[0], x[1], x[2]);
    }
}

static double rounded(const Updating *u, DType t, double x) { return u->e->mode == EVAL_EXACT ? x : hd_round(t, x); }

// d (m x n) = alpha a b + beta c; ta: a is k x m; tb: b is n x k.
typedef struct { bool ta, tb; int64_t m, n, k; double alpha, beta; } Turning;
static void multiply(const Updating *u, DType t, Turning s, const double *a, const double *b, const double *c,
                     double *d) {
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < s.k; p++)
                sum += (s.ta ? a[p * s.m + i] : a[i * s.k + p]) * (s.tb ? b[j * s.k + p] : b[p * s.n + j]);
            d[i * s.n + j] = rounded(u, t, s.alpha * sum + (c ? s.beta * c[i * s.n + j] : 0));
        }
}

// As ir/optimizer.h says, in place.
static void turn(const Updating *u, DType t, const Turned *m, double *d) {
    const int64_t r = m->rows, c = m->cols, least = r < c ? r : c, n = r * c;
    const bool tall = r > c;
    double *x = HD_NEWN(u->e->arena, double, n), *g = HD_NEWN(u->e->arena, double, least * least),
           *h = HD_NEWN(u->e->arena, double, least * least), squares = 0;
    for (int64_t i = 0; i < n; i++) d[i] = rounded(u, t, d[i]), squares += d[i] * d[i];
    const double norm = round32(u->e, sqrt(squares)), by = norm > HD_TURN_LEAST || isnan(norm) ? norm : HD_TURN_LEAST;
    for (int64_t i = 0; i < n; i++) x[i] = rounded(u, t, d[i] / by);
    for (int k = 0; k < HD_TURNS; k++) {
        const double s = k == HD_TURNS - 1 ? m->scale : 1;
        double *from = k % 2 ? d : x, *to = k % 2 ? x : d;
        multiply(u, t, (Turning){tall, !tall, least, least, tall ? r : c, 1, 0}, from, from, NULL, g);
        multiply(u, t, (Turning){false, false, least, least, least, HD_TURN_C, HD_TURN_B}, g, g, g, h);
        multiply(u, t, (Turning){false, false, r, c, least, s, s * HD_TURN_A}, tall ? from : h, tall ? h : from, from,
                 to);
    }
}
_Static_assert(HD_TURNS % 2 == 1, "the last of them writes where the operand was");

static void turn_all(Updating *u, const Op *op) {
    const Mesh mesh = hd_mesh(u->e->module);
    const Symbol *master = hd_named(u->o, A_MASTER_WEIGHTS);
    const int64_t rank = hd_mesh_number(&mesh, hd_axes(&master->attrs, A_SPLIT), u->e->rank),
                  n = hd_type_count(u->part[0].type);
    DType t = TY_F32;
    hd_dtype_parse(hd_word(&op->attrs, A_OUT, ""), &t);
    u->turned = HD_NEWN(u->e->arena, double, n + 1);
    for (int64_t i = 0; i < n; i++) run_element(u, i, op), u->turned[i] = u->v[op->in[0]->id];
    const Turned *list;
    for (int i = 0, many = hd_turned(u->o, u->e->arena, &list); i < many; i++)
        if (list[i].rank == rank) turn(u, t, &list[i], u->turned + list[i].at);
}

// The means of a line_mean over its parameter: a sum of f64 for each row, then for the rows together.
static double *line_means(const Updating *u, const Op *op) {
    const int of = u->per[op->in[0]->id], to = u->per[op->out[0]->id];
    const int64_t rows = of & PER_ROW ? u->in->rows : 1, cols = of & PER_COLUMN ? u->in->cols : 1;
    const int64_t given = (to & PER_ROW ? u->in->rows : 1) * (to & PER_COLUMN ? u->in->cols : 1);
    double *sums = HD_NEWN(u->e->arena, double, given);
    for (int64_t r = 0; r < rows; r++) {
        double whole = 0;
        for (int64_t c = 0; c < cols; c++) {
            run_element(u, u->in->at + r * u->in->cols + c, op);
            const double x = u->v[op->in[0]->id];
            if (to & PER_COLUMN) sums[c] += x;
            else whole += x;
        }
        if (!(to & PER_COLUMN)) sums[to & PER_ROW ? r : 0] += whole;
    }
    for (int64_t i = 0; i < given; i++) sums[i] = round32(u->e, sums[i] / ((double)(rows * cols) / (double)given));
    return sums;
}

// One parameter: all means, then its elements, then the states of lines, which elements have read before.
static void update_lined(Updating *u, const Lined *l) {
    const Op *ret = hd_return(u->k);
    const int64_t n = l->rows * l->cols;
    double *fresh[HD_MAX_STATES];
    int mean = 0;
    u->in = l;
    for (const Op *o = u->k->first; o; o = o->next)
        if (hd_op_is(o, TRAIT_AVERAGES)) u->means[mean] = line_means(u, o), mean++;
    for (int s = 0; s + 1 < u->n_parts; s++) fresh[s] = HD_NEWN(u->e->arena, double, n);
    for (int64_t i = l->at; i < l->at + n; i++) {
        run_element(u, i, ret);
        for (int s = 0; s + 1 < u->n_parts; s++)
            fresh[s][number_in(u, hd_state_per(u->k, s), i)] = u->v[ret->in[1 + s]->id];
        u->turned[i - l->at] = u->v[ret->in[0]->id];
    }
    for (int64_t i = l->at; i < l->at + n; i++) {
        u->part[0].data[i] = u->turned[i - l->at];
        if (u->weights) u->compute.data[i] = rounded(u, u->compute.type->dtype, u->part[0].data[i]);
        for (int s = 0; s + 1 < u->n_parts; s++)
            *state_at(u, s, i) = fresh[s][number_in(u, hd_state_per(u->k, s), i)];
    }
}

static void update_lines(Updating *u) {
    const Mesh mesh = hd_mesh(u->e->module);
    const int64_t rank = hd_mesh_number(&mesh, hd_axes(&hd_named(u->o, A_MASTER_WEIGHTS)->attrs, A_SPLIT), u->e->rank);
    const Lines x = hd_lined(u->o, u->e->arena);
    u->turned = HD_NEWN(u->e->arena, double, hd_type_count(u->part[0].type) + 1);
    for (int i = 0; i < x.n; i++)
        if (x.list[i].rank == rank) update_lined(u, &x.list[i]);
}

// Weights that are kept in bf16, at random (ir/rounding.h).
typedef struct { const RoundedParam *list; int n; uint32_t seed[2], step; int64_t place, before; } Rounding;

static Rounding rounding(Eval *e, const Op *o, const double *scalars) {
    const Mesh mesh = hd_mesh(e->module);
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS),
                 *bucket = hd_symbol_find(e->module, hd_word(&master->attrs, A_BUCKET, ""));
    Rounding r = {.step = (uint32_t)(int64_t)(scalars[4] + scalars[5])};
    if (!hd_has(&o->attrs, A_ROUNDING) || !bucket) return r;
    const double *seed = hd_eval_range(e, hd_word(&o->attrs, A_ROUNDING, ""), 0, 2);
    for (int i = 0; i < 2; i++) r.seed[i] = (uint32_t)(int64_t)seed[i];
    r.n = hd_rounded_params(e->module, bucket, e->arena, &r.list);
    r.place = hd_mesh_number(&mesh, hd_rounded_over(e->module, bucket), e->rank);
    r.before = hd_type_count(master->type) * hd_mesh_number(&mesh, hd_axes(&master->attrs, A_SPLIT), e->rank);
    return r;
}

static double round_weight(const Rounding *r, int64_t i, double x) {
    int k = 0;
    while (k + 1 < r->n && r->list[k + 1].at <= r->before + i) k++;
    const int64_t at = r->n ? r->before + i - r->list[k].at : -1;
    if (at < 0) return hd_round(TY_BF16, x); // padding
    return hd_round_by(x, hd_rounding_word(r->seed, r->step, &r->list[k], r->place, at));
}

const char *hd_eval_update(Eval *e, const Op *o, const Tensor *in, Tensor *out HD_UNUSED) {
    Updating u = updating(e, o, in[0].data);
    const bool narrow = e->mode != EVAL_EXACT && u.part[0].type->dtype == TY_BF16;
    const Rounding r = rounding(e, o, in[0].data);
    const Op *turns = hd_optimizer_turn(u.k), *ret = hd_return(u.k);
    if (turns) turn_all(&u, turns);
    if (hd_has_lines(u.k)) {
        update_lines(&u);
        return NULL;
    }
    for (int64_t i = 0, n = hd_type_count(u.part[0].type); i < n; i++) {
        run_element(&u, i, ret);
        for (int s = narrow; s < u.n_parts; s++)
            u.part[s].data[i] = rounded(&u, u.part[s].type->dtype, u.v[ret->in[s]->id]);
        if (narrow) u.part[0].data[i] = round_weight(&r, i, u.v[ret->in[0]->id]);
        if (u.weights) u.compute.data[i] = rounded(&u, u.compute.type->dtype, u.part[0].data[i]);
    }
    return NULL;
}
