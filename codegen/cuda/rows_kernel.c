// A `rows` kernel as a whole: its signature, its body in one of the shapes of rows_shape.h, and its launches.
#include "codegen/cuda/rows_emit.h"
#include "ir/base/ints.h"

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
                     hd_rows_one_angle(r) ? "of_heads" : "col", t, ll(cols));
    }
    if (hd_rows_one_angle(r)) {
        const int64_t half = r->s.stride / 2;
        hd_rows_line(r, "const int first = of_heads / %lld * %lld + of_heads %% %lld;", ll(half), ll(half * r->s.items),
                     ll(half));
    }
    hd_rows_put_row_values(r, 0);
    hd_rows_declare_loads(r, false);
    hd_rows_put_loads(r, false);
    if (hd_rows_one_angle(r)) hd_rows_put_angles(r);
    hd_rows_passes(r);
}

static void simple_rows(Rows *r) { // a row or 8 rows a block, no column sums
    if (r->s.groups > 1) {
        hd_rows_line(r, "const int lane = threadIdx.x %% %d, group = threadIdx.x / %d;", r->s.lanes, r->s.lanes);
        hd_rows_position(r, r->p->rows > 2000000000 ? hd_sprintf(r->a, "(i64)block * %d + group", r->s.groups)
                                                    : hd_sprintf(r->a, "block * %d + group", r->s.groups));
        if (r->s.ragged_rows) hd_rows_meet_angles(r); // before some of the threads leave
        if (r->s.ragged_rows) hd_rows_line(r, "if (row >= %lld) return;", ll(r->p->rows));
    } else {
        hd_rows_line(r, "const int lane = threadIdx.x;");
        hd_rows_position(r, "block");
    }
    if (!hd_rows_looped(r)) hd_rows_line(r, "const int col = lane * %d;", r->s.vec);
    hd_rows_put_row_values(r, 0);
    hd_rows_declare_loads(r, false);
    hd_rows_put_loads(r, false);
    if (!r->s.ragged_rows || r->s.groups == 1) hd_rows_meet_angles(r);
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

static void find_offset(Rows *r) {
    for (int i = 0; i < r->p->nodes.n; i++)
        r->offset |= r->p->nodes.at[i].kind == NODE_LOAD && r->p->nodes.at[i].cls == ROW_FULL &&
                     !r->p->nodes.at[i].part.width && r->used[i];
    for (int i = 0; i < r->p->stores.n; i++)
        r->offset |= r->p->stores.at[i].cls == ROW_FULL && !r->p->stores.at[i].part.width;
}

bool hd_rows_reads(const RowProgram *p, int arg) {
    for (int i = 0; i < p->nodes.n; i++)
        if (hd_rows_is_load(&p->nodes.at[i]) && p->nodes.at[i].arg == arg) return true;
    return false;
}

const char *hd_rows_function(const RowProgram *p, const char *name, int widest, Arena *a) {
    Out o = hd_out(a);
    Rows r = {.p = p, .s = hd_rows_block_shape(p, widest), .name = name, .a = a, .o = &o, .depth = 1, .n_places = 1};
    const Func *k = p->kernel;
    const char *comma = "";
    hd_rows_analyse(&r);
    find_offset(&r);
    hd_printf(&o, "// %s.\n__device__ __forceinline__ void %s(", hd_rows_describe(p, &r.s, a), name);
    for (int i = 0; i < k->n_args; i++)
        if (hd_rows_reads(p, i)) {
            hd_printf(&o, "%sconst %s *in%d", comma, hd_cuda_type(k->args[i]->type->dtype), i);
            comma = ", ";
        }
    for (int i = 0; i < p->stores.n; i++)
        hd_printf(&o, ", %s *out%d", hd_cuda_type(p->stores.at[i].dtype), p->stores.at[i].result);
    hd_puts(&o, ") {\n    const int block = 0;\n");
    simple_rows(&r);
    hd_puts(&o, "}\n");
    return o.text;
}

CudaLaunches hd_cuda_rows(const Func *kernel, const char *name, int widest, int64_t shared, Arena *a) {
    RowProgram p = hd_rows_build(kernel, true, a);
    Out o = hd_out(a);
    Rows r = {.p = &p, .s = hd_rows_shape(&p, widest), .name = name, .a = a, .o = &o, .depth = 1, .n_places = 1};
    CudaLaunches list = {0};
    CudaLaunch l = {
        .name = name, .gx = (unsigned)(r.s.gx * r.s.gy), .gy = 1, .gz = 1, .block = (unsigned)r.s.threads};
    hd_rows_analyse(&r);
    find_offset(&r);
    if (p.columns.n) hd_rows_look_ahead(&r, shared);
    l.shared = (unsigned)hd_rows_shared(&r);
    for (int i = 0; i < p.nodes.n; i++)
        if (p.nodes.at[i].kind == NODE_TURN) hd_rows_put_turns(&r, &p.nodes.at[i]);
    hd_printf(&o, "// %s.\n", hd_rows_describe(&p, &r.s, a));
    signature(&r, &l);
    hd_rows_declare_angles(&r);
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
