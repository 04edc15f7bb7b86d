// Constants of a file: `let name = expression;` beside its modules and functions. All files see them, after every other
// meaning that a name has.
#include "frontend/model/sema.h"

// In the order of declaration, those of an imported file first: each may use those before it.
bool hd_constants(Front *f) {
    bool ok = true;
    for (int k = 0; k < f->user->n && !f->stop; k++) {
        const Node *n = f->user->kids[k];
        if (n->kind != N_LET) continue;
        Binding b = {.name = n->name, .span = n->span};
        if (!strcmp(n->name, "batch"))
            ok = hd_front_error(f, n->span,
                                "'batch' cannot be a constant: it is given by the train block (train.batch)");
        if (hd_builtin_exists(n->name)) // a text of the compiler may call it
            ok = hd_front_error(f, n->span, "'%s' cannot be a constant: it is a built-in function", n->name);
        b.value = hd_lower_expr(f, NULL, n->a);
        if (b.value.kind != VAL_BAD && !hd_val_is_constant(b.value))
            b.value = hd_front_bad(f, n->a->span, "constant '%s' must be a number, text or a list of these, not %s",
                                   n->name, hd_val_text(f, b.value));
        ok &= b.value.kind != VAL_BAD;
        hd_bindings_add(f->arena, &f->constants, b);
    }
    return ok;
}
