// Capture regions of a step: how many, how large, and what is issued outside of them and why.
#include "passes/report/facts.h"
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

// Whether a region goes on with what another one ends with: nothing but a wait of the main stream is between them.
static bool continues(const RegionFact *before, const Symbol *now, const Func *f) {
    return before->func == f && !strcmp(before->path, hd_word(&now->attrs, A_PATH, "")) &&
           before->bwd == hd_has(&now->attrs, A_BWD);
}

void hd_report_regions(const Func *f, int64_t runs, Facts *r, Arena *a) {
    const char *main = f->last->stream;
    bool inside = false, between = false; // between: no work of the main stream since the last region
    for (const Op *o = f->first; o && main; o = o->next) {
        if (hd_op_is(o, TRAIT_OPENS)) {
            const Symbol *s = hd_named(o, A_REGION);
            RegionFact now = {f, s->name, hd_word(&s->attrs, A_KIND, ""), hd_word(&s->attrs, A_PATH, ""),
                              .bwd = hd_has(&s->attrs, A_BWD)};
            r->cuts += runs * (between && r->regions.n && continues(&r->regions.at[r->regions.n - 1], s, f));
            hd_push(a, &r->regions, now);
        }
        inside = (inside || hd_op_is(o, TRAIT_OPENS)) && !hd_op_is(o, TRAIT_CLOSES);
        bool works = hd_is_action(o) && !hd_is_event(o) && !strcmp(o->stream, main);
        between = (between || hd_op_is(o, TRAIT_CLOSES)) && !works;
        if (!hd_is_action(o)) continue;
        RegionFact *in = inside ? &r->regions.at[r->regions.n - 1] : NULL;
        if (in && hd_has(&o->attrs, A_EXTERNAL)) in->external++;
        if (hd_is_event(o)) continue;
        if (in) in->actions++, r->captured += runs;
        else leave(r, o, main, runs, a);
    }
}

void hd_report_capture(const Facts *r, Out *o) {
    hd_printf(o, "  \"capture\": {\"graph\": \"%s\", \"regions\": %d, \"actions\": %lld, \"cuts\": %lld,\n",
              r->graph, r->regions.n, ll(r->captured), ll(r->cuts));
    hd_puts(o, "    \"outside\": [");
    for (int i = 0; i < r->outside.n; i++)
        hd_put_json(o, "%s\n      {\"stream\": \"%s\", \"actions\": %lld, \"why\": \"%s\"}", i ? "," : "",
                  r->outside.at[i].stream, ll(r->outside.at[i].actions), r->outside.at[i].why);
    hd_puts(o, "],\n    \"list\": [");
    for (int i = 0; i < r->regions.n; i++) {
        const RegionFact *x = &r->regions.at[i];
        hd_put_json(o, "%s\n      {\"name\": \"%s\", \"function\": \"%s\", \"kind\": \"%s\", \"path\": \"%s\", ",
                  i ? "," : "", x->name, x->func->name, x->kind, x->path);
        hd_printf(o, "\"backward\": %s, \"actions\": %d, \"external_events\": %d}", x->bwd ? "true" : "false",
                  x->actions, x->external);
    }
    hd_puts(o, "]},\n");
}

void hd_report_capture_text(const Facts *r, Out *o) {
    hd_printf(o, "\ngraph %s: %d capture regions with %lld actions a step\n", r->graph, r->regions.n, ll(r->captured));
    if (r->cuts)
        hd_printf(o, "%20lld  of them go on where another one ended: another stream's work must be issued there\n",
                  ll(r->cuts));
    for (int i = 0; i < r->outside.n && r->regions.n; i++)
        hd_printf(o, "%20lld  actions of stream %s are launched directly: %s\n", ll(r->outside.at[i].actions),
                  r->outside.at[i].stream, r->outside.at[i].why);
}
