// How much memory of the host a process may still take.
#ifndef RUNTIME_BASE_HOST_MEMORY_H
#define RUNTIME_BASE_HOST_MEMORY_H
#include <stdint.h>

// Bytes that the kernel could give without swapping, within the limits of the control groups of this process (those of
// containers and batch systems). root: where the file system of these files begins, "" but in tests. INT64_MAX: unknown
int64_t hd_host_memory_free(const char *root);
#endif
