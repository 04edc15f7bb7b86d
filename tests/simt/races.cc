#include "tests/simt/races.h"
#include "tests/simt/block.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>

namespace simt {
bool races;

namespace {
enum { MOST_READS = 15 }; // of a cell, that nothing orders
struct Who { // makes an access
    u32 block, clock;
    uint16_t actor;
    bool atomic, thread; // thread: what it did before is ordered by itself
    const Seen *seen;
};
// A pair of bytes has a cell, which is right as long as no access ends inside a pair. From the first one that does, both
// bytes of a pair have cells of their own as well, at SINGLE | address, for all accesses.
const uint64_t SINGLE = 1ull << 63;
bool single;
Cells global;
std::unordered_map<const void *, Elsewhere> flags; // what is known to who reads there atomically
const Errand *errand;                              // that asks for what is touched
Seen errand_seen;

u32 clock_of(const Clocks &c, u32 actor) { return c && actor < c->size() ? (*c)[actor] : 0; }

bool covers(const std::vector<u32> &a, const std::vector<u32> &b) {
    for (size_t i = 0; i < b.size(); i++)
        if (b[i] > (i < a.size() ? a[i] : 0)) return false;
    return true;
}
void raise(std::vector<u32> &a, const std::vector<u32> &b) {
    if (a.size() < b.size()) a.resize(b.size());
    for (size_t i = 0; i < b.size(); i++) a[i] = std::max(a[i], b[i]);
}
Clocks joined(const Clocks &a, const Clocks &b) {
    static struct { Clocks a, b, out; } last; // lanes of a warp ask the same
    if (a == b || !b) return a;
    if (!a) return b;
    if (last.a == a && last.b == b) return last.out;
    last = {a, b, a};
    if (covers(*b, *a)) last.out = b;
    else if (!covers(*a, *b)) {
        auto c = std::make_shared<std::vector<u32>>(*a);
        raise(*c, *b);
        last.out = c;
    }
    return last.out;
}
Elsewhere joined(const Elsewhere &a, const Elsewhere &b) {
    if (a == b || !b) return a;
    if (!a) return b;
    auto all = std::make_shared<std::map<u32, Clocks>>(*a);
    for (auto &block : *b) {
        Clocks &c = (*all)[block.first];
        c = joined(c, block.second);
    }
    return all;
}

bool before(const Access &a, const Who &w) {
    if (!a.clock || (a.atomic && w.atomic)) return true;
    if (a.block != w.block) {
        if (!w.seen->elsewhere) return false;
        auto found = w.seen->elsewhere->find(a.block);
        return found != w.seen->elsewhere->end() && clock_of(found->second, a.actor) >= a.clock;
    }
    if (a.actor == w.actor && (w.thread || a.clock == w.clock)) return true;
    return clock_of(w.seen->here, a.actor) >= a.clock;
}

std::string actor_name(u32 block, u32 actor) {
    const u32 n = launch->block.x * launch->block.y * launch->block.z;
    char text[100];
    if (actor < n) snprintf(text, sizeof text, "thread %u", actor);
    else if (actor < 2 * n) snprintf(text, sizeof text, "a copy that thread %u asked for", actor - n);
    else if (actor < 2 * n + (n + 31) / 32) snprintf(text, sizeof text, "a product of warp %u", actor - 2 * n);
    else snprintf(text, sizeof text, "a copy by the copy engine");
    return std::string(text) + " of block " + std::to_string(block);
}
// The line of the translated text (compile.py keeps it beside the library), if its compiler says so.
std::string place_of(const void *code) {
    Dl_info info;
    char command[1200], line[400] = "";
    if (!code || !dladdr(code, &info)) return "";
    snprintf(command, sizeof command, "addr2line -i -e '%s' %#lx 2>/dev/null | sed 's/.*://' | tr '\\n' ' '",
             info.dli_fname, (unsigned long)((uintptr_t)code - (uintptr_t)info.dli_fbase - 1));
    FILE *f = popen(command, "re");
    if (f && !fgets(line, sizeof line, f)) *line = 0;
    if (f) pclose(f);
    return " (" + std::string(info.dli_fname) + ", lines " + line + ")";
}
[[noreturn]] void race(const Access &a, bool a_writes, const Who &w, bool writes, uint64_t at, const void *code) {
    char place[60];
    if (at < MEMORY) snprintf(place, sizeof place, "shared memory at %u", (u32)at);
    else snprintf(place, sizeof place, "memory at %#llx", (unsigned long long)at);
    fail("a race: %s is %s by %s%s, and nothing orders this after its being %s by %s%s", place,
         writes ? "written" : "read", actor_name(w.block, w.actor).c_str(), place_of(code).c_str(),
         a_writes ? "written" : "read", actor_name(a.block, a.actor).c_str(), place_of(a.code).c_str());
}

// Nothing in the cell is of the same time as this access.
void check(const Cell &c, const Who &w, bool writes, uint64_t at, const void *code) {
    if (!before(c.write, w)) race(c.write, true, w, writes, at, code);
    if (!writes) return;
    if (!before(c.read, w)) race(c.read, false, w, true, at, code);
    if (c.reads)
        for (const Access &r : *c.reads)
            if (!before(r, w)) race(r, false, w, true, at, code);
}
void read(Cell &c, const Who &w, const Access &me, uint64_t at) {
    check(c, w, false, at, me.code);
    if (!c.read.clock || (c.read.actor == me.actor && c.read.block == me.block) || before(c.read, w)) {
        c.read = me;
        return;
    }
    if (!c.reads) c.reads.reset(new std::vector<Access>);
    if (c.reads->size() == MOST_READS) { // a write that nothing orders after one of them is most likely one after others
        c.reads->back() = me;
        return;
    }
    for (Access &r : *c.reads)
        if ((r.actor == me.actor && r.block == me.block) || before(r, w)) {
            r = me;
            return;
        }
    c.reads->push_back(me);
}
void write(Cell &c, const Who &w, const Access &me, uint64_t at) {
    check(c, w, true, at, me.code);
    c.reads.reset();
    c.read = {};
    c.write = me;
}

void touch_as(const Who &w, const void *of, size_t bytes, bool writes, const void *code) {
    const char *p = (const char *)of;
    Block *b = self->block;
    for (Block *other : self->block->cluster->blocks) // copies may be to their memory
        if (other && (size_t)(p - other->memory.bytes) < MEMORY) b = other;
    const bool shared = (size_t)(p - b->memory.bytes) < MEMORY;
    const uint64_t from = shared ? (uint64_t)(p - b->memory.bytes) : (uint64_t)(uintptr_t)p;
    Cells &cells = shared ? b->actors.shared : global;
    const Access me = {w.block, w.clock, w.actor, w.atomic, code};
    const auto touch = [&](uint64_t number, uint64_t at) {
        if (writes) write(cells.at(number), w, me, at);
        else read(cells.at(number), w, me, at);
    };
    for (uint64_t i = from / 2; i <= (from + bytes - 1) / 2; i++) {
        const bool low = 2 * i >= from, high = 2 * i + 1 < from + bytes;
        if (low && high) touch(i, i * 2);
        else check(cells.at(i), w, writes, i * 2, code), single = true;
        if (low && single) touch(SINGLE | 2 * i, 2 * i);
        if (high && single) touch(SINGLE | (2 * i + 1), 2 * i + 1);
    }
}
Who this_thread(bool atomic) {
    return {self->block->number, self->witness.clock, (uint16_t)self->number, atomic, true, &self->witness.seen};
}
Elsewhere everything(const Thread &t) { // that a thread knows, for other blocks
    Gathering g;
    g.add(t);
    auto all = std::make_shared<std::map<u32, Clocks>>();
    (*all)[t.block->number] = g.take().here;
    return joined(t.witness.seen.elsewhere, all);
}
Errand next_of(u32 actor) {
    std::vector<u32> &clocks = self->block->actors.clocks;
    if (clocks.size() <= actor) clocks.resize(actor + 1);
    Errand e;
    e.block = self->block->number;
    e.actor = actor;
    e.clock = ++clocks[actor];
    return e;
}
u32 threads_of_a_block() { return (u32)self->block->threads.size(); }
} // namespace

Cell &Cells::at(uint64_t number) {
    if (number / PAGE != last) {
        last = number / PAGE;
        std::unique_ptr<Cell[]> &p = pages[last];
        if (!p) p.reset(new Cell[PAGE]());
        page = p.get();
    }
    return page[number % PAGE];
}

void Gathering::add(const Clocks &c, const Elsewhere &e) {
    if (c && c != last) raise(clocks, *c);
    last = c;
    elsewhere = joined(elsewhere, e);
}
void Gathering::add(u32 actor, u32 clock) {
    if (clocks.size() <= actor) clocks.resize(actor + 1);
    clocks[actor] = std::max(clocks[actor], clock);
}
void Gathering::add(const Thread &t) {
    add(t.witness.seen.here, t.witness.seen.elsewhere);
    add((u32)t.number, t.witness.clock);
}
Seen Gathering::take() {
    Seen s = {std::make_shared<const std::vector<u32>>(std::move(clocks)), elsewhere};
    *this = Gathering();
    return s;
}

void races_launch() {
    const char *chosen = getenv("FAKE_CUDA_SIMT_RACES");
    races = chosen && atoi(chosen);
    global = Cells();
    single = false;
    flags.clear();
}

void races_learn(Thread *t, const Seen &s) {
    t->witness.seen.here = joined(t->witness.seen.here, s.here);
    t->witness.seen.elsewhere = joined(t->witness.seen.elsewhere, s.elsewhere);
}
void races_learn(Thread *t, const Errand &e) {
    if (!e.clock || clock_of(t->witness.seen.here, e.actor) >= e.clock) return;
    static struct { Clocks from, to; u32 actor, clock; } last; // lanes of a warp ask the same
    if (last.from != t->witness.seen.here || !last.from || last.actor != e.actor || last.clock != e.clock) {
        auto c = last.from = t->witness.seen.here;
        auto to = c ? std::make_shared<std::vector<u32>>(*c) : std::make_shared<std::vector<u32>>();
        if (to->size() <= e.actor) to->resize(e.actor + 1);
        (*to)[e.actor] = e.clock;
        last.to = to;
        last.actor = e.actor;
        last.clock = e.clock;
    }
    t->witness.seen.here = last.to;
}
void races_arrive(Gathering &g) {
    g.add(*self);
    self->witness.clock++;
}
void races_arrive_there(Gathering &g) {
    g.add(nullptr, everything(*self));
    self->witness.clock++;
}
void races_gather(Gathering &g, const Block *b, const Errand &e) {
    if (e.block == b->number) return g.add(e.actor, e.clock);
    auto clocks = std::make_shared<std::vector<u32>>(e.actor + 1);
    clocks->back() = e.clock;
    auto all = std::make_shared<std::map<u32, Clocks>>();
    (*all)[e.block] = clocks;
    g.add(nullptr, all);
}
void races_arrive(Cluster &c) {
    for (size_t i = 0; i < c.blocks.size(); i++)
        if (c.blocks[i] == self->block) c.gathered[i].add(*self);
        else c.gathered[i].add(nullptr, everything(*self));
    self->witness.clock++;
}
void races_pass(Cluster &c) {
    for (size_t i = 0; i < c.blocks.size(); i++)
        if (c.blocks[i]) c.blocks[i]->seen_of_cluster = c.gathered[i].take();
}
void races_pass(Gathering &g, const std::vector<Thread *> &waiting) {
    const Seen s = g.take();
    for (Thread *t : waiting) races_learn(t, s);
}
void races_meet(Block *b, int first, u32 mask) {
    Gathering g;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) g.add(b->threads[(size_t)(first + i)]);
    const Seen s = g.take();
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) {
            Thread &t = b->threads[(size_t)(first + i)];
            t.witness.clock++;
            races_learn(&t, s);
        }
}

