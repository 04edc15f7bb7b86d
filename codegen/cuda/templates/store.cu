// A value written into a buffer, converted, and added to what is there if so asked. Written before this text: ST_KERNEL
// (name), ST_FROM and ST_TO (types), ST_VEC (elements a thread), ST_ADD (1: accumulate). Grid (ceil(count / (256 *
// ST_VEC)), 1, 1), 256 threads.
extern "C" __global__ void __launch_bounds__(256) ST_KERNEL(const ST_FROM *from, ST_TO *to, i64 count) {
    enter();
    const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * ST_VEC;
    if (at + ST_VEC <= count) {
        Raw<ST_FROM, ST_VEC> x;
        x.load(from + at);
        typename Compute<ST_TO>::type y[ST_VEC];
#if ST_ADD
        Raw<ST_TO, ST_VEC> old;
        old.load(to + at);
#endif
#pragma unroll
        for (int j = 0; j < ST_VEC; j++) {
            y[j] = x.at(j);
#if ST_ADD
            y[j] = old.at(j) + y[j];
#endif
        }
        put<ST_TO, ST_VEC>(to + at, y);
        return;
    }
    for (i64 i = at; i < count; i++) {
        typename Compute<ST_TO>::type y = widen(from[i]);
#if ST_ADD
        y = widen(to[i]) + y;
#endif
        put1(to + i, y);
    }
}
