#include "tests/simt/block.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>

// Saves what a call preserves on the present stack, and goes on with another one.
#ifndef __x86_64__
#error "only x86-64: a switch of stacks for this machine is missing"
#endif
extern "C" void simt_switch(void **from, void *to);
__asm__(".text\n.type simt_switch,@function\n.hidden simt_switch\nsimt_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size simt_switch,.-simt_switch\n");

namespace simt {
Thread *self;
int this_lane;
Index thread_index, block_index, block_size, grid_size;

const SimtLaunch *launch;

namespace {
enum { MOST_BLOCKS = 132, FEW_BLOCKS = 2 };
void *scheduler;
std::vector<std::unique_ptr<Block>> blocks; // that have started and not ended
Queue ready, spinning;
std::vector<char *> stacks;                 // not in use
long idle;                                  // times that a thread polled since something else happened
u64 seed;
int order;      // FAKE_CUDA_SIMT_ORDER
bool had_turn; // work beside the threads, before the next thread goes on
} // namespace

u64 next_random() {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}
bool at_once() { return !order || (order % 3 && next_random() % 4 == 0); }
void progress() { idle = 0; }

namespace {
void wake(std::vector<Thread *> &waiting) {
    for (Thread *t : waiting) ready.push_back(t);
    waiting.clear();
    idle = 0;
}

void leave_barrier(Block *b, int id) {
    Barrier &r = b->barriers[id];
    if (r.arrived < r.expected) return;
    if (r.arrived > r.expected) fail("%d threads arrived at barrier %d of %d", r.arrived, id, r.expected);
    r.counted = r.yes;
    r.arrived = r.yes = 0;
    if (races) races_pass(r.gathered, r.waiting);
    wake(r.waiting);
}

extern "C" void simt_thread();

void start_thread(Thread &t) {
    if (stacks.empty()) {
        void *m = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) fail("no memory for the stack of a thread");
        stacks.push_back((char *)m);
    }
    t.base = stacks.back();
    stacks.pop_back();
    // As after a call: 8 bytes off a multiple of 16. Tops of stacks have other places in the caches.
    void **top = (void **)(t.base + STACK - (uintptr_t)t.base / STACK % 64 * 576) - 1;
    *--top = (void *)simt_thread;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    t.stack = top;
    ready.push_back(&t);
}

void start_block(unsigned long number, const std::shared_ptr<Cluster> &cluster) {
    const Index g = launch->grid, n = launch->block;
    blocks.emplace_back(new Block);
    Block *b = blocks.back().get();
    b->number = (u32)number;
    b->cluster = cluster;
    cluster->blocks.push_back(b);
    cluster->gathered.emplace_back();
    cluster->threads += (int)(n.x * n.y * n.z);
    b->at = {(unsigned)(number % g.x), (unsigned)(number / g.x % g.y), (unsigned)(number / g.x / g.y)};
    b->alive = (int)(n.x * n.y * n.z);
    b->threads = std::vector<Thread>((size_t)b->alive);
    b->warps = std::vector<Warp>((size_t)(b->alive + 31) / 32);
    memory_begin(b);
    for (int i = 0; i < b->alive; i++) {
        Thread &t = b->threads[(size_t)i];
        t.at = {(unsigned)i % n.x, (unsigned)i / n.x % n.y, (unsigned)i / n.x / n.y};
        t.block = b;
        t.number = i;
        start_thread(t);
    }
    idle = 0;
}

void end_blocks() {
    for (size_t i = 0; i < blocks.size();) {
        Block *b = blocks[i].get();
        if (b->alive) {
            i++;
            continue;
        }
        if (!b->loads.empty()) fail("a block ended before its copies by the copy engine");
        for (Block *&p : b->cluster->blocks)
            if (p == b) p = nullptr;
        memory_end(b->memory);
        for (Thread &t : b->threads) stacks.push_back(t.base);
        blocks.erase(blocks.begin() + (long)i);
    }
}

bool one_load() { // some copy that a block has asked for
    std::vector<Block *> some;
    for (auto &b : blocks)
        if (!b->loads.empty()) some.push_back(b.get());
    if (some.empty()) return false;
    Block *b = some[next_random() % some.size()];
    const size_t i = next_random() % b->loads.size();
    BesidePtr p = std::move(b->loads[i]);
    b->loads.erase(b->loads.begin() + (long)i);
    p->work();
    idle = 0;
    return true;
}

[[noreturn]] void deadlock() {
    fprintf(stderr, "simt: kernel %s: no thread can go on\n", launch->kernel->name);
    for (auto &b : blocks)
        for (size_t w = 0; w < b->warps.size(); w++)
            for (size_t i = w * 32; i < w * 32 + 32 && i < b->threads.size(); i++) {
                const Thread &t = b->threads[i], *before = i % 32 ? &b->threads[i - 1] : nullptr;
                if (t.done || (before && !before->done && before->waits == t.waits && before->wait_at == t.wait_at))
                    continue;
                fprintf(stderr, "  block %u %u %u, thread %zu: %s %u\n", b->at.x, b->at.y, b->at.z, i, t.waits,
                        t.wait_at);
            }
    abort();
}

// In even orders some warps, or groups of four, go ahead of others as far as they can: the best of a few is taken.
u64 rank_of(const Thread *t) {
    const u64 part = (u64)t->number / (order % 4 ? 128 : 32), of = (u64)t->block->at.x * 7 + t->block->at.y * 5 + part;
    return (of * 0x9e3779b97f4a7c15u + (u64)order * 0x2545f4914f6cdd1du) * 0xd6e8feb86659fd93u >> 32;
}

Thread *take(Queue &from) {
    size_t i = order ? next_random() % from.size() : 0;
    for (int n = 0; order && order % 2 == 0 && n < 7; n++) {
        const size_t other = next_random() % from.size();
        if (rank_of(from[other]) > rank_of(from[i])) i = other;
    }
    Thread *t = from[i];
    if (i) from[i] = from[0];
    from.pop_front();
    return t;
}

void enter(Thread *t) { // who runs from now on
    self = t;
    this_lane = t->number % 32;
    thread_index = t->at;
    block_index = t->block->at;
    memory_thread(t);
}

void turn_of_loads() { // work beside the threads, at some moments of a random order
    if (!(order % 3) || next_random() % 64) return;
    Thread *t = self;
    self = nullptr;
    one_load();
    self = t;
}

// The thread that runs has ended, or waits for others. A ready one goes on at once: by the scheduler it would be two
// switches of stacks.
void switch_away() {
    Thread *me = self;
    turn_of_loads();
    if (ready.empty()) {
        had_turn = true;
        simt_switch(&me->stack, scheduler);
        return;
    }
    Thread *t = take(ready);
    if (t == me) return;
    enter(t);
    simt_switch(&me->stack, t->stack);
}

void stop(const char *why, u32 at = 0) { // until another thread wakes this one
    self->waits = why;
    self->wait_at = at;
    switch_away();
}

extern "C" void simt_thread() {
    launch->kernel->call(launch->args);
    Block *b = self->block;
    self->done = true;
    b->alive--;
    idle = 0;
    Barrier &all = b->barriers[0];
    if (all.arrived && all.expected > b->alive) { // threads that have left are not waited for
        all.expected = b->alive;
        leave_barrier(b, 0);
    }
    for (auto &g : self->copies)
        if (g.some) fail("a thread ended before its copies: cp.async.wait_group is missing");
    for (auto &g : self->boxes)
        if (g.some) fail("a thread ended before its boxes left: cp.async.bulk.wait_group is missing");
    for (auto &g : b->warps[(size_t)self->number / 32].products)
        if (g.some) fail("a thread ended before the products of its warp: wgmma.wait_group is missing");
    if (b->alive) switch_away();
    simt_switch(&self->stack, scheduler); // which ends the block
}

void go(Thread *t) {
    enter(t);
    simt_switch(&scheduler, t->stack);
    const bool ended = self->done;
    self = nullptr;
    memory_thread(nullptr);
    if (ended) end_blocks();
}

std::mutex running; // kernels of several streams: one at a time
} // namespace

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "simt: kernel %s", launch->kernel->name);
    if (self)
        fprintf(stderr, ", block %u %u %u, thread %d", self->block->at.x, self->block->at.y, self->block->at.z,
                self->number);
    fprintf(stderr, ": ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

extern "C" void simt_run(const SimtLaunch *l) {
    const std::lock_guard<std::mutex> one(running);
    launch = l;
    block_size = l->block;
    grid_size = l->grid;
    const char *chosen = getenv("FAKE_CUDA_SIMT_ORDER");
    order = chosen ? atoi(chosen) : 0;
    seed = 0x9e3779b97f4a7c15u + (u64)order * 0x2545f4914f6cdd1du;
    memory_launch();
    races_launch();
    if (l->shared > MOST_SHARED) fail("%u bytes of shared memory; at most %d", l->shared, (int)MOST_SHARED);
    const unsigned long all = (unsigned long)l->grid.x * l->grid.y * l->grid.z;
    const size_t most = order && order % 5 == 0 ? FEW_BLOCKS : MOST_BLOCKS;
    const unsigned cluster = l->cluster ? l->cluster : 1;
    unsigned long started = 0;
    if (l->grid.x % cluster) fail("%u blocks in clusters of %u", l->grid.x, cluster);
    for (idle = 0;;) {
        if (!had_turn) turn_of_loads();
        had_turn = false;
        if (!ready.empty()) go(take(ready));
        else if (one_load()) continue;
        else if (started < all && (blocks.empty() || blocks.size() + cluster <= most)) {
            const auto c = std::make_shared<Cluster>();
            for (unsigned i = 0; i < cluster; i++) start_block(started++, c);
        }
        else if (!spinning.empty() && idle < 1000000) go(take(spinning));
        else break;
    }
    if (!blocks.empty()) deadlock();
    launch = nullptr;
}

// --- waiting

void spin() {
    self->waits = "polls memory";
    idle++;
    spinning.push_back(self);
    switch_away();
}

void pause() {
    if (!order || next_random() % 2) return;
    ready.push_back(self);
    stop("goes on");
}

void barrier(int id, int threads, bool waits) {
    Block *b = self->block;
    if (id < 0 || id >= BARRIERS) fail("there is no barrier %d", id);
    Barrier &r = b->barriers[id];
    const int all = threads < 0 ? b->alive : threads;
    if (r.arrived && r.expected != all) fail("barrier %d is of %d threads and of %d", id, r.expected, all);
    r.expected = all;
    r.arrived++;
    if (waits) r.waiting.push_back(self);
    if (races) races_arrive(r.gathered);
    leave_barrier(b, id);
    if (waits) stop("waits at barrier", (u32)id);
    else pause();
}

int barrier_count(bool yes) {
    Barrier &r = self->block->barriers[0];
    r.yes += yes;
    barrier(0, -1, true);
    return r.counted;
}

// --- clusters

u32 cluster_rank() { return self->block->number % (u32)self->block->cluster->blocks.size(); }
Block *peer(u32 rank) {
    const std::vector<Block *> &all = self->block->cluster->blocks;
    if (rank >= all.size()) fail("a cluster of %zu blocks has no block %u", all.size(), rank);
    if (!all[rank]) fail("block %u of the cluster has ended", rank);
    return all[rank];
}
void cluster_arrive() {
    Cluster &c = *self->block->cluster;
    if (self->arrived != c.passed) fail("a thread arrives twice at the barrier of its cluster");
    self->arrived++;
    if (races) races_arrive(c);
    if (++c.arrived < c.threads) return pause();
    c.arrived = 0;
    c.passed++;
    if (races) races_pass(c);
    wake(c.waiting);
}
void cluster_wait() {
    Cluster &c = *self->block->cluster;
    while (c.passed < self->arrived) {
        c.waiting.push_back(self);
        stop("waits at the barrier of its cluster");
    }
    if (races) races_learn(self, self->block->seen_of_cluster);
}
enum { RANK_BITS = 24 }; // of an address of the cluster: where the rank begins, which counts from 1
static_assert(MEMORY < 1 << RANK_BITS, "an address of shared memory has more bits");
u32 cluster_address(u32 at, u32 rank) {
    peer(rank);
    return at | (rank + 1) << RANK_BITS;
}

float cluster_read(u32 address) {
    const u32 at = address & ((1u << RANK_BITS) - 1);
    if (address == at) fail("%u is no address of the cluster", address);
    float x;
    const char *p = shared_of(peer((address >> RANK_BITS) - 1), at, sizeof x);
    if (races) races_touch(p, sizeof x, false, __builtin_return_address(0));
    memcpy(&x, p, sizeof x);
    return x;
}

void cluster_write(u32 address, float x) {
    const u32 at = address & ((1u << RANK_BITS) - 1);
    if (address == at) fail("%u is no address of the cluster", address);
    char *p = shared_of(peer((address >> RANK_BITS) - 1), at, sizeof x);
    if (races) races_touch(p, sizeof x, true, __builtin_return_address(0));
    memcpy(p, &x, sizeof x);
}

void together(u32 mask, Work *work, void *operands) {
    Block *b = self->block;
    Warp &w = b->warps[(size_t)self->number / 32];
    const int me = lane();
    if (!(mask >> me & 1)) fail("lane %d is not in the mask %08x of its own operation", me, mask);
    w.work[me] = work;
    w.operands[me] = operands;
    w.mask[me] = mask;
    w.waiting |= 1u << me;
    if ((w.waiting & mask) != mask) {
        stop("waits for lanes of its warp, mask", mask);
        return;
    }
    void *lanes[32] = {};
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        if (w.work[i] != work || w.mask[i] != mask)
            fail("lanes %d and %d of a warp meet in different operations (masks %08x and %08x)", me, i, mask, w.mask[i]);
        lanes[i] = w.operands[i];
    }
    work(lanes);
    if (races && work == meet) races_meet(b, self->number - me, mask);
    w.waiting &= ~mask;
    idle = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) ready.push_back(&b->threads[(size_t)(self->number - me + i)]);
    stop("goes on");
}

