// The layout of a bucket: where each parameter of a unit is in the unit's one flat vector, for any number of ranks.
#ifndef PASSES_FSDP_BUCKET_LAYOUT_H
#define PASSES_FSDP_BUCKET_LAYOUT_H
#include "ir/ir.h"

enum { HD_BUCKET_ALIGN = 32 }; // elements: 64 bytes of bf16, 128 of f32; vector loads and collectives want this

typedef struct {
    Symbol *param;
    int64_t count, row, offset;
    bool decay;
} BucketItem; // row: elements no boundary may cut
typedef struct {
    BucketItem *items; // in layout order once laid out
    int n;
    int64_t ranks, replicas;
    bool whole;          // each item is on one rank; all of them decay, or none does
    bool alike;          // of whole items on one rank, equal ones follow each other, the largest first
    int64_t *work;       // whole: of each rank, in all buckets so far
    int64_t size, shard; // elements of the whole and of one rank
    int64_t decayed;     // the elements before it belong to parameters with weight decay, or are padding
    int64_t padding;     // padding
} Bucket;

// Whether `b` begins where `a` ends in every layout, whatever the mesh and the units are: neighbours of one module, of
// one kind, with equal rows, and no padding between them.
bool hd_bucket_adjoins(const Symbol *a, const Symbol *b);

// Lays out items given in declaration order for `ranks` ranks that share it, in each of `replicas` groups. False when
// no sensible padded size exists (row sizes without common factors).
bool hd_bucket_layout(Bucket *b, int64_t ranks, int64_t replicas, Arena *scratch);
#endif
