// plan-memory: an address for every buffer, value and workspace of a plan; the arena of a space is their sum. Each
// space is packed on its own:
//   [0, persistent)  buffers that persist but are not lent, in the order declared;
//   from there on    one region that all functions use in turn, since they run one after another: first the arguments,
//                    at the same place in every function (the runtime feeds one address), then the function's own
//                    storages, packed (pack.h): results, workspaces, and its transient buffers. A transient buffer
//                    belongs to one function.
// A buffer that a function's tail uses (analysis/seam.h) has its bytes until the function after has waited for the
// tail. Such buffers are stacked where the region's packed part starts, in the order in which their lives begin: in
// their own function until it ends, and as one block at the start of every function that may follow. A tail has the
// places of the tail before it, so no buffer of it may begin before that one has been waited for.
// A buffer that is lent has one place in all functions: the lowest gap that the function which needs most leaves for it
// when all others have places. Functions that fill it again use these bytes until then, but not with guards.
//
// Before packing, storages are shared where that saves bytes or copies (lifetimes.h). Every storage starts at a
// multiple of 256 bytes but those inside buffers.
//
// With the option `guard` every storage also owns the `guard` bytes before it and, after it, those up to the next
// multiple of 256 and `guard` more. No op may write there: verify-plan proves that nothing else is placed in these
// bytes, and a program's --check looks whether they were written (runtime/base/guard.h). Whatever is said of the bytes
// of a storage here holds of them as well. Views, results in place and results in buffers are inside another storage.
//
// Lifetimes are intervals of an order (analysis/times.h), extended until happens-before allows reuse (hd_storage_end):
// every access of a storage has ended before any op, at the interval's end or later, that starts another storage. Of
// two storages with disjoint intervals, the later one starts with such an op and all its other accesses follow that op,
// so the two may share bytes in every order that the streams allow. The lower bound is the most bytes in these
// intervals at one place of that order; no packing of them is smaller. Happens-before alone could allow less in one
// case: two streams run so far apart that the order shows lives side by side that never are.
//   %1 = gemm %x, %w : bf16[8,64]                      ->  [compute] %1 = gemm %x, %w : bf16[8,64] @0x2400
//   %2 = launch %1 {kernel = @k} : f32[64]             ->  [compute] launch %1 {kernel = @k} : f32[64]
//   store %2 {into = @root.grad, offset = 0}                 {offset = 0, into = @root.grad}
#include "passes/pass.h"
#include "passes/analysis/alignment.h"
#include "passes/analysis/seam.h"
#include "passes/analysis/lifetimes.h"
#include "passes/memory/lent.h"
#include "passes/memory/limits.h"
#include "passes/pack/pack.h"
#include "passes/settings.h"
#include "ir/base/ints.h"

typedef struct {
    const char *name;
    const Type *type;
    int64_t offset;
} Slot; // an argument, by name, in every function that has it

typedef struct {
    Module *m;
    Arena *a;
    Room room[N_SPACES];
    VEC(Slot) slots;
    VEC(Symbol *) lent; // buffers; in `lent_at`, from `stack` on, when one function is packed
    const int64_t *lent_at;
    const Func **user;  // by symbol id: the function that uses a transient buffer
    Seams seams;
    Joined *joined;     // by seam
    int64_t stack;      // where carried buffers are stacked
    int64_t guard;      // bytes before and after every storage
} Planner;

// The bytes that a storage of this size takes of its arena, and where in that it begins.
static int64_t room_for(const Planner *p, int64_t bytes) {
    return p->guard && bytes > 0 ? hd_align(bytes) + 2 * p->guard : bytes;
}
static int64_t inset(const Planner *p, int64_t bytes) { return bytes > 0 ? p->guard : 0; }

static void place_buffers(Planner *p) {
    for (Symbol *s = p->m->symbols; s; s = s->next) {
        if (hd_is_lent(s)) hd_push(p->a, &p->lent, s);
        if (!hd_is_kept(s)) continue;
        Room *r = &p->room[hd_space(&s->attrs)];
        const int64_t bytes = hd_type_bytes(s->type);
        s->place =
            (Place){.placed = true, .space = hd_space(&s->attrs), .offset = r->persistent + inset(p, bytes)};
        r->persistent += hd_align(room_for(p, bytes));
    }
    for (int i = 0; i < N_SPACES; i++) p->room[i].top = p->room[i].bound = p->room[i].persistent;
}

