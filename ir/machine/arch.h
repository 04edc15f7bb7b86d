// The properties of GPU architectures on which choices depend.
#ifndef IR_MACHINE_ARCH_H
#define IR_MACHINE_ARCH_H
#include "ir/ir.h"

enum { HD_OLDEST_ARCH = 80 }; // kernels copy with cp.async and multiply bf16 on tensor cores, which sm_75 cannot

// The number of a name: 90 of sm_90 and sm_90a. -1: not such a name.
int hd_arch_number(const char *name);

typedef struct { int arch, shared_kib, processors; const char *device; } Arch; // a row of ir/machine/arch.def
Arch hd_target_arch(const Module *m); // of `arch` in config @target
int64_t hd_shared_bytes(const Module *m); // the most shared memory that a block can have
#endif
