// fsdp: parameters become storage, and a program of one device becomes the program of one rank of a mesh. Every unit
// gets a bucket (buckets.c). Reads of parameters become views of storage that is always there or of gathered weights
// (windows.c). Gradients become stores and reductions (gradients.c). The functions of a step are made, with the
// optimizer (update.c):
//
//   %w = param {param = @head.w} : f32[256,64]          %w = view {buffer = @root.compute, offset = 0} : bf16[256,64]
//   %c = cast %w {out = bf16}                     ->
//   grad %dw {param = @head.w}                          store %dw {into = @root.grad, offset = 0}  (first contribution)
//
// The function of kind micro is specialised by its place in the step: @micro_only, or @micro_first, @micro (the ones
// between) and @micro_last. At the start of a step the first contribution to a parameter overwrites; every other one
// accumulates in program order. The function of kind eval stores its loss where they do, those of kind logits and
// decode return what they compute. `step` symbols declare what runs in which order:
//
//   step @step.train {kind = train, segments = [@micro_first, @micro, @micro_last], times = [1, 2, 1], ...}
//
// The result of a step does not depend on the strategy, bit for bit: the layout says which rank owns an element, every
// sum over ranks is a reduce_scatter, and gradients of micro-batches are added in their order.
#include "passes/fsdp/fsdp.h"
#include "ir/base/ints.h"
#include "ir/optimizer.h"
#include "ir/schedule.h"
#include "passes/settings.h"
#include <string.h>

// --- building
Op *hd_fsdp_collective(Fsdp *s, Builder *b, OpKind k, const Symbol *from, const Symbol *into, const Symbol *comm) {
    Attrs as = {0};
    hd_set_word(s->m->cx, &as, A_BUFFER, from->name);
    hd_set_word(s->m->cx, &as, A_INTO, into->name);
    hd_set_word(s->m->cx, &as, A_COMM, comm->name);
    if (hd_has(&into->attrs, A_QUANTIZED)) {
        hd_set_word(s->m->cx, &as, A_OUT, hd_dtype_text(TY_E4M3));
        hd_set_attr(s->m->cx, &as, hd_attr(&into->attrs, A_QUANTIZED));
        if (into->type->dtype == TY_F32) hd_set_flag(s->m->cx, &as, A_SCALES);
    } else if (from->type->dtype != into->type->dtype)
        hd_set_word(s->m->cx, &as, A_OUT, hd_intern(s->m->cx, hd_dtype_text(into->type->dtype)));
    return hd_build(b, k, 0, NULL, &as, NULL);
}

void hd_fsdp_sum(Fsdp *s, Builder *b, const Symbol *from, const Symbol *into, const Symbol *comm) {
    Op *o = hd_fsdp_collective(s, b, OP_REDUCE_SCATTER, from, into, comm);
    if (s->tree) hd_set_flag(s->m->cx, &o->attrs, A_TREE);
}

void hd_fsdp_store(Fsdp *s, Builder *b, Value *v, const Symbol *into, int64_t offset, bool accumulate) {
    Ctx *cx = s->m->cx;
    v = hd_build_cast(b, v, into->type->dtype);
    Attrs as = {0};
    hd_set_word(cx, &as, A_INTO, into->name);
    hd_set_int(cx, &as, A_OFFSET, offset);
    if (accumulate) hd_set_flag(cx, &as, A_ACCUMULATE);
    hd_build(b, OP_STORE, 1, &v, &as, NULL);
}

Value *hd_fsdp_view(Fsdp *s, Builder *b, const Symbol *buffer, int64_t offset, const Type *shape) {
    Attrs as = {0};
    hd_set_word(s->m->cx, &as, A_BUFFER, buffer->name);
    hd_set_int(s->m->cx, &as, A_OFFSET, offset);
    return hd_build1(b, OP_VIEW, NULL, NULL, &as, hd_type_with(s->m->cx, buffer->type->dtype, shape));
}

// --- the functions of a step Records the op of the step that uses each bucket first.
static void find_first_uses(Fsdp *s, const Func *f) {
    for (int i = 0; i < s->buckets.n; i++) s->buckets.at[i].used = INT32_MAX;
    int at = 0;
    for (const Op *o = f->first; o; o = o->next, at++) {
        const Symbol *p;
        if (!hd_param_read(o, 0)) continue;
        FsdpBucket *b = hd_fsdp_owner(s, o, &p);
        if (at < b->used) b->used = at;
    }
}

