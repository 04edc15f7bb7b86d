// The numbers of a report. Bytes are those of the moment at which most are live: persistent bytes, and bytes live in
// the function and op that hold the peak. `unused` is lost to packing and alignment, so the classes, and what guards
// storages, add up to the arena.
#include "passes/report/facts.h"
#include "ir/machine/cost.h"
#include "ir/dropout.h"
#include "ir/writes.h"
#include "passes/settings.h"
#include "passes/verify/verify_plan.h"
#include "ir/base/ints.h"
#include <string.h>

const char *const hd_report_class_text[N_CLASSES] = {
#define X(id, text) text,
    HD_REPORT_CLASSES(X)
#undef X
};

static ReportClass class_of_buffer(const Symbol *s) {
    const char *class = hd_word(&s->attrs, A_CLASS, "");
    for (int i = 0; i < N_CLASSES; i++)
        if (strcmp(hd_report_class_text[i], class) == 0) return (ReportClass)i;
    return CLASS_SHARDS;
}

// By value id: whether a value is a gradient on its way into a gradient buffer. Gradients of activations count as
// activations.
static const bool *find_gradients(const Func *f, Arena *a) {
    bool *on_the_way = HD_NEWN(a, bool, f->n_values + 1);
    for (const Op *o = f->first; o; o = o->next) {
        Write w;
        for (int i = 0; hd_next_write(o, &i, &w);) {
            if (w.value) on_the_way[hd_unaliased(w.value)->id] |= class_of_buffer(w.buffer) == CLASS_GRADIENTS;
        }
    }
    return on_the_way;
}

ReportClass hd_report_class(const Facts *r, int i) {
    const LiveItem *x = &r->live.at[i];
    if (x->buffer) return class_of_buffer(x->buffer);
    return !x->value ? CLASS_WORKSPACES : r->gradient[x->value->id] ? CLASS_GRADIENTS : CLASS_ACTIVATIONS;
}

bool hd_report_at_peak(const Facts *r, int i) {
    const int now = r->live.during ? r->live.time[r->live.during->id] : -1;
    return now >= r->live.at[i].from && now <= r->live.at[i].to;
}

