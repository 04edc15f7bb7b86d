// The type rules of ops on storage and of collectives: the symbols that they name must exist, be of the right kind and
// be large enough.
#include "ir/type_rules.h"
#include "ir/base/ints.h"
#include "ir/bins.h"
#include "ir/mesh.h"
#include "ir/optimizer.h"
#include "ir/dropout.h"

const Symbol *hd_rule_symbol(Rule *r, AttrId a, SymbolKind k) {
    const Symbol *s = hd_named(r->o, a);
    return s && s->kind == k ? s : NULL;
}

const char *hd_rule_in_buffer(Rule *r, AttrId a, const Type *t) {
    const Symbol *s = hd_rule_symbol(r, a, SYM_BUFFER);
    int64_t at = hd_int(&r->o->attrs, A_OFFSET, 0), n = hd_type_count(t);
    if (at < 0 || n > hd_type_count(s->type) - at)
        WRONG("elements [%lld, %lld) are outside buffer @%s : %s", (long long)at, (long long)(at + n), s->name,
              TEXT(s->type));
    return NULL;
}

const char *hd_rule_grad(Rule *r) {
    const Type *t;
    const char *e = hd_rule_params(r, &t);
    if (e) return e;
    for (int i = 0; hd_op_param(r->o, i); i++)
        if (hd_has(&hd_op_param(r->o, i)->attrs, A_FROZEN))
            WRONG("parameter @%s is frozen: it has no gradient", hd_op_param(r->o, i)->name);
    if (t->rank != IN(0)->rank || memcmp(t->dim, IN(0)->dim, sizeof(int64_t) * (size_t)t->rank))
        WRONG("gradient %s of parameter @%s : %s", TEXT(IN(0)), hd_word(&r->o->attrs, A_PARAM, ""), TEXT(t));
    return NULL;
}

const char *hd_rule_view(Rule *r) {
    const char *e = hd_rule_explicit(r);
    if (!e) e = hd_rule_in_buffer(r, A_BUFFER, r->out[0]);
    if (e) return e;
    const Symbol *s = hd_rule_symbol(r, A_BUFFER, SYM_BUFFER);
    if (s->type->dtype != r->out[0]->dtype)
        WRONG("view %s of buffer @%s : %s", TEXT(r->out[0]), s->name, TEXT(s->type));
    return NULL;
}

const char *hd_rule_store(Rule *r) { return hd_rule_give(r, IN(0)); }

const char *hd_rule_copy(Rule *r) {
    const Symbol *buffer = hd_rule_symbol(r, A_BUFFER, SYM_BUFFER);
    if (r->o->n_in + (buffer != NULL) != 1) WRONG("copy takes one operand or `buffer`");
    if (hd_has(&r->o->attrs, A_INTO) && hd_has(&r->o->attrs, A_SPACE)) return "a buffer says its own space";
    return hd_rule_give(r, buffer ? buffer->type : IN(0));
}

static const char *scale_wrong(Rule *r) {
    const int64_t scale = hd_int(&r->o->attrs, A_LOSS_SCALE, 1);
    if (HD_IS_LOSS_SCALE(scale)) return NULL;
    WRONG("loss_scale is %lld; it must be a power of two from 1 to %d", (long long)scale, HD_MOST_LOSS_SCALE);
}

const char *hd_rule_grad_norm(Rule *r) {
    const Attr *b = hd_attr(&r->o->attrs, A_BUFFERS);
    for (int i = 0; i < b->n; i++) {
        const Symbol *s = hd_symbol_find(r->o->func->module, b->strs[i]);
        if (s->type->dtype != TY_F32) WRONG("@%s is not an f32 buffer", b->strs[i]);
    }
    const char *wrong = scale_wrong(r);
    return wrong ? wrong : hd_rule_give(r, hd_type(r->cx, TY_F32, 0, NULL));
}

static int64_t runs(int64_t count) { return (count + HD_NORM_BLOCK - 1) / HD_NORM_BLOCK; }

