// The optimizers, in the language itself, and how one becomes the kernel that `update` runs (ir/optimizer.h). A
// function says what happens to one element and gives the new weights and states. An argument with a default is a
// state, which begins as 0, or with per_row(0) has a number for each row; any other one that is no number of every
// update is a setting, train.optimizer.NAME. Settings are constant ops, so that what is computed of
// them is rounded to f32 op by op.
#include "frontend/model/sema.h"
#include "frontend/syntax/parser.h"
#include "ir/optimizer.h"

#define ADAFACTOR_STEP /* for estimates v of the squares of gradients, at step t */                                   \
    "  let size = max(sqrt(whole_mean(weights * weights)), eps2);\n"                                                 \
    "  let direction = gradient / sqrt(max(v, eps1 * eps1));\n"                                                      \
    "  let longer = max(sqrt(whole_mean(direction * direction)) / d, 1);\n"                                          \
    "  return weights - lr * decay * weights - size * min(lr, 1 / sqrt(t)) / longer * direction, "
static const char texts[] =
    "fn adamw(gradient, weights, lr, decay, correction1, correction2, beta1, beta2, eps, moment1 = 0, moment2 = 0) {\n"
    "  let m = beta1 * moment1 + (1 - beta1) * gradient;\n"
    "  let v = beta2 * moment2 + (1 - beta2) * gradient * gradient;\n"
    "  let direction = m / correction1 / (sqrt(v / correction2) + eps);\n"
    "  return weights - lr * (direction + decay * weights), m, v;\n"
    "}\n"
    "fn adam(gradient, weights, lr, decay, correction1, correction2, beta1, beta2, eps, moment1 = 0, moment2 = 0) {\n"
    "  let g = gradient + decay * weights;\n"
    "  let m = beta1 * moment1 + (1 - beta1) * g;\n"
    "  let v = beta2 * moment2 + (1 - beta2) * g * g;\n"
    "  return weights - lr * (m / correction1 / (sqrt(v / correction2) + eps)), m, v;\n"
    "}\n"
    "fn sgd(gradient, weights, lr, decay, momentum, nesterov, velocity = 0) {\n"
    "  let g = gradient + decay * weights;\n"
    "  let v = momentum * velocity + g;\n"
    "  return weights - lr * where(nesterov, g + momentum * v, v), v;\n"
    "}\n"
    "fn lion(gradient, weights, lr, decay, beta1, beta2, moment1 = 0) {\n"
    "  let direction = sign(beta1 * moment1 + (1 - beta1) * gradient);\n"
    "  let m = beta2 * moment1 + (1 - beta2) * gradient;\n"
    "  return weights - lr * (direction + decay * weights), m;\n"
    "}\n"
    "fn muon(gradient, weights, lr, decay, momentum, nesterov, moment1 = 0) {\n"
    "  let m = momentum * moment1 + (1 - momentum) * gradient;\n"
    "  let ahead = momentum * m + (1 - momentum) * gradient;\n"
    "  return weights - lr * (orthogonalize(where(nesterov, ahead, m)) + decay * weights), m;\n"
    "}\n"
    "fn adafactor(gradient, weights, lr, decay, beta2_decay, eps1, eps2, d, row = per_row(0), column = per_column(0),\n"
    "             step = per_whole(0)) {\n"
    "  let t = step + 1;\n"
    "  let share = pow(t, beta2_decay);\n"
    "  let r = row + share * (row_mean(gradient * gradient) - row);\n"
    "  let c = column + share * (column_mean(gradient * gradient) - column);\n"
    "  let v = r * c / max(whole_mean(r), eps1);\n"
    ADAFACTOR_STEP "r, c, t;\n"
    "}\n"
    "fn adafactor_vector(gradient, weights, lr, decay, beta2_decay, eps1, eps2, d, variance = 0,\n"
    "                    step = per_whole(0)) {\n"
    "  let t = step + 1;\n"
    "  let v = variance + pow(t, beta2_decay) * (gradient * gradient - variance);\n"
    ADAFACTOR_STEP "v, t;\n"
    "}\n";
// Of groups: those of matrices, and of parameters with fewer axes.
static const struct { const char *name, *other; } of_groups[] = {{"muon", NULL}, {"adafactor", "adafactor_vector"}};
static const struct { const char *name, *along; } means[] = {
    {"row_mean", "row"}, {"column_mean", "column"}, {"whole_mean", "whole"}};

bool hd_is_own_optimizer(const char *name) {
    for (size_t i = 0; i < sizeof of_groups / sizeof *of_groups; i++)
        if (!strcmp(of_groups[i].name, name)) return true;
    return false;
}

static double setting_of(const Front *f, const char *name) {
    if (!f->own) return hd_settings_number(f, name);
    const struct { const char *name; double is; } own[] = {
        {"momentum", f->own->momentum}, {"nesterov", f->own->nesterov}, {"beta2_decay", f->own->beta2_decay},
        {"eps1", f->own->eps1},         {"eps2", f->own->eps2},         {"d", f->own->d}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(own[i].name, name)) return own[i].is;
    HD_BUG("no setting %s of an optimizer of groups", name);
}

