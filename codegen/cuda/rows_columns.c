// Column sums of `rows` kernels, in one order that depends on rows and columns alone, so that a schedule changes no
// bit. A block owns a run of 8 to 64 consecutive rows (hd_partial_rows); strand s = 0..7 adds its rows s, s + 8, s + 16
// and so on, in this order, then the strands are added in order. A block works on as many strands at once as it has
// groups. A second kernel adds the blocks' partial sums: 16 runs of consecutive blocks, each in order, then the 16 sums
// in order.
#include "codegen/cuda/rows_emit.h"
#include "ir/base/ints.h"

// Adds the strands' sums of column result i in order: to those of earlier rounds, which are in the partial sums, then
// group by group. The last group writes.
static void combine_column(Rows *r, int i, int rounds) {
    const RowShape *s = &r->s;
    int width = s->vec * s->items, last = s->groups - 1;
    const char *x = hd_sprintf(r->a, "sum%d%s", i, s->items > 1 ? "[k]" : ""),
               *at = s->items > 1 ? hd_sprintf(r->a, "k * %d + j", s->vec) : "j";
    const char *partial = hd_sprintf(r->a, "partials + %lldll + (i64)block * %lld + col",
                                     ll(i * s->gx * r->p->cols), ll(r->p->cols));
    if (rounds > 1) {
        hd_rows_line(r, s->groups > 1 ? "if (round > 0 && group == 0) {" : "if (round > 0) {");
        hd_rows_open_items(r);
        hd_rows_line(r, "Raw<float, %d> before;", s->vec);
        hd_rows_line(r, "before.load(%s);", partial);
        hd_rows_line(r, "#pragma unroll");
        hd_rows_line(r, "for (int j = 0; j < %d; j++) %s[j] = plus(before.at(j), %s[j]);", s->vec, x, x);
        hd_rows_close_items(r);
        hd_rows_line(r, "}");
    }
    if (s->groups > 1) {
        const char *one = s->items > 1 ? hd_sprintf(r->a, "sum%d[i / %d][i %% %d]", i, s->vec, s->vec)
                                       : hd_sprintf(r->a, "sum%d[i]", i);
        hd_rows_line(r, "for (int g = 0; g < %d; g++) {", last);
        hd_rows_line(r, "if (group == g) {");
        hd_rows_line(r, "#pragma unroll");
        hd_rows_line(r, "for (int i = 0; i < %d; i++) columns[i][lane] = g ? plus(columns[i][lane], %s) : %s;", width,
                     one, one);
        hd_rows_line(r, "}");
        hd_rows_line(r, "__syncthreads();");
        hd_rows_line(r, "}");
        hd_rows_line(r, "if (group == %d) {", last);
    }
    hd_rows_open_items(r);
    if (s->groups > 1) {
        hd_rows_line(r, "#pragma unroll");
        hd_rows_line(r, "for (int j = 0; j < %d; j++) %s[j] = plus(columns[%s][lane], %s[j]);", s->vec, x, at, x);
    }
    hd_rows_line(r, "put<float, %d>(%s, %s);", s->vec, partial, x);
    hd_rows_close_items(r);
    if (s->groups > 1) hd_rows_line(r, "}");
    if (s->groups > 1 && (i + 1 < r->p->columns.n || rounds > 1))
        hd_rows_line(r, "__syncthreads();"); // before `columns` is written again
}

// Prints the work on one row, with a check that the row exists.
static void open_row(Rows *r, const char *row) {
    hd_rows_position(r, row);
    if (r->s.ragged_rows) hd_rows_line(r, "if (row < %lld) {", ll(r->p->rows));
}
static void close_row(Rows *r) {
    if (r->s.ragged_rows) hd_rows_line(r, "}");
}

// Prints the work on one row whose operands arrived during the work on earlier rows.
static void step_ahead(Rows *r, const char *row) {
    hd_rows_line(r, "copies_wait<%d>();", r->s.ahead - 1);
    hd_rows_declare_loads(r, false);
    open_row(r, row);
    hd_rows_put_loads(r, false);
    close_row(r);
    hd_rows_line(r, "fetch(n + %d);", r->s.ahead); // into the slot that the previous row has left
    if (r->s.ragged_rows) hd_rows_line(r, "if (row < %lld) {", ll(r->p->rows));
    hd_rows_put_row_values(r, 0);
    hd_rows_passes(r);
    close_row(r);
}

// The rows of one step of a strand: loads of `unroll` rows together, then the work on each.
static void column_step(Rows *r, const char *first, int rows_apart) {
    const RowShape *s = &r->s;
    hd_rows_declare_loads(r, false);
    for (int part = 0; part < 2; part++) {
        if (s->unroll > 1) {
            hd_rows_line(r, "#pragma unroll");
            hd_rows_line(r, "for (int u = 0; u < %d; u++) {", s->unroll);
        }
        if (s->unroll > 1 || !part)
            open_row(r, s->unroll > 1 ? hd_sprintf(r->a, "%s + u * %d", first, rows_apart) : first);
        if (part == (s->unroll > 1)) hd_rows_put_row_values(r, 0);
        if (part) hd_rows_passes(r);
        else hd_rows_put_loads(r, false);
        if (s->unroll == 1 && !part) continue;
        close_row(r);
        if (s->unroll > 1) hd_rows_line(r, "}");
    }
}

