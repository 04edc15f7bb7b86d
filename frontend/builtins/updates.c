// Buffers: what a model keeps from step to step beside its parameters, without a gradient. `update bias = EXPRESSION;`
// in a function says what a step makes of it, from its value before and from total(x): the sum of x over micro-batches
// and over the ranks that read other data.
//
//   update bias = bias + 0.001 * sign(total(mean(load) - load));
//
// Ranks share out the elements of a buffer like those of parameters, so the expression is pointwise: it becomes a
// kernel of kind optimizer (ir/optimizer.h), and the argument of total(...) a contribution like one to a gradient.
#include "frontend/model/sema.h"
#include "ir/optimizer.h"
#include <string.h>

static const Val bad = {0};

static bool of_kernel(const Front *f, const Value *v) {
    bool is = v->def && v->def->func == f->func;
    for (int i = 0; i < f->func->n_args; i++) is |= f->func->args[i] == v;
    return is;
}

static bool other_value(Front *f, Span s) {
    return hd_front_error(f, s, "an update reads its buffer, total(...) and numbers known at compile time; what a "
                                "micro-batch computes it reads as total(x), the sum over a step");
}

bool hd_updates_may_read(Front *f, Span s, int n, Value *const *in) {
    for (int i = 0; f->updated && i < n; i++)
        if (!of_kernel(f, in[i])) return other_value(f, s);
    return true;
}

Val hd_updates_member(Front *f, Span use, const Symbol *param) {
    if (f->updated == param) return (Val){.kind = VAL_TENSOR, .tensor = f->func->args[OPT_WEIGHTS]};
    other_value(f, use);
    return bad;
}

// --- total(x)

static bool contribute(Front *f, Span s, const Symbol *buffer, Value *v) {
    Op *o = hd_op_new(f->func, OP_GRAD, 1, &v);
    hd_set_word(f->cx, &o->attrs, A_PARAM, buffer->name);
    if (hd_infer(o, 0, NULL))
        return hd_front_error(f, s, "total(x) is added to buffer '%s', %s, and x is %s", buffer->name,
                              hd_type_text(f->cx, buffer->type), hd_type_text(f->cx, v->type));
    o->loc = hd_front_loc(f, f->frame->path, s);
    o->span = hd_front_site(f, s);
    hd_append(f->func, o);
    return true;
}

Val hd_lower_total(Front *f, Instance *scope, const Node *call) {
    Symbol *const buffer = f->updated;
    Func *const kernel = f->func;
    if (call->n != 1 || call->kids[0]->kind == N_NAMED)
        return hd_front_bad(f, call->span, "total takes one value: total(x)");
    if (f->totals++) return hd_front_bad(f, call->span, "an update has one total(...): add up what it takes in there");
    f->func = f->outer;
    f->updated = NULL;
    Val v = hd_lower_expr(f, scope, call->kids[0]);
    f->updated = buffer;
    bool ok = v.kind != VAL_BAD;
    if (ok && v.kind != VAL_TENSOR)
        ok = hd_front_error(f, call->span, "total takes a tensor, not %s", hd_val_text(f, v));
    if (ok) {
        f->updated = NULL; // for what hd_emit checks
        v = hd_emit_float(f, call->span, v);
        f->updated = buffer;
        ok = v.kind == VAL_TENSOR && contribute(f, call->span, buffer, v.tensor);
    }
    f->func = kernel;
    return ok ? (Val){.kind = VAL_TENSOR, .tensor = kernel->args[OPT_GRADIENT]} : bad;
}

// --- the kernel

static Func *empty_kernel(Front *f, const char *buffer) {
    const Type *number = hd_type(f->cx, TY_F32, 0, NULL);
    const char *name = hd_free_name(f->module, hd_internf(f->cx, "%s_update", buffer));
    Func *k = hd_func_add(f->module, name, true);
    hd_set_kind(f->cx, &k->attrs, KIND_OPTIMIZER);
    for (int i = 0; i < OPT_STATE; i++) hd_arg_add(k, number, i == OPT_GRADIENT ? "total" : hd_optimizer_argument(i));
    return k;
}

static bool finish(Front *f, const Node *n, Val v) {
    Value *out[1];
    if (v.kind == VAL_BAD) return false;
    if (!f->totals)
        return hd_front_error(f, n->span, "the update of '%s' has no total(...): what a step adds up for it", n->name);
    if (v.kind == VAL_TENSOR && !hd_updates_may_read(f, n->span, 1, &v.tensor)) return false;
    out[0] = hd_emit_tensor(f, n->span, v);
    if (!out[0]) return false;
    hd_optimizer_keep(f, n->span, 1, out);
    hd_append(f->func, hd_op_new(f->func, OP_RETURN, 1, out));
    for (Op *o = f->func->first; o; o = o->next) o->loc = (Loc){0}, o->span = (Span){0};
    hd_renumber(f->func);
    return !hd_optimizer_wrong(f->func) ||
           hd_front_error(f, n->span, "the update of '%s' is not pointwise: ranks share out the elements of a buffer. "
                                      "Sums belong inside of total(...), as in total(mean(x) - x)", n->name);
}

