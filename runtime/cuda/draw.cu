// Initial values, made where they stay: a kernel for each type of storage. bits.h and draw.h come before this text. A
// thread makes blocks of four elements. tests/fake_cuda runs the same text on a host, as C.
#ifdef __cplusplus
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#endif

#define DRAW(NAME, T, OF)                                                                                              \
    KERNEL NAME(T *out, const HdDraw d) {                                                                              \
        const int64_t end = d.first + d.count, all = (int64_t)gridDim.x * blockDim.x;                                  \
        for (int64_t block = d.first / 4 + (int64_t)blockIdx.x * blockDim.x + threadIdx.x; block * 4 < end;            \
             block += all) {                                                                                           \
            uint32_t word[4];                                                                                          \
            hd_draw_words(&d, block, word);                                                                            \
            for (int i = 0; i < 4; i++) {                                                                              \
                const int64_t at = block * 4 + i;                                                                      \
                if (at >= d.first && at < end) out[at - d.first] = OF(hd_draw_value(&d, word[i]));                     \
            }                                                                                                          \
        }                                                                                                              \
    }
DRAW(draw_f32, float, )
DRAW(draw_bf16, uint16_t, hd_to_bf16)
DRAW(draw_f16, uint16_t, hd_to_f16)
