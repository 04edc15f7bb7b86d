// Kernels of kind optimizer.
#include "ir/optimizer.h"
#include "ir/base/ints.h"
#include "ir/mesh.h"
#include <math.h>
#include <stdlib.h>
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

// --- rows and columns

static const char *const pers[] = {
    [PER_WHOLE] = "whole", [PER_ROW] = "row", [PER_COLUMN] = "column", [PER_ELEMENT] = "element"};

int hd_per(const char *word) {
    int i = PER_ELEMENT;
    while (i >= 0 && strcmp(pers[i], word) != 0) i--;
    return i;
}

int hd_state_per(const Func *k, int state) {
    const Attr *per = hd_attr(&k->attrs, A_PER);
    return per && state < per->n ? hd_per(per->strs[state]) : PER_ELEMENT;
}

bool hd_has_lines(const Func *k) {
    for (const Op *o = k ? k->first : NULL; o; o = o->next)
        if (hd_op_is(o, TRAIT_AVERAGES)) return true;
    return k && hd_has(&k->attrs, A_PER);
}

bool hd_compensates(const Func *k) {
    int i = OPT_STATE;
    while (k && i < k->n_args && strcmp(k->args[i]->name, HD_COMPENSATION) != 0) i++;
    return k && i < k->n_args;
}

bool hd_takes_whole(const Func *k) { return hd_optimizer_turn(k) || hd_has_lines(k); }

bool hd_is_whole(const Module *m, const Symbol *s) {
    return hd_takes_whole(hd_func_find(m, hd_word(&s->attrs, A_UPDATED_BY, "")));
}

void hd_optimizer_per(const Func *k, int *per) {
    for (int i = 0; i < k->n_args; i++)
        per[k->args[i]->id] = i == OPT_GRADIENT || i == OPT_WEIGHTS ? PER_ELEMENT
                              : i < OPT_STATE                       ? PER_WHOLE
                                                                    : hd_state_per(k, i - OPT_STATE);
    for (const Op *o = k->first; o; o = o->next) {
        int of = o->kind == OP_ORTHOGONALIZE ? PER_ELEMENT : PER_WHOLE;
        for (int i = 0; i < o->n_in; i++) of |= per[o->in[i]->id];
        if (hd_op_is(o, TRAIT_AVERAGES)) of &= hd_per(hd_word(&o->attrs, A_ALONG, ""));
        for (int i = 0; i < o->n_out; i++) per[o->out[i]->id] = of;
    }
}

static int64_t numbers_of(const Lined *l, int per) {
    return (per & PER_ROW ? l->rows : 1) * (per & PER_COLUMN ? l->cols : 1);
}

static int by_offset(const void *a, const void *b) {
    const Lined *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->param->id - y->param->id;
}

Lines hd_lines(const Module *m, const Symbol *bucket, Arena *a) {
    enum { ALIGN = 32 }; // of the numbers that a rank has, as of elements
    const Func *k = hd_func_find(m, hd_word(&bucket->attrs, A_UPDATED_BY, ""));
    const Mesh mesh = hd_mesh(m);
    const int64_t shards = hd_mesh_ranks(&mesh, hd_axes(&bucket->attrs, A_SPLIT)),
                  part = shards ? hd_type_count(bucket->type) / shards : 0;
    VEC(Lined) found = {0};
    Lines x = {0};
    for (const Symbol *p = m->symbols; part && hd_has_lines(k) && p; p = p->next) {
        if (p->kind != SYM_PARAM || strcmp(hd_word(&p->attrs, A_BUCKET, ""), bucket->name)) continue;
        const bool matrix = p->type->rank == 2;
        const Lined l = {.param = p, .at = hd_int(&p->attrs, A_OFFSET, 0), .rows = matrix ? p->type->dim[0] : 1,
                         .cols = matrix ? p->type->dim[1] : hd_type_count(p->type)};
        if (l.rows && l.cols) hd_push(a, &found, l);
    }
    x.n = found.n, x.list = found.at;
    if (x.n) qsort(x.list, (size_t)x.n, sizeof *x.list, by_offset);
    int64_t used[HD_MAX_STATES] = {0};
    for (int i = 0; i < x.n; i++) {
        Lined *l = &x.list[i];
        l->rank = l->at / part, l->at %= part;
        if (i && l->rank != x.list[i - 1].rank) memset(used, 0, sizeof used);
        for (int s = 0; s < k->n_args - OPT_STATE && s < HD_MAX_STATES; s++) {
            l->line[s] = used[s];
            used[s] += numbers_of(l, hd_state_per(k, s));
            if (hd_round_up(used[s], ALIGN) > x.numbers[s]) x.numbers[s] = hd_round_up(used[s], ALIGN);
        }
    }
    for (int s = 0; hd_has_lines(k) && s < k->n_args - OPT_STATE && s < HD_MAX_STATES; s++) {
        if (hd_state_per(k, s) == PER_ELEMENT) x.numbers[s] = part;
        for (int i = 0; i < x.n && hd_state_per(k, s) == PER_ELEMENT; i++) x.list[i].line[s] = x.list[i].at;
    }
    return x;
}

