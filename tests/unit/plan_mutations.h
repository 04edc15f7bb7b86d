// One change to a finished plan, of one of the kinds in plan_mutations.def.
#ifndef TESTS_UNIT_PLAN_MUTATIONS_H
#define TESTS_UNIT_PLAN_MUTATIONS_H
#include "passes/analysis/access.h"
#include "passes/verify/values/program.h"
#include "tests/unit/plan_seams.h"
#include "tests/unit/plan_claims.h"
#include "tests/unit/plan_gathers.h"
#include "tests/unit/plan_machine.h"
#include "tests/unit/plan_parts.h"
#include "tests/unit/plan_addresses.h"
#include "tests/unit/plan_reorder.h"

typedef enum {
    AT_OP,
    AT_BUFFER_SYMBOL,
    AT_BUCKET,
    AT_ARGUMENT,
    AT_ARENA,
    AT_KERNEL,
    AT_KERNEL_HEADER,
    AT_HEADER,
    AT_COMM,
    AT_PARAM,
    AT_CONFIG,
    AT_STEP
} MutationPlace;
#define MUTATION_ROWS "tests/unit/plan_mutations.def"
#include "tests/unit/mutation_rows.h"

// Changes that no plan survives: verify-plan finds each of them, whether or not the run shows it.
static bool is_claim(Mutation what) { return what >= MUTATE_WORKSPACE; }

// --- one op

static bool exchange(Op *o) {
    Ctx *cx = o->func->module->cx;
    if (!is_collective(o)) return false;
    const char *a = hd_word(&o->attrs, A_BUFFER, ""), *b = hd_word(&o->attrs, A_INTO, "");
    hd_set_word(cx, &o->attrs, A_BUFFER, b);
    hd_set_word(cx, &o->attrs, A_INTO, a);
    return true;
}

static bool change_gather(Op *o, Mutation what, uint64_t random) {
    if (hd_collective(o)->compares) return change_parts(o, random);
    if (what == MUTATE_BEFORE_UPDATE) return move_before(o, update_of(o));
    const char *is = hd_word(&o->attrs, A_OUT, NULL);
    if (!hd_int(&o->attrs, A_QUANTIZED, 1)) return change_scales(o, random % 4);
    if (hd_has(&o->attrs, A_QUANTIZED) && random % 4) return change_rows(o, random % 4);
    if (is && random % 2) hd_unset(&o->attrs, A_OUT);
    else hd_set_word(o->func->module->cx, &o->attrs, A_OUT, is && !strcmp(is, "bf16") ? "f16" : "bf16");
    return true;
}

// The same value once more, for its last reader.
static bool copy_again(Op *o) {
    Op *c = hd_op_clone(o->func, o, o->in), *last = NULL;
    c->stream = o->stream;
    c->out[0]->place = o->out[0]->place;
    for (Op *p = o->next; p; p = p->next)
        for (int i = 0; i < p->n_in; i++)
            if (p->in[i] == o->out[0]) last = p;
    if (!last) return false;
    hd_insert_after(o, c);
    for (int i = 0; i < last->n_in; i++)
        if (last->in[i] == o->out[0]) last->in[i] = c->out[0];
    hd_renumber(o->func);
    return true;
}

static bool share_slot(Op *o, uint64_t random) {
    const Op *slot[64];
    int n = 0;
    for (const Op *p = o->func->first; p && n < 64; p = p->next)
        if (p != o && p->kind == OP_COPY && p->n_out && p->out[0]->place.space == SPACE_HOST) slot[n++] = p;
    return n && move_storage(o->out[0], slot[random % (uint64_t)n]->out[0]->place.offset);
}

static bool change_extent(Op *o, uint64_t random) {
    AttrId at = random % 2 ? A_RANKS : A_DECAYED;
    int64_t is = hd_int(&o->attrs, at, at == A_RANKS);
    hd_set_int(o->func->module->cx, &o->attrs, at,
               at == A_RANKS ? is == 1 ? 2 : 1 : is / 2 + (random / 2 % 2 ? 512 : 0));
    return true;
}

