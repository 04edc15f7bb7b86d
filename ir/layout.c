// Layouts as data and as text, and what they say about types.
#include "ir/layout.h"
#include "ir/base/ints.h"

Layout hd_layout_with(Layout l, int axis, int at) {
    const int shift = LAYOUT_BITS * axis;
    return (l & ~((((Layout)1 << LAYOUT_BITS) - 1) << shift)) | (Layout)at << shift;
}

int64_t hd_uneven_part(int64_t size, int64_t ranks) {
    const int64_t part = hd_ceil_div(size, ranks), round = hd_ceil_div(part, 64) * 64;
    const int64_t more = round * ranks - size;
    if (more < round && more <= size / 32) return round;
    return part * (ranks - 1) < size ? part : 0;
}

int64_t hd_part_of_size(int64_t size, int64_t ranks) {
    return size % ranks ? hd_uneven_part(size, ranks) : size / ranks;
}

Axes hd_layout_axes(Layout l) {
    Axes axes = 0;
    for (int a = 0; a < N_AXES; a++) axes |= (hd_layout_at(l, a) != LAYOUT_WHOLE ? 1u : 0u) << a;
    return axes;
}

const char *hd_layout_word(int at) {
    return at == LAYOUT_SUM ? "sum" : at == LAYOUT_EVERY ? "every" : at == LAYOUT_ROUTED ? "routed" :
           at == LAYOUT_SENT ? "sent" : NULL;
}

const char *hd_layout_text(Arena *arena, Layout l) {
    Out o = hd_out(arena);
    for (int a = 0; a < N_AXES; a++) {
        const int at = hd_layout_at(l, a);
        if (at == LAYOUT_WHOLE) continue;
        hd_printf(&o, "%s%s: ", o.n ? ", " : "over {", hd_axis_name(a));
        if (hd_layout_uneven(at)) hd_puts(&o, "uneven ");
        if (hd_layout_dim(at) < 0) hd_puts(&o, hd_layout_word(at));
        else hd_put_int(&o, hd_layout_dim(at));
    }
    if (!o.n) return "whole";
    hd_puts(&o, "}");
    return o.text;
}

const Type *hd_type_whole(Ctx *cx, const Type *part, Layout l, const Mesh *mesh) {
    Type t = *part;
    for (int a = 0; l && a < N_AXES; a++) {
        const int at = hd_layout_at(l, a), d = hd_layout_dim(at);
        if (hd_layout_stacks(a, at)) {
            if (!t.rank || t.dim[0] % mesh->size[a]) return NULL;
            t.dim[0] /= mesh->size[a];
        }
        if (d < 0) continue;
        if (d >= t.rank) return NULL;
        if (hd_layout_uneven(at)) {
            const int64_t size = mesh->uneven, ranks = mesh->size[a];
            if (size % ranks == 0 || t.dim[d] != hd_uneven_part(size, ranks)) return NULL;
            t.dim[d] = size;
        } else if (__builtin_mul_overflow(t.dim[d], mesh->size[a], &t.dim[d])) {
            return NULL;
        }
    }
    return l ? hd_type(cx, t.dtype, t.rank, t.dim) : part;
}

const Type *hd_type_part(Ctx *cx, const Type *whole, Layout l, const Mesh *mesh) {
    Type t = *whole;
    for (int a = 0; l && a < N_AXES; a++) {
        const int at = hd_layout_at(l, a), d = hd_layout_dim(at);
        if (hd_layout_stacks(a, at) && (!t.rank || __builtin_mul_overflow(t.dim[0], mesh->size[a], &t.dim[0])))
            return NULL;
        if (d < 0) continue;
        if (d >= t.rank) return NULL;
        if (hd_layout_uneven(at) ? t.dim[d] != mesh->uneven : t.dim[d] % mesh->size[a] != 0) return NULL;
        t.dim[d] = hd_part_of_size(t.dim[d], mesh->size[a]);
    }
    return l ? hd_type(cx, t.dtype, t.rank, t.dim) : whole;
}

// --- the check

typedef struct { const Module *m; const Func *f; Mesh mesh; Arena *a; } Check;

static void wrong(const Check *c, const Op *o, const char *what) {
    Ctx *cx = c->m->cx;
    Out t = hd_out(c->a);
    if (!o->span.lo) hd_print_op(o, &t);
    hd_error(cx, o->span, "%s%s%s", t.n ? t.text : "", t.n ? ": " : "", what);
}

