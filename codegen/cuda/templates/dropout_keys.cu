// The keys of a micro-batch: a row of 8 words for each dropout of the model. Then the counter goes on by `stride`
// sequences. `place`: this rank's, along the axes over which values are split. One block.
extern "C" __global__ void dropout_keys(int *counter, int *keys, int sites, unsigned long long stride,
                                       unsigned long long place) {
    enter();
    int word[4];
    for (int i = 0; i < 4; i++) word[i] = counter[i];
    for (int site = threadIdx.x; site < sites; site += blockDim.x)
        for (int i = 0; i < 8; i++) keys[site * 8 + i] = i < 4 ? word[i] : i == 4 ? site : i == 5 ? (int)place : 0;
    __syncthreads();
    if (threadIdx.x) return;
    const unsigned long long next = ((unsigned long long)(unsigned)word[3] << 32 | (unsigned)word[2]) + stride;
    counter[2] = (int)(unsigned)next;
    counter[3] = (int)(unsigned)(next >> 32);
}
