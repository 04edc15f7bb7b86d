// A machine that runs finished plans on symbols instead of numbers, all ranks in step. The memory of a rank is cells of
// two bytes, each holding a hash, and an op writes hashes of its identity and of what it read. Collectives move cells
// between the ranks' memories. Two plans whose buffers and results end with equal hashes compute the same, whatever
// their ops mean; a byte read from the wrong place, too early or too late changes the hash. Streams run in any order
// that their events allow, functions one after another on each stream as the runtime issues them, so a race shows as a
// difference between two orders. A capture region runs as a graph does. Sums commute here: a plan does not have to
// prove their order.
#ifndef TESTS_UNIT_PLAN_MACHINE_H
#define TESTS_UNIT_PLAN_MACHINE_H
#include "tests/unit/plan_collectives.h"

static uint64_t key_of(const Op *o, Arena *a) {
    static const AttrId places[] = {A_INPLACE, A_WORKSPACE_AT, A_WORKSPACE_BYTES, A_OFFSET, A_ACCUMULATE,
                                    A_EVENT,   A_BUCKET,       A_COMM,            A_ON,     A_DECAYED,    A_RANKS,
                                    A_ALIGN};
    Attrs as = hd_attrs_copy(o->func->module->cx, &o->attrs);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) hd_unset(&as, places[i]);
    for (int i = 0; i < N_ATTRS; i++)
        if (hd_operand_uses((AttrId)i)) hd_unset(&as, (AttrId)i);
    Out t = hd_out(a);
    hd_print_attrs(&as, &t);
    const Func *k = o->kind == OP_LAUNCH ? hd_launched(o) : NULL;
    for (const Op *x = k ? k->first : NULL; x; x = x->next) hd_print_op(x, &t);
    return mix(hash_text(hd_op_info(o->kind)->mnemonic), hash_text(t.text));
}

static void put(uint64_t *c, uint64_t v, bool add) { *c = add ? *c + v : v; }

// Writes `bytes` of an op's outcome into a buffer: copied from `from`, or made up of a key.
static void write_into(Machine *x, const Op *o, int64_t bytes, const Value *from, uint64_t key) {
    const Symbol *b = buffer_of(x, o, A_INTO);
    int64_t n, m, at = at_of(x, &b->place) + hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype);
    uint64_t *to = cells(x, at, bytes, &n), *in = from ? cells(x, at_of(x, &from->place), bytes, &m) : NULL;
    for (int64_t i = 0; i < n; i++)
        put(&to[i], in ? (m ? in[i] : fresh(x)) : mix(key, (uint64_t)i), hd_has(&o->attrs, A_ACCUMULATE));
}

static bool overlaps(const Value *v, const Value *w) {
    int64_t a = v->place.offset, b = w->place.offset;
    return v->place.space == w->place.space && a < b + hd_type_bytes(w->type) && b < a + hd_type_bytes(v->type);
}

// Element i of what a rank has of a bucket is this one of the bucket.
static int64_t position(const Machine *x, const Symbol *bucket, const Symbol *part, int64_t i) {
    int64_t size = hd_type_count(bucket->type), n = hd_type_count(part->type);
    return n == size ? i : hd_mesh_number(&x->mesh, hd_axes(&bucket->attrs, A_SPLIT), x->rank) * n + i;
}

// The number of this rank's part of a bucket that is in so many parts; of another number than the buffer says, any.
static int64_t shard_of(const Machine *x, const Symbol *part, int64_t parts) {
    const Axes split = part ? hd_axes(&part->attrs, A_SPLIT) : 0;
    return hd_mesh_ranks(&x->mesh, split) == parts ? hd_mesh_number(&x->mesh, split, x->rank) : x->rank % parts;
}

