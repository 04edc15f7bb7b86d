// Token files and the order in which sequences are read.
#ifndef RUNTIME_DATA_DATA_H
#define RUNTIME_DATA_DATA_H
#include "runtime/data/files.h"
#include "runtime/data/format.h"
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *path;
    int64_t first, count; // tokens: the number of the first among those of all files
    int64_t bytes, head;  // of the file when it was opened; before its first token
    const TokenType *type;
} DataFile;

enum { HD_DATA_OPEN = 32 }; // files held open at a time
typedef struct {
    int n; // files; 0: nothing was opened
    FileList list;
    DataFile *files;
    int64_t count;        // tokens of all files
    int64_t documents;    // of the files whose index counts them
    const char *text, *numbers; // the first file of bytes, of tokens that are wider than a byte; NULL: none
    char *name;           // for messages: the file, or the first of several and their number
    unsigned char *bytes; // room for the bytes of a window
    struct { int file, fd; } open[HD_DATA_OPEN]; // a file is in slot (its number mod HD_DATA_OPEN); fd -1: none
} Data;

// Opens the files that `names` mean, whose tokens are numbered in order of the files' names as if they were one file.
// It reads their sizes and headers and nothing else. `seq`+1 tokens must fit into a window, which is at most what all
// files hold.
// What a file holds follows from its content (format.h), for raw files also from the name and `format`. All files hold
// bytes, or all hold tokens. false after hd_fail.
bool hd_data_open(Data *d, Names names, TokenFormat format, int64_t seq);
void hd_data_close(Data *d);
bool hd_data_same_kind(const Data *a, const Data *b); // false after hd_fail: bytes in one, tokens in the other
// Sequences first, first+1, ...: `batch` windows of seq+1 tokens. Every epoch visits each window of the data once, in
// its own order (a keyed permutation), so a sequence number is the whole position in the data.
// false after hd_fail: a token is outside the vocabulary, or a file has changed or cannot be read.
bool hd_data_batch(Data *d, int64_t vocab, int64_t batch, int64_t seq, uint64_t seed, int64_t first_sequence,
                   int32_t *tokens, int32_t *targets);
// Window number `index` in the order of the data, wrapping at the end: for validation.
bool hd_data_window(Data *d, int64_t vocab, int64_t seq, int64_t index, int32_t *tokens, int32_t *targets);
int64_t hd_data_windows(const Data *d, int64_t seq);
#endif
