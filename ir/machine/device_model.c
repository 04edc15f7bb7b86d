// Times from a device table. See device_model.h.
//
// Between two points of a curve the logarithm of the time is linear in the logarithm of the size, and likewise between
// two curves. Before the first point the time is that of the first; after the last one it grows in proportion.
#include "ir/machine/device_model.h"
#include "ir/mesh.h"
#include "ir/machine/cost.h"
#include "ir/machine/device_table.h"
#include "ir/machine/symmetric.h"
#include "ir/shapes.h"
#include <math.h>
#include <string.h>

enum { MOST_OF_HOSTS = 8 }; // devices of one, where a table does not say

static double between(double x, double x0, double y0, double x1, double y1) {
    return y0 * exp(log(y1 / y0) * log(x / x0) / log(x1 / x0));
}

double hd_curve(const FactLine *l, double at, bool clamp) {
    const Point *p = l->points, *last = p + l->n - 1;
    if (at <= p->at) return p->is;
    if (at >= last->at) return clamp ? last->is : last->is * at / last->at;
    while (p[1].at < at) p++;
    return between(at, p[0].at, p[0].is, p[1].at, p[1].is);
}

static double number(const DeviceModel *d, FactId f) { return d->lines[d->first[f]].value; }

static double number_or(const DeviceModel *d, FactId f, double otherwise) {
    return d->first[f] < d->first[f + 1] ? number(d, f) : otherwise;
}

static bool has_words(const FactLine *l, const char *const *words) {
    for (int i = 0; i < FACT_WORDS && words[i]; i++)
        if (strcmp(l->word[i], words[i]) != 0) return false;
    return true;
}

// The lines of a fact with these words, which follow each other.
static int lines_of(const DeviceModel *d, FactId f, const char *const *words, const FactLine **first) {
    int i = d->first[f], n = 0;
    while (i < d->first[f + 1] && !has_words(&d->lines[i], words)) i++;
    *first = &d->lines[i];
    while (i + n < d->first[f + 1] && has_words(&d->lines[i + n], words)) n++;
    return n;
}

// At `at` on the curve for `number`, between those of the lines.
static double surface(const FactLine *l, int n, double number, double at, bool clamp) {
    if (number <= l->number || n == 1) return hd_curve(l, at, clamp);
    const FactLine *last = l + n - 1;
    if (number >= last->number) return hd_curve(last, at, clamp);
    while (l[1].number < number) l++;
    return between(number, l[0].number, hd_curve(l, at, clamp), l[1].number, hd_curve(l + 1, at, clamp));
}

static double up_to_128(int64_t n) { return (double)((n + 127) / 128 * 128); }

// Whose lines hold for operands of this type: those of its row's rate. A table need not have any for types of one byte;
// those of bf16 hold then.
static DType table_type(const DeviceModel *d, DType t) {
    const DType rate = hd_dtype_info(t)->rate;
    return hd_dtype_is_fp8(rate) && !(d->peak[rate] > 0) ? TY_BF16 : rate;
}

bool hd_model_has_rate(const DeviceModel *d, DType t) { return table_type(d, t) == hd_dtype_info(t)->rate; }

// The time that the power limit adds to work of so many operations, where the table does not say what energy it takes.
static double sustained(const DeviceModel *d, DType t, double flops) {
    return hd_model_power(d) > 0 ? 0 : (1 / number(d, FACT_SUSTAINED) - 1) * flops / d->peak[t];
}

double hd_model_rows(const DeviceModel *d, double bytes) {
    return 1e-6 * hd_curve(&d->lines[d->first[FACT_ROWS]], bytes, false);
}

// Microseconds of a product of so many results, each a sum of k terms of type t, which the table has.
static double multiplied_us(const DeviceModel *d, DType t, double results, int64_t k) {
    const char *words[FACT_WORDS] = {hd_dtype_text(t)};
    const FactLine *l;
    const int n = lines_of(d, FACT_PRODUCT, words, &l);
    const double most = l[n - 1].number, us = surface(l, n, results, (double)k, false);
    return results > most ? us * (results / most) : us;
}

static double product(const DeviceModel *d, const Op *o, double flops, double bytes) {
    const Product p = hd_product(o);
    const DType t = table_type(d, o->in[0]->type->dtype);
    const double us = multiplied_us(d, t, (double)p.batches * up_to_128(p.m) * up_to_128(p.n), p.k);
    const double moved = 1e6 * hd_model_rows(d, bytes);
    return 1e-6 * ((us > moved ? us : moved) + sustained(d, t, flops));
}

