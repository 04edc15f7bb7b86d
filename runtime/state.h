// The training state of a program: initial values, checkpoints, exported weights, digests. All of it in canonical order.
#ifndef RUNTIME_STATE_H
#define RUNTIME_STATE_H
#include "runtime/heddle.h"
#include <stdio.h>

typedef struct { int64_t step, seed, data_tokens; } Progress; // data_tokens: size of the data it was trained on; 0: unknown

// Fills every parameter by its initialiser: element i of parameter number k depends on (seed, k, i) alone.
bool hd_state_init(HdExec *x, const HdProgram *p, int64_t seed);
bool hd_state_import(HdExec *x, const HdProgram *p, const char *path); // --init
bool hd_state_export(HdExec *x, const HdProgram *p, const char *path); // --export
bool hd_state_save(HdExec *x, const HdProgram *p, const char *dir, const Progress *at);
bool hd_state_resume(HdExec *x, const HdProgram *p, const char *dir, Progress *at);
bool hd_state_hashes(HdExec *x, const HdProgram *p, FILE *f); // a line a parameter: name and 128-bit hash of its f32 bytes
bool hd_state_check(HdExec *x, const HdProgram *p); // false after hd_fail naming the first parameter or gradient that is not finite
#endif
