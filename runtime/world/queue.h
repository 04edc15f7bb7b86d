// A growing ring of bytes that have arrived but were not read yet. It has no lock.
#ifndef RUNTIME_WORLD_QUEUE_H
#define RUNTIME_WORLD_QUEUE_H
#include <stdbool.h>
#include <stddef.h>

typedef struct { char *bytes; size_t capacity, first, used; } Queue; // all zero: empty; the owner frees `bytes`

bool hd_queue_put(Queue *q, const char *data, size_t n); // false: out of memory, nothing was put
size_t hd_queue_take(Queue *q, char *to, size_t n);      // returns how many there were, at most n
#endif
