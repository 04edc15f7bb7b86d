// Buckets and their storage: where each parameter is in the flat vector that it shares with others (sharing.c), and
// which buffers there are. With two ranks, zero3 and bf16, a unit of 96 elements whose bias is used in f32 as well:
//
//   param @b.w : f32[8,8] {unit = b}          bucket @b : f32[64] {unit = b, split = [shard], ...}
//   param @b.c : f32[32] {unit = b}     ->    buffer @b.master, @b.grad, ... : f32[32]   @b.compute : bf16[32]
//                                             bucket @b.f32 : f32[64] {unit = b, split = [shard], ...}
//                                             buffer @b.f32.master, @b.f32.grad, ... : f32[32]
//
// Parameters that are split over an axis of the mesh (ir/layout.h) have buckets of their own, `over` that axis: a
// rank's bucket has the elements of its parts, and sizes and offsets are those of what one rank holds.
//
// Units, and pieces of the root (pieces.c), are in the order of their first parameters; what else no unit owns is last,
// as @root. The strategy and, with several micro-batches, train.reduce decide whether a buffer holds all elements or
// this rank's shard:
//              master, states, compute weights  all weights, @b.next                 gradient: each    last
//   none       whole                            -                                    whole, @b.sum     whole
//   zero1, 2   shard                            of every bucket                      shard             whole
//   zero3      shard                            of those that a step reads first     shard             whole
// train.reduce = tree is `each` with @b.level0, level1, ... besides (gradients.c): a rank's part of what all ranks add.
// Frozen parameters of a unit have a bucket of their own, @b.frozen, whose master weights are in the type in which they
// are used and which has no gradient and no state. zero3 shards it, and the others keep it whole and read it in place.
// The gradient persists across the micro-batches of a step. A step of one micro-batch makes it and uses it up: there it
// is `transient`, a value of @micro_only from its first write to the end of the function, where --check can look at it.
// With train.precision.gather = fp8, weights that the forward pass quantizes and reads no other way have buckets of
// their own, one for each length of their rows: @b.rows64. So a rank's shard is whole rows of one length, which it can
// quantize before it sends them (windows.c). Those with one scale for a whole weight are in @b.tensors, whatever their
// rows are; its `tensors` say from where to where each of them is.
// Buffers of the language (params with `kernel`) have a bucket of the root for each kernel, @root.state, in f32, with a
// gradient, in which what is added to them adds up, and without states: whatever module they are in, one collective
// moves all of them.
// Parameters whose group has an optimizer of its own have buckets of their own, @b.muon. One that looks at more than
// elements takes whole parameters: each is on one rank, and what decays is apart from what does not. On one device the
// matrices of all units that are orthogonalized share @root.muon, equal ones side by side, as products take them.
// Weights used in f32 need no compute weights besides the master weights. The optimizer writes master and compute
// weights; @b.next is gathered from them, by the same step or by the next one (windows.c). With weights = master there
// are none of a shard: a gather rounds the master weights (`out`).
// With train.precision.master = bf16, master weights are in bf16 where ops read them so, and are the compute weights as
// well. Vectors, and what some op reads in f32, have a bucket of their own, in f32, on one rank as well.
#include "passes/fsdp/fsdp.h"
#include "ir/base/ints.h"
#include "ir/optimizer.h"

static bool is_free(const Fsdp *s, const char *name, const char *part) {
    return !hd_symbol_find(s->m, hd_internf(s->m->cx, "%s%s", name, part));
}

static bool bucket_name_free(const Fsdp *s, const char *name, const Func *optimizer) {
    static const char *const parts[] = {"", ".master", ".compute", ".grad", ".sum", ".next"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!is_free(s, name, parts[i])) return false;
    for (int i = 0; i < hd_fsdp_levels(s); i++)
        if (!is_free(s, name, hd_internf(s->m->cx, ".level%d", i))) return false;
    for (int i = OPT_STATE; i < optimizer->n_args; i++)
        if (!is_free(s, name, hd_internf(s->m->cx, ".%s", optimizer->args[i]->name))) return false;
    return true;
}

static const Func *kernel_of(const Fsdp *s, const FsdpBucket *b) {
    return b->own_kernel ? b->own_kernel : s->optimizer;
}

static Symbol *add_symbol(Fsdp *s, SymbolKind kind, const char *name, DType d, int64_t n) {
    const Type *t = hd_type(s->m->cx, d, 1, &n);
    Symbol *y = t ? hd_symbol_add(s->m, kind, name, t) : NULL;
    if (!y) HD_BUG("cannot add @%s", name);
    return y;
}

