// The generic verifier: checks on every op what ops.def and symbols.def declare. Errors point at the op's text where it
// was parsed; otherwise they name the function and print the op.
#include "ir/homes.h"
#include "ir/layout.h"
#include "ir/optimizer.h"
#include "ir/row_product.h"
#include "ir/shapes.h"
#include <string.h>

typedef struct { const Module *m; const Func *f; Arena *scratch; } Verifier;

static void wrong(Verifier *v, const Op *o, const char *what) {
    if (o->span.lo) {
        hd_error(v->m->cx, o->span, "%s", what);
        return;
    }
    Out t = hd_out(v->scratch);
    hd_print_op(o, &t);
    hd_error(v->m->cx, o->span, "in @%s: %s: %s", v->f->name, t.text, what);
}

static void check_attrs(Verifier *v, const Op *o) {
    const OpInfo *info = hd_op_info(o->kind);
    Ctx *cx = v->m->cx;
    for (int i = 0; i < o->attrs.n; i++) {
        const Attr *a = &o->attrs.at[i];
        const char *name = hd_attr_info(a->id)->text;
        DType d;
        const bool of_any = a->id == A_BWD || a->id == A_RECOMPUTED || a->id == A_SPLIT;
        if (a->id == A_AGAIN && v->m->stage != STAGE_TENSOR)
            wrong(v, o, "again is of the tensor stage: recompute does what it says");
        else if (!of_any && a->id != A_AGAIN && !hd_attr_allowed(info->attrs, a->id))
            wrong(v, o, hd_internf(cx, "%s has no attribute '%s'", info->mnemonic, name));
        Space s;
        if (a->id == A_SPACE && !hd_space_parse(a->s, &s)) wrong(v, o, hd_internf(cx, "no memory space '%s'", a->s));
        if (a->id == A_PER_RANK && v->m->stage != STAGE_TENSOR)
            wrong(v, o, "per_rank is of the tensor stage: fsdp divides the value by the number of ranks");
        if (a->id == A_OUT && !hd_dtype_parse(a->s, &d)) wrong(v, o, hd_internf(cx, "no element type '%s'", a->s));
    }
}

static void check_split(Verifier *v, const Op *o) {
    const Attr *split = hd_attr(&o->attrs, A_SPLIT);
    for (int i = 0; split && i < o->n_out; i++) {
        const char *e = hd_split_wrong(v->m, split, o->out[i]->type);
        if (e) wrong(v, o, e);
    }
}

static void check_types(Verifier *v, Op *o) {
    const Type *written[HD_MAX_IN];
    int n = o->n_out < HD_MAX_IN ? o->n_out : HD_MAX_IN;
    for (int i = 0; i < n; i++) written[i] = o->out[i]->type;
    Ctx *cx = v->m->cx;
    const char *e = hd_infer(o, n, written); // checks; its effect on the results is undone below
    if (e) {
        wrong(v, o, e);
        return;
    }
    if (o->n_out != n)
        wrong(v, o, hd_internf(cx, "%s has %d results, %d written", hd_op_info(o->kind)->mnemonic, o->n_out, n));
    for (int i = 0; i < n && i < o->n_out; i++) {
        if (o->out[i]->type != written[i])
            wrong(v, o,
                  hd_internf(cx, "result %d is %s, not %s", i, hd_type_text(cx, o->out[i]->type),
                             hd_type_text(cx, written[i])));
        o->out[i]->type = written[i];
    }
    o->n_out = n; // as written: values that inference added or dropped do not count
    if (hd_index_parts(o) != 1 && v->m->stage != STAGE_TENSOR)
        wrong(v, o, hd_internf(cx, "index %s is of %lld parts, and a rank computes one from stage sharded on",
                               hd_type_text(cx, o->in[1]->type), (long long)hd_index_parts(o)));
}

