// Data files and the elements in them. Files are read with pread, so that one which becomes shorter meanwhile is an
// error of that read and no fault of a mapping.
#include "runtime/data/data.h"
#include "runtime/dtypes.h"
#include "runtime/heddle.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_file(const char *path, struct stat *st) { // -1 after hd_fail
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); // must not wait for a pipe, which is refused below
    if (fd < 0 || fstat(fd, st)) hd_fail("cannot read %s: %s", path, strerror(errno));
    else if (S_ISDIR(st->st_mode))
        hd_fail("%s is a folder in a folder, not a plain file: name the inner folder itself", path);
    else if (!S_ISREG(st->st_mode)) hd_fail("%s is not a plain file: tokens are read from anywhere in it", path);
    else return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static bool layout_of(const char *path, int fd, int64_t bytes, DataType format, const DataUse *use, DataLayout *t) {
    DataSource s = {.path = path, .fd = fd, .bytes = bytes, .asked = format, .use = use};
    s.read = hd_format_bytes(fd, s.head, HD_HEAD_BYTES, 0);
    return s.read < 0 ? hd_fail("cannot read %s: %s", path, strerror(errno)) : hd_format_layout(&s, t);
}

// Text and numbers of more than a byte are different data. An array of u8 may be either.
static bool one_kind(const char *text, const char *numbers) {
    return !text || !numbers ||
           hd_fail("%s holds bytes and %s tokens: one of them is not meant", text, numbers);
}

// --- whether a file can fill an input

static bool fits_type(const HdInput *as, const char *path, const DataTypeInfo *type) {
    if (as->dtype == HD_I32 && type->floats)
        return hd_fail("%s holds %s, and %s is i32; in Python: np.save('%s.npy', array.astype(np.uint32))", path,
                       type->name, as->name, as->name);
    return as->dtype != HD_F32 || type != &hd_data_types[DATA_BYTES] ||
           hd_fail("%s is text, and %s is f32: numbers are a .npy file, or raw with --format=u8, f32, ...", path,
                   as->name);
}

static bool same_shape(const HdInput *as, const DataLayout *t) { // of a row; dimensions of 1 count for nothing
    int a = 1, b = 1;
    for (;; a++, b++) {
        while (a < as->rank && as->dim[a] == 1) a++;
        while (b < t->rank && t->dim[b] == 1) b++;
        if (a >= as->rank || b >= t->rank) return a >= as->rank && b >= t->rank;
        if (as->dim[a] != t->dim[b]) return false;
    }
}

static const char *dims(const int64_t *dim, int rank, char *out, size_t size) { // as Python prints a shape
    size_t n = (size_t)snprintf(out, size, "(");
    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (n < size) snprintf(out + n, size - n, rank == 1 ? ",)" : ")");
    return out;
}

static bool bad_shape(const Data *d, const char *path, const DataLayout *t) { // false
    const HdInput *as = d->use.input;
    char is[160], wanted[160];
    dims(t->dim, t->rank, is, sizeof is);
    dims(as->dim + 1, as->rank - 1, wanted, sizeof wanted);
    if (d->use.windows)
        return hd_fail("%s: an array of the shape %s; for %s it has one dimension, as array.reshape(-1) has, or rows "
                       "of %lld elements%s",
                       path, is, as->name, (long long)d->row, d->use.ahead ? " and the one after them" : "");
    return hd_fail("%s: an array of the shape %s; for %s its first dimension counts rows, and a row has %lld "
                   "element%s%s%s",
                   path, is, as->name, (long long)d->row, d->row > 1 ? "s" : "",
                   as->rank > 2 ? ", of the shape " : "", as->rank > 2 ? wanted : "");
}

// Where the rows of a file are: `step` elements from one to the next. An array of one dimension, or a file without a
// shape, is one sequence, which is cut into windows where the input takes these.
static bool fits_shape(const Data *d, const char *path, const DataLayout *t, bool *windows, int64_t *step) {
    int64_t held = 1;
    *windows = d->use.windows && t->rank <= 1;
    *step = d->row;
    if (*windows) return true;
    if (!t->rank)
        return t->count % d->row == 0 || hd_fail("%s: %lld elements are not a whole number of rows of %lld, as %s has",
                                                 path, (long long)t->count, (long long)d->row, d->use.input->name);
    for (int i = 1; i < t->rank; i++) {
        if (t->dim[i] && held > INT64_MAX / t->dim[i]) return bad_shape(d, path, t);
        held *= t->dim[i];
    }
    const bool with_next = d->use.ahead && held == d->row + 1 && t->rank == 2, flat = d->use.input->rank == 2;
    if (held == d->row && d->use.ahead)
        return hd_fail("%s: rows of %lld elements, and the argument after %s has the elements one further on: rows of "
                       "%lld, or data of its own for that argument",
                       path, (long long)held, d->use.input->name, (long long)d->row + 1);
    if (!with_next && (held != d->row || !(flat || same_shape(d->use.input, t)))) return bad_shape(d, path, t);
    *step = held;
    return true;
}

