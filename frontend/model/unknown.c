// A name that means nothing where it stands, or something else than the user thinks: what the message adds.
#include "frontend/model/sema.h"

static bool declares(const Node *list, const char *name) { // in a branch of `if`, however deep
    for (int k = 0; list && k < list->n; k++) {
        const Node *n = list->kids[k];
        if (n->kind == N_WHEN ? declares(n->b, name) || declares(n->c, name) : n->name && !strcmp(n->name, name))
            return true;
    }
    return false;
}

const char *hd_other_branch(Front *f, const Instance *i, const char *name) {
    for (int k = 0; i && k < i->decl->n; k++) {
        const Node *n = i->decl->kids[k];
        if (n->kind == N_WHEN && !hd_find_member(i, name) && (declares(n->b, name) || declares(n->c, name)))
            return hd_sprintf(f->arena, "; the branch of 'if' that %s takes declares none, unlike another one of %s",
                              *i->path ? i->path : "it", i->decl->name);
    }
    return "";
}

const char *hd_hidden_builtin(Front *f, const Instance *scope, const Node *callee) {
    if (callee->kind != N_NAME || !hd_builtin_exists(callee->name)) return "";
    bool argument = false;
    for (const Instance *i = scope; i && !argument; i = i->lexical)
        argument = hd_bindings_find(&i->args, callee->name) != NULL;
    if (f->frame && hd_bindings_find(&f->frame->locals, callee->name)) argument = false;
    return hd_sprintf(f->arena, "; %s hides the function %s(...) of the language: give it another name",
                      argument ? "the argument of this name" : "this name", callee->name);
}

static void add_names(Front *f, Names *to, const Names *from) {
    for (int k = 0; k < from->n; k++) hd_push(f->scratch, to, from->at[k]);
}

static void visible_names(Front *f, const Instance *scope, Names *names) {
    if (f->frame) add_names(f, names, &f->frame->locals.names.list);
    if (f->frame && scope) add_names(f, names, &scope->member_names.list);
    for (const Instance *i = scope; i; i = i->lexical) {
        add_names(f, names, &i->args.names.list);
        for (int k = 0; f->frame && i != scope && k < i->members.n; k++)
            if (i->members.at[k].decl->kind == N_FN) hd_push(f->scratch, names, i->members.at[k].name);
    }
    for (int k = 0; f->frame && k < f->user->n; k++)
        if (f->user->kids[k]->kind == N_FN) hd_push(f->scratch, names, f->user->kids[k]->name);
    add_names(f, names, &f->constants.names.list);
    hd_push(f->scratch, names, "batch");
    hd_builtin_names(f, names);
}

Val hd_unknown(Front *f, const Instance *scope, const Node *n) {
    if (hd_builtin_exists(n->name)) return hd_front_bad(f, n->span, "'%s' is a function: call it", n->name);
    if (hd_find_item(f, N_LET, n->name))
        return hd_front_bad(f, n->span, "constant '%s' is declared after this: a constant uses those before it",
                            n->name);
    if (!f->frame && scope && hd_find_member(scope, n->name))
        return hd_front_bad(f, n->span, "'%s' is not a number known here: only arguments are", n->name);
    Names names = {0};
    ArenaMark mark = hd_arena_mark(f->scratch);
    visible_names(f, scope, &names);
    const char *other = hd_other_branch(f, scope, n->name);
    hd_front_error(f, n->span, "unknown name '%s'%s", n->name,
                   *other ? other : hd_suggest_value(f, n->name, &names));
    hd_arena_rewind(f->scratch, mark);
    return (Val){0};
}
