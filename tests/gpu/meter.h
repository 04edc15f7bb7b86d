// The energy and the clock of the GPU in use, by NVML, which is loaded when it is there. The energy counter moves a few
// times a second: measure for a second or more.
#ifndef TESTS_GPU_METER_H
#define TESTS_GPU_METER_H
#include <cuda_runtime.h>
#include <dlfcn.h>

struct Meter {
    void *card = nullptr;
    int (*counter)(void *, unsigned long long *) = nullptr, (*speed)(void *, int, unsigned *) = nullptr;

    Meter() { // of the device that is current
        int device;
        char bus[32];
        void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (!lib || cudaGetDevice(&device) || cudaDeviceGetPCIBusId(bus, sizeof bus, device)) return;
        int (*init)() = (int (*)())dlsym(lib, "nvmlInit_v2");
        typedef int (*Get)(const char *, void **);
        const Get get = (Get)dlsym(lib, "nvmlDeviceGetHandleByPciBusId_v2");
        if (!init || !get || init() || get(bus, &card)) return;
        counter = (int (*)(void *, unsigned long long *))dlsym(lib, "nvmlDeviceGetTotalEnergyConsumption");
        speed = (int (*)(void *, int, unsigned *))dlsym(lib, "nvmlDeviceGetClockInfo");
    }
    double millijoules() const { // since the driver was loaded; 0: unknown
        unsigned long long e = 0;
        if (counter) counter(card, &e);
        return (double)e;
    }
    unsigned mhz() const { // of the multiprocessors; 0: unknown
        unsigned clock = 0;
        if (speed) speed(card, 1, &clock);
        return clock;
    }
};

struct Metered { double ms, mj; unsigned mhz; }; // milliseconds and millijoules of one run

// Runs without a pause: `before` seconds, then `seconds` that are measured. run(): submits one to the default stream.
template <class Run> static Metered metered(const Meter &meter, Run run, double before, double seconds) {
    cudaEvent_t from, to;
    cudaEventCreate(&from), cudaEventCreate(&to);
    float ms = 0;
    Metered r = {};
    int count = 1;
    for (double done = 0; done < before * 1000; count = (int)(100 * count / ms) + 1) { // some 0.1 s each
        cudaEventRecord(from);
        for (int i = 0; i < count; i++) run();
        cudaEventRecord(to);
        if (cudaEventSynchronize(to)) return r;
        cudaEventElapsedTime(&ms, from, to);
        done += ms;
    }
    const double start = meter.millijoules();
    double all = 0;
    int runs = 0;
    for (; all < seconds * 1000; runs += count) {
        cudaEventRecord(from);
        for (int i = 0; i < count; i++) run();
        cudaEventRecord(to);
        r.mhz = meter.mhz();
        if (cudaEventSynchronize(to)) return r;
        cudaEventElapsedTime(&ms, from, to);
        all += ms;
    }
    r.ms = all / runs, r.mj = (meter.millijoules() - start) / runs;
    cudaEventDestroy(from), cudaEventDestroy(to);
    return r;
}
#endif
