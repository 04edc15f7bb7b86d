// Evaluates expressions and runs functions: `loss` is called once, at compile time, and the tensor operations it meets
// become the ops of @loss. Within `let a = e` the ops of e carry the path of the instance and ".a", so that schedules
// can name them.
#include "frontend/model/sema.h"
#include "ir/optimizer.h"
#include <stdlib.h>

static const Val bad = {0};

// --- names

static Val member_value(Front *f, Member *m, Span use) {
    if (m->decl->kind == N_MODULE)
        return hd_front_bad(f, use, "'%s' is a module, not an instance of one: write 'x = %s(...);' among the members",
                            m->name, m->name);
    if (!m->param) return m->value;
    if (f->updated) return hd_updates_member(f, use, m->param);
    Attrs attrs = {0};
    hd_set_word(f->cx, &attrs, A_PARAM, m->param->name);
    Value *v = hd_emit(f, use, OP_PARAM, 0, NULL, &attrs, NULL);
    return v ? (Val){.kind = VAL_TENSOR, .tensor = v} : bad;
}

static bool find_local(const Front *f, const char *name, Val *v) {
    const Binding *b = f->frame ? hd_bindings_find(&f->frame->locals, name) : NULL;
    if (b) *v = b->value;
    return b != NULL;
}

// A function of a declaration around the module: the innermost one counts. NULL: none has that name.
static Member *outer_function(const Front *f, const Instance *scope, const char *name) {
    for (const Instance *i = f->frame && scope ? scope->lexical : NULL; i; i = i->lexical) {
        if (hd_bindings_find(&i->args, name)) return NULL;
        Member *m = hd_find_member(i, name);
        if (m && m->decl->kind == N_FN) return m;
    }
    return NULL;
}

// A member of the module itself, or a function of a declaration around it that none of its own arguments hides.
static Member *visible_member(const Front *f, const Instance *scope, const char *name) {
    Member *m = f->frame && scope ? hd_find_member(scope, name) : NULL;
    return m || (scope && hd_bindings_find(&scope->args, name)) ? m : outer_function(f, scope, name);
}

// false: no such name.
static bool find_name(Front *f, Instance *scope, const Node *n, Val *v) {
    if (find_local(f, n->name, v)) return true;
    Member *m = visible_member(f, scope, n->name);
    bool found = m != NULL;
    if (m) *v = member_value(f, m, n->span);
    else *v = hd_find_arg(f, scope, n->name, &found);
    if (found) return true;
    const Node *fn = hd_find_item(f, N_FN, n->name);
    if (!fn) return false;
    *v = (Val){.kind = VAL_FN, .fn = fn};
    return true;
}

bool hd_lower_hidden(Front *f, const Instance *scope, const char *name) {
    Val v;
    bool found;
    if (find_local(f, name, &v) || visible_member(f, scope, name)) return true;
    hd_find_arg(f, scope, name, &found);
    return found || hd_find_item(f, N_FN, name);
}

static Val eval_dot(Front *f, Instance *scope, const Node *n) {
    Val of = hd_lower_expr(f, scope, n->a);
    if (of.kind == VAL_BAD) return bad;
    if (of.kind == VAL_REPEAT) {
        char *end;
        long k = strtol(n->name, &end, 10);
        if (*end == 0 && k < of.n) return (Val){.kind = VAL_INSTANCE, .instance = of.repeat[k]};
        return hd_front_bad(f, n->span, "%s are named .0 to .%d, not .%s", hd_val_text(f, of), of.n - 1, n->name);
    }
    if (of.kind != VAL_INSTANCE)
        return hd_front_bad(f, n->span, "'.%s' of %s: only modules have members%s", n->name, hd_val_text(f, of),
                            of.kind == VAL_TENSOR || of.kind == VAL_TEXT || of.kind == VAL_LIST
                                ? hd_suggest_method(f, n->name)
                                : "");
    Member *m = hd_find_member(of.instance, n->name);
    if (m) return member_value(f, m, n->span);
    const char *other = hd_other_branch(f, of.instance, n->name);
    Names names = {0};
    for (int k = 0; k < of.instance->members.n; k++) hd_push(f->arena, &names, of.instance->members.at[k].name);
    return hd_front_bad(f, n->span, "module %s has no '%s'%s (it has: %s)", of.instance->decl->name, n->name,
                        *other ? other : hd_suggest(f, n->name, &names), hd_list_names(f, &names));
}

