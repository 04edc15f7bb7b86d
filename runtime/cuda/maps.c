// Tensor maps, by which kernels copy boxes of tensors of 16 or 32 bits an element, and launches of kernels that take
// them.
#include "runtime/cuda/exec.h"
#include "runtime/dtypes.h"

bool hd_cuda_map(HdCuda *x, HdDtype dtype, uint64_t at, const uint64_t dims[4], const uint64_t strides[3],
                 const unsigned box[4], CuMap *map) {
    const unsigned steps[] = {1, 1, 1, 1};
    const CuMapType type = dtype == HD_F32   ? HD_CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                           : dtype == HD_F16 ? HD_CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                             : HD_CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const CuResult r = x->api.cuTensorMapEncodeTiled(
        map, type, 4, (void *)(uintptr_t)at, dims, strides, box, steps, HD_CU_TENSOR_MAP_INTERLEAVE_NONE,
        HD_CU_TENSOR_MAP_SWIZZLE_128B, HD_CU_TENSOR_MAP_L2_PROMOTION_L2_256B, HD_CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != HD_CUDA_SUCCESS)
        hd_cuda_fail(x, "a tensor map of %llu x %llu x %llu x %llu elements, %llu, %llu and %llu bytes apart: %s",
                     (unsigned long long)dims[0], (unsigned long long)dims[1], (unsigned long long)dims[2],
                     (unsigned long long)dims[3], (unsigned long long)strides[0], (unsigned long long)strides[1],
                     (unsigned long long)strides[2], hd_cuda_error(&x->api, r));
    return r == HD_CUDA_SUCCESS;
}

// Boxes of 64 rows of 128 bytes.
static bool map_matrices(HdCuda *x, HdDtype dtype, const HdMatrices *t, uint64_t at, CuMap *map) {
    const uint64_t cols = (uint64_t)t->cols, rows = (uint64_t)t->rows, many = (uint64_t)t->many,
                   bytes = (uint64_t)hd_dtypes[dtype].bytes, row = bytes * cols;
    return hd_cuda_map(x, dtype, at, (const uint64_t[]){cols, rows, many, 1},
                       (const uint64_t[]){row, row * rows, row * rows * many},
                       (const unsigned[]){128 / (unsigned)bytes, 64, 1, 1}, map);
}

void hd_cuda_grouped(HdExec *h, int stream, int kernel, HdGrid grid, HdDtype dtype, HdDtype to, HdMatrices ta,
                     HdMatrices tb, HdMatrices td, uint64_t a, uint64_t b, uint64_t counts, uint64_t d,
                     uint64_t source) {
    HdCuda *x = (HdCuda *)h;
    CuMap maps[3];
    if (x->failed || !map_matrices(x, dtype, &ta, a, &maps[0]) || !map_matrices(x, dtype, &tb, b, &maps[1]) ||
        !map_matrices(x, to, &td, d, &maps[2]))
        return;
    HdArg args[] = {{.bytes = sizeof *maps}, {.bytes = sizeof *maps}, {.bytes = sizeof *maps}, {.word = counts},
                    {.word = d},           {.word = a},           {.word = source}};
    for (int i = 0; i < 3; i++) args[i].data = &maps[i];
    hd_cuda_launch(h, stream, kernel, grid, source ? 7 : 5, args);
}

void hd_cuda_symmetric(HdCuda *x, int stream, const HdSymmetric *by, HdDtype dtype, HdMatrices of, bool deep, CuPtr a,
                       CuPtr d) {
    enum { TILE = 128, THREADS = 288 };
    const int64_t n = deep ? of.cols : of.rows, k = deep ? of.rows : of.cols, tiles = (n + TILE - 1) / TILE;
    const HdMatrices to = {n, n, of.many};
    CuMap maps[2];
    if (x->failed || !map_matrices(x, dtype, &of, a, &maps[0]) || !map_matrices(x, dtype, &to, d, &maps[1])) return;
    const HdGrid grid = {(unsigned)(tiles * (tiles + 1) / 2), (unsigned)of.many, 1, THREADS, (unsigned)by->shared, {0}};
    const HdArg args[] = {{.bytes = sizeof *maps, .data = &maps[0]}, {.bytes = sizeof *maps, .data = &maps[1]},
                          {.word = (uint64_t)k}};
    hd_cuda_launch(&x->head, stream, by->kernel, grid, 3, args);
}
