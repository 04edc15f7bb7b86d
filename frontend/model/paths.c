// Paths of schedules: `Block.mlp.act` starts at a module type and goes through members; it may end with the name of a
// `let`. It means that place in every instance of the type; `Block[0..3].mlp.act` in the first four of them.
#include "frontend/model/sema.h"

static void names_of_types(Front *f, Names *names) { // of the modules that have instances; the first is the model
    for (int k = 1; k < f->types.n; k++) hd_push(f->arena, names, f->types.at[k].at[0]->decl->name);
}

// Of a place: members of the model are called by its name.
static const char *as_member(Front *f, const char *name) {
    const Instance *model = f->instances.at[0];
    for (int k = 0; k < model->member_names.list.n; k++)
        if (!strcmp(model->member_names.list.at[k], name))
            return hd_sprintf(f->arena, "; did you mean '%s.%s'?", f->model->name, name);
    return NULL;
}

// Of a unit: the module of which a member of the model is an instance.
static const char *of_member(Front *f, const char *name) {
    const Member *m = hd_find_member(f->instances.at[0], hd_intern(f->cx, name));
    const Instance *i = !m ? NULL : m->value.kind == VAL_INSTANCE ? m->value.instance
                                : m->value.kind == VAL_REPEAT     ? m->value.repeat[0]
                                                                  : NULL;
    return i ? hd_sprintf(f->arena, "; '%s' is an instance of '%s': name that", name, i->decl->name) : NULL;
}

static bool find_instances(Front *f, Span s, const char *type, bool place, Instances *found) {
    const int number = hd_ptr_get(&f->type_numbers, type);
    if (number >= 0) {
        *found = f->types.at[number];
        found->cap = found->n; // what is added to it goes elsewhere
        return true;
    }
    Names names = {0};
    names_of_types(f, &names);
    const char *member = place ? as_member(f, type) : of_member(f, type);
    const char *word = place && !member ? hd_suggest_choice(type, "none") : NULL;
    if (word) member = hd_sprintf(f->arena, "; it is called '%s'", word);
    if (!member && place && (!strcmp(type, "full") || !strcmp(type, "all")))
        member = "; a list names modules, such as the one that the model repeats";
    return hd_front_error(f, s, "no module '%s' in this model%s (it has: %s)", type,
                          member ? member : hd_suggest(f, type, &names), hd_list_names(f, &names));
}

// --- units

// A module is one kind of unit, however many instances it has: naming it twice can only be a slip. Units inside units
// are ordinary.
static bool named_before(Front *f, const Paths *units, PtrMap *before, int k) {
    const char *name = units->at[k]->name;
    const int j = hd_ptr_get(before, name);
    if (j < 0) {
        hd_ptr_set(f->scratch, before, name, k);
        return false;
    }
    hd_front_error(f, units->at[k]->span, "unit '%s' is named twice", name);
    hd_note(f->cx, units->at[j]->span, "first here");
    return true;
}

// Of a unit the parameters move as one, but for those of units inside of it.
static void warn_without_parameters(Front *f, const Paths *units) {
    PtrMap owners = {0}; // declarations of the instances that are units and have parameters
    for (int k = 0; k < f->instances.n; k++) {
        const Instance *i = f->instances.at[k], *unit = i;
        bool any = false;
        for (int j = 0; j < i->members.n; j++) any |= i->members.at[j].param != NULL;
        while (unit && unit->unit != unit->path) unit = unit->parent;
        if (any && unit) hd_ptr_set(f->scratch, &owners, unit->decl->name, 1);
    }
    for (int k = 0; k < units->n; k++)
        if (hd_ptr_get(&owners, units->at[k]->name) < 0)
            hd_warning(f->cx, units->at[k]->span,
                       "schedule.fsdp.unit %s changes nothing: it has no parameters that no unit inside of it has",
                       units->at[k]->name);
}

