// The report of a plan. Bytes are those of the moment at which most are live: what persists, and what is live in the function and op that
// hold the peak; `unused` is what packing and alignment leave over, so the classes add up to the arena.
#include "passes/report.h"
#include "ir/cost.h"
#include "passes/live.h"
#include "passes/verify_plan.h"

#define CLASSES(X) \
    X(SHARDS, "shards") X(OPTIMIZER, "optimizer") X(WEIGHTS, "weights") X(GRADIENTS, "gradients") X(ACTIVATIONS, "activations") \
    X(WORKSPACES, "workspaces") X(STAGING, "staging") X(UNUSED, "unused")
typedef enum {
#define X(id, text) CLASS_##id,
    CLASSES(X)
#undef X
    N_CLASSES
} Class;
static const char *const class_text[] = {
#define X(id, text) text,
    CLASSES(X)
#undef X
};

typedef struct {
    int64_t peak, bound, persistent, pinned, classes[N_CLASSES];
    const Func *at;
    Live live;
    int graphs, kernels, grad_buffers;
    int64_t parameters, actions;
    double flops, model_flops;
    bool verified;
} Report;

static int64_t round_up(int64_t n) { return (n + 255) & ~(int64_t)255; }

static Class class_of_buffer(const Symbol *s) {
    static const struct { const char *role; Class c; } roles[] = {
        {"compute", CLASS_WEIGHTS}, {"grad", CLASS_GRADIENTS}, {"moment1", CLASS_OPTIMIZER}, {"moment2", CLASS_OPTIMIZER}, {"state", CLASS_OPTIMIZER},
        {"gathered", CLASS_WEIGHTS}, {"gradient", CLASS_GRADIENTS}, {"staging", CLASS_STAGING}};
    const char *role = hd_word(&s->attrs, A_ROLE, "");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].role, role) == 0) return roles[i].c;
    return CLASS_SHARDS;
}

// A transient is a gradient when it is on its way into a gradient buffer; gradients of activations are activations' work.
static Class class_of_value(const Func *f, const Value *v) {
    for (const Op *o = f->first; o; o = o->next) {
        if (o->kind != OP_STORE) continue;
        const Value *in = o->in[0];
        while (in->def && hd_op_is(in->def, TRAIT_ALIAS)) in = in->def->in[0];
        const Symbol *b = in == v ? hd_symbol_find(f->module, hd_word(&o->attrs, A_INTO, "")) : NULL;
        if (b && strcmp(hd_word(&b->attrs, A_ROLE, ""), "grad") == 0) return CLASS_GRADIENTS;
    }
    return CLASS_ACTIVATIONS;
}

static int64_t config_int(const Module *m, const char *name, AttrId a, int64_t otherwise) {
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_CONFIG && strcmp(s->name, name) == 0) return hd_int(&s->attrs, a, otherwise);
    return otherwise;
}

static Class class_of_item(const Func *f, const LiveItem *x) {
    return x->buffer ? class_of_buffer(x->buffer) : x->value ? class_of_value(f, x->value) : CLASS_WORKSPACES;
}

// How often a step runs a function; 0: it is no part of a step.
static int64_t runs_per_step(const Module *m, const Func *f) {
    int64_t micro = config_int(m, "train", A_MICRO, 1);
    if (strcmp(f->name, "micro") == 0) return micro > 2 ? micro - 2 : 0;
    static const char *const once[] = {"micro_only", "micro_first", "micro_last", "update"};
    for (size_t i = 0; i < sizeof once / sizeof *once; i++)
        if (strcmp(f->name, once[i]) == 0) return 1;
    return 0;
}

// Whether the program does something for an op: not for aliases, the return, and stores whose operand is already there.
static bool is_action(const Op *o) {
    return !hd_is_alias(o) && o->kind != OP_RETURN && !(o->kind == OP_STORE && hd_has(&o->attrs, A_INPLACE));
}

static void add_functions(Report *r, const Module *m, Arena *a) {
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) {
            r->kernels++;
            continue;
        }
        double flops, bytes;
        hd_cost_of_func(f, &flops, &bytes);
        int64_t runs = runs_per_step(m, f);
        r->flops += flops * (double)runs;
        for (const Op *o = f->first; o; o = o->next) r->actions += is_action(o) ? runs : 0;
        r->graphs += runs > 0 && strcmp(hd_word(&f->attrs, A_GRAPH, "none"), "none") != 0;
        Live live = hd_live(f, a);
        if (!r->at || live.peak > r->live.peak) r->live = live, r->at = f;
    }
}

static Report report_of(const Module *m, Arena *a) {
    Report r = {.model_flops = (double)config_int(m, "model", A_MODEL_FLOPS, 0) * (double)config_int(m, "train", A_MICRO, 1)};
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind == SYM_PARAM && s->type) r.parameters += hd_type_count(s->type);
        if (s->kind == SYM_ARENA && strcmp(s->name, "host") == 0) r.pinned = hd_int(&s->attrs, A_BYTES, 0);
        if (s->kind == SYM_ARENA && strcmp(s->name, "device") == 0) {
            r.peak = hd_int(&s->attrs, A_BYTES, 0);
            r.bound = hd_int(&s->attrs, A_LOWER_BOUND_BYTES, 0);
            r.persistent = hd_int(&s->attrs, A_PERSISTENT_BYTES, 0);
        }
        if (s->kind != SYM_BUFFER || !s->type || s->place.host || hd_has(&s->attrs, A_TRANSIENT)) continue;
        r.classes[class_of_buffer(s)] += round_up(hd_type_bytes(s->type));
        r.grad_buffers += class_of_buffer(s) == CLASS_GRADIENTS;
    }
    add_functions(&r, m, a);
    for (int i = 0; r.at && r.live.during && i < r.live.n; i++) {
        const LiveItem *x = &r.live.at[i];
        if (r.live.during->id < x->from || r.live.during->id > x->to) continue;
        r.classes[class_of_item(r.at, x)] += x->bytes;
    }
    r.classes[CLASS_UNUSED] = r.peak;
    for (int i = 0; i < CLASS_UNUSED; i++) r.classes[CLASS_UNUSED] -= r.classes[i];
    r.verified = hd_check_plan(m, a).n == 0;
    return r;
}

