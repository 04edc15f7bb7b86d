// A program for the GPU on a machine without NVIDIA's libraries: the message says which library is missing, its
// purpose, where it was searched and what to do. Usage: cuda_missing SCRATCH_FOLDER.
#include "runtime/heddle.h"
#include "runtime/world/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
static void expect(const char *text) {
    if (strstr(hd_failure(), text)) return;
    failures++;
    fprintf(stderr, "expected \"%s\" in: %s\n", text, hd_failure());
}

int main(int argc, char **argv) {
    char dir[512], file[1200];
    if (argc != 2) return 2;
    snprintf(dir, sizeof dir, "%s/no_cuda", argv[1]);
    snprintf(file, sizeof file, "mkdir -p %s && echo not a library >%s/libcuda.so.1", dir, dir);
    setenv("HEDDLE_CUDA_PATH", dir, 1);
    setenv("HEDDLE_CACHE", "off", 1);
    HdProgram p = {.model = "Tiny", .target = "cuda", .arch = "sm_90", .backend = &hd_cuda_backend, .arena_bytes = 256};
    if (system(file) != 0) return 1;
    HdExec *x = hd_cuda_backend.open(&p, hd_world_alone(), &(HdOpen){.use_graphs = true});
    if (x) { // a machine with a driver: nothing to see here
        puts("skipped: the driver is installed");
        hd_cuda_backend.close(x);
        return 0;
    }
    if (strstr(hd_failure(), "no NVIDIA GPU can be used")) return 0; // a driver without a GPU
    expect("cannot find libcuda.so.1, needed for the CUDA driver");
    expect("cannot be opened: ");
    expect("file too short");
    expect("the loader's own search");
    expect(dir);
    expect("install the NVIDIA driver");
    expect("HEDDLE_CUDA_PATH");
    puts(hd_failure());
    return failures != 0;
}
