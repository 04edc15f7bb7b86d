// Kernels: what a code generator assumes of a kernel function. A kernel of kind rows computes every op in its space of
// rows x cols, which is the space of one of its ops, so that an index runs neither past a value nor over a part of it.
// Tables that ops look up, and weights and statistics of norms, are arguments; a column sum is only returned. A kernel
// of kind map is one op that computes each element of its result by itself. One of kind product is described in
// ir/row_product.h.
#include "passes/analysis/row_space.h"
#include "passes/verify/verify_plan.h"
#include "ir/row_product.h"
#include "ir/base/ints.h"
#include "ir/optimizer.h"

typedef struct {
    PlanCheck *c;
    const Func *k;
    RowSpace space;
} Kernel;

static bool wrong(const Kernel *k, const Op *o, const char *what) {
    const char *name = o ? hd_sprintf(k->c->a, ": %s", hd_op_info(o->kind)->mnemonic) : "";
    return hd_plan_wrong(k->c, NULL, o ? o->span : k->k->span, "kernel @%s%s %s", k->k->name, name, what);
}

static bool misfit(const Kernel *k, const Op *o, const char *what, const Type *t) {
    return wrong(k, o, hd_sprintf(k->c->a, "%s %s, which does not lie in %lld rows of %lld", what,
                                  hd_type_text(k->c->m->cx, t), ll(k->space.rows), ll(k->space.cols)));
}

static const Op *base_of(const Value *v) { return hd_unaliased(v)->def; } // NULL: an argument

static bool is_const(const Value *v) { return base_of(v) && hd_op_is(base_of(v), TRAIT_CONSTANT); }

// --- kernels of kind rows

static bool has_space(const Op *o, RowSpace s) { // by itself, without the kernel that it is in
    RowSpace own;
    if (hd_op_is(o, TRAIT_CONSTANT | TRAIT_ALIAS)) return hd_row_class(o->out[0]->type, s) == ROW_FULL;
    return !hd_op_is(o, TRAIT_RETURN) && hd_row_natural(o, &own) && own.rows == s.rows && own.cols == s.cols;
}

static bool check_operands(const Kernel *k, const Op *o) {
    for (int i = 0; i < o->n_in; i++) {
        const Op *by = o->in[i]->def;
        if (by && hd_row_external(o, i))
            return wrong(k, o, hd_sprintf(k->c->a, "reads operand %d as a table, its indices or weights, and the "
                                                   "kernel computes it: it must be an argument", i));
        if (by && hd_result_class(o->in[i]) == 'c' && !hd_op_is(o, TRAIT_RETURN))
            return wrong(k, o, "reads a sum over the rows, which is known only after the kernel");
        if (by && hd_result_class(o->in[i]) == 'p' && !hd_op_is(o, TRAIT_RETURN))
            return wrong(k, o, "reads rows that are put together from parts, which only leave the kernel");
    }
    return true;
}

static bool check_reshape(const Kernel *k, const Op *o) {
    if (is_const(o->out[0])) return true;
    RowClass from = hd_row_class(o->in[0]->type, k->space), to = hd_row_class(o->out[0]->type, k->space);
    if (from != ROW_NONE && from == to) return true;
    return from == ROW_NONE ? misfit(k, o, "reads", o->in[0]->type)
                            : wrong(k, o, hd_sprintf(k->c->a, "makes %s of %s, which lie in other rows or columns",
                                                     hd_type_text(k->c->m->cx, o->out[0]->type),
                                                     hd_type_text(k->c->m->cx, o->in[0]->type)));
}

// Arithmetic on single numbers fits anywhere.
static bool fits(const Op *o, RowSpace s) {
    bool scalar = hd_op_is(o, TRAIT_SCALAR);
    for (int i = 0; scalar && i < o->n_in; i++) scalar = hd_type_count(o->in[i]->type) == 1;
    return scalar || hd_row_fits(o, s);
}

static bool check_row_op(const Kernel *k, const Op *o) {
    if (!check_operands(k, o)) return false;
    if (hd_op_is(o, TRAIT_CONSTANT)) return true;
    if (hd_op_is(o, TRAIT_ALIAS)) return check_reshape(k, o);
    if (!hd_op_is(o, TRAIT_RETURN))
        return fits(o, k->space) || misfit(k, o, "computes", o->n_out ? o->out[0]->type : o->in[0]->type);
    for (int i = 0; i < o->n_in; i++)
        if (!hd_row_leaves(o->in[i]) && hd_row_class(o->in[i]->type, k->space) == ROW_NONE)
            return misfit(k, o, "gives", o->in[i]->type);
    return true;
}

