// Any bytes as a token file of every format: it is refused with a message, or its windows can be read, and every token
// is in the vocabulary.
#define _GNU_SOURCE // memfd_create
#include "runtime/data.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    const char *names[] = {path};
    const int fd = memfd_create("fuzz", 0);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size, "cannot make the file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int format = TOKENS_BY_FILE; format <= TOKENS_U32; format++) {
        const int64_t seq = 1 + (int64_t)(size % LONGEST);
        Data d;
        memset(&d, 0, sizeof d);
        hd_fail("%s", "");
        if (hd_data_open(&d, (Names){1, names}, (TokenFormat)format, seq)) read_windows(&d, seq);
        else expect(*hd_failure() != 0, "a file is refused without a message");
        hd_data_close(&d);
    }
    close(fd);
    return 0;
}
