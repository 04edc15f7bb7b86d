// One change to what a plan computes, of one of the kinds in program_mutations.def: to its arithmetic, to where its
// values come from and go, or to what it declares.
#ifndef TESTS_UNIT_PROGRAM_MUTATIONS_H
#define TESTS_UNIT_PROGRAM_MUTATIONS_H
#include "ir/ir.h"
#include "ir/shapes.h"

typedef enum { AT_OP, AT_KERNEL_OP, AT_PARAM, AT_SETTING, AT_FUNCTION } MutationPlace;
#define MUTATION_ROWS "tests/unit/program_mutations.def"
#include "tests/unit/mutation_rows.h"
#include "tests/unit/plan_into.h"

// --- places: op n of the functions or of the kernels, function n, parameter n

static Op *nth_op(const Module *m, bool kernels, int n) {
    for (const Func *f = m->funcs; f; f = f->next)
        for (Op *o = f->is_kernel == kernels ? f->first : NULL; o; o = o->next)
            if (n-- == 0) return o;
    return NULL;
}

static Symbol *nth_param(const Module *m, int n) {
    for (Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM && n-- == 0) return s;
    return NULL;
}

static Func *nth_func(const Module *m, int n) {
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel && n-- == 0) return f;
    return NULL;
}

static int count_places(const Module *m, Mutation what) {
    int n = 0;
    switch (mutation_info[what].at) {
    case AT_OP: case AT_KERNEL_OP:
        while (nth_op(m, mutation_info[what].at == AT_KERNEL_OP, n)) n++;
        return n;
    case AT_PARAM:
        while (nth_param(m, n)) n++;
        return n;
    case AT_FUNCTION:
        while (nth_func(m, n)) n++;
        return n;
    default: return 6;
    }
}

// --- values

// A value of the same type that is made before `o`, another than operand i; NULL: there is none.
static Value *other_value(const Op *o, int i, uint64_t random, bool arguments) {
    Value *found[64];
    int n = 0;
    const Func *f = o->func;
    for (int k = 0; k < f->n_args && n < 64; k++)
        if (f->args[k] != o->in[i] && f->args[k]->type == o->in[i]->type) found[n++] = f->args[k];
    for (const Op *p = f->first; p != o && !arguments; p = p->next)
        for (int k = 0; k < p->n_out && n < 64; k++)
            if (p->out[k] != o->in[i] && p->out[k]->type == o->in[i]->type) found[n++] = p->out[k];
    return n ? found[random % (uint64_t)n] : NULL;
}

static bool other_operand(Op *o, uint64_t random, bool arguments) {
    for (int k = 0; k < o->n_in; k++) {
        const int i = (int)((random + (uint64_t)k) % (uint64_t)o->n_in);
        if (arguments && o->in[i]->def) continue;
        Value *v = other_value(o, i, random / 64, arguments);
        if (!v) continue;
        o->in[i] = v;
        return true;
    }
    return false;
}

static bool swap_operands(Op *o, uint64_t random) {
    for (int k = 0; k < o->n_in * o->n_in; k++) {
        const uint64_t at = (random + (uint64_t)k) % (uint64_t)(o->n_in * o->n_in);
        const int i = (int)at / o->n_in, j = (int)at % o->n_in;
        if (i == j || o->in[i] == o->in[j] || o->in[i]->type != o->in[j]->type) continue;
        Value *v = o->in[i];
        o->in[i] = o->in[j];
        o->in[j] = v;
        return true;
    }
    return false;
}

// Every reader of the one reads the other; of two in buffers, each goes to the place of the other.
static bool swap_results(Op *o) {
    for (int i = 0; i < o->n_out; i++)
        for (int j = i + 1; j < o->n_out; j++) {
            if (o->out[i]->type != o->out[j]->type || !o->out[i]->into != !o->out[j]->into) continue;
            if (o->out[i]->into) return exchange_into(o->out[i]);
            for (Op *p = o->next; p; p = p->next)
                for (int k = 0; k < p->n_in; k++)
                    p->in[k] = p->in[k] == o->out[i] ? o->out[j] : p->in[k] == o->out[j] ? o->out[i] : p->in[k];
            return true;
        }
    return false;
}

// --- gradients