static bool same(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static void add_implementations(Facts *r, const Func *f, int64_t runs, Arena *a) {
    for (const Op *o = f->first; o; o = o->next) {
        if (!hd_has(&o->attrs, A_IMPL)) continue;
        Implemented x = {hd_op_info(o->kind)->mnemonic, hd_word(&o->attrs, A_IMPL, ""),
                         hd_word(&o->attrs, A_ELSE, NULL), runs, hd_draws(o)};
        int i = 0;
        for (; i < r->attention.n; i++) {
            const Implemented *y = &r->attention.at[i];
            if (same(x.op, y->op) && same(x.impl, y->impl) && same(x.otherwise, y->otherwise) && x.drops == y->drops)
                break;
        }
        if (i < r->attention.n) r->attention.at[i].count += runs;
        else hd_push(a, &r->attention, x);
    }
}

static void add_live(Facts *r, const Func *f, int tail, Arena *a) {
    Live live = hd_live(f, tail, SPACE_DEVICE, a);
    if (!r->at || live.peak > r->live.peak) r->live = live, r->at = f;
}

// The values that functions hold while the one before them still works.
static void add_seam(Facts *r, const Seam *b, Arena *a) {
    Joined j = hd_join(b, a);
    Carried c = hd_carried(&j, a);
    int64_t held = 0;
    for (int i = 0; i < c.n; i++) held += hd_align(hd_type_bytes(c.at[i]->type));
    if (held > r->held) r->held = held;
    add_live(r, j.f, j.tail, a);
}

static void add_function(Facts *r, const Module *m, const Func *f, const Seams *b, Arena *a) {
    double flops, bytes;
    hd_cost_of_func(f, &flops, &bytes);
    int64_t runs = hd_runs(hd_step(m, KIND_TRAIN), f);
    r->flops += flops * (double)runs;
    for (const Op *o = f->first; o; o = o->next) r->actions += hd_is_action(o) ? runs : 0;
    if (runs > 0) hd_report_regions(f, runs, r, a);
    if (runs > 0) hd_report_traffic(f, runs, b, r, a);
    if (runs > 0) add_implementations(r, f, runs, a);
    add_live(r, f, 0, a);
}

// A gradient buffer that holds a whole bucket, unlike the buffer of a rank's shard.
static bool is_whole_gradient(const Module *m, const Symbol *s) {
    const Symbol *bucket = hd_symbol_find(m, hd_word(&s->attrs, A_BUCKET, ""));
    return class_of_buffer(s) == CLASS_GRADIENTS &&
           (!bucket || !bucket->type || hd_type_count(s->type) == hd_type_count(bucket->type));
}

// A bucket of what no unit owns, if that is in pieces.
static void add_piece(Facts *r, const Symbol *bucket, Arena *a) {
    PieceFact piece = {bucket->name, hd_align(hd_type_count(bucket->type) * hd_dtype_bytes(TY_F32))};
    if (!strncmp(hd_word(&bucket->attrs, A_UNIT, ""), "root", 4)) hd_push(a, &r->pieces, piece);
}

static void add_symbol(Facts *r, const Module *m, const Symbol *s, Arena *a) {
    if (s->kind == SYM_PARAM && s->type)
        r->parameters += hd_type_count(hd_type_whole(m->cx, s->type, s->layout, &r->mesh));
    if (s->kind == SYM_ARENA && hd_space(&s->attrs) == SPACE_HOST) r->pinned = hd_int(&s->attrs, A_BYTES, 0);
    if (s->kind == SYM_ARENA && hd_space(&s->attrs) == SPACE_DEVICE) {
        r->peak = hd_int(&s->attrs, A_BYTES, 0);
        r->bound = hd_int(&s->attrs, A_LOWER_BOUND_BYTES, 0);
        r->persistent = hd_int(&s->attrs, A_PERSISTENT_BYTES, 0);
        r->guard = hd_int(&s->attrs, A_GUARD, 0);
    }
    if (s->kind == SYM_BUCKET && s->type) {
        r->buckets++;
        add_piece(r, s, a);
        r->padding += hd_int(&s->attrs, A_PADDING, 0) * hd_dtype_bytes(s->type->dtype);
    }
    if (!hd_is_kept(s) || s->place.space) return;
    r->classes[class_of_buffer(s)] += hd_align(hd_type_bytes(s->type));
    r->gradients_max += is_whole_gradient(m, s);
}

Facts hd_report_facts(const Module *m, Arena *a) {
    const Attrs *train = hd_settings(m, "train"), *schedule = hd_settings(m, "schedule");
    Facts r = {.model_flops =
                   (double)hd_int(hd_settings(m, "model"), A_MODEL_FLOPS, 0) * (double)hd_int(train, A_MICRO, 1),
               .mesh = hd_mesh(m),
               .device = hd_model(m),
               .reduction = hd_word(train, A_REDUCTION, "each"),
               .merged = hd_attr(train, A_MERGED),
               .chunks = hd_int(train, A_LOSS_CHUNKS, 0),
               .chunk_bytes = hd_int(train, A_LOSS_CHUNK_BYTES, 0),
               .whole = hd_word(train, A_LOGITS_WHOLE, NULL),
               .loss_scale = hd_int(train, A_LOSS_SCALE, 1),
               .strategy = hd_word(schedule, A_FSDP, "none"),
               .graph = hd_word(schedule, A_GRAPH, "none")};
    r.ranks = hd_mesh_ranks(&r.mesh, HD_ALL_AXES);
    if (r.merged && r.merged->n != 2) r.merged = NULL; // in a text by hand
    int64_t storages = 0; // that persist or are live at the peak
    for (const Symbol *s = m->symbols; s; s = s->next) {
        add_symbol(&r, m, s, a);
        storages += hd_is_kept(s) && !s->place.space;
    }
    if (r.pieces.n == 1) r.pieces.n = 0;
    r.kept = r.classes[CLASS_GRADIENTS]; // so far, of what persists
    Seams seams = hd_seams(m, a);
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel && hd_kind(&f->attrs) != KIND_OPTIMIZER) r.kernels++;
        else add_function(&r, m, f, &seams, a);
    }
    hd_report_rounded(m, &r, a);
    hd_report_beside(m, &r);
    hd_report_experts(m, &r, a);
    hd_report_pools(m, &r, a);
    for (int i = 0; i < seams.n; i++) add_seam(&r, &seams.at[i], a);
    const Symbol *step = hd_step(m, KIND_TRAIN);
    r.overlaps = step ? hd_attr(&step->attrs, A_OVERLAPS) : NULL;
    if (r.device && step) r.sim = hd_simulate(m, step, r.device, a);
    const int64_t sequences = hd_int(train, A_BATCH, 0) * hd_int(train, A_MICRO, 1) * hd_mesh_readers(&r.mesh);
    r.tokens = sequences * hd_int(hd_settings(m, "model"), A_SEQ, 0);
    PlanMaxima most = hd_plan_maxima(m, a);
    r.gathered_max = most.gathered_units;
    r.gradients_max += most.live_gradients;
    if (r.at) r.gradient = find_gradients(r.at, a);
    for (int i = 0; i < r.live.n; i++)
        if (hd_report_at_peak(&r, i)) r.classes[hd_report_class(&r, i)] += r.live.at[i].bytes, storages++;
    r.guards = 2 * r.guard * storages;
    r.classes[CLASS_UNUSED] = r.peak - r.guards;
    for (int i = 0; i < CLASS_UNUSED; i++) r.classes[CLASS_UNUSED] -= r.classes[i];
    r.verified = hd_plan_verified(m, a, &r.unproved);
    return r;
}
