// Which ops make one kernel. Greedy, in program order: each op joins the group that saves most bytes moved, among the
// producers of its operands and, from the second sweep on, the earlier readers of its large operands (a horizontal
// merge). A kernel takes the position of its first or of its last op. Both keep the list of kernels and other ops a
// valid order, so no search for cycles is needed:
//   late (at the last):   no op in between reads a result of the first part;
//   early (at the first): no op in between makes an operand of the last part, or that op can move before the kernel.
// A merge must not make the values that live across the ops in between larger than before (except for a fraction of
// what it saves): memory is worth more than one read.
#include "passes/fuse/fuse.h"
#include "passes/fuse/gemm_bias.h"

enum { MAX_OPS = 48, MAX_INPUTS = 32, MAX_HOISTED = 4, SLACK = 8 };

typedef struct {
    int into;      // the group that stays
    double pos;
    int64_t saved; // bytes moved; 0: no merge
    int n_hoisted;
    Op *hoisted[MAX_HOISTED];
} Merge;

typedef VEC(Value *) Values;

static double pos_of(const Fusion *s, const Op *o) {
    return s->group[o->id] >= 0 ? s->groups.at[s->group[o->id]].pos : s->pos[o->id];
}

static void add_once(Fusion *s, Values *v, Value *x) {
    for (int i = 0; i < v->n; i++)
        if (v->at[i] == x) return;
    hd_push(s->cx->scratch, v, x);
}

static bool in_either(const Fusion *s, const Op *o, int a, int b) {
    return o && s->group[o->id] >= 0 && (s->group[o->id] == a || s->group[o->id] == b);
}

// Values that the groups read but do not make (by base, without constants).
static void inputs_of(Fusion *s, int g, int also, Values *v) {
    const Group *k = &s->groups.at[g];
    for (int i = 0; i < k->ops.n; i++)
        for (int j = 0; j < k->ops.at[i]->n_in; j++) {
            Value *base = hd_unaliased(k->ops.at[i]->in[j]);
            if (in_either(s, base->def, g, also) || (base->def && hd_op_is(base->def, TRAIT_CONSTANT))) continue;
            add_once(s, v, base);
        }
}

// of a value, other than groups a and b: any, before q, from q on
typedef struct { bool outside, before, after; } Readers;

static void readers_of(const Fusion *s, const Value *v, int a, int b, double q, Readers *r) {
    for (int i = 0; i < s->uses.count[v->id]; i++) {
        const Op *u = s->uses.users[v->id][i];
        if (hd_op_is(u, TRAIT_ALIAS)) {
            readers_of(s, u->out[0], a, b, q, r);
        } else if (!in_either(s, u, a, b)) {
            r->outside = true;
            if (pos_of(s, u) < q) r->before = true;
            else r->after = true;
        }
    }
}

bool hd_fuse_read_outside(const Fusion *s, const Value *v, int g) {
    Readers r = {0};
    readers_of(s, v, g, -1, 0, &r);
    return r.outside;
}

static Readers readers(const Fusion *s, const Value *v, int a, int b, double q) {
    Readers r = {0};
    readers_of(s, v, a, b, q, &r);
    return r;
}

static bool all_fit(const Group *g, RowSpace s) {
    for (int i = 0; i < g->ops.n; i++)
        if (!hd_row_fits(g->ops.at[i], s)) return false;
    return true;
}

static bool same_class(const Value *a, const Value *b, RowSpace s) {
    return a->type == b->type ||
           (hd_row_class(a->type, s) == hd_row_class(b->type, s) && hd_row_class(a->type, s) != ROW_NONE);
}

// Where a batch has as many rows as columns, [rows] read by a pointwise op means columns: then it must come from
// outside the kernel.
static bool reads_as_stat(const Op *o, int i, const Value *base, RowSpace s) {
    if (hd_result_class(base) != 's' || hd_operand_class(o, i) == 's' || s.rows == 1 || s.cols == 1) return true;
    return hd_row_class(o->in[i]->type, s) == ROW_STAT && hd_row_class(base->type, s) == ROW_STAT;
}