static const Symbol *gradient_of(const Op *o) { // the buffer that an op contributes to
    const Symbol *s = hd_symbol_find(o->func->module, hd_word(&o->attrs, A_INTO, ""));
    return s && !hd_has(&o->attrs, A_COMM) && !strcmp(hd_word(&s->attrs, A_CLASS, ""), "gradients") ? s : NULL;
}

static int64_t contributed(const Op *o) { // elements
    return hd_type_count(o->kind == OP_STORE ? o->in[0]->type : hd_result_type(o, 0));
}

static bool same_place(const Op *o, const Op *p) {
    return gradient_of(o) && gradient_of(o) == gradient_of(p) &&
           hd_int(&o->attrs, A_OFFSET, 0) == hd_int(&p->attrs, A_OFFSET, 0);
}

// A later contribution of as many elements: to the same parameter, or to another.
static Op *other_contribution(const Op *o, bool same) {
    Op *p = gradient_of(o) && o->kind != OP_ZERO ? o->next : NULL;
    while (p && (gradient_of(p) != gradient_of(o) || p->kind == OP_ZERO || same_place(o, p) != same ||
                 contributed(o) != contributed(p)))
        p = p->next;
    return p;
}

static void swap_attr(Ctx *cx, Attrs *a, Attrs *b, AttrId id) {
    const Attr *x = hd_attr(a, id), *y = hd_attr(b, id);
    const Attr of_a = x ? *x : (Attr){.id = id}, of_b = y ? *y : (Attr){.id = id};
    const bool in_a = x != NULL, in_b = y != NULL;
    hd_unset(a, id), hd_unset(b, id);
    if (in_b) hd_set_attr(cx, a, &of_b);
    if (in_a) hd_set_attr(cx, b, &of_a);
}

static bool drop_contribution(Op *o) {
    const bool stays = hd_has(&o->attrs, A_ACCUMULATE);
    if (!gradient_of(o) || !stays || o->kind == OP_ZERO) return false;
    hd_erase(o);
    return true;
}

static bool double_contribution(Op *o) {
    if (!gradient_of(o) || o->kind == OP_ZERO) return false;
    Op *c = hd_op_clone(o->func, o, o->in);
    c->stream = o->stream;
    hd_set_flag(o->func->module->cx, &c->attrs, A_ACCUMULATE);
    hd_insert_after(o, c);
    return true;
}

static bool reorder_gradient(Op *o) {
    Op *p = other_contribution(o, true);
    if (!p) return false;
    swap_attr(o->func->module->cx, &o->attrs, &p->attrs, A_ACCUMULATE);
    hd_detach(o);
    hd_insert_after(p, o);
    return true;
}

static bool exchange_gradients(Op *o, uint64_t random) {
    if (result_into(o, random)) return exchange_into(result_into(o, random));
    Op *p = other_contribution(o, false);
    if (!p) return false;
    swap_attr(o->func->module->cx, &o->attrs, &p->attrs, A_OFFSET);
    return true;
}

// --- ops of functions

static bool without_sink(Op *o) { // it stands behind the starts of documents
    const int at = hd_attention_sink_at(o);
    if (at < 0 || at >= o->n_in) return false;
    for (int i = at; i + 1 < o->n_in; i++) o->in[i] = o->in[i + 1];
    o->n_in--;
    hd_unset(&o->attrs, A_SINK);
    return true;
}

// Attention without its documents, or with other numbers for where they begin.
static bool other_documents(Op *o, uint64_t random) {
    if (!hd_attention_starts(o)) return false;
    const int at = hd_attention_operands(o);
    if (random % 2) {
        for (int i = at; i + 1 < o->n_in; i++) o->in[i] = o->in[i + 1];
        o->n_in--;
        hd_unset(&o->attrs, A_DOCUMENTS);
        return true;
    }
    for (int i = 0; i < o->func->n_args; i++) {
        if (o->func->args[i]->type != o->in[at]->type) continue;
        o->in[at] = o->func->args[i];
        return true;
    }
    return false;
}

static bool is_attention(const Op *o) { return o->kind == OP_ATTENTION || o->kind == OP_ATTENTION_GRAD; }

