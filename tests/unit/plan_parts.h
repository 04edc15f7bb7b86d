// Mutations of which buffers a bucket or an update names.
#ifndef TESTS_UNIT_PLAN_PARTS_H
#define TESTS_UNIT_PLAN_PARTS_H
#include "tests/unit/plan_addresses.h"

// A buffer that a bucket or an update names: by an attribute, or as number `at` of its list.
typedef struct { AttrId id; int at; } Part;
static const Part kept_parts[] = {{A_GRADIENT, 0},       {A_GRADIENT_SUM, 0}, {A_STATES, 0}, {A_STATES, 1},
                                  {A_MASTER_WEIGHTS, 0}, {A_WEIGHTS, 0},      {A_NEXT, 0},   {A_LEVELS, 0},
                                  {A_LEVELS, 1}};
enum { N_KEPT = sizeof kept_parts / sizeof *kept_parts };

static const char *part_name(const Attrs *as, Part p) { // NULL: there is none
    const char *const *names;
    const Attr *a = hd_attr(as, p.id);
    return a && p.at < hd_names(a, &names) ? names[p.at] : NULL;
}

static void set_part(Ctx *cx, Attrs *as, Part p, const char *name) { // NULL: it goes
    const char *list[8], *const *names;
    const int n = hd_names(hd_attr(as, p.id), &names);
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (i != p.at || name) list[kept++] = i == p.at ? name : names[i];
    if (!kept) hd_unset(as, p.id);
    else if (p.id == A_STATES || p.id == A_LEVELS) hd_set_words(cx, as, p.id, kept, list);
    else hd_set_word(cx, as, p.id, list[0]);
}

static bool swap_words(Ctx *cx, Attrs *as, const Part *parts, uint64_t n, uint64_t random) {
    const Part p = parts[random % n], q = parts[random / n % n];
    const char *a = part_name(as, p), *b = part_name(as, q);
    if (!a || !b || a == b) return false;
    set_part(cx, as, p, b);
    set_part(cx, as, q, a);
    return true;
}

static bool other_part(Module *m, Attrs *as, Part p, uint64_t random) {
    const char *is = part_name(as, p),
               *name = is ? other_name(m, hd_symbol_find(m, is), random, false, false) : NULL;
    if (name) set_part(m->cx, as, p, name);
    return name != NULL;
}
#endif
