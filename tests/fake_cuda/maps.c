// Tensor maps of the pretended driver: what is asked for is logged, and a map begins with its address.
#include "tests/fake_cuda/fake.h"
#include "tests/simt/map.h"
#include <string.h>

enum { INVALID = 1, INJECTED = 999 };

CuResult fake_cuTensorMapEncodeTiled(CuMap *map, CuMapType type, unsigned rank, void *at, const uint64_t *dims,
                                     const uint64_t *strides, const unsigned *box, const unsigned *steps,
                                     CuMapInterleave interleave, CuMapSwizzle swizzle, CuMapPromotion promotion,
                                     CuMapFill fill) {
    if (fake_call("cuTensorMapEncodeTiled")) return INJECTED;
    if (rank != 4 || interleave || swizzle != HD_CU_TENSOR_MAP_SWIZZLE_128B || fill) return INVALID;
    for (unsigned i = 0; i < rank; i++)
        if (!dims[i] || !box[i] || box[i] > 256 || steps[i] != 1 || (i && strides[i - 1] % 16)) return INVALID;
    TensorMap m = {.address = (uint64_t)(uintptr_t)at, .promotion = (uint64_t)promotion,
                   .element = type == HD_CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2};
    _Static_assert(sizeof m == sizeof *map, "a map of another size");
    memcpy(m.strides, strides, sizeof m.strides);
    memcpy(m.box, box, sizeof m.box);
    for (int i = 0; i < 4; i++) m.dims[i] = (uint32_t)dims[i];
    memcpy(map, &m, sizeof m);
    fake_log("map of type %d, %d x %d x %d x %d, %d, %d and %d bytes apart, boxes of %u x %u x %u x %u", type,
             (int)dims[0], (int)dims[1], (int)dims[2], (int)dims[3], (int)strides[0], (int)strides[1], (int)strides[2],
             box[0], box[1], box[2], box[3]);
    return 0;
}
