// The executor's device.
#ifndef RUNTIME_CUDA_DEVICE_H
#define RUNTIME_CUDA_DEVICE_H
#include "runtime/cuda/exec.h"

bool hd_driver_open(HdCuda *x);
bool hd_device_open(HdCuda *x);     // this rank's GPU and what it can do
bool hd_device_shared(void);        // ranks may share a GPU: HEDDLE_SHARE_GPUS=1
int64_t hd_device_used(HdCuda *x);  // bytes of the device in use, the context's included; 0: not known
void hd_device_tell_memory(HdCuda *x); // a line on stderr: bytes planned and used, by user
bool hd_device_enter(HdCuda *x);    // makes its primary context current
bool hd_device_allocate(HdCuda *x); // the arena, not yet cleared, and page-locked memory, clear
void hd_device_free_pinned(HdCuda *x);
// One memory at a time: hd_cuda_read copies into it without a staging slot.
void *hd_cuda_take_memory(HdExec *h, size_t bytes);
void hd_cuda_give_memory(HdExec *h, void *memory, size_t bytes);
double hd_cuda_peak_flops(HdExec *h);
const char *hd_cuda_device_name(HdExec *h);

// transfer.c
bool hd_transfer_open(HdCuda *x);
void hd_transfer_close(HdCuda *x);
// Begin and end every call from outside: an earlier failure stays, and the calling thread gets the context. The bytes
// must be inside the arena.
bool hd_cuda_enter(HdCuda *x, int64_t offset, size_t bytes);
bool hd_cuda_leave(HdCuda *x);
bool hd_cuda_write(HdExec *h, int64_t offset, const void *data, size_t bytes);
bool hd_cuda_read(HdExec *h, int64_t offset, void *data, size_t bytes);
bool hd_cuda_post(HdExec *h, int n, const int64_t *offsets, size_t bytes);
bool hd_cuda_collect(HdExec *h, void *data);

// draw.c
bool hd_cuda_draw(HdExec *h, const struct HdDraw *d, HdDtype dtype, int64_t offset);

// choose.c
bool hd_cuda_choose(HdExec *h, const HdPick *how, int64_t logits, int64_t n, int64_t token, int64_t position);
#endif
