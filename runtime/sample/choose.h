// Which token comes next, by the logits of the one before it.
#ifndef RUNTIME_SAMPLE_CHOOSE_H
#define RUNTIME_SAMPLE_CHOOSE_H
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double temperature; // by which logits are divided; 0: the largest logit is chosen
    int64_t top_k;      // only so many tokens, the likeliest, may be chosen; 0: all
    double top_p;       // only the likeliest that together have at least this share may be; 1: all
} HdChoice;

typedef struct { double share; int64_t token; } HdChance;

// The token at `at`, from 0 to less than 1, of the shares of those that may be chosen; of equal logits the first token
// is the likelier one. `room`: for n. -1: a logit is not finite.
int64_t hd_choose(const HdChoice *c, int64_t n, const float *logits, double at, HdChance *room);
// The position in [0, 1) of token number `index` of a text with this seed.
double hd_choose_at(uint64_t seed, uint64_t index);
#endif
