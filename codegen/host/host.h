// Shared by the files of the host target: kernel functions as C.
#ifndef CODEGEN_HOST_HOST_H
#define CODEGEN_HOST_HOST_H
#include "codegen/emit.h"

int hd_host_launches(const Module *m, const Func *k,
                     const Op **first); // how many launches a kernel has, and the first of them
void hd_host_rows(Emit *e, const Func *k); // kind = rows
void hd_host_map(Emit *e, const Func *k);  // kind = map
void hd_host_conv1d(Emit *e, const Op *o); // ... of conv1d or conv1d_grad
void hd_host_optimizer(Emit *e, const Func *k);  // kind = optimizer
void hd_host_print_update(Emit *e, const Op *o); // the call of the runtime for an update by it

// The expression that reads a value of type d as float (f64: double, i32: int32_t), and the one that makes d of a value
// of type `from`.
const char *hd_host_load(Arena *a, DType d, const char *place);
const char *hd_host_store(Arena *a, DType d, DType from, const char *value);
static inline const char *hd_host_compute_type(DType d) { return hd_emit_ctype(hd_dtype_computed(d)); }
void hd_host_open(Emit *e, const Func *k, bool workspace); // comment, signature and typed parameters: a0.. and r0..
bool hd_host_has_column_sums(const Func *k); // its launches have a workspace for partial sums
#endif
