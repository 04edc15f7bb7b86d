// What a target needs to round weights at random (ir/rounding.h): the parameters of buckets that are kept in bf16, one
// bucket after another, each as {first element, number, run, ranks}.
#include "codegen/emit.h"
#include "ir/base/ints.h"
#include "ir/rounding.h"

static bool is_rounded(const Emit *e, const Symbol *s) {
    const Symbol *master = hd_symbol_find(e->m, hd_word(&s->attrs, A_MASTER_WEIGHTS, ""));
    return s->kind == SYM_BUCKET && !hd_has(&s->attrs, A_FROZEN) && master && master->type->dtype == TY_BF16;
}

// Appends the rows of a bucket; how many there are.
static int put_rows(Emit *e, const Symbol *bucket, Out *o) {
    const RoundedParam *list;
    const int n = hd_rounded_params(e->m, bucket, e->a, &list);
    for (int i = 0; i < n; i++)
        hd_printf(o, "%s{%lld, %u, %lld, %lld}", o->n ? ", " : "", ll(list[i].at), list[i].number, ll(list[i].run),
                  ll(list[i].ranks));
    return n;
}

const char *hd_emit_rounded(Emit *e) {
    Out o = hd_out(e->a);
    for (const Symbol *s = e->m->symbols; s; s = s->next)
        if (is_rounded(e, s)) put_rows(e, s, &o);
    return o.n ? o.text : "";
}

EmitRounding hd_emit_rounding(Emit *e, const Op *o) {
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS),
                 *bucket = hd_symbol_find(e->m, hd_word(&master->attrs, A_BUCKET, ""));
    Out rows = hd_out(e->a), others = hd_out(e->a);
    EmitRounding r = {.before = "0", .place = "0"};
    for (const Symbol *s = e->m->symbols; s != bucket; s = s->next)
        if (is_rounded(e, s)) r.first += put_rows(e, s, &others);
    r.n = put_rows(e, bucket, &rows);
    r.rows = rows.n ? rows.text : "";
    if (hd_int(&o->attrs, A_RANKS, 1) > 1)
        r.before = hd_sprintf(e->a, "%lldll * hd_number_along(x, %u)", ll(hd_type_count(master->type)),
                              hd_axes(&master->attrs, A_SPLIT));
    if (hd_rounded_over(e->m, bucket))
        r.place = hd_sprintf(e->a, "hd_number_along(x, %u)", hd_rounded_over(e->m, bucket));
    return r;
}