const char *hd_rule_square_sums(Rule *r) {
    const Attr *b = hd_attr(&r->o->attrs, A_BUFFERS);
    int64_t n = 0;
    for (int i = 0; i < b->n; i++) {
        const Symbol *s = hd_symbol_find(r->o->func->module, b->strs[i]);
        if (s->type->dtype != TY_F32) WRONG("@%s is not an f32 buffer", b->strs[i]);
        n += runs(hd_type_count(s->type));
        if (hd_has(&r->o->attrs, A_EXACT) && hd_type_count(s->type) % HD_BIN_RUN)
            WRONG("@%s has %lld elements, and exact sums are of runs of %d", b->strs[i], ll(hd_type_count(s->type)),
                  HD_BIN_RUN);
    }
    const char *e = hd_rule_explicit(r);
    if (e) return e;
    if (hd_has(&r->o->attrs, A_EXACT)) n = HD_BINS;
    if (r->out[0] != hd_type(r->cx, TY_F64, 1, &n))
        WRONG("the result is f64[%lld], not %s", (long long)n, TEXT(r->out[0]));
    return NULL;
}

const char *hd_rule_root_sum(Rule *r) {
    if (IN(0)->rank != 1 || IN(0)->dtype != TY_F64) WRONG("partial sums must be an f64 vector, not %s", TEXT(IN(0)));
    if (hd_has(&r->o->attrs, A_EXACT) && hd_type_count(IN(0)) % HD_BINS)
        WRONG("exact sums have %d numbers each, and %s is no multiple", HD_BINS, TEXT(IN(0)));
    const char *wrong = scale_wrong(r);
    return wrong ? wrong : hd_rule_give(r, hd_type(r->cx, TY_F32, 0, NULL));
}

const char *hd_rule_tree_sum(Rule *r) {
    const Type *t = IN(0);
    if (t->dtype != TY_F32 || !t->rank || !hd_is_power(t->dim[0]))
        WRONG("a sum in a tree is of f32[n, ..], n a power of two, not of %s", TEXT(t));
    return hd_rule_give(r, hd_type(r->cx, TY_F32, t->rank - 1, t->dim + 1));
}

const char *hd_rule_orthogonalize(Rule *r) {
    const char *out = hd_word(&r->o->attrs, A_OUT, ""), *rates = hd_word(&r->o->attrs, A_RATE_FOR, "");
    const Func *f = r->o->func;
    if (!f->is_kernel || hd_kind(&f->attrs) != KIND_OPTIMIZER)
        return "orthogonalize belongs into a kernel of kind optimizer";
    if (strcmp(out, "f32") && strcmp(out, "bf16")) WRONG("orthogonalize computes in f32 or bf16, not in %s", out);
    if (strcmp(rates, "original") && strcmp(rates, "match_rms_adamw"))
        WRONG("rate_for is original or match_rms_adamw, not %s", rates);
    return hd_rule_give(r, IN(0));
}

const char *hd_rule_line_mean(Rule *r) {
    const char *along = hd_word(&r->o->attrs, A_ALONG, "");
    const Func *f = r->o->func;
    if (!f->is_kernel || hd_kind(&f->attrs) != KIND_OPTIMIZER)
        return "line_mean belongs into a kernel of kind optimizer";
    if (hd_per(along) < 0 || !strcmp(along, "element")) WRONG("line_mean is along row, column or whole, not %s", along);
    return hd_rule_give(r, IN(0));
}

// Tensors of the bucket of which a rank has this part, in order; -1 after the error in *wrong.
static int64_t tensors_of(Rule *r, const Symbol *part, int64_t ranks, const char **wrong) {
    const Attr *list = part ? hd_tensors(r->o->func->module, part) : NULL;
    const Symbol *k = part ? hd_symbol_find(r->o->func->module, hd_word(&part->attrs, A_BUCKET, "")) : NULL;
    int64_t last = 0;
    *wrong = NULL;
    if (!list) *wrong = hd_internf(r->cx, "@%s is no part of a bucket with `tensors`", part ? part->name : "?");
    else if (list->n % 2 || hd_type_count(part->type) != hd_type_count(k->type) / ranks)
        *wrong = hd_internf(r->cx, "@%s : %s is not what one of %lld ranks has of @%s", part->name, TEXT(part->type),
                            ll(ranks), k->name);
    for (int i = 0; !*wrong && i < list->n; i++) {
        const int64_t at = list->ints[i];
        if (at < last + i % 2 || at > hd_type_count(k->type))
            *wrong = hd_internf(r->cx, "tensors of @%s do not follow each other", k->name);
        last = at;
    }
    return *wrong ? -1 : list->n / 2;
}

