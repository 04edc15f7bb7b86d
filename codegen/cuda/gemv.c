// The product of one row, as of a token that is written: the launch of templates/gemv.cu, alone or with what makes the
// row and what is made of the result (kernels of kind product).
#include "codegen/cuda/rows_emit.h"
#include "ir/base/ints.h"
#include "ir/machine/arch.h"
#include "ir/row_product.h"
#include "ir/shapes.h"
#include "ir/writes.h"

enum { WARPS = 8, THREADS = 256, STAGED_BYTES = 40 << 10, BLOCKS = 2, MOST_AHEAD = 44 << 10 };
// BLOCKS: of a multiprocessor. MOST_AHEAD: bytes of its memory for a row, what is made with it and what is read ahead

bool hd_cuda_early(Emit *e, const Op *o, const Value *v) {
    CudaModule *cm = hd_cuda_module(e);
    if (hd_kind(&o->func->attrs) != KIND_DECODE) return false;
    v = hd_unaliased(v);
    if (!v->def) return true;
    const Symbol *s = hd_op_is(v->def, TRAIT_SOURCE) ? hd_named(v->def, A_BUFFER) : NULL;
    if (!s || hd_has(&s->attrs, A_TRANSIENT)) return false;
    if (cm->written_in != o->func) {
        cm->written_in = o->func;
        cm->written = HD_NEWN(e->a, bool, e->m->n_symbols + 1);
        for (const Op *x = o->func->first; x; x = x->next) {
            Write w;
            for (int i = 0; hd_next_write(x, &i, &w);)
                if (w.buffer) cm->written[w.buffer->id] = true;
        }
    }
    return !cm->written[s->id];
}

// --- with what is around it: a kernel of kind product

typedef struct {
    Emit *e;
    const Op *o;
    const Func *k;
    RowProduct p;
    const Op *ret;
    const char *name;
    int widest;
    uint64_t ahead, kept; // arguments that are read ahead: of the row, of an element
    uint64_t turned;      // nodes whose angles are computed ahead
    Out text, params, more; // functions before the kernel; its parameters; definitions
} Around;

// An argument that is one number a column of `space` and that no kernel before this one writes: it is read ahead.
static bool read_ahead(const Around *x, const RowProgram *p, int arg) {
    bool columns = hd_rows_reads(p, arg);
    for (int i = 0; i < p->nodes.n; i++) {
        const RowNode *n = &p->nodes.at[i];
        if (hd_rows_is_load(n) && n->arg == arg)
            columns &= n->kind == NODE_LOAD && n->cls >= ROW_COLUMN && !n->part.width;
    }
    return columns && hd_cuda_early(x->e, x->o, x->o->in[arg]);
}

static bool before(const Around *x, const Value *v) { return v->def && v->def->id < x->p.product->id; }

// Each block makes the row in its own memory; what else is made of it is stored by the first one.
static bool put_maker(Around *x) {
    const Value *row = hd_unaliased(x->p.product->in[0]);
    if (!row->def) {
        hd_printf(&x->more, "#define GV_AHEAD\n#define GV_X in%d\n", row->index);
        return false;
    }
    const int n = x->ret->n_in;
    const Value *results[HD_MAX_OUT + 1] = {NULL};
    for (int i = 0; i < n; i++) results[i] = before(x, x->ret->in[i]) ? x->ret->in[i] : NULL;
    results[n] = x->p.product->in[0];
    const RowBody body = {x->k->first, x->p.product, x->p.before, NULL, n + 1, results};
    const RowProgram p = hd_rows_build_body(x->k, &body, true, x->e->a);
    const char *name = hd_sprintf(x->e->a, "%s_row", x->name);
    hd_puts(&x->text, hd_rows_function(&p, name, x->widest, x->e->a));
    const char *call = "";
    int64_t left = MOST_AHEAD - (n + 1) * hd_type_bytes(row->type);
    hd_puts(&x->more, "#define GV_AHEAD");
    for (int i = 0; i < x->k->n_args; i++) {
        if (!hd_rows_reads(&p, i)) continue;
        const Type *t = x->k->args[i]->type;
        const bool ahead = left >= hd_type_bytes(t) && read_ahead(x, &p, i);
        call = hd_sprintf(x->e->a, "%s%s%s%d", call, *call ? ", " : "", ahead ? "ahead" : "in", i);
        if (!ahead) continue;
        left -= hd_type_bytes(t);
        x->ahead |= 1ull << i;
        hd_printf(&x->more, " __shared__ __align__(16) %s ahead%d[GV_K]; gv_copy<GV_K>(in%d, ahead%d);",
                  hd_cuda_type(t->dtype), i, i, i);
    }
    hd_puts(&x->more, "\n#define GV_MAKE __syncthreads();");
    for (int i = 0; i < n; i++)
        if (results[i])
            hd_printf(&x->more, " __shared__ __align__(16) %s other%d[GV_K];",
                      hd_cuda_type(results[i]->type->dtype), i);
    hd_printf(&x->more, " %s(%s", name, call);
    for (int i = 0; i < n; i++)
        if (results[i]) hd_printf(&x->more, ", blockIdx.x ? other%d : out%d", i, i);
    hd_puts(&x->more, ", staged);\n");
    return true;
}

