// Lowers arithmetic to the compute dtype of `config @train`. Parameters stay f32 and are cast where they are read, once
// in each function; everything computed from them takes the compute dtype when types are inferred again. Some values
// stay f32: those that an op defines as f32 (statistics, log-sum-exp, the loss), scalars, data until it meets a lowered
// value, and the gradients of parameters, which the op that sums them makes in f32 (`out = f32`).
//   %w = param @w : f32[8,8]                       %w = param @w : f32[8,8];  %c = cast %w {out = bf16} : bf16[8,8]
//   %y = matmul %x, %w : f32[4,8]          ->      %y = matmul %x, %c : bf16[4,8]
//   %dw = matmul %x, %dy {ta} : f32[8,8]           %dw = matmul %x, %dy {ta, out = f32} : f32[8,8]
// With grad = bf16, gradients of parameters are rounded to bf16 once, where they are one contribution. They are added
// up in f32, over ranks and micro-batches:
//   grad %dw {param = @w}  of  %dw = matmul %x, %dy {ta} : bf16[8,8]
// A second run changes nothing.
#include "ir/shapes.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include "ir/base/ptr_map.h"

typedef struct {
    Module *m;
    Func *f;
    Arena *scratch;
    DType compute;
    int n_before;      // values that were in the function before the pass have ids below this
    Uses uses;         // of those values, before the pass
    const Type **was;  // by id: their types
    Value **now;       // by id: the cast that replaces a parameter, or NULL
    Value **narrowed;  // by id: the value in the compute dtype
    VEC(Value *) params; // the first cast of each parameter,
    PtrMap known;        // and where it is, by the parameter's name
    const char *grads;   // by symbol id of a parameter: how many contributions it has; NULL: gradients stay f32
    bool changed, failed;
} Lowering;

static bool wide(const Value *v) { return v->type->dtype == TY_F32; }

static const char *retype(Op *o, const Type *declared) {
    return hd_infer(o, declared ? 1 : 0, &declared);
}

static void must_retype(Op *o, const Type *declared) {
    const char *wrong = retype(o, declared);
    if (wrong) HD_BUG("lowering %s: %s", hd_op_info(o->kind)->mnemonic, wrong);
}

static Op *cast_op(Lowering *l, Value *v, DType dtype, const Op *like) {
    Op *c = hd_op_new(l->f, OP_CAST, 1, &v);
    hd_set_word(l->m->cx, &c->attrs, A_OUT, hd_dtype_text(dtype));
    if (hd_has(&like->attrs, A_BWD)) hd_set_flag(l->m->cx, &c->attrs, A_BWD);
    c->loc = like->loc;
    c->span = like->span;
    must_retype(c, NULL);
    l->changed = true;
    return c;
}

static Value *cast_before(Lowering *l, Op *at, Value *v, DType dtype) {
    Op *c = cast_op(l, v, dtype, at);
    hd_insert_before(at, c);
    return c->out[0];
}

// The value in the compute dtype for `at` and every later op. A constant is written anew instead of cast.
static Value *narrow(Lowering *l, Op *at, Value *v) {
    Value **known = v->id < l->n_before ? &l->narrowed[v->id] : NULL, *made;
    if (known && *known) return *known;
    if (v->def && hd_op_is(v->def, TRAIT_CONSTANT)) {
        Op *c = hd_op_clone(l->f, v->def, NULL);
        must_retype(c, hd_type_with(l->m->cx, l->compute, v->type));
        hd_insert_before(at, c);
        l->changed = true;
        made = c->out[0];
    } else {
        made = cast_before(l, at, v, l->compute);
    }
    if (known) *known = made;
    return made;
}

// --- parameters
static const char *param_of(const Op *o) { return hd_word(&o->attrs, A_PARAM, ""); }

static void lower_param(Lowering *l, Op *o) {
    Value *v = o->out[0];
    if (!wide(v) || hd_has(&hd_op_param(o, 0)->attrs, A_KERNEL)) return; // a buffer stays exact
    const bool alone = !hd_has(&o->attrs, A_ALSO);
    int first = alone ? hd_ptr_get(&l->known, param_of(o)) : -1; // names are interned
    if (first >= 0) {                               // a parameter read again: the first cast serves
        l->now[v->id] = l->params.at[first];
        hd_erase(o);
        l->changed = true;
        return;
    }
    if (alone) hd_ptr_set(l->scratch, &l->known, param_of(o), l->params.n);
    Op *done = l->uses.count[v->id] == 1 ? l->uses.users[v->id][0] : NULL;
    if (done && hd_casts_to(done, l->compute)) {
        hd_push(l->scratch, &l->params, done->out[0]);
        return;
    }
    Op *c = cast_op(l, v, l->compute, o);
    hd_insert_after(o, c);
    l->now[v->id] = c->out[0];
    hd_push(l->scratch, &l->params, c->out[0]);
}

