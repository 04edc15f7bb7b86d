// Writes safetensors under a temporary name, which it renames once everything is on the disk. A link is followed: its
// target is replaced. Devices and pipes cannot be replaced; they are written in place.
#include "runtime/dtypes.h"
#include "runtime/checkpoint/aside.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static char *header_end(StWriter *w, size_t bytes) { // room for so many more; NULL: failed
    if (w->failed) return NULL;
    if (w->header_room - w->header_bytes < bytes) {
        const size_t room = 2 * w->header_room + bytes + 1000;
        char *grown = realloc(w->header, room);
        if (!grown) {
            w->failed = true;
            hd_fail("out of memory: cannot keep the header of %s", w->path);
            return NULL;
        }
        w->header = grown;
        w->header_room = room;
    }
    return w->header + w->header_bytes;
}

__attribute__((format(printf, 2, 3))) static void say(StWriter *w, const char *fmt, ...) { // to the header, short
    enum { MOST = 200 };
    char *end = header_end(w, MOST);
    if (!end) return;
    va_list ap;
    va_start(ap, fmt);
    w->header_bytes += (size_t)vsnprintf(end, MOST, fmt, ap);
    va_end(ap);
}

static void quote(StWriter *w, const char *text) {
    say(w, "\"");
    for (char *end; *text && (end = header_end(w, HD_JSON_CHAR));) w->header_bytes += hd_text_json_char(&text, end);
    say(w, "\"");
}

static void entry(StWriter *w, const char *name, const char *dtype, int rank, const int64_t *dim, int64_t bytes) {
    say(w, "%c", w->first ? '{' : ',');
    w->first = false;
    quote(w, name);
    say(w, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (int i = 0; i < rank; i++) say(w, "%s%lld", i ? "," : "", (long long)dim[i]);
    say(w, "],\"data_offsets\":[%lld,%lld]}", (long long)w->at, (long long)(w->at + bytes));
    w->at += bytes;
}

static void release(StWriter *w) {
    StWriter left = {.written = w->written};
    memcpy(left.digest, w->digest, sizeof left.digest);
    free(w->path);
    free(w->temporary);
    free(w->header);
    XXH3_freeState(w->hash);
    *w = left;
}

static bool open_output(StWriter *w, size_t room) {
    if (w->temporary) return (w->fd = hd_open_aside(w->path, w->temporary, room)) >= 0;
    w->fd = open(w->path, O_WRONLY | O_CLOEXEC);
    return w->fd >= 0 || hd_fail("cannot write %s: %s", w->path, strerror(errno));
}

bool hd_st_create(StWriter *w, const char *path, bool checksum) {
    struct stat st;
    bool in_place = !stat(path, &st) && !S_ISREG(st.st_mode);
    char *real = in_place ? NULL : realpath(path, NULL); // NULL: a new file
    size_t n = strlen(real ? real : path) + HD_ASIDE;
    *w = (StWriter){.first = true, .checksum = checksum, .path = malloc(n), .temporary = in_place ? NULL : malloc(n),
                    .hash = XXH3_createState()};
    bool ok = w->path && w->hash && (in_place || w->temporary);
    if (ok) {
        snprintf(w->path, n, "%s", real ? real : path);
        XXH3_128bits_reset(w->hash);
        ok = open_output(w, n);
    } else {
        hd_fail("out of memory");
    }
    free(real);
    if (!ok) release(w);
    return ok;
}

void hd_st_declare(StWriter *w, const char *name, int rank, const int64_t *dim) {
    hd_st_declare_as(w, name, HD_F32, rank, dim);
}

void hd_st_declare_as(StWriter *w, const char *name, HdDtype dtype, int rank, const int64_t *dim) {
    int64_t bytes = (int64_t)hd_dtypes[dtype].bytes;
    for (int i = 0; i < rank; i++) bytes *= dim[i];
    entry(w, name, hd_dtypes[dtype].safetensors, rank, dim, bytes);
}

static void put(StWriter *w, const void *data, size_t bytes) {
    if (w->checksum) XXH3_128bits_update(w->hash, data, bytes);
    w->written += (int64_t)bytes;
    for (const char *next = data; !w->failed && bytes;) {
        const ssize_t n = write(w->fd, next, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            w->failed = true;
            hd_fail("cannot write %s: %s", w->path, strerror(errno));
            return;
        }
        next += n;
        bytes -= (size_t)n;
    }
}

void hd_st_begin(StWriter *w, int n_meta, const StMeta *meta) {
    int64_t sixteen = 16;
    if (w->failed) return;
    if (w->checksum) entry(w, "__checksum__", "U8", 1, &sixteen, 16);
    say(w, ",\"__metadata__\":{");
    for (int i = 0; i < n_meta; i++) {
        if (i) say(w, ",");
        quote(w, meta[i].key);
        say(w, ":");
        quote(w, meta[i].value);
    }
    say(w, "}}");
    while (!w->failed && w->header_bytes % 8) say(w, " ");
    if (w->failed) return;
    unsigned char len[8];
    for (int i = 0; i < 8; i++) len[i] = (unsigned char)((uint64_t)w->header_bytes >> (8 * i));
    put(w, len, 8);
    put(w, w->header, w->header_bytes);
}

void hd_st_put(StWriter *w, const void *data, size_t bytes) { put(w, data, bytes); }

bool hd_st_finish(StWriter *w) {
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits_digest(w->hash));
    memcpy(w->digest, c.digest, sizeof w->digest);
    if (w->checksum) put(w, c.digest, 16);
    bool ok = !w->failed;
    if (ok && w->temporary && fsync(w->fd)) ok = hd_fail("cannot write %s: %s", w->path, strerror(errno));
    if (close(w->fd) && ok) ok = hd_fail("cannot write %s: %s", w->path, strerror(errno));
    if (ok && w->temporary && rename(w->temporary, w->path))
        ok = hd_fail("cannot rename %s to %s: %s", w->temporary, w->path, strerror(errno));
    if (!ok && w->temporary) unlink(w->temporary);
    release(w);
    return ok;
}
