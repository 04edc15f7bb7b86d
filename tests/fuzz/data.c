// Any bytes as a token file of every format: it is refused with a message, or its windows can be read, and every token
// is in the vocabulary.
#define _GNU_SOURCE // memfd_create
#include "runtime/data/data.h"
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

static void read_windows(Data *d, int64_t seq) {
    int32_t tokens[2 * LONGEST], targets[2 * LONGEST];
    const int64_t n = hd_data_windows(d, seq);
    expect(n >= 1, "an open file has no window");
    for (int64_t i = 0; i < 4; i++) {
        hd_fail("%s", "");
        const bool good = i < 2 ? hd_data_window(d, VOCAB, seq, i ? n - 1 : 0, tokens, targets)
                                : hd_data_batch(d, VOCAB, 2, seq, 1, i * INT32_MAX, tokens, targets);
        expect(good || *hd_failure(), "refused without a message");
        for (int64_t k = 0; good && k < (i < 2 ? 1 : 2) * seq; k++)
            expect(tokens[k] >= 0 && tokens[k] < VOCAB && targets[k] >= 0 && targets[k] < VOCAB,
                   "a token is outside the vocabulary");
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

static void try_file(const char *path, TokenFormat format, int64_t seq) {
    const char *names[] = {path};
    Data d;
    memset(&d, 0, sizeof d);
    hd_fail("%s", "");
    if (hd_data_open(&d, (Names){1, names}, format, seq)) read_windows(&d, seq);
    else expect(*hd_failure() != 0, "a file is refused without a message");
    hd_data_close(&d);
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
    for (int format = TOKENS_BY_FILE; format <= TOKENS_I64; format++) try_file(other, (TokenFormat)format, seq);
    try_file(bin, TOKENS_BY_FILE, seq);
    close(named);
    const int whole = make(bin, body, sizeof body), beside = make(index, data, size);
    try_file(bin, TOKENS_BY_FILE, 1 + seq % 4);
    close(fd);
    close(whole);
    close(beside);
    unlink(index);
    unlink(bin);
    unlink(other);
    return 0;
}