static int64_t ranks_of(Rule *r) {
    const Symbol *comm = hd_rule_symbol(r, A_COMM, SYM_COMM);
    const Mesh mesh = hd_mesh(r->o->func->module);
    return comm ? hd_mesh_ranks(&mesh, hd_axes(&comm->attrs, A_OVER)) : 1;
}

static const char *tensors_wrong(Rule *r) { // of a gather
    const Symbol *scales = hd_rule_symbol(r, A_SCALES_IN, SYM_BUFFER);
    const int64_t first = hd_int(&r->o->attrs, A_FIRST, 0);
    const char *wrong;
    const int64_t n = tensors_of(r, hd_rule_symbol(r, A_BUFFER, SYM_BUFFER), ranks_of(r), &wrong);
    if (wrong) return wrong;
    if (hd_has(&r->o->attrs, A_SCALES)) return "quantized = 0 sends no scales: every rank has them";
    if (!scales || scales->type->dtype != TY_F32 || first < 0 ||
        first > hd_type_count(scales->type) / HD_SCALE_STRIDE - n)
        WRONG("quantized = 0 needs the scales of %lld tensors in `scales_in`", ll(n));
    return NULL;
}

const char *hd_rule_all_max(Rule *r) {
    const Attr *list = hd_attr(&r->o->attrs, A_BUFFERS);
    int64_t n = 0;
    if (!hd_rule_symbol(r, A_COMM, SYM_COMM)) WRONG("no comm @%s", hd_word(&r->o->attrs, A_COMM, ""));
    if (strcmp(hd_word(&r->o->attrs, A_OUT, ""), hd_dtype_text(TY_E4M3))) return "all_max needs out = e4m3";
    for (int i = 0; i < list->n; i++) {
        const char *wrong;
        const Symbol *part = hd_symbol_find(r->o->func->module, list->strs[i]);
        n += tensors_of(r, part, ranks_of(r), &wrong);
        if (wrong) return wrong;
        if (!hd_dtype_in_f32(part->type->dtype) || hd_dtype_is_fp8(part->type->dtype) || part->type->rank != 1)
            WRONG("all_max needs vectors of f32, bf16 or f16, not @%s : %s", part->name, TEXT(part->type));
    }
    return hd_rule_give(r, hd_type(r->cx, TY_F32, 2, (int64_t[]){n, HD_SCALE_STRIDE}));
}

// The operand that a rank gives to a gather that quantizes: its rows in the type of one byte `out`, or a scale for
// each.
static const char *quantized_part(Rule *r, Type *t) {
    const int64_t row = hd_int(&r->o->attrs, A_QUANTIZED, 0);
    DType d;
    if (!hd_dtype_parse(hd_word(&r->o->attrs, A_OUT, ""), &d) || d != TY_E4M3)
        WRONG("quantized = %lld needs out = e4m3", ll(row));
    if (!hd_dtype_in_f32(t->dtype) || hd_dtype_is_fp8(t->dtype) || t->rank != 1)
        WRONG("quantized = %lld needs a vector of f32, bf16 or f16, not %s", ll(row),
              TEXT(hd_type(r->cx, t->dtype, t->rank, t->dim)));
    if (!row) {
        const char *wrong = tensors_wrong(r);
        t->dtype = d;
        return wrong;
    }
    if (row < 1 || t->dim[0] % row) WRONG("%lld elements are no rows of %lld", ll(t->dim[0]), ll(row));
    t->dtype = hd_has(&r->o->attrs, A_SCALES) ? TY_F32 : d;
    if (hd_has(&r->o->attrs, A_SCALES)) t->dim[0] /= row;
    return NULL;
}

