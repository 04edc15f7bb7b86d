// Races of a kernel's threads: two accesses of the same bytes, at least one of them a write, that nothing orders. Found
// by vector clocks, in whatever order the threads ran (FastTrack: Flanagan and Freund, PLDI 2009). On where
// FAKE_CUDA_SIMT_RACES is not 0.
//
// The actors of a block are its threads and what works beside them: the copies that one thread asks for, the copies
// that arrive at one mbarrier, the products of a warp. An actor's clock counts what it has let others know of. What
// works beside the threads reads and writes when it is asked for: it may do so at any time from then on.
//
// Order comes from: barriers, __syncwarp, mbarriers, waits for copies and products, and between blocks a fence before
// an atomic access of a place, and after another one's. Shuffles, ballots and matrix instructions do not (PTX ISA 8.8,
// chapter 8).
//
// Blind spots: of more than 16 reads of a place that nothing orders only 16 are kept for the next write, the
// first ones and the last one; a thread's operands of a matrix instruction are read by the last lane that comes to it.
#ifndef TESTS_SIMT_RACES_H
#define TESTS_SIMT_RACES_H
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace simt {
typedef uint32_t u32;
struct Thread;
struct Block;
extern bool races; // whether they are looked for; nothing below is called otherwise

typedef std::shared_ptr<const std::vector<u32>> Clocks; // of a block's actors; those beyond its end are 0
typedef std::shared_ptr<const std::map<u32, Clocks>> Elsewhere; // by the number of the block
struct Seen { // what somebody knows to have happened
    Clocks here;
    Elsewhere elsewhere;
};
struct Witness { // of a thread
    Seen seen;
    u32 clock = 1;
    Elsewhere fenced, read; // what others see by its atomic accesses; what it has seen by its own, until a fence
};
class Gathering { // of what several know
    std::vector<u32> clocks;
    Clocks last;
    Elsewhere elsewhere;

  public:
    void add(const Clocks &c, const Elsewhere &e);
    void add(const Thread &t);
    void add(u32 actor, u32 clock);
    Seen take();
};

struct Access { // the last one of some kind; clock 0: none
    u32 block, clock;
    uint16_t actor;
    bool atomic;
    const void *code;
};
struct Cell { // of two bytes, or of one
    Access write, read;
    std::unique_ptr<std::vector<Access>> reads; // more, of other actors, that nothing orders
};
class Cells {
    enum { PAGE = 512 };
    std::unordered_map<uint64_t, std::unique_ptr<Cell[]>> pages;
    uint64_t last = ~0ull;
    Cell *page = nullptr;

  public:
    Cell &at(uint64_t number);
};
struct Actors { // of a block
    Cells shared;
    std::vector<u32> clocks;       // of what works beside the threads, by actor
    std::map<u32, u32> mbarriers; // their actors, by address
};
struct Errand { u32 actor = 0, clock = 0, block = 0; }; // a piece of work beside the threads
struct Cluster;

void races_launch();
// Each of these threads knows what all of them know.
void races_meet(Block *b, int first, u32 mask);
// The thread that runs has come to where threads gather; those that wait know what was gathered there.
void races_arrive(Gathering &g);
void races_pass(Gathering &g, const std::vector<Thread *> &waiting);
void races_arrive_there(Gathering &g); // in another block of the cluster
void races_gather(Gathering &g, const Block *b, const Errand &e); // in block b: that e has ended
void races_arrive(Cluster &c);                                    // the barrier of the cluster
void races_pass(Cluster &c);
void races_learn(Thread *t, const Seen &s);
void races_learn(Thread *t, const Errand &e); // that it has ended
void races_fence();
void races_atomic(const void *p, size_t bytes, bool acquires, const void *code);
void races_touch(const void *p, size_t bytes, bool write, const void *code);

// Work that the thread that runs asks for: from races_begin to races_end what is touched is touched by it.
Errand races_copy();
Errand races_copy(u32 mbarrier);
Errand races_product(); // all lanes of the warp ask for it
void races_begin(const Errand &e, bool by_warp);
void races_end();
} // namespace simt
#endif
