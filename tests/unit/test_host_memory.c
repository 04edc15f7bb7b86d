// The answer of hd_host_memory_free to the files of a kernel: a folder stands for the root of the file system.
#include "runtime/base/host_memory.h"
#include "tests/unit/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void put(const char *path, const char *text) { // with the folders above it
    char command[300];
    snprintf(command, sizeof command, "mkdir -p root/%.*s", (int)(strrchr(path, '/') - path), path);
    CHECK(!system(command));
    snprintf(command, sizeof command, "root/%s", path);
    FILE *f = fopen(command, "w");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

static void begin(const char *available, const char *groups) {
    CHECK(!system("rm -rf root && mkdir root"));
    if (available) put("proc/meminfo", available);
    if (groups) put("proc/self/cgroup", groups);
}

static const char some[] = "MemTotal:  9000 kB\nMemFree:   10 kB\nMemAvailable:   5000 kB\nBuffers: 1 kB\n";
enum { KERNEL = 5000 * 1024 };

TEST(the_kernel_says_what_is_available) {
    begin(NULL, NULL);
    CHECK(hd_host_memory_free("root") == INT64_MAX);
    begin("MemTotal: 9 kB\n", NULL);
    CHECK(hd_host_memory_free("root") == INT64_MAX);
    begin(some, NULL);
    CHECK_INT(hd_host_memory_free("root"), KERNEL);
    begin("MemAvailable: 99999999999999999999 kB\n", "not a group\n0::\n::\n");
    CHECK(hd_host_memory_free("root") == INT64_MAX);
}

TEST(a_group_and_those_above_it_limit) { // version 2
    begin(some, "0::/job/step\n");
    CHECK_INT(hd_host_memory_free("root"), KERNEL); // no such group here, as in a container
    put("sys/fs/cgroup/job/step/memory.max", "max\n");
    put("sys/fs/cgroup/job/step/memory.current", "100\n");
    CHECK_INT(hd_host_memory_free("root"), KERNEL);
    put("sys/fs/cgroup/job/memory.max", "1000\n");
    put("sys/fs/cgroup/job/memory.current", "700\n");
    CHECK_INT(hd_host_memory_free("root"), 300);
    put("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 200\nactive_file 50\n");
    CHECK_INT(hd_host_memory_free("root"), 500);
    put("sys/fs/cgroup/job/step/memory.max", "90\n"); // it holds more than that: the limit was lowered
    CHECK_INT(hd_host_memory_free("root"), 0);
    put("sys/fs/cgroup/memory.max", "7\n"); // the root of a container
    put("sys/fs/cgroup/memory.current", "2\n");
    put("sys/fs/cgroup/job/step/memory.max", "1090\n");
    CHECK_INT(hd_host_memory_free("root"), 5);
}

TEST(version_one_has_a_hierarchy_for_memory) {
    begin(some, "12:cpu,cpuacct:/x\n4:memory:/slurm/job\n0::/other\n");
    put("sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "4000\n");
    CHECK_INT(hd_host_memory_free("root"), KERNEL);
    put("sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "5000\n");
    put("sys/fs/cgroup/memory/slurm/job/memory.stat", "inactive_file 9\ntotal_inactive_file 30\n");
    CHECK_INT(hd_host_memory_free("root"), 1030);
}

int main(int argc, char **argv) {
    char folder[] = "memory_XXXXXX";
    if (!mkdtemp(folder) || chdir(folder)) return 1;
    const int status = run_tests(argc, argv);
    if (system("rm -rf root") || chdir("..") || rmdir(folder)) return 1;
    return status;
}
