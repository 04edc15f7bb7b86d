// Who owns a save folder. flock() decides between processes of one host, and of several hosts where the file system
// carries it. The text of the file decides where it does not:
//
//   heddle 1 TOKEN
//   host NAME BOOT PIDS     its name, the boot of its kernel, the namespace of its process numbers
//   process PID START       start: of /proc/PID/stat, so that another process of the same number is another
//   since DATE
//   beat SECONDS NUMBER     the number grows every so many seconds
//
// An owner with the same host line is alive when its process is there. For any other owner, only its number says so.
#include "runtime/checkpoint/lock.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/text.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 1000, FIELD = 200, BEAT_SECONDS = 15, MOST_BEAT = 60, BEATS = 4 };

typedef struct {
    char token[33], host[FIELD], place[FIELD], since[FIELD]; // place: the line of the host
    long pid, beat, number;
    unsigned long long start;
} Owner;

static bool word(const char *path, char *out, size_t size) { // the first word of a small file
    char text[FIELD] = "";
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, " \n")] = 0;
    snprintf(out, size, "%s", *text ? text : "-");
    return n > 0;
}

static unsigned long long start_of(long pid) { // 0: there is no such process
    char path[40], text[1000];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *at = strrchr(text, ')'); // the name may hold anything
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static void here(Owner *o) {
    char boot[60], pids[60] = "-";
    const time_t now = time(NULL);
    struct tm t;
    if (gethostname(o->host, 100)) snprintf(o->host, sizeof o->host, "-");
    o->host[99] = 0;
    word("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    const ssize_t n = readlink("/proc/self/ns/pid", pids, sizeof pids - 1);
    pids[n > 0 ? n : 1] = 0;
    snprintf(o->place, sizeof o->place, "%.60s %.50s %.50s", o->host, boot, pids);
    o->pid = (long)getpid();
    o->start = start_of(o->pid);
    o->beat = BEAT_SECONDS;
    strftime(o->since, sizeof o->since, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &t));
}

static int text_of(const Owner *o, char text[TEXT]) {
    return snprintf(text, TEXT, "heddle 1 %s\nhost %s\nprocess %ld %llu\nsince %s\nbeat %ld %010ld\n", o->token,
                    o->place, o->pid, o->start, o->since, o->beat, o->number);
}

static bool parse(const char *text, Owner *o) {
    *o = (Owner){.pid = 0};
    if (sscanf(text, "heddle 1 %32[0-9a-f]\nhost %199[^\n]\nprocess %ld %llu\nsince %199[^\n]\nbeat %ld %ld", o->token,
               o->place, &o->pid, &o->start, o->since, &o->beat, &o->number) != 7)
        return false;
    snprintf(o->host, sizeof o->host, "%.*s", (int)strcspn(o->place, " "), o->place);
    return true;
}

// Opened anew each time, so that a network file system asks its server. 1: an owner; 0: none; -1 after hd_fail.
static int read_owner(const char *path, Owner *o) {
    char text[TEXT];
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    const int why = errno;
    if (fd >= 0) close(fd);
    if (n < 0 && why == ENOENT) return 0;
    if (n < 0) return hd_fail("cannot read %s: %s", path, strerror(why)) - 1;
    text[n] = 0;
    return parse(text, o);
}

static bool in_use(const char *path, const Owner *o, const char *how) {
    const int folder = (int)(strrchr(path, '/') - path);
    return hd_fail("--save=%.*s: process %ld on %s saves there since %s%s; give another folder, or end that process. "
                   "If it is surely gone, remove %s",
                   folder, path, o->pid, o->host, o->since, how, path);
}

// Whether an owner that flock knows nothing of is alive; true after hd_fail.
static bool alive(const char *path, const Owner *o, int (*stopped)(void)) {
    Owner self = {.pid = 0}, now = *o;
    here(&self);
    if (!strcmp(self.place, o->place)) return start_of(o->pid) == o->start && o->start && !in_use(path, o, "");
    const long beat = o->beat < 0 ? 0 : o->beat > MOST_BEAT ? MOST_BEAT : o->beat;
    const double until = hd_now() + (double)(BEATS * beat) + 0.5;
    hd_say(stderr, "note: %s belongs to process %ld on %s; waiting at most %ld s to see whether it is alive\n", path,
           o->pid, o->host, BEATS * beat + 1);
    while (hd_now() < until) {
        if (stopped()) return !hd_fail("--save: stopped by a signal while waiting for the owner of %s", path);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        const int there = read_owner(path, &now);
        if (there < 0) return true;
        if (there && (now.number != o->number || strcmp(now.token, o->token) != 0))
            return !in_use(path, &now, ", and is alive");
    }
    return false;
}

static bool write_owner(HdLock *l, const char *dir) {
    Owner self = {.pid = 0};
    uint64_t random[2];
    char text[TEXT];
    here(&self);
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return hd_fail("--save=%s: no random number for its lock: %s", dir, strerror(errno));
    snprintf(self.token, sizeof self.token, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    const int n = text_of(&self, text);
    if (pwrite(l->fd, text, (size_t)n, 0) != n || ftruncate(l->fd, n) || fsync(l->fd))
        return hd_fail("--save=%s: cannot write %s: %s", dir, l->path, strerror(errno));
    memcpy(l->token, self.token, sizeof l->token);
    return true;
}

static void *beat(void *arg) {
    HdLock *l = arg;
    Owner self = {.pid = 0};
    char text[TEXT];
    pthread_mutex_lock(&l->mutex);
    const bool known = read_owner(l->path, &self) > 0;
    while (known && !l->stopping) {
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_sec += BEAT_SECONDS;
        if (pthread_cond_timedwait(&l->stop, &l->mutex, &at) != ETIMEDOUT) continue;
        self.number++;
        const int n = text_of(&self, text);
        if (!hd_lock_mine(l) || pwrite(l->fd, text, (size_t)n, 0) != n || fsync(l->fd)) continue; // see the next save
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

// Without the beat other hosts believe that this process is gone, which it learns at its next save.
static void start_beat(HdLock *l) {
    sigset_t all, before;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->stop, NULL);
    sigfillset(&all); // signals are for the threads that work
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->beating = !pthread_create(&l->beat, NULL, beat, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool still_there(const HdLock *l) { // the file that is open is the one of this name
    struct stat a, b;
    return !fstat(l->fd, &a) && !lstat(l->path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Opens the file and locks it. 1: done; 0: its owner removed it meanwhile; -1 after hd_fail.
static int open_lock(HdLock *l, const char *dir) {
    Owner o;
    l->fd = open(l->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (l->fd < 0) return hd_fail("--save=%s: cannot write %s: %s", dir, l->path, strerror(errno)) - 1;
    if (flock(l->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        for (int i = 0; i < 20 && read_owner(l->path, &o) == 0; i++) // it is only now writing who it is
            nanosleep(&(struct timespec){0, 50000000}, NULL);
        if (read_owner(l->path, &o) > 0) in_use(l->path, &o, "");
        else hd_fail("--save=%s: another process saves there and holds %s", dir, l->path);
        return -1;
    }
    return still_there(l);
}

bool hd_lock_take(HdLock *l, const char *dir, int (*stopped)(void)) {
    Owner o;
    const size_t n = strlen(dir) + 6;
    *l = (HdLock){.fd = -1, .path = malloc(n)};
    if (!l->path) return hd_fail("out of memory");
    snprintf(l->path, n, "%s/lock", dir);
    int got = 0;
    for (int i = 0; !got && i < 100; i++) {
        if (l->fd >= 0) close(l->fd);
        got = open_lock(l, dir);
    }
    if (!got) hd_fail("--save=%s: %s is made and removed all the time", dir, l->path);
    const int there = got > 0 ? read_owner(l->path, &o) : -1;
    l->held = there >= 0 && !(there && alive(l->path, &o, stopped)) && write_owner(l, dir);
    if (l->held) {
        start_beat(l);
        return true;
    }
    if (l->fd >= 0) close(l->fd);
    free(l->path);
    *l = (HdLock){.fd = -1};
    return false;
}

bool hd_lock_mine(const HdLock *l) {
    Owner o = {.pid = 0};
    if (!l || !l->held) return true;
    const int there = read_owner(l->path, &o);
    if (there > 0 && !strcmp(o.token, l->token)) return true;
    if (there > 0) return in_use(l->path, &o, " and has taken it over");
    return there < 0 ? false : hd_fail("nothing is saved: %s, the lock of this process, was removed", l->path);
}

void hd_lock_release(HdLock *l) {
    if (!l->held) return;
    if (l->beating) {
        pthread_mutex_lock(&l->mutex);
        l->stopping = true;
        pthread_cond_signal(&l->stop);
        pthread_mutex_unlock(&l->mutex);
        pthread_join(l->beat, NULL);
    }
    if (hd_lock_mine(l)) unlink(l->path);
    close(l->fd);
    free(l->path);
    *l = (HdLock){.fd = -1};
}

bool hd_lock_keep(HdLock *l, const char *dir, int (*stopped)(void)) {
    Owner o;
    if (l->held && read_owner(l->path, &o) != 0) return hd_lock_mine(l);
    hd_lock_release(l);
    return hd_checkpoint_make(dir) && hd_lock_take(l, dir, stopped);
}