// Equal names and types share a slot; slots are laid out in the order in which they are first seen.
static int64_t argument_slot(Planner *p, const Value *v) {
    int64_t at = p->room[SPACE_DEVICE].persistent;
    for (int i = 0; i < p->slots.n; i++) {
        const Slot *s = &p->slots.at[i];
        if (s->type == v->type && v->name && strcmp(s->name, v->name) == 0) return s->offset;
        at = s->offset + hd_align(hd_type_bytes(s->type)) + inset(p, hd_type_bytes(s->type));
    }
    Slot s = {v->name ? v->name : "", v->type, at + inset(p, hd_type_bytes(v->type))};
    hd_push(p->a, &p->slots, s);
    return s.offset;
}

// The first byte after the arguments of a function.
static int64_t place_arguments(Planner *p, Func *f) {
    int64_t top = p->room[SPACE_DEVICE].persistent;
    for (int i = 0; i < f->n_args; i++) {
        Value *v = f->args[i];
        v->place = (Place){.placed = true, .offset = argument_slot(p, v)};
        int64_t end = v->place.offset + hd_align(hd_type_bytes(v->type)) + inset(p, hd_type_bytes(v->type));
        if (end > top) top = end;
    }
    return top;
}

// Two arguments of one function with one name would share a slot; the parser rejects them.
static void check_names(const Func *f) {
    for (int i = 0; i < f->n_args; i++)
        for (int k = 0; k < i; k++)
            if (f->args[i]->name && f->args[k]->name && strcmp(f->args[i]->name, f->args[k]->name) == 0)
                HD_BUG("@%s has two arguments %%%s", f->name, f->args[i]->name);
}

typedef struct {
    Interval *interval;
    int64_t *offset;
    Storage **storage; // the block that earlier functions still hold has neither a storage nor a workspace
    const WorkArea **workspace;
    int *lent;         // by lent one, which come first: which it is
    int n, n_lent, fixed;
    int64_t held, until; // bytes of that block; the first op that may have them
} Region;

static void add_storage(const Planner *p, Region *r, const Lifetimes *l, Storage *s) {
    int64_t end = s->carried ? l->f->n_ops : hd_storage_end(l, s);
    r->interval[r->n] = (Interval){s->from, end, room_for(p, s->bytes), HD_ALIGN};
    r->storage[r->n++] = s;
}

// --- what is carried from one function to the next

static void mark_carried(const Planner *p, Lifetimes *l) {
    for (int i = 0; i < p->seams.n; i++) {
        if (p->seams.at[i].before != l->f) continue;
        Carried c = hd_carried(&p->joined[i], p->a);
        for (int k = 0; k < c.n; k++) hd_storage_of_buffer(l, c.at[k])->carried = true;
    }
}

// Whether every use of a storage starts after the tail has ended all that it does with the buffers that it took along.
static bool comes_after(const Storage *s, const Lifetimes *both, const Carried *c) {
    for (int i = 0; i < c->n; i++)
        for (const Touch *t = hd_storage_left(both, c->at[i])->touches; t; t = t->next)
            for (const Touch *u = s->touches; u; u = u->next)
                if (!hd_before(&both->clocks, t->op, u->op + both->tail)) return false;
    return true;
}

// Adds to a region the bytes that the tail of a function before holds. False after reporting that a buffer of this
// function's tail, which has these bytes too, does not wait for that.
static bool add_tail(const Planner *p, Region *r, const Lifetimes *l, const Joined *j) {
    Carried c = hd_carried(j, p->a);
    if (!c.n) return true;
    Lifetimes both = hd_lifetimes(j->f, j->tail, p->a);
    int64_t bytes = 0;
    for (int i = 0; i < c.n; i++) {
        int end = hd_storage_end(&both, hd_storage_left(&both, c.at[i])) - j->tail;
        if (end == l->f->n_ops) end--; // the return needs no bytes
        if (end > r->until) r->until = end;
        bytes += hd_align(room_for(p, hd_type_bytes(c.at[i]->type)));
    }
    if (bytes > r->held) r->held = bytes;
    for (int i = l->f->n_values; i < l->n_storages; i++) {
        const Storage *s = &l->storage[i];
        if (!s->carried || comes_after(s, &both, &c)) continue;
        hd_error(p->m->cx, s->transient->span,
                 "buffer @%s is still used when @%s has returned, and begins before @%s has waited for what the "
                 "function before it left running: their bytes are the same",
                 s->transient->name, l->f->name, l->f->name);
        return false;
    }
    return true;
}

