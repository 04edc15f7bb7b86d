// The copies and fences of offloaded values. See offload.h.
#include "passes/offload/offload.h"

static Op *copy_of(Offload *w, Value *v, const Waiting *x, Op *before, bool back) {
    Ctx *cx = w->f->module->cx;
    Builder b = {.f = w->f, .before = before, .loc = x->root->def->loc, .span = x->root->def->span, .bwd = back};
    Attrs as = {0};
    b.loc.path = *x->place ? x->place : NULL;
    if (!back) hd_set_word(cx, &as, A_SPACE, hd_space_text(SPACE_HOST));
    hd_set_word(cx, &as, A_ON, back ? "reload" : "offload");
    return hd_build(&b, OP_COPY, 1, &v, &as, NULL);
}

static void fence(Offload *w, int n, Value *const *of, Op *before, const char *on, bool backward) {
    Builder b = {.f = w->f, .before = before, .bwd = backward};
    Attrs as = {0};
    if (on) hd_set_word(w->f->module->cx, &as, A_ON, on);
    hd_build(&b, OP_FENCE, n, of, &as, NULL);
}

// A value that is made when the part that begins with op `id` does: the last result before it, on the main stream, that
// no store reads, since a result that is only stored may be made in place.
static Value *just_before(const Offload *w, int id, const Uses *uses) {
    for (int i = id - 1; i >= 0; i--) {
        const Op *o = w->ops[i];
        bool here = !hd_is_alias(o) && !hd_has(&o->attrs, A_COMM) && !hd_has(&o->attrs, A_ON) &&
                    !hd_op_is(o, TRAIT_COPIES);
        for (int k = 0; here && k < o->n_out; k++) {
            bool stored = false;
            for (int j = 0; j < uses->count[o->out[k]->id]; j++)
                stored |= uses->users[o->out[k]->id][j]->kind == OP_STORE;
            if (!stored && hd_type_bytes(o->out[k]->type)) return o->out[k];
        }
    }
    return NULL;
}

// --- readers

// The value that the backward pass reads for `v`: the copy that came back, or an alias of it like `v` of its root.
static Value *value_back(Offload *w, Value **again, Value *v) {
    if (again[v->id] || !v->def || !hd_op_is(v->def, TRAIT_ALIAS)) return again[v->id];
    Value *of = value_back(w, again, v->def->in[0]);
    if (!of) return NULL;
    Op *alias = hd_op_clone(w->f, v->def, &of);
    hd_insert_after(of->def, alias);
    return again[v->id] = alias->out[0];
}

static void read_copies(Offload *w, Value **again, int n_values) {
    for (int i = 0; i < w->n_ops; i++) { // the ops that were there before
        Op *o = w->ops[i];
        if (!hd_has(&o->attrs, A_BWD) || hd_is_alias(o)) continue;
        for (int k = 0; k < o->n_in; k++) {
            Value *v = o->in[k]->id < n_values ? value_back(w, again, o->in[k]) : NULL;
            if (v) o->in[k] = v;
        }
    }
    const Uses uses = hd_uses(w->f, w->a);
    for (int i = w->n_ops; i-- > 0;)
        if (hd_op_is(w->ops[i], TRAIT_ALIAS) && !uses.count[w->ops[i]->out[0]->id]) hd_erase(w->ops[i]);
}

static void have_left(Offload *w, int n, Waiting *const *made) {
    Value *of[HD_MAX_IN];
    for (int i = 0, k = 0; i < n; i++) {
        of[k++] = made[i]->copy->out[0];
        if (i + 1 < n && made[i + 1]->fence == made[i]->fence && k < HD_MAX_IN) continue;
        Op *at = w->ops[made[i]->fence];
        fence(w, k, of, at, NULL, hd_has(&at->attrs, A_BWD));
        k = 0;
    }
}

static void come_back(Offload *w, int n, Waiting *const *read, Value **again) {
    const Uses uses = hd_uses(w->f, w->a);
    for (int i = 0; i < n; i++) {
        Waiting *x = read[i];
        Op *at = w->ops[x->back];
        Value *begins = i && read[i - 1]->back == x->back ? NULL : just_before(w, x->back, &uses);
        if (begins) fence(w, 1, &begins, at, "reload", true);
        again[x->root->id] = copy_of(w, x->copy->out[0], x, at, true)->out[0];
    }
}

void hd_offload_insert(Offload *w) {
    const int n_values = w->f->n_values;
    Waiting **made, **read;
    Value **again = HD_NEWN(w->a, Value *, n_values + 1);
    const int n = hd_offload_chosen(w, &made, &read);
    for (int i = n; i-- > 0;) // the results of one op: in their order
        made[i]->copy = copy_of(w, made[i]->root, made[i], made[i]->root->def->next, false);
    have_left(w, n, made);
    come_back(w, n, read, again);
    read_copies(w, again, n_values);
    hd_renumber(w->f);
}
