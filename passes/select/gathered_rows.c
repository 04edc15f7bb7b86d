// Products by groups gather the rows of a dispatch themselves:
//
//   %r = take %x, %source, %slots           ->    %y = grouped %x, %w, %counts, %source, %slots {tb, gathered}
//   %y = grouped %r, %w, %counts {tb}             ..
//   ..                                            %r = take %x, %source, %slots {bwd}
//   %d = grouped_grad %dy, %r, %counts {bwd}      %d = grouped_grad %dy, %r, %counts {bwd}
//
// So the forward pass neither writes these rows nor keeps them: x has a row for each token, what is taken of it one for
// each of a token's experts. Products read rows by index at 0.97 to 0.99 of the rate of whole tiles. A take moves the
// same bytes whatever the product's width: beyond MOST columns it costs less than the product loses
// (tests/bench/RESULTS.md). Gradients of weights would lose more than the take costs.
#include "passes/select/gathered_rows.h"
#include "ir/shapes.h"

enum { MOST = 8192 };

static bool gathers(const Op *o, const Value *rows) {
    return o->kind == OP_GROUPED && o->in[0] == rows && !hd_has(&o->attrs, A_GATHERED) && hd_product(o).n <= MOST;
}

// Whether products that can gather rows are the only readers of a take, or the only ones of its own pass.
static bool suits(const Op *take, const Uses *uses) {
    const Value *rows = take->out[0];
    const int n = uses->count[rows->id];
    int gathering = 0, later = 0;
    if (take->n_in != 3 || !hd_dispatch_of(take->in[1], 0) || take->in[1]->type->rank != 1) return false;
    for (int i = 0; i < n; i++) {
        const Op *o = uses->users[rows->id][i];
        const bool backward = hd_has(&o->attrs, A_BWD) && !hd_has(&take->attrs, A_BWD);
        if (gathers(o, rows) && !backward) gathering++;
        else if (backward) later++;
    }
    return gathering && gathering + later == n;
}

static void gather(Func *f, Op *o, const Op *take) {
    Value *in[] = {take->in[0], o->in[1], o->in[2], take->in[1], take->in[2]};
    Op *g = hd_op_new(f, o->kind, 5, in);
    g->loc = o->loc, g->span = o->span;
    g->attrs = hd_attrs_copy(f->module->cx, &o->attrs);
    hd_set_flag(f->module->cx, &g->attrs, A_GATHERED);
    const char *e = hd_infer(g, 0, NULL);
    if (e) HD_BUG("%s: %s", hd_op_info(g->kind)->mnemonic, e);
    g->out[0]->layout = o->out[0]->layout;
    hd_insert_before(o, g);
    hd_replace_uses(o->out[0], g->out[0]);
    hd_erase(o);
}

// The products of the take's own pass gather; others find it right before the first of them. Returns what comes next.
static Op *move(Func *f, Op *take, const Uses *uses) {
    const Value *rows = take->out[0];
    const bool own = hd_has(&take->attrs, A_BWD);
    Op *first = NULL;
    for (int i = 0; i < uses->count[rows->id]; i++) {
        Op *o = uses->users[rows->id][i];
        if (own || !hd_has(&o->attrs, A_BWD)) gather(f, o, take);
        else if (!first || o->id < first->id) first = o;
    }
    Op *next = take->next;
    hd_detach(take);
    if (!first) return next;
    hd_set_flag(f->module->cx, &take->attrs, A_BWD);
    hd_insert_before(first, take);
    return next;
}

void hd_select_gathered_rows(Func *f, PassCx *cx) {
    hd_renumber(f);
    const Uses uses = hd_uses(f, cx->scratch);
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (o->kind != OP_TAKE || !suits(o, &uses)) continue;
        next = move(f, o, &uses);
        hd_count(cx, "takes in products", 1);
    }
}
