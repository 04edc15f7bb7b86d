// Functions of the model that `schedule.functions` names: each becomes a function of kind call, which a program runs
// over data with --run=NAME. As @logits it runs on one row, so `batch` is 1 in it, and it is no part of training. Its
// arguments are rows of data as those of the loss are; one without a type is the argument of the loss of that name.
//
//   func @hidden(%tokens: i32[1,128]) -> f32[1,128,64] with {kind = call, bounds = [256]}
#include "frontend/model/sema.h"
#include <string.h>

static bool is_candidate(const Member *m) {
    return m->decl->kind == N_FN && m->decl->c->n && strcmp(m->name, "loss") != 0;
}

static bool unknown(Front *f, const Node *n, const char *name) {
    Names names = {0};
    for (int k = 0; k < f->root->members.n; k++)
        if (is_candidate(&f->root->members.at[k])) hd_push(f->scratch, &names, f->root->members.at[k].name);
    if (!strcmp(name, "loss"))
        return hd_front_error(f, n->span, "schedule.functions: training and --eval run 'loss'; a function that returns "
                                          "a part of it is one to name");
    if (!names.n)
        return hd_front_error(f, n->span, "schedule.functions: model %s has no function '%s', and none but 'loss' that "
                                          "takes data: write one beside it, such as fn %s(tokens) { return ...; }",
                              f->model->name, name, name);
    return hd_front_error(f, n->span, "schedule.functions: model %s has no function '%s' that takes data; it has %s%s",
                          f->model->name, name, hd_list_names(f, &names), hd_suggest(f, name, &names));
}

// An argument of the loss, for one row.
static Val argument_of_loss(Front *f, const Node *formal, const Func *loss, const char *of) {
    for (int k = 0; k < loss->n_args; k++) {
        const Type *t = loss->args[k]->type;
        int64_t dim[HD_MAX_DIMS] = {1};
        if (loss->args[k]->name != formal->name || !t->rank) continue;
        for (int i = 1; i < t->rank; i++) dim[i] = t->dim[i];
        return (Val){.kind = VAL_TENSOR,
                     .tensor = hd_arg_add(f->func, hd_type(f->cx, t->dtype, t->rank, dim), formal->name)};
    }
    return hd_front_bad(f, formal->span, "argument '%s' of '%s' is no argument of 'loss': give it a type, such as "
                                         "f32[batch, 8], for data of its own", formal->name, of);
}

static Val argument(Front *f, const Node *formal, const Func *loss, const char *of) {
    if (!formal->b) return argument_of_loss(f, formal, loss, of);
    Val v = hd_lower_argument(f, formal, of);
    const Type *t = v.kind == VAL_TENSOR ? v.tensor->type : NULL;
    if (!t || (t->rank && t->dim[0] == 1)) return v;
    return hd_front_bad(f, formal->span, "argument '%s' of '%s' is %s, and data has one row for each of a batch: its "
                                         "first dimension must be batch (which is 1 in it)",
                        formal->name, of, hd_type_text(f->cx, t));
}

static bool lower_call(Front *f, const Node *fn, const Func *loss) {
    const Node *formals = fn->c;
    Val *args = HD_NEWN(f->arena, Val, formals->n);
    for (int k = 0; k < formals->n; k++) {
        args[k] = argument(f, formals->kids[k], loss, fn->name);
        if (args[k].kind == VAL_BAD) return false;
    }
    Val v = hd_lower_call_of_model(f, fn, args);
    const Type *t = v.kind == VAL_TENSOR ? v.tensor->type : NULL;
    if (v.kind == VAL_BAD) return false;
    if (!t || t->dtype != TY_F32 || (t->rank && t->dim[0] != 1))
        return hd_front_error(f, fn->span, "'%s' must return f32[batch, ...], values for each row of data, or one "
                                           "number for it, not %s (batch is 1 in it)", fn->name, hd_val_text(f, v));
    hd_append(f->func, hd_op_new(f->func, OP_RETURN, 1, &v.tensor));
    hd_renumber(f->func);
    hd_facts_bounds(f);
    return true;
}

bool hd_lower_apart(Front *f, const Node *fn, const char *name, KindId kind, LowerApart *lower) {
    Func *const loss = f->func;
    const int64_t batch = f->batch;
    f->func = hd_func_add(f->module, hd_free_name(f->module, name), false);
    hd_set_kind(f->cx, &f->func->attrs, kind);
    f->func->span = fn->span;
    f->batch = 1;
    const bool ok = lower(f, fn, loss);
    f->batch = batch;
    f->func = loss;
    return ok;
}

static bool call(Front *f, const Node *n, NameIndex *names) {
    const char *name = hd_intern(f->cx, hd_pattern(f, n));
    const Member *m = hd_find_member(f->root, name);
    if (!m || !is_candidate(m)) return unknown(f, n, name);
    if (hd_name_at(names, name) >= 0) return true; // it is there already
    hd_name_add(f->arena, names, name);
    return hd_lower_apart(f, m->decl, name, KIND_CALL, lower_call);
}

bool hd_lower_calls(Front *f) {
    const Paths *list = hd_settings_paths(f, A_FUNCTIONS);
    NameIndex names = {0};
    for (int k = 0; k < list->n; k++)
        if (!call(f, list->at[k], &names)) return false;
    if (names.list.n)
        hd_set_words(f->cx, &hd_config(f->module, "schedule")->attrs, A_FUNCTIONS, names.list.n, names.list.at);
    return true;
}
