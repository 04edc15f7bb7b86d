// See array.h.
#include "runtime/sample/array.h"
#include "runtime/checkpoint/aside.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool enough_room(const HdArray *a, int64_t bytes) {
    struct statvfs s;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", a->path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    if (statvfs(slash ? folder : ".", &s)) return true; // writing says what is wrong
    const int64_t room = (int64_t)s.f_bavail * (int64_t)s.f_frsize;
    return bytes <= room || hd_fail("--%s=%s would take %.1f GiB, and %.1f GiB are free there: give less --data, such "
                                    "as its first rows in a file of their own",
                                    a->option, a->path, (double)bytes / 0x1p30, (double)room / 0x1p30);
}

static bool wrong(const HdArray *a) { return hd_fail("cannot write %s: %s", a->path, strerror(errno)); }

enum { HEADER = 512 };
static size_t put_shape(char text[HEADER], size_t n, int64_t rows, const HdTensor *row, const char *one) {
    n += (size_t)snprintf(text + n, HEADER - n, "%lld%s", (long long)rows, row->rank < 2 ? one : "");
    for (int i = 1; i < row->rank; i++) n += (size_t)snprintf(text + n, HEADER - n, ", %lld", (long long)row->dim[i]);
    return n;
}

// A header of numpy is padded with blanks to a multiple of 64 bytes; a shape of one number has a comma behind it.
static bool put_numpy(HdArray *a, int64_t rows, const HdTensor *row) {
    enum { PREFIX = 10, BLOCK = 64 };
    char text[HEADER];
    size_t n = (size_t)snprintf(text, HEADER, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    n = put_shape(text, n, rows, row, ",");
    n += (size_t)snprintf(text + n, HEADER - n, "), }");
    while ((PREFIX + n + 1) % BLOCK) text[n++] = ' ';
    text[n++] = '\n';
    const unsigned char prefix[PREFIX] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n,
                                          (unsigned char)(n >> 8)};
    return fwrite(prefix, 1, PREFIX, a->f) == PREFIX && fwrite(text, 1, n, a->f) == n;
}

static bool put_safetensors(HdArray *a, const char *name, int64_t rows, const HdTensor *row, int64_t bytes) {
    char text[HEADER];
    size_t n = (size_t)snprintf(text, HEADER, "{\"%.200s\":{\"dtype\":\"F32\",\"shape\":[", name);
    n = put_shape(text, n, rows, row, "");
    n += (size_t)snprintf(text + n, HEADER - n, "],\"data_offsets\":[0,%lld]}}", (long long)bytes);
    while (n % 8) text[n++] = ' ';
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(n >> 8 * i);
    return fwrite(length, 1, sizeof length, a->f) == sizeof length && fwrite(text, 1, n, a->f) == n;
}

static bool open_file(HdArray *a) {
    struct stat st;
    const size_t size = strlen(a->path) + HD_ASIDE;
    if (!lstat(a->path, &st) && !S_ISREG(st.st_mode)) { // a device, or a link
        a->f = fopen(a->path, "we");
        return a->f || wrong(a);
    }
    a->aside = malloc(size);
    if (!a->aside) return hd_fail("out of memory: the name of a file");
    const int fd = hd_open_aside(a->path, a->aside, size);
    a->f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!a->f && fd >= 0) close(fd);
    if (!a->f) free(a->aside), a->aside = NULL;
    return a->f != NULL;
}

bool hd_array_create(HdArray *a, const char *option, const char *path, const char *name, int64_t rows,
                     const HdTensor *row) {
    static const char end[] = ".safetensors";
    const size_t n = strlen(path), m = sizeof end - 1;
    *a = (HdArray){.option = option, .path = path, .row = 1};
    for (int i = 1; i < row->rank; i++) a->row *= row->dim[i];
    const int64_t bytes = rows * a->row * (int64_t)sizeof(float);
    if (!enough_room(a, bytes)) return false;
    if (!open_file(a)) return false;
    return (n > m && !strcmp(path + n - m, end) ? put_safetensors(a, name, rows, row, bytes)
                                                : put_numpy(a, rows, row)) || wrong(a);
}

bool hd_array_add(HdArray *a, const float *row) {
    return fwrite(row, sizeof *row, (size_t)a->row, a->f) == (size_t)a->row || wrong(a);
}

bool hd_array_close(HdArray *a, bool complete) {
    bool ok = !a->f || !fclose(a->f) || !complete || wrong(a);
    if (a->aside && complete && ok && rename(a->aside, a->path)) ok = wrong(a);
    if (a->aside && !(complete && ok)) unlink(a->aside);
    free(a->aside);
    *a = (HdArray){0};
    return ok;
}
