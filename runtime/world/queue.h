// Bytes that came and that nobody has taken yet: a ring that grows. Not locked.
#ifndef RUNTIME_WORLD_QUEUE_H
#define RUNTIME_WORLD_QUEUE_H
#include <stdbool.h>
#include <stddef.h>

typedef struct { char *bytes; size_t capacity, first, used; } Queue; // all zero: empty; `bytes` is freed by the owner

bool hd_queue_put(Queue *q, const char *data, size_t n); // false: out of memory, nothing was put
size_t hd_queue_take(Queue *q, char *to, size_t n);      // how many there were, at most n
#endif
