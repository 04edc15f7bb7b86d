// Random numbers [V30]: dropout draws by keys that differ in every micro-batch of every step and on every rank, and
// that are the same in the forward pass, where it is computed again, and in its gradient.
// - The keys of a function are made by its one op `dropout_keys`, which counts sequences in the buffer that the step
//   names. Every micro-batch has one, validation and the optimizer none, and nothing else writes that buffer.
// - `stride` is what all ranks read in a micro-batch. So no two micro-batches, and no two ranks, get the same sequence.
// - One op of the forward pass draws by a key. At most one copy of it does, which says that it is `recomputed`, and at
//   most one gradient; all have the same p, batch and shape. A copy reads the value that the original reads, as far as
//   terms show: a copy that has the operand of another dropout has that one's key. Attention's gradient has the key
//   of the attention whose log-sum-exp it reads.
// - What draws for a rank's part of a value has keys that say the rank's place along the same axes.
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "passes/settings.h"
#include "passes/verify/verify_plan.h"

typedef enum { ROLE_FORWARD, ROLE_COPY, ROLE_GRADIENT, N_DRAW_ROLES } DrawRole;
static const char *const role_text[] = {"the forward pass", "a recomputed copy", "a gradient"};

typedef struct {
    const Op *op, *draw; // of the function; itself, or the op inside of its kernel
    int64_t site;
    DrawRole role;
    uint64_t term; // of what it drops
} Draw;

typedef struct {
    PlanCheck *c;
    const Home *homes;
    const Op *random; // of the function; NULL: it has none
    uint64_t *term;   // by value id: equal for equal computations
    VEC(Draw) draws;
} Random;

// --- terms

static uint64_t mix(uint64_t h, uint64_t x) { return (h ^ x) * 0x9e3779b97f4a7c15u ^ h >> 29; }

static uint64_t mix_text(uint64_t h, const char *s) {
    for (; *s; s++) h = mix(h, (unsigned char)*s);
    return h;
}

// The term of an op, from those of its operands. Casts, reshapes and the op that adds a bias depend on fusion, and
// copies move values, so these do not count.
static uint64_t term_of(Random *r, const Op *o, int result, const uint64_t *in) {
    static const AttrId apart[] = {A_BWD, A_RECOMPUTED, A_WORKSPACE_BYTES, A_WORKSPACE_AT, A_INPLACE, A_EPILOGUE};
    if (hd_op_is(o, TRAIT_CARRIES | TRAIT_COPIES) && o->n_in) return in[0];
    const int bias = hd_operand_of(o, ROLE_BIAS);
    uint64_t h = mix((uint64_t)o->kind + 1, (uint64_t)result);
    for (int i = 0; i < o->attrs.n; i++) {
        bool skip = false;
        for (size_t k = 0; k < sizeof apart / sizeof *apart; k++) skip |= o->attrs.at[i].id == apart[k];
        Out text = hd_out(r->c->a);
        if (!skip) hd_print_attrs(&(Attrs){1, 1, &o->attrs.at[i]}, &text);
        if (!skip) h = mix_text(h, text.text);
    }
    for (int i = 0; i < o->n_in; i++)
        if (i != bias) h = mix(h, in[i]);
    return bias < 0 ? h : mix(mix(mix(OP_ADD + 1, 0), h), in[bias]);
}

static uint64_t term_of_home(const Random *r, const Home *home) {
    const BucketParts *k = hd_plan_bucket(r->c, home->buffer);
    return mix(mix_text(1, k ? k->symbol->name : home->buffer->name), (uint64_t)home->at);
}

static void read_terms(const Op *o, const uint64_t *term, uint64_t *in) {
    for (int i = 0; i < o->n_in; i++) in[i] = term[o->in[i]->id];
}

// --- draws

