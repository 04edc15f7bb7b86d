// Reads device tables: finds the file, parses its lines, and checks that no time falls when a size grows.
#include "ir/machine/arch.h"
#include "ir/machine/device_table.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEVELS = 6 }; // how far above the executable the tables may be

static const struct { const char *keyword, *words; bool number; FactValues values; } facts[] = {
#define FACT(id, keyword, words, number, values, doc) {keyword, words, number, VALUE_##values},
#include "ir/machine/device.def"
#undef FACT
};

const char *hd_fact_keyword(FactId f) { return facts[f].keyword; }

typedef struct { const char *at; size_t n; uint32_t lo; } Word;
typedef struct {
    Ctx *cx;
    const char *text, *end; // of the file
    uint32_t base;
    const char *at;         // of the line that is read
    VEC(FactLine) lines;
} Reader;

static Span span_of(Word w) { return (Span){w.lo, w.lo + (uint32_t)(w.n ? w.n : 1)}; }
static const char *text_of(Reader *r, Word w) { return hd_strndup(r->cx->arena, w.at, w.n); }

static Word next_word(Reader *r) { // n == 0: the line ends here
    while (r->at < r->end && strchr(" \t\r", *r->at) && *r->at) r->at++;
    Word w = {r->at, 0, r->base + (uint32_t)(r->at - r->text)};
    if (r->at < r->end && *r->at == '#') return w;
    while (r->at < r->end && !strchr(" \t\r\n", *r->at)) r->at++;
    w.n = (size_t)(r->at - w.at);
    return w;
}

static void end_line(Reader *r) {
    while (r->at < r->end && *r->at != '\n') r->at++;
    if (r->at < r->end) r->at++;
}