// --- storage
bool hd_fsdp_grad_is_whole(const Fsdp *s, const FsdpBucket *b) {
    return s->strategy == FSDP_NONE || b->shards == 1 || (s->micro > 1 && !s->each);
}

// zero1 and zero2 keep all weights: those that no step changes stay where they are.
bool hd_fsdp_gathers(const Fsdp *s, const FsdpBucket *b) {
    return s->strategy != FSDP_NONE && b->shards > 1 && (!b->frozen || s->strategy == FSDP_ZERO3);
}

// A buffer that keeps the bucket.
static Symbol *add_part(Fsdp *s, const FsdpBucket *b, const char *part, const char *class, DType d, bool whole) {
    Ctx *cx = s->m->cx;
    Symbol *y = add_symbol(s, SYM_BUFFER, hd_internf(cx, "%s.%s", b->name, part), d,
                           whole ? b->layout.size : b->layout.shard);
    hd_set_word(cx, &y->attrs, A_CLASS, class);
    hd_set_word(cx, &y->attrs, A_BUCKET, b->bucket->name);
    if (!whole && b->shards > 1) hd_set_axes(cx, &y->attrs, A_SPLIT, b->split);
    return y;
}

// The bucket names it as `at`.
static Symbol *add_buffer(Fsdp *s, const FsdpBucket *b, AttrId at, const char *part, const char *class, DType d,
                          bool whole) {
    Symbol *y = add_part(s, b, part, class, d, whole);
    hd_set_word(s->m->cx, &b->bucket->attrs, at, y->name);
    return y;
}

bool hd_fsdp_in_levels(const Fsdp *s) { return s->tree && s->micro > 1; }

int hd_fsdp_levels(const Fsdp *s) {
    int n = 0;
    while (hd_fsdp_in_levels(s) && (int64_t)2 << n <= s->micro) n++;
    return n;
}

// Each holds what a rank keeps of a sum over all ranks.
static void add_levels(Fsdp *s, FsdpBucket *b) {
    const int n = hd_fsdp_levels(s);
    const char **names = HD_NEWN(s->cx->scratch, const char *, n + 1);
    const Axes summed = hd_fsdp_summed(b), split = (b->shards > 1 ? b->split : 0) | (b->copies > 1 ? summed : 0);
    for (int i = 0; i < n; i++) {
        Symbol *y = add_symbol(s, SYM_BUFFER, hd_internf(s->m->cx, "%s.level%d", b->name, i), TY_F32,
                               b->layout.shard / b->copies);
        hd_set_word(s->m->cx, &y->attrs, A_CLASS, "gradients");
        hd_set_word(s->m->cx, &y->attrs, A_BUCKET, b->bucket->name);
        if (split) hd_set_axes(s->m->cx, &y->attrs, A_SPLIT, split);
        hd_push(s->cx->scratch, &b->levels, y);
        names[i] = y->name;
    }
    if (n) hd_set_words(s->m->cx, &b->bucket->attrs, A_LEVELS, n, names);
}

// One that is not of each element is as large as ir/optimizer.h says.
static void add_states(Fsdp *s, const FsdpBucket *b, bool whole) {
    const char *names[HD_MAX_STATES];
    const Func *optimizer = kernel_of(s, b);
    const int n = optimizer->n_args - OPT_STATE;
    const bool lines = hd_has_lines(optimizer);
    const Lines x = lines ? hd_lines(s->m, b->bucket, s->cx->scratch) : (Lines){0};
    for (int i = 0; i < n; i++) {
        Symbol *y = add_part(s, b, optimizer->args[OPT_STATE + i]->name, "optimizer", s->moments, whole);
        const int64_t numbers = x.numbers[lines ? i : 0] * (whole ? b->shards : 1);
        if (lines && hd_state_per(optimizer, i) != PER_ELEMENT) y->type = hd_type(s->m->cx, s->moments, 1, &numbers);
        names[i] = y->name;
    }
    if (n) hd_set_words(s->m->cx, &b->bucket->attrs, A_STATES, n, names);
}

static DType kept_as(const Fsdp *s, const FsdpBucket *b) {
    return b->frozen || b->weights == s->kept ? b->weights : TY_F32;
}

