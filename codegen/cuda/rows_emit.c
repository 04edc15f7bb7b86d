// The work on one row of a `rows` kernel, in passes: pass q computes what needs q finished row reductions. Operands are
// loaded once and stay packed in registers. Later passes compute cheap values from them again and keep expensive ones
// (exp, tanh). The order of a sum over a row depends on rows and columns alone, not on the chosen shape or on what was
// fused, so that a schedule changes no bit: it is the tree of templates/common.cu. Only rows of more than 65536
// columns, which every pass reads again, have another order. Column sums: rows_columns.c.
#include "codegen/cuda/rows_emit.h"
#include "ir/base/ints.h"
#include <stdio.h>
#include <string.h>

static const RowNode *node(const Rows *r, int i) { return &r->p->nodes.at[i]; }
static bool is_reduction(const RowNode *n) { return n->kind == NODE_SUM || n->kind == NODE_MAX; }

// --- analysis: which passes need which nodes

// Where the partner of `place` is: the partner's partner is the element itself.
static int partner_place(Rows *r, int place, int64_t half) {
    if (place && r->place[place].half == half) return r->place[place].from;
    for (int i = 1; i < r->n_places; i++)
        if (r->place[i].from == place && r->place[i].half == half) return i;
    if (r->n_places == MAX_PLACES) HD_BUG("kernel @%s rotates more than %d times", r->p->kernel->name, MAX_PLACES);
    r->place[r->n_places] = (Spot){place, half};
    return r->n_places++;
}

static bool of_partner(const Rows *r, const RowNode *n) { // read at its place
    return n->kind == NODE_PARTNER && !hd_rows_exchanged(r, n);
}

// Marks in `set`, one bit per place, what must be computed for element value `i` at `place`; stops at values of the
// whole row.
static void cone(Rows *r, int i, unsigned *set, int place) {
    const RowNode *n = node(r, i);
    if (!hd_rows_each(n) || is_reduction(n) || set[i] >> place & 1) return;
    set[i] |= 1u << place;
    if ((r->kept[i] && !place) || hd_rows_is_load(n)) return;
    for (int k = 0; k < n->n_in; k++)
        cone(r, n->in[k], set, of_partner(r, n) ? partner_place(r, place, n->turn.half) : place);
}

static int ready(const RowNode *n) { return n->phase + is_reduction(n); } // the pass before which it is known

// The text that pass q evaluates for each element.
static void pass_cone(Rows *r, int q, unsigned *set) {
    memset(set, 0, sizeof *set * (size_t)r->p->nodes.n);
    for (int i = 0; i < r->p->nodes.n; i++)
        if (is_reduction(node(r, i)) && r->used[i] && node(r, i)->phase == q) cone(r, node(r, i)->in[0], set, 0);
    for (int i = 0; i < r->p->stores.n; i++) {
        const RowStore *st = &r->p->stores.at[i];
        int when = r->s.stream ? r->p->phases - 1 : node(r, st->node)->phase;
        if (st->cls >= ROW_COLUMN && when == q) cone(r, st->node, set, 0);
    }
    for (int i = 0; i < r->p->columns.n; i++)
        if (node(r, r->p->columns.at[i].node)->phase == q) cone(r, r->p->columns.at[i].node, set, 0);
}

static void mark_used(Rows *r, int i) {
    if (r->used[i]) return;
    r->used[i] = true;
    for (int k = 0; k < node(r, i)->n_in; k++) mark_used(r, node(r, i)->in[k]);
}

// A value rounded to a type of two bytes is kept packed.
static bool packed(const Rows *r, int i) {
    const RowNode *n = node(r, i);
    return n->kind == NODE_EXPR && !strcmp(n->text, "$q") && hd_dtype_bytes(n->stored) == 2 && r->s.vec > 1;
}

