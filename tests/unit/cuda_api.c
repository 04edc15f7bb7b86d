// Compares every row of runtime/cuda/api.def, and of tests/gpu/one_gpu/driver.def, with NVIDIA's own headers: function
// types, constants, struct sizes. Everything is checked while compiling; built only where the headers are installed.
#include "runtime/cuda/api.h"
#include "tests/gpu/one_gpu/driver.h"
#include <stdio.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <nccl.h>
#include <nvrtc.h>

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
SAME_SIZE(LtAlgo, cublasLtMatmulAlgo_t);
SAME_SIZE(LtHeuristic, cublasLtMatmulHeuristicResult_t);
SAME_SIZE(CuPtr, CUdeviceptr);
SAME_SIZE(CuDevice, CUdevice);
SAME_SIZE(CuResult, CUresult);
SAME_SIZE(DnnStatus, cudnnStatus_t);
#define SAME_PLACE(ours, field, theirs, their_field) \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours "." #field)
SAME_PLACE(LtHeuristic, workspace, cublasLtMatmulHeuristicResult_t, workspaceSize);
SAME_PLACE(LtHeuristic, state, cublasLtMatmulHeuristicResult_t, state);
SAME_PLACE(LtHeuristic, waves, cublasLtMatmulHeuristicResult_t, wavesCount);
SAME_SIZE(CuLaunch, CUlaunchConfig);
SAME_PLACE(CuLaunch, shared, CUlaunchConfig, sharedMemBytes);
SAME_PLACE(CuLaunch, stream, CUlaunchConfig, hStream);
SAME_PLACE(CuLaunch, attributes, CUlaunchConfig, attrs);
SAME_PLACE(CuLaunch, n_attributes, CUlaunchConfig, numAttrs);
SAME_SIZE(CuLaunchAttribute, CUlaunchAttribute);
SAME_PLACE(CuLaunchAttribute, cluster, CUlaunchAttribute, value.clusterDim);
SAME_SIZE(CuMap, CUtensorMap);
_Static_assert(_Alignof(CuMap) >= _Alignof(CUtensorMap), "CuMap"); // 64 before CUDA 13
SAME_SIZE(NcId, ncclUniqueId);
SAME_SIZE(NcResult, ncclResult_t);
SAME_PLACE(NcConfig, magic, ncclConfig_t, magic);
SAME_PLACE(NcConfig, blocking, ncclConfig_t, blocking);
SAME_PLACE(NcConfig, max_blocks, ncclConfig_t, maxCTAs);
SAME_PLACE(NcConfig, net, ncclConfig_t, netName);
SAME_PLACE(NcConfig, split_share, ncclConfig_t, splitShare);

SAME_SIZE(CuMemOp, CUstreamBatchMemOpParams);
SAME_PLACE(CuMemOp, wait.operation, CUstreamBatchMemOpParams, waitValue.operation);
SAME_PLACE(CuMemOp, wait.address, CUstreamBatchMemOpParams, waitValue.address);
SAME_PLACE(CuMemOp, wait.value, CUstreamBatchMemOpParams, waitValue.value);
SAME_PLACE(CuMemOp, wait.flags, CUstreamBatchMemOpParams, waitValue.flags);

#define CONST(name, value) _Static_assert((int)(name) == (value) && HD_##name == (value), #name);
#include "runtime/cuda/api.def"
#define CONST(name, value) _Static_assert((int)(name) == (value) && HD_##name == (value), #name);
#include "tests/gpu/one_gpu/driver.def"

// From here on our type names mean theirs.
#define CuResult CUresult
#define CuDevice CUdevice
#define CuDeviceAttribute CUdevice_attribute
#define CuFuncAttribute CUfunction_attribute
#define CuCaptureMode CUstreamCaptureMode
#define CuPtr CUdeviceptr
#define CuContext CUcontext
#define CuStream CUstream
#define CuEvent CUevent
#define CuGraph CUgraph
#define CuGraphExec CUgraphExec
#define CuGraphNode CUgraphNode
#define CuModule CUmodule
#define CuHostFn CUhostFn
#define CuMemOp CUstreamBatchMemOpParams
#define CuFunction CUfunction
#define CuLaunch CUlaunchConfig
#define CuMap CUtensorMap
#define CuMapType CUtensorMapDataType
#define CuMapInterleave CUtensorMapInterleave
#define CuMapSwizzle CUtensorMapSwizzle
#define CuMapPromotion CUtensorMapL2promotion
#define CuMapFill CUtensorMapFloatOOBfill
#define RtStream cudaStream_t
#define NvResult nvrtcResult
#define NvProgram nvrtcProgram
#define LtStatus cublasStatus_t
#define LtCompute cublasComputeType_t
#define LtType cudaDataType_t
#define LtDescAttribute cublasLtMatmulDescAttributes_t
#define LtLayoutAttribute cublasLtMatrixLayoutAttribute_t
#define LtPreferenceAttribute cublasLtMatmulPreferenceAttributes_t
#define LtConfigAttribute cublasLtMatmulAlgoConfigAttributes_t
#define LtHandle cublasLtHandle_t
#define LtDesc cublasLtMatmulDesc_t
#define LtLayout cublasLtMatrixLayout_t
#define LtPreference cublasLtMatmulPreference_t
#define LtAlgo cublasLtMatmulAlgo_t
#define LtHeuristic cublasLtMatmulHeuristicResult_t
#define DnnStatus cudnnStatus_t
#define DnnHandle cudnnHandle_t
#define DnnKind cudnnBackendDescriptorType_t
#define DnnAttribute cudnnBackendAttributeName_t
#define DnnType cudnnBackendAttributeType_t
#define Dnn cudnnBackendDescriptor_t
#define NcResult ncclResult_t
#define NcType ncclDataType_t
#define NcOp ncclRedOp_t
#define NcComm ncclComm_t
#define NcId ncclUniqueId
#define NcConfig ncclConfig_t

#define FN(lib, result, name, symbol, params) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) params), "the type of " symbol);
#include "runtime/cuda/api.def"
#define FN(result, name, symbol, params) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) params), "the type of " symbol);
#include "tests/gpu/one_gpu/driver.def"

int main(void) {
    puts("api.def agrees with the headers");
    return 0;
}