static void add_buffers(Fsdp *s, FsdpBucket *b) {
    bool whole = s->strategy == FSDP_NONE || b->shards == 1;
    if (b->frozen) {
        b->master = add_buffer(s, b, A_MASTER_WEIGHTS, "master", "shards", b->weights, !hd_fsdp_gathers(s, b));
        return;
    }
    const DType kept = kept_as(s, b);
    b->master = add_buffer(s, b, A_MASTER_WEIGHTS, "master", "shards", kept, whole);
    if (b->weights != kept && (whole || !s->from_master))
        b->compute = add_buffer(s, b, A_WEIGHTS, "compute", "weights", b->weights, whole);
    b->grad = add_buffer(s, b, A_GRADIENT, "grad", "gradients", TY_F32, hd_fsdp_grad_is_whole(s, b));
    if (s->micro == 1) hd_set_flag(s->m->cx, &b->grad->attrs, A_TRANSIENT);
    if (whole && s->each && s->micro > 1 && b->shards > 1)
        b->sum = add_buffer(s, b, A_GRADIENT_SUM, "sum", "gradients", TY_F32, false);
    add_levels(s, b);
    if (!b->rule) add_states(s, b, whole);
}

Symbol *hd_fsdp_next(Fsdp *s, FsdpBucket *b) {
    if (!b->next) b->next = add_buffer(s, b, A_NEXT, "next", "weights", b->weights, true);
    return b->next;
}

static bool place(Fsdp *s, FsdpBucket *b) {
    Ctx *cx = s->m->cx;
    b->split = s->split & ~b->own;
    b->copied = hd_mesh_said(&s->mesh, HD_COPY_AXES & ~b->own);
    b->shards = hd_mesh_ranks(&s->mesh, b->split);
    b->copies = hd_mesh_ranks(&s->mesh, hd_fsdp_summed(b));
    if (hd_takes_whole(b->own_kernel)) {
        if (!s->work) s->work = HD_NEWN(s->cx->scratch, int64_t, hd_mesh_ranks(&s->mesh, HD_ALL_AXES));
        b->layout.whole = true;
        b->layout.work = s->work;
        b->layout.alike = hd_optimizer_turn(b->own_kernel) != NULL;
    }
    b->layout.items = b->items.at;
    b->layout.n = b->items.n;
    if (!hd_bucket_layout(&b->layout, b->shards, b->copies, s->cx->scratch)) {
        hd_error(cx, b->items.at[0].param->span,
                 "no layout of unit %s fits %lld ranks: more than 2^58 elements, or rows whose sizes share no factors; "
                 "split the unit or use fewer ranks",
                 b->unit_name, (long long)s->ranks);
        return false;
    }
    b->name = b->unit_name;
    for (int a = 0; a < N_AXES; a++)
        if (b->own >> a & 1) b->name = hd_internf(cx, "%s.%s", b->name, hd_axis_name(a));
    const bool apart = (s->ranks > 1 || s->kept != TY_F32 || b->frozen) && !b->rule;
    if (apart && b->weights != s->compute) b->name = hd_internf(cx, "%s.f32", b->name);
    const Attrs *first = &b->items.at[0].param->attrs;
    bool group = false;
    for (int i = 0; i < HD_GROUP_RATES; i++) group |= hd_has(first, hd_group_rates[i]);
    if (b->frozen) b->name = hd_internf(cx, "%s.frozen", b->name);
    if (b->rule) b->name = hd_internf(cx, "%s.state", b->name);
    if (b->row > 0) b->name = hd_internf(cx, "%s.rows%lld", b->name, ll(b->row));
    if (b->row == HD_WHOLE_TENSORS) b->name = hd_internf(cx, "%s.tensors", b->name);
    if (b->own_kernel) b->name = hd_internf(cx, "%s.%s", b->name, b->own_kernel->name);
    if (group && !b->frozen) b->name = hd_internf(cx, "%s.group", b->name);
    while (!bucket_name_free(s, b->name, kernel_of(s, b))) b->name = hd_internf(cx, "%s.bucket", b->name);
    b->bucket = add_symbol(s, SYM_BUCKET, b->name, kept_as(s, b), b->layout.size);
    for (int a = 0; a < N_AXES; a++)
        if (b->own >> a & 1) b->bucket->layout = hd_layout_with(b->bucket->layout, a, LAYOUT_SPLIT);
    hd_set_word(cx, &b->bucket->attrs, A_UNIT, b->unit_name);
    hd_set_int(cx, &b->bucket->attrs, A_DECAYED, b->layout.decayed);
    if (b->frozen) hd_set_flag(cx, &b->bucket->attrs, A_FROZEN);
    if (b->rule) hd_set_word(cx, &b->bucket->attrs, A_KERNEL, b->rule->name);
    if (b->own_kernel) hd_set_word(cx, &b->bucket->attrs, A_UPDATED_BY, b->own_kernel->name);
    for (int i = 0; i < HD_GROUP_RATES; i++)
        if (hd_has(first, hd_group_rates[i])) hd_set_attr(cx, &b->bucket->attrs, hd_attr(first, hd_group_rates[i]));
    hd_set_int(cx, &b->bucket->attrs, A_PADDING, b->layout.padding);
    if (b->shards > 1) hd_set_axes(cx, &b->bucket->attrs, A_SPLIT, b->split);
    if (hd_mesh_ranks(&s->mesh, b->copied) > 1) hd_set_axes(cx, &b->bucket->attrs, A_COPIED, b->copied);
    for (int i = 0; i < b->layout.n; i++) {
        hd_set_word(cx, &b->layout.items[i].param->attrs, A_BUCKET, b->bucket->name);
        hd_set_int(cx, &b->layout.items[i].param->attrs, A_OFFSET, b->layout.items[i].offset);
    }
    if (b->row == HD_WHOLE_TENSORS) hd_fsdp_set_tensors(s, b);
    add_buffers(s, b);
    hd_count(s->cx, "elements of padding", b->layout.padding);
    return true;
}

