// From the text of a program to a binary, with the system's C compiler.
#ifndef CODEGEN_BUILD_H
#define CODEGEN_BUILD_H
#include "ir/ir.h"

// Writes `c` to <binary>.c and compiles it to `binary`. CC names the compiler (default cc; it may hold options). The
// runtime's header and library are looked for under HEDDLE_HOME when that is set, else in the folders above the running
// executable. target: host or cuda. false after reporting, with what the compiler said.
bool hd_build_binary(Ctx *cx, const char *target, const Out *c, const char *binary);
// The same, to a shared object without main, whose symbol `hd_built_program` points at the HdProgram; for tests.
bool hd_build_shared(Ctx *cx, const char *target, const Out *c, const char *shared);
#endif
