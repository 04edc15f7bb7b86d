// Prints kernel functions of kind map that are conv1d or its gradient. Sixteen columns are worked on side by side. In
// reverse it is the same over the mirrored sequence.
#include "codegen/host/host.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

enum { BLOCK = 16 };

typedef struct { Emit *e; const Op *o; ConvShape s; DType d; const char *real; } Conv;

// Element `column` of position t, of an operand or a result whose rows are `wide`.
static const char *place(const Conv *v, const char *array, int number, int64_t wide, int64_t start, const char *t) {
    const char *at = v->s.reverse ? hd_sprintf(v->e->a, "%lld - (%s)", ll(v->s.seq - 1), t) : t;
    return hd_sprintf(v->e->a, "%s%d[(o * %lld + %s) * %lld + %lld + first + c]", array, number, ll(v->s.seq), at,
                      ll(wide), ll(start));
}

static const char *load(const Conv *v, const char *from) { return hd_host_load(v->e->a, v->d, from); }

static const char *tap(const Conv *v) {
    const int i = v->s.grad + 1;
    return load(v, hd_sprintf(v->e->a, "a%d[j * %lld + first + c]", v->o->in[i]->index, ll(v->s.dim)));
}

static const char *x_at(const Conv *v, const char *t) {
    return load(v, place(v, "a", v->o->in[v->s.grad]->index, v->s.wide, v->s.start, t));
}

// A condition before what reads position `from` for the sum at position t, which is `back` further on: both are of one
// document. The later of the two in memory says where that begins.
static const char *reads(const Conv *v, const char *t, const char *from, const char *back) {
    if (!v->s.documents) return "";
    const char *later = v->s.reverse ? hd_sprintf(v->e->a, "(%lld - (%s))", ll(v->s.seq - 1), from) : t;
    return hd_sprintf(v->e->a, "if (%s <= %s - a%d[o * %lld + %s]) ", back, later, v->o->in[v->o->n_in - 1]->index,
                      ll(v->s.seq), later);
}

static const char *x_of_tap(const Conv *v) { return hd_sprintf(v->e->a, "(t + j - %lld)", ll(v->s.taps - 1)); }
static const char *reads_by_sum(const Conv *v) { // position t, tap j
    return reads(v, "t", x_of_tap(v), hd_sprintf(v->e->a, "%lld - j", ll(v->s.taps - 1)));
}

// y: the sum at position t of column c.
static void put_sum(const Conv *v) {
    Out *c = v->e->c;
    hd_printf(c, "            %s y = 0;\n", v->real);
    hd_printf(c, "            for (int64_t j = t < %lld ? %lld - t : 0; j < %lld; j++) %sy += %s * %s;\n",
              ll(v->s.taps - 1), ll(v->s.taps - 1), ll(v->s.taps), reads_by_sum(v), tap(v), x_at(v, x_of_tap(v)));
    if (v->s.bias)
        hd_printf(c, "            y += %s;\n",
                  load(v, hd_sprintf(v->e->a, "a%d[first + c]", v->o->in[v->s.grad + 2]->index)));
    if (v->s.silu)
        hd_printf(c, "            const %s gate = 1 / (1 + %s(-y));\n", v->real, v->d == TY_F64 ? "exp" : "expf");
}

// Loops over sequences, runs of `run` positions and blocks of columns.
static void open_blocks(const Conv *v, int64_t run) {
    const ConvShape *s = &v->s;
    if (s->outer * s->seq * s->dim >= 4096) hd_puts(v->e->c, "#pragma omp parallel for collapse(3) schedule(static)\n");
    hd_printf(v->e->c,
              "    for (int64_t o = 0; o < %lld; o++)\n"
              "    for (int64_t run = 0; run < %lld; run++)\n"
              "    for (int64_t first = 0; first < %lld; first += %d) {\n"
              "        const int64_t n = first + %d < %lld ? %d : %lld - first, from = run * %lld;\n"
              "        const int64_t to = from + %lld < %lld ? from + %lld : %lld;\n",
              ll(s->outer), ll(hd_ceil_div(s->seq, run)), ll(s->dim), BLOCK, BLOCK, ll(s->dim), BLOCK, ll(s->dim),
              ll(run), ll(run), ll(s->seq), ll(run), ll(s->seq));
}

static void put_forward(const Conv *v) {
    open_blocks(v, HD_CONV_RUN);
    hd_puts(v->e->c, "        for (int64_t t = from; t < to; t++)\n        for (int64_t c = 0; c < n; c++) {\n");
    put_sum(v);
    hd_printf(v->e->c, "            %s = %s;\n        }\n    }\n", place(v, "r", 0, v->s.dim, 0, "t"),
              hd_host_store(v->e->a, v->d, hd_dtype_computed(v->d), v->s.silu ? "(y * gate)" : "y"));
}