void hd_rows_put_columns(Rows *r) { // a run of rows a block
    const RowShape *s = &r->s;
    int strands = s->stream ? 1 : 8, rounds = s->stream ? 1 : strands / s->groups;
    if (s->groups > 1)
        hd_rows_line(r, "const int lane = threadIdx.x %% %d, group = threadIdx.x / %d;", s->lanes, s->lanes);
    else hd_rows_line(r, "const int lane = threadIdx.x;");
    if (s->kind == SHAPE_SLAB) hd_rows_line(r, "const int col = (slab * 32 + lane) * %d;", s->vec);
    else if (!hd_rows_looped(r)) hd_rows_line(r, "const int col = lane * %d;", s->vec);
    if (s->groups > 1)
        // a lane's columns: no bank conflicts
        hd_rows_line(r, "__shared__ float columns[%d][%d];", s->vec * s->items, s->lanes);
    const int steps = s->run / strands / s->unroll;
    const char *block = hd_sprintf(r->a, "%sblock * %d", r->p->rows > 2000000000 ? "(i64)" : "", s->run),
               *group = s->groups > 1 ? " + group" : "";
    const char *later = rounds > 1 ? hd_sprintf(r->a, "n %% %d * %d + n / %d * %d", steps, strands, steps, s->groups)
                                   : hd_sprintf(r->a, "n * %d", strands);
    hd_rows_open_ahead(r, hd_sprintf(r->a, "%s + %s%s", block, later, group), steps * rounds);
    hd_rows_declare_loads(r, true);
    hd_rows_put_loads(r, true);
    hd_rows_meet_angles(r);
    if (rounds > 1) {
        hd_rows_line(r, "#pragma unroll 1");
        hd_rows_line(r, "for (int round = 0; round < %d; round++) {", rounds);
    }
    for (int i = 0; i < r->p->columns.n && !s->stream; i++)
        hd_rows_line(r, "float sum%d%s[%d] = {};", i, s->items > 1 ? hd_sprintf(r->a, "[%d]", s->items) : "", s->vec);
    hd_rows_line(r, "#pragma unroll 1");
    hd_rows_line(r, "for (int step = 0; step < %d; step++) {", steps);
    const char *round = rounds <= 1 ? "" : s->groups > 1 ? hd_sprintf(r->a, " + round * %d", s->groups) : " + round";
    const char *row = hd_sprintf(r->a, "%s + step * %d%s%s", block, strands * s->unroll, round, group);
    if (s->ahead) hd_rows_line(r, rounds > 1 ? "const int n = round * %d + step;" : "const int n = step;", steps);
    if (s->ahead) step_ahead(r, row);
    else column_step(r, row, strands);
    hd_rows_line(r, "}");
    for (int i = 0; i < r->p->columns.n && !s->stream; i++) combine_column(r, i, rounds);
    if (rounds > 1) hd_rows_line(r, "}");
}

// The second phase of column sums: 32 columns a block, 16 runs of consecutive partial sums side by side.
CudaLaunch hd_rows_column_kernel(const Rows *r) {
    Out o = hd_out(r->a);
    int64_t blocks = r->s.gx, cols = r->p->cols, run = (blocks + 15) / 16;
    const bool even = blocks == 16 * run; // then all of a thread's loads are under way at once
    CudaLaunch l = {.name = hd_sprintf(r->a, "%s_columns", r->name),
                    .gx = (unsigned)((cols + 31) / 32),
                    .gy = (unsigned)r->p->columns.n, .gz = 1, .block = 512};
    hd_printf(&o, "// Column sums of %s: %lld partial sums each.\n", r->name, ll(blocks));
    hd_printf(&o, "extern \"C\" __global__ void __launch_bounds__(512) %s(const float *partials", l.name);
    hd_push(r->a, &l.args, ((CudaArg){CUDA_WORKSPACE, 0}));
    for (int i = 0; i < r->p->columns.n; i++) {
        hd_printf(&o, ", %s *out%d", hd_cuda_type(r->p->columns.at[i].dtype), i);
        hd_push(r->a, &l.args, ((CudaArg){CUDA_OUT, r->p->columns.at[i].result}));
    }
    hd_printf(&o, ") {\n"
                  "    enter();\n"
                  "    const int col = blockIdx.x * 32 + threadIdx.x %% 32, run = threadIdx.x / 32;\n"
                  "    const int first = run * %lld;%s\n"
                  "    const float *p = partials + ((i64)blockIdx.y * %lld + first) * %lld + col;\n"
                  "    float sum = 0;\n"
                  "    if (col < %lld) {\n"
                  "#pragma unroll 32\n"
                  "        for (int i = 0; i < %s; i++) sum += p[(i64)i * %lld];\n"
                  "    }\n"
                  "    __shared__ float runs[16][32];\n"
                  "    runs[run][threadIdx.x %% 32] = sum;\n"
                  "    __syncthreads();\n"
                  "    if (run || col >= %lld) return;\n"
                  "#pragma unroll\n"
                  "    for (int i = 1; i < 16; i++) sum += runs[i][threadIdx.x];\n",
              ll(run), even ? "" : hd_sprintf(r->a, " const int count = min(%lld, %lld - first);", ll(run), ll(blocks)),
              ll(blocks), ll(cols), ll(cols), even ? hd_sprintf(r->a, "%lld", ll(run)) : "count", ll(cols), ll(cols));
    for (int i = 0; i < r->p->columns.n; i++)
        hd_printf(&o, "    if (blockIdx.y == %d) put1(out%d + col, sum);\n", i, i);
    hd_puts(&o, "}\n");
    l.text = o.text;
    return l;
}