static int loads_of(Rows *r, int i, bool *seen) { // loads that element value `i` is made from
    const RowNode *n = node(r, i);
    if (seen[i] || !hd_rows_each(n) || is_reduction(n)) return 0;
    seen[i] = true;
    int loads = hd_rows_is_load(n);
    for (int k = 0; k < n->n_in && !hd_rows_is_load(n); k++) loads += loads_of(r, n->in[k], seen);
    return loads;
}

// Kept for later passes: what is expensive, and what takes fewer registers packed than the words that it is made from.
static bool worth_keeping(Rows *r, int i) {
    if (r->s.stream || r->first[i] < 0 || r->last[i] == r->first[i]) return false;
    return node(r, i)->cost >= 8 ||
           (packed(r, i) && loads_of(r, i, HD_NEWN(r->a, bool, r->p->nodes.n + 1)) > 1);
}

// Passes in which each node is evaluated. Nodes worth keeping are kept in registers, in a second round.
void hd_rows_analyse(Rows *r) {
    int n = r->p->nodes.n;
    r->used = HD_NEWN(r->a, bool, n + 1), r->kept = HD_NEWN(r->a, bool, n + 1), r->raw = HD_NEWN(r->a, unsigned, n + 1);
    r->first = HD_NEWN(r->a, int, n + 1), r->last = HD_NEWN(r->a, int, n + 1);
    unsigned *set = HD_NEWN(r->a, unsigned, n + 1);
    for (int i = 0; i < r->p->stores.n; i++) mark_used(r, r->p->stores.at[i].node);
    for (int i = 0; i < r->p->columns.n; i++) mark_used(r, r->p->columns.at[i].node);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n; i++) r->first[i] = r->last[i] = -1, r->raw[i] = 0;
        bool *keep = HD_NEWN(r->a, bool, n + 1), *old = r->kept;
        for (int q = 0; q < r->p->phases; q++) {
            r->kept = HD_NEWN(r->a, bool, n + 1);
            for (int i = 0; i < n; i++) r->kept[i] = old[i] && r->first[i] >= 0;
            pass_cone(r, q, set);
            for (int i = 0; i < n; i++) {
                if ((set[i] & 1) && r->first[i] < 0) r->first[i] = q;
                if (set[i]) r->last[i] = q;
                if (hd_rows_is_load(node(r, i))) r->raw[i] |= set[i];
            }
        }
        for (int i = 0; i < n; i++)
            keep[i] = round ? old[i] && r->last[i] > r->first[i] : worth_keeping(r, i);
        r->kept = keep;
    }
}

// --- names

static const char *item(const Rows *r) { return r->s.items > 1 ? "[k]" : ""; } // of a thread's vectors

// The operand `i` as text: an element's variable at a place, or the row's.
static const char *operand(Rows *r, int i, int place, int pass) {
    const RowNode *n = node(r, i);
    if (r->kept[i] && !place && r->first[i] < pass && hd_rows_each(n))
        return hd_sprintf(r->a, packed(r, i) ? "kept%d%s.at(j)" : "kept%d%s[j]", i, item(r));
    return hd_sprintf(r->a, "x%d%s", i, hd_rows_each(n) && !is_reduction(n) ? hd_rows_suffix(r, place) : "");
}

const char *hd_rows_expression(Rows *r, int i, int place, int pass) {
    const RowNode *n = node(r, i);
    Out t = hd_out(r->a);
    for (const char *s = n->text; *s; s++) {
        if (*s != '$') { hd_putn(&t, s, 1); continue; }
        s++;
        switch (*s) {
        case 'r': hd_puts(&t, "row"); break;
        case 'c': hd_printf(&t, "(%s + j)", hd_rows_column(r, place)); break;
        case 'v': hd_puts(&t, hd_rows_column(r, place)); break;
        case 'j': hd_puts(&t, "j"); break;
        case 'a': hd_printf(&t, "in%d", n->arg); break;
        case 'n': hd_puts(&t, hd_rows_literal(r->a, n->dtype, (double)r->p->cols)); break;
        case 'e': hd_puts(&t, hd_rows_literal(r->a, n->dtype, n->number)); break;
        case 'l': hd_printf(&t, "least<%s>()", hd_cuda_compute(n->dtype)); break;
        case 't': hd_puts(&t, hd_cuda_compute(n->dtype)); break;
        case 'q':
            hd_printf(&t, "rounded<%s>(%s)", hd_cuda_type(n->stored), operand(r, n->in[0], place, pass));
            break;
        default: hd_puts(&t, operand(r, n->in[*s - '0'], place, pass));
        }
    }
    return t.text;
}

