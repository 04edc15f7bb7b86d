// CUDA kernels on the CPU. A kernel's text, translated to C++ (compile.py), runs with a stack for each thread of a
// block. A thread runs until it has to wait for others: at a barrier, at an operation of its warp, for a copy. Then
// another one goes on. Blocks start in the order of their numbers; the next one starts when no thread of the present
// ones can go on, so that a kernel whose blocks wait for later blocks ends with an error, as does any deadlock.
//
// FAKE_CUDA_SIMT_ORDER=n (default 0): 0 takes threads in turn and does at once what the device may do at any time:
// copies and products that run beside the threads. Any other number is a seed: threads are taken at random, and such
// work is done as late as a wait allows or at some moment before. Of even numbers some warps (4, 8, ...) or groups of
// four warps (2, 6, ...) are fast and run ahead of others. Of multiples of three (3, 6, ...) such work is always done
// as late as it can be. Results must not depend on any of it.
#ifndef TESTS_SIMT_ENGINE_H
#define TESTS_SIMT_ENGINE_H
#include "tests/simt/launch.h"
#include <cstddef>
#include <cstdint>

namespace simt {
typedef uint32_t u32;
typedef unsigned long long u64;
typedef SimtIndex Index;
typedef SimtKernel Kernel;
extern "C" SimtRun simt_run;

struct Thread;
struct Block;
extern Thread *self;
extern Index thread_index, block_index, block_size, grid_size; // of the thread that runs

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Shared memory is addressed by 32 bits. What a launch asked for begins at its start.
char *dynamic_shared();
void *static_shared(const void *declaration, size_t bytes); // the block's variable of a declaration
u32 shared_address(const void *p);
char *shared_at(u32 address, size_t bytes); // an error where there is none

void spin();  // lets others go on: the thread polls memory that they write
void pause(); // others may go on, except in order 0: where a thread has told others something, or is about to wait

// Of named barriers, 0 to 15; threads < 0: all that the block has left.
void barrier(int id, int threads, bool waits);
int barrier_count(bool yes); // __syncthreads_count

// An operation of the lanes of `mask`: each passes its operands, `work` runs once with those of all lanes (NULL: not in
// the mask), and all go on. All must pass the same work.
typedef void Work(void **lane);
void together(u32 mask, Work *work, void *operands);
int lane();

// Work beside the thread that asked for it: `work` is done once.
struct Beside {
    virtual void work() = 0;
    virtual ~Beside() {}
};
bool at_once(); // whether it should be done now
void copy_later(Beside *b); // cp.async of this thread
void copies_commit();
void copies_wait(int groups);
void copies_arrive(u32 barrier); // arrives when all copies of this thread are done
void tensor_copy(Beside *b);     // by the block, at any time from now
void products_later(Beside *b);  // wgmma of this warp; its first lane asks
void products_commit();
void products_wait(int groups);

// mbarrier objects in shared memory
void phases_init(u32 at, int count);
void phases_arrive(u32 at);
void phases_expect(u32 at, int bytes); // and arrives
void phases_complete(Block *b, u32 at, int bytes);
void phases_await(u32 at, u32 parity);
Block *here();
char *shared_of(Block *b, u32 address, size_t bytes);
} // namespace simt
#endif
