// Lines of a `rows` kernel's text, and names used in all of them: rows, columns, places, addresses.
#include "codegen/cuda/rows_emit.h"
#include "ir/base/ints.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hd_rows_line(Rows *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = hd_vsprintf(r->a, fmt, ap);
    va_end(ap);
    bool close = text[0] == '}';
    if (close) r->depth--;
    if (text[0] == '#') hd_printf(r->o, "%s\n", text);
    else hd_printf(r->o, "%*s%s\n", 4 * r->depth, "", text);
    size_t n = strlen(text);
    if (n && text[n - 1] == '{') r->depth++;
}

const char *hd_rows_literal(Arena *a, DType d, double v) {
    if (isnan(v)) return d == TY_F64 ? "__longlong_as_double(0x7ff8000000000000ll)" : "__int_as_float(0x7fc00000)";
    if (isinf(v)) return hd_sprintf(a, v < 0 ? "least<%s>()" : "(-least<%s>())", d == TY_F64 ? "double" : "float");
    if (d == TY_I32) return hd_sprintf(a, "%lld", (long long)v);
    char text[340];
    int digits = 1;
    do snprintf(text, sizeof text, "%.*g", digits, v); // the shortest text that reads back as the same number
    while (d == TY_F64 ? strtod(text, NULL) != v && ++digits <= 17 : strtof(text, NULL) != (float)v && ++digits <= 9);
    return hd_sprintf(a, "%s%s%s%s%s", v < 0 ? "(" : "", text, strpbrk(text, ".e") ? "" : ".0",
                      d == TY_F64 ? "" : "f", v < 0 ? ")" : "");
}

const char *hd_rows_suffix(Rows *r, int place) { return place ? hd_sprintf(r->a, "p%d", place) : ""; }
const char *hd_rows_column(Rows *r, int place) { return place ? hd_sprintf(r->a, "col%d", place) : "col"; }

// Where an argument's or result's elements start for the current row and column.
const char *hd_rows_address(Rows *r, const char *array, RowClass cls, int64_t period, RowPart part, int place) {
    const char *col = hd_rows_column(r, place);
    if (part.width)
        return hd_sprintf(r->a, "%s + (i64)row * %lld + %lld + %s", array, ll(part.width), ll(part.start), col);
    switch (cls) {
    case ROW_FULL:
        return r->s.kind == SHAPE_LINEAR ? hd_sprintf(r->a, "%s + col", array)
                                         : hd_sprintf(r->a, "%s + base + %s", array, col);
    case ROW_PERIODIC:
        return hd_sprintf(r->a, "%s + (i64)(row %% %lld) * %lld + %s", array, ll(period), ll(r->p->cols), col);
    case ROW_COLUMN: return hd_sprintf(r->a, "%s + %s", array, col);
    case ROW_STAT: return hd_sprintf(r->a, "%s + row", array);
    default: return array;
    }
}

void hd_rows_open_items(Rows *r) { // for each vector of the row; `col` is its first column
    const int64_t half = r->s.stride / 2;
    if (hd_rows_looped(r)) {
        hd_rows_line(r, r->s.stream ? "#pragma unroll 1" : "#pragma unroll");
        hd_rows_line(r, "for (int k = 0; k < %d; k++) {", r->s.items);
        if (r->s.kind == SHAPE_FLAT)
            hd_rows_line(r, "const int col = first + k / 2 * %lld + k %% 2 * %lld;", ll(r->s.stride), ll(half));
        else hd_rows_line(r, "const int col = (k * %d + lane) * %d;", r->s.lanes, r->s.vec);
    } else {
        hd_rows_line(r, "{");
    }
    if (r->s.ragged_cols) hd_rows_line(r, "if (col < %lld) {", ll(r->p->cols));
    for (int i = 1; i < r->n_places; i++) {
        const char *from = hd_rows_column(r, r->place[i].from);
        const int64_t away = r->place[i].half;
        if (hd_rows_looped(r) && half == away && !r->place[i].from) // both loads of a vector are seen to be one
            hd_rows_line(r, "[[maybe_unused]] const int col%d = first + k / 2 * %lld + (k + 1) %% 2 * %lld;", i,
                         ll(r->s.stride), ll(half));
        else
            hd_rows_line(r, "[[maybe_unused]] const int col%d = %s + (%s %% %lld < %lld ? %lld : -%lld);", i, from,
                         from, ll(2 * away), ll(away), ll(away), ll(away));
    }
}
void hd_rows_close_items(Rows *r) {
    if (r->s.ragged_cols) hd_rows_line(r, "}");
    hd_rows_line(r, "}");
}

void hd_rows_position(Rows *r, const char *row) {
    bool wide = r->p->rows > 2000000000;
    hd_rows_line(r, "const %s row = %s;", wide ? "i64" : "int", row);
    if (r->offset) hd_rows_line(r, "const i64 base = (i64)row * %lld;", ll(r->p->cols));
}