void races_fence() {
    Witness &w = self->witness;
    w.seen.elsewhere = joined(w.seen.elsewhere, w.read);
    w.fenced = everything(*self);
    w.clock++;
}
void races_atomic(const void *p, size_t bytes, bool acquires, const void *code) {
    Witness &w = self->witness;
    touch_as(this_thread(true), p, bytes, true, code);
    Elsewhere &flag = flags[p];
    w.read = joined(w.read, flag);
    if (acquires) w.seen.elsewhere = joined(w.seen.elsewhere, flag);
    flag = joined(flag, w.fenced);
}

void races_touch(const void *p, size_t bytes, bool write, const void *code) {
    if (!errand) {
        touch_as(this_thread(false), p, bytes, write, code);
        return;
    }
    const Who w = {self->block->number, errand->clock, (uint16_t)errand->actor, false, false, &errand_seen};
    touch_as(w, p, bytes, write, nullptr);
}

Errand races_copy() { return next_of(threads_of_a_block() + (u32)self->number); }
Errand races_product() { return next_of(2 * threads_of_a_block() + (u32)self->number / 32); }
Errand races_copy(u32 mbarrier) {
    const u32 n = threads_of_a_block();
    std::map<u32, u32> &actors = self->block->actors.mbarriers;
    auto found = actors.find(mbarrier);
    if (found == actors.end()) found = actors.insert({mbarrier, 2 * n + (n + 31) / 32 + (u32)actors.size()}).first;
    return next_of(found->second);
}
void races_begin(const Errand &e, bool by_warp) {
    Gathering g;
    const int first = by_warp ? self->number / 32 * 32 : self->number, n = by_warp ? 32 : 1;
    for (int i = 0; i < n; i++) g.add(self->block->threads[(size_t)(first + i)]);
    errand_seen = g.take();
    errand = &e;
}
void races_end() { errand = nullptr; }
} // namespace simt
