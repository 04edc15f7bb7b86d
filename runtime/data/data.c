// Token files and their order. Files are read with pread, so that one which becomes shorter meanwhile is an error of
// that read and no fault of a mapping. The permutation is a four-round Feistel network over the smallest even number of
// bits that holds the window count, walked until the value is in range (cycle walking: Black and Rogaway, "Ciphers with
// arbitrary finite domains").
#include "runtime/data/data.h"
#include "runtime/heddle.h"
#include "runtime/random.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_file(const char *path, struct stat *st) { // -1 after hd_fail
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); // must not wait for a pipe, which is refused below
    if (fd < 0 || fstat(fd, st)) hd_fail("cannot read %s: %s", path, strerror(errno));
    else if (S_ISDIR(st->st_mode))
        hd_fail("%s is a folder in a folder, not a plain file: name the inner folder itself", path);
    else if (!S_ISREG(st->st_mode)) hd_fail("%s is not a plain file: tokens are read from anywhere in it", path);
    else return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static bool layout_of(const char *path, int fd, int64_t bytes, TokenFormat format, TokenLayout *t) {
    DataSource s = {.path = path, .fd = fd, .bytes = bytes, .asked = format};
    s.read = hd_format_bytes(fd, s.head, HD_HEAD_BYTES, 0);
    return s.read < 0 ? hd_fail("cannot read %s: %s", path, strerror(errno)) : hd_format_layout(&s, t);
}

// Text and numbers of more than a byte are different data. An array of u8 may be either.
static bool one_kind(const char *text, const char *numbers) {
    return !text || !numbers ||
           hd_fail("%s holds bytes and %s tokens: one of them is not meant", text, numbers);
}

static bool add_file(Data *d, const char *path, TokenFormat format) {
    DataFile *f = &d->files[d->n];
    struct stat st;
    TokenLayout t = {0};
    const int fd = open_file(path, &st);
    if (fd < 0) return false;
    const bool ok = layout_of(path, fd, st.st_size, format, &t);
    close(fd);
    if (!ok) return false;
    *f = (DataFile){.path = path, .first = d->count, .count = t.count, .bytes = st.st_size, .head = t.head,
                    .type = &hd_token_types[t.type]};
    if (t.type == TOKENS_BYTES && !d->text) d->text = path;
    if (f->type->width > 1 && !d->numbers) d->numbers = path;
    if (!one_kind(d->text, d->numbers)) return false;
    if (!f->count && d->list.n > 1) return hd_fail("%s holds no tokens", path);
    d->count += f->count;
    d->documents += t.documents;
    d->n++;
    return true;
}

bool hd_data_same_kind(const Data *a, const Data *b) {
    return one_kind(a->text, b->numbers) && one_kind(b->text, a->numbers);
}

static bool name_data(Data *d) {
    const size_t room = strlen(d->list.at[0]) + 40;
    d->name = malloc(room);
    if (!d->name) return hd_fail("out of memory");
    if (d->n == 1) snprintf(d->name, room, "%s", d->list.at[0]);
    else snprintf(d->name, room, "%s and %d more file%s", d->list.at[0], d->n - 1, d->n > 2 ? "s" : "");
    return true;
}

bool hd_data_open(Data *d, Names names, TokenFormat format, int64_t seq) {
    *d = (Data){0};
    for (int i = 0; i < HD_DATA_OPEN; i++) d->open[i].fd = -1;
    bool ok = hd_files_expand(&d->list, names);
    if (ok) {
        d->files = calloc((size_t)d->list.n, sizeof *d->files);
        d->bytes = malloc((size_t)(seq + 1) * sizeof(int64_t));
        ok = (d->files && d->bytes) || hd_fail("out of memory");
    }
    for (int i = 0; ok && i < d->list.n; i++) ok = add_file(d, d->list.at[i], format);
    ok = ok && name_data(d);
    if (ok && d->count < seq + 1)
        ok = hd_fail("%s holds %lld tokens; one sequence of %lld needs %lld", d->name, (long long)d->count,
                     (long long)seq, (long long)seq + 1);
    if (!ok) hd_data_close(d);
    return ok;
}

