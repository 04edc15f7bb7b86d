// offload: values that the schedule lists are in host memory until the backward pass reads them. A storage is copied
// once, however many views of it the backward pass reads. Copies out and back are on streams of their own:
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
// value; not those that the backward pass reads in the last `margin` layers of a kind, nor those of fewer bytes than
// `min_size`; of the rest, in the order in which they are made, as many as fit into `fraction` of their bytes. When
// they leave and return: times.c.
#include "passes/offload/offload.h"
#include "passes/analysis/place_effect.h"
#include "passes/pass.h"
#include "passes/settings.h"
#include "ir/base/ints.h"
#include "ir/schedule.h"
#include <string.h>

typedef struct {
    Module *m;
    PassCx *cx;
    const Attrs *settings;
    Places listed, kept, recomputed;
    bool automatic;
    int most;  // auto: so many values, the best; -1: as many as are hidden
    Span span; // of the settings
} Request;

static bool is_listed(const Request *r, const Waiting *v) {
    Places listed = r->listed, kept = r->kept, recomputed = r->recomputed;
    const int depth = hd_place_of(&listed, v->place, NULL), of_kept = hd_place_of(&kept, v->place, NULL);
    return r->automatic ? !of_kept : depth > of_kept && depth >= hd_place_of(&recomputed, v->place, NULL);
}

// --- the margin

static const char *kind_of_part(const Offload *w, int part) {
    const char *path = w->ops[w->backward.at[part]]->loc.path;
    return hd_layer_kind(&w->layers, hd_layer_of(&w->layers, path ? path : ""));
}

// By part of the backward pass: it belongs to one of the last instances, with which that pass begins, or comes before
// them.
static const bool *find_margin(const Offload *w, int64_t margin) {
    bool *in = HD_NEWN(w->a, bool, w->backward.n + 1);
    PtrMap seen = {0}; // by kind: parts so far
    in[0] = margin > 0;
    for (int k = 1; k < w->backward.n; k++) {
        const char *kind = kind_of_part(w, k);
        const int before = hd_ptr_get(&seen, kind) < 0 ? 0 : hd_ptr_get(&seen, kind);
        in[k] = before < margin;
        hd_ptr_set(w->a, &seen, kind, before + 1);
    }
    return in;
}

// --- messages

static double mib(double bytes) { return bytes / (1 << 20); }