// --- passes

// Values of the whole row that are known before pass q and were not known before.
void hd_rows_put_row_values(Rows *r, int q) {
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *n = node(r, i);
        if (!r->used[i] || hd_rows_each(n) || is_reduction(n) || n->phase != q) continue;
        if (n->kind == NODE_LOAD)
            hd_rows_line(r, "const %s x%d = widen(*(%s));", hd_cuda_compute(n->stored), i,
                         hd_rows_load_address(r, i, 0));
        else hd_rows_line(r, "const %s x%d = %s;", hd_cuda_compute(n->dtype), i, hd_rows_expression(r, i, 0, q));
    }
}

static const char *store_name(Rows *r, const RowStore *st) { return hd_sprintf(r->a, "out%d", st->result); }

static void row_stores(Rows *r, int q) { // results of one value a row, or one for all
    for (int i = 0; i < r->p->stores.n; i++) {
        const RowStore *st = &r->p->stores.at[i];
        if (st->cls >= ROW_COLUMN || ready(node(r, st->node)) != q) continue;
        const bool flat = r->s.kind == SHAPE_FLAT || r->s.kind == SHAPE_LINEAR;
        const char *lane = flat && hd_rows_looped(r)                           ? "first == 0"
                           : flat                                              ? "col == 0"
                           : r->s.gy > 1                                        ? "slab == 0 && lane == 0"
                                                                                : "lane == 0";
        hd_rows_line(r, "if (%s%s) put1(%s, x%d);", lane,
                     st->cls == ROW_SCALAR && r->s.kind != SHAPE_LINEAR ? " && row == 0" : "",
                     hd_rows_address(r, store_name(r, st), st->cls, 0, st->part, 0), st->node);
    }
}

// Operands come before the values that read them, at every place.
static void element_values(Rows *r, int q, const unsigned *set) {
    for (int i = 0; i < r->p->nodes.n; i++)
        for (int at = 0; at < r->n_places; at++) {
            const RowNode *n = node(r, i);
            const char *p = hd_rows_suffix(r, at), *type = hd_cuda_compute(hd_rows_is_load(n) ? n->stored : n->dtype);
            bool keep = r->kept[i] && !at;
            if (!(set[i] >> at & 1) || (keep && r->first[i] < q)) continue;
            if (hd_rows_is_load(n))
                hd_rows_line(r, "const %s x%d%s = raw%d%s%s.at(j);", type, i, p, i, p, hd_rows_index(r, i));
            else if (of_partner(r, n))
                hd_rows_line(r, "const %s x%d%s = %s;", type, i, p,
                             operand(r, n->in[0], partner_place(r, at, n->turn.half), q));
            else if (n->kind == NODE_PARTNER)
                hd_rows_line(r, "const %s x%d%s = %s;", type, i, p,
                             hd_rows_exchange(r, n, operand(r, n->in[0], at, q)));
            else hd_rows_line(r, "const %s x%d%s = %s;", type, i, p, hd_rows_expression(r, i, at, q));
            if (keep && packed(r, i)) hd_rows_line(r, "whole%d[j] = %s;", i, operand(r, n->in[0], at, q));
            else if (keep) hd_rows_line(r, "kept%d%s[j] = x%d;", i, item(r), i);
        }
}

static bool stored_in(const Rows *r, const RowStore *st, int q) {
    return st->cls >= ROW_COLUMN && (r->s.stream ? r->p->phases - 1 : node(r, st->node)->phase) == q;
}

static bool in_tree(const Rows *r, int i) { // a row's sum that is added as a tree
    return node(r, i)->kind == NODE_SUM && r->used[i] && !r->s.stream;
}

