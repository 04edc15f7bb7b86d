// Matches expected against collected diagnostics: each comment takes the first diagnostic of its severity and line that
// contains its text and that no other comment took.
#include "ir/base/expect.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const severities[] = {"error", "warning", "note"};
enum { LINE_UNKNOWN = 0 };
typedef struct { Severity sev; int line, at_line; const char *text; } Expected;
typedef VEC(Expected) ExpectedList;

// Reads the text between the severity and {{: nothing, "@+1", "@-1", "@unknown", "@line 7".
static bool read_line(const char **s, int here, int *line) {
    while (**s == ' ') ++*s;
    *line = here;
    if (**s == '@') {
        const char *p = *s + 1;
        char *end = NULL;
        if (!strncmp(p, "unknown", 7)) {
            *line = LINE_UNKNOWN;
            end = (char *)p + 7;
        } else if (!strncmp(p, "line ", 5)) {
            *line = (int)strtol(p + 5, &end, 10);
        } else if (*p == '+' || *p == '-') {
            *line = here + (int)strtol(p, &end, 10);
        } else {
            return false;
        }
        *s = end;
        while (**s == ' ') ++*s;
    }
    return !strncmp(*s, "{{", 2);
}

// 0, or 1 after printing that a comment cannot be read.
static int collect(const Source *src, Arena *a, ExpectedList *list, Out *o) {
    int line = src->first_line, bad = 0;
    const char *mark = "expected-";
    for (const char *s = src->text, *end = s + src->len; s < end; s++) {
        if (*s == '\n') line++;
        if (*s != 'e' || strncmp(s, mark, strlen(mark)) != 0) continue;
        const char *p = s + strlen(mark);
        int sev = 0;
        while (sev < 3 && strncmp(p, severities[sev], strlen(severities[sev])) != 0) sev++;
        if (sev == 3) continue; // ordinary text
        p += strlen(severities[sev]);
        Expected e = {.sev = (Severity)sev, .at_line = line};
        const char *close = NULL;
        if (read_line(&p, line, &e.line)) close = strstr(p + 2, "}}");
        if (!close || memchr(p, '\n', (size_t)(close - p))) {
            hd_show(o, "%s:%d: error: cannot read this expected-%s; write expected-%s @+1 {{text}}\n", src->name,
                    line, severities[sev], severities[sev]);
            bad++;
            continue;
        }
        e.text = hd_strndup(a, p + 2, (size_t)(close - p - 2));
        hd_push(a, list, e);
        s = close;
    }
    return bad;
}

int hd_expect_check(const Diags *d, uint32_t base, Out *o) {
    const Source *source = NULL;
    for (int i = 0; i < d->sources.n; i++)
        if (d->sources.at[i].base == base) source = &d->sources.at[i];
    if (!source) return 0;
    Arena *a = o->arena;
    ExpectedList expected = {0};
    int bad = collect(source, a, &expected, o);
    bool *met = HD_NEWN(a, bool, expected.n + 1);
    for (int i = 0; i < d->list.n; i++) {
        const Diag *g = &d->list.at[i];
        const Source *in = NULL;
        int line = LINE_UNKNOWN, column;
        if (!hd_locate(d, g->span, &in, &line, &column) || in != source) line = LINE_UNKNOWN;
        int k = 0;
        while (k < expected.n && (met[k] || expected.at[k].sev != g->sev || expected.at[k].line != line ||
                                  !strstr(g->text, expected.at[k].text)))
            k++;
        if (k < expected.n) {
            met[k] = true;
        } else if (g->sev != SEV_NOTE) {
            if (line == LINE_UNKNOWN)
                hd_show(o, "%s: unexpected %s without a place: %s\n", source->name, severities[g->sev], g->text);
            else hd_show(o, "%s:%d: unexpected %s: %s\n", source->name, line, severities[g->sev], g->text);
            bad++;
        }
    }
    for (int k = 0; k < expected.n; k++) {
        if (met[k]) continue;
        hd_show(o, "%s:%d: expected %s was not reported: %s\n", source->name, expected.at[k].at_line,
                severities[expected.at[k].sev], expected.at[k].text);
        bad++;
    }
    return bad;
}
