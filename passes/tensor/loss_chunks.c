// loss-chunks: the loss over a large vocabulary in chunks of rows, so that the logits never exist whole. Where logits
// are one product, perhaps with pointwise ops behind it (a cast, a bias, a cap), and only their loss and its gradient
// read them, each chunk is taken from its logits to its part of the gradients before the next one begins:
//
//   %z = matmul %x, %w {tb}                              %x0 = slice %x {axis = 0, start = 0, size = rows/2}
//   %l, %dz = cross_entropy_grad %z, %y, %d              %z0 = matmul %x0, %w {tb}
//   %dw = matmul %dz, %x {ta}                            %l0, %dz0 = cross_entropy_grad %z0, %y0, %d/2
//   grad %dw {param = @w}                           ->   %dw0 = matmul %dz0, %x0 {ta};  grad %dw0 {param = @w}
//   %dx = matmul %dz, %w                                 %dx0 = matmul %dz0, %w
//                                                        ... the same with %x1, from row rows/2 on
//                                                        %dx = concat %dx0, %dx1;  %l = (%l0 + %l1) / 2
//
// The weight's gradient is added up over the chunks, in their order, which is another rounding than that of one
// product: the number of chunks belongs to `train` (loss_chunk_count.c chooses it). All chunks have equally many rows,
// so that the loss is the mean of their losses; with weights it is their sum. Other numbers of each row of the logits,
// as the logsumexp of a z-loss, are computed of each chunk, and sums of them over all rows are sums over chunks. The
// function of kind eval has the same chunks, without gradients.
#include "passes/tensor/loss_chunks.h"
#include "passes/tensor/loss_head.h"
#include "ir/shapes.h"
#include "passes/pass.h"
#include "passes/settings.h"

typedef VEC(LossHead *) Heads;

typedef struct {
    Module *m;
    PassCx *cx;
    Func *f;
    Uses uses;
    int64_t asked; // 0: auto
    bool any;      // a loss is there that could be cut
    Heads heads;   // of f
} Chunking;

// --- building chunks

typedef struct {
    Chunking *s;
    const LossHead *h;
    Builder b;
    int64_t n, now;         // chunks; the present one
    Value *part[2];         // of the operands of the product and of the loss: the chunk's rows, and
    const Value *whole[2];  // what they are part of
    Value *dloss;           // of each chunk
    Value **large;          // by id of a value of the body: the present chunk of it
    Value **parts[HD_MOST_HEAD_READERS]; // by reader: the values of all chunks
    Value **losses;
} Chunks;

// Rows of the present chunk of a value whose rows are those of the loss.
static Value *rows_of_chunk(Chunks *c, Value *v, bool matrix) {
    Ctx *cx = c->s->m->cx;
    for (int i = 0; i < 2; i++)
        if (c->whole[i] == v) return c->part[i];
    const int64_t cols = matrix ? hd_type_cols(v->type) : 1, flat[2] = {hd_type_count(v->type) / cols, cols};
    Value *all = v;
    const Type *t = hd_type(cx, v->type->dtype, matrix ? 2 : 1, flat);
    if (t != v->type) all = hd_build1(&c->b, OP_RESHAPE, v, NULL, NULL, t);
    Attrs as = {0};
    hd_set_int(cx, &as, A_AXIS, 0);
    hd_set_int(cx, &as, A_START, flat[0] / c->n * c->now);
    hd_set_int(cx, &as, A_SIZE, flat[0] / c->n);
    Value *part = hd_build1(&c->b, OP_SLICE, all, NULL, &as, NULL);
    const int slot = matrix ? 0 : 1;
    if (!c->whole[slot]) c->whole[slot] = v, c->part[slot] = part;
    return part;
}

static Op *chunk_as(Chunks *c, const Op *o, int n_in, Value *const *in, const Attrs *as, const Type *t) {
    c->b.loc = o->loc, c->b.span = o->span;
    return hd_build(&c->b, o->kind, n_in, in, as, hd_op_is(o, TRAIT_EXPLICIT) ? t : NULL);
}