// --- operands
// Operands that an op defines as f32 whatever its other operands are.
static bool stays_wide(const Op *o, int i) {
    if (hd_op_is(o, TRAIT_ELEMENTWISE)) return o->in[i]->type->rank == 0; // adapts to the others
    return hd_operand_class(o, i) == 's';
}

// Where operands of both dtypes meet, the f32 ones are lowered; scalars among themselves are raised.
static void agree(Lowering *l, Op *o) {
    bool any_low = false, any_shape = false;
    for (int i = 0; i < o->n_in; i++) {
        any_low |= o->in[i]->type->dtype == l->compute && !stays_wide(o, i);
        any_shape |= o->in[i]->type->rank > 0;
    }
    for (int i = 0; i < o->n_in; i++) {
        Value *v = o->in[i];
        bool scalar = hd_op_is(o, TRAIT_ELEMENTWISE) && !any_shape;
        if (scalar && v->type->dtype == l->compute) o->in[i] = cast_before(l, o, v, TY_F32);
        if (any_low && wide(v) && !stays_wide(o, i)) o->in[i] = narrow(l, o, v);
        const bool exact = v == hd_loss_weights(o) || i == hd_attention_sink_at(o);
        if (exact && v->type->dtype == l->compute) o->in[i] = cast_before(l, o, v, TY_F32);
    }
}

// --- gradients of parameters
static bool for_grads_only(const Lowering *l, const Value *v) { // read once, or by `grad` ops alone
    if (v->id >= l->n_before) return false;
    int grads = 0, uses = l->uses.count[v->id];
    for (int i = 0; i < uses; i++) grads += hd_param_added(l->uses.users[v->id][i], 0) != NULL;
    return uses == 1 || uses == grads;
}

static bool is_sum(const Op *o) { return hd_op_is(o, TRAIT_ADDS) || hd_adds_rows(o); }

// v in f32 for `at`: made in f32 by the op that computes it, where that is possible and nothing else reads it; else
// cast.
static Value *widen(Lowering *l, Op *at, Value *v) {
    if (wide(v)) return v;
    Op *o = v->def;
    bool moves = o && hd_op_is(o, TRAIT_MOVES);
    bool sums = o && o->kind != OP_CAST && hd_attr_allowed(hd_op_info(o->kind)->attrs, A_OUT);
    if (o && o->kind == OP_CAST && wide(o->in[0])) return o->in[0];
    if (!(moves || sums) || !for_grads_only(l, v)) return cast_before(l, at, v, TY_F32);
    // summed in two steps
    bool of_sum = is_sum(o) && o->in[0]->def && is_sum(o->in[0]->def) && for_grads_only(l, o->in[0]);
    for (int i = 0; i < (moves ? o->n_in : of_sum); i++) o->in[i] = widen(l, o, o->in[i]);
    if (sums) hd_set_word(l->m->cx, &o->attrs, A_OUT, "f32");
    must_retype(o, hd_op_is(o, TRAIT_EXPLICIT) ? hd_type_with(l->m->cx, TY_F32, v->type) : NULL);
    l->changed = true;
    return v;
}

// --- gradients in bf16

// Parameters whose gradient is one contribution are rounded to bf16 once. A look-up may add many rows to one, and
// logits and their gradients may be made in chunks: those of their tables stay f32.
static const Op *maker(const Value *v) {
    while (v->def && v->def->n_in && hd_op_is(v->def, TRAIT_CARRIES)) v = v->def->in[0];
    return v->def;
}

static bool one_contribution(const Lowering *l, const Op *grad) {
    const Op *by = maker(grad->in[0]);
    if (!l->grads || !by || hd_adds_rows(by)) return false;
    for (int i = 0; i < by->n_in; i++) {
        const Op *from = maker(by->in[i]);
        if (from && hd_op_is(from, TRAIT_LOSS)) return false;
    }
    for (int i = 0; hd_op_param(grad, i); i++) {
        const Symbol *p = hd_op_param(grad, i);
        if (l->grads[p->id] != 1 || hd_has(&p->attrs, A_KERNEL)) return false;
    }
    return true;
}

static const char *count_contributions(const Module *m, const Func *f, Arena *a) {
    char *n = HD_NEWN(a, char, m->n_symbols + 1);
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; hd_param_added(o, i); i++)
            if (n[hd_op_param(o, i)->id] < 2) n[hd_op_param(o, i)->id]++;
    return n;
}

// A product rounds its sums once. So does a cast of what else is f32.
static Value *gradient(Lowering *l, Op *o) {
    Value *v = o->in[0];
    const bool half = one_contribution(l, o);
    if (half && v->type->dtype == l->compute && v->def && v->def->kind == OP_MATMUL) return v;
    v = widen(l, o, v);
    return half ? cast_before(l, o, v, l->compute) : v;
}

