// A world of processes, from the inside: what its collectives (world_tcp.c) and the thread that reads (world_watch.c)
// share.
#ifndef RUNTIME_WORLD_WORLD_TCP_H
#define RUNTIME_WORLD_WORLD_TCP_H
#include "runtime/world/queue.h"
#include "runtime/world/rendezvous.h"
#include "runtime/world/world.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

// Bytes: that wait to be read on this rank, and then the sender waits; that are received at once.
enum { HD_QUEUE_FULL = 8 << 20, HD_READ_AT_ONCE = 256 << 10 };

typedef struct {
    int fd, rank; // fd -1: the connection has ended
    pthread_mutex_t writing;
    HdSeal out;         // of frames to it; `writing` guards it
    HdReader reader;    // of frames from it
    Queue queue;
    bool left_run;      // it said that it is done
    bool broken;        // a frame to it was cut short: nothing can follow
    double heard;
    char what[40];      // what it did at its last sign of life
    int64_t step;
} Peer;

typedef struct {
    HdWorld head;
    Peer *peer; // rank 0: by rank; else peer[0] is rank 0
    int n;      // number of peers, with a gap at 0 on rank 0
    pthread_t thread;
    char *room;         // of the thread: bytes received, and what it polls
    struct pollfd *fds;
    int *who;
    pthread_mutex_t lock; // guards queues, peers' states, the failure
    pthread_cond_t changed;
    int wake[2];
    atomic_bool failed, closing, gathering; // gathering: this rank is in a gather
    bool told; // the failure was sent to the others
    int heir;  // this rank reports for its host when rank 0 is gone; 0: another does
    int from;  // the rank that worded `why` itself, or -1
    char why[HD_WHY];
    atomic_llong step; // of this rank
    _Atomic(const char *) what;
    double silence;
    void (*say_waiting)(void *of, char *out, size_t size);
    void *waiting_of;
} Tcp;

void hd_tcp_give_up(Tcp *t, int from, int speaker, const char *why); // the first failure is the one reported
void hd_tcp_wake(Tcp *t);                                            // the thread looks at what has changed
// On rank 0, `why` with the rank that is furthest behind, if that explains a run that does not move.
void hd_tcp_add_slowest(const Tcp *t, const char *why, char *out, size_t size);
// Sends while the run continues: a peer that does not read will be found dead. false with errno.
bool hd_tcp_put(const Tcp *t, Peer *p, HdFrame f, const void *body);
void *hd_tcp_watch(void *t); // the thread
#endif
