// Rotations in a `rows` kernel: where a thread has its sines, cosines and partners from. All heads of a row turn by the
// same angles: computed for each element, they take most of the time of a kernel that rotates.
//   SHAPE_FLAT with several heads a thread: the thread computes the angles once, and has both halves of a head.
//   SHAPE_ROW, SHAPE_SLAB: a warp computes each angle once, into shared memory of its own, where it has all columns of
//   half a head; where it has whole heads, threads exchange partners. Neither needs a barrier of the block.
//   The same with heads in rows of their own: a block computes the angles of the positions of its rows at its start.
//   Otherwise each element computes its angle and loads its partner.
// The bits are the same in all of them.
#include "codegen/cuda/rows_emit.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

bool hd_rows_one_angle(const Rows *r) { return r->s.kind == SHAPE_FLAT && hd_rows_looped(r); }

static bool of_warps(const Rows *r) { return r->s.kind == SHAPE_ROW || r->s.kind == SHAPE_SLAB; }

// A partner is in the thread whose number differs in one bit. All threads of a warp take part.
bool hd_rows_exchanged(const Rows *r, const RowNode *n) {
    const int64_t away = n->turn.half / r->s.vec; // threads
    return n->kind == NODE_PARTNER && of_warps(r) && !r->s.ragged_cols && away < 32 && 32 % (2 * away) == 0;
}
const char *hd_rows_exchange(const Rows *r, const RowNode *n, const char *x) {
    return hd_sprintf(r->a, "__shfl_xor_sync(0xffffffffu, %s, %lld)", x, ll(n->turn.half / r->s.vec));
}

static int64_t rows_of_block(const Rows *r) { return r->p->columns.n ? r->s.run : r->s.groups; }
static int64_t positions_of_block(const Rows *r, const RowNode *n) {
    const int64_t rows = rows_of_block(r);
    return rows > n->turn.apart ? rows / n->turn.apart : 1;
}

static bool of_block(const Rows *r, const RowNode *n) {
    const int64_t rows = rows_of_block(r), apart = n->turn.apart;
    return n->kind == NODE_TURN && apart > 1 && of_warps(r) && (rows % apart == 0 || apart % rows == 0) &&
           n->turn.half % r->s.vec == 0 && positions_of_block(r, n) * n->turn.half <= 1024;
}

static bool of_warp(const Rows *r, const RowNode *n) {
    if (of_block(r, n)) return false;
    const int64_t columns = 32 * r->s.vec; // of a vector of each thread
    if (n->kind != NODE_TURN || !of_warps(r)) return false;
    if (n->n_in > 2 && r->p->nodes.at[n->in[2]].phase) return false; // a position that a sum over the row gives
    return columns % n->turn.half == 0 && n->turn.half < columns * r->s.items;
}

static const char *position(const Rows *r, const RowNode *n, const char *row, const char *of_row) {
    if (n->turn.apart > 1) row = hd_sprintf(r->a, "%s / %lld", row, ll(n->turn.apart));
    return n->n_in > 2 ? hd_sprintf(r->a, "(int)%s", of_row)
                       : hd_sprintf(r->a, "(int)(%s %% %lld)", row, ll(n->turn.seq));
}

static const char *table(const Rows *r, const RowNode *n) {
    return hd_sprintf(r->a, "%s_turns%d", r->name, n->turn.id);
}

// A table of frequencies in revolutions per position, each as the sum of two numbers, so that the angle stays precise
// at large positions; and the text of the rotation.
void hd_rows_put_turns(Rows *r, RowNode *n) {
    const RowTurn *t = &n->turn;
    hd_printf(r->o, "__device__ const %s %s[%lld] = { // revolutions a position: high and low part\n",
              hd_cuda_compute(n->dtype), table(r, n), ll(2 * t->half));
    for (int64_t i = 0; i < t->half; i++) {
        double f = hd_rope_rate(t->rope, i, 2 * t->half) / (2 * 3.14159265358979323846);
        double high = n->dtype == TY_F64 ? f : (double)(float)f;
        hd_printf(r->o, "%s%s, %s%s", i % 4 ? " " : "    ", hd_rows_literal(r->a, n->dtype, high),
                  hd_rows_literal(r->a, n->dtype, f - high), i % 4 == 3 || i + 1 == t->half ? ",\n" : ",");
    }
    hd_puts(r->o, "};\n");
    const char *inverse = t->inverse ? "true" : "false";
    const char *turns = t->columns < r->p->cols ? hd_sprintf(r->a, "$c >= %lld ? $0 : ", ll(t->columns)) : "";
    if (hd_rows_one_angle(r))
        n->text = hd_sprintf(r->a, "%sturned<%lld>($0, $1, k %% 2 * %lld, sine%d[j], cosine%d[j], %s)", turns,
                             ll(t->half), ll(t->half), t->id, t->id, inverse);
    else if (of_block(r, n)) {
        const int64_t rows = rows_of_block(r);
        const char *mine = positions_of_block(r, n) > 1
                               ? hd_sprintf(r->a, "(int)($r %% %lld) / %lld", ll(rows), ll(t->apart))
                               : "0";
        n->text = hd_sprintf(r->a, "turned<%lld>($0, $1, $c, angles%d[%s][$v %% %lld + $j], angles%d[%s][$v %% %lld + "
                                   "%lld + $j], %s)", ll(t->half), t->id, mine, ll(t->half), t->id, mine, ll(t->half),
                             ll(t->half), inverse);
    } else if (of_warp(r, n))
        n->text = hd_sprintf(r->a, "%sturned<%lld>($0, $1, $c %% %lld, angles%d[warp][$v %% %lld + $j], "
                                   "angles%d[warp][$v %% %lld + %lld + $j], %s)", turns, ll(t->half), ll(2 * t->half),
                             t->id, ll(t->half), t->id, ll(t->half), ll(t->half), inverse);
    else
        n->text = hd_sprintf(r->a, "%srope<%lld>($0, $1, %s, $c %% %lld, %s, %s)", turns, ll(t->half),
                             position(r, n, "$r", "$2"), ll(2 * t->half), table(r, n), inverse);
}