// From the operand, or `buffer`: as many times longer or shorter along the first axis as there are ranks.
const char *hd_rule_collective(Rule *r) {
    const CollectiveInfo *does = hd_collective(r->o);
    const bool gather = does->gathers;
    const Symbol *comm = hd_rule_symbol(r, A_COMM, SYM_COMM), *buffer = hd_rule_symbol(r, A_BUFFER, SYM_BUFFER);
    const char *name = hd_op_info(r->o->kind)->mnemonic;
    if (!comm) WRONG("no comm @%s", hd_word(&r->o->attrs, A_COMM, ""));
    if (r->o->n_in + (buffer != NULL) != 1) WRONG("%s takes one operand or `buffer`", name);
    Type t = buffer ? *buffer->type : *IN(0);
    const bool quantizes = hd_has(&r->o->attrs, A_QUANTIZED);
    if (!quantizes && hd_has(&r->o->attrs, A_SCALES)) return "scales needs `quantized`";
    if (hd_has(&r->o->attrs, A_SCALES_IN) && hd_int(&r->o->attrs, A_QUANTIZED, 1))
        return "scales_in needs quantized = 0";
    const char *wrong = quantizes ? quantized_part(r, &t) : NULL;
    if (wrong) return wrong;
    Mesh mesh = hd_mesh(r->o->func->module);
    int64_t ranks = hd_mesh_ranks(&mesh, hd_axes(&comm->attrs, A_OVER));
    if (does->exchanges && (!t.rank || t.dim[0] % ranks))
        WRONG("%s over %lld ranks of %s", name, ll(ranks), TEXT(buffer ? buffer->type : IN(0)));
    if (does->exchanges) {
        const int64_t rows = hd_type_rows(&t) / ranks, most = hd_int(&r->o->attrs, A_CAPACITY, rows);
        if (most < 1 || most > rows) WRONG("%s moves %lld of %lld rows of each part", name, ll(most), ll(rows));
        return hd_rule_give(r, buffer ? buffer->type : IN(0));
    }
    if (!t.rank || (gather ? __builtin_mul_overflow(t.dim[0], ranks, &t.dim[0]) : t.dim[0] % ranks != 0))
        WRONG("%s over %lld ranks of %s", name, ll(ranks), TEXT(buffer ? buffer->type : IN(0)));
    if (!gather) t.dim[0] /= ranks;
    const char *out = quantizes ? NULL : hd_word(&r->o->attrs, A_OUT, NULL);
    if (does->sums && out && (t.dtype != TY_BF16 || strcmp(out, "f32")))
        WRONG("out = %s of %s: bf16 is added up in f32", out, TEXT(buffer ? buffer->type : IN(0)));
    if (does->sums && out) t.dtype = TY_F32, out = NULL;
    if (out && (t.dtype != TY_F32 || !hd_dtype_parse(out, &t.dtype) || !hd_dtype_is_half(t.dtype)))
        WRONG("out = %s of %s: f32 is rounded to bf16 or f16", out, TEXT(buffer ? buffer->type : IN(0)));
    if (does->sums && (!hd_dtype_is_float(t.dtype) || hd_dtype_is_fp8(t.dtype)))
        WRONG("a sum over ranks needs floating point, not %s", TEXT(hd_type(r->cx, t.dtype, t.rank, t.dim)));
    if (hd_has(&r->o->attrs, A_TREE) && (t.dtype != TY_F32 || !hd_is_power(ranks)))
        WRONG("a sum in a tree is of f32 and over a power of two, not of %s over %lld ranks", hd_dtype_text(t.dtype),
              ll(ranks));
    return hd_rule_give(r, hd_type(r->cx, t.dtype, t.rank, t.dim));
}

const char *hd_rule_begin(Rule *r) {
    const Symbol *s = hd_rule_symbol(r, A_LIFE, SYM_BUFFER);
    if (!hd_has(&s->attrs, A_TRANSIENT)) WRONG("@%s is not transient", s->name);
    return NULL;
}

const char *hd_rule_region(Rule *r) {
    if (!hd_rule_symbol(r, A_REGION, SYM_REGION)) WRONG("no region @%s", hd_word(&r->o->attrs, A_REGION, ""));
    return NULL;
}

