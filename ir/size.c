// How many operations a module has, and where most of them are.
#include "ir/ir.h"

int64_t hd_count_ops(const Module *m) {
    int64_t n = 0;
    for (const Func *f = m->funcs; f; f = f->next) n += f->n_ops;
    return n;
}

typedef struct { const char *path; size_t len; int64_t n; } Member; // a path up to one of its points

// The member directly inside `outer` that has the most operations.
// A model of thousands of members has no member that grew: the first hundred are enough to find it.
static Member largest_in(const Module *m, Member outer) {
    enum { MOST = 100 };
    Member list[MOST];
    int n = 0, best = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o; o = o->next) {
            const char *path = o->loc.path ? o->loc.path : "";
            if (strncmp(path, outer.path, outer.len) != 0 || (outer.len && path[outer.len] != '.')) continue;
            const size_t from = outer.len ? outer.len + 1 : 0, len = from + strcspn(path + from, ".");
            int i = 0;
            while (i < n && (list[i].len != len || memcmp(list[i].path, path, len) != 0)) i++;
            if (i == MOST || !len) continue;
            if (i == n) list[n++] = (Member){path, len, 0};
            list[i].n++;
            if (list[i].n > list[best].n) best = i;
        }
    return n ? list[best] : (Member){0};
}

// The innermost member that has most of what is in the member around it: `net.blocks` of a model whose blocks grew.
const char *hd_grown(const Module *m, Arena *a) {
    Member at = largest_in(m, (Member){.path = ""}), inner = at;
    while (inner.n) {
        at = inner;
        inner = largest_in(m, at);
        if (inner.n * 2 <= at.n) break;
    }
    return at.n ? hd_sprintf(a, ", %lld of them in %.*s", (long long)at.n, (int)at.len, at.path) : "";
}

// Sums of sizes are 64-bit numbers in every pass: what is far beyond any machine is refused before they overflow.
static bool check_bytes(const Module *m, const char *who) {
    const double most = 0x1p60;
    double total = 0;
    const Value *largest = NULL;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            for (int i = 0; i < o->n_out; i++) {
                total += (double)hd_type_bytes(o->out[i]->type);
                if (!largest || hd_type_bytes(o->out[i]->type) > hd_type_bytes(largest->type)) largest = o->out[i];
            }
    if (total <= most) return true;
    return hd_error(m->cx, largest ? largest->def->span : (Span){0},
                    "%s makes values of %.3g bytes together, and 2^60 are the most: make the model smaller%s%s", who,
                    total, largest ? "; the largest is " : "", largest ? hd_type_text(m->cx, largest->type) : "");
}

bool hd_check_ops(const Module *m, const char *who) {
    const int64_t n = hd_count_ops(m), most = m->cx->max_ops;
    if (n <= most) return check_bytes(m, who);
    return hd_error(m->cx, (Span){0},
                    "%s makes %lld operations%s, and %lld are the most: make the model smaller, or allow more with "
                    "--max-ops=N",
                    who, (long long)n, hd_grown(m, m->cx->arena), (long long)most);
}
