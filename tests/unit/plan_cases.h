// Finished plans to change: an example made small, and settings over it.
#ifndef TESTS_UNIT_PLAN_CASES_H
#define TESTS_UNIT_PLAN_CASES_H
#include "frontend/frontend.h"
#include "passes/manager/manager.h"
#include "tests/unit/check.h"

static Module *parse(Ctx *cx, const char *text) {
    uint32_t base = hd_source_add(&cx->diags, "plan", text, strlen(text), 1);
    return hd_parse_module(cx, text, strlen(text), base);
}

static const char *plan_text(Ctx *cx, Module *m, const char *pipeline, int64_t guard) {
    Pipeline p = {0};
    ManagerOptions options = hd_manager_defaults();
    Out o = hd_out(cx->arena);
    if (!m || !hd_pipeline_parse(cx, pipeline, &p) ||
        (guard && !hd_pipeline_option(cx, &p, "plan-memory", "guard", guard)) || !hd_manager_run(m, &p, &options)) {
        hd_diags_print(&cx->diags, &o);
        fputs(o.text, stderr);
        return NULL;
    }
    hd_print_module(m, &o);
    return o.text;
}

// In how many orders a plan is run: all streams allow more.
static int orders_of(const Module *m) {
    int streams = 0;
    bool graphs = false;
    for (const Symbol *s = m->symbols; s; s = s->next) {
        streams += s->kind == SYM_STREAM;
        graphs |= s->kind == SYM_REGION;
    }
    if (graphs) streams = 2 * streams - 1; // those in graphs
    return streams > 1 ? 2 + 2 * streams + 2 : 1;
}

static const char *train_plan(Ctx *cx, const char *path, int n_sets, const SetOption *sets, int64_t guard) {
    size_t n = 0;
    const char *text = hd_read_file(cx->arena, path, &n);
    CHECK(text != NULL);
    return text ? plan_text(cx, hd_frontend(cx, path, text, n, sets, n_sets), "train", guard) : NULL;
}

enum { MOST_SETS = 16, SOME = 5 };
typedef struct { const char *name, *example, *sets; int most; } Case;

static int split(Arena *a, const char *text, SetOption *sets, int n) {
    while (*text) {
        size_t len = strcspn(text, " ");
        if (len && n < MOST_SETS) sets[n++] = (SetOption){hd_sprintf(a, "%.*s", (int)len, text)};
        text += len + (text[len] == ' ');
    }
    return n;
}

static const char *case_plan(Ctx *cx, const Case *c, int64_t guard) {
    bool llama = strcmp(c->example, "llama") == 0;
    SetOption sets[MOST_SETS];
    const char *small = llama ? "layers=1 dim=8 heads=2 kv_heads=1 hidden=8" : "layers=1 dim=8 heads=2";
    int n = split(cx->arena, small, sets, 0);
    n = split(cx->arena, "seq=4 vocab=16 train.batch=1 schedule.fsdp.unit=Block", sets, n);
    n = split(cx->arena, c->sets, sets, n);
    bool own = !strcmp(c->example, "losses") || !strcmp(c->example, "rows");
    return train_plan(cx,
                      hd_sprintf(cx->arena,
                                 own ? HEDDLE_SOURCE "/tests/unit/plans/%s.hd" : HEDDLE_SOURCE "/examples/%s/%s.hd",
                                 c->example, c->example),
                      n, sets, guard);
}
#endif