static void run_update(Machine *x, const Op *o) {
    enum { MOST = 3 + HD_MAX_STATES };
    const Symbol *part[MOST] = {buffer_of(x, o, A_GRADIENT), buffer_of(x, o, A_MASTER_WEIGHTS)};
    int last = 2; // the compute weights, behind the states
    while ((part[last] = hd_state(x->m, &o->attrs, last - 2))) last++;
    part[last] = buffer_of(x, o, A_WEIGHTS);
    uint64_t scalars = digest_value(x, o->in[0]), *c[MOST] = {NULL};
    int64_t n[MOST] = {0}, count = part[1] ? hd_type_count(part[1]->type) : 0;
    for (int k = 0; k <= last; k++)
        if (part[k]) c[k] = cells(x, at_of(x, &part[k]->place), hd_type_bytes(part[k]->type), &n[k]);
    int64_t decayed = hd_int(&o->attrs, A_DECAYED, 0),
            first = shard_of(x, part[1], hd_int(&o->attrs, A_RANKS, 1)) * count,
            wide = part[last] ? hd_dtype_bytes(part[last]->type->dtype) / 2 : 1;
    for (int64_t i = 0; i < count; i++) {
        uint64_t h = mix(scalars, first + i < decayed);
        for (int k = 0; k < last; k++)
            for (int j = 0; j < 2; j++) h = mix(h, 2 * i + j < n[k] ? c[k][2 * i + j] : fresh(x));
        for (int k = 1; k < last; k++)
            for (int j = 0; j < 2; j++)
                if (2 * i + j < n[k]) c[k][2 * i + j] = mix(h, (uint64_t)(2 * k + j));
        for (int64_t j = 0; j < wide; j++)
            if (wide * i + j < n[last]) c[last][wide * i + j] = mix(h, 99 + (uint64_t)j);
    }
}

static void run_copy(Machine *x, const Op *o) {
    const Symbol *from = buffer_of(x, o, A_BUFFER), *into = buffer_of(x, o, A_INTO);
    int64_t n, m, bytes = hd_type_bytes(hd_result_type(o, 0)),
                  at = at_of(x, o->n_out ? &o->out[0]->place : &into->place);
    if (!o->n_out) at += hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(into->type->dtype);
    uint64_t *to = cells(x, at, bytes, &n),
             *in = cells(x, at_of(x, o->n_in ? &o->in[0]->place : &from->place), bytes, &m);
    for (int64_t i = 0; i < n; i++) to[i] = i < m ? in[i] : fresh(x);
}

static void run_op(Machine *x, const Op *o, uint64_t key) {
    int64_t workspace = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0), at = hd_int(&o->attrs, A_WORKSPACE_AT, -1);
    if (hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE | TRAIT_SYNC) || o->kind == OP_FENCE) return;
    if (o->kind == OP_COPY) {
        run_copy(x, o);
        return;
    }
    if (workspace > 0) scribble(x, at, workspace);
    for (int i = 0; i < o->n_in; i++) key = mix(key, digest_value(x, o->in[i]));
    if (o->kind == OP_RETURN) x->result = o->n_in ? mix(x->result, key) : x->result;
    if (o->kind == OP_STORE)
        write_into(x, o, hd_type_bytes(o->in[0]->type), o->in[0], 0);
    if (o->kind == OP_STEP_SCALARS || o->kind == OP_DROPOUT_KEYS) {
        const Symbol *b = buffer_of(x, o, A_COUNTER);
        int64_t n;
        uint64_t *c = cells(x, at_of(x, &b->place), hd_type_bytes(b->type), &n);
        for (int64_t i = 0; i < n; i++) key = mix(key, c[i] = mix(c[i], 7));
    }
    if (hd_has(&o->attrs, A_HISTORY)) { // which step_scalars reads, and keeps its operands in
        const Symbol *b = buffer_of(x, o, A_HISTORY);
        int64_t n;
        uint64_t *c = cells(x, at_of(x, &b->place), hd_type_bytes(b->type), &n);
        for (int64_t i = 0; i < n; i++) c[i] = mix(c[i], key);
        for (int64_t i = 0; i < n; i++) key = mix(key, c[i]);
    }
    if ((o->kind == OP_GEMM || o->kind == OP_EMBEDDING_GRAD || o->kind == OP_DROPOUT_KEYS) && hd_has(&o->attrs, A_INTO))
        write_into(x, o, hd_type_bytes(hd_result_type(o, 0)), NULL, key);
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    for (int i = 0; list && i < list->n; i++) {
        const Symbol *b = hd_symbol_find(x->m, list->strs[i]);
        key = mix(key, digest(x, at_of(x, &b->place), hd_type_bytes(b->type)));
    }
    if (o->kind == OP_UPDATE) run_update(x, o);
    if (o->kind == OP_ZERO) {
        const Symbol *b = buffer_of(x, o, A_INTO);
        int64_t n, size = hd_dtype_bytes(b->type->dtype);
        uint64_t *c = cells(x, at_of(x, &b->place) + hd_int(&o->attrs, A_OFFSET, 0) * size,
                            hd_int(&o->attrs, A_SIZE, 0) * size, &n);
        for (int64_t i = 0; i < n; i++) c[i] = 0;
    }
    const bool misread = hd_attr_allowed(hd_op_info(o->kind)->attrs, A_ALIGN) &&
                         hd_alignment(o) < hd_int(&o->attrs, A_ALIGN, HD_WIDE); // by vectors that start elsewhere
    if (misread) key = fresh(x);
    for (int i = 0; i < o->n_out; i++) {
        const Value *v = o->out[i];
        bool torn = misread; // or written while it is read
        for (int k = 0; k < o->n_in; k++)
            torn |= overlaps(v, o->in[k]) &&
                    !(hd_int(&o->attrs, A_INPLACE, -1) >= 0 && v->place.offset == o->in[k]->place.offset);
        int64_t n;
        uint64_t *c = cells(x, at_of(x, &v->place), hd_type_bytes(v->type), &n);
        for (int64_t j = 0; j < n; j++) c[j] = torn ? fresh(x) : mix(mix(key, (uint64_t)i), (uint64_t)j);
    }
    if (workspace > 0) scribble(x, at, workspace);
}