static bool other_weight(Op *o, uint64_t random) {
    const Module *m = o->func->module;
    const Symbol *b = o->kind == OP_VIEW ? hd_symbol_find(m, hd_word(&o->attrs, A_BUFFER, "")) : NULL;
    const Symbol *is = NULL, *found[64];
    const int64_t at = hd_int(&o->attrs, A_OFFSET, 0);
    int n = 0;
    for (const Symbol *s = m->symbols; b && s; s = s->next)
        if (s->kind == SYM_PARAM && hd_word(&s->attrs, A_BUCKET, "") == hd_word(&b->attrs, A_BUCKET, NULL) &&
            hd_int(&s->attrs, A_OFFSET, 0) == at)
            is = s;
    for (const Symbol *s = m->symbols; is && s; s = s->next)
        if (s->kind == SYM_PARAM && s != is && s->type == is->type && n < 64 &&
            hd_word(&s->attrs, A_BUCKET, "") == hd_word(&is->attrs, A_BUCKET, ""))
            found[n++] = s;
    if (!n) return false;
    const int64_t to = hd_int(&found[random % (uint64_t)n]->attrs, A_OFFSET, 0);
    hd_set_int(m->cx, &o->attrs, A_OFFSET, to);
    o->out[0]->place.offset += (to - at) * hd_dtype_bytes(b->type->dtype);
    return true;
}

static bool other_kernel(Op *o, uint64_t random) {
    const Func *is = o->kind == OP_LAUNCH ? hd_launched(o) : NULL, *found[64];
    int n = 0;
    for (const Func *k = o->func->module->funcs; is && k; k = k->next) {
        bool fits = k->is_kernel && k != is && k->n_args == is->n_args && hd_return(k)->n_in == o->n_out && n < 64;
        for (int i = 0; fits && i < k->n_args; i++) fits = k->args[i]->type == is->args[i]->type;
        for (int i = 0; fits && i < o->n_out; i++) fits = hd_return(k)->in[i]->type == o->out[i]->type;
        if (fits) found[n++] = k;
    }
    if (n) hd_set_word(o->func->module->cx, &o->attrs, A_KERNEL, found[random % (uint64_t)n]->name);
    return n > 0;
}

static bool flip(Ctx *cx, Attrs *as, AttrId id) {
    if (hd_has(as, id)) hd_unset(as, id);
    else hd_set_flag(cx, as, id);
    return true;
}

static bool swap_states(Ctx *cx, Attrs *as) {
    const Attr *states = hd_attr(as, A_STATES);
    if (!states || states->n < 2) return false;
    const char *list[8];
    for (int i = 0; i < states->n; i++) list[i] = states->strs[i < 2 ? 1 - i : i];
    hd_set_words(cx, as, A_STATES, states->n, list);
    return true;
}

// One whole number that is part of what an op computes, or an entry of a list of them.
static bool change_integer(Op *o, uint64_t random) {
    static const AttrId numbers[] = {A_AXIS, A_START, A_SIZE, A_PERM, A_AXES, A_HEADS, A_TURNED};
    Ctx *cx = o->func->module->cx;
    for (int k = 0; k < 7; k++) {
        const AttrId id = numbers[(random + (uint64_t)k) % 7];
        const Attr *a = hd_attr(&o->attrs, id);
        if (!a) continue;
        if (hd_attr_info(id)->kind == AK_INT) {
            hd_set_int(cx, &o->attrs, id, a->i + (a->i && random / 8 % 2 ? -1 : 1));
            return true;
        }
        int64_t list[HD_MAX_DIMS];
        for (int i = 0; i < a->n; i++) list[i] = a->ints[(i + 1) % a->n];
        if (a->n == 1) list[0] = list[0] ? list[0] - 1 : 1;
        hd_set_ints(cx, &o->attrs, id, a->n, list);
        return true;
    }
    return false;
}

