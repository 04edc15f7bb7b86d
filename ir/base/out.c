// Text sink, exact float printing, whole-file reading and writing.
#define _GNU_SOURCE // mkstemp, realpath
#include "ir/base/out.h"
#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

Out hd_out(Arena *a) {
    Out o = {a, hd_alloc(a, 256), 0, 256};
    return o;
}

static void make_room(Out *o, size_t n) { // for n more bytes and the end
    if (o->n + n + 1 <= o->cap) return;
    size_t cap = o->cap * 2 > o->n + n + 1 ? o->cap * 2 : o->n + n + 1;
    char *t = hd_alloc(o->arena, cap);
    memcpy(t, o->text, o->n);
    o->text = t;
    o->cap = cap;
}

void hd_putn(Out *o, const char *s, size_t n) {
    make_room(o, n);
    memcpy(o->text + o->n, s, n);
    o->n += n;
    o->text[o->n] = 0;
}

void hd_puts(Out *o, const char *s) { hd_putn(o, s, strlen(s)); }

void hd_printf(Out *o, const char *fmt, ...) {
    char buf[512];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(buf, sizeof buf, fmt, ap);
    if (n < 0) hd_no_memory(0); // the only reason: no format of ours is wrong
    if (n >= (int)sizeof buf) {
        make_room(o, (size_t)n);
        if (vsnprintf(o->text + o->n, (size_t)n + 1, fmt, again) != n) hd_no_memory((size_t)n);
        o->n += (size_t)n;
    } else {
        hd_putn(o, buf, (size_t)n);
    }
    va_end(again);
    va_end(ap);
}

static void put_digits(Out *o, uint64_t v, unsigned base) {
    char digits[20], *s = digits + sizeof digits;
    do *--s = "0123456789abcdef"[v % base];
    while (v /= base);
    hd_putn(o, s, (size_t)(digits + sizeof digits - s));
}

void hd_put_int(Out *o, int64_t v) {
    if (v < 0) hd_putn(o, "-", 1);
    put_digits(o, v < 0 ? -(uint64_t)v : (uint64_t)v, 10);
}

void hd_put_hex(Out *o, uint64_t v) { put_digits(o, v, 16); }

static bool reads_back(char buf[40], int digits, double v) { // buf: v with so many digits
    snprintf(buf, 40, "%.*g", digits, v);
    return strtod(buf, NULL) == v;
}

// The fewest digits that read back as v. Most constants have one or two; 17 are always enough. The nearest number of
// more digits is never further away, so that what lies between is found by halving.
void hd_put_float(Out *o, double v) {
    char buf[40];
    if (isnan(v)) { hd_puts(o, "nan"); return; }
    if (isinf(v)) { hd_puts(o, v < 0 ? "-inf" : "inf"); return; }
    if (!reads_back(buf, 1, v) && !reads_back(buf, 2, v)) {
        int low = 3, high = 17;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (reads_back(buf, middle, v)) high = middle;
            else low = middle + 1;
        }
        reads_back(buf, low, v);
    }
    hd_puts(o, buf);
    if (!strpbrk(buf, ".en")) hd_puts(o, ".0"); // keeps floats apart from integers in the text
}

void hd_put_quoted(Out *o, const char *s) {
    hd_puts(o, "\"");
    for (;;) {
        size_t plain = 0;
        for (size_t n; s[plain] != '"' && s[plain] != '\\' && (n = hd_text_char(s + plain, strnlen(s + plain, 4)));)
            plain += n;
        hd_putn(o, s, plain);
        s += plain;
        if (!*s) break;
        unsigned char c = (unsigned char)*s++;
        if (c == '"' || c == '\\') hd_printf(o, "\\%c", c);
        else if (c == '\n') hd_puts(o, "\\n");
        else hd_printf(o, "\\x%02x", c);
    }
    hd_puts(o, "\"");
}

static void put(void *to, const char *text, size_t n) { hd_putn(to, text, n); }

void hd_show(Out *o, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    hd_text_format(put, o, HD_TEXT_SHOWN, fmt, ap);
    va_end(ap);
}

void hd_put_json(Out *o, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    hd_text_format(put, o, HD_TEXT_JSON, fmt, ap);
    va_end(ap);
}

const char *hd_hash(Arena *a, const char *text, size_t n) {
    const XXH128_hash_t h = XXH3_128bits(text, n);
    return hd_sprintf(a, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

static int write_all(int file, const char *text, size_t n) { // closes it; 0 or errno
    int e = file < 0 ? errno : 0;
    while (!e && n) {
        const ssize_t k = write(file, text, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) e = k ? errno : EIO;
        else text += k, n -= (size_t)k;
    }
    if (file >= 0 && close(file) && !e) e = errno;
    return e;
}

char *hd_write_target(Arena *a, const char *path) {
    struct stat st;
    const bool device = !strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9); // /dev/stdout is a link to a file
    if (device || !strncmp(path, "/proc/", 6)) return NULL;
    if (stat(path, &st)) return hd_strdup(a, path);
    if (!S_ISREG(st.st_mode)) return NULL;
    char *real = realpath(path, NULL);
    if (!real && errno == ENOMEM) hd_no_memory(0);
    char *target = hd_strdup(a, real ? real : path);
    free(real);
    return target;
}

// The name of the file beside it is new, and its mode is that of the file it replaces, or as for any new file.
static int replace(Arena *a, const char *path, const char *text, size_t n) {
    char *part = hd_sprintf(a, "%s.XXXXXX", path);
    struct stat st;
    const mode_t mask = umask(0), mode = stat(path, &st) ? 0666 & ~mask : st.st_mode & 0777;
    umask(mask);
    const int file = mkstemp(part);
    if (file < 0) return errno;
    int e = fchmod(file, mode) ? errno : 0;
    const int wrong = write_all(file, text, n);
    if (!e) e = wrong;
    if (!e && rename(part, path)) e = errno;
    if (e) unlink(part);
    return e;
}

int hd_write_file(const char *path, const char *text, size_t n) {
    Arena *a = hd_arena_new();
    const char *target = hd_write_target(a, path);
    const int e = target ? replace(a, target, text, n)
                         : write_all(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC), text, n);
    hd_arena_free(a);
    return e;
}

bool hd_same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino && S_ISREG(x.st_mode);
}

char *hd_read_file(Arena *a, const char *path, size_t *n) {
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!f) return NULL;
    Out o = hd_out(a);
    char buf[65536];
    size_t k;
    while ((k = fread(buf, 1, sizeof buf, f)) > 0) hd_putn(&o, buf, k);
    int bad = ferror(f) ? errno : 0;
    if (f != stdin) fclose(f);
    if (bad) { errno = bad; return NULL; }
    *n = o.n;
    return o.text;
}
