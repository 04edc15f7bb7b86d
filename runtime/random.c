// Philox and the normal quantile.
#include "runtime/random.h"
#include "runtime/heddle_host.h"
#include <math.h>

void hd_philox(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[4]) {
    const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)},
                   counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    hd_philox_words(k, counter, out);
}

static double ratio(double r, const double *num, const double *den, int n) { // num and den from the highest power down
    double a = num[0], b = den[0];
    for (int i = 1; i < n; i++) {
        a = a * r + num[i];
        b = b * r + den[i];
    }
    return a / b;
}

double hd_normal_quantile(double p) {
    static const double num0[] = {59.109374720, 159.29113202, 50.434271938, 3.3871327179},
                        den0[] = {67.187563600, 78.757757664, 17.895169469, 1.0};
    static const double num1[] = {0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777},
                        den1[] = {0.12021132975, 0.73700164250, 1.0};
    static const double num2[] = {0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150},
                        den2[] = {0.012258202635, 0.24197894225, 1.0};
    double q = p - 0.5;
    if (fabs(q) <= 0.425) return q * ratio(0.180625 - q * q, num0, den0, 4);
    double r = sqrt(-log(q < 0 ? p : 1 - p));
    const double *num = r <= 5 ? num1 : num2, *den = r <= 5 ? den1 : den2;
    r -= r <= 5 ? 1.6 : 5;
    double a = ((num[0] * r + num[1]) * r + num[2]) * r + num[3], b = (den[0] * r + den[1]) * r + den[2];
    return q < 0 ? -a / b : a / b;
}

void hd_random_fill(uint64_t seed, uint64_t stream, int64_t first, int64_t count, int normal, double scale,
                    float *out) {
    uint32_t r[4];
    int64_t block = -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first + i;
        if (at / 4 != block) {
            block = at / 4;
            hd_philox(seed, stream, (uint64_t)block, r);
        }
        double u = ((double)r[at % 4] + 0.5) * 0x1p-32;
        out[i] = (float)(scale * (normal ? hd_normal_quantile(u) : 2 * u - 1));
    }
}
