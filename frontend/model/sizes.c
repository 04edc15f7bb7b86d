// Integers known at compile time: the dimensions of types and of parameters, and the axes that they are split over. An
// argument of a module carries these axes with its number; arithmetic gives a number without them.
#include "frontend/model/sema.h"
#include <string.h>

static bool add_axis(Front *f, const Node *n, Axes *over) {
    const int axis = hd_axis_called(n->name);
    if (strcmp(n->text, "over") != 0)
        return hd_front_error(f, n->span, "a dimension is SIZE or SIZE over AXIS, not SIZE %s", n->text);
    if (axis == N_AXES || !(HD_OWN_AXES >> axis & 1))
        return hd_front_error(f, n->span, "a dimension can be split over %s, not over '%s'",
                              hd_axes_text(f->arena, HD_OWN_AXES), n->name);
    *over |= 1u << axis;
    return true;
}

Val hd_lower_given(Front *f, Instance *scope, const Node *n) {
    if (n->kind != N_OVER) return hd_lower_expr(f, scope, n);
    Val v = hd_val_int(0);
    return hd_lower_size(f, scope, n, "a dimension", &v.i, &v.over) ? v : (Val){0};
}

bool hd_lower_size(Front *f, Instance *scope, const Node *n, const char *what, int64_t *i, Axes *over) {
    const Node *size = n->kind == N_OVER ? n->a : n;
    Val v = hd_lower_expr(f, scope, size);
    if (v.kind == VAL_INT) {
        if (n != size && !add_axis(f, n, &v.over)) return false;
        if (over) *over = v.over;
        *i = v.i;
        return true;
    }
    if (v.kind == VAL_BAD) return false;
    if (v.inexact)
        hd_front_error(f, size->span, "%s must be an integer: %lld does not divide %lld", what, (long long)v.den,
                       (long long)v.num);
    else hd_front_error(f, size->span, "%s must be an integer, not %s", what, hd_val_text(f, v));
    return false;
}

bool hd_lower_int(Front *f, Instance *scope, const Node *n, const char *what, int64_t *i) {
    return hd_lower_size(f, scope, n, what, i, NULL);
}

const Type *hd_lower_type(Front *f, Instance *scope, const Node *dims, DType dt, const char *what) {
    int64_t dim[HD_MAX_DIMS];
    if (dims->n > HD_MAX_DIMS) {
        hd_front_error(f, dims->span, "%s has at most %d axes, not %d", what, HD_MAX_DIMS, dims->n);
        return NULL;
    }
    const char *of = hd_sprintf(f->arena, "a dimension of %s", what);
    for (int k = 0; k < dims->n; k++) {
        if (!hd_lower_size(f, scope, dims->kids[k], of, &dim[k], NULL)) return NULL;
        if (dim[k] >= 1) continue;
        hd_front_error(f, dims->kids[k]->span, "%s must be at least 1, not %lld", of, (long long)dim[k]);
        return NULL;
    }
    const Type *t = hd_type(f->cx, dt, dims->n, dim);
    if (!t) hd_front_error(f, dims->span, "%s of this shape exceeds 2^60 bytes", what);
    return t;
}
