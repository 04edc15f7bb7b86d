// `map` kernels of conv1d and of its gradient. A thread has some columns side by side and walks along a run of
// positions, so that it reads most of what they share once. In reverse it is the same over the mirrored sequence.
#include "codegen/cuda/map.h"
#include "ir/shapes.h"

enum { RUN = 16, WARPS = 8, AHEAD = 8 }; // positions of a thread; gradient: warps of a block, rows read at once

// The columns of a thread: at most `most`, neighbours in every operand.
static int columns(const Map *m, const ConvShape *s, DType d, int most) {
    int v = d == TY_F64 || s->taps > 8 ? 1 : most;
    while (v > 1 && (v > m->widest || s->dim % v || s->wide % v || s->start % v)) v /= 2;
    return v;
}

static int operand(const Map *m, int i) { return m->o->in[i]->index; }

// What every kernel begins with: taps and bias of the thread's columns.
static void load_taps(Map *m, const ConvShape *s, DType d, int v) {
    const char *real = hd_cuda_compute(d), *type = hd_cuda_type(d);
    line(m, "%s tap[%lld][%d]%s;", real, ll(s->taps), v, s->bias ? hd_sprintf(m->a, ", bias[%d]", v) : "");
    line(m, "#pragma unroll");
    line(m, "for (int j = 0; j < %lld; j++) {", ll(s->taps));
    line(m, "Raw<%s, %d> w;", type, v);
    line(m, "w.load(in%d + j * %lldll + column);", operand(m, s->grad + 1), ll(s->dim));
    line(m, "for (int c = 0; c < %d; c++) tap[j][c] = w.at(c);", v);
    line(m, "}");
    if (!s->bias) return;
    line(m, "Raw<%s, %d> b;", type, v);
    line(m, "b.load(in%d + column);", operand(m, s->grad + 2));
    line(m, "for (int c = 0; c < %d; c++) bias[c] = b.at(c);", v);
}

// The row of position t of the sequence whose first row is `base`.
static const char *row(const Map *m, const ConvShape *s, const char *t) {
    return s->reverse ? hd_sprintf(m->a, "(base + %lld - (%s))", ll(s->seq - 1), t)
                      : hd_sprintf(m->a, "(base + %s)", t);
}

// Of documents: far: how many positions of its document are before a position in memory, here before that of t.
static void load_far(Map *m, const ConvShape *s, const char *to) {
    if (!s->documents) return;
    line(m, "%s = (int)%s - in%d[%s];", to, s->reverse ? hd_sprintf(m->a, "(%lld - t)", ll(s->seq - 1)) : "t",
         operand(m, m->o->n_in - 1), row(m, s, "t"));
}
// x where the position that reads it and its own, `back` before that, are of one document; else 0. `reader` and `own`
// say where their `far` is. The later of the two in memory decides.
static const char *seen(const Map *m, const ConvShape *s, const char *back, const char *reader, const char *own,
                        const char *x) {
    if (!s->documents) return x;
    return hd_sprintf(m->a, "(%s <= far[%s] ? %s : 0)", back, s->reverse ? own : reader, x);
}

// 1 / (1 + e^-y), as overrides.def says of silu
static const char *sigmoid(DType d) { return d == TY_F64 ? "1 / (1 + exp(-y))" : "fast_sigmoid(y)"; }

// y: the sum of column c over x[first], ...
static void put_sum(Map *m, const ConvShape *s, const char *real, const char *x) {
    line(m, "%s y = 0;", real);
    line(m, "#pragma unroll");
    line(m, "for (int j = 0; j < %lld; j++) y = plus(y, times(tap[j][c], %s));", ll(s->taps), x);
    if (s->bias) line(m, "y = plus(y, bias[c]);");
}

void hd_map_conv1d(Map *m) {
    const ConvShape s = hd_conv_shape(m->o);
    const DType d = m->o->in[0]->type->dtype;
    const int v = columns(m, &s, d, 4);
    const int64_t runs = hd_ceil_div(s.seq, RUN), shared = s.taps - 1;
    const char *real = hd_cuda_compute(d), *type = hd_cuda_type(d);
    open_threads(m, s.dim && s.seq ? s.outer * runs * s.dim : 0, v, "i64");
    line(m, "const i64 column = at %% %lld, run = at / %lld;", ll(s.dim), ll(s.dim));
    line(m, "const i64 first = run %% %lld * %d, base = run / %lld * %lldll;", ll(runs), RUN, ll(runs), ll(s.seq));
    load_taps(m, &s, d, v);
    line(m, "Raw<%s, %d> x[%lld];", type, v, ll(RUN + shared));
    if (s.documents) line(m, "int far[%lld] = {};", ll(RUN + shared));
    line(m, "#pragma unroll");
    line(m, "for (int i = 0; i < %lld; i++) {", ll(RUN + shared));
    line(m, "const i64 t = first + i - %lld;", ll(shared));
    line(m, "if (t >= 0 && t < %lld) x[i].load(in%d + %s * %lld + %lld + column);", ll(s.seq), operand(m, 0),
         row(m, &s, "t"), ll(s.wide), ll(s.start));
    line(m, "else x[i].zero();");
    load_far(m, &s, hd_sprintf(m->a, "if (t >= 0 && t < %lld) far[i]", ll(s.seq)));
    line(m, "}");
    line(m, "#pragma unroll");
    line(m, "for (int i = 0; i < %d; i++) {", RUN);
    line(m, "%s sum[%d];", real, v);
    line(m, "#pragma unroll");
    line(m, "for (int c = 0; c < %d; c++) {", v);
    put_sum(m, &s, real, seen(m, &s, hd_sprintf(m->a, "%lld - j", ll(shared)), hd_sprintf(m->a, "i + %lld", ll(shared)),
                              "i + j", "x[i + j].at(c)"));
    line(m, "sum[c] = %s;", s.silu ? hd_sprintf(m->a, "times(y, %s)", sigmoid(d)) : "y");
    line(m, "}");
    line(m, "if (first + i < %lld) put<%s, %d>(out + %s * %lld + column, sum);", ll(s.seq), type, v,
         row(m, &s, "first + i"), ll(s.dim));
    line(m, "}");
}