// The storages that the functions before may hold are one block at the start. Where some op beside the wait may still
// come too early for these bytes, the block lasts until after the begin of what this function carries, and has the
// bytes of both.
static bool add_left(const Planner *p, Region *r, const Lifetimes *l) {
    int64_t carried = 0, from = l->f->n_ops;
    for (int i = 0; i < p->seams.n; i++)
        if (p->seams.at[i].after == l->f && !add_tail(p, r, l, &p->joined[i])) return false;
    for (int i = l->f->n_values; i < l->n_storages; i++) {
        const Storage *s = &l->storage[i];
        if (!s->carried) continue;
        carried += hd_align(room_for(p, s->bytes));
        if (s->from < from) from = s->from;
    }
    int64_t block = from < r->until && carried > r->held ? carried : r->held;
    if (r->until > 0 && block > 0) r->interval[r->n++] = (Interval){0, r->until, block, HD_ALIGN};
    return true;
}

// Every one of them rests on one that lives longer.
static void add_carried(const Planner *p, Region *r, const Lifetimes *l) {
    int first = r->n;
    for (int i = l->f->n_values; i < l->n_storages; i++) {
        Storage *s = &l->storage[i];
        if (!s->carried) continue;
        add_storage(p, r, l, s);
        if (s->from < r->until) r->interval[r->n - 1].lower = r->until;
        for (int k = r->n - 1; k > first && r->storage[k - 1]->from > s->from; k--) {
            Interval v = r->interval[k];
            r->interval[k] = r->interval[k - 1];
            r->interval[k - 1] = v;
            r->storage[k] = r->storage[k - 1];
            r->storage[k - 1] = s;
        }
    }
}

// Those that are lent come first.
static void add_lent(const Planner *p, Region *r, const Lifetimes *l) {
    for (int i = 0; i < p->lent.n; i++) {
        const int64_t bytes = room_for(p, hd_type_bytes(p->lent.at[i]->type));
        Storage *lives[2];
        const int n = p->guard ? 1 : hd_lives_of_lent(l, p->lent.at[i], lives);
        for (int k = 0; k < n; k++) {
            r->lent[r->n_lent++] = i;
            if (p->guard) r->interval[r->n++] = (Interval){0, l->f->n_ops, bytes, HD_ALIGN};
            else add_storage(p, r, l, lives[k]);
        }
    }
}

// Where the packed part starts in functions of a step whose seams overlap: after the arguments of each. And in all
// functions, where buffers are lent.
static bool is_stacked(const Planner *p, const Func *f) {
    for (int i = 0; i < p->seams.n; i++)
        if (p->seams.at[i].before == f || p->seams.at[i].after == f) return true;
    return p->lent.n > 0;
}

static int64_t stack_base(Planner *p) {
    int64_t base = 0;
    for (Func *f = p->m->funcs; f; f = f->next) {
        const int64_t top = !f->is_kernel && is_stacked(p, f) ? place_arguments(p, f) : 0;
        if (top > base) base = top;
    }
    return base;
}

// --- intervals