// A value that one part makes and the other reads must be readable inside a kernel.
static bool wiring_allows(const Fusion *s, const Group *reader, int maker, RowSpace space) {
    for (int i = 0; i < reader->ops.n; i++)
        for (int j = 0; j < reader->ops.at[i]->n_in; j++) {
            const Op *o = reader->ops.at[i];
            Value *v = o->in[j], *base = hd_unaliased(v);
            if (!base->def || s->group[base->def->id] != maker) continue;
            if (hd_row_external(o, j) || hd_row_leaves(base) || !same_class(v, base, space) ||
                !reads_as_stat(o, j, base, space))
                return false;
        }
    return true;
}

// A value from outside is loaded in one way. Where a batch has as many rows as columns, one part may read a value as
// numbers of rows and the other as numbers of columns.
static bool read_in_one_way(const Fusion *s, const Value *v, int a, int b, RowSpace space) {
    RowReads all = {0};
    for (int k = 0; k < 2; k++) {
        const Group *g = &s->groups.at[k ? b : a];
        for (int i = 0; i < g->ops.n; i++)
            for (int j = 0; j < g->ops.at[i]->n_in; j++) {
                if (hd_unaliased(g->ops.at[i]->in[j]) != v) continue;
                RowReads r = hd_row_reads(g->ops.at[i], j, space);
                all.row |= r.row;
                all.column |= r.column;
            }
    }
    return hd_row_reads_agree(all, space);
}

static bool inputs_allow(const Fusion *s, const Values *inputs, int a, int b, RowSpace space) {
    if (inputs->n > MAX_INPUTS) return false;
    for (int i = 0; i < inputs->n && space.rows == space.cols; i++)
        if (!read_in_one_way(s, inputs->at[i], a, b, space)) return false;
    return true;
}

// Whether anything runs between two positions.
static bool work_between(const Fusion *s, double p, double q) {
    for (int i = (int)p + 1; i < (int)q; i++)
        if (s->busy[i]) return true;
    return false;
}

static int64_t outputs_bytes(Fusion *s, int g, int a, int b, int *count) {
    int64_t n = 0;
    const Group *k = &s->groups.at[g];
    for (int i = 0; i < k->ops.n; i++)
        for (int j = 0; j < k->ops.at[i]->n_out; j++)
            if (readers(s, k->ops.at[i]->out[j], a, b, 0).outside) {
                n += hd_type_bytes(k->ops.at[i]->out[j]->type);
                ++*count;
            }
    return n;
}

// Bytes that a merge saves: operands read once instead of twice, values that nothing else reads.
static int64_t bytes_saved(Fusion *s, int a, int b, const Values *in_a, const Values *in_b) {
    int64_t n = 0;
    for (int i = 0; i < in_b->n; i++) {
        const Value *v = in_b->at[i];
        bool shared = v->def && s->group[v->def->id] == a;
        for (int j = 0; j < in_a->n && !shared; j++) shared = in_a->at[j] == v;
        if (shared) n += hd_type_bytes(v->type);
    }
    int count = 0;
    return n + outputs_bytes(s, a, a, -1, &count) - outputs_bytes(s, a, a, b, &count);
}

// Late: group a (at p) moves to q. `more`: new values that live across the ops in between.
static bool late(Fusion *s, int a, int b, const Values *in_a, int64_t slack, bool work) {
    double q = s->groups.at[b].pos;
    int64_t more = 0;
    const Group *k = &s->groups.at[a];
    for (int i = 0; i < k->ops.n; i++)
        for (int j = 0; j < k->ops.at[i]->n_out; j++) {
            const Value *v = k->ops.at[i]->out[j];
            if (readers(s, v, a, b, q).before) return false;
            if (readers(s, v, a, -1, q).outside) more -= hd_type_bytes(v->type);
        }
    for (int i = 0; i < in_a->n; i++)
        if (!hd_fuse_is_source(in_a->at[i]) && !readers(s, in_a->at[i], a, -1, q).after)
            more += hd_type_bytes(in_a->at[i]->type);
    return !work || more <= slack;
}

// An op between p and q that makes an operand of group b: it can be moved up when all its operands exist before p.
static bool hoist(Fusion *s, Op *o, double p, Merge *m) {
    for (int i = 0; i < m->n_hoisted; i++)
        if (m->hoisted[i] == o) return true;
    if (s->group[o->id] >= 0 || !hd_op_is(o, TRAIT_PURE) || !hd_op_is(o, TRAIT_MATMUL) ||
        m->n_hoisted == MAX_HOISTED)
        return false;
    if (s->bounds[o->id].after >= p) return false;
    for (int i = 0; i < o->n_in; i++) {
        Value *v = hd_unaliased(o->in[i]);
        if (!hd_fuse_is_source(v) && pos_of(s, v->def) >= p) return false;
    }
    m->hoisted[m->n_hoisted++] = o;
    return true;
}

