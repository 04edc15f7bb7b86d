// Which parameters share a bucket: those of one unit that are read in one dtype, are split over the same axes, have the
// same rates and the same optimizer, and whose rows are quantized alike. buckets.c gives each bucket its storage.
#include "passes/fsdp/fsdp.h"
#include "ir/base/ints.h"
#include "ir/optimizer.h"
#include "ir/shapes.h"
#include <string.h>

static int64_t row_size(const Type *t) {
    int64_t n = 1;
    for (int i = 1; i < t->rank; i++) n *= t->dim[i];
    return n ? n : 1;
}

// Parameters that are read in another dtype than the compute dtype, by symbol. On one rank both kinds share a bucket
// whose master weights are f32; gathered weights must have one dtype. Where other master weights are rounded to bf16 at
// random, vectors are read from f32: those of norms are near 1, where neighbours in bf16 are 2^-7 apart, and take
// little memory.
static PtrMap wide_params(Fsdp *s) {
    PtrMap wide = {0};
    for (const Symbol *p = s->m->symbols; p && s->kept != TY_F32 && !s->compensates; p = p->next)
        if (p->kind == SYM_PARAM && p->type->rank < 2 && !hd_has(&p->attrs, A_FROZEN))
            hd_ptr_set(s->cx->scratch, &wide, p, 1);
    for (Func *f = s->m->funcs; f && s->compute != TY_F32; f = f->next) {
        if (f->is_kernel) continue;
        for (const Op *o = f->first; o; o = o->next)
            for (int i = 0; i < o->n_in; i++) {
                const Op *def = o->in[i]->def;
                if (!hd_param_read(def, 0) || hd_casts_to(o, s->compute)) continue;
                for (int k = 0; hd_op_param(def, k); k++)
                    if (s->ranks > 1 || s->kept != TY_F32 || hd_has(&hd_op_param(def, k)->attrs, A_FROZEN))
                        hd_ptr_set(s->cx->scratch, &wide, hd_op_param(def, k), 1);
            }
    }
    return wide;
}

// How the forward pass reads a weight: in rows of so many elements that it quantizes; 0: not at all; -1: otherwise.
static int64_t rows_read(const Uses *uses, const Value *v) {
    int64_t row = 0;
    for (int i = 0; i < uses->count[v->id]; i++) {
        const Op *o = uses->users[v->id][i];
        const bool stored = o->kind == OP_CAST && hd_param_read(v->def, 0); // in another type
        const bool rows = o->kind == OP_QUANTIZE && v->type->rank == 2;
        const int64_t is = stored ? rows_read(uses, o->out[0]) : rows ? v->type->dim[1] :
                           hd_has(&o->attrs, A_BWD) ? 0 : -1;
        if (is < 0) return -1;
        if (is) row = is;
    }
    return row;
}

// The rows of parameters that every function reads so, by symbol.
static PtrMap quantized_params(Fsdp *s) {
    PtrMap rows = {0};
    for (Func *f = s->m->funcs; f && s->quantizes && s->ranks > 1; f = f->next) {
        if (f->is_kernel) continue;
        const Uses uses = hd_uses(f, s->cx->scratch);
        for (const Op *o = f->first; o; o = o->next) {
            const int64_t row = hd_param_read(o, 0) ? rows_read(&uses, o->out[0]) : 0;
            for (int k = 0; row && hd_op_param(o, k); k++) {
                const Symbol *p = hd_op_param(o, k);
                const bool fits = row > 0 && row <= INT32_MAX && !p->layout && hd_ptr_get(&rows, p) != 0;
                hd_ptr_set(s->cx->scratch, &rows, p, fits ? (int)row : 0); // 0: some function reads it otherwise
            }
        }
    }
    return rows;
}