// --- the walk
static void infer_again(Lowering *l, Op *o) {
    const Type *before = o->n_out ? o->out[0]->type : NULL, *declared = NULL;
    if (hd_op_is(o, TRAIT_EXPLICIT)) {
        if (hd_op_is(o, TRAIT_CONSTANT) || !o->n_in) return; // the ops that read them lower them
        declared = before;
        if (!hd_has(&o->attrs, A_OUT)) declared = hd_type_with(l->m->cx, o->in[0]->type->dtype, before);
    }
    // a sum down to one number is a statistic
    if (before && before->rank == 0 && o->kind != OP_CAST && o->n_in && o->in[0]->type->dtype == l->compute &&
        hd_attr_allowed(hd_op_info(o->kind)->attrs, A_OUT) && !hd_has(&o->attrs, A_OUT)) {
        hd_set_word(l->m->cx, &o->attrs, A_OUT, "f32");
        declared = declared ? before : NULL;
    }
    must_retype(o, declared);
    l->changed |= o->n_out && o->out[0]->type != before;
}

// Counts add up exactly in f32, and not in fewer bits.
static void check_total(Lowering *l, const Op *o) {
    if (!hd_has(&hd_op_param(o, 0)->attrs, A_KERNEL) || wide(o->in[0])) return;
    l->failed = !hd_error(l->m->cx, o->span,
                          "what is added to buffer @%s is computed in %s, which does not hold it exactly: make it of "
                          "counts, or of operands in float(...)", hd_op_param(o, 0)->name, hd_dtype_text(l->compute));
}

static void lower_op(Lowering *l, Op *o) {
    for (int i = 0; i < o->n_in; i++)
        if (o->in[i]->id < l->n_before && l->now[o->in[i]->id]) o->in[i] = l->now[o->in[i]->id];
    if (hd_param_read(o, 0)) {
        lower_param(l, o);
    } else if (hd_param_added(o, 0)) {
        check_total(l, o);
        o->in[0] = gradient(l, o);
    } else if (hd_op_is(o, TRAIT_RETURN)) {
        for (int i = 0; i < o->n_in; i++) {
            const Type *t = o->in[i]->id < l->n_before ? l->was[o->in[i]->id] : o->in[i]->type;
            if (o->in[i]->type != t) o->in[i] = cast_before(l, o, o->in[i], t->dtype);
        }
    } else {
        agree(l, o);
        infer_again(l, o);
    }
}

static Change lower_func(Module *m, Func *f, DType compute, Arena *scratch) {
    Lowering l = {.m = m, .f = f, .scratch = scratch, .compute = compute, .n_before = f->n_values};
    l.uses = hd_uses(f, scratch);
    if (!strcmp(hd_word(hd_settings(m, "train"), A_GRAD, ""), "bf16")) l.grads = count_contributions(m, f, scratch);
    l.now = HD_NEWN(scratch, Value *, f->n_values);
    l.was = HD_NEWN(scratch, const Type *, f->n_values);
    l.narrowed = HD_NEWN(scratch, Value *, f->n_values);
    for (int i = 0; i < f->n_args; i++) l.was[f->args[i]->id] = f->args[i]->type;
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) l.was[o->out[i]->id] = o->out[i]->type;
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        lower_op(&l, o);
    }
    if (l.changed) hd_renumber(f);
    return l.failed ? FAILED : l.changed ? CHANGED : UNCHANGED;
}

// The casts that the pass has to leave alone: from now on they are like others.
static bool drop_wide(Module *m) {
    bool found = false;
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *o = f->is_kernel ? NULL : f->first; o; o = o->next) {
            if (!hd_has(&o->attrs, A_WIDE)) continue;
            hd_unset(&o->attrs, A_WIDE);
            found = true;
        }
    return found;
}

Change hd_pass_precision(Module *m, PassCx *cx) {
    const Symbol *train = hd_symbol_find(m, "train");
    const char *word = train ? hd_word(&train->attrs, A_COMPUTE, "f32") : "f32";
    DType compute;
    if (!hd_dtype_parse(word, &compute) || (compute != TY_F32 && !hd_dtype_is_half(compute))) {
        hd_error(m->cx, train->span, "cannot compute in %s; the compute dtype is f32, bf16 or f16", word);
        return FAILED;
    }
    bool changed = drop_wide(m);
    if (compute == TY_F32) return changed ? CHANGED : UNCHANGED;
    for (Func *f = m->funcs; f; f = f->next) {
        const Change done = f->is_kernel ? UNCHANGED : lower_func(m, f, compute, cx->scratch);
        if (done == FAILED) return FAILED;
        changed |= done == CHANGED;
    }
    const char *exact = hd_fingerprint(m);
    if (changed && exact) { // what is rounded is another model
        const bool half = !strcmp(hd_word(hd_settings(m, "train"), A_GRAD, ""), "bf16");
        const char *rounded = hd_sprintf(cx->scratch, "%s in %s%s", exact, word, half ? " and its gradients" : "");
        hd_set_word(m->cx, &hd_config(m, "model")->attrs, A_FINGERPRINT,
                    hd_hash(cx->scratch, rounded, strlen(rounded)));
    }
    return changed ? CHANGED : UNCHANGED;
}
