// What is left behind when the compiler itself fails: a .hir file with the IR before the failing pass and, in its first line, the
// passes that were still to run. `heddle-opt --run-reproducer FILE` runs it.
#ifndef PASSES_REPRODUCER_H
#define PASSES_REPRODUCER_H
#include <stddef.h>

#define HD_REPRODUCER_LINE "// pipeline: "

// From now on a crash (abort, segmentation fault and the like) writes `text`, which must live until the next call.
// NULL: nothing to write, and the handlers are taken away.
void hd_reproducer_arm(const char *text, size_t n);
void hd_reproducer_write(void); // writes the armed text now, says where, and disarms
#endif
