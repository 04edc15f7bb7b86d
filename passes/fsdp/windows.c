// Where weights are read. Where every rank has all of them (one rank, none, what is frozen but in zero3) a parameter is
// a view of its storage:
//
//   %w = param {param = @b.w} : f32[8,8]           %c = view {buffer = @b.compute, offset = 0} : bf16[8,8]
//   %c = cast %w {out = bf16}                 ->
//
// A buffer is a view of @root.state.next, where there is one: the step that updates it gathers it. So its small bucket
// takes no part in windows.
//
// Otherwise they are gathered. In zero3 a unit's weights are gathered into a transient buffer for a part of the
// function, a window. The uses of a unit's weights, in program order, are divided into windows: forward, backward, and
// recomputed ops where they are placed. A new window starts after uses of two other units, unless it would be gathered
// as soon as the previous one ends (below). So the last block is gathered once for both directions, and a tied root
// once for the embedding and once around the head:
//
//   all_gather {buffer = @b.compute, into = @micro.b.full0, comm = @comm.gather, after = [@micro.a.full0]}
//   %c = view {buffer = @micro.b.full0, offset = 0} : bf16[8,8]          (directly before its first use in the window)
//
// With weights = master the gather takes the shard of the master weights and rounds it, in every window again:
//
//   all_gather {out = bf16, buffer = @b.master, into = @micro.b.full0, comm = @comm.gather, after = [@micro.a.full0]}
//
// What quantizes a weight is no use of it either: each window whose ops read the result quantizes it. With gather = fp8
// a bucket of rows whose weights a window only reads so is gathered quantized. The gathers replace the ops; what they
// make is the same, since no row is cut:
//
//   all_gather {out = e4m3, quantized = 8, buffer = @b.rows8.compute, into = @micro.b.rows8.full0, ...}
//   all_gather {out = e4m3, quantized = 8, scales, buffer = @b.rows8.compute, into = @micro.b.rows8.scales0, ...}
//   %q, %s = quantize %c {out = e4m3}   ->   %q = view {buffer = @micro.b.rows8.full0, offset = 64} : e4m3[8,8]
//                                            %s = view {buffer = @micro.b.rows8.scales0, offset = 8} : f32[8]
//
// Where a weight has one scale (tensors.c), an all_max at the start of the function finds those of all such weights,
// and each rank quantizes its part of each with its scale:
//
//   all_max {out = e4m3, buffers = [@a.tensors.compute, @b.tensors.compute], into = @micro.scales, comm = @comm.gather}
//   all_gather {out = e4m3, quantized = 0, scales_in = @micro.scales, first = 7, buffer = @b.tensors.compute, ...}
//   %q, %s = ... of %c    ->    %q = view {buffer = @micro.b.tensors.full0, offset = 64} : e4m3[8,8]
//                               %s = view {buffer = @micro.scales, offset = 32} : f32
//
// A window that reads them otherwise as well gathers them as ever: that of the backward pass, unless fp8.weights = once
// lets it read the same rows. So does one that the step before gathers, and one of weights = master.
//
// prefetch = k: a run is a series of uses of one unit without a use of another in between. A window is gathered k runs
// before its first run: after the last use of the run before that one, and only when this use has ended. In a plain
// sequence of windows that is the end of window j-k-1. Around the head of a model the last block's window is open, and
// each of its two runs counts.
//
// Windows without such an earlier run would be gathered where a step starts, when nothing else could run. With prefetch
// > 0 the previous step gathers them, after its optimizer (update.c), into a buffer that persists, @b.next. The runtime
// fills it before the first step. Where one function both reads it and fills it again, the buffer is lent: its bytes
// are free in between (lifetimes.h).
//
// zero1 and zero2 keep all weights: a unit has one window, which never closes, and all functions read @b.next. The
// previous step fills the units that a step uses in its first prefetch + 1 runs. A step gathers all others at its
// start, in the order of their first uses, so that the gather stream runs ahead of the forward pass and each unit waits
// only for its own weights. They take no memory, so none has to wait for the end of a window. The step's other
// micro-batches find them gathered. @eval cannot know whether a step came before it, so it gathers those others again:
//
//   all_gather {buffer = @b.compute, into = @b.next, comm = @comm.gather}
//   all_gather {buffer = @c.compute, into = @c.next, comm = @comm.gather}
//   %a = view {buffer = @a.next, offset = 0} : bf16[8,8]     (gathered after the optimizer of the step before)
//   ...
//   %b = view {buffer = @b.next, offset = 0} : bf16[8,8]
#include "passes/fsdp/fsdp.h"
#include "ir/shapes.h"
#include "passes/analysis/redirect.h"

