// Finds the head of a loss. See loss_head.h.
#include "passes/tensor/loss_head.h"
#include "ir/shapes.h"

// What depends on the logits: on a sum over all rows; a number of each row; as large as the logits, computed of them or
// of their gradient.
typedef enum { OTHER, LATER, LINES, LOGITS, GRADIENT } Part;

typedef struct {
    Arena *arena;
    LossHead *h;
    Part *part; // by value id
} Finding;

static const char *left_whole(Arena *a, const Op *o, const char *what) {
    return hd_sprintf(a, "%s %s", hd_op_info(o->kind)->mnemonic, what);
}

static bool same_dims(const Type *a, const Type *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

// The product at the start of pointwise ops; another op, which makes the logits otherwise; NULL: an argument.
static Op *source_of(const Value *v) {
    const Type *logits = v->type;
    while (v->def && hd_op_is(v->def, TRAIT_SCALAR)) {
        const Value *next = NULL;
        for (int i = 0; i < v->def->n_in && !next; i++)
            if (same_dims(v->def->in[i]->type, logits)) next = v->def->in[i];
        if (!next) break;
        v = next;
    }
    return v->def;
}

bool hd_of_lines(const LossHead *h, const Type *t) {
    const Type *logits = h->loss->in[0]->type;
    const int n = logits->rank - 1;
    return (t->rank == n || (t->rank == n + 1 && t->dim[n] == 1)) &&
           !memcmp(t->dim, logits->dim, (size_t)n * sizeof *t->dim);
}

// Whether v meets the rows of o's result as those of the logits: a number for all rows or a column, or of each row one.
static bool meets_rows(const Finding *s, const Op *o, const Value *v) {
    const Type *t = v->type, *result = o->out[0]->type;
    if (!same_dims(result, s->h->loss->in[0]->type)) return t->rank == 0 || same_dims(t, result);
    return t->rank <= 1 || (t->rank == result->rank && hd_of_lines(s->h, t));
}

// Can a chunk of o read v: a number for all rows or of each, of the logits or made before the loss; or a constant?
static const char *unfit_operand(const Finding *s, const Op *o, const Value *v) {
    const Op *def = v->def;
    if (!meets_rows(s, o, v)) return left_whole(s->arena, o, "has another operand with rows beside the logits");
    if (s->part[v->id] != LINES && def && def->id >= s->h->loss->id && !hd_op_is(def, TRAIT_CONSTANT))
        return left_whole(s->arena, o, "has an operand that depends on the loss");
    return NULL;
}

static const char *unfit_loss(const Finding *s, const Op *o) {
    for (int i = 1; i < o->n_in; i++)
        if (s->part[o->in[i]->id]) return left_whole(s->arena, o, "has another operand that depends on the logits");
    return NULL;
}

static const char *unfit_body(const Finding *s, const Op *o) {
    const char *why = NULL;
    for (int i = 0; i < o->n_in && !why && !hd_op_is(o, TRAIT_ALIAS); i++)
        if (s->part[o->in[i]->id] < LOGITS) why = unfit_operand(s, o, o->in[i]);
    return why;
}

static const char *unfit_product(const Finding *s, const Op *o, int large, bool *sums) {
    const LossHead *h = s->h;
    const bool ta = hd_has(&o->attrs, A_TA), tb = hd_has(&o->attrs, A_TB), first = large == 0;
    const Value *other = o->in[!large];
    const bool keeps = first && !ta;
    *sums = ta && !tb;
    if (!*sums && !keeps) return left_whole(s->arena, o, "reads the gradient of the logits transposed");
    if (*sums && hd_type_rows(other->type) != h->rows)
        return left_whole(s->arena, o, "adds other rows than those of the loss");
    if (s->part[other->id] != OTHER || (other->def && other->def->id >= h->loss->id))
        return left_whole(s->arena, o, "has an operand that depends on the loss");
    return NULL;
}

static const char *add_reader(Finding *s, Op *o, int large, bool sums) {
    LossHead *h = s->h;
    if (h->n_readers == HD_MOST_HEAD_READERS) return left_whole(s->arena, o, "is one of too many readers");
    h->large[h->n_readers] = large;
    h->sums[h->n_readers] = sums;
    h->readers[h->n_readers++] = o;
    return NULL;
}

static const char *find_reader(Finding *s, Op *o, int large, int n_large) {
    const Type *of = o->in[large]->type, *result = o->out[0]->type;
    bool sums = hd_op_is(o, TRAIT_ADDS) && result->rank == 1 && result->dim[0] == hd_type_cols(of);
    if (!sums && (o->kind != OP_MATMUL || n_large != 1))
        return left_whole(s->arena, o, "reads the gradient of the logits");
    const char *why = o->kind == OP_MATMUL ? unfit_product(s, o, large, &sums) : NULL;
    if (why) return why;
    if (sums && result->dtype != TY_F32) return left_whole(s->arena, o, "adds rows in less than f32");
    return add_reader(s, o, large, sums);
}

// What an op of the body gives; OTHER: it is none.
static Part part_of_result(const Finding *s, const Op *o, Part most) {
    if (o == s->h->loss || o->n_out == 0) return OTHER;
    const Type *t = o->out[0]->type;
    const bool each = hd_op_is(o, TRAIT_SCALAR), row = hd_op_is(o, TRAIT_BY_ROWS) && !hd_has(&o->attrs, A_CAUSAL);
    if (same_dims(t, s->h->loss->in[0]->type)) {
        if (each) return most > LOGITS ? most : LOGITS;
        return row && most == LOGITS ? LOGITS : OTHER;
    }
    if (!hd_of_lines(s->h, t)) return OTHER;
    if (row && most == LOGITS) return LINES;
    return most == LINES && (each || hd_op_is(o, TRAIT_ALIAS)) ? LINES : OTHER;
}

static const char *add_sum(Finding *s, Op *o, Part of) {
    if (!hd_op_is(o, TRAIT_ADDS) || o->out[0]->type->rank > 0 || o->out[0]->type->dtype != TY_F32)
        return left_whole(s->arena, o, of == LINES ? "reads rows of the logits, too" : "reads the logits, too");
    s->part[o->out[0]->id] = LATER;
    return add_reader(s, o, 0, true);
}

static const char *add_op(Finding *s, Op *o, int large, int n_large) {
    LossHead *h = s->h;
    Part most = OTHER;
    for (int i = 0; i < o->n_in; i++)
        if (s->part[o->in[i]->id] > most) most = s->part[o->in[i]->id];
    const Part result = part_of_result(s, o, most);
    if (result == OTHER && o != h->loss)
        return most == GRADIENT ? find_reader(s, o, large, n_large) : add_sum(s, o, most);
    const char *why = o == h->loss ? unfit_loss(s, o) : unfit_body(s, o);
    if (why) return why;
    hd_push(s->arena, &h->body, o);
    if (result) s->part[o->out[0]->id] = result;
    else if (hd_is_backward(o)) s->part[o->out[1]->id] = GRADIENT;
    return NULL;
}

// An op that reads sums over all rows, and nothing of the head beside them.
static const char *add_later(Finding *s, Op *o) {
    LossHead *h = s->h;
    for (int i = 0; i < o->n_out; i++) s->part[o->out[i]->id] = LATER;
    if (o->id > h->loss->id) return NULL;
    if (!hd_op_is(o, TRAIT_PURE)) return left_whole(s->arena, o, "reads a sum over rows of the logits before the loss");
    hd_push(s->arena, &h->later, o);
    return NULL;
}

const char *hd_loss_head(Arena *a, const Func *f, LossHead *h) {
    Op *o = source_of(h->loss->in[0]);
    if (!o || o->kind != OP_MATMUL) return left_whole(a, o ? o : h->loss, "makes the logits; only a product is cut");
    if (hd_has(&o->attrs, A_SCALED)) return left_whole(a, o, "makes the logits of rows with scales");
    if (hd_has(&o->attrs, A_TA)) return left_whole(a, o, "makes the logits of transposed rows");
    Finding s = {a, h, HD_NEWN(a, Part, f->n_values)};
    h->product = o;
    h->rows = hd_type_rows(h->loss->in[0]->type);
    hd_push(a, &h->body, o);
    s.part[o->out[0]->id] = LOGITS;
    const char *why = NULL;
    while ((o = o->next) && !why) {
        int large = 0, n = 0, parts = 0, later = 0;
        for (int i = o->n_in; i-- > 0;) {
            const Part p = s.part[o->in[i]->id];
            if (p >= LOGITS) large = i, n++;
            parts += p >= LINES, later += p == LATER;
        }
        if (later && parts && o != h->loss) why = left_whole(a, o, "has an operand that depends on the loss");
        else if (parts) why = add_op(&s, o, large, n);
        else if (later) why = add_later(&s, o);
    }
    return why;
}
