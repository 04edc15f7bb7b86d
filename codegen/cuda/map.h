// Shared by the printers of kernels of kind map: the kernel that is printed, and its text line by line.
#ifndef CODEGEN_CUDA_MAP_H
#define CODEGEN_CUDA_MAP_H
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include <string.h>

typedef struct {
    const Func *k;
    const Op *o;
    const char *name;
    int widest;
    Arena *a;
    Out out;
    int depth;
    CudaLaunch l;
} Map;

__attribute__((format(printf, 2, 3))) static inline void line(Map *m, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = hd_vsprintf(m->a, fmt, ap);
    va_end(ap);
    m->depth -= text[0] == '}';
    hd_printf(&m->out, "%*s%s\n", text[0] == '#' ? 0 : 4 * (m->depth + 1), "", text);
    m->depth += text[strlen(text) - 1] == '{';
}

// Arguments in0, in1, ... and of the results that the kernel returns out, out1, ...
static inline void signature(Map *m, unsigned threads) {
    const Op *r = hd_return(m->k);
    hd_printf(&m->out, "extern \"C\" __global__ void __launch_bounds__(%u) %s(", threads, m->name);
    for (int i = 0; i < m->k->n_args; i++) {
        hd_printf(&m->out, "const %s *in%d, ", hd_cuda_type(m->k->args[i]->type->dtype), i);
        hd_push(m->a, &m->l.args, ((CudaArg){CUDA_IN, i}));
    }
    for (int i = 0; i < r->n_in; i++) {
        const char *number = r->in[i]->index ? hd_sprintf(m->a, "%d", r->in[i]->index) : "";
        hd_printf(&m->out, "%s%s *out%s", i ? ", " : "", hd_cuda_type(r->in[i]->type->dtype), number);
        hd_push(m->a, &m->l.args, ((CudaArg){CUDA_OUT, i}));
    }
    hd_puts(&m->out, ") {\n    enter();\n");
    m->l.block = threads;
}

// The type of indices below `a` and `b`.
static inline const char *index_type(int64_t a, int64_t b) { return a > 2000000000 || b > 2000000000 ? "i64" : "int"; }

static inline void grid(Map *m, int64_t blocks) {
    m->l.gx = (unsigned)(blocks > 0 ? blocks : 1), m->l.gy = m->l.gz = 1;
}

// Opens a kernel with one thread for every v elements of `total`: `at` is the first.
static inline void open_threads(Map *m, int64_t total, int v, const char *type) {
    signature(m, 256);
    line(m, "const %s at = ((%s)blockIdx.x * 256 + (int)threadIdx.x) * %d;", type, type, v);
    line(m, "if (at >= %lld) return;", ll(total));
    grid(m, (total / v + 255) / 256);
}

// map_along.c and map_conv.c
void hd_map_cumsum(Map *m);
void hd_map_documents(Map *m);
void hd_map_sink_grad(Map *m);
void hd_map_conv1d(Map *m);
void hd_map_conv1d_grad(Map *m);
#endif
