// Chunked bump arenas. Memory is zeroed on allocation and lives until the arena dies or is rewound.
#ifndef IR_BASE_ARENA_H
#define IR_BASE_ARENA_H
#include <stdarg.h>
#include <stddef.h>

#define HD_UNUSED __attribute__((unused)) // after a parameter that a rule of a table is given and does not need

typedef struct Arena Arena;
typedef struct { void *chunk; size_t used; } ArenaMark;

Arena *hd_arena_new(void);
void hd_arena_free(Arena *a);
// Says whether the limit or the system gives no more; ends the program with 1.
void hd_no_memory(size_t asked) __attribute__((noreturn));
void *hd_alloc(Arena *a, size_t bytes); // zeroed, 16-byte aligned; stops the program when memory runs out
ArenaMark hd_arena_mark(Arena *a);
void hd_arena_rewind(Arena *a, ArenaMark m); // everything allocated since the mark is gone
size_t hd_arena_bytes(const Arena *a);       // bytes held from the system

// All arenas of the program together hold at most so many bytes; one more stops it with exit status 1.
void hd_memory_limit(size_t bytes);
// The work that an error about memory names, as in "pass 'fuse'"; copied, up to 255 characters.
void hd_memory_used_by(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

char *hd_strndup(Arena *a, const char *s, size_t n);
char *hd_strdup(Arena *a, const char *s);
char *hd_vsprintf(Arena *a, const char *fmt, va_list ap);
char *hd_sprintf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define HD_NEW(a, T) ((T *)hd_alloc((a), sizeof(T)))
#define HD_NEWN(a, T, n) ((T *)hd_alloc((a), sizeof(T) * (size_t)(n)))
#endif
