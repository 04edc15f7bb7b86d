// Chooses vectors, threads and registers of a `rows` kernel. Memory-bound work wants 16-byte accesses, several of them
// in flight a thread, and registers few enough for half of the threads an SM can hold.
#include "codegen/cuda/rows_shape.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

static bool vector_access(RowClass c) { return c >= ROW_COLUMN; }

// Bytes of the narrowest type that moves by vectors: 16 bytes of it are a vector.
static int narrowest(const RowProgram *p) {
    int bytes = 8;
    for (int i = 0; i < p->nodes.n; i++) {
        const RowNode *n = &p->nodes.at[i];
        if ((n->kind == NODE_LOAD || n->kind == NODE_GATHER) && vector_access(n->cls) &&
            hd_dtype_bytes(n->stored) < bytes)
            bytes = hd_dtype_bytes(n->stored);
    }
    for (int i = 0; i < p->stores.n; i++)
        if (vector_access(p->stores.at[i].cls) && hd_dtype_bytes(p->stores.at[i].dtype) < bytes)
            bytes = hd_dtype_bytes(p->stores.at[i].dtype);
    return bytes < 2 ? 2 : bytes;
}

// A vector of a part of a row begins at a multiple of its size.
static int vector_of_part(RowPart part, int vec) {
    while (vec > 1 && (part.width % vec || part.start % vec)) vec /= 2;
    return vec;
}

static bool linear(const RowProgram *p) { // no value depends on where in its row an element is
    for (int i = 0; i < p->nodes.n; i++) {
        const RowNode *n = &p->nodes.at[i];
        if (n->cls != ROW_SCALAR && n->cls != ROW_FULL) return false;
        if (n->kind == NODE_GATHER || n->kind == NODE_PARTNER || n->indexed || n->part.width) return false;
    }
    for (int i = 0; i < p->stores.n; i++)
        if ((p->stores.at[i].cls != ROW_SCALAR && p->stores.at[i].cls != ROW_FULL) || p->stores.at[i].part.width)
            return false;
    return true;
}

static bool has(const RowProgram *p, NodeKind kind) {
    for (int i = 0; i < p->nodes.n; i++)
        if (p->nodes.at[i].kind == kind) return true;
    return false;
}

// Registers of a thread that hold a row's data, by a rough count.
static int64_t registers(const RowProgram *p, const RowShape *s) {
    int64_t words = 20, elements = (int64_t)s->vec * s->items;
    for (int i = 0; i < p->nodes.n; i++) {
        const RowNode *n = &p->nodes.at[i];
        bool load = n->kind == NODE_LOAD || n->kind == NODE_GATHER;
        if (load && n->cls == ROW_COLUMN && !p->columns.n) continue; // read where it is used
        if (load && vector_access(n->cls) && !s->stream)
            words += hd_ceil_div(elements * hd_dtype_bytes(n->stored), 4) * s->unroll;
        if (n->cost >= 8 && p->phases > 1 && hd_rows_each(n)) words += elements;
    }
    return words + (int64_t)p->columns.n * elements + 2 * s->vec;
}

void hd_rows_occupancy(const RowProgram *p, RowShape *s) {
    static const struct { int64_t need; int budget; } steps[] = {{64, 64}, {84, 80}, {100, 96}, {148, 128}};
    int64_t need = registers(p, s);
    s->min_blocks = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !s->min_blocks; i++)
        if (need <= steps[i].need) s->min_blocks = 65536 / (steps[i].budget * s->threads);
    // registers of a thread where two blocks share a multiprocessor
    const int64_t half = 65536 / 2 / s->threads / 8 * 8;
    if (s->min_blocks < 2 && s->ahead && need <= half + 4) s->min_blocks = 2;
}

// Rows of a block at once, for column sums: a run of rows a block makes few blocks, so each must keep many loads in
// flight.
static int row_groups(const RowProgram *p, const RowShape *s) {
    if (!p->columns.n || s->stream) return 1;
    bool few = hd_ceil_div(p->rows, s->run) < 264;
    int most = few && registers(p, s) <= 64 ? 1024 : 512, groups = 8;
    while (groups > 1 && groups * s->lanes > most) groups /= 2;
    return groups;
}

// A row's threads: a warp for short rows, else up to 8 (long rows: 32) warps. Column sums take registers for as long as
// the block lives, so a row is spread over more threads where a warp would need too many.
static void spread(const RowProgram *p, RowShape *s) {
    int64_t cols = p->cols, warp_items = hd_ceil_div(cols, 32 * s->vec);
    s->lanes = 32;
    s->items = (int)warp_items;
    s->groups = 8;
    if (warp_items * s->vec <= 40 && (!p->columns.n || registers(p, s) <= 148)) return;
    int64_t most = cols <= 8192 ? 8 : cols <= 16384 ? 16 : 32;
    s->items = (int)hd_ceil_div(cols, 32 * s->vec * most);
    s->lanes = 32 * (int)hd_ceil_div(cols, (int64_t)32 * s->vec * s->items);
    if (s->items * s->vec > 64) {
        s->stream = true;
        s->lanes = 1024;
        s->items = (int)hd_ceil_div(cols, (int64_t)s->lanes * s->vec);
    }
    s->groups = row_groups(p, s);
}