void hd_paths_units(Front *f) {
    const Paths *units = hd_settings_units(f);
    const int errors = f->cx->diags.errors;
    PtrMap before = {0};
    for (int k = 0; k < units->n && !f->stop; k++) {
        Instances found = {0};
        const char *type = units->at[k]->kind == N_NAME ? units->at[k]->name : NULL;
        if (!type || type == f->model->name) {
            hd_front_error(f, units->at[k]->span, "a unit is the name of a module such as Block, not '%s'",
                           hd_path_text(f, units->at[k]));
            continue;
        }
        if (named_before(f, units, &before, k) || !find_instances(f, units->at[k]->span, type, false, &found)) continue;
        for (int j = 0; j < found.n; j++) found.at[j]->unit = found.at[j]->path;
    }
    for (int k = 0; k < f->instances.n; k++) { // parents come before their members
        Instance *i = f->instances.at[k];
        if (!i->unit) i->unit = i->parent ? i->parent->unit : "root";
        for (int j = 0; j < i->members.n; j++)
            if (i->members.at[j].param) hd_set_word(f->cx, &i->members.at[j].param->attrs, A_UNIT, i->unit);
    }
    if (f->cx->diags.errors == errors) warn_without_parameters(f, units);
}

// --- places

static bool has_let(const Node *block, const char *name) {
    for (int k = 0; k < block->n; k++) {
        const Node *s = block->kids[k];
        if (s->kind == N_WHEN && (has_let(s->b, name) || (s->c && has_let(s->c, name)))) return true;
        for (int j = 0; s->kind == N_LET && j < s->n; j++)
            if (s->kids[j]->name == name) return true;
    }
    return false;
}

static void add_lets(Front *f, const Node *block, Names *names) {
    for (int k = 0; k < block->n; k++) {
        const Node *s = block->kids[k];
        if (s->kind == N_WHEN) add_lets(f, s->b, names);
        if (s->kind == N_WHEN && s->c) add_lets(f, s->c, names);
        for (int j = 0; s->kind == N_LET && j < s->n; j++) hd_push(f->arena, names, s->kids[j]->name);
    }
}

// `known`: for each function seen so far, whether it has a `let` of this name.
static bool is_let(Front *f, const Instance *i, const char *name, PtrMap *known) {
    for (int k = 0; k < i->members.n; k++) {
        const Node *fn = i->members.at[k].decl;
        if (fn->kind != N_FN) continue;
        if (hd_ptr_get(known, fn) < 0) hd_ptr_set(f->scratch, known, fn, has_let(fn->a, name));
        if (hd_ptr_get(known, fn)) return true;
    }
    return false;
}

static void not_found(Front *f, const Instance *i, const Node *path) {
    Names names = {0};
    for (int k = 0; k < i->members.n; k++)
        if (i->members.at[k].decl->kind == N_MEMBER) hd_push(f->arena, &names, i->members.at[k].name);
    for (int k = 0; k < i->members.n; k++)
        if (i->members.at[k].decl->kind == N_FN) add_lets(f, i->members.at[k].decl->a, &names);
    hd_front_error(f, path->span, "'%s' matches nothing: module %s has no member or 'let' called '%s'%s (it has: %s)",
                   hd_path_text(f, path), i->decl->name, path->name, hd_suggest(f, path->name, &names),
                   hd_list_names(f, &names));
}

static void add_path(Front *f, NameIndex *paths, const char *path) {
    if (hd_name_at(paths, path) < 0) hd_name_add(f->arena, paths, path);
}

bool hd_path_index(Front *f, const Node *index, int64_t *first, int64_t *last) {
    *last = INT64_MAX;
    if (!hd_lower_int(f, f->root, index->b, "an index", first)) return false;
    if (index->c && !hd_lower_int(f, f->root, index->c, "an index", last)) return false;
    if (*first >= 0 && *first <= *last) return true;
    if (*first < 0) hd_front_error(f, index->span, "an index counts from 0, so %lld is none", (long long)*first);
    else hd_front_error(f, index->span, "the index ends before it begins: %lld..%lld", (long long)*first,
                        (long long)*last);
    return false;
}

bool hd_path_is_condition(const Node *index) {
    const Node *n = index->b;
    return n == index->c && ((n->kind == N_BINARY && n->op <= BIN_GE) || (n->kind == N_UNARY && n->op == UN_NOT));
}

static bool walk(Front *f, const Node *path, Instances *found, NameIndex *lets);

// `of[condition]`: the instances whose arguments fulfil the condition.
static bool pick_by_arguments(Front *f, const Node *path, const Instances *all, Instances *found) {
    for (int k = 0; k < all->n; k++) {
        bool truth;
        if (!hd_val_truth(f, path->b->span, hd_lower_expr(f, all->at[k], path->b), &truth)) return false;
        if (truth) hd_push(f->arena, found, all->at[k]);
    }
    if (found->n) return true;
    return hd_front_error(f, path->span,
                          "'%s' matches nothing: the arguments of %d instance%s of '%s' do not fulfil it",
                          hd_path_text(f, path), all->n, all->n == 1 ? "" : "s", hd_path_text(f, path->a));
}

