// Blocks and threads that run: what engine.cc, memory.cc and units.cc share.
#ifndef TESTS_SIMT_BLOCK_H
#define TESTS_SIMT_BLOCK_H
#include "tests/simt/engine.h"
#include "tests/simt/races.h"
#include <map>
#include <memory>
#include <vector>

namespace simt {
enum { STACK = 256 << 10, BARRIERS = 16, MOST_SHARED = 227 << 10, STATIC_BYTES = 64 << 10 };
// A block's memory: what the launch asked for begins at SHARED_FROM, its variables at STATIC_FROM.
enum { SHARED_FROM = 1024, STATIC_FROM = SHARED_FROM + MOST_SHARED + 1024, MEMORY = STATIC_FROM + STATIC_BYTES };

// Work beside the thread that asked for it: `work` is done once.
struct Beside {
    virtual void work() = 0;
    virtual ~Beside() {}
};
typedef std::unique_ptr<Beside> BesidePtr;
struct Group {
    std::vector<BesidePtr> left;            // of what was asked for, if some was
    std::vector<uint16_t> reading, writing; // granules, until somebody has waited for the group
    bool some = false;
    Errand last;
};
class Groups { // of a thread's copies or a warp's products; most never have any
    std::vector<Group> all; // the last one is not committed yet

  public:
    Group &open() {
        if (all.empty()) all.emplace_back();
        return all.back();
    }
    void commit() {
        open();
        all.emplace_back();
    }
    int committed() const { return all.empty() ? 0 : (int)all.size() - 1; }
    Group &front() { return all.front(); }
    void pop_front() { all.erase(all.begin()); }
    std::vector<Group>::iterator begin() { return all.begin(); }
    std::vector<Group>::iterator end() { return all.end(); }
};

class Queue { // of threads
    std::vector<Thread *> ring = std::vector<Thread *>(1024); // a power of two
    size_t first = 0, count = 0;

  public:
    bool empty() const { return !count; }
    size_t size() const { return count; }
    Thread *&operator[](size_t i) { return ring[(first + i) & (ring.size() - 1)]; }
    void pop_front() { first++, count--; }
    void push_back(Thread *t) {
        if (count == ring.size()) {
            std::vector<Thread *> more(2 * count);
            for (size_t i = 0; i < count; i++) more[i] = (*this)[i];
            ring.swap(more);
            first = 0;
        }
        (*this)[count++] = t;
    }
};

// 16 bytes of shared memory. Products and copies of boxes are of the asynchronous proxy: they see ordinary stores that
// a fence follows, of the thread that stored or of the one that asks for them. A time: the number of fences so far.
enum { GRANULE = 16 };
struct Granule {
    u32 newest, stored[4];                // times of ordinary stores, the last one and by word
    uint16_t by[4];                       // threads
    uint16_t reading, writing;            // products that read it and copies that write it, under way
};
struct Memory { char *bytes; Granule *granules; };

struct Barrier {
    int arrived = 0, expected = 0, yes = 0, counted = 0;
    std::vector<Thread *> waiting;
    Gathering gathered;
};
struct Phases {
    int count, pending, bytes = 0;
    u32 ended = 0;
    std::vector<Thread *> waiting;
    Gathering gathered;
    Seen seen; // of the phase that ended last
};
struct Warp {
    Work *work[32] = {};
    void *operands[32] = {};
    u32 mask[32] = {}, waiting = 0;
    Groups products;
};
// Blocks that run together and reach each other's shared memory. One that has ended is a null pointer.
struct Cluster {
    std::vector<Block *> blocks;
    int threads = 0, arrived = 0; // of all blocks; at the barrier
    u32 passed = 0;               // times
    std::vector<Thread *> waiting;
    std::vector<Gathering> gathered; // by block
};
struct Thread {
    Index at;
    Block *block;
    int number;
    u32 fenced = 0;  // the time of its last fence
    u32 arrived = 0; // at the cluster's barrier, times
    void *stack = nullptr;
    char *base = nullptr;
    bool done = false;
    const char *waits = "";
    u32 wait_at = 0;
    Groups copies, boxes; // boxes: that leave shared memory
    Witness witness;
};
struct Block {
    Index at;
    u32 number; // in the grid
    std::shared_ptr<Cluster> cluster;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Barrier barriers[BARRIERS];
    std::map<u32, Phases> phases;
    std::vector<std::pair<const void *, u32>> statics; // variables and where they are
    std::vector<BesidePtr> loads;
    Memory memory;
    u32 used = STATIC_FROM, started; // time
    int alive;
    Actors actors;
    Seen seen_of_cluster; // when its barrier was passed last
};
extern const SimtLaunch *launch;
Block *peer(u32 rank); // a block of the cluster of the thread that runs

// engine.cc
u64 next_random();
bool at_once();    // whether work beside the threads should be done now
void progress();   // something has happened that a thread may poll for
void phases_complete(Block *b, u32 at, int bytes, const Errand &e); // bytes -1: an arrival

// memory.cc. A number that nobody wrote is a NaN: what a block asks for is filled with ones.
void memory_begin(Block *b);
void memory_end(const Memory &m);
void memory_launch(void);
void memory_thread(const Thread *t); // who runs from now on
char *shared_of(Block *b, u32 address, size_t bytes);
// By the thread that runs, or by what it asks for.
void touch(const void *p, size_t bytes, bool write, const void *code = nullptr);
void stored(Block *b, u32 at, u32 bytes, int by); // by an ordinary store or copy of a thread
void copy_begins(Block *b, u32 granule);
void copy_ends(Block *b, u32 granule);
void copied(Block *b, u32 granule, int by); // by a thread's copy of 16 bytes
void product_reads(Block *b, u32 granule, u32 fenced); // all that asked for it had made a fence at this time
void box_writes(Block *b, u32 granule, u32 fenced);
void seen_by_copies(Block *b, u32 at, u32 bytes, u32 fenced);
} // namespace simt
#endif