static void add_draw(Random *r, const Op *o, const Op *draw, const Value *key, uint64_t term) {
    PlanCheck *c = r->c;
    const Home home = key ? r->homes[key->id] : (Home){0};
    const char *table = r->random ? hd_word(&r->random->attrs, A_INTO, "") : "";
    const bool row = r->random && home.buffer && !strcmp(home.buffer->name, table);
    const int64_t at = home.at - (row ? hd_int(&r->random->attrs, A_OFFSET, 0) * 4 : 0);
    Draw d = {o, draw, at / (HD_KEY * 4), ROLE_FORWARD, term};
    if (!row || at < 0 || at % (HD_KEY * 4) || d.site >= hd_int(&r->random->attrs, A_SITES, 0)) {
        hd_plan_wrong(c, o, o->span, "draws by %s, which is no key that this function's dropout_keys has made",
                      key ? hd_plan_value(c, key) : "nothing");
        return;
    }
    const Axes part = hd_has(&draw->attrs, A_OVER) ? hd_axes(&draw->attrs, A_OVER) : 0;
    if (part && (!hd_has(&r->random->attrs, A_OVER) || hd_axes(&r->random->attrs, A_OVER) != part)) {
        hd_plan_wrong(c, o, o->span, "draws for this rank's part along %s, and its key does not say which one that is",
                      hd_axes_text(c->a, part));
        return;
    }
    const Attrs *as = &key->def->attrs;
    d.role = !hd_has(as, A_BWD) ? ROLE_FORWARD : hd_has(as, A_RECOMPUTED) ? ROLE_COPY : ROLE_GRADIENT;
    hd_push(c->a, &r->draws, d);
}

static void launch(Random *r, const Op *o) {
    const Func *k = hd_launched(o);
    const Op *ret = hd_return(k);
    uint64_t *term = HD_NEWN(r->c->a, uint64_t, k->n_values + 1), *in = HD_NEWN(r->c->a, uint64_t, HD_MAX_IN);
    for (int i = 0; i < k->n_args; i++) term[k->args[i]->id] = r->term[o->in[i]->id];
    for (const Op *x = k->first; x != ret; x = x->next) {
        read_terms(x, term, in);
        for (int i = 0; i < x->n_out; i++) term[x->out[i]->id] = term_of(r, x, i, in);
        const Value *key = hd_key(x);
        if (hd_draws(x)) add_draw(r, o, x, key && !key->def ? o->in[key->index] : NULL, in[0]);
    }
    for (int i = 0; i < o->n_out; i++) r->term[o->out[i]->id] = term[ret->in[i]->id];
}

static void find_draws(Random *r, const Func *f) {
    uint64_t *in = HD_NEWN(r->c->a, uint64_t, HD_MAX_IN);
    for (int i = 0; i < f->n_args; i++) r->term[f->args[i]->id] = mix_text(2, f->args[i]->name);
    for (const Op *o = f->first; o; o = o->next) {
        if (hd_op_is(o, TRAIT_LAUNCH)) {
            launch(r, o);
            continue;
        }
        read_terms(o, r->term, in);
        for (int i = 0; i < o->n_out; i++) {
            const Home *home = &r->homes[o->out[i]->id];
            r->term[o->out[i]->id] = hd_op_is(o, TRAIT_SOURCE) && home->buffer ? term_of_home(r, home)
                                                                               : term_of(r, o, i, in);
        }
        if (hd_draws(o)) add_draw(r, o, o, hd_key(o), term_of(r, o, 0, in));
    }
}

static const Draw *find(const Random *r, int64_t site, DrawRole role) {
    for (int i = 0; i < r->draws.n; i++)
        if (r->draws.at[i].site == site && r->draws.at[i].role == role) return &r->draws.at[i];
    return NULL;
}

static bool alike(const Op *a, const Op *b) {
    const int x = hd_is_backward(a), y = hd_is_backward(b);
    return (a->kind == OP_DROPOUT) == (b->kind == OP_DROPOUT) &&
           hd_float(&a->attrs, A_P, 0) == hd_float(&b->attrs, A_P, 0) &&
           hd_int(&a->attrs, A_BATCH, 0) == hd_int(&b->attrs, A_BATCH, 0) &&
           hd_type_count(a->in[x]->type) * hd_dropout_ranks(a) == hd_type_count(b->in[y]->type) * hd_dropout_ranks(b);
}

// The attention that has made the log-sum-exp of its gradient.
static const Op *forward_of(const Op *grad) {
    return hd_unaliased(grad->in[hd_has(&grad->attrs, A_PACKED) ? 3 : 5])->def;
}