// `of[first..last]`: some of the instances that `of` means, counted in the order of declaration.
static bool pick(Front *f, const Node *path, Instances *found) {
    Instances all = {0};
    int64_t first, last;
    if (!walk(f, path->a, &all, NULL)) return false;
    if (hd_path_is_condition(path)) return pick_by_arguments(f, path, &all, found);
    if (!hd_path_index(f, path, &first, &last)) return false;
    if (!path->c) last = all.n - 1;
    if (first >= all.n || last >= all.n) {
        hd_front_error(f, path->span, "'%s' goes beyond the %d instance%s of '%s', 0 to %d", hd_path_text(f, path),
                       all.n, all.n == 1 ? "" : "s", hd_path_text(f, path->a), all.n - 1);
        return false;
    }
    for (int64_t k = first; k <= last; k++) hd_push(f->arena, found, all.at[k]);
    return true;
}

// The instances that a path ends at; a `let` at its end goes to `lets`. false after reporting.
static bool walk(Front *f, const Node *path, Instances *found, NameIndex *lets) {
    if (path->kind == N_NAME) return find_instances(f, path->span, path->name, true, found);
    if (path->kind == N_INDEX) return pick(f, path, found);
    Instances outer = {0};
    if (!walk(f, path->a, &outer, NULL)) return false;
    PtrMap known = {0};
    for (int k = 0; k < outer.n; k++) {
        Instance *i = outer.at[k];
        const Member *m = hd_find_member(i, path->name);
        if (m && m->value.kind == VAL_INSTANCE) {
            hd_push(f->arena, found, m->value.instance);
        } else if (m && m->value.kind == VAL_REPEAT) {
            for (int j = 0; j < m->value.n; j++) hd_push(f->arena, found, m->value.repeat[j]);
        } else if (lets && is_let(f, i, path->name, &known)) {
            add_path(f, lets, i->path[0] ? hd_internf(f->cx, "%s.%s", i->path, path->name) : path->name);
        } else if (is_let(f, i, path->name, &known)) {
            hd_front_error(f, path->span, "'%s' is a 'let': it ends a path", hd_path_text(f, path));
            return false;
        } else {
            not_found(f, i, path);
            return false;
        }
    }
    return true;
}

// Is anything computed at this place or below it?
static bool has_ops(Front *f, const char *place) {
    for (const Op *o = f->computed.size ? NULL : f->func->first; o; o = o->next) {
        const char *path = o->loc.path;
        while (path && hd_ptr_get(&f->computed, path) < 0) { // it and the places that contain it
            hd_ptr_set(f->arena, &f->computed, path, 1);
            const char *dot = strrchr(path, '.');
            path = dot ? hd_internf(f->cx, "%.*s", (int)(dot - path), path) : NULL;
        }
    }
    return hd_ptr_get(&f->computed, place) >= 0;
}

static bool resolve(Front *f, const Node *path, NameIndex *places) {
    Instances found = {0};
    if (!walk(f, path, &found, places)) return false;
    for (int j = 0; j < found.n; j++) {
        if (found.at[j] == f->root)
            return hd_front_error(f, path->span, "'%s' is the whole model: name one of its modules",
                                  hd_path_text(f, path));
        add_path(f, places, found.at[j]->path);
    }
    return true;
}

static bool is_auto(const Node *path, AttrId list) {
    return (list == A_OFFLOAD || list == A_RECOMPUTE) && path->kind == N_NAME && !strcmp(path->name, "auto");
}

void hd_paths_places(Front *f, AttrId list, NameIndex *resolved) {
    const Paths *paths = hd_settings_paths(f, list);
    for (int k = 0; k < paths->n && !f->stop; k++) {
        if (is_auto(paths->at[k], list)) {
            if (paths->n > 1) hd_front_error(f, paths->at[k]->span, "'auto' chooses among all values: it stands alone");
            add_path(f, resolved, paths->at[k]->name);
            continue;
        }
        NameIndex places = {0};
        bool computed = false;
        if (!resolve(f, paths->at[k], &places)) continue;
        for (int j = 0; j < places.list.n; j++) {
            computed = computed || has_ops(f, places.list.at[j]);
            add_path(f, resolved, places.list.at[j]);
        }
        if (!computed)
            hd_front_error(f, paths->at[k]->span, "'%s' matches nothing: the loss computes nothing there",
                           hd_path_text(f, paths->at[k]));
    }
}

