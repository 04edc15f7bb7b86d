#include "passes/analysis/units.h"
#include "passes/settings.h"

void hd_note_units(const Module *m, int64_t bytes) {
    enum { PART = 16 }; // of the bytes: less is not worth a note
    int64_t all = 0;
    for (const Symbol *p = m->symbols; p; p = p->next)
        if (p->kind == SYM_PARAM && !hd_has(&p->attrs, A_FROZEN) && !hd_has(&p->attrs, A_KERNEL))
            all += hd_type_count(p->type) * hd_dtype_bytes(TY_F32);
    if (hd_has(hd_settings(m, "schedule"), A_UNITS) || hd_int(hd_settings(m, "train"), A_MICRO, 1) > 1 ||
        all < bytes / PART)
        return;
    hd_note(m->cx, (Span){0},
            "without schedule.fsdp.unit the gradients of all parameters are one buffer of %lld bytes, which is there "
            "from the first gradient on; with a repeated module as unit each of its instances has a buffer of its own",
            (long long)all);
}
