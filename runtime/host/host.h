// The host executor's inside: one executor for each rank, with a worker thread for each stream but the first. The ranks
// of a run are threads of one process and meet in collectives (ranks.c).
//
// Threads exchange information through atomics only: an event orders its record before its wait and nothing else, so
// that a race detector sees a missing event as the race it is. That is why nothing here takes a common lock.
#ifndef RUNTIME_HOST_HOST_H
#define RUNTIME_HOST_HOST_H
#include "runtime/base/guard.h"
#include "runtime/world/world.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct Host Host;
typedef struct Team Team;

typedef struct { const HdFunc *f; int index; double start, end; } HostEvent; // of a profile; seconds

typedef struct {
    Host *host;
    int index;
    pthread_t thread;
    bool started;
    _Atomic uint32_t go, done; // jobs that it may begin, and those that it has ended, counted from 1; futexes
    struct { const HdFunc *f; uint32_t run; } job[2]; // by its number; f NULL: the thread ends
    uint32_t run;              // the run that its present job is part of
    const HdFunc *at_func;     // the present action, kept where the run has several streams or ranks
    int at_action;
    int turn;                  // the action that it is at, where actions take turns; -1: none
    HostEvent *events; // of the last step, when profiling
    int n_events, cap_events;
    bool open_event, events_lost;
    uint32_t noise; // state of the random delays
} HostStream;

typedef struct HostCopy { struct HostCopy *next; size_t bytes; char data[]; } HostCopy;

struct Host {
    HdExec head;
    size_t bytes;
    HostCopy *oldest, *newest;
    bool profiling;
    char device[120];
    long delay;  // random delays of up to so many microseconds between actions; 0: none
    int n_streams;
    HostStream *stream;         // stream[0] runs on the rank's own thread
    uint32_t run;               // runs so far
    _Atomic uint32_t *reached;  // by event, of even runs and of odd ones: the last in which it was recorded; futexes
    Team *team;                 // NULL: one rank
    HdGuards guards;            // of a program with a guard
    _Atomic uint32_t turns;     // actions that have ended, where they take turns; a futex
    uint32_t first_turn;        // of them, those before the present run
    char damage[1400];          // what an action wrote that is nobody's; "": nothing so far
    atomic_int astray;          // 1: an index was out of range, 2: and `index` says which
    char index[1400];
    atomic_bool broken;         // a collective of this rank failed, because of `why`
    char why[1200];
};

static inline Host *hd_host_of(HdExec *x) { return (Host *)(void *)x; }

// Futex: sleeps while *word == value (at most the given time); wakes all that sleep. They order nothing by themselves.
void hd_host_sleep(_Atomic uint32_t *word, uint32_t value, long milliseconds); // 0: for ever
void hd_host_wake(_Atomic uint32_t *word);

// streams.c: waits until the word has come to a value, or to a later one; sets it, and wakes who waits.
void hd_host_wait_for(_Atomic uint32_t *word, uint32_t value);
void hd_host_reach(_Atomic uint32_t *word, uint32_t value);

// streams.c
bool hd_host_streams_open(Host *h); // false after hd_fail
void hd_host_streams_close(Host *h);
bool hd_host_run(HdExec *x, const HdFunc *f);
HostStream *hd_host_stream(HdExec *x); // the executor's stream that the calling thread runs

// ranks.c
bool hd_host_team_open(Host *h);  // all: gives every executor of the run the same team
void hd_host_team_close(Host *h); // frees the arena when no rank can be reading it any more
bool hd_host_team_ok(
    // whether all collectives of this rank succeeded; else false after hd_fail with the reason that ended the run
    Host *h);
Host *hd_host_team_member(Host *h, int rank);

// indices.c: with --check, before an action: whether what it reads as indices is in range; a number that is not is
// replaced by one that is, for the rest of a run that fails.
void hd_host_indices_action(Host *h, const HdFunc *f, int action);
bool hd_host_indices_leave(Host *h); // a run has ended; false after hd_fail

// guard.c: what guards the storages of a program that has a guard. Where they are looked at, actions take turns.
bool hd_host_guards_open(Host *h); // false after hd_fail
void hd_host_guards_close(Host *h);
bool hd_host_guards_on(const Host *h); // with --check, and with the address sanitizer
void hd_host_guards_enter(Host *h, const HdFunc *f);     // a run begins
bool hd_host_guards_leave(Host *h);                      // it has ended; false after hd_fail
void hd_host_turn_begin(HostStream *s, const HdFunc *f, int action); // waits for all actions before it in the plan
void hd_host_turn_end(HostStream *s);                    // of the action that the stream is at, if there is one

// profile.c
void hd_host_begin_event(HostStream *s, const HdFunc *f, int index);
void hd_host_end_event(HostStream *s);
bool hd_host_write_profile(HdExec *x, const char *path);
bool hd_host_write_timeline(HdExec *x, const char *path);
#endif