// Of a product: scales dropped, exchanged, or one of another value.
static bool change_scales(Op *o, Mutation what, uint64_t random) {
    const int a = hd_operand_of(o, ROLE_SCALE_A), b = hd_operand_of(o, ROLE_SCALE_B), i = random % 2 ? a : b;
    if (a < 0) return false;
    if (what == MUTATE_NO_SCALES) {
        hd_unset(&o->attrs, A_SCALED);
        hd_unset(&o->attrs, A_FAST);
        hd_unset(&o->attrs, A_BLOCKS);
        o->n_in = a;
    } else if (what == MUTATE_SCALES) {
        if (!hd_scales_of_rows(o) && !hd_has(&o->attrs, A_BLOCKS)) return false; // of two numbers it is the same
        Value *v = o->in[a];
        o->in[a] = o->in[b], o->in[b] = v;
    } else {
        Value *v = other_value(o, i, random / 2, false);
        if (!v) return false;
        o->in[i] = v;
    }
    return true;
}

static bool mutate_op(Op *o, Mutation what, uint64_t random) {
    Ctx *cx = o->func->module->cx;
    switch (what) {
    case MUTATE_OTHER_ARGUMENT: return o->n_in && other_operand(o, random, true);
    case MUTATE_OTHER_OPERAND: return o->n_in && other_operand(o, random, false);
    case MUTATE_OTHER_WEIGHT: return other_weight(o, random);
    case MUTATE_SWAP_OPERANDS: return o->n_in && o->kind != OP_FENCE && swap_operands(o, random);
    case MUTATE_SWAP_RESULTS: return swap_results(o);
    case MUTATE_DROP_CONTRIBUTION: return drop_contribution(o);
    case MUTATE_DOUBLE_CONTRIBUTION: return double_contribution(o);
    case MUTATE_EXCHANGE_GRADIENTS: return exchange_gradients(o, random);
    case MUTATE_REORDER_GRADIENT: return reorder_gradient(o);
    case MUTATE_CAUSAL: return is_attention(o) && flip(cx, &o->attrs, A_CAUSAL);
    case MUTATE_WINDOW:
        if (!is_attention(o) || !hd_has(&o->attrs, A_WINDOW)) return false;
        if (random % 2) hd_unset(&o->attrs, A_WINDOW);
        else hd_set_int(cx, &o->attrs, A_WINDOW, hd_int(&o->attrs, A_WINDOW, 1) + 1);
        return true;
    case MUTATE_SOFTCAP:
        if (!is_attention(o) || !hd_has(&o->attrs, A_SOFTCAP)) return false;
        if (random % 2) hd_unset(&o->attrs, A_SOFTCAP);
        else hd_set_float(cx, &o->attrs, A_SOFTCAP, 2 * hd_float(&o->attrs, A_SOFTCAP, 1));
        return true;
    case MUTATE_SINK: return is_attention(o) && without_sink(o);
    case MUTATE_DOCUMENTS: return is_attention(o) && other_documents(o, random);
    case MUTATE_HEADS:
        if (!is_attention(o)) return false;
        hd_set_int(cx, &o->attrs, A_HEADS, hd_int(&o->attrs, A_HEADS, 1) / 2);
        return true;
    case MUTATE_ATTENTION_SCALE:
        if (is_attention(o)) hd_set_float(cx, &o->attrs, A_SCALE, hd_float(&o->attrs, A_SCALE, 0.25) * 3);
        return is_attention(o);
    case MUTATE_PROBABILITY:
        if (hd_has(&o->attrs, A_P)) hd_set_float(cx, &o->attrs, A_P, hd_float(&o->attrs, A_P, 0) / 2);
        return hd_has(&o->attrs, A_P);
    case MUTATE_TRANSPOSED:
        if (o->kind == OP_GROUPED) return flip(cx, &o->attrs, A_TB);
        return o->kind == OP_GEMM && flip(cx, &o->attrs, random % 2 ? A_TA : A_TB);
    case MUTATE_NO_BIAS:
        if (!hd_has(&o->attrs, A_EPILOGUE)) return false;
        hd_unset(&o->attrs, A_EPILOGUE);
        o->n_in = 2;
        return true;
    case MUTATE_NO_SCALES: case MUTATE_SCALES: case MUTATE_OTHER_SCALE: return change_scales(o, what, random);
    case MUTATE_OTHER_KERNEL: return other_kernel(o, random);
    case MUTATE_STATES: return o->kind == OP_UPDATE && swap_states(cx, &o->attrs);
    default: return false;
    }
}

