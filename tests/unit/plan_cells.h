// The memory of the machine of plan_machine.h: cells of two bytes, each holding a hash.
#ifndef TESTS_UNIT_PLAN_CELLS_H
#define TESTS_UNIT_PLAN_CELLS_H
#include "ir/mesh.h"
#include "ir/optimizer.h"
#include "ir/shapes.h"
#include "passes/analysis/alignment.h"
#include "tests/unit/hashes.h"

typedef struct {
    const Func *f;
    const Op *op;
    int func, instance, stream, wait_for;
    const Op *region; // the capture that it comes after; NULL: it is in no region
} Step; // op == NULL: the runtime fills the arguments
typedef struct { Step *at; int n, cap; } Steps;
enum { MOST_STREAMS = 8 };
typedef struct {
    const Module *m;
    Arena *a;
    Mesh mesh;
    int ranks;
    uint64_t **memory;        // by rank
    int rank;                 // the one that runs now
    uint64_t *cell;           // its memory
    int64_t n_cells, device_bytes;
    uint64_t garbage, result; // a counter; the hash of what is seen from outside
    uint64_t **key;           // by function in order, by op id: what the op is, places left out
    const Func **funcs;
    int n_funcs;
    Steps steps;
    VEC(const char *) streams;
} Machine;

static uint64_t fresh(Machine *x) { return mix(0x6a09e667f3bcc909u, ++x->garbage); }

static uint64_t *cells(Machine *x, int64_t at, int64_t bytes, int64_t *n) { // what lies outside the arena is nothing
    int64_t lo = at / 2, hi = (at + bytes + 1) / 2;
    *n = at >= 0 && lo <= hi && hi <= x->n_cells ? hi - lo : 0;
    return *n ? x->cell + lo : x->cell;
}

static uint64_t digest(Machine *x, int64_t at, int64_t bytes) {
    int64_t n;
    const uint64_t *c = cells(x, at, bytes, &n);
    uint64_t h[4] = {(uint64_t)n}; // four chains: one would wait for itself
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) h[k] = mix(h[k], c[i + k]);
    for (; i < n; i++) h[0] = mix(h[0], c[i]);
    return mix(mix(h[0], h[1]), mix(h[2], h[3]));
}

// The cells of other memories follow those of the device.
static int64_t at_of(const Machine *x, const Place *p) { return p->offset + (p->space ? x->device_bytes : 0); }

static uint64_t digest_value(Machine *x, const Value *v) {
    return digest(x, at_of(x, &v->place), hd_type_bytes(v->type));
}

static void scribble(Machine *x, int64_t at, int64_t bytes) {
    int64_t n;
    uint64_t *c = cells(x, at, bytes, &n);
    for (int64_t i = 0; i < n; i++) c[i] = fresh(x);
}

static const Symbol *buffer_of_name(Machine *x, const char *name) { return hd_symbol_find(x->m, name); }
static const Symbol *buffer_of(Machine *x, const Op *o, AttrId a) {
    return buffer_of_name(x, hd_word(&o->attrs, a, ""));
}
#endif
