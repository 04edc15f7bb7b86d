// Picks the target and prints the parts of the program in order.
#include "codegen/codegen.h"
#include "codegen/emit.h"

static const Target *const targets[] = {&hd_host_target, &hd_cuda_target};

static const Target *find_target(const Module *m) {
    const Attr *a = hd_emit_setting(m, A_TARGET);
    const char *name = a ? a->s : "host";
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(targets[i]->name, name)) return targets[i];
    hd_error(m->cx, (Span){0, 0}, "unknown target %s: choose host or cuda", name);
    return NULL;
}

static void put_constant(Emit *e, const char *name, const char *text) {
    hd_printf(e->c, "static const char %s[] =\n    ", name);
    hd_emit_string(e->c, text, "    ");
    hd_puts(e->c, ";\n\n");
}

bool hd_codegen_c(const Module *m, const ProgramTexts *texts, Out *c, Out *cuda) {
    if (m->stage != STAGE_PLAN)
        return hd_error(m->cx, (Span){0, 0},
                        "codegen reads a plan, but the module is at stage %s: run the pipeline to its end first",
                        hd_stage_text(m->stage));
    const Target *t = find_target(m);
    if (!t) return false;
    Arena *scratch = hd_arena_new();
    Emit e = {.m = m, .cx = m->cx, .a = scratch, .target = t, .c = c, .cuda = cuda, .body = hd_out(scratch)};
    const Attr *model = hd_emit_setting(m, A_MODEL), *source = hd_emit_setting(m, A_SOURCE);
    hd_emit_comment(c, hd_sprintf(scratch,
                                  "%s for target %s%s%s. Each planned function below issues one call an action.",
                                  model ? model->s : "A program", t->name, source ? ", from " : "",
                                  source ? source->s : ""));
    hd_puts(c, "#include \"heddle.h\"\n");
    t->kernels(&e);
    put_constant(&e, "report", texts->report);
    put_constant(&e, "report_text", texts->table);
    put_constant(&e, "timeline", texts->timeline);
    hd_program_functions(&e);
    if (t->finish) t->finish(&e);
    hd_program_tables(&e);
    hd_putn(c, e.body.text, e.body.n);
    hd_program_main(&e);
    hd_arena_free(scratch);
    return !e.failed;
}
