// The page of a timeline: runtime/log/timeline.html with its data in place of @DATA@, as compact JSON.
//
//   plan    what does not depend on time: names, places, bytes and live memory of every action, by function, and what
//           holds the peak. Programs carry it, and put the times that they measure beside it (runtime/log/timeline.c).
//   lanes, runs, spans    the rows; the runs of functions (function, start, end); the bars (lane, run, action, start,
//           length). Times are nanoseconds.
#include "passes/report/timeline.h"
#include "ir/base/ints.h"
#include "ir/machine/cost.h"
#include "ir/base/ptr_map.h"
#include "passes/report/holders.h"
#include "passes/settings.h"
#include <string.h>

extern const unsigned char hd_timeline_page[]; // runtime/log/timeline.html, as text

enum { BAR_TO_HOST = 4, BAR_TO_DEVICE, BAR_WAIT }; // kinds of bars; before them the works up to collectives
_Static_assert((int)WORK_COPIES == (int)BAR_TO_HOST, "copies are two kinds of bars");

typedef struct {
    const Module *m;
    Arena *a;
    Out *o, strings;
    PtrMap index; // of a string
    int n_strings;
} Page;

static int string(Page *p, const char *s) {
    const char *key = hd_intern(p->m->cx, s ? s : "");
    const int at = hd_ptr_get(&p->index, key);
    if (at >= 0) return at;
    hd_puts(&p->strings, p->n_strings ? "," : "");
    hd_put_json(&p->strings, "\"%s\"", key);
    hd_ptr_set(p->a, &p->index, key, p->n_strings);
    return p->n_strings++;
}

// --- the plan

static int bar_kind(const Op *o) {
    const Work w = hd_work(o);
    if (w == WORK_COPIES) return hd_copy_way(o) == COPY_TO_HOST ? BAR_TO_HOST : BAR_TO_DEVICE;
    return w == WORK_SYNC ? BAR_WAIT : (int)w;
}

static const char *name_of(const Op *o, Arena *a) {
    const Func *k = hd_launched(o);
    return k ? hd_kernel_text(a, k) : hd_op_info(o->kind)->mnemonic;
}

static const char *line_of(const Op *o, Arena *a) {
    return o->loc.file ? hd_sprintf(a, "%s:%d", o->loc.file, o->loc.line) : "";
}

// By op id: transient bytes of the device that live during the op.
static const int64_t *live_bytes(const Func *f, Arena *a) {
    const Live live = hd_live(f, 0, SPACE_DEVICE, a);
    int64_t *now = HD_NEWN(a, int64_t, f->n_ops + 2);
    for (int i = 0; i < live.n; i++) {
        now[live.at[i].from] += live.at[i].bytes;
        now[live.at[i].to + 1] -= live.at[i].bytes;
    }
    for (int i = 1; i <= f->n_ops; i++) now[i] += now[i - 1];
    int64_t *during = HD_NEWN(a, int64_t, f->n_ops + 2);
    for (int i = 0; i < f->n_ops; i++) during[i] = now[live.time[i]];
    return during;
}

static void put_action(Page *p, const Op *o, int64_t live, bool first) {
    double flops, bytes;
    hd_cost(o, &flops, &bytes);
    const int name = string(p, name_of(o, p->a)), path = string(p, o->loc.path), line = string(p, line_of(o, p->a));
    hd_printf(p->o, "%s%d,%d,%d,%d,%.0f,%.6g,%lld", first ? "" : ",", name, path, line, bar_kind(o), bytes, flops,
              ll(live));
}

// Prints each capture region: its name, its first and its last action.
static void put_regions(Page *p, const Func *f) {
    int n = 0, first = 0, regions = 0;
    for (const Op *o = f->first; o; o = o->next) {
        if (hd_op_is(o, TRAIT_OPENS)) first = n;
        if (hd_op_is(o, TRAIT_CLOSES) && n > first)
            hd_printf(p->o, "%s%d,%d,%d", regions++ ? "," : "",
                      string(p, hd_sprintf(p->a, "@%s", hd_word(&o->attrs, A_REGION, ""))), first, n - 1);
        n += hd_is_action(o);
    }
}

static void put_function(Page *p, const Func *f, bool first) {
    const int64_t *live = live_bytes(f, p->a);
    int n = 0;
    hd_puts(p->o, first ? "\n{\"name\":" : ",\n{\"name\":");
    hd_put_json(p->o, "\"%s\"", f->name);
    hd_puts(p->o, ",\"actions\":[");
    for (const Op *o = f->first; o; o = o->next)
        if (hd_is_action(o)) put_action(p, o, live[o->id], !n++);
    hd_puts(p->o, "],\"regions\":[");
    put_regions(p, f);
    hd_puts(p->o, "]}");
}

