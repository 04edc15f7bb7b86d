// Packing of a table of values, in the layout of the MiniMalloc benchmarks. See pack.h.
#include "ir/base/out.h"
#include "ir/base/vec.h"
#include "passes/pack/pack.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ID, LOWER, UPPER, SIZE, N_COLUMNS };
static const char *const columns[N_COLUMNS] = {"id", "lower", "upper", "size"};
typedef struct { const char *at; int n; } Field;
typedef struct { Field field[32]; int n; } Line;
static const int64_t EARLY_WORK = 256 * 1000 * 1000; // steps; with a capacity, packings often have no slack
static const int64_t MOST = INT64_C(1) << 60; // a sum of sizes must not overflow

// Splits one line at commas; returns what follows it, or NULL when it has too many fields.
static const char *read_line(const char *s, Line *line) {
    line->n = 0;
    for (;;) {
        int n = (int)strcspn(s, ",\r\n");
        if (line->n == 32) return NULL;
        line->field[line->n++] = (Field){s, n};
        s += n;
        if (*s != ',') break;
        s++;
    }
    if (*s == '\r') s++;
    return *s == '\n' ? s + 1 : s;
}

static bool read_number(Field f, int64_t *v) {
    char text[32], *end;
    if (f.n == 0 || f.n >= (int)sizeof text) return false;
    memcpy(text, f.at, (size_t)f.n);
    text[f.n] = 0;
    errno = 0;
    *v = strtoll(text, &end, 10);
    return !*end && !errno;
}

static const char *read_header(Arena *a, const Line *line, int *column) {
    for (int k = 0; k < N_COLUMNS; k++) {
        column[k] = -1;
        for (int i = 0; i < line->n; i++)
            if (strncmp(line->field[i].at, columns[k], (size_t)line->field[i].n) == 0 && !columns[k][line->field[i].n])
                column[k] = i;
        if (column[k] < 0)
            return hd_sprintf(a, "the first line names no column '%s'; it must have id, lower, upper and size",
                              columns[k]);
    }
    return NULL;
}

const char *hd_pack_csv(Arena *a, const char *text, int64_t capacity, double seconds, Out *out, int64_t *height,
                        int64_t *bound) {
    VEC(Interval) values = {0};
    VEC(Field) ids = {0};
    int column[N_COLUMNS], number = 1;
    int64_t sum = 0;
    Line line;
    const char *s = read_line(text, &line),
               *wrong = s ? read_header(a, &line, column) : "line 1 has more than 32 fields";
    while (!wrong && *s) {
        number++;
        s = read_line(s, &line);
        if (!s) return hd_sprintf(a, "line %d has more than 32 fields", number);
        if (line.n == 1 && line.field[0].n == 0) continue;
        int64_t v[N_COLUMNS] = {0};
        for (int k = 0; k < N_COLUMNS; k++) {
            if (column[k] >= line.n) return hd_sprintf(a, "line %d has no field for column '%s'", number, columns[k]);
            if (k != ID && !read_number(line.field[column[k]], &v[k]))
                return hd_sprintf(a, "line %d: %s is no number: '%.*s'", number, columns[k], line.field[column[k]].n,
                                  line.field[column[k]].at);
        }
        if (v[LOWER] > v[UPPER])
            return hd_sprintf(a, "line %d: a life from %lld to %lld", number, (long long)v[LOWER], (long long)v[UPPER]);
        if (v[SIZE] < 0 || v[SIZE] > MOST || (sum += v[SIZE]) > MOST)
            return hd_sprintf(a, "line %d: size %lld; the sizes may sum up to %lld", number, (long long)v[SIZE],
                              (long long)MOST);
        Interval x = {v[LOWER], v[UPPER], v[SIZE], 1};
        hd_push(a, &values, x);
        hd_push(a, &ids, line.field[column[ID]]);
    }
    if (wrong) return wrong;
    int64_t *offset = HD_NEWN(a, int64_t, values.n + 1);
    PackRoom room = {.capacity = capacity, .early = capacity ? EARLY_WORK : 0};
    bool fits = hd_pack_into(values.n, 0, values.at, offset, &room) == 0;
    if (!fits) hd_pack_search(values.n, values.at, offset, capacity, INT64_MAX, seconds);
    if (height) *height = hd_pack_height(values.n, values.at, offset);
    if (bound) *bound = hd_pack_lower_bound(values.n, values.at);
    hd_puts(out, "id,lower,upper,size,offset\n");
    for (int i = 0; i < values.n; i++) {
        const Interval *x = &values.at[i];
        hd_printf(out, "%.*s,%lld,%lld,%lld,%lld\n", ids.at[i].n, ids.at[i].at, (long long)x->lower,
                  (long long)x->upper, (long long)x->size, (long long)offset[i]);
    }
    return NULL;
}
