// The kind of a text, by its first word: a file of another kind gets one error and a hint instead of a syntax error per
// line.
#ifndef IR_BASE_TEXT_KIND_H
#define IR_BASE_TEXT_KIND_H
#include <stddef.h>

typedef enum { TEXT_MODEL, TEXT_IR, TEXT_C, TEXT_OTHER } TextKind;

// Why a text is not of this kind, and the byte that shows it; NULL: it is of this kind, or empty.
const char *hd_text_wrong(const char *text, size_t len, TextKind wanted, size_t *at);
#endif