// --- functions

typedef enum { NEXT, RETURNED, FAILED } Flow;
static Flow run_block(Front *f, const Node *block, Val *result);

static const char *path_of(const Instance *i) { return i->path[0] ? i->path : "root"; }

static bool check_type(Front *f, Instance *scope, const Node *formal, const char *fn, Val v, Span call) {
    DType dt = TY_F32;
    const Node *declared = formal->b;
    if (declared->name && !hd_dtype_parse(declared->name, &dt))
        return hd_front_error(f, declared->span, "no element type '%s': there are f32, i32", declared->name);
    const Type *t = hd_lower_type(f, scope, declared->a, dt, "a tensor");
    if (!t) return false;
    if (v.kind == VAL_TENSOR && v.tensor->type == t) return true;
    return hd_front_error(f, call, "argument '%s' of %s is declared %s, but it is given %s", formal->name, fn,
                          hd_type_text(f->cx, t), hd_val_text(f, v));
}

static bool bind_local(Front *f, const Instance *scope, const Node *name, Val v) {
    Bindings *locals = &f->frame->locals;
    const Binding *old = hd_bindings_find(locals, name->name);
    if (old) {
        hd_front_error(f, name->span, "'%s' is defined twice in this function", name->name);
        hd_note(f->cx, old->span, "first here");
        return false;
    }
    const Member *m = scope ? hd_find_member(scope, name->name) : NULL;
    if (m) return hd_front_error(f, name->span, "'%s' is already a member of %s", name->name, scope->decl->name);
    hd_bindings_add(f->scratch, locals, (Binding){name->name, v, name->span});
    return true;
}

// Runs the body in a new frame. Missing arguments have kind VAL_BAD and take their defaults.
static Val invoke(Front *f, Instance *scope, const Node *fn, Span call, const Val *args) {
    int active = 0;
    for (const Frame *x = f->frame; x; x = x->caller) active++;
    if (active >= MAX_CALLS) {
        hd_front_error(f, call, "calls nest more than %d deep: does '%s' call itself?", MAX_CALLS, fn->name);
        f->unwind = true;
        return bad;
    }
    Frame frame = {.caller = f->frame, .instance = scope, .fn = fn, .call = call};
    frame.path = scope ? path_of(scope) : f->frame->path;
    f->frame = &frame;
    bool ok = true;
    for (int k = 0; k < fn->c->n; k++) {
        const Node *formal = fn->c->kids[k];
        Val v = args[k].kind == VAL_BAD && formal->a ? hd_lower_expr(f, scope, formal->a) : args[k];
        if (formal->b) ok &= check_type(f, scope, formal, fn->name, v, call);
        ok &= bind_local(f, scope, formal, v);
    }
    Val result = bad;
    Flow flow = ok ? run_block(f, fn->a, &result) : FAILED;
    if (flow == NEXT) hd_front_error(f, fn->span, "function '%s' ends without 'return'", fn->name);
    f->frame = frame.caller;
    return flow == RETURNED ? result : bad;
}

static const Node *forward_of(Front *f, const Instance *i, Span call) {
    const Member *m = hd_find_member(i, hd_intern(f->cx, "forward"));
    if (m && m->decl->kind == N_FN) return m->decl;
    hd_front_error(f, call, "module %s cannot be called: it has no function 'forward'%s", i->decl->name,
                   hd_other_branch(f, i, "forward"));
    return NULL;
}

// Evaluates the arguments of a call for a function; a missing one (it has a default) is VAL_BAD. NULL after reporting.
static Val *eval_args(Front *f, Instance *scope, const Node *fn, const Node *call, const char *what) {
    const Node **slots = HD_NEWN(f->scratch, const Node *, fn->c->n + 1);
    Val *args = HD_NEWN(f->scratch, Val, fn->c->n + 1);
    if (!hd_bind_declared(f, call->span, what, fn->c, call->n, call->kids, slots)) return NULL;
    bool ok = true;
    for (int k = 0; k < fn->c->n; k++) {
        if (!slots[k]) continue;
        args[k] = hd_lower_expr(f, scope, slots[k]);
        ok &= args[k].kind != VAL_BAD;
    }
    return ok ? args : NULL;
}