static void put_peak(Page *p, const Facts *r) {
    const Holders all = hd_report_holders(r, p->a);
    const Op *during = r->live.during;
    hd_puts(p->o, "\"peak\":{\"during\":");
    const char *path = during && during->loc.path ? during->loc.path : "";
    if (during) hd_put_json(p->o, "\"%s %s %s\"", name_of(during, p->a), path, line_of(during, p->a));
    else hd_puts(p->o, "\"\"");
    hd_puts(p->o, ",\"holders\":[");
    for (int i = 0; i < all.n; i++) {
        const Holder *h = &all.at[i];
        hd_printf(p->o, "%s%lld,%d,\"%s\",", i ? "," : "", ll(h->bytes), h->n, hd_report_class_text[h->c]);
        hd_put_json(p->o, "\"%s %s%s\"", h->action, h->path, h->place);
    }
    hd_puts(p->o, "]}");
}

void hd_timeline_plan(const Module *m, const Facts *r, Arena *a, Out *o) {
    Page p = {.m = m, .a = a, .o = o, .strings = hd_out(a)};
    bool first = true;
    hd_puts(o, "{\"model\":");
    hd_put_json(o, "\"%s\"", hd_word(hd_settings(m, "model"), A_MODEL, ""));
    hd_printf(o, ",\"tokens\":%lld,\"arena\":%lld,\"persistent\":%lld,\n", ll(r->tokens), ll(r->peak),
              ll(r->persistent));
    put_peak(&p, r);
    hd_puts(o, ",\n\"functions\":[");
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        put_function(&p, f, first);
        first = false;
    }
    hd_printf(o, "],\n\"strings\":[%s]}", p.strings.text);
}

// --- the prediction

static int func_number(const Module *m, const Func *f) {
    int n = 0;
    for (const Func *g = m->funcs; g != f; g = g->next) n += !g->is_kernel;
    return n;
}

static long long ns(double seconds) { return (long long)(1e9 * seconds + 0.5); }

static void put_spans(const Simulation *s, Arena *a, Out *o) {
    int *index = NULL, run = -1; // by op id: its number among the actions of its function
    bool first = true;
    hd_puts(o, "\"spans\":[");
    for (int i = 0; i < s->n_actions; i++) {
        const SimAction *c = &s->actions[i];
        if (c->run != run) {
            const Func *f = s->runs[run = c->run].f;
            int n = 0;
            index = HD_NEWN(a, int, f->n_ops + 1);
            for (const Op *x = f->first; x; x = x->next) index[x->id] = hd_is_action(x) ? n++ : -1;
        }
        if (index[c->op->id] < 0 || (c->work == WORK_SYNC && c->end <= c->start)) continue;
        hd_printf(o, "%s%d,%d,%d,%lld,%lld", first ? "" : ",", c->stream, c->run, index[c->op->id], ns(c->start),
                  ns(c->end) - ns(c->start));
        first = false;
    }
    hd_puts(o, "]");
}

void hd_timeline_predicted(const Module *m, const Facts *r, Arena *a, Out *o) {
    const Simulation *s = &r->sim;
    const char *page = (const char *)hd_timeline_page, *data = strstr(page, "@DATA@");
    hd_putn(o, page, (size_t)(data - page));
    hd_puts(o, "{\"version\":1,\"kind\":\"predicted\",\"device\":");
    hd_put_json(o, "\"%s\"", hd_model_name(r->device));
    hd_puts(o, ",\"lanes\":[");
    for (int i = 0; i < s->n_streams; i++) {
        hd_puts(o, i ? "," : "");
        hd_put_json(o, "\"%s\"", s->streams[i]);
    }
    hd_puts(o, "],\"runs\":[");
    for (int i = 0; i < s->n_runs; i++)
        hd_printf(o, "%s%d,%lld,%lld", i ? "," : "", func_number(m, s->runs[i].f), ns(s->runs[i].start),
                  ns(s->runs[i].end));
    hd_puts(o, "],\n\"plan\":");
    hd_timeline_plan(m, r, a, o);
    hd_puts(o, ",\n");
    put_spans(s, a, o);
    hd_puts(o, "}");
    hd_puts(o, data + strlen("@DATA@"));
}
