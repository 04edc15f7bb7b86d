// The limits of --device-memory and --host-memory. See limits.h.
#include "passes/memory/limits.h"
#include "passes/analysis/units.h"
#include "passes/settings.h"
#include "ir/base/ints.h"

static const char *origin(Arena *a, const Op *o) {
    if (!o) return "nothing";
    const char *mnemonic = hd_op_info(o->kind)->mnemonic;
    if (!o->loc.path && !o->loc.file) return mnemonic;
    return hd_sprintf(a, "%s (%s, %s:%d)", mnemonic, o->loc.path ? o->loc.path : "", o->loc.file ? o->loc.file : "",
                      o->loc.line);
}

// --device-memory: reports how much is needed, by which function, and what takes less. It names no setting that would
// fit: no plan with that was made.
static bool fits_device(const Module *m, const Room *p, Arena *a) {
    const Attr *limit = hd_attr(hd_settings(m, "target"), A_DEVICE_MEMORY_BYTES);
    if (!limit || p->top <= limit->i) return true;
    int64_t transient = p->top - p->persistent, room = limit->i - p->persistent;
    int64_t batch = hd_int(hd_settings(m, "train"), A_BATCH, 0);
    hd_error(m->cx, hd_symbol_find(m, "target")->span,
             "the plan takes %lld bytes of device memory and only %lld are allowed", (long long)p->top,
             (long long)limit->i);
    hd_note(m->cx, (Span){0},
            "%lld bytes are parameters, gradients and optimizer state; %lld more are live in @%s during %s",
            (long long)p->persistent, (long long)transient, p->peak ? p->peak->name : "", origin(a, p->peak_op));
    const Attr *least = hd_attr(hd_settings(m, "target"), A_LEAST_BYTES);
    if (least && least->i < p->top)
        hd_note(m->cx, (Span){0}, "of all plans that were tried the least takes %lld bytes", (long long)least->i);
    hd_note_units(m, p->top);
    if (room <= 0)
        hd_note(m->cx, (Span){0}, "no batch fits: what persists already takes more than is allowed");
    else if (transient > 0 && batch > 1)
        hd_note(m->cx, (Span){0}, "what is live grows with train.batch (now %lld); schedule.recompute keeps less of it",
                (long long)batch);
    else
        hd_note(m->cx, (Span){0}, "schedule.recompute keeps less of what is live");
    return false;
}

// --host-memory: more is refused.
static bool fits_host(const Module *m, const Room *p) {
    const Attr *limit = hd_attr(hd_settings(m, "target"), A_HOST_MEMORY_BYTES);
    const int64_t bytes = p->top;
    if (!limit || bytes <= limit->i) return true;
    hd_error(m->cx, hd_symbol_find(m, "target")->span,
             "the plan takes %lld bytes of page-locked host memory for a rank and only %lld are allowed",
             (long long)bytes, (long long)limit->i);
    hd_note(m->cx, (Span){0}, "a smaller schedule.offload.fraction (now %g) leaves more values on the device",
            hd_float(hd_settings(m, "schedule"), A_FRACTION, 1));
    return false;
}

bool hd_memory_fits(const Module *m, const Room *room, Arena *a) {
    return fits_device(m, &room[SPACE_DEVICE], a) && fits_host(m, &room[SPACE_HOST]);
}
