// `map` kernels along one axis: cumulative sums, and where documents begin.
#include "codegen/cuda/map.h"

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

void hd_map_cumsum(Map *m) {
    const Type *t = m->o->out[0]->type;
    const int64_t axis = hd_int(&m->o->attrs, A_AXIS, 0), n = t->dim[axis] ? t->dim[axis] : 1;
    int64_t inner = 1;
    for (int i = (int)axis + 1; i < t->rank; i++) inner *= t->dim[i];
    const char *at = hd_has(&m->o->attrs, A_REVERSE) ? hd_sprintf(m->a, "%lld - i", ll(n - 1)) : "i";
    (inner >= 16 ? walk_columns : scan_tiles)(m, n, inner, at, hd_cuda_compute(t->dtype));
}

// A block has a row, 256 positions at a time: each is where a document begins, or 0, and the largest up to each counts.
void hd_map_documents(Map *m) {
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

// A thread has a head of a position.
void hd_map_sink_grad(Map *m) {
    const Op *o = m->o;
    const Type *x = o->in[0]->type, *lse = o->in[2]->type;
    const int64_t heads = lse->dim[1], seq = lse->dim[2], size = x->dim[2] / heads, n = hd_type_count(o->out[0]->type);
    const char *type = index_type(n, hd_type_count(x)), *real = hd_cuda_type(o->out[0]->type->dtype);
    int v = 16 / hd_dtype_bytes(x->dtype);
    if (v > m->widest) v = m->widest;
    while (size % v) v /= 2;
    open_threads(m, n, 1, type);
    line(m, "const %s h = at %% %lld, row = at / %lld;", type, ll(heads), ll(heads));
    line(m, "%s sum = 0;", real);
    line(m, "for (int c = 0; c < %lld; c += %d) {", ll(size), v);
    line(m, "Raw<%s, %d> x, y;", hd_cuda_type(x->dtype), v);
    line(m, "x.load(in%d + at * %lld + c);", o->in[0]->index, ll(size));
    line(m, "y.load(in%d + at * %lld + c);", o->in[1]->index, ll(size));
    line(m, "for (int i = 0; i < %d; i++) sum += x.at(i) * y.at(i);", v);
    line(m, "}");
    line(m, "out[at] = -exp(in%d[h] - in%d[(row / %lld * %lld + h) * %lld + row %% %lld]) * sum;", o->in[3]->index,
         o->in[2]->index, ll(seq), ll(heads), ll(seq), ll(seq));
}