// The seed of the backward pass is one over the micro-batches that ranks read, so that the sum over them is the mean.
static void divide_by_ranks(Fsdp *s, Func *micro) {
    for (Op *o = micro->first; o; o = o->next) {
        if (!hd_has(&o->attrs, A_PER_RANK)) continue;
        hd_set_float(s->m->cx, &o->attrs, A_VALUE, hd_float(&o->attrs, A_VALUE, 0) / (double)s->ranks);
        hd_unset(&o->attrs, A_PER_RANK);
    }
}

static Func *micro_function(Fsdp *s, StepFunc step) {
    hd_fsdp_weights(s, step);
    hd_fsdp_gradients(s, step);
    hd_fsdp_loss(s, step, s->micro);
    hd_fsdp_dropout(s, step.f);
    hd_renumber(step.f);
    return step.f;
}

// Whether the last reductions of a micro-batch may run beside the next one. `none` waits for no reduction before the
// end, so that it would carry all of its staging over. A function that is captured as a whole ends with all its
// streams.
static bool overlaps_micro(const Fsdp *s) {
    return s->micro > 1 && s->each && s->shards > 1 && s->strategy != FSDP_NONE &&
           strcmp(hd_word(s->schedule, A_OVERLAP_MICRO, "off"), "on") == 0 &&
           strcmp(hd_word(s->schedule, A_GRAPH, "none"), "step") != 0;
}

static void name_caches(Fsdp *s, Symbol *step, const Func *f) {
    VEC(const char *) names = {0};
    for (const Op *o = f->first; o; o = o->next) {
        if (o->kind != OP_ATTENTION_STEP) continue;
        hd_push(s->cx->scratch, &names, hd_named(o, A_KEYS)->name);
        hd_push(s->cx->scratch, &names, hd_named(o, A_VALUES)->name);
    }
    if (names.n) hd_set_words(s->m->cx, &step->attrs, A_CACHES, names.n, names.at);
}

static void declare_numbers(Fsdp *s, Symbol *step, bool training) {
    Ctx *cx = s->m->cx;
    const int each = training ? s->numbers.at[0].levels.n : 0, n = s->numbers.n - (s->counted != NULL);
    const char **at = HD_NEWN(s->cx->scratch, const char *, s->numbers.n * (1 + each)),
               **names = HD_NEWN(s->cx->scratch, const char *, s->numbers.n);
    for (int i = 1; i < n; i++) at[i - 1] = s->numbers.at[i].at->name, names[i - 1] = s->numbers.at[i].name;
    hd_set_word(cx, &step->attrs, A_LOSS, s->numbers.at[0].at->name);
    if (n > 1) hd_set_words(cx, &step->attrs, A_RESULTS, n - 1, at);
    if (n > 1) hd_set_words(cx, &step->attrs, A_NAMES, n - 1, names);
    if (training && s->counted) hd_set_word(cx, &step->attrs, A_COUNTS, s->numbers.at[n].at->name);
    if (training && s->counted) hd_set_attr(cx, &step->attrs, s->counted);
    if (training && s->counted_of) hd_set_attr(cx, &step->attrs, s->counted_of);
    for (int i = 0; i < s->numbers.n; i++)
        for (int k = 0; k < each; k++) at[i * each + k] = s->numbers.at[i].levels.at[k]->name;
    if (each) hd_set_words(cx, &step->attrs, A_LEVELS, s->numbers.n * each, at);
}

static Symbol *declare_step(Fsdp *s, KindId kind, const char *name, int n, const char *const *segments,
                         const int64_t *times) {
    Ctx *cx = s->m->cx;
    Symbol *y = hd_symbol_add(s->m, SYM_STEP, hd_free_name(s->m, name), NULL);
    hd_set_kind(cx, &y->attrs, kind);
    hd_set_words(cx, &y->attrs, A_SEGMENTS, n, segments);
    hd_set_ints(cx, &y->attrs, A_TIMES, n, times);
    if (kind == KIND_TRAIN || kind == KIND_EVAL) declare_numbers(s, y, kind == KIND_TRAIN);
    if (kind == KIND_DECODE) name_caches(s, y, hd_func_find(s->m, segments[0]));
    if (kind != KIND_TRAIN) return y;
    const Symbol *comm = overlaps_micro(s) ? hd_fsdp_comm(s, COMM_REDUCE, s->split) : NULL;
    const char *reduce = comm ? hd_word(&comm->attrs, A_ON, "") : NULL;
    if (reduce) hd_set_words(cx, &y->attrs, A_OVERLAPS, 1, &reduce);
    hd_set_word(cx, &y->attrs, A_NORM, s->norm->name);
    hd_set_word(cx, &y->attrs, A_COUNTER, s->step->name);
    if (s->history) hd_set_word(cx, &y->attrs, A_HISTORY, s->history->name);
    if (s->random) hd_set_word(cx, &y->attrs, A_RANDOM, s->random->name);
    return y;
}

