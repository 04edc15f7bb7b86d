// Changes to what a plan claims of itself and code generators or the runtime believe: sizes of kernels, workspaces and
// arenas, the bound of tokens, names of arguments, the mesh, types and units, guards. No such change is right, whether
// or not it shows in a run.
#ifndef TESTS_UNIT_PLAN_CLAIMS_H
#define TESTS_UNIT_PLAN_CLAIMS_H
#include "ir/base/ints.h"
#include "ir/mesh.h"
#include "ir/machine/workspace.h"
#include "tests/unit/plan_addresses.h"

static Func *nth_func(Module *m, int n, bool kernels) {
    for (Func *f = m->funcs; f; f = f->next)
        if (f->is_kernel == kernels && n-- == 0) return f;
    return NULL;
}

static bool scale_attr(Module *m, Func *k, AttrId at, int64_t by) {
    if (!hd_has(&k->attrs, at)) return false;
    hd_set_int(m->cx, &k->attrs, at, hd_int(&k->attrs, at, 1) * by);
    return true;
}

static bool other_kind(Module *m, Func *k) {
    const bool rows = hd_kind(&k->attrs) == KIND_ROWS;
    if (rows && k->first->next == hd_return(k) && hd_op_info(k->first->kind)->map) return false; // may be either
    hd_set_kind(m->cx, &k->attrs, rows ? KIND_MAP : KIND_ROWS);
    return true;
}

// As many elements, in twice as many rows.
static bool halve_rows(Module *m, Func *k) {
    if (hd_int(&k->attrs, A_COLS, 1) % 2) return false;
    hd_set_int(m->cx, &k->attrs, A_COLS, hd_int(&k->attrs, A_COLS, 1) / 2);
    return scale_attr(m, k, A_ROWS, 2);
}

static bool view_inside(Module *m, Func *k) {
    const Symbol *b = m->symbols;
    while (b && b->kind != SYM_BUFFER) b = b->next;
    if (!b) return false;
    Op *o = hd_op_new(k, OP_VIEW, 0, NULL);
    hd_set_word(m->cx, &o->attrs, A_BUFFER, b->name);
    hd_set_int(m->cx, &o->attrs, A_OFFSET, 0);
    hd_set_results(o, 1, &b->type);
    hd_insert_before(k->first, o);
    hd_renumber(k);
    return true;
}

// Of one of several functions: in the others the names stay.
static bool exchange_names(Func *f) {
    int others = 0;
    for (const Func *g = f->module->funcs; g; g = g->next) others += g != f && !g->is_kernel && g->n_args > 1;
    if (f->n_args < 2 || !others) return false;
    const char *name = f->args[0]->name;
    f->args[0]->name = f->args[1]->name;
    f->args[1]->name = name;
    return true;
}

static bool widen_tokens(Module *m, Symbol *config) {
    if (!hd_has(&config->attrs, A_VOCAB)) return false;
    hd_set_int(m->cx, &config->attrs, A_VOCAB, hd_int(&config->attrs, A_VOCAB, 0) + 1);
    return true;
}

static bool change_mesh(Module *m, Symbol *config, uint64_t random) {
    static const int64_t sizes[] = {0, -2, (int64_t)1 << 62};
    const Attr *is = hd_attr(&config->attrs, A_SIZES);
    int64_t now[N_AXES];
    if (!is || is->n > N_AXES) return false;
    for (int i = 0; i < is->n; i++) now[i] = is->ints[i];
    int64_t *one = &now[random % (uint64_t)is->n], by = sizes[random / 8 % 3];
    *one = by > 0 ? *one + by : by;
    hd_set_ints(m->cx, &config->attrs, A_SIZES, is->n, now);
    return true;
}

// Of another element type, or a matrix.
static bool change_type(Module *m, Symbol *bucket, uint64_t random) {
    const int64_t n = hd_type_count(bucket->type), half[] = {n / 2, 2};
    if (random % 2 && n % 2) return false;
    bucket->type = random % 2 ? hd_type(m->cx, TY_F32, 2, half) : hd_type(m->cx, TY_BF16, 1, &n);
    return true;
}

// A parameter says another unit than its bucket.
static bool change_unit(Module *m, Symbol *param, uint64_t random) {
    const Symbol *bucket = hd_symbol_find(m, hd_word(&param->attrs, A_BUCKET, ""));
    if (!bucket || !hd_has(&bucket->attrs, A_UNIT)) return false;
    const char *unit = hd_word(&bucket->attrs, A_UNIT, "");
    hd_set_word(m->cx, &param->attrs, A_UNIT, hd_internf(m->cx, random % 2 ? "%s.0" : "un%s", unit));
    return true;
}

// --- guards

static int64_t guard_of(const Module *m) { return hd_int(&hd_space_arena(m, SPACE_DEVICE)->attrs, A_GUARD, 0); }

// The first byte of the guard after an operand that has a storage of its own on the device; -1: the op has none, or the
// plan has no guard. Of an operand in a buffer, other bytes of that may be free.
static int64_t guard_after_operand(const Op *o) {
    Arena *a = hd_arena_new();
    const Home *homes = hd_homes(o->func, a);
    int64_t at = -1;
    for (int i = 0; guard_of(o->func->module) && i < o->n_in && at < 0; i++) {
        const Value *v = o->in[i], *root = homes[v->id].root;
        const bool own = root && hd_type_bytes(v->type) > 0 && hd_type_bytes(v->type) == hd_type_bytes(root->type) &&
                         v->place.space == SPACE_DEVICE;
        if (own) at = v->place.offset + hd_align(hd_type_bytes(v->type));
    }
    hd_arena_free(a);
    return at;
}

static bool result_near_operand(Op *o) {
    const Value *v = o->out[0];
    const int64_t at = guard_after_operand(o);
    return at >= 0 && hd_inplace_result(o) && hd_type_bytes(v->type) > 0 && v->place.space == SPACE_DEVICE &&
           move_storage(v, at);
}

static bool workspace_near_operand(Op *o) {
    const int64_t at = guard_after_operand(o);
    if (at >= 0) hd_set_int(o->func->module->cx, &o->attrs, A_WORKSPACE_AT, at);
    return at >= 0;
}

static bool near_operand(Op *o, bool result) { return result ? result_near_operand(o) : workspace_near_operand(o); }

static bool more_guard(Module *m, Symbol *arena, int site) {
    if (guard_of(m)) hd_set_int(m->cx, &arena->attrs, A_GUARD, guard_of(m) + 256 * (site + 1));
    return guard_of(m) > 0;
}

static bool shrink_workspace(Module *m, Op *o) {
    const bool cuda = false; // what these plans are for
    const int64_t least = hd_workspace(o, cuda).least;
    if (least < 1) return false;
    hd_set_int(m->cx, &o->attrs, A_WORKSPACE_BYTES, least - 1);
    return true;
}
#endif
