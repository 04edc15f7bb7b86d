// Library ops that are fixed templates: cross entropy, embedding gradient, stores. Each emitter writes the template's
// parameters as #define lines and one launch statement a kernel.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/machine/arch.h"
#include "ir/shapes.h"

static const char *device(Emit *e, const Value *v) { return hd_cuda_device(e, hd_emit_value(e, v)); }

// The target computes in f32 at most; f64 is for the evaluator and the host target.
bool hd_cuda_in_f32(Emit *e, const Op *o, const Value *v) {
    if (hd_dtype_in_f32(v->type->dtype)) return true;
    hd_emit_error(e, o->span, "target cuda has no %s of %s: use f32, bf16 or f16", hd_op_info(o->kind)->mnemonic,
                  hd_type_text(e->cx, v->type));
    return false;
}

// The widest vector, up to 16 bytes, that the op's addresses and rows of `cols` elements allow.
int hd_cuda_vector(const Op *o, DType d, int64_t cols) {
    int v = hd_has(&o->attrs, A_ALIGN) ? 1 : 16 / hd_dtype_bytes(d);
    while (cols % v) v /= 2;
    return v;
}

// --- cross entropy

typedef struct { int vec, threads, held; int64_t blocks; } CrossEntropyShape;

// Threads and shared memory: two blocks per multiprocessor, so that one loads while the other computes; the whole row
// in shared memory where it fits.
static CrossEntropyShape cross_entropy_shape(Emit *e, DType d, int64_t rows, int64_t cols, int vec) {
    Arch dev = hd_target_arch(e->m);
    CrossEntropyShape s = {.vec = vec, .threads = 1024};
    int64_t vectors = cols / vec, half = (dev.shared_kib - 3) / 2 * 1024ll, whole = (dev.shared_kib - 3) * 1024ll,
            least = INT64_MAX;
    int resident = 2;
    if (vec * hd_dtype_bytes(d) == 16 && vectors * 16 <= half) {
        for (int t = 768; t >= 32; t -= 32) { // the fewest idle lanes; the most threads among those
            int64_t items = hd_ceil_div(vectors, t), waste = items * t - vectors;
            if (items > 16 || items * t * 16 > half || waste >= least || (t < 384 && vectors > 4 * 384)) continue;
            least = waste, s.threads = t, s.held = (int)items;
        }
        int64_t bytes = (int64_t)s.held * s.threads * 16 + 2048;
        resident = (int)((dev.shared_kib + 1) * 1024ll / bytes);
        if (resident > 2048 / s.threads) resident = 2048 / s.threads;
        if (resident > 16) resident = 16;
    } else if (vec * hd_dtype_bytes(d) == 16) {
        int64_t items = hd_ceil_div(vectors, s.threads), fit = whole / (16 * s.threads);
        s.held = (int)(items < fit ? items : fit);
        resident = 1;
    }
    s.blocks = (int64_t)dev.processors * resident;
    if (s.blocks > rows) s.blocks = rows;
    return s;
}

