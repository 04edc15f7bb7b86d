// The texts of codegen/cuda/templates/*.cu, embedded at build time; the last row is empty.
#ifndef CODEGEN_CUDA_TEMPLATES_H
#define CODEGEN_CUDA_TEMPLATES_H
typedef struct { const char *name, *text; } CudaTemplate;
extern const CudaTemplate hd_cuda_template_list[];
#endif