static void accumulate(Rows *r, int q) { // reductions and column sums of an element
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *n = node(r, i);
        if (!is_reduction(n) || !r->used[i] || n->phase != q) continue;
        const char *x = operand(r, n->in[0], 0, q);
        if (n->kind == NODE_SUM && !r->s.stream) hd_rows_line(r, "e%d[j] = %s;", i, x);
        else if (n->kind == NODE_SUM) hd_rows_line(r, "acc%d = plus(acc%d, %s);", i, i, x);
        else hd_rows_line(r, "acc%d = larger(%s, acc%d);", i, x, i);
    }
    for (int i = 0; i < r->p->columns.n; i++) {
        const RowColumn *c = &r->p->columns.at[i];
        if (node(r, c->node)->phase != q) continue;
        const char *x = operand(r, c->node, 0, q);
        if (r->s.stream)
            hd_rows_line(r,
                         "partials[%lldll + (i64)block * %lld + col + j] = (step ? partials[%lldll + "
                         "(i64)block * %lld + col + j] : 0.0f) + (float)%s;",
                         ll(i * r->s.gx * r->p->cols), ll(r->p->cols), ll(i * r->s.gx * r->p->cols), ll(r->p->cols), x);
        else
            hd_rows_line(r, "sum%d%s[j] = plus(sum%d%s[j], (float)%s);", i, r->s.items > 1 ? "[k]" : "", i,
                         r->s.items > 1 ? "[k]" : "", x);
    }
}

static bool packs(const Rows *r, int i, int q) { return r->kept[i] && r->first[i] == q && packed(r, i); }

// The node whose packed words, made in pass q, are what is stored; -1: none.
static int packed_now(const Rows *r, const RowStore *st, int q) {
    for (int i = 0; i < r->p->nodes.n; i++)
        if (packs(r, i, q) && node(r, i)->in[0] == st->node && node(r, i)->stored == st->dtype) return i;
    return -1;
}

static void vector_stores(Rows *r, int q) {
    for (int i = 0; i < r->p->stores.n; i++) {
        const RowStore *st = &r->p->stores.at[i];
        if (!stored_in(r, st, q)) continue;
        if (st->cls == ROW_COLUMN) hd_rows_line(r, "if (row == 0)");
        if (st->cls == ROW_PERIODIC) hd_rows_line(r, "if (row < %lld)", ll(st->period));
        const char *to = hd_rows_address(r, store_name(r, st), st->cls, st->period, st->part, 0);
        const int words = packed_now(r, st, q);
        if (words >= 0) hd_rows_line(r, "kept%d%s.store(%s);", words, item(r), to);
        else hd_rows_line(r, "put<%s, %d>(%s, y%d);", hd_cuda_type(st->dtype), r->s.vec, to, i);
    }
}

