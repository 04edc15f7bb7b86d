// Places: arenas and buffers of the module; values and workspaces of a function. Everything is inside its arena.
// Buffers that persist are disjoint from each other and from everything else, except for values that are stored in
// them. A transient buffer is used in one function, where verify_contents follows its bytes.
#include "passes/analysis/live.h"
#include "passes/verify/verify_plan.h"
#include "ir/base/ints.h"

static void check_arenas(PlanCheck *c) {
    const Symbol *device = NULL;
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        if (s->kind != SYM_ARENA) continue;
        if (strcmp(s->name, "device") == 0) device = s, c->arena_bytes = hd_int(&s->attrs, A_BYTES, 0);
        else if (strcmp(s->name, "host") == 0) c->pinned_bytes = hd_int(&s->attrs, A_BYTES, 0);
        else hd_plan_wrong(c, NULL, s->span, "arena @%s is neither @device nor @host", s->name);
    }
    if (!device) {
        hd_plan_wrong(c, NULL, (Span){0}, "the plan has no arena @device: run plan-memory");
        return;
    }
    int64_t bound = hd_int(&device->attrs, A_LOWER_BOUND_BYTES, 0);
    c->persistent = hd_int(&device->attrs, A_PERSISTENT_BYTES, 0);
    if (bound > c->arena_bytes)
        hd_plan_wrong(c, NULL, device->span, "arena @device: a lower bound of %lld bytes is above its %lld bytes",
                      ll(bound), ll(c->arena_bytes));
    if (c->persistent > c->arena_bytes) hd_plan_wrong(c, NULL, device->span,
        "arena @device: %lld persistent bytes are more than its %lld bytes", ll(c->persistent), ll(c->arena_bytes));
}

static int64_t buffer_end(const Symbol *s) { return s->place.offset + hd_type_bytes(s->type); }

static void check_buffers(PlanCheck *c) {
    int n = 0;
    for (const Symbol *s = c->m->symbols; s; s = s->next) n += s->kind == SYM_BUFFER;
    c->buffers = HD_NEWN(c->a, const Symbol *, n + 1);
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER) continue;
        if (!s->type || !s->place.placed) {
            hd_plan_wrong(c, NULL, s->span, "buffer @%s has no address", s->name);
            continue;
        }
        bool transient = hd_has(&s->attrs, A_TRANSIENT);
        int64_t lo = s->place.offset, bytes = hd_type_bytes(s->type);
        int64_t top = s->place.host ? c->pinned_bytes : transient ? c->arena_bytes : c->persistent;
        if (lo < 0 || bytes > top - lo) {
            hd_plan_wrong(c, NULL, s->span, "buffer @%s at [0x%llx, 0x%llx) is outside the %lld %sbytes of its arena",
                          s->name, ll(lo), (unsigned long long)lo + (unsigned long long)bytes, ll(top),
                          transient ? "" : "persistent ");
            continue;
        }
        if (lo % HD_ALIGN)
            hd_plan_wrong(c, NULL, s->span, "buffer @%s at 0x%llx does not start at a multiple of %d bytes", s->name,
                          ll(lo), HD_ALIGN);
        if (transient && lo < c->persistent)
            hd_plan_wrong(c, NULL, s->span, "transient buffer @%s at 0x%llx is among the %lld bytes that persist",
                          s->name, ll(lo), ll(c->persistent));
        if (s->place.host || transient) continue;
        int i = c->n_buffers++;
        for (; i > 0 && c->buffers[i - 1]->place.offset > lo; i--) c->buffers[i] = c->buffers[i - 1];
        c->buffers[i] = s;
    }
    for (int i = 1; i < c->n_buffers; i++) {
        const Symbol *p = c->buffers[i - 1], *s = c->buffers[i];
        if (buffer_end(p) > s->place.offset)
            hd_plan_wrong(c, NULL, s->span, "buffers @%s [0x%llx, 0x%llx) and @%s [0x%llx, 0x%llx) overlap", p->name,
                          ll(p->place.offset), ll(buffer_end(p)), s->name, ll(s->place.offset), ll(buffer_end(s)));
    }
}

