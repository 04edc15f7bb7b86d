// Streams that run beside the program (FAKE_CUDA_ASYNC=1): a thread each, and one thread for the host functions of all
// of them.
#ifndef TESTS_FAKE_CUDA_STREAMS_H
#define TESTS_FAKE_CUDA_STREAMS_H
#include "tests/fake_cuda/fake.h"

typedef struct Queue Queue;
Queue *queue_new(void);
void queue_push(Queue *q, FakeWork *work, const void *data, size_t bytes, bool host); // data is copied
void queue_drain(Queue *q); // waits until it is empty; NULL: all that are streams
void queue_is_stream(Queue *q);

// A place that others wait for: a number that grows.
typedef struct { unsigned long asked, reached; } Mark;
void mark_reach(Mark *m, unsigned long n);
void mark_await(const Mark *m, unsigned long n);
#endif
