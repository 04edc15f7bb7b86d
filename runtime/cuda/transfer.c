// Bytes between host and device. All copies are asynchronous, through pinned memory, on the compute stream, so that
// they keep their place in the order of work. The host waits only for a staging slot whose copy is still running, or in
// read and collect.
#include "runtime/cuda/comms.h"
#include "runtime/cuda/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool hd_transfer_open(HdCuda *x) {
    const HdCudaApi *api = &x->api;
    void *stages = NULL, *posts = NULL;
    const size_t counts = hd_counts_bytes(&x->head.program->train_step);
    x->post_bytes = counts > HD_POST_BYTES ? counts : HD_POST_BYTES;
    if (!hd_cuda_ok(x, api->cuMemHostAlloc(&stages, (size_t)HD_STAGES * HD_STAGE_BYTES, HD_CU_MEMHOSTALLOC_PORTABLE),
                    "cannot allocate pinned host memory") ||
        !hd_cuda_ok(x, api->cuMemHostAlloc(&posts, HD_POSTS * x->post_bytes, HD_CU_MEMHOSTALLOC_PORTABLE),
                    "cannot allocate pinned host memory")) {
        if (stages) api->cuMemFreeHost(stages);
        return false;
    }
    for (int i = 0; i < HD_STAGES; i++) pthread_mutex_init(&x->stage[i].lock, NULL);
    for (int i = 0; i < HD_STAGES; i++) x->stage[i].host = (unsigned char *)stages + (size_t)i * HD_STAGE_BYTES;
    for (int i = 0; i < HD_POSTS; i++) x->post[i].host = (unsigned char *)posts + (size_t)i * x->post_bytes;
    for (int i = 0; i < HD_STAGES; i++)
        if (!hd_cuda_ok(x, api->cuEventCreate(&x->stage[i].done, HD_CU_EVENT_DISABLE_TIMING), "event")) return false;
    for (int i = 0; i < HD_POSTS; i++)
        if (!hd_cuda_ok(x, api->cuEventCreate(&x->post[i].done, HD_CU_EVENT_DISABLE_TIMING), "event")) return false;
    return true;
}

void hd_transfer_close(HdCuda *x) {
    for (int i = 0; i < HD_STAGES; i++)
        if (x->stage[i].done) x->api.cuEventDestroy(x->stage[i].done);
    for (int i = 0; i < HD_POSTS; i++)
        if (x->post[i].done) x->api.cuEventDestroy(x->post[i].done);
    if (x->stage[0].host) x->api.cuMemFreeHost(x->stage[0].host);
    if (x->post[0].host) x->api.cuMemFreeHost(x->post[0].host);
}

bool hd_cuda_enter(HdCuda *x, int64_t offset, size_t bytes) {
    x->func = NULL;
    if (hd_watch_good(x) && (offset < 0 || offset > x->head.program->arena_bytes ||
                             bytes > (size_t)(x->head.program->arena_bytes - offset)))
        hd_cuda_fail(x, "%zu bytes at offset %lld are outside the arena of %lld bytes", bytes, (long long)offset,
                     (long long)x->head.program->arena_bytes);
    if (!x->failed && hd_cuda_ok(x, x->api.cuCtxSetCurrent(x->context), "cannot enter the context")) return true;
    return hd_fail("%s", x->failure);
}

bool hd_cuda_leave(HdCuda *x) {
    if (!x->failed) return true;
    return hd_fail("%s", x->failure);
}

static int take_stage(HdCuda *x) { // the index of a free staging slot, or -1
    const int i = (int)(atomic_fetch_add(&x->next_stage, 1u) % HD_STAGES);
    return hd_cuda_ok(x, x->api.cuEventSynchronize(x->stage[i].done), "the GPU stopped") ? i : -1;
}

// Several threads may write: each has a slot of its own from the wait for its last copy until the next one is issued.
static bool write_part(HdCuda *x, CuPtr to, const void *data, size_t bytes) {
    const unsigned i = atomic_fetch_add(&x->next_stage, 1u) % HD_STAGES;
    pthread_mutex_lock(&x->stage[i].lock);
    const bool ok = hd_cuda_ok(x, x->api.cuEventSynchronize(x->stage[i].done), "the GPU stopped") &&
                    memcpy(x->stage[i].host, data, bytes) &&
                    hd_cuda_ok(x, x->api.cuMemcpyHtoDAsync(to, x->stage[i].host, bytes, x->streams[0]),
                               "copy to the GPU") &&
                    hd_cuda_ok(x, x->api.cuEventRecord(x->stage[i].done, x->streams[0]), "copy to the GPU");
    pthread_mutex_unlock(&x->stage[i].lock);
    return ok;
}

