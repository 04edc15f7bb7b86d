// What kernels read and write. Modules are compiled with calls of the functions at the end for every access of memory
// that the compiler does not know to be a thread's own (compile.py), and what runs beside the threads asks as well.
#include "tests/simt/block.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace simt {
namespace {
u32 fences = 1; // so far: a time
std::vector<Memory> unused;
// Of the thread that runs, and where its last access of global memory was.
const char *my_stack, *my_memory;
struct Range { const char *from; size_t bytes; } last, table;

bool in(const Range &r, const char *p, size_t bytes) {
    return (size_t)(p - r.from) < r.bytes && bytes <= r.bytes - (size_t)(p - r.from);
}

// Constants and variables of the module itself; a constant that is written is a fault.
bool of_the_module(const char *p) {
    Dl_info here, kernel;
    if (in(table, p, 1)) return true;
    if (!dladdr(p, &here) || !dladdr((const void *)launch->kernel->call, &kernel)) return false;
    if (here.dli_fbase != kernel.dli_fbase) return false;
    table = {(const char *)((uintptr_t)p & ~63ul), 64};
    return true;
}

void touch_global(const char *p, size_t bytes, bool write) {
    if (!launch || !launch->memory) return;
    const SimtRange *end = launch->memory + launch->ranges;
    const SimtRange *r =
        std::upper_bound(launch->memory, end, p, [](const char *a, const SimtRange &b) { return a < b.from; });
    if (r != launch->memory) last = {r[-1].from, r[-1].bytes};
    if (in(last, p, bytes) || of_the_module(p)) return;
    const char *how = write ? "written" : "read";
    if (r == launch->memory) fail("at %p %zu bytes are %s: no memory was allocated there", p, bytes, how);
    fail("at %p %zu bytes are %s: the nearest memory before begins at %p and has %zu bytes", p, bytes, how, last.from,
         last.bytes);
}

void touch_shared(u32 at, u32 bytes, bool write) {
    Block *b = self->block;
    if (at < SHARED_FROM || at + bytes > SHARED_FROM + launch->shared) {
        if (at >= SHARED_FROM && at < STATIC_FROM)
            fail("shared memory beyond the %u bytes of the launch is %s, at byte %u", launch->shared,
                 write ? "written" : "read", at - SHARED_FROM);
        if (at < STATIC_FROM || at + bytes > b->used) fail("no shared memory at %u, %u bytes", at, bytes);
    }
    if (!launch->kernel->beside) return;
    if (write) stored(b, at, bytes, self->number);
    else
        for (u32 i = at / GRANULE; i <= (at + bytes - 1) / GRANULE; i++)
            if (b->memory.granules[i].writing) fail("shared memory at %u is read, to which a copy is under way", at);
}

void inside(const char *p, size_t bytes, bool write) {
    if ((size_t)(p - my_memory) < MEMORY) touch_shared((u32)(p - my_memory), (u32)bytes, write);
    else if (!in(last, p, bytes)) touch_global(p, bytes, write);
}
} // namespace

void touch(const void *of, size_t bytes, bool write, const void *code) {
    const char *p = (const char *)of;
    if ((size_t)(p - my_stack) < STACK) return;
    if (races) races_touch(p, bytes, write, code);
    inside(p, bytes, write);
}
void atomic(const void *p, size_t bytes, bool acquires) {
    if (races) races_atomic(p, bytes, acquires, __builtin_return_address(0));
    inside((const char *)p, bytes, true);
}
void fence() {
    if (races) races_fence();
}

void memory_thread(const Thread *t) {
    my_stack = t ? t->base : nullptr;
    my_memory = t ? t->block->memory.bytes : nullptr;
}

// --- shared memory of blocks

void memory_launch(void) {
    last = table = {};
    if (fences < 1u << 31) return;
    for (Memory &m : unused) memset(m.granules, 0, sizeof(Granule) * (MEMORY / GRANULE)); // times begin again
    fences = 1;
}
void memory_begin(Block *b) {
    if (unused.empty())
        unused.push_back({(char *)malloc(MEMORY), (Granule *)calloc(MEMORY / GRANULE, sizeof(Granule))});
    b->memory = unused.back();
    unused.pop_back();
    if (!b->memory.bytes || !b->memory.granules) fail("no memory for a block");
    memset(b->memory.bytes + SHARED_FROM, 0xff, launch->shared);
    b->started = ++fences;
}
void memory_end(const Memory &m) { unused.push_back(m); }

