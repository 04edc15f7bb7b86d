// Storages, sharing and lifetimes of a planned function. See lifetimes.h.
#include "passes/analysis/lifetimes.h"
#include "ir/base/search.h"
#include "passes/analysis/times.h"

static int leader(const Lifetimes *l, int id) {
    while (l->storage[id].leader != id) id = l->storage[id].leader;
    return id;
}

Storage *hd_storage_of(const Lifetimes *l, const Value *v) {
    const Value *root = l->homes[v->id].root;
    if (!root || !root->def) return NULL;
    return &l->storage[leader(l, root->id)];
}

Storage *hd_storage_of_buffer(const Lifetimes *l, const Symbol *b) {
    return l->slots[b->id] ? &l->storage[l->slots[b->id]] : NULL;
}

Storage *hd_storage_left(const Lifetimes *l, const Symbol *b) {
    return l->left[b->id] ? &l->storage[l->left[b->id]] : NULL;
}

// A slot for every buffer that is transient or lent. Returns the number of storages.
static int find_slots(Lifetimes *l, Arena *a) {
    const Module *m = l->f->module;
    int *slots = HD_NEWN(a, int, m->n_symbols + 1);
    int *left = l->tail || l->filled ? HD_NEWN(a, int, m->n_symbols + 1) : slots;
    int n = l->f->n_values;
    if (!n) n = 1; // 0 says that there is none
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER || !s->type || hd_is_kept(s)) continue;
        slots[s->id] = n++;
        if (left != slots) left[s->id] = n++;
    }
    l->slots = slots;
    l->left = left;
    return n;
}

// --- buffers that are lent

// Whether another function of a step may run beside this one: then none of its buffers is free.
static bool has_neighbour(const Func *f, Arena *a) {
    const Seams all = hd_seams(f->module, a);
    for (int i = 0; i < all.n; i++)
        if (!strcmp(all.at[i].before->name, f->name) || !strcmp(all.at[i].after->name, f->name)) return true;
    return false;
}

// By symbol id: the first op after the first that writes all of a buffer that is lent; NULL: no buffer is.
static const int *find_filled(const Lifetimes *l, Arena *a) {
    const Module *m = l->f->module;
    bool any = false;
    for (const Symbol *s = m->symbols; s; s = s->next) any |= hd_is_lent(s);
    if (!any) return NULL;
    int *filled = HD_NEWN(a, int, m->n_symbols + 1);
    if (l->tail || has_neighbour(l->f, a)) return filled;
    Accesses list = {0};
    for (int k = 0; k < l->f->n_ops; k++) {
        hd_accesses(l->ops[k], a, &list);
        for (int i = 0; i < list.n; i++) {
            const Access *x = &list.at[i];
            const bool fills = x->at == AT_BUFFER && x->write && !x->order && hd_is_lent(x->buffer);
            if (!fills || filled[x->buffer->id]) continue;
            if (x->lo == 0 && x->hi == hd_type_bytes(x->buffer->type)) filled[x->buffer->id] = k;
        }
    }
    return filled;
}

int hd_lives_of_lent(const Lifetimes *l, const Symbol *b, Storage *lives[2]) {
    int n = 0;
    Storage *first = l->filled[b->id] ? hd_storage_left(l, b) : NULL, *last = hd_storage_of_buffer(l, b);
    if (first && first->touches) lives[n++] = first;
    if (last->touches) lives[n++] = last;
    return n;
}

static void describe_slot(Lifetimes *l, int slot, const Symbol *b) {
    l->storage[slot].bytes = hd_type_bytes(b->type);
    l->storage[slot].transient = b;
    l->storage[slot].space = hd_space(&b->attrs);
}

// Records that an op accesses a storage. Returns whether the access starts it: no other is known to come before it.
static bool touch(Lifetimes *l, Arena *a, Storage *s, int op) {
    if (!s || (s->touches && s->touches->op == op)) return false;
    bool starts = !s->touches || (l->clocks.n_streams > 1 && !hd_before(&l->clocks, s->from, op));
    Touch *t = HD_NEW(a, Touch);
    *t = (Touch){op, s->touches};
    s->touches = t;
    if (op < s->from) s->from = op;
    if (op > s->to) s->to = op;
    return starts;
}