static bool change_inplace(Op *o, uint64_t random) {
    Ctx *cx = o->func->module->cx;
    if (hd_has(&o->attrs, A_INPLACE) && random % 2) hd_unset(&o->attrs, A_INPLACE);
    else if (hd_has(&o->attrs, A_INPLACE)) hd_set_int(cx, &o->attrs, A_INPLACE, hd_int(&o->attrs, A_INPLACE, 0) + 1);
    else if (o->kind == OP_LAUNCH || o->kind == OP_CROSS_ENTROPY_GRAD)
        hd_set_int(cx, &o->attrs, A_INPLACE, 0);
    else return false;
    return true;
}

static bool change_align(Op *o, uint64_t random) {
    static const int bytes[] = {2, 8, 16, 32};
    if (hd_has(&o->attrs, A_ALIGN) && random % 5 == 4) hd_unset(&o->attrs, A_ALIGN);
    else hd_set_int(o->func->module->cx, &o->attrs, A_ALIGN, bytes[random % 4]);
    return true;
}

// Elsewhere in its buffer; a view keeps its address, so the two disagree.
static bool retarget(Module *m, Op *o) {
    const Symbol *b = hd_symbol_find(m, hd_word(&o->attrs, hd_has(&o->attrs, A_INTO) ? A_INTO : A_BUFFER, ""));
    int64_t at = hd_int(&o->attrs, A_OFFSET, 0);
    if (!hd_has(&o->attrs, A_OFFSET) || !b || hd_type_count(b->type) < 128) return false;
    hd_set_int(m->cx, &o->attrs, A_OFFSET, at >= 64 ? at - 64 : at + 64);
    return true;
}

static bool change_stream(Module *m, Op *o, uint64_t random) {
    const char *names[MOST_STREAMS];
    int n = 0;
    for (const Symbol *s = m->symbols; s && n < MOST_STREAMS; s = s->next)
        if (s->kind == SYM_STREAM && strcmp(s->name, o->stream) != 0) names[n++] = s->name;
    if (!n) return false;
    o->stream = names[random % (uint64_t)n];
    return true;
}

static bool change_setting(Module *m, Op *o, uint64_t random) {
    static const AttrId scalars[] = {A_CLIP, A_LR_PEAK, A_BETAS};
    AttrId at = o->kind != OP_UPDATE ? scalars[random % 3] : random / 3 % 2 ? A_LR_SCALE : A_WEIGHT_DECAY;
    if (o->kind != OP_UPDATE && (o->kind != OP_STEP_SCALARS || random / 3 % 2))
        hd_set_int(m->cx, &o->attrs, A_LOSS_SCALE, hd_int(&o->attrs, A_LOSS_SCALE, 1) * 2);
    else if (at == A_BETAS) hd_set_floats(m->cx, &o->attrs, at, 2, (const double[]){0.5, 0.75});
    else hd_set_float(m->cx, &o->attrs, at, hd_float(&o->attrs, at, at == A_LR_SCALE) * 2 + 1e-9);
    return true;
}

static bool flip_accumulate(Module *m, Op *o) {
    if (hd_has(&o->attrs, A_ACCUMULATE)) hd_unset(&o->attrs, A_ACCUMULATE);
    else hd_set_flag(m->cx, &o->attrs, A_ACCUMULATE);
    return true;
}

static bool shorten(Module *m, Op *o, uint64_t random) {
    if (random % 2) return erase(o);
    hd_set_int(m->cx, &o->attrs, A_SIZE, hd_int(&o->attrs, A_SIZE, 0) - 4);
    return true;
}

