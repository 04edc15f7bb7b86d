// Weights that products read with one scale for all of a weight (train.precision.fp8.scale = tensor). The pass fp8
// writes out how it is found:
//
//   %a = abs %w;  %m = reduce_max %a;  %s = div (max %m, 2^-100), 448;  %i = div 1, %s
//   %q = cast (mul %w, %i) {out = e4m3} : e4m3[8,8]
//
// Ranks have parts of %w, so %m is the largest over all ranks. It is exact, so the parts may be compared in any order,
// and the numbers are those of the whole weight. Where the forward pass reads nothing of a weight but %q and %s, ranks
// can find %s together and gather %q (windows.c).
#include "passes/fsdp/fsdp.h"
#include "ir/shapes.h"

static bool is_number(const Value *v, double x) {
    return v->def && hd_op_is(v->def, TRAIT_CONSTANT) && !v->type->rank && hd_float(&v->def->attrs, A_VALUE, 0) == x;
}

static bool has_number(const Op *o, const WeightForm *in, WeightForm form, double x) { // as its other operand
    return (in[0] == form && is_number(o->in[1], x)) || (in[1] == form && is_number(o->in[0], x));
}

static bool is_times(const WeightForm *in, int weight) {
    return in[!weight] == FORM_INVERSE && (in[weight] == FORM_WEIGHT || in[weight] == FORM_WIDE);
}

static WeightForm form_of_cast(DType to, WeightForm in) {
    if (to == TY_E4M3) return in == FORM_TIMES ? FORM_TENSOR : FORM_NONE;
    if (to != TY_F32) return FORM_NONE;
    return in == FORM_MOST ? FORM_MOST : in == FORM_WEIGHT ? FORM_WIDE : FORM_NONE;
}

WeightForm hd_fsdp_form(const Op *o, const WeightForm *in) {
    if (o->n_out != 1) return FORM_NONE;
    const Type *t = o->out[0]->type;
    switch (o->kind) {
    case OP_ABS: return in[0] == FORM_WEIGHT ? FORM_ABS : FORM_NONE;
    case OP_REDUCE_MAX: return in[0] == FORM_ABS && !t->rank ? FORM_MOST : FORM_NONE;
    case OP_CAST: return form_of_cast(t->dtype, in[0]);
    case OP_MAX: return has_number(o, in, FORM_MOST, 0x1p-100) ? FORM_AT_LEAST : FORM_NONE;
    case OP_DIV:
        if (in[0] == FORM_AT_LEAST && is_number(o->in[1], hd_dtype_info(TY_E4M3)->largest)) return FORM_SCALE;
        return in[1] == FORM_SCALE && is_number(o->in[0], 1) ? FORM_INVERSE : FORM_NONE;
    case OP_MUL: return is_times(in, 0) || is_times(in, 1) ? FORM_TIMES : FORM_NONE;
    default: return FORM_NONE;
    }
}

// --- which weights are read so

typedef struct { const Op *op; bool tensor, otherwise; } Read; // tensor: the forward pass quantizes it
typedef struct {
    Fsdp *s;
    VEC(Read) reads;
    WeightForm *form; // by value id,
    int *read;        // and of which read
} Search;

// The form of an op's result; FORM_NONE: it reads a weight, or none.
static WeightForm form_here(const Search *x, const Op *o, int *read) {
    WeightForm in[HD_MAX_IN];
    *read = -1;
    bool same = true;
    for (int i = 0; i < o->n_in; i++) {
        const int id = o->in[i]->id;
        in[i] = x->form[id];
        if (in[i] == FORM_NONE) continue;
        same &= *read < 0 || *read == x->read[id];
        *read = x->read[id];
    }
    if (!o->n_in || *read < 0 || !same) return FORM_NONE;
    const bool stored = hd_param_read(o->in[0]->def, 0) && hd_casts_to(o, x->s->compute);
    return hd_op_is(o, TRAIT_ALIAS) || stored ? in[0] : hd_fsdp_form(o, in);
}

static void note_uses(Search *x, const Op *o) {
    for (int i = 0; i < o->n_in && !hd_has(&o->attrs, A_BWD); i++) {
        const WeightForm form = x->form[o->in[i]->id];
        if (form == FORM_NONE) continue;
        Read *r = &x->reads.at[x->read[o->in[i]->id]];
        if (form == FORM_TENSOR) r->tensor = true;
        else if (form != FORM_SCALE) r->otherwise = true;
    }
}

