// A `rows` kernel as a whole: its signature, its body in one of the shapes of rows_shape.h, and its launches.
#include "codegen/cuda/rows_emit.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

static bool one_angle_for_heads(const Rows *r) { return r->s.kind == SHAPE_FLAT && hd_rows_looped(r); }

// Rotations read a table: frequencies in revolutions per position, each as the sum of two numbers, so that the angle
// stays precise at large positions.
static void put_turns(Rows *r, RowNode *n) {
    const RowTurn *t = &n->turn;
    const char *table = hd_sprintf(r->a, "%s_turns%d", r->name, t->id);
    hd_printf(r->o, "__device__ const %s %s[%lld] = { // revolutions a position: high and low part\n",
              hd_cuda_compute(n->dtype), table, ll(2 * t->half));
    for (int64_t i = 0; i < t->half; i++) {
        double f = hd_rope_rate(t->rope, i, 2 * t->half) / (2 * 3.14159265358979323846);
        double high = n->dtype == TY_F64 ? f : (double)(float)f;
        hd_printf(r->o, "%s%s, %s%s", i % 4 ? " " : "    ", hd_rows_literal(r->a, n->dtype, high),
                  hd_rows_literal(r->a, n->dtype, f - high), i % 4 == 3 || i + 1 == t->half ? ",\n" : ",");
    }
    hd_puts(r->o, "};\n");
    const char *inverse = t->inverse ? "true" : "false";
    const char *turns = t->columns < r->p->cols ? hd_sprintf(r->a, "$c >= %lld ? $0 : ", ll(t->columns)) : "";
    if (one_angle_for_heads(r))
        n->text = hd_sprintf(r->a, "%sturned<%lld>($0, $1, k %% 2 * %lld, sine%d[j], cosine%d[j], %s)", turns,
                             ll(t->half), ll(t->half), t->id, t->id, inverse);
    else
        n->text = hd_sprintf(r->a, "%srope<%lld>($0, $1, %s, $c %% %lld, %s, %s)", turns, ll(t->half),
                             n->n_in > 2 ? "(int)$2" : hd_sprintf(r->a, "(int)($r %% %lld)", ll(t->seq)),
                             ll(2 * t->half), table, inverse);
}

// Sines and cosines of a thread's columns, for all of its heads.
static void put_angles(Rows *r) {
    for (int i = 0; i < r->p->nodes.n; i++) {
        const RowNode *n = &r->p->nodes.at[i];
        const RowTurn *t = &n->turn;
        if (n->kind != NODE_TURN) continue;
        hd_rows_line(r, "%s sine%d[%d], cosine%d[%d];", hd_cuda_compute(n->dtype), t->id, r->s.vec, t->id, r->s.vec);
        hd_rows_line(r, "#pragma unroll");
        hd_rows_line(r, "for (int j = 0; j < %d; j++)", r->s.vec);
        hd_rows_line(r, "    rope_angle<%lld>((int)(row %% %lld), (first + j) %% %lld, %s_turns%d, sine%d + j, "
                        "cosine%d + j);", ll(t->half), ll(t->seq), ll(2 * t->half), r->name, t->id, t->id, t->id);
    }
}

static void flat_body(Rows *r) {
    const int64_t total = r->p->rows * r->p->cols / r->s.items, cols = r->p->cols / r->s.items; // a thread's first
    const char *t = total > 2000000000 ? "i64" : "int";
    hd_rows_line(r, "const %s at = ((%s)block * 256 + (int)threadIdx.x) * %d;", t, t, r->s.vec);
    if (r->s.ragged_cols) hd_rows_line(r, "if (at >= %lld) return;", ll(total));
    r->s.ragged_cols = false;
    if (r->s.kind == SHAPE_LINEAR) {
        hd_rows_line(r, "const %s col = at;", t);
    } else {
        hd_rows_position(r,
                         hd_sprintf(r->a, "(%s)(at / %lld)", r->p->rows > 2000000000 ? "i64" : "int", ll(cols)));
        hd_rows_line(r, r->p->rows > 1 ? "const int %s = (int)(at - (%s)row * %lld);" : "const int %s = (int)at;",
                     one_angle_for_heads(r) ? "of_heads" : "col", t, ll(cols));
    }
    if (one_angle_for_heads(r)) {
        const int64_t half = r->s.stride / 2;
        hd_rows_line(r, "const int first = of_heads / %lld * %lld + of_heads %% %lld;", ll(half), ll(half * r->s.items),
                     ll(half));
    }
    hd_rows_put_row_values(r, 0);
    hd_rows_declare_loads(r, false);
    hd_rows_put_loads(r, false);
    if (one_angle_for_heads(r)) put_angles(r);
    hd_rows_passes(r);
}

