// Recomputed values, as symbols that the report reads: one for all ops of a kind that come from one place and
// line.
//   recomputed @recomputed {op = silu, count = 12, bytes = 805306368, seconds = 0.0002} loc(blocks.0.act, "x.hd", 14)
#include "passes/tensor/recompute.h"
#include "passes/analysis/places.h"

typedef struct {
    const Op *first;
    const char *pattern;
    int64_t count, bytes;
    double seconds;
} Row;
typedef VEC(Row) Rows;

static Row *row_of(Rows *rows, const Op *o, Arena *a) {
    const char *pattern = o->loc.path ? hd_place_pattern(o->func->module->cx, o->loc.path) : NULL;
    for (int i = 0; i < rows->n; i++) {
        const Row *r = &rows->at[i];
        if (r->first->kind == o->kind && r->pattern == pattern && r->first->loc.file == o->loc.file &&
            r->first->loc.line == o->loc.line)
            return &rows->at[i];
    }
    hd_push(a, rows, ((Row){.first = o, .pattern = pattern}));
    return &rows->at[rows->n - 1];
}

void hd_recompute_declare(Module *m, const Costs *c, const bool *copied) {
    const bool *waiting = hd_recompute_waiting(c, NULL);
    Rows rows = {0};
    for (const Op *o = c->f->first; o; o = o->next) {
        if (hd_has(&o->attrs, A_RECOMPUTED) || !copied[o->id] || hd_op_is(o, TRAIT_ALIAS)) continue;
        Row *r = row_of(&rows, o, c->a);
        r->count++;
        r->seconds += c->seconds[o->id] > 0 ? c->seconds[o->id] : 0;
        for (int i = 0; i < o->n_out; i++)
            if (waiting[o->out[i]->id]) r->bytes += hd_type_bytes(o->out[i]->type);
    }
    for (int i = 0; i < rows.n; i++) {
        const Row *r = &rows.at[i];
        Symbol *s = hd_symbol_add(m, SYM_RECOMPUTED, hd_free_name(m, "recomputed"), NULL);
        hd_set_word(m->cx, &s->attrs, A_OP, hd_intern(m->cx, hd_op_info(r->first->kind)->mnemonic));
        hd_set_int(m->cx, &s->attrs, A_COUNT, r->count);
        hd_set_int(m->cx, &s->attrs, A_BYTES, r->bytes);
        hd_set_float(m->cx, &s->attrs, A_SECONDS, r->seconds);
        s->loc = r->first->loc;
    }
}