static void check_draw(Random *r, const Draw *d) {
    PlanCheck *c = r->c;
    const long long site = (long long)d->site;
    const Draw *first = find(r, d->site, d->role), *forward = find(r, d->site, ROLE_FORWARD), *of = NULL;
    if (first != d)
        hd_plan_wrong(c, d->op, d->op->span, "draws by key %lld, as %s does: %s has a key of its own", site,
                      hd_plan_op(c, first->op), role_text[d->role]);
    else if (!forward)
        hd_plan_wrong(c, d->op, d->op->span, "draws by key %lld for %s, and the forward pass has no dropout with it",
                      site, role_text[d->role]);
    else if (!alike(d->draw, forward->draw))
        hd_plan_wrong(c, d->op, d->op->span, "draws by key %lld, which is that of another dropout, %s", site,
                      hd_plan_op(c, forward->op));
    if (first != d || !forward || d == forward) return;
    for (int i = 0; d->role == ROLE_COPY && d->term != forward->term && i < r->draws.n; i++)
        if (r->draws.at[i].role == ROLE_FORWARD && r->draws.at[i].term == d->term) of = &r->draws.at[i];
    const Op *attention = hd_is_backward(d->draw) ? forward_of(d->draw) : NULL;
    for (int i = 0; attention && i < r->draws.n; i++)
        if (r->draws.at[i].op == attention && r->draws.at[i].site != d->site) of = &r->draws.at[i];
    if (of)
        hd_plan_wrong(c, d->op, d->op->span, "draws by key %lld, and %s, which it belongs to, by key %lld", site,
                      hd_plan_op(c, of->op), (long long)of->site);
}

// --- functions

static void check_random(Random *r, const Op *o, bool micro) {
    PlanCheck *c = r->c;
    const char *counter = hd_word(&o->attrs, A_COUNTER, ""),
               *is = c->train ? hd_word(&c->train->attrs, A_RANDOM, "") : "";
    const int64_t batch = hd_int(hd_settings(c->m, "train"), A_BATCH, 0), stride = hd_int(&o->attrs, A_STRIDE, 0);
    if (r->random) hd_plan_wrong(c, o, o->span, "counts the sequences of the micro-batch a second time");
    else if (!micro)
        hd_plan_wrong(c, o, o->span, "makes keys in a function that is no micro-batch of the training step");
    else if (strcmp(counter, is) != 0)
        hd_plan_wrong(c, o, o->span, "counts sequences in @%s, and the step %s%s", counter,
                      *is ? "says @" : "names no buffer", is);
    else if (batch && stride != batch * c->ranks)
        hd_plan_wrong(c, o, o->span, "counts %lld sequences, and the ranks read %lld in a micro-batch",
                      (long long)stride, (long long)(batch * c->ranks));
    r->random = o;
}

static void check_func(PlanCheck *c, const Func *f, bool micro, const Symbol *counter, bool wanted) {
    Random r = {.c = c, .homes = hd_homes(f, c->a), .term = HD_NEWN(c->a, uint64_t, f->n_values + 1)};
    for (const Op *o = f->first; o; o = o->next)
        if (o->kind == OP_DROPOUT_KEYS) check_random(&r, o, micro);
    if (wanted && micro && !r.random)
        hd_plan_wrong(c, NULL, f->span, "does not count its sequences in @%s, as other micro-batches do",
                      counter->name);
    find_draws(&r, f);
    const int64_t batch = hd_int(hd_settings(c->m, "train"), A_BATCH, 0);
    for (int i = 0; i < r.draws.n; i++) {
        const Draw *d = &r.draws.at[i];
        check_draw(&r, d);
        if (batch && hd_int(&d->draw->attrs, A_BATCH, 0) != batch)
            hd_plan_wrong(c, d->op, d->op->span, "draws for %lld sequences, and a micro-batch has %lld",
                          (long long)hd_int(&d->draw->attrs, A_BATCH, 0), (long long)batch);
    }
}

void hd_check_dropout(PlanCheck *c) {
    const Symbol *counter = c->train ? hd_symbol_find(c->m, hd_word(&c->train->attrs, A_RANDOM, "")) : NULL;
    bool any = false; // a counter may be there for the seed alone (update.c)
    for (const Func *f = c->m->funcs; f && !any; f = f->next)
        for (const Op *o = f->first; o; o = o->next) any |= o->kind == OP_DROPOUT_KEYS || hd_draws(o);
    for (const Func *f = any && (counter || c->train) ? c->m->funcs : NULL; f; f = f->next) {
        if (f->is_kernel) continue;
        hd_plan_enter(c, f);
        check_func(c, f, hd_kind(&f->attrs) == KIND_MICRO && hd_runs(c->train, f) > 0, counter, counter != NULL);
    }
    c->f = NULL;
}
