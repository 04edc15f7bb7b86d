// The on-disk cache of kernels: an entry that somebody else may have written, or that is no file, is not read.
#define _GNU_SOURCE
#include "runtime/cuda/cache.h"
#include "tests/unit/check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OTHER_USER = 65534 };
static char folder[64], entry[256];

static HdKey some_key(void) {
    HdKey k;
    hd_key_start(&k);
    hd_key_add(&k, "source", 6);
    return k;
}

// A fresh folder with one entry.
static HdCache start(void) {
    HdCache c;
    const HdKey k = some_key();
    strcpy(folder, "unit_cache.XXXXXX");
    if (!mkdtemp(folder)) abort();
    setenv("HEDDLE_CACHE", folder, 1);
    hd_cache_open(&c);
    hd_cache_put(&c, "cubin", k, "machine code", 12);
    snprintf(entry, sizeof entry, "%s/cubin-%016llx%016llx", folder, (unsigned long long)k.word[0],
             (unsigned long long)k.word[1]);
    return c;
}

static void end(void) {
    unlink(entry);
    if (rmdir(folder)) abort(); // a temporary file stays
}

static bool is_read(HdCache *c) {
    size_t n = 0;
    char *data = hd_cache_get(c, "cubin", some_key(), &n);
    const bool good = data && n == 12 && !memcmp(data, "machine code", 12);
    free(data);
    return good;
}

static bool is_read_again(void) { // by a program that starts
    HdCache c;
    hd_cache_open(&c);
    return is_read(&c);
}

TEST(an_entry_of_ours_is_read) {
    HdCache c = start();
    struct stat st;
    CHECK(is_read(&c) && is_read_again());
    CHECK(!stat(entry, &st) && (st.st_mode & 0777) == 0600);
    end();
}

TEST(others_may_not_write_an_entry) {
    HdCache c = start();
    CHECK(!chmod(entry, 0620) && !is_read(&c));
    CHECK(!chmod(entry, 0602) && !is_read(&c));
    CHECK(!chmod(entry, 0644) && is_read(&c));
    if (!chown(entry, OTHER_USER, (gid_t)-1)) CHECK(!is_read(&c)); // only root can give files away
    hd_cache_put(&c, "cubin", some_key(), "machine code", 12);     // made anew, it is ours again
    CHECK(is_read(&c));
    end();
}

TEST(others_may_not_write_the_folder) {
    HdCache c = start();
    CHECK(!chmod(folder, 0775) && !is_read_again());
    CHECK(!chmod(folder, 0707) && !is_read_again());
    hd_cache_open(&c);
    CHECK(!hd_cache_usable(&c));
    CHECK(!chmod(folder, 0755) && is_read_again());
    if (!chown(folder, OTHER_USER, (gid_t)-1)) {
        CHECK(!is_read_again());
        CHECK(!chown(folder, geteuid(), (gid_t)-1) && is_read_again());
    }
    end();
}

TEST(only_files_are_read) {
    HdCache c = start();
    char kept[300];
    snprintf(kept, sizeof kept, "%s/kept", folder);
    CHECK(!rename(entry, kept) && !symlink("kept", entry) && !is_read(&c)); // a link to the right bytes
    CHECK(!unlink(entry) && !mkfifo(entry, 0600) && !is_read(&c));           // nobody writes: no waiting
    CHECK(!unlink(entry) && !mkdir(entry, 0700) && !is_read(&c));
    CHECK(!rmdir(entry) && !symlink("/dev/zero", entry) && !is_read(&c));
    CHECK(!unlink(entry) && !rename(kept, entry) && is_read(&c));
    end();
}

// Every byte counts, and so does every length.
TEST(a_damaged_entry_is_not_read) {
    HdCache c = start();
    FILE *f = fopen(entry, "rb");
    char whole[128] = {0};
    const size_t n = f ? fread(whole, 1, sizeof whole, f) : 0;
    if (f) fclose(f);
    CHECK(n > 12 && n < sizeof whole - 1);
    for (size_t i = 0; i <= 2 * n; i++) {
        char bytes[128];
        const size_t size = i < n ? n : i - n + (i == 2 * n); // the last one is too long
        memcpy(bytes, whole, sizeof bytes);
        if (i < n) bytes[i] = (char)(bytes[i] ^ 1);
        if (!(f = fopen(entry, "wb")) || fwrite(bytes, 1, size, f) != size || fclose(f)) abort();
        CHECK(!is_read(&c));
    }
    end();
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
