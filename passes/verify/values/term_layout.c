// Layouts in the proof of values. Every value of a plan gets the layout that its op makes of those of its operands
// (ir/spread.c), beginning with those of parameters. Its term is that of the whole: where `spread` says that an op
// computes what each rank holds of the whole result, the op over the terms of the whole operands is the term. A
// collective of values changes the layout alone. So a plan of ranks that share the work has the terms of the model on
// one device, or it computes something else.
#include "ir/layout.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "passes/verify/values/term_walk.h"

const Type *hd_term_whole_type(const TermWalk *w, const Symbol *p) {
    const Type *t = hd_type_whole(w->t.cx, p->type, p->layout, &w->mesh);
    return t ? t : p->type; // the generic verifier has refused the module
}

bool hd_term_moves_layout(const TermWalk *w, const Op *o) {
    const Symbol *comm = hd_op_is(o, TRAIT_COLLECTIVE) ? hd_named(o, A_COMM) : NULL;
    if (!comm || o->n_in != 1 || o->n_out != 1) return false;
    return (hd_axes(&comm->attrs, A_OVER) & hd_mesh_live(&w->mesh) & HD_OWN_AXES) != 0;
}

static void wrong(TermWalk *w, const Op *o, const char *why) {
    w->misplaced = true;
    if (w->c) hd_plan_wrong(w->c, o, o->span, "%s", why);
}

// The layouts of an op's results, in the count of its type rule. false after the finding.
static bool spread(TermWalk *w, const Op *o, const Op *by, const Layout *in, Layout *out) {
    int from[HD_MAX_IN], to[HD_MAX_IN];
    const int n = o->n_out + hd_has(&o->attrs, A_INTO);
    for (int a = 0; a < N_AXES; a++) {
        if (!(HD_OWN_AXES >> a & 1) || w->mesh.size[a] == 1) continue;
        for (int i = 0; i < o->n_in; i++) from[i] = hd_layout_at(in[i], a);
        for (int i = 0; i < n; i++) to[i] = LAYOUT_WHOLE;
        const char *e = hd_spread(o, a, from, to);
        if (e) {
            wrong(w, by, o == by ? e : hd_sprintf(w->t.a, "runs %s: %s", hd_op_info(o->kind)->mnemonic, e));
            return false;
        }
        for (int i = 0; i < n; i++) out[i] = hd_layout_with(out[i], a, to[i]);
    }
    return true;
}

static void scale_heads(TermWalk *w, Op *o, const Layout *in, Layout result) {
    static const AttrId counts[] = {A_HEADS, A_KV_HEADS};
    const int rank = o->out[0]->type->rank, k = hd_keys_operand(o);
    o->attrs = hd_attrs_copy(w->t.cx, &o->attrs);
    for (int a = 0; a < N_AXES; a++)
        for (int i = 0; i < 2 && hd_layout_at(result, a) == LAYOUT_SPLIT + rank - 1; i++)
            if (hd_has(&o->attrs, counts[i]) && !(i && k >= 0 && hd_layout_at(in[k], a) == LAYOUT_WHOLE))
                hd_set_int(w->t.cx, &o->attrs, counts[i], hd_int(&o->attrs, counts[i], 0) * w->mesh.size[a]);
}

static void scale_rows(TermWalk *w, Op *o) { // of a table in a buffer: those of all parts
    const int64_t rows = hd_has(&o->attrs, A_UNEVEN) ? w->mesh.uneven :
                         hd_int(&o->attrs, A_ROWS, 0) * o->in[1]->type->dim[0];
    o->attrs = hd_attrs_copy(w->t.cx, &o->attrs);
    hd_set_int(w->t.cx, &o->attrs, A_ROWS, rows);
}

// A rank has so many experts (`count`) along these axes: those of all.
static void scale_experts(TermWalk *w, Op *o, AttrId count, Axes over) {
    o->attrs = hd_attrs_copy(w->t.cx, &o->attrs);
    hd_set_int(w->t.cx, &o->attrs, count, hd_int(&o->attrs, count, 0) * hd_mesh_ranks(&w->mesh, over));
}