// Bytes that the runtime reads after a function.
static void read_state(Machine *x) {
    for (const Symbol *b = x->m->symbols; b; b = b->next)
        if (b->kind == SYM_BUFFER && !hd_has(&b->attrs, A_BUCKET) && !hd_has(&b->attrs, A_TRANSIENT))
            x->result = mix(x->result, digest(x, at_of(x, &b->place), hd_type_bytes(b->type)));
}

static void fill_arguments(Machine *x, const Step *s) {
    for (int i = 0; i < s->f->n_args; i++) {
        const Value *v = s->f->args[i];
        int64_t n;
        uint64_t *c = cells(x, at_of(x, &v->place), hd_type_bytes(v->type), &n),
                 h = mix(mix(hash_text(v->name), (uint64_t)s->instance), (uint64_t)x->rank);
        for (int64_t j = 0; j < n; j++) c[j] = mix(h, (uint64_t)j);
    }
}

static void run_step(Machine *x, const Step *s) {
    if (s->op && hd_has(&s->op->attrs, A_COMM)) {
        if (hd_collective(s->op)->compares) run_all_max(x, s->op);
        else run_collective(x, s->op);
        return;
    }
    for (int r = 0; r < x->ranks; r++) {
        use_rank(x, r);
        if (!s->op) fill_arguments(x, s);
        else run_op(x, s->op, x->key[s->func][s->op->id]);
        if (s->op && s->op->kind == OP_RETURN) read_state(x);
    }
}

// --- orders

static int stream_number(Machine *x, const char *name) {
    int i = 0;
    while (i < x->streams.n && strcmp(x->streams.at[i], name) != 0) i++;
    if (i == x->streams.n) hd_push(x->a, &x->streams, name);
    return i;
}

// Whether a wait in one region (NULL: in none) sees a record in another. A graph keeps its own events to itself; an
// external wait is for what was recorded before the graph was launched.
static bool sees(const Op *wait, const Op *wait_in, const Op *record, const Op *record_in) {
    if (wait_in == record_in)
        return !wait_in || (!hd_has(&wait->attrs, A_EXTERNAL) && !hd_has(&record->attrs, A_EXTERNAL));
    return (!wait_in || hd_has(&wait->attrs, A_EXTERNAL)) && (!record_in || hd_has(&record->attrs, A_EXTERNAL));
}

// The record that a wait waits for: the last one before it in the order of issue; -1: it need not wait.
static int record_before(const Machine *x, const Op *wait, const Op *in) {
    for (int i = x->steps.n - 1; i >= 0; i--) {
        const Op *o = x->steps.at[i].op;
        if (o && o->kind == OP_RECORD && hd_int(&o->attrs, A_EVENT, -1) == hd_int(&wait->attrs, A_EVENT, -1))
            return sees(wait, in, o, x->steps.at[i].region) ? i : -1;
    }
    return -1;
}

static void add_function(Machine *x, const Func *f, int *instance) {
    int i = 0;
    while (x->funcs[i] != f) i++;
    Step fill = {f, NULL, i, (*instance)++, stream_number(x, f->last->stream), -1, NULL};
    hd_push(x->a, &x->steps, fill);
    const Op *in = NULL;
    for (const Op *o = f->first; o; o = o->next) {
        in = o->kind == OP_CAPTURE ? o : o->kind == OP_CAPTURE_END ? NULL : in;
        // a graph does not run on the streams that it was captured on, but for the one that launches it
        bool beside = in && strcmp(o->stream, f->last->stream) != 0;
        const char *stream = beside ? hd_sprintf(x->a, "%s in a graph", o->stream) : o->stream;
        int waits_for = o->kind == OP_WAIT ? record_before(x, o, in) : -1;
        Step s = {f, o, i, fill.instance, stream_number(x, stream), waits_for, in};
        hd_push(x->a, &x->steps, s);
    }
}

