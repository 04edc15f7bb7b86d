// The report of --emit=report. Everything is counted from the finished plan: the classes at the peak come from a sweep over the
// function that holds it, in which a value is alive from the op that makes it to the last one that reads it or an alias of it.
// Bytes that several values share (in-place results) count once, so classes, gap and persistent buffers add up to the peak.
#include "codegen/report.h"
#include "codegen/emit.h"
#include <stdlib.h>

typedef enum { CLASS_ACTIVATIONS, CLASS_BACKWARD, CLASS_WORKSPACES, N_CLASSES } Class;
static const char *const class_names[N_CLASSES] = {"activations", "activation_gradients", "workspaces"};
typedef struct { int64_t lo, hi; Class class; } Range;
typedef struct { int from, to; Range range; } Interval; // alive at the ops with these ids

static const Symbol *find_symbol(const Module *m, SymbolKind kind, const char *name) {
    const Symbol *s = hd_symbol_find(m, name);
    return s && s->kind == kind ? s : NULL;
}

static const Value *root_of(const Value *v) {
    while (v->def && hd_op_is(v->def, TRAIT_ALIAS)) v = v->def->in[0];
    return v;
}

// --- the peak

static int by_begin(const void *a, const void *b) {
    const Range *x = a, *y = b;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    return (int)x->class - (int)y->class;
}

// Bytes that the ranges cover, by class; of bytes covered twice the first range decides.
static int64_t cover(Range *ranges, int n, int64_t *bytes) {
    int64_t total = 0, end = 0;
    memset(bytes, 0, N_CLASSES * sizeof *bytes);
    qsort(ranges, (size_t)n, sizeof *ranges, by_begin);
    for (int k = 0; k < n; k++) {
        int64_t from = ranges[k].lo > end ? ranges[k].lo : end;
        if (ranges[k].hi <= from) continue;
        bytes[ranges[k].class] += ranges[k].hi - from;
        total += ranges[k].hi - from;
        end = ranges[k].hi;
    }
    return total;
}

static int collect_intervals(const Func *f, int64_t persistent, Arena *a, Interval *list) {
    int n = 0, *at = HD_NEWN(a, int, f->n_values + 1); // by value id: 1 + its interval
    for (const Op *o = f->first; o; o = o->next) {
        for (int k = 0; k < o->n_in; k++) {
            int i = at[root_of(o->in[k])->id];
            if (i) list[i - 1].to = o->id;
        }
        for (int k = 0; k < o->n_out; k++) {
            const Value *v = o->out[k];
            if (root_of(v) != v || hd_op_is(o, TRAIT_SOURCE) || !v->place.placed || v->place.host || v->place.offset < persistent) continue;
            Class class = hd_has(&o->attrs, A_BWD) ? CLASS_BACKWARD : CLASS_ACTIVATIONS;
            list[n++] = (Interval){o->id, o->id, {v->place.offset, v->place.offset + hd_type_bytes(v->type), class}};
            at[v->id] = n;
        }
        int64_t workspace = hd_int(&o->attrs, A_WORKSPACE_AT, -1);
        if (workspace >= 0) list[n++] = (Interval){o->id, o->id, {workspace, workspace + hd_int(&o->attrs, A_WORKSPACE_BYTES, 0), CLASS_WORKSPACES}};
    }
    return n;
}

// The classes of a function's transient bytes at the op where most are alive.
static void peak_classes(const Func *f, int64_t persistent, int64_t *bytes) {
    Arena *scratch = hd_arena_new();
    Interval *list = HD_NEWN(scratch, Interval, f->n_values + f->n_ops + 1);
    Range *alive = HD_NEWN(scratch, Range, f->n_values + f->n_ops + 1);
    int n = collect_intervals(f, persistent, scratch, list);
    int64_t most = -1, now[N_CLASSES];
    for (const Op *o = f->first; o; o = o->next) {
        int count = 0;
        for (int k = 0; k < n && list[k].from <= o->id; k++)
            if (list[k].to >= o->id) alive[count++] = list[k].range;
        int64_t total = cover(alive, count, now);
        if (total <= most) continue;
        most = total;
        memcpy(bytes, now, sizeof now);
    }
    hd_arena_free(scratch);
}

// --- persistent buffers

static int64_t role_bytes(const Module *m, const char *role) {
    int64_t bytes = 0;
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER && !strcmp(hd_word(&s->attrs, A_ROLE, ""), role)) bytes += hd_type_bytes(s->type);
    return bytes;
}