// --- mbarrier objects. Shared memory holds only a mark: nobody else may write there.

namespace {
const char MARK[9] = "mbarrier";
Phases &phases_of(Block *b, u32 at) {
    auto p = b->phases.find(at);
    if (p == b->phases.end()) fail("no mbarrier was made at %u", at);
    if (memcmp(shared_of(b, at, 8), MARK, 8) != 0) fail("the mbarrier at %u was overwritten", at);
    return p->second;
}
void phase_ends(Phases &p) {
    if (p.pending || p.bytes) return;
    p.pending = p.count;
    p.ended++;
    if (races) p.seen = p.gathered.take();
    wake(p.waiting);
}
Phases &used(u32 at) { // by the thread that runs
    if (races) races_touch(shared_at(at, 8), 8, false, nullptr);
    return phases_of(self->block, at);
}
void arrive(Phases &p, u32 at) {
    if (!p.pending) fail("more than %d arrivals at the mbarrier at %u", p.count, at);
    p.pending--;
    phase_ends(p);
}
} // namespace

void phases_init(u32 at, int count) {
    if (at % 8) fail("an mbarrier at %u", at);
    Phases p;
    p.count = p.pending = count;
    self->block->phases[at] = p;
    char *mark = shared_at(at, 8);
    touch(mark, 8, true);
    memcpy(mark, MARK, 8);
}
void phases_arrive(u32 at) {
    Phases &p = used(at);
    if (races) races_arrive(p.gathered);
    arrive(p, at);
    pause();
}
void phases_arrive_there(u32 address) {
    const u32 at = address & ((1u << RANK_BITS) - 1);
    if (address == at) fail("%u is no address of the cluster", address);
    Block *b = peer((address >> RANK_BITS) - 1);
    if (b == self->block) return phases_arrive(at);
    Phases &p = phases_of(b, at);
    if (races) races_arrive_there(p.gathered);
    arrive(p, at);
    pause();
}
void phases_expect(u32 at, int bytes) {
    Phases &p = used(at);
    p.bytes += bytes;
    if (races) races_arrive(p.gathered);
    arrive(p, at);
}
void phases_complete(Block *b, u32 at, int bytes, const Errand &e) { // -1: an arrival
    Phases &p = phases_of(b, at);
    if (races && e.clock) races_gather(p.gathered, b, e);
    if (bytes < 0) {
        arrive(p, at);
        return;
    }
    p.bytes -= bytes;
    phase_ends(p);
}
void phases_await(u32 at, u32 parity) {
    Phases *p = &used(at);
    while ((p->ended & 1) == parity) {
        p->waiting.push_back(self);
        stop("waits for the mbarrier at", at);
        p = &phases_of(self->block, at);
    }
    if (races) races_learn(self, p->seen);
}
} // namespace simt