static int number_of(const char *name) { // OPT_STATE: it is none of every update's
    int i = 0;
    while (i < OPT_STATE && strcmp(hd_optimizer_argument(i), name) != 0) i++;
    return i;
}

// train.precision.master = kahan: weights of 8 bits of precision, and what they lack as one more state (Kahan's
// summation). The parts of a number are Veltkamp's: a product by 2^16 + 1 and two differences leave its upper 8 bits.
static bool compensates(const Front *f) { return !f->own && !strcmp(hd_settings_word(f, A_MASTER), "kahan"); }

static Value *upper_part(Front *f, Span s, Value *v) {
    Value *const factor = hd_emit_const(f, s, 0x1p16 + 1, v->type);
    Value *const wide = hd_emit(f, s, OP_MUL, 2, (Value *[]){v, factor}, NULL, NULL);
    Value *const lower = hd_emit(f, s, OP_SUB, 2, (Value *[]){wide, v}, NULL, NULL);
    return hd_emit(f, s, OP_SUB, 2, (Value *[]){wide, lower}, NULL, NULL);
}

// The weights in full become both parts. Result: how many results there are now.
static int part(Front *f, Span s, int n, Value **out) {
    if (!compensates(f)) return n;
    Value *const weights = out[0];
    out[0] = upper_part(f, s, weights);
    out[n] = hd_emit(f, s, OP_SUB, 2, (Value *[]){weights, out[0]}, NULL, NULL);
    return n + 1;
}

// The kernel's arguments and the constants of the settings, for the function's arguments.
static void bind(Front *f, const Node *fn, Val *args) {
    const Type *number = hd_type(f->cx, TY_F32, 0, NULL);
    Value *given[OPT_STATE];
    int weights = 0; // the argument
    for (int i = 0; i < OPT_STATE; i++) given[i] = hd_arg_add(f->func, number, hd_optimizer_argument(i));
    for (int k = 0; k < fn->c->n; k++) {
        const Node *formal = fn->c->kids[k];
        const int i = number_of(formal->name);
        Value *v = i < OPT_STATE ? given[i]
                   : formal->a   ? hd_arg_add(f->func, number, formal->name)
                                 : hd_emit_const(f, fn->span, setting_of(f, formal->name), number);
        if (i == OPT_WEIGHTS) weights = k;
        args[k] = (Val){.kind = VAL_TENSOR, .tensor = v};
    }
    if (!compensates(f)) return;
    Value *const lacks = hd_arg_add(f->func, number, HD_COMPENSATION);
    args[weights].tensor = hd_emit(f, fn->span, OP_ADD, 2, (Value *[]){given[OPT_WEIGHTS], lacks}, NULL, NULL);
}

bool hd_optimizer_takes(const Front *f, const char *setting) {
    for (int k = 0; k < f->optimizer->c->n; k++)
        if (!strcmp(f->optimizer->c->kids[k]->name, setting)) return true;
    return false;
}

static bool skips_steps(const Front *f) {
    return !strcmp(hd_settings_word(f, A_ON_NAN), "skip") || hd_settings_above(f, A_SKIP_LOSS_Z) ||
           hd_settings_above(f, A_SKIP_NORM_Z);
}

static Value *mean_along(Front *f, Span s, Value *v, const char *along) {
    Attrs as = {0};
    hd_set_word(f->cx, &as, A_ALONG, hd_intern(f->cx, along));
    return hd_emit(f, s, OP_LINE_MEAN, 1, &v, &as, NULL);
}

// train.on_nan = skip, skip_loss_z, skip_norm_z: where the gradient is NaN, as in every element of a step that is
// skipped, weights and states stay.
void hd_optimizer_keep(Front *f, Span s, int n, Value **out) {
    if (!skips_steps(f)) return;
    Value *const gradient = f->func->args[OPT_GRADIENT];
    Value *nan = hd_emit(f, s, OP_SUB, 2, (Value *[]){gradient, gradient}, NULL, NULL);
    if (hd_has_lines(f->func)) nan = mean_along(f, s, nan, "whole");
    for (int k = 0; k < n; k++) {
        Value *const old = f->func->args[k ? OPT_STATE + k - 1 : OPT_WEIGHTS];
        out[k] = hd_emit(f, s, OP_WHERE, 3, (Value *[]){nan, old, out[k]}, NULL, NULL);
    }
}

