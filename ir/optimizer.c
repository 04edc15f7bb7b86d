// Kernels of kind optimizer.
#include "ir/optimizer.h"
#include "ir/base/ints.h"
#include <math.h>
#include <string.h>

const AttrId hd_group_rates[] = {A_LR_SCALE, A_WEIGHT_DECAY};

const char *hd_optimizer_argument(int i) {
    static const char *const names[OPT_STATE] = {"gradient", "weights", "lr", "decay", "correction1", "correction2"};
    return names[i];
}

const Op *hd_optimizer_turn(const Func *k) {
    const Op *o = k ? k->first : NULL;
    while (o && o->kind != OP_ORTHOGONALIZE) o = o->next;
    return o;
}

bool hd_is_turned(const Module *m, const Symbol *s) {
    return hd_optimizer_turn(hd_func_find(m, hd_word(&s->attrs, A_UPDATED_BY, ""))) != NULL;
}

static double size_of(const char *rate_for, int64_t rows, int64_t cols) {
    const double r = (double)rows, c = (double)cols;
    return strcmp(rate_for, "original") ? 0.2 * sqrt(r > c ? r : c) : sqrt(r > c ? r / c : 1);
}

int hd_turned(const Op *o, Arena *a, const Turned **list) {
    const Op *turn = hd_optimizer_turn(hd_update_kernel(o));
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS);
    const char *bucket = master ? hd_word(&master->attrs, A_BUCKET, "") : "";
    const int64_t part = master ? hd_type_count(master->type) : 0;
    VEC(Turned) found = {0};
    for (const Symbol *p = o->func->module->symbols; turn && part && p; p = p->next) {
        if (p->kind != SYM_PARAM || strcmp(hd_word(&p->attrs, A_BUCKET, ""), bucket) || p->type->rank != 2) continue;
        const int64_t at = hd_int(&p->attrs, A_OFFSET, 0), r = p->type->dim[0], c = p->type->dim[1];
        const Turned t = {at / part, at % part, r, c, size_of(hd_word(&turn->attrs, A_RATE_FOR, ""), r, c)};
        if (r && c) hd_push(a, &found, t);
    }
    *list = found.at;
    return found.n;
}

// As many as the matrices that a rank has most of, up to 4, unless a product of one alone fills a GPU.
static int lanes(const Turned *list, int n, int64_t least) {
    int most = 1;
    for (int i = 0; i < n && least <= 1024; i++) {
        int mine = 0;
        for (int k = 0; k < n; k++) mine += list[k].rank == list[i].rank;
        if (mine > most) most = mine;
    }
    return most < 4 ? most : 4;
}

static int64_t take(TurnedSpace *s, int64_t bytes) {
    const int64_t at = s->all;
    s->all = hd_align(at + bytes);
    return at;
}

TurnedSpace hd_turned_space(const Op *o, bool cuda) {
    const Op *turn = hd_optimizer_turn(hd_update_kernel(o));
    TurnedSpace s = {0};
    if (!turn) return s;
    Arena *a = hd_arena_new();
    const Turned *list;
    const int n = hd_turned(o, a, &list);
    int64_t whole = 0, least = 0;
    for (int i = 0; i < n; i++) {
        const int64_t r = list[i].rows, c = list[i].cols, smaller = r < c ? r : c;
        if (r * c > whole) whole = r * c;
        if (smaller > least) least = smaller;
    }
    s.lanes = cuda ? lanes(list, n, least) : 1;
    hd_arena_free(a);
    const int64_t bytes = cuda && !strcmp(hd_word(&turn->attrs, A_OUT, ""), "bf16") ? 2 : 4;
    take(&s, bytes * hd_type_count(hd_named(o, A_MASTER_WEIGHTS)->type));
    s.x = take(&s, bytes * whole);
    s.g = take(&s, bytes * least * least);
    s.h = take(&s, bytes * least * least);
    s.sums = take(&s, 8 * ((whole + HD_NORM_BLOCK - 1) / HD_NORM_BLOCK));
    s.offered = take(&s, cuda ? HD_TURN_OFFERED : 0);
    s.lane = s.all - s.x;
    s.all += (s.lanes - 1) * s.lane;
    return s;
}

bool hd_is_rule(const Func *k) { return k->n_args && !strcmp(k->args[OPT_GRADIENT]->name, "total"); }

Func *hd_optimizer(const Module *m) {
    Func *f = m->funcs;
    while (f && (!f->is_kernel || hd_kind(&f->attrs) != KIND_OPTIMIZER || hd_is_rule(f))) f = f->next;
    return f;
}

Func *hd_update_kernel(const Op *o) {
    return hd_func_find(o->func->module, hd_word(&o->attrs, A_KERNEL, ""));
}

static bool is_number(const Value *v) { return v->type->dtype == TY_F32 && v->type->rank == 0; }

const char *hd_optimizer_wrong(const Func *k) {
    const Op *ret = hd_return(k);
    const int states = k->n_args - OPT_STATE;
    if (states < 0 || states > HD_MAX_STATES) return "takes six numbers and at most four states";
    if (states && hd_is_rule(k)) return "that takes total has no states";
    for (int i = hd_is_rule(k); i < OPT_STATE; i++)
        if (strcmp(k->args[i]->name, hd_optimizer_argument(i)) != 0)
            return "takes gradient, weights, lr, decay, correction1, correction2, and then its states";
    if (!ret || ret->n_in != 1 + states) return "gives the weights and its states";
    const Op *turn = hd_optimizer_turn(k);
    if (turn && hd_is_rule(k)) return "that takes total orthogonalizes nothing";
    for (const Op *o = k->first; o; o = o->next) {
        if (o->kind == OP_ORTHOGONALIZE && o != turn) return "orthogonalizes once";
        if (!hd_op_is(o, TRAIT_ELEMENTWISE | TRAIT_CONSTANT | TRAIT_RETURN) && o != turn)
            return "is made of pointwise ops and constants";
        for (int i = 0; i < o->n_out; i++)
            if (!is_number(o->out[i])) return "computes with single numbers of f32";
    }
    for (int i = 0; i < k->n_args; i++)
        if (!is_number(k->args[i])) return "computes with single numbers of f32";
    return NULL;
}
