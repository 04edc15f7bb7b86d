// `fn logits(tokens: i32[batch, seq])` of a model becomes @logits where the schedule says `logits = on` or `whole`. A
// program writes it with --logits and samples from it. It runs on one sequence, so `batch` is 1 in it and its logits
// take little memory beside those of a batch. It is no part of training: the loss, its gradients and their bits stay as
// they are.
//
//   func @logits(%tokens: i32[1,128]) -> f32[1,128,256] with {kind = logits}
#include "frontend/model/sema.h"
#include <string.h>

static bool has_no_logits(Front *f, const Func *loss) {
    return hd_front_error(f, f->model->span,
                          "schedule.logits = on, and model %s has no function 'logits': add 'fn logits(%s: i32[batch, "
                          "seq]) { return ...; }' beside 'loss', which returns what its cross_entropy takes, as "
                          "f32[batch, seq, vocab]; a helper of that name needs another one",
                          f->model->name, loss->n_args ? loss->args[0]->name : "tokens");
}

// The first argument of the loss, for one sequence: a program feeds both from the same data.
static bool check_argument(Front *f, const Node *fn, const Func *loss, const Value *tokens) {
    const Type *of = loss->n_args ? loss->args[0]->type : NULL, *t = tokens->type;
    if (!of || of->dtype != TY_I32 || of->rank != 2)
        return hd_front_error(f, fn->span,
                              "schedule.logits = on is for models of text, whose 'loss' takes i32[batch, seq] first, "
                              "not %s: leave it off",
                              of ? hd_type_text(f->cx, of) : "nothing");
    if (tokens->name == loss->args[0]->name && t->dtype == TY_I32 && t->rank == 2 && t->dim[0] == 1 &&
        t->dim[1] == of->dim[1])
        return true;
    return hd_front_error(f, fn->span, "'logits' takes the first argument of 'loss' and no other: %s: i32[batch, seq]",
                          loss->args[0]->name);
}

static bool check_result(Front *f, const Node *fn, const Value *tokens, Val v) {
    const Type *t = v.kind == VAL_TENSOR ? v.tensor->type : NULL;
    const int64_t seq = tokens->type->dim[1];
    if (t && t->dtype == TY_F32 && t->rank == 3 && t->dim[0] == 1 && t->dim[1] == seq) return true;
    return hd_front_error(f, fn->span,
                          "'logits' must return f32[batch, seq, vocab], a row of logits for each token, not %s (batch "
                          "is 1 in it)",
                          hd_val_text(f, v));
}

static bool lower_logits(Front *f, const Node *fn, const Func *loss) {
    const Node *formals = fn->c;
    Val args[1];
    if (formals->n != 1) return check_argument(f, fn, loss, &(Value){.type = hd_type(f->cx, TY_F32, 0, NULL)});
    args[0] = hd_lower_argument(f, formals->kids[0], "logits");
    if (args[0].kind == VAL_BAD || !check_argument(f, fn, loss, args[0].tensor)) return false;
    Val v = hd_lower_call_of_model(f, fn, args);
    if (v.kind == VAL_BAD || !check_result(f, fn, args[0].tensor, v)) return false;
    hd_append(f->func, hd_op_new(f->func, OP_RETURN, 1, &v.tensor));
    hd_renumber(f->func);
    return true;
}

bool hd_lower_logits(Front *f) {
    if (!strcmp(hd_word(&hd_config(f->module, "schedule")->attrs, A_LOGITS, "off"), "off")) return true;
    const Member *m = hd_find_member(f->root, hd_intern(f->cx, "logits"));
    if (!m || m->decl->kind != N_FN || !m->decl->c->n || !m->decl->c->kids[0]->b) return has_no_logits(f, f->func);
    return hd_lower_apart(f, m->decl, "logits", KIND_LOGITS, lower_logits);
}
