// The runtime's view of dtypes.def, and conversions to and from f32.
#ifndef RUNTIME_DTYPES_H
#define RUNTIME_DTYPES_H
#include "runtime/heddle.h"

typedef struct {
    const char *name, *safetensors;
    size_t bytes;
    int nccl, cuda; // the library's numbers
    bool fits_f32;  // a floating-point type all of whose values f32 can hold
    double largest; // its largest finite value
} HdDtypeInfo;
extern const HdDtypeInfo hd_dtypes[];
enum {
#define DTYPE(...) +1
    HD_DTYPES = 0
#include "runtime/dtypes.def"
};

// n elements from `index` on as f32, and from f32, rounded to nearest even (integers: toward zero).
void hd_load_f32(HdDtype from, const void *src, int64_t index, int64_t n, float *dst);
void hd_store_f32(HdDtype to, const float *src, int64_t n, void *dst, int64_t index);
#endif
