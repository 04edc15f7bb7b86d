// Diagnostics: byte spans into loaded sources, collected errors, and their printed form
//   file:line:col: error: message
//     the quoted line
//         ^~~~
// Messages start in lower case, end without a full stop, and say both values and what to do.
#ifndef IR_BASE_DIAG_H
#define IR_BASE_DIAG_H
#include "ir/base/arena.h"
#include "ir/base/out.h"
#include "ir/base/vec.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct { uint32_t lo, hi; } Span; // global byte offsets in the source map; {0,0} = no place

typedef struct { const char *name, *text; uint32_t base, len; int first_line; } Source;
typedef enum { SEV_ERROR, SEV_WARNING, SEV_NOTE } Severity;
typedef struct { Severity sev; Span span; const char *text; } Diag;

typedef struct Diags {
    Arena *arena;
    VEC(Source) sources;
    VEC(Diag) list;
    int errors; // number of errors reported, printed or not
} Diags;

// A source of `len` bytes under `name`; text must outlive the Diags. Returns the base of its spans. `first_line` is the
// number of its first line (1, or more for a part of a split file).
uint32_t hd_source_add(Diags *d, const char *name, const char *text, size_t len, int first_line);
bool hd_is_source(const Diags *d, const char *path); // by whatever name: an output may not replace it
// Where a span starts: the source, 1-based line and column (columns count bytes). false when the span has no place.
bool hd_locate(const Diags *d, Span s, const Source **src, int *line, int *col);
void hd_diag_add(Diags *d, Severity sev, Span s, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
// At most 20 errors are printed; the rest are counted.
void hd_diags_print(const Diags *d, Out *o);
#endif