bool hd_fsdp_place_buckets(Fsdp *s) {
    if (!hd_fsdp_collect(s)) return false;
    for (int i = 0; i < s->buckets.n; i++) {
        if (!place(s, &s->buckets.at[i])) return false;
        hd_ptr_set(s->cx->scratch, &s->by_name, s->buckets.at[i].bucket->name, i);
    }
    hd_count(s->cx, "buckets", s->buckets.n);
    return true;
}

// Parameters that an op reads or gives a gradient as one matrix are stored as one.
static bool adjoin(const Symbol *a, const Symbol *b) {
    return hd_int(&b->attrs, A_OFFSET, 0) == hd_int(&a->attrs, A_OFFSET, 0) + hd_type_count(a->type) &&
           strcmp(hd_word(&a->attrs, A_BUCKET, ""), hd_word(&b->attrs, A_BUCKET, "")) == 0;
}

bool hd_fsdp_adjoin(const Func *f) {
    for (const Op *o = f ? f->first : NULL; o; o = o->next)
        for (int i = 1; hd_has(&o->attrs, A_ALSO) && hd_op_param(o, i); i++)
            if (!adjoin(hd_op_param(o, i - 1), hd_op_param(o, i)))
                return hd_error(f->module->cx, o->span,
                                "%s cannot take @%s and @%s as one matrix: they are not stored one after another",
                                hd_op_info(o->kind)->mnemonic, hd_op_param(o, i - 1)->name, hd_op_param(o, i)->name);
    return true;
}

FsdpBucket *hd_fsdp_owner(const Fsdp *s, const Op *o, const Symbol **param) {
    *param = hd_named(o, A_PARAM);
    int b = *param ? hd_ptr_get(&s->by_name, hd_word(&(*param)->attrs, A_BUCKET, "")) : -1;
    if (b < 0) HD_BUG("@%s is in no bucket", hd_word(&o->attrs, A_PARAM, "?"));
    return &s->buckets.at[b];
}

Symbol *hd_fsdp_transient(Fsdp *s, const Func *f, const FsdpBucket *b, const char *part, const char *class, DType d,
                          int64_t n) {
    Ctx *cx = s->m->cx;
    const char *name = b ? hd_internf(cx, "%s.%s.%s", f->name, b->name, part) : hd_internf(cx, "%s.%s", f->name, part);
    while (!is_free(s, name, "")) name = hd_internf(cx, "%s.buffer", name);
    Symbol *y = add_symbol(s, SYM_BUFFER, name, d, n);
    hd_set_word(cx, &y->attrs, A_CLASS, class);
    if (b) hd_set_word(cx, &y->attrs, A_BUCKET, b->bucket->name);
    hd_set_flag(cx, &y->attrs, A_TRANSIENT);
    return y;
}

// --- names that the runtime and the plan rely on
static const struct { const char *name, *on; } comms[N_COMMS] = {
    [COMM_GATHER] = {"comm.gather", "gather"},
    [COMM_REDUCE] = {"comm.reduce", "reduce"},
    [COMM_OUTER] = {"comm.outer", "reduce_outer"},
    [COMM_WORLD] = {"comm.world", "gather"},
    [COMM_NORM] = {"comm.norm", "gather"},
};

