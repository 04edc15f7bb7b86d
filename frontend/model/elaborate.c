// Makes the tree of module instances: arguments, parameters (as `param` symbols in the order of declaration) and
// members. A module sees its own arguments and those of the declarations around it; a module inside itself is an error.
#include "frontend/model/sema.h"
#include "ir/mesh.h"

// --- names

Val hd_find_arg(Front *f, const Instance *i, const char *name, bool *found) {
    *found = true;
    for (; i; i = i->lexical) {
        const Binding *b = hd_bindings_find(&i->args, name);
        if (b) return b->value;
    }
    const Binding *constant = hd_bindings_find(&f->constants, name);
    if (constant) return constant->value;
    if (f->batch && !strcmp(name, "batch")) return hd_val_int(f->batch);
    *found = false;
    return (Val){0};
}

Member *hd_find_member(const Instance *i, const char *name) {
    const int k = hd_name_at(&i->member_names, name);
    return k < 0 ? NULL : &i->members.at[k];
}

// The declaration of a module as seen from `i`, and the instance that contains it.
static const Node *find_module(const Front *f, Instance *i, const char *name, Instance **lexical) {
    for (*lexical = i; *lexical; *lexical = (*lexical)->lexical) {
        const Member *m = hd_find_member(*lexical, name);
        if (m && m->decl->kind == N_MODULE) return m->decl;
    }
    return hd_find_item(f, N_MODULE, name);
}

static void add_modules(Front *f, const Node *file, Names *names) {
    for (int i = 0; i < file->n; i++)
        if (file->kids[i]->kind == N_MODULE) hd_push(f->scratch, names, file->kids[i]->name);
}

static void unknown_module(Front *f, const Instance *from, const Node *use) {
    Names names = {0};
    ArenaMark mark = hd_arena_mark(f->scratch);
    for (const Instance *i = from; i; i = i->lexical)
        for (int k = 0; k < i->members.n; k++)
            if (i->members.at[k].decl->kind == N_MODULE) hd_push(f->scratch, &names, i->members.at[k].name);
    add_modules(f, f->user, &names);
    add_modules(f, f->prelude, &names);
    hd_front_error(f, use->span, "no module '%s' here%s (there are: %s)", use->text,
                   hd_suggest_value(f, use->text, &names), hd_list_names(f, &names));
    hd_arena_rewind(f->scratch, mark);
}

static const char *join(Front *f, const char *path, const char *name) {
    return path[0] ? hd_internf(f->cx, "%s.%s", path, name) : hd_intern(f->cx, name);
}

// --- declarations of one instance

static bool reserved(const Instance *i, const Node *decl) {
    static const char *const names[] = {"root", "state", "target"}; // the others are keywords
    for (size_t k = 0; k < sizeof names / sizeof *names && !i->path[0]; k++)
        if (!strcmp(decl->name, names[k])) return true;
    return false;
}

static bool declare(Front *f, Instance *i, const Node *decl) {
    const Member *old = hd_find_member(i, decl->name);
    if (old) {
        hd_front_error(f, decl->span, "'%s' is declared twice in %s", decl->name, i->decl->name);
        hd_note(f->cx, old->decl->span, "first here");
        return false;
    }
    if (reserved(i, decl) && decl->kind != N_MODULE)
        return hd_front_error(f, decl->span, "'%s' cannot be the name of a member of the model: the compiler uses it",
                              decl->name);
    Member m = {.name = decl->name, .decl = decl};
    if (decl->kind == N_FN) m.value = (Val){.kind = VAL_FN, .instance = i, .fn = decl};
    hd_push(f->arena, &i->members, m);
    hd_name_add(f->arena, &i->member_names, m.name);
    return true;
}

// Enters every member's name before any is made, so that the order of declarations is free.
static bool declare_all(Front *f, Instance *i, const Node *list) {
    bool ok = true, truth = false;
    for (int k = 0; k < list->n && !f->stop; k++) {
        const Node *n = list->kids[k];
        if (n->kind != N_WHEN) {
            ok &= declare(f, i, n);
            continue;
        }
        const Node *branch = NULL;
        if (!hd_val_truth(f, n->a->span, hd_lower_expr(f, i, n->a), &truth)) ok = false;
        else branch = truth ? n->b : n->c;
        if (branch) ok &= declare_all(f, i, branch);
    }
    return ok;
}

// --- parameters

