// `map` kernels: one movement, lookup or reduction. Every op becomes a strided walk: the output's axes, each with the
// distance between neighbours in the operand; axes that are contiguous in both are merged. A thread makes one vector of
// the output; a transpose of the innermost axis goes through shared memory in 32 x 32 tiles. Reductions add in the
// order of the operand (one thread per output) or, where outputs are few, in a fixed tree of 256 threads.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include <string.h>

typedef struct { int64_t size, stride; } Axis;
typedef struct { int n; Axis axis[HD_MAX_RANK]; int64_t base; } Walk; // outermost first

typedef struct {
    const Func *k;
    const Op *o;
    const char *name;
    int widest;
    Arena *a;
    Out out;
    int depth;
    CudaLaunch l;
} Map;

// merges it with the axis before where the two are contiguous
static void push(Walk *w, int64_t size, int64_t stride) {
    if (size == 1) return;
    Axis *last = w->n ? &w->axis[w->n - 1] : NULL;
    if (last && last->stride == stride * size) *last = (Axis){last->size * size, stride};
    else w->axis[w->n++] = (Axis){size, stride};
}

static int64_t count(const Walk *w) {
    int64_t n = 1;
    for (int i = 0; i < w->n; i++) n *= w->axis[i].size;
    return n;
}

// Where in the operand the output's elements come from: transpose, slice and broadcast.
static Walk movement(const Op *o) {
    const Type *in = o->in[0]->type, *out = o->out[0]->type;
    Walk w = {0};
    int64_t stride[HD_MAX_RANK];
    hd_strides(in, stride);
    const Attr *perm = hd_attr(&o->attrs, A_PERM);
    for (int i = 0; i < out->rank; i++) {
        int from = o->kind == OP_TRANSPOSE   ? (int)perm->ints[i]
                   : o->kind == OP_BROADCAST ? i - (out->rank - in->rank)
                                             : i;
        bool repeated = from < 0 || (o->kind == OP_BROADCAST && in->dim[from] != out->dim[i]);
        push(&w, out->dim[i], repeated ? 0 : stride[from]);
    }
    if (o->kind == OP_SLICE) w.base = hd_int(&o->attrs, A_START, 0) * stride[hd_int(&o->attrs, A_AXIS, 0)];
    return w;
}

// Splits the operand's axes into those of the output and those that are reduced.
static void reduction(const Op *o, Walk *kept, Walk *reduced) {
    const Type *in = o->in[0]->type;
    const unsigned gone = hd_reduced_axes(o);
    int64_t stride[HD_MAX_RANK];
    hd_strides(in, stride);
    *kept = *reduced = (Walk){0};
    for (int i = 0; i < in->rank; i++) push(gone >> i & 1 ? reduced : kept, in->dim[i], stride[i]);
}

// the widest vector whose elements are neighbours on both sides
static int vector(const Map *m, const Walk *w, DType d) {
    int v = 16 / hd_dtype_bytes(d);
    if (v > m->widest) v = m->widest;
    if (!w->n || w->axis[w->n - 1].stride != 1) return 1;
    for (; v > 1; v /= 2) {
        bool fits = w->base % v == 0 && w->axis[w->n - 1].size % v == 0;
        for (int i = 0; i + 1 < w->n; i++) fits = fits && w->axis[i].stride % v == 0;
        if (fits) return v;
    }
    return 1;
}

__attribute__((format(printf, 2, 3))) static void line(Map *m, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = hd_vsprintf(m->a, fmt, ap);
    va_end(ap);
    m->depth -= text[0] == '}';
    hd_printf(&m->out, "%*s%s\n", text[0] == '#' ? 0 : 4 * (m->depth + 1), "", text);
    m->depth += text[strlen(text) - 1] == '{';
}

static void signature(Map *m, unsigned threads) {
    hd_printf(&m->out, "extern \"C\" __global__ void __launch_bounds__(%u) %s(", threads, m->name);
    for (int i = 0; i < m->k->n_args; i++) {
        hd_printf(&m->out, "const %s *in%d, ", hd_cuda_type(m->k->args[i]->type->dtype), i);
        hd_push(m->a, &m->l.args, ((CudaArg){CUDA_IN, i}));
    }
    hd_printf(&m->out, "%s *out) {\n    enter();\n", hd_cuda_type(m->o->out[0]->type->dtype));
    hd_push(m->a, &m->l.args, ((CudaArg){CUDA_OUT, 0}));
    m->l.block = threads;
}

