// The initialisers of parameters: those of runtime/inits.def, and others that the sizes of a matrix make one of them.
#include "frontend/model/sema.h"
#include <math.h>

typedef enum { NONE, SIZE, NUMBER, GAIN } Takes;

static bool init_value(Front *f, Instance *i, const Node *init, const char *what, Takes takes, double *v) {
    if (init->n != 1 || init->kids[0]->kind == N_NAMED)
        return hd_front_error(f, init->span, "%s takes one number, such as %s(%s)", what, what,
                              takes == GAIN ? "1" : "0.02");
    Val x = hd_lower_expr(f, i, init->kids[0]);
    if (x.kind == VAL_BAD) return false;
    if (!hd_val_is_number(x))
        return hd_front_error(f, init->kids[0]->span, "%s takes a number, not %s", what, hd_val_text(f, x));
    *v = hd_val_number(x);
    if (takes == NUMBER || (*v >= 0 && isfinite(*v))) return true;
    return hd_front_error(f, init->kids[0]->span, "%s takes a finite number of at least 0, not %s", what,
                          hd_val_text(f, x));
}

static const struct { const char *name, *word; Takes takes; const char *what; } inits[] = {
#define INIT(id, word, name, takes, what, ...) {name, word, takes, what},
#include "runtime/inits.def"
};
enum { INITS = sizeof inits / sizeof *inits };

// Initialisers whose number follows from the sizes of a matrix [out, in], by the rule of PyTorch's function.
static const struct { const char *name, *word; double factor; bool out; } fans[] = {
    {"xavier", "uniform", 6, true},  // xavier_uniform_: the square root of 6 / (in + out)
    {"kaiming", "normal", 2, false}, // kaiming_normal_: the square root of 2 / in
};
enum { FANS = sizeof fans / sizeof *fans };

static const char *all_inits(const Front *f) {
    Out o = hd_out(f->arena);
    for (int k = 0; k < INITS; k++) {
        hd_printf(&o, "%s%s", k ? ", " : "", inits[k].name);
        if (inits[k].takes) hd_printf(&o, "(%s)", inits[k].what);
    }
    for (int k = 0; k < FANS; k++) hd_printf(&o, "%s%s", k + 1 < FANS ? ", " : " or ", fans[k].name);
    return o.text;
}

static bool no_arguments(Front *f, const Node *init, const char *name) {
    return init->kind != N_CALL || !init->n || hd_front_error(f, init->span, "%s takes no arguments", name);
}

static bool is_matrix(Front *f, const Symbol *s, const Node *init, const char *name) {
    return s->type->rank == 2 ||
           hd_front_error(f, init->span,
                          "%s is for a matrix [out, in], and @%s has %d ax%s: give its number, such as normal(0.02)",
                          name, s->name, s->type->rank, s->type->rank == 1 ? "is" : "es");
}

static bool set_fan(Front *f, Symbol *s, const Node *init, int k) {
    if (!no_arguments(f, init, fans[k].name) || !is_matrix(f, s, init, fans[k].name)) return false;
    const double fan = (double)s->type->dim[1] + (fans[k].out ? (double)s->type->dim[0] : 0);
    hd_set_word(f->cx, &s->attrs, A_INIT, hd_intern(f->cx, fans[k].word));
    hd_set_float(f->cx, &s->attrs, A_STD, sqrt(fans[k].factor / fan));
    return true;
}

// Every rank makes all of an orthogonal matrix.
static bool is_small(Front *f, const Symbol *s, const Node *init) {
    const double a = (double)s->type->dim[0], b = (double)s->type->dim[1], work = 4 * a * b * (a < b ? a : b);
    return work <= 0x1p40 ||
           hd_front_error(f, init->span,
                          "orthogonal takes %.2g operations for %lld x %lld on every rank, and at most %.2g: use "
                          "normal(std)",
                          work, (long long)s->type->dim[0], (long long)s->type->dim[1], 0x1p40);
}

bool hd_set_init(Front *f, Instance *i, Symbol *s, const Node *init) {
    const Node *name = init->kind == N_CALL ? init->a : init;
    for (int k = 0; name->kind == N_NAME && k < FANS; k++)
        if (!strcmp(fans[k].name, name->name)) return set_fan(f, s, init, k);
    for (int k = 0; name->kind == N_NAME && k < INITS; k++) {
        if (strcmp(inits[k].name, name->name)) continue;
        const bool gain = inits[k].takes == GAIN, left_out = gain && (init->kind != N_CALL || !init->n);
        double v = 1;
        if (gain && !(is_matrix(f, s, init, inits[k].name) && is_small(f, s, init))) return false;
        if (inits[k].takes && !left_out && !init_value(f, i, init, inits[k].name, inits[k].takes, &v)) return false;
        if (!inits[k].takes && !no_arguments(f, init, inits[k].name)) return false;
        hd_set_word(f->cx, &s->attrs, A_INIT, inits[k].word);
        if (inits[k].takes) hd_set_float(f->cx, &s->attrs, A_STD, v);
        return true;
    }
    return hd_front_error(f, init->span, "an initialiser is %s", all_inits(f));
}