static const char *text_of(const Front *f, const Func *k) {
    Out text = hd_out(f->scratch);
    for (const Op *o = k->first; o; o = o->next) {
        hd_puts(&text, hd_op_info(o->kind)->mnemonic);
        for (int i = 0; i < o->n_in; i++) hd_printf(&text, " %d", o->in[i]->id);
        hd_print_attrs(&o->attrs, &text);
        hd_puts(&text, "\n");
    }
    return text.text;
}

Func *hd_share_kernel(Front *f, Func *k) {
    ArenaMark mark = hd_arena_mark(f->scratch);
    const char *text = text_of(f, k);
    Func *same = f->module->funcs;
    while (same && (same == k || !same->is_kernel || hd_kind(&same->attrs) != KIND_OPTIMIZER ||
                    hd_is_rule(same) != hd_is_rule(k) || strcmp(text_of(f, same), text) != 0))
        same = same->next;
    hd_arena_rewind(f->scratch, mark);
    if (same) hd_func_remove(f->module, k);
    return same ? same : k;
}

static Member *buffer_of(Front *f, const Node *n) {
    Instance *scope = f->frame->instance;
    Member *m = scope ? hd_find_member(scope, n->name) : NULL;
    if (m && m->decl->kind == N_BUFFER && m->param) return m;
    hd_front_error(f, n->span, "'%s' is not a buffer of %s: 'buffer %s: [n] = zeros;' among its members declares one",
                   n->name, scope ? scope->decl->name : "a module", n->name);
    return NULL;
}

bool hd_updates_happen(const Front *f) { return hd_kind(&f->func->attrs) == KIND_LOSS; } // logits train nothing

bool hd_lower_update(Front *f, const Node *n) {
    Member *m = buffer_of(f, n);
    Func *const outer = f->func;
    if (!m) return false;
    if (!hd_updates_happen(f)) return true;
    if (hd_has(&m->param->attrs, A_KERNEL))
        return hd_front_error(f, n->span, "buffer '%s' is updated a second time: a step updates it once",
                              m->param->name);
    f->func = empty_kernel(f, n->name);
    f->outer = outer;
    f->updated = m->param;
    f->totals = 0;
    const bool ok = finish(f, n, hd_lower_expr(f, f->frame->instance, n->a));
    Func *k = f->func;
    f->updated = NULL;
    f->func = outer;
    if (ok) k = hd_share_kernel(f, k);
    hd_set_word(f->cx, &m->param->attrs, A_KERNEL, k->name);
    return ok;
}

// --- numbers that a run reports

// A buffer that is what the step has added up for it: NaN in a step that is skipped.
bool hd_updates_count(Front *f, Span s, const char *name, Value *v) {
    if (!f->counted) {
        Func *k = empty_kernel(f, name);
        hd_append(k, hd_op_new(k, OP_RETURN, 1, &k->args[OPT_GRADIENT]));
        hd_renumber(k);
        f->counted = hd_symbol_add(f->module, SYM_PARAM, hd_free_name(f->module, name), v->type);
        hd_set_word(f->cx, &f->counted->attrs, A_INIT, hd_intern(f->cx, "zeros"));
        hd_set_word(f->cx, &f->counted->attrs, A_KERNEL, k->name);
        hd_set_flag(f->cx, &f->counted->attrs, A_LOGGED);
        f->counted->loc = hd_front_loc(f, "root", s);
        f->counted->span = hd_front_site(f, s);
    }
    return contribute(f, s, f->counted, v);
}

bool hd_updates_check(Front *f) {
    bool ok = true;
    for (int i = 0; i < f->instances.n; i++)
        for (int k = 0; k < f->instances.at[i]->members.n; k++) {
            const Member *m = &f->instances.at[i]->members.at[k];
            if (m->decl->kind != N_BUFFER || hd_has(&m->param->attrs, A_KERNEL)) continue;
            ok = hd_front_error(f, m->decl->span, "buffer '%s' is never updated: say 'update %s = ...;' in a function "
                                                  "that 'loss' calls, or make it a parameter that is marked 'frozen'",
                                m->param->name, m->name);
        }
    return ok;
}