// train.optimizer.ema: one more state, the average of the weights, which moves towards them by the share 1 - ema.
// Result: how many there are now.
static int follow(Front *f, Span s, int n, Value **out) {
    const double kept = hd_settings_number(f, "ema");
    const Type *number = hd_type(f->cx, TY_F32, 0, NULL);
    if (kept == 0) return n;
    Value *const average = hd_arg_add(f->func, number, HD_AVERAGE);
    Value *const ahead = hd_emit(f, s, OP_SUB, 2, (Value *[]){out[0], average}, NULL, NULL);
    Value *const share = hd_emit_const(f, s, 1 - kept, number);
    Value *const step = hd_emit(f, s, OP_MUL, 2, (Value *[]){share, ahead}, NULL, NULL);
    out[n] = hd_emit(f, s, OP_ADD, 2, (Value *[]){average, step}, NULL, NULL);
    return n + 1;
}

static const Node *text_of(const Front *f, const char *name) {
    const Node *file = hd_parse_source(f->cx, PARSE_FILE, "optimizers", texts, strlen(texts), 1);
    for (int k = 0; file && k < file->n; k++)
        if (!strcmp(file->kids[k]->name, name)) return file->kids[k];
    HD_BUG("frontend/builtins/optimizers.c has no optimizer %s", name);
}

// What has a number of each state, where one is not of each element.
static void set_pers(Front *f, const Node *fn) {
    const char *pers[HD_MAX_STATES];
    bool any = false;
    for (int i = OPT_STATE; i < f->func->n_args; i++) {
        const Node *formal = NULL;
        for (int k = 0; k < fn->c->n; k++)
            if (!strcmp(fn->c->kids[k]->name, f->func->args[i]->name)) formal = fn->c->kids[k];
        const bool line = formal && formal->a && formal->a->kind == N_CALL;
        pers[i - OPT_STATE] = hd_intern(f->cx, line ? formal->a->a->name + strlen("per_") : "element");
        any |= line;
    }
    if (any) hd_set_words(f->cx, &f->func->attrs, A_PER, f->func->n_args - OPT_STATE, pers);
}

static Func *lower_text(Front *f, const Node *fn) {
    Func *const outer = f->func, *k = hd_func_add(f->module, hd_free_name(f->module, fn->name), true);
    f->func = k;
    hd_set_kind(f->cx, &k->attrs, KIND_OPTIMIZER);
    Val *args = HD_NEWN(f->arena, Val, fn->c->n + 1);
    Frame frame = {.fn = fn, .call = fn->span, .path = "root"}, *const caller = f->frame;
    f->frame = &frame;
    bind(f, fn, args);
    const Val v = hd_lower_call(f, fn, args);
    Value *out[2 + HD_MAX_STATES];
    int n = v.kind == VAL_LIST ? v.n : 1;
    for (int i = 0; i < n && i <= HD_MAX_STATES; i++) out[i] = v.kind == VAL_LIST ? v.list[i].tensor : v.tensor;
    if (v.kind != VAL_BAD) {
        n = follow(f, fn->span, part(f, fn->span, n, out), out);
        hd_optimizer_keep(f, fn->span, n, out);
    }
    f->frame = caller;
    set_pers(f, fn);
    hd_append(k, hd_op_new(k, OP_RETURN, n, out));
    for (Op *o = k->first; o; o = o->next) o->loc = (Loc){0}, o->span = (Span){0};
    hd_renumber(k);
    if (v.kind == VAL_BAD || hd_optimizer_wrong(k))
        HD_BUG("the optimizer %s in frontend/builtins/optimizers.c does not give the weights and its states", fn->name);
    f->func = outer;
    return k;
}

bool hd_lower_optimizer(Front *f) {
    f->optimizer = text_of(f, hd_settings_word(f, A_OPTIMIZER));
    if (!hd_settings_optimizer(f)) return false;
    lower_text(f, f->optimizer);
    return true;
}

// --- of a group

Val hd_lower_own_call(Front *f, Instance *scope, const Node *call) {
    const char *along = NULL;
    for (size_t i = 0; i < sizeof means / sizeof *means; i++)
        if (!strcmp(call->a->name, means[i].name)) along = means[i].along;
    if (!along && strcmp(call->a->name, "orthogonalize") != 0) return (Val){0};
    Val v = hd_lower_expr(f, scope, call->kids[0]);
    Attrs as = {0};
    hd_set_word(f->cx, &as, A_OUT, hd_intern(f->cx, f->own->precision));
    hd_set_word(f->cx, &as, A_RATE_FOR, hd_intern(f->cx, f->own->rate_for));
    v.tensor = along ? mean_along(f, call->span, v.tensor, along)
                     : hd_emit(f, call->span, OP_ORTHOGONALIZE, 1, &v.tensor, &as, NULL);
    return v;
}

Func *hd_lower_own_optimizer(Front *f, const char *name, int rank, const OwnOptimizer *own) {
    size_t i = 0;
    while (strcmp(of_groups[i].name, name) != 0) i++;
    const char *text = rank == 2 ? name : rank < 2 ? of_groups[i].other : NULL;
    if (!text) return NULL;
    f->own = own;
    Func *k = lower_text(f, text_of(f, text));
    f->own = NULL;
    return hd_share_kernel(f, k);
}