// A rate holds when the device is full: a block of 128 queries of one head is the work of a multiprocessor.
static double attention(const DeviceModel *d, const Op *o, double flops, double bytes HD_UNUSED) {
    const AttentionShape s = hd_attention_shape(o);
    const DType t = table_type(d, s.dtype);
    const char *words[FACT_WORDS] = {hd_word(&o->attrs, A_IMPL, "generated"), s.grad ? "backward" : "forward",
                                     hd_dtype_text(t)};
    const FactLine *l;
    int n = lines_of(d, FACT_ATTENTION, words, &l);
    static const char *const like[] = {"tensor_cores", "generated"};
    for (int i = strcmp(words[0], "generated") ? 0 : 1; !n && i < 2; i++) { // one that the table does not know
        words[0] = like[i];
        n = lines_of(d, FACT_ATTENTION, words, &l);
    }
    const double rate = surface(l, n, (double)s.size, (double)s.seq, true) * 1e6; // operations a microsecond
    const double blocks = (double)(s.batch * s.heads * ((s.seq + 127) / 128)), sms = number(d, FACT_SMS);
    const double full = blocks < sms ? flops * sms / blocks : flops;
    return hd_model_rows(d, 0) + 1e-6 * (full / rate + sustained(d, t, flops));
}

static double share(const DeviceModel *d, const Op *o) { // of a kernel: that of its slowest op
    const FactLine *l;
    const char *words[FACT_WORDS] = {hd_op_info(o->kind)->mnemonic};
    double least = lines_of(d, FACT_SHARE, words, &l) ? l->value : 1;
    const Func *k = hd_launched(o);
    for (const Op *b = k ? k->first : NULL; b; b = b->next) {
        const double s = share(d, b);
        least = s < least ? s : least;
    }
    return least;
}

static const FactId collective_fact[N_OPS] = {
#define COLLECTIVE(id, inverse, moves, sums, fact, name) [OP_##id] = FACT_##fact,
#include "ir/collectives.def"
};

const char *hd_link_text(Link l) { return l == LINK_NVLINK ? "nvlink" : "network"; }

static int lines_of_link(const DeviceModel *d, OpKind kind, Link link, const FactLine **first) {
    const char *words[FACT_WORDS] = {hd_link_text(link)};
    return lines_of(d, collective_fact[kind], words, first);
}

static double linked_us(const DeviceModel *d, OpKind kind, Link link, int64_t ranks, double bytes) {
    const FactLine *l;
    const int n = lines_of_link(d, kind, link, &l);
    const double most = l[n - 1].number, us = surface(l, n, (double)ranks, bytes, false);
    // more ranks than were measured: the bytes at the same rate, the way around the ring so much longer
    return us + ((double)ranks > most ? hd_curve(&l[n - 1], 0, false) * ((double)ranks / most - 1) : 0);
}

int64_t hd_model_most_ranks(const DeviceModel *d, OpKind kind, Link link) {
    const FactLine *l;
    const int n = lines_of_link(d, kind, link, &l);
    return n ? (int64_t)l[n - 1].number : 0;
}

// Of the bytes that each rank receives, those that pass the network link of each. Around a ring every host receives
// what one rank does, by the links of all its ranks. An exchange sends each rank its own.
static double bytes_between(OpKind kind, Party p, double bytes) {
    if (kind != OP_EXCHANGE) return bytes / (double)p.on_host;
    return bytes * (double)(p.ranks - p.on_host) / (double)(p.ranks - 1);
}

double hd_model_collective(const DeviceModel *d, OpKind kind, Party p, double bytes) {
    if (hd_link(p) == LINK_NVLINK || !hd_model_most_ranks(d, kind, LINK_NETWORK))
        return 1e-6 * linked_us(d, kind, LINK_NVLINK, p.ranks, bytes);
    const double between = linked_us(d, kind, LINK_NETWORK, p.ranks / p.on_host, bytes_between(kind, p, bytes));
    const double within = p.on_host > 1 ? linked_us(d, kind, LINK_NVLINK, p.on_host, bytes) : 0;
    return 1e-6 * (between > within ? between : within);
}

double hd_model_copy(const DeviceModel *d, CopyWay way, double bytes, bool both) {
    static const char *const names[N_COPY_WAYS] = {"within", "to-host", "to-device"};
    const char *words[FACT_WORDS] = {names[way]};
    const FactLine *l;
    lines_of(d, FACT_COPY, words, &l);
    const double us = hd_curve(l, bytes, false);
    return 1e-6 * (both && way != COPY_WITHIN ? us / number(d, FACT_BOTH_WAYS) : us);
}

// --- ops