static void add_declared(Machine *x, const Symbol *step, int *instance) {
    const Func *f;
    int64_t times;
    for (int i = 0; (f = hd_segment(x->m, step, i, &times)); i++)
        while (times-- > 0) add_function(x, f, instance);
}

// Orders: 0 program order; 1 the stream that is furthest ahead runs; then for each stream one in which it runs only
// when no other can, and one in which it runs whenever it can; then random ones.
static int choose(const Machine *x, const int *ready, int n, int order, uint64_t *random) {
    int best = ready[0], last = ready[0], stream = (order - 2) / 2;
    for (int i = 1; i < n; i++) {
        if (ready[i] < best) best = ready[i];
        if (ready[i] > last) last = ready[i];
    }
    if (order == 0) return best;
    if (order == 1) return last;
    if (stream >= x->streams.n) return ready[(*random = mix(*random, 3)) % (uint64_t)n];
    for (int i = 0; i < n; i++) {
        bool it = x->steps.at[ready[i]].stream == stream;
        if (it && order % 2) return ready[i];
        if (!it && order % 2 == 0) return ready[i];
    }
    return best;
}

static uint64_t run_order(Machine *x, int order) {
    int n = x->steps.n, head[MOST_STREAMS], *next = HD_NEWN(x->a, int, n + 1), latest[MOST_STREAMS];
    bool *done = HD_NEWN(x->a, bool, n + 1);
    uint64_t random = (uint64_t)order;
    if (x->streams.n > MOST_STREAMS) return 0;
    for (int s = 0; s < x->streams.n; s++) head[s] = latest[s] = -1;
    for (int i = 0; i < n; i++) {
        int s = x->steps.at[i].stream;
        next[i] = -1;
        if (latest[s] >= 0) next[latest[s]] = i;
        else head[s] = i;
        latest[s] = i;
    }
    for (int ran = 0; ran < n; ran++) {
        int ready[MOST_STREAMS], k = 0;
        for (int s = 0; s < x->streams.n; s++) {
            const Step *h = head[s] >= 0 ? &x->steps.at[head[s]] : NULL;
            if (h && (h->wait_for < 0 || done[h->wait_for])) ready[k++] = head[s];
        }
        if (!k) return 0; // stuck
        int pick = choose(x, ready, k, order, &random);
        done[pick] = true;
        head[x->steps.at[pick].stream] = next[pick];
        run_step(x, &x->steps.at[pick]);
    }
    return x->result ? x->result : 1;
}

// The initial contents of a persistent buffer are identified by a name: its own, or a common one for the weights that a
// step starts with.
static const char *content_name(const Module *m, const Symbol *s) {
    const Symbol *k = hd_symbol_find(m, hd_word(&s->attrs, A_BUCKET, ""));
    if (!k || hd_word(&k->attrs, A_NEXT, NULL) != s->name) return s->name;
    return hd_word(&k->attrs, A_WEIGHTS, hd_word(&k->attrs, A_MASTER_WEIGHTS, s->name));
}

static bool content_is_wide(Machine *x, const Symbol *s) {
    const Symbol *from = buffer_of_name(x, content_name(x->m, s));
    return from && from->kind == SYM_BUFFER && from->type->dtype == TY_F32;
}

// Where a bucket has no parameter, gradients are zeros from the start, and no contribution changes that.
static bool is_padding(const Machine *x, const Symbol *bucket, const Symbol *part, int64_t at) {
    if (!bucket || bucket->kind != SYM_BUCKET || strcmp(hd_word(&part->attrs, A_CLASS, ""), "gradients") != 0)
        return false;
    for (const Symbol *p = x->m->symbols; p; p = p->next) {
        const int64_t lo = hd_int(&p->attrs, A_OFFSET, 0);
        if (p->kind == SYM_PARAM && hd_word(&p->attrs, A_BUCKET, "") == bucket->name && at >= lo &&
            at < lo + hd_type_count(p->type))
            return false;
    }
    return true;
}