// With reduce = tree: a function for each number of sums that a micro-batch between the first and the last completes,
// and the names of those that run. Returns the number of names.
static int carry_between(Fsdp *s, Func *micro, int n, const char **names) {
    const char *carries[64] = {NULL};
    for (int64_t i = 1; i < s->micro - 1; i++) {
        const int done = __builtin_ctzll(~(unsigned long long)i);
        if (!carries[done]) {
            const char *name = hd_free_name(s->m, hd_internf(s->m->cx, "micro_level%d", done));
            carries[done] = micro_function(s, (StepFunc){hd_func_clone(s->m, micro, name), .done = done})->name;
        }
        names[n++] = carries[done];
    }
    return n;
}

static void specialise_micro(Fsdp *s, Func *micro) {
    Module *m = s->m;
    const char *name = hd_free_name(m, s->micro > 1 ? "micro_last" : "micro_only");
    const char **segments = HD_NEWN(s->cx->scratch, const char *, s->micro + 4);
    int64_t *times = HD_NEWN(s->cx->scratch, int64_t, s->micro + 4);
    int n = 0;
    for (int64_t i = 0; i < s->micro + 4; i++) times[i] = 1;
    find_first_uses(s, micro);
    if (s->micro > 1) {
        Func *first = hd_func_clone(m, micro, hd_free_name(m, "micro_first"));
        segments[n++] = micro_function(s, (StepFunc){first, .first = true})->name;
    }
    const bool alike = s->micro > 2 && !s->tree; // all micro-batches between the first and the last
    if (alike) times[n] = s->micro - 2, segments[n++] = micro->name;
    else n = carry_between(s, micro, n, segments);
    StepFunc ends = {hd_func_clone(m, micro, name), .first = s->micro == 1, .last = true, .done = hd_fsdp_levels(s)};
    const Func *last = micro_function(s, ends), *update = hd_fsdp_update(s, ends.f);
    segments[n++] = last->name;
    if (update != last) segments[n++] = update->name;
    if (alike) micro_function(s, (StepFunc){.f = micro});
    else hd_func_remove(m, micro);
    declare_step(s, KIND_TRAIN, "step.train", n, segments, times);
}

// The names are those that config @schedule lists, in the order of the functions.
static void declare_calls(Fsdp *s) {
    VEC(const char *) segments = {0};
    const Attr *names = hd_attr(s->schedule, A_FUNCTIONS);
    for (Func *f = s->m->funcs; f; f = f->next) {
        if (hd_kind(&f->attrs) != KIND_CALL) continue;
        hd_fsdp_weights(s, (StepFunc){f, .first = true, .last = true, .alone = true});
        hd_renumber(f);
        hd_push(s->cx->scratch, &segments, f->name);
    }
    if (!segments.n) return;
    int64_t *times = HD_NEWN(s->cx->scratch, int64_t, segments.n);
    for (int i = 0; i < segments.n; i++) times[i] = 1;
    Symbol *y = declare_step(s, KIND_CALL, "step.call", segments.n, segments.at, times);
    const bool fit = names && names->n == segments.n;
    hd_set_words(s->m->cx, &y->attrs, A_FUNCTIONS, segments.n, fit ? names->strs : segments.at);
}

// A function that is a step: of validation, which keeps a loss, or of logits, which it returns.
static void alone_function(Fsdp *s, Func *f, KindId kind, const char *step) {
    const StepFunc alone = {f, .first = true, .last = true, .alone = true};
    hd_fsdp_weights(s, alone);
    if (kind == KIND_EVAL) hd_fsdp_loss(s, alone, 1);
    hd_renumber(f);
    declare_step(s, kind, step, 1, &f->name, (int64_t[]){1});
}

// --- settings
static bool read_strategy(Fsdp *s) {
    static const struct { const char *word; Strategy is; } words[] = {
        {"none", FSDP_NONE}, {"zero0", FSDP_NONE}, {"zero1", FSDP_ZERO1}, {"zero2", FSDP_ZERO2}, {"zero3", FSDP_ZERO3}};
    const char *word = hd_word(s->schedule, A_FSDP, "none");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i].word)) continue;
        s->strategy = s->shards > 1 ? words[i].is : FSDP_NONE; // one rank has everything
        return true;
    }
    return false;
}