// The words that may follow the initialiser of a parameter, after its name in files.
static bool set_marks(Front *f, Symbol *s, const Node *decl) {
    bool decay = s->type->rank >= 2;
    for (int k = 0; k < decl->n; k++) {
        const char *mark = decl->kids[k]->name;
        const bool turned = !strcmp(mark, "transposed"), frozen = !strcmp(mark, "frozen");
        if (!turned && !frozen && strcmp(mark, "decay") && strcmp(mark, "no_decay"))
            return hd_front_error(f, decl->kids[k]->span,
                                  "a parameter is marked 'decay', 'no_decay', 'transposed' or 'frozen', not '%s'",
                                  mark);
        if (turned && s->type->rank != 2)
            return hd_front_error(f, decl->kids[k]->span,
                                  "'transposed' is for a parameter of two axes, not of %d: its file has them the other "
                                  "way round", s->type->rank);
        if (turned) hd_set_flag(f->cx, &s->attrs, A_TRANSPOSED);
        else if (frozen) hd_set_flag(f->cx, &s->attrs, A_FROZEN);
        else decay = !strcmp(mark, "decay");
    }
    if (decay) hd_set_flag(f->cx, &s->attrs, A_DECAY);
    return true;
}

// The name that `as` gives to a member of `i`, or that follows from the name of `i`; NULL where neither has any.
// `number`: of the member, or of `i` for one that is not repeated. false after reporting.
static bool file_name(Front *f, const Instance *i, const Node *as, const char *member, int number, const char **name) {
    *name = i->as ? hd_sprintf(f->arena, "%s.%s", i->as, member) : NULL;
    if (!as) return true;
    const char *mark = strstr(as->text, "{i}");
    if (!*as->text) return hd_front_error(f, as->span, "the name in files is empty");
    if (mark && number < 0)
        return hd_front_error(f, as->span, "{i} is the number of a repeated module, and no module around '%s' is one",
                              member);
    *name = mark ? hd_sprintf(f->arena, "%.*s%d%s", (int)(mark - as->text), as->text, number, mark + 3) : as->text;
    return true;
}

// Parameter `s` will be the next of the list. false after reporting an earlier one that has this name.
static bool take_one_name(Front *f, const Symbol *s, const char *name, Span span) {
    const char *key = hd_intern(f->cx, name);
    const int k = hd_ptr_get(&f->params_in_files, key);
    if (k >= 0)
        return hd_front_error(f, span, "parameters %s and %s have one name in files, \"%s\"", f->params.at[k]->name,
                              s->name, name);
    hd_ptr_set(f->arena, &f->params_in_files, key, f->params.n);
    return true;
}

// A name with {n} is one for each number of the first axis.
static bool take_file_name(Front *f, const Symbol *s, const char *name, Span span) {
    const char *mark = strstr(name, "{n}");
    if (!mark) return take_one_name(f, s, name, span);
    if (s->type->rank < 2 || s->type->dim[0] > MAX_INSTANCES)
        return hd_front_error(f, span, "{n} numbers the first axis of a parameter of at least two, of at most %d, and "
                              "@%s is %s", MAX_INSTANCES, s->name, hd_type_text(f->cx, s->type));
    if (hd_has(&s->attrs, A_TRANSPOSED))
        return hd_front_error(f, span, "'transposed' is for one tensor, and {n} makes several of @%s", s->name);
    for (int64_t n = 0; n < s->type->dim[0]; n++) {
        const char *one = hd_sprintf(f->arena, "%.*s%lld%s", (int)(mark - name), name, (long long)n, mark + 3);
        if (!take_one_name(f, s, one, span)) return false;
    }
    return true;
}

static bool set_file_name(Front *f, const Instance *i, Symbol *s, const Node *decl) {
    const char *name;
    if (!file_name(f, i, decl->c, decl->name, i->number, &name)) return false;
    if (!take_file_name(f, s, name ? name : s->name, decl->c ? decl->c->span : decl->span)) return false;
    if (name) hd_set_word(f->cx, &s->attrs, A_AS, name);
    return true;
}

// The dimension that `size over AXIS` splits: with several ranks along the axis each has an equal part of it.
static bool set_over(Front *f, Instance *i, Symbol *s, const Node *shape) {
    int64_t dims[N_AXES], size;
    Axes over = 0, of;
    for (int k = 0; k < shape->n; k++) {
        const Node *d = shape->kids[k];
        if (!hd_lower_size(f, i, d, "a dimension of a parameter", &size, &of)) return false;
        if (over & of)
            return hd_front_error(f, d->span, "parameter '%s' is split over %s twice", s->name,
                                  hd_axes_text(f->arena, over & of));
        over |= of;
        for (int a = 0; a < N_AXES; a++)
            if (of >> a & 1) dims[a] = k;
    }
    int n = 0;
    for (int a = 0; a < N_AXES; a++)
        if (over >> a & 1) dims[n++] = dims[a];
    if (!over) return true;
    hd_set_axes(f->cx, &s->attrs, A_OVER, over);
    hd_set_ints(f->cx, &s->attrs, A_DIMS, n, dims);
    return true;
}

