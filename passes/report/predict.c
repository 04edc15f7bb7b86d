// The time of a step as the device's table predicts it, in both forms of the report.
#include "passes/report/facts.h"
#include "passes/settings.h"
#include "ir/base/ints.h"

// The bound of the step: the host, or the kind of work that takes most of the chain of actions that ends last.
static const char *bound_by(const Simulation *s) {
    if (s->host > s->device) return "launches";
    int most = 0;
    for (int w = 0; w < N_WORKS; w++)
        if (s->path[w] > s->path[most]) most = w;
    return s->gaps > s->path[most] ? "launches" : hd_work_text[most];
}

typedef struct { const Func *f; int64_t times; SimRun sum; } Segment; // all runs of one function
typedef VEC(Segment) Segments;

static Segments segments(const Simulation *s, Arena *a) {
    Segments all = {0};
    for (int i = 0; i < s->n_runs; i++) {
        const SimRun *r = &s->runs[i];
        int k = 0;
        while (k < all.n && all.at[k].f != r->f) k++;
        if (k == all.n) hd_push(a, &all, (Segment){.f = r->f});
        Segment *g = &all.at[k];
        g->times++;
        g->sum.end += r->end - r->start;
        for (int w = 0; w < N_WORKS; w++) g->sum.busy[w] += r->busy[w];
        g->sum.exposed_collectives += r->exposed_collectives;
        g->sum.exposed_copies += r->exposed_copies;
        g->sum.idle += r->idle;
    }
    return all;
}

static void put_works(Out *o, const char *key, const double *seconds) {
    hd_put_json(o, "\"%s\": {", key);
    for (int w = 0; w < WORK_SYNC; w++) hd_put_json(o, "%s\"%s\": %.9f", w ? ", " : "", hd_work_text[w], seconds[w]);
    hd_puts(o, "}");
}

static bool lends_rate(const Facts *r) { // to products of FP8, from bf16
    for (int i = 0; i < r->sim.n_actions; i++) {
        const Op *o = r->sim.actions[i].op;
        if (r->sim.actions[i].work != WORK_PRODUCTS) continue;
        if (!hd_model_has_rate(r->device, o->in[0]->type->dtype)) return true;
    }
    return false;
}

// The facts that the prediction rests on beside the table's lines.
static int notes_of(const Facts *r, Arena *a, const char **notes) {
    int n = hd_report_link_notes(r, a, notes);
    if (lends_rate(r))
        notes[n++] = "FP8 products at the rate of bf16: the table has no lines of FP8; they take less time";
    if (r->sim.stuck) notes[n++] = "a wait that nothing ends";
    return n;
}
enum { NOTES = 2 + HD_LINK_NOTES };

static void put_notes(const Facts *r, Out *o) {
    Arena *a = hd_arena_new();
    const char *notes[NOTES];
    const int n = notes_of(r, a, notes);
    hd_puts(o, "\"notes\": [");
    for (int i = 0; i < n; i++) hd_put_json(o, "%s\"%s\"", i ? ", " : "", notes[i]);
    hd_puts(o, "]");
    hd_arena_free(a);
}

static void put_segments(const Facts *r, Out *o) {
    Arena *a = hd_arena_new();
    const Segments all = segments(&r->sim, a);
    hd_puts(o, "    \"segments\": [");
    for (int i = 0; i < all.n; i++) {
        const Segment *g = &all.at[i];
        hd_put_json(o, "%s\n      {\"name\": \"%s\", \"times\": %lld, \"seconds\": %.9f, ", i ? "," : "", g->f->name,
                    ll(g->times), g->sum.end);
        put_works(o, "busy", g->sum.busy);
        hd_put_json(o, ", \"exposed_communication\": %.9f, \"exposed_copies\": %.9f, \"idle\": %.9f}",
                    g->sum.exposed_collectives, g->sum.exposed_copies, g->sum.idle);
    }
    hd_puts(o, "],\n");
    hd_arena_free(a);
}