// A result that says `into` is elements of a buffer and nothing else.
static const char *into_wrong(const Op *o, const Value *v) {
    Ctx *cx = o->func->module->cx;
    const Symbol *b = v->into;
    const OpInfo *info = hd_op_info(o->kind);
    const long long lo = (long long)v->at, n = (long long)hd_type_count(v->type);
    if (o->func->is_kernel || o->func->module->stage != STAGE_PLAN)
        return "only a result in a function of a plan is written to a buffer";
    if (b->kind != SYM_BUFFER || !b->type) return hd_internf(cx, "no buffer @%s", b->name);
    if (hd_is_alias(o)) return hd_internf(cx, "%s makes no bytes to write to @%s", info->mnemonic, b->name);
    if (hd_attr_allowed(info->attrs, A_INTO))
        return hd_internf(cx, "%s says `into` among its attributes: {offset = %lld, into = @%s}", info->mnemonic, lo,
                          b->name);
    if (v->index == hd_inplace_result(o))
        return hd_internf(cx, "result %d has the bytes of an operand, so it is not in @%s", v->index, b->name);
    if (b->type->dtype != v->type->dtype)
        return hd_internf(cx, "%s of %s into buffer @%s : %s", info->mnemonic, hd_type_text(cx, v->type), b->name,
                          hd_type_text(cx, b->type));
    if (lo < 0 || n > hd_type_count(b->type) - lo)
        return hd_internf(cx, "elements [%lld, %lld) are outside buffer @%s : %s", lo,
                          (long long)((uint64_t)lo + (uint64_t)n), b->name, hd_type_text(cx, b->type));
    return NULL;
}

static void check_func(Verifier *v) {
    const Func *f = v->f;
    Ctx *cx = v->m->cx;
    const Op **def = HD_NEWN(v->scratch, const Op *, f->n_values + 1);
    bool *seen = HD_NEWN(v->scratch, bool, f->n_values + 1);
    for (int i = 0; i < f->n_args; i++) seen[f->args[i]->id] = true;
    for (Op *o = f->first; o; o = o->next) {
        const OpInfo *info = hd_op_info(o->kind);
        bool ok = true;
        for (int i = 0; i < o->n_in; i++)
            if (o->in[i]->into || o->in[i]->func != f || o->in[i]->id >= f->n_values || !seen[o->in[i]->id]) {
                wrong(v, o, hd_internf(cx, "operand %d is not defined before this op", i));
                ok = false;
            }
        unsigned stages = f->is_kernel ? 1u << STAGE_KERNELS : 1u << v->m->stage;
        const bool computes = !f->is_kernel || info->row || info->map || hd_op_is(o, TRAIT_RETURN) ||
                              o == hd_optimizer_turn(f) || hd_op_is(o, TRAIT_AVERAGES) ||
                              (hd_kind(&f->attrs) == KIND_PRODUCT && hd_row_product(o));
        if (!(info->stages & stages) || !computes)
            wrong(v, o,
                  hd_internf(cx, "%s may not occur at stage %s", info->mnemonic,
                             f->is_kernel ? "kernels (in a kernel)" : hd_stage_text(v->m->stage)));
        check_attrs(v, o);
        check_split(v, o);
        if (ok) check_types(v, o);
        if (hd_op_is(o, TRAIT_RETURN) != (o->next == NULL))
            wrong(v, o, "return must be the last op, and the last op a return");
        for (int i = 0; i < o->n_out; i++) {
            const char *e = o->out[i]->into ? into_wrong(o, o->out[i]) : NULL;
            if (e) wrong(v, o, e);
            if (o->out[i]->id >= f->n_values || def[o->out[i]->id]) HD_BUG("value ids of @%s are not dense", f->name);
            def[o->out[i]->id] = o;
            seen[o->out[i]->id] = true;
        }
    }
    if (!f->first) hd_error(cx, f->span, "function @%s is empty: it needs a return", f->name);
}

static bool is_table(const Func *k, const Value *v) { // its rows are read by number: its size is free
    for (const Op *o = k->first; o; o = o->next)
        for (int i = 0; i < o->n_in; i++) {
            if (o->in[i] != v) continue;
            if (hd_operand_class(o, i) == 't' ||
                (hd_op_is(o, TRAIT_CARRIES) && o->n_out && is_table(k, o->out[0])))
                return true;
        }
    return false;
}

// Rows of this value have the parts of several: the type rules and verify-plan compare their number and size.
static bool is_read_in_parts(const Func *k, const Value *v, int64_t rows) {
    bool parts = false;
    for (const Op *o = k->first; o; o = o->next)
        for (int i = 0; i < o->n_in; i++)
            parts |= o->in[i] == v && hd_operand_class(o, i) == 'p' && hd_type_rows(v->type) == rows;
    return parts;
}

