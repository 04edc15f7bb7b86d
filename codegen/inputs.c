// The data that a program reads: a table of the arguments of its loss, and one of each function that it runs by name.
#include "codegen/emit.h"
#include "ir/base/ints.h"
#include "ir/inputs.h"

static void put_input_rows(Emit *e, const Func *f, const char *name) {
    hd_printf(e->c, "static const HdInput %s[] = { // name, type, the argument that it follows, bound, ignored\n",
              name);
    for (int i = 0; i < f->n_args; i++) {
        const Input s = hd_input(e->m, f, i);
        hd_printf(e->c, "    {%s, %s, ", hd_emit_quoted(e, f->args[i]->name), hd_emit_dtype(f->args[i]->type->dtype));
        hd_emit_dims(e->c, f->args[i]->type);
        hd_printf(e->c, ", %d, %lld, %lld},\n", s.next, ll(s.below), ll(s.also));
    }
    hd_puts(e->c, "};\n\n");
}

// The arguments of a step's functions, which all have the same.
int hd_program_inputs(Emit *e) {
    const Symbol *train = hd_step(e->m, KIND_TRAIN);
    const Func *f = NULL, *next;
    int64_t times;
    for (int i = 0; (!f || !f->n_args) && (next = hd_segment(e->m, train, i, &times)); i++) f = next;
    const Attr *batch = hd_emit_setting(e->m, A_BATCH);
    const char *unfed = train ? hd_unfed(e->a, e->cx, f, batch ? batch->i : 0) : NULL;
    if (unfed) hd_warning(e->cx, f ? f->span : train->span, "no run can feed this program: %s", unfed);
    if (!f || !f->n_args) return 0;
    put_input_rows(e, f, "inputs");
    return f->n_args;
}

// The functions that a program runs by name, each with inputs of its own.
void hd_program_calls(Emit *e, Out *fields) {
    const Symbol *step = hd_step(e->m, KIND_CALL);
    const Attr *names = step ? hd_attr(&step->attrs, A_FUNCTIONS) : NULL;
    Out rows = hd_out(e->a);
    for (int i = 0; names && i < names->n; i++) {
        const Func *f = hd_segment(e->m, step, i, NULL);
        put_input_rows(e, f, hd_sprintf(e->a, "inputs_of_call%d", i));
        hd_printf(&rows, "    {%s, %d, inputs_of_call%d},\n", hd_emit_quoted(e, names->strs[i]), f->n_args, i);
    }
    if (!names) return;
    hd_program_step(e, KIND_CALL, "call_step", fields);
    hd_printf(e->c, "static const HdCall calls[] = { // name, inputs\n%s};\n\n", rows.text);
    hd_puts(fields, "    .calls = calls,\n");
}