static bool resize(Module *m, Op *o) {
    if (o->kind == OP_ZERO) hd_set_int(m->cx, &o->attrs, A_SIZE, hd_int(&o->attrs, A_SIZE, 0) + 4);
    else hd_set_int(m->cx, &o->attrs, A_WORKSPACE_BYTES, hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) + 4096);
    return true;
}

// A view of a key: of the one before or after it.
static bool change_site(Module *m, Op *o, uint64_t random) {
    const Symbol *b = hd_symbol_find(m, hd_word(&o->attrs, A_BUFFER, ""));
    const int64_t at = hd_int(&o->attrs, A_OFFSET, 0), n = hd_type_count(o->out[0]->type);
    const int64_t last = hd_type_count(b->type) - n;
    const int64_t by = at == 0 || (random % 2 && at < last) ? n : -n;
    if (!last) return false;
    hd_set_int(m->cx, &o->attrs, A_OFFSET, at + by);
    o->out[0]->place.offset += by * hd_dtype_bytes(TY_I32);
    return true;
}

// `random` counts in a buffer of its own, which stays as it was in every step.
static bool count_elsewhere(Module *m, Op *o) {
    const Symbol *is = hd_symbol_find(m, hd_word(&o->attrs, A_COUNTER, ""));
    Symbol *arena = hd_symbol_find(m, "device"), *b = hd_symbol_add(m, SYM_BUFFER, "elsewhere", is->type);
    if (!b) return false;
    hd_set_word(m->cx, &b->attrs, A_CLASS, "optimizer");
    b->place = (Place){true, SPACE_DEVICE, hd_int(&arena->attrs, A_BYTES, 0)};
    static const AttrId sizes[] = {A_BYTES, A_PERSISTENT_BYTES, A_LOWER_BOUND_BYTES};
    for (int i = 0; i < 3; i++)
        if (hd_has(&arena->attrs, sizes[i]))
            hd_set_int(m->cx, &arena->attrs, sizes[i], hd_int(&arena->attrs, sizes[i], 0) + 256);
    hd_set_word(m->cx, &o->attrs, A_COUNTER, b->name);
    return true;
}

// --- all kinds