static void fill_buffers(Machine *x) {
    for (const Symbol *s = x->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER || hd_has(&s->attrs, A_TRANSIENT)) continue;
        int64_t n, wide = hd_dtype_bytes(s->type->dtype) / 2;
        uint64_t *c = cells(x, at_of(x, &s->place), hd_type_bytes(s->type), &n);
        const Symbol *bucket = hd_has(&s->attrs, A_BUCKET) ? buffer_of_name(x, hd_word(&s->attrs, A_BUCKET, "")) : NULL;
        uint64_t content = hash_text(content_name(x->m, s));
        const bool narrow = wide == 1 && content_is_wide(x, s); // what the gathers of master weights make of them
        for (int64_t i = 0; i < n; i++) {
            int64_t at =
                bucket && bucket->kind == SYM_BUCKET && wide ? position(x, bucket, s, i / wide) * wide + i % wide : i;
            c[i] = narrow ? rounded(mix(content, (uint64_t)(2 * at)), mix(content, (uint64_t)(2 * at + 1)),
                                  s->type->dtype)
                          : mix(content, (uint64_t)at);
            if (wide && is_padding(x, bucket, s, at / wide)) c[i] = 0;
        }
    }
}

// The result of a plan after two steps and an evaluation, in one of the orders that its streams allow: 0 is program
// order.
static uint64_t run_plan(const Module *m, int order) {
    Machine x = {.m = m, .a = hd_arena_new(), .mesh = hd_mesh(m)};
    const Symbol *arena = hd_space_arena(m, SPACE_DEVICE);
    x.ranks = (int)hd_mesh_ranks(&x.mesh, HD_ALL_AXES);
    const Symbol *host = hd_space_arena(m, SPACE_HOST);
    x.device_bytes = hd_int(&arena->attrs, A_BYTES, 0);
    x.n_cells = (x.device_bytes + (host ? hd_int(&host->attrs, A_BYTES, 0) : 0)) / 2;
    x.memory = HD_NEWN(x.a, uint64_t *, x.ranks);
    for (const Func *f = m->funcs; f; f = f->next) x.n_funcs += !f->is_kernel;
    x.funcs = HD_NEWN(x.a, const Func *, x.n_funcs + 1);
    x.key = HD_NEWN(x.a, uint64_t *, x.n_funcs + 1);
    int n = 0, instance = 0;
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        x.funcs[n] = f;
        x.key[n] = HD_NEWN(x.a, uint64_t, f->n_ops + 1);
        for (const Op *o = f->first; o; o = o->next) x.key[n][o->id] = key_of(o, x.a);
        n++;
    }
    for (int r = 0; r < x.ranks; r++) {
        x.memory[r] = HD_NEWN(x.a, uint64_t, x.n_cells + 1);
        use_rank(&x, r);
        scribble(&x, 0, 2 * x.n_cells);
        fill_buffers(&x);
    }
    const Symbol *train = hd_symbol_find(m, "train"), *steps[] = {hd_step(m, KIND_TRAIN), hd_step(m, KIND_EVAL)};
    for (int round = 0; round < 2; round++) {
        add_declared(&x, steps[0], &instance);
        for (int i = 0; i < x.n_funcs; i++) // what only a test runs
            if (!hd_runs(steps[0], x.funcs[i]) && !hd_runs(steps[1], x.funcs[i]))
                add_function(&x, x.funcs[i], &instance);
        add_declared(&x, steps[1], &instance);
    }
    uint64_t h = run_order(&x, order);
    if (h && train) h = mix(h, (uint64_t)hd_int(&train->attrs, A_MICRO, 1)); // how often the runtime runs them
    for (int r = 0; h && r < x.ranks; r++) {
        use_rank(&x, r);
        for (const Symbol *s = m->symbols; s; s = s->next)
            if (s->kind == SYM_BUFFER && !hd_has(&s->attrs, A_TRANSIENT))
                h = mix(h, digest(&x, at_of(&x, &s->place), hd_type_bytes(s->type)));
        static const AttrId numbers[] = {A_LOSS, A_NORM, A_COUNTER};
        for (int i = 0; i < 6; i++) { // what the runtime finds there
            const Symbol *s = steps[i / 3];
            s = s ? hd_symbol_find(m, hd_word(&s->attrs, numbers[i % 3], "")) : NULL;
            h = mix(h, s ? digest(&x, at_of(&x, &s->place), hd_type_bytes(s->type)) : 0);
        }
    }
    hd_arena_free(x.a);
    return h;
}
#endif