static Op *chunk_op(Chunks *c, const Op *o, int n_in, Value *const *in) {
    return chunk_as(c, o, n_in, in, &o->attrs, o->n_out ? o->out[0]->type : NULL);
}

static Value *number(Chunks *c, const Type *t, double x, const Attrs *like) {
    Attrs as = like ? hd_attrs_copy(c->s->m->cx, like) : (Attrs){0};
    hd_set_float(c->s->m->cx, &as, A_VALUE, x);
    return hd_build1(&c->b, OP_CONST, NULL, NULL, &as, t);
}

static Value *constant(Chunks *c, const Op *o, const Type *t, double factor) {
    return number(c, t, hd_float(&o->attrs, A_VALUE, 0) * factor, &o->attrs);
}

static bool only_grads(const Chunks *c, const Value *v) {
    bool grads = c->s->uses.count[v->id] > 0;
    for (int i = 0; i < c->s->uses.count[v->id]; i++) grads &= hd_param_added(c->s->uses.users[v->id][i], 0) != NULL;
    return grads;
}

static void chunk_reader(Chunks *c, int k) {
    const Op *o = c->h->readers[k];
    const int large = c->h->large[k];
    Value *in[2] = {NULL}, *y;
    for (int i = 0; i < o->n_in; i++) in[i] = i == large ? c->large[o->in[i]->id] : o->in[i];
    if (c->h->sums[k] && o->n_in > 1) in[!large] = rows_of_chunk(c, o->in[!large], true);
    Attrs as = hd_attrs_copy(c->s->m->cx, &o->attrs);
    if (o->out[0]->type->rank == 0) // of all that it reads
        hd_set_ints(c->s->m->cx, &as, A_AXES, in[0]->type->rank, (const int64_t[]){0, 1});
    y = c->parts[k][c->now] = chunk_as(c, o, o->n_in, in, &as, o->out[0]->type)->out[0];
    if (!c->h->sums[k] || !only_grads(c, o->out[0])) return;
    for (int i = 0; i < c->s->uses.count[o->out[0]->id]; i++) chunk_op(c, c->s->uses.users[o->out[0]->id][i], 1, &y);
}

static Value *chunk_product(Chunks *c) {
    Op *o = c->h->product;
    c->b.loc = o->loc, c->b.span = o->span;
    rows_of_chunk(c, o->in[0], true);
    rows_of_chunk(c, c->h->loss->in[1], false);
    return chunk_op(c, o, 2, (Value *[]){rows_of_chunk(c, o->in[0], true), o->in[1]})->out[0];
}

static const Op *chunk_loss(Chunks *c) {
    Op *o = c->h->loss;
    Value *in[4] = {c->large[o->in[0]->id], rows_of_chunk(c, o->in[1], false)}, *weights = hd_loss_weights(o);
    int n = 2;
    if (c->dloss) in[n++] = c->dloss;
    if (weights) in[n++] = rows_of_chunk(c, weights, false);
    const Op *loss = chunk_op(c, o, n, in);
    c->losses[c->now] = loss->out[0];
    return loss;
}

// Of a value of the body's op o, or of an operand with a number of each row: the type of a chunk. Those with a last
// dimension are matrices.
static const Type *type_of_chunk(const Chunks *c, const Type *t) {
    const bool matrix = t->rank == c->h->loss->in[0]->type->rank;
    return hd_type(c->s->m->cx, t->dtype, matrix ? 2 : 1,
                   (const int64_t[]){c->h->rows / c->n, matrix ? t->dim[t->rank - 1] : 1});
}

// An operand that is not of the body. Chunks stand before the loss, so each has its own copy of a constant that follows
// it.
static Value *other_operand(Chunks *c, const Op *o, Value *v) {
    const Op *def = v->def;
    const int rank = c->h->loss->in[0]->type->rank;
    const bool constants = def && hd_op_is(def, TRAIT_CONSTANT);
    if (v->type->rank > 0 && (v->type->rank == rank || o->out[0]->type->rank < rank)) // a number of each row
        return constants ? constant(c, def, type_of_chunk(c, v->type), 1) : rows_of_chunk(c, v, v->type->rank == rank);
    return constants && def->id > c->h->loss->id ? constant(c, def, v->type, 1) : v;
}

