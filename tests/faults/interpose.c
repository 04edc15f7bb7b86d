// Makes the n-th call of one kind fail, in any program: LD_PRELOAD=libheddle_faults.so. Only calls that the program or
// libc on its behalf makes after main has begun count; what other libraries do at their own start is theirs.
//
//   FAULT=KIND:N[+][:MODE][@RANK]  the N-th call of the kind fails, with + every later one too. MODE short: a call that
//                                  moves bytes does half of its work; eintr: it is interrupted before it does any;
//                                  again: it would have to wait; end: the other end of the connection has closed it.
//                                  RANK: only in that process of those that main forks (--ranks)
//   FAULT_OUT=FILE                  gets a line "fired KIND N FUNCTION" where one failed, and at the end of main
//                                   "count KIND N RANK" for every kind; RANK -1: of no rank
//   FAULT_TRACE=FILE                gets every call that changes files (crash_states.py says how it reads them)
//
// Kinds: alloc, read, write, sync, rename, mmap, open, stat, lock, connect, send, recv, poll, thread, other.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KINDS(X) X(alloc) X(read) X(write) X(sync) X(rename) X(mmap) X(open) X(stat) X(lock) X(connect) X(send) \
    X(recv) X(poll) X(thread) X(other)
typedef enum {
#define X(name) K_##name,
    KINDS(X)
#undef X
        N_KINDS
} Kind;
static const char *const kind_name[N_KINDS] = {
#define X(name) #name,
    KINDS(X)
#undef X
};
typedef enum { FAIL, SHORT, EINTR_FIRST, AGAIN, END, N_MODES } Mode;
static const char *const mode_name[N_MODES] = {"", ":short", ":eintr", ":again", ":end"};

static bool active;
static unsigned calls[N_KINDS];
static int fault_kind = -1, fault_rank = -1, out_fd = -1, trace_fd = -1;
static int forks, rank = -1; // of this process: how many it has made, and which of its parent's it is
static unsigned fault_at;
static bool fault_lasts;
static Mode fault_mode;
static struct { uintptr_t from, to; } ours[16]; // code of the program and of libc
static int n_ours;
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

static void put(int fd, const void *data, size_t n) {
    for (const char *p = data; n;) {
        const long done = syscall(SYS_write, fd, p, n);
        if (done <= 0) return;
        p += done;
        n -= (size_t)done;
    }
}

static int keep(const void *code) { // whether it is the program's or libc's
    for (int i = 0; i < n_ours; i++)
        if ((uintptr_t)code >= ours[i].from && (uintptr_t)code < ours[i].to) return 1;
    return 0;
}

static int find_code(struct dl_phdr_info *info, size_t size, void *data) {
    const char *name = strrchr(info->dlpi_name, '/');
    (void)size;
    if (*info->dlpi_name && !(name && !strncmp(name, "/libc.so", 8))) return 0;
    for (int i = 0; i < info->dlpi_phnum && n_ours < 16; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X)) continue;
        ours[n_ours].from = info->dlpi_addr + h->p_vaddr;
        ours[n_ours++].to = info->dlpi_addr + h->p_vaddr + h->p_memsz;
    }
    *(int *)data += 1;
    return 0;
}

