// A tensor map of the pretended driver (tests/fake_cuda/maps.c): what a kernel needs to copy a box. 128 bytes, as the
// driver's own. Plain C as well.
#ifndef TESTS_SIMT_MAP_H
#define TESTS_SIMT_MAP_H
#include <stdint.h>
typedef struct TensorMap {
    uint64_t address, promotion, strides[3]; // bytes
    uint32_t dims[4], box[4], element, unused[13]; // element: its bytes
} TensorMap;
#endif