// Early: group b (at q) moves to p.
static bool early(Fusion *s, int a, int b, const Values *in_b, int64_t slack, bool work, Merge *m) {
    double p = s->groups.at[a].pos, q = s->groups.at[b].pos;
    int count = 0;
    int64_t more = outputs_bytes(s, b, b, -1, &count);
    m->n_hoisted = 0;
    for (int i = 0; i < in_b->n; i++) {
        Value *v = in_b->at[i];
        if (hd_fuse_is_source(v)) continue;
        bool mine = s->group[v->def->id] == a;
        bool moved = !mine && pos_of(s, v->def) > p;
        if (moved && !hoist(s, v->def, p, m)) return false;
        bool stays = readers(s, v, b, mine ? a : -1, q).after;
        if (moved && stays) more += hd_type_bytes(v->type);
        if (!moved && !stays) more -= hd_type_bytes(v->type);
    }
    return !work || more <= slack;
}

// An op that is recomputed for the backward pass must not join the forward pass: its value would be kept.
static bool mixes_passes(const Group *a, const Group *b) {
    bool again = false, forward = false;
    for (int k = 0; k < 2; k++) {
        const Group *g = k ? b : a;
        for (int i = 0; i < g->ops.n; i++) {
            again |= hd_has(&g->ops.at[i]->attrs, A_RECOMPUTED);
            forward |= !hd_has(&g->ops.at[i]->attrs, A_BWD);
        }
    }
    return again && forward;
}

// a comes before b.
static Merge plan_merge(Fusion *s, int a, int b) {
    Merge m = {0};
    Group *ga = &s->groups.at[a], *gb = &s->groups.at[b];
    if (ga->ops.n + gb->ops.n > MAX_OPS || mixes_passes(ga, gb)) return m;
    RowSpace space = ga->space;
    if (!all_fit(gb, space)) {
        space = gb->space;
        if (!all_fit(ga, space)) return m;
    }
    if (!wiring_allows(s, gb, a, space) || !wiring_allows(s, ga, b, space)) return m;
    ArenaMark mark = hd_arena_mark(s->cx->scratch);
    Values in_a = {0}, in_b = {0}, all = {0};
    inputs_of(s, a, a, &in_a);
    inputs_of(s, b, b, &in_b);
    inputs_of(s, a, b, &all);
    inputs_of(s, b, a, &all);
    int outputs = 0;
    outputs_bytes(s, a, a, b, &outputs);
    outputs_bytes(s, b, a, b, &outputs);
    int64_t saved = bytes_saved(s, a, b, &in_a, &in_b);
    if (saved > 0 && outputs <= HD_MAX_OUT && inputs_allow(s, &all, a, b, space)) {
        bool work = work_between(s, ga->pos, gb->pos);
        if (ga->pos > gb->bounds.after && early(s, a, b, &in_b, saved / SLACK, work, &m)) {
            m.pos = ga->pos;
            m.saved = saved;
        } else if (gb->pos < ga->bounds.before && late(s, a, b, &in_a, saved / SLACK, work)) {
            m.pos = gb->pos;
            m.n_hoisted = 0;
            m.saved = saved;
        }
    }
    hd_arena_rewind(s->cx->scratch, mark);
    m.into = a;
    return m;
}

static void apply_merge(Fusion *s, const Merge *m, int a, int b) {
    Group *ga = &s->groups.at[a], *gb = &s->groups.at[b];
    RowSpace space = all_fit(gb, ga->space) ? ga->space : gb->space;
    VEC(Op *) ops = {0};
    for (int i = 0, j = 0; i < ga->ops.n || j < gb->ops.n;) {
        bool first = j == gb->ops.n || (i < ga->ops.n && ga->ops.at[i]->id < gb->ops.at[j]->id);
        hd_push(s->cx->scratch, &ops, first ? ga->ops.at[i++] : gb->ops.at[j++]);
    }
    s->busy[(int)ga->pos] = s->busy[(int)gb->pos] = false;
    ga->ops.n = ga->ops.cap = 0;
    for (int i = 0; i < ops.n; i++) {
        hd_push(s->cx->scratch, &ga->ops, ops.at[i]);
        s->group[ops.at[i]->id] = a;
    }
    ga->space = space;
    ga->pos = m->pos;
    if (gb->bounds.after > ga->bounds.after) ga->bounds.after = gb->bounds.after;
    if (gb->bounds.before < ga->bounds.before) ga->bounds.before = gb->bounds.before;
    gb->gone = true;
    s->busy[(int)ga->pos] = true;
    for (int i = 0; i < m->n_hoisted; i++) {
        s->busy[m->hoisted[i]->id] = false;
        s->pos[m->hoisted[i]->id] = m->pos - 0.5; // equal positions: in program order
    }
}