// Whether an op is a place for a kind of mutation; a cheap question, so that places can be counted.
static bool fits(const Op *o, Mutation what) {
    switch (what) {
    case MUTATE_MOVE_UP: case MUTATE_MOVE_DOWN: case MUTATE_MOVE_ONTO: return o->n_out && !hd_is_alias(o);
    case MUTATE_MOVE_ALIAS: return hd_is_alias(o);
    case MUTATE_MOVE_WORKSPACE: return hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) > 0;
    case MUTATE_SWAP_COLLECTIVES: case MUTATE_TOO_LATE: case MUTATE_DROP_COLLECTIVE:
    case MUTATE_DOUBLE_COLLECTIVE: case MUTATE_EXCHANGE: case MUTATE_COMM:
        return is_collective(o);
    case MUTATE_DROP_RECORD: case MUTATE_DROP_EVENT: case MUTATE_RECORD_EARLIER: return o->kind == OP_RECORD;
    case MUTATE_DROP_WAIT: case MUTATE_SWAP_WAITS: return o->kind == OP_WAIT;
    case MUTATE_DROP_EXTERNAL: return hd_has(&o->attrs, A_EXTERNAL);
    case MUTATE_ADD_EXTERNAL: return hd_is_event(o) && !hd_has(&o->attrs, A_EXTERNAL);
    case MUTATE_DROP_END: case MUTATE_MOVE_END: return o->kind == OP_CAPTURE || o->kind == OP_CAPTURE_END;
    case MUTATE_CUT_REGION: return !hd_is_alias(o) && o->kind != OP_RETURN;
    case MUTATE_DROP_BEGIN: return o->kind == OP_BEGIN;
    case MUTATE_DROP_ZERO: return o->kind == OP_ZERO;
    case MUTATE_DROP_FENCE: return o->kind == OP_FENCE;
    case MUTATE_DROP_BESIDE: return waits_beside(o);
    case MUTATE_DOUBLE_COPY: case MUTATE_RELOAD_LATER: return o->kind == OP_COPY && o->n_in && o->n_out;
    case MUTATE_SHARE_SLOT: return o->kind == OP_COPY && o->n_out && o->out[0]->place.space == SPACE_HOST;
    case MUTATE_DROP_STORE: case MUTATE_DOUBLE_STORE: case MUTATE_ACCUMULATE:
        return o->kind == OP_STORE || (o->kind == OP_GEMM && hd_has(&o->attrs, A_INTO)) ||
               (what != MUTATE_ACCUMULATE && o->n_out && !has_names(o) && hd_program(o->func->module));
    case MUTATE_RESULT_BUFFER: case MUTATE_RESULT_OFFSET: case MUTATE_RESULT_SWAP: case MUTATE_RESULT_OUT:
        return result_into(o, 0) != NULL;
    case MUTATE_DROP_UPDATE: case MUTATE_DOUBLE_UPDATE: case MUTATE_OTHER_PART: case MUTATE_SWAP_PARTS:
    case MUTATE_EXTENT:
        return o->kind == OP_UPDATE;
    case MUTATE_ROUNDED: return hd_gathers(o) || (is_collective(o) && hd_collective(o)->compares);
    case MUTATE_BEFORE_UPDATE: return update_of(o) != NULL;
    case MUTATE_OTHER_BUFFER: return hd_has(&o->attrs, A_BUFFER);
    case MUTATE_OTHER_INTO: return hd_has(&o->attrs, A_INTO);
    case MUTATE_INPLACE:
        return hd_has(&o->attrs, A_INPLACE) || o->kind == OP_LAUNCH || o->kind == OP_CROSS_ENTROPY_GRAD;
    case MUTATE_RETARGET: return hd_has(&o->attrs, A_OFFSET);
    case MUTATE_RESIZE: return o->kind == OP_ZERO || hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) > 0;
    case MUTATE_TREE: return hd_has(&o->attrs, A_TREE) || hd_has(&o->attrs, A_EXACT);
    case MUTATE_ALIGN: return hd_attr_allowed(hd_op_info(o->kind)->attrs, A_ALIGN);
    case MUTATE_STREAM: return true;
    case MUTATE_SITE: return o->kind == OP_VIEW && o->out[0]->type->dtype == TY_I32;
    case MUTATE_DROP_KEYS: case MUTATE_STRIDE: case MUTATE_UNCOUNTED: return o->kind == OP_DROPOUT_KEYS;
    case MUTATE_DROP_CROSSING: case MUTATE_LATE_CROSSING: return crosses(o);
    case MUTATE_DROP_TAIL: case MUTATE_EARLY_TAIL: return ends_tail(o);
    case MUTATE_ONTO_CARRIED: return runs_beside(o);
    case MUTATE_SETTING: return o->kind == OP_UPDATE || hd_attr_allowed(hd_op_info(o->kind)->attrs, A_LOSS_SCALE);
    case MUTATE_WORKSPACE: return hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) > 0;
    case MUTATE_ADDS: return o->kind == OP_GEMM && !hd_has(&o->attrs, A_INTO);
    case MUTATE_NEAR_OPERAND: return o->n_in && o->n_out && !hd_is_alias(o);
    case MUTATE_WORKSPACE_NEAR: return o->n_in && hd_int(&o->attrs, A_WORKSPACE_BYTES, 0) > 0;
    case MUTATE_NO_PARTS: return o->kind == OP_UPDATE;
    default: return o->kind != OP_RETURN;
    }
}

static bool shift_storage(const Value *v, int64_t by) { return move_storage(v, v->place.offset + by); }

static bool leave_order(Op *o) { // of a sum in a tree, or of exact squares
    const AttrId is = hd_has(&o->attrs, A_TREE) ? A_TREE : A_EXACT;
    hd_unset(&o->attrs, is);
    return true;
}

