// The CUDA executor's inside, for runtime/cuda/*.c only.
#ifndef RUNTIME_CUDA_EXEC_H
#define RUNTIME_CUDA_EXEC_H
#include "runtime/cuda/api.h"
#include "runtime/cuda/cache.h"
#include "runtime/cuda/choices.h"
#include "runtime/dtypes.h"
#include "runtime/base/guard.h"
#include <pthread.h>
#include <stdatomic.h>

enum {
    HD_MAX_STREAMS = 16,
    HD_STAGES = 8,        // pinned staging slots
    HD_STAGE_BYTES = 2 << 20,
    HD_POSTS = 64,        // outstanding posts
    HD_POST_BYTES = 4096,
};

typedef struct { // what a kernel takes: a launch with less would make the driver read past its arguments
    int n;       // -1: the driver is too old to say
    unsigned short *bytes;
} HdParams;
enum { HD_MAX_ARGS = 512 };

enum { HD_DRAWS = 3 };
typedef struct { // kernels compiled from the program's sources, and those of initial values
    int n_modules;
    CuModule *modules;
    CuFunction *functions; // one a kernel
    HdParams *params;
    CuFunction draw[HD_DRAWS]; // by type of storage (draw.c)
    CuFunction choose[2];      // of programs that write text (choose.c)
} HdModules;

typedef struct HdCompile HdCompile; // a running compilation of all sources

typedef struct {
    LtDesc desc;
    LtLayout a, b, d;
    LtAlgo algo;
    size_t workspace;       // needed by algo
    int candidates, chosen; // -1: from the cache
    float ms;               // of the choice; 0: not timed
} HdGemmState;

typedef struct {
    LtHandle handle;
    HdGemmState *gemms;
    bool told; // that choosing takes long
} HdGemms;

enum { HD_DNN_PARTS = 160 };
typedef struct {
    Dnn plan;
    int64_t workspace;
    int n_parts;
    Dnn parts[HD_DNN_PARTS];
} HdAttentionState; // plan NULL: the generated kernels
typedef struct HdAttentionBuild HdAttentionBuild;
typedef struct {
    DnnHandle handle;
    CuStream stream; // the handle's
    HdAttentionState *states;
} HdAttentions;

typedef struct {
    NcComm *comm; // one for each communicator of the program; NULL: of one rank
    pthread_mutex_t lock; // around every call of NCCL: the watchdog may abort at any time
    bool aborted;
    size_t skip_from; // collectives of at least so many bytes are replaced by copies
} HdComms;
typedef struct HdWatch HdWatch;

typedef struct {
    int64_t total, context, arena, libraries, comms;
} HdMemory; // bytes of the device; how much each part took

typedef struct HdProfile HdProfile;

typedef struct {
    HdGuards all;
    unsigned char *bytes; // page-locked: those of all live guards; NULL: the program has none
    bool filled;          // those of storages that persist
    int action;           // that is being issued; -1: none
} HdCudaGuards;

struct HdCuda {
    HdExec head; // first: HdExec * and HdCuda * are the same address
    HdCudaApi api;
    HdCache cache;
    pthread_mutex_t failing; // around setting `failed` and `failure`
    bool verbose, graphs, sync_each, early, failed, capturing;
    char failure[4200];
    CuDevice device;
    CuContext context;
    int cc_major, cc_minor, sms, shared_limit;
    char device_name[128];
    CuPtr arena;
    struct { char *at; size_t bytes; } locked; // what hd_cuda_take_memory has given
    int n_streams;
    CuStream streams[HD_MAX_STREAMS + HD_TURN_LANES]; // from HD_MAX_STREAMS on those of lanes, but for the first lane
    CuEvent *events; // those of the program, and one for each lane
    HdModules modules;
    HdGemms gemms;
    HdChoices choices;
    HdAttentions attentions;
    HdComms comms;
    HdWatch *watch;
    HdMemory memory;
    bool nvtx, range; // a profiler wants ranges; a range is open
    CuGraphExec *execs; // one for each region, NULL until captured
    struct HdNotes *notes, *noting; // with --check: of every region what it was captured with; those of the one at hand
    unsigned char *capture_failures;
    const HdFunc *func; // being issued, and its action: for messages
    int action;
    struct {
        unsigned char *host;
        CuEvent done;
        pthread_mutex_t lock; // held from taking the slot until its copy is issued
    } stage[HD_STAGES];
    atomic_uint next_stage;
    struct { unsigned char *host; CuEvent done; size_t bytes; } post[HD_POSTS];
    size_t post_bytes; // of each at most
    unsigned posted, collected;
    HdProfile *profile;
    HdCudaGuards guards;
};

