// Which algorithms the libraries run, as a text that another run can be given (--choices=FILE): two algorithms of a
// matrix product round differently, so the bits of a run are those of its program, its data and these choices.
//
//     heddle choices 1
//     library cuBLASLt 130100
//     device NVIDIA H200, 132 SM
//     product 16384 x 2048 x 8192 tb bf16,bf16->bf16 workspace 33554432 align 16 = 0123...ef 1048576
//     attention 0 = cuDNN 91002
//
// A product's line ends with the 64 bytes of cublasLtMatmulAlgo_t in hexadecimal digits and the bytes of workspace that
// the algorithm needs. cuBLASLt documents that these bytes mean the same to the same version of the library alone.
#ifndef RUNTIME_CUDA_CHOICES_H
#define RUNTIME_CUDA_CHOICES_H
#include "runtime/cuda/api.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct { LtAlgo algo; uint64_t workspace; } HdChoice;
typedef struct HdCuda HdCuda;
typedef struct {
    const char *path; // of --choices; NULL: not given
    char *text;       // of the file; NULL: there is none, and rank 0 writes it
    char *made;       // the choices of this program, in the same form
    size_t n, room;   // its length without the 0, the bytes that it has
} HdChoices;

// Reads the file, if there is one, and begins `made`. false after hd_cuda_fail: the file is no such text, or is of
// another library or device.
bool hd_choices_open(HdCuda *x, const char *path);
bool hd_choices_given(const HdChoices *c); // from a file: nothing is chosen
// The choice of the file for the product that `name` describes; false after hd_cuda_fail: it has none.
bool hd_choices_find(HdCuda *x, const char *name, HdChoice *out);
// Adds what was chosen for a product. Products are added in the order of the program, each as often as it is there.
bool hd_choices_add(HdCuda *x, const char *name, const HdChoice *choice);
// Adds which attentions cuDNN runs, compares that with the file, sets the executor's hash of all choices, and writes
// the file where it was given and absent (rank 0). false after hd_cuda_fail.
bool hd_choices_settle(HdCuda *x);
void hd_choices_close(HdCuda *x);
#endif