void hd_data_close(Data *d) {
    for (int i = 0; d->n && i < HD_DATA_OPEN; i++)
        if (d->open[i].fd >= 0) close(d->open[i].fd);
    hd_files_free(&d->list);
    free(d->files);
    free(d->bytes);
    free(d->name);
    *d = (Data){0};
}

// --- reading

static int held_open(Data *d, int file) { // a descriptor; -1 after hd_fail
    int *fd = &d->open[file % HD_DATA_OPEN].fd, *held = &d->open[file % HD_DATA_OPEN].file;
    struct stat st;
    if (*fd >= 0 && *held == file) return *fd;
    if (*fd >= 0) close(*fd);
    *fd = open_file(d->files[file].path, &st);
    *held = file;
    return *fd;
}

static int file_of(const Data *d, int64_t token) {
    int low = 0, high = d->n; // the file is in [low, high)
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (d->files[middle].first <= token) low = middle;
        else high = middle;
    }
    return low;
}

static bool read_file(Data *d, int file, int64_t at, int64_t n) { // tokens at.. of the file into d->bytes
    const DataFile *f = &d->files[file];
    const int64_t begin = f->head + at * f->type->width, bytes = n * f->type->width;
    const int fd = held_open(d, file);
    struct stat st = {0};
    if (fd < 0) return false;
    const int64_t got = hd_format_bytes(fd, d->bytes, bytes, begin);
    if (got == bytes) return true;
    if (got < 0 || fstat(fd, &st)) return hd_fail("cannot read %s: %s", f->path, strerror(errno));
    return hd_fail("%s became shorter while it was in use: it had %lld bytes and now has %lld", f->path,
                   (long long)f->bytes, (long long)st.st_size);
}

static bool outside(const DataFile *f, uint64_t token, int64_t at, int64_t vocab) { // false
    const int unused = 64 - 8 * f->type->width;
    const long long value = f->type->is_signed ? (long long)((int64_t)(token << unused) >> unused) : (long long)token;
    return hd_fail("%s: token %lld at position %lld is outside the vocabulary of %lld", f->path, value, (long long)at,
                   (long long)vocab);
}

static bool read_tokens(Data *d, int64_t vocab, int64_t at, int64_t n, int32_t *out) { // which may cross files
    while (n > 0) {
        const int file = file_of(d, at);
        const DataFile *f = &d->files[file];
        const int64_t here = at - f->first, left = f->count - here, k = left < n ? left : n;
        if (!read_file(d, file, here, k)) return false;
        for (int64_t i = 0; i < k; i++) {
            const uint64_t t = hd_format_word(d->bytes + i * f->type->width, f->type->width);
            if (t >= (uint64_t)vocab) return outside(f, t, here + i, vocab);
            out[i] = (int32_t)t;
        }
        at += k;
        out += k;
        n -= k;
    }
    return true;
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

bool hd_data_window(Data *d, int64_t vocab, int64_t seq, int64_t index, int32_t *tokens, int32_t *targets) {
    const int64_t start = index % hd_data_windows(d, seq) * seq;
    if (!read_tokens(d, vocab, start, seq, tokens)) return false;
    memcpy(targets, tokens + 1, (size_t)(seq - 1) * sizeof *targets);
    return read_tokens(d, vocab, start + seq, 1, targets + seq - 1);
}

bool hd_data_batch(Data *d, int64_t vocab, int64_t batch, int64_t seq, uint64_t seed, int64_t first,
                   int32_t *tokens, int32_t *targets) {
    int64_t n = hd_data_windows(d, seq);
    for (int64_t b = 0; b < batch; b++) {
        int64_t s = first + b;
        int64_t w = (int64_t)permute((uint64_t)n, seed, (uint64_t)(s / n), (uint64_t)(s % n));
        if (!hd_data_window(d, vocab, seq, w, tokens + b * seq, targets + b * seq)) return false;
    }
    return true;
}
