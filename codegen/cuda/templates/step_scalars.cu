// Advances the step counter and computes the numbers of the step, in f64, each rounded to f32 once. The formulas are
// those of ir/eval/update.c and of the host target; they must stay the same text. Written before this text: SS_KERNEL
// (name), SS_KIND (0 constant, 1 linear, 2 cosine, 3 wsd, 4 inverse_sqrt, 5 points), SS_PEAK, SS_FLOOR, SS_WARMUP,
// SS_TOTAL, SS_CLIP, SS_SCALE (of the loss), SS_BETA1, SS_BETA2 (f64 literals), SS_NORM (0: there is no norm, and no
// clipping); for wsd SS_DECAY and SS_SHAPE (0 linear, 1 cosine, 2 sqrt), for points SS_POINTS (how many), SS_STEPS and
// SS_RATES (lists of f64 literals). SS_SKIPS: a norm that is not finite makes the factor NaN. SS_HISTORY (so many
// steps): so does a loss or a norm whose z-score among the last is above SS_LOSS_Z or SS_NORM_Z, f64 literals (0: no
// score is), by a function SS_SCORE; ir/optimizer.h says what `history` is. One thread.
#ifdef SS_HISTORY
__device__ float SS_SCORE(float *last, float v) {
    const int n = SS_HISTORY, seen = (int)last[n];
    double mean = 0, square = 0;
    if (v - v != 0) return v - v;
    last[seen % n] = v;
    last[n] = (float)(seen + 1 < 2 * n ? seen + 1 : n);
    if (seen < n) return nanf("");
    for (int i = 0; i < n; i++) mean += (double)last[i] / n;
    for (int i = 0; i < n; i++) {
        const double d = (double)last[i] - mean;
        square += d * d / n;
    }
    return square > 0 ? (float)((v - mean) / sqrt(square)) : 0.0f;
}

#define SS_SCORED , const float *loss, float *history
#else
#define SS_SCORED
#endif
extern "C" __global__ void SS_KERNEL(const float *norm, int *step, float *scalars SS_SCORED) {
    enter();
    const double t = *step += 1;
    double rate = SS_PEAK;
#if SS_KIND == 5
    const double steps[] = SS_STEPS, rates[] = SS_RATES;
    int i = 0;
    while (i < SS_POINTS - 1 && t >= steps[i + 1]) i++;
    rate = rates[i];
    if (i < SS_POINTS - 1 && t >= steps[0])
        rate = rates[i] + (rates[i + 1] - rates[i]) * ((t - steps[i]) / (steps[i + 1] - steps[i]));
#else
    if (t <= SS_WARMUP) {
        rate = SS_PEAK * t / SS_WARMUP;
    } else {
        const double p = fmin(1.0, (t - SS_WARMUP) / fmax(1.0, SS_TOTAL - SS_WARMUP));
#if SS_KIND == 1
        rate = SS_FLOOR + (SS_PEAK - SS_FLOOR) * (1.0 - p);
#elif SS_KIND == 2
        rate = SS_FLOOR + (SS_PEAK - SS_FLOOR) * (1.0 + cos(3.14159265358979323846 * p)) / 2.0;
#elif SS_KIND == 3
        const double q = fmin(1.0, fmax(0.0, (t - (SS_TOTAL - SS_DECAY)) / fmax(1.0, SS_DECAY)));
#if SS_SHAPE == 0
        rate = SS_FLOOR + (SS_PEAK - SS_FLOOR) * (1.0 - q);
#elif SS_SHAPE == 1
        rate = SS_FLOOR + (SS_PEAK - SS_FLOOR) * ((1.0 + cos(3.14159265358979323846 * q)) / 2.0);
#else
        rate = SS_FLOOR + (SS_PEAK - SS_FLOOR) * (1.0 - sqrt(q));
#endif
        (void)p;
#elif SS_KIND == 4
        rate = fmax(SS_FLOOR, SS_PEAK * sqrt(fmax(1.0, SS_WARMUP) / t));
        (void)p;
#else
        (void)p;
#endif
    }
#endif
#if SS_NORM
    const double n = *norm;
#else
    const double n = 0;
#endif
    scalars[0] = (float)rate;
    scalars[1] = (float)((SS_CLIP > 0 && n > SS_CLIP ? SS_CLIP / n : 1.0) / SS_SCALE);
#ifdef SS_SKIPS
    if (n - n != 0) scalars[1] = (float)(n - n);
#endif
#ifdef SS_HISTORY
    float *z = history + 2 * (SS_HISTORY + 1);
    z[0] = SS_SCORE(history, *loss);
    z[1] = SS_SCORE(history + SS_HISTORY + 1, *norm);
    if ((SS_LOSS_Z > 0 && z[0] > SS_LOSS_Z) || (SS_NORM_Z > 0 && z[1] > SS_NORM_Z)) scalars[1] = nanf("");
#endif
    scalars[2] = (float)(1.0 - pow(SS_BETA1, t));
    scalars[3] = (float)(1.0 - pow(SS_BETA2, t));
    scalars[4] = (float)t;
    scalars[5] = (float)(t - (double)scalars[4]);
    scalars[6] = scalars[7] = 0.0f;
}