// A buffer is the symbol of a parameter whose kernel hd_lower_update will say.
static bool make_param(Front *f, Instance *i, Member *m) {
    const Node *decl = m->decl;
    const bool buffer = decl->kind == N_BUFFER;
    const char *what = buffer ? "buffer" : "parameter";
    const Type *t = hd_lower_type(f, i, decl->a, TY_F32, buffer ? "a buffer" : "a parameter");
    if (!t) return false;
    if (!t->rank) return hd_front_error(f, decl->span, "%s '%s' needs at least one axis: write [1]", what, decl->name);
    Symbol *s = hd_symbol_add(f->module, SYM_PARAM, join(f, i->path, decl->name), t);
    if (!s)
        // members have distinct, unreserved names
        HD_BUG("the name of parameter %s is taken", join(f, i->path, decl->name));
    if (!hd_set_init(f, i, s, decl->b) || (!buffer && !set_marks(f, s, decl)) || !set_file_name(f, i, s, decl))
        return false;
    if (!set_over(f, i, s, decl->a)) return false;
    if (buffer && hd_has(&s->attrs, A_OVER))
        return hd_front_error(f, decl->span, "buffer '%s' cannot be split over an axis: every rank has all of it",
                              decl->name);
    hd_set_int(f->cx, &s->attrs, A_INDEX, f->params.n);
    s->loc = hd_front_loc(f, i->path[0] ? i->path : "root", decl->span);
    s->span = hd_front_site(f, decl->span);
    m->param = s;
    hd_push(f->arena, &f->params, s);
    return true;
}

// --- members

static bool make_instance(Front *f, Instance *i);

static void add_instance(Front *f, Instance *i) {
    const int number = f->instances.n;
    int type = hd_ptr_get(&f->type_numbers, i->decl->name);
    if (type < 0) {
        hd_ptr_set(f->arena, &f->type_numbers, i->decl->name, type = f->types.n);
        hd_push(f->arena, &f->types, (Instances){0});
    }
    hd_push(f->arena, &f->types.at[type], i);
    hd_push(f->arena, &f->instances, i);
    // every so often, for the error where memory runs out
    if (number >= 256 && !(number & (number - 1))) hd_memory_used_by("making %d modules, now %s,", number, i->path);
}

// An argument as written where the instance is declared, with the index of `repeat` among the names.
static Val given_arg(Front *f, Instance *from, const RepeatIndex *index, const Node *arg) {
    const int n = from->args.list.n;
    const RepeatIndex *outer = f->index;
    f->index = index;
    if (index) hd_bindings_add(f->arena, &from->args, index->binding);
    Val v = hd_lower_given(f, from, arg);
    hd_bindings_cut(f->arena, &from->args, n);
    f->index = outer;
    return v;
}

static bool bind_args(Front *f, Instance *i, const Node *decl, Instance *from, const Node *use,
                      const RepeatIndex *index) {
    const Node *formals = decl->c;
    const Node **slots = HD_NEWN(f->arena, const Node *, formals->n + 1);
    if (!hd_bind_declared(f, use->span, hd_sprintf(f->arena, "module %s", decl->name), formals, use->n, use->kids,
                          slots))
        return false;
    for (int k = 0; k < formals->n; k++) {
        Val v = slots[k] ? given_arg(f, from, index, slots[k]) : hd_lower_expr(f, i, formals->kids[k]->a);
        if (v.kind == VAL_BAD) return false;
        if (!hd_val_is_constant(v))
            return hd_front_error(f, slots[k] ? slots[k]->span : formals->kids[k]->span,
                                  "argument '%s' of module %s must be a number, text or a list of these, not %s",
                                  formals->kids[k]->name, decl->name, hd_val_text(f, v));
        Binding b = {formals->kids[k]->name, v, formals->kids[k]->span};
        hd_bindings_add(f->arena, &i->args, b);
    }
    return true;
}

