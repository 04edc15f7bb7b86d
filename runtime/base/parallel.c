// Threads that live as long as one piece of work.
#include "runtime/base/parallel.h"
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

typedef struct { void (*fn)(void *, int64_t, int64_t); void *data; int64_t first, n; } Part;

static void *work(void *arg) {
    const Part *p = arg;
    p->fn(p->data, p->first, p->n);
    return NULL;
}

void hd_parallel(int64_t count, int64_t least, void (*fn)(void *data, int64_t first, int64_t n), void *data) {
    enum { MOST = 64 };
    Part part[MOST];
    pthread_t thread[MOST];
    bool started[MOST];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int n = count < least || cores < 2 ? 1 : cores > MOST ? MOST : (int)cores;
    for (int i = 0; i < n; i++) {
        const int64_t lo = count * i / n, hi = count * (i + 1) / n;
        part[i] = (Part){fn, data, lo, hi - lo};
        started[i] = i + 1 < n && !pthread_create(&thread[i], NULL, work, &part[i]);
        if (!started[i]) work(&part[i]);
    }
    for (int i = 0; i < n; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}
