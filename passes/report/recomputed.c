// Values recomputed for the backward pass, in both forms of the report: the bytes that it saves, and its cost.
#include "passes/report/facts.h"
#include "passes/analysis/places.h"
#include "ir/base/ints.h"
#include <stdlib.h>

typedef struct {
    const Symbol **at; // by bytes, the most first
    int n;
    int64_t bytes;
    double seconds;
} Given;

static int64_t bytes_of(const Symbol *s) { return hd_int(&s->attrs, A_BYTES, 0); }

static int compare_bytes(const void *x, const void *y) {
    const Symbol *a = *(Symbol *const *)x, *b = *(Symbol *const *)y;
    if (bytes_of(a) != bytes_of(b)) return bytes_of(a) < bytes_of(b) ? 1 : -1;
    return a->id - b->id;
}

static Given find(const Facts *r, Arena *a) {
    const Module *m = r->at ? r->at->module : NULL;
    Given g = {.at = HD_NEWN(a, const Symbol *, m ? m->n_symbols + 1 : 1)};
    for (const Symbol *s = m ? m->symbols : NULL; s; s = s->next) {
        if (s->kind != SYM_RECOMPUTED) continue;
        g.at[g.n++] = s;
        g.bytes += bytes_of(s);
        g.seconds += hd_float(&s->attrs, A_SECONDS, 0);
    }
    qsort(g.at, (size_t)g.n, sizeof *g.at, compare_bytes);
    return g;
}

static const char *place(const Facts *r, const Symbol *s) {
    if (!s->loc.path) return "";
    return hd_int(&s->attrs, A_COUNT, 1) > 1 ? hd_place_pattern(r->at->module->cx, s->loc.path) : s->loc.path;
}

void hd_report_recomputed(const Facts *r, Out *o) {
    Arena *a = hd_arena_new();
    const Given g = find(r, a);
    if (g.n) hd_put_json(o, "  \"recomputed\": {\"bytes\": %lld", ll(g.bytes));
    if (g.n && r->device) hd_put_json(o, ", \"seconds\": %.9f", g.seconds);
    for (int i = 0; i < g.n; i++) {
        const Symbol *s = g.at[i];
        hd_puts(o, i ? ",\n" : ", \"values\": [\n");
        hd_put_json(o, "    {\"place\": \"%s\"", place(r, s));
        hd_put_json(o, ", \"op\": \"%s\", \"count\": %lld, \"bytes\": %lld", hd_word(&s->attrs, A_OP, ""),
                    ll(hd_int(&s->attrs, A_COUNT, 0)), ll(bytes_of(s)));
        if (r->device) hd_put_json(o, ", \"seconds\": %.9f", hd_float(&s->attrs, A_SECONDS, 0));
        hd_puts(o, ", \"file\": ");
        hd_put_json(o, "\"%s\"", s->loc.file ? s->loc.file : "");
        hd_put_json(o, ", \"line\": %d}", s->loc.line);
    }
    if (g.n) hd_puts(o, "]},\n");
    hd_arena_free(a);
}

void hd_report_recomputed_text(const Facts *r, Out *o) {
    enum { MOST = 24 };
    Arena *a = hd_arena_new();
    const Given g = find(r, a);
    if (g.n)
        hd_show(o, "\n%20lld  bytes are computed again for the backward pass instead of waiting for it", ll(g.bytes));
    if (g.n && r->device) hd_show(o, ", in about %.3f ms", 1e3 * g.seconds);
    if (g.n) hd_show(o, "; given up:\n");
    for (int i = 0; i < g.n && i < MOST; i++) {
        const Symbol *s = g.at[i];
        hd_show(o, "%20lld  %5lld x  ", ll(bytes_of(s)), ll(hd_int(&s->attrs, A_COUNT, 0)));
        if (r->device) hd_show(o, "%8.3f ms  ", 1e3 * hd_float(&s->attrs, A_SECONDS, 0));
        hd_show(o, "%-11s  %s", hd_word(&s->attrs, A_OP, ""), place(r, s));
        if (s->loc.file) hd_show(o, "  %s:%d", s->loc.file, s->loc.line);
        hd_puts(o, "\n");
    }
    if (g.n > MOST) hd_show(o, "%20s  and %d smaller kinds\n", "", g.n - MOST);
    hd_arena_free(a);
}
