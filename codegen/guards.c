// The storages of a plan whose arenas say `guard`, as tables: runtime/base/guard.h looks at the bytes around them while
// the program runs with --check.
#include "codegen/emit.h"
#include "ir/homes.h"
#include "ir/base/ints.h"

typedef struct {
    Emit *e;
    const char *table;
    int n;
} Rows;

static void put_storage(Rows *r, const char *name, const Place *p, int64_t bytes, int action) {
    if (bytes <= 0) return;
    if (!r->n++)
        hd_printf(r->e->c, "static const HdGuarded %s[] = { // name, address, bytes, first action; page-locked\n",
                  r->table);
    hd_printf(r->e->c, "    {%s, %lld, %lld, %d, %s},\n", hd_emit_quoted(r->e, name), ll(p->offset), ll(bytes), action,
              p->space ? "true" : "false");
}

// As an HdGuardedList.
static const char *end(Rows *r) {
    if (!r->n) return "{0, 0}";
    hd_puts(r->e->c, "};\n");
    return hd_sprintf(r->e->a, "{%d, %s}", r->n, r->table);
}

static const char *buffer_name(const Rows *r, const Symbol *s) { return hd_sprintf(r->e->a, "buffer @%s", s->name); }

static const char *put_buffers(Emit *e) {
    Rows r = {e, "guarded_buffers", 0};
    for (const Symbol *s = e->m->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER && s->type && !hd_has(&s->attrs, A_TRANSIENT))
            put_storage(&r, buffer_name(&r, s), &s->place, hd_type_bytes(s->type), -1);
    return end(&r);
}

static void put_transient(Rows *r, const Symbol *s, int action, bool *begun) {
    if (!s || !s->type || begun[s->id] || !hd_has(&s->attrs, A_TRANSIENT)) return;
    begun[s->id] = true;
    put_storage(r, buffer_name(r, s), &s->place, hd_type_bytes(s->type), action);
}

// The transient buffers that an op is the first to use.
static void put_begun(Rows *r, const Op *o, int action, bool *begun) {
    for (int i = 0; i < o->attrs.n && !hd_is_alias(o); i++) {
        const bool uses = hd_operand_uses(o->attrs.at[i].id) & (USE_READ | USE_WRITE | USE_RESULT);
        const char *const *names;
        for (int k = 0, n = uses ? hd_names(&o->attrs.at[i], &names) : 0; k < n; k++)
            put_transient(r, hd_symbol_find(r->e->m, names[k]), action, begun);
    }
    for (int i = 0; i < o->n_out; i++) put_transient(r, o->out[i]->into, action, begun);
}

// In the order in which they get their bytes: with the first action that comes after all earlier uses of these bytes.
static const char *put_function(Emit *e, const Func *f) {
    Rows r = {e, hd_sprintf(e->a, "guarded_%s", hd_emit_identifier(e, f)), 0};
    const Home *homes = hd_homes(f, e->a);
    bool *begun = HD_NEWN(e->a, bool, e->m->n_symbols + 1);
    for (int i = 0; i < f->n_args; i++)
        put_storage(&r, hd_sprintf(e->a, "argument %%%s", f->args[i]->name), &f->args[i]->place,
                    hd_type_bytes(f->args[i]->type), -1);
    int action = 0, number = 0;
    for (const Op *o = f->first; o; o = o->next) {
        put_begun(&r, o, action, begun);
        for (int i = 0; i < o->n_out; i++) {
            const Value *v = o->out[i];
            if (v->into) continue;
            if (homes[v->id].root == v && !hd_is_alias(o))
                put_storage(&r, hd_sprintf(e->a, "result %%%d", number), &v->place, hd_type_bytes(v->type), action);
            number++;
        }
        const Place workspace = {.placed = true, .offset = hd_int(&o->attrs, A_WORKSPACE_AT, 0)};
        put_storage(&r, "workspace", &workspace, hd_int(&o->attrs, A_WORKSPACE_BYTES, 0), action);
        action += hd_is_action(o);
    }
    return end(&r);
}

void hd_program_guarded(Emit *e, Out *fields) {
    const Symbol *arena = hd_space_arena(e->m, SPACE_DEVICE);
    const int64_t guard = arena ? hd_int(&arena->attrs, A_GUARD, 0) : 0;
    Out lists = hd_out(e->a);
    if (!guard) return;
    for (const Func *f = e->m->funcs; f; f = f->next)
        if (!f->is_kernel) hd_printf(&lists, "%s%s", lists.n ? ", " : "", put_function(e, f));
    const char *buffers = put_buffers(e);
    hd_printf(e->c, "static const HdGuardedList guarded_in[] = {%s};\n\n", lists.n ? lists.text : "{0, 0}");
    hd_printf(fields, "    .guard = %lld, .guarded = %s, .guarded_in = guarded_in,\n", ll(guard), buffers);
}
