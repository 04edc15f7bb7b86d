// Indices that no op proves to be in range, as tables: runtime/base/indices.h looks at their numbers while the program
// runs with --check.
#include "codegen/emit.h"
#include "ir/base/ints.h"
#include "ir/ranges.h"

// "%26" as the plan prints it, an argument by its name.
static const char *name_of(Emit *e, const Func *f, const Value *v) {
    int number = 0;
    if (!v->def) return hd_sprintf(e->a, "%%%s", v->name);
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) {
            if (o->out[i] == v) return hd_sprintf(e->a, "%%%d", number);
            number += !o->out[i]->into;
        }
    HD_BUG("a value of another function");
}

static int put_use(Emit *e, const Func *f, const Op *o, const IndexUse *use, int action, int n, const char *table) {
    const Value *v = o->in[use->operand];
    if (!n) hd_printf(e->c, "static const HdIndexed %s[] = { // name, address, elements, bounds, action\n", table);
    hd_printf(e->c, "    {%s, %lld, %lld, %lld, %lld, %lld, %d},\n", hd_emit_quoted(e, name_of(e, f, v)),
              ll(v->place.offset), ll(hd_type_count(v->type)), ll(use->low), ll(use->high), ll(use->also), action);
    return n + 1;
}

// As an HdIndexedList.
static const char *put_function(Emit *e, const Func *f, int *all) {
    const char *table = hd_sprintf(e->a, "indexed_%s", hd_emit_identifier(e, f));
    const IndexRange *ranges = hd_index_ranges(e->m, f, e->a);
    int n = 0, action = 0;
    for (const Op *o = f->first; o; o = o->next) {
        const IndexUses uses = hd_index_uses(o, e->a);
        for (int i = 0; i < uses.n; i++)
            if (!hd_index_proved(o, &uses.at[i], ranges)) n = put_use(e, f, o, &uses.at[i], action, n, table);
        action += hd_is_action(o);
    }
    if (!n) return "{0, 0}";
    *all += n;
    hd_puts(e->c, "};\n");
    return hd_sprintf(e->a, "{%d, %s}", n, table);
}

void hd_program_indexed(Emit *e, Out *fields) {
    Out lists = hd_out(e->a);
    int n = 0;
    for (const Func *f = e->m->funcs; f; f = f->next)
        if (!f->is_kernel) hd_printf(&lists, "%s%s", lists.n ? ", " : "", put_function(e, f, &n));
    if (!n) return;
    hd_printf(e->c, "static const HdIndexedList indexed_in[] = {%s};\n\n", lists.text);
    hd_puts(fields, "    .indexed_in = indexed_in,\n");
}