static bool mutate_op(Module *m, Op *o, Mutation what, uint64_t random) {
    const Value *v = o->n_out ? o->out[random % (uint64_t)o->n_out] : NULL;
    if (!fits(o, what)) return false;
    switch (what) {
    case MUTATE_MOVE_UP: case MUTATE_MOVE_DOWN: return shift_storage(v, what == MUTATE_MOVE_UP ? 256 : -256);
    case MUTATE_MOVE_ONTO: return move_onto(v, other_op(o, random));
    case MUTATE_MOVE_ALIAS: return (o->out[0]->place.offset += (random % 2) ? 256 : -64), true;
    case MUTATE_MOVE_WORKSPACE: return move_workspace(o, random);
    case MUTATE_SWAP: return move_later(o, 1);
    case MUTATE_LATER: return move_later(o, 2 + (int)(random % 9));
    case MUTATE_EARLIER: return move_earlier(o, 2 + (int)(random % 9));
    case MUTATE_SWAP_COLLECTIVES: return swap_collectives(o);
    case MUTATE_TOO_LATE: case MUTATE_RELOAD_LATER: return too_late(o);
    case MUTATE_DROP_RECORD: case MUTATE_DROP_WAIT: case MUTATE_DROP_COLLECTIVE: case MUTATE_DROP_BEGIN:
    case MUTATE_DROP_STORE: case MUTATE_DROP_END: case MUTATE_DROP_UPDATE: case MUTATE_DROP_FENCE:
    case MUTATE_DROP_CROSSING: case MUTATE_DROP_TAIL: case MUTATE_DROP_BESIDE: return erase(o);
    case MUTATE_DROP_EXTERNAL: return hd_unset(&o->attrs, A_EXTERNAL), true;
    case MUTATE_ADD_EXTERNAL: return hd_set_flag(m->cx, &o->attrs, A_EXTERNAL), true;
    case MUTATE_MOVE_END: return (random % 2 ? move_later : move_earlier)(o, 1 + (int)(random / 2 % 6));
    case MUTATE_CUT_REGION: return cut_region(m, o);
    case MUTATE_EMPTY_REGION: return empty_region(m, o);
    case MUTATE_DOUBLE_COLLECTIVE: case MUTATE_DOUBLE_STORE: case MUTATE_DOUBLE_UPDATE: return twice(o);
    case MUTATE_DOUBLE_COPY: return copy_again(o);
    case MUTATE_SHARE_SLOT: return share_slot(o, random);
    case MUTATE_DROP_EVENT: return drop_event(o);
    case MUTATE_SWAP_WAITS: return swap_waits(o);
    case MUTATE_RECORD_EARLIER: return record_earlier(o);
    case MUTATE_DROP_ZERO: return shorten(m, o, random);
    case MUTATE_COMM: return rename_attr(m, o, A_COMM, random);
    case MUTATE_EXCHANGE: return exchange(o);
    case MUTATE_ROUNDED: case MUTATE_BEFORE_UPDATE: return change_gather(o, what, random);
    case MUTATE_OTHER_BUFFER: return rename_attr(m, o, A_BUFFER, random);
    case MUTATE_OTHER_INTO: return rename_attr(m, o, A_INTO, random);
    case MUTATE_OTHER_PART: return other_part(m, &o->attrs, kept_parts[random % 5], random / 5);
    case MUTATE_SWAP_PARTS: return swap_words(m->cx, &o->attrs, kept_parts, 5, random);
    case MUTATE_EXTENT: return change_extent(o, random);
    case MUTATE_RESULT_BUFFER: return into_buffer(m, result_into(o, random), random / 8);
    case MUTATE_RESULT_OFFSET: return into_offset(result_into(o, random), random / 8);
    case MUTATE_RESULT_SWAP: return exchange_into(result_into(o, random));
    case MUTATE_RESULT_OUT: return out_of_buffer(m, result_into(o, random));
    case MUTATE_ACCUMULATE: case MUTATE_ADDS: return flip_accumulate(m, o);
    case MUTATE_INPLACE: return change_inplace(o, random);
    case MUTATE_RETARGET: return retarget(m, o);
    case MUTATE_RESIZE: return resize(m, o);
    case MUTATE_STREAM: return change_stream(m, o, random);
    case MUTATE_LATE_CROSSING: return move_before(o, o->func->last);
    case MUTATE_EARLY_TAIL: return move_before(o, last_of_stream(o));
    case MUTATE_ONTO_CARRIED: return onto_carried(m, v, random);
    case MUTATE_TREE: case MUTATE_ALIGN: return what == MUTATE_TREE ? leave_order(o) : change_align(o, random);
    case MUTATE_SETTING: return change_setting(m, o, random);
    case MUTATE_SITE: return change_site(m, o, random);
    case MUTATE_DROP_KEYS: return random % 2 ? erase(o) : twice(o);
    case MUTATE_STRIDE: return hd_set_int(m->cx, &o->attrs, A_STRIDE, hd_int(&o->attrs, A_STRIDE, 1) + 1), true;
    case MUTATE_UNCOUNTED: return count_elsewhere(m, o);
    case MUTATE_WORKSPACE: return shrink_workspace(m, o);
    case MUTATE_NEAR_OPERAND: case MUTATE_WORKSPACE_NEAR: return near_operand(o, what == MUTATE_NEAR_OPERAND);
    case MUTATE_NO_PARTS: return hd_set_int(m->cx, &o->attrs, A_RANKS, -(int64_t)(random % 2)), true;
    default: return false;
    }
}

