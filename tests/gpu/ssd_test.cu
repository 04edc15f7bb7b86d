// The kernels of state-space duality on tensor cores against the recurrence in double precision, and their times. Built
// with nvcc on a GPU machine:
//   nvcc -std=c++17 -arch=sm_90 -O2 -include HEAD.h tests/gpu/ssd_test.cu
// HEAD.h has SC_BATCH, SC_SEQ, SC_HEADS, SC_GROUPS, SC_STATE, SC_PACKED and SC_SPLITS. Without arguments: errors of y
// and of all gradients, whether three runs have the same bits, and whether bytes beside the results were written. With
// 1: the time of each kernel instead. With 0 and a folder: also the inputs (f32) and the results of the recurrence
// (f64) as files there, so that other kernels can be compared with them. Exit 1 when something is off.
#include "codegen/cuda/templates/common.cu"
#define SC_DT float
#define SC_A float
#define SC_D float
#define SC_SKIP 1
enum { ALL_STEPS = (SC_SEQ + 63) / 64, KEPT = SC_BATCH * SC_HEADS * ALL_STEPS };
#define SC_AT_CLOCK 0ll
#define SC_AT_DT (KEPT * 64ll)
#define SC_AT_STATES (KEPT * 128ll)
#define SC_AT_DSTATES (SC_AT_STATES + KEPT * 32ll * SC_STATE)
#define SC_AT_PARTS (SC_AT_DSTATES + KEPT * 32ll * SC_STATE)
#define SC_AT_DA (SC_AT_PARTS + 2ll * SC_SPLITS * SC_BATCH * SC_SEQ * SC_GROUPS * SC_STATE)
#define SC_AT_DD (SC_AT_DA + KEPT)
#define SC_AT_POWERS (SC_AT_DD + KEPT)
#define SC_AT_END (SC_AT_POWERS + 2 * KEPT)
#define SC_SPACE ours
#define SC_CLOCK k_clock
#define SC_Y k_y
#define SC_STATES k_states
#define SC_PAIRS k_pairs
#define SC_SUM k_sum
#define SC_RATES k_rates
#include "codegen/cuda/templates/mma.cu"
#include "codegen/cuda/templates/ssd_mma.cu"
#include "codegen/cuda/templates/ssd_mma_forward.cu"
#include "codegen/cuda/templates/ssd_mma_grad.cu"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>
#define CU(x)                                                                                                          \
    do {                                                                                                               \
        cudaError_t e_ = (x);                                                                                          \
        if (e_) {                                                                                                      \
            printf("%d: %s: %s\n", __LINE__, #x, cudaGetErrorString(e_));                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
typedef std::vector<float> Floats;
typedef std::vector<double> Doubles;
enum { P = 64, N = SC_STATE, PAD = 4096 };
static const i64 positions = (i64)SC_BATCH * SC_SEQ, n_x = positions * SC_HEADS * P, n_dt = positions * SC_HEADS,
                 n_b = positions * SC_GROUPS * N;

static unsigned short narrow(float v) {
    unsigned u;
    memcpy(&u, &v, 4);
    return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static float wide(unsigned short v) {
    const unsigned u = (unsigned)v << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

struct Problem {
    Floats x, dt, a, b, c, d, dy;
    std::vector<int> starts;
    Problem() : x(n_x), dt(n_dt), a(SC_HEADS), b(n_b), c(n_b), d(SC_HEADS), dy(n_x), starts(positions) {
        std::vector<std::thread> all;
        const auto normal = [&all](Floats &to, unsigned seed, bool round) {
            all.emplace_back([&to, seed, round] {
                std::mt19937 r(seed);
                std::normal_distribution<float> draw;
                for (float &v : to) v = round ? wide(narrow(draw(r))) : draw(r);
            });
        };
        normal(x, 1, true), normal(b, 2, true), normal(c, 3, true), normal(dy, 4, true), normal(d, 5, false);
        normal(dt, 6, false), normal(a, 7, false);
        for (auto &t : all) t.join();
        for (float &v : dt) v = log1pf(expf(v - 2)); // softplus: 0.05 to 1
        for (float &v : a) v = -expf(0.5f * v) * 2;
        std::mt19937 r(8);
        for (i64 i = 0; i < positions; i++)
            starts[i] = i % SC_SEQ == 0 ? 0 : SC_PACKED && r() % 90 == 0 ? (int)(i % SC_SEQ) : starts[i - 1];
    }
};
struct Results { // in the order of the op's
    Doubles y, dx, ddt, da, db, dc, dd;
    Results() : y(n_x), dx(n_x), ddt(n_dt), da(SC_HEADS), db(n_b), dc(n_b), dd(SC_HEADS) {}
};

// The recurrence and its gradient, as ir/eval/ssd.c, for one sequence and group.
static void exact(const Problem &p, Results &r, int batch, int group) {
    const int share = SC_HEADS / SC_GROUPS;
    Doubles states((SC_SEQ + 1) * (i64)P * N), grad(P * N);
    for (int head = group * share; head < (group + 1) * share; head++) {
        const double a = p.a[head];
        double da = 0, dd = 0;
        const auto kept = [&](i64 at) {
            const i64 t = at % SC_SEQ;
            return !t || (SC_PACKED && p.starts[at] >= t) ? 0 : exp(p.dt[at * SC_HEADS + head] * a);
        };
        for (int t = 0; t < SC_SEQ; t++) {
            const i64 at = (i64)batch * SC_SEQ + t, to_x = (at * SC_HEADS + head) * P,
                      to_b = (at * SC_GROUPS + group) * N;
            const double keep = kept(at), dt = p.dt[at * SC_HEADS + head];
            const double *before = &states[t * (i64)P * N];
            double *state = &states[(t + 1) * (i64)P * N];
            for (int i = 0; i < P; i++) {
                double y = p.d[head] * p.x[to_x + i];
                const double by = dt * p.x[to_x + i];
                for (int n = 0; n < N; n++) {
                    state[i * N + n] = keep * before[i * N + n] + by * p.b[to_b + n];
                    y += state[i * N + n] * p.c[to_b + n];
                }
                r.y[to_x + i] = y;
            }
        }
        std::fill(grad.begin(), grad.end(), 0);
        for (int t = SC_SEQ; t-- > 0;) {
            const i64 at = (i64)batch * SC_SEQ + t, to_x = (at * SC_HEADS + head) * P,
                      to_b = (at * SC_GROUPS + group) * N;
            const double keep = kept(at), dt = p.dt[at * SC_HEADS + head];
            const double *before = &states[t * (i64)P * N], *after = &states[(t + 1) * (i64)P * N];
            double ddt = 0, shrunk = 0;
            for (int i = 0; i < P; i++) {
                const double x = p.x[to_x + i], dy = p.dy[to_x + i];
                double dx = p.d[head] * dy, sum = 0;
                dd += x * dy;
                for (int n = 0; n < N; n++) {
                    double &g = grad[i * N + n];
                    g += dy * p.c[to_b + n];
                    r.dc[to_b + n] += dy * after[i * N + n];
                    r.db[to_b + n] += dt * g * x;
                    sum += g * p.b[to_b + n];
                    shrunk += keep * g * before[i * N + n];
                    g *= keep;
                }
                r.dx[to_x + i] = dx + dt * sum;
                ddt += x * sum;
            }
            r.ddt[at * SC_HEADS + head] = ddt + a * shrunk;
            da += dt * shrunk;
        }
        static std::mutex one;
        std::lock_guard<std::mutex> lock(one);
        r.da[head] += da, r.dd[head] += dd;
    }
}

template <class T> struct Room { // results, with bytes before and behind that stay as they are
    T *base, *at;
    i64 n;
    explicit Room(i64 count) : n(count) {
        CU(cudaMalloc(&base, (n + 2 * PAD) * sizeof(T)));
        at = base + PAD;
        poison();
    }
    void poison() { CU(cudaMemset(base, 0xff, (n + 2 * PAD) * sizeof(T))); }
    bool whole() const {
        std::vector<unsigned char> x(2 * PAD * sizeof(T));
        CU(cudaMemcpy(x.data(), base, x.size() / 2, cudaMemcpyDeviceToHost));
        CU(cudaMemcpy(x.data() + x.size() / 2, at + n, x.size() / 2, cudaMemcpyDeviceToHost));
        return std::all_of(x.begin(), x.end(), [](unsigned char v) { return v == 0xff; });
    }
    std::vector<T> read() const {
        std::vector<T> x(n);
        CU(cudaMemcpy(x.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
        return x;
    }
};
template <class T> static T *upload(const std::vector<T> &x) {
    T *p;
    CU(cudaMalloc(&p, x.size() * sizeof(T)));
    CU(cudaMemcpy(p, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}
static bf16 *halves(const Floats &x) {
    std::vector<unsigned short> h(x.size());
    std::transform(x.begin(), x.end(), h.begin(), narrow);
    return (bf16 *)upload(h);
}

static bool worse(const char *name, const Doubles &want, const std::function<double(i64)> &got, double limit) {
    double error = 0, square = 0;
    bool nan = false;
    for (size_t i = 0; i < want.size(); i++) {
        const double e = got((i64)i) - want[i];
        nan |= e != e;
        error += e * e, square += want[i] * want[i];
    }
    const double off = sqrt(error / square);
    printf(" %s %.2e", name, off);
    return nan || !(off < limit);
}
static double median(std::function<void()> run) {
    cudaEvent_t from, to;
    CU(cudaEventCreate(&from));
    CU(cudaEventCreate(&to));
    std::vector<float> ms(15);
    for (int i = 0; i < 3; i++) run();
    for (float &t : ms) {
        CU(cudaEventRecord(from));
        run();
        CU(cudaEventRecord(to));
        CU(cudaEventSynchronize(to));
        CU(cudaEventElapsedTime(&t, from, to));
    }
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
}

int main(int argc, char **argv) {
    const bool timed = argc > 1 && atoi(argv[1]);
    const Problem p;
    const bf16 *x = halves(p.x), *b = halves(p.b), *c = halves(p.c), *dy = halves(p.dy);
    const float *dt = upload(p.dt), *a = upload(p.a), *d = upload(p.d);
    const int *starts = upload(p.starts);
    Room<bf16> y(n_x), dx(n_x), db(n_b), dc(n_b);
    Room<float> ddt(n_dt), da(SC_HEADS), dd(SC_HEADS), w(SC_AT_END);
    using namespace ours;
    const int items = SC_BATCH * SC_HEADS;
    const int of_y = 2 * (2 * B_TILE + X_TILE + 1024) + B_TILE, of_states = 2 * STATES_STAGE,
              of_pairs = 2 * PAIRS_STAGE + 2 * B_TILE + 6144;
    CU(cudaFuncSetAttribute(k_y, cudaFuncAttributeMaxDynamicSharedMemorySize, of_y));
    CU(cudaFuncSetAttribute(k_states, cudaFuncAttributeMaxDynamicSharedMemorySize, of_states));
    CU(cudaFuncSetAttribute(k_pairs, cudaFuncAttributeMaxDynamicSharedMemorySize, of_pairs));
    const std::function<void()> run[] = {
        [&] { k_clock<<<SC_BATCH * STEPS * ((SC_HEADS + 31) / 32), 256>>>(dt, a, w.at); },
        [&] { k_y<<<items, 128, of_y>>>(x, b, c, d, starts, y.at, w.at); },
        [&] { k_states<<<2 * items, 128, of_states>>>(dy, x, b, c, starts, w.at); },
        [&] {
            k_pairs<<<SC_BATCH * STEPS * SC_GROUPS * SC_SPLITS, 256, of_pairs>>>(
                dy, x, a, b, c, d, starts, dx.at, ddt.at, db.at, dc.at, w.at);
        },
        [&] {
            if (SC_SPLITS > 1) k_sum<<<(unsigned)((2 * n_b + 255) / 256), 256>>>(db.at, dc.at, w.at);
        },
        [&] { k_rates<<<SC_HEADS, 256>>>(da.at, dd.at, w.at); }};
    const auto forward = [&] { run[0](), run[1](); };
    const auto backward = [&] { run[0](), run[2](), run[3](), run[4](), run[5](); };
    printf("B %d, T %d, %d heads, %d groups of %d, documents %d, splits %d:", SC_BATCH, SC_SEQ, SC_HEADS, SC_GROUPS, N,
           SC_PACKED, SC_SPLITS);
    if (timed) {
        printf(" forward %.3f ms, backward %.3f ms;", median(forward), median(backward));
        static const char *const name[] = {"clock", "y", "states", "pairs", "sum", "rates"};
        for (int i = 0; i < 6; i++) printf(" %s %.3f", name[i], median(run[i]));
        CU(cudaDeviceSynchronize());
        printf("\n");
        return 0;
    }
    std::vector<bf16> first[4];
    std::vector<float> numbers[3];
    bool bad = false, beside = false;
    for (int i = 0; i < 3; i++) {
        y.poison(), dx.poison(), db.poison(), dc.poison(), ddt.poison(), da.poison(), dd.poison(), w.poison();
        forward(), backward();
        CU(cudaDeviceSynchronize());
        CU(cudaGetLastError());
        const std::vector<bf16> now[] = {y.read(), dx.read(), db.read(), dc.read()};
        const std::vector<float> others[] = {ddt.read(), da.read(), dd.read()};
        beside |= !(y.whole() && dx.whole() && db.whole() && dc.whole() && ddt.whole() && da.whole() && dd.whole() &&
                    w.whole());
        for (int k = 0; k < 4 && i; k++) bad |= memcmp(now[k].data(), first[k].data(), now[k].size() * 2) != 0;
        for (int k = 0; k < 3 && i; k++) bad |= memcmp(others[k].data(), numbers[k].data(), others[k].size() * 4) != 0;
        for (int k = 0; k < 4; k++) first[k] = now[k];
        for (int k = 0; k < 3; k++) numbers[k] = others[k];
    }
    printf("%s%s;", bad ? " NOT THE SAME BITS" : " repeats", beside ? ", WRITES BESIDE" : "");
    Results r;
    std::vector<std::thread> all;
    for (int i = 0; i < SC_BATCH * SC_GROUPS; i++)
        all.emplace_back([&, i] { exact(p, r, i / SC_GROUPS, i % SC_GROUPS); });
    for (auto &t : all) t.join();
    const auto of = [&](int k) { return [&, k](i64 i) { return (double)wide(first[k][i].bits); }; };
    const auto number = [&](int k) { return [&, k](i64 i) { return (double)numbers[k][i]; }; };
    bad |= worse("y", r.y, of(0), 6e-3);
    bad |= worse("dx", r.dx, of(1), 8e-3);
    bad |= worse("ddt", r.ddt, number(0), 1e-3);
    bad |= worse("da", r.da, number(1), 1e-3);
    bad |= worse("db", r.db, of(2), 8e-3);
    bad |= worse("dc", r.dc, of(3), 8e-3);
    bad |= worse("dd", r.dd, number(2), 1e-4);
    printf("\n");
    if (argc > 2) { // f32 and f64, as they are in memory
        const auto put = [&](const char *name, const void *data, size_t bytes) {
            FILE *f = fopen((std::string(argv[2]) + "/" + name).c_str(), "wb");
            if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f)) exit(1);
        };
        const Floats *in[] = {&p.x, &p.dt, &p.a, &p.b, &p.c, &p.d, &p.dy};
        static const char *const ins[] = {"x", "dt", "a", "b", "c", "d", "dy"};
        for (int i = 0; i < 7; i++) put(ins[i], in[i]->data(), in[i]->size() * 4);
        const Doubles *want[] = {&r.y, &r.dx, &r.ddt, &r.da, &r.db, &r.dc, &r.dd};
        static const char *const outs[] = {"y", "dx", "ddt", "da", "db", "dc", "dd"};
        for (int i = 0; i < 7; i++)
            put((std::string("want_") + outs[i]).c_str(), want[i]->data(), want[i]->size() * 8);
    }
    return bad || beside;
}