const char *hd_rule_zero(Rule *r) {
    int64_t n = hd_int(&r->o->attrs, A_SIZE, 0);
    if (n < 0) return "size must not be negative";
    return hd_rule_give(r, hd_type(r->cx, hd_rule_symbol(r, A_INTO, SYM_BUFFER)->type->dtype, 1, &n));
}

// Points of a learning rate: as many rates as steps, and the steps ascend.
static const char *points_wrong(const Attrs *as) {
    const Attr *steps = hd_attr(as, A_LR_STEPS), *rates = hd_attr(as, A_LR_RATES);
    const bool points = !strcmp(hd_word(as, A_LR, ""), "points");
    if (!points) return steps || rates ? "lr_steps and lr_rates are of lr = points" : NULL;
    if (!steps || !rates || !steps->n || steps->n != rates->n) return "lr = points needs as many lr_steps as lr_rates";
    for (int i = 1; i < steps->n; i++)
        if (steps->ints[i] <= steps->ints[i - 1]) return "lr_steps must ascend";
    return NULL;
}

const char *hd_rule_step_scalars(Rule *r) {
    const Symbol *s = hd_rule_symbol(r, A_COUNTER, SYM_BUFFER);
    const Attrs *as = &r->o->attrs;
    const Symbol *h = hd_has(as, A_HISTORY) ? hd_rule_symbol(r, A_HISTORY, SYM_BUFFER) : NULL;
    if (h && r->o->n_in != 2) WRONG("step_scalars with a history takes norm and loss, not %d operands", r->o->n_in);
    if (!h && (hd_has(as, A_SKIP_LOSS_Z) || hd_has(as, A_SKIP_NORM_Z)))
        return "skip_loss_z and skip_norm_z need a history";
    if (h && (h->type->dtype != TY_F32 || hd_type_count(h->type) != HD_HISTORY))
        WRONG("a history is f32[%d], not @%s : %s", HD_HISTORY, h->name, TEXT(h->type));
    if (h && (IN(1)->rank || IN(1)->dtype != TY_F32)) WRONG("the loss must be f32, not %s", TEXT(IN(1)));
    if (!h && r->o->n_in > 1)
        WRONG("step_scalars takes the gradient norm or nothing, not %d operands", r->o->n_in);
    if (s->type->dtype != TY_I32) WRONG("the steps are counted in i32, not in @%s : %s", s->name, TEXT(s->type));
    if (r->o->n_in && (IN(0)->rank || IN(0)->dtype != TY_F32))
        WRONG("the gradient norm must be f32, not %s", TEXT(IN(0)));
    const char *wrong = scale_wrong(r);
    if (!wrong) wrong = points_wrong(&r->o->attrs);
    if (strcmp(hd_word(&r->o->attrs, A_ON_NAN, "skip"), "skip") != 0) return "on_nan is skip, or absent";
    if (hd_has(&r->o->attrs, A_ON_NAN) && !r->o->n_in) return "on_nan needs the gradient norm";
    return wrong ? wrong : hd_rule_give(r, hd_type(r->cx, TY_F32, 1, (int64_t[]){8}));
}

const char *hd_rule_dropout_keys(Rule *r) {
    const Symbol *s = hd_rule_symbol(r, A_COUNTER, SYM_BUFFER);
    const int64_t sites = hd_int(&r->o->attrs, A_SITES, 0);
    if (s->type->dtype != TY_I32 || hd_type_count(s->type) != 4)
        WRONG("the seed and the sequences are in an i32[4], not in @%s : %s", s->name, TEXT(s->type));
    if (sites < 1 || hd_int(&r->o->attrs, A_STRIDE, 0) < 1) return "sites and stride start at 1";
    return hd_rule_give(r, hd_type(r->cx, TY_I32, 2, (int64_t[]){sites, HD_KEY}));
}