// Whether this call is the one to fail. `caller`: who made it.
static bool fails(Kind kind, const char *function, const void *caller) {
    if (!active || !keep(caller)) return false;
    const unsigned n = __atomic_add_fetch(&calls[kind], 1, __ATOMIC_RELAXED);
    if ((int)kind != fault_kind || n < fault_at || (n > fault_at && !fault_lasts)) return false;
    if (fault_rank >= 0 && rank != fault_rank) return false;
    if (n == fault_at && out_fd >= 0) {
        char line[80];
        const int length = snprintf(line, sizeof line, "fired %s %u %s\n", kind_name[kind], n, function);
        put(out_fd, line, (size_t)length);
    }
    return true;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)(uintptr_t)dlsym(RTLD_NEXT, #name)
#define FAILS(kind, name) fails(K_##kind, name, __builtin_return_address(0))
#define REFUSE(code, value) return errno = (code), (value)

// --- the start

static void read_settings(void) {
    const char *fault = getenv("FAULT"), *out = getenv("FAULT_OUT"), *trace = getenv("FAULT_TRACE");
    int found = 0;
    dl_iterate_phdr(find_code, &found);
    if (out) out_fd = (int)syscall(SYS_openat, AT_FDCWD, out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (trace) trace_fd = (int)syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    // descriptors that no program expects to find free
    if (out_fd >= 0) out_fd = (int)syscall(SYS_fcntl, out_fd, F_DUPFD_CLOEXEC, 500);
    if (trace_fd >= 0) trace_fd = (int)syscall(SYS_fcntl, trace_fd, F_DUPFD_CLOEXEC, 501);
    for (int k = 0; fault && k < N_KINDS; k++) {
        const size_t n = strlen(kind_name[k]);
        if (strncmp(fault, kind_name[k], n) || fault[n] != ':') continue;
        char *end;
        fault_kind = k;
        fault_at = (unsigned)strtoul(fault + n + 1, &end, 10);
        fault_lasts = *end == '+';
        for (int m = SHORT; m < N_MODES; m++)
            if (strstr(end, mode_name[m])) fault_mode = (Mode)m;
        if (strchr(end, '@')) fault_rank = atoi(strchr(end, '@') + 1);
    }
}

static int (*program)(int, char **, char **);

static int counted(int argc, char **argv, char **environment) {
    read_settings();
    active = true;
    const int status = program(argc, argv, environment);
    active = false;
    for (int k = 0; out_fd >= 0 && k < N_KINDS; k++) {
        char line[60];
        const int n = snprintf(line, sizeof line, "count %s %u %d\n", kind_name[k], calls[k], rank);
        put(out_fd, line, (size_t)n);
    }
    return status;
}

int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void),
                      void *);
int __libc_start_main(int (*entry)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
    REAL(__libc_start_main);
    program = entry;
    return real(counted, argc, argv, init, fini, rtld_fini, stack_end);
}

// --- memory

void *malloc(size_t n) {
    if (FAILS(alloc, "malloc")) REFUSE(ENOMEM, NULL);
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    if (FAILS(alloc, "calloc")) REFUSE(ENOMEM, NULL);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    if (FAILS(alloc, "realloc")) REFUSE(ENOMEM, NULL);
    return __libc_realloc(p, n);
}
void *mmap(void *at, size_t n, int access, int flags, int fd, off_t offset) {
    REAL(mmap);
    if (FAILS(mmap, "mmap")) REFUSE(ENOMEM, MAP_FAILED);
    return real(at, n, access, flags, fd, offset);
}
pid_t fork(void) {
    REAL(fork);
    if (FAILS(thread, "fork")) REFUSE(EAGAIN, -1);
    const pid_t child = real();
    if (child == 0) rank = forks, forks = 0;
    else forks++;
    return child;
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    REAL(pthread_create);
    return FAILS(thread, "pthread_create") ? EAGAIN : real(thread, attr, start, arg);
}

// --- the trace: "OP NUMBER NUMBER BYTES\n" and the bytes. Calls are in the order in which they took effect.

static void trace_begin(void) {
    if (trace_fd >= 0) pthread_mutex_lock(&trace_lock);
}

// Ends what trace_begin began; keeps errno.
static void trace_end(bool done, const char *op, long a, long b, const void *bytes, size_t n) {
    if (trace_fd < 0) return;
    const int error = errno;
    if (done && active) {
        char line[100];
        put(trace_fd, line, (size_t)snprintf(line, sizeof line, "%s %ld %ld %zu\n", op, a, b, n));
        put(trace_fd, bytes, n);
    }
    pthread_mutex_unlock(&trace_lock);
    errno = error;
}

static void trace_path(bool done, const char *op, long a, long b, const char *path) {
    trace_end(done, op, a, b, path, strlen(path));
}

// --- files

static int open_traced(int folder, const char *path, int flags, mode_t mode) {
    trace_begin();
    const int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    trace_path(fd >= 0, "open", fd, flags, path);
    return fd;
}

static mode_t mode_of(int flags, va_list ap) { return flags & O_CREAT ? va_arg(ap, mode_t) : 0; }