// Gives the results of `from` to the first arguments of the next instance. `carried`: how many before, or 0.
static bool carry(Front *f, Span call, const Instance *from, Val result, int n_args, Val *args, int *carried) {
    const int n = result.kind == VAL_LIST ? result.n : 1;
    if (result.kind == VAL_BAD) return false;
    if (n > n_args)
        return hd_front_error(f, call, "%s returns %d values, and the next of the repeated modules takes %d",
                              from->path, n, n_args);
    if (*carried && n != *carried)
        return hd_front_error(f, call, "%s returns %d value%s, and the repeated modules before it return %d",
                              from->path, n, n == 1 ? "" : "s", *carried);
    for (int k = 0; k < n; k++) args[k] = result.kind == VAL_LIST ? result.list[k] : result;
    *carried = n;
    return true;
}

static Val call_repeat(Front *f, Instance *scope, const Node *call, Val callee) {
    const Node *fn = forward_of(f, callee.repeat[0], call->span);
    Val *args =
        fn ? eval_args(f, scope, fn, call, hd_sprintf(f->scratch, "%s.forward", callee.repeat[0]->decl->name)) : NULL;
    if (!args) return bad;
    if (fn->c->n < 1)
        return hd_front_bad(
            f, call->span,
            "repeated modules are called one on the result of the other: 'forward' of %s needs an argument",
            callee.repeat[0]->decl->name);
    Val result = bad;
    for (int k = 0, carried = 0; k < callee.n; k++) {
        const Node *next = forward_of(f, callee.repeat[k], call->span);
        if (!next) return bad;
        if (next->c->n != fn->c->n)
            return hd_front_bad(f, call->span, "'forward' of %s takes %d argument%s, that of %s takes %d",
                                callee.repeat[0]->path, fn->c->n, fn->c->n == 1 ? "" : "s", callee.repeat[k]->path,
                                next->c->n);
        if (k && !carry(f, call->span, callee.repeat[k - 1], result, fn->c->n, args, &carried)) return bad;
        result = invoke(f, callee.repeat[k], next, call->span, args);
    }
    return result;
}

static Val call_value(Front *f, Instance *scope, const Node *call, Val callee) {
    const Node *fn = callee.fn;
    Instance *target = callee.instance;
    switch (callee.kind) {
    case VAL_BAD: return bad;
    case VAL_REPEAT: return call_repeat(f, scope, call, callee);
    case VAL_INSTANCE: fn = forward_of(f, target, call->span); break;
    case VAL_FN: break;
    default:
        return hd_front_bad(f, call->span, "%s is not a function%s", hd_val_text(f, callee),
                            hd_hidden_builtin(f, scope, call->a));
    }
    if (!fn) return bad;
    const char *what = target ? hd_sprintf(f->scratch, "%s.%s", target->decl->name, fn->name) : fn->name;
    Val *args = eval_args(f, scope, fn, call, what);
    if (!args) return bad;
    if (!f->frame)
        return hd_front_bad(
            f, call->span, "'%s' cannot be called here: only numbers known at compile time are allowed here", fn->name);
    return invoke(f, target, fn, call->span, args);
}

static Val eval_call_in(Front *f, Instance *scope, const Node *n) {
    Val callee = bad;
    if (n->a->kind != N_NAME) return call_value(f, scope, n, hd_lower_expr(f, scope, n->a));
    if (f->own && (callee = hd_lower_own_call(f, scope, n)).kind != VAL_BAD) return callee;
    if (find_name(f, scope, n->a, &callee)) return call_value(f, scope, n, callee);
    if (f->updated && !strcmp(n->a->name, "total")) return hd_lower_total(f, scope, n);
    if (hd_builtin_exists(n->a->name)) return hd_builtin_call(f, scope, n->a->name, n);
    return hd_unknown(f, scope, n->a);
}