static void touch_all(Lifetimes *l, Arena *a, const Op *o, const Accesses *list) {
    const int now = l->time[o->id];
    bool starts = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) > 0 || o->n_out > 0;
    for (int i = 0; i < list->n; i++) {
        const Access *x = &list->at[i];
        const Symbol *b = x->order              ? NULL
                          : x->at == AT_VALUE  ? l->homes[x->value->id].buffer
                          : x->at == AT_BUFFER ? x->buffer
                                               : NULL;
        if (x->at == AT_VALUE && !x->order) touch(l, a, hd_storage_of(l, x->value), now);
        const bool early = b && (now < l->tail || (l->filled && now < l->filled[b->id]));
        Storage *s = !b ? NULL : early ? hd_storage_left(l, b) : hd_storage_of_buffer(l, b);
        if (touch(l, a, s, now)) starts = true;
    }
    if (starts) hd_push(a, &l->starts[l->clocks.stream_of[now]], now);
}

// Numbers ops by their places.
static Clocks clocks_by_place(const Func *f, const int *time, Arena *a) {
    const Clocks c = hd_clocks(f, a);
    const int n = c.n_streams;
    int *stream_of = HD_NEWN(a, int, f->n_ops + 1), *place = HD_NEWN(a, int, f->n_ops + 1);
    int *clock = HD_NEWN(a, int, (int64_t)(f->n_ops + 1) * n);
    for (int i = 0; i < f->n_ops; i++) {
        stream_of[time[i]] = c.stream_of[i];
        place[time[i]] = c.place[i];
        memcpy(clock + time[i] * n, c.clock + i * n, sizeof(int) * (size_t)n);
    }
    return (Clocks){n, c.stream, stream_of, place, clock};
}

Lifetimes hd_lifetimes(const Func *f, int tail, Arena *a) {
    Lifetimes l = {.f = f, .homes = hd_homes(f, a), .time = hd_times(f, tail, a), .ops = HD_NEWN(a, Op *, f->n_ops + 1),
                   .tail = tail};
    l.clocks = clocks_by_place(f, l.time, a);
    for (Op *o = f->first; o; o = o->next) l.ops[l.time[o->id]] = o;
    l.filled = find_filled(&l, a);
    l.n_storages = find_slots(&l, a);
    l.storage = HD_NEWN(a, Storage, l.n_storages + 1);
    l.starts = HD_NEWN(a, OpIds, l.clocks.n_streams + 1);
    l.last = HD_NEWN(a, int, l.clocks.n_streams + 1);
    for (int i = 0; i < l.n_storages; i++) l.storage[i] = (Storage){.leader = i, .from = f->n_ops};
    for (const Symbol *s = f->module->symbols; s; s = s->next) {
        if (!l.slots[s->id]) continue;
        describe_slot(&l, l.slots[s->id], s);
        describe_slot(&l, l.left[s->id], s);
    }
    Accesses list = {0};
    for (int k = 0; k < f->n_ops; k++) {
        const Op *o = l.ops[k];
        for (int i = 0; i < o->n_out; i++)
            if (l.homes[o->out[i]->id].root == o->out[i]) {
                l.storage[o->out[i]->id].bytes = hd_type_bytes(o->out[i]->type);
                l.storage[o->out[i]->id].space = hd_space(&o->attrs);
            }
        if (hd_is_alias(o)) continue;
        hd_accesses(o, a, &list);
        touch_all(&l, a, o, &list);
    }
    for (const Symbol *s = f->module->symbols; s && f->last; s = s->next) {
        Storage *slot = l.slots[s->id] ? &l.storage[l.slots[s->id]] : NULL;
        const bool lent = hd_is_lent(s);
        if (slot && (lent || (slot->touches && hd_stays(f->module, s)))) touch(&l, a, slot, l.time[f->last->id]);
        if (lent && l.filled[s->id]) l.storage[l.left[s->id]].from = 0;
        else if (lent) slot->from = 0;
    }
    return l;
}

// --- launches in place

static bool dies_at(const Lifetimes *l, const Storage *s, int op) {
    if (s->to != op) return false;
    for (const Touch *t = s->touches; t; t = t->next)
        if (t->op != op && !hd_before(&l->clocks, t->op, op)) return false;
    return true;
}

