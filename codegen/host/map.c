// Prints kernel functions of kind map: one op that moves, makes or reduces elements, as a loop nest over its result.
// Every operand is read through strides over the axes of the nest. Sums run in double, in row-major order of the summed
// elements.
#include "codegen/host/host.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

enum { SMALL = 4096, BLOCK = 256 };

typedef struct { // a loop nest over `rank` axes named i0, i1, ...
    int rank;
    int64_t size[HD_MAX_DIMS];
} Nest;

// The operand of the kernel that an operand of its op refers to.
static int arg(const Op *o, int i) {
    const Value *v = hd_unaliased(o->in[i]);
    if (v->def) HD_BUG("map kernel @%s holds more than one op", o->func->name);
    return v->index;
}

static Nest nest_of(const Type *t) {
    Nest n = {.rank = t->rank};
    for (int i = 0; i < t->rank; i++) n.size[i] = t->dim[i];
    return n;
}

// "i0 * 64 + i2 + 12": axes of size 1 and strides of 0 drop out.
static const char *index_text(Arena *a, const Nest *n, const int64_t *stride, int64_t start) {
    Out o = hd_out(a);
    for (int i = 0; i < n->rank; i++) {
        if (n->size[i] == 1 || !stride[i]) continue;
        hd_printf(&o, stride[i] == 1 ? "%si%d" : "%si%d * %lld", o.n ? " + " : "", i, ll(stride[i]));
    }
    if (start || !o.n) hd_printf(&o, "%s%lld", o.n ? " + " : "", ll(start));
    return o.text;
}

static void open_loops(Out *o, const Nest *n, int first, int last, bool parallel) {
    if (parallel && last - first > 1)
        hd_printf(o, "#pragma omp parallel for collapse(%d) schedule(static)\n", last - first);
    else if (parallel && last > first) hd_puts(o, "#pragma omp parallel for schedule(static)\n");
    for (int i = first; i < last; i++)
        hd_printf(o, "    for (int64_t i%d = 0; i%d < %lld; i%d++)\n", i, i, ll(n->size[i]), i);
}

static bool is_large(const Nest *n) {
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= n->size[i];
    return count >= SMALL;
}

// One statement for each element of a nest; threads share all axes but the last.
static void put_nest(Emit *e, const Nest *n, const char *statement) {
    int outer = n->rank > 1 ? n->rank - 1 : n->rank;
    open_loops(e->c, n, 0, outer, is_large(n));
    if (outer < n->rank) {
        hd_puts(e->c, "    {\n#pragma omp simd\n");
        open_loops(e->c, n, outer, n->rank, false);
    }
    hd_printf(e->c, "        %s\n%s", statement, outer < n->rank ? "    }\n" : "");
}

static void put_copy(Emit *e, const Nest *n, int operand, const int64_t *from, int64_t from_start, const int64_t *to,
                     int64_t to_start) {
    put_nest(e, n,
             hd_sprintf(e->a, "r0[%s] = a%d[%s];", index_text(e->a, n, to, to_start), operand,
                        index_text(e->a, n, from, from_start)));
}

static void map_transpose(Emit *e, const Op *o) {
    const Attr *perm = hd_attr(&o->attrs, A_PERM);
    Nest n = nest_of(o->out[0]->type);
    int64_t in[HD_MAX_DIMS], from[HD_MAX_DIMS], to[HD_MAX_DIMS];
    hd_strides(o->in[0]->type, in);
    hd_strides(o->out[0]->type, to);
    for (int i = 0; i < n.rank; i++) from[i] = in[perm->ints[i]];
    put_copy(e, &n, arg(o, 0), from, 0, to, 0);
}

static void map_slice(Emit *e, const Op *o) {
    Nest n = nest_of(o->out[0]->type);
    int64_t from[HD_MAX_DIMS], to[HD_MAX_DIMS];
    hd_strides(o->in[0]->type, from);
    hd_strides(o->out[0]->type, to);
    put_copy(e, &n, arg(o, 0), from, hd_int(&o->attrs, A_START, 0) * from[hd_int(&o->attrs, A_AXIS, 0)], to, 0);
}

