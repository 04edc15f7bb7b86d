// Chunked bump arenas (after lcc's PERM/FUNC/STMT). Under AddressSanitizer the unused tail of a chunk is poisoned.
#include "ir/base/arena.h"
#include "runtime/text.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature) // clang; gcc before 14 has no such operator
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#define GAP 16 // a poisoned gap after every object
#else
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#define GAP 0
#endif

typedef struct Chunk {
    struct Chunk *prev;
    size_t used, cap;
    _Alignas(16) unsigned char data[];
} Chunk;

struct Arena { Chunk *top; size_t bytes; };

static size_t held, most = SIZE_MAX; // by all arenas
static char user[256] = "reading the input";

void hd_memory_limit(size_t bytes) { most = bytes; }

void hd_memory_used_by(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(user, sizeof user, fmt, ap);
    va_end(ap);
}

void hd_no_memory(size_t asked) {
    const bool ours = asked > most || held > most - asked;
    const size_t bytes = ours ? most : held, mib = 1 << 20;
    char size[32];
    snprintf(size, sizeof size, bytes < mib ? "%zu bytes" : "%zu MiB", bytes < mib ? bytes : bytes / mib);
    if (ours)
        hd_say(stderr,
                "heddle: error: out of memory: %s needs more than the %s that --max-memory allows: make the model "
                "smaller, or raise it with --max-memory=SIZE\n",
                user, size);
    else
        hd_say(stderr, "heddle: error: out of memory: %s holds %s, and the system gives no more\n", user, size);
    exit(1);
}

static void grow(Arena *a, size_t need) {
    size_t cap = a->top ? a->top->cap * 2 : 16 * 1024;
    if (cap > 8u << 20) cap = 8u << 20;
    if (cap < need) cap = need;
    Chunk *c = cap > most || held > most - cap ? NULL : malloc(sizeof(Chunk) + cap);
    if (!c) hd_no_memory(cap);
    held += cap;
    c->prev = a->top;
    c->used = 0;
    c->cap = cap;
    POISON(c->data, cap);
    a->top = c;
    a->bytes += cap;
}

Arena *hd_arena_new(void) {
    Arena *a = calloc(1, sizeof *a);
    if (!a) hd_no_memory(sizeof *a);
    return a;
}

static void pop(Arena *a) {
    Chunk *c = a->top;
    a->top = c->prev;
    a->bytes -= c->cap;
    held -= c->cap;
    UNPOISON(c->data, c->cap);
    free(c);
}

void hd_arena_free(Arena *a) {
    if (!a) return;
    while (a->top) pop(a);
    free(a);
}

void *hd_alloc(Arena *a, size_t bytes) {
    size_t n = (bytes + 15) & ~(size_t)15;
    if (n < bytes) hd_no_memory(bytes);
    if (!a->top || a->top->cap - a->top->used < n + GAP) grow(a, n + GAP);
    void *p = a->top->data + a->top->used;
    a->top->used += n + GAP;
    UNPOISON(p, bytes);
    return memset(p, 0, bytes);
}

ArenaMark hd_arena_mark(Arena *a) { return (ArenaMark){a->top, a->top ? a->top->used : 0}; }

void hd_arena_rewind(Arena *a, ArenaMark m) {
    while (a->top != m.chunk) pop(a);
    if (!a->top) return;
    a->top->used = m.used;
    POISON(a->top->data + m.used, a->top->cap - m.used);
}

size_t hd_arena_bytes(const Arena *a) { return a->bytes; }

char *hd_strndup(Arena *a, const char *s, size_t n) {
    char *p = hd_alloc(a, n + 1);
    memcpy(p, s, n);
    return p;
}

char *hd_strdup(Arena *a, const char *s) { return hd_strndup(a, s, strlen(s)); }

char *hd_vsprintf(Arena *a, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0) hd_no_memory(0); // the only reason: no format of ours is wrong
    char *p = hd_alloc(a, (size_t)n + 1);
    if (vsnprintf(p, (size_t)n + 1, fmt, again) != n) hd_no_memory((size_t)n);
    va_end(again);
    return p;
}

char *hd_sprintf(Arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *p = hd_vsprintf(a, fmt, ap);
    va_end(ap);
    return p;
}
