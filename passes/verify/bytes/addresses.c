// Places: arenas and buffers of the module; values and workspaces of a function. Everything is inside its arena.
// Buffers that persist are disjoint from each other and from everything else, except for results that ops write to
// them. A transient buffer is used in one function, where verify_contents follows its bytes; and so it does those of a
// buffer that is lent, in every function.
//
// Where the arenas say `guard`, all of this holds for the bytes that guard a storage, too.
#include "passes/analysis/alignment.h"
#include "ir/machine/arch.h"
#include "passes/analysis/live.h"
#include "passes/verify/verify_plan.h"
#include "ir/machine/workspace.h"
#include "ir/base/ints.h"
#include "ir/base/search.h"

void hd_plan_guarded(const PlanCheck *c, int64_t *lo, int64_t *hi) {
    if (!c->guard || *lo >= *hi) return;
    *lo -= c->guard;
    *hi = hd_align(*hi) + c->guard;
}

static void check_guard(PlanCheck *c, const Symbol *s) {
    const Symbol *first = hd_space_arena(c->m, SPACE_DEVICE);
    const int64_t guard = hd_int(&s->attrs, A_GUARD, 0), other = first ? hd_int(&first->attrs, A_GUARD, 0) : guard;
    if (guard < 0 || guard % HD_ALIGN)
        hd_plan_wrong(c, NULL, s->span, "arena @%s: guard = %lld is not a multiple of %d bytes", s->name, ll(guard),
                      HD_ALIGN);
    else if (guard != other)
        hd_plan_wrong(c, NULL, s->span, "arena @%s has guard = %lld and arena @%s has %lld: all arenas have one",
                      s->name, ll(guard), first->name, ll(other));
    else c->guard = guard;
}

static void check_arenas(PlanCheck *c) {
    if (!hd_space_arena(c->m, SPACE_DEVICE))
        hd_plan_wrong(c, NULL, (Span){0}, "the plan has no arena @device: run plan-memory");
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        if (s->kind != SYM_ARENA) continue;
        Space space = hd_space(&s->attrs);
        const Symbol *first = hd_space_arena(c->m, space);
        if (first != s) {
            hd_plan_wrong(c, NULL, s->span, "arena @%s is in %s memory, which arena @%s is", s->name,
                          hd_space_text(space), first->name);
            continue;
        }
        int64_t bytes = hd_int(&s->attrs, A_BYTES, 0), bound = hd_int(&s->attrs, A_LOWER_BOUND_BYTES, 0);
        int64_t persistent = hd_int(&s->attrs, A_PERSISTENT_BYTES, 0);
        check_guard(c, s);
        c->spaces |= space != SPACE_DEVICE;
        c->bytes[space] = bytes;
        c->persistent[space] = persistent;
        if (bound > bytes)
            hd_plan_wrong(c, NULL, s->span, "arena @%s: a lower bound of %lld bytes is above its %lld bytes", s->name,
                          ll(bound), ll(bytes));
        if (persistent > bytes)
            hd_plan_wrong(c, NULL, s->span, "arena @%s: %lld persistent bytes are more than its %lld bytes", s->name,
                          ll(persistent), ll(bytes));
    }
}

static int64_t buffer_end(const Symbol *s) { return s->place.offset + hd_type_bytes(s->type); }

static const char *buffer_range(const PlanCheck *c, const Symbol *s) {
    return hd_plan_range(c, s->place.space, s->place.offset, buffer_end(s));
}

// Whether the bytes that guard a storage [lo, hi) are inside [floor, top). `what` is the storage in a sentence, up to
// its bytes.
static bool has_guard(PlanCheck *c, const Op *o, Span span, const char *what, Space space, int64_t lo, int64_t hi,
                      int64_t floor, int64_t top) {
    int64_t from = lo, to = hi;
    hd_plan_guarded(c, &from, &to);
    if (!c->guard || lo >= hi || (from >= floor && to <= top)) return true;
    return hd_plan_wrong(c, o, span, "%s %s has no room for the %lld bytes that guard it on each side, inside %s", what,
                         hd_plan_range(c, space, lo, hi), ll(c->guard), hd_plan_range(c, space, floor, top));
}

