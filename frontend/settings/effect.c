// Settings of a schedule or of train that change nothing, because of other settings: a warning for each, with the
// reason. Asked are those that a file or a --set gives another value than the default. On one rank nothing is said of
// what divides work among ranks, since a file serves other meshes as well. Effects that depend on the program are
// reported by passes: their warnings say "changes nothing" or "it acts as", too.
#include "frontend/model/sema.h"
#include "ir/mesh.h"

typedef struct {
    const Attrs *schedule, *train;
    int64_t ranks, shards; // that read different sequences; that share a copy of the parameters
    int64_t owners;        // that own other experts
    bool units, strategy;  // strategy: zero1 to zero3
    bool decays;           // a parameter does
} Facts;

static bool is(const Attrs *as, AttrId id, const char *word) { return !strcmp(hd_word(as, id, ""), word); }

// Reasons, or NULL. `x` is of several ranks in all rules but those of `slower`.
static const char *not_divided(const Facts *x) {
    if (!x->strategy) return "fsdp none divides nothing; it acts with zero1, zero2 and zero3";
    return x->shards > 1 ? NULL : "replicas hold all of the state: mesh.shard is 1";
}

static const char *one_unit(const Facts *x) {
    return x->units ? NULL : "without a unit all parameters move as one";
}

static const char *fsdp(const Facts *x) { return x->strategy ? not_divided(x) : NULL; }

static const char *grains(const Facts *x) {
    return is(x->train, A_REDUCTION, "tree") ? NULL : "it says how many micro-batches train.reduce = tree adds up";
}

static const char *last(const Facts *x) {
    if (is(x->train, A_REDUCTION, "tree")) return NULL;
    return hd_int(x->train, A_MICRO, 1) < 2 ? "train.accumulate is 1: no micro-batch follows another" : not_divided(x);
}

static const char *points(const Facts *x) {
    return is(x->train, A_LR, "points") ? "points give every learning rate" : NULL;
}

static const char *rate(const Facts *x) {
    return is(x->train, A_LR, "constant") ? "the learning rate is constant" : points(x);
}

static const char *total(const Facts *x) {
    return is(x->train, A_LR, "inverse_sqrt") ? "inverse_sqrt falls without an end" : rate(x);
}

static const char *wsd(const Facts *x) {
    return is(x->train, A_LR, "wsd") ? NULL : "it is of the learning rate wsd(...)";
}

static const char *decay(const Facts *x) { return x->decays ? NULL : "no parameter of the model decays"; }

static const char *prefetch(const Facts *x) {
    const char *why = not_divided(x);
    return why || !hd_int(x->schedule, A_PREFETCH, 0) ? why : one_unit(x);
}

static const char *pieces(const Facts *x) {
    const char *why = not_divided(x);
    return why ? why : one_unit(x);
}

static const char *overlap_micro(const Facts *x) {
    const char *why = not_divided(x);
    if (why) return why;
    if (hd_int(x->train, A_MICRO, 1) < 2) return "train.accumulate is 1: no micro-batch follows another";
    if (is(x->train, A_REDUCTION, "last")) return "with train.reduce = last only the last micro-batch is reduced";
    return is(x->schedule, A_GRAPH, "step") ? "with graph step a captured step ends with all of its streams" : NULL;
}

static const char *weights(const Facts *x) {
    const char *why = not_divided(x);
    return why || !is(x->train, A_COMPUTE, "f32") ? why : "with precision.compute = f32 no weight is rounded";
}

static const char *slower(const Facts *x) {
    const Attr *listed = hd_attr(x->schedule, A_RECOMPUTE);
    if (!listed || !listed->n) return "nothing is recomputed; it bounds what recompute auto chooses";
    return strcmp(listed->strs[0], "auto") ? "places are listed; it bounds what recompute auto chooses" : NULL;
}

static const char *transport(const Facts *x) {
    return x->owners > 1 ? NULL : "each rank has all experts: mesh.expert is 1";
}

static const char *slices(const Facts *x) {
    return hd_has(x->schedule, A_SEQUENCE) ? NULL : "it is of sequence = on, which leaves a rank its positions";
}

static const char *share_bound(const Facts *x) {
    const char *why = transport(x);
    return why || hd_has(x->schedule, A_TRANSPORT) ? why : "it is of experts = exchange and auto";
}

static const char *fp8(const Facts *x) {
    return hd_attr(x->train, A_FP8) ? NULL : "train.precision.fp8 names no modules: name those whose products multiply "
                                             "FP8, or leave this setting out";
}

static const char *forms(const Facts *x) {
    if (fp8(x)) return NULL;
    return is(x->train, A_FP8_SCALE, "block") ? "with fp8.scale = block both passes read one form of a weight" : NULL;
}

// A strategy that keeps all weights keeps them for the backward pass, too.
static const char *gather(const Facts *x) {
    if (fp8(x)) return NULL;
    return is(x->schedule, A_FSDP, "zero3") ? NULL : "only schedule.fsdp = zero3 gathers weights for the forward pass";
}

static const struct { AttrId setting; const char *(*why)(const Facts *); bool ranks; } rules[] = {
    {A_FSDP, fsdp, true},         {A_ROOT, pieces, true},
    {A_PREFETCH, prefetch, true}, {A_LIVE_GRADS, pieces, true},
    {A_WEIGHTS_FROM, weights, true}, {A_OVERLAP_MICRO, overlap_micro, true},
    {A_SLOWER, slower, false},    {A_REDUCTION, last, true},
    {A_GRAINS, grains, false},
    {A_LR_FLOOR, rate, false},    {A_LR_TOTAL, total, false},
    {A_LR_DECAY, wsd, false},     {A_LR_SHAPE, wsd, false},
    {A_LR_WARMUP, points, false},
    {A_WEIGHT_DECAY, decay, false},
    {A_SLICES, slices, false},    {A_TRANSPORT, transport, true}, {A_SHARE_BOUND, share_bound, true},
    {A_EXCEPT, fp8, false},       {A_FP8_SCALE, fp8, false},
    {A_GATHER, fp8, false},       {A_GATHER, gather, true},
    {A_FP8_COUNTS, fp8, false},   {A_FP8_BACKWARD, fp8, false}, {A_FP8_WEIGHT_GRADS, fp8, false},
    {A_FP8_WEIGHTS, fp8, false},  {A_FP8_WEIGHTS, forms, false},
};

void hd_effects_warn(Front *f, const Attrs *train, const Attrs *schedule) {
    const Mesh mesh = hd_mesh(f->module);
    const Attr *units = hd_attr(schedule, A_UNITS);
    Facts x = {.schedule = schedule, .train = train, .ranks = hd_mesh_readers(&mesh),
                     .shards = hd_mesh_ranks(&mesh, HD_SPLIT_AXES),
                     .owners = hd_mesh_ranks(&mesh, HD_EXPERT_AXES), .units = units && units->n,
                     .strategy = !is(schedule, A_FSDP, "none")};
    for (const Symbol *p = f->module->symbols; p; p = p->next)
        x.decays |= hd_has(&p->attrs, A_DECAY) && !hd_has(&p->attrs, A_FROZEN);
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        Span at;
        const char *path = hd_settings_given(f, rules[k].setting, &at), *why = NULL;
        if (path && (!rules[k].ranks || x.ranks > 1)) why = rules[k].why(&x);
        if (why) hd_warning(f->cx, at, "%s changes nothing: %s", path, why);
    }
}
