// `map` kernels: one movement, lookup or reduction. Every op becomes a strided walk: the output's axes, each with the
// distance between neighbours in the operand; axes that are contiguous in both are merged. A thread makes one vector of
// the output; a transpose of the innermost axis goes through shared memory in 32 x 32 tiles. Reductions add in the
// order of the operand (one thread per output) or, where outputs are few, in a fixed tree of 256 threads.
#include "codegen/cuda/map.h"
#include "ir/shapes.h"

typedef struct { int64_t size, stride; } Axis;
typedef struct { int n; Axis axis[HD_MAX_DIMS]; int64_t base; } Walk; // outermost first

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
    int64_t stride[HD_MAX_DIMS];
    hd_strides(in, stride);
    const Attr *perm = hd_attr(&o->attrs, A_PERM);
    for (int i = 0; i < out->rank; i++) {
        int from = perm ? (int)perm->ints[i] : i - (out->rank - in->rank);
        bool repeated = from < 0 || in->dim[from] < out->dim[i];
        push(&w, out->dim[i], repeated ? 0 : stride[from]);
    }
    if (hd_has(&o->attrs, A_START)) w.base = hd_int(&o->attrs, A_START, 0) * stride[hd_int(&o->attrs, A_AXIS, 0)];
    return w;
}

// Splits the operand's axes into those of the output and those that are reduced.
static void reduction(const Op *o, Walk *kept, Walk *reduced) {
    const Type *in = o->in[0]->type;
    const unsigned gone = hd_reduced_axes(o);
    int64_t stride[HD_MAX_DIMS];
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
            out_stride[HD_MAX_DIMS], s = 1;
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

// What the kernel returns of result i.
static bool returns(const Map *m, int i) {
    const Op *r = hd_return(m->k);
    bool found = false;
    for (int k = 0; k < r->n_in; k++) found |= r->in[k] == m->o->out[i];
    return found;
}

static const char *result(const Map *m, int i) {
    if (!returns(m, i)) return hd_sprintf(m->a, "(%s *)nullptr", hd_cuda_type(m->o->out[i]->type->dtype));
    return i ? hd_sprintf(m->a, "out%d", i) : "out";
}

// Results i and i + 1, in vectors of 8 elements where operands begin at multiples of 16 bytes; with `both` the two
// before them, too.
static void put_blocks(Map *m, Blocks b, int i, bool both) {
    const int v = m->widest >= 8 && b.cols % 8 == 0 ? 8 : 1, in = m->o->in[0]->index;
    const int64_t across = hd_ceil_div(b.cols, HD_BLOCK), down = hd_ceil_div(b.rows, HD_BLOCK);
    const char *q = result(m, i), *scale = result(m, i + 1);
    const double limit = hd_dtype_info(m->o->out[0]->type->dtype)->largest;
    const char *none = hd_sprintf(m->a, "(%s *)nullptr, nullptr", hd_cuda_type(m->o->out[0]->type->dtype));
    const char *own = both ? hd_sprintf(m->a, "%s, %s", result(m, 0), result(m, 1)) : none;
    signature(m, 256);
    if (!b.rows || !b.cols) {
        grid(m, 0);
        return;
    }
    if (b.across)
        line(m, "quantize_across<%d, %s>(in%d, %s, %s, %s, %.1ff, %lld, %lld);", v, both ? "true" : "false", in, own, q,
             scale, limit, ll(b.rows), ll(b.cols));
    else if (b.squares)
        line(m, "quantize_squares<%d>(in%d, %s, %s, %.1ff, %lld);", v, in, q, scale, limit, ll(b.cols));
    else
        line(m, "quantize_blocks<%d>(in%d, %s, %s, %.1ff, %lld, %lld);", v, in, q, scale, limit, ll(b.rows),
             ll(b.cols));
    grid(m, across * (b.squares || b.across ? down : hd_ceil_div(b.rows, 32)));
}

static void map_quantize_blocks(Map *m) { put_blocks(m, hd_quantized_blocks(m->o), 0, false); }

// What nothing reads is not made: the forward pass reads the first two alone where the backward pass computes again.
static void map_quantize_both(Map *m) {
    const bool rows = returns(m, 0) || returns(m, 1), across = returns(m, 2) || returns(m, 3);
    put_blocks(m, hd_blocks(m->o->in[0]->type, false, across), across ? 2 : 0, rows && across);
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
    const bool turns = hd_has(&m->o->attrs, A_PERM) && in->rank == 2;
    if (turns && w.n == 2 && w.axis[0].stride == 1 && turns_bytes(m, in)) return;
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
    bool largest = hd_op_is(m->o, TRAIT_PICKS);
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
    bool largest = hd_op_is(m->o, TRAIT_PICKS);
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

static const struct { OpKind of; void (*rule)(Map *); } maps[N_OPS] = {
#define map_transpose move
#define map_slice move
#define map_broadcast move
#define map_cumsum hd_map_cumsum
#define map_sink_grad hd_map_sink_grad
#define map_documents hd_map_documents
#define map_conv1d hd_map_conv1d
#define map_conv1d_grad hd_map_conv1d_grad
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define map(x) .rule = map_##x,
#include "ir/ops.def"
};

CudaLaunches hd_cuda_map(const Func *kernel, const char *name, int widest, Arena *a) {
    const Op *ret = hd_return(kernel), *o = ret && ret->n_in ? ret->in[0]->def : NULL;
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
