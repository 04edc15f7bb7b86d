// The root in pieces. Parameters that no unit owns are divided by where the backward pass makes its gradients, so that
// the head is gathered and reduced where it is used, and the embedding where that is. A run is a series of gradients of
// the root without a gradient of a unit in between. Parameters move together if their first gradients are of one run
// and their last ones, too:
//
//   run 0  head.weight, norm.weight              @root.head: norm.weight, head.weight
//          blocks.1, blocks.0             ->     @blocks.0, @blocks.1
//   run 1  tokens_in.weight                      @root.tokens_in
//
// A piece must be worth a collective of its own: it has at least an eighth of the elements of the smallest unit.
// Smaller ones join a piece that begins before and ends after them, such as a table that is also the head, or else stay
// together as @root. All that is inside such a piece joins it if together it has no more than an eighth of that piece's
// elements. A root of one piece is @root as well.
//
// Pieces decide which rank owns an element, and therefore in which order ranks are added up. So they depend on the
// model, the units and fsdp.root alone: recomputation adds uses of weights, but no gradients.
#include "passes/fsdp/fsdp.h"
#include <string.h>

enum { PARTS = 8 }; // what is smaller than a part of something is small beside it

typedef struct {
    int first, last; // runs of its gradients
    int64_t count;   // elements of its parameters
    Symbol *largest; // parameter
    bool moves;      // as one
} Piece;

typedef struct {
    Fsdp *s;
    const char *root;
    VEC(Symbol *) params; // of the root
    Piece *made;          // of each of them
    PtrMap number;        // of each of them
    VEC(Piece) pieces;
    int64_t least; // elements of a piece that moves
} Root;

static const char *unit_of(const Root *r, const Symbol *p) {
    return hd_intern(r->s->m->cx, hd_word(&p->attrs, A_UNIT, r->root));
}

static void find_params(Root *r) {
    Arena *a = r->s->cx->scratch;
    PtrMap units = {0};
    VEC(int64_t) sizes = {0};
    for (Symbol *p = r->s->m->symbols; p; p = p->next) {
        if (p->kind != SYM_PARAM || hd_has(&p->attrs, A_KERNEL)) continue; // buffers move together
        const char *unit = unit_of(r, p);
        if (unit == r->root) {
            hd_ptr_set(a, &r->number, p, r->params.n);
            hd_push(a, &r->params, p);
            continue;
        }
        if (hd_ptr_get(&units, unit) < 0) {
            hd_ptr_set(a, &units, unit, sizes.n);
            hd_push(a, &sizes, 0);
        }
        sizes.at[hd_ptr_get(&units, unit)] += hd_type_count(p->type);
    }
    for (int i = 0; i < sizes.n; i++) {
        int64_t least = (sizes.at[i] + PARTS - 1) / PARTS;
        if (!i || least < r->least) r->least = least;
    }
    r->made = HD_NEWN(a, Piece, r->params.n + 1);
    for (int i = 0; i < r->params.n; i++)
        r->made[i] = (Piece){.first = -1, .count = hd_type_count(r->params.at[i]->type), .largest = r->params.at[i]};
}

static void find_runs(Root *r, const Func *micro) {
    bool in_root = false;
    int run = -1;
    for (const Op *o = micro->first; o; o = o->next) {
        if (!hd_param_added(o, 0) || hd_has(&hd_op_param(o, 0)->attrs, A_KERNEL)) continue;
        const bool before = in_root;
        in_root = hd_ptr_get(&r->number, hd_op_param(o, 0)) >= 0;
        run += in_root && !before;
        for (int i = 0; in_root && hd_op_param(o, i); i++) {
            const int k = hd_ptr_get(&r->number, hd_op_param(o, i)); // of one module: all of them are of the root
            if (r->made[k].first < 0) r->made[k].first = run;
            r->made[k].last = run;
        }
    }
    for (int k = 0; k < r->params.n; k++) { // no gradient: with the first; one that is frozen is a piece of its own
        const int alone = hd_has(&r->params.at[k]->attrs, A_FROZEN) ? -2 - k : 0;
        if (r->made[k].first < 0) r->made[k].first = r->made[k].last = alone;
    }
}