// Each value that enters or leaves a kernel over rows x cols must be as large as that space or repeat over it:
// generated code indexes by it.
static void check_space(Verifier *v) {
    const Func *k = v->f;
    Ctx *cx = v->m->cx;
    const Attr *r = hd_attr(&k->attrs, A_ROWS), *c = hd_attr(&k->attrs, A_COLS);
    if (hd_kind(&k->attrs) != KIND_ROWS) return;
    int64_t space = 0;
    if (!r || !c || r->i < 0 || c->i < 0 || __builtin_mul_overflow(r->i, c->i, &space)) {
        hd_error(cx, k->span,
                 "kernel @%s of kind rows needs rows and cols that are not negative and whose product fits 64 bits",
                 k->name);
        return;
    }
    for (int i = 0; i < k->n_args; i++) {
        int64_t count = hd_type_count(k->args[i]->type);
        if (count && !is_table(k, k->args[i]) && !is_read_in_parts(k, k->args[i], r->i) && space % count)
            hd_error(cx, k->span, "kernel @%s: argument %d, %s, does not repeat over %lld rows of %lld", k->name, i,
                     hd_type_text(cx, k->args[i]->type), (long long)r->i, (long long)c->i);
    }
    const Op *back = k->last;
    for (int i = 0; back && hd_op_is(back, TRAIT_RETURN) && i < back->n_in; i++) {
        int64_t count = hd_type_count(back->in[i]->type);
        const bool parts = hd_result_class(back->in[i]) == 'p' && hd_type_rows(back->in[i]->type) == r->i;
        if (count > 1 && !parts && space % count)
            hd_error(cx, k->span, "kernel @%s: result %d, %s, does not fit %lld rows of %lld", k->name, i,
                     hd_type_text(cx, back->in[i]->type), (long long)r->i, (long long)c->i);
    }
}

static void check_state(const Module *m, const Symbol *step, AttrId name, DType d, int64_t count) {
    const char *const *names;
    const Attr *a = hd_attr(&step->attrs, name);
    const int n = a ? hd_names(a, &names) : 0;
    for (int i = 0; i < n; i++) {
        const Symbol *s = hd_symbol_find(m, names[i]);
        if (!s || s->kind != SYM_BUFFER || !s->type || s->type->dtype != d || hd_type_count(s->type) != count ||
            hd_has(&s->attrs, A_TRANSIENT))
            hd_error(m->cx, step->span, "step @%s: %s = @%s, which is no buffer of %s %s that is kept", step->name,
                     hd_attr_info(name)->text, names[i],
                     count == 1 ? "one" : count == 4 ? "four" : hd_internf(m->cx, "%lld", (long long)count),
                     hd_dtype_text(d));
    }
}

// Further results are named, and beside a loss; levels are equally many of each.
static void check_results(const Module *m, const Symbol *step) {
    const Attr *results = hd_attr(&step->attrs, A_RESULTS), *levels = hd_attr(&step->attrs, A_LEVELS);
    const int n = results ? results->n : 0;
    if (n != hd_n_results(&step->attrs) || (n && !hd_has(&step->attrs, A_LOSS)))
        hd_error(m->cx, step->span, "step @%s has %d results, %d names of results and %s loss", step->name, n,
                 hd_n_results(&step->attrs), hd_has(&step->attrs, A_LOSS) ? "a" : "no");
    if (levels && levels->n % hd_n_numbers(&step->attrs))
        hd_error(m->cx, step->span, "step @%s has %d levels of a loss and %d results, which are not equally many",
                 step->name, levels->n, n);
    const Attr *of = hd_attr(&step->attrs, A_COUNTED_OF);
    if (hd_has(&step->attrs, A_COUNTS) != (hd_n_counts(&step->attrs) > 0) ||
        (of ? HD_COUNTS * of->n : 0) != hd_n_counts(&step->attrs))
        hd_error(m->cx, step->span, "step @%s has counts and no places that are counted, or other numbers of them",
                 step->name);
}

enum { MOST_TIMES = 1 << 30 }; // of a segment in a step: sums of them fit 64 bits