typedef struct {
    FsdpBucket *bucket;
    Symbol *full, *scales; // scales: of the quantized rows in `full`
    bool quantized;        // all uses read what is quantized
    bool sent;             // so it is gathered so
} Part;
typedef struct {
    int unit;
    Op *first;          // use
    int run;            // that it begins with
    VEC(Part) parts;    // buckets of the unit that are used
} Window;

typedef struct {
    FsdpBucket *bucket;
    int64_t offset;
    Value *made;
    int window;
    WeightForm form;
} Weight; // made: its replacement in that window
typedef struct { Op *op; int operand, window; } Use;
typedef struct { Op *last; int window; } Run;

typedef struct {
    Fsdp *s;
    Func *f;
    int n_values;
    Weight *weights;     // by value id; bucket: NULL for a value that is not a weight
    VEC(Window) windows; // in the order of their first uses
    VEC(Use) uses;
    VEC(Run) runs;
    int *current;        // by unit: its latest window,
    int *last_run;       // and its latest run
    int recent[2];       // the two units used last
    int *n_full;         // by bucket: gathered buffers so far
    Symbol *scales;      // of the tensors of all buckets that are gathered quantized; NULL: of none so far
    int n_scales;        // so many
    int *first;          // by bucket: the number of its first one, from 1 on; 0: none of it is there
    VEC(const FsdpBucket *) scaled;
    StepFunc step;       // f
    bool kept;           // windows never close: weights are gathered into what persists
} Windows;

// A cast of a parameter to the dtype in which its weights are stored: the storage replaces the cast.
static bool is_stored_cast(const FsdpBucket *b, const Op *o) {
    return b->weights != TY_F32 && hd_casts_to(o, b->weights);
}

// --- weights that are always there
static void param_to_views(Fsdp *s, const Uses *uses, Op *o) {
    const Symbol *p;
    FsdpBucket *b = hd_fsdp_owner(s, o, &p);
    b->early |= hd_fsdp_gathers(s, b);
    const Symbol *whole = b->early ? hd_fsdp_next(s, b) : b->master;
    int64_t offset = hd_int(&p->attrs, A_OFFSET, 0);
    Builder at = {.f = o->func, .before = o, .loc = o->loc, .span = o->span, .bwd = hd_has(&o->attrs, A_BWD)};
    Value *compute = NULL, *master = NULL, *v = o->out[0];
    for (int i = 0; i < uses->count[v->id]; i++) {
        Op *user = uses->users[v->id][i];
        if (is_stored_cast(b, user)) {
            if (!compute) compute = hd_fsdp_view(s, &at, hd_fsdp_shard(b), offset, v->type);
            hd_redirect(uses, user->out[0], compute);
            hd_erase(user);
        } else if (!master) {
            master = hd_fsdp_view(s, &at, whole, offset, v->type);
        }
    }
    if (master) hd_redirect(uses, v, master);
    hd_erase(o);
}

static void params_to_views(Fsdp *s, Func *f) { // of those that are not gathered
    Uses uses = hd_uses(f, s->cx->scratch);
    const Symbol *p;
    VEC(Op *) params = {0};
    for (Op *o = f->first; o; o = o->next) {
        const FsdpBucket *b = hd_param_read(o, 0) ? hd_fsdp_owner(s, o, &p) : NULL;
        if (b && (b->rule || !hd_fsdp_gathers(s, b))) hd_push(s->cx->scratch, &params, o);
    }
    for (int i = 0; i < params.n; i++) param_to_views(s, &uses, params.at[i]);
}