static void find_reads(const Kernel *k, const Value *v, RowReads *r) {
    for (const Op *o = k->k->first; o; o = o->next)
        for (int i = 0; i < o->n_in; i++) {
            if (o->in[i] != v) continue;
            if (hd_op_is(o, TRAIT_ALIAS)) {
                find_reads(k, o->out[0], r);
                continue;
            }
            RowReads own = hd_row_reads(o, i, k->space);
            r->row |= own.row;
            r->column |= own.column;
        }
}

// An argument is loaded once, in one way.
static bool check_argument(const Kernel *k, const Value *v) {
    RowReads r = {0};
    find_reads(k, v, &r);
    if (hd_row_reads_agree(r, k->space)) return true;
    return wrong(k, NULL, hd_sprintf(k->c->a, "reads argument %%%s in two ways: as one number a row and as one a "
                                     "column", v->name));
}

static void check_rows(const Kernel *k) {
    bool own = false;
    for (const Op *o = k->k->first; o; o = o->next) {
        if (!check_row_op(k, o)) return;
        own |= has_space(o, k->space);
    }
    for (int i = 0; i < k->k->n_args; i++)
        if (!check_argument(k, k->k->args[i])) return;
    if (!own)
        wrong(k, NULL, hd_sprintf(k->c->a, "says %lld rows of %lld, and no op of it computes so many",
                                  ll(k->space.rows), ll(k->space.cols)));
}

// --- kernels of kind product

// Everything before the product in one space, everything behind it in another, where parts of the result may be taken.
static void check_product(const Kernel *k) {
    const RowProduct p = hd_row_product_of(k->k);
    const Op *const ret = hd_return(k->k);
    if (!p.product || !ret) {
        wrong(k, NULL, "is of kind product, which is one product of a row with the rows of a matrix, and pointwise "
                       "work on all of the result");
        return;
    }
    const Kernel before = {k->c, k->k, p.before}, after = {k->c, k->k, p.after};
    for (const Op *o = k->k->first; o != p.product; o = o->next)
        if (!check_row_op(&before, o)) return;
    for (int i = 1; i < p.product->n_in; i++)
        if (p.product->in[i]->def) {
            wrong(k, p.product, "reads a matrix or a bias that the kernel computes: it must be an argument");
            return;
        }
    for (const Op *o = p.behind; o != ret; o = o->next)
        if (!hd_row_product_part(o, &p) && !check_row_op(&after, o)) return;
    for (int i = 0; i < ret->n_in; i++) {
        const int64_t n = hd_type_count(ret->in[i]->type);
        if (n != p.before.cols && n != p.after.cols) {
            wrong(k, ret, "gives something other than rows before and behind the product");
            return;
        }
    }
}

// --- kernels of kind map

static void check_map(const Kernel *k) {
    const Op *o = k->k->first, *ret = hd_return(k->k);
    bool one = o && o->next == ret && ret && ret->n_in && hd_op_info(o->kind)->map;
    for (int i = 0; one && i < o->n_in; i++) one = !o->in[i]->def;
    for (int i = 0; one && i < ret->n_in; i++) // results of the op, in their order
        one = ret->in[i]->def == o && (!i || ret->in[i]->index > ret->in[i - 1]->index);
    if (!one)
        wrong(k, NULL, "is of kind map, which is one op that reads arguments and computes each element by itself");
}

void hd_check_kernels(PlanCheck *c) {
    for (const Func *f = c->m->funcs; f; f = f->next) {
        if (!f->is_kernel) continue;
        Kernel k = {c, f, {hd_int(&f->attrs, A_ROWS, 0), hd_int(&f->attrs, A_COLS, 0)}};
        KindId kind = hd_kind(&f->attrs);
        if (kind == KIND_ROWS) check_rows(&k);
        else if (kind == KIND_MAP) check_map(&k);
        else if (kind == KIND_PRODUCT) check_product(&k);
        else if (kind != KIND_OPTIMIZER) wrong(&k, NULL, "has no kind: rows, map, product or optimizer");
        else if (hd_optimizer_wrong(f))
            wrong(&k, NULL, hd_sprintf(c->a, "is no optimizer: one %s", hd_optimizer_wrong(f)));
    }
}
