// Evaluation of whole modules on made-up inputs.
#include "tests/fuzz/values.h"
#include "ir/eval/eval.h"
#include <math.h>

enum { MOST_OPS = 128, MOST_ELEMENTS = 4096, MOST_WORK = 1 << 20 };

// Made of constants alone: what simplify may fold.
static bool is_foldable(const Op *o, const bool *foldable) {
    for (int i = 0; i < o->n_in; i++)
        if (!foldable[o->in[i]->id]) return false;
    return o->n_in > 0 || o->kind == OP_CONST;
}

// `add x, 0` may turn -0 into 0 (simplify.def), which a division then tells apart.
static bool may_add_zero(const Op *o, const bool *foldable) {
    return o->kind == OP_ADD && (foldable[o->in[0]->id] || foldable[o->in[1]->id]);
}

static bool small_func(const Func *f, Arena *scratch) {
    int ops = 0;
    bool *foldable = HD_NEWN(scratch, bool, f->n_values + 1);
    for (int i = 0; i < f->n_args; i++)
        if (hd_type_count(f->args[i]->type) > MOST_ELEMENTS) return false;
    for (const Op *o = f->first; o; o = o->next) {
        int64_t in = 1;
        if (++ops > MOST_OPS || may_add_zero(o, foldable)) return false;
        if (o->kind == OP_UPDATE) return false; // it needs buffers that only fsdp makes
        for (int i = 0; i < o->n_in; i++)
            if (hd_type_count(o->in[i]->type) > in) in = hd_type_count(o->in[i]->type);
        for (int i = 0; i < o->n_out; i++) {
            foldable[o->out[i]->id] = is_foldable(o, foldable);
            int64_t out = hd_type_count(o->out[i]->type);
            if (out > MOST_ELEMENTS || out * in > MOST_WORK) return false;
        }
    }
    return true;
}

const bool *hd_values_small(const Module *m, Arena *a) {
    int n = 0;
    bool storage = true;
    for (const Func *f = m->funcs; f; f = f->next) n++;
    for (const Symbol *s = m->symbols; s; s = s->next) storage &= !s->type || hd_type_count(s->type) <= MOST_ELEMENTS;
    bool *small = HD_NEWN(a, bool, n + 1);
    n = 0;
    for (const Func *f = m->funcs; f; f = f->next) small[n++] = storage && !f->is_kernel && small_func(f, a);
    return small;
}

static uint32_t next(uint32_t *state) { // xorshift32
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static void fill(Tensor t, uint32_t seed) {
    uint32_t state = seed * 2654435761u + 1;
    bool index = !hd_dtype_is_float(t.type->dtype);
    for (int64_t i = 0, n = hd_type_count(t.type); i < n; i++) {
        uint32_t r = next(&state);
        t.data[i] = index ? (double)(r % 2) : hd_round(t.type->dtype, (double)(int32_t)r * 0x1p-30);
    }
}

typedef VEC(double) List;

static void collect(Arena *a, List *list, Tensor t) {
    for (int64_t i = 0, n = t.data ? hd_type_count(t.type) : 0; i < n; i++) hd_push(a, list, t.data[i]);
}

static void evaluate(const Module *m, const Func *f, List *list, Arena *a) {
    Eval *e = hd_eval_new(m, EVAL_ROUNDED, a);
    uint32_t seed = 1;
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM || s->kind == SYM_BUFFER) fill(hd_eval_storage(e, s->name), seed++);
    Tensor *in = HD_NEWN(a, Tensor, f->n_args + 1), out[HD_MAX_IN];
    for (int i = 0; i < f->n_args; i++) fill(in[i] = hd_tensor(a, f->args[i]->type), seed++);
    if (hd_eval(e, f, in, out)) return;
    for (int i = 0; i < hd_return(f)->n_in; i++) collect(a, list, out[i]);
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind == SYM_PARAM) collect(a, list, hd_eval_gradient(e, s->name));
        if (s->kind == SYM_BUFFER) collect(a, list, hd_eval_storage(e, s->name));
    }
}

Values hd_values(const Module *m, const bool *which, Arena *a) {
    List list = {0};
    for (const Func *f = m->funcs; f; f = f->next)
        if (*which++) evaluate(m, f, &list, a);
    return (Values){list.n, list.at};
}

bool hd_values_equal(const Values *x, const Values *y) {
    if (x->n != y->n) return false;
    for (int64_t i = 0; i < x->n; i++)
        if (!(x->at[i] >= y->at[i] && x->at[i] <= y->at[i]) && !(isnan(x->at[i]) && isnan(y->at[i]))) return false;
    return true;
}