static void consider(Fusion *s, const Op *o, const Op *other, Merge *best, int *a, int *b) {
    int g = s->group[o->id], h = other ? s->group[other->id] : -1;
    if (h < 0 || h == g || h == *a || h == *b) return;
    bool first = s->groups.at[h].pos < s->groups.at[g].pos;
    Merge m = plan_merge(s, first ? h : g, first ? g : h);
    if (m.saved <= best->saved) return;
    *best = m;
    *a = first ? h : g;
    *b = first ? g : h;
}

// Earlier readers of a value, through reshapes.
static void consider_readers(Fusion *s, const Op *o, const Value *v, Merge *best, int *a, int *b) {
    for (int i = 0; i < s->uses.count[v->id]; i++) {
        const Op *u = s->uses.users[v->id][i];
        if (hd_op_is(u, TRAIT_ALIAS)) consider_readers(s, o, u->out[0], best, a, b);
        else if (u != o && u->id < o->id) consider(s, o, u, best, a, b);
    }
}

static void join(Fusion *s, const Op *o, bool horizontal) {
    for (;;) {
        Merge best = {0};
        int a = -1, b = -1;
        for (int i = 0; i < o->n_in; i++) {
            Value *v = hd_unaliased(o->in[i]);
            if (v->def && hd_op_is(v->def, TRAIT_CONSTANT)) continue;
            consider(s, o, v->def, &best, &a, &b);
            RowClass c = hd_row_class(o->in[i]->type, s->groups.at[s->group[o->id]].space);
            if (horizontal && (c == ROW_FULL || c == ROW_PERIODIC)) consider_readers(s, o, v, &best, &a, &b);
        }
        if (!best.saved) return;
        apply_merge(s, &best, a, b);
    }
}

// Whether values that live across an op take room while something computes.
static bool computes(const Op *o) { return !hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE | TRAIT_BESIDE); }

// Ops that no kernel of arithmetic takes: a slice or a concat by itself.
static bool only_moves(const Group *g) {
    return !g->gone && g->ops.n == 1 && hd_in_parts(g->ops.at[0]);
}

static void leave_group(Fusion *s, int g) {
    const Op *o = s->groups.at[g].ops.at[0];
    s->pos[o->id] = s->groups.at[g].pos;
    s->group[o->id] = -1;
    s->groups.at[g].gone = true;
}

void hd_fuse_group(Fusion *s) {
    Arena *a = s->cx->scratch;
    int n = s->f->n_ops;
    s->uses = hd_uses(s->f, a);
    s->group = HD_NEWN(a, int, n + 1);
    s->pos = HD_NEWN(a, double, n + 1);
    s->busy = HD_NEWN(a, bool, n + 2);
    s->bounds = hd_fuse_bounds(s->f, a);
    const bool *epilogue = hd_fuse_epilogue_biases(s->f, &s->uses, a);
    for (Op *o = s->f->first; o; o = o->next) {
        s->pos[o->id] = o->id;
        s->group[o->id] = -1;
        s->busy[o->id] = computes(o);
        Group g = {.pos = o->id, .bounds = s->bounds[o->id]};
        int product = hd_gemm_bias(o, &s->uses);
        if (!hd_row_natural(o, &g.space) || (product >= 0 && epilogue[o->in[1 - product]->id])) continue;
        hd_push(a, &g.ops, o);
        s->group[o->id] = s->groups.n;
        hd_push(a, &s->groups, g);
    }
    for (int sweep = 0; sweep < 3; sweep++)
        for (const Op *o = s->f->first; o; o = o->next)
            if (s->group[o->id] >= 0) join(s, o, sweep > 0);
    for (int g = 0; g < s->groups.n; g++)
        if (only_moves(&s->groups.at[g])) leave_group(s, g);
}