static bool returns(const Map *m, int i) {
    const Op *r = hd_return(m->k);
    for (int k = 0; k < r->n_in; k++)
        if (r->in[k]->index == i) return true;
    return false;
}

// One position further: x[k - 1] and g[k - 1] are those of position t, g of the gradient of the sum.
static void put_position(Map *m, const ConvShape *s, DType d, int v) {
    const char *real = hd_cuda_compute(d), *back = hd_sprintf(m->a, "%lld - j", ll(s->taps - 1));
    const char *x = seen(m, s, back, hd_sprintf(m->a, "%lld", ll(s->taps - 1)), "j", "x[j][c]");
    if (s->documents) {
        line(m, "#pragma unroll");
        line(m, "for (int j = 0; j < %lld; j++) far[j] = far[j + 1];", ll(s->taps - 1));
        line(m, "far[%lld] = fars[u];", ll(s->taps - 1));
    }
    line(m, "#pragma unroll");
    line(m, "for (int c = 0; c < %d; c++) {", v);
    line(m, "#pragma unroll");
    line(m, "for (int j = 0; j < %lld; j++) x[j][c] = x[j + 1][c], g[j][c] = g[j + 1][c];", ll(s->taps - 1));
    line(m, "x[%lld][c] = xs[u].at(c);", ll(s->taps - 1));
    line(m, "%s slope = dys[u].at(c);", real);
    if (s->silu) {
        put_sum(m, s, real, x);
        line(m, "const %s gate = %s;", real, sigmoid(d));
        line(m, "slope = times(slope, times(gate, fused(y, minus(%s(1), gate), %s(1))));", real, real);
    }
    line(m, "g[%lld][c] = slope;", ll(s->taps - 1));
    if (returns(m, 1) || returns(m, 2)) line(m, "if (t < last) {");
    if (returns(m, 1)) {
        line(m, "#pragma unroll");
        line(m, "for (int j = 0; j < %lld; j++) add[j][c] = fused(slope, %s, add[j][c]);", ll(s->taps), x);
    }
    if (returns(m, 2)) line(m, "add[%lld][c] = plus(add[%lld][c], slope);", ll(s->taps), ll(s->taps));
    if (returns(m, 1) || returns(m, 2)) line(m, "}");
    line(m, "}");
    if (!returns(m, 0)) return;
    line(m, "if (t - %lld >= first && t - %lld < last) {", ll(s->taps - 1), ll(s->taps - 1));
    line(m, "%s dx[%d];", real, v);
    line(m, "#pragma unroll");
    line(m, "for (int c = 0; c < %d; c++) {", v);
    line(m, "dx[c] = 0;");
    line(m, "#pragma unroll");
    line(m, "for (int j = 0; j < %lld; j++) dx[c] = plus(dx[c], times(tap[j][c], %s));", ll(s->taps),
         seen(m, s, back, back, "0", hd_sprintf(m->a, "g[%s][c]", back)));
    line(m, "}");
    line(m, "put<%s, %d>(out + %s * %lld + column, dx);", hd_cuda_type(d), v,
         row(m, s, hd_sprintf(m->a, "t - %lld", ll(s->taps - 1))), ll(s->dim));
    line(m, "}");
}

