// fsdp: parameters become storage. Every unit gets one bucket (master f32, compute dtype, gradient and two moments, one flat buffer
// each); reads of parameters become views, gradients become stores, and the functions of a step come out:
//
//   %w = param {param = @head.w} : f32[256,64]          %w = view {buffer = @root.compute, offset = 0} : bf16[256,64]
//   %c = cast %w {out = bf16}                     ->
//   grad %dw {param = @head.w}                          store %dw {into = @root.grad, offset = 0}          (first contribution)
//
// @micro is specialised by its place in the step: @micro_only, or @micro_first, @micro (the ones between), @micro_last. Where a
// step starts, the first contribution to a parameter overwrites; every other one accumulates in program order. Buckets stand in
// the order in which their units are declared, the root (what no unit owns) last. @eval stores its loss where they do; @update is built here.
#include "passes/bucket.h"
#include "passes/pass.h"
#include "passes/redirect.h"
#include "passes/settings.h"
#include <string.h>

typedef struct { const char *unit, *name; Bucket layout; VEC(BucketItem) items; Symbol *bucket, *compute, *master, *grad; } Unit;
typedef struct {
    Module *m;
    PassCx *cx;
    VEC(Unit) units;
    DType compute;
    int64_t micro;
    Symbol *loss, *norm, *step; // @state.*
} Fsdp;

