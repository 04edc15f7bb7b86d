// See feed.h. The permutation is a four-round Feistel network over the smallest even number of bits that holds the
// number of rows, walked until the value is in range (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite
// domains").
#include "runtime/data/feed.h"
#include "runtime/dtypes.h"
#include "runtime/philox.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

HdInputs hd_inputs(const HdProgram *p) {
    return (HdInputs){"the loss", p->model, p->n_inputs, p->inputs, p->batch, p->seq};
}

HdInputs hd_inputs_of_call(const HdProgram *p, const HdCall *c) {
    return (HdInputs){c->name, p->model, c->n_inputs, c->inputs, 1, p->seq};
}

// --- names

static const char *shape_text(const HdInput *input, char *out, size_t size) { // "f32[8,784]"
    size_t n = (size_t)snprintf(out, size, "%s[", hd_dtypes[input->dtype].name);
    for (int i = 0; i < input->rank && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? "," : "", (long long)input->dim[i]);
    if (n < size) snprintf(out + n, size - n, "]");
    return out;
}

enum { NAMES_TEXT = 600 };
static const char *inputs_text(const HdInputs *p, bool needed, char out[NAMES_TEXT]) { // "tokens, image and label"
    size_t n = 0;
    int all = 0, k = 0;
    for (int i = 0; i < p->n; i++) all += !needed || p->at[i].next < 0;
    *out = 0;
    for (int i = 0; i < p->n && n < NAMES_TEXT; i++) {
        if (needed && p->at[i].next >= 0) continue;
        n += (size_t)snprintf(out + n, NAMES_TEXT - n, "%s%s", !k ? "" : k < all - 1 ? ", " : " and ",
                              p->at[i].name);
        k++;
    }
    return out;
}

static size_t name_length(const char *given) { // of NAME in NAME=FILE; 0: it has none
    size_t n = 0;
    while (isalnum((unsigned char)given[n]) || given[n] == '_') n++;
    return given[n] == '=' && !isdigit((unsigned char)*given) ? n : 0;
}

static bool input_of(const HdInputs *p, const char *option, const char *given, int *input, const char **file) {
    const size_t n = name_length(given);
    char names[NAMES_TEXT];
    *input = -1;
    *file = given;
    for (int i = 0; n && i < p->n; i++)
        if (strlen(p->at[i].name) == n && !memcmp(p->at[i].name, given, n)) {
            *input = i;
            *file = given + n + 1;
            return **file || hd_fail("--%s %s needs a file name after the sign =", option, given);
        }
    return !n || access(given, F_OK) == 0 ||
           hd_fail("--%s %s: %s of model %s has no argument '%.*s'; it takes %s", option, given, p->function,
                   p->model, (int)n, given, inputs_text(p, false, names));
}

bool hd_feed_names(const HdInputs *p, const char *option, Names given, int input, Names *names) {
    *names = (Names){0, given.n ? calloc((size_t)given.n, sizeof *names->at) : NULL};
    if (given.n && !names->at) return hd_fail("out of memory");
    for (int i = 0; i < given.n; i++) {
        const char *file;
        int of;
        if (!input_of(p, option, given.at[i], &of, &file)) return false;
        if (of == input) names->at[names->n++] = file;
    }
    return true;
}

static int only_needed(const HdInputs *p) { // the input that names alone are for; -1: there are several
    int only = -1, n = 0;
    for (int i = 0; i < p->n; i++)
        if (p->at[i].next < 0 && !n++) only = i;
    return n == 1 ? only : -1;
}

// Names of files for an input, and those without an input's name where it is the one that needs data.
static bool names_of(const HdInputs *p, const char *option, Names given, int input, Names *names) {
    char needed[NAMES_TEXT];
    Names alone;
    bool ok = hd_feed_names(p, option, given, -1, &alone);
    const int only = only_needed(p);
    if (ok && alone.n && only < 0)
        ok = hd_fail("--%s %s: say which argument of %s it is for, as --%s %s=%s; %s need data", option,
                     alone.at[0], p->function, option, p->at[0].name, alone.at[0], inputs_text(p, true, needed));
    ok = ok && hd_feed_names(p, option, given, input, names);
    if (ok && input == only && alone.n && names->n)
        ok = hd_fail("--%s %s and --%s %s=%s are both for %s: give each file the same form", option, alone.at[0],
                     option, p->at[only].name, names->at[0], p->at[only].name);
    for (int i = 0; ok && input == only && i < alone.n; i++) names->at[names->n++] = alone.at[i];
    free(alone.at);
    return ok;
}

// --- opening

static bool follows(const HdInputs *p, const Names *names, int input) { // it has no data but those of another
    return p->at[input].next >= 0 && !names[input].n;
}

// The value of --format for an input's files without a header.
static bool format_of(const HdInputs *p, Names formats, int input, DataType *format) {
    bool own = false;
    *format = DATA_BY_FILE;
    for (int i = 0; i < formats.n; i++) {
        const char *type;
        int of;
        if (!input_of(p, "format", formats.at[i], &of, &type)) return false;
        if (of == input || (of < 0 && !own)) *format = hd_data_type(type);
        own |= of == input;
    }
    return true;
}