static const char *as_stored(Rows *r, DType d) { // what rounds a sum
    return hd_dtype_is_narrow(d) ? hd_sprintf(r->a, "rounded<%s>", hd_cuda_type(d)) : "";
}

static void put_value(Around *x, Rows *r, int i) { // of one element
    const RowNode *n = &r->p->nodes.at[i];
    const char *type = hd_cuda_compute(n->kind == NODE_LOAD ? n->stored : n->dtype);
    if (n->kind == NODE_PARTNER) {
        const RowNode *of = &r->p->nodes.at[n->in[0]];
        hd_rows_line(r, "const %s x%d = %s(sum[1 - half]);", type, i, as_stored(r, of->stored));
    } else if (n->kind != NODE_LOAD) {
        hd_rows_line(r, "const %s x%d = %s;", type, i, hd_rows_expression(r, i, 0, 0));
    } else if (n->arg == x->k->n_args) {
        const char *sum = hd_sprintf(r->a, "sum[%lld]", ll(n->part.width ? n->part.start / r->p->cols : 0));
        if (x->p.half) sum = "sum[half]";
        hd_rows_line(r, "const %s x%d = %s(%s);", type, i, as_stored(r, n->stored), sum);
    } else if (x->kept >> n->arg & 1) {
        hd_rows_line(r, "const %s x%d = in%d;", type, i, n->arg);
    } else if (n->cls >= ROW_COLUMN) {
        hd_rows_line(r, "const %s x%d = widen(in%d[col + %lld]);", type, i, n->arg,
                     ll(n->part.width ? n->part.start : 0));
    } else {
        hd_rows_line(r, "const %s x%d = widen(*in%d);", type, i, n->arg);
    }
}

// Pairs of columns that are turned: a lane has both, and the angle of its pair before the kernels before have ended.
static void put_turns(Around *x, Rows *r, RowProgram *p, const char **call) {
    for (int i = 0; i < p->nodes.n; i++) {
        RowNode *n = &p->nodes.at[i];
        const RowTurn *t = &n->turn;
        if (n->kind != NODE_TURN) continue;
        hd_rows_put_turns(r, n);
        const int at = n->n_in > 2 ? p->nodes.at[n->in[2]].arg : -1;
        if (at < 0 || !hd_cuda_early(x->e, x->o, x->o->in[at])) continue;
        n->text = hd_sprintf(r->a, "$c >= %lld ? $0 : turned<%lld>($0, $1, $c %% %lld, sine%d, cosine%d, %s)",
                             ll(t->columns), ll(t->half), ll(2 * t->half), t->id, t->id, t->inverse ? "true" : "false");
        hd_printf(&x->more, " float sine%d, cosine%d; rope_angle<%lld>(*in%d, (first + lane) %% %lld, %s_turns%d, "
                            "&sine%d, &cosine%d);", t->id, t->id, ll(t->half), at, ll(t->half), x->name, t->id, t->id,
                  t->id);
        *call = hd_sprintf(r->a, "%s, sine%d, cosine%d", *call, t->id, t->id);
        x->turned |= 1ull << i;
    }
}

static void put_elements(Around *x, Rows *r, const RowProgram *p) { // what is made of the sums of a lane
    if (x->p.half) {
        hd_rows_line(r, "#pragma unroll");
        hd_rows_line(r, "for (int half = 0; half < 2; half++) {");
        hd_rows_line(r, "const int col = at / %lld * %lld + at %% %lld + half * %lld, j = 0;", ll(x->p.half),
                     ll(2 * x->p.half), ll(x->p.half), ll(x->p.half));
    } else {
        hd_rows_line(r, "const int col = at;");
    }
    for (int i = 0; i < p->nodes.n; i++)
        if (r->used[i]) put_value(x, r, i);
    for (int i = 0; i < p->stores.n; i++)
        hd_rows_line(r, "put1(out%d + col, x%d);", p->stores.at[i].result, p->stores.at[i].node);
    if (x->p.half) hd_rows_line(r, "}");
}

