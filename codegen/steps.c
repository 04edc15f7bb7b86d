// The steps of a program: which functions run how often, and where each step leaves the numbers that a run reports.
#include "codegen/emit.h"
#include "ir/base/ints.h"

static int64_t state_offset(Emit *e, const Symbol *step, AttrId number) {
    const Symbol *s = step ? hd_symbol_find(e->m, hd_word(&step->attrs, number, "")) : NULL;
    return s && s->kind == SYM_BUFFER && s->place.placed ? s->place.offset : -1;
}

// The streams of a step that overlap, a bit for each.
static unsigned overlaps(Emit *e, const Symbol *step) {
    const Attr *a = step ? hd_attr(&step->attrs, A_OVERLAPS) : NULL;
    unsigned bits = 0;
    for (int i = 0; a && i < a->n; i++) bits |= 1u << hd_emit_stream_index(e, a->strs[i]);
    return bits;
}

// The number that a run reports after each step, where every rank has it; -1: none.
static int64_t logged_offset(Emit *e) {
    const Symbol *s = e->m->symbols;
    while (s && (s->kind != SYM_PARAM || !hd_has(&s->attrs, A_LOGGED))) s = s->next;
    const Symbol *bucket = s ? hd_symbol_find(e->m, hd_word(&s->attrs, A_BUCKET, "")) : NULL;
    if (!bucket) return -1;
    const char *master = hd_word(&bucket->attrs, A_MASTER_WEIGHTS, "");
    return hd_emit_buffer(e, NULL, hd_word(&bucket->attrs, A_NEXT, master), hd_int(&s->attrs, A_OFFSET, 0));
}

// Where a step leaves the further results of its loss, and their names. Returns their number.
static int put_results(Emit *e, const Symbol *step, const char *name) {
    const Attr *at = step ? hd_attr(&step->attrs, A_RESULTS) : NULL;
    const Attr *names = at ? hd_attr(&step->attrs, A_NAMES) : NULL;
    if (!names || !names->n) return 0;
    hd_printf(e->c, "static const HdResult %s_results[] = {\n", name);
    for (int i = 0; i < names->n; i++) {
        const Symbol *s = hd_symbol_find(e->m, at->strs[i]);
        hd_printf(e->c, "    {%s, %lld},\n", hd_emit_quoted(e, names->strs[i]), ll(s->place.offset));
    }
    hd_puts(e->c, "};\n\n");
    return names->n;
}

// Where a step leaves what FP8 loses, and of what. Returns the number of places.
static int put_counts(Emit *e, const Symbol *step, const char *name) {
    const Attr *counted = step ? hd_attr(&step->attrs, A_COUNTED) : NULL;
    if (!counted) return 0;
    hd_printf(e->c, "static const char *const %s_counted[] = {\n", name);
    for (int i = 0; i < counted->n; i++) hd_printf(e->c, "    %s,\n", hd_emit_quoted(e, counted->strs[i]));
    hd_printf(e->c, "};\n\nstatic const int64_t %s_counted_of[] = {", name);
    const Attr *of = hd_attr(&step->attrs, A_COUNTED_OF);
    for (int i = 0; i < of->n; i++) hd_printf(e->c, "%s%lld", i ? ", " : "", ll(of->ints[i]));
    hd_puts(e->c, "};\n\n");
    return counted->n;
}

void hd_program_step(Emit *e, KindId kind, const char *name, Out *field) {
    const Symbol *step = hd_step(e->m, kind);
    const Func *f;
    int64_t times;
    int n = 0;
    if (step) hd_printf(e->c, "static const HdSegment %s_segments[] = {", name);
    for (; (f = hd_segment(e->m, step, n, &times)); n++)
        hd_printf(e->c, "%s{&funcs[%d], %lld}", n ? ", " : "", hd_program_func(e, f), ll(times));
    if (step) hd_puts(e->c, "};\n\n");
    const int results = put_results(e, step, name), counted = put_counts(e, step, name);
    hd_printf(field, "    .%s = {%d, %s, .loss = %lld, .norm = %lld, .counter = %lld, .random = %lld"
                     ", .dropped = %lld, .overlaps = 0x%x", name, n,
              step ? hd_sprintf(e->a, "%s_segments", name) : "0", ll(state_offset(e, step, A_LOSS)),
              ll(state_offset(e, step, A_NORM)), ll(state_offset(e, step, A_COUNTER)),
              ll(state_offset(e, step, A_RANDOM)),
              ll(kind == KIND_TRAIN ? logged_offset(e) : -1), overlaps(e, step));
    if (step && hd_has(&step->attrs, A_HISTORY))
        hd_printf(field, ", .history = %lld", ll(state_offset(e, step, A_HISTORY)));
    if (results) hd_printf(field, ", .n_results = %d, .results = %s_results", results, name);
    if (counted)
        hd_printf(field, ", .n_counted = %d, .counted = %s_counted, .counted_of = %s_counted_of, .counts = %lld",
                  counted, name, name, ll(state_offset(e, step, A_COUNTS)));
    hd_puts(field, "},\n");
}
