// The on-disk cache. An entry is a header (magic, key, length, checksum) and the bytes. It is written under a temporary
// name and then linked or renamed into place, so that a reader sees a whole entry or none.
//
// The GPU runs the code of an entry, so only entries are read that nobody else can have written: regular files of the
// effective user that others may not write, in a folder of the same kind. The checksum finds damage; it does not
// protect against an attacker.
#include "runtime/cuda/cache.h"
#include "runtime/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct { char magic[8]; HdKey key; uint64_t bytes; HdKey sum; } Header;
static const char magic[8] = {'H', 'D', 'C', 'A', 'C', 'H', 'E', '1'};

// Two lanes of FNV-1a (Fowler, Noll, Vo) with different starts, each step followed by a rotation that brings high bits
// down.
void hd_key_start(HdKey *k) {
    k->word[0] = 0xcbf29ce484222325u;
    k->word[1] = 0x9ae16a3b2f90404fu;
}

static void mix(HdKey *k, unsigned char byte) {
    k->word[0] = (k->word[0] ^ byte) * 0x100000001b3u;
    uint64_t x = (k->word[1] ^ byte) * 0x9e3779b97f4a7c15u;
    k->word[1] = x << 29 | x >> 35;
}

void hd_key_add(HdKey *k, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) mix(k, p[i]);
    for (size_t n = bytes, i = 0; i < sizeof n; i++, n >>= 8) mix(k, (unsigned char)n);
}

static HdKey sum_of(const void *data, size_t bytes) {
    HdKey k;
    hd_key_start(&k);
    hd_key_add(&k, data, bytes);
    return k;
}

static void give_up(HdCache *c, const char *what, const char *path) {
    int why = errno;
    if (!atomic_exchange(&c->broken, true))
        hd_say(stderr, "warning: %s %s: %s; continuing without a cache (HEDDLE_CACHE names another folder, or off)\n",
               what, path, strerror(why));
}

static bool make_dirs(char *path) {
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        bool ok = mkdir(path, 0700) == 0 || errno == EEXIST || access(path, F_OK) == 0;
        *p = '/';
        if (!ok) return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool ours_alone(const struct stat *st) {
    return st->st_uid == geteuid() && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

static bool folder_is_ours(HdCache *c) {
    struct stat st;
    if (stat(c->dir, &st) == 0 && S_ISDIR(st.st_mode) && ours_alone(&st)) return true;
    if (!atomic_exchange(&c->broken, true))
        hd_say(stderr,
                "warning: the cache %s is not used: it is not a folder that belongs to this user and that only this "
                "user may write (chmod go-w, or HEDDLE_CACHE names another folder, or off)\n",
                c->dir);
    c->dir[0] = 0; // what is there is not read either
    return false;
}

void hd_cache_open(HdCache *c) {
    const char *own = getenv("HEDDLE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    c->dir[0] = 0;
    atomic_init(&c->broken, false);
    atomic_init(&c->serial, 0);
    if (own && (!strcmp(own, "off") || !*own)) return;
    int n = own               ? snprintf(c->dir, sizeof c->dir, "%s", own)
            : xdg && *xdg     ? snprintf(c->dir, sizeof c->dir, "%s/heddle", xdg)
            : home && *home   ? snprintf(c->dir, sizeof c->dir, "%s/.cache/heddle", home)
                              : 0;
    if (n <= 0 || (size_t)n >= sizeof c->dir) {
        c->dir[0] = 0;
        errno = n > 0 ? ENAMETOOLONG : ENOENT;
        give_up(c, "no cache folder:", "HOME is not set");
        return;
    }
    if (!make_dirs(c->dir)) give_up(c, "cannot write", c->dir);
    else if (folder_is_ours(c) && access(c->dir, W_OK | X_OK) != 0) give_up(c, "cannot write", c->dir);
}

bool hd_cache_usable(HdCache *c) { return c->dir[0] && !atomic_load(&c->broken); }

static void path_of(const HdCache *c, char path[1024], const char *kind, HdKey key) {
    snprintf(path, 1024, "%s/%s-%016llx%016llx", c->dir, kind, (unsigned long long)key.word[0],
             (unsigned long long)key.word[1]);
}

static void *read_entry(const char *path, HdKey key, size_t *bytes) {
    Header h;
    struct stat st;
    char *data = NULL;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); // does not wait for a pipe's writer
    if (fd < 0) return NULL;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && ours_alone(&st) && st.st_size >= (off_t)sizeof h &&
              read(fd, &h, sizeof h) == (ssize_t)sizeof h && !memcmp(h.magic, magic, sizeof magic) &&
              !memcmp(&h.key, &key, sizeof key) && (uint64_t)st.st_size - sizeof h == h.bytes &&
              (data = malloc(h.bytes + 1)) != NULL;
    for (size_t got = 0; ok && got < h.bytes;) {
        ssize_t n = read(fd, data + got, h.bytes - got);
        ok = n > 0;
        got += ok ? (size_t)n : 0;
    }
    close(fd);
    if (ok) {
        HdKey sum = sum_of(data, h.bytes);
        ok = !memcmp(&sum, &h.sum, sizeof sum);
    }
    if (!ok) {
        free(data);
        return NULL;
    }
    data[h.bytes] = 0;
    *bytes = h.bytes;
    return data;
}

void *hd_cache_get(HdCache *c, const char *kind, HdKey key, size_t *bytes) {
    char path[1024];
    if (!c->dir[0]) return NULL;
    path_of(c, path, kind, key);
    return read_entry(path, key, bytes);
}

static bool write_all(int fd, const void *data, size_t bytes) {
    const char *p = data;
    while (bytes) {
        ssize_t n = write(fd, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_temporary(HdCache *c, char temporary[1088], const char *path, HdKey key, const void *data,
                            size_t bytes) {
    Header h = {.key = key, .bytes = bytes, .sum = sum_of(data, bytes)};
    memcpy(h.magic, magic, sizeof magic);
    snprintf(temporary, 1088, "%s.%ld.%u", path, (long)getpid(), atomic_fetch_add(&c->serial, 1u));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool ok = write_all(fd, &h, sizeof h) && write_all(fd, data, bytes);
    ok = close(fd) == 0 && ok;
    if (!ok) unlink(temporary);
    return ok;
}

void hd_cache_put(HdCache *c, const char *kind, HdKey key, const void *data, size_t bytes) {
    char path[1024], temporary[1088];
    if (!hd_cache_usable(c)) return;
    path_of(c, path, kind, key);
    if (!write_temporary(c, temporary, path, key, data, bytes) || rename(temporary, path) != 0)
        give_up(c, "cannot write", path);
}

void hd_cache_settle(HdCache *c, const char *kind, HdKey key, void *data, size_t bytes) {
    char path[1024], temporary[1088];
    size_t there = 0;
    if (!hd_cache_usable(c)) return;
    path_of(c, path, kind, key);
    if (!write_temporary(c, temporary, path, key, data, bytes)) {
        give_up(c, "cannot write", path);
        return;
    }
    if (link(temporary, path) == 0) {
        unlink(temporary);
        return;
    }
    void *first = errno == EEXIST ? read_entry(path, key, &there) : NULL;
    if (first && there == bytes) {
        memcpy(data, first, bytes);
        unlink(temporary);
    } else if (rename(temporary, path) != 0) { // damaged, or a file system without hard links
        give_up(c, "cannot write", path);
    }
    free(first);
}
