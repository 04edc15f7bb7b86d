// From the text of a program to a binary, with the system's C compiler.
#ifndef CODEGEN_BUILD_H
#define CODEGEN_BUILD_H
#include "ir/ir.h"

typedef struct {
    const char *target, *output; // host or cuda; the file to make
    bool save_temps, verbose;    // leave the C text in OUTPUT.c; print the compiler's command on stderr
} Build;

// Compiles `c` to a binary. No other file is left unless it is asked for. CC names the compiler (default cc; it may
// include options). The runtime's header and library are searched under HEDDLE_HOME when that is set, else in the
// folders above the running executable. False after reporting, with the output of the compiler.
bool hd_build_binary(Ctx *cx, const Build *b, const Out *c);
// The same, to a shared object without main, whose symbol `hd_built_program` points at the HdProgram; for tests.
bool hd_build_shared(Ctx *cx, const Build *b, const Out *c);
#endif