static Value *whole_value(TermWalk *w, const Value *v, Layout l) {
    Value *x = HD_NEW(w->t.a, Value);
    const Type *t = hd_type_whole(w->t.cx, v->type, l, &w->mesh);
    *x = *v;
    if (t) x->type = t;
    return x;
}

// A capacity is that of the choices of each rank along these axes, by `runs`.
static void scale_runs(TermWalk *w, Op *o, Axes over) {
    const int64_t runs = hd_int(&o->attrs, A_RUNS, 1);
    if (!hd_has(&o->attrs, A_CAPACITY)) return;
    o->attrs = hd_attrs_copy(w->t.cx, &o->attrs);
    if (runs == hd_mesh_ranks(&w->mesh, over)) hd_unset(&o->attrs, A_RUNS);
    else hd_set_int(w->t.cx, &o->attrs, A_RUNS, runs);
}

// The op on whole values.
static const Op *whole_op(TermWalk *w, const Op *o, const Layout *in, const Layout *out) {
    Op *x = HD_NEW(w->t.a, Op);
    const int first = hd_has(&o->attrs, A_INTO);
    *x = *o;
    x->in = HD_NEWN(w->t.a, Value *, o->n_in + 1);
    x->out = HD_NEWN(w->t.a, Value *, o->n_out + 1);
    for (int i = 0; i < o->n_in; i++) x->in[i] = whole_value(w, o->in[i], in[i]);
    for (int i = 0; i < o->n_out; i++) {
        x->out[i] = whole_value(w, o->out[i], out[i + first]);
        x->out[i]->def = x;
    }
    if (hd_draws(o) && hd_has(&o->attrs, A_OVER)) {
        x->attrs = hd_attrs_copy(w->t.cx, &x->attrs);
        hd_unset(&x->attrs, A_OVER);
        hd_unset(&x->attrs, A_DIMS);
    }
    if (hd_has(&o->attrs, A_PARTS) && hd_has(&o->attrs, A_ROWS)) scale_rows(w, x);
    if (o->kind == OP_DISPATCH) {
        scale_experts(w, x, A_EXPERTS, hd_layout_axes(out[first + 2]));
        scale_runs(w, x, hd_layout_axes(out[first + 2]));
    }
    if (hd_has(&o->attrs, A_ROUTED)) scale_experts(w, x, A_ROWS, hd_axes(&o->attrs, A_OVER));
    if (o->n_out && hd_has(&o->attrs, A_HEADS)) scale_heads(w, x, in, out[first]);
    return x;
}

const Op *hd_term_lay_out(TermWalk *w, const Op *o, const Op *by, const Layout *in, Layout *out) {
    Layout any = 0;
    const int n = o->n_out + hd_has(&o->attrs, A_INTO);
    for (int i = 0; i < n; i++) out[i] = 0;
    for (int i = 0; i < o->n_in; i++) any |= in[i];
    const bool changes = hd_term_moves_layout(w, o) || hd_has(&o->attrs, A_OVER);
    if ((!any && !changes) || hd_op_is(o, TRAIT_ORDERS | TRAIT_RETURN)) return o;
    if (!spread(w, o, by, in, out)) return o;
    return whole_op(w, o, in, out);
}

static const char *is_text(const TermWalk *w, Layout l) {
    for (int a = 0; a < N_AXES; a++)
        if (hd_layout_at(l, a) == LAYOUT_SUM)
            return hd_sprintf(w->t.a, "a partial sum over %s", hd_axis_name(a));
    return hd_layout_text(w->t.a, l);
}

void hd_term_check_given(TermWalk *w, const Op *by, const char *what, Layout is, Layout wanted) {
    if (is == wanted || w->misplaced) return;
    wrong(w, by, hd_sprintf(w->t.a, "gives %s as %s, and it is %s", what, is_text(w, is), is_text(w, wanted)));
}
