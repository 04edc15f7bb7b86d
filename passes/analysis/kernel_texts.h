// Kernels by their text, so that equal ones are one: a deep model has no more kernels than a shallow one.
#ifndef PASSES_ANALYSIS_KERNEL_TEXTS_H
#define PASSES_ANALYSIS_KERNEL_TEXTS_H
#include "ir/ir.h"

typedef struct KernelTexts KernelTexts;
KernelTexts *hd_kernel_texts(Arena *a);
Func *hd_kernel_open(KernelTexts *t, Module *m, KindId kind); // a new one, by the next name that is free
// Ends kernel k, which returns these values. The result is its name, and *fresh is true; or the name of an earlier one
// with the same text, and k is gone.
const char *hd_kernel_close(KernelTexts *t, Func *k, int n, Value *const *returned, bool *fresh);
#endif
