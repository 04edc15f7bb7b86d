// offload: values that the schedule lists wait in host memory for the backward pass. A storage is copied once, however
// many views of it the backward pass reads. Copies out and back are on streams of their own:
//
//   %1 = gemm %x, %w                     %1 = gemm %x, %w
//   ...                                  %h = copy %1 {space = host, on = offload}
//   ...                                  ...
//   ...                                  fence %h                            the bytes of %1 are free from here on
//   ...                             ->   ...
//   %8 = gemm %7, %w2 {bwd}              %8 = gemm %7, %w2 {bwd}
//   ...                                  fence %8 {on = reload}              %r may come back from here on
//   ...                                  %r = copy %h {on = reload}
//   gemm %9, %1 {bwd, into = ...}        gemm %9, %r {bwd, into = ...}
//
// Which values: those of the listed places, unless a place of `keep` or `recompute` is inside that one and around the
// value; not those that the backward pass reads in the last `margin` instances of a repeated module; of the rest, in
// the order in which they are made, as many as fit into `fraction` of their bytes. When they leave and return: times.c.
#include "passes/offload/offload.h"
#include "passes/analysis/places.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include "ir/base/ints.h"
#include <string.h>

typedef struct {
    Module *m;
    PassCx *cx;
    const Attrs *settings;
    Places listed, kept, recomputed;
    Span span; // of the settings
} Request;

// blocks.3.mlp as blocks.*.mlp
static const char *pattern_of(Ctx *cx, const char *path) {
    Out o = hd_out(cx->arena);
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        if (n && strspn(p, "0123456789") == n) hd_puts(&o, "*");
        else hd_putn(&o, p, n);
        p += n;
        if (*p == '.') hd_puts(&o, "."), p++;
    }
    return hd_intern(cx, o.text ? o.text : "");
}

static bool is_listed(Request *r, const Waiting *v) {
    int depth = hd_place_of(&r->listed, v->place, NULL);
    return depth > hd_place_of(&r->kept, v->place, NULL) && depth > hd_place_of(&r->recomputed, v->place, NULL);
}

// --- the margin

static const char *kind_of_part(const Request *r, const Offload *w, int part) {
    const char *path = w->ops[w->backward.at[part]]->loc.path;
    return pattern_of(r->m->cx, hd_region_of_path(r->m->cx, path ? path : ""));
}

// The backward pass reads it in one of the last instances, with which it begins, or before them.
static bool in_margin(const Request *r, const Offload *w, const Waiting *v, int64_t margin) {
    int64_t before = 0;
    if (!v->first_in) return margin > 0;
    for (int k = 1; k < v->first_in; k++) before += kind_of_part(r, w, k) == kind_of_part(r, w, v->first_in);
    return before < margin;
}

// --- messages

static double mib(double bytes) { return bytes / (1 << 20); }

// What waits for the backward pass, by kinds of places.
static void say_what_waits(const Request *r, const Offload *w) {
    typedef struct { const char *pattern; double bytes; int n; } Kind;
    VEC(Kind) kinds = {0};
    Out o = hd_out(w->a);
    for (int i = 0; i < w->values.n; i++) {
        const char *pattern = pattern_of(r->m->cx, w->values.at[i].place);
        int k = 0;
        while (k < kinds.n && kinds.at[k].pattern != pattern) k++;
        if (k == kinds.n) hd_push(w->a, &kinds, ((Kind){pattern, 0, 0}));
        kinds.at[k].bytes += w->values.at[i].bytes;
        kinds.at[k].n++;
    }
    for (int k = 0; k < kinds.n && k < 8; k++)
        hd_printf(&o, "%s%s (%d x, %.1f MiB)", k ? ", " : "", kinds.at[k].pattern, kinds.at[k].n,
                  mib(kinds.at[k].bytes));
    hd_note(r->m->cx, (Span){0}, "what waits is made in %s%s", kinds.n ? o.text : "no place",
            kinds.n > 8 ? ", ..." : "");
}

// A kind of place in which nothing waits. Once for places that differ in their instance only.
static bool check_places(Request *r, const Offload *w) {
    VEC(const char *) done = {0};
    const Places *p = &r->listed;
    bool good = true;
    for (int i = 0; i < w->values.n; i++)
        if (is_listed(r, &w->values.at[i])) hd_push(w->a, &done, pattern_of(r->m->cx, w->values.at[i].place));
    for (int i = 0; i < p->paths->n; i++) {
        const char *pattern = pattern_of(r->m->cx, p->paths->strs[i]);
        size_t n = strlen(pattern);
        bool found = false;
        for (int k = 0; k < done.n && !found; k++)
            found = !strncmp(done.at[k], pattern, n) && (!done.at[k][n] || done.at[k][n] == '.');
        if (found) continue;
        hd_error(r->m->cx, r->span, "offload %s: the backward pass reads no value that is made there, so none can wait "
                                    "in host memory", pattern);
        if (good) say_what_waits(r, w);
        good = false;
        hd_push(w->a, &done, pattern);
    }
    return good;
}

