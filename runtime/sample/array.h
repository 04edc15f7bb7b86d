// A file of one f32 array that grows by rows: numpy's, or safetensors by the end of its name. A file that is there is
// replaced once the new one is complete.
#ifndef RUNTIME_SAMPLE_ARRAY_H
#define RUNTIME_SAMPLE_ARRAY_H
#include "runtime/checkpoint/safetensors.h"

typedef struct {
    StWriter w;  // of bytes in either format
    bool open;
    int64_t row; // elements of a row
} HdArray;

// An array f32[rows, dimensions of `row` but the first], at --OPTION=PATH; `name` of the tensor in safetensors. false
// after hd_fail.
bool hd_array_create(HdArray *a, const char *option, const char *path, const char *name, int64_t rows,
                     const HdTensor *row);
bool hd_array_add(HdArray *a, const float *row);
bool hd_array_close(HdArray *a, bool complete); // not complete: nothing of it stays, and the result is true
#endif
