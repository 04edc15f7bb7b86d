// capture: marks the ranges of every function that a target may replay as one graph, as the schedule's `graph` says.
//   step: one region a function, all of it. It holds all streams: they fork from the main one and join it, as sync has
//   made them.
//   [compute] %0 = gemm ...            [compute] capture {region = @micro_only.step}
//   [compute] %1 = launch %0 ...  ->     [compute] %0 = gemm ...
//   [compute] return                     [compute] %1 = launch %0 ...
//                                      [compute] capture_end {region = @micro_only.step}
//                                      [compute] return
#include "passes/pass.h"
#include "passes/settings.h"
#include <string.h>

static Op *marker(Func *f, OpKind kind, const Symbol *region, const char *stream) {
    Op *o = hd_op_new(f, kind, 0, NULL);
    hd_set_word(f->module->cx, &o->attrs, A_REGION, region->name);
    const char *wrong = hd_infer(o, 0, NULL);
    if (wrong) HD_BUG("%s: %s", hd_op_info(kind)->mnemonic, wrong);
    o->stream = stream;
    return o;
}

static void capture_step(Func *f) {
    Module *m = f->module;
    int actions = 0;
    for (const Op *o = f->first; o; o = o->next) actions += hd_is_action(o);
    if (!actions) return;
    Symbol *region = hd_symbol_add(m, SYM_REGION, hd_free_name(m, hd_internf(m->cx, "%s.step", f->name)), NULL);
    hd_set_kind(m->cx, &region->attrs, KIND_WHOLE);
    hd_insert_before(f->first, marker(f, OP_CAPTURE, region, f->last->stream));
    hd_insert_before(f->last, marker(f, OP_CAPTURE_END, region, f->last->stream));
    hd_renumber(f);
}

Change hd_pass_capture(Module *m, PassCx *cx) {
    const char *graph = hd_word(hd_settings(m, "schedule"), A_GRAPH, "none");
    if (!strcmp(graph, "none")) return UNCHANGED;
    for (Func *f = m->funcs; f; f = f->next)
        if (!f->is_kernel) capture_step(f);
    for (const Symbol *s = m->symbols; s; s = s->next) hd_count(cx, "capture regions", s->kind == SYM_REGION);
    return CHANGED;
}