static bool contains_itself(Front *f, const Instance *parent, const Node *decl, const Node *use) {
    const Instance *outer = parent;
    while (outer && outer->decl != decl) outer = outer->parent;
    if (!outer) return false;
    const char *chain = decl->name;
    for (const Instance *i = parent; i != outer->parent; i = i->parent)
        chain = hd_sprintf(f->arena, "%s -> %s", i->decl->name, chain);
    hd_front_error(f, use->span, "module %s contains itself: %s", decl->name, chain);
    return true;
}

// `number`: among repeated ones, or -1. `index`: what the arguments see of it, or NULL.
static Instance *make_member(Front *f, Instance *parent, const Node *use, const char *path, int number,
                             const RepeatIndex *index) {
    Instance *lexical;
    const Node *decl = find_module(f, parent, use->text, &lexical);
    if (!decl) {
        unknown_module(f, parent, use);
        return NULL;
    }
    if (contains_itself(f, parent, decl, use)) return NULL;
    int depth = 0;
    for (const Instance *i = parent; i; i = i->parent) depth++;
    if (depth > MAX_MODULE_DEPTH) {
        hd_front_error(f, use->span, "modules nest more than %d deep", MAX_MODULE_DEPTH);
        return NULL;
    }
    if (f->instances.n >= MAX_INSTANCES) {
        hd_front_error(f, use->span, "the model has more than %d modules at %s: repeat fewer", MAX_INSTANCES, path);
        return NULL;
    }
    Instance *i = HD_NEW(f->arena, Instance);
    *i = (Instance){.path = path, .decl = decl, .lexical = lexical, .parent = parent,
                    .number = number < 0 ? parent->number : number};
    const char *member = path + (*parent->path ? strlen(parent->path) + 1 : 0);
    if (!file_name(f, parent, use->b, member, i->number, &i->as)) return NULL;
    if (use->b && number >= 0 && !strstr(use->b->text, "{i}")) i->as = hd_sprintf(f->arena, "%s.%d", i->as, number);
    add_instance(f, i);
    Span outer = f->use;
    if (hd_front_in_user(f, use->span)) f->use = use->span;
    bool ok = bind_args(f, i, decl, parent, use, index) && make_instance(f, i);
    f->use = outer;
    return ok ? i : NULL;
}

static bool repeat_count(Front *f, Instance *parent, const Node *count, int64_t *n) {
    if (!hd_lower_int(f, parent, count, "a repeat count", n)) return false;
    const bool of_list = *n == 0 && count->kind == N_CALL && count->n == 1; // size(list)
    return (*n >= 1 && *n <= MAX_INSTANCES) ||
           hd_front_error(f, count->span, "a repeat count must be 1 to %d, not %lld%s", MAX_INSTANCES, (long long)*n,
                          of_list ? hd_sprintf(f->arena, ": '%s' is empty", hd_front_text(f, count->kids[0]->span))
                                  : "");
}

static bool make_repeat(Front *f, Instance *parent, Member *m) {
    const Node *use = m->decl;
    int64_t n;
    if (!repeat_count(f, parent, use->a, &n)) return false;
    if (use->c && hd_bindings_find(&parent->args, use->c->name))
        return hd_front_error(f, use->c->span, "the index '%s' has the name of an argument of %s: take another name",
                              use->c->name, parent->decl->name);
    Instance **list = HD_NEWN(f->arena, Instance *, n);
    for (int k = 0; k < n; k++) {
        RepeatIndex index = {.count = n};
        if (use->c) index.binding = (Binding){use->c->name, hd_val_int(k), use->c->span};
        list[k] = make_member(f, parent, use, hd_internf(f->cx, "%s.%d", join(f, parent->path, use->name), k), k,
                              use->c ? &index : NULL);
        if (!list[k]) return false; // the others would fail in the same way
    }
    m->value = (Val){.kind = VAL_REPEAT, .n = (int)n, .repeat = list};
    return true;
}

static bool distinct_args(Front *f, const Node *decl) {
    NameIndex names = {0};
    for (int k = 0; k < decl->c->n; k++) {
        const Node *arg = decl->c->kids[k];
        if (hd_name_at(&names, arg->name) >= 0)
            return hd_front_error(f, arg->span, "argument '%s' of %s is declared twice", arg->name, decl->name);
        hd_name_add(f->scratch, &names, arg->name);
    }
    return true;
}