// Where the kernel returns result i of the op; -1: nothing reads it.
static int returned(const Conv *v, int i) {
    const Op *r = hd_return(v->o->func);
    for (int k = 0; k < r->n_in; k++)
        if (r->in[k]->index == i) return k;
    return -1;
}

static void put_sums(const Conv *v) {
    const ConvShape *s = &v->s;
    const int64_t runs = hd_ceil_div(s->seq, HD_CONV_RUN);
    const DType d = v->d == TY_F64 ? TY_F64 : TY_F32;
    if (returned(v, 1) >= 0)
        hd_printf(v->e->c,
                  "        for (int64_t j = 0; j < %lld; j++)\n"
                  "        for (int64_t c = 0; c < n; c++)\n"
                  "            r%d[((o * %lld + run) * %lld + j) * %lld + first + c] = %s;\n",
                  ll(s->taps), returned(v, 1), ll(runs), ll(s->taps), ll(s->dim),
                  hd_host_store(v->e->a, d, TY_F64, "add[j][c]"));
    if (s->bias && returned(v, 2) >= 0)
        hd_printf(v->e->c,
                  "        for (int64_t c = 0; c < n; c++) r%d[(o * %lld + run) * %lld + first + c] = %s;\n",
                  returned(v, 2), ll(runs), ll(s->dim), hd_host_store(v->e->a, d, TY_F64, "all[c]"));
}

// g: the gradients of the sums of the run, and of the positions after it that read its x.
static void put_gradient(const Conv *v) {
    const ConvShape *s = &v->s;
    const int64_t more = s->taps - 1;
    Out *c = v->e->c;
    open_blocks(v, HD_CONV_RUN);
    hd_printf(c, "        %s g[%lld][%d];\n        double add[%lld][%d] = {{0}}, all[%d] = {0};\n", v->real,
              ll(HD_CONV_RUN + more), BLOCK, ll(s->taps), BLOCK, BLOCK);
    hd_printf(c,
              "        for (int64_t t = from; t < to + %lld; t++)\n"
              "        for (int64_t c = 0; c < n; c++) {\n"
              "            g[t - from][c] = 0;\n"
              "            if (t >= %lld) continue;\n"
              "            %s slope = %s;\n",
              ll(more), ll(s->seq), v->real, load(v, place(v, "a", v->o->in[0]->index, s->dim, 0, "t")));
    if (s->silu) {
        put_sum(v);
        hd_puts(c, "            slope *= gate * (1 + y * (1 - gate));\n");
    }
    hd_printf(c,
              "            g[t - from][c] = slope;\n"
              "            if (t >= to) continue;\n"
              "            all[c] += slope;\n"
              "            for (int64_t j = t < %lld ? %lld - t : 0; j < %lld; j++)\n"
              "                %sadd[j][c] += (double)slope * %s;\n"
              "        }\n",
              ll(more), ll(more), ll(s->taps), reads_by_sum(v), x_at(v, x_of_tap(v)));
    if (returned(v, 0) >= 0)
        hd_printf(c,
                  "        for (int64_t t = from; t < to; t++)\n"
                  "        for (int64_t c = 0; c < n; c++) {\n"
                  "            %s dx = 0;\n"
                  "            for (int64_t j = %s; j < %lld; j++) %sdx += %s * g[t - from + %lld - j][c];\n"
                  "            %s = %s;\n"
                  "        }\n",
                  v->real, s->documents ? hd_sprintf(v->e->a, "t < %lld ? 0 : t - %lld", ll(s->seq - more),
                                                     ll(s->seq - more - 1)) : "0",
                  ll(s->taps), reads(v, hd_sprintf(v->e->a, "(t + %lld - j)", ll(more)), "t",
                                     hd_sprintf(v->e->a, "%lld - j", ll(more))),
                  tap(v), ll(more), place(v, "r", returned(v, 0), s->dim, 0, "t"),
                  hd_host_store(v->e->a, v->d, hd_dtype_computed(v->d), "dx"));
    hd_puts(c, "        (void)add, (void)all;\n");
    put_sums(v);
    hd_puts(c, "    }\n");
}

void hd_host_conv1d(Emit *e, const Op *o) {
    Conv v = {.e = e, .o = o, .s = hd_conv_shape(o), .d = o->in[0]->type->dtype};
    v.real = hd_host_compute_type(v.d);
    (v.s.grad ? put_gradient : put_forward)(&v);
}
