// Further results of the loss, which a run logs beside it: return loss, accuracy = a. Nothing is differentiated but the
// loss.
#include "frontend/model/sema.h"

// The names that a line of the log has anyway (runtime/log/log.c); with `val_` before it, a name is that of a
// validation.
static const char *const taken[] = {"step", "loss", "grad_norm", "skipped",     "lr",   "seconds", "tokens",
                                    "tokens_per_second", "mfu",  "host_memory", "time", "ranks", "dropped", "fp8"};

static bool is_free(Front *f, const Node *n) {
    bool free = strncmp(n->name, "val_", 4) != 0;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) free &= strcmp(n->name, taken[i]) != 0;
    if (!free)
        return hd_front_error(f, n->span, "the log of a run has '%s' already: name this result otherwise", n->name);
    for (int i = 0; i < f->results.n; i++) {
        if (strcmp(f->results.at[i].name, n->name) != 0) continue;
        hd_front_error(f, n->span, "two results have the name '%s'", n->name);
        hd_note(f->cx, f->results.at[i].span, "first here");
        return false;
    }
    return true;
}

bool hd_lower_result(Front *f, const Node *n) {
    if (n->kind != N_NAMED)
        return hd_front_error(f, n->span, "this comes after a result with a name, and has none: write 'name = value'");
    if (f->frame->fn != f->loss || f->frame->caller)
        return hd_front_error(f, n->span, "'%s' returns '%s = ...': only 'loss' of the model, as a run calls it, "
                              "returns results with names", f->frame->fn->name, n->name);
    if (f->results.n == MAX_RESULTS)
        return hd_front_error(f, n->span, "'%s' is one result too many: a loss has at most %d beside itself", n->name,
                              MAX_RESULTS);
    if (!is_free(f, n)) return false;
    const Val v = hd_lower_expr(f, f->frame->instance, n->a);
    if (v.kind == VAL_BAD) return false;
    if (v.kind != VAL_TENSOR || v.tensor->type != hd_type(f->cx, TY_F32, 0, NULL))
        return hd_front_error(f, n->span, "result '%s' must be a scalar f32, not %s", n->name, hd_val_text(f, v));
    const Result r = {n->name, n->span, v.tensor};
    hd_push(f->arena, &f->results, r);
    return true;
}

Op *hd_lower_results(Front *f, Value *loss) {
    const int n = f->results.n;
    Value **values = HD_NEWN(f->arena, Value *, n + 1);
    const char **names = HD_NEWN(f->arena, const char *, n + 1);
    values[0] = loss;
    for (int i = 0; i < n; i++) values[1 + i] = f->results.at[i].value, names[i] = f->results.at[i].name;
    Op *ret = hd_op_new(f->func, OP_RETURN, 1 + n, values);
    if (n) hd_set_words(f->cx, &ret->attrs, A_NAMES, n, names);
    return ret;
}