// Rotations by the same angles in all heads: a thread has a vector and its partner, half a head away, of several heads,
// so that it computes the sines and cosines once. Few enough heads that every multiprocessor has work, and that the
// vectors fit into registers.
static void take_heads(const RowProgram *p, RowShape *s) {
    enum { MOST = 8, ENOUGH = 1 << 17, REGISTERS = 72 }; // ENOUGH: threads that a large GPU holds, about
    const RowTurn *turn = NULL;
    for (int i = 0; i < p->nodes.n; i++) {
        const RowNode *n = &p->nodes.at[i];
        if (n->kind != NODE_TURN) continue;
        if (n->n_in > 2) return; // the position of a row is loaded
        if (turn && turn->half != n->turn.half) return;
        turn = &n->turn;
    }
    if (!turn) return;
    s->stride = 2 * turn->half;
    const int64_t halves = p->cols / turn->half, vectors = p->rows * p->cols / s->vec;
    while (s->items < MOST && halves % (2 * s->items) == 0 && vectors / (2 * s->items) >= ENOUGH) {
        RowShape more = *s;
        more.items *= 2;
        if (registers(p, &more) > REGISTERS) return;
        *s = more;
    }
}

RowShape hd_rows_shape(const RowProgram *p, int widest) {
    RowShape s = {.lanes = 32, .items = 1, .groups = 8, .unroll = 1, .gy = 1,
                  .run = hd_partial_rows(p->rows)};
    bool reduces = has(p, NODE_SUM) || has(p, NODE_MAX), columns = p->columns.n > 0;
    int64_t rows = p->rows, cols = p->cols, total = rows * cols;
    s.kind = reduces ? SHAPE_ROW : columns ? SHAPE_SLAB : linear(p) ? SHAPE_LINEAR : SHAPE_FLAT;
    s.vec = 16 / narrowest(p);
    if (s.vec > widest) s.vec = widest;
    while (s.vec > 1 && (s.kind == SHAPE_LINEAR ? total : cols) % s.vec) s.vec /= 2;
    for (int i = 0; i < p->nodes.n; i++) {
        while (p->nodes.at[i].turn.half % s.vec) s.vec /= 2; // a vector's partners are a vector
        s.vec = vector_of_part(p->nodes.at[i].part, s.vec);
    }
    for (int i = 0; i < p->stores.n; i++) s.vec = vector_of_part(p->stores.at[i].part, s.vec);
    if (reduces || columns)
        while (s.vec > 1 && cols < 32 * s.vec) s.vec /= 2;
    switch (s.kind) {
    case SHAPE_LINEAR: case SHAPE_FLAT:
        s.threads = 256;
        if (s.kind == SHAPE_FLAT) take_heads(p, &s);
        s.gx = hd_ceil_div(total, (int64_t)s.threads * s.vec * s.items);
        s.ragged_cols = total % ((int64_t)s.threads * s.vec * s.items) != 0;
        s.min_blocks = 4;
        return s;
    case SHAPE_SLAB:
        s.unroll = has(p, NODE_GATHER) ? 1 : s.run / s.groups < 4 ? s.run / s.groups : 4;
        s.gx = hd_ceil_div(rows, s.run);
        s.gy = hd_ceil_div(cols, (int64_t)s.lanes * s.vec);
        s.ragged_rows = rows % s.run != 0;
        break;
    case SHAPE_ROW:
        spread(p, &s);
        s.gx = hd_ceil_div(rows, columns ? s.run : s.groups);
        s.ragged_rows = rows % (columns ? s.run : s.groups) != 0;
        break;
    }
    s.ragged_cols = cols % ((int64_t)s.lanes * s.vec * s.items) != 0;
    if (s.kind == SHAPE_SLAB) s.ragged_cols = cols % ((int64_t)s.lanes * s.vec) != 0;
    s.threads = s.lanes * s.groups;
    hd_rows_occupancy(p, &s);
    return s;
}

RowShape hd_rows_block_shape(const RowProgram *p, int widest) {
    RowShape s = hd_rows_shape(p, widest);
    s.kind = SHAPE_ROW;
    s.threads = s.lanes = 256;
    s.groups = s.unroll = 1;
    s.gx = s.gy = 1;
    s.stream = s.ragged_rows = false;
    s.stride = 0;
    while (s.vec > 1 && p->cols < 128 * s.vec) s.vec /= 2; // most threads have work
    s.items = (int)hd_ceil_div(p->cols, (int64_t)s.lanes * s.vec);
    s.ragged_cols = p->cols % ((int64_t)s.lanes * s.vec * s.items) != 0;
    return s;
}

const char *hd_rows_describe(const RowProgram *p, const RowShape *s, Arena *a) {
    const char *size = hd_sprintf(a, "%lld rows x %lld columns", (long long)p->rows, (long long)p->cols);
    const char *ahead = s->ahead ? hd_sprintf(a, "; %d of its rows on their way", s->ahead) : "";
    switch (s->kind) {
    case SHAPE_LINEAR:
        return hd_sprintf(a, "%lld elements, pointwise; %d a thread", (long long)(p->rows * p->cols), s->vec);
    case SHAPE_FLAT:
        return s->items > 1 ? hd_sprintf(a, "%s, pointwise; 2 x %d elements of each of %d heads a thread", size,
                                         s->vec, s->items / 2)
                            : hd_sprintf(a, "%s, pointwise; %d elements a thread", size, s->vec);
    case SHAPE_SLAB:
        return hd_sprintf(a, "%s, column sums; a block has %d rows of %d columns, %d elements of a row a thread%s",
                          size, s->run, 32 * s->vec, s->vec, ahead);
    default:
        return hd_sprintf(a, "%s; %s a row, %d x %d elements a thread%s%s", size,
                          s->lanes == 32 ? "a warp" : hd_sprintf(a, "%d threads", s->lanes), s->items, s->vec,
                          s->stream ? ", read again in every pass" : "", ahead);
    }
}