static bool fits(Data *d, const char *path, const DataLayout *t) {
    bool windows;
    int64_t step;
    if (!fits_type(d->use.input, path, &hd_data_types[t->type])) return false;
    if (!fits_shape(d, path, t, &windows, &step)) return false;
    if (d->n && (windows != d->windows || step != d->step))
        return hd_fail("%s and %s are cut into rows in different ways: they cannot be one set of data", d->list.at[0],
                       path);
    d->windows = windows;
    d->step = step;
    return true;
}

static bool add_file(Data *d, const char *path, DataType format) {
    DataFile *f = &d->files[d->n];
    struct stat st;
    DataLayout t = {0};
    const int fd = open_file(path, &st);
    if (fd < 0) return false;
    const bool ok = layout_of(path, fd, st.st_size, format, &d->use, &t);
    close(fd);
    if (!ok || !fits(d, path, &t)) return false;
    *f = (DataFile){.path = path, .first = d->count, .count = t.count, .bytes = st.st_size, .head = t.head,
                    .type = &hd_data_types[t.type]};
    if (t.type == DATA_BYTES && !d->text) d->text = path;
    if (f->type->width > 1 && !d->numbers) d->numbers = path;
    if (!one_kind(d->text, d->numbers)) return false;
    if (!f->count && d->list.n > 1) return hd_fail("%s holds no %s", path, hd_use_tokens(&d->use) ? "tokens" : "rows");
    d->count += f->count;
    d->documents += t.documents;
    d->n++;
    return true;
}

bool hd_data_same_kind(const Data *a, const Data *b) {
    return one_kind(a->text, b->numbers) && one_kind(b->text, a->numbers);
}

static bool name_data(Data *d) {
    const size_t room = strlen(d->list.at[0]) + 40;
    d->name = malloc(room);
    if (!d->name) return hd_fail("out of memory");
    if (d->n == 1) snprintf(d->name, room, "%s", d->list.at[0]);
    else snprintf(d->name, room, "%s and %d more file%s", d->list.at[0], d->n - 1, d->n > 2 ? "s" : "");
    return true;
}

static bool enough(const Data *d) {
    if (hd_data_rows(d) > 0) return true;
    if (!d->windows) return hd_fail("%s holds no row of %s", d->name, d->use.input->name);
    return hd_fail("%s holds %lld tokens; one sequence of %lld needs %lld", d->name, (long long)d->count,
                   (long long)d->row, (long long)d->row + d->use.ahead);
}

int64_t hd_data_rows(const Data *d) {
    const int64_t count = d->windows ? d->count - d->use.ahead : d->count;
    return count > 0 ? count / d->step : 0;
}

bool hd_data_open(Data *d, Names names, DataType format, const DataUse *use) {
    *d = (Data){.use = *use, .row = 1};
    for (int i = 1; i < use->input->rank; i++) d->row *= use->input->dim[i];
    for (int i = 0; i < HD_DATA_OPEN; i++) d->open[i].fd = -1;
    bool ok = hd_files_expand(&d->list, names);
    if (ok) {
        d->files = calloc((size_t)d->list.n, sizeof *d->files);
        d->bytes = malloc((size_t)d->row * sizeof(int64_t));
        ok = (d->files && d->bytes) || hd_fail("out of memory");
    }
    for (int i = 0; ok && i < d->list.n; i++) ok = add_file(d, d->list.at[i], format);
    ok = ok && name_data(d) && enough(d);
    if (!ok) hd_data_close(d);
    return ok;
}

void hd_data_close(Data *d) {
    for (int i = 0; d->n && i < HD_DATA_OPEN; i++)
        if (d->open[i].fd >= 0) close(d->open[i].fd);
    hd_files_free(&d->list);
    free(d->files);
    free(d->bytes);
    free(d->name);
    *d = (Data){0};
}

