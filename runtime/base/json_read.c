// Reading JSON: the pieces of which its readers are made.
#include "runtime/base/json_read.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void hd_json_blanks(HdJson *j) {
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r')) j->p++;
}

bool hd_json_take(HdJson *j, char c) {
    hd_json_blanks(j);
    if (j->p == j->end || *j->p != c) return false;
    j->p++;
    return true;
}

static int hex4(const char *p) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, p[i] | 32);
        if (!p[i] || !d) return -1;
        v = v * 16 + (int)(d - digits);
    }
    return v;
}

// The escaped character, as UTF-8 of at most 3 bytes: their number; 0: malformed.
static size_t unescape(HdJson *j, const char *end, char *o) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = *j->p++, *known = c ? strchr(from, c) : NULL;
    if (known) return *o = to[known - from], 1;
    if (c != 'u' || end - j->p < 4) return 0;
    const int u = hex4(j->p);
    j->p += 4;
    if (u <= 0) return 0;
    if (u < 0x80) return *o = (char)u, 1;
    if (u >= 0xd800 && u < 0xe000) return *o = '?', 1; // half of a character that JSON writes as two
    size_t n = 0;
    if (u >= 0x800) o[n++] = (char)(0xe0 | u >> 12);
    o[n++] = (char)(u >= 0x800 ? 0x80 | (u >> 6 & 0x3f) : 0xc0 | u >> 6);
    o[n++] = (char)(0x80 | (u & 0x3f));
    return n;
}

char *hd_json_text(HdJson *j) { // malloc'ed; NULL: not a string
    if (!hd_json_take(j, '"')) return NULL;
    const char *end = j->p;
    while (end < j->end && *end != '"') end += *end == '\\' && j->end - end > 1 ? 2 : 1;
    if (end >= j->end) return NULL;
    char *s = malloc((size_t)(end - j->p) + 1), *o = s;
    if (!s) return NULL;
    while (j->p < end) {
        size_t n = 1;
        if (*j->p == '\\') j->p++, n = unescape(j, end, o);
        else *o = *j->p++;
        if (n && *o) {
            o += n;
            continue;
        }
        free(s);
        return NULL;
    }
    j->p++;
    *o = 0;
    return s;
}

bool hd_json_integer(HdJson *j, int64_t *v) {
    hd_json_blanks(j);
    char buf[24];
    size_t n = 0;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9' && n < sizeof buf - 1) buf[n++] = *j->p++;
    buf[n] = 0;
    errno = 0;
    *v = strtoll(buf, NULL, 10);
    return n && !errno;
}

bool hd_json_skip(HdJson *j) {
    int depth = 0;
    do {
        hd_json_blanks(j);
        if (j->p == j->end) return false;
        const char c = *j->p;
        if (c == '"') {
            char *text = hd_json_text(j);
            if (!text) return false;
            free(text);
        } else if (c == '{' || c == '[') {
            depth++;
            j->p++;
        } else if (c == '}' || c == ']') {
            if (!depth--) return false;
            j->p++;
        } else if (depth && (c == ',' || c == ':')) {
            j->p++;
        } else {
            const char *start = j->p;
            while (j->p < j->end && !strchr(",:]}[{\" \t\r\n", *j->p)) j->p++;
            if (j->p == start) return false;
        }
    } while (depth);
    return true;
}
