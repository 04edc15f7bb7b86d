// Indices that count from the first row of a rank's part. Written before this text: OI_KERNEL (name), OI_N (indices).
// Grid (ceil(OI_N / 256), 1, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256) OI_KERNEL(const int *index, unsigned long long first, int *own) {
    enter();
    const int i = (int)(blockIdx.x * 256 + threadIdx.x);
    if (i < OI_N) own[i] = index[i] - (int)first;
}