// --- windows
static Window *open_window(Windows *x, int unit, Op *o) {
    x->current[unit] = x->windows.n;
    Window fresh = {.unit = unit, .first = o, .run = x->runs.n};
    hd_push(x->s->cx->scratch, &x->windows, fresh);
    return &x->windows.at[x->windows.n - 1];
}

static Part *part_of(Windows *x, Window *w, FsdpBucket *b) {
    for (int i = 0; i < w->parts.n; i++)
        if (w->parts.at[i].bucket == b) return &w->parts.at[i];
    Part fresh = {.bucket = b, .quantized = b->row && hd_fsdp_shard(b)->type->dtype == b->weights};
    hd_push(x->s->cx->scratch, &w->parts, fresh);
    return &w->parts.at[w->parts.n - 1];
}

// Whether a value is what a gather makes of a weight that it quantizes.
static bool is_quantized(const Value *v, WeightForm form, const FsdpBucket *b) {
    const Op *o = v->def;
    if (b->row == HD_WHOLE_TENSORS) return form == FORM_TENSOR || form == FORM_SCALE;
    if ((form != FORM_ROWS && form != FORM_ROW_SCALES) || !b->row) return false;
    return o->in[0]->type->rank == 2 && o->in[0]->type->dim[1] == b->row &&
           o->out[0]->type->dtype == TY_E4M3 && !hd_op_is(o->in[0]->def, TRAIT_ALIAS);
}

static void use(Windows *x, Op *o, int operand, FsdpBucket *b) {
    int u = b->unit;
    bool open = x->kept || u == x->recent[0] || u == x->recent[1] || x->runs.n - x->last_run[u] - 1 <= x->s->prefetch;
    Window *w = x->last_run[u] >= 0 && open ? &x->windows.at[x->current[u]] : open_window(x, u, o);
    if (u != x->recent[0]) {
        Run fresh = {o, x->current[u]};
        hd_push(x->s->cx->scratch, &x->runs, fresh);
        x->recent[1] = x->recent[0];
        x->recent[0] = u;
    }
    const Value *v = hd_unaliased(o->in[operand]);
    Run *run = &x->runs.at[x->runs.n - 1];
    part_of(x, w, b)->quantized &= is_quantized(v, x->weights[v->id].form, b);
    if (o->id > run->last->id) run->last = o;
    x->last_run[u] = x->runs.n - 1;
    Use found = {o, operand, (int)(w - x->windows.at)};
    hd_push(x->s->cx->scratch, &x->uses, found);
}

// The result of a param op, reshaped or cast to its stored dtype: not a use yet. Nor are its rows quantized.
static bool is_still_weight(const FsdpBucket *b, const Op *o) {
    return hd_op_is(o, TRAIT_ALIAS) || (hd_param_read(o->in[0]->def, 0) && is_stored_cast(b, o));
}

static void note_quantized(Windows *x, const Op *o, const Weight *from) {
    for (int i = 0; i < 2; i++) {
        x->weights[o->out[i]->id] = *from;
        x->weights[o->out[i]->id].form = FORM_ROWS + i;
    }
}

// The form that an op makes of a weight that is quantized with one scale.
static WeightForm tensor_form(const Windows *x, const Op *o, const Weight **from) {
    WeightForm in[HD_MAX_IN];
    *from = NULL;
    for (int i = 0; i < o->n_in; i++) {
        const Weight *w = &x->weights[o->in[i]->id];
        in[i] = w->bucket ? w->form : FORM_NONE;
        if (!w->bucket) continue;
        if (w->bucket->row != HD_WHOLE_TENSORS || (*from && (*from)->offset != w->offset)) return FORM_NONE;
        if (*from && (*from)->bucket != w->bucket) return FORM_NONE;
        *from = w;
    }
    return *from ? hd_fsdp_form(o, in) : FORM_NONE;
}