static bool find_intervals(const Planner *p, const Lifetimes *l, Space space, Region *found) {
    int most = l->n_storages + l->f->n_ops + p->lent.n + 1;
    Arena *a = p->a;
    Region r = {.interval = HD_NEWN(a, Interval, most), .offset = HD_NEWN(a, int64_t, most),
                .storage = HD_NEWN(a, Storage *, most), .workspace = HD_NEWN(a, const WorkArea *, most),
                .lent = HD_NEWN(a, int, 2 * p->lent.n + 1)};
    if (space == SPACE_DEVICE) add_lent(p, &r, l);
    if (space == SPACE_DEVICE && !add_left(p, &r, l)) return false;
    if (space == SPACE_DEVICE) add_carried(p, &r, l);
    r.fixed = r.n;
    const WorkAreas areas = hd_work_areas(l, a);
    int area = 0;
    for (int k = 0; k < l->f->n_ops; k++) {
        const Op *o = l->ops[k];
        for (int i = 0; i < o->n_out; i++) {
            Storage *s = l->homes[o->out[i]->id].root == o->out[i] ? &l->storage[o->out[i]->id] : NULL;
            if (s && s->leader == o->out[i]->id && !s->buffer && s->bytes > 0 && s->space == space)
                add_storage(p, &r, l, s);
        }
        for (; space == SPACE_DEVICE && area < areas.n && areas.at[area].from == k; area++) {
            const WorkArea *w = &areas.at[area];
            r.interval[r.n] = (Interval){w->from, w->end, room_for(p, w->bytes), HD_ALIGN};
            r.workspace[r.n++] = w;
        }
    }
    for (int i = l->f->n_values; i < l->n_storages; i++)
        if (l->storage[i].transient && l->storage[i].touches && l->storage[i].space == space &&
            !l->storage[i].carried && !hd_is_lent(l->storage[i].transient))
            add_storage(p, &r, l, &l->storage[i]);
    *found = r;
    return true;
}

static void place_values(Planner *p, const Lifetimes *l, const int64_t *base) {
    for (Symbol *s = p->m->symbols; s; s = s->next)
        if (p->user[s->id] == l->f) s->place = (Place){true, hd_space(&s->attrs), hd_storage_of_buffer(l, s)->at};
    for (Op *o = l->f->first; o; o = o->next) {
        for (int i = 0; i < o->n_out; i++) {
            Value *v = o->out[i];
            Home h = l->homes[v->id];
            const Storage *s = hd_storage_of(l, v);
            v->place = h.buffer ? h.buffer->place : h.root->place;
            v->place.offset += h.at;
            if (!s) continue;
            v->place = (Place){true, s->space, s->buffer ? s->buffer->place.offset + s->at : s->at};
            if (s->bytes == 0 && !s->buffer) v->place.offset = base[s->space];
        }
    }
}

// The op during which the most bytes are live, and how many.
static int64_t find_peak(const Lifetimes *l, const Region *r, Arena *a, const Op **at) {
    int n = l->f->n_ops;
    int64_t *change = HD_NEWN(a, int64_t, n + 2), live = 0, most = -1;
    for (int i = 0; i < r->n; i++) {
        change[r->interval[i].lower] += hd_align(r->interval[i].size);
        change[r->interval[i].upper] -= hd_align(r->interval[i].size);
    }
    for (int i = 0; i < n; i++) {
        live += change[i];
        if (live > most) most = live, *at = l->ops[i];
    }
    return most < 0 ? 0 : most;
}

// Transient buffers of the function become its own. False after reporting one that another function also uses.
static bool own_buffers(Planner *p, const Lifetimes *l) {
    for (int i = l->f->n_values; i < l->n_storages; i++) {
        const Symbol *s = l->storage[i].transient;
        if (!s || !l->storage[i].touches || hd_is_lent(s)) continue;
        if (p->user[s->id])
            return hd_error(p->m->cx, s->span, "buffer @%s is transient, but both @%s and @%s use it", s->name,
                            p->user[s->id]->name, l->f->name);
        p->user[s->id] = l->f;
    }
    return true;
}

// A transient buffer that is used in no function, or gets no bytes there, has an address all the same.
static void place_unused(Planner *p) {
    for (Symbol *s = p->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER || !s->type || p->user[s->id] || !hd_has(&s->attrs, A_TRANSIENT)) continue;
        Room *r = &p->room[hd_space(&s->attrs)];
        const int64_t bytes = hd_type_bytes(s->type);
        s->place =
            (Place){.placed = true, .space = hd_space(&s->attrs), .offset = r->persistent + inset(p, bytes)};
        int64_t end = r->persistent + hd_align(room_for(p, bytes));
        if (end > r->top) r->top = end;
        if (end > r->bound) r->bound = end;
    }
}

typedef struct {
    Func *f;
    Lifetimes l;
    int64_t base[N_SPACES], live[N_SPACES];
    Region r[N_SPACES];
    bool done[N_SPACES];
} Work; // the bytes that a function needs in the region of each space