// Whether a buffer has an address that it can have.
static bool check_buffer(PlanCheck *c, const Symbol *s) {
    if (!s->type || !s->place.placed) return hd_plan_wrong(c, NULL, s->span, "buffer @%s has no address", s->name);
    const bool kept = hd_is_kept(s);
    Space space = s->place.space;
    const char *at = hd_plan_at(c, space, s->place.offset);
    int64_t lo = s->place.offset, bytes = hd_type_bytes(s->type);
    int64_t top = kept ? c->persistent[space] : c->bytes[space];
    if (space != hd_space(&s->attrs))
        return hd_plan_wrong(c, NULL, s->span, "buffer @%s belongs in %s memory and is at %s", s->name,
                             hd_space_text(hd_space(&s->attrs)), at);
    if (lo < 0 || bytes > top - lo)
        return hd_plan_wrong(c, NULL, s->span, "buffer @%s at %s is outside the %lld %sbytes of its arena", s->name,
                             hd_plan_range(c, space, lo, (int64_t)((uint64_t)lo + (uint64_t)bytes)), ll(top),
                             kept ? "persistent " : "");
    if (lo % HD_ALIGN)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s at %s does not start at a multiple of %d bytes", s->name, at,
                      HD_ALIGN);
    if (!kept && lo < c->persistent[space])
        hd_plan_wrong(c, NULL, s->span, "%s buffer @%s at %s is among the %lld bytes that persist",
                      hd_is_lent(s) ? "lent" : "transient", s->name, at, ll(c->persistent[space]));
    return has_guard(c, NULL, s->span, hd_sprintf(c->a, "buffer @%s at", s->name), space, lo, lo + bytes,
                     kept ? 0 : c->persistent[space], top);
}

static bool comes_before(const Place *p, const Place *q) {
    return p->space != q->space ? p->space < q->space : p->offset < q->offset;
}

static void check_buffers(PlanCheck *c) {
    int n = 0;
    for (const Symbol *s = c->m->symbols; s; s = s->next) n += s->kind == SYM_BUFFER;
    c->buffers = HD_NEWN(c->a, const Symbol *, n + 1);
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER || !check_buffer(c, s) || !hd_is_kept(s)) continue;
        if (!hd_type_bytes(s->type)) continue;
        int i = c->n_buffers++;
        for (; i > 0 && comes_before(&s->place, &c->buffers[i - 1]->place); i--) c->buffers[i] = c->buffers[i - 1];
        c->buffers[i] = s;
    }
    for (int i = 1; i < c->n_buffers; i++) {
        const Symbol *p = c->buffers[i - 1], *s = c->buffers[i];
        if (p->place.space != s->place.space) continue;
        if (buffer_end(p) > s->place.offset)
            hd_plan_wrong(c, NULL, s->span, "buffers @%s %s and @%s %s overlap", p->name, buffer_range(c, p), s->name,
                          buffer_range(c, s));
        else if (hd_align(buffer_end(p)) + 2 * c->guard > s->place.offset)
            hd_plan_wrong(c, NULL, s->span, "buffers @%s %s and @%s %s are too near: %lld bytes guard each of them",
                          p->name, buffer_range(c, p), s->name, buffer_range(c, s), ll(c->guard));
    }
}

// A transient buffer belongs to one function.
static void check_user(PlanCheck *c, const Op *o, const Symbol *s, const Func **user) {
    if (!s || !hd_has(&s->attrs, A_TRANSIENT)) return;
    if (user[s->id] && user[s->id] != o->func)
        hd_plan_wrong(c, NULL, o->span, "transient buffer @%s is used in @%s and in @%s", s->name, user[s->id]->name,
                      o->func->name);
    user[s->id] = o->func;
}