// One run over the row: elements of pass q, its reductions, stores and column sums.
static void pass(Rows *r, int q) {
    int n = r->p->nodes.n, work = 0;
    unsigned *set = HD_NEWN(r->a, unsigned, n + 1);
    bool *kept = r->kept;
    r->kept = HD_NEWN(r->a, bool, n + 1);
    for (int i = 0; i < n; i++) r->kept[i] = kept[i] && r->first[i] < q; // stops at values that earlier passes kept
    pass_cone(r, q, set);
    r->kept = kept;
    for (int i = 0; i < n; i++) {
        if (is_reduction(node(r, i)) && r->used[i] && node(r, i)->phase == q) {
            const char *t = hd_cuda_compute(node(r, i)->dtype);
            if (in_tree(r, i)) hd_rows_line(r, "%s part%d[%d] = {};", t, i, r->s.items);
            else hd_rows_line(r, node(r, i)->kind == NODE_SUM ? "%s acc%d = 0;" : "%s acc%d = least<%s>();", t, i, t);
            work++;
        }
    }
    for (int i = 0; i < r->p->stores.n; i++) work += stored_in(r, &r->p->stores.at[i], q);
    for (int i = 0; i < r->p->columns.n; i++) work += node(r, r->p->columns.at[i].node)->phase == q;
    if (!work) return;
    hd_rows_open_items(r);
    for (int i = 0; i < n; i++)
        for (int at = 0; at < r->n_places; at++)
            if ((set[i] >> at & 1) && hd_rows_is_load(node(r, i)) && !hd_rows_held(r, i)) {
                hd_rows_line(r, "Raw<%s, %d> raw%d%s;", hd_cuda_type(node(r, i)->stored), r->s.vec, i,
                             hd_rows_suffix(r, at));
                hd_rows_line(r, "raw%d%s.load(%s);", i, hd_rows_suffix(r, at), hd_rows_load_address(r, i, at));
            }
    for (int i = 0; i < r->p->stores.n; i++)
        if (stored_in(r, &r->p->stores.at[i], q) && packed_now(r, &r->p->stores.at[i], q) < 0)
            hd_rows_line(r, "%s y%d[%d];", hd_cuda_compute(r->p->stores.at[i].dtype), i, r->s.vec);
    for (int i = 0; i < n; i++)
        if (packs(r, i, q)) hd_rows_line(r, "%s whole%d[%d];", hd_cuda_compute(node(r, i)->dtype), i, r->s.vec);
    for (int i = 0; i < n; i++)
        if (in_tree(r, i) && node(r, i)->phase == q)
            hd_rows_line(r, "%s e%d[%d];", hd_cuda_compute(node(r, i)->dtype), i, r->s.vec);
    hd_rows_line(r, "#pragma unroll");
    hd_rows_line(r, "for (int j = 0; j < %d; j++) {", r->s.vec);
    element_values(r, q, set);
    accumulate(r, q);
    for (int i = 0; i < r->p->stores.n; i++)
        if (stored_in(r, &r->p->stores.at[i], q) && packed_now(r, &r->p->stores.at[i], q) < 0)
            hd_rows_line(r, "y%d[j] = %s;", i, operand(r, r->p->stores.at[i].node, 0, q));
    hd_rows_line(r, "}");
    for (int i = 0; i < n; i++)
        if (packs(r, i, q))
            hd_rows_line(r, "Pack<%s, %d>::put(kept%d%s.w, whole%d);", hd_cuda_type(node(r, i)->stored), r->s.vec, i,
                         item(r), i);
    for (int i = 0; i < n; i++)
        if (in_tree(r, i) && node(r, i)->phase == q)
            hd_rows_line(r, "part%d[%s] = tree(e%d);", i, r->s.items > 1 ? "k" : "0", i);
    vector_stores(r, q);
    hd_rows_close_items(r);
}

