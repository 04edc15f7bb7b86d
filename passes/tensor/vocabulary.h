// Look-ups and losses over a vocabulary that is split over ranks.
#ifndef PASSES_TENSOR_VOCABULARY_H
#define PASSES_TENSOR_VOCABULARY_H
#include "ir/ir.h"

typedef struct { const Value *index; int64_t rows; Value *own; } OwnIndex;
typedef struct {
    Module *m;
    Func *f;
    Arena *a;
    int axis;
    int64_t ranks;
    const Symbol *comm;
    int64_t collectives;
    VEC(OwnIndex) made; // in this function
} Vocabulary;

// Where o looks up a table or reads logits that are split along the vocabulary, ops that do it by parts take its place.
// Their results have the types of the whole, and no layouts yet. Returns the first of them, or o.
Op *hd_split_vocabulary(Vocabulary *v, Op *o);
#endif