static void check_users(PlanCheck *c) {
    const Func **user = HD_NEWN(c->a, const Func *, c->m->n_symbols + 1);
    for (const Func *f = c->m->funcs; f; f = f->next)
        for (const Op *o = f->first; o && !f->is_kernel; o = o->next)
            for (int i = 0; i < o->attrs.n; i++) {
                const char *const *names;
                for (int k = hd_operand_uses(o->attrs.at[i].id) ? hd_names(&o->attrs.at[i], &names) : 0; k-- > 0;)
                    check_user(c, o, hd_symbol_find(c->m, names[k]), user);
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

void hd_check_addresses(PlanCheck *c) {
    check_arenas(c);
    check_buffers(c);
    check_users(c);
    check_arguments(c);
}

// --- values of one function

// A buffer that has bytes of [lo, hi); of bytes with a guard: or is so near that its own guard has.
static const Symbol *buffer_under(const PlanCheck *c, Space space, int64_t lo, int64_t hi) {
    int i; // the first buffer of the space that ends after lo, or one of the next space
    hi += 2 * c->guard;
    lo -= 2 * c->guard;
    HD_FIRST(i, 0, c->n_buffers, c->buffers[i]->place.space > space ||
             (c->buffers[i]->place.space == space && buffer_end(c->buffers[i]) > lo));
    const Symbol *s = i < c->n_buffers ? c->buffers[i] : NULL;
    return s && s->place.space == space && s->place.offset < hi ? s : NULL;
}

static bool in_arena(PlanCheck *c, const Op *o, const char *what, Space space, int64_t lo, int64_t bytes) {
    int64_t top = c->bytes[space];
    if (lo >= 0 && bytes <= top - lo) return true;
    return hd_plan_wrong(c, o, c->f->span, "has %s at %s, outside the arena of %lld bytes", what,
                         hd_plan_range(c, space, lo, (int64_t)((uint64_t)lo + (uint64_t)bytes)), ll(top));
}

static void value_in_arena(PlanCheck *c, const Op *o, const Value *v) {
    in_arena(c, o, hd_plan_value(c, v), v->place.space, v->place.offset, hd_type_bytes(v->type));
}

static const char *and_guards(const PlanCheck *c) {
    return c->guard ? hd_sprintf(c->a, " or the %lld bytes that guard each of the two", ll(c->guard)) : "";
}

static void own_place(PlanCheck *c, const Op *o, const Value *v) {
    Space space = v->place.space, wanted = o ? hd_space(&o->attrs) : SPACE_DEVICE;
    int64_t lo = v->place.offset, bytes = hd_type_bytes(v->type);
    const char *name = hd_plan_value(c, v);
    if (bytes == 0) return;
    if (space != wanted) {
        hd_plan_wrong(c, o, v->func->span, "has %s at %s, which belongs in %s memory", name, hd_plan_at(c, space, lo),
                      hd_space_text(wanted));
        return;
    }
    const Symbol *b = buffer_under(c, space, lo, lo + bytes);
    if (b)
        hd_plan_wrong(c, o, v->func->span, "has %s at %s, inside buffer @%s%s: a result in a buffer says `into`", name,
                      hd_plan_range(c, space, lo, lo + bytes), b->name, and_guards(c));
    has_guard(c, o, v->func->span, hd_sprintf(c->a, "has %s, which at", name), space, lo, lo + bytes, 0,
              c->bytes[space]);
    if (lo % HD_ALIGN)
        hd_plan_wrong(c, o, v->func->span, "has %s at %s, not a multiple of %d bytes", name, hd_plan_at(c, space, lo),
                      HD_ALIGN);
}

// A result in a buffer is where those elements are: the text does not say its address.
static void place_into(PlanCheck *c, const Op *o, const Value *v) {
    const Symbol *b = v->into;
    const int64_t at = b->place.offset + v->at * hd_dtype_bytes(v->type->dtype);
    if (v->place.offset != at || v->place.space != b->place.space)
        HD_BUG("%s has result %d at %s, and those elements of @%s are at %s", hd_plan_op(c, o), v->index,
               hd_plan_at(c, v->place.space, v->place.offset), b->name, hd_plan_at(c, b->place.space, at));
}

static void result_place(PlanCheck *c, const Op *o, int i) {
    const Value *v = o->out[i], *of = NULL;
    if (!v->place.placed) {
        hd_plan_wrong(c, o, o->span, "gives %s no address", hd_plan_value(c, v));
        return;
    }
    int64_t at = v->place.offset;
    if (v->into) {
        place_into(c, o, v);
        return;
    }
    if (hd_op_is(o, TRAIT_SOURCE)) {
        const Symbol *b = hd_named(o, A_BUFFER);
        if (!b || b->kind != SYM_BUFFER) return;
        int64_t from = hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype);
        if (from < 0 || from + hd_type_bytes(v->type) > hd_type_bytes(b->type)) hd_plan_wrong(c, o, o->span,
            "looks at bytes [%lld, %lld) of buffer @%s of %lld", ll(from), ll(from + hd_type_bytes(v->type)), b->name,
            ll(hd_type_bytes(b->type)));
        if (at != b->place.offset + from || v->place.space != b->place.space)
            hd_plan_wrong(c, o, o->span, "has %s at %s, but that part of @%s is at %s", hd_plan_value(c, v),
                          hd_plan_at(c, v->place.space, at), b->name,
                          hd_plan_at(c, b->place.space, b->place.offset + from));
        return;
    }
    int64_t k = hd_int(&o->attrs, A_INPLACE, 0);
    if (hd_op_is(o, TRAIT_ALIAS)) of = o->in[0];
    else if (i == hd_inplace_result(o)) of = k >= 0 && k < o->n_in ? o->in[k] : NULL;
    if (!of) {
        own_place(c, o, v);
        return;
    }
    if (at != of->place.offset || v->place.space != of->place.space)
        hd_plan_wrong(c, o, o->span, "has %s at %s, but it is the same storage as %s at %s", hd_plan_value(c, v),
                      hd_plan_at(c, v->place.space, at), hd_plan_value(c, of),
                      hd_plan_at(c, of->place.space, of->place.offset));
    if (hd_type_bytes(v->type) > hd_type_bytes(of->type))
        hd_plan_wrong(c, o, o->span, "has %s of %lld bytes in the %lld bytes of %s", hd_plan_value(c, v),
                      ll(hd_type_bytes(v->type)), ll(hd_type_bytes(of->type)), hd_plan_value(c, of));
}

// Ops compute in device memory; what is elsewhere they reach through copies.
static void check_spaces(PlanCheck *c, const Op *o) {
    Accesses list = {0};
    if (hd_op_is(o, TRAIT_ANY_SPACE) || !c->spaces) return;
    hd_accesses(o, c->a, &list);
    for (int i = 0; i < list.n; i++) {
        const Access *x = &list.at[i];
        if (x->order || x->at == AT_WORKSPACE) continue;
        Space space = x->at == AT_VALUE ? x->value->place.space : x->buffer->place.space;
        if (space == SPACE_DEVICE) continue;
        hd_plan_wrong(c, o, o->span, "%s %s in %s memory, which only copy may", x->write ? "writes" : "reads",
                      x->at == AT_VALUE ? hd_plan_value(c, x->value) : hd_sprintf(c->a, "buffer @%s", x->buffer->name),
                      hd_space_text(space));
        return;
    }
}

// The implementation of an op exists on this target and relies on no more alignment than `align` states.
static void check_implementation(PlanCheck *c, const Op *o) {
    int64_t align = hd_int(&o->attrs, A_ALIGN, HD_WIDE);
    const char *impl = hd_word(&o->attrs, A_IMPL, "generated");
    if (!hd_attr_allowed(hd_op_info(o->kind)->attrs, A_ALIGN) || c->found.n) return; // no wrong addresses
    if (align != 1 && align != 2 && align != 4 && align != 8 && align != HD_WIDE)
        hd_plan_wrong(c, o, o->span, "has align = %lld, which is none of 1, 2, 4, 8", ll(align));
    else if (hd_alignment(o) < align)
        hd_plan_wrong(c, o, o->span, "relies on addresses at multiples of %lld bytes; they are at multiples of %d",
                      ll(align), hd_alignment(o));
    if (hd_op_is(o, TRAIT_ATTENTION) && strcmp(impl, "generated") && align < HD_WIDE)
        hd_plan_wrong(c, o, o->span, "runs on %s, which needs addresses at multiples of %d bytes", impl, HD_WIDE);
    const char *other = hd_word(&o->attrs, A_ELSE, "");
    if ((!strncmp(impl, "wgmma", 5) || !strcmp(other, "wgmma")) && hd_target_arch(c->m).arch != 90)
        hd_plan_wrong(c, o, o->span, "runs on wgmma, which sm_90 alone has");
    if (strcmp(impl, "generated") && !c->cuda)
        hd_plan_wrong(c, o, o->span, "runs on %s, which target host does not have", impl);
}

static void check_op(PlanCheck *c, const Op *o) {
    const Symbol *s = o->stream ? hd_symbol_find(c->m, o->stream) : NULL;
    if (!o->stream) hd_plan_wrong(c, o, o->span, "runs on no stream");
    else if (!s || s->kind != SYM_STREAM)
        hd_plan_wrong(c, o, o->span, "runs on stream %s, which the plan does not declare", o->stream);
    for (int i = 0; i < o->n_out; i++) result_place(c, o, i);
    if (hd_has(&o->attrs, A_INPLACE)) {
        int64_t k = hd_int(&o->attrs, A_INPLACE, 0);
        if (k < 0 || k >= o->n_in)
            hd_plan_wrong(c, o, o->span, "is in place of operand %lld and has %d", ll(k), o->n_in);
        else if (hd_op_is(o, TRAIT_LOSS) && k)
            hd_plan_wrong(c, o, o->span, "is in place of operand %lld, and only the logits, operand 0, may be", ll(k));
        else if (hd_op_is(o, TRAIT_LAUNCH) && !hd_launch_may_overwrite(o, (int)k)) hd_plan_wrong(c, o, o->span,
            "writes over its operand %lld, but its kernel does not read and write that one element by element", ll(k));
    }
    check_spaces(c, o);
    check_implementation(c, o);
    int64_t bytes = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0), at = hd_int(&o->attrs, A_WORKSPACE_AT, -1);
    int64_t least = hd_workspace(o, c->cuda).least;
    if (bytes < least)
        hd_plan_wrong(c, o, o->span, "has a workspace of %lld bytes and needs %lld", ll(bytes), ll(least));
    if (bytes <= 0) return;
    if (!hd_has(&o->attrs, A_WORKSPACE_AT))
        hd_plan_wrong(c, o, o->span, "needs a workspace of %lld bytes and has no address for it", ll(bytes));
    else if (in_arena(c, o, "its workspace", SPACE_DEVICE, at, bytes)) {
        const Symbol *b = buffer_under(c, SPACE_DEVICE, at, at + bytes);
        if (b)
            hd_plan_wrong(c, o, o->span, "has its workspace at [0x%llx, 0x%llx), inside buffer @%s%s", ll(at),
                          ll(at + bytes), b->name, and_guards(c));
        has_guard(c, o, o->span, "has a workspace, which at", SPACE_DEVICE, at, at + bytes, 0, c->bytes[SPACE_DEVICE]);
        if (at % HD_ALIGN)
            hd_plan_wrong(c, o, o->span, "has its workspace at 0x%llx, not a multiple of %d bytes", ll(at), HD_ALIGN);
    }
}