static void put_classes(const Module *m, int64_t peak, int64_t persistent, const char *peak_at, Out *o) {
    static const struct { const char *name, *roles[2]; } kept[] = {
        {"weights", {"compute", NULL}}, {"master_weights", {"master", NULL}}, {"gradients", {"grad", NULL}},
        {"optimizer_state", {"moment1", "moment2"}}, {"step_state", {"state", NULL}}};
    int64_t rest = peak, bytes[N_CLASSES] = {0};
    hd_puts(o, "  \"classes\": {");
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
        int64_t sum = 0;
        for (int j = 0; j < 2; j++)
            if (kept[k].roles[j]) sum += role_bytes(m, kept[k].roles[j]);
        rest -= sum;
        hd_printf(o, "\"%s\": %lld, ", kept[k].name, (long long)sum);
    }
    const Func *f = hd_func_find(m, peak_at);
    if (f) peak_classes(f, persistent, bytes);
    for (int k = 0; k < N_CLASSES; k++) {
        rest -= bytes[k];
        hd_printf(o, "\"%s\": %lld, ", class_names[k], (long long)bytes[k]);
    }
    hd_printf(o, "\"inputs_and_gaps\": %lld},\n", (long long)rest);
}

// --- work

// How often a planned function runs in a step of `micro` micro-batches.
static int64_t runs_in_step(const char *name, int64_t micro) {
    if (!strcmp(name, "micro_only")) return micro == 1;
    if (!strcmp(name, "micro_first") || !strcmp(name, "micro_last")) return micro > 1;
    if (!strcmp(name, "micro")) return micro > 2 ? micro - 2 : 0;
    return !strcmp(name, "update");
}

static void put_work(const Module *m, Out *o) {
    int64_t micro = 1;
    const Attr *setting = hd_emit_setting(m, A_MICRO), *model = hd_emit_setting(m, A_MODEL_FLOPS);
    if (setting) micro = setting->i;
    int graphs = 0, kernels = 0;
    int64_t launches = 0;
    double flops = 0, one, bytes;
    for (const Func *f = m->funcs; f; f = f->next) {
        kernels += f->is_kernel;
        if (f->is_kernel) continue;
        int64_t runs = runs_in_step(f->name, micro);
        graphs += runs > 0 && strcmp(hd_word(&f->attrs, A_GRAPH, "none"), "none") != 0;
        for (const Op *op = f->first; op && runs; op = op->next) {
            if (!hd_emit_is_action(op)) continue;
            hd_emit_cost(op, &one, &bytes);
            flops += one * (double)runs;
            launches += runs;
        }
    }
    hd_printf(o, "  \"graphs\": %d,\n  \"kernels\": %d,\n  \"actions_per_step\": %lld,\n", graphs, kernels, (long long)launches);
    hd_printf(o, "  \"flops_per_step\": %.17g,\n", flops);
    if (model) hd_printf(o, "  \"model_flops_per_step\": %.17g,\n", (double)model->i * (double)micro);
}

void hd_report_json(const Module *m, double compile_seconds, bool verified, Out *o) {
    const Symbol *device = find_symbol(m, SYM_ARENA, "device"), *host = find_symbol(m, SYM_ARENA, "host");
    int64_t peak = device ? hd_int(&device->attrs, A_BYTES, 0) : 0, persistent = device ? hd_int(&device->attrs, A_PERSISTENT_BYTES, 0) : 0;
    int64_t parameters = 0;
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM) parameters += hd_type_count(s->type);
    const char *peak_at = device ? hd_word(&device->attrs, A_PEAK_AT, "") : "";
    hd_printf(o, "{\n  \"parameters\": %lld,\n", (long long)parameters);
    hd_printf(o, "  \"peak_bytes\": %lld,\n", (long long)peak);
    hd_printf(o, "  \"lower_bound_bytes\": %lld,\n", (long long)(device ? hd_int(&device->attrs, A_LOWER_BOUND_BYTES, 0) : 0));
    hd_printf(o, "  \"persistent_bytes\": %lld,\n  \"transient_bytes\": %lld,\n", (long long)persistent, (long long)(peak - persistent));
    hd_printf(o, "  \"host_pinned_bytes\": %lld,\n", (long long)(host ? hd_int(&host->attrs, A_BYTES, 0) : 0));
    hd_printf(o, "  \"peak_at\": \"%s\",\n", peak_at);
    put_classes(m, peak, persistent, peak_at, o);
    hd_puts(o, "  \"collectives\": {},\n  \"gathered_units_max\": 0,\n  \"live_grad_buffers_max\": 0,\n"); // one rank moves nothing
    put_work(m, o);
    hd_printf(o, "  \"compile_seconds\": %.6f,\n  \"verified\": %s\n}\n", compile_seconds, verified ? "true" : "false");
}