// The space of the value or buffer that a copy reads or writes.
static Space space_of(const Value *v) {
    const Op *by = v->def;
    while (by && hd_op_is(by, TRAIT_ALIAS) && by->n_in) by = by->in[0]->def;
    const Symbol *s = by ? hd_named(by, A_BUFFER) : NULL;
    if (by && hd_op_is(by, TRAIT_COPIES)) return hd_space(&by->attrs);
    return s ? hd_space(&s->attrs) : SPACE_DEVICE;
}

static Space space_read(const Op *o) {
    const Symbol *s = hd_named(o, A_BUFFER);
    return s ? hd_space(&s->attrs) : space_of(o->in[0]);
}

static Space space_written(const Op *o) {
    const Symbol *s = hd_named(o, A_INTO);
    return hd_space(s ? &s->attrs : &o->attrs);
}

CopyWay hd_copy_way(const Op *o) {
    const Space from = space_read(o), to = space_written(o);
    return from == to ? COPY_WITHIN : to == SPACE_HOST ? COPY_TO_HOST : COPY_TO_DEVICE;
}

static double bytes_read(const Op *o) {
    const Symbol *s = hd_named(o, A_BUFFER);
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    double n = 0;
    for (int i = 0; list && i < list->n; i++)
        n += (double)hd_type_bytes(hd_symbol_find(o->func->module, list->strs[i])->type);
    return list ? n : (double)hd_type_bytes(o->n_in ? o->in[0]->type : s->type);
}

int64_t hd_collective_ranks(const Op *o) {
    const Mesh mesh = hd_mesh(o->func->module);
    if (hd_collective(o)->exchanges || hd_collective(o)->compares)
        return hd_mesh_ranks(&mesh, hd_axes(&hd_named(o, A_COMM)->attrs, A_OVER));
    const double to = (double)hd_type_count(hd_result_type(o, 0));
    const double from = (double)hd_type_count(o->n_in ? o->in[0]->type : hd_named(o, A_BUFFER)->type);
    return (int64_t)((from < to ? to / from : from / to) + 0.5);
}

int64_t hd_model_host(const DeviceModel *d, const Module *m) {
    const Mesh mesh = hd_mesh(m);
    const Symbol *schedule = hd_symbol_find(m, "schedule");
    const int64_t said = schedule ? hd_int(&schedule->attrs, A_HOST, 0) : 0;
    return hd_mesh_host(&mesh, said > 0 ? said : (int64_t)number_or(d, FACT_HOST, MOST_OF_HOSTS));
}

Party hd_party(const DeviceModel *d, const Op *o) {
    const Symbol *comm = hd_named(o, A_COMM);
    const Mesh mesh = hd_mesh(o->func->module);
    const Axes over = comm ? hd_axes(&comm->attrs, A_OVER) : 0;
    Party p = {.ranks = hd_collective_ranks(o)};
    p.on_host = p.ranks;
    if (hd_mesh_ranks(&mesh, over) == p.ranks) // otherwise a text without a mesh
        p.on_host = hd_mesh_on_host(&mesh, over, hd_model_host(d, o->func->module));
    return p;
}

static double collective(const DeviceModel *d, const Op *o, double flops HD_UNUSED, double bytes) {
    const int64_t ranks = hd_collective_ranks(o);
    const double rounded = (double)hd_type_bytes(hd_result_type(o, 0)) / (double)ranks; // what `out` writes first
    const double casts = hd_has(&o->attrs, A_OUT) ? hd_model_rows(d, bytes_read(o) + rounded) : 0;
    if (ranks > 1) return casts + hd_model_collective(d, o->kind, hd_party(d, o), bytes);
    return casts > 0 ? casts : hd_model_copy(d, COPY_WITHIN, bytes_read(o), false);
}

static bool does_nothing(const Op *o) {
    return hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE | TRAIT_SYNC | TRAIT_RETURN | TRAIT_IDLE);
}

// The time of ops of a kind of work: the first row with a trait of the op.
typedef struct {
    uint64_t trait;
    double (*seconds)(const DeviceModel *d, const Op *o, double flops, double bytes);
    double (*picojoules)(const DeviceModel *d, const Op *o, double flops, double bytes);
    DType (*multiplied)(const Op *o); // the type of what tensor cores multiply; NULL: they do not work
} WorkCost;
static const WorkCost *work_cost(const Op *o);

static double copy(const DeviceModel *d, const Op *o, double flops HD_UNUSED, double bytes HD_UNUSED) {
    return hd_model_copy(d, hd_copy_way(o), bytes_read(o), false);
}

