// Places that a schedule lists. See places.h.
#include "passes/analysis/places.h"
#include "passes/settings.h"
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

Places hd_places(Module *m, AttrId list, Arena *a) {
    return indexed((Places){.m = m, .list = list, .paths = hd_attr(hd_settings(m, "schedule"), list)}, a);
}

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
        int i = hd_ptr_get(&p->at, hd_internf(p->m->cx, "%.*s", (int)n, path));
        if (i < 0) continue;
        p->found[i] = true;
        if (!innermost && widest) *widest = i;
        innermost = components;
    }
    return innermost;
}

static Span schedule_span(const Places *p) { return hd_symbol_find(p->m, "schedule")->span; }

bool hd_places_found(const Places *p, const char *nothing) {
    bool all = true;
    for (int i = 0; p->paths && i < p->paths->n; i++) {
        if (p->found[hd_ptr_get(&p->at, hd_intern(p->m->cx, p->paths->strs[i]))]) continue;
        hd_error(p->m->cx, schedule_span(p), "%s %s: %s", hd_attr_info(p->list)->text, p->paths->strs[i], nothing);
        all = false;
    }
    return all;
}

bool hd_places_differ(const Places *p, const Places *q) {
    bool differ = true;
    for (int i = 0; p->paths && i < p->paths->n; i++) {
        if (hd_ptr_get(&q->at, hd_intern(p->m->cx, p->paths->strs[i])) < 0) continue;
        hd_error(p->m->cx, schedule_span(p), "%s is in two lists, %s and %s", p->paths->strs[i],
                 hd_attr_info(p->list)->text, hd_attr_info(q->list)->text);
        differ = false;
    }
    return differ;
}

const char *hd_region_of_path(Ctx *cx, const char *path) {
    size_t end = 0;
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        if (n && strspn(p, "0123456789") == n) end = (size_t)(p - path) + n;
        p += n + (p[n] == '.');
    }
    return hd_internf(cx, "%.*s", (int)end, path);
}

const char *hd_place_pattern(Ctx *cx, const char *path) {
    Out o = hd_out(cx->arena);
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        if (n && strspn(p, "0123456789") == n) hd_puts(&o, "*");
        else hd_putn(&o, p, n);
        p += n;
        if (*p) hd_puts(&o, "."), p++;
    }
    return hd_intern(cx, o.text ? o.text : "");
}
