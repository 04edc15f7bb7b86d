// Connections between the ranks of a run: a star with rank 0 in the middle, made once. Every rank is known to be of
// this run and to run the same program.
//
// A connection begins with a Hello from each end, the rank's first: protocol and a fresh random number. From then on
// there are frames. The rank sends a GREET that says who it is; rank 0 sends an ANSWER to all once all have come, or
// with the reason why there will be no run.
#ifndef RUNTIME_WORLD_RENDEZVOUS_H
#define RUNTIME_WORLD_RENDEZVOUS_H
#include "runtime/world/frames.h"
#include "runtime/world/launch.h"

enum { HD_WHY = 1024, HD_PROTOCOL = 2 };

typedef struct { int fd; HdSeal in, out; } HdLink; // fd -1: there is none

typedef struct { char magic[8]; int32_t protocol, unused; unsigned char nonce[HD_NONCE]; } HdHello;
typedef struct { int32_t rank, ranks; char plan[80], run[HD_RUN]; } HdGreeting; // body of GREET
// body of ANSWER: the reason, a text; step: 1: the run begins, 0: there will be none

void hd_hello(HdHello *h); // with a new random number
bool hd_hello_ok(const HdHello *h, bool any_protocol);

// link[r] on rank 0: to rank r; on the others link[0]: to rank 0. Each socket is non-blocking. false after hd_fail;
// nothing stays open.
bool hd_tcp_connect(HdLaunch *l, const HdProgram *p, HdLink *link);

// admit.c, on rank 0. Takes connections at the n listeners until every rank has come or the time is over; fills link[1]
// to link[ranks-1] with those that came. false: with the reason. Whoever cannot prove that it belongs to this run is
// let go.
bool hd_admit(const HdLaunch *l, const HdProgram *p, const int *listener, int n, HdLink *link, char why[HD_WHY]);

// One connection being judged.
typedef struct {
    int fd;
    double since;
    size_t have; // bytes of the Hello
    HdHello hello;
    HdReader reader;
    HdSeal out;
    bool greeted;
    HdGreeting greeting;
} HdVisitor;
typedef enum { HD_VISITOR_MORE, HD_VISITOR_GREETED, HD_VISITOR_STRANGER } HdVerdict;
// Bytes of a connection, as they come. `own`: rank 0's Hello on it, which is to be sent when *hello_came becomes true.
HdVerdict hd_visitor_take(HdVisitor *v, const unsigned char key[HD_KEY], const HdHello *own, const char *data, size_t n,
                          bool *hello_came);
void hd_visitor_free(HdVisitor *v); // all but its socket
#endif