// In a tree every sum is one of two halves.
static bool check_tree(const Fsdp *s) {
    const Symbol *train = hd_symbol_find(s->m, "train");
    const int64_t here = s->ranks * s->micro, grains = hd_int(s->train, A_GRAINS, here);
    const Span at = train ? train->span : (Span){0};
    Axes copies = 0;
    bool inner = false; // copies are inside of what they are copies of, so that a shard is not summed over neighbours
    for (int a = 0; a < N_AXES; a++) {
        if (s->mesh.size[a] < 2 || !(HD_DATA_AXES >> a & 1)) continue;
        if (HD_COPY_AXES >> a & 1) copies |= 1u << a;
        else inner |= copies != 0;
    }
    const char *ranks = hd_sprintf(s->cx->scratch, "%lld data rank%s", ll(s->ranks), s->ranks == 1 ? "" : "s");
    if (!hd_is_power(s->ranks) || !hd_is_power(s->micro))
        return hd_error(s->m->cx, at, "train.reduce = tree adds up 1, 2, 4, 8, ... micro-batches, and there are %s "
                        "with train.accumulate = %lld: both must be powers of two", ranks, ll(s->micro));
    if (inner) HD_BUG("a tree over ranks needs axes of shards inside of axes of copies");
    if (grains == here) return true;
    if (!hd_is_power(grains))
        return hd_error(s->m->cx, at, "train.grains = %lld: a tree adds up 1, 2, 4, 8, ... micro-batches", ll(grains));
    if (grains < s->ranks)
        return hd_error(s->m->cx, at, "%s are more than train.grains = %lld: use at most %lld, or more grains", ranks,
                        ll(grains), ll(grains));
    return hd_error(s->m->cx, at, "%s with train.accumulate = %lld make%s %lld grain%s, and train.grains = %lld: set "
                    "train.accumulate = %lld", ranks, ll(s->micro), s->ranks == 1 ? "s" : "", ll(here),
                    here == 1 ? "" : "s", ll(grains), ll(grains / s->ranks));
}

// A bucket has a place for each name that the optimizers' states of elements have (runtime/heddle.h); states of one
// name share it.
static bool states_fit(const Fsdp *s) {
    const char *names[HD_MAX_STATES];
    int n = 0;
    for (const Func *k = s->m->funcs; k; k = k->next) {
        if (!k->is_kernel || hd_kind(&k->attrs) != KIND_OPTIMIZER || hd_is_rule(k)) continue;
        for (int i = OPT_STATE; i < k->n_args; i++) {
            int at = 0;
            while (at < n && strcmp(names[at], k->args[i]->name) != 0) at++;
            if (at < n || hd_state_per(k, i - OPT_STATE) != PER_ELEMENT) continue; // that has a table of its own
            if (n == HD_MAX_STATES)
                return hd_error(s->m->cx, k->span, "state '%s' of @%s is one too many: the optimizers together have "
                                "states of at most %d names, which those of one name share", k->args[i]->name, k->name,
                                HD_MAX_STATES);
            names[n++] = k->args[i]->name;
        }
    }
    return true;
}

// The first parameter whose optimizer is no kernel; NULL: all have one.
static const Symbol *lost_optimizer(const Fsdp *s) {
    for (const Symbol *p = s->m->symbols; p; p = p->next) {
        const Func *k = hd_func_find(s->m, hd_word(&p->attrs, A_UPDATED_BY, ""));
        if (p->kind == SYM_PARAM && hd_has(&p->attrs, A_UPDATED_BY) && (!k || hd_optimizer_wrong(k))) return p;
    }
    return NULL;
}

static bool read_types(Fsdp *s) {
    Ctx *cx = s->m->cx;
    const char *compute = hd_word(s->train, A_COMPUTE, "f32");
    const char *moments = hd_word(s->train, A_MOMENTS, "f32"), *kept = hd_word(s->train, A_MASTER, "f32");
    s->compensates = !strcmp(kept, "kahan");
    if (!hd_dtype_parse(moments, &s->moments) || (s->moments != TY_F32 && s->moments != TY_BF16))
        return hd_error(cx, (Span){0}, "moments = %s: the optimizer's states can be kept in f32 or bf16", moments);
    if (!hd_dtype_parse(compute, &s->compute) || !hd_dtype_is_float(s->compute) || s->compute == TY_F64)
        return hd_error(cx, (Span){0}, "compute = %s: parameters can be used as f32, bf16 or f16", compute);
    if (!hd_dtype_parse(s->compensates ? "bf16" : kept, &s->kept) ||
        (s->kept != TY_F32 && (s->kept != TY_BF16 || s->compute != TY_BF16)))
        return hd_error(cx, (Span){0}, "master = %s with compute = %s: the optimizer can keep the weights in f32, or "
                        "in bf16 where compute is bf16", kept, compute);
    if (s->compensates && !hd_compensates(s->optimizer))
        return hd_error(cx, s->optimizer ? s->optimizer->span : (Span){0}, "master = kahan, and the kernel of kind "
                        "optimizer has no state %s", HD_COMPENSATION);
    return true;
}