// Memory that a call needs while it runs is freed with it; what it returns stays.
static Val eval_call(Front *f, Instance *scope, const Node *n) {
    ArenaMark mark = hd_arena_mark(f->scratch);
    Val v = eval_call_in(f, scope, n);
    hd_arena_rewind(f->scratch, mark);
    return v;
}

// --- expressions

static const OpKind kinds[] = {[BIN_ADD] = OP_ADD, [BIN_SUB] = OP_SUB, [BIN_MUL] = OP_MUL, [BIN_DIV] = OP_DIV,
                               [BIN_AND] = OP_MUL, [BIN_OR] = OP_MAX,  [BIN_EQ] = OP_EQ,   [BIN_NE] = OP_NE,
                               [BIN_LT] = OP_LT,   [BIN_LE] = OP_LE,   [BIN_GT] = OP_GT,   [BIN_GE] = OP_GE};

// What to write for an operator that does not work on tensors, if one of the two is a tensor.
static const char *of_tensors(Front *f, Operator op, const Val *v) {
    if (v[0].kind != VAL_TENSOR && v[1].kind != VAL_TENSOR) return "";
    return op == BIN_REM ? "" : hd_sprintf(f->arena, "; write %s(a, b), of tensors%s", hd_op_info(kinds[op])->mnemonic,
                                           op <= BIN_AND ? " of 0 and 1" : "");
}

static Val eval_binary(Front *f, Instance *scope, const Node *n) {
    Val v[2] = {hd_lower_expr(f, scope, n->a)};
    const bool logical = n->op == BIN_AND || n->op == BIN_OR; // the left side may decide
    bool truth;
    if (logical && v[0].kind != VAL_TENSOR) {
        if (!hd_val_truth(f, n->a->span, v[0], &truth)) return bad;
        if (truth == (n->op == BIN_OR)) return hd_val_int(truth);
    }
    v[1] = hd_lower_expr(f, scope, n->b);
    if (v[0].kind == VAL_BAD || v[1].kind == VAL_BAD) return bad;
    if (hd_val_is_number(v[0]) && hd_val_is_number(v[1])) return hd_scalar_binary(f, n->span, n->op, v[0], v[1]);
    Val sequence;
    if (hd_sequence_binary(f, n->span, n->op, v[0], v[1], &sequence)) return sequence;
    if (n->op == BIN_REM && hd_integers(2, v)) return hd_emit_remainder(f, n->span, v[0], v[1]);
    if ((n->op < BIN_ADD && !(n->op > BIN_AND && hd_integers(2, v))) || n->op == BIN_REM)
        return hd_front_bad(f, n->span, "'%s' works on numbers known at compile time, not on %s and %s%s",
                            hd_operator_text(n->op), hd_val_text(f, v[0]), hd_val_text(f, v[1]),
                            of_tensors(f, n->op, v));
    return hd_emit_elementwise(f, n->span, kinds[n->op], 2, v);
}

static Val eval_unary(Front *f, Instance *scope, const Node *n) {
    Val v = hd_lower_expr(f, scope, n->a);
    if (v.kind == VAL_BAD) return bad;
    if (hd_val_is_number(v) || n->op == UN_NOT) return hd_scalar_unary(f, n->span, n->op, v);
    return hd_emit_elementwise(f, n->span, OP_NEG, 1, &v);
}

static Val eval_select(Front *f, Instance *scope, const Node *n) {
    bool truth;
    if (!hd_val_truth(f, n->a->span, hd_lower_expr(f, scope, n->a), &truth)) return bad;
    return hd_lower_expr(f, scope, truth ? n->b : n->c);
}

static Val eval_list(Front *f, Instance *scope, int n, Node *const *kids) {
    Val *list = HD_NEWN(f->arena, Val, n + 1);
    bool ok = true;
    for (int k = 0; k < n; k++) {
        list[k] = hd_lower_expr(f, scope, kids[k]);
        ok &= list[k].kind != VAL_BAD;
    }
    return ok ? (Val){.kind = VAL_LIST, .n = n, .list = list} : bad;
}

