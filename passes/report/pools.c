// The gathered weights of units, in both forms of the report: the bytes that they take in the plan, the bytes that are
// in use whatever the plan does, and what pools of fixed buffers would take instead. Weights of the root are left out,
// which no pool has. A window is a gather of a bucket with its reads up to the next gather.
//   in use               at the first read of a unit: windows with reads before and after, and those of so many units
//                        ahead
//   two of the largest   two buffers for a whole unit each: one unit ahead
//   by position          of each unit the buckets in descending order of size: the largest of all units in each
//                        position, once for the unit in use and once for each one ahead
#include "ir/base/ints.h"
#include "ir/machine/cost.h"
#include "passes/report/facts.h"
#include "passes/settings.h"
#include <string.h>

typedef struct { const Symbol *bucket; int64_t bytes; int first, last; } Window; // ids of its first and last read; -1
typedef VEC(Window) Windows;
typedef struct {
    const Module *m;
    Arena *a;
    const Symbol **bucket; // by symbol id, of buffers with whole weights of a unit that were gathered; NULL: others
    int64_t *bytes;        // by symbol id, of buckets: of such a buffer
} Gathered;

static const char *unit_of(const Symbol *bucket) { return hd_word(&bucket->attrs, A_UNIT, "root"); }

// A buffer of a function, or the one that the next function begins with.
static void find_buffers(Gathered *g) {
    for (const Symbol *s = g->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER || !s->type || strcmp(hd_word(&s->attrs, A_CLASS, ""), "weights") != 0) continue;
        const Symbol *bucket = hd_symbol_find(g->m, hd_word(&s->attrs, A_BUCKET, ""));
        if (!bucket || !strncmp(unit_of(bucket), "root", 4)) continue;
        const bool next = !strcmp(hd_word(&bucket->attrs, A_NEXT, ""), s->name);
        if (!next && !hd_has(&s->attrs, A_TRANSIENT)) continue;
        g->bucket[s->id] = bucket;
        g->bytes[bucket->id] = hd_align(hd_type_bytes(s->type));
    }
}

static Window *open_window(Gathered *g, Windows *w, int *open, const Symbol *b) {
    const Symbol *bucket = g->bucket[b->id];
    hd_push(g->a, w, ((Window){bucket, g->bytes[bucket->id], -1, -1}));
    open[b->id] = w->n;
    return &w->at[w->n - 1];
}

// Windows of different buckets of one unit that follow each other become one.
static Windows by_unit(Gathered *g, const Windows *w) {
    Windows units = {0};
    int *in = HD_NEWN(g->a, int, g->m->n_symbols + 1); // by symbol id: the last window of a bucket's unit, plus 1
    for (int i = 0; i < w->n; i++) {
        const Window *x = &w->at[i];
        Window *to = units.n ? &units.at[units.n - 1] : NULL;
        if (to && !strcmp(unit_of(to->bucket), unit_of(x->bucket)) && in[x->bucket->id] != units.n) {
            to->bytes += x->bytes;
            if (x->last > to->last) to->last = x->last;
        } else {
            hd_push(g->a, &units, *x);
        }
        in[x->bucket->id] = units.n;
    }
    return units;
}

// Of a function, by their first reads.
static Windows find_windows(Gathered *g, const Func *f) {
    Windows w = {0}, read = {0};
    Accesses list = {0};
    const Home *homes = hd_homes(f, g->a);
    int *open = HD_NEWN(g->a, int, g->m->n_symbols + 1); // by symbol id: a buffer's last window, plus 1
    for (const Op *o = f->first; o; o = o->next) {
        const Symbol *into = hd_gathers(o) ? hd_named(o, A_INTO) : NULL;
        if (into && g->bucket[into->id]) open_window(g, &w, open, into);
        hd_accesses(o, g->a, &list);
        for (int i = 0; i < list.n; i++) {
            const Access *x = &list.at[i];
            const Symbol *b = x->at == AT_VALUE ? homes[x->value->id].buffer : x->buffer;
            if (!b || x->write || x->order || !g->bucket[b->id]) continue;
            const int at = open[b->id];
            Window *of = at ? &w.at[at - 1] : open_window(g, &w, open, b);
            if (of->first < 0) of->first = o->id;
            of->last = o->id;
        }
    }
    for (int i = 0; i < w.n; i++) {
        int to = read.n;
        if (w.at[i].first < 0) continue;
        hd_push(g->a, &read, w.at[i]);
        for (; to && read.at[to - 1].first > w.at[i].first; to--) read.at[to] = read.at[to - 1];
        read.at[to] = w.at[i];
    }
    return by_unit(g, &read);
}