int open(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = mode_of(flags, ap);
    va_end(ap);
    if (FAILS(open, "open")) REFUSE(EMFILE, -1);
    return open_traced(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = mode_of(flags, ap);
    va_end(ap);
    if (FAILS(open, "openat")) REFUSE(EMFILE, -1);
    return open_traced(folder, path, flags, mode);
}
FILE *fopen(const char *path, const char *mode) {
    REAL(fopen);
    if (FAILS(open, "fopen")) REFUSE(EMFILE, NULL);
    return real(path, mode);
}
DIR *opendir(const char *path) {
    REAL(opendir);
    if (FAILS(open, "opendir")) REFUSE(EMFILE, NULL);
    return real(path);
}
DIR *fdopendir(int fd) {
    REAL(fdopendir);
    if (FAILS(open, "fdopendir")) REFUSE(ENOMEM, NULL);
    return real(fd);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    if (FAILS(open, "mkdir")) REFUSE(ENOSPC, -1);
    trace_begin();
    const int r = real(path, mode);
    trace_path(!r, "mkdir", 0, 0, path);
    return r;
}

// The fate of a call that is to fail: true: nothing, for the reason in errno; else it does *n of its work.
static bool refused(int code, size_t *n) {
    if (fault_mode == SHORT) {
        if (*n > 1) *n /= 2;
        return false;
    }
    errno = fault_mode == EINTR_FIRST ? EINTR : fault_mode == AGAIN ? EAGAIN : code;
    return true;
}

static bool refused_at_all(int code) { // a call that does all of its work, or nothing
    size_t n = 1;
    return refused(code, &n);
}

ssize_t read(int fd, void *to, size_t n) {
    if (FAILS(read, "read") && refused(EIO, &n)) return -1;
    return syscall(SYS_read, fd, to, n);
}
ssize_t pread(int fd, void *to, size_t n, off_t at) {
    if (FAILS(read, "pread") && refused(EIO, &n)) return -1;
    return syscall(SYS_pread64, fd, to, n, at);
}
ssize_t write(int fd, const void *from, size_t n) {
    if (FAILS(write, "write") && refused(ENOSPC, &n)) return -1;
    trace_begin();
    const ssize_t done = syscall(SYS_write, fd, from, n);
    trace_end(done > 0, "write", fd, -1, from, done > 0 ? (size_t)done : 0);
    return done;
}
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    if (FAILS(write, "pwrite") && refused(ENOSPC, &n)) return -1;
    trace_begin();
    const ssize_t done = syscall(SYS_pwrite64, fd, from, n, at);
    trace_end(done > 0, "write", fd, at, from, done > 0 ? (size_t)done : 0);
    return done;
}
int ftruncate(int fd, off_t size) {
    if (FAILS(write, "ftruncate")) REFUSE(EIO, -1);
    trace_begin();
    const int r = (int)syscall(SYS_ftruncate, fd, size);
    trace_end(!r, "truncate", fd, size, "", 0);
    return r;
}
int fflush(FILE *f) {
    REAL(fflush);
    if (f && f != stdout && f != stderr && FAILS(write, "fflush")) REFUSE(ENOSPC, EOF);
    return real(f);
}
int fclose(FILE *f) {
    REAL(fclose);
    const bool wrong = FAILS(write, "fclose");
    const int r = real(f);
    if (wrong) REFUSE(ENOSPC, EOF);
    return r;
}
int fsync(int fd) {
    if (FAILS(sync, "fsync")) REFUSE(EIO, -1);
    trace_begin();
    const int r = (int)syscall(SYS_fsync, fd);
    trace_end(!r, "sync", fd, 0, "", 0);
    return r;
}
int fdatasync(int fd) {
    if (FAILS(sync, "fdatasync")) REFUSE(EIO, -1);
    trace_begin();
    const int r = (int)syscall(SYS_fdatasync, fd);
    trace_end(!r, "sync", fd, 0, "", 0);
    return r;
}
int close(int fd) {
    const bool wrong = FAILS(other, "close");
    trace_begin();
    const int r = (int)syscall(SYS_close, fd);
    trace_end(!r, "close", fd, 0, "", 0);
    if (wrong) REFUSE(EIO, -1);
    return r;
}
int rename(const char *from, const char *to) {
    char both[8192];
    if (FAILS(rename, "rename")) REFUSE(EIO, -1);
    const int n = snprintf(both, sizeof both, "%s%c%s", from, 0, to);
    trace_begin();
    const int r = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    trace_end(!r, "rename", 0, 0, both, (size_t)n);
    return r;
}
int unlinkat(int folder, const char *path, int flags) {
    if (FAILS(other, "unlinkat")) REFUSE(EIO, -1);
    trace_begin();
    const int r = (int)syscall(SYS_unlinkat, folder, path, flags);
    trace_path(!r, "unlink", folder, 0, path);
    return r;
}
int unlink(const char *path) {
    if (FAILS(other, "unlink")) REFUSE(EIO, -1);
    trace_begin();
    const int r = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    trace_path(!r, "unlink", AT_FDCWD, 0, path);
    return r;
}
int rmdir(const char *path) {
    if (FAILS(other, "rmdir")) REFUSE(EIO, -1);
    trace_begin();
    const int r = (int)syscall(SYS_rmdir, path);
    trace_path(!r, "rmdir", 0, 0, path);
    return r;
}
char *realpath(const char *path, char *out) {
    REAL(realpath);
    if (FAILS(other, "realpath")) REFUSE(EIO, NULL);
    return real(path, out);
}