static void map_concat(Emit *e, const Op *o) {
    int64_t axis = hd_int(&o->attrs, A_AXIS, 0), start = 0;
    for (int i = 0; i < o->n_in; i++) {
        Nest n = nest_of(o->in[i]->type);
        int64_t from[HD_MAX_DIMS], to[HD_MAX_DIMS];
        hd_strides(o->in[i]->type, from);
        hd_strides(o->out[0]->type, to);
        put_copy(e, &n, arg(o, i), from, 0, to, start * to[axis]);
        start += o->in[i]->type->dim[axis];
    }
}

// Strides of `t` along the axes of a result that it broadcasts to.
static void broadcast_strides(const Type *t, const Type *result, int64_t *stride) {
    int64_t own[HD_MAX_DIMS];
    hd_strides(t, own);
    int shift = result->rank - t->rank;
    for (int i = 0; i < result->rank; i++) stride[i] = i < shift || t->dim[i - shift] == 1 ? 0 : own[i - shift];
}

static void map_broadcast(Emit *e, const Op *o) {
    Nest n = nest_of(o->out[0]->type);
    int64_t from[HD_MAX_DIMS], to[HD_MAX_DIMS];
    broadcast_strides(o->in[0]->type, o->out[0]->type, from);
    hd_strides(o->out[0]->type, to);
    put_copy(e, &n, arg(o, 0), from, 0, to, 0);
}

static void put_values(Emit *e, const Op *o, DType from, const char *value) {
    Nest n = nest_of(o->out[0]->type);
    int64_t to[HD_MAX_DIMS];
    hd_strides(o->out[0]->type, to);
    put_nest(e, &n,
             hd_sprintf(e->a, "r0[%s] = %s;", index_text(e->a, &n, to, 0),
                        hd_host_store(e->a, o->out[0]->type->dtype, from, value)));
}

static void map_iota(Emit *e, const Op *o) {
    const int last = o->out[0]->type->rank - 1;
    put_values(e, o, TY_I32, last < 0 ? "0" : hd_sprintf(e->a, "i%d", last));
}

static void map_embedding(Emit *e, const Op *o) {
    int64_t cols = hd_type_cols(o->out[0]->type), rows = hd_type_rows(o->out[0]->type);
    Nest n = {.rank = 2, .size = {rows, cols}};
    put_nest(e, &n,
             hd_sprintf(e->a, "r0[i0 * %lld + i1] = a%d[(int64_t)a%d[i0] * %lld + i1];", ll(cols), arg(o, 0), arg(o, 1),
                        ll(cols)));
}

// --- reductions: axes of the operand are either kept (i0, i1, ...) or summed

// The axes that `mask` selects as a nest of their own, with their strides.
static Nest select_axes(const Type *t, unsigned mask, int64_t *stride) {
    int64_t own[HD_MAX_DIMS];
    Nest n = {0};
    hd_strides(t, own);
    for (int i = 0; i < t->rank; i++) {
        if (!(mask >> i & 1)) continue;
        n.size[n.rank] = t->dim[i];
        stride[n.rank++] = own[i];
    }
    return n;
}