static bool open_source(Feed *f, const HdInputs *p, const char *option, const Names *names, Names formats, int i) {
    FeedSource *s = &f->at[i];
    char shape[120];
    DataType format;
    const HdInput *input = s->input;
    DataUse use = {.input = input, .windows = input->rank == 2 && p->seq && input->dim[1] == p->seq};
    if (follows(p, names, i)) {
        s->of = input->next;
        return true;
    }
    for (int k = 0; k < p->n; k++) use.ahead |= p->at[k].next == i && follows(p, names, k);
    s->of = i;
    if (!names[i].n)
        return hd_fail("--%s %s=FILE is missing: %s of model %s takes %s: %s", option, input->name, p->function,
                       p->model, input->name, shape_text(input, shape, sizeof shape));
    return format_of(p, formats, i, &format) && hd_data_open(&s->data, names[i], format, &use);
}

static bool make_room(FeedSource *s, int64_t batch, int64_t batches) {
    int64_t row = 1;
    for (int i = 1; i < s->input->rank; i++) row *= s->input->dim[i];
    s->row_bytes = (size_t)row * hd_dtypes[s->input->dtype].bytes;
    s->room = calloc((size_t)(batch * batches), s->row_bytes);
    return s->room || hd_fail("out of memory");
}

static bool same_rows(const Feed *f, const char *option) {
    const FeedSource *first = NULL;
    for (int i = 0; i < f->n; i++) {
        const FeedSource *s = &f->at[i];
        if (!s->data.n) continue;
        if (!first) first = s;
        const bool windows = first->data.windows && s->data.windows;
        const int64_t a = windows ? first->data.count : hd_data_rows(&first->data),
                      b = windows ? s->data.count : hd_data_rows(&s->data);
        if (a == b) continue;
        return hd_fail("--%s: %s holds %lld %s of %s and %s %lld of %s: row by row they belong together, so all have "
                       "the same number",
                       option, first->data.name, (long long)a, windows ? "elements" : "rows", first->input->name,
                       s->data.name, (long long)b, s->input->name);
    }
    return true;
}

bool hd_feed_open(Feed *f, const HdInputs *p, const char *option, Names given, Names formats, int64_t batches) {
    *f = (Feed){.batch = p->batch};
    Names *names = calloc((size_t)p->n + 1, sizeof *names);
    f->at = calloc((size_t)p->n + 1, sizeof *f->at);
    bool ok = (names && f->at) || hd_fail("out of memory");
    if (ok) f->n = p->n;
    for (int i = 0; ok && i < f->n; i++) {
        f->at[i].input = &p->at[i];
        ok = names_of(p, option, given, i, &names[i]) && make_room(&f->at[i], p->batch, batches);
    }
    for (int i = 0; ok && i < f->n; i++) ok = open_source(f, p, option, names, formats, i);
    ok = ok && same_rows(f, option);
    const Data *first = ok ? hd_feed_first(f) : NULL;
    if (first) f->rows = hd_data_rows(first);
    for (int i = 0; names && i < p->n; i++) free(names[i].at);
    free(names);
    if (!ok) hd_feed_close(f);
    return ok;
}

void hd_feed_close(Feed *f) {
    for (int i = 0; i < f->n; i++) {
        hd_data_close(&f->at[i].data);
        free(f->at[i].room);
    }
    free(f->at);
    *f = (Feed){0};
}

bool hd_feed_same_kind(const Feed *a, const Feed *b) {
    for (int i = 0; i < a->n && i < b->n; i++)
        if (!hd_data_same_kind(&a->at[i].data, &b->at[i].data)) return false;
    return true;
}

const Data *hd_feed_first(const Feed *f) {
    for (int i = 0; i < f->n; i++)
        if (f->at[i].data.n) return &f->at[i].data;
    return NULL;
}

// --- reading

static uint64_t permute(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t x) { // a permutation of 0..n-1
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t r[4];
            hd_philox(seed, (uint64_t)round << 48 | 0x64617461u, epoch << 32 ^ right, r);
            uint64_t next = (left ^ r[0]) & mask;
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

// The elements one after those that `before` has at this place, of which only the last is still to be read where
// every element that it may have is one of this input, too.
static bool read_next(const FeedSource *s, FeedSource *before, int64_t at, int64_t slot) {
    const int64_t row = before->data.row;
    int32_t *to = (int32_t *)(void *)(s->room + (size_t)slot * s->row_bytes);
    if (s->input->below < before->input->below) return hd_data_read(&before->data, s->input, at + 1, row, to);
    const char *from = before->room + (size_t)slot * before->row_bytes;
    memcpy(to, from + sizeof *to, (size_t)(row - 1) * sizeof *to);
    return hd_data_read(&before->data, s->input, at + row, 1, to + row - 1);
}

bool hd_feed_row(Feed *f, int64_t row, int64_t slot) {
    for (int i = 0; i < f->n; i++) {
        FeedSource *s = &f->at[i], *of = &f->at[s->of];
        const int64_t at = row % f->rows * of->data.step;
        char *to = s->room + (size_t)slot * s->row_bytes;
        const bool own = s->of == i,
                   ok = own ? hd_data_read(&s->data, s->input, at, s->data.row, to) : read_next(s, of, at, slot);
        if (!ok) return false;
    }
    return true;
}

bool hd_feed_batch(Feed *f, uint64_t seed, int64_t first, int64_t m) {
    for (int64_t b = 0; b < f->batch; b++) {
        const int64_t s = first + b;
        const uint64_t row = permute((uint64_t)f->rows, seed, (uint64_t)(s / f->rows), (uint64_t)(s % f->rows));
        if (!hd_feed_row(f, (int64_t)row, m * f->batch + b)) return false;
    }
    return true;
}

size_t hd_feed_bytes(const Feed *f, int input) { return (size_t)f->batch * f->at[input].row_bytes; }

const void *hd_feed_at(const Feed *f, int input, int64_t m) {
    return f->at[input].room + (size_t)m * hd_feed_bytes(f, input);
}