static void put_finisher(Around *x) {
    const int n = x->ret->n_in;
    const Value *results[HD_MAX_OUT] = {NULL};
    for (int i = 0; i < n; i++) results[i] = before(x, x->ret->in[i]) ? NULL : x->ret->in[i];
    const RowBody body = {x->p.behind, x->ret, x->p.after, x->p.result, n, results};
    RowProgram p = hd_rows_build_body(x->k, &body, true, x->e->a);
    Rows r = {.p = &p, .s = hd_rows_shape(&p, 1), .name = x->name, .a = x->e->a, .o = &x->text, .depth = 1,
              .n_places = 1};
    const char *call = "";
    hd_rows_analyse(&r);
    hd_puts(&x->more, "#define GV_KEEP");
    put_turns(x, &r, &p, &call);
    hd_printf(&x->text, "__device__ __forceinline__ void %s_put(int at, const float *sum", x->name);
    for (int i = 0; i < p.nodes.n; i++)
        if (x->turned >> i & 1)
            hd_printf(&x->text, ", float sine%d, float cosine%d", p.nodes.at[i].turn.id, p.nodes.at[i].turn.id);
    for (int i = 0; i < x->k->n_args; i++) {
        if (!hd_rows_reads(&p, i)) continue;
        const char *type = hd_cuda_type(x->k->args[i]->type->dtype);
        const bool kept = !x->p.half && read_ahead(x, &p, i);
        hd_printf(&x->text, ", %s%s%sin%d", kept ? "" : "const ", kept ? "float " : type, kept ? "" : " *", i);
        call = kept ? hd_sprintf(x->e->a, "%s, row < 32 ? keep%d : widen(in%d[at])", call, i, i)
                    : hd_sprintf(x->e->a, "%s, in%d", call, i);
        if (!kept) continue;
        x->kept |= 1ull << i;
        hd_printf(&x->more, " const float keep%d = gv_keep(in%d, first, lane, N, GV_ROWS);", i, i);
    }
    for (int i = 0; i < p.stores.n; i++)
        hd_printf(&x->text, ", %s *out%d", hd_cuda_type(p.stores.at[i].dtype), p.stores.at[i].result);
    hd_puts(&x->text, ") {\n");
    put_elements(x, &r, &p);
    hd_puts(&x->text, "}\n");
    hd_printf(&x->more, "\n#define GV_PUT(at, sums) %s_put(at, sums%s", x->name, call);
    for (int i = 0; i < p.stores.n; i++) hd_printf(&x->more, ", out%d", p.stores.at[i].result);
    hd_puts(&x->more, ")\n");
}

static void put_params(Around *x) {
    for (int i = 0; i < x->k->n_args; i++)
        hd_printf(&x->params, "%sconst %s *in%d", i ? ", " : "", hd_cuda_type(x->k->args[i]->type->dtype), i);
    for (int i = 0; i < x->ret->n_in; i++)
        hd_printf(&x->params, ", %s *out%d", hd_cuda_type(x->ret->in[i]->type->dtype), i);
}

// --- launches

typedef struct {
    const Op *o, *product;  // the launch, or the gemm itself
    Value *const *in;       // of the product, among the operands of o
    const char *name, *params, *more, *before;
    int parts;
    int64_t half; // of heads whose pairs are turned; 0: none are
    bool made;    // the row, in shared memory
} Gemv;