// The sum itself, over blocks of the last axis where that axis is kept (so that memory is read in order), else one
// result at a time.
static void put_sums(Emit *e, const Op *o, const Nest *sum, const int64_t *stride, const char *from, const char *to,
                     const char *n, int64_t block) {
    Out *c = e->c, index = hd_out(e->a);
    DType d = o->in[0]->type->dtype;
    bool max = hd_op_is(o, TRAIT_PICKS);
    hd_printf(c, "        double acc[%lld];\n        for (int64_t c = 0; c < %s; c++) acc[c] = %s;\n", ll(block), n,
              max ? "-(double)INFINITY" : "0");
    hd_printf(&index, "%s + first + c", from);
    for (int i = 0; i < sum->rank; i++) {
        hd_printf(c, "        for (int64_t s%d = 0; s%d < %lld; s%d++)\n", i, i, ll(sum->size[i]), i);
        hd_printf(&index, " + s%d * %lld", i, ll(stride[i]));
    }
    hd_printf(c, "        for (int64_t c = 0; c < %s; c++) {\n", n);
    hd_printf(c, "            const double v = (double)%s;\n",
              hd_host_load(e->a, d, hd_sprintf(e->a, "a0[%s]", index.text)));
    hd_puts(c, max ? "            acc[c] = (acc[c] > v || acc[c] != acc[c]) ? acc[c] : v;\n"
                   : "            acc[c] += v;\n");
    hd_puts(c, "        }\n");
    hd_printf(c, "        for (int64_t c = 0; c < %s; c++) r0[%s + first + c] = %s;\n", n, to,
              hd_host_store(e->a, o->out[0]->type->dtype, TY_F64, "acc[c]"));
}

static void map_reduction(Emit *e, const Op *o) {
    const Type *in = o->in[0]->type;
    unsigned reduced = hd_reduced_axes(o), all = (1u << in->rank) - 1;
    int64_t from[HD_MAX_DIMS], sums[HD_MAX_DIMS], to[HD_MAX_DIMS] = {0}, step = 1;
    Nest kept = select_axes(in, all & ~reduced, from), sum = select_axes(in, reduced, sums);
    bool last = in->rank && !(reduced >> (in->rank - 1) & 1);
    for (int i = kept.rank - 1; i >= 0; i--) {
        to[i] = step;
        step *= kept.size[i];
    }
    Nest outer = kept;
    outer.rank = kept.rank - last;
    Nest loops = kept;
    int64_t width = last ? kept.size[outer.rank] : 1, block = width < BLOCK ? width : BLOCK;
    if (last) loops.size[outer.rank] = (width + BLOCK - 1) / BLOCK;
    open_loops(e->c, &loops, 0, loops.rank, hd_type_count(in) >= SMALL);
    hd_puts(e->c, "    {\n");
    if (last) hd_printf(e->c, "        const int64_t first = i%d * %d;\n", outer.rank, BLOCK);
    else hd_puts(e->c, "        const int64_t first = 0;\n");
    const char *n = hd_sprintf(e->a, "%lld", ll(block));
    if (width > BLOCK && width % BLOCK) {
        hd_printf(e->c, "        const int64_t n = first + %d < %lld ? %d : %lld - first;\n", BLOCK, ll(width), BLOCK,
                  ll(width));
        n = "n";
    }
    put_sums(e, o, &sum, sums, index_text(e->a, &outer, from, 0), index_text(e->a, &outer, to, 0), n, block);
    hd_puts(e->c, "    }\n");
}

// Tiles of 16 x 16, which a cache holds on both sides.
static void map_requantize(Emit *e, const Op *o) {
    const Type *q = o->in[0]->type;
    const int64_t rows = hd_type_rows(q), cols = hd_type_cols(q);
    const char *x = hd_host_load(e->a, q->dtype, hd_sprintf(e->a, "a%d[r * %lld + c]", arg(o, 0), ll(cols)));
    if (hd_type_count(q) >= SMALL) hd_puts(e->c, "#pragma omp parallel for collapse(2) schedule(static)\n");
    hd_printf(e->c,
              "    for (int64_t c0 = 0; c0 < %lld; c0 += 16)\n"
              "    for (int64_t r0_ = 0; r0_ < %lld; r0_ += 16)\n"
              "        for (int64_t c = c0; c < %lld && c < c0 + 16; c++)\n"
              "            for (int64_t r = r0_; r < %lld && r < r0_ + 16; r++)\n"
              "                r0[c * %lld + r] = %s;\n",
              ll(cols), ll(rows), ll(cols), ll(rows), ll(rows),
              hd_host_store(e->a, o->out[0]->type->dtype, TY_F32, hd_sprintf(e->a, "(%s * a%d[r])", x, arg(o, 1))));
}