// Prints what waits for the backward pass, by kinds of places.
static void say_what_waits(const Request *r, const Offload *w) {
    typedef struct { const char *pattern; double bytes; int n; } Kind;
    VEC(Kind) kinds = {0};
    Out o = hd_out(w->a);
    for (int i = 0; i < w->values.n; i++) {
        const char *pattern = hd_place_pattern(r->m->cx, w->values.at[i].place);
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
        if (is_listed(r, &w->values.at[i])) hd_push(w->a, &done, hd_place_pattern(r->m->cx, w->values.at[i].place));
    for (int i = 0; i < p->paths->n; i++) {
        const char *pattern = hd_place_pattern(r->m->cx, p->paths->strs[i]);
        size_t n = strlen(pattern);
        bool found = false;
        for (int k = 0; k < done.n && !found; k++)
            found = !strncmp(done.at[k], pattern, n) && (!done.at[k][n] || done.at[k][n] == '.');
        if (found) continue;
        hd_error(r->m->cx, r->span,
                 "offload %s: the backward pass reads no value that is made there (what weights alone give does not "
                 "count), so none can be offloaded", pattern);
        if (good) say_what_waits(r, w);
        good = false;
        hd_push(w->a, &done, pattern);
    }
    return good;
}

// --- the choice

// Bytes of the values that are listed, of those outside the margin, of the largest of these, of those that are large
// enough as well, of the smallest of these, and of the chosen ones.
typedef struct { double listed, outside, largest, free, least, chosen; } Bytes;

static void choose_listed(Offload *w, const bool *free, double most) {
    double chosen = 0;
    for (int i = 0; i < w->values.n; i++) {
        Waiting *v = &w->values.at[i];
        v->chosen = free[i] && chosen + v->bytes <= most;
        chosen += v->chosen ? v->bytes : 0;
    }
}

static void choose_best(Request *r, Offload *w, const bool *free, double most) {
    Waiting **best;
    int hidden, n = hd_offload_best(w, free, most, &best, &hidden);
    int k = r->most < 0 ? hidden : r->most < n ? r->most : n;
    for (int i = 0; i < n; i++) best[i]->chosen = i < k;
}

static Bytes choose(Request *r, Offload *w) {
    const int64_t margin = hd_int(r->settings, A_MARGIN, HD_DEFAULT_MARGIN);
    const double host = (double)hd_int(hd_settings(r->m, "target"), A_HOST_MEMORY_BYTES, INT64_MAX);
    const double min_size = (double)hd_int(r->settings, A_MIN_SIZE, 0);
    Bytes b = {0};
    bool *free = HD_NEWN(w->a, bool, w->values.n + 1);
    const bool *in_margin = find_margin(w, margin);
    for (int i = 0; i < w->values.n; i++) {
        const Waiting *v = &w->values.at[i];
        bool listed = is_listed(r, v);
        b.listed += listed ? v->bytes : 0;
        free[i] = listed && !in_margin[v->first_in];
        b.outside += free[i] ? v->bytes : 0;
        if (free[i] && v->bytes > b.largest) b.largest = v->bytes;
        free[i] &= v->bytes >= min_size;
        b.free += free[i] ? v->bytes : 0;
        if (free[i] && (b.least <= 0 || v->bytes < b.least)) b.least = v->bytes;
    }
    double most = b.free * hd_float(r->settings, A_FRACTION, HD_DEFAULT_FRACTION);
    if (r->automatic) choose_best(r, w, free, most < host ? most : host);
    else choose_listed(w, free, most);
    for (int i = 0; i < w->values.n; i++) b.chosen += w->values.at[i].chosen ? w->values.at[i].bytes : 0;
    return b;
}

// false after reporting a request that no value meets.
static bool check_choice(Request *r, const Offload *w, Bytes b) {
    const double fraction = hd_float(r->settings, A_FRACTION, HD_DEFAULT_FRACTION);
    if (r->automatic) return true;
    if (!check_places(r, w)) return false;
    if (b.free > 0 && (b.chosen > 0 || fraction <= 0)) return true;
    if (b.free <= 0 && b.outside > 0)
        hd_error(r->m->cx, r->span, "offload: of %.1f MiB that are listed no value has schedule.offload.min_size = "
                 "%lld bytes, the largest has %.0f", mib(b.outside), ll(hd_int(r->settings, A_MIN_SIZE, 0)), b.largest);
    else if (b.free <= 0)
        hd_error(r->m->cx, r->span, "offload: all %.1f MiB that are listed are read in the last instances of a module, "
                 "whose values offload.margin = %lld keeps",
                 mib(b.listed), ll(hd_int(r->settings, A_MARGIN, HD_DEFAULT_MARGIN)));
    else
        hd_error(r->m->cx, r->span, "offload: a fraction of %g of %.1f MiB is less than the smallest value, %.1f MiB",
                 fraction, mib(b.free), mib(b.least));
    return false;
}

// Whether a copy of a chosen value is elsewhere than with the default of `ahead`.
static bool moves_copies(Offload *w) {
    const int ahead = w->ahead;
    int *fence = HD_NEWN(w->a, int, w->values.n + 1), *back = HD_NEWN(w->a, int, w->values.n + 1);
    for (int i = 0; i < w->values.n; i++) fence[i] = w->values.at[i].fence, back[i] = w->values.at[i].back;
    w->ahead = HD_DEFAULT_AHEAD;
    hd_offload_times(w);
    bool moved = false;
    for (int i = 0; i < w->values.n; i++)
        moved |= w->values.at[i].chosen && (fence[i] != w->values.at[i].fence || back[i] != w->values.at[i].back);
    w->ahead = ahead;
    hd_offload_times(w);
    return moved;
}

// Why offload auto takes nothing.
static void warn_nothing(const Request *r, const Offload *w, Bytes b) {
    if (b.outside <= 0 && b.listed > 0)
        hd_warning(r->m->cx, r->span,
                   "offload auto takes nothing: all %.1f MiB are read in the last instances of a module, whose values "
                   "offload.margin = %lld keeps",
                   mib(b.listed), ll(hd_int(r->settings, A_MARGIN, HD_DEFAULT_MARGIN)));
    else if (b.free <= 0 && b.outside > 0)
        hd_warning(r->m->cx, r->span,
                   "offload auto takes nothing: no value has schedule.offload.min_size = %lld bytes, the largest has "
                   "%.0f",
                   ll(hd_int(r->settings, A_MIN_SIZE, 0)), b.largest);
    else
        hd_warning(r->m->cx, r->span,
                   "offload auto takes nothing: of %.1f MiB that may be offloaded no value can leave and return while "
                   "@%s has enough else to do (predicted for %s)",
                   mib(b.free), w->f->name, hd_model_name(w->model));
}

// Settings that have an effect, but not with these values: margin keeps no value that its default does not keep, ahead
// reaches beyond the first layer or moves no copy.
static void warn_values(const Request *r, Offload *w) {
    const int64_t margin = hd_int(r->settings, A_MARGIN, HD_DEFAULT_MARGIN);
    const int parts = w->forward.n > w->backward.n ? w->forward.n : w->backward.n, ahead = w->ahead;
    const bool *in = find_margin(w, margin), *otherwise = find_margin(w, HD_DEFAULT_MARGIN);
    bool same = margin != HD_DEFAULT_MARGIN;
    for (int i = 0; i < w->values.n && same; i++) {
        const Waiting *v = &w->values.at[i];
        same = !is_listed(r, v) || in[v->first_in] == otherwise[v->first_in];
    }
    if (same)
        hd_warning(r->m->cx, r->span,
                   "schedule.offload.margin = %lld changes nothing: it keeps the values on the device that %d keeps "
                   "there, the default", ll(margin), HD_DEFAULT_MARGIN);
    if (ahead >= parts && parts - 1 > HD_DEFAULT_AHEAD)
        hd_warning(r->m->cx, r->span, "schedule.offload.ahead = %d is more than the %d layers: it acts as %d does",
                   ahead, parts - 1, parts - 1);
    else if (ahead != HD_DEFAULT_AHEAD && !r->automatic && !moves_copies(w))
        hd_warning(r->m->cx, r->span,
                   "schedule.offload.ahead = %d changes nothing: every copy begins and ends where it does with %d, the "
                   "default", ahead, HD_DEFAULT_AHEAD);
}

static void warn(const Request *r, const Offload *w, Bytes b) {
    if (r->automatic && r->most < 0 && b.chosen <= 0) warn_nothing(r, w, b);
    if (b.chosen <= 0 || !w->model || w->stall < 5e-5 || w->stall < 0.005 * w->end) return;
    double out = hd_model_copy(w->model, COPY_TO_HOST, b.chosen, false);
    hd_warning(r->m->cx, r->span,
               "offload: %.1f MiB take about %.2f ms each way, and @%s has not as much to do meanwhile: it stalls for "
               "about %.2f ms of %.2f (predicted for %s); %s hides more",
               mib(b.chosen), 1e3 * out, w->f->name, 1e3 * w->stall, 1e3 * w->end, hd_model_name(w->model),
               r->automatic ? "more device memory" : "a smaller fraction, a larger ahead or offload auto");
}

static bool offload_function(Request *r, Func *f, bool first) {
    hd_renumber(f);
    Offload w = hd_offload_find(f, hd_int(r->settings, A_AHEAD, HD_DEFAULT_AHEAD), r->cx->scratch);
    if (!w.backward.n) return true;
    const Bytes b = choose(r, &w);
    if (first && !check_choice(r, &w, b)) return false;
    if (b.chosen > 0) hd_offload_times(&w);
    if (first) warn(r, &w, b);
    if (first && b.chosen > 0) warn_values(r, &w);
    if (b.chosen <= 0) return true;
    hd_offload_insert(&w);
    hd_count(r->cx, "bytes offloaded", (int64_t)b.chosen);
    return true;
}

static bool offload_module(Request *r) {
    bool first = true, good = true;
    for (Func *f = r->m->funcs; f && good; f = f->next) {
        if (f->is_kernel || hd_kind(&f->attrs) != KIND_MICRO) continue;
        good = offload_function(r, f, first);
        first = false;
    }
    return good;
}

static Request request(Module *m, PassCx *cx) {
    Request r = {.m = m, .cx = cx, .settings = hd_settings(m, "schedule"), .most = -1,
                 .listed = hd_places(m, A_OFFLOAD, cx->scratch), .kept = hd_places(m, A_KEPT, cx->scratch),
                 .recomputed = hd_places(m, A_RECOMPUTE, cx->scratch)};
    if (r.listed.paths) r.span = hd_symbol_find(m, "schedule")->span;
    r.automatic = r.listed.paths && !strcmp(r.listed.paths->strs[0], "auto");
    return r;
}

// --- auto

// The schedule lists nothing, and the plan does not fit without offload.
static void say_helped(const Request *r, int64_t limit) {
    hd_warning(r->m->cx, r->span,
               "the plan does not fit into %lld bytes with all values on the device: some are offloaded, as with "
               "schedule.offload = auto%s; --host-memory=SIZE bounds how much, schedule.offload = none forbids it",
               (long long)limit,
               r->recomputed.paths && !strcmp(r->recomputed.paths->strs[0], "auto")
                   ? ""
                   : " (schedule.recompute = auto may be faster)");
}

// Offload auto takes as many values as config @schedule says, as choose-offload or choose-recompute has decided; else
// as many as are hidden.
static Change offload_best(Request *r) {
    r->automatic = true;
    r->most = (int)hd_int(r->settings, A_OFFLOAD_VALUES, -1);
    if (!r->most || hd_has(r->settings, A_NO_OFFLOAD)) return UNCHANGED;
    r->span = hd_symbol_find(r->m, "schedule")->span;
    const Attrs *target = hd_settings(r->m, "target");
    const int64_t limit = hd_int(target, A_DEVICE_MEMORY_BYTES, 0);
    if (!r->listed.paths && limit && !hd_has(target, A_LEAST_BYTES)) say_helped(r, limit);
    return offload_module(r) ? CHANGED : FAILED;
}

// Settings of offload that have other values than their defaults, where nothing is offloaded.
static void warn_unused(const Request *r) {
    static const struct { AttrId setting; double otherwise; } settings[] = {
        {A_FRACTION, HD_DEFAULT_FRACTION}, {A_MIN_SIZE, HD_DEFAULT_MIN_SIZE},
        {A_MARGIN, HD_DEFAULT_MARGIN}, {A_AHEAD, HD_DEFAULT_AHEAD}};
    const bool none = hd_has(r->settings, A_NO_OFFLOAD);
    const bool limit = hd_has(hd_settings(r->m, "target"), A_DEVICE_MEMORY_BYTES);
    if (r->listed.paths || (limit && !none)) return;
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        const AttrId id = settings[k].setting;
        const double is = id == A_FRACTION ? hd_float(r->settings, id, HD_DEFAULT_FRACTION)
                                           : (double)hd_int(r->settings, id, (int64_t)settings[k].otherwise);
        if (is < settings[k].otherwise || is > settings[k].otherwise)
            hd_warning(r->m->cx, hd_symbol_find(r->m, "schedule")->span,
                       "schedule.offload.%s changes nothing: schedule.offload %s", hd_attr_info(id)->text,
                       none ? "is none" : "lists nothing, and no --device-memory asks for offload");
    }
}