static void find_windows(Windows *x) {
    for (Op *o = x->f->first; o; o = o->next) {
        const Symbol *p;
        const Weight *from = o->n_in ? &x->weights[o->in[0]->id] : NULL, *whole;
        WeightForm form;
        if (hd_param_read(o, 0)) {
            FsdpBucket *b = hd_fsdp_owner(x->s, o, &p);
            x->weights[o->out[0]->id] = (Weight){.bucket = b, .offset = hd_int(&p->attrs, A_OFFSET, 0), .window = -1};
        } else if (from && from->bucket && is_still_weight(from->bucket, o)) {
            x->weights[o->out[0]->id] = *from;
        } else if (from && from->bucket && hd_op_is(o, TRAIT_QUANTIZES)) {
            note_quantized(x, o, from);
        } else if ((form = tensor_form(x, o, &whole)) != FORM_NONE) {
            x->weights[o->out[0]->id] = *whole;
            x->weights[o->out[0]->id].form = form;
        } else {
            for (int i = 0; i < o->n_in; i++)
                if (x->weights[o->in[i]->id].bucket) use(x, o, i, x->weights[o->in[i]->id].bucket);
        }
    }
}

static Symbol *buffer(Windows *x, const FsdpBucket *k, const char *part, int number, DType d, int64_t n) {
    return hd_fsdp_transient(x->s, x->f, k, hd_internf(x->s->m->cx, "%s%d", part, number), "weights", d, n);
}

// Where the scales of a bucket's tensors begin among those of the function.
static int first_scale(Windows *x, const FsdpBucket *k) {
    int *first = &x->first[k - x->s->buckets.at];
    if (!x->scales) x->scales = hd_fsdp_transient(x->s, x->f, NULL, "scales", "staging", TY_F32, 1);
    if (!*first) {
        *first = x->n_scales + 1;
        x->n_scales += hd_attr(&k->bucket->attrs, A_TENSORS)->n / 2;
        x->scales->type = hd_type(x->s->m->cx, TY_F32, 1, (int64_t[]){HD_SCALE_STRIDE * x->n_scales});
        hd_push(x->s->cx->scratch, &x->scaled, k);
    }
    return *first - 1;
}

// The op that finds all of them, in front of all gathers.
static void find_scales(Windows *x) {
    Ctx *cx = x->s->m->cx;
    if (!x->scales) return;
    const FsdpBucket *k = x->scaled.at[0];
    const char **names = HD_NEWN(x->s->cx->scratch, const char *, x->scaled.n);
    for (int i = 0; i < x->scaled.n; i++) names[i] = hd_fsdp_shard(x->scaled.at[i])->name;
    Attrs as = {0};
    hd_set_words(cx, &as, A_BUFFERS, x->scaled.n, names);
    hd_set_word(cx, &as, A_INTO, x->scales->name);
    hd_set_word(cx, &as, A_COMM, hd_fsdp_comm(x->s, COMM_GATHER, k->split)->name);
    hd_set_word(cx, &as, A_OUT, hd_dtype_text(TY_E4M3));
    Builder b = {.f = x->f, .before = x->f->first, .loc = k->loc, .span = x->f->first->span};
    hd_build(&b, OP_ALL_MAX, 0, NULL, &as, NULL);
}

static Op *gather_tensors(Windows *x, Builder *b, const FsdpBucket *k, const Symbol *into, const Symbol *comm) {
    Ctx *cx = x->s->m->cx;
    Attrs as = {0};
    hd_set_word(cx, &as, A_OUT, hd_dtype_text(into->type->dtype));
    hd_set_word(cx, &as, A_BUFFER, hd_fsdp_shard(k)->name);
    hd_set_word(cx, &as, A_INTO, into->name);
    hd_set_word(cx, &as, A_COMM, comm->name);
    hd_set_int(cx, &as, A_QUANTIZED, 0);
    hd_set_int(cx, &as, A_FIRST, first_scale(x, k));
    hd_set_word(cx, &as, A_SCALES_IN, x->scales->name);
    return hd_build(b, OP_ALL_GATHER, 0, NULL, &as, NULL);
}

static void gather_part(Windows *x, Builder *b, const FsdpBucket *k, Symbol *into, const Window *after) {
    Fsdp *s = x->s;
    b->loc = k->loc;
    const Symbol *comm = hd_fsdp_comm(s, COMM_GATHER, k->split);
    Op *o = hd_int(&into->attrs, A_QUANTIZED, 1)
                ? hd_fsdp_collective(s, b, OP_ALL_GATHER, hd_fsdp_shard(k), into, comm)
                : gather_tensors(x, b, k, into, comm);
    if (!after) return;
    const char **names = HD_NEWN(s->cx->scratch, const char *, after->parts.n);
    for (int i = 0; i < after->parts.n; i++) names[i] = after->parts.at[i].full->name;
    hd_set_words(s->m->cx, &o->attrs, A_AFTER, after->parts.n, names);
}