static const char *index_type(int64_t a, int64_t b) { return a > 2000000000 || b > 2000000000 ? "i64" : "int"; }

static void grid(Map *m, int64_t blocks) { m->l.gx = (unsigned)(blocks > 0 ? blocks : 1), m->l.gy = m->l.gz = 1; }

// Opens a kernel with one thread for every v elements of `total`: `at` is the first.
static void open_threads(Map *m, int64_t total, int v, const char *type) {
    signature(m, 256);
    line(m, "const %s at = ((%s)blockIdx.x * 256 + (int)threadIdx.x) * %d;", type, type, v);
    line(m, "if (at >= %lld) return;", ll(total));
    grid(m, (total / v + 255) / 256);
}

// Statements that turn `at` into an offset `from` in the operand.
static void put_walk(Map *m, const Walk *w, const char *type, const char *at, const char *from) {
    line(m, "%s %s_rest = %s, %s = %lld;", type, from, at, from, ll(w->base));
    for (int i = w->n - 1; i >= 0; i--) {
        const Axis *x = &w->axis[i];
        const char *index =
            i ? hd_sprintf(m->a, "%s_rest %% %lld", from, ll(x->size)) : hd_sprintf(m->a, "%s_rest", from);
        if (x->stride == 1) line(m, "%s += %s;", from, index);
        else if (x->stride) line(m, "%s += %s * (%s)%lld;", from, index, type, ll(x->stride));
        if (i) line(m, "%s_rest /= %lld;", from, ll(x->size));
    }
}

static void strided_copy(Map *m, const Walk *w) {
    const Type *in = m->o->in[0]->type, *out = m->o->out[0]->type;
    int64_t total = hd_type_count(out);
    const char *type = index_type(total, hd_type_count(in)), *dtype = hd_cuda_type(out->dtype);
    int v = vector(m, w, out->dtype);
    open_threads(m, total, v, type);
    put_walk(m, w, type, "at", "from");
    line(m, "Raw<%s, %d> x;", dtype, v);
    line(m, "x.load(in0 + from);");
    line(m, "x.store(out + at);");
}

// The innermost axis of the output is strided in the operand; axis `near` is contiguous there. Uses tiles of 32 x 32 of
// those two.
static void tiled_transpose(Map *m, const Walk *w, int near) {
    const char *dtype = hd_cuda_type(m->o->out[0]->type->dtype);
    int last = w->n - 1;
    int64_t across = (w->axis[last].size + 31) / 32, down = (w->axis[near].size + 31) / 32, others = 1,
            out_stride[HD_MAX_RANK], s = 1;
    for (int i = last; i >= 0; i--) out_stride[i] = s, s *= w->axis[i].size;
    signature(m, 256);
    line(m, "__shared__ %s tile[32][33];", dtype);
    line(m, "const int x = threadIdx.x %% 32, y = threadIdx.x / 32;");
    line(m, "i64 rest = blockIdx.x;");
    line(m, "const i64 a = rest %% %lld * 32;", ll(across)); // along the output's innermost axis
    line(m, "rest /= %lld;", ll(across));
    line(m, "const i64 b = rest %% %lld * 32;", ll(down)); // along the operand's innermost axis
    line(m, "rest /= %lld;", ll(down));
    line(m, "i64 from = %lld, to = 0;", ll(w->base));
    for (int i = last - 1; i >= 0; i--) {
        if (i == near) continue;
        line(m, "from += rest %% %lld * %lldll, to += rest %% %lld * %lldll, rest /= %lld;", ll(w->axis[i].size),
             ll(w->axis[i].stride), ll(w->axis[i].size), ll(out_stride[i]), ll(w->axis[i].size));
        others *= w->axis[i].size;
    }
    line(m, "for (int i = y; i < 32; i += 8)");
    line(m, "    if (a + i < %lld && b + x < %lld) tile[i][x] = in0[from + (a + i) * %lldll + b + x];",
         ll(w->axis[last].size), ll(w->axis[near].size), ll(w->axis[last].stride));
    line(m, "__syncthreads();");
    line(m, "for (int i = y; i < 32; i += 8)");
    line(m, "    if (a + x < %lld && b + i < %lld) out[to + (b + i) * %lldll + a + x] = tile[x][i];",
         ll(w->axis[last].size), ll(w->axis[near].size), ll(out_stride[near]));
    grid(m, across * down * others);
}

