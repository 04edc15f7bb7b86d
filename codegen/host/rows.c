// Prints kernel functions of kind rows: a parallel loop over rows, in it one loop over the columns for each pass.
//
// Rows are independent and every reduction has a fixed order, so results do not depend on the number of threads. Column
// sums go through partial sums of hd_partial_rows rows each, which are then added in order (the launch's workspace
// holds them).
#include "codegen/host/row_cells.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"

enum {
    STACK_BYTES = 64 * 1024,
    SMALL = 4096
}; // row buffers beyond this are thread-local; kernels below this run on one thread

// Replaces $i and $$ of a cell's text.
static void put_text(RowKernel *rk, int cell, int pass) {
    Out *o = rk->e->c;
    const Cell *c = &rk->cells.at[cell];
    for (const char *s = c->text; *s; s++) {
        if (*s != '$') {
            hd_putn(o, s, 1);
            continue;
        }
        s++;
        if (*s == '$') {
            hd_printf(o, "row%d", cell);
            continue;
        }
        int i = *s - '0', in = c->in[i];
        const Cell *x = &rk->cells.at[in];
        if (c->whole >> i & 1)
            hd_printf(o, "row%d", in);
        else if (x->kind == CELL_ROW || (x->kept && x->pass < pass))
            hd_printf(o, "row%d[c]", in);
        else
            hd_printf(o, "v%d", in);
    }
}

static bool is_wide(const RowStore *s) { return s->cls >= ROW_COLUMN; }

static void put_narrow_store(RowKernel *rk, const RowStore *s, const char *pad) {
    const char *value =
        hd_host_store(rk->e->a, s->dtype, rk->cells.at[s->node].type, hd_sprintf(rk->e->a, "v%d", s->node));
    hd_printf(rk->e->c, "%s%sr%d[r] = %s;\n", pad, s->cls == ROW_SCALAR ? "if (r < 1) " : "", s->result, value);
}

// Narrow cells and whole-row statements that come before a pass.
static void put_before(RowKernel *rk, int pass, const char *pad) {
    Out *o = rk->e->c;
    for (int i = 0; i < rk->cells.n; i++) {
        const Cell *c = &rk->cells.at[i];
        if (!c->used || c->pass != pass || (c->kind != CELL_NARROW && c->kind != CELL_ROW)) continue;
        hd_puts(o, pad);
        if (c->kind == CELL_NARROW) hd_printf(o, "const %s v%d = ", hd_host_compute_type(c->type), i);
        put_text(rk, i, pass);
        hd_puts(o, c->kind == CELL_NARROW ? ";\n" : "\n");
        for (int k = 0; k < rk->p->stores.n; k++) {
            const RowStore *s = &rk->p->stores.at[k];
            if (s->node == i && !is_wide(s)) put_narrow_store(rk, s, pad);
        }
    }
}

// The value of a cell at a column.
static const char *value_at(RowKernel *rk, int cell, int pass) {
    const Cell *c = &rk->cells.at[cell];
    return hd_sprintf(rk->e->a, c->kind == CELL_ROW || (c->kept && c->pass < pass) ? "row%d[c]" : "v%d", cell);
}

static void put_store(RowKernel *rk, const RowStore *s, int pass, const char *pad) {
    Out *o = rk->e->c;
    const char *value = hd_host_store(rk->e->a, s->dtype, rk->cells.at[s->node].type, value_at(rk, s->node, pass));
    const int64_t rows = s->cls == ROW_COLUMN ? 1 : s->cls == ROW_PERIODIC ? s->period : rk->p->rows;
    hd_puts(o, pad);
    if (rows < rk->p->rows) hd_printf(o, "if (r < %lld) ", ll(rows));
    if (s->part.width)
        hd_printf(o, "r%d[r * %lld + %lld + c] = %s;\n", s->result, ll(s->part.width), ll(s->part.start), value);
    else if (rows == 1)
        hd_printf(o, "r%d[c] = %s;\n", s->result, value);
    else
        hd_printf(o, "r%d[r * %lld + c] = %s;\n", s->result, ll(rk->p->cols), value);
}