static bool all_scalars(const Func *f) {
    const Op *ret = hd_return(f);
    for (int i = 0; i < f->n_args; i++)
        if (hd_type_count(f->args[i]->type) != 1) return false;
    for (int i = 0; i < ret->n_in; i++)
        if (hd_type_count(ret->in[i]->type) != 1) return false;
    return true;
}

static int constants(const Func *f) {
    int n = 0;
    for (const Op *o = f->first; o; o = o->next) n += o->kind == OP_CONST;
    return n;
}

static SymbolKind symbol_kind(MutationPlace at) {
    switch (at) {
    case AT_BUFFER_SYMBOL: return SYM_BUFFER;
    case AT_BUCKET: return SYM_BUCKET;
    case AT_COMM: return SYM_COMM;
    case AT_PARAM: return SYM_PARAM;
    case AT_CONFIG: return SYM_CONFIG;
    case AT_STEP: return SYM_STEP;
    default: return N_SYMBOL_KINDS;
    }
}

// The places of a kind of mutation, by number: ops of the plan's functions, symbols, arguments, kernels.
static int find_places(Module *m, Mutation what, Arena *a, int **places) {
    MutationPlace at = mutation_info[what].at;
    VEC(int) found = {0};
    int n = 0;
    for (const Func *f = m->funcs; f; f = f->next) {
        if (at == AT_ARGUMENT && !f->is_kernel) n += f->n_args;
        n += (at == AT_KERNEL_HEADER && f->is_kernel) || (at == AT_HEADER && !f->is_kernel);
        for (int i = 0; at == AT_KERNEL && f->is_kernel && all_scalars(f) && i < constants(f); i++) n++;
        for (const Op *o = f->first; at == AT_OP && !f->is_kernel && o; o = o->next, n++)
            if (fits(o, what)) hd_push(a, &found, n);
    }
    for (const Symbol *s = m->symbols; s; s = s->next) n += s->kind == symbol_kind(at);
    if (at == AT_ARENA) n = 2;
    for (int i = 0; at != AT_OP && i < n; i++) hd_push(a, &found, i);
    *places = found.at;
    return found.n;
}

// --- the rest of the module