static void simple_rows(Rows *r) { // a row or 8 rows a block, no column sums
    if (r->s.groups > 1) {
        hd_rows_line(r, "const int lane = threadIdx.x %% %d, group = threadIdx.x / %d;", r->s.lanes, r->s.lanes);
        hd_rows_position(r, r->p->rows > 2000000000 ? hd_sprintf(r->a, "(i64)block * %d + group", r->s.groups)
                                                    : hd_sprintf(r->a, "block * %d + group", r->s.groups));
        if (r->s.ragged_rows) hd_rows_line(r, "if (row >= %lld) return;", ll(r->p->rows));
    } else {
        hd_rows_line(r, "const int lane = threadIdx.x;");
        hd_rows_position(r, "block");
    }
    if (!hd_rows_looped(r)) hd_rows_line(r, "const int col = lane * %d;", r->s.vec);
    hd_rows_put_row_values(r, 0);
    hd_rows_declare_loads(r, false);
    hd_rows_put_loads(r, false);
    hd_rows_passes(r);
}

static void signature(Rows *r, CudaLaunch *l) {
    hd_printf(r->o, "extern \"C\" __global__ void __launch_bounds__(%d%s) %s(", r->s.threads,
              r->s.min_blocks ? hd_sprintf(r->a, ", %d", r->s.min_blocks) : "", r->name);
    const Func *k = r->p->kernel;
    const char *comma = "";
    for (int i = 0; i < k->n_args; i++) {
        hd_printf(r->o, "%sconst %s *in%d", comma, hd_cuda_type(k->args[i]->type->dtype), i);
        hd_push(r->a, &l->args, ((CudaArg){CUDA_IN, i}));
        comma = ", ";
    }
    for (int i = 0; i < r->p->stores.n; i++) {
        const RowStore *st = &r->p->stores.at[i];
        if (i && st->result == st[-1].result) continue; // another part of it
        hd_printf(r->o, "%s%s *out%d", comma, hd_cuda_type(st->dtype), st->result);
        hd_push(r->a, &l->args, ((CudaArg){CUDA_OUT, st->result}));
        comma = ", ";
    }
    if (r->p->columns.n) {
        hd_printf(r->o, "%sfloat *partials", comma);
        hd_push(r->a, &l->args, ((CudaArg){CUDA_WORKSPACE, 0}));
    }
    hd_puts(r->o, ") {\n    enter();\n");
    if (r->s.kind == SHAPE_SLAB) // neighbours in time share their rows
        hd_rows_line(r, "const int block = from_end() / %lld, slab = from_end() %% %lld;", ll(r->s.gy), ll(r->s.gy));
    else hd_rows_line(r, "const int block = from_end();");
}

CudaLaunches hd_cuda_rows(const Func *kernel, const char *name, int widest, int64_t shared, Arena *a) {
    RowProgram p = hd_rows_build(kernel, true, a);
    Out o = hd_out(a);
    Rows r = {.p = &p, .s = hd_rows_shape(&p, widest), .name = name, .a = a, .o = &o, .depth = 1, .n_places = 1};
    CudaLaunches list = {0};
    CudaLaunch l = {
        .name = name, .gx = (unsigned)(r.s.gx * r.s.gy), .gy = 1, .gz = 1, .block = (unsigned)r.s.threads};
    hd_rows_analyse(&r);
    for (int i = 0; i < p.nodes.n; i++)
        r.offset |= p.nodes.at[i].kind == NODE_LOAD && p.nodes.at[i].cls == ROW_FULL && !p.nodes.at[i].part.width &&
                    r.used[i];
    for (int i = 0; i < p.stores.n; i++) r.offset |= p.stores.at[i].cls == ROW_FULL && !p.stores.at[i].part.width;
    if (p.columns.n) hd_rows_look_ahead(&r, shared);
    l.shared = (unsigned)hd_rows_shared(&r);
    for (int i = 0; i < p.nodes.n; i++)
        if (p.nodes.at[i].kind == NODE_TURN) put_turns(&r, &p.nodes.at[i]);
    hd_printf(&o, "// %s.\n", hd_rows_describe(&p, &r.s, a));
    signature(&r, &l);
    if (r.s.kind == SHAPE_LINEAR || r.s.kind == SHAPE_FLAT) flat_body(&r);
    else if (p.columns.n) hd_rows_put_columns(&r);
    else simple_rows(&r);
    hd_puts(&o, "}\n");
    l.text = o.text;
    hd_push(a, &list, l);
    if (p.columns.n) {
        CudaLaunch second = hd_rows_column_kernel(&r);
        hd_push(a, &list, second);
    }
    return list;
}