// A number, followed by one of the units of bytes or by none; `stop` gets what follows.
static double number_at(const char *s, const char **stop) {
    static const struct { const char *text; double is; } units[] = {
        {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    char *e;
    double v = *s >= '0' && *s <= '9' ? strtod(s, &e) : -1;
    *stop = v < 0 ? s : e;
    for (int i = 0; i < 3 && v >= 0; i++)
        if (!strncmp(*stop, units[i].text, 3)) {
            *stop += 3;
            return v * units[i].is;
        }
    return v;
}

static bool read_number(Reader *r, const char *keyword, double *v) {
    const Word w = next_word(r);
    const char *s = text_of(r, w), *stop;
    *v = number_at(s, &stop);
    if (w.n && *v > 0 && *v < 1e18 && !*stop) return true;
    hd_error(r->cx, span_of(w), "'%s' takes a number above 0 here, not '%s'", keyword, s);
    return false;
}

static bool is_one_of(const char *s, const char *const *list) {
    while (*list && strcmp(*list, s) != 0) list++;
    return *list != NULL;
}

static bool good_word(char letter, const char *s, const char **what) {
    static const char *const passes[] = {"forward", "backward", NULL};
    static const char *const ways[] = {"within", "to-host", "to-device", NULL};
    static const char *const kinds[] = {"product", "scores", "rows", "collective", "copy", NULL};
    static const char *const links[] = {"nvlink", "network", NULL};
    DType t;
    OpKind k;
    switch (letter) {
    case 't': return *what = "an element type", hd_dtype_parse(s, &t);
    case 'g': return *what = "forward or backward", is_one_of(s, passes);
    case 'o': return *what = "an op", hd_op_find(s, &k);
    case 'c': return *what = "within, to-host or to-device", is_one_of(s, ways);
    case 'l': return *what = "nvlink or network", is_one_of(s, links);
    case 'e': return *what = "product, scores, rows, collective or copy", is_one_of(s, kinds);
    default: return *what = "an implementation", *s != 0;
    }
}

static bool read_words(Reader *r, FactLine *l) {
    const char *letters = facts[l->fact].words;
    for (int i = 0; letters[i]; i++) {
        const Word w = next_word(r);
        const char *what;
        l->word[i] = text_of(r, w);
        if (w.n && good_word(letters[i], l->word[i], &what)) continue;
        good_word(letters[i], l->word[i], &what);
        hd_error(r->cx, span_of(w), "'%s' takes %s here, not '%s'", facts[l->fact].keyword, what, l->word[i]);
        return false;
    }
    return true;
}

// Whether the point may follow the one before it.
static bool check_point(Reader *r, const FactLine *l, Span s, Point before, Point p) {
    const bool rates = facts[l->fact].values == VALUE_RATES;
    if (p.at <= before.at) {
        hd_error(r->cx, s, "sizes must grow: %g follows %g", p.at, before.at);
        return false;
    }
    if (rates ? p.is / before.is <= p.at / before.at : p.is >= before.is) return true;
    hd_error(r->cx, s, rates ? "a larger size must not take less time: the rate grows from %g to %g, more than the size"
                             : "a larger size must not take less time: %g follows %g",
             rates ? before.is : p.is, rates ? p.is : before.is);
    return false;
}

static bool read_curve(Reader *r, FactLine *l) {
    VEC(Point) points = {0};
    for (Word w; (w = next_word(r)).n;) {
        const char *s = text_of(r, w), *colon, *stop;
        Point p = {number_at(s, &colon), 0};
        p.is = *colon == ':' ? number_at(colon + 1, &stop) : -1;
        if (!(p.at > 0 && p.at < 1e18 && p.is > 0 && p.is < 1e18) || *stop) {
            hd_error(r->cx, span_of(w), "'%s' takes pairs SIZE:VALUE of numbers above 0, such as 4MiB:3.5, not '%s'",
                     facts[l->fact].keyword, s);
            return false;
        }
        if (points.n && !check_point(r, l, span_of(w), points.at[points.n - 1], p)) return false;
        hd_push(r->cx->arena, &points, p);
    }
    l->n = points.n;
    l->points = points.at;
    if (!l->n) hd_error(r->cx, l->span, "'%s' needs at least one pair SIZE:VALUE", facts[l->fact].keyword);
    return l->n > 0;
}

static bool read_text(Reader *r, FactLine *l) {
    const Word first = next_word(r);
    Word w = first, last = first;
    while ((w = next_word(r)).n) last = w;
    l->text = hd_strndup(r->cx->arena, first.at, (size_t)(last.at + last.n - first.at));
    if (!first.n) hd_error(r->cx, l->span, "'%s' needs a text", facts[l->fact].keyword);
    return first.n > 0;
}

static bool read_values(Reader *r, FactLine *l) {
    const char *keyword = facts[l->fact].keyword;
    if (!read_words(r, l) || (facts[l->fact].number && !read_number(r, keyword, &l->number))) return false;
    if (l->fact >= FACT_GATHER && (l->number < 2 || l->number != floor(l->number))) {
        hd_error(r->cx, l->span, "'%s' is among a whole number of ranks, at least 2, not %g", keyword, l->number);
        return false;
    }
    if (facts[l->fact].values == VALUE_TEXT) return read_text(r, l);
    if (facts[l->fact].values != VALUE_NUMBER) return read_curve(r, l);
    if (!read_number(r, keyword, &l->value)) return false;
    const Word w = next_word(r);
    if (w.n) hd_error(r->cx, span_of(w), "'%s' is too much on this line", text_of(r, w));
    const bool is_share = l->fact == FACT_SHARE || l->fact == FACT_SUSTAINED || l->fact == FACT_BESIDE ||
                          l->fact == FACT_BESIDE_COPY || l->fact == FACT_BOTH_WAYS;
    const bool above = is_share && l->value > 1, broken = l->fact == FACT_HOST && l->value != floor(l->value);
    if (!w.n && above) hd_error(r->cx, l->span, "'%s' is a share: at most 1, not %g", keyword, l->value);
    if (!w.n && broken) hd_error(r->cx, l->span, "'%s' is a whole number, not %g", keyword, l->value);
    return !w.n && !above && !broken;
}

// --- order

static int by_place(const FactLine *a, const FactLine *b) {
    if (a->fact != b->fact) return a->fact < b->fact ? -1 : 1;
    for (int i = 0; i < FACT_WORDS && a->word[i]; i++) {
        const int c = strcmp(a->word[i], b->word[i]);
        if (c) return c;
    }
    return a->number < b->number ? -1 : a->number > b->number;
}

static bool insert(Reader *r, FactLine l) { // keeps the lines in order
    int i = r->lines.n;
    while (i && by_place(&l, &r->lines.at[i - 1]) < 0) i--;
    if (i && !by_place(&l, &r->lines.at[i - 1])) {
        hd_error(r->cx, l.span, "a second line for the same '%s'", facts[l.fact].keyword);
        hd_note(r->cx, r->lines.at[i - 1].span, "the first one");
        return false;
    }
    hd_push(r->cx->arena, &r->lines, l);
    for (int k = r->lines.n - 1; k > i; k--) r->lines.at[k] = r->lines.at[k - 1];
    r->lines.at[i] = l;
    return true;
}

static bool read_line(Reader *r) {
    const Word w = next_word(r);
    if (!w.n) return true;
    FactLine l = {.span = span_of(w)};
    const char *keyword = text_of(r, w);
    while (l.fact < N_FACTS && strcmp(facts[l.fact].keyword, keyword) != 0) l.fact++;
    if (l.fact == N_FACTS) {
        hd_error(r->cx, l.span, "'%s' is no keyword of a device table", keyword);
        return false;
    }
    return read_values(r, &l) && insert(r, l);
}

// --- the whole

// Of two curves of products next to each other, the second one, for more results, must not be below the first.
static bool check_above(Reader *r, const FactLine *low, const FactLine *high) {
    for (int side = 0; side < 2; side++) {
        const FactLine *l = side ? high : low;
        for (int i = 0; i < l->n; i++) {
            const double at = l->points[i].at, a = hd_curve(low, at, false), b = hd_curve(high, at, false);
            if (b >= a * (1 - 1e-9)) continue;
            hd_error(r->cx, high->span,
                     "%g takes less time than %g of the line before at size %g: %g and %g microseconds", high->number,
                     low->number, at, b, a);
            return false;
        }
    }
    return true;
}

static bool may_lack(FactId f) {
    return f == FACT_HOST || f == FACT_SHARE || f == FACT_BESIDE_COPY ||
           f == FACT_POWER || f == FACT_WINDOW || f == FACT_ENERGY;
}

static bool check_whole(Reader *r, DeviceModel *d, Span top) {
    bool good = true;
    for (int f = 0, i = 0; f <= N_FACTS; f++) {
        while (i < d->n && d->lines[i].fact < (FactId)f) i++;
        d->first[f] = i;
    }
    for (int f = 0; f < N_FACTS; f++)
        if (d->first[f] == d->first[f + 1] && !may_lack((FactId)f)) {
            hd_error(r->cx, top, "the table has no line '%s'", facts[f].keyword);
            good = false;
        }
    for (int i = 1; i < d->n; i++) {
        const FactLine *a = &d->lines[i - 1], *b = &d->lines[i];
        if (a->fact == FACT_PRODUCT && b->fact == FACT_PRODUCT && !strcmp(a->word[0], b->word[0]))
            good = check_above(r, a, b) && good;
    }
    return good;
}

static bool has_line(const DeviceModel *d, FactId f, const char *a, const char *b, const char *c) {
    const char *want[FACT_WORDS] = {a, b, c};
    for (int i = d->first[f]; i < d->first[f + 1]; i++) {
        int k = 0;
        while (k < FACT_WORDS && want[k] && !strcmp(d->lines[i].word[k], want[k])) k++;
        if (k == FACT_WORDS || !want[k]) return true;
    }
    return false;
}

// Facts that every plan may ask for: a missing line would be an answer made up.
static bool check_lines(Reader *r, const DeviceModel *d, Span top) {
    static const struct { FactId fact; const char *words[FACT_WORDS]; } needed[] = {
        {FACT_PRODUCT, {"bf16"}}, {FACT_PRODUCT, {"f32"}}, {FACT_COPY, {"within"}}, {FACT_COPY, {"to-host"}},
        {FACT_COPY, {"to-device"}}, {FACT_GATHER, {"nvlink"}}, {FACT_SCATTER, {"nvlink"}},
        {FACT_ATTENTION, {"generated", "forward", "bf16"}}, {FACT_ATTENTION, {"generated", "backward", "bf16"}},
        {FACT_ATTENTION, {"generated", "forward", "f32"}}, {FACT_ATTENTION, {"generated", "backward", "f32"}}};
    bool good = true;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const char *const *w = needed[i].words;
        if (has_line(d, needed[i].fact, w[0], w[1], w[2])) continue;
        hd_error(r->cx, top, "the table has no line '%s %s%s%s%s%s'", facts[needed[i].fact].keyword, w[0],
                 w[1] ? " " : "", w[1] ? w[1] : "", w[2] ? " " : "", w[2] ? w[2] : "");
        good = false;
    }
    return good;
}

static void find_peaks(DeviceModel *d) {
    for (int i = d->first[FACT_PRODUCT]; i < d->first[FACT_PRODUCT + 1]; i++) {
        const FactLine *l = &d->lines[i];
        DType t;
        if (!hd_dtype_parse(l->word[0], &t)) continue;
        for (int k = 0; k < l->n; k++) {
            const double rate = 2 * l->number * l->points[k].at / l->points[k].is;
            if (rate > d->peak[t]) d->peak[t] = rate;
        }
    }
}

const DeviceModel *hd_model_parse(Ctx *cx, const char *name, const char *text, size_t n) {
    static const char head[] = "heddle-device 1";
    Reader r = {.cx = cx, .text = text, .end = text + n, .at = text};
    r.base = hd_source_add(&cx->diags, name, text, n, 1);
    const Span top = {r.base, r.base + 1};
    const size_t m = sizeof head - 1;
    if (n < m || memcmp(text, head, m) != 0 || (n > m && !strchr(" \t\r\n", text[m]))) {
        hd_error(cx, top, "this is no device table of this version: its first line must be '%s'", head);
        return NULL;
    }
    bool good = true;
    for (end_line(&r); r.at < r.end; end_line(&r)) good = read_line(&r) && good;
    DeviceModel *d = HD_NEW(cx->arena, DeviceModel);
    d->n = r.lines.n;
    d->lines = r.lines.at;
    if (!good || !check_whole(&r, d, top) || !check_lines(&r, d, top)) return NULL;
    find_peaks(d);
    return d;
}

// --- files

// Beside the sources of a heddlec in its build folder, or in the prefix of an installed one.
static const char *find_file(Ctx *cx, const char *name) {
    static const char *const folders[] = {"devices", HEDDLE_DATADIR "/heddle/devices"};
    char self[4096];
    const char *home = getenv("HEDDLE_HOME");
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    const bool given = home && *home;
    char *at = hd_strdup(cx->arena, given ? home : self);
    for (int i = 0; i < LEVELS && *at; i++) {
        char *slash = given ? NULL : strrchr(at, '/');
        if (slash) *slash = 0;
        for (int k = 0; k < 2; k++) {
            const char *path = hd_sprintf(cx->arena, "%s/%s/%s.dev", at, folders[k], name);
            if (!access(path, R_OK)) return path;
        }
        if (!slash) break;
    }
    hd_error(cx, (Span){0}, "cannot find devices/%s.dev %s %s: give a table with --device-model=FILE", name,
             given ? "under" : "above", given ? home : self);
    return NULL;
}

static const char *default_file(Ctx *cx, const Module *m) {
    const Symbol *target = hd_symbol_find(m, "target");
    if (!target || !hd_has(&target->attrs, A_ARCH)) return NULL;
    const char *name = hd_target_arch(m).device;
    return *name ? find_file(cx, name) : NULL;
}

const DeviceModel *hd_model(const Module *m) {
    Ctx *cx = m->cx;
    if (cx->device_read) return cx->device;
    cx->device_read = true;
    const char *path = cx->device_path ? cx->device_path : default_file(cx, m);
    if (!path) return NULL;
    size_t n;
    const char *text = hd_read_file(cx->arena, path, &n);
    if (!text) hd_error(cx, (Span){0}, "cannot read the device table '%s': %s", path, strerror(errno));
    else cx->device = hd_model_parse(cx, path, text, n);
    return cx->device;
}