static void put_int(Out *o, const char *key, int64_t v) { hd_printf(o, "  \"%s\": %lld,\n", key, (long long)v); }

void hd_report_json(const Module *m, double seconds, Out *o) {
    Arena *a = hd_arena_new();
    Report r = report_of(m, a);
    hd_puts(o, "{\n");
    put_int(o, "parameters", r.parameters);
    put_int(o, "peak_bytes", r.peak);
    put_int(o, "lower_bound_bytes", r.bound);
    put_int(o, "persistent_bytes", r.persistent);
    put_int(o, "transient_bytes", r.peak - r.persistent);
    put_int(o, "host_pinned_bytes", r.pinned);
    hd_puts(o, "  \"peak_at\": ");
    hd_put_quoted(o, r.at ? r.at->name : "");
    hd_puts(o, ",\n  \"classes\": {");
    for (int i = 0; i < N_CLASSES; i++) hd_printf(o, "%s\"%s\": %lld", i ? ", " : "", class_text[i], (long long)r.classes[i]);
    hd_puts(o, "},\n  \"collectives\": {},\n");
    put_int(o, "gathered_units_max", 0); // one rank: nothing is gathered
    put_int(o, "live_grad_buffers_max", r.grad_buffers);
    put_int(o, "graphs", r.graphs);
    put_int(o, "kernels", r.kernels);
    put_int(o, "actions_per_step", r.actions);
    hd_printf(o, "  \"flops_per_step\": %.0f,\n", r.flops);
    if (r.model_flops > 0) hd_printf(o, "  \"model_flops_per_step\": %.0f,\n", r.model_flops);
    if (seconds >= 0) hd_printf(o, "  \"compile_seconds\": %.6f,\n", seconds);
    hd_printf(o, "  \"verified\": %s\n}\n", r.verified ? "true" : "false");
    hd_arena_free(a);
}

static const char *origin(Arena *a, const Op *o) {
    if (!o) return "argument";
    const char *name = hd_op_info(o->kind)->mnemonic;
    const Func *k = o->kind == OP_LAUNCH ? hd_func_find(o->func->module, hd_word(&o->attrs, A_KERNEL, "")) : NULL;
    if (k) name = hd_sprintf(a, "%s @%s", name, k->name);
    if (o->loc.file) return hd_sprintf(a, "%s  %s  %s:%d", name, o->loc.path ? o->loc.path : "", o->loc.file, o->loc.line);
    return o->loc.path ? hd_sprintf(a, "%s  %s", name, o->loc.path) : name;
}

// The largest transients at the peak, with the op that made them.
static void put_holders(const Report *r, Arena *a, Out *o) {
    enum { MOST = 12 };
    bool *said = HD_NEWN(a, bool, r->live.n + 1);
    hd_printf(o, "\nlargest transients at the peak, in @%s during op %d: %s\n", r->at->name, r->live.during->id, origin(a, r->live.during));
    for (int k = 0; k < MOST; k++) {
        int best = -1;
        for (int i = 0; i < r->live.n; i++) {
            const LiveItem *x = &r->live.at[i];
            bool live = r->live.during->id >= x->from && r->live.during->id <= x->to;
            if (live && !said[i] && (best < 0 || x->bytes > r->live.at[best].bytes)) best = i;
        }
        if (best < 0) return;
        said[best] = true;
        const LiveItem *x = &r->live.at[best];
        hd_printf(o, "%16lld  %-10s %s\n", (long long)x->bytes, x->value || x->buffer ? class_text[class_of_item(r->at, x)] : "workspace", origin(a, x->by));
    }
}

void hd_report_text(const Module *m, double seconds, Out *o) {
    Arena *a = hd_arena_new();
    Report r = report_of(m, a);
    double whole = r.peak > 0 ? (double)r.peak : 1;
    hd_printf(o, "device memory  %lld bytes (%.2f GiB), lower bound %lld, gap %.2f %%; %s\n", (long long)r.peak, whole / (double)(1 << 30), (long long)r.bound,
              100.0 * (double)(r.peak - r.bound) / whole, r.verified ? "verified" : "NOT VERIFIED");
    for (int i = 0; i < N_CLASSES; i++)
        if (r.classes[i]) hd_printf(o, "%16lld  %5.1f %%  %s\n", (long long)r.classes[i], 100.0 * (double)r.classes[i] / whole, class_text[i]);
    if (r.pinned) hd_printf(o, "pinned host memory  %lld bytes\n", (long long)r.pinned);
    if (r.at && r.live.during) put_holders(&r, a, o);
    hd_printf(o, "\n%d kernels, %d captured functions, %.4g floating-point operations a step\n", r.kernels, r.graphs, r.flops);
    if (seconds >= 0) hd_printf(o, "compiled in %.3f s\n", seconds);
    hd_arena_free(a);
}