static void sum_exposed(const Facts *r, double *collectives, double *copies, double *idle) {
    *collectives = *copies = *idle = 0;
    for (int i = 0; i < r->sim.n_runs; i++) {
        *collectives += r->sim.runs[i].exposed_collectives;
        *copies += r->sim.runs[i].exposed_copies;
        *idle += r->sim.runs[i].idle;
    }
}

void hd_report_predicted(const Facts *r, Out *o) {
    const Simulation *s = &r->sim;
    double collectives, copies, idle;
    if (!r->device) return;
    hd_puts(o, "  \"device_model\": ");
    hd_put_json(o, "\"%s\"", hd_model_name(r->device));
    hd_puts(o, ",\n");
    if (!s->n_actions) return;
    sum_exposed(r, &collectives, &copies, &idle);
    hd_puts(o, "  \"predicted\": {\n");
    hd_put_json(o, "    \"step_seconds\": %.9f, \"device_seconds\": %.9f, \"host_seconds\": %.9f,\n",
                hd_step_seconds(s), s->device, s->host);
    if (r->tokens) hd_put_json(o, "    \"tokens_per_second\": %.0f,\n", (double)r->tokens / hd_step_seconds(s));
    hd_put_json(o, "    \"bound_by\": \"%s\",\n    ", bound_by(s));
    put_works(o, "critical_path", s->path);
    hd_put_json(o, ", \"gaps\": %.9f,\n", s->gaps);
    hd_put_json(o, "    \"exposed_communication\": %.9f, \"exposed_copies\": %.9f, \"idle\": %.9f,\n", collectives,
                copies, idle);
    if (s->joules > 0) hd_put_json(o, "    \"joules\": %.6f, \"power_rate\": %.4f,\n", s->joules, s->rate);
    hd_report_links_json(r, o);
    put_segments(r, o);
    hd_puts(o, "    \"from\": ");
    hd_put_json(o, "\"%s\"", hd_model_from(r->device));
    hd_puts(o, ", ");
    put_notes(r, o);
    hd_puts(o, "\n  },\n");
}

void hd_report_predicted_text(const Facts *r, Out *o) {
    const Simulation *s = &r->sim;
    double collectives, copies, idle;
    if (!r->device || !s->n_actions) return;
    sum_exposed(r, &collectives, &copies, &idle);
    hd_show(o, "\npredicted for %s: %.3f ms a step", hd_model_name(r->device), 1e3 * hd_step_seconds(s));
    if (r->tokens) hd_show(o, ", %.0f tokens/s", (double)r->tokens / hd_step_seconds(s));
    hd_show(o, "; bound by %s. The longest chain:", bound_by(s));
    for (int w = 0; w < WORK_SYNC; w++)
        if (s->path[w] > 0) hd_show(o, " %s %.3f,", hd_work_text[w], 1e3 * s->path[w]);
    hd_show(o, " gaps %.3f ms\n", 1e3 * s->gaps);
    hd_show(o, "exposed: communication %.3f, copies %.3f ms; nothing runs for %.3f ms; ", 1e3 * collectives,
            1e3 * copies, 1e3 * idle);
    hd_show(o, "the host needs %.3f ms to launch\n", 1e3 * s->host);
    hd_report_links_text(r, o);
    if (s->joules > 0) hd_show(o, "energy: %.3f J a step", s->joules);
    if (s->rate < 1)
        hd_show(o, ", which is the limit of %.0f W: products and attention keep %.0f %% of their rate\n",
                hd_model_power(r->device), 100 * s->rate);
    else if (s->joules > 0) hd_puts(o, "\n");
    Arena *a = hd_arena_new();
    const char *notes[NOTES];
    const int n = notes_of(r, a, notes);
    for (int i = 0; i < n; i++) hd_show(o, "%s\n", notes[i]);
    hd_arena_free(a);
}
