// A growing text sink. All printing in the compiler goes through one of these.
#ifndef IR_BASE_OUT_H
#define IR_BASE_OUT_H
#include "ir/base/arena.h"
#include "runtime/text.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct Out { Arena *arena; char *text; size_t n, cap; } Out;

Out hd_out(Arena *a);                        // text is always NUL-terminated
void hd_puts(Out *o, const char *s);
void hd_putn(Out *o, const char *s, size_t n);
void hd_printf(Out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void hd_put_int(Out *o, int64_t v);          // these two print most of a module, without a format to interpret
void hd_put_hex(Out *o, uint64_t v);
void hd_put_float(Out *o, double v);         // shortest decimal text that reads back as the same double
void hd_put_quoted(Out *o, const char *s);   // "..." with \" \\ \n \xHH escapes, as the IR is written
// As hd_printf, but the strings that the format names are cleaned for a terminal, or escaped as inside a string of JSON
// (runtime/text.h).
void hd_show(Out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void hd_put_json(Out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *hd_hash(Arena *a, const char *text, size_t n); // 32 hexadecimal digits
// 0, or errno. A file is written under a temporary name beside it and renamed: after an error it is what it was before.
// A link to a file stays, and the file is replaced; devices and pipes are written in place.
int hd_write_file(const char *path, const char *text, size_t n);
char *hd_write_target(Arena *a, const char *path); // the file that a rename replaces; NULL: written in place
bool hd_same_file(const char *a, const char *b); // two names of one regular file that is there
char *hd_read_file(Arena *a, const char *path, size_t *n);       // NULL with errno set; "-" is standard input
#endif
