// Single-threaded matrix products of dense rows: d (m x n) = alpha a b + beta d. ta: a is stored k x m; tb: b is stored
// n x k. Safe to call from any number of threads at once.
#ifndef RUNTIME_HOST_BLAS_H
#define RUNTIME_HOST_BLAS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct { bool ta, tb; int64_t m, n, k, a_stride, b_stride, d_stride; } HostProduct;
void hd_host_blas_start(void); // call it before several threads compute products
void hd_host_product(const HostProduct *p, float alpha, const float *a, const float *b, float beta, float *d);
void hd_host_product_f64(const HostProduct *p, const double *a, const double *b, double beta, double *d); // alpha is 1
#endif
