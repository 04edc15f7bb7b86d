// See guard.h.
#include "runtime/base/guard.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 }; // what plan-memory aligns storages to

// No number, whether read as bf16, f16 or f32, and another one for each address: bytes that were copied here from the
// guard of an operand show as well.
static unsigned char pattern(int64_t at) { return (unsigned char)(at & 1 ? 0xff : 0x81 + (at >> 1) % 127); }

HdGuardBytes hd_guard_of(const HdGuards *g, const HdGuarded *s, bool after) {
    const int64_t guard = g->program->guard, end = s->at + s->bytes;
    if (!after) return (HdGuardBytes){s->at - guard, guard, s->pinned};
    return (HdGuardBytes){end, (end + ALIGN - 1) / ALIGN * ALIGN + guard - end, s->pinned};
}

// Storages that can have bytes at once, at most: no two functions are alive together.
static int most_live(const HdProgram *p) {
    int most = 0;
    for (int i = 0; i < p->n_funcs; i++)
        if (p->guarded_in[i].n > most) most = p->guarded_in[i].n;
    return p->guarded.n + most;
}

int64_t hd_guards_most(const HdProgram *p) { return most_live(p) * (2 * p->guard + ALIGN); }

bool hd_guards_open(HdGuards *g, const HdProgram *p) {
    *g = (HdGuards){.program = p, .live = calloc((size_t)most_live(p) + 1, sizeof *g->live)};
    if (!g->live) return hd_fail("out of memory: cannot keep what guards %d storages", most_live(p));
    for (int i = 0; i < p->guarded.n; i++) g->live[g->n++] = &p->guarded.at[i];
    return true;
}

void hd_guards_close(HdGuards *g) { free(g->live); }

static bool apart(const HdGuards *g, const HdGuarded *s, const HdGuarded *t) {
    const int64_t from = hd_guard_of(g, s, false).at, end = hd_guard_of(g, t, false).at;
    const HdGuardBytes a = hd_guard_of(g, s, true), b = hd_guard_of(g, t, true);
    return s->pinned != t->pinned || from >= b.at + b.bytes || end >= a.at + a.bytes;
}

int hd_guards_next(HdGuards *g, int action) {
    const HdGuardedList *all = &g->program->guarded_in[g->func - g->program->funcs];
    int fresh = 0, kept = 0;
    while (g->next + fresh < all->n && all->at[g->next + fresh].action <= action) fresh++;
    const HdGuarded *added = all->at + g->next;
    for (int i = 0; i < g->n; i++) { // who had these bytes needs them no more
        bool alive = true;
        for (int k = 0; k < fresh && alive; k++) alive = apart(g, g->live[i], &added[k]);
        if (alive) g->live[kept++] = g->live[i];
    }
    for (int k = 0; k < fresh; k++) g->live[kept++] = &added[k];
    g->n = kept;
    g->next += fresh;
    return fresh;
}

void hd_guards_leave(HdGuards *g) {
    g->func = NULL;
    g->n = g->program->guarded.n; // nothing shares bytes with these, so they still come first
}

int hd_guards_enter(HdGuards *g, const HdFunc *f) {
    g->func = f;
    g->next = 0;
    return hd_guards_next(g, -1);
}

// The address sanitizer knows guards as bytes that nobody may touch: these two may.
__attribute__((no_sanitize_address)) void hd_guard_fill(const HdGuardBytes *b, void *bytes) {
    volatile unsigned char *to = bytes;
    for (int64_t i = 0; i < b->bytes; i++) to[i] = pattern(b->at + i);
}

__attribute__((no_sanitize_address)) void hd_guard_compare(const HdGuards *g, const HdGuarded *s, bool after,
                                                           const void *bytes, HdGuardDamage *d) {
    const HdGuardBytes b = hd_guard_of(g, s, after);
    const volatile unsigned char *is = bytes;
    int64_t first = -1, last = -1;
    for (int64_t i = 0; i < b.bytes; i++) {
        if (is[i] == pattern(b.at + i)) continue;
        if (first < 0) first = i;
        last = i;
    }
    if (first < 0) return;
    const int others = d->of ? d->others + 1 : 0;
    if (!d->of || b.at + first < d->first)
        *d = (HdGuardDamage){s, after, b.at + first, b.at + last, is[first], 0};
    d->others = others;
}

void hd_action_tell(const HdFunc *f, int index, char *text, size_t size) {
    const HdAction *a = &f->actions[index];
    const bool somewhere = a->where && *a->where, named = a->path && *a->path;
    snprintf(text, size, "%s%s%s%s%s (action %d of %s, stream %s): ", somewhere ? a->where : "", somewhere ? ": " : "",
             a->op, named ? " in " : "", named ? a->path : "", index, f->name, a->stream);
}

// "result %12 of gemm in blocks.3.mlp, gpt.hd:14", or "its result %12". A result and a workspace are those of the
// action with which they get bytes.
static void name_storage(const HdGuards *g, const HdGuarded *s, int by, char *text, size_t size) {
    const bool made = g->func && s->action >= 0 && s->action < g->func->n_actions && strncmp(s->name, "buffer ", 7);
    const HdAction *a = made && s->action != by ? &g->func->actions[s->action] : NULL;
    const bool somewhere = a && a->where && *a->where, named = a && a->path && *a->path;
    snprintf(text, size, "%s%s%s%s%s%s%s%s", made && !a ? "its " : "", s->name, a ? " of " : "", a ? a->op : "",
             named ? " in " : "", named ? a->path : "", somewhere ? ", " : "", somewhere ? a->where : "");
}

void hd_guard_tell(const HdGuards *g, const HdGuardDamage *d, int by, char *text, size_t size) {
    const int64_t end = d->of->at + d->of->bytes;
    char name[400], others[60] = "";
    name_storage(g, d->of, by, name, sizeof name);
    if (d->others)
        snprintf(others, sizeof others, "; %d other guard%s changed, too", d->others, d->others == 1 ? "" : "s");
    const int64_t from = d->after ? d->first - end + 1 : d->of->at - d->first;
    const int64_t to = d->after ? d->last - end + 1 : d->of->at - d->last;
    snprintf(text, size, "--check: bytes %lld to %lld %s %s were written; the first was 0x%02x and is 0x%02x%s",
             (long long)from, (long long)to, d->after ? "after the end of" : "before", name, pattern(d->first),
             d->found, others);
}
