// How many operations a module has, and where most of them are.
#include "ir/ir.h"

int64_t hd_count_ops(const Module *m) {
    int64_t n = 0;
    for (const Func *f = m->funcs; f; f = f->next) n += f->n_ops;
    return n;
}

typedef struct { const char *path; size_t len; int64_t n; } Member; // a path up to its first point

// A model of thousands of members has no member that grew: the first hundred are enough to find it.
const char *hd_grown(const Module *m, Arena *a) {
    enum { MOST = 100 };
    Member list[MOST];
    int n = 0, best = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o; o = o->next) {
            const char *path = o->loc.path ? o->loc.path : "";
            const size_t len = strcspn(path, ".");
            int i = 0;
            while (i < n && (list[i].len != len || memcmp(list[i].path, path, len) != 0)) i++;
            if (i == MOST || !len) continue;
            if (i == n) list[n++] = (Member){path, len, 0};
            list[i].n++;
            if (list[i].n > list[best].n) best = i;
        }
    if (!n) return "";
    return hd_sprintf(a, ", %lld of them in %.*s", (long long)list[best].n, (int)list[best].len, list[best].path);
}

bool hd_check_ops(const Module *m, const char *who) {
    const int64_t n = hd_count_ops(m), most = m->cx->max_ops;
    if (n <= most) return true;
    return hd_error(m->cx, (Span){0},
                    "%s makes %lld operations%s, and %lld are the most: make the model smaller, or allow more with "
                    "--max-ops=N",
                    who, (long long)n, hd_grown(m, m->cx->arena), (long long)most);
}
