// Mixtures of experts, in both forms of the report: what the parameters of grouped products take of a rank's memory,
// and the dispatched rows that wait for the backward pass in it.
#include "passes/report/facts.h"
#include "passes/settings.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include <string.h>

// The buffer that a weight is a view of; NULL: it is something else.
static const Op *view_of(const Value *v) {
    const Op *o = v->def;
    while (o && hd_op_is(o, TRAIT_ALIAS) && !hd_op_is(o, TRAIT_SOURCE)) o = o->in[0]->def;
    return o && hd_op_is(o, TRAIT_SOURCE) ? o : NULL;
}

static const Symbol *param_at(const Module *m, const char *bucket, int64_t at) {
    for (const Symbol *s = m->symbols; s; s = s->next) {
        const int64_t from = hd_int(&s->attrs, A_OFFSET, 0);
        if (s->kind == SYM_PARAM && !strcmp(hd_word(&s->attrs, A_BUCKET, ""), bucket) && at >= from &&
            at < from + hd_type_count(s->type))
            return s;
    }
    return NULL;
}

// Its part of what persists, by class. A bucket's buffers hold all of it, or equal parts on every rank.
static void add_param(const Module *m, const Symbol *p, Experts *x) {
    const char *name = hd_word(&p->attrs, A_BUCKET, "");
    const Symbol *bucket = hd_symbol_find(m, name);
    const int64_t all = bucket && bucket->type ? hd_type_count(bucket->type) : 0, own = hd_type_count(p->type);
    const Mesh mesh = hd_mesh(m);
    x->parameters += hd_type_count(hd_type_whole(m->cx, p->type, p->layout, &mesh));
    for (const Symbol *s = m->symbols; s && all; s = s->next) {
        if (s->kind != SYM_BUFFER || !s->type || hd_has(&s->attrs, A_TRANSIENT)) continue;
        if (strcmp(hd_word(&s->attrs, A_BUCKET, ""), name) != 0) continue;
        for (int c = 0; c < N_CLASSES; c++)
            if (!strcmp(hd_word(&s->attrs, A_CLASS, ""), hd_report_class_text[c]))
                x->bytes[c] += (int64_t)((double)hd_type_bytes(s->type) * (double)own / (double)all);
    }
}

// --- rows


// Rows by expert: taken by a dispatch, products of them, and what is computed of each row.
static void mark_rows(const Func *f, bool *rows) {
    for (const Op *o = f->first; o; o = o->next) {
        const bool ends = o->kind == OP_COMBINE || o->kind == OP_GROUPED_GRAD || hd_op_is(o, TRAIT_COPIES);
        for (int i = 0; i < o->n_out; i++) {
            bool is = o->kind == OP_GROUPED || (o->kind == OP_TAKE && hd_dispatch_of(o->in[1], 0));
            for (int k = 0; k < o->n_in; k++)
                is |= rows[o->in[k]->id] && hd_type_rows(o->in[k]->type) == hd_type_rows(o->out[i]->type);
            rows[o->out[i]->id] = is && !ends && hd_dtype_is_float(o->out[i]->type->dtype);
        }
    }
}

static int64_t kept_rows(const Func *f, Arena *a) {
    bool *rows = HD_NEWN(a, bool, f->n_values + 1), *needed = HD_NEWN(a, bool, f->n_values + 1);
    int64_t bytes = 0;
    mark_rows(f, rows);
    for (const Op *o = f->last; o; o = o->prev) {
        const bool bwd = hd_has(&o->attrs, A_BWD), alias = hd_is_alias(o);
        for (int i = 0; i < o->n_out; i++)
            if (!bwd && !alias && rows[o->out[i]->id] && needed[o->out[i]->id])
                bytes += hd_align(hd_type_bytes(o->out[i]->type));
        for (int i = 0; i < o->n_in; i++) needed[o->in[i]->id] |= alias ? needed[o->out[0]->id] : bwd;
    }
    return bytes;
}

// How tokens travel, where schedule.experts is exchange or auto.
static void find_transport(const Module *m, Experts *x) {
    const Attrs *schedule = hd_settings(m, "schedule");
    const Attr *moved = hd_attr(schedule, A_MOVED);
    if (!moved || moved->n != 2) return;
    const bool set = !strcmp(hd_word(schedule, A_TRANSPORT, ""), "exchange");
    x->gathered = moved->ints[0], x->moved = moved->ints[1];
    x->exchanged = set || x->moved < x->gathered;
    x->why = set            ? "schedule.experts = exchange"
             : x->exchanged ? "an exchange moves fewer bytes"
                            : "an exchange with this bound moves no fewer bytes";
}

void hd_report_experts(const Module *m, Facts *r, Arena *a) {
    bool *known = HD_NEWN(a, bool, m->n_symbols + 1);
    find_transport(m, &r->experts);
    for (const Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel || hd_kind(&f->attrs) != KIND_MICRO) continue;
        for (const Op *o = f->first; o; o = o->next) {
            const Op *view = o->kind == OP_GROUPED ? view_of(o->in[1]) : NULL;
            const Symbol *b = view ? hd_named(view, A_BUFFER) : NULL;
            const Symbol *p =
                b ? param_at(m, hd_word(&b->attrs, A_BUCKET, ""), hd_int(&view->attrs, A_OFFSET, 0)) : NULL;
            if (!p || known[p->id]) continue;
            known[p->id] = true;
            add_param(m, p, &r->experts);
        }
        const int64_t rows = kept_rows(f, a);
        if (rows > r->experts.rows) r->experts.rows = rows;
    }
}

// --- text

void hd_report_experts_json(const Facts *r, Out *o) {
    if (!r->experts.parameters) return;
    hd_put_json(o, "  \"experts\": {\"parameters\": %lld, \"kept_rows_bytes\": %lld, \"classes\": {",
                ll(r->experts.parameters), ll(r->experts.rows));
    for (int c = 0, n = 0; c < N_CLASSES; c++)
        if (r->experts.bytes[c])
            hd_put_json(o, "%s\"%s\": %lld", n++ ? ", " : "", hd_report_class_text[c], ll(r->experts.bytes[c]));
    hd_puts(o, "}");
    if (r->experts.gathered)
        hd_put_json(o, ", \"transport\": \"%s\", \"why\": \"%s\", \"gathered_bytes\": %lld, \"moved_bytes\": %lld",
                    r->experts.exchanged ? "exchange" : "gather", r->experts.why, ll(r->experts.gathered),
                    ll(r->experts.moved));
    hd_puts(o, "},\n");
}

void hd_report_experts_text(const Facts *r, Out *o) {
    if (!r->experts.parameters) return;
    hd_show(o, "\nexperts: %lld parameters; of the bytes above they take", ll(r->experts.parameters));
    for (int c = 0; c < N_CLASSES; c++)
        if (r->experts.bytes[c]) hd_show(o, " %lld of %s,", ll(r->experts.bytes[c]), hd_report_class_text[c]);
    hd_show(o, " and their rows %lld while they wait for the backward pass\n", ll(r->experts.rows));
    if (r->experts.gathered)
        hd_show(o,
                "tokens: a rank receives %lld bytes of them in a micro-batch by %s (%s), and %lld if they are "
                "gathered\n",
                ll(r->experts.moved), r->experts.exchanged ? "exchange" : "a gather", r->experts.why,
                ll(r->experts.gathered));
}