static bool unit_name_free(const Module *m, const char *name) {
    static const char *const parts[] = {"", ".master", ".compute", ".grad", ".m", ".v"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (hd_symbol_find(m, hd_internf(m->cx, "%s%s", name, parts[i]))) return false;
    return true;
}

static Unit *unit_of(Fsdp *s, const char *name) {
    for (int i = 0; i < s->units.n; i++)
        if (s->units.at[i].unit == name) return &s->units.at[i];
    return NULL;
}

static int64_t row_size(const Type *t) {
    int64_t n = 1;
    for (int i = 1; i < t->rank; i++) n *= t->dim[i];
    return n ? n : 1;
}

// Collects the parameters of each unit; the root's unit comes last. false after an error.
static bool collect_units(Fsdp *s) {
    Ctx *cx = s->m->cx;
    const char *root = hd_intern(cx, "root");
    for (int last = 0; last < 2; last++)
        for (Symbol *p = s->m->symbols; p; p = p->next) {
            if (p->kind != SYM_PARAM) continue;
            const char *name = hd_intern(cx, hd_word(&p->attrs, A_UNIT, root));
            if ((name == root) != (last == 1)) continue;
            if (p->type->dtype != TY_F32) {
                hd_error(cx, p->span, "parameter @%s is %s; parameters that are trained must be f32 (precision { compute = %s } makes the arithmetic narrower)",
                         p->name, hd_type_text(cx, p->type), hd_dtype_text(p->type->dtype));
                return false;
            }
            Unit *u = unit_of(s, name);
            if (!u) {
                hd_push(s->cx->scratch, &s->units, (Unit){.unit = name});
                u = &s->units.at[s->units.n - 1];
            }
            BucketItem item = {.param = p, .count = hd_type_count(p->type), .row = row_size(p->type), .decay = hd_has(&p->attrs, A_DECAY)};
            hd_push(s->cx->scratch, &u->items, item);
        }
    if (!s->units.n) hd_error(cx, (Span){0}, "the module has no parameters: there is nothing to train");
    return s->units.n > 0;
}

static Symbol *add_symbol(Fsdp *s, SymbolKind kind, const char *name, DType d, int64_t n) {
    const Type *t = hd_type(s->m->cx, d, 1, &n);
    Symbol *y = t ? hd_symbol_add(s->m, kind, name, t) : NULL;
    if (!y) HD_BUG("cannot add @%s", name);
    return y;
}

static Symbol *add_buffer(Fsdp *s, const Unit *u, const char *part, const char *role, DType d) {
    Symbol *b = add_symbol(s, SYM_BUFFER, hd_internf(s->m->cx, "%s.%s", u->name, part), d, u->layout.size);
    hd_set_word(s->m->cx, &b->attrs, A_ROLE, hd_intern(s->m->cx, role));
    hd_set_word(s->m->cx, &b->attrs, A_BUCKET, u->bucket->name);
    return b;
}

static bool place_unit(Fsdp *s, Unit *u, int ranks) {
    Ctx *cx = s->m->cx;
    u->layout.items = u->items.at;
    u->layout.n = u->items.n;
    if (!hd_bucket_layout(&u->layout, ranks, s->cx->scratch)) {
        hd_error(cx, u->items.at[0].param->span, "no layout of unit %s fits %d ranks: more than 2^58 elements, or rows whose sizes share no factors; split the unit or use fewer ranks", u->unit, ranks);
        return false;
    }
    u->name = u->unit;
    while (!unit_name_free(s->m, u->name)) u->name = hd_internf(cx, "%s.bucket", u->name);
    u->bucket = add_symbol(s, SYM_BUCKET, u->name, TY_F32, u->layout.size);
    hd_set_word(cx, &u->bucket->attrs, A_UNIT, u->unit);
    hd_set_int(cx, &u->bucket->attrs, A_DECAYED, u->layout.decayed);
    hd_set_int(cx, &u->bucket->attrs, A_PADDING, u->layout.padding);
    if (ranks > 1) {
        hd_set_int(cx, &u->bucket->attrs, A_RANKS, ranks);
        hd_set_int(cx, &u->bucket->attrs, A_SHARD, u->layout.shard);
    }
    u->master = add_buffer(s, u, "master", "master", TY_F32);
    u->compute = s->compute == TY_F32 ? NULL : add_buffer(s, u, "compute", "compute", s->compute);
    u->grad = add_buffer(s, u, "grad", "grad", TY_F32);
    add_buffer(s, u, "m", "moment1", TY_F32);
    add_buffer(s, u, "v", "moment2", TY_F32);
    for (int i = 0; i < u->layout.n; i++) {
        hd_set_word(cx, &u->layout.items[i].param->attrs, A_BUCKET, u->bucket->name);
        hd_set_int(cx, &u->layout.items[i].param->attrs, A_OFFSET, u->layout.items[i].offset);
    }
    return true;
}

// The runtime finds these by name. false when a parameter has one of the names.
static bool add_state(Fsdp *s) {
    static const char *const names[] = {"state.loss", "state.norm", "state.step"};
    Symbol **slots[] = {&s->loss, &s->norm, &s->step};
    for (int i = 0; i < 3; i++) {
        const Symbol *taken = hd_symbol_find(s->m, names[i]);
        if (taken) {
            hd_error(s->m->cx, taken->span, "@%s is the name of what a step keeps for itself; rename the module or the parameter", names[i]);
            return false;
        }
        *slots[i] = add_symbol(s, SYM_BUFFER, hd_intern(s->m->cx, names[i]), i == 2 ? TY_I32 : TY_F32, 1);
        hd_set_word(s->m->cx, &(*slots[i])->attrs, A_ROLE, hd_intern(s->m->cx, "state"));
    }
    return true;
}

static const Unit *owner(Fsdp *s, const Op *o, const Symbol **param) {
    *param = hd_symbol_find(s->m, hd_word(&o->attrs, A_PARAM, ""));
    const char *bucket = *param ? hd_word(&(*param)->attrs, A_BUCKET, NULL) : NULL;
    for (int i = 0; bucket && i < s->units.n; i++)
        if (s->units.at[i].bucket->name == bucket) return &s->units.at[i];
    HD_BUG("@%s is in no bucket", hd_word(&o->attrs, A_PARAM, "?"));
}

static Value *view(Fsdp *s, Op *param, const Symbol *p, const Symbol *buffer) {
    Builder b = {.f = param->func, .before = param, .loc = param->loc, .span = param->span, .bwd = hd_has(&param->attrs, A_BWD)};
    Attrs as = {0};
    hd_set_word(s->m->cx, &as, A_BUFFER, buffer->name);
    hd_set_int(s->m->cx, &as, A_OFFSET, hd_int(&p->attrs, A_OFFSET, 0));
    return hd_build1(&b, OP_VIEW, NULL, NULL, &as, hd_type_with(s->m->cx, buffer->type->dtype, p->type));
}

// Casts of a parameter to the compute dtype read the compute weights; whatever else reads it reads the master weights.
static void params_to_views(Fsdp *s, Func *f) {
    Uses uses = hd_uses(f, s->cx->scratch);
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (o->kind != OP_PARAM) continue;
        const Symbol *p;
        const Unit *u = owner(s, o, &p);
        Value *compute = NULL, *master = NULL;
        int id = o->out[0]->id;
        for (int i = 0; i < uses.count[id]; i++) {
            Op *user = uses.users[id][i];
            if (u->compute && user->kind == OP_CAST && user->out[0]->type->dtype == s->compute) {
                if (!compute) compute = view(s, o, p, u->compute);
                hd_redirect(&uses, user->out[0], compute);
                if (next == user) next = next->next;
                hd_erase(user);
            } else if (!master) {
                master = view(s, o, p, u->master);
            }
        }
        if (master) hd_redirect(&uses, o->out[0], master);
        hd_erase(o);
    }
}

