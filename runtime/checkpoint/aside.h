// A new file beside one that it is to replace by rename(2): under a name that nobody can foresee, so that a link which
// waits there is not followed.
#ifndef RUNTIME_CHECKPOINT_ASIDE_H
#define RUNTIME_CHECKPOINT_ASIDE_H
#include <stddef.h>

enum { HD_ASIDE = 32 }; // bytes that the name is longer than that of `path`, with its end
int hd_open_aside(const char *path, char *aside, size_t size); // for writing; -1 after hd_fail
#endif
