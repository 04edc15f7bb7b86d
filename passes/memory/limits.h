// The memory of a space, and what --device-memory and --host-memory allow of it.
#ifndef PASSES_MEMORY_LIMITS_H
#define PASSES_MEMORY_LIMITS_H
#include "ir/ir.h"

typedef struct {
    int64_t persistent;
    int64_t top, bound; // of all functions so far: bytes of the arena, and the least that any packing needs
    const Func *peak;   // whose live bytes are `bound`
    const Op *peak_op;
} Room; // a space

// false after an error that says how much is needed, by what, and what takes less.
bool hd_memory_fits(const Module *m, const Room *room, Arena *a); // room: by space
#endif