static void put_gemv(Emit *e, const Gemv *v) {
    const Op *o = v->o, *g = v->product;
    const Product p = hd_product(g);
    const DType d = g->in[0]->type->dtype;
    const int bias = hd_operand_of(g, ROLE_BIAS), vec = hd_cuda_vector(o, d, p.tb ? p.k : p.n);
    // A warp takes as many elements as there are more than warps on the device. Without tb the columns of a block fill
    // a sector of memory, 32 bytes, or two where that leaves blocks enough.
    const int64_t warps = (int64_t)hd_target_arch(e->m).processors * BLOCKS * WARPS, n = p.n / v->parts,
                  rows = hd_ceil_div(n, warps);
    const int lanes = (p.n >= 8192 ? 64 : 32) / (vec * hd_dtype_bytes(d));
    const int64_t columns = p.tb ? WARPS * rows : lanes * vec;
    const bool early = p.tb && hd_cuda_early(e, o, v->in[1]) && (bias < 0 || hd_cuda_early(e, o, v->in[bias]));
    const char *name = hd_sprintf(e->a, "%s%s%s", v->name, hd_has(&o->attrs, A_ALIGN) ? "_narrow" : "",
                                  early ? "_early" : "");
    const char *text = hd_cuda_template(
        e, "gemv",
        hd_sprintf(e->a,
                   "#define GV_KERNEL %s\n#define GV_PARAMS %s\n#define GV_T %s\n#define GV_N %lld\n"
                   "#define GV_K %lld\n#define GV_VEC %d\n#define GV_TB %d\n#define GV_ROWS %lld\n"
                   "#define GV_PARTS %d\n#define GV_HALF %lld\n#define GV_STAGED %d\n#define GV_%s 1\n"
                   "#define GV_LANES %d\n#define GV_BIAS %d\n%s",
                   name, v->params, hd_cuda_type(d), ll(p.n), ll(p.k), vec, p.tb, ll(rows), v->parts, ll(v->half),
                   v->made ? 2 : p.k * hd_dtype_bytes(d) <= STAGED_BYTES, early ? "EARLY" : "LATE", lanes, bias >= 0,
                   v->more));
    const char *arg[HD_MAX_IN + HD_MAX_OUT];
    int n_args = 0;
    for (int i = 0; i < o->n_in; i++) arg[n_args++] = hd_cuda_device(e, hd_emit_value(e, o->in[i]));
    for (int i = 0; i < o->n_out; i++) arg[n_args++] = hd_cuda_device(e, hd_emit_result(e, o, i));
    hd_cuda_launch_kernel(e, o, name, hd_sprintf(e->a, "%s%s", v->before, text), hd_ceil_div(n, columns),
                          1, THREADS, 0, n_args, arg);
}

void hd_cuda_gemv(Emit *e, const Op *o) {
    const Product p = hd_product(o);
    const DType d = o->in[0]->type->dtype, out = hd_result_type(o, 0)->dtype;
    const bool bias = hd_operand_of(o, ROLE_BIAS) >= 0;
    if (!hd_cuda_in_f32(e, o, o->in[0])) return;
    const char *t = hd_cuda_type(d);
    put_gemv(e, &(Gemv){
                    .o = o, .product = o, .in = o->in, .parts = 1, .before = "",
                    .name = hd_sprintf(e->a, "gemv_%s_%s_%lldx%lld%s%s", hd_dtype_text(d), hd_dtype_text(out), ll(p.k),
                                       ll(p.n), p.tb ? "_tb" : "", bias ? "_bias" : ""),
                    .params = hd_sprintf(e->a, "const %s *x, const %s *w, %s%s%s%s *y", t, t, bias ? "const " : "",
                                         bias ? t : "", bias ? " *bias, " : "", hd_cuda_type(out)),
                    .more = "#define GV_KEEP\n#define GV_AHEAD\n#define GV_X x\n#define GV_W w\n#define GV_SHIFT bias\n"
                            "#define GV_PUT(at, sums) put1(y + (at), (sums)[0])\n"});
}

static uint64_t early_args(Emit *e, const Op *o) {
    uint64_t seen = 0;
    for (int i = 0; i < o->n_in; i++)
        if (hd_cuda_early(e, o, o->in[i])) seen |= 1ull << i;
    return seen;
}

void hd_cuda_row_product(Emit *e, const Op *o) {
    const Func *k = hd_launched(o);
    Around x = {.e = e, .o = o, .k = k, .p = hd_row_product_of(k), .ret = hd_return(k),
                .name = hd_emit_kernel_name(e, k),
                .widest = hd_has(&o->attrs, A_ALIGN) ? 1 : 8, .text = hd_out(e->a), .params = hd_out(e->a),
                .more = hd_out(e->a)};
    const Op *g = x.p.product;
    if (!g) HD_BUG("kernel @%s is no product of a row", k->name);
    if (!hd_cuda_in_f32(e, o, g->in[0])) return;
    if (x.widest == 1) x.name = hd_sprintf(e->a, "%s_1", x.name);
    const uint64_t seen = early_args(e, o);
    if (seen) x.name = hd_sprintf(e->a, "%s_%llx", x.name, (unsigned long long)seen); // the text depends on them
    Value *in[HD_MAX_IN] = {NULL};
    for (int i = 1; i < g->n_in; i++) in[i] = o->in[g->in[i]->index];
    put_params(&x);
    const bool made = put_maker(&x);
    put_finisher(&x);
    hd_printf(&x.more, "#define GV_W in%d\n", g->in[1]->index);
    if (g->n_in > 2) hd_printf(&x.more, "#define GV_SHIFT in%d\n", g->in[2]->index);
    put_gemv(e, &(Gemv){o, g, in, x.name, x.params.text, x.more.text, x.text.text, x.p.parts, x.p.half, made});
}
