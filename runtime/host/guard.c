// Guards of the storages of a program (base/guard.h), on the host. With --check guards are filled and compared.
// With the address sanitizer (CC="cc -fsanitize=address" heddlec --guard ...) they are bytes that it forbids, so that
// it stops where one is read or written. In either case the actions of a run take turns in the order of the plan, each
// on its own stream's thread.
#include "runtime/host/host.h"
#include <stdio.h>
#include <string.h>

// There where the program is linked with the sanitizer.
extern void __asan_poison_memory_region(const volatile void *at, size_t bytes) __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *at, size_t bytes) __attribute__((weak));

static bool forbids(void) { return __asan_poison_memory_region && __asan_unpoison_memory_region; }

bool hd_host_guards_on(const Host *h) { return h->head.program->guard && (h->head.check || forbids()); }

static char *arena(const Host *h, bool pinned) { return pinned ? h->head.pinned : h->head.base; }

static char *bytes_of(const Host *h, const HdGuardBytes *b) { return arena(h, b->pinned) + b->at; }

// Of the last `n` live storages.
static void set_up(Host *h, int n) {
    for (int i = h->guards.n - n; i < h->guards.n; i++) {
        const HdGuarded *s = h->guards.live[i];
        const HdGuardBytes before = hd_guard_of(&h->guards, s, false), after = hd_guard_of(&h->guards, s, true);
        if (h->head.check) {
            hd_guard_fill(&before, bytes_of(h, &before));
            hd_guard_fill(&after, bytes_of(h, &after));
        }
        if (!forbids()) continue;
        __asan_poison_memory_region(bytes_of(h, &before), (size_t)(after.at + after.bytes - before.at));
        __asan_unpoison_memory_region(arena(h, s->pinned) + s->at, (size_t)s->bytes);
    }
}

static void allow_all(const Host *h) {
    if (!forbids() || !h->head.base) return;
    __asan_unpoison_memory_region(h->head.base, h->bytes);
    if (h->head.pinned) __asan_unpoison_memory_region(h->head.pinned, (size_t)h->head.program->pinned_bytes);
}

// After action `by`, or before all. `who`: that in words.
static void look(Host *h, int by, const char *who) {
    HdGuardDamage d = {0};
    if (!h->head.check || h->guards.damaged) return;
    for (int i = 0; i < h->guards.n; i++)
        for (int after = 0; after < 2; after++) {
            const HdGuardBytes b = hd_guard_of(&h->guards, h->guards.live[i], after);
            hd_guard_compare(&h->guards, h->guards.live[i], after, bytes_of(h, &b), &d);
        }
    if (!d.of) return;
    char what[700];
    h->guards.damaged = true;
    hd_guard_tell(&h->guards, &d, by, what, sizeof what);
    snprintf(h->damage, sizeof h->damage, "%s%s", who, what);
}

bool hd_host_guards_open(Host *h) { return !h->head.program->guard || hd_guards_open(&h->guards, h->head.program); }

void hd_host_guards_close(Host *h) {
    if (h->head.program->guard) allow_all(h); // other memory may come to be there
    hd_guards_close(&h->guards);
}

void hd_host_guards_enter(Host *h, const HdFunc *f) {
    if (!hd_host_guards_on(h)) return;
    char who[200];
    h->first_turn = atomic_load_explicit(&h->turns, memory_order_relaxed);
    snprintf(who, sizeof who, "before the first action of %s: ", f->name);
    if (h->run > 1) look(h, -1, who);
    else set_up(h, h->guards.n);
    set_up(h, hd_guards_enter(&h->guards, f));
}

bool hd_host_guards_leave(Host *h) {
    if (!hd_host_guards_on(h)) return true;
    hd_guards_leave(&h->guards);
    allow_all(h); // what the runtime writes next may be anywhere but around the storages that persist
    if (forbids()) set_up(h, h->guards.n);
    return !h->guards.damaged || hd_fail("%s", h->damage);
}

void hd_host_turn_begin(HostStream *s, const HdFunc *f, int action) {
    Host *h = s->host;
    if (!hd_host_guards_on(h)) return;
    hd_host_turn_end(s);
    hd_host_wait_for(&h->turns, h->first_turn + (uint32_t)action);
    s->at_func = f;
    s->turn = action;
    set_up(h, hd_guards_next(&h->guards, action));
}

void hd_host_turn_end(HostStream *s) {
    Host *h = s->host;
    char who[600];
    if (s->turn < 0) return;
    hd_action_tell(s->at_func, s->turn, who, sizeof who);
    look(h, s->turn, who);
    hd_host_reach(&h->turns, h->first_turn + (uint32_t)s->turn + 1);
    s->turn = -1;
}
