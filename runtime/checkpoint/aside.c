// A new file under a random name.
#include "runtime/checkpoint/aside.h"
#include "runtime/heddle.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int hd_open_aside(const char *path, char *aside, size_t size) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number) {
        hd_fail("cannot write %s: no random name: %s", path, strerror(errno));
        return -1;
    }
    snprintf(aside, size, "%s.tmp.%016llx", path, (unsigned long long)number);
    const int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) hd_fail("cannot write %s: %s", path, strerror(errno));
    return fd;
}
