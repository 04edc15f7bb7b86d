// The ranks of a run as threads of one process: their collectives. A communicator has one meeting place for each of its
// groups. A rank arrives with its data, waits until all are there, reads the others' data, and leaves when all have
// read.
//
// The word of a meeting place counts arrivals: bits 0-15 how many have come, bits 16-30 how often all were there, bit
// 31 that a rank never will come. A meeting that is incomplete when that bit is set takes place for nobody; a complete
// one is finished by everybody, whatever fails meanwhile. So no rank waits for ever, and none reads memory whose owner
// has freed it.
#include "runtime/host/host.h"
#include "runtime/host/scratch.h"
#include "runtime/world/mesh.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PATIENCE = 100,
    BLOCK = 4096,
    TREE_BLOCK = 1024
}; // milliseconds between two looks at whether the other ranks live; elements summed at a time
#define FAILED 0x80000000u
#define TIMES 0x7fff0000u
#define ONCE 0x10000u
#define COUNT 0xffffu

typedef struct { const char *kind; const HdFunc *f; int action, rank; size_t bytes; const void *data; } Offer;
typedef struct {
    _Atomic uint32_t come, gone; // `gone` counts like `come`, without FAILED
    Offer *offer;
    int n;
    _Atomic int left; // a rank of the group that has closed; -1: none
} Meeting;

struct Team {
    int ranks, n_meetings;
    Host **host;           // by rank
    Meeting *meeting;      // by communicator and group: [comm * ranks + group]
    _Atomic int members;   // ranks that have not closed
    atomic_bool failed, told; // `told`: the text can be read
    char text[sizeof(((Host *)0)->why)];
};

// --- failures

static void cancel(Meeting *m) {
    atomic_fetch_or(&m->come, FAILED);
    hd_host_wake(&m->come);
}

// The first failure is that of the run: all that wait wake, and every rank that still needs the others fails with this
// text.
static void team_fail(Team *t, const char *text) {
    bool first = false;
    if (!atomic_compare_exchange_strong(&t->failed, &first, true)) return;
    snprintf(t->text, sizeof t->text, "%s", text);
    atomic_store_explicit(&t->told, true, memory_order_release);
    for (int i = 0; i < t->n_meetings; i++) cancel(&t->meeting[i]);
}

// A collective at this place did not happen: keeps the reason, the first time.
static void break_rank(Host *h, const Meeting *m) {
    Team *t = h->team;
    const int left = atomic_load_explicit(&m->left, memory_order_acquire);
    bool first = false;
    if (!atomic_compare_exchange_strong(&h->broken, &first, true)) return;
    if (atomic_load_explicit(&t->failed, memory_order_acquire)) {
        while (!atomic_load_explicit(&t->told, memory_order_acquire)) sched_yield(); // another thread is writing it
        snprintf(h->why, sizeof h->why, "%s", t->text);
    } else {
        snprintf(h->why, sizeof h->why, "%s", left < 0 ? "a collective was cancelled" : t->host[left]->why);
    }
}

bool hd_host_team_ok(Host *h) {
    if (!atomic_load_explicit(&h->broken, memory_order_relaxed))
        return true; // all streams have ended: it no longer changes
    return hd_fail("%s", h->why);
}

// --- meeting places

static int ranks_of(const HdExec *x, int comm) { return hd_group_ranks(x->program, x->program->comms[comm].over); }
static int number_in(const HdExec *x, int comm) { // of this rank in its group
    return hd_group_number(x->program, x->program->comms[comm].over, x->world->rank);
}
static Meeting *place_of(HdExec *x, int comm) { // groups are numbered along the axes that a communicator is not over
    const Team *t = hd_host_of(x)->team;
    const int group = hd_group_number(x->program, ~x->program->comms[comm].over, x->world->rank);
    return &t->meeting[comm * t->ranks + group];
}