static Val eval(Front *f, Instance *scope, const Node *n) {
    Val v = bad;
    switch (n->kind) {
    case N_INT: return hd_val_int(n->i);
    case N_FLOAT: return hd_val_float(n->f);
    case N_FACTOR:
        hd_front_error(f, n->span, "'%s' is a factor, which only lr of a group can be", hd_front_text(f, n->span));
        return bad;
    case N_NAME: return find_name(f, scope, n, &v) ? v : hd_unknown(f, scope, n);
    case N_LIST: return eval_list(f, scope, n->n, n->kids);
    case N_BINARY: return eval_binary(f, scope, n);
    case N_UNARY: return eval_unary(f, scope, n);
    case N_SELECT: return eval_select(f, scope, n);
    case N_CALL: return eval_call(f, scope, n);
    case N_DOT: return eval_dot(f, scope, n);
    case N_TEXT: return hd_val_word(f, n->text);
    case N_INDEX: return hd_sequence_index(f, scope, n);
    default: HD_BUG("node kind %d is not an expression", (int)n->kind);
    }
}

Val hd_lower_expr(Front *f, Instance *scope, const Node *n) {
    if (!hd_front_enter(f, n->span)) return bad;
    Val v = eval(f, scope, n);
    hd_front_leave(f);
    return v;
}

// --- statements

static const char *let_path(Front *f, const char *outer, const char *name) {
    return strcmp(outer, "root") ? hd_internf(f->cx, "%s.%s", outer, name) : name;
}

static bool bind_several(Front *f, const Node *let, Val v) {
    Frame *frame = f->frame;
    if (v.kind != VAL_LIST || v.n != let->n) {
        if (v.kind != VAL_BAD) hd_front_error(f, let->span, "%d names are given %s", let->n, hd_val_text(f, v));
        v = bad;
    }
    bool ok = v.kind != VAL_BAD;
    for (int k = 0; k < let->n; k++) {
        Val one = ok ? v.list[k] : bad;
        ok &= bind_local(f, frame->instance, let->kids[k], one);
        Op *def = one.kind == VAL_TENSOR ? one.tensor->def : NULL;
        if (def && def->loc.path == frame->path) def->loc.path = let_path(f, frame->path, let->kids[k]->name);
    }
    return ok;
}

static bool run_let(Front *f, const Node *let) {
    Frame *frame = f->frame;
    if (let->n > 1) return bind_several(f, let, hd_lower_expr(f, frame->instance, let->a));
    const char *outer = frame->path;
    frame->path = let_path(f, outer, let->kids[0]->name);
    Val v = hd_lower_expr(f, frame->instance, let->a);
    frame->path = outer;
    return bind_local(f, frame->instance, let->kids[0], v) && v.kind != VAL_BAD;
}

static Flow run_when(Front *f, const Node *n, Val *result) {
    bool truth;
    if (!hd_val_truth(f, n->a->span, hd_lower_expr(f, f->frame->instance, n->a), &truth)) return FAILED;
    const Node *branch = truth ? n->b : n->c;
    if (!branch) return NEXT;
    const int outer = f->frame->locals.list.n;
    Flow flow = run_block(f, branch, result);
    hd_bindings_cut(f->scratch, &f->frame->locals, outer);
    return flow;
}

// The values of a return; those with a name are further results of the loss.
static Val run_return(Front *f, const Node *s) {
    int n = 0; // without a name
    bool ok = true;
    while (n < s->n && s->kids[n]->kind != N_NAMED) n++;
    if (!n)
        return hd_front_bad(f, s->span, "the first value that '%s' returns has no name: write 'return loss, %s = ...;'",
                            f->frame->fn->name, s->kids[0]->name);
    Val v = n == 1 ? hd_lower_expr(f, f->frame->instance, s->kids[0])
                   : eval_list(f, f->frame->instance, n, s->kids);
    for (int k = n; k < s->n && ok; k++) ok = hd_lower_result(f, s->kids[k]);
    return ok ? v : bad;
}