static void check_step(const Module *m, const Symbol *step) {
    Ctx *cx = m->cx;
    const Attr *segments = hd_attr(&step->attrs, A_SEGMENTS), *times = hd_attr(&step->attrs, A_TIMES);
    if (!hd_has(&step->attrs, A_KIND) || !hd_kind_fits(&step->attrs, "step"))
        hd_error(cx, step->span, "step @%s needs a kind: train, eval, logits, decode or call", step->name);
    else if (hd_step(m, hd_kind(&step->attrs)) != step)
        hd_error(cx, step->span, "step @%s is of kind %s, as @%s is, and only one step can be", step->name,
                 hd_word(&step->attrs, A_KIND, ""), hd_step(m, hd_kind(&step->attrs))->name);
    if (!segments || !times || !segments->n || segments->n != times->n)
        hd_error(cx, step->span, "step @%s needs segments, and as many times", step->name);
    for (int i = 0; segments && i < segments->n; i++) {
        const Func *f = hd_func_find(m, segments->strs[i]);
        if (!f || f->is_kernel)
            hd_error(cx, step->span, "step @%s runs @%s, which is no function of this module", step->name,
                     segments->strs[i]);
        if (times && i < times->n && (times->ints[i] < 1 || times->ints[i] > MOST_TIMES))
            hd_error(cx, step->span, "step @%s runs @%s %lld times; once is the least, %d times the most", step->name,
                     segments->strs[i], (long long)times->ints[i], MOST_TIMES);
    }
    const Attr *names = hd_attr(&step->attrs, A_FUNCTIONS);
    if ((names ? names->n : 0) != (hd_kind(&step->attrs) == KIND_CALL && segments ? segments->n : 0))
        hd_error(cx, step->span, "step @%s has names of %d functions: one of kind call has one a segment, and others "
                 "have none", step->name, names ? names->n : 0);
    check_state(m, step, A_LOSS, TY_F32, 1);
    check_state(m, step, A_RESULTS, TY_F32, 1);
    check_results(m, step);
    check_state(m, step, A_COUNTS, TY_F32, hd_n_counts(&step->attrs));
    check_state(m, step, A_NORM, TY_F32, 1);
    check_state(m, step, A_COUNTER, TY_I32, 1);
    check_state(m, step, A_HISTORY, TY_F32, HD_HISTORY);
    check_state(m, step, A_RANDOM, TY_I32, 4);
}

static void check_region(const Module *m, const Symbol *s) {
    if (!hd_has(&s->attrs, A_KIND) || !hd_kind_fits(&s->attrs, "region"))
        hd_error(m->cx, s->span, "region @%s needs a kind: step, unit or place", s->name);
}

bool hd_verify(const Module *m) {
    Ctx *cx = m->cx;
    int errors = cx->diags.errors;
    Verifier v = {.m = m, .scratch = hd_arena_new()};
    for (const Symbol *s = m->symbols; s; s = s->next)
        for (int i = 0; i < s->attrs.n; i++)
            if (!hd_attr_allowed(hd_symbol_attrs(s->kind), s->attrs.at[i].id))
                hd_error(cx, s->span, "%s @%s has no attribute '%s'", hd_symbol_keyword(s->kind), s->name,
                         hd_attr_info(s->attrs.at[i].id)->text);
    for (const Symbol *s = m->symbols; s; s = s->next) {
        const Attr *a = hd_attr(&s->attrs, A_SPACE);
        Space space;
        if (a && !hd_space_parse(a->s, &space))
            hd_error(cx, s->span, "%s @%s: no memory space '%s'", hd_symbol_keyword(s->kind), s->name, a->s);
    }
    for (const Symbol *s = m->symbols; s; s = s->next)
        if ((s->kind == SYM_PARAM || s->kind == SYM_BUCKET || s->kind == SYM_BUFFER) && !s->type)
            hd_error(cx, s->span, "%s @%s needs a type", hd_symbol_keyword(s->kind), s->name);
    for (const Symbol *s = m->symbols; s && cx->diags.errors == errors; s = s->next) {
        const Attr *split = s->kind == SYM_PARAM ? hd_attr(&s->attrs, A_SPLIT) : NULL;
        const char *e = split ? hd_split_wrong(m, split, s->type) : NULL;
        if (e) hd_error(cx, s->span, "param @%s: %s", s->name, e);
    }
    hd_mesh_check(m);
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_STEP) check_step(m, s);
        else if (s->kind == SYM_REGION) check_region(m, s);
    if (cx->diags.errors == errors)
        for (const Func *f = m->funcs; f; f = f->next) {
            v.f = f;
            int before = cx->diags.errors;
            const char *of = f->is_kernel ? "kernel" : "func";
            if (!hd_kind_fits(&f->attrs, of))
                hd_error(cx, f->span, "@%s: no %s is of kind %s", f->name, of, hd_word(&f->attrs, A_KIND, ""));
            check_func(&v);
            if (f->is_kernel && cx->diags.errors == before) check_space(&v);
        }
    if (cx->diags.errors == errors) hd_layout_check(m);
    hd_arena_free(v.scratch);
    return cx->diags.errors == errors;
}
