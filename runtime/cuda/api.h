// NVIDIA's libraries, opened at run time: types, constants and one table of function pointers, all made from api.def.
#ifndef RUNTIME_CUDA_API_H
#define RUNTIME_CUDA_API_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Enumerations are plain ints here: the same size and calling convention.
typedef int CuResult, CuDevice, CuDeviceAttribute, CuFuncAttribute, CuCaptureMode;
typedef unsigned long long CuPtr;
typedef struct CuContextState *CuContext;
typedef struct CuStreamState *CuStream, *RtStream;
typedef struct CuEventState *CuEvent;
typedef struct CuGraphState *CuGraph;
typedef struct CuGraphExecState *CuGraphExec;
typedef struct CuGraphNodeState *CuGraphNode;
typedef struct CuModuleState *CuModule;
typedef struct CuFunctionState *CuFunction;
typedef struct {
    int id;
    unsigned unused;
    union {
        struct { unsigned x, y, z, pad[13]; } cluster;
        int allowed; // of programmatic stream serialization
    };
} CuLaunchAttribute;
typedef struct {
    unsigned gx, gy, gz, bx, by, bz, shared;
    CuStream stream;
    CuLaunchAttribute *attributes;
    unsigned n_attributes;
} CuLaunch;
typedef int CuMapType, CuMapInterleave, CuMapSwizzle, CuMapPromotion, CuMapFill;
typedef struct { _Alignas(128) uint64_t opaque[16]; } CuMap; // a tensor map
typedef int NvResult;
typedef struct NvProgramState *NvProgram;
typedef int LtStatus, LtCompute, LtType, LtDescAttribute, LtLayoutAttribute, LtPreferenceAttribute, LtConfigAttribute;
typedef struct LtState *LtHandle;
typedef struct LtDescState *LtDesc;
typedef struct LtLayoutState *LtLayout;
typedef struct LtPreferenceState *LtPreference;
typedef struct { uint64_t data[8]; } LtAlgo;
typedef struct { LtAlgo algo; size_t workspace; LtStatus state; float waves; int reserved[4]; } LtHeuristic;
typedef int DnnStatus, DnnKind, DnnAttribute, DnnType;
typedef struct DnnState *DnnHandle;
typedef void *Dnn; // a descriptor
typedef int NcResult, NcType, NcOp;
typedef struct NcCommState *NcComm;
typedef struct { char internal[128]; } NcId;
typedef struct { // as of NCCL 2.18; a newer library takes later fields as not given
    size_t size;
    unsigned magic, version;
    int blocking, cluster, min_blocks, max_blocks;
    const char *net;
    int split_share, unused;
} NcConfig;

enum {
#define CONST(name, value) HD_##name = value,
#include "runtime/cuda/api.def"
};

typedef enum {
#define LIB(id, required, names, need, cure) HD_LIB_##id,
#include "runtime/cuda/api.def"
    HD_N_LIBS
} HdCudaLib;

typedef struct {
#define FN(lib, result, name, symbol, params) result (*name) params;
#include "runtime/cuda/api.def"
    void *handle[HD_N_LIBS];
    char path[HD_N_LIBS][512]; // the file each was opened from
    int driver_version;        // 13000: the newest CUDA the driver supports; 0 until the driver is open
} HdCudaApi;

// Opens one library and fills its functions. False after hd_fail, which names the library, its purpose and every place
// searched. Libraries whose major version is above the driver's are skipped, so open DRIVER first.
bool hd_cuda_load(HdCudaApi *api, HdCudaLib lib);
void hd_cuda_unload(HdCudaApi *api);
// "CUDA_ERROR_INVALID_VALUE (invalid argument)", in a buffer of the thread
const char *hd_cuda_error(const HdCudaApi *api, CuResult r);
#endif
