// The nodes of a row kernel (codegen/rows) as cells of C: one cell per node, with the same index. A sum of products
// reads the rows of both factors, a sum of squared distances the row and the origin, so that neither is stored.
#include "codegen/host/row_cells.h"
#include "ir/base/ints.h"
#include "ir/shapes.h"
#include <ctype.h>
#include <math.h>
#include <string.h>

static const char *suffix(DType t) { return t == TY_F64 ? "_d" : ""; }

static const char *number(Arena *a, DType d, double v) {
    return d == TY_I32 ? hd_sprintf(a, "%lld", (long long)v) : hd_emit_number(a, v, d == TY_F64);
}

static void put_dollar(const RowKernel *rk, const RowNode *n, char what, Out *o) {
    Arena *a = rk->e->a;
    const bool f64 = n->dtype == TY_F64;
    switch (what) {
    case 'r':
    case 'c':
        hd_putn(o, &what, 1);
        break;
    case 'v':
        hd_puts(o, "c");
        break;
    case 'j':
        hd_puts(o, "0");
        break;
    case 'a':
        hd_printf(o, "a%d", n->arg);
        break;
    case 'n':
        hd_puts(o, number(a, n->dtype, (double)rk->p->cols));
        break;
    case 'e':
        hd_puts(o, number(a, n->dtype, n->number));
        break;
    case 'l':
        hd_puts(o, hd_emit_number(a, -(double)INFINITY, f64));
        break;
    case 't':
        hd_puts(o, hd_host_compute_type(n->dtype));
        break;
    case 'q':
        if (hd_dtype_is_float(n->stored))
            hd_printf(o, "hd_round_%s($0)", hd_dtype_text(n->stored));
        else
            hd_printf(o, "(%s)$0", hd_emit_ctype(n->stored));
        break;
    default:
        hd_printf(o, "$%c", what);
    }
}

// An expression in C: plus(a, b) is (a + b), and names of functions are those of the type.
static const char *c_text(const RowKernel *rk, const RowNode *n) {
    static const struct {
        const char *name, *first, *second;
    } infix[] = {{"plus", " + ", ""}, {"minus", " - ", ""}, {"times", " * ", ""}, {"fused", " * ", " + "}};
    enum { DEEP = 16 };
    struct {
        int kind, comma;
    } open[DEEP];
    int depth = 0;
    size_t whole = 0; // where the parentheses that open the text are closed
    Out t = hd_out(rk->e->a);
    for (const char *s = n->text; *s;) {
        size_t len = 0;
        while (isalnum((unsigned char)s[len]) || s[len] == '_') len++;
        if (*s == '$') {
            put_dollar(rk, n, s[1], &t);
            s += 2;
        } else if (isalpha((unsigned char)*s) && s[len] == '(') {
            int k = 3;
            while (k >= 0 && (strlen(infix[k].name) != len || strncmp(infix[k].name, s, len) != 0)) k--;
            if (k < 0) hd_emit_math(&t, s, len, PRELUDE_HOST, n->dtype == TY_F64);
            hd_puts(&t, "(");
            if (depth == DEEP) HD_BUG("%s is nested too deeply", n->text);
            open[depth].kind = k;
            open[depth++].comma = 0;
            s += len + 1;
        } else if (*s == '(' && depth < DEEP) {
            open[depth++].kind = -1;
            hd_putn(&t, s++, 1);
        } else if (*s == ',' && depth && open[depth - 1].kind >= 0) {
            const int k = open[depth - 1].kind;
            hd_puts(&t, open[depth - 1].comma++ ? infix[k].second : infix[k].first);
            s += 2;
        } else {
            depth -= *s == ')';
            hd_putn(&t, s, len ? len : 1);
            if (*s == ')' && !depth && !whole) whole = t.n;
            s += len ? len : 1;
        }
    }
    if (t.text[0] != '(' || whole != t.n) return t.text;
    return hd_strndup(rk->e->a, t.text + 1, (size_t)t.n - 2);
}

static void read(Cell *c, int in, bool whole) {
    if (whole) c->whole |= 1u << c->n_in;
    c->in[c->n_in++] = in;
}