static bool read_settings(Fsdp *s) {
    Ctx *cx = s->m->cx;
    const Symbol *block = hd_symbol_find(s->m, "schedule");
    Span schedule = block ? block->span : (Span){0};
    s->mesh = hd_mesh(s->m);
    s->split = hd_mesh_said(&s->mesh, HD_SPLIT_AXES);
    s->shards = hd_mesh_ranks(&s->mesh, s->split);
    s->ranks = hd_mesh_readers(&s->mesh);
    for (const Symbol *p = s->m->symbols; p; p = p->next)
        if (p->kind == SYM_PARAM) s->own |= hd_layout_axes(p->layout);
    s->several = s->ranks > 1 || s->own;
    s->prefetch = hd_int(s->schedule, A_PREFETCH, HD_DEFAULT_PREFETCH);
    s->live_grads = hd_int(s->schedule, A_LIVE_GRADS, HD_DEFAULT_LIVE_GRADS);
    s->micro = hd_int(s->train, A_MICRO, 1);
    const char *reduction = hd_word(s->train, A_REDUCTION, "each");
    const int64_t scale = hd_int(s->train, A_LOSS_SCALE, 1);
    s->each = strcmp(reduction, "last") != 0;
    s->tree = strcmp(reduction, "tree") == 0;
    s->optimizer = hd_optimizer(s->m);
    const Symbol *lost = lost_optimizer(s);
    s->quantizes = !strcmp(hd_word(s->train, A_GATHER, ""), "fp8");
    s->from_master = strcmp(hd_word(s->schedule, A_WEIGHTS_FROM, "auto"), "master") == 0;
    if (!read_types(s)) return false;
    if (!s->optimizer)
        hd_error(cx, (Span){0}, "there is no kernel of kind optimizer, which says how parameters are updated");
    else if (hd_optimizer_wrong(s->optimizer))
        hd_error(cx, s->optimizer->span, "kernel @%s is no optimizer: one %s", s->optimizer->name,
                 hd_optimizer_wrong(s->optimizer));
    else if (lost)
        hd_error(cx, lost->span, "parameter @%s is updated by @%s, which is no kernel of kind optimizer", lost->name,
                 hd_word(&lost->attrs, A_UPDATED_BY, ""));
    else if (!states_fit(s))
        return false;
    else if (s->micro < 1)
        hd_error(cx, (Span){0}, "accumulate = %lld: a step needs at least one micro-batch", (long long)s->micro);
    else if (!HD_IS_LOSS_SCALE(scale))
        hd_error(cx, hd_symbol_find(s->m, "train")->span, "loss_scale is %lld; it must be a power of two from 1 to %d",
                 (long long)scale, HD_MOST_LOSS_SCALE);
    else if (s->prefetch < 0 || s->live_grads < 1)
        hd_error(cx, schedule,
                 "prefetch = %lld, live_grads = %lld: at least 0 units are gathered ahead, and 1 gradient is live",
                 (long long)s->prefetch, (long long)s->live_grads);
    else if (strcmp(reduction, "last") && strcmp(reduction, "each") && !s->tree)
        hd_error(cx, (Span){0}, "reduction = %s: micro-batches are reduced last, each or in a tree", reduction);
    else if (s->tree && !check_tree(s))
        return false;
    else if (!read_strategy(s))
        hd_error(cx, schedule, "fsdp = %s: the strategies are none, zero1, zero2 and zero3",
                 hd_word(s->schedule, A_FSDP, ""));
    else
        return true;
    return false;
}