// A transient buffer belongs to one function.
static void check_users(PlanCheck *c) {
    static const AttrId names[] = {A_BUFFER, A_INTO, A_GRADIENT, A_BUFFERS};
    const Func **user = HD_NEWN(c->a, const Func *, c->m->n_symbols + 1);
    for (const Func *f = c->m->funcs; f; f = f->next)
        for (const Op *o = f->first; o && !f->is_kernel; o = o->next)
            for (int i = 0; i < 4; i++) {
                const Attr *at = hd_attr(&o->attrs, names[i]);
                for (int k = 0; at && k < (names[i] == A_BUFFERS ? at->n : 1); k++) {
                    const Symbol *s = hd_symbol_find(c->m, names[i] == A_BUFFERS ? at->strs[k] : at->s);
                    if (!s || !hd_has(&s->attrs, A_TRANSIENT)) continue;
                    if (user[s->id] && user[s->id] != f)
                        hd_plan_wrong(c, NULL, o->span, "transient buffer @%s is used in @%s and in @%s", s->name,
                                      user[s->id]->name, f->name);
                    user[s->id] = f;
                }
            }
}

// An argument of one name and type has one address in all functions, so that the caller can write it once.
static void check_arguments(PlanCheck *c) {
    for (const Func *f = c->m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        for (const Func *g = c->m->funcs; g != f; g = g->next)
            for (int i = 0; !g->is_kernel && i < f->n_args; i++)
                for (int k = 0; k < g->n_args; k++) {
                    const Value *v = f->args[i], *w = g->args[k];
                    if (v->name == w->name && v->type == w->type && v->place.offset != w->place.offset)
                        hd_plan_wrong(c, NULL, f->span, "argument %%%s is at 0x%llx in @%s and at 0x%llx in @%s",
                                      v->name, ll(v->place.offset), f->name, ll(w->place.offset), g->name);
                }
    }
}

void hd_check_places(PlanCheck *c) {
    check_arenas(c);
    check_buffers(c);
    check_users(c);
    check_arguments(c);
}

// --- values of one function

static const Symbol *buffer_under(const PlanCheck *c, int64_t lo, int64_t hi) {
    int a = 0, b = c->n_buffers; // the first buffer that ends after lo
    while (a < b) {
        int mid = a + (b - a) / 2;
        if (buffer_end(c->buffers[mid]) <= lo) a = mid + 1;
        else b = mid;
    }
    return a < c->n_buffers && c->buffers[a]->place.offset < hi ? c->buffers[a] : NULL;
}

static bool in_arena(PlanCheck *c, const Op *o, const char *what, int64_t lo, int64_t bytes, bool host) {
    int64_t top = host ? c->pinned_bytes : c->arena_bytes;
    if (lo >= 0 && bytes <= top - lo) return true;
    hd_plan_wrong(c, o, c->f->span, "has %s at [0x%llx, 0x%llx), outside the arena of %lld bytes", what, ll(lo),
                  (unsigned long long)lo + (unsigned long long)bytes, ll(top));
    return false;
}

static void value_in_arena(PlanCheck *c, const Op *o, const Value *v) {
    in_arena(c, o, hd_plan_value(c, v), v->place.offset, hd_type_bytes(v->type), v->place.host);
}

// The bytes of a buffer that a value may be in because a store in place puts it there.
typedef struct { const Value *root; int64_t at; } Stored;

static void own_place(PlanCheck *c, const Op *o, const Value *v, const Stored *stored) {
    int64_t lo = v->place.offset, bytes = hd_type_bytes(v->type);
    const char *name = hd_plan_value(c, v);
    if (bytes == 0 || v->place.host) return;
    if (stored[v->id].root) {
        if (lo != stored[v->id].at)
            hd_plan_wrong(c, o, v->func->span, "has %s at 0x%llx, but the store in place puts it at 0x%llx", name,
                          ll(lo), ll(stored[v->id].at));
        return;
    }
    const Symbol *b = buffer_under(c, lo, lo + bytes);
    if (b)
        hd_plan_wrong(c, o, v->func->span,
                      "has %s at [0x%llx, 0x%llx), inside buffer @%s, and no store in place puts it there", name,
                      ll(lo), ll(lo + bytes), b->name);
    if (lo % HD_ALIGN)
        hd_plan_wrong(c, o, v->func->span, "has %s at 0x%llx, not a multiple of %d bytes", name, ll(lo), HD_ALIGN);
}

