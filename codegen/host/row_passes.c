// Splits the cells of a row kernel into passes over the columns. A reduction needs its whole operand first, so values
// that depend on it come a pass later. Values are computed as late as their first reader allows. A value that a later
// pass reads again is kept in a row buffer, except loads, which are repeated. A kernel whose result overwrites an
// operand (`inplace`) has one pass: hd_launch_may_overwrite allows nothing but pointwise ops.
#include "codegen/host/row_cells.h"

static bool is_wide(const Cell *c) { return c->kind != CELL_NARROW; }

static void earliest(RowKernel *rk) {
    for (int i = 0; i < rk->cells.n; i++) {
        Cell *c = &rk->cells.at[i];
        c->pass = 0;
        for (int k = 0; k < c->n_in; k++) {
            const Cell *in = &rk->cells.at[c->in[k]];
            int pass = in->pass + (is_wide(in) && (c->whole >> k & 1));
            if (pass > c->pass) c->pass = pass;
        }
    }
}

static void mark_used(RowKernel *rk) {
    for (int i = 0; i < rk->p->stores.n; i++) rk->cells.at[rk->p->stores.at[i].node].used = true;
    for (int i = 0; i < rk->p->columns.n; i++) rk->cells.at[rk->p->columns.at[i].node].used = true;
    for (int i = rk->cells.n - 1; i >= 0; i--)
        for (int k = 0; rk->cells.at[i].used && k < rk->cells.at[i].n_in; k++)
            rk->cells.at[rk->cells.at[i].in[k]].used = true;
}

// Moves wide cells to the pass of their first reader. Readers have larger indices, so one walk backwards is enough.
static void sink(RowKernel *rk) {
    int *latest = HD_NEWN(rk->e->a, int, rk->cells.n + 1);
    for (int i = 0; i < rk->cells.n; i++) latest[i] = -1;
    for (int i = 0; i < rk->p->stores.n; i++)
        latest[rk->p->stores.at[i].node] = rk->cells.at[rk->p->stores.at[i].node].pass;
    for (int i = 0; i < rk->p->columns.n; i++)
        latest[rk->p->columns.at[i].node] = rk->cells.at[rk->p->columns.at[i].node].pass;
    for (int i = rk->cells.n - 1; i >= 0; i--) {
        Cell *c = &rk->cells.at[i];
        if (!c->used) continue;
        if (latest[i] > c->pass && (c->kind == CELL_WIDE || c->kind == CELL_LOAD)) c->pass = latest[i];
        for (int k = 0; k < c->n_in; k++) {
            int pass = c->pass - (c->whole >> k & 1 && is_wide(&rk->cells.at[c->in[k]]));
            if (latest[c->in[k]] < 0 || pass < latest[c->in[k]]) latest[c->in[k]] = pass;
        }
    }
}

static void keep(RowKernel *rk) {
    for (int i = 0; i < rk->cells.n; i++) {
        const Cell *c = &rk->cells.at[i];
        if (!c->used) continue;
        if (c->kind == CELL_ROW) rk->cells.at[i].kept = true;
        for (int k = 0; k < c->n_in; k++) {
            Cell *in = &rk->cells.at[c->in[k]];
            if (!is_wide(in)) continue;
            bool again = c->pass > in->pass && in->kind != CELL_LOAD;
            if (c->whole >> k & 1 || again) in->kept = true;
        }
    }
}

void hd_row_passes(RowKernel *rk) {
    mark_used(rk);
    earliest(rk);
    sink(rk);
    keep(rk);
    rk->n_passes = 1;
    for (int i = 0; i < rk->cells.n; i++)
        if (rk->cells.at[i].used && rk->cells.at[i].pass >= rk->n_passes) rk->n_passes = rk->cells.at[i].pass + 1;
}
