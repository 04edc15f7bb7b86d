// Source map and diagnostic rendering.
#include "ir/base/diag.h"
#include <stdio.h>
#include <string.h>

// errors; bytes of a line that are shown around its place; bytes of a message, which may quote a name of the input that
// is as long as the input
enum { MAX_PRINTED = 20, MAX_QUOTED = 160, MAX_MESSAGE = 2000 };

uint32_t hd_source_add(Diags *d, const char *name, const char *text, size_t len, int first_line) {
    uint32_t base = 1; // span 0 means "no place"
    if (d->sources.n) base = d->sources.at[d->sources.n - 1].base + d->sources.at[d->sources.n - 1].len + 1;
    Source s = {name, text, base, (uint32_t)len, first_line};
    hd_push(d->arena, &d->sources, s);
    return base;
}

bool hd_is_source(const Diags *d, const char *path) {
    for (int i = 0; i < d->sources.n; i++)
        if (hd_same_file(d->sources.at[i].name, path)) return true;
    return false;
}

bool hd_locate(const Diags *d, Span s, const Source **src, int *line, int *col) {
    if (!s.lo) return false;
    for (int i = 0; i < d->sources.n; i++) {
        const Source *f = &d->sources.at[i];
        if (s.lo < f->base || s.lo > f->base + f->len) continue;
        int l = f->first_line, c = 1;
        for (uint32_t k = 0; k < s.lo - f->base; k++) {
            if (f->text[k] == '\n') { l++; c = 1; }
            else c++;
        }
        *src = f;
        *line = l;
        *col = c;
        return true;
    }
    return false;
}

void hd_diag_add(Diags *d, Severity sev, Span s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    Diag g = {sev, s, hd_vsprintf(d->arena, fmt, ap)};
    va_end(ap);
    if (sev == SEV_ERROR) d->errors++;
    for (int i = d->list.n - 1; s.lo && i >= 0 && i > d->list.n - 64; i--) { // repeated modules repeat their errors
        const Diag *old = &d->list.at[i];
        if (old->span.lo == s.lo && old->span.hi == s.hi && old->sev == sev && !strcmp(old->text, g.text)) return;
    }
    hd_push(d->arena, &d->list, g);
}

static bool continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; } // UTF-8 continuation bytes take no column

// The bytes of the character at p, of which `left` follow; 0: a blank stands for it.
static uint32_t shown(const char *p, uint32_t left) { return *p == '\t' ? 1 : (uint32_t)hd_text_char(p, left); }

// The line around the place; of a long one only a window, so that a generated file or a binary one does not flood the
// terminal.
static void quote(const Source *f, Span s, Out *o) {
    uint32_t at = s.lo - f->base, b = at, e = at;
    while (b > 0 && f->text[b - 1] != '\n') b--;
    while (e < f->len && f->text[e] != '\n') e++;
    bool cut_front = at - b > MAX_QUOTED / 2, cut_back;
    if (cut_front) b = at - MAX_QUOTED / 2;
    while (b < at && continues(f->text[b])) b++;
    if ((cut_back = e - b > MAX_QUOTED)) e = b + MAX_QUOTED;
    while (cut_back && e > at && continues(f->text[e])) e--;
    hd_puts(o, cut_front ? "  ..." : "  ");
    for (uint32_t k = b, n; k < e; k += n ? n : 1) {
        n = shown(f->text + k, e - k);
        hd_putn(o, n ? f->text + k : " ", n ? n : 1);
    }
    hd_puts(o, cut_back ? "...\n" : "\n");
    hd_puts(o, cut_front ? "     " : "  ");
    for (uint32_t k = b, n; k < at; k += n ? n : 1) {
        n = shown(f->text + k, e - k);
        hd_puts(o, f->text[k] == '\t' ? "\t" : " ");
    }
    hd_puts(o, "^");
    uint32_t end = s.hi - f->base < e ? s.hi - f->base : e;
    for (uint32_t k = at + 1; k < end; k++)
        if (!continues(f->text[k])) hd_puts(o, "~");
    hd_puts(o, "\n");
}

// Prints the beginning and the end of a very long message: the way out is at its end.
static void put_message(const char *text, Out *o) {
    const size_t n = strlen(text);
    size_t head = n > MAX_MESSAGE ? MAX_MESSAGE * 3 / 4 : n, tail = n - (n > MAX_MESSAGE ? MAX_MESSAGE / 4 : 0);
    while (head < n && head > 0 && continues(text[head])) head--;
    while (tail < n && continues(text[tail])) tail++;
    hd_show(o, "%.*s", (int)head, text);
    if (head < n) hd_show(o, " [%zu bytes left out] %s", tail - head, text + tail);
}

void hd_diags_print(const Diags *d, Out *o) {
    static const char *const sev[] = {"error", "warning", "note"};
    int errors = 0;
    bool hidden = false;
    for (int i = 0; i < d->list.n; i++) {
        const Diag *g = &d->list.at[i];
        if (g->sev == SEV_ERROR) hidden = ++errors > MAX_PRINTED;
        if (hidden) continue; // the notes of a hidden error are hidden too
        const Source *f;
        int line, col;
        bool placed = hd_locate(d, g->span, &f, &line, &col);
        if (placed) hd_show(o, "%s:%d:%d: ", f->name, line, col);
        else hd_puts(o, "heddle: ");
        hd_printf(o, "%s: ", sev[g->sev]);
        put_message(g->text, o);
        hd_puts(o, "\n");
        if (placed) quote(f, g->span, o);
    }
    if (errors > MAX_PRINTED) hd_printf(o, "%d more errors not shown\n", errors - MAX_PRINTED);
}