// A failed statement does not end the block: the next ones may have errors of their own.
static Flow run_block(Front *f, const Node *block, Val *result) {
    Flow worst = NEXT;
    if (!hd_front_enter(f, block->span)) return FAILED;
    for (int k = 0; k < block->n && !f->stop; k++) {
        const Node *s = block->kids[k];
        Flow flow = NEXT;
        if (!f->frame->caller) f->unwind = false;
        if (s->kind == N_LET) {
            flow = run_let(f, s) ? NEXT : FAILED;
        } else if (s->kind == N_UPDATE) {
            flow = hd_lower_update(f, s) ? NEXT : FAILED;
        } else if (s->kind == N_WHEN) {
            flow = run_when(f, s, result);
        } else {
            *result = run_return(f, s);
            flow = result->kind == VAL_BAD ? FAILED : RETURNED;
            if (k + 1 < block->n)
                hd_front_error(f, block->kids[k + 1]->span, "this comes after 'return' and is never reached");
            hd_front_leave(f);
            return worst == FAILED ? FAILED : flow;
        }
        if (flow == RETURNED && worst == NEXT) {
            hd_front_leave(f);
            return RETURNED;
        }
        if (flow == FAILED) worst = FAILED;
    }
    hd_front_leave(f);
    return f->stop ? FAILED : worst;
}

Val hd_lower_call(Front *f, const Node *fn, const Val *args) { return invoke(f, NULL, fn, fn->span, args); }

Val hd_lower_call_of_model(Front *f, const Node *fn, const Val *args) {
    return invoke(f, f->root, fn, fn->span, args);
}

// --- the loss

Val hd_lower_argument(Front *f, const Node *formal, const char *of) {
    if (!formal->b)
        return hd_front_bad(f, formal->span, "argument '%s' of '%s' needs a type, such as i32[batch, seq]",
                            formal->name, of);
    DType dt = TY_F32;
    if (formal->b->name && (!hd_dtype_parse(formal->b->name, &dt) || (dt != TY_F32 && dt != TY_I32)))
        return hd_front_bad(f, formal->b->span, "an argument of '%s' is f32 or i32, not '%s'; files of other types are "
                            "read as one of them", of, formal->b->name);
    const Type *t = hd_lower_type(f, f->root, formal->b->a, dt, "an argument");
    return t ? (Val){.kind = VAL_TENSOR, .tensor = hd_arg_add(f->func, t, formal->name)} : bad;
}

bool hd_lower_loss(Front *f) {
    const Member *m = hd_find_member(f->root, hd_intern(f->cx, "loss"));
    if (!m || m->decl->kind != N_FN)
        return hd_front_error(f, f->model->span, "model %s has no function 'loss'", f->model->name);
    f->func = hd_func_add(f->module, "loss", false);
    hd_set_kind(f->cx, &f->func->attrs, KIND_LOSS);
    f->func->span = m->decl->span;
    const Node *formals = m->decl->c;
    Val *args = HD_NEWN(f->arena, Val, formals->n + 1);
    bool ok = true;
    for (int k = 0; k < formals->n; k++) {
        args[k] = hd_lower_argument(f, formals->kids[k], "loss");
        ok &= args[k].kind != VAL_BAD;
    }
    f->loss = m->decl;
    Val v = ok ? hd_lower_call_of_model(f, m->decl, args) : bad;
    if (v.kind == VAL_BAD) return false;
    if (v.kind != VAL_TENSOR || v.tensor->type != hd_type(f->cx, TY_F32, 0, NULL))
        return hd_front_error(f, m->decl->span, "'loss' must return a scalar f32, not %s%s", hd_val_text(f, v),
                              v.kind == VAL_LIST ? "; a further result has a name: 'return loss, accuracy = a;'" : "");
    hd_append(f->func, hd_lower_results(f, v.tensor));
    hd_renumber(f->func);
    return true;
}

bool hd_lower_constant(Front *f, const char *name, const Node **fn, Val *v) {
    const Member *m = hd_find_member(f->root, hd_intern(f->cx, name));
    if (!m || m->decl->kind != N_FN) return false;
    *fn = m->decl;
    if (m->decl->c->n) *v = hd_front_bad(f, m->decl->span, "function '%s' of the model takes no arguments", name);
    else *v = invoke(f, f->root, m->decl, m->decl->span, NULL);
    return v->kind != VAL_BAD;
}
