// Megatron's data sets: PREFIX.bin holds tokens and nothing else, PREFIX.idx says what they are. Little-endian:
//   "MMIDIDX\0\0", u64 version (1), u8 type, u64 sequences n, u64 documents + 1,
//   i32 lengths[n], i64 places[n] (bytes into the .bin), i64 first[documents + 1] (sequences)
// The sequences follow each other in the .bin without gaps. The index's ends and some sequences between them are
// compared with that; the whole of a large index would take longer to read than a run may wait.
#include "runtime/data/format.h"
#include "runtime/heddle.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 9, HEADER = MAGIC + 8 + 1 + 8 + 8, SAMPLES = 16 };
static const struct { const char *name; DataType type; } types[] = { // by the index's number; BY_FILE: no tokens
    {"?", 0}, {"u8", DATA_U8}, {"i8", 0}, {"i16", DATA_I16}, {"i32", DATA_I32}, {"i64", DATA_I64},
    {"f64", 0}, {"f32", 0}, {"u16", DATA_U16},
};
enum { TYPES = sizeof types / sizeof *types };

typedef struct {
    char *path;
    int fd;
    int64_t bytes, sequences, firsts;
} Index;

static int64_t number_at(const Index *x, int64_t at, int width) { // -1: it is not there, or not positive
    unsigned char b[8];
    if (hd_format_bytes(x->fd, b, width, at) != width) return -1;
    const uint64_t v = hd_format_word(b, width);
    return v <= (width == 4 ? INT32_MAX : INT64_MAX) ? (int64_t)v : -1;
}

static int64_t place(const Index *x, int64_t i) { return number_at(x, HEADER + 4 * x->sequences + 8 * i, 8); }

// where sequence i ends in the .bin; -1: the index does not say
static int64_t end_of(const Index *x, int64_t i, int width) {
    const int64_t length = number_at(x, HEADER + 4 * i, 4), at = place(x, i);
    return length < 0 || at < 0 || at > INT64_MAX / 2 ? -1 : at + length * width;
}

static bool fits(const DataSource *s, const Index *x, int width) {
    const int64_t n = x->sequences, end = end_of(x, n - 1, width);
    if (end != s->bytes)
        return hd_fail("%s says that %s has %lld bytes, and it has %lld: they do not belong together, or one is cut "
                       "short",
                       x->path, s->path, (long long)end, (long long)s->bytes);
    bool ok = place(x, 0) == 0;
    for (int64_t k = 0; ok && k < SAMPLES && n > 1; k++) {
        const int64_t i = n <= SAMPLES ? k % (n - 1) : (n - 2) / (SAMPLES - 1) * k;
        ok = end_of(x, i, width) == place(x, i + 1);
    }
    ok = ok && number_at(x, HEADER + 12 * n + 8 * (x->firsts - 1), 8) == n;
    return ok || hd_fail("%s: its sequences do not follow each other in %s; only data sets without gaps are read",
                         x->path, s->path);
}

static bool read_index(const DataSource *s, Index *x, DataLayout *t) {
    unsigned char h[HEADER];
    if (hd_format_bytes(x->fd, h, HEADER, 0) != HEADER)
        return hd_fail("%s: an index of Megatron that is cut short", x->path);
    const uint64_t version = hd_format_word(h + MAGIC, 8), n = hd_format_word(h + MAGIC + 9, 8),
                   firsts = hd_format_word(h + MAGIC + 17, 8);
    const int code = h[MAGIC + 8];
    if (version != 1)
        return hd_fail("%s: an index of Megatron of version %llu; version 1 is read", x->path,
                       (unsigned long long)version);
    if (code >= TYPES || !types[code].type)
        return hd_fail("%s: its index says %s (number %d); tokens are u8, u16, i16, i32 or i64", s->path,
                       code < TYPES ? types[code].name : "an unknown type", code);
    const uint64_t room = (uint64_t)(x->bytes - HEADER);
    if (!n || firsts < 2 || n > room / 12 || firsts > (room - 12 * n) / 8)
        return hd_fail("%s: an index of Megatron of %llu sequences and %llu documents, in %lld bytes: it is cut short "
                       "or empty",
                       x->path, (unsigned long long)n, (unsigned long long)(firsts ? firsts - 1 : 0),
                       (long long)x->bytes);
    x->sequences = (int64_t)n;
    x->firsts = (int64_t)firsts;
    const int width = hd_data_types[types[code].type].width;
    *t = (DataLayout){.type = types[code].type, .count = s->bytes / width, .documents = x->firsts - 1};
    return fits(s, x, width) && hd_format_agrees(s, t->type, "index");
}

static bool begins(const Index *x) {
    unsigned char magic[MAGIC];
    return hd_format_bytes(x->fd, magic, MAGIC, 0) == MAGIC && !memcmp(magic, "MMIDIDX\0", MAGIC);
}

bool hd_read_megatron(const DataSource *s, DataLayout *t, bool *ok) {
    Index x = {.fd = -1};
    struct stat st;
    if (!hd_format_ends(s->path, ".bin")) return false;
    x.path = strdup(s->path);
    if (x.path) {
        memcpy(x.path + strlen(x.path) - 3, "idx", 3);
        x.fd = open(x.path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    }
    const bool is = x.fd >= 0 && !fstat(x.fd, &st) && S_ISREG(st.st_mode) && begins(&x);
    if (is) {
        x.bytes = st.st_size;
        *ok = read_index(s, &x, t);
    }
    if (x.fd >= 0) close(x.fd);
    free(x.path);
    return is;
}
