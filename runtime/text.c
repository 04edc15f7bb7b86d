// Text for terminals and for programs that read JSON. See text.h.
#include "runtime/text.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// --- characters

// Its bytes; 0: none begins here, not even one that a terminal would obey.
static size_t utf8(const unsigned char *c, size_t left) {
    const size_t n = c[0] < 0x80 ? 1 : c[0] >= 0xc2 && c[0] < 0xe0 ? 2 : c[0] >= 0xe0 && c[0] < 0xf0 ? 3
                     : c[0] >= 0xf0 && c[0] < 0xf5 ? 4 : 0;
    if (n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    const int overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const int outside = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90); // surrogates, too large
    return overlong || outside ? 0 : n;
}

static uint32_t code_point(const unsigned char *c, size_t n) {
    uint32_t u = n == 1 ? c[0] : c[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) u = u << 6 | (c[i] & 0x3f);
    return u;
}

static int obeyed(uint32_t u) { // a control character, or a mark that changes the direction of a line
    return u < 0x20 || (u >= 0x7f && u < 0xa0) || u == 0x61c || u == 0x200e || u == 0x200f ||
           (u >= 0x2028 && u <= 0x202e) || (u >= 0x2066 && u <= 0x2069);
}

size_t hd_text_char(const char *c, size_t left) {
    const unsigned char *u = (const unsigned char *)c;
    const size_t n = left ? utf8(u, left) : 0;
    return n && obeyed(code_point(u, n)) ? 0 : n;
}

void hd_text_clean(char *text, size_t size) {
    if (!size) return;
    text[size - 1] = 0;
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        n = hd_text_char(text, left);
        if (!n) *text = '?', n = 1;
    }
}

size_t hd_text_json_char(const char **text, char out[HD_JSON_CHAR]) {
    const unsigned char *c = (const unsigned char *)*text;
    const size_t n = utf8(c, strnlen(*text, 4));
    const uint32_t u = n ? code_point(c, n) : 0xfffd;
    *text += n ? n : 1;
    if (!n || obeyed(u) || u == '<') // "</script" would end a script
        return (size_t)snprintf(out, HD_JSON_CHAR, "\\u%04x", u);
    return (size_t)snprintf(out, HD_JSON_CHAR, u == '"' || u == '\\' ? "\\%.*s" : "%.*s", (int)n, (const char *)c);
}

// --- formats

typedef struct { HdTextPut *put; void *to; HdTextKind kind; } Sink;
typedef struct {
    char text[64];        // % and the flags, with numbers in place of stars,
    int n;                // of so many bytes
    int width, precision; // precision -1: none
    int left, longs;      // longs: 1 for l, 2 for every other length
} Spec;

static void put_cleaned(const Sink *s, const char *text, size_t size, const char *keep) {
    while (size) {
        size_t good = 0, n;
        while (good < size && ((n = hd_text_char(text + good, size - good)) || strchr(keep, text[good])))
            good += n ? n : 1;
        if (good) s->put(s->to, text, good);
        else s->put(s->to, "?", good = 1);
        text += good;
        size -= good;
    }
}

static void put_json(const Sink *s, const char *text, const char *end) {
    char c[HD_JSON_CHAR];
    while (text < end) {
        const size_t n = hd_text_json_char(&text, c);
        s->put(s->to, c, n);
    }
}

static void put_string(const Sink *s, const Spec *spec, const char *text) {
    if (!text) text = "(null)";
    const size_t n = spec->precision < 0 ? strlen(text) : strnlen(text, (size_t)spec->precision);
    for (size_t k = n; !spec->left && k < (size_t)spec->width; k++) s->put(s->to, " ", 1);
    if (s->kind == HD_TEXT_JSON) put_json(s, text, text + n);
    else put_cleaned(s, text, n, "");
    for (size_t k = n; spec->left && k < (size_t)spec->width; k++) s->put(s->to, " ", 1);
}

typedef struct { va_list at; } Args; // to hand on

static int read_number(const char **fmt, Args *args) {
    if (**fmt == '*') return ++*fmt, va_arg(args->at, int);
    return (int)strtol(*fmt, (char **)(uintptr_t)fmt, 10);
}

