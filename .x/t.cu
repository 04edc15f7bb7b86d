#include "codegen/cuda/templates/common.cu"
#include "codegen/cuda/templates/attention_hopper.cu"
