// The textual form, exactly as parse.c reads it; values are numbered in program order whatever their ids are.
#include "ir/layout.h"

typedef struct { Out *o; const int *number; } Printer; // number: by value id; NULL: the id itself

static void put_list(Out *o, const Attr *a, AttrKind k) {
    hd_puts(o, "[");
    for (int i = 0; i < a->n; i++) {
        if (i) hd_puts(o, ", ");
        if (k == AK_SYMS) hd_puts(o, "@");
        if (k == AK_INTS) hd_put_int(o, a->ints[i]);
        else if (k == AK_FLOATS) hd_put_float(o, a->floats[i]);
        else hd_puts(o, a->strs[i]);
    }
    hd_puts(o, "]");
}

void hd_print_attrs(const Attrs *as, Out *o) {
    hd_puts(o, "{");
    for (int i = 0; i < as->n; i++) {
        const Attr *a = &as->at[i];
        const AttrInfo *info = hd_attr_info(a->id);
        if (i) hd_puts(o, ", ");
        hd_puts(o, info->text);
        if (info->kind == AK_FLAG) continue;
        hd_puts(o, info->kind == AK_SYM ? " = @" : " = ");
        switch (info->kind) {
        case AK_INT: hd_put_int(o, a->i); break;
        case AK_FLOAT: hd_put_float(o, a->f); break;
        case AK_WORD:
        case AK_SYM: hd_puts(o, a->s); break;
        case AK_STR: hd_put_quoted(o, a->s); break;
        default: put_list(o, a, info->kind); break;
        }
    }
    hd_puts(o, "}");
}

static void put_type(const Type *t, Out *o) {
    hd_puts(o, hd_dtype_text(t->dtype));
    for (int i = 0; i < t->rank; i++) {
        hd_puts(o, i ? "," : "[");
        hd_put_int(o, t->dim[i]);
    }
    if (t->rank) hd_puts(o, "]");
}

static void put_layout(Layout l, Out *o) {
    if (!l) return;
    hd_puts(o, " ");
    hd_puts(o, hd_layout_text(o->arena, l));
}

static void put_place(const Place *p, Out *o) {
    if (!p->placed) return;
    hd_puts(o, " @");
    if (p->space) hd_puts(o, hd_space_text(p->space)), hd_puts(o, ":");
    hd_puts(o, "0x");
    hd_put_hex(o, (uint64_t)p->offset);
}

static void put_into(const Value *v, Out *o) {
    hd_puts(o, " {");
    hd_puts(o, hd_attr_info(A_OFFSET)->text);
    hd_puts(o, " = ");
    hd_put_int(o, v->at);
    hd_puts(o, ", ");
    hd_puts(o, hd_attr_info(A_INTO)->text);
    hd_puts(o, " = @");
    hd_puts(o, v->into->name);
    hd_puts(o, "}");
}

static void put_loc(const Loc *l, Out *o) {
    if (!l->path && !l->file) return;
    hd_puts(o, " loc(");
    hd_puts(o, l->path ? l->path : "-");
    if (l->file) {
        hd_puts(o, ", ");
        hd_put_quoted(o, l->file);
        hd_puts(o, ", ");
        hd_put_int(o, l->line);
    }
    hd_puts(o, ")");
}

static void put_value(const Printer *p, const Value *v) {
    hd_puts(p->o, "%");
    if (!v->def) hd_puts(p->o, v->name);
    else hd_put_int(p->o, p->number ? p->number[v->id] : v->id);
}

