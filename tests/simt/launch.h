// A launch of a kernel on the CPU (engine.h): what the pretended driver and the modules share. Plain C as well.
#ifndef TESTS_SIMT_LAUNCH_H
#define TESTS_SIMT_LAUNCH_H
typedef struct SimtIndex { unsigned x, y, z; } SimtIndex;
// A kernel as its module lists it in simt_kernels, which ends with a row of zeroes (compile.py).
typedef struct SimtKernel {
    const char *name;
    void (*call)(void **args); // by each thread
    int params;
    const unsigned *bytes; // of each parameter
    int beside;            // its module has copies or products that run beside the threads
} SimtKernel;
typedef struct SimtRange { const char *from; unsigned long bytes; } SimtRange;
typedef struct SimtLaunch {
    const SimtKernel *kernel;
    void **args;
    SimtIndex grid, block;
    unsigned shared, ranges;  // bytes; how many
    unsigned cluster;         // blocks of a cluster, along x
    const SimtRange *memory; // that kernels may use, by address. NULL: any
} SimtLaunch;
// Returns when every block has ended. An error ends the process with a message.
typedef void SimtRun(const SimtLaunch *launch);
#endif