// Parameters whose gradient is one contribution in bf16, by symbol.
static PtrMap half_gradients(Fsdp *s) {
    PtrMap half = {0};
    if (strcmp(hd_word(s->train, A_GRAD, ""), "bf16")) return half;
    for (Func *f = s->m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            for (int k = 0; hd_param_added(o, k); k++) {
                const bool first = hd_ptr_get(&half, hd_op_param(o, k)) < 0;
                hd_ptr_set(s->cx->scratch, &half, hd_op_param(o, k), first && o->in[0]->type->dtype == TY_BF16);
            }
    return half;
}

static int unit_number(Fsdp *s, const char *name) {
    int u = hd_ptr_get(&s->units, name);
    if (u < 0) hd_ptr_set(s->cx->scratch, &s->units, name, u = s->n_units++);
    return u;
}

// The facts that tell the buckets of one unit apart, besides their dtype: whether they are frozen, the rates of the
// parameters' group, its optimizer, and the rows that are quantized.
static const char *key_of(Fsdp *s, const char *unit, int64_t row, const Symbol *p) {
    Attrs rates = {0};
    if (row) unit = hd_internf(s->m->cx, "%s rows %lld", unit, ll(row)); // of tensors a negative number
    if (hd_has(&p->attrs, A_FROZEN)) return hd_internf(s->m->cx, "%s frozen", unit);
    const char *rule = hd_word(&p->attrs, A_KERNEL, NULL);
    if (rule) return hd_internf(s->m->cx, "%s state %s", unit, rule);
    const char *own = hd_word(&p->attrs, A_UPDATED_BY, NULL);
    if (own) unit = hd_internf(s->m->cx, "%s by %s%s", unit, own, hd_has(&p->attrs, A_DECAY) ? " decays" : "");
    for (int i = 0; i < HD_GROUP_RATES; i++)
        if (hd_has(&p->attrs, hd_group_rates[i])) hd_set_attr(s->m->cx, &rates, hd_attr(&p->attrs, hd_group_rates[i]));
    if (!rates.n) return unit;
    Out text = hd_out(s->cx->scratch);
    hd_print_attrs(&rates, &text);
    return hd_internf(s->m->cx, "%s %s", unit, text.text);
}

// The bucket of a unit for one kind of parameters; made for the first of them.
static FsdpBucket *bucket_of(Fsdp *s, const char *unit, bool wide, int64_t row, Axes own, PtrMap *of_unit,
                             const Symbol *p) {
    const char *key = key_of(s, unit, row, p);
    int i = hd_ptr_get(of_unit, key);
    if (i < 0) {
        const Func *rule = hd_func_find(s->m, hd_word(&p->attrs, A_KERNEL, ""));
        FsdpBucket b = {.unit_name = unit, .unit = unit_number(s, unit), .weights = wide || rule ? TY_F32 : s->compute,
                        .frozen = hd_has(&p->attrs, A_FROZEN), .rule = rule, .row = row, .own = own,
                        .sent = TY_BF16,
                        .own_kernel = hd_func_find(s->m, hd_word(&p->attrs, A_UPDATED_BY, ""))};
        b.loc = (Loc){unit, p->loc.file, p->loc.line};
        hd_ptr_set(s->cx->scratch, of_unit, key, i = s->buckets.n);
        hd_push(s->cx->scratch, &s->buckets, b);
    }
    return &s->buckets.at[i];
}

// An optimizer that orthogonalizes takes matrices, one with means of lines vectors as well; all of one on a rank.
static bool may_be_whole(Fsdp *s, const Symbol *p) {
    const Axes own = hd_layout_axes(p->layout);
    const Func *k = hd_func_find(s->m, hd_word(&p->attrs, A_UPDATED_BY, ""));
    if (!hd_takes_whole(k)) return true;
    if (hd_optimizer_turn(k) ? p->type->rank != 2 : p->type->rank > 2)
        return hd_error(s->m->cx, p->span, "parameter @%s is %s, and its optimizer, @%s, updates matrices%s", p->name,
                        hd_type_text(s->m->cx, p->type), k->name, hd_optimizer_turn(k) ? "" : " and vectors");
    if (own)
        return hd_error(s->m->cx, p->span, "parameter @%s is split over %s, and its optimizer, @%s, updates whole "
                        "parameters: set schedule.mesh.%s = 1, or give the parameter another optimizer", p->name,
                        hd_axes_text(s->cx->scratch, own), hd_word(&p->attrs, A_UPDATED_BY, ""),
                        hd_axes_text(s->cx->scratch, own & -own));
    return true;
}

static bool shares_root(const Fsdp *s, const Symbol *p) {
    const Func *k = s->ranks == 1 ? hd_func_find(s->m, hd_word(&p->attrs, A_UPDATED_BY, "")) : NULL;
    return k && hd_optimizer_turn(k);
}

// Those of @root come last.
bool hd_fsdp_collect(Fsdp *s) {
    Ctx *cx = s->m->cx;
    const char *root = hd_intern(cx, "root");
    PtrMap half = half_gradients(s), wide = wide_params(s), rows = quantized_params(s), of_unit[2 << N_AXES] = {{0}};
    hd_fsdp_find_tensors(s);
    for (int last = 0; last < 2; last++)
        for (Symbol *p = s->m->symbols; p; p = p->next) {
            if (p->kind != SYM_PARAM) continue;
            if (hd_has(&p->attrs, A_KERNEL) || shares_root(s, p)) hd_set_word(cx, &p->attrs, A_UNIT, root);
            const char *unit = hd_intern(cx, hd_word(&p->attrs, A_UNIT, root));
            if ((unit == root) != (last == 1)) continue;
            if (p->type->dtype != TY_F32) {
                hd_error(cx, p->span,
                         "parameter @%s is %s; parameters that are trained must be f32 (precision { compute = %s } "
                         "makes the arithmetic narrower)",
                         p->name, hd_type_text(cx, p->type), hd_dtype_text(p->type->dtype));
                return false;
            }
            if (!may_be_whole(s, p)) return false;
            bool is_wide = hd_ptr_get(&wide, p) > 0;
            const Axes own = hd_layout_axes(p->layout);
            const int rows_of = is_wide ? 0 : hd_ptr_get(&rows, p);
            const bool tensor = !is_wide && hd_ptr_get(&s->tensors, p) >= 0;
            const int64_t row = rows_of > 0 ? rows_of : tensor ? HD_WHOLE_TENSORS : 0;
            FsdpBucket *b = bucket_of(s, unit, is_wide, row, own, &of_unit[2 * own + is_wide], p);
            BucketItem item = {.param = p, .count = hd_type_count(p->type), .row = row_size(p->type),
                               .decay = hd_has(&p->attrs, A_DECAY)};
            hd_push(s->cx->scratch, &b->items, item);
            if (hd_ptr_get(&half, p) != 1) b->sent = TY_F32;
            b->logged |= hd_has(&p->attrs, A_LOGGED);
        }
    bool trained = false;
    for (int i = 0; i < s->buckets.n; i++) trained |= !s->buckets.at[i].frozen && !s->buckets.at[i].rule;
    if (!trained)
        hd_error(cx, (Span){0}, "%s: there is nothing to train",
                 s->buckets.n ? "every parameter is frozen" : "the module has no parameters");
    return trained;
}
