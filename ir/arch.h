// The properties of GPU architectures on which choices depend.
#ifndef IR_ARCH_H
#define IR_ARCH_H
#include "ir/ir.h"

typedef struct { int arch, shared_kib, processors; const char *device; } Arch; // a row of ir/arch.def
Arch hd_target_arch(const Module *m); // of `arch` in config @target
int64_t hd_shared_bytes(const Module *m); // the most shared memory that a block can have
#endif
