// Places that a schedule or train lists. See places.h.
#include "passes/analysis/places.h"
#include "passes/settings.h"
#include <stdlib.h>
#include <string.h>

static Places indexed(Places p, Arena *a) {
    if (p.paths && !p.paths->n) p.paths = NULL;
    for (int i = 0; p.paths && i < p.paths->n; i++) {
        const char *path = hd_intern(p.m->cx, p.paths->strs[i]);
        if (hd_ptr_get(&p.at, path) < 0) hd_ptr_set(a, &p.at, path, i);
    }
    if (p.paths) p.found = HD_NEWN(a, bool, p.paths->n);
    return p;
}

static Places listed(Module *m, const char *config, AttrId list, Arena *a) {
    const Attr *paths = hd_attr(hd_settings(m, config), list);
    return indexed((Places){.m = m, .list = list, .config = config, .paths = paths}, a);
}

Places hd_places(Module *m, AttrId list, Arena *a) { return listed(m, "schedule", list, a); }

Places hd_train_places(Module *m, AttrId list, Arena *a) { return listed(m, "train", list, a); }

Places hd_places_of(Module *m, int n, const char *const *paths, Arena *a) {
    Attr *list = HD_NEW(a, Attr);
    *list = (Attr){.n = n, .strs = paths};
    return indexed((Places){.m = m, .paths = list}, a);
}

int hd_place_of(Places *p, const char *path, int *widest) {
    int innermost = 0, components = 0;
    if (!p->paths || !path) return 0;
    for (size_t n = strcspn(path, "."); n; n = path[n] ? n + 1 + strcspn(path + n + 1, ".") : 0) {
        components++;
        int i = hd_ptr_get(&p->at, hd_intern_part(p->m->cx, path, n));
        if (i < 0) continue;
        p->found[i] = true;
        if (widest && (!innermost || (p->border && p->border[i]))) *widest = i;
        innermost = components;
    }
    return innermost;
}

// The innermost of `at` around a path, as a part of it; "": none is.
static const char *innermost_of(Ctx *cx, const PtrMap *at, const char *path) {
    const char *found = "";
    for (size_t n = strcspn(path, "."); n; n = path[n] ? n + 1 + strcspn(path + n + 1, ".") : 0) {
        const char *prefix = hd_intern_part(cx, path, n);
        if (hd_ptr_get(at, prefix) >= 0) found = prefix;
    }
    return found;
}

static PtrMap numbered(Ctx *cx, const Attr *paths, Arena *a) {
    PtrMap at = {0};
    for (int i = 0; paths && i < paths->n; i++) hd_ptr_set(a, &at, hd_intern(cx, paths->strs[i]), i);
    return at;
}

// Of the instance of a repeated module and the border around a place the inner one.
const char *const *hd_places_borders(Places *p, Arena *a) {
    const int n = p->paths ? p->paths->n : 0;
    const PtrMap at = numbered(p->m->cx, hd_attr(hd_settings(p->m, "schedule"), A_BORDERS), a);
    const char **borders = HD_NEWN(a, const char *, n + 1);
    p->border = HD_NEWN(a, bool, n + 1);
    for (int i = 0; i < n; i++) {
        const char *path = p->paths->strs[i], *repeated = hd_instance_of_path(p->m->cx, path);
        const char *listed = innermost_of(p->m->cx, &at, path);
        borders[i] = strlen(listed) > strlen(repeated) ? listed : repeated;
        p->border[i] = !strcmp(borders[i], path);
    }
    return borders;
}

static Span config_span(const Places *p) { return hd_symbol_find(p->m, p->config)->span; }

bool hd_places_found(const Places *p, const char *nothing) {
    bool all = true;
    for (int i = 0; p->paths && i < p->paths->n; i++) {
        if (p->found[hd_ptr_get(&p->at, hd_intern(p->m->cx, p->paths->strs[i]))]) continue;
        hd_error(p->m->cx, config_span(p), "%s %s: %s", hd_attr_info(p->list)->text, p->paths->strs[i], nothing);
        all = false;
    }
    return all;
}

bool hd_places_differ(const Places *p, const Places *q) {
    bool differ = true;
    for (int i = 0; p->paths && i < p->paths->n; i++) {
        if (hd_ptr_get(&q->at, hd_intern(p->m->cx, p->paths->strs[i])) < 0) continue;
        hd_error(p->m->cx, config_span(p), "%s is in two lists, %s and %s", p->paths->strs[i],
                 hd_attr_info(p->list)->text, hd_attr_info(q->list)->text);
        differ = false;
    }
    return differ;
}

const char *hd_instance_of_path(Ctx *cx, const char *path) {
    size_t end = 0;
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        if (n && strspn(p, "0123456789") == n) end = (size_t)(p - path) + n;
        p += n + (p[n] == '.');
    }
    return hd_intern_part(cx, path, end);
}

const char *hd_place_pattern(Ctx *cx, const char *path) {
    char on_stack[256], *pattern = on_stack, *end; // a pattern is no longer than its path
    if (strlen(path) >= sizeof on_stack) pattern = hd_alloc(cx->arena, strlen(path) + 1);
    end = pattern;
    for (const char *p = path; *p;) {
        const size_t n = strcspn(p, ".");
        const bool number = n && strspn(p, "0123456789") == n;
        memcpy(end, number ? "*" : p, number ? 1 : n);
        end += number ? 1 : n;
        p += n;
        if (*p) *end++ = *p++;
    }
    *end = 0;
    return hd_intern(cx, pattern);
}

// --- layers

Layers hd_layers(const Module *m, Arena *a) {
    const Attrs *schedule = hd_settings(m, "schedule");
    Layers l = {.cx = m->cx, .paths = hd_attr(schedule, A_LAYERS), .types = hd_attr(schedule, A_LAYER_TYPES)};
    l.at = numbered(m->cx, l.paths, a);
    return l;
}

const char *hd_layer_of(const Layers *l, const char *path) {
    const char *repeated = hd_instance_of_path(l->cx, path);
    return *repeated || !l->paths ? repeated : innermost_of(l->cx, &l->at, path);
}

const char *hd_layer_kind(const Layers *l, const char *layer) {
    const int i = hd_ptr_get(&l->at, layer);
    return i >= 0 && l->types && i < l->types->n ? hd_intern(l->cx, l->types->strs[i]) : hd_place_pattern(l->cx, layer);
}

int hd_layer_number(const Layers *l, const char *layer) {
    const char *dot = strrchr(layer, '.');
    const int i = hd_ptr_get(&l->at, layer);
    return i >= 0 ? i : dot ? atoi(dot + 1) : -1; // blocks.3
}
