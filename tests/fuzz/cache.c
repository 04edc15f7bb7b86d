// Any bytes as an entry of the cache of kernels: it is not read, or what is read is what its length and checksum say.
#define _GNU_SOURCE
#include "runtime/cuda/cache.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static HdCache cache;
static char in_memory[] = "/dev/shm/heddle-fuzz-XXXXXX", on_disk[] = "/tmp/heddle-fuzz-XXXXXX", entry[256];
static const char *folder; // in memory where that is possible: a disk would be most of the time

static void expect(bool good, const char *what) {
    if (good) return;
    perror(what);
    abort();
}

static void leave(void) {
    unlink(entry);
    rmdir(folder);
}

static HdKey find_key(void) {
    HdKey key;
    hd_key_start(&key);
    return key;
}

static void start(void) {
    const HdKey key = find_key();
    folder = mkdtemp(in_memory);
    if (!folder) folder = mkdtemp(on_disk);
    expect(folder != NULL, "cannot make a folder");
    setenv("HEDDLE_CACHE", folder, 1);
    hd_cache_open(&cache);
    hd_cache_put(&cache, "cubin", key, "", 0);
    expect(hd_cache_usable(&cache), "cannot write an entry");
    snprintf(entry, sizeof entry, "%s/cubin-%016llx%016llx", folder, (unsigned long long)key.word[0],
             (unsigned long long)key.word[1]);
    atexit(leave);
}

static bool read_back(const void *bytes, size_t size) {
    size_t n = 0;
    char *got = hd_cache_get(&cache, "cubin", find_key(), &n);
    const bool same = got && n == size && !memcmp(got, bytes, size);
    free(got);
    return same;
}

// As they are, as the payload of an entry, and as a change of one byte of such an entry.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!*entry) start();
    int fd = open(entry, O_WRONLY | O_TRUNC);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size && !close(fd), "cannot write the entry");
    size_t n = 0;
    char *got = hd_cache_get(&cache, "cubin", find_key(), &n);
    expect(!got || n < size, "an entry holds more than its file");
    free(got);
    hd_cache_put(&cache, "cubin", find_key(), data, size);
    expect(read_back(data, size), "an entry is not read back");
    struct stat st;
    expect(!stat(entry, &st) && (fd = open(entry, O_RDWR)) >= 0, "cannot open the entry");
    const off_t at = size ? (off_t)(data[0] | (size > 1 ? data[1] << 8 : 0)) % st.st_size : 0;
    char byte;
    expect(pread(fd, &byte, 1, at) == 1, "cannot read a byte");
    byte = (char)(byte ^ (size > 2 && data[2] ? data[2] : 1));
    expect(pwrite(fd, &byte, 1, at) == 1 && !close(fd), "cannot change a byte");
    expect(!read_back(data, size), "a damaged entry is read");
    return 0;
}
