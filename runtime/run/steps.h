// The work and the bytes of a program's steps.
#ifndef RUNTIME_RUN_STEPS_H
#define RUNTIME_RUN_STEPS_H
#include "runtime/heddle.h"

// false after hd_fail: it has no training step, or its functions take what no run can fill
bool hd_steps_check(const HdProgram *p);
// The update of a step was left out: its norm is not finite, or it is an outlier. z: the scores of its loss and norm;
// NULL: the program has none.
bool hd_step_skipped(const HdProgram *p, float norm, const float *z);
int64_t hd_step_sequences(const HdProgram *p); // that all ranks read in a step
int64_t hd_step_tokens(const HdProgram *p);    // likewise; where no input holds tokens, rows
// Advice where the norm of gradients is not finite: `text`, which may be empty. bound: what the first exchange that was
// too small would have needed; 0: none was.
const char *hd_scale_advice(const HdProgram *p, float loss, int bound, char *text, size_t size);
#endif