// A matrix of bytes becomes its transpose, in tiles of 128 x 128 (turn_bytes in fp8.cu); with factors of rows, times
// them.
static bool turns_bytes(Map *m, const Type *in) {
    const int64_t rows = hd_type_rows(in), cols = hd_type_cols(in);
    if (!hd_dtype_is_fp8(in->dtype) || m->widest < 8 || rows % 16 || cols % 16 || !rows || !cols) return false;
    const bool scaled = m->o->n_in > 1;
    signature(m, 256);
    line(m, "turn_bytes<%s>(in%d, %s, out, %lld, %lld);", scaled ? "true" : "false", m->o->in[0]->index,
         scaled ? hd_sprintf(m->a, "in%d", m->o->in[1]->index) : "nullptr", ll(rows), ll(cols));
    grid(m, hd_ceil_div(rows, 128) * hd_ceil_div(cols, 128));
    return true;
}

static void map_requantize(Map *m) {
    const Type *in = m->o->in[0]->type;
    const int64_t rows = hd_type_rows(in), total = hd_type_count(in);
    if (turns_bytes(m, in)) return;
    const char *type = index_type(total, 0);
    open_threads(m, total, 1, type);
    line(m, "const %s r = at %% %lld, c = at / %lld;", type, ll(rows), ll(rows));
    line(m, "put1(out + at, times(widen(in%d[r * %lld + c]), in%d[r]));", m->o->in[0]->index, ll(hd_type_cols(in)),
         m->o->in[1]->index);
}

static void move(Map *m) {
    Walk w = movement(m->o);
    const Type *in = m->o->in[0]->type;
    if (m->o->kind == OP_TRANSPOSE && in->rank == 2 && w.n == 2 && w.axis[0].stride == 1 && turns_bytes(m, in)) return;
    int near = -1;
    for (int i = 0; i + 1 < w.n; i++)
        if (w.axis[i].stride == 1) near = i;
    if (near >= 0 && w.axis[w.n - 1].stride > 1 && w.axis[near].size >= 8 && w.axis[w.n - 1].size >= 8)
        tiled_transpose(m, &w, near);
    else strided_copy(m, &w);
}

static void map_concat(Map *m) {
    const Op *o = m->o;
    const Type *out = o->out[0]->type;
    int64_t axis = hd_int(&o->attrs, A_AXIS, 0), inner = 1, start = 0, total = hd_type_count(out);
    for (int i = (int)axis + 1; i < out->rank; i++) inner *= out->dim[i];
    int64_t width = out->dim[axis] * inner;
    int v = 16 / hd_dtype_bytes(out->dtype);
    if (v > m->widest) v = m->widest;
    for (bool fits = false; !fits && v > 1; v = fits ? v : v / 2) {
        fits = true;
        for (int i = 0; i < o->n_in; i++) fits = fits && o->in[i]->type->dim[axis] * inner % v == 0;
    }
    const char *type = index_type(total, 0);
    open_threads(m, total, v, type);
    line(m, "const %s outer = at / %lld, col = at %% %lld;", type, ll(width), ll(width));
    line(m, "Raw<%s, %d> x;", hd_cuda_type(out->dtype), v);
    for (int i = 0; i < o->n_in; i++) {
        int64_t part = o->in[i]->type->dim[axis] * inner;
        line(m, "%s%sx.load(in%d + outer * %lld + col - %lld);", i ? "else " : "",
             i + 1 < o->n_in ? hd_sprintf(m->a, "if (col < %lld) ", ll(start + part)) : "", o->in[i]->index, ll(part),
             ll(start));
        start += part;
    }
    line(m, "x.store(out + at);");
}

