// Reads /proc/meminfo, and for every control group from this process's own up to the root its limit and its use. The
// page cache that a group could give back counts as free.
#include "runtime/base/host_memory.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

// version 1 of control groups has a hierarchy of its own for memory, version 2 one for all
static const struct { const char *mount, *limit, *use, *cache; } versions[] = {
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}};

static FILE *open_file(const char *root, const char *folder, const char *name) {
    char path[PATH];
    if ((size_t)snprintf(path, sizeof path, "%s%s/%s", root, folder, name) >= sizeof path) return NULL;
    return fopen(path, "re");
}

// The number after `key` at the start of a line; of key NULL the first in the file. -1: there is none.
static int64_t number_in(FILE *f, const char *key) {
    char line[256];
    int64_t v = -1;
    const size_t n = key ? strlen(key) : 0;
    while (f && v < 0 && fgets(line, sizeof line, f)) {
        if (key && (strncmp(line, key, n) || !strchr(": ", line[n]))) continue;
        char *end, *from = line + n + (key != NULL);
        const long long number = strtoll(from, &end, 10);
        if (end != from && number >= 0) v = number;
    }
    if (f) fclose(f);
    return v;
}

static int64_t free_in(const char *root, int version, const char *group) { // INT64_MAX: no limit
    char folder[PATH];
    snprintf(folder, sizeof folder, "%s%s", versions[version].mount, group);
    const int64_t limit = number_in(open_file(root, folder, versions[version].limit), NULL);
    const int64_t use = number_in(open_file(root, folder, versions[version].use), NULL);
    const int64_t cache = number_in(open_file(root, folder, "memory.stat"), versions[version].cache);
    if (limit < 0 || use < 0) return INT64_MAX; // "max", or no such group
    const int64_t held = use - (cache > 0 ? cache : 0);
    return held < limit ? limit - (held > 0 ? held : 0) : 0;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// line: "4:memory:/a/b" of version 1, "0::/a/b" of version 2
static int64_t free_under(const char *root, char *line) {
    char *group = strchr(line, ':'), *names = group ? group + 1 : NULL;
    group = names ? strchr(names, ':') : NULL;
    if (!group) return INT64_MAX;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    const bool one = strstr(names, "memory") != NULL;
    if (!one && *names) return INT64_MAX;
    int64_t most = INT64_MAX;
    for (;;) { // from the group to the root
        most = least(most, free_in(root, one ? 0 : 1, strcmp(group, "/") ? group : ""));
        char *slash = strrchr(group, '/');
        if (!slash || !*group) return most;
        *slash = 0;
    }
}

int64_t hd_host_memory_free(const char *root) {
    const int64_t kilobytes = number_in(open_file(root, "/proc", "meminfo"), "MemAvailable");
    int64_t most = kilobytes < 0 || kilobytes > INT64_MAX / 1024 ? INT64_MAX : kilobytes * 1024;
    FILE *groups = open_file(root, "/proc/self", "cgroup");
    char line[PATH];
    while (groups && fgets(line, sizeof line, groups)) most = least(most, free_under(root, line));
    if (groups) fclose(groups);
    return most;
}
