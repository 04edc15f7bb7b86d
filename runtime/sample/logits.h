// The results of the function @logits of a program: a row of logits for each token of one sequence. Functions return
// false after hd_fail.
#ifndef RUNTIME_SAMPLE_LOGITS_H
#define RUNTIME_SAMPLE_LOGITS_H
#include "runtime/data/feed.h"
#include "runtime/world/world.h"

bool hd_logits_there(const HdProgram *p, const char *option); // else the failure says how to get a program that has it
int64_t hd_logits_seq(const HdProgram *p);
int64_t hd_logits_vocab(const HdProgram *p); // of a row
// all: of `seq` tokens
bool hd_logits_run(HdExec *x, const int32_t *tokens);
bool hd_logits_read(HdExec *x, int64_t token, int64_t n, float *rows); // of n tokens, after a run
// all: of one token at a position below `seq`, after those at the positions before it; of programs that keep keys and
// values
bool hd_decode_there(const HdProgram *p);
bool hd_decode_run(HdExec *x, int32_t token, int32_t position);
bool hd_decode_read(HdExec *x, float *row); // after a run
// Of a target that chooses by the first n logits: `choose` after a run; then `again` runs the next token with the one
// that was chosen. `chosen` waits for the oldest choice; *token -1: a logit was not finite.
bool hd_decode_choose(HdExec *x, const HdPick *how, int64_t n);
bool hd_decode_again(HdExec *x);
bool hd_decode_chosen(HdExec *x, int32_t *token);
// all: of every row of the data in order, as an array f32[rows, seq, vocab] that rank 0 writes
bool hd_logits_write(HdExec *x, HdWorld *w, Feed *data, const char *path);
#endif