// An op of the body but the product and the loss.
static Value *chunk_body(Chunks *c, const Op *o) {
    Value **in = HD_NEWN(c->s->cx->scratch, Value *, o->n_in);
    for (int i = 0; i < o->n_in; i++) {
        in[i] = c->large[o->in[i]->id];
        if (!in[i]) in[i] = other_operand(c, o, o->in[i]);
    }
    return chunk_as(c, o, o->n_in, in, &o->attrs, type_of_chunk(c, o->out[0]->type))->out[0];
}

static void one_chunk(Chunks *c) {
    const LossHead *h = c->h;
    int k = 0;
    c->whole[0] = c->whole[1] = NULL;
    for (int i = 0; i < h->body.n; i++) {
        const Op *o = h->body.at[i];
        while (k < h->n_readers && h->readers[k]->id < o->id) chunk_reader(c, k++);
        if (o == h->product) c->large[o->out[0]->id] = chunk_product(c);
        else if (o != h->loss) c->large[o->out[0]->id] = chunk_body(c, o);
        else {
            const Op *loss = chunk_loss(c);
            if (hd_is_backward(o)) c->large[o->out[1]->id] = loss->out[1];
        }
    }
    while (k < h->n_readers) chunk_reader(c, k++);
}

static Value *divided(Chunks *c, Value *v) { // by the number of chunks
    const double part = 1.0 / (double)c->n;
    if (v->def && hd_op_is(v->def, TRAIT_CONSTANT)) return constant(c, v->def, v->type, part);
    return hd_build1(&c->b, OP_MUL, v, number(c, v->type, part, NULL), NULL, NULL);
}

static Value *sum(Chunks *c, Value *const *parts) {
    Value *v = parts[0];
    for (int64_t i = 1; i < c->n; i++) v = hd_build1(&c->b, OP_ADD, v, parts[i], NULL, NULL);
    return v;
}

// Joins the chunks' values of a reader; NULL: its gradients have been given.
static Value *join(Chunks *c, int k) {
    const Op *o = c->h->readers[k];
    if (c->h->sums[k]) return only_grads(c, o->out[0]) ? NULL : sum(c, c->parts[k]);
    Attrs as = {0};
    hd_set_int(c->s->m->cx, &as, A_AXIS, 0);
    Value *all = hd_build(&c->b, OP_CONCAT, (int)c->n, c->parts[k], &as, NULL)->out[0];
    return all->type == o->out[0]->type ? all : hd_build1(&c->b, OP_RESHAPE, all, NULL, NULL, o->out[0]->type);
}

static void erase_head(Chunks *c) {
    const LossHead *h = c->h;
    for (int k = h->n_readers; k-- > 0;) {
        const Value *v = h->readers[k]->out[0];
        if (h->sums[k] && only_grads(c, v))
            for (int i = 0; i < c->s->uses.count[v->id]; i++) hd_erase(c->s->uses.users[v->id][i]);
        hd_erase(h->readers[k]);
    }
    for (int i = h->body.n; i-- > 0;) hd_erase(h->body.at[i]);
}

static void cut(Chunking *s, const LossHead *h) {
    const int64_t n = h->chunks;
    Arena *a = s->cx->scratch;
    Chunks c = {.s = s, .h = h, .n = n,
                .b = {.f = s->f, .before = h->loss, .loc = h->loss->loc, .span = h->loss->span,
                      .bwd = hd_has(&h->loss->attrs, A_BWD)},
                .losses = HD_NEWN(a, Value *, n), .large = HD_NEWN(a, Value *, s->f->n_values)};
    for (int k = 0; k < h->n_readers; k++) c.parts[k] = HD_NEWN(a, Value *, n);
    const bool weighted = hd_loss_weights(h->loss) != NULL; // a sum, of which the chunks are parts; else a mean
    if (hd_is_backward(h->loss)) c.dloss = weighted ? h->loss->in[2] : divided(&c, h->loss->in[2]);
    for (c.now = 0; c.now < n; c.now++) one_chunk(&c);
    c.b.loc = h->loss->loc, c.b.span = h->loss->span;
    Value *total = sum(&c, c.losses);
    hd_replace_uses(h->loss->out[0], weighted ? total : divided(&c, total));
    for (int k = 0; k < h->n_readers; k++) {
        c.b.loc = h->readers[k]->loc, c.b.span = h->readers[k]->span;
        Value *all = join(&c, k);
        if (all) hd_replace_uses(h->readers[k]->out[0], all);
    }
    for (int i = 0; i < h->later.n; i++) {
        hd_detach(h->later.at[i]);
        hd_insert_before(h->loss, h->later.at[i]);
    }
    erase_head(&c);
    hd_count(s->cx, "chunks of losses", n);
}