// What the kernel returns of result i; NULL: it does not.
static const char *result(Emit *e, const Op *o, int i) {
    const Op *r = hd_return(o->func);
    for (int k = 0; k < r->n_in; k++)
        if (r->in[k] == o->out[i]) return hd_sprintf(e->a, "r%d", k);
    return "NULL";
}

// Results i and i + 1.
static void put_blocks(Emit *e, const Op *o, Blocks b, int i) {
    hd_printf(e->c,
              "    static const HdBlocks blocks%d = {.from = %s, .to = %s, .rows = %lld, .cols = %lld, .block = %d, "
              ".squares = %d, .across = %d};\n    hd_host_quantize_blocks(&blocks%d, a%d, %s, %s);\n",
              i, hd_emit_dtype(o->in[0]->type->dtype), hd_emit_dtype(o->out[0]->type->dtype), ll(b.rows), ll(b.cols),
              HD_BLOCK, b.squares, b.across, i, arg(o, 0), result(e, o, i), result(e, o, i + 1));
}

static void map_quantize_blocks(Emit *e, const Op *o) { put_blocks(e, o, hd_quantized_blocks(o), 0); }

static void map_quantize_both(Emit *e, const Op *o) {
    for (int i = 0; i < 2; i++) put_blocks(e, o, hd_blocks(o->in[0]->type, false, i), 2 * i);
}

// Columns side by side, in runs, groups and tiles (HD_SCAN_RUN).
static void map_cumsum(Emit *e, const Op *o) {
    const Type *t = o->in[0]->type;
    const int64_t axis = hd_int(&o->attrs, A_AXIS, 0), n = t->dim[axis];
    int64_t inner = 1;
    for (int i = (int)axis + 1; i < t->rank; i++) inner *= t->dim[i];
    const int64_t outer = n && inner ? hd_type_count(t) / n / inner : 0, block = inner < BLOCK ? inner : BLOCK;
    const char *c = hd_host_compute_type(t->dtype);
    const int run = HD_SCAN_RUN;
    if (hd_type_count(t) >= SMALL) hd_puts(e->c, "#pragma omp parallel for collapse(2) schedule(static)\n");
    hd_printf(e->c,
              "    for (int64_t o = 0; o < %lld; o++)\n"
              "    for (int64_t first = 0; first < %lld; first += %lld) {\n"
              "        const int64_t n = first + %lld < %lld ? %lld : %lld - first;\n"
              "        %s tile[%lld] = {0}, group[%lld] = {0}, run[%lld] = {0}, sum[%lld] = {0};\n"
              "        for (int64_t i = 0; i < %lld; i++) {\n",
              ll(outer), ll(inner), ll(block), ll(block), ll(inner), ll(block), ll(inner), c, ll(block), ll(block),
              ll(block), ll(block), ll(n));
    hd_printf(e->c,
              "            if (i %% %d == 0) for (int64_t c = 0; c < n; c++) run[c] += sum[c], sum[c] = 0;\n"
              "            if (i %% %d == 0) for (int64_t c = 0; c < n; c++) group[c] += run[c], run[c] = 0;\n"
              "            if (i %% %d == 0) for (int64_t c = 0; c < n; c++) tile[c] += group[c], group[c] = 0;\n"
              "            const int64_t at = (o * %lld + %s) * %lld + first;\n"
              "            for (int64_t c = 0; c < n; c++) {\n"
              "                sum[c] += %s;\n"
              "                r0[at + c] = %s;\n"
              "            }\n        }\n    }\n",
              run, run * run, run * run * run, ll(n),
              hd_has(&o->attrs, A_REVERSE) ? hd_sprintf(e->a, "%lld - i", ll(n - 1)) : "i", ll(inner),
              hd_host_load(e->a, t->dtype, hd_sprintf(e->a, "a%d[at + c]", arg(o, 0))),
              hd_host_store(e->a, t->dtype, hd_dtype_computed(t->dtype), "(tile[c] + group[c] + run[c] + sum[c])"));
}