Lines hd_lined(const Op *o, Arena *a) {
    const Module *m = o->func->module;
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS);
    const Symbol *bucket = master ? hd_symbol_find(m, hd_word(&master->attrs, A_BUCKET, "")) : NULL;
    if (!bucket || bucket->kind != SYM_BUCKET || !hd_has_lines(hd_update_kernel(o))) return (Lines){0};
    Lines x = hd_lines(m, bucket, a);
    const Mesh mesh = hd_mesh(m);
    const int64_t part = hd_type_count(bucket->type) / hd_mesh_ranks(&mesh, hd_axes(&bucket->attrs, A_SPLIT));
    for (int i = 0; i < x.n && hd_type_count(master->type) == hd_type_count(bucket->type); i++) {
        Lined *l = &x.list[i];
        l->at += l->rank * part;
        for (int s = 0; s < HD_MAX_STATES; s++) l->line[s] += l->rank * x.numbers[s];
        l->rank = 0;
    }
    return x;
}

LineSpace hd_line_space(const Op *o) {
    const Func *k = hd_update_kernel(o);
    LineSpace s = {0};
    if (!hd_has_lines(k)) return s;
    Arena *a = hd_arena_new();
    const Lines x = hd_lined(o, a);
    int *per = HD_NEWN(a, int, k->n_values + 1), means = 0;
    Lined most = {0};
    hd_optimizer_per(k, per);
    for (int i = 0; i < x.n; i++) {
        if (x.list[i].rows > most.rows) most.rows = x.list[i].rows;
        if (x.list[i].cols > most.cols) most.cols = x.list[i].cols;
    }
    for (const Op *p = k->first; p; p = p->next)
        if (hd_op_is(p, TRAIT_AVERAGES) && means < HD_MAX_MEANS) {
            s.mean[means++] = s.all;
            s.all = hd_align(s.all + 4 * numbers_of(&most, per[p->out[0]->id]));
        }
    for (int i = 0; i < k->n_args - OPT_STATE && i < HD_MAX_STATES; i++) {
        s.fresh[i] = s.all;
        if (hd_state_per(k, i) != PER_ELEMENT) s.all = hd_align(s.all + 4 * numbers_of(&most, hd_state_per(k, i)));
    }
    s.sums = s.all;
    const int64_t columns = most.cols > 16 ? most.cols : 16;
    s.all = hd_align(s.all + 8 * HD_LINE_RUNS * columns);
    hd_arena_free(a);
    return s;
}

// --- matrices

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
        const Turned t = {at / part, at % part, r, c, size_of(hd_word(&turn->attrs, A_RATE_FOR, ""), r, c), 1};
        if (r && c) hd_push(a, &found, t);
    }
    *list = found.at;
    return found.n;
}

enum { TILE = 128, FULL = 128, FILLING = 512 }; // elements of a tile; tiles that fill a GPU, and a batch at most

static int64_t tiles_of(int64_t rows, int64_t cols) { // of x x'
    const int64_t n = ((rows < cols ? rows : cols) + TILE - 1) / TILE;
    return n * n;
}

// Of n equal matrices, how many are in a batch: batches are as equal as they can be, and each matrix in one begins at
// 16 bytes, as does each product.
static int64_t batch_of(int64_t n, int64_t rows, int64_t cols) {
    const int64_t least = rows < cols ? rows : cols, tiles = tiles_of(rows, cols);
    const int64_t most = tiles < FILLING ? FILLING / tiles : 1, batches = (n + most - 1) / most;
    return n && rows * cols % 32 == 0 && least % 8 == 0 ? (n + batches - 1) / batches : 1;
}

int64_t hd_turned_like(const Op *o, int64_t rows, int64_t cols) {
    const Module *m = o->func->module;
    const Symbol *bucket = hd_symbol_find(m, hd_word(&hd_named(o, A_MASTER_WEIGHTS)->attrs, A_BUCKET, ""));
    const char *by = hd_word(&bucket->attrs, A_UPDATED_BY, "");
    int64_t n = 0;
    for (const Symbol *p = m->symbols; p; p = p->next)
        n += p->kind == SYM_PARAM && p->type->rank == 2 && p->type->dim[0] == rows && p->type->dim[1] == cols &&
             !strcmp(hd_word(&p->attrs, A_UPDATED_BY, ""), by);
    return batch_of(n, rows, cols);
}