static bool make_instance(Front *f, Instance *i) {
    bool ok = distinct_args(f, i->decl);
    ok &= declare_all(f, i, i->decl);
    for (int k = 0; k < i->members.n && !f->stop; k++) {
        Member *m = &i->members.at[k];
        if (m->decl->kind == N_PARAM || m->decl->kind == N_BUFFER) ok &= make_param(f, i, m);
        if (m->decl->kind != N_MEMBER) continue;
        if (m->decl->a) {
            ok &= make_repeat(f, i, m);
        } else {
            Instance *made = make_member(f, i, m->decl, join(f, i->path, m->name), -1, NULL);
            if (made) m->value = (Val){.kind = VAL_INSTANCE, .instance = made};
            ok &= made != NULL;
        }
    }
    return ok;
}

// --- the model

static const char *wanted(Val standard) { // by a model argument with this default; BAD: it has none
    switch (standard.kind) {
    case VAL_INT: return "an integer";
    case VAL_TEXT: return "text";
    case VAL_LIST: return "a list, such as [1, 2]";
    case VAL_BAD: return "a number, text or a list of these";
    default: return "a number";
    }
}

static bool has_kind_of(Val v, Val standard) {
    if (standard.kind == VAL_BAD) return hd_val_is_constant(v);
    return standard.kind == VAL_FLOAT ? hd_val_is_number(v) : v.kind == standard.kind && hd_val_is_constant(v);
}

static bool set_value(Front *f, const Node *arg, const Node *set, Val standard, Val *v) {
    const Node list = {.kind = N_LIST, .span = set->a->span, .n = set->a->n, .kids = set->a->kids};
    *v = hd_lower_expr(f, NULL, set->a->n == 1 ? set->a->kids[0] : &list);
    if (v->kind == VAL_BAD) return false;
    if (!has_kind_of(*v, standard))
        return hd_front_error(f, set->a->kids[0]->span, "model argument '%s' must be %s, not %s", arg->name,
                              wanted(standard), set->a->n == 1 ? hd_val_text(f, *v) : "a list");
    if (standard.kind == VAL_FLOAT) *v = hd_val_float(hd_val_number(*v));
    return true;
}

static bool model_arg(Front *f, const Node *arg, const Node *set, Val *v) {
    if (!strcmp(arg->name, "batch"))
        return hd_front_error(f, arg->span,
                              "'batch' cannot be a model argument: it is given by the train block (train.batch)");
    Val standard = {0};
    if (arg->a) {
        standard = hd_lower_expr(f, f->root, arg->a);
        if (standard.kind == VAL_BAD) return false;
        if (!hd_val_is_constant(standard))
            return hd_front_error(f, arg->a->span, "model argument '%s' must be %s, not %s", arg->name,
                                  wanted((Val){0}), hd_val_text(f, standard));
    } else if (!set) {
        return hd_front_error(f, arg->span, "model argument '%s' has no value: write a default, or --set %s=...",
                              arg->name, arg->name);
    }
    *v = standard;
    return !set || set_value(f, arg, set, standard, v);
}

bool hd_bind_model_args(Front *f, Node *const *sets, int n_sets) {
    Instance *root = f->root = HD_NEW(f->arena, Instance);
    *root = (Instance){.path = "", .decl = f->model, .number = -1};
    add_instance(f, root);
    bool ok = true;
    NameIndex given = {0};
    for (int k = 0; k < n_sets; k++) hd_name_add(f->scratch, &given, sets[k]->name);
    for (int k = 0; k < f->model->c->n; k++) {
        const Node *arg = f->model->c->kids[k];
        Binding b = {.name = arg->name, .span = arg->span};
        const int set = hd_name_at(&given, arg->name); // the last one
        ok &= model_arg(f, arg, set < 0 ? NULL : sets[set], &b.value);
        hd_bindings_add(f->arena, &root->args, b);
    }
    const Names *names = &root->args.names.list;
    for (int k = 0; k < n_sets && !f->stop; k++) {
        // a setting of train or schedule, or an argument
        if (strchr(sets[k]->name, '.') || hd_name_at(&root->args.names, sets[k]->name) >= 0) continue;
        const char *setting = hd_setting_called(sets[k]->name), *hint = hd_suggest(f, sets[k]->name, names);
        const char *known = hd_suggest_setting(f, sets[k]->name);
        if (!*hint && !setting && known) hint = known;
        if (setting && !*hint) hint = hd_sprintf(f->arena, "; did you mean '%s'?", setting);
        ok = hd_front_error(f, sets[k]->span, "%s has no argument '%s'%s (it has: %s)", f->model->name, sets[k]->name,
                            hint, hd_list_names(f, names));
    }
    return ok;
}

bool hd_elaborate(Front *f) { return make_instance(f, f->root); }
