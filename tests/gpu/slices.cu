// What slices of rows would gain under tensor parallelism with sequences in parts: the matmuls of a block's forward
// pass with their collectives, by tests/gpu/slices.sh. Ranks are processes, one a GPU. Everything is captured in one
// graph of 24 blocks, and the medians of nine replays are printed.
//
// A slice is the next 1/N of the rows of all ranks, so that it lies at one place of the gathered rows. Slices of a
// reduction are followed by the gather and the matmuls of the same slice. `copy engines` takes NCCL's collectives
// without kernels: a gather, and an exchange whose parts are added in f32. `owners` slices by rank instead: the rows
// of a rank are broadcast from it and reduced to it.
#include <algorithm>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <functional>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

typedef __nv_bfloat16 bf16;
typedef std::function<void(size_t row, int rows)> products;

static int rank, ranks, tokens, dim, qkv, heads_dim, hidden;

#define CHECK(call, good)                                                                                              \
  do {                                                                                                                 \
    int e_ = (int)(call);                                                                                              \
    if (e_ != (int)(good)) {                                                                                           \
      printf("rank %d, line %d: error %d\n", rank, __LINE__, e_);                                                      \
      fflush(stdout);                                                                                                  \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define CUDA(call) CHECK(call, cudaSuccess)
#define NCCL(call) CHECK(call, ncclSuccess)
#define BLAS(call) CHECK(call, CUBLAS_STATUS_SUCCESS)

struct shared {
  ncclUniqueId id;
  volatile int ready, arrived[1024];
};
static shared *common;

static void barrier() {
  static int n;
  volatile int *count = &common->arrived[n++ % 1024];
  __sync_fetch_and_add(count, 1);
  while (*count % ranks) usleep(50);
}

__global__ void fill(bf16 *p, size_t n, unsigned seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    unsigned h = ((unsigned)i * 2654435761u) ^ seed;
    h = (h ^ h >> 15) * 2246822519u;
    p[i] = __float2bfloat16(((int)(h >> 16) - 32768) / 32768.f * 0.05f);
  }
}

// out = the sum of `parts` parts of n sixteen-byte words each, in order, in f32
__global__ void add_parts(const uint4 *in, uint4 *out, size_t n, int parts) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    float sum[8] = {};
    for (int k = 0; k < parts; k++) {
      uint4 word = in[k * n + i];
      for (int j = 0; j < 8; j++) sum[j] += __bfloat162float(((bf16 *)&word)[j]);
    }
    uint4 word;
    for (int j = 0; j < 8; j++) ((bf16 *)&word)[j] = __float2bfloat16_rn(sum[j]);
    out[i] = word;
  }
}

__global__ void hash(const unsigned short *p, size_t n, unsigned long long *out) {
  unsigned long long sum = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    sum += (unsigned long long)p[i] * (2 * i + 1);
  atomicAdd(out, sum);
}