static bool prepare(Planner *p, Func *f, Work *w, PassCx *cx) {
    *w = (Work){.f = f, .l = hd_lifetimes(f, 0, p->a)};
    if (!own_buffers(p, &w->l)) return false;
    mark_carried(p, &w->l);
    w->l.busy = hd_busy_buffers(f, &p->seams, p->a);
    hd_share_storage(&w->l, p->a);
    for (int i = 0; i < N_SPACES; i++) {
        Room *room = &p->room[i];
        w->base[i] = i == SPACE_DEVICE ? place_arguments(p, f) : room->persistent;
        if (i == SPACE_DEVICE && is_stacked(p, f)) w->base[i] = p->stack;
        if (!find_intervals(p, &w->l, (Space)i, &w->r[i])) return false;
        const Op *at = f->first;
        w->live[i] = w->base[i] + find_peak(&w->l, &w->r[i], p->a, &at);
        if (w->live[i] <= room->bound && room->peak) continue;
        room->bound = w->live[i] > room->bound ? w->live[i] : room->bound;
        room->peak = f;
        room->peak_op = at;
    }
    hd_count(cx, "stores made in place", w->l.stored);
    hd_count(cx, "launches that overwrite an operand", w->l.overwritten);
    return true;
}

// By stages for a trial, and where memory is limited. A plan that was chosen for the limit is packed until it fits, so
// that it takes as many bytes as its trial did. One that is refused, as its trial was, is packed no more than that.
static PackRoom pack_room(const Planner *p, Space space, int64_t base, const PassCx *cx) {
    const Attr *limit = hd_attr(hd_settings(p->m, "target"), A_DEVICE_MEMORY_BYTES);
    PackRoom r = {.capacity = p->room[space].top > base ? p->room[space].top - base : 0, .base = base,
                  .effort = cx->trial ? (PackEffort)cx->trial : limit ? PACK_BY_STAGES : PACK_AT_ONCE};
    const bool chosen = hd_has(hd_settings(p->m, "schedule"), A_OFFLOAD_VALUES);
    if (!cx->trial && hd_has(hd_settings(p->m, "target"), A_LEAST_BYTES)) r.effort = PACK_DEEP;
    if (!cx->trial && limit && chosen && space == SPACE_DEVICE) r.enough = limit->i - base;
    return r;
}

// What is lent has places already, or gets them when all others have theirs.
static void pack_region(Planner *p, const Region *r, PackRoom room, PassCx *cx) {
    const int skip = p->lent_at ? 0 : r->n_lent;
    int64_t *at = HD_NEWN(p->a, int64_t, r->fixed + 1);
    for (int i = 0; i < r->n_lent && p->lent_at; i++) at[i] = p->lent_at[r->lent[i]];
    room.at = at;
    hd_pack_into(r->n - skip, r->fixed - skip, r->interval + skip, r->offset + skip, &room);
    hd_count(cx, "steps of packing", room.steps);
    if (!skip) return;
    p->lent_at = hd_place_lent(r->n, r->n_lent, r->lent, r->interval, r->offset, p->a);
    for (int i = 0; i < p->lent.n; i++)
        p->lent.at[i]->place = (Place){.placed = true, .offset = p->stack + p->lent_at[i] +
                                                                 inset(p, hd_type_bytes(p->lent.at[i]->type))};
}

// The function that needs most goes first: below its top the others gain nothing, and packing them is quick.
static void pack_space(Planner *p, Work *work, int n, Space space, PassCx *cx) {
    Room *room = &p->room[space];
    for (int k = 0; k < n; k++) {
        Work *w = NULL;
        for (int i = 0; i < n; i++)
            if (!work[i].done[space] && (!w || work[i].live[space] > w->live[space])) w = &work[i];
        w->done[space] = true;
        const Region *r = &w->r[space];
        int64_t base = w->base[space];
        pack_region(p, r, pack_room(p, space, base, cx), cx);
        int64_t top = base + hd_pack_height(r->n, r->interval, r->offset);
        if (top > room->top) room->top = top;
        for (int i = 0; i < r->n; i++) {
            if (r->storage[i])
                r->storage[i]->at = base + r->offset[i] + inset(p, r->storage[i]->bytes);
            for (int j = 0; r->workspace[i] && j < r->workspace[i]->by.n; j++)
                hd_set_int(p->m->cx, &r->workspace[i]->by.at[j]->attrs, A_WORKSPACE_AT,
                           base + r->offset[i] + p->guard);
        }
    }
}

