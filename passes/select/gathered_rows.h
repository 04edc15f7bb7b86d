// Rows that products by groups gather themselves.
#ifndef PASSES_SELECT_GATHERED_ROWS_H
#define PASSES_SELECT_GATHERED_ROWS_H
#include "passes/pass.h"

void hd_select_gathered_rows(Func *f, PassCx *cx);
#endif
