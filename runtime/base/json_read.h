// Pieces of a reader of JSON, each of which takes one thing from the front of the text.
#ifndef RUNTIME_BASE_JSON_READ_H
#define RUNTIME_BASE_JSON_READ_H
#include <stdbool.h>
#include <stdint.h>

typedef struct { const char *p, *end; } HdJson; // what is left of the text

void hd_json_blanks(HdJson *j);
bool hd_json_take(HdJson *j, char c);
char *hd_json_text(HdJson *j); // a string, malloc'ed; NULL: there is none, or it holds a zero
bool hd_json_integer(HdJson *j, int64_t *v);
bool hd_json_skip(HdJson *j); // any value
#endif