// Counts this rank in and wakes the others when it is the last. Returns the previous word; with FAILED in it, nothing
// was done.
static uint32_t count_in(_Atomic uint32_t *word, int n) {
    uint32_t now = atomic_load_explicit(word, memory_order_acquire), next;
    do {
        if (now & FAILED) return now;
        next = (int)(now & COUNT) + 1 < n ? now + 1 : (now + ONCE) & TIMES;
    } while (!atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_acq_rel, memory_order_acquire));
    if (!(next & COUNT)) hd_host_wake(word);
    return now;
}

// Waits until all n have come. false: they never will.
static bool come(Team *t, Meeting *m, HdWorld *w) {
    const uint32_t then = count_in(&m->come, m->n);
    while (!(then & FAILED)) {
        const uint32_t now = atomic_load_explicit(&m->come, memory_order_acquire);
        if ((now ^ then) & TIMES) return true;
        if (now & FAILED) break;
        if (w->alive && !w->alive(w)) team_fail(t, hd_failure());
        else hd_host_sleep(&m->come, now, PATIENCE);
    }
    return false;
}

// Waits until all n have read. All of them are there, so this always ends.
static void leave(Meeting *m) {
    const uint32_t then = count_in(&m->gone, m->n);
    for (;;) {
        const uint32_t now = atomic_load_explicit(&m->gone, memory_order_acquire);
        if ((now ^ then) & TIMES) return;
        hd_host_sleep(&m->gone, now, 0);
    }
}

static void describe(char *text, size_t size, const Offer *o) {
    const HdAction *a = o->f ? &o->f->actions[o->action] : NULL;
    snprintf(text, size, "rank %d with %s of %zu bytes, action %d of @%s%s%s%s", o->rank, o->kind, o->bytes, o->action,
             o->f ? o->f->name : "?", a && *a->path ? " (" : "", a && *a->path ? a->path : "",
             a && *a->path ? ")" : "");
}

// All must have come for the same action; every rank checks, and every rank sees the same.
static bool agree(Host *h, const Meeting *m, int comm) {
    for (int i = 1; i < m->n; i++) {
        const Offer *a = &m->offer[0], *b = &m->offer[i];
        if (!strcmp(a->kind, b->kind) && a->f == b->f && a->action == b->action && a->bytes == b->bytes) continue;
        char first[300], second[300], text[800];
        describe(first, sizeof first, a);
        describe(second, sizeof second, b);
        snprintf(text, sizeof text, "ranks disagree in communicator %s: %s, %s", h->head.program->comms[comm].name,
                 first, second);
        team_fail(h->team, text);
        return false;
    }
    return true;
}

// Arrives at the meeting place of a communicator. NULL: the meeting did not take place, and this rank has failed.
static Meeting *meet(HdExec *x, int comm, const char *kind, const void *data, size_t bytes) {
    Host *h = hd_host_of(x);
    Team *t = h->team;
    const HostStream *s = hd_host_stream(x);
    const int rank = x->world->rank;
    Meeting *m = place_of(x, comm);
    if (atomic_load_explicit(&h->broken, memory_order_relaxed))
        return NULL; // others may still read what was offered here
    m->offer[number_in(x, comm)] = (Offer){kind, s->at_func, s->at_action, rank, bytes, data};
    if (come(t, m, x->world) && agree(h, m, comm)) return m;
    break_rank(h, m);
    return NULL;
}

// --- collectives

void hd_host_all_gather(HdExec *x, int comm, const void *part, void *whole, size_t part_bytes) {
    if (ranks_of(x, comm) == 1) {
        if (whole != part) memcpy(whole, part, part_bytes);
        return;
    }
    Meeting *m = meet(x, comm, "all_gather", part, part_bytes);
    if (!m) return;
    for (int i = 0; i < m->n; i++) {
        char *to = (char *)whole + (size_t)i * part_bytes;
        if (to != m->offer[i].data) memcpy(to, m->offer[i].data, part_bytes);
    }
    leave(m);
}

void hd_host_exchange(HdExec *x, int comm, const void *whole, void *parts, size_t part_bytes, size_t moved) {
    if (ranks_of(x, comm) == 1) {
        memcpy(parts, whole, moved);
        return;
    }
    Meeting *m = meet(x, comm, "exchange", whole, moved);
    if (!m) return;
    const size_t mine = (size_t)number_in(x, comm) * part_bytes;
    for (int i = 0; i < m->n; i++)
        memcpy((char *)parts + (size_t)i * part_bytes, (const char *)m->offer[i].data + mine, moved);
    leave(m);
}