static void change_group(Module *m, Symbol *s, unsigned random) {
    if (random % 3 == 1) hd_set_word(m->cx, &s->attrs, A_ON, hd_intern(m->cx, "compute"));
    else hd_set_axes(m->cx, &s->attrs, A_OVER, (hd_axes(&s->attrs, A_OVER) + random / 3 % 2) % HD_ALL_AXES + 1);
}

static bool change_step(Module *m, Symbol *s, Mutation what, uint64_t random) {
    const Attr *segments = hd_attr(&s->attrs, A_SEGMENTS), *times = hd_attr(&s->attrs, A_TIMES);
    int n = segments->n, at = (int)(random % (uint64_t)n);
    const char *name[8];
    int64_t often[8];
    if (what == MUTATE_OVERLAPS) return change_overlaps(m, s, random);
    for (int i = 0; i < n; i++) name[i] = segments->strs[i], often[i] = times->ints[i];
    if (what == MUTATE_NO_RANDOM) {
        if (!hd_has(&s->attrs, A_RANDOM)) return false;
        hd_unset(&s->attrs, A_RANDOM);
        return true;
    }
    if (what == MUTATE_NUMBERS) {
        static const AttrId numbers[] = {A_LOSS, A_NORM};
        const char *loss = hd_word(&s->attrs, A_LOSS, NULL), *norm = hd_word(&s->attrs, A_NORM, NULL);
        if (!loss || !norm) return false;
        for (int i = 0; i < 2; i++) hd_set_word(m->cx, &s->attrs, numbers[i], i ? loss : norm);
    } else if (what == MUTATE_TIMES) {
        often[at]++;
    } else if (n == 1) {
        return false;
    } else if (random / 8 % 2) {
        for (int i = at; i < n - 1; i++) name[i] = name[i + 1], often[i] = often[i + 1];
        n--;
    } else {
        name[at] = segments->strs[(at + 1) % n];
        name[(at + 1) % n] = segments->strs[at];
    }
    hd_set_words(m->cx, &s->attrs, A_SEGMENTS, n, name);
    hd_set_ints(m->cx, &s->attrs, A_TIMES, n, often);
    return true;
}

static bool mutate_symbol(Module *m, Mutation what, int site, uint64_t random) {
    Symbol *s = nth_symbol(m, symbol_kind(mutation_info[what].at), site);
    if (what == MUTATE_MOVE_BUFFER) move_buffer(m, s, s->place.offset + (random % 2 ? 256 : -256));
    else if (what == MUTATE_SWAP_BUFFERS) return swap_buffers(m, s, random);
    else if (what == MUTATE_DECAYED)
        hd_set_int(m->cx, &s->attrs, A_DECAYED, hd_int(&s->attrs, A_DECAYED, 0) + (random % 2 ? 512 : -512));
    else if (what == MUTATE_RATES)
        hd_set_float(m->cx, &s->attrs, random % 2 ? A_LR_SCALE : A_WEIGHT_DECAY, 0.75);
    else if (what == MUTATE_MOVE_PARAM)
        hd_set_int(m->cx, &s->attrs, A_OFFSET, hd_int(&s->attrs, A_OFFSET, 0) + (random % 2 ? 4 : -4));
    else if (mutation_info[what].at == AT_STEP) return change_step(m, s, what, random);
    else if (what == MUTATE_VOCAB) return widen_tokens(m, s);
    else if (what == MUTATE_SIZES) return change_mesh(m, s, random);
    else if (what == MUTATE_BUCKET_TYPE) return change_type(m, s, random);
    else if (what == MUTATE_UNIT) return change_unit(m, s, random);
    else if (what == MUTATE_MICRO) {
        if (!hd_has(&s->attrs, A_MICRO)) return false;
        hd_set_int(m->cx, &s->attrs, A_MICRO, hd_int(&s->attrs, A_MICRO, 1) + (random % 2 ? 1 : 2));
    } else if (what == MUTATE_CLASS) {
        static const char *const classes[] = {"weights", "gradients", "staging", "shards", "optimizer", "cache"};
        const char *class = classes[random % 6];
        if (!strcmp(class, hd_word(&s->attrs, A_CLASS, ""))) return false;
        hd_set_word(m->cx, &s->attrs, A_CLASS, class);
    } else if (what == MUTATE_SPLIT) return hd_has(&s->attrs, A_BUCKET) && change_axes(m, s, A_SPLIT, random);
    else if (what == MUTATE_SWAP_KEPT) return swap_words(m->cx, &s->attrs, kept_parts, N_KEPT, random);
    else if (what == MUTATE_OTHER_KEPT) {
        const Part part = kept_parts[random % N_KEPT];
        const char *is = part_name(&s->attrs, part);
        if (!is) return false;
        set_part(m->cx, &s->attrs, part,
                 other_name(m, hd_symbol_find(m, is), random / N_KEPT, random / N_KEPT % 2, false));
    } else if (what == MUTATE_GROUP) change_group(m, s, (unsigned)random);
    else if (what == MUTATE_BUCKET_SPLIT || what == MUTATE_COPIED)
        return change_axes(m, s, what == MUTATE_COPIED ? A_COPIED : A_SPLIT, random);
    else { // of another bucket
        const Symbol *bucket = hd_symbol_find(m, hd_word(&s->attrs, A_BUCKET, ""));
        const char *name = other_name(m, bucket, random, false, false);
        if (!name) return false;
        hd_set_word(m->cx, &s->attrs, A_BUCKET, name);
    }
    return true;
}