static const char *impossible(const Check *c, Layout l, const Type *t) {
    for (int a = 0; a < N_AXES; a++) {
        const int at = hd_layout_at(l, a);
        if (hd_layout_dim(at) >= t->rank)
            return hd_internf(c->m->cx, "%s has no dimension %d to be split along over %s", hd_type_text(c->m->cx, t),
                              hd_layout_dim(at), hd_axis_name(a));
        if (hd_layout_uneven(at) && !hd_type_whole(c->m->cx, t, hd_layout_with(0, a, at), &c->mesh))
            return hd_internf(c->m->cx, "%s is not the part that a rank has of %lld along dimension %d over %s",
                              hd_type_text(c->m->cx, t), ll(c->mesh.uneven), hd_layout_dim(at), hd_axis_name(a));
        if (at != LAYOUT_WHOLE && c->mesh.size[a] == 1)
            return hd_internf(c->m->cx, "%s is over %s, along which the mesh has one rank", hd_type_text(c->m->cx, t),
                              hd_axis_name(a));
        if (at > LAYOUT_SUM && !hd_layout_uneven(at) && !hd_layout_stacks(a, at))
            return hd_internf(c->m->cx, "%s is %s over %s: ranks along it own no experts", hd_type_text(c->m->cx, t),
                              hd_layout_word(at), hd_axis_name(a));
        if (hd_layout_stacks(a, at) && (!t->rank || t->dim[0] % c->mesh.size[a]))
            return hd_internf(c->m->cx, "%s is not that of %lld ranks along %s, one behind the other",
                              hd_type_text(c->m->cx, t), ll(c->mesh.size[a]), hd_axis_name(a));
        if (at == LAYOUT_SUM && !hd_dtype_is_float(t->dtype))
            return hd_internf(c->m->cx, "a partial sum needs floating point, not %s", hd_type_text(c->m->cx, t));
    }
    return hd_type_whole(c->m->cx, t, l, &c->mesh) ? NULL : "the whole of it exceeds what a type may be";
}

static bool is_whole(const Op *o) {
    Layout any = 0;
    for (int i = 0; i < o->n_in; i++) any |= o->in[i]->layout;
    for (int i = 0; i < o->n_out; i++) any |= o->out[i]->layout;
    const Symbol *p = hd_named(o, A_PARAM);
    return !(any | (p ? p->layout : 0)) && !hd_op_is(o, TRAIT_COLLECTIVE) && !hd_has(&o->attrs, A_OVER);
}

static bool check_axis(const Check *c, const Op *o, int axis) {
    int in[HD_MAX_IN], out[HD_MAX_IN] = {0};
    for (int i = 0; i < o->n_in; i++) in[i] = hd_layout_at(o->in[i]->layout, axis);
    const char *e = hd_spread(o, axis, in, out);
    for (int i = 0; !e && i < o->n_out; i++) {
        const int is = hd_layout_at(o->out[i]->layout, axis);
        if (is == out[i]) continue;
        e = hd_internf(c->m->cx, "result %d is %s, and what it is computed from makes it %s", i,
                       hd_layout_text(c->a, hd_layout_with(0, axis, is)),
                       hd_layout_text(c->a, hd_layout_with(0, axis, out[i])));
    }
    if (e) wrong(c, o, e);
    return !e;
}

static void check_op(const Check *c, const Op *o) {
    bool ok = true;
    if (is_whole(o)) return;
    for (int i = 0; i < o->n_in; i++) // reported where it is defined
        if (impossible(c, o->in[i]->layout, o->in[i]->type)) return;
    for (int i = 0; ok && i < o->n_out; i++) {
        const char *e = impossible(c, o->out[i]->layout, o->out[i]->type);
        if (e) wrong(c, o, hd_internf(c->m->cx, "result %d: %s", i, e));
        ok = !e;
    }
    for (int a = 0; ok && a < N_AXES; a++)
        if (c->mesh.size[a] > 1) ok = check_axis(c, o, a);
}

void hd_layout_check(const Module *m) {
    Check c = {.m = m, .mesh = hd_mesh(m), .a = hd_arena_new()};
    const int errors = m->cx->diags.errors;
    for (const Symbol *s = m->symbols; s; s = s->next) {
        const char *e = s->layout && s->type ? impossible(&c, s->layout, s->type) : NULL;
        for (int a = 0; !e && a < N_AXES; a++)
            if (hd_layout_word(hd_layout_at(s->layout, a)))
                e = hd_internf(m->cx, "only a value can be `%s`", hd_layout_word(hd_layout_at(s->layout, a)));
        if (e) hd_error(m->cx, s->span, "%s @%s: %s", hd_symbol_keyword(s->kind), s->name, e);
    }
    const bool ok = m->cx->diags.errors == errors;
    for (const Func *f = m->funcs; ok && f && m->stage == STAGE_TENSOR; f = f->next) {
        if (f->is_kernel) continue;
        c.f = f;
        for (int i = 0; i < f->n_args; i++) {
            const char *e = f->args[i]->layout ? impossible(&c, f->args[i]->layout, f->args[i]->type) : NULL;
            if (e) hd_error(m->cx, f->span, "argument %%%s of @%s: %s", f->args[i]->name, f->name, e);
        }
        for (const Op *o = f->first; o; o = o->next) check_op(&c, o);
    }
    hd_arena_free(c.a);
}