static void gather(Windows *x, Builder *b, Window *w, const Window *after) {
    for (int i = 0; i < w->parts.n; i++) {
        Part *p = &w->parts.at[i];
        const FsdpBucket *k = p->bucket;
        if (p->full) continue;
        const int number = x->n_full[k - x->s->buckets.at]++;
        const bool rows = p->quantized && k->row > 0;
        p->sent = p->quantized;
        p->full = buffer(x, k, "full", number, p->sent ? TY_E4M3 : k->weights, k->layout.size);
        if (p->sent) hd_set_int(x->s->m->cx, &p->full->attrs, A_QUANTIZED, rows ? k->row : 0);
        if (rows) p->scales = buffer(x, k, "scales", number, TY_F32, k->layout.size / k->row);
        if (rows) hd_set_int(x->s->m->cx, &p->scales->attrs, A_QUANTIZED, k->row);
        x->s->quantized += p->sent;
        gather_part(x, b, k, p->full, after);
        if (rows) gather_part(x, b, k, p->scales, after);
    }
}

// Weights gathered by the previous step. A bucket's second window, even if it would be gathered at the start, gets a
// buffer of its own.
static void gathered_before(Windows *x, Window *w) {
    for (int i = 0; i < w->parts.n; i++) {
        Part *p = &w->parts.at[i];
        if (p->bucket->early) continue;
        p->full = hd_fsdp_next(x->s, p->bucket);
        p->bucket->early = true;
        if (x->step.last && !x->kept && !p->bucket->frozen) hd_set_flag(x->s->m->cx, &p->full->attrs, A_LENT);
    }
}

// Weights that are kept: gathered where a step starts, unless the previous step has done it.
static void gather_kept(Windows *x, Builder *b, Window *w) {
    for (int i = 0; i < w->parts.n; i++) {
        FsdpBucket *k = w->parts.at[i].bucket;
        w->parts.at[i].full = hd_fsdp_next(x->s, k);
        b->loc = k->loc;
        if (x->step.first && !k->early)
            hd_fsdp_collective(x->s, b, OP_ALL_GATHER, hd_fsdp_shard(k), k->next,
                               hd_fsdp_comm(x->s, COMM_GATHER, k->split));
    }
}

static void place_gathers(Windows *x) {
    Op *start = x->f->first;
    Op **behind = HD_NEWN(x->s->cx->scratch, Op *, x->runs.n + 1); // the op before each run's last use
    for (int i = 0; i < x->runs.n; i++) behind[i] = x->runs.at[i].last->next;
    for (int j = 0; j < x->windows.n; j++) {
        Window *w = &x->windows.at[j];
        int64_t run = w->run - x->s->prefetch - 1;
        while (run >= 0 && x->runs.at[run].last->id >= w->first->id) run--; // one op uses weights of both
        Builder b = {.f = x->f, .before = run < 0 ? start : behind[run], .span = w->first->span,
                     .bwd = hd_has(&w->first->attrs, A_BWD)};
        if (run < 0 && x->step.first && !x->step.alone && (x->kept || x->s->prefetch > 0)) gathered_before(x, w);
        if (x->kept) b.before = start, gather_kept(x, &b, w);
        else gather(x, &b, w, run < 0 ? NULL : &x->windows.at[x->runs.at[run].window]);
    }
}

static const Part *part_in(const Windows *x, int window, const FsdpBucket *k) {
    const Window *w = &x->windows.at[window];
    int i = 0;
    while (w->parts.at[i].bucket != k) i++;
    return &w->parts.at[i];
}

static Value *weight_in(Windows *x, int window, Value *v, Op *at);

