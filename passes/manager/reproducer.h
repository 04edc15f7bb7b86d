// What is left behind when the compiler itself fails: a .hir file with IR and, in its first line, the passes that were
// still to run over it. `heddle-opt --run-reproducer FILE` runs it.
//
// The IR is that before the failing pass where somebody has rendered it. Else the file gets what there is, the IR
// before the first pass, and a process of its own, which the fault has not touched, runs the passes up to the failing
// one over it and puts the IR it finds there into the file instead: passes are deterministic. Where that process cannot
// be had or fails as well, the file stays as it was: it has all passes, and its second line names the one that fails.
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

// From now on a crash (abort, segmentation fault and the like) writes `r`, which must live until the next call.
// NULL: nothing to write, and the handlers are taken away.
void hd_reproducer_arm(const Reproducer *r);
void hd_reproducer_write(void); // writes what is armed now, says where, and disarms

// The first call in the main of a driver. true: this process was started by a failing one to narrow its reproducer; it
// has done so, and main returns the status. false: go on; a fault may start such a process of the same binary.
bool hd_reproducer_main(int argc, char **argv, int *status);
void hd_reproducer_may_narrow(void); // what it does when it returns false
#endif