static void put_op(const Printer *p, const Op *op) {
    Out *o = p->o;
    if (op->stream) {
        hd_puts(o, "[");
        hd_puts(o, op->stream);
        hd_puts(o, "] ");
    }
    bool named = false;
    for (int i = 0; i < op->n_out; i++) {
        if (op->out[i]->into) continue;
        if (named) hd_puts(o, ", ");
        put_value(p, op->out[i]);
        named = true;
    }
    if (named) hd_puts(o, " = ");
    hd_puts(o, hd_op_info(op->kind)->mnemonic);
    for (int i = 0; i < op->n_in; i++) {
        hd_puts(o, i ? ", " : " ");
        put_value(p, op->in[i]);
    }
    if (op->attrs.n) {
        hd_puts(o, " ");
        hd_print_attrs(&op->attrs, o);
    }
    for (int i = 0; i < op->n_out; i++) {
        hd_puts(o, i ? ", " : " : ");
        put_type(op->out[i]->type, o);
        put_layout(op->out[i]->layout, o);
        if (op->out[i]->into) put_into(op->out[i], o);
        else put_place(&op->out[i]->place, o);
    }
    put_loc(&op->loc, o);
}

void hd_print_op(const Op *op, Out *o) {
    Printer p = {o, NULL};
    put_op(&p, op);
}

void hd_print_func(const Func *f, Out *o) {
    Arena *scratch = hd_arena_new();
    int *number = HD_NEWN(scratch, int, f->n_values + 1), n = 0, inside = 0;
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->n_out; i++)
            if (!op->out[i]->into) number[op->out[i]->id] = n++;
    Printer p = {o, number};
    hd_printf(o, "%s @%s(", f->is_kernel ? "kernel" : "func", f->name);
    for (int i = 0; i < f->n_args; i++) {
        hd_printf(o, "%s%%%s: ", i ? ", " : "", f->args[i]->name);
        put_type(f->args[i]->type, o);
        put_layout(f->args[i]->layout, o);
        put_place(&f->args[i]->place, o);
    }
    hd_puts(o, ")");
    const Op *ret = hd_return(f);
    for (int i = 0; ret && i < ret->n_in; i++) {
        hd_puts(o, i ? ", " : " -> ");
        put_type(ret->in[i]->type, o);
    }
    if (f->attrs.n) {
        hd_puts(o, " with ");
        hd_print_attrs(&f->attrs, o);
    }
    hd_puts(o, " {\n");
    for (const Op *op = f->first; op; op = op->next) { // the ops of a capture region are indented
        if (hd_op_is(op, TRAIT_CLOSES) && inside) inside--;
        hd_puts(o, inside ? "    " : "  ");
        put_op(&p, op);
        hd_puts(o, "\n");
        inside += hd_op_is(op, TRAIT_OPENS);
    }
    hd_puts(o, "}\n");
    hd_arena_free(scratch);
}

static void put_module(const Module *m, Out *o) {
    hd_printf(o, "stage %s\n", hd_stage_text(m->stage));
    for (const Symbol *s = m->symbols; s; s = s->next) {
        hd_printf(o, "%s @%s", hd_symbol_keyword(s->kind), s->name);
        if (s->type) {
            hd_puts(o, " : ");
            put_type(s->type, o);
            put_layout(s->layout, o);
        }
        if (s->attrs.n) {
            hd_puts(o, " ");
            hd_print_attrs(&s->attrs, o);
        }
        put_place(&s->place, o);
        put_loc(&s->loc, o);
        hd_puts(o, "\n");
    }
    for (const Func *f = m->funcs; f; f = f->next) hd_print_func(f, o);
}

const char *hd_fingerprint(const Module *m) {
    const Symbol *model = hd_symbol_find(m, "model");
    return model && model->kind == SYM_CONFIG ? hd_word(&model->attrs, A_FINGERPRINT, NULL) : NULL;
}

const char *hd_seal(const Module *m, Arena *a) {
    Out o = hd_out(a);
    put_module(m, &o);
    return hd_hash(a, o.text, o.n);
}

void hd_print_module(const Module *m, Out *o) {
    const size_t start = o->n;
    put_module(m, o);
    if (hd_fingerprint(m)) hd_printf(o, "seal %s\n", hd_hash(o->arena, o->text + start, o->n - start));
}
