// Token files and the order in which sequences are read.
#ifndef RUNTIME_DATA_H
#define RUNTIME_DATA_H
#include "runtime/data_files.h"
#include <stddef.h>
#include <stdint.h>

typedef enum { TOKENS_BY_FILE, TOKENS_BYTES, TOKENS_U16, TOKENS_U32 } TokenFormat; // BY_FILE: as name and header say
extern const char *const hd_token_formats[];

typedef struct {
    const char *path;
    int64_t first, count; // tokens: the number of the first among those of all files
    int64_t bytes, head;  // of the file when it was opened; before its first token
    int width;            // bytes a token: 1, 2 or 4
} DataFile;

enum { HD_DATA_OPEN = 32 }; // files held open at a time
typedef struct {
    int n; // files; 0: nothing was opened
    FileList list;
    DataFile *files;
    int64_t count;        // tokens of all files
    char *name;           // for messages: the file, or the first of several and their number
    unsigned char *bytes; // room for the bytes of a window
    struct { int file, fd; } open[HD_DATA_OPEN]; // a file is in slot (its number mod HD_DATA_OPEN); fd -1: none
} Data;

// Opens the files that `names` mean, whose tokens are numbered in order of the files' names as if they were one file.
// It reads their sizes and headers and nothing else. `seq`+1 tokens must fit into a window, which is at most what all
// files hold.
//   header  1 KiB, little-endian i32: 20240520, 1, count: u16 tokens follow; 20240801, 7, count: u32 tokens follow
//   .bin    raw little-endian u16, or with TOKENS_U32 u32
//   .txt    bytes
// Any other file is refused unless `format` says what it holds. false after hd_fail.
bool hd_data_open(Data *d, Names names, TokenFormat format, int64_t seq);
void hd_data_close(Data *d);
// Sequences first, first+1, ...: `batch` windows of seq+1 tokens. Every epoch visits each window of the data once, in
// its own order (a keyed permutation), so a sequence number is the whole position in the data.
// false after hd_fail: a token is outside the vocabulary, or a file has changed or cannot be read.
bool hd_data_batch(Data *d, int64_t vocab, int64_t batch, int64_t seq, uint64_t seed, int64_t first_sequence,
                   int32_t *tokens, int32_t *targets);
// Window number `index` in the order of the data, wrapping at the end: for validation.
bool hd_data_window(Data *d, int64_t vocab, int64_t seq, int64_t index, int32_t *tokens, int32_t *targets);
int64_t hd_data_windows(const Data *d, int64_t seq);
#endif
