// What a text is, by its first word: a file of another kind gets one error and a hint, not a syntax error a line.
#ifndef IR_BASE_TEXT_KIND_H
#define IR_BASE_TEXT_KIND_H
#include <stddef.h>

typedef enum { TEXT_MODEL, TEXT_IR, TEXT_C, TEXT_OTHER } TextKind;

// Why a text is not of this kind, and at which byte that shows; NULL: it is, or is empty.
const char *hd_text_wrong(const char *text, size_t len, TextKind wanted, size_t *at);
#endif