// The op that `o` is in another function of its kind: the same, of the same place, after as many of that.
static Op *twin_in(const Func *f, const Op *o, int number) {
    for (Op *p = f->first; p; p = p->next)
        if (p->kind == o->kind && p->loc.path == o->loc.path && p->loc.line == o->loc.line && number-- == 0) return p;
    return NULL;
}

// Of one function, or of all micro-batches alike.
static bool mutate_ops(const Module *m, Op *o, Mutation what, uint64_t random) {
    Op *twins[8];
    int n = 0, number = 0;
    for (const Op *p = o->func->first; p != o; p = p->next)
        number += p->kind == o->kind && p->loc.path == o->loc.path && p->loc.line == o->loc.line;
    for (const Func *f = m->funcs; f && random % 2; f = f->next)
        if (f != o->func && !f->is_kernel && hd_kind(&f->attrs) == hd_kind(&o->func->attrs) && n < 8)
            if ((twins[n] = twin_in(f, o, number))) n++;
    bool done = mutate_op(o, what, random / 2);
    for (int i = 0; done && i < n; i++) mutate_op(twins[i], what, random / 2);
    return done;
}

// --- ops of kernels

static bool other_op(Op *o, uint64_t random) {
    if (!hd_op_is(o, TRAIT_ELEMENTWISE)) return false;
    const OpInfo *is = hd_op_info(o->kind);
    for (int k = 0; k < N_OPS; k++) {
        const OpKind other = (OpKind)((random + (uint64_t)k) % N_OPS);
        const OpInfo *info = hd_op_info(other);
        if (other == o->kind || !(info->traits & TRAIT_ELEMENTWISE) || info->n_in != is->n_in) continue;
        o->kind = other;
        return true;
    }
    return false;
}

static bool drop_cast(Op *o) {
    if (o->kind != OP_CAST || o->in[0]->type != o->out[0]->type) return false;
    hd_replace_uses(o->out[0], o->in[0]);
    hd_erase(o);
    return true;
}

// Result 0 goes through another op on its way to all of its readers.
static bool pass_through(Op *o, OpKind kind, DType by) {
    if (!o->n_out || !hd_dtype_is_float(o->out[0]->type->dtype)) return false;
    Ctx *cx = o->func->module->cx;
    Value *v = o->out[0], *now = v;
    Builder b = {.f = o->func, .before = o->next};
    const DType types[] = {by, v->type->dtype};
    for (int i = 0; i < (kind == OP_CAST ? 2 : 1); i++) {
        Attrs as = {0};
        if (kind == OP_CAST) hd_set_word(cx, &as, A_OUT, hd_intern(cx, hd_dtype_text(types[i])));
        now = hd_build1(&b, kind, now, NULL, &as, NULL);
    }
    for (Op *p = now->def->next; p; p = p->next)
        for (int i = 0; i < p->n_in; i++)
            if (p->in[i] == v) p->in[i] = now;
    return true;
}

static bool change_number(Op *o) {
    static const AttrId numbers[] = {A_EPS, A_THETA, A_VALUE, A_P, A_SCALE};
    for (int i = 0; i < 5; i++) {
        if (!hd_has(&o->attrs, numbers[i])) continue;
        const double is = hd_float(&o->attrs, numbers[i], 0);
        const double now = numbers[i] == A_P ? is / 2 : numbers[i] == A_EPS ? 0.01 : is < 0 || is > 0 ? is * 2 : 1;
        hd_set_float(o->func->module->cx, &o->attrs, numbers[i], now);
        return true;
    }
    return false;
}

