// The file that is written when the compiler itself fails: a .hir file with IR and, in its first line, the passes still
// to run on it. `heddle-opt --run-reproducer FILE` runs it.
//
// The IR is that before the failing pass if it was rendered. Otherwise the file gets the IR before the first pass. Then
// a new process, which the fault has not touched, runs the passes up to the failing one on it and replaces the IR by
// the result: passes are deterministic. If that process cannot start or fails as well, the file stays as it was: it has
// all passes, and its second line names the one that fails.
#ifndef PASSES_MANAGER_REPRODUCER_H
#define PASSES_MANAGER_REPRODUCER_H
#include <stdbool.h>
#include <stddef.h>

#define HD_REPRODUCER_LINE "// pipeline: "
#define HD_NARROW_OPTION "--narrow-reproducer" // of drivers, for themselves: --narrow-reproducer FILE PASSED

typedef struct Reproducer {
    const char *head; // comment lines
    size_t n_head;
    const char *text; // the module
    size_t n_text;
    const char *passed; // how many passes of the file come before the failing one, in digits; NULL: none
} Reproducer;

// From now on a crash (abort, segmentation fault and the like) writes `r`, which must live until the next call. NULL:
// removes the handlers.
void hd_reproducer_arm(const Reproducer *r);
void hd_reproducer_write(void); // writes the armed reproducer, prints where, and disarms

// The first call in the main of a driver. True: a failing process started this one to narrow its reproducer; that is
// done, and main returns the status. False: continue; a fault may start such a process of the same binary.
bool hd_reproducer_main(int argc, char **argv, int *status);
void hd_reproducer_may_narrow(void); // what it does when it returns false
#endif