static void map_embedding(Map *m) {
    const Type *out = m->o->out[0]->type;
    int64_t total = hd_type_count(out), cols = hd_type_cols(out);
    Walk w = {1, {{cols, 1}}, 0};
    int v = vector(m, &w, out->dtype);
    open_threads(m, total, v, index_type(total, 0));
    line(m, "Raw<%s, %d> x;", hd_cuda_type(out->dtype), v);
    line(m, "x.load(in%d + (i64)in%d[at / %lld] * %lld + at %% %lld);", m->o->in[0]->index, m->o->in[1]->index,
         ll(cols), ll(cols), ll(cols));
    line(m, "x.store(out + at);");
}

static void map_iota(Map *m) {
    const Type *out = m->o->out[0]->type;
    int64_t total = hd_type_count(out);
    open_threads(m, total, 1, index_type(total, 0));
    line(m, "put1(out + at, (%s)(at %% %lld));", hd_cuda_compute(out->dtype), ll(hd_type_cols(out)));
}

// Adds (or compares) the reduced elements from `first` on, each `step`-th, into acc[v].
static void put_reduce_loop(Map *m, const Walk *reduced, int v, const char *first, const char *step) {
    const Type *in = m->o->in[0]->type;
    bool largest = m->o->kind == OP_REDUCE_MAX;
    const char *r = hd_cuda_compute(in->dtype);
    line(m, "%s acc[%d];", r, v);
    line(m, largest ? "for (int j = 0; j < %d; j++) acc[j] = least<%s>();" : "for (int j = 0; j < %d; j++) acc[j] = 0;",
         v, r);
    line(m, "#pragma unroll 4");
    line(m, "for (i64 i = %s; i < %lld; i += %s) {", first, ll(count(reduced)), step);
    put_walk(m, reduced, "i64", "i", "far");
    line(m, "Raw<%s, %d> x;", hd_cuda_type(in->dtype), v);
    line(m, "x.load(in0 + from + far);");
    line(m,
         largest ? "for (int j = 0; j < %d; j++) acc[j] = larger(x.at(j), acc[j]);"
                 : "for (int j = 0; j < %d; j++) acc[j] += x.at(j);",
         v);
    line(m, "}");
}

static void map_reduction(Map *m) {
    const Type *in = m->o->in[0]->type, *out = m->o->out[0]->type;
    Walk kept, reduced;
    reduction(m->o, &kept, &reduced);
    int64_t total = hd_type_count(out), n = count(&reduced);
    const char *compute = hd_cuda_compute(out->dtype);
    if (total >= 16384 || n <= 64) {
        int v = vector(m, &kept, in->dtype), w = 16 / hd_dtype_bytes(out->dtype);
        if (w < v) v = w;
        for (int i = 0; v > 1 && i < reduced.n; i++)
            while (v > 1 && reduced.axis[i].stride % v) v /= 2;
        open_threads(m, total, v, index_type(total, hd_type_count(in)));
        put_walk(m, &kept, "i64", "at", "from");
        put_reduce_loop(m, &reduced, v, "0", "1");
        line(m, "%s y[%d];", compute, v);
        line(m, "for (int j = 0; j < %d; j++) y[j] = (%s)acc[j];", v, compute);
        line(m, "put<%s, %d>(out + at, y);", hd_cuda_type(out->dtype), v);
        return;
    }
    bool largest = m->o->kind == OP_REDUCE_MAX;
    signature(m, 256);
    line(m, "const int at = blockIdx.x;");
    put_walk(m, &kept, "i64", "at", "from");
    put_reduce_loop(m, &reduced, 1, "threadIdx.x", "256");
    line(m, "__shared__ %s part[256];", hd_cuda_compute(in->dtype));
    line(m, "part[threadIdx.x] = acc[0];");
    line(m, "for (int d = 128; d > 0; d /= 2) {");
    line(m, "__syncthreads();");
    line(m, largest ? "if (threadIdx.x < d) part[threadIdx.x] = larger(part[threadIdx.x], part[threadIdx.x + d]);"
                    : "if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];");
    line(m, "}");
    line(m, "if (threadIdx.x == 0) put1(out + at, (%s)part[0]);", compute);
    grid(m, total);
}

