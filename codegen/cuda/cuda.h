// Shared by the files of the CUDA target: a CUDA text with its launch, and the registry of a program's
// kernels.
#ifndef CODEGEN_CUDA_CUDA_H
#define CODEGEN_CUDA_CUDA_H
#include "codegen/emit.h"

typedef enum { CUDA_IN, CUDA_OUT, CUDA_WORKSPACE } CudaArgKind;
typedef struct { CudaArgKind kind; int index; } CudaArg; // an operand, a result or the workspace of the launch

typedef struct {
    const char *name, *text; // the kernel's identifier and its whole text
    unsigned gx, gy, gz, block, shared; // shared: bytes of dynamic shared memory
    VEC(CudaArg) args;
} CudaLaunch;
typedef VEC(CudaLaunch) CudaLaunches;

// The launches, in order, that run a kernel function; names start with `name`. `widest`: the widest vector in elements
// that the launch allows (8, or 1 with `align`). shared: bytes of
// shared memory that a block of the device can have.
CudaLaunches hd_cuda_rows(const Func *kernel, const char *name, int widest, int64_t shared, Arena *a);
CudaLaunches hd_cuda_map(const Func *kernel, const char *name, int widest, Arena *a);

// --- the registry (module.c): CUDA texts; equal text is kept once, however many launches use it
typedef struct { const char *text; int weight; bool alone; } CudaText; // alone: a translation unit of its own
typedef struct { const char *base, *content; int number; } CudaName;
typedef struct {
    VEC(CudaText) texts;
    VEC(int) piece_of;
    VEC(CudaName) names;
    const Func *written_in; // for hd_cuda_early: which buffers this function writes, by symbol
    bool *written;
} CudaModule; // piece_of: by index into Emit.kernels

CudaModule *hd_cuda_module(Emit *e);
// Index into HdProgram.kernels of kernel `name`, which is defined by `text`, perhaps with others. shared: largest
// dynamic shared memory.
int hd_cuda_kernel(Emit *e, const char *name, const char *text, int shared, bool alone);
// A kernel name for that content: `base`, or base_2, base_3, ... where other contents already have it.
const char *hd_cuda_name(Emit *e, const char *base, const char *content);
// lines.c: an update whose kernel has lines. state: the addresses of its states.
void hd_cuda_put_lines(Emit *e, const Op *o, int n_states, const char *const *state);
// Templates, their names separated by blanks, with `defines` ("#define X 1\n" lines) before them. The defined names are
// undefined after them.
const char *hd_cuda_template(Emit *e, const char *names, const char *defines);
void hd_cuda_finish(Emit *e); // groups the texts into translation units

// A launch statement; `args` are the kernel's arguments: C expressions of uint64_t, or "{.data = ..., .bytes = ...}".
typedef VEC(const char *) CudaArgs;
typedef struct {
    unsigned gx, gy, gz, block, shared, cluster[3];
} CudaGrid; // HdGrid
void hd_cuda_put_launch(Emit *e, const Op *o, int kernel, const CudaGrid *grid, const CudaArgs *args);
// Kernel `kernel` of `text`, launched with the n arguments of `arg`; HD_CUDA_LAUNCH: with those that follow.
void hd_cuda_launch_kernel(Emit *e, const Op *o, const char *kernel, const char *text, int64_t gx, int64_t gy,
                           unsigned block, unsigned shared, int n, const char *const *arg);
#define HD_CUDA_LAUNCH(e, o, kernel, text, gx, gy, block, shared, ...)                                                 \
    hd_cuda_launch_kernel(e, o, kernel, text, gx, gy, block, shared,                                                   \
                          (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                               \
                          (const char *[]){__VA_ARGS__})
const char *hd_cuda_device(Emit *e, int64_t offset); // "hd_device(x, 0x1000)"
// Launches the kernel that converts n elements from address `src` to address `dst`, both C, or adds them there.
// aligned: both are multiples of 16 bytes.
void hd_cuda_gemv(Emit *e, const Op *o); // a gemm of one row
void hd_cuda_row_product(Emit *e, const Op *o); // a launch of a kernel of kind product
// Whether a kernel may read v before those before it have ended: v is an argument of the function of a token, or a view
// of a buffer that persists and that this function does not write. What is issued before that function writes neither.
bool hd_cuda_early(Emit *e, const Op *o, const Value *v);
void hd_cuda_convert(Emit *e, const Op *o, DType from, DType to, bool add, int64_t n, bool aligned, const char *src,
                     const char *dst);

// library.c: false, and an error, where the target does not compute in f32. The widest vector, up to 16 bytes, that the
// op's addresses and rows of `cols` elements allow.
bool hd_cuda_in_f32(Emit *e, const Op *o, const Value *v);
int hd_cuda_vector(const Op *o, DType d, int64_t cols);

// --- the print column of ops.def
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) fields
#define print(x) EmitOp hd_cuda_print_##x;
#include "ir/ops.def"
const char *hd_cuda_attention_fields(Emit *e, const Op *o); // Target.attention

static inline const char *hd_cuda_type(DType d) { return hd_dtype_info(d)->cuda; } // the stored type: "bf16", "float"
static inline const char *hd_cuda_compute(DType d) { return hd_cuda_type(hd_dtype_computed(d)); }
#endif