// The arena of a space, under the space's name. false after reporting that something else has the name.
static bool declare_arena(const Planner *p, Space space) {
    Module *m = p->m;
    const Room *r = &p->room[space];
    const char *name = hd_space_text(space);
    Symbol *s = hd_space_arena(m, space);
    if (!s && space != SPACE_DEVICE && !r->top) return true;
    const Symbol *taken = s ? NULL : hd_symbol_find(m, name);
    if (taken)
        return hd_error(m->cx, taken->span, "@%s names the %s's memory in every plan; this %s needs another name", name,
                        name, hd_symbol_keyword(taken->kind));
    if (!s) s = hd_symbol_add(m, SYM_ARENA, name, NULL);
    if (space != SPACE_DEVICE) hd_set_word(m->cx, &s->attrs, A_SPACE, name);
    hd_set_int(m->cx, &s->attrs, A_BYTES, r->top);
    hd_set_int(m->cx, &s->attrs, A_LOWER_BOUND_BYTES, r->bound);
    hd_set_int(m->cx, &s->attrs, A_PERSISTENT_BYTES, r->persistent);
    if (r->peak) hd_set_word(m->cx, &s->attrs, A_PEAK_AT, r->peak->name);
    hd_unset(&s->attrs, A_GUARD);
    if (p->guard) hd_set_int(m->cx, &s->attrs, A_GUARD, p->guard);
    return true;
}

// The bytes that every function needs; NULL after an error.
static Work *prepare_all(Planner *p, PassCx *cx, int *n) {
    Module *m = p->m;
    hd_lend_less(m, p->a);
    place_buffers(p);
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) check_names(f);
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) hd_renumber(f), place_arguments(p, f);
    int n_functions = 0;
    for (const Func *f = m->funcs; f; f = f->next) n_functions += !f->is_kernel;
    Work *work = HD_NEWN(p->a, Work, n_functions + 1);
    p->seams = hd_seams(m, p->a);
    p->joined = HD_NEWN(p->a, Joined, p->seams.n + 1);
    for (int i = 0; i < p->seams.n; i++) p->joined[i] = hd_join(&p->seams.at[i], p->a);
    p->stack = stack_base(p);
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel && !prepare(p, f, &work[(*n)++], cx)) return NULL;
    return work;
}

static Planner planner(Module *m, PassCx *cx) {
    return (Planner){.m = m, .a = cx->scratch, .user = HD_NEWN(cx->scratch, const Func *, m->n_symbols + 1)};
}

// Last: ops go.
static void write_straight(Work *work, int n) {
    for (int i = 0; i < n; i++) {
        hd_write_straight(&work[i].l);
        hd_renumber(work[i].f);
    }
}

Change hd_pass_plan_memory(Module *m, PassCx *cx) {
    enum { MOST = 1 << 20 };
    Planner p = planner(m, cx);
    int n = 0;
    p.guard = hd_option_int(cx, "guard", 0);
    if (p.guard < 0 || p.guard > MOST || p.guard % HD_ALIGN) {
        hd_error(m->cx, (Span){0}, "guard = %lld: the bytes that guard a storage are a multiple of %d up to %d, or 0",
                 ll(p.guard), HD_ALIGN, MOST);
        return FAILED;
    }
    Work *work = prepare_all(&p, cx, &n);
    if (!work) return FAILED;
    for (int i = 0; i < N_SPACES; i++) pack_space(&p, work, n, (Space)i, cx);
    for (int i = 0; i < n; i++) place_values(&p, &work[i].l, work[i].base);
    place_unused(&p);
    write_straight(work, n);
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *o = f->is_kernel ? NULL : f->first; o; o = o->next) hd_set_alignment(o);
    for (int i = 0; i < N_SPACES; i++)
        if (!declare_arena(&p, (Space)i)) return FAILED;
    return hd_memory_fits(m, p.room, p.a) ? CHANGED : FAILED;
}