// The type in which an optimizer multiplies the matrices that it orthogonalizes.
static DType turned_type(const Op *turn) {
    return strcmp(hd_word(&turn->attrs, A_OUT, ""), "bf16") ? TY_F32 : TY_BF16;
}

// The products of an optimizer that orthogonalizes, on the rank that has most to do. They count as one after another:
// on an H200 four lanes take a tenth less than one (tests/bench/RESULTS.md).
static double orthogonalized(const DeviceModel *d, const Op *o) {
    const Op *turn = o->kind == OP_UPDATE ? hd_optimizer_turn(hd_update_kernel(o)) : NULL;
    if (!turn) return 0;
    const DType t = table_type(d, turned_type(turn));
    const Mesh mesh = hd_mesh(o->func->module);
    const int64_t ranks = hd_mesh_ranks(&mesh, HD_ALL_AXES);
    Arena *a = hd_arena_new();
    const Turned *list;
    const int n = hd_turned_batches(o, a, &list);
    double most = 0;
    for (int64_t rank = 0; n && rank < ranks; rank++) {
        double us = 0;
        for (int i = 0; i < n; i++) {
            const bool tall = list[i].rows > list[i].cols;
            const int64_t least = tall ? list[i].cols : list[i].rows, other = tall ? list[i].rows : list[i].cols;
            const double b = (double)list[i].batch, square = hd_turned_square(o, &list[i]);
            if (list[i].rank != rank) continue;
            us += HD_TURNS * (multiplied_us(d, t, square, other) + multiplied_us(d, t, square, least) +
                              multiplied_us(d, t, b * up_to_128(least) * up_to_128(other), least));
        }
        if (us > most) most = us;
    }
    hd_arena_free(a);
    return 1e-6 * most;
}

static double rows(const DeviceModel *d, const Op *o, double flops HD_UNUSED, double bytes) {
    return hd_model_rows(d, bytes / share(d, o)) + orthogonalized(d, o);
}

double hd_model_seconds(const DeviceModel *d, const Op *o) {
    double flops, bytes;
    if (does_nothing(o)) return 0;
    hd_cost(o, &flops, &bytes);
    return work_cost(o)->seconds(d, o, flops, bytes);
}

// --- energy

static double picojoules(const DeviceModel *d, const char *kind) {
    const char *words[FACT_WORDS] = {kind};
    const FactLine *l;
    return lines_of(d, FACT_ENERGY, words, &l) ? l->value : 0;
}

// Of products, whose operands the tensor cores read, with what a product of its own size moves.
static double multiplied_energy(const DeviceModel *d, DType t, double flops, double bytes) {
    const double worked = table_type(d, t) == TY_BF16 ? flops * picojoules(d, "product") : 0;
    const double moved = bytes * picojoules(d, "rows");
    return worked > moved ? worked : moved;
}

static double attention_energy(const DeviceModel *d, const Op *o, double flops, double bytes) {
    const AttentionShape s = hd_attention_shape(o);
    const double pairs = hd_attention_pairs(&s) * (double)s.batch * (double)s.heads, products = s.grad ? 5 : 2;
    return multiplied_energy(d, s.dtype, flops, bytes) + pairs * products * picojoules(d, "scores");
}

static DType multiplied(const Op *o) { return o->in[0]->type->dtype; }
static DType attended(const Op *o) { return hd_attention_shape(o).dtype; }

// Of e4m3 and e5m2 the table says the time alone: as they work without a pause, they draw the power of the limit.
static double product_energy(const DeviceModel *d, const Op *o, double flops, double bytes) {
    const double moved = multiplied_energy(d, multiplied(o), flops, bytes);
    if (!hd_dtype_is_fp8(table_type(d, multiplied(o)))) return moved;
    const double worked = 1e12 * hd_model_power(d) * product(d, o, flops, bytes);
    return worked > moved ? worked : moved;
}

static double collective_energy(const DeviceModel *d, const Op *o, double flops HD_UNUSED, double bytes) {
    const double moved = bytes * picojoules(d, hd_collective_ranks(o) > 1 ? "collective" : "rows");
    return hd_has(&o->attrs, A_OUT) ? moved + bytes_read(o) * picojoules(d, "rows") : moved;
}

static double copy_energy(const DeviceModel *d, const Op *o, double flops HD_UNUSED, double bytes HD_UNUSED) {
    return hd_copy_way(o) == COPY_WITHIN ? 2 * bytes_read(o) * picojoules(d, "rows")
                                         : bytes_read(o) * picojoules(d, "copy");
}

