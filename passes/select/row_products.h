#ifndef PASSES_SELECT_ROW_PRODUCTS_H
#define PASSES_SELECT_ROW_PRODUCTS_H
#include "passes/pass.h"

// Of the function of a token: a product of one row becomes a kernel of kind `product`, with what makes its row before
// it and what is computed of its result behind it. Changes uses and ids.
void hd_select_row_products(Func *f, PassCx *cx);
#endif
