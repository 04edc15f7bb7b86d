// A ring of bytes. See queue.h.
#include "runtime/world/queue.h"
#include <stdlib.h>
#include <string.h>

bool hd_queue_put(Queue *q, const char *data, size_t n) {
    if (q->used + n > q->capacity) {
        size_t more = q->capacity ? q->capacity : 64 << 10;
        while (more < q->used + n) more *= 2;
        char *grown = malloc(more);
        if (!grown) return false;
        const size_t head = q->used < q->capacity - q->first ? q->used : q->capacity - q->first;
        if (q->used) {
            memcpy(grown, q->bytes + q->first, head);
            memcpy(grown + head, q->bytes, q->used - head);
        }
        free(q->bytes);
        *q = (Queue){grown, more, 0, q->used};
    }
    const size_t at = (q->first + q->used) % q->capacity, head = n < q->capacity - at ? n : q->capacity - at;
    memcpy(q->bytes + at, data, head);
    memcpy(q->bytes, data + head, n - head);
    q->used += n;
    return true;
}

size_t hd_queue_take(Queue *q, char *to, size_t n) {
    if (n > q->used) n = q->used;
    const size_t head = n < q->capacity - q->first ? n : q->capacity - q->first;
    if (!n) return 0;
    memcpy(to, q->bytes + q->first, head);
    memcpy(to + head, q->bytes, n - head);
    q->first = (q->first + n) % q->capacity;
    q->used -= n;
    return n;
}
