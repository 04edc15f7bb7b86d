// The operands of a `rows` kernel: where they are, and how they get into registers. Kernels with column sums process
// many rows one after another, with a barrier for each. They look ahead: during the work on a row, the next ones are
// copied into shared memory (cp.async, which takes no registers), each thread's operands into a place of its own, so
// that no barrier is needed for them.
#include "codegen/cuda/rows_emit.h"
#include "ir/base/ints.h"

static const RowNode *node(const Rows *r, int i) { return &r->p->nodes.at[i]; }

static bool row_values_ahead(const Rows *r, int i) { // one value a row, those of the block's rows read at its start
    return r->s.ahead && node(r, i)->kind == NODE_LOAD && node(r, i)->cls == ROW_STAT && r->used[i];
}

const char *hd_rows_load_address(Rows *r, int i, int place) {
    const RowNode *n = node(r, i);
    const char *array = hd_sprintf(r->a, "in%d", n->arg);
    if (row_values_ahead(r, i)) return hd_sprintf(r->a, "values%d + row %% %d", i, r->s.run);
    if (n->kind == NODE_LOAD) return hd_rows_address(r, array, n->cls, n->period, n->part, place);
    return hd_sprintf(r->a, "%s + (i64)x%d * %lld + %s", array, n->in[0], ll(r->p->cols), hd_rows_column(r, place));
}

// --- loads kept in registers

static bool hoisted(const Rows *r, int i) { // a load that is the same for every row of the block
    return node(r, i)->kind == NODE_LOAD && node(r, i)->cls == ROW_COLUMN && r->p->columns.n &&
           r->s.kind != SHAPE_LINEAR && !r->s.stream;
}

// Column vectors stay in the L1 cache: without column sums they are read where they are used, which spares registers.
bool hd_rows_held(const Rows *r, int i) { return !r->s.stream && (hoisted(r, i) || node(r, i)->cls != ROW_COLUMN); }

static bool wanted(const Rows *r, int i, int place, bool hoist) {
    return hd_rows_is_load(node(r, i)) && hd_rows_held(r, i) && hoisted(r, i) == hoist && r->raw[i] >> place & 1;
}

static const char *dims(const Rows *r, int i) {
    bool u = r->s.unroll > 1 && !hoisted(r, i), k = r->s.items > 1;
    return hd_sprintf(r->a, "%s%s", u ? hd_sprintf(r->a, "[%d]", r->s.unroll) : "",
                      k ? hd_sprintf(r->a, "[%d]", r->s.items) : "");
}

const char *hd_rows_index(const Rows *r, int i) { // the row of the unrolled group, the vector of the row
    const bool k = r->s.items > 1;
    if (!hd_rows_held(r, i)) return "";
    return r->s.unroll > 1 && !hoisted(r, i) ? k ? "[u][k]" : "[u]" : k ? "[k]" : "";
}

void hd_rows_declare_loads(Rows *r, bool hoist) {
    for (int i = 0; i < r->p->nodes.n; i++)
        for (int at = 0; at < r->n_places; at++)
            if (wanted(r, i, at, hoist))
                hd_rows_line(r, "Raw<%s, %d> raw%d%s%s;", hd_cuda_type(node(r, i)->stored), r->s.vec, i,
                             hd_rows_suffix(r, at), dims(r, i));
}

static bool any(const Rows *r, bool hoist) {
    for (int i = 0; i < r->p->nodes.n; i++)
        if (r->raw[i] && wanted(r, i, __builtin_ctz(r->raw[i]), hoist)) return true;
    return false;
}

// --- rows ahead
static int64_t vector_bytes(const Rows *r, int i) { return r->s.vec * hd_dtype_bytes(node(r, i)->stored); }

// Bytes that a thread copies for a row; 0: none, or not everything can be copied that way.
static int64_t row_bytes(const Rows *r) {
    int64_t bytes = 0;
    for (int i = 0; i < r->p->nodes.n; i++)
        for (int at = 0; at < r->n_places; at++) {
            if (!wanted(r, i, at, false)) continue;
            if (node(r, i)->kind == NODE_GATHER || vector_bytes(r, i) % 4)
                return 0; // its address must be read first; too short
            bytes += vector_bytes(r, i) * r->s.items;
        }
    return bytes;
}