// --- reading

static int held_open(Data *d, int file) { // a descriptor; -1 after hd_fail
    int *fd = &d->open[file % HD_DATA_OPEN].fd, *held = &d->open[file % HD_DATA_OPEN].file;
    struct stat st;
    if (*fd >= 0 && *held == file) return *fd;
    if (*fd >= 0) close(*fd);
    *fd = open_file(d->files[file].path, &st);
    *held = file;
    return *fd;
}

static int file_of(const Data *d, int64_t element) {
    int low = 0, high = d->n; // the file is in [low, high)
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (d->files[middle].first <= element) low = middle;
        else high = middle;
    }
    return low;
}

static bool read_file(Data *d, int file, int64_t at, int64_t n) { // elements at.. of the file into d->bytes
    const DataFile *f = &d->files[file];
    const int64_t begin = f->head + at * f->type->width, bytes = n * f->type->width;
    const int fd = held_open(d, file);
    struct stat st = {0};
    if (fd < 0) return false;
    const int64_t got = hd_format_bytes(fd, d->bytes, bytes, begin);
    if (got == bytes) return true;
    if (got < 0 || fstat(fd, &st)) return hd_fail("cannot read %s: %s", f->path, strerror(errno));
    return hd_fail("%s became shorter while it was in use: it had %lld bytes and now has %lld", f->path,
                   (long long)f->bytes, (long long)st.st_size);
}

static int64_t integer(const DataTypeInfo *type, const unsigned char *bytes, int64_t i) {
    const uint64_t word = hd_format_word(bytes + i * type->width, type->width);
    const int unused = 64 - 8 * type->width;
    return type->is_signed ? (int64_t)(word << unused) >> unused : (int64_t)word;
}

static bool outside(const DataFile *f, const DataUse *use, const HdInput *as, int64_t value, int64_t at) { // false
    char also[60] = "";
    if (as->also) snprintf(also, sizeof also, ", or %lld, which is ignored", (long long)as->also);
    const bool bytes = !f->head && f->type->width == 2 && value > 255 && as->below <= 256; // a file without a header
    if (hd_use_tokens(use))
        return hd_fail("%s: token %lld at position %lld is outside the vocabulary of %lld%s%s", f->path,
                       (long long)value, (long long)at, (long long)as->below, also,
                       bytes ? "; --format=u8 reads it as bytes instead of u16" : "");
    return hd_fail("%s: element %lld is %lld, and %s is from 0 to %lld%s", f->path, (long long)at, (long long)value,
                   as->name, (long long)as->below - 1, also);
}

static bool to_integers(const Data *d, const DataFile *f, const HdInput *as, int64_t at, int64_t n, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = integer(f->type, d->bytes, i);
        const bool fits = (uint64_t)v < (uint64_t)as->below || (as->also && v == as->also);
        if (!fits) return outside(f, &d->use, as, v, at + i);
        out[i] = (int32_t)v;
    }
    return true;
}

static bool to_floats(const Data *d, const DataFile *f, const HdInput *as, int64_t at, int64_t n, float *out) {
    const int64_t exact = 1 << 24; // integers up to it are floats
    if (f->type->floats) {
        hd_load_f32(f->type->as, d->bytes, 0, n, out);
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = integer(f->type, d->bytes, i);
        if (v > exact || v < -exact)
            return hd_fail("%s: element %lld is %lld, which %s as f32 cannot hold exactly; in Python: "
                           "array.astype(np.float32)",
                           f->path, (long long)(at + i), (long long)v, as->name);
        out[i] = (float)v;
    }
    return true;
}

bool hd_data_read(Data *d, const HdInput *as, int64_t at, int64_t n, void *out) { // which may cross files
    char *to = out;
    while (n > 0) {
        const int file = file_of(d, at);
        const DataFile *f = &d->files[file];
        const int64_t here = at - f->first, left = f->count - here, k = left < n ? left : n;
        if (!read_file(d, file, here, k)) return false;
        if (!(as->dtype == HD_I32 ? to_integers(d, f, as, here, k, (int32_t *)(void *)to)
                                  : to_floats(d, f, as, here, k, (float *)(void *)to)))
            return false;
        at += k;
        to += k * (int64_t)sizeof(int32_t);
        n -= k;
    }
    return true;
}
