// The gradient of a choice: the elements of dy whose place an element is, added in their order. A thread has an
// element. Written before this text: TK_GRAD (name), the rest as of top_k.cu; TK_ROWS and TK_N are of dx. Grid
// (ceil(TK_ROWS * TK_N / 256), 1, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256) TK_GRAD(const TK_T *dy, const int *places, TK_T *dx) {
    enter();
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x, row = at / TK_N;
    if (row >= TK_ROWS) return;
    float sum = 0;
    for (int j = 0; j < TK_K; j++)
        if (places[row * TK_K + j] == (int)(at % TK_N)) sum += widen(dy[row * TK_K + j]);
    put1(dx + at, sum);
}
