// Writes safetensors under a temporary name, which it renames once everything is on the disk. A link is followed: its
// target is replaced. Devices and pipes cannot be replaced; they are written in place.
#include "runtime/heddle.h"
#include "runtime/checkpoint/safetensors.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static void text(StWriter *w, const char *s, size_t n) {
    if (w->n + n + 1 > w->cap) {
        size_t cap = (w->n + n + 1) * 2;
        char *p = realloc(w->header, cap);
        if (!p) {
            w->failed = true;
            return;
        }
        w->header = p;
        w->cap = cap;
    }
    memcpy(w->header + w->n, s, n);
    w->n += n;
}

static void quoted(StWriter *w, const char *s) {
    text(w, "\"", 1);
    for (; *s; s++) {
        char buf[8];
        if (*s == '"' || *s == '\\') snprintf(buf, sizeof buf, "\\%c", *s);
        else if ((unsigned char)*s < 32) snprintf(buf, sizeof buf, "\\u%04x", (unsigned)*s);
        else snprintf(buf, sizeof buf, "%c", *s);
        text(w, buf, strlen(buf));
    }
    text(w, "\"", 1);
}

static void entry(StWriter *w, const char *name, const char *dtype, int rank, const int64_t *dim, int64_t bytes) {
    char buf[64];
    text(w, w->first ? "{" : ",", 1);
    w->first = false;
    quoted(w, name);
    int n = snprintf(buf, sizeof buf, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    text(w, buf, (size_t)n);
    for (int i = 0; i < rank; i++) {
        n = snprintf(buf, sizeof buf, "%s%lld", i ? "," : "", (long long)dim[i]);
        text(w, buf, (size_t)n);
    }
    n = snprintf(buf, sizeof buf, "],\"data_offsets\":[%lld,%lld]}", (long long)w->at, (long long)(w->at + bytes));
    text(w, buf, (size_t)n);
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

bool hd_st_create(StWriter *w, const char *path, bool checksum) {
    struct stat st;
    bool in_place = !stat(path, &st) && !S_ISREG(st.st_mode);
    char *real = in_place ? NULL : realpath(path, NULL); // NULL: a new file
    size_t n = strlen(real ? real : path) + 32;
    *w = (StWriter){.first = true, .checksum = checksum, .path = malloc(n), .temporary = in_place ? NULL : malloc(n),
                    .hash = XXH3_createState()};
    bool ok = w->path && w->hash && (in_place || w->temporary);
    if (ok) {
        snprintf(w->path, n, "%s", real ? real : path);
        if (!in_place) snprintf(w->temporary, n, "%s.tmp.%ld", w->path, (long)getpid());
        XXH3_128bits_reset(w->hash);
        w->file = fopen(in_place ? w->path : w->temporary, "wb");
        if (!w->file) hd_fail("cannot write %s: %s", path, strerror(errno));
        ok = w->file != NULL;
    } else {
        hd_fail("out of memory");
    }
    free(real);
    if (!ok) release(w);
    return ok;
}

void hd_st_declare(StWriter *w, const char *name, int rank, const int64_t *dim) {
    int64_t bytes = 4;
    for (int i = 0; i < rank; i++) bytes *= dim[i];
    entry(w, name, "F32", rank, dim, bytes);
}

static void put(StWriter *w, const void *data, size_t bytes) {
    if (w->checksum) XXH3_128bits_update(w->hash, data, bytes);
    w->written += (int64_t)bytes;
    if (!w->failed && bytes && fwrite(data, 1, bytes, w->file) != bytes) {
        w->failed = true;
        hd_fail("cannot write %s: %s", w->path, strerror(errno));
    }
}

void hd_st_begin(StWriter *w, int n_meta, const StMeta *meta) {
    int64_t sixteen = 16;
    if (w->checksum) entry(w, "__checksum__", "U8", 1, &sixteen, 16);
    text(w, ",\"__metadata__\":{", 17);
    for (int i = 0; i < n_meta; i++) {
        if (i) text(w, ",", 1);
        quoted(w, meta[i].key);
        text(w, ":", 1);
        quoted(w, meta[i].value);
    }
    text(w, "}}", 2);
    while (w->n % 8 && !w->failed) text(w, " ", 1);
    unsigned char len[8];
    for (int i = 0; i < 8; i++) len[i] = (unsigned char)((uint64_t)w->n >> (8 * i));
    if (w->failed) hd_fail("out of memory");
    put(w, len, 8);
    put(w, w->header, w->n);
}

void hd_st_put(StWriter *w, const void *data, size_t bytes) { put(w, data, bytes); }

bool hd_st_finish(StWriter *w) {
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits_digest(w->hash));
    memcpy(w->digest, c.digest, sizeof w->digest);
    if (w->checksum) put(w, c.digest, 16);
    bool ok = !w->failed;
    if (ok && (fflush(w->file) || (w->temporary && fsync(fileno(w->file)))))
        ok = hd_fail("cannot write %s: %s", w->path, strerror(errno));
    if (fclose(w->file) && ok) ok = hd_fail("cannot write %s: %s", w->path, strerror(errno));
    if (ok && w->temporary && rename(w->temporary, w->path))
        ok = hd_fail("cannot rename %s to %s: %s", w->temporary, w->path, strerror(errno));
    if (!ok && w->temporary) unlink(w->temporary);
    release(w);
    return ok;
}
