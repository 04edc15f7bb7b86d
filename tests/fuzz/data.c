// Any bytes as a data file of every format, for tokens and for rows of numbers: it is refused with a message, or its
// rows can be read, and every integer is in its bound.
#define _GNU_SOURCE // memfd_create
#include "runtime/data/feed.h"
#include "runtime/heddle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 300, LONGEST = 16 };

static void expect(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void read_rows(Feed *d) {
    expect(d->rows >= 1, "an open file has no row");
    for (int64_t i = 0; i < 4; i++) {
        hd_fail("%s", "");
        const bool good = i < 2 ? hd_feed_row(d, i ? d->rows - 1 : 0, 0) : hd_feed_batch(d, 1, i * INT32_MAX, 0);
        expect(good || *hd_failure(), "refused without a message");
        for (int k = 0; good && k < d->n; k++) {
            const int32_t *value = hd_feed_at(d, k, 0);
            const HdInput *input = d->at[k].input;
            const size_t n = input->dtype == HD_I32 ? d->at[k].row_bytes / 4 : 0;
            for (size_t e = 0; e < n; e++)
                expect((value[e] >= 0 && value[e] < VOCAB) || (input->also && value[e] == input->also),
                       "an integer is outside its bound");
        }
    }
}

// A file that holds this, by a name that ends as it is to be called.
static int make(const char *path, const void *data, size_t size) {
    char inside[64];
    const int fd = memfd_create("fuzz", 0);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size, "cannot make the file");
    snprintf(inside, sizeof inside, "/proc/self/fd/%d", fd);
    unlink(path);
    expect(!symlink(inside, path), "cannot name the file");
    return fd;
}

static void try_inputs(const char *path, DataType format, int64_t seq, int n, const HdInput *inputs) {
    const char *names[] = {path}, *formats[] = {hd_data_types[format].name};
    const HdInputs all = {"the loss", "Fuzz", n, inputs, 2, seq};
    Feed d;
    hd_fail("%s", "");
    if (hd_feed_open(&d, &all, "data", (Names){1, names}, (Names){format != DATA_BY_FILE, formats}, 1)) read_rows(&d);
    else expect(*hd_failure() != 0, "a file is refused without a message");
    hd_feed_close(&d);
}

static void try_file(const char *path, DataType format, int64_t seq) {
    const HdInput tokens[] = {{"tokens", HD_I32, 2, {2, seq}, -1, VOCAB, 0},
                              {"targets", HD_I32, 2, {2, seq}, 0, VOCAB, 0}},
                  image = {"image", HD_F32, 3, {2, 2, seq}, -1, 0, 0},
                  label = {"label", HD_I32, 1, {2}, -1, VOCAB, -1};
    try_inputs(path, format, seq, 2, tokens);
    try_inputs(path, format, 0, 1, &image);
    try_inputs(path, format, 0, 1, &label);
}

static char own_folder[] = "/tmp/heddle-fuzz-XXXXXX";

static void remove_folder(void) { rmdir(own_folder); }

static const char *folder(void) { // for this process
    static bool made = false;
    if (!made) expect(mkdtemp(own_folder) && !atexit(remove_folder), "cannot make a folder");
    made = true;
    return own_folder;
}

// Names decide beside content: the same bytes as a file without a name, as a .bin, and as the index of one.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char other[100], bin[100], index[100];
    const int64_t seq = 1 + (int64_t)(size % LONGEST);
    const char body[64] = {1, 2, 3};
    snprintf(other, sizeof other, "%s/a", folder());
    snprintf(bin, sizeof bin, "%s/a.bin", folder());
    snprintf(index, sizeof index, "%s/a.idx", folder());
    const int fd = make(other, data, size), named = make(bin, data, size);
    for (int format = DATA_BY_FILE; format < DATA_KINDS; format++) try_file(other, (DataType)format, seq);
    try_file(bin, DATA_BY_FILE, seq);
    close(named);
    const int whole = make(bin, body, sizeof body), beside = make(index, data, size);
    try_file(bin, DATA_BY_FILE, 1 + seq % 4);
    close(fd);
    close(whole);
    close(beside);
    unlink(index);
    unlink(bin);
    unlink(other);
    return 0;
}