int64_t hd_rows_angle_bytes(const Rows *r) {
    int64_t bytes = 0;
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *n = &r->p->nodes.at[i];
        const int64_t sets = of_block(r, n) ? positions_of_block(r, n) : of_warp(r, n) ? r->s.threads / 32 : 0;
        bytes += sets * 2 * n->turn.half * hd_dtype_bytes(n->dtype);
    }
    return bytes;
}

void hd_rows_declare_angles(Rows *r) {
    bool warps = false;
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *n = &r->p->nodes.at[i];
        if (!of_warp(r, n) && !of_block(r, n)) continue;
        if (of_warp(r, n) && !warps) hd_rows_line(r, "const int warp = threadIdx.x / 32;");
        const int64_t sets = of_block(r, n) ? positions_of_block(r, n) : r->s.threads / 32;
        hd_rows_line(r, "__shared__ __align__(16) %s angles%d[%lld][%lld];", hd_cuda_compute(n->dtype), n->turn.id,
                     ll(sets), ll(2 * n->turn.half));
        warps |= of_warp(r, n);
        if (!of_block(r, n)) continue;
        const char *first = hd_sprintf(r->a, "%sblock * %lld", r->p->rows > 2000000000 ? "(i64)" : "",
                                       ll(rows_of_block(r)));
        const char *row = sets > 1 ? hd_sprintf(r->a, "(%s + i / %lld * %lld)", first, ll(n->turn.half),
                                                ll(n->turn.apart)) : hd_sprintf(r->a, "(%s)", first);
        hd_rows_line(r, "for (int i = threadIdx.x; i < %lld; i += %d)", ll(sets * n->turn.half), r->s.threads);
        hd_rows_line(r, "    block_angle<%lld>(%s, i, %s, angles%d);", ll(n->turn.half), position(r, n, row, ""),
                     table(r, n), n->turn.id);
    }
}

void hd_rows_meet_angles(Rows *r) {
    bool block = false;
    for (int i = 0; i < r->p->nodes.n; i++) block |= of_block(r, &r->p->nodes.at[i]);
    if (block) hd_rows_line(r, "__syncthreads();");
}

void hd_rows_put_warp_angles(Rows *r) {
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *n = &r->p->nodes.at[i];
        if (of_warp(r, n))
            hd_rows_line(r, "warp_angles<%lld>(%s, %s, angles%d[warp]);", ll(n->turn.half),
                         position(r, n, "row", n->n_in > 2 ? hd_sprintf(r->a, "x%d", n->in[2]) : ""), table(r, n),
                         n->turn.id);
    }
}

void hd_rows_put_angles(Rows *r) {
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *n = &r->p->nodes.at[i];
        const RowTurn *t = &n->turn;
        if (n->kind != NODE_TURN) continue;
        hd_rows_line(r, "%s sine%d[%d], cosine%d[%d];", hd_cuda_compute(n->dtype), t->id, r->s.vec, t->id, r->s.vec);
        hd_rows_line(r, "#pragma unroll");
        hd_rows_line(r, "for (int j = 0; j < %d; j++)", r->s.vec);
        hd_rows_line(r, "    rope_angle<%lld>(%s, (first + j) %% %lld, %s, sine%d + j, cosine%d + j);", ll(t->half),
                     position(r, n, "row", ""), ll(2 * t->half), table(r, n), t->id, t->id);
    }
}
