// A small program: a counter that starts at 0, three streams, and kernels that the pretended driver knows.
#ifndef TESTS_FAKE_CUDA_SMALL_PROGRAM_H
#define TESTS_FAKE_CUDA_SMALL_PROGRAM_H
#include "runtime/heddle.h"

enum { COUNTER = 0, SPARE = 256, DATA = 4096, ARENA = 16 << 20 }; // bytes of the arena
// Functions, by their index in test_funcs.
enum { MICRO, UPDATE, WRONG, TILED, PARTS, CARELESS, OPEN, FORGETFUL };
extern const HdFunc test_funcs[];
extern const HdSource small_sources[];
extern size_t tiled_bytes; // of the argument that TILED passes by value; its kernel takes 128
extern int steps_so_far;   // of FORGETFUL: captures and runs

static const HdGrid one = {1, 1, 1, 32, 0, {0}};

HdProgram small_program(void);
#endif
