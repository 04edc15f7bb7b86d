// Boxes of a parameter's indices (boxes.h).
#include "runtime/checkpoint/boxes.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t hd_box_count(const HdBox *b) {
    int64_t n = 1;
    for (int i = 0; i < b->rank; i++) n *= b->extent[i];
    return n;
}

static int64_t step_of(const HdParam *q, int dim) { // elements from one index to the next
    int64_t n = 1;
    for (int i = dim + 1; i < q->rank; i++) n *= q->dim[i];
    return n;
}

// As many elements from `at` on as one box can hold: indices of the outermost dimension that has a whole one there.
static HdBox box_at(const HdParam *q, int64_t at, int64_t left) {
    HdBox b = {.rank = q->rank};
    int cut = 0;
    while (cut < q->rank - 1 && (at % step_of(q, cut) || left < step_of(q, cut))) cut++;
    for (int i = 0; i < q->rank; i++) {
        const int64_t step = step_of(q, i), index = at / step % q->dim[i], rest = q->dim[i] - index;
        b.start[i] = index;
        b.extent[i] = i < cut ? 1 : i > cut ? q->dim[i] : left / step < rest ? left / step : rest;
    }
    return b;
}

int hd_span_boxes(const HdParam *q, HdSpan s, HdBox out[HD_MOST_BOXES]) {
    int n = 0;
    for (int64_t at = s.first, end = s.first + s.count; at < end && n < HD_MOST_BOXES; at += hd_box_count(&out[n++]))
        out[n] = box_at(q, at, end - at);
    return n;
}

// The outermost dimension of which a run has several indices: all further ones are whole. -1: of a scalar.
static int run_dim(const HdBox *b, const HdParam *q) {
    int k = b->rank - 1;
    while (k > 0 && !b->start[k] && b->extent[k] == q->dim[k]) k--;
    return k;
}

static HdRun run_number(const HdBox *b, const HdParam *q, int64_t number) {
    const int k = run_dim(b, q);
    HdRun run = {.count = k < 0 ? 1 : b->extent[k] * step_of(q, k)};
    run.at = number * run.count;
    for (int i = k; i >= 0; i--) {
        const int64_t index = i == k ? 0 : number % b->extent[i];
        run.first += (b->start[i] + index) * step_of(q, i);
        if (i < k) number /= b->extent[i];
    }
    return run;
}

bool hd_box_run(const HdBox *b, const HdParam *q, int64_t from, HdRun *run) {
    int64_t runs = 1;
    for (int i = 0; i < run_dim(b, q); i++) runs *= b->extent[i];
    int64_t lo = 0, hi = hd_box_count(b) ? runs : 0; // runs are in the order of their elements
    while (lo < hi) {
        const int64_t middle = lo + (hi - lo) / 2;
        const HdRun r = run_number(b, q, middle);
        if (r.first + r.count > from) hi = middle;
        else lo = middle + 1;
    }
    if (lo == runs || !hd_box_count(b)) return false;
    *run = run_number(b, q, lo);
    const int64_t before = from > run->first ? from - run->first : 0;
    *run = (HdRun){run->first + before, run->count - before, run->at + before};
    return true;
}

bool hd_box_is(const HdBox *b, const StTensor *t) {
    bool is = b->rank == t->rank;
    for (int i = 0; is && i < b->rank; i++) is = b->extent[i] == t->dim[i];
    return is;
}

bool hd_box_inside(const HdBox *b, const HdParam *q) {
    if (b->rank != q->rank) return false;
    for (int i = 0; i < b->rank; i++)
        if (b->extent[i] < 1 || b->start[i] > q->dim[i] - b->extent[i]) return false;
    return true;
}

// --- several boxes

static int64_t element(const HdBox *b, const HdParam *q, bool last) { // its first one, or its last one
    int64_t at = 0;
    for (int i = 0; i < b->rank; i++) at += (b->start[i] + (last ? b->extent[i] - 1 : 0)) * step_of(q, i);
    return at;
}

static bool meet(const HdBox *a, const HdBox *b) {
    for (int i = 0; i < a->rank; i++)
        if (a->start[i] >= b->start[i] + b->extent[i] || b->start[i] >= a->start[i] + a->extent[i]) return false;
    return true;
}

bool hd_boxes_apart(const HdBox *const *b, int n, const HdParam *q) {
    int64_t last = -1; // of those before; one that begins behind it meets none of them
    for (int i = 0; i < n; i++) {
        for (int k = 0; element(b[i], q, false) <= last && k < i; k++)
            if (meet(b[i], b[k])) return false;
        const int64_t end = element(b[i], q, true);
        if (end > last) last = end;
    }
    return true;
}

// --- text

static size_t put_list(char *out, size_t size, int n, const int64_t *v) {
    hd_shape_text(out, size, n, v);
    return strlen(out);
}

void hd_box_name(char *out, size_t size, const char *param, const HdBox *b) {
    const int n = snprintf(out, size, "%s", param);
    if (n >= 0 && (size_t)n < size) put_list(out + n, size - (size_t)n, b->rank, b->start);
}

void hd_box_text(char *out, size_t size, const HdBox *b) {
    size_t n = put_list(out, size, b->rank, b->start);
    n += (size_t)snprintf(out + n, size - n, "+");
    if (n < size) put_list(out + n, size - n, b->rank, b->extent);
}

static bool take(const char **text, char c) { return **text == c && (*text)++; }

static bool parse_list(const char **text, int *n, int64_t v[HD_MOST_DIMS]) {
    if (!take(text, '[')) return false;
    for (*n = 0; **text != ']'; (*n)++) {
        char *end;
        if (*n == HD_MOST_DIMS || (*n && !take(text, ',')) || **text < '0' || **text > '9') return false;
        errno = 0;
        v[*n] = strtoll(*text, &end, 10);
        if (errno || v[*n] > INT64_MAX / 8) return false;
        *text = end;
    }
    return take(text, ']');
}

bool hd_box_parse(const char **text, HdBox *b) {
    int n;
    *b = (HdBox){0};
    if (!parse_list(text, &b->rank, b->start) || !take(text, '+') || !parse_list(text, &n, b->extent)) return false;
    return n == b->rank && (!**text || take(text, ' '));
}
