// Text sink, exact float printing, whole-file reading and writing.
#include "ir/base/out.h"
#define XXH_INLINE_ALL
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

Out hd_out(Arena *a) {
    Out o = {a, hd_alloc(a, 256), 0, 256};
    return o;
}

void hd_putn(Out *o, const char *s, size_t n) {
    if (o->n + n + 1 > o->cap) {
        size_t cap = o->cap * 2 > o->n + n + 1 ? o->cap * 2 : o->n + n + 1;
        char *t = hd_alloc(o->arena, cap);
        memcpy(t, o->text, o->n);
        o->text = t;
        o->cap = cap;
    }
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
    if (n >= (int)sizeof buf) {
        char *p = malloc((size_t)n + 1);
        if (p) {
            vsnprintf(p, (size_t)n + 1, fmt, again);
            hd_putn(o, p, (size_t)n);
            free(p);
        }
    } else if (n > 0) {
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

void hd_put_float(Out *o, double v) {
    char buf[40];
    if (isnan(v)) { hd_puts(o, "nan"); return; }
    if (isinf(v)) { hd_puts(o, v < 0 ? "-inf" : "inf"); return; }
    for (int p = 1; p <= 17; p++) {
        snprintf(buf, sizeof buf, "%.*g", p, v);
        if (strtod(buf, NULL) == v) break;
    }
    hd_puts(o, buf);
    if (!strpbrk(buf, ".en")) hd_puts(o, ".0"); // keeps floats apart from integers in the text
}

void hd_put_quoted(Out *o, const char *s) {
    hd_puts(o, "\"");
    for (;;) {
        size_t plain = 0;
        while ((unsigned char)s[plain] >= 32 && s[plain] != '"' && s[plain] != '\\') plain++;
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

const char *hd_hash(Arena *a, const char *text, size_t n) {
    const XXH128_hash_t h = XXH3_128bits(text, n);
    return hd_sprintf(a, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

int hd_write_file(const char *path, const char *text, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!f) return errno;
    size_t w = fwrite(text, 1, n, f);
    int e = w == n ? 0 : errno ? errno : EIO;
    if (fclose(f) && !e) e = errno;
    struct stat st;
    if (e && !lstat(path, &st) && S_ISREG(st.st_mode)) remove(path); // half a plan would be worse than none
    return e;
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