static int by_rank(const void *a, const void *b) {
    const Turned *x = a, *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : x->at != y->at ? (x->at < y->at ? -1 : 1) : 0;
}

int hd_turned_batches(const Op *o, Arena *a, const Turned **list) {
    const Turned *found;
    const int n = hd_turned(o, a, &found);
    Turned *all = HD_NEWN(a, Turned, n + 1);
    int batches = 0;
    if (n) memcpy(all, found, sizeof *all * (size_t)n);
    if (n) qsort(all, (size_t)n, sizeof *all, by_rank);
    for (int i = 0, equal = 0; i < n; i += equal) {
        const Turned first = all[i];
        const int64_t count = first.rows * first.cols;
        for (equal = 1; i + equal < n; equal++) {
            const Turned *next = &all[i + equal];
            if (next->rank != first.rank || next->rows != first.rows || next->cols != first.cols ||
                next->at != first.at + equal * count)
                break;
        }
        const int64_t batch = batch_of(equal, first.rows, first.cols);
        for (int64_t k = 0; k < equal; k += batch) {
            Turned t = first;
            t.at += k * count;
            t.batch = k + batch <= equal ? batch : equal - k;
            all[batches++] = t;
        }
    }
    *list = all;
    return batches;
}

// As many as the entries that a rank has most of, up to 4, unless a product of one fills a GPU.
static int lanes(const Turned *list, int n) {
    int most = 1;
    for (int i = 0; i < n; i++) {
        int mine = 0;
        for (int k = 0; k < n; k++) mine += list[k].rank == list[i].rank;
        if (list[i].batch * tiles_of(list[i].rows, list[i].cols) >= FULL) return 1;
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
    const int n = cuda ? hd_turned_batches(o, a, &list) : hd_turned(o, a, &list);
    int64_t whole = 0, square = 0, runs = 0;
    for (int i = 0; i < n; i++) {
        const int64_t r = list[i].rows, c = list[i].cols, least = r < c ? r : c, b = list[i].batch;
        if (b * r * c > whole) whole = b * r * c;
        if (b * least * least > square) square = b * least * least;
        if (b * ((r * c + HD_NORM_BLOCK - 1) / HD_NORM_BLOCK) > runs)
            runs = b * ((r * c + HD_NORM_BLOCK - 1) / HD_NORM_BLOCK);
    }
    s.lanes = cuda ? lanes(list, n) : 1;
    hd_arena_free(a);
    const int64_t bytes = cuda && !strcmp(hd_word(&turn->attrs, A_OUT, ""), "bf16") ? 2 : 4;
    take(&s, bytes * hd_type_count(hd_named(o, A_MASTER_WEIGHTS)->type));
    s.x = take(&s, bytes * whole);
    s.g = take(&s, bytes * square);
    s.h = take(&s, bytes * square);
    s.sums = take(&s, 8 * runs);
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

static const char *lines_wrong(const Func *k, const Op *ret) {
    const Attr *said = hd_attr(&k->attrs, A_PER);
    const char *wrong = NULL;
    int means = 0;
    if (said && said->n != k->n_args - OPT_STATE) return "says for each of its states what has a number of it";
    for (int i = 0; said && i < said->n; i++)
        if (hd_per(said->strs[i]) < 0) return "has states per element, row, column or whole";
    int *per = malloc(sizeof *per * (size_t)(k->n_values + 1));
    if (!per) HD_BUG("out of memory");
    hd_optimizer_per(k, per);
    for (const Op *o = k->first; o; o = o->next) {
        if (!hd_op_is(o, TRAIT_AVERAGES)) continue;
        if (++means > HD_MAX_MEANS) wrong = "has at most eight means of lines";
        if (per[o->out[0]->id] == per[o->in[0]->id]) wrong = "averages what differs along the line";
    }
    for (int i = 1; i < ret->n_in; i++)
        if (per[ret->in[i]->id] & ~hd_state_per(k, i - 1)) wrong = "gives a state what differs as the state does";
    free(per);
    return wrong;
}

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
    if (hd_has_lines(k) && (turn || hd_is_rule(k))) return "that has means or states of lines does nothing else";
    for (const Op *o = k->first; o; o = o->next) {
        if (o->kind == OP_ORTHOGONALIZE && o != turn) return "orthogonalizes once";
        if (!hd_op_is(o, TRAIT_ELEMENTWISE | TRAIT_CONSTANT | TRAIT_RETURN | TRAIT_AVERAGES) && o != turn)
            return "is made of pointwise ops and constants";
        for (int i = 0; i < o->n_out; i++)
            if (!is_number(o->out[i])) return "computes with single numbers of f32";
    }
    for (int i = 0; i < k->n_args; i++)
        if (!is_number(k->args[i])) return "computes with single numbers of f32";
    return hd_has_lines(k) ? lines_wrong(k, ret) : NULL;
}
