// The alignment of an op's addresses in a plan: what `align` may say.
#ifndef PASSES_ANALYSIS_ALIGNMENT_H
#define PASSES_ANALYSIS_ALIGNMENT_H
#include "ir/ir.h"

enum { HD_WIDE = 16 }; // bytes that a kernel or library moves at once where `align` is absent
// The largest power of two, up to HD_WIDE, that divides every address of the op's operands and results. Single numbers
// do not count.
int hd_alignment(const Op *o);
// Notes it in `align`, where the op may have that. Attention whose addresses are aligned to less than HD_WIDE gets the
// implementation that needs no more: neither cuDNN's nor those on tensor cores.
void hd_set_alignment(Op *o);
#endif