// Marks what the loop of a pass must compute: its own wide cells, and earlier loads that these read again.
static bool cells_of_pass(RowKernel *rk, int pass, bool *now) {
    bool any = false;
    memset(now, 0, (size_t)rk->cells.n + 1);
    for (int i = rk->cells.n - 1; i >= 0; i--) {
        const Cell *c = &rk->cells.at[i];
        if (!c->used || (c->kind != CELL_WIDE && c->kind != CELL_LOAD)) continue;
        if (c->pass == pass) now[i] = true;
        if (!now[i]) continue;
        any = true;
        for (int k = 0; k < c->n_in; k++) {
            const Cell *in = &rk->cells.at[c->in[k]];
            if (in->kind == CELL_LOAD && !in->kept && !(c->whole >> k & 1)) now[c->in[k]] = true;
        }
    }
    for (int i = 0; i < rk->p->stores.n; i++)
        any |= is_wide(&rk->p->stores.at[i]) && rk->cells.at[rk->p->stores.at[i].node].pass == pass;
    for (int i = 0; i < rk->p->columns.n; i++) any |= rk->cells.at[rk->p->columns.at[i].node].pass == pass;
    return any;
}

static void put_pass(RowKernel *rk, int pass, bool *now, const char *pad, bool parallel) {
    Out *o = rk->e->c;
    const char *in = hd_sprintf(rk->e->a, "%s    ", pad);
    hd_printf(o, "#pragma omp %ssimd%s\n", parallel ? "parallel for " : "", parallel ? " schedule(static)" : "");
    hd_printf(o, "%sfor (int64_t c = 0; c < %lld; c++) {\n", pad, ll(rk->p->cols));
    for (int i = 0; i < rk->cells.n; i++) {
        const Cell *c = &rk->cells.at[i];
        if (!now[i]) continue;
        hd_printf(o, "%sconst %s v%d = ", in, hd_host_compute_type(c->type), i);
        put_text(rk, i, pass);
        hd_puts(o, ";\n");
        if (c->kept && c->pass == pass) hd_printf(o, "%srow%d[c] = v%d;\n", in, i, i);
    }
    for (int i = 0; i < rk->p->stores.n; i++)
        if (is_wide(&rk->p->stores.at[i]) && rk->cells.at[rk->p->stores.at[i].node].pass == pass)
            put_store(rk, &rk->p->stores.at[i], pass, in);
    for (int i = 0; i < rk->p->columns.n; i++)
        if (rk->cells.at[rk->p->columns.at[i].node].pass == pass)
            hd_printf(o, "%ssum%d[c] += %s;\n", in, rk->p->columns.at[i].result,
                      value_at(rk, rk->p->columns.at[i].node, pass));
    hd_printf(o, "%s}\n", pad);
}

static void put_buffers(RowKernel *rk, const char *pad) {
    int64_t bytes = 0;
    for (int i = 0; i < rk->cells.n; i++)
        if (rk->cells.at[i].used && rk->cells.at[i].kept) bytes += rk->p->cols * 8;
    for (int i = 0; i < rk->cells.n; i++)
        if (rk->cells.at[i].used && rk->cells.at[i].kept)
            hd_printf(rk->e->c, "%s%s%s row%d[%lld];\n", pad, bytes > STACK_BYTES ? "static _Thread_local " : "",
                      hd_host_compute_type(rk->cells.at[i].type), i, ll(rk->p->cols));
}

static void put_passes(RowKernel *rk, const char *pad, bool parallel) {
    bool *now = HD_NEWN(rk->e->a, bool, rk->cells.n + 1);
    for (int pass = 0; pass < rk->n_passes; pass++) {
        put_before(rk, pass, pad);
        if (cells_of_pass(rk, pass, now)) put_pass(rk, pass, now, pad, parallel);
    }
}

static bool sums_in_f64(const RowKernel *rk) {
    for (int i = 0; i < rk->p->columns.n; i++)
        if (rk->p->columns.at[i].dtype == TY_F64) return true;
    return false;
}

