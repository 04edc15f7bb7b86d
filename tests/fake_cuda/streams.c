#include "tests/fake_cuda/streams.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Op { FakeWork *work; void *data; bool host; struct Op *next; } Op;
struct Queue { Op *first, *last; unsigned long pushed; Mark done; bool stream; struct Queue *next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Queue *queues, *host_functions;

void mark_reach(Mark *m, unsigned long n) {
    pthread_mutex_lock(&lock);
    m->reached = n;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void mark_await(const Mark *m, unsigned long n) {
    pthread_mutex_lock(&lock);
    while (m->reached < n) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static Op *pop(Queue *q) {
    pthread_mutex_lock(&lock);
    while (!q->first) pthread_cond_wait(&changed, &lock);
    Op *op = q->first;
    q->first = op->next;
    pthread_mutex_unlock(&lock);
    return op;
}

static void *run(void *arg) {
    Queue *q = arg;
    for (unsigned long n = 1;; n++) {
        Op *op = pop(q);
        if (op->host && q != host_functions) {
            queue_push(host_functions, op->work, &op->data, sizeof op->data, true); // its data is a pointer to the data
            queue_drain(host_functions);
        } else {
            op->work(op->host ? *(void **)op->data : op->data);
        }
        free(op->data);
        free(op);
        mark_reach(&q->done, n);
    }
    return NULL;
}

Queue *queue_new(void) {
    Queue *q = calloc(1, sizeof *q);
    pthread_t t;
    if (!host_functions) {
        host_functions = q;
        pthread_create(&t, NULL, run, q);
        return queue_new();
    }
    pthread_create(&t, NULL, run, q);
    return q;
}

void queue_is_stream(Queue *q) {
    q->stream = true;
    q->next = queues;
    queues = q;
}

void queue_push(Queue *q, FakeWork *work, const void *data, size_t bytes, bool host) {
    Op *op = calloc(1, sizeof *op);
    *op = (Op){work, malloc(bytes + 1), host, NULL};
    memcpy(op->data, data, bytes);
    pthread_mutex_lock(&lock);
    if (q->first) q->last->next = op;
    else q->first = op;
    q->last = op;
    q->pushed++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void queue_drain(Queue *q) {
    for (Queue *i = q ? q : queues; i; i = q ? NULL : i->next) {
        pthread_mutex_lock(&lock);
        const unsigned long all = i->pushed;
        pthread_mutex_unlock(&lock);
        mark_await(&i->done, all);
    }
}