static void result_place(PlanCheck *c, const Op *o, int i, const Stored *stored) {
    const Value *v = o->out[i], *of = NULL;
    if (!v->place.placed) {
        hd_plan_wrong(c, o, o->span, "gives %s no address", hd_plan_value(c, v));
        return;
    }
    int64_t at = v->place.offset;
    if (hd_op_is(o, TRAIT_SOURCE)) {
        const Symbol *b = hd_symbol_find(c->m, hd_word(&o->attrs, A_BUFFER, ""));
        if (!b || b->kind != SYM_BUFFER) return;
        int64_t from = hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype);
        if (from < 0 || from + hd_type_bytes(v->type) > hd_type_bytes(b->type)) hd_plan_wrong(c, o, o->span,
            "looks at bytes [%lld, %lld) of buffer @%s of %lld", ll(from), ll(from + hd_type_bytes(v->type)), b->name,
            ll(hd_type_bytes(b->type)));
        if (at != b->place.offset + from || v->place.host != b->place.host)
            hd_plan_wrong(c, o, o->span, "has %s at 0x%llx, but that part of @%s is at 0x%llx", hd_plan_value(c, v),
                          ll(at), b->name, ll(b->place.offset + from));
        return;
    }
    int64_t k = hd_int(&o->attrs, A_INPLACE, 0);
    if (hd_op_is(o, TRAIT_ALIAS)) of = o->in[0];
    else if (i == hd_inplace_result(o)) of = k >= 0 && k < o->n_in ? o->in[k] : NULL;
    if (!of) {
        own_place(c, o, v, stored);
        return;
    }
    if (at != of->place.offset || v->place.host != of->place.host)
        hd_plan_wrong(c, o, o->span, "has %s at 0x%llx, but it is the same storage as %s at 0x%llx",
                      hd_plan_value(c, v), ll(at), hd_plan_value(c, of), ll(of->place.offset));
    if (hd_type_bytes(v->type) > hd_type_bytes(of->type))
        hd_plan_wrong(c, o, o->span, "has %s of %lld bytes in the %lld bytes of %s", hd_plan_value(c, v),
                      ll(hd_type_bytes(v->type)), ll(hd_type_bytes(of->type)), hd_plan_value(c, of));
}

static void check_op(PlanCheck *c, const Op *o, const Stored *stored) {
    const Symbol *s = o->stream ? hd_symbol_find(c->m, o->stream) : NULL;
    if (!o->stream) hd_plan_wrong(c, o, o->span, "runs on no stream");
    else if (!s || s->kind != SYM_STREAM)
        hd_plan_wrong(c, o, o->span, "runs on stream %s, which the plan does not declare", o->stream);
    for (int i = 0; i < o->n_out; i++) result_place(c, o, i, stored);
    if (hd_has(&o->attrs, A_INPLACE) && o->kind != OP_STORE) {
        int64_t k = hd_int(&o->attrs, A_INPLACE, 0);
        if (k < 0 || k >= o->n_in)
            hd_plan_wrong(c, o, o->span, "is in place of operand %lld and has %d", ll(k), o->n_in);
        else if (o->kind == OP_LAUNCH && !hd_launch_may_overwrite(o, (int)k)) hd_plan_wrong(c, o, o->span,
            "writes over its operand %lld, but its kernel does not read and write that one element by element", ll(k));
    }
    int64_t bytes = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0), at = hd_int(&o->attrs, A_WORKSPACE_AT, -1);
    if (bytes <= 0) return;
    if (!hd_has(&o->attrs, A_WORKSPACE_AT))
        hd_plan_wrong(c, o, o->span, "needs a workspace of %lld bytes and has no address for it", ll(bytes));
    else if (in_arena(c, o, "its workspace", at, bytes, false)) {
        const Symbol *b = buffer_under(c, at, at + bytes);
        if (b)
            hd_plan_wrong(c, o, o->span, "has its workspace at [0x%llx, 0x%llx), inside buffer @%s", ll(at),
                          ll(at + bytes), b->name);
        if (at % HD_ALIGN)
            hd_plan_wrong(c, o, o->span, "has its workspace at 0x%llx, not a multiple of %d bytes", ll(at), HD_ALIGN);
    }
}