// Column sums: blocks of hd_partial_rows rows, each with its own partial sums in the workspace. f64 (tests) has no
// workspace: its blocks run one after another and add to the result.
static void put_blocks(RowKernel *rk, bool parallel) {
    Out *o = rk->e->c;
    const RowProgram *p = rk->p;
    const int run = hd_partial_rows(p->rows);
    const int64_t blocks = hd_ceil_div(p->rows, run);
    bool f64 = sums_in_f64(rk);
    for (int i = 0; f64 && i < p->columns.n; i++)
        hd_printf(o, "    for (int64_t c = 0; c < %lld; c++) r%d[c] = 0;\n", ll(p->cols), p->columns.at[i].result);
    if (parallel && !f64) hd_puts(o, "#pragma omp parallel for schedule(static)\n");
    hd_printf(o, "    for (int64_t block = 0; block < %lld; block++) {\n", ll(blocks));
    put_buffers(rk, "        ");
    for (int i = 0; i < p->columns.n; i++) {
        const int n = p->columns.at[i].result;
        if (f64)
            hd_printf(o, "        double sum%d[%lld];\n", n, ll(p->cols));
        else
            hd_printf(o, "        float *const sum%d = partial + (%lld + block) * %lld;\n", n, ll(blocks * i),
                      ll(p->cols));
        hd_printf(o, "        for (int64_t c = 0; c < %lld; c++) sum%d[c] = 0;\n", ll(p->cols), n);
    }
    hd_printf(o, "        const int64_t end = block * %d + %d < %lld ? block * %d + %d : %lld;\n", run,
              run, ll(p->rows), run, run, ll(p->rows));
    hd_printf(o, "        for (int64_t r = block * %d; r < end; r++) {\n", run);
    put_passes(rk, "            ", false);
    hd_puts(o, "        }\n");
    for (int i = 0; f64 && i < p->columns.n; i++)
        hd_printf(o, "        for (int64_t c = 0; c < %lld; c++) r%d[c] += sum%d[c];\n", ll(p->cols),
                  p->columns.at[i].result, p->columns.at[i].result);
    hd_puts(o, "    }\n");
    for (int i = 0; !f64 && i < p->columns.n; i++)
        hd_printf(o, "    hd_add_partials(partial + %lld, %lld, %lld, r%d);\n", ll(blocks * p->cols * i), ll(blocks),
                  ll(p->cols), p->columns.at[i].result);
}

bool hd_host_has_column_sums(const Func *k) {
    const Op *r = hd_return(k);
    for (int i = 0; r && i < r->n_in; i++)
        if (hd_rows_sums_columns(r->in[i])) return hd_kind(&k->attrs) != KIND_MAP;
    return false;
}

void hd_host_rows(Emit *e, const Func *k) {
    const RowProgram p = hd_rows_build(k, false, e->a);
    RowKernel rk = {.e = e, .p = &p};
    hd_row_cells(&rk);
    hd_row_passes(&rk);
    const bool column_sums = p.columns.n > 0, parallel = p.rows * p.cols >= SMALL;
    hd_host_open(e, k, column_sums);
    if (column_sums && sums_in_f64(&rk))
        hd_puts(e->c, "    (void)workspace;\n");
    else if (column_sums)
        hd_puts(e->c, "    float *const partial = workspace;\n");
    for (int i = 0; i < rk.setup.n; i++) hd_printf(e->c, "    %s\n", rk.setup.at[i]);
    if (column_sums) {
        put_blocks(&rk, parallel);
    } else if (p.rows == 1 && rk.n_passes == 1) {
        hd_puts(e->c, "    const int64_t r = 0;\n");
        put_buffers(&rk, "    ");
        put_passes(&rk, "    ", parallel);
        hd_puts(e->c, "    (void)r;\n");
    } else {
        if (parallel) hd_puts(e->c, "#pragma omp parallel for schedule(static)\n");
        hd_printf(e->c, "    for (int64_t r = 0; r < %lld; r++) {\n", ll(p.rows));
        put_buffers(&rk, "        ");
        put_passes(&rk, "        ", false);
        hd_puts(e->c, "    }\n");
    }
    hd_puts(e->c, "}\n\n");
}