static unsigned long long digest(const bf16 *p, size_t n) {
  static unsigned long long *out;
  unsigned long long value;
  if (!out) CUDA(cudaMalloc((void **)&out, sizeof *out));
  CUDA(cudaMemset(out, 0, sizeof *out));
  hash<<<256, 256>>>((const unsigned short *)p, n, out);
  CUDA(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

// y[m, n] = x[m, k] times the transpose of w[n, k]; each size has cuBLASLt's first choice.
static void matmul(const bf16 *x, const bf16 *w, bf16 *y, int m, int n, int k, cudaStream_t stream) {
  struct plan {
    int m, n, k;
    cublasLtMatmulDesc_t call;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algorithm;
  };
  static std::vector<plan> plans;
  static cublasLtHandle_t handle;
  static void *workspace;
  static const size_t bytes = 32 << 20;
  if (!handle) {
    BLAS(cublasLtCreate(&handle));
    CUDA(cudaMalloc(&workspace, bytes));
  }
  auto p = std::find_if(plans.begin(), plans.end(), [&](plan &o) { return o.m == m && o.n == n && o.k == k; });
  if (p == plans.end()) {
    plan made = {m, n, k};
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t first;
    int found;
    BLAS(cublasLtMatmulDescCreate(&made.call, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS(cublasLtMatmulDescSetAttribute(made.call, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    BLAS(cublasLtMatrixLayoutCreate(&made.w, CUDA_R_16BF, k, n, k));
    BLAS(cublasLtMatrixLayoutCreate(&made.x, CUDA_R_16BF, k, m, k));
    BLAS(cublasLtMatrixLayoutCreate(&made.y, CUDA_R_16BF, n, m, n));
    BLAS(cublasLtMatmulPreferenceCreate(&wish));
    BLAS(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    BLAS(cublasLtMatmulAlgoGetHeuristic(handle, made.call, made.w, made.x, made.y, made.y, wish, 1, &first, &found));
    made.algorithm = first.algo;
    plans.push_back(made);
    p = plans.end() - 1;
  }
  float one = 1, zero = 0;
  BLAS(cublasLtMatmul(handle, p->call, &one, w, p->w, x, p->x, &zero, y, p->y, y, p->y, &p->algorithm, workspace, bytes,
                      stream));
}

static cudaStream_t compute, other; // `other` has the collectives
static cudaEvent_t events[4096];
static int n_events;

static cudaEvent_t mark(cudaStream_t stream) {
  cudaEvent_t e = events[n_events++ % 4096];
  CUDA(cudaEventRecord(e, stream));
  return e;
}

static void after(cudaStream_t from, cudaStream_t to) {
  if (from != to) CUDA(cudaStreamWaitEvent(to, mark(from), 0));
}

enum how { NOTHING, KERNELS, ENGINES };
static ncclComm_t comms[3];

static bf16 *own, *x, *q, *att, *partial, *parts, *gate, *up, *w_qkv, *w_o, *w_up, *w_down;

static bf16 *room(size_t n, bool window) {
  void *p;
  ncclWindow_t w;
  if (!window) CUDA(cudaMalloc(&p, n * 2));
  else {
    NCCL(ncclMemAlloc(&p, n * 2));
    for (int i = KERNELS; i <= ENGINES; i++)
      NCCL(ncclCommWindowRegister(comms[i], p, n * 2, &w, NCCL_WIN_COLL_SYMMETRIC));
  }
  fill<<<256, 256>>>((bf16 *)p, n, 77 * rank + 5);
  CUDA(cudaDeviceSynchronize());
  return (bf16 *)p;
}

static void gather(how how, size_t from, size_t to, size_t n, cudaStream_t s) {
  if (how != NOTHING) NCCL(ncclAllGather(own + from, x + to, n, ncclBfloat16, comms[how], s));
}

static void reduce(how how, size_t from, size_t to, size_t n, cudaStream_t s) {
  if (how == KERNELS) NCCL(ncclReduceScatter(partial + from, own + to, n, ncclBfloat16, ncclSum, comms[how], s));
  if (how == ENGINES) {
    NCCL(ncclAlltoAll(partial + from, parts + from, n, ncclBfloat16, comms[how], s));
    add_parts<<<264, 512, 0, s>>>((uint4 *)(parts + from), (uint4 *)(own + to), n / 8, ranks);
  }
}

static void to_qkv(size_t row, int rows) { matmul(x + row * dim, w_qkv, q + row * qkv, rows, qkv, dim, compute); }
static void from_attention(size_t row, int rows) {
  matmul(att + row * heads_dim, w_o, partial + row * dim, rows, dim, heads_dim, compute);
}
static void mlp(size_t row, int rows) {
  matmul(x + row * dim, w_up, gate + row * hidden, rows, hidden, dim, compute);
  matmul(x + row * dim, w_up, up + row * hidden, rows, hidden, dim, compute);
  matmul(gate + row * hidden, w_down, partial + row * dim, rows, dim, hidden, compute);
}
static void attention() { matmul(q, w_o, att, tokens, heads_dim, heads_dim, compute); } // a matmul in its place

static void block(how how, int slices) {
  cudaStream_t c = slices > 1 ? other : compute;
  size_t rows = tokens / slices, mine = rows / ranks;
  std::vector<cudaEvent_t> arrived;
  after(compute, c);
  for (int i = 0; i < slices; i++) {
    gather(how, i * mine * dim, i * rows * dim, mine * dim, c);
    after(c, compute);
    to_qkv(i * rows, rows);
  }
  attention();
  for (int i = 0; i < slices; i++) {
    from_attention(i * rows, rows);
    after(compute, c);
    reduce(how, i * rows * dim, i * mine * dim, mine * dim, c);
    gather(how, i * mine * dim, i * rows * dim, mine * dim, c);
    arrived.push_back(mark(c));
  }
  for (int i = 0; i < slices; i++) {
    if (c != compute) CUDA(cudaStreamWaitEvent(compute, arrived[i], 0));
    mlp(i * rows, rows);
    after(compute, c);
    reduce(how, i * rows * dim, i * mine * dim, mine * dim, c);
  }
  after(c, compute);
}

static void gathers_by_owner(products next) {
  size_t rows = tokens / ranks, n = rows * dim;
  std::vector<cudaEvent_t> arrived;
  after(compute, other);
  for (int r = 0; r < ranks; r++) {
    NCCL(ncclBroadcast(r == rank ? own : x + r * n, x + r * n, n, ncclBfloat16, r, comms[KERNELS], other));
    arrived.push_back(mark(other));
  }
  for (int r = 0; r < ranks; r++) {
    CUDA(cudaStreamWaitEvent(compute, arrived[r], 0));
    next(r * rows, rows);
  }
}

static void reduces_by_owner(products before) {
  size_t rows = tokens / ranks, n = rows * dim;
  for (int r = 0; r < ranks; r++) {
    before(r * rows, rows);
    after(compute, other);
    NCCL(ncclReduce(partial + r * n, own, n, ncclBfloat16, ncclSum, r, comms[KERNELS], other));
  }
  after(other, compute);
}

static void block_by_owner() {
  gathers_by_owner(to_qkv);
  attention();
  reduces_by_owner(from_attention);
  gathers_by_owner([](size_t row, int rows) {
    matmul(x + row * dim, w_up, gate + row * hidden, rows, hidden, dim, compute);
    matmul(x + row * dim, w_up, up + row * hidden, rows, hidden, dim, compute);
  });
  reduces_by_owner([](size_t row, int rows) {
    matmul(gate + row * hidden, w_down, partial + row * dim, rows, dim, hidden, compute);
  });
}

static void timed(const char *what, int times, std::function<void()> f) {
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  cudaEvent_t begin, end;
  std::vector<float> ms;
  n_events = 0;
  CUDA(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < times; i++) f();
  CUDA(cudaStreamEndCapture(compute, &graph));
  CUDA(cudaGraphInstantiate(&ready, graph, 0));
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  for (int i = 0; i < 10; i++) {
    float took;
    barrier();
    CUDA(cudaEventRecord(begin, compute));
    CUDA(cudaGraphLaunch(ready, compute));
    CUDA(cudaEventRecord(end, compute));
    CUDA(cudaStreamSynchronize(compute));
    CUDA(cudaEventElapsedTime(&took, begin, end));
    if (i) ms.push_back(took);
  }
  std::sort(ms.begin(), ms.end());
  if (!rank) printf("%-48s %8.1f us\n", what, ms[4] / times * 1000);
  fflush(stdout);
}

static void set_up(int heads, int ctas) {
  common = (shared *)mmap(0, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int r = 1; r < ranks && !rank; r++)
    if (!fork()) rank = r;
  CUDA(cudaSetDevice(rank));
  CUDA(cudaFree(0));
  if (!rank) {
    NCCL(ncclGetUniqueId(&common->id));
    common->ready = 1;
  }
  while (!common->ready) usleep(100);
  ncclConfig_t kernels = NCCL_CONFIG_INITIALIZER, engines = NCCL_CONFIG_INITIALIZER;
  kernels.minCTAs = kernels.maxCTAs = ctas;
  engines.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  NCCL(ncclCommInitRankConfig(&comms[KERNELS], ranks, common->id, rank, &kernels));
  NCCL(ncclCommSplit(comms[KERNELS], 0, rank, &comms[ENGINES], &engines));
  int low, high;
  CUDA(cudaDeviceGetStreamPriorityRange(&low, &high));
  CUDA(cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, low));
  CUDA(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, high));
  for (auto &e : events) CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  size_t t = tokens;
  own = room(t / ranks * dim, true), x = room(t * dim, true);
  partial = room(t * dim, true), parts = room(t * dim, true);
  q = room(t * qkv, false), att = room(t * heads_dim, false);
  gate = room(t * hidden, false), up = room(t * hidden, false);
  w_qkv = room((size_t)qkv * dim, false), w_o = room((size_t)heads_dim * dim, false);
  w_up = room((size_t)hidden * dim, false), w_down = room((size_t)hidden * dim, false);
  to_qkv(0, tokens); // the workspace, before anything is captured
  CUDA(cudaDeviceSynchronize());
  if (!rank)
    printf("%d ranks, %d tokens, dim %d, %d heads over 8, hidden %d\n", ranks, tokens, dim, heads, hidden * ranks);
}

// Gathers by copy engines have the bits of those by kernels, or the run ends; of reductions it is printed.
static void compare() {
  unsigned long long gathered[3], reduced[3];
  size_t n = (size_t)tokens * dim;
  for (int h = KERNELS; h <= ENGINES; h++) {
    fill<<<256, 256, 0, compute>>>(own, n / ranks, 9 + rank);
    CUDA(cudaMemsetAsync(x, 0, n * 2, compute));
    gather((how)h, 0, 0, n / ranks, compute);
    fill<<<256, 256, 0, compute>>>(partial, n, 19 + rank);
    reduce((how)h, 0, 0, n / ranks, compute);
    CUDA(cudaStreamSynchronize(compute));
    gathered[h] = digest(x, n), reduced[h] = digest(own, n / ranks);
    barrier();
  }
  if (!rank)
    printf("by copy engines: gathers %s, reductions %s\n", gathered[1] == gathered[2] ? "equal" : "differ",
           reduced[1] == reduced[2] ? "equal" : "differ");
  if (gathered[KERNELS] != gathered[ENGINES]) exit(1);
}

int main(int argc, char **argv) {
  if (argc != 7) return fprintf(stderr, "%s RANKS TOKENS DIM HEADS HIDDEN CTAS\n", argv[0]), 2;
  ranks = atoi(argv[1]), tokens = atoi(argv[2]), dim = atoi(argv[3]);
  int heads = atoi(argv[4]);
  hidden = atoi(argv[5]) / ranks, qkv = (heads + 16) * 128 / ranks, heads_dim = heads * 128 / ranks;
  set_up(heads, atoi(argv[6]));
  compare();
  timed("(the first is slower)", 24, [] { block(KERNELS, 1); });
  const char *names[] = {"no collectives", "NCCL's kernels", "copy engines"};
  for (int h = KERNELS; h <= ENGINES; h++) {
    char what[99];
    size_t n = (size_t)tokens / ranks * dim;
    snprintf(what, sizeof what, "%s: a gather alone", names[h]);
    timed(what, 20, [=] { gather((how)h, 0, 0, n, compute); });
    snprintf(what, sizeof what, "%s: a reduction alone", names[h]);
    timed(what, 20, [=] { reduce((how)h, 0, 0, n, compute); });
  }
  for (int turn = 0; turn < 2; turn++) {
    for (int h = NOTHING; h <= ENGINES; h++)
      for (int slices = 1; slices <= 4; slices *= 2) {
        char what[99];
        snprintf(what, sizeof what, "a block, %s, %d slice%s", names[h], slices, slices > 1 ? "s" : "");
        timed(what, 24, [=] { block((how)h, slices); });
      }
    timed("a block, NCCL's kernels, slices by owner", 24, block_by_owner);
  }
  barrier();
  int bad = 0, status;
  for (int r = 1; !rank && r < ranks; r++) wait(&status), bad |= status;
  return bad != 0;
}