void hd_cuda_print_cross_entropy(Emit *e, const Op *o) {
    bool grad = hd_is_backward(o);
    const Value *z = o->in[0];
    if (!hd_cuda_in_f32(e, o, z)) return;
    DType d = z->type->dtype;
    int64_t rows = hd_type_rows(z->type), cols = hd_type_cols(z->type), space = hd_emit_workspace(e, o);
    CrossEntropyShape s = cross_entropy_shape(e, d, rows, cols, hd_cuda_vector(o, d, cols));
    const Value *weights = hd_loss_weights(o);
    const int64_t ignored = hd_loss_ignored(o);
    const char *weighted = !weights ? "" : hd_sprintf(e->a, "_weighted_%s%lld", ignored < 0 ? "minus" : "",
                                                      ll(ignored < 0 ? -ignored : ignored));
    const char *name = hd_sprintf(e->a, "cross_entropy%s_%s_%lldx%lld%s%s", grad ? "_grad" : "", hd_dtype_text(d),
                                  ll(rows), ll(cols), s.vec == 1 && cols % 2 == 0 ? "_narrow" : "", weighted);
    const char *mean = hd_sprintf(e->a, "%s_mean", name);
    const char *text = hd_cuda_template(
        e, "cross_entropy",
        hd_sprintf(e->a,
                   "#define CE_ROWS_KERNEL %s\n#define CE_MEAN_KERNEL %s\n#define CE_T %s\n#define CE_ROWS "
                   "%lld\n#define CE_COLS %lld\n"
                   "#define CE_VEC %d\n#define CE_THREADS %d\n#define CE_HELD %d\n#define CE_GRAD %d\n"
                   "#define CE_WEIGHTED %d\n#define CE_PARTS %lld\n#define CE_IGNORE %lld\n",
                   name, mean, hd_cuda_type(d), ll(rows), ll(cols), s.vec, s.threads, s.held, grad, weights != NULL,
                   weights ? 1 : ll(rows), ll(ignored)));
    unsigned shared = (unsigned)(s.held * s.threads * 16);
    const char *losses = hd_cuda_device(e, space);
    const char *in[6] = {device(e, z), device(e, o->in[1])};
    int n = 2;
    if (weights) in[n++] = device(e, weights);
    if (grad) in[n++] = device(e, o->in[2]), in[n++] = device(e, o->out[1]);
    in[n++] = losses;
    hd_cuda_launch_kernel(e, o, name, text, s.blocks, 1, (unsigned)s.threads, shared, n, in);
    HD_CUDA_LAUNCH(e, o, mean, text, 1, 1, 1024, 0, losses, device(e, o->out[0]));
}

// --- embedding gradient

// Few positions, added to a gradient that is there: no sort over the rows of the table (a tied head).
static void embedding_grad_of_few(Emit *e, const Op *o, const char *base, DType from, DType to, int64_t n, int vec) {
    const char *name = hd_sprintf(e->a, "%s_few_positions", base);
    const char *text = hd_cuda_template(
        e, "embedding_grad_few",
        hd_sprintf(e->a,
                   "#define EG_KERNEL %s\n#define EG_T %s\n#define EG_OUT %s\n#define EG_N %lld\n#define EG_ROWS %lld\n"
                   "#define EG_COLS %lld\n#define EG_VEC %d\n",
                   name, hd_cuda_type(from), hd_cuda_type(to), ll(n), ll(hd_table_rows(o)),
                   ll(hd_type_cols(o->in[0]->type)), vec));
    HD_CUDA_LAUNCH(e, o, name, text, n, 1, 512, 0, device(e, o->in[1]), device(e, o->in[0]),
                   hd_cuda_device(e, hd_emit_result(e, o, 0)));
}

