// Which capture region an action is for. See region_keys.h.
#include "passes/schedule/region_keys.h"
#include "passes/settings.h"
#include <string.h>

// The units, as places: the model itself is none of them, whole or in pieces (@root.head).
static Places find_units(Module *m, Arena *a) {
    VEC(const char *) names = {0};
    for (const Symbol *s = m->symbols; s; s = s->next) {
        const char *unit = s->kind == SYM_BUCKET ? hd_word(&s->attrs, A_UNIT, "root") : "root";
        bool is_root = !strncmp(unit, "root", 4) && (!unit[4] || unit[4] == '.');
        if (!is_root) hd_push(a, &names, hd_intern(m->cx, unit));
    }
    return hd_places_of(m, names.n, names.at, a);
}

RegionKeys hd_region_keys(Module *m, Arena *a) {
    const char *graph = hd_word(hd_settings(m, "schedule"), A_GRAPH, "none");
    RegionKeys k = {.m = m, .by_unit = !strcmp(graph, "unit")};
    k.parts = k.by_unit || !strcmp(graph, "places");
    k.places = hd_places(m, A_CAPTURE, a);
    k.units = find_units(m, a);
    return k;
}

static const char *beginning(Ctx *cx, const char *path, int components) {
    size_t n = 0;
    while (components--) n += (n > 0) + strcspn(path + n + (n > 0), ".");
    return hd_internf(cx, "%.*s", (int)n, path);
}

RegionKey hd_region_key(RegionKeys *k, const Op *o) {
    RegionKey key = {.bwd = hd_has(&o->attrs, A_BWD)};
    int i = 0, depth = hd_place_of(k->by_unit ? &k->units : &k->places, o->loc.path, &i);
    if (k->by_unit) key.place = depth ? beginning(k->m->cx, o->loc.path, depth) : "root";
    else if (depth) key.place = k->places.paths->strs[i]; // the outermost place: an inner one is part of its region
    return key;
}

bool hd_same_region(RegionKey a, RegionKey b) {
    return a.place && b.place && a.bwd == b.bwd && !strcmp(a.place, b.place);
}
