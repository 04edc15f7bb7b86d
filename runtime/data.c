// Token files and their order. The permutation is a four-round Feistel network over the smallest even number of bits
// that holds the window count, walked until the value is in range (cycle walking: Black and Rogaway, "Ciphers with
// arbitrary finite domains").
#include "runtime/data.h"
#include "runtime/heddle.h"
#include "runtime/random.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 1024, HEADER_MAGIC = 20240520, WIDE_MAGIC = 20240801 };

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static uint32_t word_at(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool layout(Data *d) { // which of the three formats
    d->tokens = d->map;
    if (!ends_with(d->path, ".bin")) {
        d->width = 1;
        d->count = (int64_t)d->map_bytes;
        return true;
    }
    d->width = 2;
    if (d->map_bytes >= HEADER_BYTES && word_at(d->map) == HEADER_MAGIC) {
        uint32_t version = word_at(d->map + 4), count = word_at(d->map + 8);
        d->tokens += HEADER_BYTES;
        d->count = (int64_t)(d->map_bytes - HEADER_BYTES) / 2;
        if (version != 1) return hd_fail("%s: header version %u; version 1 (u16 tokens) is read", d->path, version);
        if (count > d->count)
            return hd_fail("%s: the header says %u tokens but the file holds %lld: it is cut short", d->path, count,
                           (long long)d->count);
        d->count = count;
        return true;
    }
    if (d->map_bytes >= HEADER_BYTES && word_at(d->map) == WIDE_MAGIC)
        return hd_fail("%s: its tokens have 4 bytes (magic %d); only tokens of 2 bytes (magic %d) can be read", d->path,
                       WIDE_MAGIC, HEADER_MAGIC);
    if (d->map_bytes % 2) return hd_fail("%s: %zu bytes are not a whole number of u16 tokens", d->path, d->map_bytes);
    d->count = (int64_t)d->map_bytes / 2;
    return true;
}

bool hd_data_open(Data *d, const char *path, int64_t seq) {
    *d = (Data){.path = path};
    int fd = open(path, O_RDONLY | O_NONBLOCK); // open() must not wait for a pipe, which is refused below
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        hd_fail("cannot read %s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return false;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return hd_fail("%s is not a plain file: tokens are mapped into memory", path);
    }
    d->map_bytes = (size_t)st.st_size;
    if (d->map_bytes) {
        void *m = mmap(NULL, d->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (m == MAP_FAILED) {
            hd_fail("cannot map %s: %s", path, strerror(errno));
            close(fd);
            return false;
        }
        d->map = m;
    }
    close(fd);
    if (!layout(d)) return false;
    if (d->count < seq + 1)
        return hd_fail("%s holds %lld tokens; one sequence of %lld needs %lld", path, (long long)d->count,
                       (long long)seq, (long long)seq + 1);
    return true;
}

void hd_data_close(Data *d) {
    if (d->map) munmap((void *)(uintptr_t)d->map, d->map_bytes);
    d->map = NULL;
}

int64_t hd_data_windows(const Data *d, int64_t seq) { return (d->count - 1) / seq; }

static uint64_t permute(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t x) { // a permutation of 0..n-1
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t r[4];
            hd_philox(seed, (uint64_t)round << 48 | 0x64617461u, epoch << 32 ^ right, r);
            uint64_t next = (left ^ r[0]) & mask;
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

bool hd_data_window(const Data *d, int64_t vocab, int64_t seq, int64_t index, int32_t *tokens, int32_t *targets) {
    int64_t start = index % hd_data_windows(d, seq) * seq;
    for (int64_t i = 0; i <= seq; i++) {
        const unsigned char *p = d->tokens + (start + i) * d->width;
        int32_t t = d->width == 1 ? p[0] : p[0] | p[1] << 8;
        if (t >= vocab)
            return hd_fail("%s: token %d at position %lld is outside the vocabulary of %lld", d->path, t,
                           (long long)(start + i), (long long)vocab);
        if (i < seq) tokens[i] = t;
        if (i > 0) targets[i - 1] = t;
    }
    return true;
}

bool hd_data_batch(const Data *d, int64_t vocab, int64_t batch, int64_t seq, uint64_t seed, int64_t first,
                   int32_t *tokens, int32_t *targets) {
    int64_t n = hd_data_windows(d, seq);
    for (int64_t b = 0; b < batch; b++) {
        int64_t s = first + b;
        int64_t w = (int64_t)permute((uint64_t)n, seed, (uint64_t)(s / n), (uint64_t)(s % n));
        if (!hd_data_window(d, vocab, seq, w, tokens + b * seq, targets + b * seq)) return false;
    }
    return true;
}
