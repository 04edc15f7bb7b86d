// Random numbers of dropout: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). They
// depend on the seed, on the number of the dropout in the model, on the sequence and on the element alone, so that a
// mask can be recomputed wherever it is read, in any order and on any rank:
//
//   key      low and high word of the seed
//   counter  element / 4, site, low and high word of the sequence's number
//   word     element % 4 of the four; the element is kept where it is at least p 2^32
//
// site      number of the dropout in the program, in the order in which `loss` computes them
// sequence  how many sequences all ranks had read before it, since the start of training
// element   row-major, within the part of the operand that belongs to the sequence; of attention, within the part of
//           the probabilities [batch, heads, seq, seq]
//
// An op of a plan gets a row of the table that `dropout_keys` makes: HD_KEY words, the two of the seed, the two of the
// first sequence of its operand, the site, the rank's place along the axes `over` of the op (0 without), zeros. A row
// says all that differs between two dropouts, so they share a kernel.
//
// Where ranks have parts of an operand (`over`), elements are those of the whole: a part of E elements from its
// dimension on that stands at place p of n has element i of a sequence as i / E * E n + p E + i % E; of attention, a
// rank with h heads has those from p h on.
#ifndef IR_DROPOUT_H
#define IR_DROPOUT_H
#include "ir/ir.h"

enum { HD_KEY = 8, HD_KEY_PLACE = 5 }; // the word of a rank's place
static const int64_t HD_DROPOUT_ELEMENTS = (int64_t)1 << 34; // of a sequence; element / 4 is a word of the counter

// The operand of an op that is its key; NULL: it has none.
Value *hd_key(const Op *o);
int hd_without_key(const Op *o);              // operands of dropout or attention but for the key
bool hd_draws(const Op *o);                   // dropout, or attention with it
int64_t hd_dropout_ranks(const Op *o);        // that have parts of its operand; 1: it has all of it
int64_t hd_dropout_run(const Op *o);          // dropout: consecutive elements of its operand that are so in the whole
uint32_t hd_dropout_threshold(const Op *o);   // p 2^32, rounded
double hd_dropout_factor(const Op *o);        // of what is kept: 1 / (1 - p) as f32, or f64 where the op computes in it
void hd_philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t word[4]);
bool hd_dropout_keeps(const uint32_t key[HD_KEY], int64_t sequence, int64_t element, uint32_t threshold);
#endif