// A warp walks along its share of a run. It reads AHEAD rows of x and dy, then works on them.
static void walk_run(Map *m, const ConvShape *s, DType d, int v) {
    const char *type = hd_cuda_type(d);
    load_taps(m, s, d, v);
    line(m, "#pragma unroll");
    line(m, "for (int j = 1; j < %lld; j++) {", ll(s->taps));
    line(m, "Raw<%s, %d> w;", type, v);
    line(m, "const i64 t = first + j - %lld;", ll(s->taps));
    line(m, "if (t >= 0 && t < %lld) w.load(in%d + %s * %lld + %lld + column);", ll(s->seq), operand(m, 1),
         row(m, s, "t"), ll(s->wide), ll(s->start));
    line(m, "else w.zero();");
    load_far(m, s, hd_sprintf(m->a, "if (t >= 0 && t < %lld) far[j]", ll(s->seq)));
    line(m, "for (int c = 0; c < %d; c++) x[j][c] = w.at(c);", v);
    line(m, "}");
    line(m, "for (i64 from = first; first < last && from < last + %lld; from += %d) {", ll(s->taps - 1), AHEAD);
    line(m, "Raw<%s, %d> xs[%d], dys[%d];", type, v, AHEAD, AHEAD);
    if (s->documents) line(m, "int fars[%d] = {};", AHEAD);
    line(m, "#pragma unroll");
    line(m, "for (int u = 0; u < %d; u++) {", AHEAD);
    line(m, "const i64 t = from + u;");
    line(m, "xs[u].zero(), dys[u].zero();");
    line(m, "if (t < %lld && t < last + %lld) {", ll(s->seq), ll(s->taps - 1));
    line(m, "xs[u].load(in%d + %s * %lld + %lld + column);", operand(m, 1), row(m, s, "t"), ll(s->wide), ll(s->start));
    line(m, "dys[u].load(in%d + %s * %lld + column);", operand(m, 0), row(m, s, "t"), ll(s->dim));
    load_far(m, s, "fars[u]");
    line(m, "}");
    line(m, "}");
    line(m, "#pragma unroll");
    line(m, "for (int u = 0; u < %d; u++) {", AHEAD);
    line(m, "const i64 t = from + u;");
    put_position(m, s, d, v);
    line(m, "}");
    line(m, "}");
}

// The sums of the warps of a block, in their order, are one sum of the run.
static void put_run_sums(Map *m, const ConvShape *s, const char *real, int v) {
    line(m, "__shared__ %s part[%d][%d];", real, WARPS, 32 * v);
    line(m, "const i64 own = tile * %d + threadIdx.x;", 32 * v);
    line(m, "#pragma unroll");
    line(m, "for (int j = %lld; j < %lld; j++) {", returns(m, 1) ? 0ll : ll(s->taps), ll(s->taps + returns(m, 2)));
    line(m, "for (int c = 0; c < %d; c++) part[warp][lane * %d + c] = add[j][c];", v, v);
    line(m, "__syncthreads();");
    line(m, "if (threadIdx.x < %d && own < %lld) {", 32 * v, ll(s->dim));
    line(m, "%s sum = 0;", real);
    line(m, "for (int w = 0; w < %d; w++) sum = plus(sum, part[w][threadIdx.x]);", WARPS);
    if (returns(m, 1) && returns(m, 2))
        line(m, "*(j < %lld ? out1 + (run * %lld + j) * %lld + own : out2 + run * %lld + own) = sum;", ll(s->taps),
             ll(s->taps), ll(s->dim), ll(s->dim));
    else if (returns(m, 1)) line(m, "out1[(run * %lld + j) * %lld + own] = sum;", ll(s->taps), ll(s->dim));
    else line(m, "out2[run * %lld + own] = sum;", ll(s->dim));
    line(m, "}");
    line(m, "__syncthreads();");
    line(m, "}");
}

void hd_map_conv1d_grad(Map *m) {
    const ConvShape s = hd_conv_shape(m->o);
    const DType d = m->o->in[0]->type->dtype;
    const int v = columns(m, &s, d, 2);
    const int64_t tiles = hd_ceil_div(s.dim, 32 * v), runs = hd_ceil_div(s.seq, HD_CONV_RUN);
    const char *real = hd_cuda_compute(d);
    signature(m, 32 * WARPS);
    if (s.runs && s.dim) {
        line(m, "const int lane = threadIdx.x %% 32, warp = threadIdx.x / 32;");
        line(m, "const i64 tile = blockIdx.x %% %lld, run = blockIdx.x / %lld, base = run / %lld * %lldll;", ll(tiles),
             ll(tiles), ll(runs), ll(s.seq));
        line(m, "const i64 column = (tile * 32 + lane) * %d;", v);
        line(m, "const i64 first = run %% %lld * %d + warp * %d, last = min(first + %d, (i64)%lld);", ll(runs),
             HD_CONV_RUN, HD_CONV_RUN / WARPS, HD_CONV_RUN / WARPS, ll(s.seq));
        line(m, "%s x[%lld][%d], g[%lld][%d] = {}, add[%lld][%d] = {};", real, ll(s.taps), v, ll(s.taps), v,
             ll(s.taps + 1), v);
        if (s.documents) line(m, "int far[%lld] = {};", ll(s.taps));
        line(m, "if (column < %lld) {", ll(s.dim));
        walk_run(m, &s, d, v);
        line(m, "}");
        if (returns(m, 1) || returns(m, 2)) put_run_sums(m, &s, real, v);
    }
    grid(m, tiles * s.runs);
}
