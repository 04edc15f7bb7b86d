// See arch.h.
#include "ir/machine/arch.h"
#include <stdlib.h>
#include <string.h>

int hd_arch_number(const char *name) {
    char *end = NULL;
    if (strncmp(name, "sm_", 3) || name[3] < '1' || name[3] > '9') return -1;
    long n = strtol(name + 3, &end, 10);
    return n < 10000 && (!*end || (strchr("af", *end) && !end[1])) ? (int)n : -1;
}

Arch hd_target_arch(const Module *m) {
    static const Arch known[] = {
#define ARCH(number, shared, processors, device) {number, shared, processors, device},
#include "ir/machine/arch.def"
    };
    const Symbol *target = hd_symbol_find(m, "target");
    const int named = target ? hd_arch_number(hd_word(&target->attrs, A_ARCH, "")) : -1;
    const int arch = named < 0 ? 90 : named;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].arch == arch) return known[i];
    return (Arch){arch, 48, 100, ""};
}

// An architecture that is not in the table is newer than sm_80, and those have 99 KiB or more.
int64_t hd_shared_bytes(const Module *m) {
    int kib = hd_target_arch(m).shared_kib;
    return 1024 * (int64_t)(kib < 99 ? 99 : kib);
}