bool hd_cuda_write(HdExec *h, int64_t offset, const void *data, size_t bytes) {
    HdCuda *x = (HdCuda *)h;
    if (!hd_cuda_enter(x, offset, bytes)) return false;
    for (size_t at = 0; at < bytes; at += HD_STAGE_BYTES) {
        const size_t n = bytes - at < HD_STAGE_BYTES ? bytes - at : HD_STAGE_BYTES;
        if (!write_part(x, x->arena + (CuPtr)offset + at, (const char *)data + at, n)) return hd_cuda_leave(x);
    }
    return true;
}

static bool is_locked(const HdCuda *x, const char *data, size_t bytes) {
    const size_t at = (size_t)(data - x->locked.at);
    return x->locked.bytes && data >= x->locked.at && at <= x->locked.bytes && bytes <= x->locked.bytes - at;
}

static bool read_at_once(HdCuda *x, CuPtr from, void *data, size_t bytes) {
    const int i = take_stage(x); // for its event
    return i >= 0 && hd_cuda_ok(x, x->api.cuMemcpyDtoHAsync(data, from, bytes, x->streams[0]), "copy from the GPU") &&
           hd_cuda_ok(x, x->api.cuEventRecord(x->stage[i].done, x->streams[0]), "copy from the GPU") &&
           hd_cuda_ok(x, x->api.cuEventSynchronize(x->stage[i].done), "the GPU stopped") && hd_watch_good(x);
}

bool hd_cuda_read(HdExec *h, int64_t offset, void *data, size_t bytes) {
    HdCuda *x = (HdCuda *)h;
    if (!hd_cuda_enter(x, offset, bytes)) return false;
    if (is_locked(x, data, bytes))
        return read_at_once(x, x->arena + (CuPtr)offset, data, bytes) || hd_cuda_leave(x);
    // Copies run ahead of the memcpy by up to all the slots.
    size_t n_chunks = (bytes + HD_STAGE_BYTES - 1) / HD_STAGE_BYTES, issued = 0;
    int slot[HD_STAGES];
    for (size_t done = 0; done < n_chunks; done++) {
        for (; issued < n_chunks && issued < done + HD_STAGES; issued++) {
            size_t at = issued * HD_STAGE_BYTES, n = bytes - at < HD_STAGE_BYTES ? bytes - at : HD_STAGE_BYTES;
            int i = slot[issued % HD_STAGES] = take_stage(x);
            if (i < 0 ||
                !hd_cuda_ok(x,
                            x->api.cuMemcpyDtoHAsync(x->stage[i].host, x->arena + (CuPtr)offset + at, n, x->streams[0]),
                            "copy from the GPU") ||
                !hd_cuda_ok(x, x->api.cuEventRecord(x->stage[i].done, x->streams[0]), "copy from the GPU"))
                return hd_cuda_leave(x);
        }
        size_t at = done * HD_STAGE_BYTES, n = bytes - at < HD_STAGE_BYTES ? bytes - at : HD_STAGE_BYTES;
        int i = slot[done % HD_STAGES];
        if (!hd_cuda_ok(x, x->api.cuEventSynchronize(x->stage[i].done), "the GPU stopped") || !hd_watch_good(x))
            return hd_cuda_leave(x);
        memcpy((char *)data + at, x->stage[i].host, n);
    }
    return true;
}

bool hd_cuda_post(HdExec *h, int n, const int64_t *offsets, size_t bytes) {
    HdCuda *x = (HdCuda *)h;
    unsigned i = x->posted % HD_POSTS;
    if (!hd_cuda_enter(x, 0, 0)) return false;
    if (x->posted - x->collected == HD_POSTS) hd_cuda_fail(x, "more than %d posts wait to be collected", HD_POSTS);
    if (n < 0 || bytes > x->post_bytes || (size_t)n * bytes > x->post_bytes)
        hd_cuda_fail(x, "a post of %d x %zu bytes; the limit is %zu", n, bytes, x->post_bytes);
    for (int j = 0; j < n && !x->failed; j++)
        hd_cuda_ok(x,
                   x->api.cuMemcpyDtoHAsync(x->post[i].host + (size_t)j * bytes, x->arena + (CuPtr)offsets[j], bytes,
                                            x->streams[0]),
                   "copy from the GPU");
    if (x->failed || !hd_cuda_ok(x, x->api.cuEventRecord(x->post[i].done, x->streams[0]), "copy from the GPU"))
        return hd_cuda_leave(x);
    x->post[i].bytes = (size_t)n * bytes;
    x->posted++;
    return true;
}

bool hd_cuda_collect(HdExec *h, void *data) {
    HdCuda *x = (HdCuda *)h;
    unsigned i = x->collected % HD_POSTS;
    if (!hd_cuda_enter(x, 0, 0)) return false;
    if (x->posted == x->collected) hd_cuda_fail(x, "nothing was posted");
    if (x->failed ||
        !hd_cuda_ok(x, x->api.cuEventSynchronize(x->post[i].done),
                    "the GPU stopped; HEDDLE_SYNC=1 finds the action that failed") ||
        !hd_watch_good(x))
        return hd_cuda_leave(x);
    memcpy(data, x->post[i].host, x->post[i].bytes);
    x->collected++;
    return true;
}
