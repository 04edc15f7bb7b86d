// Code common to both kinds of host kernels, and the order in which kernels are printed.
#include "codegen/host/host.h"

static bool converted(DType d) { return hd_dtype_is_float(d) && hd_dtype_computed(d) != d; }

const char *hd_host_load(Arena *a, DType d, const char *place) {
    return converted(d) ? hd_sprintf(a, "hd_from_%s(%s)", hd_dtype_text(d), place) : place;
}

const char *hd_host_store(Arena *a, DType d, DType from, const char *value) {
    if (converted(d)) return hd_sprintf(a, "hd_to_%s(%s%s)", hd_dtype_text(d), from == TY_F32 ? "" : "(float)", value);
    if (d == from) return value;
    return hd_sprintf(a, "(%s)%s", hd_emit_ctype(d), value);
}

int hd_host_launches(const Module *m, const Func *k, const Op **first) {
    int n = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            if (hd_launched(o) == k && !n++ && first)
                *first = o;
    return n;
}

void hd_host_open(Emit *e, const Func *k, bool workspace) {
    Out *o = e->c;
    const Op *r = hd_return(k);
    const Op *l = NULL;
    int launches = hd_host_launches(e->m, k, &l), n_out = r ? r->n_in : 0;
    Out about = hd_out(e->a);
    for (const Op *p = k->first; p && !hd_op_is(p, TRAIT_RETURN); p = p->next)
        hd_printf(&about, "%s%s", p == k->first ? "" : ", ", hd_op_info(p->kind)->mnemonic);
    if (l && l->loc.path) hd_printf(&about, "; %s", l->loc.path);
    if (launches > 1) hd_printf(&about, " and %d more launches", launches - 1);
    hd_emit_comment(o, about.text);
    hd_printf(o, "static void %s(", hd_emit_kernel_name(e, k));
    for (int i = 0; i < k->n_args; i++) hd_printf(o, "%sconst void *p%d", i ? ", " : "", i);
    for (int i = 0; i < n_out; i++) hd_printf(o, "%svoid *q%d", i || k->n_args ? ", " : "", i);
    hd_printf(o, "%s) {\n", workspace ? ", void *workspace" : "");
    for (int i = 0; i < k->n_args; i++)
        hd_printf(o, "    const %s *const a%d = p%d; // %s\n", hd_emit_ctype(k->args[i]->type->dtype), i, i,
                  hd_type_text(e->cx, k->args[i]->type));
    for (int i = 0; i < n_out; i++)
        hd_printf(o, "    %s *const r%d = q%d; // %s\n", hd_emit_ctype(r->in[i]->type->dtype), i, i,
                  hd_type_text(e->cx, r->in[i]->type));
}
