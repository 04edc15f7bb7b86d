// See row_product.h.
#include "ir/row_product.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include <string.h>

// Of the row: columns, and bytes of it and what is made with it in a block's memory.
enum { MOST_COLS = 16384, MOST_BYTES = 40 << 10, MOST_TURNED = 16384 }; // MOST_TURNED: a lane has one pair

bool hd_row_product(const Op *o) {
    return hd_has(&o->attrs, A_IMPL) && hd_op_is(o, TRAIT_MATMUL) && hd_product(o).tb && o->n_out == 1;
}

static bool one_row(const Func *k, int64_t *cols) {
    *cols = hd_int(&k->attrs, A_COLS, 0);
    return hd_kind(&k->attrs) == KIND_ROWS && hd_int(&k->attrs, A_ROWS, 0) == 1;
}

bool hd_row_maker(const Func *k, int result, int64_t cols) {
    int64_t own, bytes = 0;
    const Op *ret = k ? hd_return(k) : NULL;
    if (!ret || !one_row(k, &own) || own != cols || cols > MOST_COLS || cols < 32) return false;
    if (!hd_unaliased(ret->in[result])->def) return false;
    for (const Op *o = k->first; o; o = o->next) // no op reads other columns than its own, but for sums of the row
        if (hd_draws(o) || hd_has(&o->attrs, A_HEADS)) return false;
    for (int i = 0; i < ret->n_in; i++) {
        const Type *t = ret->in[i]->type;
        if (hd_result_class(ret->in[i]) != 'd' || hd_type_count(t) != cols || hd_type_cols(t) != cols) return false;
        bytes += hd_type_bytes(t);
    }
    return bytes <= MOST_BYTES;
}

// How many parts of one size these ops take of v, if they are all of it; 0: they do not, or read it otherwise, too.
static int parts_of(const Op *from, const Value *v) {
    const int64_t n = hd_type_cols(v->type);
    int64_t size = 0;
    uint64_t seen = 0;
    bool whole = false;
    for (const Op *o = from; o; o = o->next)
        for (int i = 0; i < o->n_in; i++) {
            if (hd_unaliased(o->in[i]) != v || hd_op_is(o, TRAIT_ALIAS)) continue;
            if (!hd_in_parts(o) || o->n_in != 1 || hd_type_cols(o->in[0]->type) != n ||
                hd_int(&o->attrs, A_AXIS, 0) != o->in[0]->type->rank - 1) {
                whole = true;
                continue;
            }
            const int64_t each = hd_int(&o->attrs, A_SIZE, 0), start = hd_int(&o->attrs, A_START, 0);
            if (each <= 0 || (size && each != size) || n % each || start % each || n / each > 4) return 0;
            size = each;
            seen |= 1ull << (start / each);
        }
    if (whole) return size ? 0 : 1;
    return size && seen == (1ull << (n / size)) - 1 ? (int)(n / size) : 0;
}

static bool turns(const Op *o) { return hd_has(&o->attrs, A_HEADS); } // columns of each head, by pairs

// Columns between the two of a pair, where ops turn v; 0: none does. -1: they turn something else, or in two ways.
static int64_t half_of(const Op *from, const Value *v) {
    int64_t half = 0;
    for (const Op *o = from; o; o = o->next) {
        if (!turns(o)) continue;
        const int64_t own = hd_type_cols(o->out[0]->type) / hd_int(&o->attrs, A_HEADS, 1) / 2;
        if (hd_unaliased(o->in[0]) != v || hd_type_cols(v->type) > MOST_TURNED || (half && own != half)) return -1;
        half = own;
    }
    return half;
}

static bool pointwise_after(const Op *from, const Value *v) {
    for (const Op *o = from; o; o = o->next) {
        const bool part = hd_in_parts(o) && o->n_in == 1 && hd_unaliased(o->in[0]) == v;
        if (!part && !turns(o) && !hd_op_is(o, TRAIT_SCALAR | TRAIT_ALIAS | TRAIT_RETURN | TRAIT_CONSTANT))
            return false;
    }
    return true;
}

bool hd_row_finisher(const Func *k, int arg, const Op *g) {
    int64_t cols;
    const Op *ret = k ? hd_return(k) : NULL;
    if (!ret || arg < 0 || !one_row(k, &cols)) return false;
    const Value *v = k->args[arg];
    const int parts = parts_of(k->first, v);
    const int64_t half = half_of(k->first, v);
    if (half < 0 || (half && (parts != 1 || hd_operand_of(g, ROLE_BIAS) >= 0))) return false;
    if (!parts || hd_type_cols(v->type) != cols * parts) return false;
    if (parts > 1 && (hd_operand_of(g, ROLE_BIAS) >= 0 || v->type != g->out[0]->type)) return false;
    for (int i = 0; i < ret->n_in; i++) {
        const Type *t = ret->in[i]->type;
        if (hd_type_count(t) != cols || hd_type_cols(t) != cols || hd_unaliased(ret->in[i]) == v) return false;
    }
    return pointwise_after(k->first, v);
}

// The product as it is stored: rounded to its own type.
static const Value *result_of(const Op *product) {
    const Op *o = product->next;
    const bool rounds = o && hd_op_is(o, TRAIT_CARRIES) && hd_op_is(o, TRAIT_SCALAR) &&
                        o->in[0] == product->out[0] && o->out[0]->type == o->in[0]->type;
    return rounds ? o->out[0] : product->out[0];
}

RowProduct hd_row_product_of(const Func *k) {
    RowProduct p = {0};
    for (const Op *o = k->first; o; o = o->next) {
        if (!hd_op_is(o, TRAIT_MATMUL)) continue;
        if (p.product || !hd_row_product(o)) return (RowProduct){0};
        p.product = o;
    }
    if (!p.product) return p;
    p.result = result_of(p.product);
    p.behind = p.result->def->next;
    p.parts = parts_of(p.behind, p.result);
    p.half = half_of(p.behind, p.result);
    if (!p.parts || p.half < 0 || (p.half && p.parts > 1) || !pointwise_after(p.behind, p.result))
        return (RowProduct){0};
    p.before = (RowSpace){1, hd_product(p.product).k};
    p.after = (RowSpace){1, hd_product(p.product).n / p.parts};
    if (p.half) p.parts = 2;
    return p;
}

bool hd_row_product_part(const Op *o, const RowProduct *p) {
    return hd_in_parts(o) && o->n_in == 1 && o->in[0] == p->result;
}