// --- the pass

// false after an error
static bool choose(Chunking *s, LossHead *h) {
    Ctx *cx = s->m->cx;
    const Type *logits = h->loss->in[0]->type;
    const int64_t rows = hd_type_rows(logits);
    h->why = hd_loss_head(s->cx->scratch, s->f, h);
    h->chunks = s->asked ? s->asked : hd_loss_chunks(s->m, logits, h->why ? 0 : hd_product(h->product).k);
    if (rows % h->chunks)
        return hd_error(cx, h->loss->span,
                        "loss_chunks = %lld: %lld rows of logits cannot be divided into so many equal chunks; give a "
                        "divisor of %lld, or auto", (long long)h->chunks, (long long)rows, (long long)rows);
    if (h->why && s->asked > 1)
        return hd_error(cx, h->loss->span, "loss_chunks = %lld: the logits %s cannot be cut: %s; give loss_chunks = 1",
                        (long long)h->chunks, hd_type_text(cx, logits), h->why);
    return true;
}

static bool find_heads(Chunking *s) {
    hd_renumber(s->f);
    s->uses = hd_uses(s->f, s->cx->scratch);
    s->heads.n = 0;
    for (Op *o = s->f->first; o; o = o->next) {
        if (!hd_op_is(o, TRAIT_LOSS)) continue;
        s->any = true;
        LossHead *h = HD_NEW(s->cx->scratch, LossHead);
        h->loss = o;
        if (!choose(s, h)) return false;
        if (h->chunks > 1) hd_push(s->cx->scratch, &s->heads, h);
    }
    return true;
}

static void cut_heads(Chunking *s) {
    Attrs *train = &hd_config(s->m, "train")->attrs;
    for (int i = 0; i < s->heads.n; i++) {
        const LossHead *h = s->heads.at[i];
        const int64_t bytes = hd_type_bytes(h->loss->in[0]->type) / h->chunks;
        hd_set_int(s->m->cx, train, A_LOSS_CHUNKS, h->chunks);
        hd_set_int(s->m->cx, train, A_LOSS_CHUNK_BYTES, bytes);
        cut(s, h);
    }
    hd_renumber(s->f);
}

// Micro-batches and validation have the same chunks or none, so that both compute the same loss.
Change hd_pass_loss_chunks(Module *m, PassCx *cx) {
    Chunking s = {.m = m, .cx = cx, .asked = hd_int(hd_settings(m, "train"), A_LOSS_CHUNKS, 0)};
    const char *why = NULL;
    int n = 0;
    if (s.asked == 1) return UNCHANGED;
    for (s.f = m->funcs; s.f; s.f = s.f->next) {
        if (s.f->is_kernel) continue;
        if (!find_heads(&s)) return FAILED;
        for (int i = 0; i < s.heads.n; i++) n++, why = why ? why : s.heads.at[i]->why;
    }
    if (!s.any && s.asked > 1)
        hd_warning(m->cx, hd_symbol_find(m, "train")->span,
                   "train.loss_chunks = %lld changes nothing: the model has no cross_entropy, whose logits it cuts",
                   (long long)s.asked);
    if (why) hd_set_word(m->cx, &hd_config(m, "train")->attrs, A_LOGITS_WHOLE, hd_intern(m->cx, why));
    for (s.f = m->funcs; s.f && n && !why; s.f = s.f->next)
        if (!s.f->is_kernel && find_heads(&s)) cut_heads(&s);
    return n ? CHANGED : UNCHANGED;
}