// --- the choice

// Of the values: those that are listed, those of them that are not in the margin, the smallest of these, the chosen.
typedef struct { double listed, free, least, chosen; } Bytes;

static Bytes choose(Request *r, Offload *w) {
    const int64_t margin = hd_int(r->settings, A_MARGIN, 1);
    const double fraction = hd_float(r->settings, A_FRACTION, 1);
    Bytes b = {0};
    bool *free = HD_NEWN(w->a, bool, w->values.n + 1);
    for (int i = 0; i < w->values.n; i++) {
        const Waiting *v = &w->values.at[i];
        bool listed = is_listed(r, v);
        b.listed += listed ? v->bytes : 0;
        free[i] = listed && !in_margin(r, w, v, margin);
        b.free += free[i] ? v->bytes : 0;
        if (free[i] && (!b.least || v->bytes < b.least)) b.least = v->bytes;
    }
    for (int i = 0; i < w->values.n; i++) {
        Waiting *v = &w->values.at[i];
        v->chosen = free[i] && b.chosen + v->bytes <= fraction * b.free;
        b.chosen += v->chosen ? v->bytes : 0;
    }
    return b;
}

// false after reporting a request that no value meets.
static bool check_choice(Request *r, const Offload *w, Bytes b) {
    const double fraction = hd_float(r->settings, A_FRACTION, 1);
    if (!check_places(r, w)) return false;
    if (b.free && (b.chosen || !fraction)) return true;
    if (!b.free)
        hd_error(r->m->cx, r->span, "offload: all %.1f MiB that are listed are read in the last instances of a module, "
                 "whose values offload.margin = %lld keeps", mib(b.listed), ll(hd_int(r->settings, A_MARGIN, 1)));
    else
        hd_error(r->m->cx, r->span, "offload: a fraction of %g of %.1f MiB is less than the smallest value, %.1f MiB",
                 fraction, mib(b.free), mib(b.least));
    return false;
}

static void warn_of_stall(const Request *r, const Offload *w, double chosen) {
    if (!w->model || w->stall < 5e-5 || w->stall < 0.005 * w->end) return;
    double out = hd_model_copy(w->model, COPY_TO_HOST, chosen, false);
    hd_warning(r->m->cx, r->span,
               "offload: %.1f MiB take about %.2f ms each way, and @%s has not as much to do meanwhile: it stalls for "
               "about %.2f ms of %.2f (predicted for %s); a smaller fraction, a larger ahead or offload auto hides "
               "more",
               mib(chosen), 1e3 * out, w->f->name, 1e3 * w->stall, 1e3 * w->end, hd_model_name(w->model));
}

static bool offload_function(Request *r, Func *f, bool first) {
    hd_renumber(f);
    Offload w = hd_offload_find(f, hd_int(r->settings, A_AHEAD, 1), r->cx->scratch);
    if (!w.backward.n) return true;
    const Bytes b = choose(r, &w);
    if (first && !check_choice(r, &w, b)) return false;
    if (!b.chosen) return true;
    hd_offload_times(&w);
    if (first) warn_of_stall(r, &w, b.chosen);
    hd_offload_insert(&w);
    hd_count(r->cx, "bytes offloaded", (int64_t)b.chosen);
    return true;
}

Change hd_pass_offload(Module *m, PassCx *cx) {
    Request r = {.m = m, .cx = cx, .settings = hd_settings(m, "schedule"),
                 .listed = hd_places(m, A_OFFLOAD, cx->scratch), .kept = hd_places(m, A_KEPT, cx->scratch),
                 .recomputed = hd_places(m, A_RECOMPUTE, cx->scratch)};
    if (!r.listed.paths) return UNCHANGED;
    r.span = hd_symbol_find(m, "schedule")->span;
    if (!hd_places_differ(&r.listed, &r.kept) || !hd_places_differ(&r.listed, &r.recomputed)) return FAILED;
    bool first = true, good = true;
    for (Func *f = m->funcs; f && good; f = f->next) {
        if (f->is_kernel || hd_kind(&f->attrs) != KIND_MICRO) continue;
        good = offload_function(&r, f, first);
        first = false;
    }
    return good ? CHANGED : FAILED;
}
