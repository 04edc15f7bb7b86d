// See array.h.
#include "runtime/sample/array.h"
#include "runtime/data/format.h"
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

static bool enough_room(const char *option, const char *path, int64_t bytes) {
    struct statvfs s;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    if (statvfs(slash ? folder : ".", &s)) return true; // writing says what is wrong
    const int64_t room = (int64_t)s.f_bavail * (int64_t)s.f_frsize;
    return bytes <= room || hd_fail("--%s=%s would take %.1f GiB, and %.1f GiB are free there: give less --data, such "
                                    "as its first rows in a file of their own",
                                    option, path, (double)bytes / 0x1p30, (double)room / 0x1p30);
}

// A header of numpy is padded with blanks to a multiple of 64 bytes; a shape of one number has a comma behind it.
static void put_numpy(StWriter *w, int rank, const int64_t *dim) {
    enum { PREFIX = 10, BLOCK = 64, HEADER = 512 };
    char text[HEADER];
    size_t n = (size_t)snprintf(text, HEADER, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld%s",
                                (long long)dim[0], rank < 2 ? "," : "");
    for (int i = 1; i < rank; i++) n += (size_t)snprintf(text + n, HEADER - n, ", %lld", (long long)dim[i]);
    n += (size_t)snprintf(text + n, HEADER - n, "), }");
    while ((PREFIX + n + 1) % BLOCK) text[n++] = ' ';
    text[n++] = '\n';
    const unsigned char prefix[PREFIX] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n,
                                          (unsigned char)(n >> 8)};
    hd_st_put(w, prefix, PREFIX);
    hd_st_put(w, text, n);
}

bool hd_array_create(HdArray *a, const char *option, const char *path, const char *name, int64_t rows,
                     const HdTensor *row) {
    int64_t dim[sizeof row->dim / sizeof *row->dim] = {rows};
    const int rank = row->rank ? row->rank : 1;
    *a = (HdArray){.row = 1};
    for (int i = 1; i < rank; i++) a->row *= dim[i] = row->dim[i];
    if (!enough_room(option, path, rows * a->row * (int64_t)sizeof(float))) return false;
    a->open = hd_st_create(&a->w, path, false);
    if (!a->open) return false;
    if (hd_format_ends(path, ".safetensors")) {
        hd_st_declare(&a->w, name, rank, dim);
        hd_st_begin(&a->w, 0, NULL);
    } else {
        put_numpy(&a->w, rank, dim);
    }
    return !a->w.failed;
}

bool hd_array_add(HdArray *a, const float *row) {
    hd_st_put(&a->w, row, (size_t)a->row * sizeof *row);
    return !a->w.failed;
}

bool hd_array_close(HdArray *a, bool complete) {
    if (!a->open) return true;
    if (!complete) a->w.failed = true;
    a->open = false;
    return hd_st_finish(&a->w) || !complete;
}
