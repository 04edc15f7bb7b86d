#include "tests/simt/engine.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <vector>

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
namespace {
enum { STACK = 256 << 10, MOST_BLOCKS = 132, BARRIERS = 16, GUARD = 1024, MOST_SHARED = 227 << 10 };
enum { SHARED_FROM = 1024, STATIC_FROM = SHARED_FROM + MOST_SHARED + GUARD, STATIC_BYTES = 64 << 10 };

typedef std::unique_ptr<Beside> BesidePtr;
struct Group { std::vector<BesidePtr> left; bool some = false; }; // left: of what was asked for, if some was
typedef std::deque<Group> Groups;                                  // the last one is not committed yet

struct Barrier {
    int arrived = 0, expected = 0, yes = 0, counted = 0;
    std::vector<Thread *> waiting;
};
struct Phases {
    int count, pending, bytes = 0;
    u32 ended = 0;
    std::vector<Thread *> waiting;
};
struct Warp {
    Work *work[32] = {};
    void *operands[32] = {};
    u32 mask[32] = {}, waiting = 0;
    Groups products;
};
} // namespace

struct Thread {
    Index at;
    Block *block;
    int number;
    void *stack = nullptr;
    char *base = nullptr;
    bool done = false;
    const char *waits = "";
    u32 wait_at = 0;
    Groups copies;
};
struct Block {
    Index at;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Barrier barriers[BARRIERS];
    std::map<u32, Phases> phases;
    std::map<const void *, u32> statics;
    std::vector<BesidePtr> loads;
    char *memory; // what is asked for is filled with ones: a number that nobody wrote is a NaN
    u32 used = STATIC_FROM;
    int alive;
};

Thread *self;
Index thread_index, block_index, block_size, grid_size;