// --- the size of arenas

static void reach(const PlanCheck *c, int64_t *top, Space space, int64_t lo, int64_t bytes) {
    int64_t hi = lo + bytes;
    hd_plan_guarded(c, &lo, &hi);
    if (bytes > 0 && hi > top[space]) top[space] = hi;
}

static void reach_op(const PlanCheck *c, int64_t *top, const Op *o) {
    for (int i = 0; i < o->n_out; i++)
        reach(c, top, o->out[i]->place.space, o->out[i]->place.offset, hd_type_bytes(o->out[i]->type));
    reach(c, top, SPACE_DEVICE, hd_int(&o->attrs, A_WORKSPACE_AT, 0), hd_int(&o->attrs, A_WORKSPACE_BYTES, 0));
}

// An arena ends where its last storage does, and so do the bytes of it that persist.
void hd_check_sizes(PlanCheck *c) {
    int64_t top[N_SPACES] = {0}, kept[N_SPACES] = {0};
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUFFER || !s->type) continue;
        reach(c, top, s->place.space, s->place.offset, hd_type_bytes(s->type));
        if (hd_is_kept(s))
            reach(c, kept, s->place.space, s->place.offset, hd_type_bytes(s->type));
    }
    for (const Func *f = c->m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        for (int i = 0; i < f->n_args; i++)
            reach(c, top, SPACE_DEVICE, f->args[i]->place.offset, hd_type_bytes(f->args[i]->type));
        for (const Op *o = f->first; o; o = o->next) reach_op(c, top, o);
    }
    for (int i = 0; i < N_SPACES; i++) {
        const Symbol *s = hd_space_arena(c->m, (Space)i);
        if (s && c->bytes[i] > hd_align(top[i]))
            hd_plan_wrong(c, NULL, s->span, "arena @%s has %lld bytes, and its last storage ends at 0x%llx", s->name,
                          ll(c->bytes[i]), ll(top[i]));
        else if (s && c->persistent[i] > hd_align(kept[i]))
            hd_plan_wrong(c, NULL, s->span,
                          "arena @%s has %lld bytes that persist, and the last buffer that does ends at 0x%llx",
                          s->name, ll(c->persistent[i]), ll(kept[i]));
    }
}

