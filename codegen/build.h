// From the text of a program to a binary, with the system's C compiler.
#ifndef CODEGEN_BUILD_H
#define CODEGEN_BUILD_H
#include "ir/ir.h"

// Writes `c` to <binary>.c and compiles it to `binary`. CC names the compiler (default cc; it may hold options). The runtime's
// header and library are looked for under HEDDLE_HOME when that is set, else in the folders above the running executable.
// target: host or cuda. false after reporting, with what the compiler said.
bool hd_build_binary(Ctx *cx, const char *target, const Out *c, const char *binary);
// The same, to a shared object without main: the program is the symbol HEDDLE_NO_MAIN names (see the end of any program).
bool hd_build_shared(Ctx *cx, const char *target, int n_files, const char *const *c_files, const char *shared);
#endif