char *shared_of(Block *b, u32 address, size_t bytes) {
    const bool dynamic = address >= SHARED_FROM && address + bytes <= SHARED_FROM + launch->shared;
    if (!dynamic && (address < STATIC_FROM || address + bytes > b->used))
        fail("no shared memory at %u, %zu bytes", address, bytes);
    return b->memory.bytes + address;
}
char *shared_at(u32 address, size_t bytes) { return shared_of(self->block, address, bytes); }
char *dynamic_shared() { return self->block->memory.bytes + SHARED_FROM; }
u32 shared_address(const void *p) { return (u32)((const char *)p - self->block->memory.bytes); }

void *static_shared(const void *declaration, size_t bytes) {
    Block *b = self->block;
    for (const auto &known : b->statics)
        if (known.first == declaration) return b->memory.bytes + known.second;
    const u32 at = (b->used + 15) / 16 * 16;
    if (at + bytes > STATIC_FROM + STATIC_BYTES) fail("more than 64 KiB of static shared memory");
    b->used = at + (u32)bytes;
    memset(b->memory.bytes + at, 0xff, bytes);
    b->statics.push_back({declaration, at});
    return b->memory.bytes + at;
}

// --- what is under way there

namespace {
bool seen(const Block *b, const Granule &g, u32 word, u32 fenced) { // by what is asked for after a fence
    const u32 time = g.stored[word];
    return time < b->started || time < fenced || time < b->threads[g.by[word]].fenced;
}
void all_seen(const Block *b, u32 at, u32 bytes, u32 fenced, const char *what) {
    const Granule *g = b->memory.granules;
    if (g[at / GRANULE].newest < b->started) return;
    for (u32 w = at / 4; w < (at + bytes) / 4; w++)
        if (!seen(b, g[w / 4], w % 4, fenced))
            fail("%s at %u, which thread %d stored to: fence.proxy.async is missing between", what, w * 4,
                 g[w / 4].by[w % 4]);
}
} // namespace

void fence_proxies() { self->fenced = ++fences; }

void stored(Block *b, u32 at, u32 bytes, int by) {
    for (u32 w = at / 4; w <= (at + bytes - 1) / 4; w++) {
        Granule &g = b->memory.granules[w / 4];
        if (g.reading) fail("a store to shared memory at %u, which a product reads that is not waited for", at);
        if (g.writing) fail("a store to shared memory at %u, to which a copy is under way", at);
        g.newest = g.stored[w % 4] = fences;
        g.by[w % 4] = (uint16_t)by;
    }
}
void copy_begins(Block *b, u32 granule) {
    Granule &g = b->memory.granules[granule];
    const u32 at = granule * GRANULE;
    if (g.reading) fail("a copy to shared memory at %u, which a product reads that is not waited for", at);
    if (g.writing) fail("a copy to shared memory at %u, to which another one is under way", at);
    g.writing++;
}
void copy_ends(Block *b, u32 granule) { b->memory.granules[granule].writing--; }
void copied(Block *b, u32 granule, int by) {
    Granule &g = b->memory.granules[granule];
    g.newest = fences;
    for (int w = 0; w < 4; w++) g.stored[w] = fences, g.by[w] = (uint16_t)by;
}
void product_reads(Block *b, u32 granule, u32 fenced) {
    Granule &g = b->memory.granules[granule];
    if (g.writing) fail("a product reads shared memory at %u, to which a copy is under way", granule * GRANULE);
    if (g.newest >= fenced) all_seen(b, granule * GRANULE, GRANULE, fenced, "a product reads shared memory");
    g.reading++;
}
void box_writes(Block *b, u32 granule, u32 fenced) {
    all_seen(b, granule * GRANULE, GRANULE, fenced, "a box is copied to shared memory");
    copy_begins(b, granule);
    b->memory.granules[granule].newest = 0;
}
void seen_by_copies(Block *b, u32 at, u32 bytes, u32 fenced) {
    all_seen(b, at, bytes, fenced, "a box is copied, and its mbarrier is");
}
} // namespace simt

// The names are those of GCC's -fsanitize=kernel-address.
#define CALLER __builtin_return_address(0)
#define SIMT_ACCESS(n)                                                                                      \
    extern "C" void __asan_load##n##_noabort(const void *p) { simt::touch(p, n, false, CALLER); }          \
    extern "C" void __asan_store##n##_noabort(const void *p) { simt::touch(p, n, true, CALLER); }
SIMT_ACCESS(1)
SIMT_ACCESS(2)
SIMT_ACCESS(4)
SIMT_ACCESS(8)
SIMT_ACCESS(16)
extern "C" void __asan_loadN_noabort(const void *p, size_t n) { simt::touch(p, n, false, CALLER); }
extern "C" void __asan_storeN_noabort(const void *p, size_t n) { simt::touch(p, n, true, CALLER); }
extern "C" void __asan_handle_no_return(void) {}
extern "C" void __asan_before_dynamic_init(const char *) {}
extern "C" void __asan_after_dynamic_init(void) {}
