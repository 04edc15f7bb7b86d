// Token files, mapped into memory, and the order in which sequences are read.
#ifndef RUNTIME_DATA_H
#define RUNTIME_DATA_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *path;
    const unsigned char *map, *tokens;
    size_t map_bytes;
    int64_t count; // tokens
    int width;     // bytes a token: 1 or 2
} Data;

// Opens .txt (bytes), .bin (raw little-endian u16, or the 1 KiB-header layout with magic 20240520). `seq`+1 tokens must
// fit.
bool hd_data_open(Data *d, const char *path, int64_t seq); // false after hd_fail
void hd_data_close(Data *d);
// Sequences first, first+1, ...: `batch` windows of seq+1 tokens. Every epoch visits each window of the file once, in
// its own order (a keyed permutation), so a sequence number is the whole position in the data.
bool hd_data_batch(const Data *d, int64_t vocab, int64_t batch, int64_t seq, uint64_t seed, int64_t first_sequence,
                   int32_t *tokens, int32_t *targets);
// Window number `index` in file order, wrapping at the end: for validation.
bool hd_data_window(const Data *d, int64_t vocab, int64_t seq, int64_t index, int32_t *tokens, int32_t *targets);
int64_t hd_data_windows(const Data *d, int64_t seq);
#endif