static bool is_around(const Piece *a, const Piece *b) { return a->first <= b->first && a->last >= b->last; }

// The storages that a piece is around join it where all of that is small beside it.
static void take_in(Root *r, const Piece *p) {
    int64_t inside = -p->count;
    if (!p->moves) return;
    for (int k = 0; k < r->pieces.n; k++)
        if (is_around(p, &r->pieces.at[k])) inside += r->pieces.at[k].count;
    if (inside > p->count / PARTS) return;
    for (int k = 0; k < r->pieces.n; k++)
        if (&r->pieces.at[k] != p && is_around(p, &r->pieces.at[k])) r->pieces.at[k].moves = false;
}

static void find_pieces(Root *r) {
    for (int i = 0; i < r->params.n; i++) {
        const Piece *p = &r->made[i];
        int k = 0;
        while (k < r->pieces.n && (r->pieces.at[k].first != p->first || r->pieces.at[k].last != p->last)) k++;
        if (k == r->pieces.n) {
            Piece fresh = {.first = p->first, .last = p->last, .largest = p->largest};
            hd_push(r->s->cx->scratch, &r->pieces, fresh);
        }
        Piece *piece = &r->pieces.at[k];
        piece->count += p->count;
        if (p->count > hd_type_count(piece->largest->type)) piece->largest = p->largest;
    }
    for (int k = 0; k < r->pieces.n; k++) r->pieces.at[k].moves = r->pieces.at[k].count >= r->least;
    for (int k = 0; k < r->pieces.n; k++) take_in(r, &r->pieces.at[k]);
}

// The piece that a parameter moves with; NULL: with the others that are too small.
static const Piece *piece_of(const Root *r, const Piece *p) {
    const Piece *around = NULL;
    for (int k = 0; k < r->pieces.n; k++) {
        const Piece *piece = &r->pieces.at[k];
        if (!piece->moves) continue;
        if (piece->first == p->first && piece->last == p->last) return piece;
        if (!around && is_around(piece, p)) around = piece;
    }
    return around;
}

// @root.head for head.weight: the module that has the largest of its parameters, or where two pieces would have that
// name, the parameter.
static const char *name_of(const Root *r, const Piece *p) {
    const char *largest = p->largest->name, *dot = strrchr(largest, '.');
    size_t n = dot ? (size_t)(dot - largest) : strlen(largest);
    for (int k = 0; k < r->pieces.n; k++) {
        const Piece *other = &r->pieces.at[k];
        const char *name = other->largest->name, *end = strrchr(name, '.');
        if (other != p && other->moves && end && (size_t)(end - name) == n && !strncmp(name, largest, n))
            n = strlen(largest);
    }
    return hd_internf(r->s->m->cx, "%s.%.*s", r->root, (int)n, largest);
}

// The frontend warns of other reasons.
static void warn_whole(const Fsdp *s) {
    if (hd_has(s->schedule, A_UNITS) && s->strategy != FSDP_NONE && s->shards > 1)
        hd_warning(s->m->cx, hd_symbol_find(s->m, "schedule")->span,
                   "schedule.fsdp.root = whole changes nothing: the root of this program is one piece in any case");
}

void hd_fsdp_divide_root(Fsdp *s, const Func *micro) {
    Root r = {.s = s, .root = hd_intern(s->m->cx, "root")};
    const bool split = !strcmp(hd_word(s->schedule, A_ROOT, "split"), "split");
    if (!s->several) return;
    find_params(&r);
    find_runs(&r, micro);
    find_pieces(&r);
    const Piece **with = HD_NEWN(s->cx->scratch, const Piece *, r.params.n + 1);
    bool whole = true;
    for (int i = 0; i < r.params.n; i++) {
        with[i] = piece_of(&r, &r.made[i]);
        whole &= with[i] == with[0];
    }
    if (!split && whole) warn_whole(s);
    for (int i = 0; i < r.params.n && split && !whole; i++)
        if (with[i]) hd_set_word(s->m->cx, &r.params.at[i]->attrs, A_UNIT, name_of(&r, with[i]));
}
