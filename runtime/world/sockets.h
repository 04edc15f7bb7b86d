// Sockets without blocking: transfers with an end in time, and the addresses at which rank 0 listens and is reached.
#ifndef RUNTIME_WORLD_SOCKETS_H
#define RUNTIME_WORLD_SOCKETS_H
#include "runtime/world/launch.h"
#include <stdatomic.h>

enum { HD_LISTENERS = 8, HD_PLACE = 320 };

double hd_tcp_seconds(const char *name, double otherwise); // the value of an environment variable

// Transfers all the bytes by `until` (hd_now), else false with errno (ETIMEDOUT; ECONNRESET for an end).
bool hd_tcp_read(int fd, void *data, size_t bytes, double until);
bool hd_tcp_write(int fd, const void *data, size_t bytes, double until);
// The same, but where it has to wait it returns false with ECANCELED within 0.1 s of *stop.
bool hd_tcp_write_unless(int fd, const void *data, size_t bytes, double until, const atomic_bool *stop);
bool hd_tcp_wait(int fd, short what, double until); // poll's events; false with errno

void hd_socket_set_up(int fd); // non-blocking, without delay, not for children
// Where rank 0 of this launch listens, one socket for each address of its host; the number of sockets, 0 after hd_fail.
int hd_socket_listen(const HdLaunch *l, int fd[HD_LISTENERS]);
// To rank 0; -1 with the reason: not yet.
int hd_socket_connect(const HdLaunch *l, double until, char *why, size_t size);
// false: the other end is a process of another user. Only a local socket knows it.
bool hd_socket_same_user(int fd);
bool hd_socket_same_host(int fd); // both ends have one address
const char *hd_socket_place(const HdLaunch *l, char out[HD_PLACE]); // for messages
#endif