static void store(Fsdp *s, Builder *b, Value *v, const Symbol *into, int64_t offset, bool accumulate) {
    Ctx *cx = s->m->cx;
    if (v->type->dtype != into->type->dtype) {
        Attrs as = {0};
        hd_set_word(cx, &as, A_OUT, hd_intern(cx, hd_dtype_text(into->type->dtype)));
        v = hd_build1(b, OP_CAST, v, NULL, &as, NULL);
    }
    Attrs as = {0};
    hd_set_word(cx, &as, A_INTO, into->name);
    hd_set_int(cx, &as, A_OFFSET, offset);
    if (accumulate) hd_set_flag(cx, &as, A_ACCUMULATE);
    hd_build(b, OP_STORE, 1, &v, &as, NULL);
}

// The loss of micro-batch i of `micro` adds loss/micro to @state.loss, which therefore ends as the mean over the step.
static void store_loss(Fsdp *s, Func *f, int64_t micro, bool first) {
    Op *ret = hd_return(f);
    if (!ret || ret->n_in != 1 || hd_type_count(ret->in[0]->type) != 1)
        HD_BUG("@%s must return one number, the loss", f->name);
    Builder b = {.f = f, .before = ret, .loc = ret->loc, .span = ret->span};
    Value *v = ret->in[0];
    if (micro > 1) {
        Attrs as = {0};
        hd_set_float(s->m->cx, &as, A_VALUE, 1.0 / (double)micro);
        Value *scale = hd_build1(&b, OP_CONST, NULL, NULL, &as, hd_type(s->m->cx, v->type->dtype, 0, NULL));
        v = hd_build1(&b, OP_MUL, v, scale, NULL, NULL);
    }
    store(s, &b, v, s->loss, 0, !first);
    Op *now = hd_op_new(f, OP_RETURN, 0, NULL);
    now->loc = ret->loc;
    now->span = ret->span;
    const char *e = hd_infer(now, 0, NULL);
    if (e) HD_BUG("%s", e);
    hd_insert_before(ret, now);
    hd_erase(ret);
}

// first: this function starts a step, so that what is in the buffers counts for nothing.
static void micro_function(Fsdp *s, Func *f, bool first) {
    VEC(const Symbol *) seen = {0};
    for (Op *o = f->first, *next; o; o = next) {
        next = o->next;
        if (o->kind != OP_GRAD) continue;
        const Symbol *p;
        const Unit *u = owner(s, o, &p);
        bool again = false;
        for (int i = 0; i < seen.n && !again; i++) again = seen.at[i] == p;
        if (!again) hd_push(s->cx->scratch, &seen, p);
        Builder b = {.f = f, .before = o, .loc = o->loc, .span = o->span, .bwd = true};
        store(s, &b, o->in[0], u->grad, hd_int(&p->attrs, A_OFFSET, 0), again || !first);
        hd_erase(o);
    }
    store_loss(s, f, s->micro, first);
    hd_renumber(f);
}

static void specialise_micro(Fsdp *s, Func *micro) {
    params_to_views(s, micro);
    if (s->micro == 1) {
        micro_function(s, hd_func_clone(s->m, micro, "micro_only"), true);
    } else {
        micro_function(s, hd_func_clone(s->m, micro, "micro_first"), true);
        micro_function(s, hd_func_clone(s->m, micro, "micro_last"), false);
    }
    if (s->micro > 2) micro_function(s, micro, false);
    else hd_func_remove(s->m, micro);
}

static void set_betas(Fsdp *s, Attrs *as, const Attrs *train) {
    const Attr *betas = hd_attr(train, A_BETAS);
    hd_set_floats(s->m->cx, as, A_BETAS, 2, betas && betas->n == 2 ? betas->floats : (const double[]){0.9, 0.999});
}

