#include "tests/gpu/one_gpu/sum.h"
#include "runtime/host/scratch.h"

enum { BLOCK = 4096 }; // elements that stay in the cache while all ranks are added

bool nccl_dtype(NcType type, HdDtype *dt) {
    int i = 0;
    while (i < HD_DTYPES && hd_dtypes[i].nccl != (int)type) i++;
    *dt = (HdDtype)i;
    return i < HD_DTYPES;
}

bool nccl_sums(HdDtype dt) { return dt == HD_F32 || dt == HD_BF16 || dt == HD_F16 || dt == HD_F64; }

void sum_in_order(HdDtype dt, const void *from, size_t stride, int ranks, int owner, size_t count, void *to) {
    const size_t size = hd_dtypes[dt].bytes;
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        for (int i = 1; i <= ranks; i++) {
            const char *v = (const char *)from + (size_t)((owner + i) % ranks) * stride;
            if (i == 1) memcpy((char *)to + at * size, v + at * size, n * size);
            else hd_host_add(dt, v, to, (int64_t)at, (int64_t)n);
        }
    }
}
