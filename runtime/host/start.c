// OpenMP's threads spin at barriers by default, which is ten times slower when other work shares the cores. The policy
// is read from the environment before main, so a program that finds none sets one and executes itself again.
#include "runtime/heddle.h"
#include <stdlib.h>
#include <unistd.h>

void hd_host_start(char **argv) {
    static const char *const set_by_user[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
    for (size_t i = 0; i < sizeof set_by_user / sizeof *set_by_user; i++)
        if (getenv(set_by_user[i])) return;
    if (setenv("OMP_WAIT_POLICY", "passive", 1)) return;
    execv("/proc/self/exe", argv); // returns only on failure: then spin
}
