// Advances the step counter and computes the numbers of the step, in f64, each rounded to f32 once. The formulas are
// those of ir/eval/update.c and of the host target; they must stay the same text. Written before this text: SS_KERNEL
// (name), SS_KIND (0 constant, 1 linear, 2 cosine), SS_PEAK, SS_FLOOR, SS_WARMUP, SS_TOTAL, SS_CLIP, SS_SCALE (of the
// loss), SS_BETA1, SS_BETA2 (f64 literals), SS_NORM (0: there is no norm, and no clipping). One thread.
extern "C" __global__ void SS_KERNEL(const float *norm, int *step, float *scalars) {
    enter();
    const double t = *step += 1;
    double rate = SS_PEAK;
    if (t <= SS_WARMUP) {
        rate = SS_PEAK * t / SS_WARMUP;
    } else {
        const double p = fmin(1.0, (t - SS_WARMUP) / fmax(1.0, SS_TOTAL - SS_WARMUP));
#if SS_KIND == 1
        rate = SS_FLOOR + (SS_PEAK - SS_FLOOR) * (1.0 - p);
#elif SS_KIND == 2
        rate = SS_FLOOR + (SS_PEAK - SS_FLOOR) * (1.0 + cos(3.14159265358979323846 * p)) / 2.0;
#else
        (void)p;
#endif
    }
#if SS_NORM
    const double n = *norm;
#else
    const double n = 0;
#endif
    scalars[0] = (float)rate;
    scalars[1] = (float)((SS_CLIP > 0 && n > SS_CLIP ? SS_CLIP / n : 1.0) / SS_SCALE);
    scalars[2] = (float)(1.0 - pow(SS_BETA1, t));
    scalars[3] = (float)(1.0 - pow(SS_BETA2, t));
    scalars[4] = (float)t;
    scalars[5] = scalars[6] = scalars[7] = 0.0f;
}
