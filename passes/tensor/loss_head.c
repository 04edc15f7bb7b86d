// Finds the head of a loss. See loss_head.h.
#include "passes/tensor/loss_head.h"
#include "ir/shapes.h"

typedef enum { OTHER, LOGITS, GRADIENT } Large; // as large as the logits: computed of them; of their gradient

typedef struct {
    Arena *arena;
    LossHead *h;
    Large *large; // by value id
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

// Can a chunk read v as it is: a value for all rows, made before the loss or a constant?
static const char *unfit_operand(const Finding *s, const Op *o, const Value *v) {
    const Op *def = v->def;
    if (v->type->rank > 1) return left_whole(s->arena, o, "has another operand with rows beside the logits");
    if (def && def->id >= s->h->loss->id && !hd_op_is(def, TRAIT_CONSTANT))
        return left_whole(s->arena, o, "has an operand that depends on the loss");
    return NULL;
}

static const char *unfit_body(const Finding *s, const Op *o) {
    const char *why = NULL;
    for (int i = 0; i < o->n_in && !why; i++)
        if (!s->large[o->in[i]->id]) why = unfit_operand(s, o, o->in[i]);
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
    if (other->def && other->def->id >= h->loss->id)
        return left_whole(s->arena, o, "has an operand that depends on the loss");
    return NULL;
}

static const char *find_reader(Finding *s, Op *o, int large, int n_large) {
    LossHead *h = s->h;
    const Type *of = o->in[large]->type, *result = o->out[0]->type;
    bool sums = hd_op_is(o, TRAIT_ADDS) && result->rank == 1 && result->dim[0] == hd_type_cols(of);
    if (!sums && (o->kind != OP_MATMUL || n_large != 1))
        return left_whole(s->arena, o, "reads the gradient of the logits");
    const char *why = o->kind == OP_MATMUL ? unfit_product(s, o, large, &sums) : NULL;
    if (why) return why;
    if (sums && result->dtype != TY_F32) return left_whole(s->arena, o, "adds rows in less than f32");
    if (h->n_readers == HD_MOST_HEAD_READERS) return left_whole(s->arena, o, "is one of too many readers");
    h->large[h->n_readers] = large;
    h->sums[h->n_readers] = sums;
    h->readers[h->n_readers++] = o;
    return NULL;
}

static const char *add_op(Finding *s, Op *o, int large, int n_large) {
    LossHead *h = s->h;
    const bool pointwise = hd_op_is(o, TRAIT_SCALAR) && same_dims(o->out[0]->type, h->loss->in[0]->type);
    Large most = OTHER;
    for (int i = 0; i < o->n_in; i++)
        if (s->large[o->in[i]->id] > most) most = s->large[o->in[i]->id];
    if (!pointwise && o != h->loss)
        return most == GRADIENT ? find_reader(s, o, large, n_large) : left_whole(s->arena, o, "reads the logits, too");
    const char *why = pointwise ? unfit_body(s, o) : NULL;
    if (why) return why;
    hd_push(s->arena, &h->body, o);
    if (pointwise) s->large[o->out[0]->id] = most;
    else if (hd_is_backward(o)) s->large[o->out[1]->id] = GRADIENT;
    return NULL;
}

const char *hd_loss_head(Arena *a, const Func *f, LossHead *h) {
    Op *o = source_of(h->loss->in[0]);
    if (!o || o->kind != OP_MATMUL) return left_whole(a, o ? o : h->loss, "makes the logits; only a product is cut");
    if (hd_has(&o->attrs, A_SCALED)) return left_whole(a, o, "makes the logits of rows with scales");
    if (hd_has(&o->attrs, A_TA)) return left_whole(a, o, "makes the logits of transposed rows");
    Finding s = {a, h, HD_NEWN(a, Large, f->n_values)};
    h->product = o;
    h->rows = hd_type_rows(h->loss->in[0]->type);
    hd_push(a, &h->body, o);
    s.large[o->out[0]->id] = LOGITS;
    const char *why = NULL;
    while ((o = o->next) && !why) {
        int large = 0, n = 0;
        for (int i = o->n_in; i-- > 0;)
            if (s.large[o->in[i]->id]) large = i, n++;
        if (n) why = add_op(&s, o, large, n);
    }
    return why;
}