static bool mutate_kernel_op(Op *o, Mutation what, uint64_t random) {
    static const AttrId flags[] = {A_CAUSAL, A_REVERSE, A_INVERSE};
    Ctx *cx = o->func->module->cx;
    if ((o->kind == OP_RETURN) != (what == MUTATE_KERNEL_RESULTS)) return false;
    switch (what) {
    case MUTATE_KERNEL_OP: return other_op(o, random);
    case MUTATE_KERNEL_SWAP: case MUTATE_KERNEL_RESULTS: return o->n_in > 1 && swap_operands(o, random);
    case MUTATE_KERNEL_CAST: return drop_cast(o);
    case MUTATE_KERNEL_ROUND: return pass_through(o, OP_CAST, TY_BF16);
    case MUTATE_KERNEL_OPERAND: return o->n_in && other_operand(o, random, false);
    case MUTATE_KERNEL_NUMBER: return change_number(o);
    case MUTATE_KERNEL_INTEGER: return change_integer(o, random);
    case MUTATE_KERNEL_NEGATE: return pass_through(o, OP_NEG, TY_F32);
    case MUTATE_KERNEL_FLAG:
        for (int i = 0; i < 3; i++)
            if (hd_attr_allowed(hd_op_info(o->kind)->attrs, flags[i])) return flip(cx, &o->attrs, flags[i]);
        return false;
    default: return false;
    }
}

// --- declarations

static bool mutate_param(const Module *m, Symbol *s, Mutation what, uint64_t random) {
    Ctx *cx = m->cx;
    Symbol *other = NULL;
    for (Symbol *t = m->symbols; t; t = t->next)
        if (t->kind == SYM_PARAM && t != s && t->type == s->type &&
            hd_word(&t->attrs, A_BUCKET, "") == hd_word(&s->attrs, A_BUCKET, ""))
            other = t;
    if (what == MUTATE_INITIAL) {
        if (random % 2) hd_set_float(cx, &s->attrs, A_STD, hd_float(&s->attrs, A_STD, 1) * 2);
        else hd_set_word(cx, &s->attrs, A_INIT, strcmp(hd_word(&s->attrs, A_INIT, ""), "zeros") ? "zeros" : "ones");
        return true;
    }
    if (!other) return false;
    if (what == MUTATE_NAMES) { // they are found by them no more, and nothing looks
        const char *name = s->name;
        s->name = other->name;
        other->name = name;
        return true;
    }
    swap_attr(cx, &s->attrs, &other->attrs, what == MUTATE_INDEX ? A_INDEX : A_OFFSET);
    return true;
}

static void change_setting(const Module *m, Attrs *as, AttrId id) {
    if (id == A_BETAS) hd_set_floats(m->cx, as, id, 2, (const double[]){0.5, 0.75});
    else hd_set_float(m->cx, as, id, id == A_CLIP ? 0.01 : hd_float(as, id, 0) * 2 + 1e-3);
}

static bool mutate_setting(Module *m, Mutation what, int site) {
    static const AttrId settings[] = {A_WEIGHT_DECAY, A_BETAS, A_CLIP, A_LR_PEAK};
    if (what == MUTATE_VOCAB) {
        Attrs *model = &hd_config(m, "model")->attrs;
        const AttrId id = site % 2 ? A_SEQ : A_VOCAB;
        hd_set_int(m->cx, model, id, hd_int(model, id, 0) + 1 + site / 2);
        return true;
    }
    const AttrId id = settings[site % 4];
    if (!hd_has(&hd_config(m, "train")->attrs, id)) return false;
    change_setting(m, &hd_config(m, "train")->attrs, id);
    for (const Func *f = m->funcs; f; f = f->next)
        for (Op *o = f->first; o; o = o->next)
            if ((o->kind == OP_UPDATE || o->kind == OP_STEP_SCALARS) && hd_has(&o->attrs, id))
                change_setting(m, &o->attrs, id);
    return true;
}

static bool exchange_arguments(Func *f) {
    for (int i = 0; i < f->n_args; i++)
        for (int k = i + 1; k < f->n_args; k++) {
            if (f->args[i]->type != f->args[k]->type) continue;
            const char *name = f->args[i]->name;
            f->args[i]->name = f->args[k]->name;
            f->args[k]->name = name;
            return true;
        }
    return false;
}

static bool mutate(Module *m, Mutation what, int site, uint64_t random) {
    switch (mutation_info[what].at) {
    case AT_OP: return mutate_ops(m, nth_op(m, false, site), what, random);
    case AT_KERNEL_OP: return mutate_kernel_op(nth_op(m, true, site), what, random);
    case AT_PARAM: return mutate_param(m, nth_param(m, site), what, random);
    case AT_SETTING: return mutate_setting(m, what, site);
    case AT_FUNCTION: return exchange_arguments(nth_func(m, site));
    }
    return false;
}
#endif
