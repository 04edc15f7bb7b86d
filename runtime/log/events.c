// A record: length (u64), masked CRC-32C of these 8 bytes, the message, masked CRC-32C of it; all little-endian. Of the
// message Event: 1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary { 1 value { 1 tag (string),
// 2 simple_value (float) } }, 7 session_log { 1 status (1: START) }.
#include "runtime/log/events.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 512, START = 1 };
enum { VARINT, FIXED64, BYTES, FIXED32 = 5 }; // how a field is written
typedef struct { unsigned char at[MESSAGE]; size_t n; } Message;

uint32_t hd_crc32c(const void *data, size_t bytes) { // bit by bit: a few hundred bytes a step
    const unsigned char *c = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= c[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t bytes) {
    const uint32_t crc = hd_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_fixed(Message *m, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes && m->n < MESSAGE; i++) m->at[m->n++] = (unsigned char)(v >> 8 * i);
}

static void put_varint(Message *m, uint64_t v) {
    for (; v > 127; v >>= 7) put_fixed(m, v % 128 + 128, 1);
    put_fixed(m, v, 1);
}

static void put_key(Message *m, unsigned field, unsigned kind) { put_varint(m, field << 3 | kind); }

static void put_bytes(Message *m, unsigned field, const void *data, size_t n) {
    put_key(m, field, BYTES);
    put_varint(m, n);
    if (n <= MESSAGE - m->n) memcpy(m->at + m->n, data, n), m->n += n;
}

static void begin(Message *m, int64_t step) {
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    m->n = 0;
    put_key(m, 1, FIXED64);
    put_fixed(m, bits, 8);
    put_key(m, 2, VARINT);
    put_varint(m, (uint64_t)step);
}

static void put_record(Events *e, const Message *m) {
    Message head = {.n = 0}, tail = {.n = 0};
    put_fixed(&head, m->n, 8);
    put_fixed(&head, masked(head.at, 8), 4);
    put_fixed(&tail, masked(m->at, m->n), 4);
    const bool ok = fwrite(head.at, 1, head.n, e->f) == head.n && fwrite(m->at, 1, m->n, e->f) == m->n &&
                    fwrite(tail.at, 1, tail.n, e->f) == tail.n;
    if (!ok && !e->error) e->error = errno;
}

bool hd_events_open(Events *e, const char *dir, int64_t after) {
    char host[100] = "host";
    Message m;
    const size_t room = strlen(dir) + 200;
    if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "host");
    if (mkdir(dir, 0777) && errno != EEXIST) return hd_fail("cannot make the folder %s: %s", dir, strerror(errno));
    *e = (Events){.path = malloc(room)};
    if (!e->path) return hd_fail("out of memory");
    // TensorBoard reads files in the order of their names: the time comes first, finer than two starts of a program.
    // Exclusive, so that no file is ever written twice.
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; !e->f && i < 1000; i++) {
        snprintf(e->path, room, "%s/events.out.tfevents.%010lld.%06ld.%.90s.%ld.%d", dir, (long long)now.tv_sec,
                 now.tv_nsec / 1000, host, (long)getpid(), i);
        e->f = fopen(e->path, "wxe");
        if (!e->f && errno != EEXIST) break;
    }
    if (!e->f) return hd_fail("cannot write %s: %s", e->path, strerror(errno));
    begin(&m, 0);
    put_bytes(&m, 3, "brain.Event:2", 13);
    put_record(e, &m);
    if (after > 0) {
        begin(&m, after + 1);
        put_bytes(&m, 7, (const unsigned char[]){1 << 3 | VARINT, START}, 2);
        put_record(e, &m);
    }
    hd_events_flush(e);
    return true;
}

void hd_events_scalar(Events *e, int64_t step, const char *tag, double value) {
    Message m, summary = {.n = 0}, v = {.n = 0};
    const float narrow = (float)value;
    uint32_t bits;
    if (!e->f) return;
    memcpy(&bits, &narrow, sizeof bits);
    put_bytes(&v, 1, tag, strnlen(tag, 100));
    put_key(&v, 2, FIXED32);
    put_fixed(&v, bits, 4);
    put_bytes(&summary, 1, v.at, v.n);
    begin(&m, step);
    put_bytes(&m, 5, summary.at, summary.n);
    put_record(e, &m);
}

void hd_events_flush(Events *e) {
    if (e->f && fflush(e->f) && !e->error) e->error = errno;
}

bool hd_events_close(Events *e) {
    bool ok = true;
    if (e->f && fclose(e->f) && !e->error) e->error = errno;
    if (e->f && e->error) ok = hd_fail("cannot write %s: %s", e->path, strerror(e->error));
    free(e->path);
    *e = (Events){.f = NULL};
    return ok;
}