// Keeps the first failure with the action that was being issued; every later call does nothing. Returns false.
bool hd_cuda_fail(HdCuda *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline bool hd_cuda_ok(HdCuda *x, CuResult r, const char *what) {
    if (r == HD_CUDA_SUCCESS) return true;
    return hd_cuda_fail(x, "%s: %s", what, hd_cuda_error(&x->api, r));
}
static inline double hd_cuda_now_ms(void) { return 1e3 * hd_now(); }

// module.c: starts the compilation on threads of its own; join loads the result. start needs cc_* and opens NVRTC.
HdCompile *hd_compile_start(HdCuda *x);
bool hd_compile_ready(HdCompile *c); // waits until NVRTC is open; false when it cannot be
bool hd_compile_join(HdCuda *x, HdCompile *c); // also after a failure elsewhere: frees c
void hd_modules_close(HdCuda *x);

// maps.c: the map of a tensor of 4 dimensions in bf16 or f16 from `at` on; strides in bytes, of all but the first. A
// copy of a box makes zeroes of what is outside of the tensor, and swizzles rows of 128 bytes.
// maps.c: d = a a', or a' a where `deep`, of each matrix (codegen/cuda/templates/symmetric.cu)
void hd_cuda_symmetric(HdCuda *x, int stream, const HdSymmetric *by, HdDtype dtype, HdMatrices of, bool deep, CuPtr a,
                       CuPtr d);
bool hd_cuda_map(HdCuda *x, HdDtype dtype, uint64_t at, const uint64_t dims[4], const uint64_t strides[3],
                 const unsigned box[4], CuMap *map);

// draw.c: initial values
extern const HdSource hd_draw_source;
bool hd_draws_load(HdCuda *x, CuModule m); // a module of hd_draw_source

// choose.c: the next token of a text
extern const HdSource hd_choose_source;
bool hd_choose_load(HdCuda *x, CuModule m); // a module of hd_choose_source

// gemm.c: chooses an algorithm for every product of the program, timed in the arena's memory, which is left dirty
bool hd_gemms_open(HdCuda *x);
void hd_gemms_close(HdCuda *x);

// attention.c
// NULL: nothing to build; cuDNN uses the NVRTC that c opens
HdAttentionBuild *hd_attention_start(HdCuda *x, HdCompile *c);
bool hd_attention_join(HdCuda *x, HdAttentionBuild *b);
void hd_attention_close(HdCuda *x);

// attention_cudnn.c: a plan of at most `limit` bytes of workspace, from either a handle or the JSON description of a
// device. NULL plan with the reason in `why`.
bool hd_cudnn_plan(const HdCudaApi *api, DnnHandle handle, const char *device_json, const HdAttention *t, int64_t limit,
                   HdAttentionState *out, char *why, size_t why_size);
void hd_cudnn_free(const HdCudaApi *api, HdAttentionState *s);
bool hd_cudnn_execute(const HdCudaApi *api, DnnHandle handle, const HdAttentionState *s, const HdAttention *t,
                      const uint64_t *pointers, uint64_t workspace, char *why, size_t why_size);
// the order of `pointers`
enum {
    HD_SDPA_Q,
    HD_SDPA_K,
    HD_SDPA_V,
    HD_SDPA_O,
    HD_SDPA_LSE,
    HD_SDPA_DO,
    HD_SDPA_DQ,
    HD_SDPA_DK,
    HD_SDPA_DV,
    HD_SDPA_SUM,
    HD_SDPA_POINTERS
};

// regions.c. With --check, the calls of a region keep what they pass when it is captured, and compare it before a
// replay. true: the call makes a comparison, and nothing is to be issued.
bool hd_region_note(HdCuda *x, int n, const uint64_t *values);
#define HD_NOTE(x, ...)                                                                                                \
    ((x)->noting && hd_region_note(x, (int)(sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)),               \
                                   (const uint64_t[]){__VA_ARGS__}))
bool hd_region_note_bytes(HdCuda *x, const void *data, size_t bytes);
bool hd_regions_open(HdCuda *x); // false: out of memory
void hd_regions_close(HdCuda *x);

// exec.c
void hd_range_close(HdCuda *x); // of the action at hand, where a profiler wants ranges

// nvtx.c
bool hd_nvtx_open(void); // whether a profiler wants ranges
void hd_nvtx_push(const char *unit, const char *action);
void hd_nvtx_pop(void);

// indices.c: with --check, before the action is issued: whether what it reads as indices is in range. The program runs
// without graphs.
void hd_cuda_indices_action(HdCuda *x, const HdFunc *f, int index);

// guard.c: with --check, what guards the storages of a program that has a guard
bool hd_cuda_guards_open(HdCuda *x);
void hd_cuda_guards_close(HdCuda *x);
void hd_cuda_guards_enter(HdCuda *x); // x->func begins
void hd_cuda_guards_action(HdCuda *x, int index); // is issued next
void hd_cuda_guards_leave(HdCuda *x); // all of x->func is issued

// profile.c
HdProfile *hd_profile_open(HdCuda *x);
void hd_profile_begin(HdCuda *x); // a function starts
void hd_profile_action(HdCuda *x, const HdFunc *f, int index);
void hd_profile_end(HdCuda *x);
bool hd_profile_write(HdCuda *x, const char *path);
bool hd_profile_page(HdCuda *x, const char *path);
void hd_profile_close(HdCuda *x);
#endif