// The places of storages that are stored in place.
static Stored *find_stored(PlanCheck *c, const Home *homes) {
    Stored *stored = HD_NEWN(c->a, Stored, c->f->n_values + 1);
    for (const Op *o = c->f->first; o; o = o->next) {
        if (o->kind != OP_STORE || !hd_has(&o->attrs, A_INPLACE)) continue;
        const Value *root = homes[o->in[0]->id].root;
        const Symbol *b = hd_symbol_find(c->m, hd_word(&o->attrs, A_INTO, ""));
        if (hd_has(&o->attrs, A_ACCUMULATE))
            hd_plan_wrong(c, o, o->span, "adds to its buffer, so its operand cannot already be there");
        if (!root || !root->def) {
            hd_plan_wrong(c, o, o->span, "is in place, but its operand %s is not made in this function",
                          hd_plan_value(c, o->in[0]));
            continue;
        }
        if (!b || b->kind != SYM_BUFFER) continue;
        if (stored[root->id].root)
            hd_plan_wrong(c, o, o->span, "is the second store in place of %s", hd_plan_value(c, root));
        stored[root->id] =
            (Stored){root, b->place.offset + hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype)};
        if (hd_type_bytes(root->type) != hd_type_bytes(o->in[0]->type) || root->type->dtype != b->type->dtype)
            hd_plan_wrong(c, o, o->span, "stores %s in place, which is another number of bytes than %s",
                          hd_plan_value(c, o->in[0]), hd_plan_value(c, root));
    }
    return stored;
}

void hd_check_values(PlanCheck *c) {
    const Func *f = c->f;
    int before = c->found.n;
    for (int i = 0; i < f->n_args; i++) value_in_arena(c, NULL, f->args[i]);
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++)
            if (o->out[i]->place.placed) value_in_arena(c, o, o->out[i]);
    if (c->found.n > before) return; // sums of such addresses may overflow
    Stored *stored = find_stored(c, hd_homes(f, c->a));
    for (int i = 0; i < f->n_args; i++) {
        const Value *v = f->args[i];
        if (!v->place.placed) hd_plan_wrong(c, NULL, f->span, "argument %%%s has no address", v->name);
        else own_place(c, NULL, v, stored);
        for (int k = 0; k < i; k++) {
            int64_t lo = v->place.offset, hi = lo + hd_type_bytes(v->type), at = f->args[k]->place.offset;
            if (lo < at + hd_type_bytes(f->args[k]->type) && at < hi)
                hd_plan_wrong(c, NULL, f->span, "arguments %%%s and %%%s overlap in [0x%llx, 0x%llx)", f->args[k]->name,
                              v->name, ll(lo > at ? lo : at), ll(hi));
        }
    }
    for (const Op *o = f->first; o; o = o->next) check_op(c, o, stored);
}

void hd_check_live(PlanCheck *c) {
    const Func *f = c->f;
    Live live = hd_live(f, c->a);
    const Symbol *device = hd_symbol_find(c->m, "device");
    int64_t bound = device ? hd_int(&device->attrs, A_LOWER_BOUND_BYTES, c->arena_bytes) : 0;
    if (c->persistent + live.peak > bound)
        hd_plan_wrong(c, live.during, f->span, "has %lld bytes live, more than the declared lower bound of %lld",
                      ll(c->persistent + live.peak), ll(bound));
}