// --- the values of a function

void hd_check_values(PlanCheck *c) {
    const Func *f = c->f;
    int before = c->found.n;
    for (int i = 0; i < f->n_args; i++) value_in_arena(c, NULL, f->args[i]);
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++)
            if (o->out[i]->place.placed) value_in_arena(c, o, o->out[i]);
    if (c->found.n > before) return; // sums of such addresses may overflow
    for (int i = 0; i < f->n_args; i++) {
        const Value *v = f->args[i];
        if (!v->place.placed) hd_plan_wrong(c, NULL, f->span, "argument %%%s has no address", v->name);
        else own_place(c, NULL, v);
        for (int k = 0; k < i; k++) {
            int64_t lo = v->place.offset, hi = lo + hd_type_bytes(v->type), at = f->args[k]->place.offset;
            if (lo < at + hd_type_bytes(f->args[k]->type) && at < hi)
                hd_plan_wrong(c, NULL, f->span, "arguments %%%s and %%%s overlap in [0x%llx, 0x%llx)", f->args[k]->name,
                              v->name, ll(lo > at ? lo : at), ll(hi));
        }
    }
    for (const Op *o = f->first; o; o = o->next) check_op(c, o);
}

void hd_check_live(PlanCheck *c) {
    for (int i = 0; i < N_SPACES; i++) {
        const Symbol *arena = hd_space_arena(c->m, (Space)i);
        if (!arena && i != SPACE_DEVICE) continue;
        Live live = hd_live(c->f, c->joined ? c->joined->tail : 0, (Space)i, c->a);
        int64_t bound = arena ? hd_int(&arena->attrs, A_LOWER_BOUND_BYTES, c->bytes[i]) : 0;
        if (c->persistent[i] + live.peak > bound)
            hd_plan_wrong(
                c, live.during, c->f->span, "has %lld bytes%s%s live, more than the declared lower bound of %lld",
                ll(c->persistent[i] + live.peak), i ? " of " : "", i ? hd_space_text((Space)i) : "", ll(bound));
    }
}