// Walks down `column` from i = `from` to `to`, with the sums over the run and over the earlier runs of the group.
static void walk_group(Map *m, const char *at, int64_t inner, bool put) {
    line(m, "run = 0, sum = 0;");
    line(m, "#pragma unroll 8");
    line(m, "for (i64 i = from; i < to; i++) {");
    line(m, "if (i %% %d == 0) run = plus(run, sum), sum = 0;", HD_SCAN_RUN);
    line(m, "const i64 k = base + (%s) * %lld;", at, ll(inner));
    line(m, "sum = plus(sum, widen(in0[k]));");
    if (put) line(m, "put1(out + k, plus(plus(plus(tile, before), run), sum));");
    line(m, "}");
}

// Neighbouring columns: threads beside each other have columns beside each other, those in front of each other have the
// groups of a tile. Where there are several, a first walk gives every group its sum, for the groups after it.
static void walk_columns(Map *m, int64_t n, int64_t inner, const char *at, const char *real) {
    enum { GROUP = HD_SCAN_RUN * HD_SCAN_RUN };
    const int64_t columns = hd_type_count(m->o->out[0]->type) / n;
    int groups = 1;
    while (groups < HD_SCAN_RUN && groups * GROUP < n) groups *= 2;
    const int lanes = groups < 8 ? 256 / groups : 32;
    signature(m, (unsigned)(lanes * groups));
    line(m, "const int lane = threadIdx.x %% %d, own = threadIdx.x / %d;", lanes, lanes);
    line(m, "const i64 column = (i64)blockIdx.x * %d + lane;", lanes);
    line(m, "const i64 base = column / %lld * %lldll + column %% %lld;", ll(inner), ll(n * inner), ll(inner));
    line(m, "%s tile = 0, before = 0, run, sum;", real);
    if (groups > 1) line(m, "__shared__ %s group[%d][%d];", real, groups, lanes);
    line(m, "for (i64 first = 0; first < %lld; first += %d) {", ll(n), groups * GROUP);
    line(m, "const i64 from = first + own * %d, to = column < %lld ? min(from + %d, (i64)%lld) : from;", GROUP,
         ll(columns), GROUP, ll(n));
    if (groups > 1) {
        walk_group(m, at, inner, false);
        line(m, "group[own][lane] = plus(run, sum);");
        line(m, "__syncthreads();");
        line(m, "%s total = 0;", real);
        line(m, "for (int k = 0; k < %d; k++) {", groups);
        line(m, "if (k == own) before = total;");
        line(m, "total = plus(total, group[k][lane]);");
        line(m, "}");
    }
    walk_group(m, at, inner, true);
    if (groups > 1) {
        line(m, "tile = plus(tile, total);");
        line(m, "__syncthreads();");
    }
    line(m, "}");
    grid(m, hd_ceil_div(columns, lanes));
}

