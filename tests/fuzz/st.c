// Any bytes as a safetensors file: it is refused with a message, or every tensor lies in the file, has a name that
// finds it, and its values can be read, as can the metadata and the checksum.
#define _GNU_SOURCE // memfd_create
#include "runtime/heddle.h"
#include "runtime/checkpoint/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void read_values(const StFile *f, const StTensor *t) {
    int64_t count = 1;
    float v[64];
    if (!hd_st_floats(f, t, 0, 0, v)) return; // a dtype of which nothing is known, or that is not read
    for (int i = 0; i < t->rank; i++) count *= t->dim[i];
    if (count > 64) hd_st_floats(f, t, count - 64, 64, v); // the end of the tensor
    hd_st_floats(f, t, 0, count < 64 ? count : 64, v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("fuzz", 0);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size, "cannot make the file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    StFile f;
    hd_fail("%s", "");
    if (hd_st_open(&f, path)) {
        for (int i = 0; i < f.n; i++) {
            const StTensor *t = &f.tensors[i];
            expect(t->begin >= 0 && t->begin <= t->end && (size_t)t->end <= f.data_bytes,
                   "a tensor lies outside the file");
            expect(hd_st_find(&f, t->name) != NULL, "a tensor is not found by its name");
            read_values(&f, t);
        }
        for (int i = 0; i < f.n_meta; i++)
            expect(hd_st_meta(&f, f.meta[i].key) != NULL, "metadata is not found by its key");
        hd_st_checksum_ok(&f);
        hd_st_close(&f);
    } else {
        expect(*hd_failure() != 0, "a file is refused without a message");
        expect(!f.map && !f.tensors && !f.meta, "a refused file keeps memory");
    }
    close(fd);
    return 0;
}
