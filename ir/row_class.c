#include "ir/row_class.h"

RowClass hd_row_class(const Type *t, RowSpace s) {
    const int64_t n = hd_type_count(t), last = hd_type_cols(t);
    if (last == s.cols && n == s.rows * s.cols) return ROW_FULL;
    if (n == 1) return ROW_SCALAR;
    if (last == s.cols && n == s.cols) return ROW_COLUMN;
    if (last == s.cols && n % s.cols == 0 && s.rows % (n / s.cols) == 0) return ROW_PERIODIC;
    return n == s.rows ? ROW_STAT : ROW_NONE;
}