static Value *gathered_form(Windows *x, Builder *b, const Part *p, const Weight *k, const Type *t) {
    const FsdpBucket *of = k->bucket;
    if (k->form == FORM_ROW_SCALES) return hd_fsdp_view(x->s, b, p->scales, k->offset / of->row, t);
    if (k->form == FORM_SCALE)
        return hd_fsdp_view(x->s, b, x->scales,
                            HD_SCALE_STRIDE * (int64_t)(first_scale(x, of) + hd_fsdp_tensor_at(of, k->offset)), t);
    return hd_fsdp_view(x->s, b, p->full, k->offset, t);
}

// What ops make of a weight before it is used, in a window: what was gathered, or what they make of it there.
static Value *form_in(Windows *x, int window, Value *v, Op *at) {
    Weight *k = &x->weights[v->id];
    const Part *p = part_in(x, window, k->bucket);
    Value *in[HD_MAX_IN];
    Builder b = {.f = x->f, .before = at, .loc = at->loc, .span = at->span, .bwd = hd_has(&at->attrs, A_BWD)};
    if (p->sent) return k->made = gathered_form(x, &b, p, k, v->type);
    for (int i = 0; i < v->def->n_in; i++)
        in[i] = x->weights[v->def->in[i]->id].bucket ? weight_in(x, window, v->def->in[i], at) : v->def->in[i];
    Op *again = hd_op_clone(x->f, v->def, in);
    if (b.bwd) hd_set_flag(x->s->m->cx, &again->attrs, A_BWD);
    hd_insert_before(at, again);
    for (int i = 0; i < v->def->n_out; i++) {
        Weight *made = &x->weights[v->def->out[i]->id];
        made->window = window;
        made->made = again->out[i];
    }
    return k->made;
}

// The replacement of a weight in a window, made before `at` when it is first asked for.
static Value *weight_in(Windows *x, int window, Value *v, Op *at) {
    Weight *k = &x->weights[v->id];
    if (k->window == window) return k->made;
    k->window = window;
    if (hd_op_is(v->def, TRAIT_ALIAS)) {
        Value *in = weight_in(x, window, v->def->in[0], at);
        Op *again = hd_op_clone(x->f, v->def, &in);
        hd_insert_before(at, again);
        return k->made = again->out[0];
    }
    if (k->form != FORM_WEIGHT) return form_in(x, window, v, at);
    Builder b = {.f = x->f, .before = at, .loc = at->loc, .span = at->span, .bwd = hd_has(&at->attrs, A_BWD)};
    return k->made = hd_fsdp_view(x->s, &b, part_in(x, window, k->bucket)->full, k->offset, v->type);
}

static void gather_weights(Fsdp *s, StepFunc step) {
    Func *f = step.f;
    hd_renumber(f);
    Arena *a = s->cx->scratch;
    Windows x = {
        .s = s, .f = f, .n_values = f->n_values, .recent = {-1, -1}, .step = step, .kept = s->strategy != FSDP_ZERO3};
    x.weights = HD_NEWN(a, Weight, f->n_values + 1);
    x.current = HD_NEWN(a, int, s->n_units + 1);
    x.last_run = HD_NEWN(a, int, s->n_units + 1);
    for (int i = 0; i < s->n_units; i++) x.last_run[i] = -1;
    x.n_full = HD_NEWN(a, int, s->buckets.n + 1);
    x.first = HD_NEWN(a, int, s->buckets.n + 1);
    find_windows(&x);
    if (x.runs.n > s->runs) s->runs = x.runs.n;
    place_gathers(&x);
    for (int i = 0; i < x.uses.n; i++) {
        Use *u = &x.uses.at[i];
        u->op->in[u->operand] = weight_in(&x, u->window, u->op->in[u->operand], u->op);
    }
    find_scales(&x);
    for (Op *o = f->last, *prev; o; o = prev) { // replaced by the views: nothing reads it any more
        prev = o->prev;
        if (o->n_out && o->out[0]->id < x.n_values && o->out[0]->def == o && x.weights[o->out[0]->id].bucket)
            hd_erase(o);
    }
    hd_count(s->cx, "windows of gathered weights", x.windows.n);
}

void hd_fsdp_weights(Fsdp *s, StepFunc step) {
    params_to_views(s, step.f);
    if (s->strategy != FSDP_NONE) gather_weights(s, step);
    hd_renumber(step.f);
}