namespace {
const SimtLaunch *launch;
void *scheduler;
std::vector<std::unique_ptr<Block>> blocks; // that have started and not ended
std::deque<Thread *> ready, spinning;
std::vector<char *> stacks, memories; // not in use
long idle;                  // times that a thread polled since something else happened
u64 seed;
int order; // FAKE_CUDA_SIMT_ORDER

u64 next_random() {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

void wake(std::vector<Thread *> &waiting) {
    for (Thread *t : waiting) ready.push_back(t);
    waiting.clear();
    idle = 0;
}

void stop(const char *why, u32 at = 0) { // until another thread wakes this one
    self->waits = why;
    self->wait_at = at;
    simt_switch(&self->stack, scheduler);
}

void leave_barrier(Block *b, int id) {
    Barrier &r = b->barriers[id];
    if (r.arrived < r.expected) return;
    if (r.arrived > r.expected) fail("%d threads arrived at barrier %d of %d", r.arrived, id, r.expected);
    r.counted = r.yes;
    r.arrived = r.yes = 0;
    wake(r.waiting);
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
    simt_switch(&self->stack, scheduler);
}

void start_thread(Thread &t) {
    if (stacks.empty()) {
        void *m = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) fail("no memory for the stack of a thread");
        stacks.push_back((char *)m);
    }
    t.base = stacks.back();
    stacks.pop_back();
    void **top = (void **)(t.base + STACK) - 1; // as after a call: 8 bytes off a multiple of 16
    *--top = (void *)simt_thread;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    t.stack = top;
    ready.push_back(&t);
}

void start_block(unsigned long number) {
    const Index g = launch->grid, n = launch->block;
    blocks.emplace_back(new Block);
    Block *b = blocks.back().get();
    b->at = {(unsigned)(number % g.x), (unsigned)(number / g.x % g.y), (unsigned)(number / g.x / g.y)};
    b->alive = (int)(n.x * n.y * n.z);
    b->threads = std::vector<Thread>((size_t)b->alive);
    b->warps = std::vector<Warp>((size_t)(b->alive + 31) / 32);
    if (memories.empty()) memories.push_back((char *)malloc(STATIC_FROM + STATIC_BYTES));
    b->memory = memories.back();
    memories.pop_back();
    if (!b->memory) fail("no memory for a block");
    memset(b->memory + SHARED_FROM, 0xff, launch->shared + GUARD);
    for (int i = 0; i < b->alive; i++) {
        Thread &t = b->threads[(size_t)i];
        t.at = {(unsigned)i % n.x, (unsigned)i / n.x % n.y, (unsigned)i / n.x / n.y};
        t.block = b;
        t.number = i;
        t.copies.emplace_back();
        start_thread(t);
    }
    for (auto &w : b->warps) w.products.emplace_back();
    idle = 0;
}

void check_guard(const Block *b) {
    for (u32 i = SHARED_FROM + launch->shared; i < SHARED_FROM + launch->shared + GUARD; i++)
        if (b->memory[i] != (char)0xff)
            fail("shared memory beyond the %u bytes of the launch was written, at byte %u", launch->shared,
                 i - SHARED_FROM);
}

void end_blocks() {
    for (size_t i = 0; i < blocks.size();) {
        Block *b = blocks[i].get();
        if (b->alive) {
            i++;
            continue;
        }
        if (!b->loads.empty()) fail("a block ended before its copies by the copy engine");
        check_guard(b);
        memories.push_back(b->memory);
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

Thread *take(std::deque<Thread *> &from) {
    size_t i = order ? next_random() % from.size() : 0;
    for (int n = 0; order && order % 2 == 0 && n < 7; n++) {
        const size_t other = next_random() % from.size();
        if (rank_of(from[other]) > rank_of(from[i])) i = other;
    }
    Thread *t = from[i];
    if (i) from[i] = from.front();
    from.pop_front();
    return t;
}

void go(Thread *t) {
    self = t;
    thread_index = t->at;
    block_index = t->block->at;
    simt_switch(&scheduler, t->stack);
    self = nullptr;
    if (t->done) end_blocks();
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
    if (l->shared > MOST_SHARED) fail("%u bytes of shared memory; at most %d", l->shared, (int)MOST_SHARED);
    const unsigned long all = (unsigned long)l->grid.x * l->grid.y * l->grid.z;
    unsigned long started = 0;
    for (idle = 0;;) {
        if (order % 3 && next_random() % 64 == 0) one_load();
        if (!ready.empty()) go(take(ready));
        else if (one_load()) continue;
        else if (started < all && blocks.size() < MOST_BLOCKS) start_block(started++);
        else if (!spinning.empty() && idle < 1000000) go(take(spinning));
        else break;
    }
    if (!blocks.empty()) deadlock();
    launch = nullptr;
}

// --- shared memory

char *shared_of(Block *b, u32 address, size_t bytes) {
    const bool dynamic = address >= SHARED_FROM && address + bytes <= SHARED_FROM + launch->shared;
    if (!dynamic && (address < STATIC_FROM || address + bytes > b->used))
        fail("no shared memory at %u, %zu bytes", address, bytes);
    return b->memory + address;
}
char *shared_at(u32 address, size_t bytes) { return shared_of(self->block, address, bytes); }
char *dynamic_shared() { return self->block->memory + SHARED_FROM; }
u32 shared_address(const void *p) { return (u32)((const char *)p - self->block->memory); }
Block *here() { return self->block; }
int lane() { return self->number % 32; }

void *static_shared(const void *declaration, size_t bytes) {
    Block *b = self->block;
    auto found = b->statics.find(declaration);
    if (found == b->statics.end()) {
        const u32 at = (b->used + 15) / 16 * 16;
        if (at + bytes > STATIC_FROM + STATIC_BYTES) fail("more than 64 KiB of static shared memory");
        b->used = at + (u32)bytes;
        memset(b->memory + at, 0xff, bytes);
        found = b->statics.insert({declaration, at}).first;
    }
    return b->memory + found->second;
}

// --- waiting

void spin() {
    self->waits = "polls memory";
    idle++;
    spinning.push_back(self);
    simt_switch(&self->stack, scheduler);
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
    w.waiting &= ~mask;
    idle = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) ready.push_back(&b->threads[(size_t)(self->number - me + i)]);
    stop("goes on");
}

// --- work beside the threads

bool at_once() { return !order || (order % 3 && next_random() % 4 == 0); }

namespace {
void do_all(Group &g) {
    for (auto &p : g.left) p->work();
    g.left.clear();
}
void wait_groups(Groups &g, int left) { // the last one is open
    while ((int)g.size() - 1 > left) {
        do_all(g.front());
        g.pop_front();
    }
}
void add(Groups &g, Beside *b) { // work of one queue is done in its order
    g.back().left.push_back(BesidePtr(b));
    g.back().some = true;
    idle = 0;
    if (at_once())
        for (auto &group : g) do_all(group);
}
struct Arrival : Beside { // of the copies before it
    Block *block;
    u32 barrier;
    Group copies;
    void work() override {
        do_all(copies);
        phases_complete(block, barrier, -1);
    }
};
} // namespace

void copy_later(Beside *b) { add(self->copies, b); }
void copies_commit() { self->copies.emplace_back(); }
void copies_wait(int groups) { wait_groups(self->copies, groups); }
void copies_arrive(u32 barrier) {
    Arrival *a = new Arrival;
    a->block = self->block;
    a->barrier = barrier;
    for (auto &g : self->copies)
        for (auto &p : g.left) a->copies.left.push_back(std::move(p));
    self->copies.clear();
    self->copies.emplace_back();
    tensor_copy(a);
}
void tensor_copy(Beside *b) {
    BesidePtr p(b);
    idle = 0;
    if (at_once()) p->work();
    else self->block->loads.push_back(std::move(p));
}

void products_later(Beside *b) { add(self->block->warps[(size_t)self->number / 32].products, b); }
void products_commit() { self->block->warps[(size_t)self->number / 32].products.emplace_back(); }
void products_wait(int groups) { wait_groups(self->block->warps[(size_t)self->number / 32].products, groups); }

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
    wake(p.waiting);
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
    memcpy(shared_at(at, 8), MARK, 8);
}
void phases_arrive(u32 at) {
    arrive(phases_of(self->block, at), at);
    pause();
}
void phases_expect(u32 at, int bytes) {
    Phases &p = phases_of(self->block, at);
    p.bytes += bytes;
    arrive(p, at);
}
void phases_complete(Block *b, u32 at, int bytes) { // -1: an arrival
    Phases &p = phases_of(b, at);
    if (bytes < 0) {
        arrive(p, at);
        return;
    }
    p.bytes -= bytes;
    phase_ends(p);
}
void phases_await(u32 at, u32 parity) {
    Phases *p = &phases_of(self->block, at);
    while ((p->ended & 1) == parity) {
        p->waiting.push_back(self);
        stop("waits for the mbarrier at", at);
        p = &phases_of(self->block, at);
    }
}
} // namespace simt