void hd_cuda_print_embedding_grad(Emit *e, const Op *o) {
    enum { FEW = 8192 }; // above it the comparisons of all pairs take longer than the sort
    const Value *dy = o->in[0];
    if (!hd_cuda_in_f32(e, o, dy)) return;
    DType from = dy->type->dtype, to = hd_result_type(o, 0)->dtype;
    int64_t n = hd_type_count(o->in[1]->type), cols = hd_type_cols(dy->type), rows = hd_table_rows(o);
    int64_t space = hd_emit_workspace(e, o);
    bool add = hd_has(&o->attrs, A_ACCUMULATE);
    int vec = hd_cuda_vector(o, from, cols);
    const char *base = hd_sprintf(e->a, "embedding_grad%s_%s_%lld_%lldx%lld%s", add ? "_add" : "", hd_dtype_text(from),
                                  ll(n), ll(rows), ll(cols), vec == 1 && cols % 2 == 0 ? "_narrow" : "");
    if (add && n <= FEW) {
        embedding_grad_of_few(e, o, base, from, to, n, vec);
        return;
    }
    static const char *const part[] = {"count", "starts", "scatter", "rank", "few", "many"};
    static const char *const define[] = {"EG_COUNT", "EG_STARTS", "EG_SCATTER", "EG_RANK", "EG_FEW", "EG_MANY"};
    const char *name[6];
    Out t = hd_out(e->a);
    for (int i = 0; i < 6; i++) {
        name[i] = hd_sprintf(e->a, "%s_%s", base, part[i]);
        hd_printf(&t, "#define %s %s\n", define[i], name[i]);
    }
    hd_printf(&t,
              "#define EG_T %s\n#define EG_OUT %s\n#define EG_N %lld\n#define EG_ROWS %lld\n#define EG_COLS "
              "%lld\n#define EG_VEC %d\n#define EG_ADD %d\n",
              hd_cuda_type(from), hd_cuda_type(to), ll(n), ll(rows), ll(cols), vec, add);
    const char *text = hd_cuda_template(e, "embedding_grad", t.text), *index = device(e, o->in[1]),
               *w = hd_cuda_device(e, space), *out = hd_cuda_device(e, hd_emit_result(e, o, 0));
    int64_t blocks = hd_ceil_div(n, 256), most = hd_ceil_div(n, 16) < 256 ? hd_ceil_div(n, 16) : 256;
    hd_emit_line(e, o, "hd_cuda_zero(x, %d, %s, %lld);", hd_emit_stream(e, o), w, ll((rows + 1) * 4));
    HD_CUDA_LAUNCH(e, o, name[0], text, blocks, 1, 256, 0, index, w);
    HD_CUDA_LAUNCH(e, o, name[1], text, 1, 1, 1024, 0, w);
    HD_CUDA_LAUNCH(e, o, name[2], text, blocks, 1, 256, 0, index, w);
    HD_CUDA_LAUNCH(e, o, name[3], text, blocks, 1, 256, 0, index, w);
    HD_CUDA_LAUNCH(e, o, name[4], text, hd_ceil_div(rows, 8), 1, 256, 0, device(e, dy), out, w);
    HD_CUDA_LAUNCH(e, o, name[5], text, hd_ceil_div(cols, 32 * vec), most, 512, 0, device(e, dy), out, w);
}

// --- stores

void hd_cuda_convert(Emit *e, const Op *o, DType from, DType to, bool add, int64_t n, bool aligned, const char *src,
                     const char *dst) {
    const int vec = !aligned ? 1 : hd_dtype_bytes(from) == 2 || hd_dtype_bytes(to) == 2 ? 8 : 4;
    const char *name = hd_sprintf(e->a, "%s_%s_%s%s", add ? "add" : "convert", hd_dtype_text(from), hd_dtype_text(to),
                                  vec == 1 ? "_narrow" : "");
    const char *text = hd_cuda_template(
        e, "store",
        hd_sprintf(e->a,
                   "#define ST_KERNEL %s\n#define ST_FROM %s\n#define ST_TO %s\n#define ST_VEC %d\n#define ST_ADD %d\n",
                   name, hd_cuda_type(from), hd_cuda_type(to), vec, add));
    HD_CUDA_LAUNCH(e, o, name, text, hd_ceil_div(n, 256 * vec), 1, 256, 0, src, dst, hd_sprintf(e->a, "%lld", ll(n)));
}

void hd_cuda_print_store(Emit *e, const Op *o) {
    const Value *x = o->in[0];
    bool add = hd_has(&o->attrs, A_ACCUMULATE);
    DType from = x->type->dtype, to = hd_result_type(o, 0)->dtype;
    int64_t at[2] = {hd_emit_value(e, x), hd_emit_result(e, o, 0)}, n = hd_type_count(x->type);
    if (from == to && !add) {
        hd_emit_line(e, o, "hd_cuda_copy(x, %d, %s, %s, %lld);", hd_emit_stream(e, o), hd_cuda_device(e, at[1]),
                     hd_cuda_device(e, at[0]), ll(hd_type_bytes(x->type)));
        return;
    }
    hd_cuda_convert(e, o, from, to, add, n, !hd_has(&o->attrs, A_ALIGN), hd_cuda_device(e, at[0]),
                    hd_cuda_device(e, at[1]));
}