// --- what is asked of files

int stat(const char *path, struct stat *st) {
    REAL(stat);
    if (FAILS(stat, "stat")) REFUSE(EIO, -1);
    return real(path, st);
}
int lstat(const char *path, struct stat *st) {
    REAL(lstat);
    if (FAILS(stat, "lstat")) REFUSE(EIO, -1);
    return real(path, st);
}
int fstat(int fd, struct stat *st) {
    REAL(fstat);
    if (FAILS(stat, "fstat")) REFUSE(EIO, -1);
    return real(fd, st);
}
int fstatat(int folder, const char *path, struct stat *st, int flags) {
    REAL(fstatat);
    if (FAILS(stat, "fstatat")) REFUSE(EIO, -1);
    return real(folder, path, st, flags);
}
int flock(int fd, int how) {
    REAL(flock);
    if (FAILS(lock, "flock") && refused_at_all(ENOLCK)) return -1;
    return real(fd, how);
}

// --- the network

int socket(int domain, int type, int protocol) {
    REAL(socket);
    if (FAILS(connect, "socket")) REFUSE(EMFILE, -1);
    return real(domain, type, protocol);
}
int bind(int fd, const struct sockaddr *at, socklen_t size) {
    REAL(bind);
    if (FAILS(connect, "bind")) REFUSE(EADDRINUSE, -1);
    return real(fd, at, size);
}
int listen(int fd, int waiting) {
    REAL(listen);
    if (FAILS(connect, "listen")) REFUSE(EADDRINUSE, -1);
    return real(fd, waiting);
}
int connect(int fd, const struct sockaddr *at, socklen_t size) {
    REAL(connect);
    if (FAILS(connect, "connect") && refused_at_all(ECONNREFUSED)) return -1;
    return real(fd, at, size);
}
int accept(int fd, struct sockaddr *at, socklen_t *size) {
    REAL(accept);
    if (FAILS(connect, "accept") && refused_at_all(ECONNABORTED)) return -1;
    return real(fd, at, size);
}
int accept4(int fd, struct sockaddr *at, socklen_t *size, int flags) {
    REAL(accept4);
    if (FAILS(connect, "accept4") && refused_at_all(ECONNABORTED)) return -1;
    return real(fd, at, size, flags);
}
ssize_t send(int fd, const void *from, size_t n, int flags) {
    REAL(send);
    if (FAILS(send, "send") && refused(EPIPE, &n)) return -1;
    return real(fd, from, n, flags);
}
ssize_t recv(int fd, void *to, size_t n, int flags) {
    REAL(recv);
    if (FAILS(recv, "recv")) {
        if (fault_mode == END) return 0;
        if (refused(ECONNRESET, &n)) return -1;
    }
    return real(fd, to, n, flags);
}
int poll(struct pollfd *fds, nfds_t n, int wait) {
    REAL(poll);
    if (FAILS(poll, "poll") && refused_at_all(ENOMEM)) return -1;
    return real(fds, n, wait);
}
