// Guards of the storages of a program (base/guard.h), on the GPU. With --check the program runs without graphs,
// the host waits after every action, and all guards that are live are copied to it and compared there.
#include "runtime/cuda/exec.h"
#include <stdio.h>

static bool on(const HdCuda *x) { return x->guards.bytes && x->head.check && !x->failed; }

bool hd_cuda_guards_open(HdCuda *x) {
    const HdProgram *p = x->head.program;
    void *bytes = NULL;
    x->guards.action = -1;
    if (!p->guard) return true;
    if (!hd_guards_open(&x->guards.all, p)) return hd_cuda_fail(x, "%s", hd_failure());
    if (!hd_cuda_ok(x, x->api.cuMemHostAlloc(&bytes, (size_t)hd_guards_most(p), HD_CU_MEMHOSTALLOC_PORTABLE),
                    "cannot allocate pinned host memory for guards"))
        return false;
    x->guards.bytes = bytes;
    return true;
}

void hd_cuda_guards_close(HdCuda *x) {
    if (x->guards.bytes) x->api.cuMemFreeHost(x->guards.bytes);
    hd_guards_close(&x->guards.all);
}

static bool sync(HdCuda *x) { return hd_cuda_ok(x, x->api.cuCtxSynchronize(), "the GPU stopped"); }

// Copies the guards of live storages from number `from` on, from the device or to it. Guards in page-locked memory need
// no copy. The device is idle before and after.
static bool move(HdCuda *x, int from, bool to_device) {
    const HdGuards *g = &x->guards.all;
    unsigned char *host = x->guards.bytes;
    for (int i = from; i < g->n; i++)
        for (int after = 0; after < 2; after++) {
            const HdGuardBytes b = hd_guard_of(g, g->live[i], after);
            const CuPtr at = x->arena + (CuPtr)b.at;
            if (b.pinned && to_device) hd_guard_fill(&b, x->head.pinned + b.at);
            if (b.pinned) continue;
            if (to_device) hd_guard_fill(&b, host);
            if (!hd_cuda_ok(x, to_device ? x->api.cuMemcpyHtoDAsync(at, host, (size_t)b.bytes, x->streams[0])
                                         : x->api.cuMemcpyDtoHAsync(host, at, (size_t)b.bytes, x->streams[0]),
                            "cannot copy guards"))
                return false;
            host += b.bytes;
        }
    return sync(x);
}

static bool look(HdCuda *x, int by) {
    const HdGuards *g = &x->guards.all;
    const unsigned char *host = x->guards.bytes;
    HdGuardDamage d = {0};
    char what[700];
    if (!move(x, 0, false)) return false;
    for (int i = 0; i < g->n; i++)
        for (int after = 0; after < 2; after++) {
            const HdGuardBytes b = hd_guard_of(g, g->live[i], after);
            hd_guard_compare(g, g->live[i], after, b.pinned ? (unsigned char *)x->head.pinned + b.at : host, &d);
            if (!b.pinned) host += b.bytes;
        }
    if (!d.of) return true;
    hd_guard_tell(g, &d, by, what, sizeof what);
    return hd_cuda_fail(x, "%s%s", by < 0 ? "before its first action: " : "", what);
}

static void fill(HdCuda *x, int fresh) {
    if (fresh) move(x, x->guards.all.n - fresh, true);
}

void hd_cuda_guards_enter(HdCuda *x) {
    if (!on(x) || !sync(x)) return;
    if (x->guards.filled) look(x, -1);
    else fill(x, x->guards.all.n);
    x->guards.filled = true;
    if (!x->failed) fill(x, hd_guards_enter(&x->guards.all, x->func));
}

// The action at hand has ended, if there is one.
static void end_action(HdCuda *x) {
    if (x->guards.action < 0) return;
    x->action = x->guards.action;
    if (sync(x)) look(x, x->action);
    x->guards.action = -1;
}

void hd_cuda_guards_action(HdCuda *x, int index) {
    if (!on(x)) return;
    end_action(x);
    if (x->failed) return;
    x->action = index;
    fill(x, hd_guards_next(&x->guards.all, index));
    x->guards.action = index;
}

void hd_cuda_guards_leave(HdCuda *x) {
    if (on(x)) end_action(x);
    if (x->guards.bytes) hd_guards_leave(&x->guards.all);
}