static bool may_overwrite(const Lifetimes *l, const Op *o, int k) {
    Storage *s = hd_storage_of(l, o->in[k]);
    if (!s || s->buffer || s->space || s->bytes != hd_type_bytes(o->in[k]->type) || !dies_at(l, s, l->time[o->id]))
        return false;
    for (int i = 0; i < o->n_in; i++) // the same storage as another operand could be read at another element
        if (i != k && hd_storage_of(l, o->in[i]) == s && !hd_launch_may_overwrite(o, i)) return false;
    return true;
}

static void launch_in_place(Lifetimes *l, Op *o) {
    if (!hd_op_is(o, TRAIT_LAUNCH) || o->n_out < 1 || hd_has(&o->attrs, A_INPLACE)) return;
    Storage *mine = hd_storage_of(l, o->out[0]);
    if (!mine || mine->buffer || mine->bytes == 0 || mine->from != l->time[o->id]) return;
    for (int k = 0; k < o->n_in; k++) {
        if (!hd_launch_may_overwrite(o, k) || !may_overwrite(l, o, k)) continue;
        Storage *old = hd_storage_of(l, o->in[k]);
        hd_set_int(l->f->module->cx, &o->attrs, A_INPLACE, k);
        mine->leader = leader(l, l->homes[o->in[k]->id].root->id);
        Touch *last = mine->touches;
        while (last->next) last = last->next;
        last->next = old->touches;
        old->touches = mine->touches;
        if (mine->to > old->to) old->to = mine->to;
        l->overwritten++;
        return;
    }
}

void hd_share_storage(Lifetimes *l, Arena *a) {
    hd_place_stores(l, a);
    for (Op *o = l->f->first; o; o = o->next) launch_in_place(l, o);
}

// --- ends

// Whether everything up to the last accesses, by stream, has ended when `op` starts.
static bool ordered(const Lifetimes *l, int op) {
    int n = l->clocks.n_streams;
    for (int t = 0; t < n; t++)
        if (l->clocks.clock[op * n + t] < l->last[t]) return false;
    return true;
}

int hd_storage_end(const Lifetimes *l, const Storage *s) {
    int n = l->clocks.n_streams, end = s->to + 1;
    if (n <= 1) return end;
    for (int t = 0; t < n; t++) l->last[t] = 0;
    for (const Touch *t = s->touches; t; t = t->next) {
        int stream = l->clocks.stream_of[t->op];
        if (l->clocks.place[t->op] > l->last[stream]) l->last[stream] = l->clocks.place[t->op];
    }
    for (int t = 0; t < n; t++) { // the last op of each stream that starts a storage and may run before s is done
        const OpIds *starts = &l->starts[t];
        int i;
        HD_FIRST(i, 0, starts->n, ordered(l, starts->at[i]));
        if (i > 0 && starts->at[i - 1] + 1 > end) end = starts->at[i - 1] + 1;
    }
    return end;
}

// --- workspaces

static int64_t workspace_of(const Op *o) { return hd_int(&o->attrs, A_WORKSPACE_BYTES, 0); }

static bool several_streams_work(const Lifetimes *l) {
    int stream = -1;
    for (const Op *o = l->f->first; o; o = o->next) {
        if (workspace_of(o) <= 0) continue;
        if (stream >= 0 && stream != l->clocks.stream_of[l->time[o->id]]) return true;
        stream = l->clocks.stream_of[l->time[o->id]];
    }
    return false;
}

WorkAreas hd_work_areas(const Lifetimes *l, Arena *a) {
    WorkAreas all = {.at = HD_NEWN(a, WorkArea, l->f->n_ops + 1)};
    const bool shared = several_streams_work(l);
    int *open = HD_NEWN(a, int, l->clocks.n_streams + 1); // by stream: its latest area, plus 1
    for (int k = 0; k < l->f->n_ops; k++) {
        Op *o = l->ops[k];
        const int64_t bytes = workspace_of(o);
        if (bytes <= 0) continue;
        const Storage alone = {.from = k, .to = k, .touches = &(Touch){k, NULL}};
        const int end = hd_storage_end(l, &alone);
        int *latest = &open[l->clocks.stream_of[k]];
        if (!shared || !*latest || all.at[*latest - 1].end <= k) {
            all.at[all.n++] = (WorkArea){.from = k, .end = end};
            *latest = all.n;
        }
        WorkArea *area = &all.at[*latest - 1];
        if (bytes > area->bytes) area->bytes = bytes;
        if (end > area->end) area->end = end;
        hd_push(a, &area->by, o);
    }
    return all;
}
