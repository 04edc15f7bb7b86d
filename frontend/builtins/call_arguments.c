// Matches the arguments of a call to the formals of what is called: positional ones in order, then `name = value`.
#include "frontend/model/sema.h"

static const char *signature(Front *f, int n, const Formal *formals) {
    enum { MOST = 100 };
    Out o = hd_out(f->arena);
    for (int i = 0; i < n && i < MOST; i++)
        hd_printf(&o, "%s%s%s", i ? ", " : "", formals[i].name, formals[i].optional ? "?" : "");
    if (n > MOST) hd_printf(&o, " and %d more", n - MOST);
    return n ? o.text : "no arguments";
}

static bool bind_named(Front *f, const char *what, const NameIndex *names, const Formal *formals, const Node *arg,
                       const Node **slots) {
    const int k = hd_name_at(names, arg->name);
    if (k < 0)
        return hd_front_error(f, arg->span, "%s has no argument '%s'; it takes %s%s", what, arg->name,
                              signature(f, names->list.n, formals), hd_suggest_argument(f, arg->name, &names->list));
    if (slots[k]) return hd_front_error(f, arg->span, "argument '%s' of %s is given twice", arg->name, what);
    slots[k] = arg->a;
    return true;
}

bool hd_bind(Front *f, Span call, const char *what, int n, const Formal *formals, int n_args, Node *const *args,
             const Node **slots) {
    bool ok = true, named = false;
    NameIndex names = {0}; // of the formals, from the first argument with a name
    for (int k = 0; k < n; k++) slots[k] = NULL;
    for (int i = 0; i < n_args; i++) {
        if (args[i]->kind == N_NAMED) {
            for (int k = 0; k < n && !named; k++) hd_name_add(f->scratch, &names, hd_intern(f->cx, formals[k].name));
            named = true;
            if (!bind_named(f, what, &names, formals, args[i], slots)) ok = false;
        } else if (named) {
            return hd_front_error(f, args[i]->span, "an argument without a name follows one with a name");
        } else if (i >= n) {
            return hd_front_error(f, args[i]->span, "%s takes at most %d argument%s (%s), not %d", what, n,
                                  n == 1 ? "" : "s", signature(f, n, formals), n_args);
        } else {
            slots[i] = args[i];
        }
    }
    for (int k = 0; ok && k < n; k++) {
        if (slots[k] || formals[k].optional) continue;
        ok = hd_front_error(f, call, "%s needs argument '%s'; it takes %s", what, formals[k].name,
                            signature(f, n, formals));
    }
    return ok;
}

bool hd_bind_declared(Front *f, Span call, const char *what, const Node *formals, int n_args, Node *const *args,
                      const Node **slots) {
    Formal *list = HD_NEWN(f->scratch, Formal, formals->n + 1);
    for (int i = 0; i < formals->n; i++) list[i] = (Formal){formals->kids[i]->name, formals->kids[i]->a != NULL};
    return hd_bind(f, call, what, formals->n, list, n_args, args, slots);
}
