// Products by OpenBLAS, set once to use no threads of its own: our threads share the tiles, and all ranks would share
// OpenBLAS's.
//
// A race detector cannot see into OpenBLAS and would take its locks for an order between ranks. So under one, products
// are plain loops that it does not watch, and the rows they read and write are announced to it.
#include "runtime/host/blas.h"

#ifndef HEDDLE_TSAN
#include <cblas.h>
#include <pthread.h>
#ifdef _OPENMP
#include <omp.h>
#endif

extern void openblas_set_num_threads(int n); // not in every cblas.h

static void one_thread(void) {
#ifdef _OPENMP
    const int ours = omp_get_max_threads();
    openblas_set_num_threads(1);
    omp_set_num_threads(ours); // an OpenBLAS built on OpenMP has changed ours
#else
    openblas_set_num_threads(1);
#endif
}

void hd_host_blas_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, one_thread);
}

static CBLAS_TRANSPOSE transposed(bool t) { return t ? CblasTrans : CblasNoTrans; }

void hd_host_product(const HostProduct *p, float alpha, const float *a, const float *b, float beta, float *d) {
    cblas_sgemm(CblasRowMajor, transposed(p->ta), transposed(p->tb), (int)p->m, (int)p->n, (int)p->k, alpha, a,
                (int)p->a_stride, b, (int)p->b_stride, beta, d, (int)p->d_stride);
}

void hd_host_product_f64(const HostProduct *p, const double *a, const double *b, double beta, double *d) {
    cblas_dgemm(CblasRowMajor, transposed(p->ta), transposed(p->tb), (int)p->m, (int)p->n, (int)p->k, 1.0, a,
                (int)p->a_stride, b, (int)p->b_stride, beta, d, (int)p->d_stride);
}

#else
#include <stddef.h>

extern void __tsan_read_range(void *at, long bytes);
extern void __tsan_write_range(void *at, long bytes);

typedef void Announce(void *at, long bytes);

static void rows(Announce *announce, const void *at, int64_t n, int64_t width, int64_t stride, size_t size) {
    for (int64_t i = 0; n > 0 && width > 0 && i < n; i++)
        announce((char *)(uintptr_t)at + (size_t)(i * stride) * size, (long)((size_t)width * size));
}

static void announce(const HostProduct *p, const void *a, const void *b, bool reads_d, void *d, size_t size) {
    rows(__tsan_read_range, a, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->a_stride, size);
    rows(__tsan_read_range, b, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->b_stride, size);
    if (reads_d) rows(__tsan_read_range, d, p->m, p->n, p->d_stride, size);
    rows(__tsan_write_range, d, p->m, p->n, p->d_stride, size);
}

void hd_host_blas_start(void) {}

#define PRODUCT(NAME, T)                                                                                               \
    __attribute__((no_sanitize("thread"))) static void NAME(const HostProduct *p, T alpha, const T *a, const T *b,     \
                                                            T beta, T *d) {                                            \
        for (int64_t i = 0; i < p->m; i++)                                                                             \
            for (int64_t j = 0; j < p->n; j++) {                                                                       \
                T sum = 0;                                                                                             \
                for (int64_t k = 0; k < p->k; k++)                                                                     \
                    sum += a[p->ta ? k * p->a_stride + i : i * p->a_stride + k] *                                      \
                           b[p->tb ? j * p->b_stride + k : k * p->b_stride + j];                                       \
                T *const to = d + i * p->d_stride + j;                                                                 \
                *to = alpha * sum + (beta == 0 ? 0 : beta * *to);                                                      \
            }                                                                                                          \
    }
PRODUCT(loops_f32, float)
PRODUCT(loops_f64, double)

void hd_host_product(const HostProduct *p, float alpha, const float *a, const float *b, float beta, float *d) {
    announce(p, a, b, beta != 0, d, sizeof *d);
    loops_f32(p, alpha, a, b, beta, d);
}

void hd_host_product_f64(const HostProduct *p, const double *a, const double *b, double beta, double *d) {
    announce(p, a, b, beta != 0, d, sizeof *d);
    loops_f64(p, 1, a, b, beta, d);
}
#endif
