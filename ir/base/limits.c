// One row an option.
#include "ir/base/limits.h"
#include <stddef.h>
#include <unistd.h>

static const ArgRow rows[] = {
    {"--max-ops", "N", 0, ARG_COUNT, offsetof(Limits, ops), "refuse a model of more operations (default: 500000)"},
    {"--max-memory", "SIZE", 0, ARG_SIZE, offsetof(Limits, memory),
     "stop where compiling takes more memory (default: three quarters of the machine's)"},
};

ArgGroup hd_limit_rows(size_t base) { return (ArgGroup)HD_ARG_GROUP(rows, base); }

Limits hd_limits(void) {
    const int64_t pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return (Limits){HD_MOST_OPS, pages > 0 && bytes > 0 ? pages / 4 * 3 * bytes : INT64_MAX};
}
