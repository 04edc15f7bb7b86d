// Connections between the ranks of a run: a star with rank 0 in the middle, made once. Every rank is known to run the
// same program.
#ifndef RUNTIME_WORLD_RENDEZVOUS_H
#define RUNTIME_WORLD_RENDEZVOUS_H
#include "runtime/world/launch.h"
#include <stdatomic.h>

enum { HD_TCP_WHY = 1024 };

double hd_tcp_seconds(const char *name, double otherwise); // the value of an environment variable

// fd[r] on rank 0: the connection to rank r; on the others fd[0]: to rank 0. Each is non-blocking. false after hd_fail;
// nothing stays open.
bool hd_tcp_connect(HdLaunch *l, const HdProgram *p, int *fd);
// Transfers all the bytes by `until` (hd_now), else false with errno (ETIMEDOUT; ECONNRESET for an end).
bool hd_tcp_read(int fd, void *data, size_t bytes, double until);
bool hd_tcp_write(int fd, const void *data, size_t bytes, double until);
// The same, but where it has to wait it returns false with ECANCELED within 0.1 s of *stop.
bool hd_tcp_write_unless(int fd, const void *data, size_t bytes, double until, const atomic_bool *stop);
#endif