static int64_t in_use(const Windows *w, int ahead) {
    int64_t most = 0;
    for (int k = 0; k < w->n; k++) {
        int64_t bytes = 0;
        for (int j = 0; j < w->n; j++) {
            const bool now = w->at[j].first <= w->at[k].first && w->at[k].first <= w->at[j].last;
            if (now || (j > k && j <= k + ahead)) bytes += w->at[j].bytes;
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

// Of the transient buffers of a function, at the moment when these take most.
static int64_t planned(const Gathered *g, const Func *f) {
    const Live live = hd_live(f, 0, SPACE_DEVICE, g->a);
    const LiveItem **held = HD_NEWN(g->a, const LiveItem *, live.n + 1);
    int64_t most = 0;
    int n = 0;
    for (int i = 0; i < live.n; i++)
        if (live.at[i].buffer && g->bucket[live.at[i].buffer->id]) held[n++] = &live.at[i];
    for (int i = 0; i < n; i++) { // they take more only where one of them begins
        int64_t bytes = 0;
        for (int k = 0; k < n; k++)
            if (held[k]->from <= held[i]->from && held[i]->from <= held[k]->to) bytes += held[k]->bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

// The largest unit, and the sum of the largest buckets of each position.
static void add_pools(const Gathered *g, Pools *p) {
    enum { POSITIONS = 8 }; // a bucket for each way in which parameters are shared among ranks
    int64_t largest[POSITIONS] = {0};
    for (const Symbol *s = g->m->symbols; s; s = s->next) {
        if (!g->bytes[s->id]) continue;
        int position = 0;
        int64_t unit = 0;
        for (const Symbol *t = g->m->symbols; t; t = t->next) {
            if (!g->bytes[t->id] || strcmp(unit_of(s), unit_of(t)) != 0) continue;
            unit += g->bytes[t->id];
            position += g->bytes[t->id] > g->bytes[s->id] || (g->bytes[t->id] == g->bytes[s->id] && t->id < s->id);
        }
        if (position >= POSITIONS) position = POSITIONS - 1;
        if (g->bytes[s->id] > largest[position]) largest[position] = g->bytes[s->id];
        if (2 * unit > p->two) p->two = 2 * unit;
    }
    for (int i = 0; i < POSITIONS; i++) p->positions += largest[i];
}

void hd_report_pools(const Module *m, Facts *r, Arena *a) {
    Gathered g = {m, a, HD_NEWN(a, const Symbol *, m->n_symbols + 1), HD_NEWN(a, int64_t, m->n_symbols + 1)};
    const Symbol *step = hd_step(m, KIND_TRAIN);
    Pools *p = &r->pools;
    p->prefetch = hd_int(hd_settings(m, "schedule"), A_PREFETCH, 0);
    find_buffers(&g);
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel || hd_runs(step, f) <= 0) continue;
        const Windows w = find_windows(&g, f);
        for (int d = 0; d < HD_POOL_DEPTHS; d++) {
            const int64_t bytes = in_use(&w, d);
            if (bytes > p->in_use[d]) p->in_use[d] = bytes;
        }
        const int64_t bytes = w.n ? planned(&g, f) : 0;
        if (bytes > p->planned) p->planned = bytes;
    }
    if (!p->in_use[0]) return;
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (g.bucket[s->id] && hd_is_kept(s)) p->planned += hd_align(hd_type_bytes(s->type));
    add_pools(&g, p);
}

void hd_report_pools_json(const Facts *r, Out *o) {
    const Pools *p = &r->pools;
    if (!p->in_use[0]) return;
    hd_put_json(o, "  \"gathered\": {\"prefetch\": %lld, \"planned_bytes\": %lld, \"in_use_bytes\": [", ll(p->prefetch),
                ll(p->planned));
    for (int d = 0; d < HD_POOL_DEPTHS; d++) hd_put_json(o, "%s%lld", d ? ", " : "", ll(p->in_use[d]));
    hd_put_json(o, "], \"two_largest_bytes\": %lld, \"by_position_bytes\": [", ll(p->two));
    for (int d = 0; d < HD_POOL_DEPTHS; d++) hd_put_json(o, "%s%lld", d ? ", " : "", ll((d + 1) * p->positions));
    hd_puts(o, "]},\n");
}

void hd_report_pools_text(const Facts *r, Out *o) {
    const Pools *p = &r->pools;
    if (!p->in_use[0]) return;
    hd_show(o, "\n%20s  %20s  %20s  %20s  gathered weights of units\n", "in use", "planned", "two of the largest",
            "pools by position");
    for (int d = 0; d < HD_POOL_DEPTHS; d++) {
        hd_show(o, "%20lld  ", ll(p->in_use[d]));
        if (p->prefetch == d) hd_show(o, "%20lld  ", ll(p->planned));
        else hd_show(o, "%20s  ", "");
        if (d < 2) hd_show(o, "%20lld  ", ll(p->two));
        else hd_show(o, "%20s  ", "");
        hd_show(o, "%20lld  with %d ahead\n", ll((d + 1) * p->positions), d);
    }
    if (p->prefetch >= HD_POOL_DEPTHS)
        hd_show(o, "%20s  %20lld  %20s  %20s  with %lld ahead\n", "", ll(p->planned), "", "", ll(p->prefetch));
}
