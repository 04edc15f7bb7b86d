// A folder of results keyed by content: compiled kernels and GEMM choices. Losing it costs time only.
#ifndef RUNTIME_CUDA_CACHE_H
#define RUNTIME_CUDA_CACHE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct { uint64_t word[2]; } HdKey;
typedef struct {
    char dir[768];        // "" when there is no usable folder
    atomic_bool broken;   // a write failed: reported once; the program continues without the cache
    atomic_uint serial;   // makes temporary names unique within the process
} HdCache;

// $HEDDLE_CACHE ("off": none), else $XDG_CACHE_HOME/heddle, else $HOME/.cache/heddle. Warns on stderr when it cannot be
// written, or when another user owns it or may write to it: then nothing is read from it either.
void hd_cache_open(HdCache *c);
bool hd_cache_usable(HdCache *c);
void hd_key_start(HdKey *k);
void hd_key_add(HdKey *k, const void *data, size_t bytes); // the length is hashed, too
// The entry's bytes (to be freed), or NULL: absent, cut short, damaged, or not a regular file that belongs to this user
// and that only this user may write.
void *hd_cache_get(HdCache *c, const char *kind, HdKey key, size_t *bytes);
void hd_cache_put(HdCache *c, const char *kind, HdKey key, const void *data, size_t bytes);
// As put, but the first writer wins: if an intact entry of the same size exists already, `data` becomes that entry.
void hd_cache_settle(HdCache *c, const char *kind, HdKey key, void *data, size_t bytes);
#endif