static void load(RowKernel *rk, const RowNode *n, Cell *c) {
    Arena *a = rk->e->a;
    const long long cols = ll(rk->p->cols);
    const char *place = hd_sprintf(a, "a%d[", n->arg);
    if (n->kind == NODE_GATHER) {
        place = hd_sprintf(a, "%s(int64_t)$0 * %lld + c]", place, cols);
        read(c, n->in[0], false);
    } else if (n->part.width) {
        place = hd_sprintf(a, "%sr * %lld + %lld + c]", place, ll(n->part.width), ll(n->part.start));
    } else
        switch (n->cls) {
        case ROW_SCALAR:
            place = hd_sprintf(a, "%s0]", place);
            break;
        case ROW_STAT:
            place = hd_sprintf(a, "%sr]", place);
            break;
        case ROW_COLUMN:
            place = hd_sprintf(a, "%sc]", place);
            break;
        case ROW_PERIODIC:
            place = hd_sprintf(a, "%sr %% %lld * %lld + c]", place, ll(n->period), cols);
            break;
        case ROW_NONE: // no node has it
        case ROW_FULL:
            place = hd_sprintf(a, "%sr * %lld + c]", place, cols);
            break;
        }
    c->text = hd_host_load(a, n->stored, place);
    if (c->kind != CELL_NARROW) c->kind = CELL_LOAD;
}

static void reduction(RowKernel *rk, const RowNode *n, Cell *c) {
    const RowNode *x = &rk->p->nodes.at[n->in[0]], *from = &rk->p->nodes.at[x->in[0]];
    const bool product = n->kind == NODE_SUM && x->kind == NODE_EXPR && x->text == hd_rows_product;
    const char *name = n->kind == NODE_MAX ? "max" : "sum", *operands = "$0";
    if (product && x->in[0] == x->in[1] && from->kind == NODE_EXPR && from->text == hd_rows_difference &&
        hd_rows_each(&rk->p->nodes.at[from->in[0]]) && !hd_rows_each(&rk->p->nodes.at[from->in[1]])) {
        name = "spread";
        read(c, from->in[0], true);
        read(c, from->in[1], false);
    } else if (product && hd_rows_each(from) && hd_rows_each(&rk->p->nodes.at[x->in[1]])) {
        name = "dot";
        read(c, x->in[0], true);
        read(c, x->in[1], true);
    } else {
        read(c, n->in[0], true);
    }
    if (c->n_in > 1) operands = "$0, $1";
    c->text = hd_sprintf(rk->e->a, "hd_row_%s%s(%s, %lld)", name, suffix(n->dtype), operands, ll(rk->p->cols));
}

static void turn(RowKernel *rk, const RowNode *n, Cell *c) {
    const RowTurn *t = &n->turn;
    Arena *a = rk->e->a;
    const int k = rk->setup.n;
    Out rates = hd_out(a);
    if (hd_has(t->rope, A_SCALING)) {
        hd_printf(&rates, "static const double rate%d[%lld] = {", k, ll(t->half));
        for (int64_t i = 0; i < t->half; i++)
            hd_printf(&rates, "%s%s", i ? ", " : "", hd_emit_number(a, hd_rope_rate(t->rope, i, 2 * t->half), true));
        hd_puts(&rates, "};");
    } else {
        hd_printf(&rates, "double rate%d[%lld];\n    hd_rope_rates(rate%d, %lld, %s);", k, ll(t->half), k, ll(t->half),
                  hd_emit_number(a, hd_float(t->rope, A_THETA, 10000.0), true));
    }
    hd_push(a, &rk->setup, rates.text);
    c->kind = CELL_ROW;
    const char *row = t->apart > 1 ? hd_sprintf(a, "r / %lld", ll(t->apart)) : "r";
    const char *position = n->n_in > 2 ? "(int64_t)$1" : hd_sprintf(a, "%s %% %lld", row, ll(t->seq));
    c->text = hd_sprintf(a, "hd_row_rope%s($0, $$, %lld, %lld, %lld, %s, rate%d, %s);", suffix(n->dtype),
                         ll(rk->p->cols), ll(t->columns), ll(t->half), position, k, t->inverse ? "-1" : "1");
    read(c, n->in[0], true);
    if (n->n_in > 2) read(c, n->in[2], false);
}

void hd_row_cells(RowKernel *rk) {
    for (int i = 0; i < rk->p->nodes.n; i++) {
        const RowNode *n = &rk->p->nodes.at[i];
        Cell c = {.kind = hd_rows_each(n) ? CELL_WIDE : CELL_NARROW, .type = n->dtype, .text = ""};
        switch (n->kind) {
        case NODE_LOAD:
        case NODE_GATHER:
            load(rk, n, &c);
            break;
        case NODE_SUM:
        case NODE_MAX:
            reduction(rk, n, &c);
            break;
        case NODE_TURN:
            turn(rk, n, &c);
            break;
        case NODE_PARTNER:
            break; // hd_row_rope turns both halves
        case NODE_EXPR:
            c.text = c_text(rk, n);
            for (int k = 0; k < n->n_in; k++) read(&c, n->in[k], false);
        }
        hd_push(rk->e->a, &rk->cells, c);
    }
}