void hd_host_reduce_scatter(HdExec *x, int comm, HdDtype dt, const void *whole, void *part, int64_t part_count) {
    const size_t bytes = (size_t)part_count * hd_dtypes[dt].bytes;
    if (ranks_of(x, comm) == 1) {
        memcpy(part, whole, bytes);
        return;
    }
    Meeting *m = meet(x, comm, "reduce_scatter", whole, bytes);
    if (!m) return;
    const int r = number_in(x, comm);
    for (int64_t at = 0; at < part_count; at += BLOCK) { // a block stays in the cache while all ranks are added
        const int64_t n = part_count - at < BLOCK ? part_count - at : BLOCK;
        const size_t size = hd_dtypes[dt].bytes, start = (size_t)r * bytes;
        memcpy((char *)part + (size_t)at * size,
               (const char *)m->offer[(r + 1) % m->n].data + start + (size_t)at * size, (size_t)n * size);
        for (int i = 2; i <= m->n; i++)
            hd_host_add(dt, (const char *)m->offer[(r + i) % m->n].data + start, part, at, n);
    }
    leave(m);
}

// Elements [0, n) of ranks [first, first + ranks) from `at` on, in dt, added in f32 in a tree. `sum`: TREE_BLOCK
// elements for each level of it.
static void add_in_tree(const Meeting *m, HdDtype dt, int first, int ranks, int64_t at, int64_t n, float *sum) {
    const float *y = sum + TREE_BLOCK;
    if (ranks == 1) {
        hd_load_f32(dt, m->offer[first].data, at, n, sum);
        return;
    }
    add_in_tree(m, dt, first, ranks / 2, at, n, sum);
    add_in_tree(m, dt, first + ranks / 2, ranks / 2, at, n, sum + TREE_BLOCK);
    for (int64_t i = 0; i < n; i++) sum[i] += y[i];
}

static void add_in_order(const Meeting *m, HdDtype dt, int r, int64_t at, int64_t n, float *sum) {
    float *y = sum + TREE_BLOCK;
    hd_load_f32(dt, m->offer[(r + 1) % m->n].data, at, n, sum);
    for (int k = 2; k <= m->n; k++) {
        hd_load_f32(dt, m->offer[(r + k) % m->n].data, at, n, y);
        for (int64_t i = 0; i < n; i++) sum[i] += y[i];
    }
}

void hd_host_reduce_wide(HdExec *x, int comm, HdDtype dt, bool tree, const void *whole, void *part,
                         int64_t part_count) {
    enum { MOST_LEVELS = 18 }; // HD_MAX_RANKS is 2^16
    if (ranks_of(x, comm) == 1) {
        hd_load_f32(dt, whole, 0, part_count, part);
        return;
    }
    Meeting *m = meet(x, comm, "reduce_scatter", whole, (size_t)part_count * hd_dtypes[dt].bytes);
    if (!m) return;
    float *const sums = hd_host_scratch(HD_SCRATCH_SUMS, MOST_LEVELS * TREE_BLOCK * sizeof *sums);
    const int r = number_in(x, comm);
    for (int64_t at = 0; at < part_count; at += TREE_BLOCK) {
        const int64_t n = part_count - at < TREE_BLOCK ? part_count - at : TREE_BLOCK;
        if (tree) add_in_tree(m, dt, 0, m->n, r * part_count + at, n, sums);
        else add_in_order(m, dt, r, r * part_count + at, n, sums);
        memcpy((float *)part + at, sums, (size_t)n * sizeof *sums);
    }
    leave(m);
}

void hd_host_reduce_tree(HdExec *x, int comm, const void *whole, void *part, int64_t part_count) {
    hd_host_reduce_wide(x, comm, HD_F32, true, whole, part, part_count);
}