// Few or no neighbours: a block has a column, a tile at a time in shared memory. A thread adds up a run, 16 threads the
// runs of their groups, and every thread the groups. Runs begin 17 elements apart, so that no two threads of a warp use
// one bank.
static void scan_tiles(Map *m, int64_t n, int64_t inner, const char *at, const char *real) {
    enum { RUN = HD_SCAN_RUN, THREADS = RUN * RUN, TILE = THREADS * RUN };
    signature(m, THREADS);
    line(m, "__shared__ %s element[%d], before[%d], group[%d];", real, TILE + THREADS, THREADS, RUN);
    line(m, "const i64 base = (i64)blockIdx.x / %lld * %lldll + blockIdx.x %% %lld;", ll(inner), ll(n * inner),
         ll(inner));
    line(m, "const int t = threadIdx.x;");
    line(m, "%s tile = 0;", real);
    line(m, "for (i64 first = 0; first < %lld; first += %d) {", ll(n), TILE);
    line(m, "#pragma unroll");
    line(m, "for (int k = 0; k < %d; k++) {", RUN);
    line(m, "const int e = k * %d + t;", THREADS);
    line(m, "const i64 i = first + e;");
    line(m, "element[e + e / %d] = i < %lld ? widen(in0[base + (%s) * %lld]) : 0;", RUN, ll(n), at, ll(inner));
    line(m, "}");
    line(m, "__syncthreads();");
    line(m, "%s sum = 0;", real);
    line(m, "for (int k = 0; k < %d; k++) element[t * %d + k] = sum = plus(sum, element[t * %d + k]);", RUN, RUN + 1,
         RUN + 1);
    line(m, "before[t] = sum;");
    line(m, "__syncthreads();");
    line(m, "if (t < %d) {", RUN);
    line(m, "%s run = 0;", real);
    line(m, "for (int k = 0; k < %d; k++) {", RUN);
    line(m, "const %s x = before[t * %d + k];", real, RUN);
    line(m, "before[t * %d + k] = run;", RUN);
    line(m, "run = plus(run, x);");
    line(m, "}");
    line(m, "group[t] = run;");
    line(m, "}");
    line(m, "__syncthreads();");
    line(m, "%s groups = 0;", real);
    line(m, "#pragma unroll");
    line(m, "for (int k = 0; k < %d; k++) {", RUN);
    line(m, "const int e = k * %d + t;", THREADS);
    line(m, "const i64 i = first + e;");
    line(m, "const %s y = plus(plus(plus(tile, groups), before[e / %d]), element[e + e / %d]);", real, RUN, RUN);
    line(m, "if (i < %lld) put1(out + base + (%s) * %lld, y);", ll(n), at, ll(inner));
    line(m, "groups = plus(groups, group[k]);");
    line(m, "}");
    line(m, "tile = plus(tile, groups);");
    line(m, "__syncthreads();");
    line(m, "}");
    grid(m, hd_type_count(m->o->out[0]->type) / n);
}

static void map_cumsum(Map *m) {
    const Type *t = m->o->out[0]->type;
    const int64_t axis = hd_int(&m->o->attrs, A_AXIS, 0), n = t->dim[axis] ? t->dim[axis] : 1;
    int64_t inner = 1;
    for (int i = (int)axis + 1; i < t->rank; i++) inner *= t->dim[i];
    const char *at = hd_has(&m->o->attrs, A_REVERSE) ? hd_sprintf(m->a, "%lld - i", ll(n - 1)) : "i";
    (inner >= 16 ? walk_columns : scan_tiles)(m, n, inner, at, hd_cuda_compute(t->dtype));
}

// A block has a row, 256 positions at a time: each is where a document begins, or 0, and the largest up to each counts.
static void map_documents(Map *m) {
    const Attr *eot = hd_attr(&m->o->attrs, A_EOT), *bos = hd_attr(&m->o->attrs, A_BOS);
    const Type *t = m->o->out[0]->type;
    const int64_t n = hd_type_cols(t);
    const char *new = eot || bos ? "" : "in0[base + t] != in0[base + t - 1]";
    if (eot) new = hd_sprintf(m->a, "in0[base + t - 1] == %lld", ll(eot->i));
    if (bos) new = hd_sprintf(m->a, "%s%sin0[base + t] == %lld", new, eot ? " || " : "", ll(bos->i));
    signature(m, 256);
    line(m, "__shared__ int part[8];");
    line(m, "const int lane = threadIdx.x %% 32, warp = threadIdx.x / 32;");
    line(m, "const i64 base = (i64)blockIdx.x * %lld;", ll(n));
    line(m, "int before = 0;");
    line(m, "for (int first = 0; first < %lld; first += 256) {", ll(n));
    line(m, "const int t = first + threadIdx.x;");
    line(m, "int start = t > 0 && t < %lld && (%s) ? t : 0;", ll(n), new);
    line(m, "#pragma unroll");
    line(m, "for (int by = 1; by < 32; by *= 2) {");
    line(m, "const int other = __shfl_up_sync(~0u, start, by);");
    line(m, "if (lane >= by) start = max(start, other);");
    line(m, "}");
    line(m, "if (lane == 31) part[warp] = start;");
    line(m, "__syncthreads();");
    line(m, "start = max(start, before);");
    line(m, "for (int k = 0; k < 8; k++) {");
    line(m, "if (k < warp) start = max(start, part[k]);");
    line(m, "before = max(before, part[k]);");
    line(m, "}");
    line(m, "if (t < %lld) out[base + t] = %s;", ll(n), hd_has(&m->o->attrs, A_WITHIN) ? "t - start" : "start");
    line(m, "__syncthreads();");
    line(m, "}");
    grid(m, n ? hd_type_rows(t) : 0);
}