static void map_documents(Emit *e, const Op *o) {
    const Attr *eot = hd_attr(&o->attrs, A_EOT), *bos = hd_attr(&o->attrs, A_BOS);
    const int64_t n = hd_type_cols(o->in[0]->type), rows = n ? hd_type_rows(o->in[0]->type) : 0;
    const char *new = eot || bos ? "" : "x[i] != x[i - 1]";
    if (eot) new = hd_sprintf(e->a, "x[i - 1] == %lld", ll(eot->i));
    if (bos) new = hd_sprintf(e->a, "%s%sx[i] == %lld", new, eot ? " || " : "", ll(bos->i));
    hd_printf(e->c,
              "    for (int64_t row = 0; row < %lld; row++) {\n"
              "        const int32_t *x = a%d + row * %lld;\n"
              "        for (int32_t i = 0, start = 0; i < %lld; i++) {\n"
              "            if (i && (%s)) start = i;\n"
              "            r0[row * %lld + i] = %s;\n"
              "        }\n    }\n",
              ll(rows), arg(o, 0), ll(n), ll(n), new, ll(n), hd_has(&o->attrs, A_WITHIN) ? "i - start" : "start");
}

// A head of a position at a time: batch, position, head.
static void map_sink_grad(Emit *e, const Op *o) {
    const Type *x = o->in[0]->type, *lse = o->in[2]->type;
    const int64_t heads = lse->dim[1], seq = lse->dim[2], size = x->dim[2] / heads, n = hd_type_count(o->out[0]->type);
    const DType d = hd_dtype_computed(x->dtype);
    const char *real = hd_host_compute_type(x->dtype);
    if (hd_type_count(x) >= SMALL) hd_puts(e->c, "#pragma omp parallel for schedule(static)\n");
    hd_printf(e->c,
              "    for (int64_t i = 0; i < %lld; i++) {\n"
              "        const int64_t h = i %% %lld, row = i / %lld;\n"
              "        %s sum = 0;\n"
              "        for (int64_t c = i * %lld; c < (i + 1) * %lld; c++) sum += %s * %s;\n"
              "        r0[i] = -%s(a%d[h] - a%d[(row / %lld * %lld + h) * %lld + row %% %lld]) * sum;\n"
              "    }\n",
              ll(n), ll(heads), ll(heads), real, ll(size), ll(size),
              hd_host_load(e->a, x->dtype, hd_sprintf(e->a, "a%d[c]", arg(o, 0))),
              hd_host_load(e->a, x->dtype, hd_sprintf(e->a, "a%d[c]", arg(o, 1))), d == TY_F64 ? "exp" : "expf",
              arg(o, 3), arg(o, 2), ll(seq), ll(heads), ll(seq), ll(seq));
}

#define map_conv1d hd_host_conv1d
#define map_conv1d_grad hd_host_conv1d
static const struct { OpKind of; void (*rule)(Emit *, const Op *); } maps[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define map(x) .rule = map_##x,
#include "ir/ops.def"
};

void hd_host_map(Emit *e, const Func *k) {
    const Op *o = k->first, *r = hd_return(k);
    while (o && hd_op_is(o, TRAIT_ALIAS)) o = o->next;
    if (!o || !r || !o->n_out || !maps[o->kind].rule) HD_BUG("map kernel @%s holds no op that can be one", k->name);
    hd_host_open(e, k, false);
    maps[o->kind].rule(e, o);
    hd_puts(e->c, "}\n\n");
}