// A buffer that an update reads or writes has as many elements as the master weights. `any`: it need not be f32;
// `half`: it may be bf16; `count`: not a state that is not per element, whose size layout.c checks.
static const char *part_wrong(Rule *r, const Symbol *s, bool any, bool half, bool count) {
    const Symbol *master = hd_rule_symbol(r, A_MASTER_WEIGHTS, SYM_BUFFER);
    const DType d = s->type->dtype;
    if (any ? !hd_dtype_is_float(d) : d != TY_F32 && !(half && d == TY_BF16))
        WRONG("@%s : %s is not %s", s->name, TEXT(s->type), any ? "floating point" : half ? "f32 or bf16" : "f32");
    if (count && hd_type_count(s->type) != hd_type_count(master->type))
        WRONG("@%s : %s updates @%s : %s", s->name, TEXT(s->type), master->name, TEXT(master->type));
    return NULL;
}

// Master weights in bf16 are rounded by a seed, unless a state has what rounding loses, and no others are.
static const char *rounding_wrong(Rule *r, const Func *k) {
    const Symbol *master = hd_rule_symbol(r, A_MASTER_WEIGHTS, SYM_BUFFER);
    const bool narrow = master->type->dtype == TY_BF16, whole = hd_takes_whole(k), exact = hd_compensates(k);
    const Symbol *seed = hd_has(&r->o->attrs, A_ROUNDING) ? hd_rule_symbol(r, A_ROUNDING, SYM_BUFFER) : NULL;
    if ((narrow && !exact) != (seed != NULL))
        WRONG(narrow && !exact ? "@%s : %s is rounded by a seed: the update needs `rounding`"
                               : "@%s : %s is not rounded: leave out `rounding`", master->name, TEXT(master->type));
    if (seed && (seed->type->dtype != TY_I32 || hd_type_count(seed->type) != 4))
        WRONG("the seed is in an i32[4], not in @%s : %s", seed->name, TEXT(seed->type));
    if (narrow && whole) WRONG("@%s : %s is not f32, and its kernel takes whole parameters", master->name,
                               TEXT(master->type));
    if (narrow && hd_has(&r->o->attrs, A_WEIGHTS))
        WRONG("@%s : %s is in the type of products, and needs no other `weights`", master->name, TEXT(master->type));
    return NULL;
}

const char *hd_rule_update(Rule *r) {
    static const AttrId parts[] = {A_MASTER_WEIGHTS, A_GRADIENT, A_WEIGHTS};
    const Symbol *s;
    const char *e = NULL;
    int states = 0;
    const Func *k = hd_update_kernel(r->o);
    const bool lines = hd_has_lines(k), sound = lines && !hd_optimizer_wrong(k);
    for (int i = 0; !e && i < 2; i++) e = part_wrong(r, hd_rule_symbol(r, parts[i], SYM_BUFFER), false, !i, true);
    if (!e) e = rounding_wrong(r, k);
    for (; !e && (s = hd_state(r->o->func->module, &r->o->attrs, states)); states++) {
        const DType d = hd_state(r->o->func->module, &r->o->attrs, 0)->type->dtype;
        e = part_wrong(r, s, false, true, !lines || (sound && hd_state_per(k, states) == PER_ELEMENT));
        if (!e && s->type->dtype != d) WRONG("@%s : %s is not %s, as the first state", s->name, TEXT(s->type),
                                             hd_dtype_text(d));
    }
    if (!e && (s = hd_rule_symbol(r, A_WEIGHTS, SYM_BUFFER))) e = part_wrong(r, s, true, false, true);
    if (e) return e;
    if (!k || !k->is_kernel || hd_kind(&k->attrs) != KIND_OPTIMIZER)
        WRONG("no kernel of kind optimizer is called @%s", hd_word(&r->o->attrs, A_KERNEL, ""));
    if ((e = hd_optimizer_wrong(k))) WRONG("kernel @%s is no optimizer: one %s", k->name, e);
    if (states != k->n_args - OPT_STATE)
        WRONG("kernel @%s has %d states, and the update %d", k->name, k->n_args - OPT_STATE, states);
    if (hd_int(&r->o->attrs, A_DECAYED, 0) < 0 || hd_int(&r->o->attrs, A_RANKS, 1) < 1)
        return "decayed must not be negative, and ranks starts at 1";
    if (IN(0) != hd_type(r->cx, TY_F32, 1, (int64_t[]){8})) WRONG("step scalars must be f32[8], not %s", TEXT(IN(0)));
    return NULL;
}