// --- borders

static int members_of(const Node *path) { // how many names follow the first
    return path->kind == N_NAME ? 0 : members_of(path->a) + (path->kind == N_DOT);
}

static bool is_repeated(const Instance *i) { // its path ends with a number
    const char *dot = strrchr(i->path, '.'), *name = dot ? dot + 1 : i->path;
    return *name && !name[strspn(name, "0123456789")];
}

static bool may_repeat(const Front *f, const Instance *i) {
    return is_repeated(i) || f->types.at[hd_ptr_get(&f->type_numbers, i->decl->name)].n > 1;
}

// The border of a place in `i` whose path began `up` members above: the first instance on the way that is repeated or
// of whose module there are others. So `Block.mlp` is cut where a block begins, and `Model.l0` at the layer.
static const Instance *border_of(const Front *f, const Instance *i, int up) {
    const Instance *border = i;
    for (; i && up >= 0; i = i->parent, up--)
        if (may_repeat(f, i)) border = i;
    return border;
}

static void add_borders(Front *f, const Instances *in, int up, NameIndex *borders) {
    for (int j = 0; j < in->n; j++) {
        const Instance *border = border_of(f, in->at[j], up);
        if (border->path[0] && !is_repeated(border)) add_path(f, borders, border->path);
    }
}

void hd_paths_borders(Front *f, NameIndex *borders) {
    const Paths *paths = hd_settings_paths(f, A_RECOMPUTE);
    for (int k = 0; k < paths->n && !f->stop && !is_auto(paths->at[k], A_RECOMPUTE); k++) {
        const Node *path = paths->at[k];
        const int up = members_of(path);
        Instances found = {0}, around = {0};
        NameIndex lets = {0};
        if (!walk(f, path, &found, &lets)) continue; // reported
        add_borders(f, &found, up, borders);
        if (lets.list.n && walk(f, path->a, &around, NULL)) add_borders(f, &around, up - 1, borders);
    }
}

// --- places in two lists

// Lists that say where a value is until the backward pass reads it. Inside a place of one list another may have a
// place: the innermost decides. The same place may be recomputed and offloaded: what recompute keeps of it waits in
// host memory. It cannot be kept and one of the others.
static const struct { AttrId list; const char *done; } choices[] = {
    {A_RECOMPUTE, "recomputed"}, {A_KEPT, "kept"}, {A_OFFLOAD, "offloaded"}};
enum { N_CHOICES = sizeof choices / sizeof *choices };

// The places of a list, each with the number of the first path that means it.
static PtrMap numbered_places(Front *f, AttrId list) {
    const Paths *paths = hd_settings_paths(f, list);
    PtrMap map = {0};
    for (int k = 0; k < paths->n && !is_auto(paths->at[k], list); k++) {
        NameIndex places = {0};
        if (!resolve(f, paths->at[k], &places)) continue; // reported
        for (int j = 0; j < places.list.n; j++)
            if (hd_ptr_get(&map, places.list.at[j]) < 0) hd_ptr_set(f->scratch, &map, places.list.at[j], k);
    }
    return map;
}

static void check_against(Front *f, int a, const PtrMap *map, int b) {
    const Paths *one = hd_settings_paths(f, choices[a].list), *two = hd_settings_paths(f, choices[b].list);
    for (int k = 0; k < two->n && !is_auto(two->at[k], choices[b].list); k++) {
        const Node *q = two->at[k];
        NameIndex places = {0};
        if (!resolve(f, q, &places)) continue; // reported
        int j = 0, at = -1;
        while (j < places.list.n && (at = hd_ptr_get(map, places.list.at[j])) < 0) j++;
        if (at < 0) continue;
        hd_front_error(f, q->span, "'%s' (%s) is both %s and %s", hd_path_text(f, q), places.list.at[j],
                       choices[a].done, choices[b].done);
        hd_note(f->cx, one->at[at]->span, "%s here", choices[a].done);
    }
}

void hd_paths_check(Front *f) {
    for (int a = 0; a + 1 < N_CHOICES; a++) {
        const PtrMap map = numbered_places(f, choices[a].list);
        for (int b = a + 1; b < N_CHOICES && map.n; b++)
            if (choices[a].list == A_KEPT || choices[b].list == A_KEPT) check_against(f, a, &map, b);
    }
}