// The address of iteration n's copy of a load, as text. All are aligned: every load takes a multiple of 4 x 32 bytes.
static const char *place_of(Rows *r, int load, int at) {
    int64_t offset = 0;
    for (int i = 0; i < r->p->nodes.n; i++)
        for (int p = 0; p < r->n_places; p++) {
            if (!wanted(r, i, p, false)) continue;
            if (i == load && p == at)
                return hd_sprintf(r->a, "shared + n %% %d * %lld + %lld + %s * %lld", r->s.ahead + 1,
                                  ll(row_bytes(r) * r->s.threads), ll(offset),
                                  r->s.items > 1 ? hd_sprintf(r->a, "(k * %d + threadIdx.x)", r->s.threads)
                                                 : "threadIdx.x",
                                  ll(vector_bytes(r, i)));
            offset += vector_bytes(r, i) * r->s.items * r->s.threads;
        }
    HD_BUG("a load that is not copied");
}

void hd_rows_look_ahead(Rows *r, int64_t shared) {
    // MOST: rows in shared memory at once. OTHER: the part of a block's half that sums take; sums of rows beyond some
    // 2500 columns take more, and then one block may have a multiprocessor to itself.
    enum { MOST = 4, OTHER = 10 << 10 };
    RowShape s = r->s;
    s.unroll = 1;
    const int64_t angles = s.threads > 512 ? 0 : hd_rows_angle_bytes(r); // more threads: one block a multiprocessor
    const int64_t bytes = row_bytes(r) * s.threads, half = shared / 2 - OTHER - angles;
    if (s.stream || !bytes || half < 2 * bytes) return;
    s.ahead = (int)(half / bytes < MOST ? half / bytes : MOST) - 1;
    r->s = s;
    hd_rows_occupancy(r->p, &r->s);
}

int64_t hd_rows_shared(const Rows *r) { return r->s.ahead ? (r->s.ahead + 1) * row_bytes(r) * r->s.threads : 0; }

void hd_rows_open_ahead(Rows *r, const char *row, int iterations) {
    const RowShape *s = &r->s;
    if (!s->ahead) return;
    hd_rows_line(r, "extern __shared__ __align__(16) unsigned char shared[];");
    int values = 0;
    for (int i = 0; i < r->p->nodes.n; i++) {
        if (!row_values_ahead(r, i)) continue;
        const char *first =
            hd_sprintf(r->a, "%sblock * %d + i", r->p->rows > 2000000000 ? "(i64)" : "", r->s.run);
        hd_rows_line(r, "__shared__ %s values%d[%d];", hd_cuda_type(node(r, i)->stored), i, r->s.run);
        hd_rows_line(r, "for (int i = threadIdx.x; i < %d; i += %d) {", r->s.run, s->threads);
        if (s->ragged_rows) hd_rows_line(r, "if (%s >= %lld) break;", first, ll(r->p->rows));
        hd_rows_line(r, "values%d[i] = in%d[%s];", i, node(r, i)->arg, first);
        hd_rows_line(r, "}");
        values++;
    }
    if (values) hd_rows_line(r, "__syncthreads();");
    hd_rows_line(r, "// What iteration n reads.");
    hd_rows_line(r, "const auto fetch = [&](int n) {");
    hd_rows_line(r, "if (n < %d) {", iterations);
    hd_rows_position(r, row);
    if (s->ragged_rows) hd_rows_line(r, "if (row < %lld) {", ll(r->p->rows));
    hd_rows_open_items(r);
    for (int i = 0; i < r->p->nodes.n; i++)
        for (int at = 0; at < r->n_places; at++)
            if (wanted(r, i, at, false))
                hd_rows_line(r, "copy_ahead<%lld>(%s, %s);", ll(vector_bytes(r, i)), place_of(r, i, at),
                             hd_rows_load_address(r, i, at));
    hd_rows_close_items(r);
    if (s->ragged_rows) hd_rows_line(r, "}");
    hd_rows_line(r, "}");
    hd_rows_line(r, "copies_commit();");
    hd_rows_line(r, "};");
    hd_rows_line(r, "#pragma unroll");
    hd_rows_line(r, "for (int n = 0; n < %d; n++) fetch(n);", s->ahead);
}

void hd_rows_put_loads(Rows *r, bool hoist) {
    const bool ahead = r->s.ahead && !hoist;
    if (!any(r, hoist)) return;
    hd_rows_open_items(r);
    for (int i = 0; i < r->p->nodes.n; i++)
        for (int at = 0; at < r->n_places; at++) {
            if (!wanted(r, i, at, hoist)) continue;
            const char *from =
                ahead ? hd_sprintf(r->a, "(const %s *)(%s)", hd_cuda_type(node(r, i)->stored), place_of(r, i, at))
                      : hd_rows_load_address(r, i, at);
            hd_rows_line(r, "raw%d%s%s.load(%s);", i, hd_rows_suffix(r, at), hd_rows_index(r, i), from);
        }
    hd_rows_close_items(r);
}
