// Capture regions of a step: how many, how large, and what is issued outside of them and why.
#include "passes/report/facts.h"
#include "passes/report/cuts.h"
#include "ir/base/ints.h"
#include <string.h>

static void leave(Facts *r, const Op *o, const char *main, int64_t runs, Arena *a) {
    bool own = !strcmp(o->stream, main);
    const char *why = own ? "in no place that is captured, or in a part too short for a graph"
                          : "they overlap with the regions, and a region that held them would wait for them";
    int i = 0;
    while (i < r->outside.n && strcmp(r->outside.at[i].stream, o->stream) != 0) i++;
    Outside none = {.stream = o->stream, .why = why};
    if (i == r->outside.n) hd_push(a, &r->outside, none);
    r->outside.at[i].actions += runs;
}

// The latest region of the same place and direction in the function; NULL: there is none.
static const RegionFact *region_before(const Facts *r, const RegionFact *now) {
    for (int i = r->regions.n; i-- > 0 && r->regions.at[i].func == now->func;) {
        const RegionFact *x = &r->regions.at[i];
        if (!strcmp(x->path, now->path) && x->bwd == now->bwd) return x;
    }
    return NULL;
}

static void add_region(const Op *o, Facts *r, Cuts *cuts, Arena *a) {
    const Symbol *s = hd_named(o, A_REGION);
    RegionFact now = {.func = o->func, .name = s->name, .kind = hd_word(&s->attrs, A_KIND, ""),
                      .path = hd_word(&s->attrs, A_PATH, ""), .begin = o, .bwd = hd_has(&s->attrs, A_BWD)};
    const RegionFact *before = region_before(r, &now);
    if (before && !cuts->f) *cuts = hd_report_cuts(o->func, a);
    if (before) now.cut = hd_report_cut(cuts, before->begin, o);
    hd_push(a, &r->regions, now);
}

void hd_report_regions(const Func *f, int64_t runs, Facts *r, Arena *a) {
    const char *main = f->last->stream;
    Cuts cuts = {0};
    bool in_region = false;
    for (const Op *o = f->first; o && main; o = o->next) {
        if (hd_op_is(o, TRAIT_OPENS)) add_region(o, r, &cuts, a);
        in_region = (in_region || hd_op_is(o, TRAIT_OPENS)) && !hd_op_is(o, TRAIT_CLOSES);
        if (!hd_is_action(o)) continue;
        RegionFact *in = in_region ? &r->regions.at[r->regions.n - 1] : NULL;
        if (in && hd_has(&o->attrs, A_EXTERNAL)) in->external++;
        if (hd_is_event(o)) continue;
        if (in) in->actions++, r->captured += runs;
        else leave(r, o, main, runs, a);
    }
}

static int count_cuts(const Facts *r) {
    int n = 0;
    for (int i = 0; i < r->regions.n; i++) n += r->regions.at[i].cut != NULL;
    return n;
}

void hd_report_capture(const Facts *r, Out *o) {
    hd_printf(o, "  \"capture\": {\"graph\": \"%s\", \"regions\": %d, \"actions\": %lld, \"cuts\": %d,\n",
              r->graph, r->regions.n, ll(r->captured), count_cuts(r));
    hd_puts(o, "    \"outside\": [");
    for (int i = 0; i < r->outside.n; i++)
        hd_put_json(o, "%s\n      {\"stream\": \"%s\", \"actions\": %lld, \"why\": \"%s\"}", i ? "," : "",
                  r->outside.at[i].stream, ll(r->outside.at[i].actions), r->outside.at[i].why);
    hd_puts(o, "],\n    \"list\": [");
    for (int i = 0; i < r->regions.n; i++) {
        const RegionFact *x = &r->regions.at[i];
        hd_put_json(o, "%s\n      {\"name\": \"%s\", \"function\": \"%s\", \"kind\": \"%s\", \"path\": \"%s\", ",
                  i ? "," : "", x->name, x->func->name, x->kind, x->path);
        hd_printf(o, "\"backward\": %s, \"actions\": %d, \"external_events\": %d, \"cut\": ",
                  x->bwd ? "true" : "false", x->actions, x->external);
        if (x->cut) hd_put_json(o, "\"%s\"", x->cut);
        else hd_puts(o, "null");
        hd_puts(o, "}");
    }
    hd_puts(o, "]},\n");
}

// A line for each reason, with the number of regions.
static void put_cuts(const Facts *r, Out *o) {
    for (int i = 0; i < r->regions.n; i++) {
        const char *why = r->regions.at[i].cut;
        int n = 0;
        bool said = !why;
        for (int k = 0; k < r->regions.n && !said; k++) {
            const bool same = r->regions.at[k].cut && !strcmp(r->regions.at[k].cut, why);
            said = same && k < i;
            n += same;
        }
        if (!said) hd_show(o, "%20d  go on with a place that a region before has begun: %s\n", n, why);
    }
}

void hd_report_capture_text(const Facts *r, Out *o) {
    hd_printf(o, "\ngraph %s: %d capture regions with %lld actions a step\n", r->graph, r->regions.n, ll(r->captured));
    put_cuts(r, o);
    for (int i = 0; i < r->outside.n && r->regions.n; i++)
        hd_printf(o, "%20lld  actions of stream %s are launched directly: %s\n", ll(r->outside.at[i].actions),
                  r->outside.at[i].stream, r->outside.at[i].why);
}
