// Token files and their order. Files are read with pread, so that one which becomes shorter meanwhile is an error of
// that read and no fault of a mapping. The permutation is a four-round Feistel network over the smallest even number of
// bits that holds the window count, walked until the value is in range (cycle walking: Black and Rogaway, "Ciphers with
// arbitrary finite domains").
#include "runtime/data.h"
#include "runtime/heddle.h"
#include "runtime/random.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 1024 };

static const struct { uint32_t magic, version; int width; const char *tokens; } headers[] = {
    {20240520, 1, 2, "u16"}, // llm.c's GPT-2
    {20240801, 7, 4, "u32"}, // llm.c's Llama 3
};

// How files begin that are taken for raw tokens by mistake.
static const struct { const char *begin; size_t bytes; const char *what; } others[] = {
    {"PK\3\4", 4, "a zip archive, such as PyTorch's"},
    {"\x1f\x8b\x08", 3, "compressed by gzip"},
    {"\x28\xb5\x2f\xfd", 4, "compressed by zstd"},
    {"\x93NUMPY", 6, "a numpy array"},
    {"PAR1", 4, "a parquet table"},
};

const char *const hd_token_formats[] = {"by file", "bytes", "u16", "u32"};

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static uint32_t word_at(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// As many bytes as there are from `at` on, at most `bytes`; -1 with errno.
static int64_t read_at(int fd, void *to, int64_t bytes, int64_t at) {
    int64_t done = 0;
    while (done < bytes) {
        const ssize_t got = pread(fd, (char *)to + done, (size_t)(bytes - done), (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (!got) break;
        done += got;
    }
    return done;
}

// --- opening

static bool with_header(DataFile *f, const unsigned char *head, size_t kind, TokenFormat format) {
    const uint32_t version = word_at(head + 4), count = word_at(head + 8);
    f->width = headers[kind].width;
    f->head = HEADER_BYTES;
    f->count = (f->bytes - HEADER_BYTES) / f->width;
    if (version != headers[kind].version)
        return hd_fail("%s: header version %u; after the number %u only version %u (%s tokens) is read", f->path,
                       version, headers[kind].magic, headers[kind].version, headers[kind].tokens);
    if (count > f->count)
        return hd_fail("%s: the header says %u tokens but the file holds %lld: it is cut short", f->path, count,
                       (long long)f->count);
    f->count = count;
    const int asked = format == TOKENS_U32 ? 4 : format == TOKENS_U16 ? 2 : format == TOKENS_BYTES ? 1 : f->width;
    return asked == f->width || hd_fail("%s: its header says %s tokens, --format says another kind; leave --format out",
                                        f->path, headers[kind].tokens);
}

static bool raw(DataFile *f, const unsigned char *head, int64_t read, TokenFormat format) {
    const bool text = ends_with(f->path, ".txt"), bin = ends_with(f->path, ".bin");
    for (size_t i = 0; !format && bin && i < sizeof others / sizeof *others; i++)
        if (read >= (int64_t)others[i].bytes && !memcmp(head, others[i].begin, others[i].bytes))
            return hd_fail("%s is %s, not a file of tokens; if it is one after all, give --format=u16 or u32", f->path,
                           others[i].what);
    if (!format && !text && !bin)
        return hd_fail("%s is no data file: its name ends neither in .txt nor in .bin, and it has no header of tokens; "
                       "--format=bytes, u16 or u32 says what it holds",
                       f->path);
    f->width = format == TOKENS_U32 ? 4 : format == TOKENS_U16 || (!format && bin) ? 2 : 1;
    if (f->bytes % f->width)
        return hd_fail("%s: %lld bytes are not a whole number of %s tokens", f->path, (long long)f->bytes,
                       f->width == 4 ? "u32" : "u16");
    f->count = f->bytes / f->width;
    return true;
}

static bool layout(DataFile *f, int fd, TokenFormat format) {
    unsigned char head[HEADER_BYTES];
    const int64_t read = read_at(fd, head, HEADER_BYTES, 0);
    if (read < 0) return hd_fail("cannot read %s: %s", f->path, strerror(errno));
    for (size_t i = 0; read == HEADER_BYTES && i < sizeof headers / sizeof *headers; i++)
        if (word_at(head) == headers[i].magic) return with_header(f, head, i, format);
    return raw(f, head, read, format);
}

static int open_file(const char *path, struct stat *st) { // -1 after hd_fail
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); // must not wait for a pipe, which is refused below
    if (fd < 0 || fstat(fd, st)) hd_fail("cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(st->st_mode)) hd_fail("%s is not a plain file: tokens are read from anywhere in it", path);
    else return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static bool add_file(Data *d, const char *path, TokenFormat format) {
    DataFile *f = &d->files[d->n];
    struct stat st;
    const int fd = open_file(path, &st);
    if (fd < 0) return false;
    *f = (DataFile){.path = path, .first = d->count, .bytes = st.st_size};
    const bool ok = layout(f, fd, format);
    close(fd);
    if (!ok) return false;
    if (f->width == 1 ? d->files[0].width != 1 : d->files[0].width == 1)
        return hd_fail("%s holds %s and %s %s: one of them is not meant", d->files[0].path,
                       f->width == 1 ? "tokens" : "bytes", path, f->width == 1 ? "bytes" : "tokens");
    if (!f->count && d->list.n > 1) return hd_fail("%s holds no tokens", path);
    d->count += f->count;
    d->n++;
    return true;
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
        d->bytes = malloc((size_t)(seq + 1) * sizeof(uint32_t));
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
    const int64_t begin = f->head + at * f->width, bytes = n * f->width;
    const int fd = held_open(d, file);
    struct stat st = {0};
    if (fd < 0) return false;
    const int64_t got = read_at(fd, d->bytes, bytes, begin);
    if (got == bytes) return true;
    if (got < 0 || fstat(fd, &st)) return hd_fail("cannot read %s: %s", f->path, strerror(errno));
    return hd_fail("%s became shorter while it was in use: it had %lld bytes and now has %lld", f->path,
                   (long long)f->bytes, (long long)st.st_size);
}

static bool read_tokens(Data *d, int64_t vocab, int64_t at, int64_t n, int32_t *out) { // which may cross files
    while (n > 0) {
        const int file = file_of(d, at);
        const DataFile *f = &d->files[file];
        const int64_t here = at - f->first, left = f->count - here, k = left < n ? left : n;
        if (!read_file(d, file, here, k)) return false;
        for (int64_t i = 0; i < k; i++) {
            const unsigned char *p = d->bytes + i * f->width;
            const uint32_t t = f->width == 1 ? p[0] : f->width == 2 ? p[0] | (uint32_t)p[1] << 8 : word_at(p);
            if (t >= (uint64_t)vocab)
                return hd_fail("%s: token %u at position %lld is outside the vocabulary of %lld", f->path, t,
                               (long long)(here + i), (long long)vocab);
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
