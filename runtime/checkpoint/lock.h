// The lock of a save folder: DIR/lock. One process at a time saves there, from its start to its end. The file says who
// that is. It goes with its owner: the kernel releases its lock when the process ends however it ends, and a file that
// is left has an owner that is gone.
#ifndef RUNTIME_CHECKPOINT_LOCK_H
#define RUNTIME_CHECKPOINT_LOCK_H
#include <pthread.h>
#include <stdbool.h>

typedef struct {
    int fd;
    bool held, beating;
    char *path;
    char token[33]; // of this owner alone
    pthread_t beat; // writes a number every few seconds, which other hosts see
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool stopping;
} HdLock;

// false after hd_fail: another process saves there, which the message names, or it cannot be found out. An owner of
// another host (or container) is watched until its number changes, or is taken for gone after four of its intervals;
// `stopped` is asked meanwhile, and true ends the wait.
bool hd_lock_take(HdLock *l, const char *dir, int (*stopped)(void));
// Whether it is this process's still, and again where the file was only removed. false after hd_fail: another process
// has taken it over.
bool hd_lock_keep(HdLock *l, const char *dir, int (*stopped)(void));
bool hd_lock_mine(const HdLock *l); // false after hd_fail: somebody removed it or took it over. NULL: no lock, true
void hd_lock_release(HdLock *l);
#endif
