// See inputs.h. Bounds stand in config @model: `vocab`, or a list `bounds` where arguments differ; a function of kind
// call has its own.
#include "ir/inputs.h"
#include "ir/base/ints.h"
#include <string.h>

static const Type *type_of(const Func *f, int arg) { return f->args[arg]->type; }

int hd_token_argument(const Func *f) {
    for (int i = 0; i < f->n_args; i++)
        if (type_of(f, i)->dtype == TY_I32 && type_of(f, i)->rank == 2) return i;
    return -1;
}

static const Attrs *facts_of(const Module *m) { // config @model
    static const Attrs none = {0};
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_CONFIG && !strcmp(s->name, "model")) return &s->attrs;
    return &none;
}

static int64_t listed(const Attrs *as, AttrId list, int arg, int64_t otherwise) {
    const Attr *a = hd_attr(as, list);
    return a && arg < a->n ? a->ints[arg] : otherwise;
}

Input hd_input(const Module *m, const Func *f, int arg) {
    const int tokens = hd_token_argument(f);
    const bool after = tokens >= 0 && arg == tokens + 1 && type_of(f, arg) == type_of(f, tokens);
    const bool next = after && (f->n_args == 2 || !strcmp(f->args[arg]->name, "targets"));
    Input s = {.next = next ? tokens : -1};
    if (type_of(f, arg)->dtype != TY_I32) return s;
    const Attrs *facts = hd_kind(&f->attrs) == KIND_CALL ? &f->attrs : facts_of(m);
    s.below = listed(facts, A_BOUNDS, arg, hd_int(facts, A_VOCAB, 0));
    s.also = listed(facts, A_IGNORED, arg, 0);
    return s;
}

const char *hd_unfed(Arena *a, Ctx *cx, const Func *f, int64_t batch) {
    if (!f || !f->n_args) return "loss takes no argument, and a step reads no data";
    for (int i = 0; i < f->n_args; i++)
        if (type_of(f, i)->rank < 1 || type_of(f, i)->dim[0] != batch)
            return hd_sprintf(a, "argument '%s' of loss is %s, and data has one row for each of the %lld sequences of "
                                 "a batch: its first dimension must be batch",
                              f->args[i]->name, hd_type_text(cx, type_of(f, i)), ll(batch));
    return NULL;
}