// A thread makes RUN positions of a column, so that it reads most of what they share once. Threads of a warp are
// columns side by side.
static void map_conv1d(Map *m) {
    enum { RUN = 8 };
    const Type *x = m->o->in[0]->type;
    const int64_t cols = hd_type_cols(x), seq = x->dim[x->rank - 2], taps = m->o->in[1]->type->dim[0];
    const int64_t runs = hd_ceil_div(seq, RUN), outer = cols && seq ? hd_type_count(x) / cols / seq : 0;
    const char *real = hd_cuda_compute(x->dtype);
    const bool reverse = hd_has(&m->o->attrs, A_REVERSE);
    open_threads(m, outer * runs * cols, 1, "i64");
    line(m, "const i64 column = at %% %lld, first = at / %lld %% %lld * %d;", ll(cols), ll(cols), ll(runs), RUN);
    line(m, "const i64 base = at / %lld * %lld + column;", ll(cols * runs), ll(seq * cols));
    line(m, "%s tap[%lld], x[%lld];", real, ll(taps), ll(RUN + taps - 1));
    line(m, "#pragma unroll");
    line(m, "for (int j = 0; j < %lld; j++) tap[j] = widen(in%d[j * %lldll + column]);", ll(taps), m->o->in[1]->index,
         ll(cols));
    line(m, "#pragma unroll");
    line(m, "for (int i = 0; i < %lld; i++) {", ll(RUN + taps - 1));
    line(m, "const i64 t = first + i - %lld;", reverse ? 0ll : ll(taps - 1));
    line(m, "x[i] = t >= 0 && t < %lld ? widen(in%d[base + t * %lld]) : 0;", ll(seq), m->o->in[0]->index, ll(cols));
    line(m, "}");
    line(m, "#pragma unroll");
    line(m, "for (int i = 0; i < %d; i++) {", RUN);
    line(m, "%s sum = 0;", real);
    line(m, "#pragma unroll");
    line(m, "for (int j = 0; j < %lld; j++) sum = plus(sum, times(tap[j], x[%s]));", ll(taps),
         reverse ? hd_sprintf(m->a, "i + %lld - j", ll(taps - 1)) : "i + j");
    line(m, "if (first + i < %lld) put1(out + base + (first + i) * %lld, sum);", ll(seq), ll(cols));
    line(m, "}");
}

static const struct { OpKind of; void (*rule)(Map *); } maps[N_OPS] = {
#define map_transpose move
#define map_slice move
#define map_broadcast move
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define map(x) .rule = map_##x,
#include "ir/ops.def"
};

CudaLaunches hd_cuda_map(const Func *kernel, const char *name, int widest, Arena *a) {
    const Op *ret = hd_return(kernel), *o = ret && ret->n_in == 1 ? ret->in[0]->def : NULL;
    if (!o || kernel->first != o || o->next != ret || !maps[o->kind].rule)
        HD_BUG("kernel @%s of kind map is not one op that can be one", kernel->name);
    Map m = {.k = kernel, .o = o, .name = name, .widest = widest, .a = a, .out = hd_out(a), .l = {.name = name}};
    hd_printf(&m.out, "// %s of %lld elements to %lld.\n", hd_op_info(o->kind)->mnemonic,
              o->n_in ? ll(hd_type_count(o->in[0]->type)) : 0, ll(hd_type_count(o->out[0]->type)));
    maps[o->kind].rule(&m);
    hd_puts(&m.out, "}\n");
    m.l.text = m.out.text;
    CudaLaunches list = {0};
    hd_push(a, &list, m.l);
    return list;
}