static void build_update(Fsdp *s, const Attrs *train) {
    Ctx *cx = s->m->cx;
    Func *f = hd_func_add(s->m, "update", false);
    if (!f) HD_BUG("the name @update is taken");
    Builder b = {.f = f};
    const char **grads = HD_NEWN(s->cx->scratch, const char *, s->units.n);
    for (int i = 0; i < s->units.n; i++) grads[i] = s->units.at[i].grad->name;
    Attrs as = {0};
    hd_set_words(cx, &as, A_BUFFERS, s->units.n, grads);
    Value *norm = hd_build1(&b, OP_GRAD_NORM, NULL, NULL, &as, NULL);
    store(s, &b, norm, s->norm, 0, false);
    as = (Attrs){0};
    hd_set_word(cx, &as, A_BUFFER, s->step->name);
    hd_set_float(cx, &as, A_CLIP, hd_float(train, A_CLIP, 0));
    set_betas(s, &as, train);
    hd_set_word(cx, &as, A_LR, hd_word(train, A_LR, hd_intern(cx, "constant")));
    hd_set_float(cx, &as, A_LR_PEAK, hd_float(train, A_LR_PEAK, 1e-3));
    static const AttrId schedule[] = {A_LR_FLOOR, A_LR_WARMUP, A_LR_TOTAL};
    for (int i = 0; i < 3; i++)
        if (hd_has(train, schedule[i])) hd_set_attr(cx, &as, hd_attr(train, schedule[i]));
    Value *scalars = hd_build1(&b, OP_STEP_SCALARS, norm, NULL, &as, NULL);
    for (int i = 0; i < s->units.n; i++) {
        as = (Attrs){0};
        hd_set_word(cx, &as, A_BUCKET, s->units.at[i].bucket->name);
        set_betas(s, &as, train);
        hd_set_float(cx, &as, A_EPS, hd_float(train, A_EPS, 1e-8));
        hd_set_float(cx, &as, A_WEIGHT_DECAY, hd_float(train, A_WEIGHT_DECAY, 0.01));
        hd_build(&b, OP_ADAMW, 1, &scalars, &as, NULL);
    }
    hd_build(&b, OP_RETURN, 0, NULL, NULL, NULL);
    hd_renumber(f);
}

static bool read_settings(Fsdp *s, const Attrs *train) {
    Ctx *cx = s->m->cx;
    const Attrs *schedule = hd_settings(s->m, "schedule");
    int64_t ranks = hd_int(schedule, A_SHARD, 1) * hd_int(schedule, A_REPLICATE, 1);
    const char *compute = hd_word(train, A_COMPUTE, "f32"), *optimizer = hd_word(train, A_OPTIMIZER, "adamw");
    if (!hd_dtype_parse(compute, &s->compute) || !hd_dtype_is_float(s->compute) || s->compute == TY_F64)
        hd_error(cx, (Span){0}, "compute = %s: parameters can be used as f32, bf16 or f16", compute);
    else if (strcmp(optimizer, "adamw"))
        hd_error(cx, (Span){0}, "optimizer = %s: only adamw is known", optimizer);
    else if ((s->micro = hd_int(train, A_MICRO, 1)) < 1)
        hd_error(cx, (Span){0}, "accumulate = %lld: a step needs at least one micro-batch", (long long)s->micro);
    else if (ranks != 1)
        hd_error(cx, hd_symbol_find(s->m, "schedule")->span, "mesh of %lld ranks: a program runs on one rank; set shard = 1 and replicate = 1", (long long)ranks);
    else
        return true;
    return false;
}

Change hd_pass_fsdp(Module *m, PassCx *cx) {
    Fsdp s = {.m = m, .cx = cx};
    const Attrs *train = hd_settings(m, "train");
    Func *micro = hd_func_find(m, "micro"), *eval = hd_func_find(m, "eval");
    if (!micro) {
        hd_error(m->cx, (Span){0}, "there is no function @micro: run autodiff before fsdp");
        return FAILED;
    }
    if (!read_settings(&s, train) || !collect_units(&s)) return FAILED;
    for (int i = 0; i < s.units.n; i++)
        if (!place_unit(&s, &s.units.at[i], 1)) return FAILED;
    if (!add_state(&s)) return FAILED;
    m->stage = STAGE_SHARDED;
    specialise_micro(&s, micro);
    build_update(&s, train);
    if (eval) {
        params_to_views(&s, eval);
        store_loss(&s, eval, 1, true);
        hd_renumber(eval);
    }
    for (int i = 0; i < s.units.n; i++) hd_count(cx, "elements of padding", s.units.at[i].layout.padding);
    hd_count(cx, "buckets", s.units.n);
    return CHANGED;
}