// A constant in a kernel of numbers: the start of the backward pass, the weight of a loss, a micro-batch's share, the
// mean over ranks.
static bool change_scale(Module *m, int site) {
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *o = f->first; f->is_kernel && all_scalars(f) && o; o = o->next) {
            if (o->kind != OP_CONST || site-- > 0) continue;
            hd_set_float(m->cx, &o->attrs, A_VALUE, hd_float(&o->attrs, A_VALUE, 0) * 2);
            return true;
        }
    return false;
}

static bool mutate_header(Module *m, Func *f, Mutation what) {
    switch (what) {
    case MUTATE_KERNEL_KIND: return other_kind(m, f);
    case MUTATE_ROWS: return scale_attr(m, f, A_ROWS, 2);
    case MUTATE_COLS: return scale_attr(m, f, A_COLS, 2);
    case MUTATE_HALVES: return halve_rows(m, f);
    case MUTATE_VIEW: return view_inside(m, f);
    default: return exchange_names(f);
    }
}

static bool mutate(Module *m, Mutation what, int site, uint64_t random) {
    switch (mutation_info[what].at) {
    case AT_OP: {
        Op *o = nth_op(m, site);
        return o && mutate_op(m, o, what, random);
    }
    case AT_ARENA: {
        Symbol *arena = hd_symbol_find(m, "device");
        AttrId at = site ? A_PERSISTENT_BYTES : A_BYTES;
        if (what == MUTATE_GUARD) return more_guard(m, arena, site);
        hd_set_int(m->cx, &arena->attrs, at, hd_int(&arena->attrs, at, 0) + (what == MUTATE_LARGER ? 256 : -256));
        return true;
    }
    case AT_ARGUMENT:
        for (Func *f = m->funcs; f; f = f->next) {
            if (f->is_kernel) continue;
            if (site < f->n_args) {
                f->args[site]->place.offset += random % 2 ? 256 : -256;
                return true;
            }
            site -= f->n_args;
        }
        return false;
    case AT_KERNEL: return change_scale(m, site);
    case AT_KERNEL_HEADER: case AT_HEADER:
        return mutate_header(m, nth_func(m, site, mutation_info[what].at == AT_KERNEL_HEADER), what);
    default: return mutate_symbol(m, what, site, random);
    }
}
#endif