static double rows_energy(const DeviceModel *d, const Op *o, double flops, double bytes) {
    const Op *turn = o->kind == OP_UPDATE ? hd_optimizer_turn(hd_update_kernel(o)) : NULL;
    if (turn) return multiplied_energy(d, turned_type(turn), flops, 0) + bytes * picojoules(d, "rows");
    return bytes / share(d, o) * picojoules(d, "rows"); // a slower kernel draws as much power
}

static const WorkCost *work_cost(const Op *o) {
    static const WorkCost costs[] = {{TRAIT_MATMUL, product, product_energy, multiplied},
                                     {TRAIT_ATTENTION, attention, attention_energy, attended},
                                     {TRAIT_COLLECTIVE, collective, collective_energy, NULL},
                                     {TRAIT_COPIES, copy, copy_energy, NULL},
                                     {~0u, rows, rows_energy, NULL}};
    const WorkCost *c = costs;
    while (!hd_op_is(o, c->trait)) c++;
    return c;
}

double hd_model_joules(const DeviceModel *d, const Op *o) {
    double flops, bytes;
    if (does_nothing(o)) return 0;
    hd_cost(o, &flops, &bytes);
    return 1e-12 * work_cost(o)->picojoules(d, o, flops, bytes);
}

// --- floors

// Bytes a microsecond at the end of a curve.
static double fastest(const FactLine *l) {
    const Point *last = l->points + l->n - 1;
    return last->at / last->is;
}

static double linked_floor(const DeviceModel *d, OpKind kind, Link link, int64_t ranks, double bytes) {
    const FactLine *l, *last;
    const int n = lines_of_link(d, kind, link, &l);
    last = l + n - 1;
    while (l < last && l->number < (double)ranks) l++;
    return bytes / fastest(l);
}

// Microseconds that the bytes of an op take at least.
static double path_floor(const DeviceModel *d, const Op *o, double bytes) {
    const FactLine *l;
    if (hd_op_is(o, TRAIT_COLLECTIVE) && hd_collective_ranks(o) > 1) {
        const Party p = hd_party(d, o);
        if (hd_link(p) == LINK_NVLINK || !hd_model_most_ranks(d, o->kind, LINK_NETWORK))
            return linked_floor(d, o->kind, LINK_NVLINK, p.ranks, bytes);
        const double across = bytes_between(o->kind, p, bytes);
        const double between = linked_floor(d, o->kind, LINK_NETWORK, p.ranks / p.on_host, across);
        const double within = p.on_host > 1 ? linked_floor(d, o->kind, LINK_NVLINK, p.on_host, bytes) : 0;
        return between > within ? between : within;
    }
    if (hd_op_is(o, TRAIT_COPIES) && hd_copy_way(o) != COPY_WITHIN) {
        const char *words[FACT_WORDS] = {hd_copy_way(o) == COPY_TO_HOST ? "to-host" : "to-device"};
        lines_of(d, FACT_COPY, words, &l);
        return bytes_read(o) / fastest(l);
    }
    return bytes / fastest(&d->lines[d->first[FACT_ROWS]]);
}

double hd_model_floor(const DeviceModel *d, const Op *o) {
    double flops, bytes;
    if (does_nothing(o)) return 0;
    hd_cost(o, &flops, &bytes);
    const double moved = path_floor(d, o, bytes);
    const WorkCost *c = work_cost(o);
    const double worked = c->multiplied ? flops / d->peak[table_type(d, c->multiplied(o))] : 0;
    return 1e-6 * (moved > worked ? moved : worked);
}

int64_t hd_model_multiprocessors(const DeviceModel *d) { return (int64_t)number(d, FACT_SMS); }
double hd_model_direct(const DeviceModel *d) { return 1e-6 * number(d, FACT_DIRECT); }
double hd_model_graph(const DeviceModel *d) { return 1e-6 * number(d, FACT_GRAPH); }
double hd_model_beside(const DeviceModel *d) { return number(d, FACT_BESIDE); }
double hd_model_beside_copy(const DeviceModel *d) { return number_or(d, FACT_BESIDE_COPY, 1); }
double hd_model_power(const DeviceModel *d) { return number_or(d, FACT_POWER, 0); }
double hd_model_power_window(const DeviceModel *d) { return 1e-3 * number_or(d, FACT_WINDOW, 0); }
double hd_model_both_ways(const DeviceModel *d) { return number(d, FACT_BOTH_WAYS); }
const char *hd_model_name(const DeviceModel *d) { return d->lines[d->first[FACT_NAME]].text; }
const char *hd_model_from(const DeviceModel *d) { return d->lines[d->first[FACT_FROM]].text; }
