// Seams of steps, tails of functions, and the function that a tail and its follower make. See seam.h.
#include "passes/analysis/seam.h"
#include "passes/analysis/clocks.h"

bool hd_overlaps(const Symbol *step, const char *stream) {
    const Attr *a = hd_attr(&step->attrs, A_OVERLAPS);
    for (int i = 0; a && stream && i < a->n; i++)
        if (strcmp(a->strs[i], stream) == 0) return true;
    return false;
}

static void add(Seams *list, Arena *a, Seam b) {
    for (int i = 0; i < list->n; i++)
        if (list->at[i].step == b.step && list->at[i].before == b.before && list->at[i].after == b.after) return;
    hd_push(a, list, b);
}

Seams hd_seams(const Module *m, Arena *a) {
    Seams list = {0};
    for (const Symbol *s = m->symbols; s; s = s->next) {
        if (s->kind != SYM_STEP || !hd_has(&s->attrs, A_OVERLAPS)) continue;
        Func *f, *next;
        int64_t times;
        for (int i = 0; (f = hd_segment(m, s, i, &times)); i++) {
            if (times > 1) add(&list, a, (Seam){s, f, f});
            if ((next = hd_segment(m, s, i + 1, NULL))) add(&list, a, (Seam){s, f, next});
        }
    }
    return list;
}

// Whether a step runs f where no function of its overlaps follows (`last`), or precedes.
static bool at_end(const Func *f, bool last) {
    for (const Symbol *s = f->module->symbols; s; s = s->next) {
        const Attr *segments = s->kind == SYM_STEP ? hd_attr(&s->attrs, A_SEGMENTS) : NULL;
        for (int i = 0; segments && i < segments->n; i++)
            if (strcmp(segments->strs[i], f->name) == 0 &&
                (!hd_has(&s->attrs, A_OVERLAPS) || i == (last ? segments->n - 1 : 0)))
                return true;
    }
    return false;
}

bool hd_runs_on(const Seams *b, const Func *f, const char *stream) {
    bool any = false;
    for (int i = 0; i < b->n; i++) {
        if (b->at[i].before != f) continue;
        if (!hd_overlaps(b->at[i].step, stream)) return false;
        any = true;
    }
    return any && !at_end(f, true);
}

bool hd_follows(const Seams *b, const Func *f) {
    bool any = false;
    for (int i = 0; i < b->n; i++) any |= b->at[i].after == f;
    return any && !at_end(f, false);
}

const Func *hd_waits_after(const Seams *b, const Func *f, int64_t event) {
    for (int i = 0; i < b->n; i++) {
        if (b->at[i].before != f) continue;
        for (const Op *o = b->at[i].after->first; o; o = o->next) {
            if (hd_int(&o->attrs, A_EVENT, -1) != event) continue;
            if (hd_op_is(o, TRAIT_WAITS)) return b->at[i].after;
            break; // it records the event itself, first
        }
    }
    return NULL;
}

bool hd_touches_only_buffers(const Op *o, const Home *homes, Arena *a) {
    Accesses list = {0};
    hd_accesses(o, a, &list);
    for (int i = 0; i < list.n; i++) {
        const Access *x = &list.at[i];
        const Symbol *b = x->at == AT_VALUE ? homes[x->value->id].buffer : x->buffer;
        if (x->at == AT_WORKSPACE || !b || (hd_has(&b->attrs, A_TRANSIENT) && hd_space(&b->attrs) != SPACE_DEVICE))
            return false;
    }
    return true;
}

// --- joining

static void keep_views(const Op *o, bool *kept) {
    for (int i = 0; i < o->n_in; i++) {
        const Op *def = o->in[i]->def;
        if (!def || !hd_is_alias(def)) continue;
        kept[def->id] = true;
        keep_views(def, kept);
    }
}

// By op id: whether it belongs to the tail, or is a view that the tail reads.
static bool *find_tail(const Seam *b, Arena *a) {
    const Func *f = b->before;
    bool *kept = HD_NEWN(a, bool, f->n_ops + 1);
    const Home *homes = hd_homes(f, a);
    Clocks c = hd_clocks(f, a);
    for (const Op *o = f->first; o != f->last; o = o->next) {
        if (hd_is_alias(o) || !hd_overlaps(b->step, o->stream) || hd_before(&c, o->id, f->last->id)) continue;
        if (!hd_touches_only_buffers(o, homes, a)) continue; // sync waits for it, and the verifier reports it
        kept[o->id] = true;
        keep_views(o, kept);
    }
    return kept;
}

static void copy(Func *f, const Op *o, Value **map, Arena *a) {
    Value **in = HD_NEWN(a, Value *, o->n_in + 1);
    for (int i = 0; i < o->n_in; i++) in[i] = map[o->in[i]->id];
    Op *c = hd_op_clone(f, o, in);
    for (int i = 0; i < o->n_out; i++) {
        map[o->out[i]->id] = c->out[i];
        c->out[i]->place = o->out[i]->place;
    }
    hd_append(f, c);
}

Joined hd_join(const Seam *b, Arena *a) {
    const Func *after = b->after;
    const bool *kept = find_tail(b, a);
    int *from = HD_NEWN(a, int, b->before->n_ops + 1);
    Joined j = {b, HD_NEW(a, Func), 0, from};
    *j.f = (Func){.name = after->name, .attrs = after->attrs, .span = after->span, .module = after->module};
    Value **map = HD_NEWN(a, Value *, b->before->n_values + 1);
    for (const Op *o = b->before->first; o; o = o->next) {
        if (!kept[o->id]) continue;
        from[j.tail++] = o->id;
        copy(j.f, o, map, a);
    }
    map = HD_NEWN(a, Value *, after->n_values + 1);
    for (int i = 0; i < after->n_args; i++) {
        Value *v = hd_arg_add(j.f, after->args[i]->type, after->args[i]->name);
        v->place = after->args[i]->place;
        map[after->args[i]->id] = v;
    }
    for (const Op *o = after->first; o; o = o->next) copy(j.f, o, map, a);
    hd_renumber(j.f);
    return j;
}

Carried hd_carried(const Joined *j, Arena *a) {
    const Home *homes = hd_homes(j->f, a);
    Carried c = {0};
    Accesses list = {0};
    bool *seen = HD_NEWN(a, bool, j->f->module->n_symbols + 1);
    for (const Op *o = j->f->first; o && o->id < j->tail; o = o->next) {
        hd_accesses(o, a, &list);
        for (int i = 0; i < list.n; i++) {
            const Access *x = &list.at[i];
            const Symbol *b = x->order ? NULL : x->at == AT_VALUE ? homes[x->value->id].buffer : x->buffer;
            if (!b || seen[b->id] || !hd_has(&b->attrs, A_TRANSIENT)) continue;
            seen[b->id] = true;
            hd_push(a, &c, b);
        }
    }
    return c;
}
