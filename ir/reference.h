// The reference of the IR, printed from its tables, so that it cannot go stale.
#ifndef IR_REFERENCE_H
#define IR_REFERENCE_H
#include "ir/ir.h"

void hd_list_ops(Out *o);
void hd_list_attrs(Out *o);
void hd_list_symbols(Out *o);
#endif
