// Indices that the compiler could not prove to be in range (ir/ranges.h). With --check their numbers are looked at
// before the action that reads them, and the first one that is out of range ends the run.
#ifndef RUNTIME_BASE_INDICES_H
#define RUNTIME_BASE_INDICES_H
#include "runtime/heddle.h"

// Those of the action, `*n` of them.
const HdIndexed *hd_indices_of(const HdProgram *p, const HdFunc *f, int action, int *n);
// Whether all are in range; if not, the text says which is not, of `who`, the action in words.
bool hd_indices_good(const HdIndexed *s, const int *numbers, const char *who, char *text, size_t size);
#endif