// A place inside another listed place adds nothing, unless it is also recomputed: then its kept values are offloaded.
static void warn_inside(const Request *r) {
    const Places others[] = {r->kept, r->recomputed};
    const Places *p = &r->listed;
    bool *effect = HD_NEWN(r->cx->scratch, bool, p->paths->n + 1);
    const char **why = HD_NEWN(r->cx->scratch, const char *, p->paths->n + 1);
    for (int i = 0; i < p->paths->n; i++) {
        const char *path = hd_intern(r->m->cx, p->paths->strs[i]);
        effect[i] = !hd_place_is_inside(p, 2, others, path) || hd_ptr_get(&r->recomputed.at, path) >= 0;
        why[i] = "another place of the list is around it, and is offloaded with all that is in it";
    }
    hd_places_warn(p, effect, why, r->cx->scratch);
}

static Change offload(Module *m, PassCx *cx) {
    Request r = request(m, cx);
    warn_unused(&r);
    if (!r.listed.paths && (!hd_has(r.settings, A_OFFLOAD_VALUES) || !hd_model(m))) return UNCHANGED;
    if (!r.listed.paths) return offload_best(&r);
    if (!hd_places_differ(&r.listed, &r.kept)) return FAILED;
    if (r.automatic && !hd_model(m))
        return hd_error(m->cx, r.span, "offload auto needs the times of a device: compile for the cuda target, or name "
                        "a table with --device-model"), FAILED;
    if (r.automatic) return offload_best(&r);
    if (!offload_module(&r)) return FAILED;
    warn_inside(&r);
    return CHANGED;
}

Change hd_pass_offload(Module *m, PassCx *cx) {
    const int errors = m->cx->diags.errors;
    const Change change = offload(m, cx);
    return m->cx->diags.errors > errors ? FAILED : change; // the table of the device cannot be read
}