static void search(Search *x, const Func *f) {
    Arena *a = x->s->cx->scratch;
    x->reads.n = 0;
    x->form = HD_NEWN(a, WeightForm, f->n_values + 1);
    x->read = HD_NEWN(a, int, f->n_values + 1);
    for (int i = 0; i < f->n_values; i++) x->form[i] = FORM_NONE;
    for (const Op *o = f->first; o; o = o->next) {
        int read;
        WeightForm form = form_here(x, o, &read);
        if (hd_param_read(o, 0)) {
            read = x->reads.n, form = FORM_WEIGHT;
            hd_push(a, &x->reads, (Read){.op = o});
        }
        if (form == FORM_NONE) note_uses(x, o);
        else x->form[o->out[0]->id] = form, x->read[o->out[0]->id] = read;
    }
}

static bool same_matrix(const Op *a, const Op *b) {
    int i = 0;
    while (hd_op_param(a, i) && hd_op_param(a, i) == hd_op_param(b, i)) i++;
    return !hd_op_param(a, i) && !hd_op_param(b, i);
}

void hd_fsdp_find_tensors(Fsdp *s) {
    Search x = {.s = s};
    PtrMap known = {0}; // of every read: the number of a read in s->reads; of what is read otherwise: of none
    for (Func *f = s->m->funcs; f && s->quantizes && s->ranks > 1; f = f->next) {
        if (f->is_kernel) continue;
        hd_renumber(f);
        search(&x, f);
        for (int r = 0; r < x.reads.n; r++) {
            const Read *read = &x.reads.at[r];
            if (!read->tensor && !read->otherwise) continue;
            for (int k = 0; hd_op_param(read->op, k); k++) {
                const Symbol *p = hd_op_param(read->op, k);
                const int before = hd_ptr_get(&known, p);
                const bool fits = !read->otherwise && !p->layout && !hd_has(&p->attrs, A_FROZEN) &&
                                  (before < 0 || (before < s->reads.n && same_matrix(s->reads.at[before], read->op)));
                hd_ptr_set(s->cx->scratch, &known, p, fits ? s->reads.n : INT32_MAX);
            }
            hd_push(s->cx->scratch, &s->reads, read->op);
        }
    }
    for (const Symbol *p = s->m->symbols; p; p = p->next) {
        const int read = p->kind == SYM_PARAM ? hd_ptr_get(&known, p) : -1;
        bool all = read >= 0 && read < s->reads.n;
        for (int k = 0; all && hd_op_param(s->reads.at[read], k); k++) { // each that is read with it
            const int other = hd_ptr_get(&known, hd_op_param(s->reads.at[read], k));
            all = other >= 0 && other < s->reads.n;
        }
        if (all) hd_ptr_set(s->cx->scratch, &s->tensors, p, read);
    }
}

// --- where they are

void hd_fsdp_set_tensors(const Fsdp *s, const FsdpBucket *b) {
    int64_t *at = HD_NEWN(s->cx->scratch, int64_t, 2 * b->layout.n + 1);
    int n = 0;
    for (int i = 0; i < b->layout.n; i++) {
        const Symbol *p = b->layout.items[i].param;
        const Op *read = s->reads.at[hd_ptr_get(&s->tensors, p)];
        if (hd_op_param(read, 0) != p) continue;
        at[n] = at[n + 1] = b->layout.items[i].offset;
        for (int k = 0; hd_op_param(read, k); k++) at[n + 1] += hd_type_count(hd_op_param(read, k)->type);
        n += 2;
    }
    hd_set_ints(s->m->cx, &b->bucket->attrs, A_TENSORS, n, at);
}

int hd_fsdp_tensor_at(const FsdpBucket *b, int64_t offset) {
    const Attr *list = hd_attr(&b->bucket->attrs, A_TENSORS);
    int i = 0;
    while (i < list->n / 2 && list->ints[2 * i] != offset) i++;
    if (i == list->n / 2) HD_BUG("no tensor of @%s begins at %lld", b->name, (long long)offset);
    return i;
}
