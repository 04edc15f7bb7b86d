// Text that a model writes: a prompt, and the tokens that its logits choose one after another.
#ifndef RUNTIME_SAMPLE_SAMPLE_H
#define RUNTIME_SAMPLE_SAMPLE_H
#include "runtime/run/options.h"
#include "runtime/world/world.h"

typedef struct {
    int32_t *tokens; // the prompt, and room for what follows
    int64_t prompt, total;
    bool text; // tokens are bytes
} Sample;

bool hd_sample_wanted(const Options *o);
// Reads the prompt. false after hd_fail.
bool hd_sample_open(Sample *s, const HdProgram *p, const Options *o);
void hd_sample_close(Sample *s);
// all: writes a text to standard output, on rank 0. *seconds: how long the tokens took. false after hd_fail.
bool hd_sample_write(Sample *s, HdExec *x, HdWorld *w, const Options *o, double *seconds);
#endif