// The row's sums and maxima of pass q, the same bits in every thread of the row. The warps' sums of successive rows
// alternate between two places, so that one barrier per row is enough.
static void reductions(Rows *r, int q) {
    int warps = r->s.lanes / 32, chunks = warps * r->s.items, n = 0;
    bool row_loop = r->p->columns.n > 0;
    const char *place = row_loop ? r->s.groups > 1 ? "[step % 2][group]" : "[step % 2]" : "";
    const char *size = row_loop ? r->s.groups > 1 ? hd_sprintf(r->a, "[2][%d]", r->s.groups) : "[2]" : "";
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *x = node(r, i);
        if (!is_reduction(x) || !r->used[i] || x->phase != q) continue;
        const char *t = hd_cuda_compute(x->dtype);
        if (in_tree(r, i)) {
            hd_rows_line(r, "#pragma unroll");
            hd_rows_line(r, "for (int k = 0; k < %d; k++) part%d[k] = warp_sum(part%d[k]);", r->s.items, i, i);
            if (warps == 1) hd_rows_line(r, "const %s x%d = join_chunks<%d, %d>(part%d);", t, i, r->s.vec, chunks, i);
        } else if (warps == 1) {
            hd_rows_line(r, "const %s x%d = %s(acc%d);", t, i, x->kind == NODE_SUM ? "warp_sum" : "warp_max", i);
        } else {
            hd_rows_line(r, "acc%d = %s(acc%d);", i, x->kind == NODE_SUM ? "warp_sum" : "warp_max", i);
        }
        n++;
        if (warps == 1) continue;
        hd_rows_line(r, "__shared__ %s warp%d%s[%d];", t, i, size, in_tree(r, i) ? chunks : warps);
        if (in_tree(r, i)) {
            hd_rows_line(r, "if (lane %% 32 == 0) {");
            hd_rows_line(r, "#pragma unroll");
            hd_rows_line(r, "for (int k = 0; k < %d; k++) warp%d%s[k * %d + lane / 32] = part%d[k];", r->s.items, i,
                         place, warps, i);
            hd_rows_line(r, "}");
        } else {
            hd_rows_line(r, "if (lane %% 32 == 0) warp%d%s[lane / 32] = acc%d;", i, place, i);
        }
    }
    if (warps == 1 || !n) return;
    if (r->s.groups > 1)
        hd_rows_line(r,
                     "asm volatile(\"bar.sync %%0, %d;\" ::\"r\"(group + 1) : \"memory\"); // the threads of this row",
                     r->s.lanes);
    else hd_rows_line(r, "__syncthreads();");
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *x = node(r, i);
        if (!is_reduction(x) || !r->used[i] || x->phase != q) continue;
        const char *t = hd_cuda_compute(x->dtype);
        if (in_tree(r, i)) {
            hd_rows_line(r, "const %s x%d = join_chunks<%d, %d>(warp%d%s);", t, i, r->s.vec, chunks, i, place);
            continue;
        }
        hd_rows_line(r, "%s x%d = warp%d%s[0];", t, i, i, place);
        hd_rows_line(r, "#pragma unroll");
        if (x->kind == NODE_SUM)
            hd_rows_line(r, "for (int w = 1; w < %d; w++) x%d = plus(x%d, warp%d%s[w]);", warps, i, i, i, place);
        else hd_rows_line(r, "for (int w = 1; w < %d; w++) x%d = larger(x%d, warp%d%s[w]);", warps, i, i, i, place);
    }
}

// values that pass q made from packed words are computed again by later passes, not kept
static void forget(Rows *r, int q) {
    if (r->s.stream) return;
    bool any = false;
    for (int i = 0; i < r->p->nodes.n; i++) any |= (r->raw[i] & 1) && hd_rows_held(r, i) && r->last[i] > q;
    if (!any) return;
    if (hd_rows_looped(r)) hd_rows_line(r, "#pragma unroll");
    hd_rows_line(r, hd_rows_looped(r) ? "for (int k = 0; k < %d; k++) {" : "{", r->s.items);
    for (int i = 0; i < r->p->nodes.n; i++)
        if ((r->raw[i] & 1) && hd_rows_held(r, i) && r->last[i] > q)
            hd_rows_line(r, "raw%d%s.forget();", i, hd_rows_index(r, i));
    hd_rows_line(r, "}");
}

void hd_rows_passes(Rows *r) {
    hd_rows_put_warp_angles(r);
    for (int i = 0; i < r->p->nodes.n; i++)
        if (r->kept[i]) {
            const char *items = r->s.items > 1 ? hd_sprintf(r->a, "[%d]", r->s.items) : "";
            if (packed(r, i))
                hd_rows_line(r, "Raw<%s, %d> kept%d%s;", hd_cuda_type(node(r, i)->stored), r->s.vec, i, items);
            else
                hd_rows_line(r, "%s kept%d%s[%d];", hd_cuda_compute(node(r, i)->dtype), i, items, r->s.vec);
        }
    for (int q = 0; q <= r->p->phases; q++) {
        if (q) hd_rows_put_row_values(r, q);
        row_stores(r, q);
        if (q == r->p->phases) break;
        pass(r, q);
        reductions(r, q);
        if (q + 1 < r->p->phases) forget(r, q);
    }
}