// Numbers that are not negative are in the order of their bits, and a NaN is above all of them.
static float higher(float a, float b) {
    uint32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x > y ? a : b;
}

void hd_host_all_max(HdExec *x, int comm, int64_t n, float *numbers) {
    if (ranks_of(x, comm) == 1) return;
    float *const own = hd_host_scratch(HD_SCRATCH_MOST, TREE_BLOCK * sizeof *own);
    for (int64_t at = 0; at < n; at += TREE_BLOCK) {
        const int64_t count = n - at < TREE_BLOCK ? n - at : TREE_BLOCK;
        memcpy(own, numbers + at, (size_t)count * sizeof *own);
        Meeting *m = meet(x, comm, "all_max", own, (size_t)count * sizeof *own);
        if (!m) return;
        for (int i = 0; i < m->n; i++)
            for (int64_t k = 0; k < count; k++)
                numbers[at + k] = higher(((const float *)m->offer[i].data)[k], numbers[at + k]);
        leave(m);
    }
}

// --- the team

static void free_host(Host *h) {
    if (h->head.base) munmap(h->head.base, h->bytes);
    if (h->head.pinned) munmap(h->head.pinned, (size_t)h->head.program->pinned_bytes);
    free(h);
}

static void free_team(Team *t) {
    if (!t) return;
    for (int i = 0; t->host && i < t->ranks; i++) {
        if (!t->host[i]) continue;
        free_host(t->host[i]);
    }
    for (int i = 0; t->meeting && i < t->n_meetings; i++) free(t->meeting[i].offer);
    free(t->meeting);
    free(t->host);
    free(t);
}

static Team *new_team(const Host *h) {
    const HdProgram *p = h->head.program;
    Team *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->ranks = h->head.world->ranks;
    t->members = t->ranks;
    t->n_meetings = p->n_comms * t->ranks;
    t->host = calloc((size_t)t->ranks, sizeof(Host *));
    t->meeting = calloc((size_t)t->n_meetings + 1, sizeof *t->meeting);
    bool ok = t->host && t->meeting;
    for (int i = 0; ok && i < t->n_meetings; i++) {
        Meeting *m = &t->meeting[i];
        m->n = ranks_of(&h->head, i / t->ranks);
        m->left = -1;
        m->offer = calloc((size_t)m->n, sizeof *m->offer);
        ok = m->offer != NULL;
    }
    if (ok) return t;
    free_team(t);
    return NULL;
}

bool hd_host_team_open(Host *h) {
    HdWorld *w = h->head.world;
    if (w->ranks == 1) return true;
    Team *own = w->rank ? NULL : new_team(h), **all = malloc(sizeof(Team *) * (size_t)w->ranks);
    bool ok = all && w->gather(w, &own, sizeof own, all);
    if (ok && all[0]) h->team = all[0];
    else if (ok || !all) hd_fail("out of memory: cannot start %d ranks", w->ranks);
    free(all);
    if (!ok) return false; // other ranks may know the team: it is leaked
    if (h->team) h->team->host[w->rank] = h;
    return hd_world_barrier(w) && h->team; // every rank has entered before any works or closes
}

Host *hd_host_team_member(Host *h, int rank) { return h->team ? h->team->host[rank] : h; }

// Others may still read this rank's memory: the last one to close frees everything.
void hd_host_team_close(Host *h) {
    Team *t = h->team;
    if (!t) {
        free_host(h);
        return;
    }
    const int rank = h->head.world->rank;
    if (!atomic_load_explicit(&h->broken, memory_order_relaxed))
        snprintf(h->why, sizeof h->why, "rank %d has left the run%s%.1000s", rank, *hd_failure() ? ": " : "",
                 hd_failure());
    for (int c = 0; c < h->head.program->n_comms; c++) { // who needs this rank will not meet it
        Meeting *m = place_of(&h->head, c);
        int nobody = -1;
        atomic_compare_exchange_strong(&m->left, &nobody, rank);
        cancel(m);
    }
    if (atomic_fetch_sub_explicit(&t->members, 1, memory_order_acq_rel) == 1) free_team(t);
}
