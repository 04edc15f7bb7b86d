// Tiles that a thread keeps from one call to the next. Thread-local arrays in their place would be zeroed, two and a
// half megabytes of them, whenever any thread starts.
#include "runtime/host/scratch.h"
#include "runtime/text.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local void *mine[HD_SCRATCHES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void release(void *of) {
    for (int i = 0; i < HD_SCRATCHES; i++) free(((void **)of)[i]);
}

static void begin(void) {
    if (pthread_key_create(&key, release)) abort();
}

void *hd_host_scratch(HdScratch user, size_t bytes) {
    enum { LINE = 64 };
    if (mine[user]) return mine[user];
    pthread_once(&once, begin);
    mine[user] = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
    if (!mine[user] || pthread_setspecific(key, mine)) {
        hd_say(stderr, "error: no memory for the %zu bytes in which a thread computes\n", bytes);
        abort();
    }
    return mine[user];
}
