// Errors of the gradients of ssd's kernels on tensor cores against the recurrence in double precision, on the CPU:
// ssd_errors LIBRARY (ssd_errors.py). Three draws, the last two with gradients near the ends of f32's numbers. Exit 1
// when an error is larger than what comes of inputs and results in bf16; da and ddt, which are in f32, have bounds that
// states in bf16 do not reach.
#include "tests/simt/launch.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <random>
#include <vector>

namespace {
enum { SEQ = 512, HEADS = 4, SIZE = 64, STATE = 128, STEPS = SEQ / 64, ALIGN = 256 }; // as ssd_errors.py
typedef unsigned short u16;
typedef std::vector<double> Doubles;

const SimtKernel *kernels;
SimtRun *run;

double wide(u16 v) {
    const unsigned u = (unsigned)v << 16;
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}
u16 narrow(float v) {
    unsigned u;
    memcpy(&u, &v, 4);
    return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
template <class T> T *room(size_t n) {
    T *at = (T *)aligned_alloc(ALIGN, (n * sizeof(T) + ALIGN - 1) / ALIGN * ALIGN);
    if (!at) exit(2);
    memset((void *)at, 0xff, n * sizeof(T)); // no numbers
    return at;
}

void launch(const char *name, unsigned blocks, unsigned threads, unsigned shared, std::vector<void *> values) {
    const SimtKernel *k = kernels;
    while (k->name && strcmp(k->name, name)) k++;
    if (!k->name) fprintf(stderr, "no kernel %s\n", name), exit(2);
    std::vector<void *> args;
    for (void *&v : values) args.push_back(&v);
    SimtLaunch l = {};
    l.kernel = k, l.args = args.data(), l.grid = {blocks, 1, 1}, l.block = {threads, 1, 1}, l.shared = shared;
    l.cluster = 1;
    run(&l);
}

struct Gradients {
    Doubles dx, ddt, da, db, dc;
    Gradients() : dx(SEQ * HEADS * SIZE), ddt(SEQ * HEADS), da(HEADS), db(SEQ * STATE), dc(SEQ * STATE) {}
};
struct Inputs {
    u16 *x = room<u16>(SEQ * HEADS * SIZE), *dy = room<u16>(SEQ * HEADS * SIZE), *b = room<u16>(SEQ * STATE),
        *c = room<u16>(SEQ * STATE);
    float *dt = room<float>(SEQ * HEADS), *a = room<float>(HEADS), *d = room<float>(HEADS);
    Inputs(unsigned seed, float scale) {
        std::mt19937 r(seed);
        std::normal_distribution<float> draw;
        for (int i = 0; i < SEQ * HEADS * SIZE; i++) x[i] = narrow(draw(r)), dy[i] = narrow(draw(r) * scale);
        for (int i = 0; i < SEQ * STATE; i++) b[i] = narrow(draw(r)), c[i] = narrow(draw(r));
        for (int i = 0; i < SEQ * HEADS; i++) dt[i] = log1pf(expf(draw(r) - 2));
        for (int i = 0; i < HEADS; i++) a[i] = -expf(0.5f * draw(r)) * 2, d[i] = draw(r);
    }
};

// As ir/eval/ssd.c.
void exact(const Inputs &in, int head, Gradients &of) {
    Doubles all_states((SEQ + 1) * SIZE * STATE), all_grad(SIZE * STATE);
    double *states = all_states.data(), *grad = all_grad.data();
    const struct { double *dx, *ddt, *da, *db, *dc; } to = {of.dx.data(), of.ddt.data(), of.da.data(), of.db.data(),
                                                            of.dc.data()};
    const double a = (double)in.a[head], d = (double)in.d[head];
    const auto dt_of = [&](int t) { return (double)in.dt[t * HEADS + head]; };
    const auto keep = [&](int t) { return t && t < SEQ ? exp(dt_of(t) * a) : 0.0; };
    for (int t = 0; t < SEQ; t++)
        for (int i = 0; i < SIZE * STATE; i++)
            states[(t + 1) * SIZE * STATE + i] =
                keep(t) * states[t * SIZE * STATE + i] + dt_of(t) *
                wide(in.x[(t * HEADS + head) * SIZE + i / STATE]) * wide(in.b[t * STATE + i % STATE]);
    for (int t = SEQ - 1; t >= 0; t--) {
        const double dt = dt_of(t);
        double ddt = 0, decay = 0;
        for (int p = 0; p < SIZE; p++) {
            const int at = (t * HEADS + head) * SIZE + p;
            const double dy = wide(in.dy[at]), x = wide(in.x[at]);
            double sum = 0;
            for (int n = 0; n < STATE; n++) {
                double &g = grad[p * STATE + n];
                const double s = states[((t + 1) * SIZE + p) * STATE + n], b = wide(in.b[t * STATE + n]);
                g = g * keep(t + 1) + dy * wide(in.c[t * STATE + n]);
                to.dc[t * STATE + n] += dy * s;
                to.db[t * STATE + n] += dt * x * g;
                sum += g * b;
                decay += g * (s - dt * x * b);
            }
            to.dx[at] = dt * sum + d * dy;
            ddt += x * sum;
        }
        to.ddt[t * HEADS + head] = ddt + a * decay;
        to.da[head] += dt * decay;
    }
}

template <class F> bool bad(const char *name, const Doubles &want, double bound, F got) {
    double off = 0, all = 0;
    for (size_t i = 0; i < want.size(); i++) {
        off += (got(i) - want[i]) * (got(i) - want[i]);
        all += want[i] * want[i];
    }
    const double error = sqrt(off / all);
    printf(" %s %.1e", name, error);
    if (error <= bound) return false;
    printf(" (more than %.1e)", bound);
    return true;
}

bool check(unsigned seed, float scale) {
    const Inputs in(seed, scale);
    u16 *dx = room<u16>(SEQ * HEADS * SIZE), *db = room<u16>(SEQ * STATE), *dc = room<u16>(SEQ * STATE);
    float *ddt = room<float>(SEQ * HEADS), *da = room<float>(HEADS), *dd = room<float>(HEADS);
    float *w = room<float>(STEPS * HEADS * (128 + SIZE * STATE + 4));
    enum { B_TILE = 64 * (STATE + 8) * 2, X_TILE = 64 * (SIZE + 8) * 2 };
    launch("k_clock", STEPS, 256, 0, {in.dt, in.a, w});
    launch("k_states", 2 * HEADS, 128, 2 * (B_TILE + X_TILE + 1024), {in.dy, in.x, in.b, in.c, nullptr, w});
    launch("k_pairs", STEPS, 256, 4 * (B_TILE + X_TILE) + 2048 + 2 * B_TILE + 6144,
           {in.dy, in.x, in.a, in.b, in.c, in.d, nullptr, dx, ddt, db, dc, w});
    launch("k_rates", HEADS, 256, 0, {da, dd, w});
    Gradients want;
    for (int head = 0; head < HEADS; head++) exact(in, head, want);
    printf("seed %u, dy times %g:", seed, (double)scale);
    const double rounding = 3e-3;
    int wrong = bad("dx", want.dx, rounding, [&](size_t i) { return wide(dx[i]); });
    wrong += bad("db", want.db, rounding, [&](size_t i) { return wide(db[i]); });
    wrong += bad("dc", want.dc, rounding, [&](size_t i) { return wide(dc[i]); });
    wrong += bad("ddt", want.ddt, 8e-5, [&](size_t i) { return (double)ddt[i]; });
    wrong += bad("da", want.da, 1.5e-4, [&](size_t i) { return (double)da[i]; });
    printf("\n");
    return wrong;
}
} // namespace

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
    kernels = library ? (const SimtKernel *)dlsym(library, "simt_kernels") : nullptr;
    run = library ? (SimtRun *)dlsym(library, "simt_run") : nullptr;
    if (!kernels || !run) return fprintf(stderr, "ssd_errors LIBRARY: %s\n", argc == 2 ? dlerror() : "no library"), 2;
    return check(1, 1.0f) + check(2, 1e-25f) + check(4, 1e25f) > 0;
}
