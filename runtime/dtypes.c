// The element types as a table and as conversions, one row of dtypes.def each. Values are moved with memcpy, because a
// file may hold them at any address.
#include "runtime/dtypes.h"
#include "runtime/cuda/api.h"
#include "runtime/heddle_host.h"

const HdDtypeInfo hd_dtypes[] = {
#define DTYPE(id, text, bytes, mantissa, exponent, largest, saturates, computed, c, cuda, nccl, cublas, safetensors,   \
              rate)                                                                                                    \
    {#text, #safetensors, bytes, HD_##nccl, HD_CUDA_R_##cublas, exponent > 0 && exponent <= 8 && mantissa <= 23,       \
     largest},
#include "runtime/dtypes.def"
};

#define DTYPE(id, text, bytes, mantissa, exponent, largest, saturates, computed, c, ...)                               \
    _Static_assert(sizeof(c) == bytes, "the bytes of " #text);
#include "runtime/dtypes.def"

void hd_load_f32(HdDtype from, const void *src, int64_t index, int64_t n, float *dst) {
    const char *at = (const char *)src + (size_t)index * hd_dtypes[from].bytes;
    switch (from) {
#define DTYPE(id, text, bytes, mantissa, exponent, largest, saturates, computed, c, ...)                               \
    case HD_##id:                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            c v;                                                                                                       \
            memcpy(&v, at + i * bytes, sizeof v);                                                                      \
            dst[i] = hd_from_##text(v);                                                                                \
        }                                                                                                              \
        break;
#include "runtime/dtypes.def"
    }
}

void hd_store_f32(HdDtype to, const float *src, int64_t n, void *dst, int64_t index) {
    char *at = (char *)dst + (size_t)index * hd_dtypes[to].bytes;
    switch (to) {
#define DTYPE(id, text, bytes, mantissa, exponent, largest, saturates, computed, c, ...)                               \
    case HD_##id:                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const c v = hd_to_##text(src[i]);                                                                          \
            memcpy(at + i * bytes, &v, sizeof v);                                                                      \
        }                                                                                                              \
        break;
#include "runtime/dtypes.def"
    }
}