static Spec read_spec(const char **fmt, Args *args) { // from behind the % to the letter
    Spec s = {.precision = -1};
    char flags[8] = "";
    for (size_t n = 0; **fmt && strchr("-+ #0", **fmt); ++*fmt) {
        s.left |= **fmt == '-';
        if (n < sizeof flags - 1) flags[n++] = **fmt;
    }
    s.width = read_number(fmt, args);
    if (s.width < 0) s.left = 1, s.width = -s.width;
    if (**fmt == '.') ++*fmt, s.precision = read_number(fmt, args);
    for (; **fmt && strchr("lzjt", **fmt); ++*fmt) s.longs += **fmt == 'l' ? 1 : 2;
    s.n = sprintf(s.text, "%%%s", flags);
    if (s.left && !strchr(flags, '-')) s.text[s.n++] = '-';
    if (s.width) s.n += sprintf(s.text + s.n, "%d", s.width);
    if (s.precision >= 0) s.n += sprintf(s.text + s.n, ".%d", s.precision);
    return s;
}

static void put_number(const Sink *s, Spec *spec, char letter, Args *args) {
    char out[512]; // a double has at most 309 digits before its point
    int n;
    if (strchr("di", letter)) {
        const long long v = spec->longs == 0 ? va_arg(args->at, int) : spec->longs == 1 ? va_arg(args->at, long)
                                                                                       : va_arg(args->at, long long);
        sprintf(spec->text + spec->n, "lld");
        n = snprintf(out, sizeof out, spec->text, v);
    } else if (strchr("ouxX", letter)) {
        const unsigned long long v = spec->longs == 0   ? va_arg(args->at, unsigned)
                                     : spec->longs == 1 ? va_arg(args->at, unsigned long)
                                                        : va_arg(args->at, unsigned long long);
        sprintf(spec->text + spec->n, "ll%c", letter);
        n = snprintf(out, sizeof out, spec->text, v);
    } else if (letter == 'p') {
        sprintf(spec->text + spec->n, "p");
        n = snprintf(out, sizeof out, spec->text, va_arg(args->at, void *));
    } else if (strchr("eEfFgGaA", letter)) {
        sprintf(spec->text + spec->n, "%c", letter);
        n = snprintf(out, sizeof out, spec->text, va_arg(args->at, double));
    } else {
        abort(); // a format of ours that this does not know: what follows in the arguments is unknown, too
    }
    s->put(s->to, out, n < 0 ? 0 : (size_t)n < sizeof out ? (size_t)n : sizeof out - 1);
}

void hd_text_format(HdTextPut *put, void *to, HdTextKind kind, const char *fmt, va_list args) {
    const Sink s = {put, to, kind};
    Args a;
    va_copy(a.at, args);
    for (size_t n; *fmt; fmt++) {
        if ((n = strcspn(fmt, "%"))) put(to, fmt, n);
        if (!*(fmt += n)) break;
        fmt++;
        Spec spec = read_spec(&fmt, &a);
        if (*fmt == '%') put(to, "%", 1);
        else if (*fmt == 's') put_string(&s, &spec, va_arg(a.at, const char *));
        else if (*fmt == 'c') put_string(&s, &spec, (const char[]){(char)va_arg(a.at, int), 0});
        else put_number(&s, &spec, *fmt, &a);
    }
    va_end(a.at);
}

static void put_file(void *to, const char *text, size_t n) { fwrite(text, 1, n, to); }

void hd_vsay(FILE *to, const char *fmt, va_list args) {
    char *line = NULL;
    size_t n;
    FILE *f = open_memstream(&line, &n); // one write for a line: other processes print theirs
    hd_text_format(put_file, f ? f : to, HD_TEXT_SHOWN, fmt, args);
    if (f && fclose(f)) hd_text_format(put_file, to, HD_TEXT_SHOWN, fmt, args); // in pieces, rather than not at all
    else if (f) fwrite(line, 1, n, to);
    free(line);
}

void hd_say(FILE *to, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    hd_vsay(to, fmt, args);
    va_end(args);
}

void hd_say_text(FILE *to, const char *text) {
    put_cleaned(&(Sink){put_file, to, HD_TEXT_SHOWN}, text, strlen(text), "\n\t");
}
