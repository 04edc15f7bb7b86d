// CUDA kernels on the CPU. A kernel's text, translated to C++ (compile.py), runs with a stack for each thread of a
// block. A thread runs until it has to wait for others: at a barrier, at an operation of its warp, for a copy. Then
// another one goes on. Blocks start in the order of their numbers; the next one starts when no thread of the present
// ones can go on, so that a kernel whose blocks wait for later blocks ends with an error, as does any deadlock. Those
// of a cluster start together.
//
// FAKE_CUDA_SIMT_ORDER=n (default 0): 0 takes threads in turn and does at once what the device may do at any time:
// copies and products that run beside the threads. Any other number is a seed: threads are taken at random, and such
// work is done as late as a wait allows or at some moment before. Of even numbers some warps (4, 8, ...) or groups of
// four warps (2, 6, ...) are fast and run ahead of others. Of multiples of three (3, 6, ...) such work is always done
// as late as it can be. Of multiples of five (5, 10, ...) the device has room for two blocks, so that these take the
// items of all. Results must not depend on any of it. FAKE_CUDA_SIMT_RACES=1 also looks for races (races.h).
//
// Errors in every order: what is read or written outside of the memory that was allocated; in a module with copies or
// products, what is read before they have made it, or changed while they use it, and stores that they read without a
// fence.proxy.async by who stored, or by who asks for them (memory.cc).
#ifndef TESTS_SIMT_ENGINE_H
#define TESTS_SIMT_ENGINE_H
#include "tests/simt/launch.h"
#include "tests/simt/numbers.h"
#include <cstddef>
#include <cstdint>

namespace simt {
typedef unsigned long long u64;
typedef SimtIndex Index;
typedef SimtKernel Kernel;
extern "C" SimtRun simt_run;

struct Thread;
struct Block;
extern Thread *self;
extern Index thread_index, block_index, block_size, grid_size; // of the thread that runs

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Shared memory is addressed by 32 bits. The bytes that a launch asked for begin at its start.
char *dynamic_shared();
void *static_shared(const void *declaration, size_t bytes); // the block's variable of a declaration
u32 shared_address(const void *p);
char *shared_at(u32 address, size_t bytes); // an error where there is none

void spin();  // lets others go on: the thread polls memory that they write
void pause(); // others may go on, except in order 0: where a thread has told others something, or is about to wait

// Of named barriers, 0 to 15; threads < 0: all that the block has left.
void barrier(int id, int threads, bool waits);
int barrier_count(bool yes); // __syncthreads_count

// The cluster: the rank of the block that runs, its barrier, and places in the shared memory of its blocks, which are
// addresses of 32 bits as well.
u32 cluster_rank();
void cluster_arrive();
void cluster_wait();
u32 cluster_address(u32 at, u32 rank);
float cluster_read(u32 address);
void cluster_write(u32 address, float x);

// An operation of the lanes of `mask`: each passes its operands, `work` runs once with those of all lanes (NULL: not in
// the mask), and all go on. All must pass the same work.
typedef void Work(void **lane);
void together(u32 mask, Work *work, void *operands);
extern int this_lane; // of the thread that runs
inline int lane() { return this_lane; }

// The arguments of the work of lanes; each function is the work of an operation.
struct Shuffle { u64 in, out; int from; };
struct Ballot { bool in; unsigned out; };
struct Matrices { u32 at, r[4]; };
struct Product { float c[4]; u32 a[4], b[2]; };
struct WarpOperands { // of wgmma; d: n / 2 addresses; a: a descriptor, or registers
    Type type;
    int n, registers, a_transposed, b_transposed;
    bool add;
    u64 a, b;
    u32 left[4];
    float *const *d;
    int warp;
};
Work meet, shuffle, ballot, matrices_load, matrices_load_turned, matrices_store_turned, product_bf16, product_f16;
Work warp_product, products_commit, products_wait; // the last one: int, groups that may be under way

// Copies to shared memory, of a thread (cp.async; `read` of n bytes, then zeroes) and of a box of a tensor
void copy(u32 to, const char *from, int n, int read);
void copies_commit();
void copies_wait(int groups);
void copies_arrive(u32 barrier); // arrives when all copies of this thread are done
void copy_box(u32 to, const void *map, int a, int b, int c, int d, u32 barrier);
// The same to that place of every block of the cluster whose bit is set in `ranks`, and to its mbarrier
void copy_box_to(u32 to, const void *map, int a, int b, int c, int d, u32 barrier, unsigned ranks);
// A box that leaves shared memory, in groups of the thread's own
void box_out(u32 from, const void *map, int a, int b, int c, int d);
void boxes_commit();
void boxes_wait(int groups);
void fence_proxies();

// Order between accesses of several blocks, for races.h
void fence();
void atomic(const void *p, size_t bytes, bool acquires);

// mbarrier objects in shared memory
void phases_init(u32 at, int count);
void phases_arrive(u32 at);
void phases_arrive_there(u32 address); // of the cluster
void phases_expect(u32 at, int bytes); // and arrives
void phases_await(u32 at, u32 parity);
} // namespace simt
#endif
