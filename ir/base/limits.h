// How large a compilation may become, so that a model of a few bytes cannot take the machine: operations of a module,
// and memory. The tools that compile share these options.
#ifndef IR_BASE_LIMITS_H
#define IR_BASE_LIMITS_H
#include "ir/base/args.h"

enum { HD_MOST_OPS = 500000 };
typedef struct Limits { int64_t ops, memory; } Limits; // memory: bytes
Limits hd_limits(void);            // the defaults: HD_MOST_OPS, three quarters of the machine's memory
ArgGroup hd_limit_rows(size_t base); // base: offset of the Limits in the tool's arguments
#endif