static bool returns_loss(const Func *f) {
    const Op *ret = f ? hd_return(f) : NULL;
    const int n = ret ? 1 + hd_n_results(&ret->attrs) : 0;
    bool numbers = ret && ret->n_in == hd_n_numbers(&ret->attrs);
    for (int i = 0; numbers && i < ret->n_in; i++)
        numbers = hd_type_count(ret->in[i]->type) == (i < n ? 1 : hd_n_counts(&ret->attrs)) &&
                  hd_dtype_is_float(ret->in[i]->type->dtype);
    return !f || numbers || hd_error(f->module->cx, f->span, "@%s must return one number, the loss%s", f->name,
                                     ret && hd_n_results(&ret->attrs) ? ", and one for each name" : "");
}

// Validation keeps what training keeps.
static bool same_results(const Func *micro, const Func *eval) {
    return !eval || hd_same_results(&hd_return(micro)->attrs, &hd_return(eval)->attrs) ||
           hd_error(micro->module->cx, eval->span, "@%s and @%s return results of other names", micro->name,
                    eval->name);
}

// Settings that count units: more than there are act as that many.
static void warn_beyond(const Fsdp *s) {
    const struct { const char *name, *of; int64_t is, otherwise, most; } settings[] = {
        {"prefetch", "uses of units in a function", s->prefetch, HD_DEFAULT_PREFETCH, s->runs},
        {"live_grads", "units", s->live_grads, HD_DEFAULT_LIVE_GRADS, s->n_units}};
    if (s->strategy == FSDP_NONE || !hd_has(s->schedule, A_UNITS)) return; // the frontend says it
    for (int k = 0; k < 2; k++)
        if (settings[k].is > settings[k].most && settings[k].is != settings[k].otherwise)
            hd_warning(s->m->cx, hd_symbol_find(s->m, "schedule")->span,
                       "schedule.fsdp.%s = %lld is more than the %lld %s: it acts as %lld does", settings[k].name,
                       ll(settings[k].is), ll(settings[k].most), settings[k].of, ll(settings[k].most));
}

// The frontend warns where no strategy gathers weights for a part of a step.
static void warn_quantized(const Fsdp *s) {
    if (s->quantizes && s->strategy == FSDP_ZERO3 && !s->quantized)
        hd_warning(s->m->cx, hd_symbol_find(s->m, "train")->span,
                   "train.precision.gather = fp8 changes nothing: no unit is gathered for products that quantize its "
                   "weights alone%s",
                   s->from_master ? "; with schedule.fsdp.weights = master weights are rounded while they are gathered"
                                  : "");
}

// Storage has parameters, and values have what the parameters and the ops make of them: only the tensor stage says it.
static void drop_layouts(Module *m) {
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *o = f->first; o; o = o->next)
            for (int i = 0; i < o->n_out; i++) o->out[i]->layout = 0;
}

Change hd_pass_fsdp(Module *m, PassCx *cx) {
    Fsdp s = {.m = m, .cx = cx, .train = hd_settings(m, "train"), .schedule = hd_settings(m, "schedule")};
    Func *micro, *eval, *logits, *decode;
    if (!hd_func_of_kind(m, KIND_MICRO, &micro) || !hd_func_of_kind(m, KIND_EVAL, &eval) ||
        !hd_func_of_kind(m, KIND_LOGITS, &logits) || !hd_func_of_kind(m, KIND_DECODE, &decode))
        return FAILED;
    if (!micro) {
        hd_error(m->cx, (Span){0}, "there is no function of kind micro: run autodiff before fsdp");
        return FAILED;
    }
    if (!returns_loss(micro) || !returns_loss(eval) || !same_results(micro, eval) || !read_settings(&s)) return FAILED;
    hd_fsdp_divide_root(&s, micro);
    if (!hd_fsdp_place_buckets(&s) || !hd_fsdp_adjoin(micro) || !hd_fsdp_adjoin(eval) || !hd_fsdp_adjoin(logits) ||
        !hd_fsdp_adjoin(decode) || !hd_fsdp_add_state(&s, micro))
        return FAILED;
    for (const Func *f = m->funcs; f; f = f->next)
        if (hd_kind(&f->attrs) == KIND_CALL && !hd_fsdp_adjoin(f)) return FAILED;
    divide_by_ranks(&s, micro);
    drop_layouts(m);
    m->stage = STAGE_SHARDED;
    specialise_micro(&s, micro);
    if (eval) alone_function(&s, eval, KIND_EVAL, "step.eval");
    if (logits) alone_function(&s, logits, KIND_LOGITS, "step.logits");
    if (decode) alone_function(&s, decode, KIND_DECODE, "step.decode");
    declare_calls(&s);
    warn_beyond(&s);
    warn_quantized(&s);
    return CHANGED;
}
