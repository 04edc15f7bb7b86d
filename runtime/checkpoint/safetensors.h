// safetensors files: an 8-byte little-endian header length, a JSON header {"name": {"dtype", "shape", "data_offsets"},
// ..., "__metadata__": {"key": "value"}}, then the data. Reading maps the file; writing streams it.
#ifndef RUNTIME_CHECKPOINT_SAFETENSORS_H
#define RUNTIME_CHECKPOINT_SAFETENSORS_H
#include "runtime/heddle.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *name, dtype[8];
    int rank;
    int64_t dim[8];
    int64_t begin, end;
} StTensor; // offsets into the data
typedef struct { char *key, *value; } StMeta;
typedef struct {
    const char *path;
    const unsigned char *map, *data;
    size_t map_bytes, data_bytes;
    int n, n_meta;
    StTensor *tensors;
    StMeta *meta;
} StFile;

bool hd_st_open(StFile *f, const char *path); // false after hd_fail: unreadable, torn or malformed
void hd_st_close(StFile *f);
const StTensor *hd_st_find(const StFile *f, const char *name);
const char *hd_st_meta(const StFile *f, const char *key); // NULL: absent
// Element i.. of an F32, BF16 or F16 tensor as f32. false: another dtype.
bool hd_st_floats(const StFile *f, const StTensor *t, int64_t first, int64_t count, float *out);

// Writing: declare all tensors and metadata, then pass the data in the same order. With a checksum, a last tensor
// "__checksum__" of 16 bytes holds XXH3-128 of everything before its data, the header included; exported files have
// none.
typedef struct {
    int fd;
    char *header, *path, *temporary; // temporary NULL: the file is written in place
    size_t header_bytes, header_room;
    int64_t at, written; // written: bytes of the file so far
    bool first, failed, checksum;
    void *hash;
    unsigned char digest[16]; // the checksum; with `written` it stays after hd_st_finish
} StWriter;
bool hd_st_create(StWriter *w, const char *path, bool checksum);
void hd_st_declare(StWriter *w, const char *name, int rank, const int64_t *dim); // F32
void hd_st_declare_as(StWriter *w, const char *name, HdDtype dtype, int rank, const int64_t *dim);
void hd_st_begin(StWriter *w, int n_meta, const StMeta *meta);
void hd_st_put(StWriter *w, const void *data, size_t bytes);
// Syncs and renames to the final name. On any failure it removes the temporary file and leaves an older file as it was.
bool hd_st_finish(StWriter *w);
bool hd_st_checksum_ok(const StFile *f); // false also when there is none
#endif