// The buffers of a number of the step, of which `name` is one; `counts` > 0: of so many that are added up.
static void add_number(Fsdp *s, const char *name, const char *buffer, Symbol *at, int64_t counts) {
    StepNumber x = {.name = name, .at = at, .sum = counts > 0};
    const int64_t n = counts ? counts : 1;
    if (!at) x.at = add_symbol(s, SYM_BUFFER, hd_free_name(s->m, buffer), TY_F32, n);
    hd_set_word(s->m->cx, &x.at->attrs, A_CLASS, "optimizer");
    for (int i = 0; i < hd_fsdp_levels(s); i++) {
        const char *level = hd_free_name(s->m, hd_internf(s->m->cx, "%s.level%d", buffer, i));
        Symbol *y = add_symbol(s, SYM_BUFFER, level, TY_F32, n);
        hd_set_word(s->m->cx, &y->attrs, A_CLASS, "optimizer");
        hd_push(s->cx->scratch, &x.levels, y);
    }
    hd_push(s->cx->scratch, &s->numbers, x);
}

bool hd_fsdp_add_state(Fsdp *s, const Func *micro) {
    static const char *const states[] = {"state.loss", "state.norm", "state.step"};
    Symbol *loss, **slots[] = {&loss, &s->norm, &s->step};
    const Attr *names = hd_attr(&hd_return(micro)->attrs, A_NAMES);
    for (int i = 0; i < 3; i++) {
        const Symbol *taken = hd_symbol_find(s->m, states[i]);
        if (taken) {
            hd_error(s->m->cx, taken->span,
                     "@%s is the name of what a step keeps for itself; rename the module or the parameter", states[i]);
            return false;
        }
        *slots[i] = add_symbol(s, SYM_BUFFER, hd_intern(s->m->cx, states[i]), i == 2 ? TY_I32 : TY_F32, 1);
        hd_set_word(s->m->cx, &(*slots[i])->attrs, A_CLASS, "optimizer");
    }
    if (hd_has(s->train, A_SKIP_LOSS_Z) || hd_has(s->train, A_SKIP_NORM_Z)) {
        s->history = add_symbol(s, SYM_BUFFER, hd_free_name(s->m, "state.history"), TY_F32, HD_HISTORY);
        hd_set_word(s->m->cx, &s->history->attrs, A_CLASS, "optimizer");
    }
    add_number(s, NULL, states[0], loss, 0);
    for (int i = 0; names && i < names->n; i++)
        add_number(s, names->strs[i], hd_internf(s->m->cx, "state.result.%s", names->strs[i]), NULL, 0);
    s->counted = hd_attr(&hd_return(micro)->attrs, A_COUNTED);
    s->counted_of = hd_attr(&hd_return(micro)->attrs, A_COUNTED_OF);
    if (s->counted) add_number(s, "counts", "state.counts", NULL, hd_n_counts(&hd_return(micro)->attrs));
    for (int i = 0; i < N_COMMS && s->several; i++) {
        const Symbol *taken = hd_symbol_find(s->m, comms[i].name);
        if (!taken) continue;
        hd_error(s->m->cx, taken->span, "@%s is the name of a group of ranks; rename the module or the parameter",
                 comms[i].name);
        return false;
    }
    return true;
}

_Static_assert(!(HD_SPLIT_AXES & ~HD_DATA_AXES), "a reduce_scatter adds up gradients of different sequences");

const Symbol *hd_fsdp_comm(Fsdp *s, Comm c, Axes over) {
    Ctx *cx = s->m->cx;
    for (int i = 0; i < s->comms[c].n; i++)
        if (hd_axes(&s->comms[c].at[i]->attrs, A_OVER) == over) return s->comms[c].at[i];
    const char *name = comms[c].name; // buckets that ranks own are sharded over fewer axes
    for (int a = 0; a < N_AXES && s->comms[c].n; a++)
        if (over >> a & 1) name = hd_internf(cx, "%s.%s", name, hd_axis_name(a));
    Symbol *y = hd_symbol_add(s->m, SYM_COMM, hd_free_name(s->m, name), NULL);
    hd_push(s->cx->scratch, &s->comms[c], y);
    hd_set_axes(cx, &y->attrs, A_OVER, over);
    hd_set_word(cx, &y->attrs, A_ON, hd_intern(cx, comms[c].on));
    return y;
}
