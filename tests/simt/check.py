#!/usr/bin/env python3
"""Small kernels on the CPU (tests/simt): right ones have one result in every order of threads, wrong ones are caught.

usage: check.py libsimt.so FOLDER

A wrong kernel either ends with an error, whose words are checked, or has results that differ from order to order. What
differs is a race, and so are some errors that no order shows: these must be found with FAKE_CUDA_SIMT_RACES=1, under
which right kernels end as without.
"""
import ctypes
import os
import resource
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = 256  # of the array that each kernel gets, filled with 0, 1, 2, ...
ORDERS = range(6)
RACE = "a race: "  # what comes next is said of the place; seen where races are looked for, perhaps not otherwise

MBARRIER = """
__device__ void make(unsigned at, int n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory");
}
__device__ void arrive(unsigned at) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
__device__ void await(unsigned at, unsigned phase) {
    asm volatile("{\\n.reg .pred done;\\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
                 "@done bra over;\\nbra again;\\nover:\\n}" ::"r"(at), "r"(phase) : "memory");
}
__device__ unsigned shared_at(void *p) { return (unsigned)__cvta_generic_to_shared(p); }
"""
COPY = """
__device__ void copy(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
    asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(0) : "memory"); }
"""
POLL = """
__device__ unsigned poll(const unsigned *p) {
    unsigned v;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ void say(unsigned *p, unsigned v) {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
"""
PRODUCT = """
__device__ void fill() { // 64 rows of 128 bytes and then 8, with ones: a product takes 16 elements of each
    extern __shared__ __align__(1024) unsigned words[];
    for (int i = threadIdx.x; i < 72 * 32; i += 128) words[i] = 0x3f803f80;
}
__device__ void fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ unsigned long long matrix(const void *at) {
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (unsigned)__cvta_generic_to_shared(at) >> 4;
}
__device__ void multiply(float (&d)[4]) {
    extern __shared__ __align__(1024) unsigned words[];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(matrix(words)), "l"(matrix(words + 64 * 32)));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ void multiplied() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(0) : "memory"); }
struct __align__(128) Map {
    unsigned long long at, promotion, strides[3];
    unsigned dims[4], box[4], element, unused[13];
};
__device__ void fetch(void *to, const void *from, unsigned bar, unsigned rows) { // 8 of the tensor's rows of 128 bytes
    const Map map = {(unsigned long long)from, 0, {128, 1024, 1024}, {64, rows, 1, 1}, {64, 8, 1, 1}, 2};
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(1024) : "memory");
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_at(to)), "l"(&map), "r"(bar), "r"(0),
                 "r"((int)rows - 8), "r"(0), "r"(0) : "memory");
}
__device__ void leave(void *to, void *from, unsigned rows) { // 8 rows, of which the tensor has so many
    const Map map = {(unsigned long long)to, 0, {128, 1024, 1024}, {32, rows, 1, 1}, {32, 8, 1, 1}, 4};
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
                 "r"(0), "r"(0), "r"(0), "r"(0), "r"(shared_at(from)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ void left() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(0) : "memory"); }
"""
USED = "extern __shared__ __align__(1024) unsigned words[]; __shared__ unsigned long long m; float d[4] = {};"
READY = USED + "if (!threadIdx.x) make(shared_at(&m), 1); fill(); fence(); __syncthreads();"

TOLD = """ // block 1 copies what block 0 has stored, when that says so
        if (blockIdx.x) {
            if (!threadIdx.x) while (poll(p + 255) != 1000) {}
            __syncthreads();
            p[threadIdx.x] = p[64 + threadIdx.x];
            return;
        }
        p[64 + threadIdx.x] = threadIdx.x;
"""

# name: blocks, threads, bytes of shared memory, text, what is expected of the first words (a list), "differs", or the
# words of an error
CASES = {
    "sum": (1, 64, 0, """
        __shared__ unsigned part[2];
        unsigned v = p[threadIdx.x];
        for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        __syncthreads();
        if (threadIdx.x < 2) p[threadIdx.x] = part[0] + part[1];""", [2016, 2016]),
    "sum_without_barrier": (1, 64, 0, """
        __shared__ unsigned part[2];
        unsigned v = p[threadIdx.x];
        for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        if (threadIdx.x < 2) p[threadIdx.x] = part[0] + part[1];""", "differs"),
    "half_at_a_barrier": (1, 64, 0, 'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");',
                          "waits at barrier 1"),
    "barrier_of_two_sizes": (1, 64, 0, """
        if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
        else asm volatile("bar.sync 1, 32;" ::: "memory");""", "barrier 1 is of"),
    "threads_that_left": (1, 64, 0, """
        if (threadIdx.x >= 32) return;
        __syncthreads();
        if (!threadIdx.x) p[0] = 7;""", [7]),
    "lanes_in_two_operations": (1, 32, 0, """
        if (threadIdx.x & 1) __syncwarp();
        else p[0] = __shfl_sync(~0u, p[1], 0);""", "meet in different operations"),
    "lane_outside_its_mask": (1, 32, 0, "__syncwarp(0xffff);", "is not in the mask"),
    "more_shared_memory_than_asked": (1, 32, 64, """
        extern __shared__ __align__(16) unsigned char s[];
        ((unsigned *)s)[threadIdx.x] = p[threadIdx.x];""", "beyond the 64 bytes"),
    "shared_address_outside": (1, 1, 64, 'asm volatile("st.shared.b32 [%0], %1;" ::"r"(4096 * 64), "r"(1));',
                               "no shared memory at 262144"),
    "phases": (1, 64, 0, """
        __shared__ unsigned long long m;
        __shared__ unsigned s;
        const unsigned at = shared_at(&m);
        if (!threadIdx.x) make(at, 1);
        __syncthreads();
        if (threadIdx.x == 63) { s = 5; arrive(at); }
        await(at, 0);
        if (threadIdx.x < 3) p[threadIdx.x] = s;""", [5, 5, 5]),
    "phase_without_arrival": (1, 32, 0, """
        __shared__ unsigned long long m;
        if (!threadIdx.x) make(shared_at(&m), 2);
        __syncwarp();
        if (!threadIdx.x) arrive(shared_at(&m));
        await(shared_at(&m), 0);""", "waits for the mbarrier"),
    "mbarrier_overwritten": (1, 32, 0, """
        __shared__ unsigned long long m;
        if (!threadIdx.x) { make(shared_at(&m), 1); m = 3; arrive(shared_at(&m)); }""", "was overwritten"),
    "copies": (1, 32, 0, """
        __shared__ uint4 s[32];
        copy(&s[threadIdx.x], p + threadIdx.x * 4);
        wait();
        __syncthreads();
        p[threadIdx.x] = s[31 - threadIdx.x].y;""", [125, 121, 117]),
    "copies_without_wait": (1, 32, 0, """
        __shared__ uint4 s[32];
        copy(&s[threadIdx.x], p + threadIdx.x * 4);
        __syncthreads();
        p[128 + threadIdx.x] = s[31 - threadIdx.x].y;
        wait();""", "to which a copy is under way"),
    "copies_of_others_not_waited_for": (1, 64, 0, """
        __shared__ uint4 s[64];
        copy(&s[threadIdx.x], p + threadIdx.x * 4);
        wait();
        p[threadIdx.x] = s[63 - threadIdx.x].y;""", "differs"),
    "copies_to_one_place": (1, 1, 0, "__shared__ uint4 s; copy(&s, p); copy(&s, p + 4); wait();", "to which another"),
    "copies_never_waited_for": (1, 1, 0, "__shared__ uint4 s; copy(&s, p);", "ended before its copies"),
    "copy_not_aligned": (1, 1, 0, "__shared__ uint4 s[2]; copy(s, p + 1); wait();", "not aligned"),
    "waits_for_an_earlier_block": (150, 1, 0, """
        if (blockIdx.x == 149) say(p + 255, 1000);
        if (blockIdx.x == 140) while (poll(p + 255) != 1000) {}""", [0, 1, 2]),
    "waits_for_a_later_block": (150, 1, 0, """
        if (blockIdx.x == 149) say(p + 255, 1000);
        if (blockIdx.x < 140) while (poll(p + 255) != 1000) {}""", "polls memory"),
    # ordinary stores and the asynchronous proxy
    "product": (1, 128, 9216, READY + "multiply(d); multiplied(); p[threadIdx.x] = (unsigned)d[0];", [16, 16, 16]),
    "product_after_a_fence_of_its_own": (1, 128, 9216, USED + """
        fill();
        __syncthreads();
        fence();
        multiply(d);
        multiplied();
        p[threadIdx.x] = (unsigned)d[3];""", [16, 16, 16]),
    "product_without_fence": (1, 128, 9216, USED + "fill(); __syncthreads(); multiply(d); multiplied();",
                              "fence.proxy.async is missing"),
    "fence_before_the_stores": (1, 128, 9216, USED + "fence(); fill(); __syncthreads(); multiply(d); multiplied();",
                                "fence.proxy.async is missing"),
    "fence_of_some": (1, 128, 9216, USED + """
        fill();
        if (threadIdx.x < 96) fence();
        __syncthreads();
        multiply(d);
        multiplied();""", "stored to: fence.proxy.async is missing"),
    "box": (1, 32, 1024, USED + """
        if (!threadIdx.x) { make(shared_at(&m), 1); fence(); fetch(words, p, shared_at(&m), 8); }
        __syncwarp();
        await(shared_at(&m), 0);
        p[threadIdx.x] = words[threadIdx.x] + 1;""", [1, 2, 3]),
    "box_whose_mbarrier_has_no_fence": (1, 1, 1024, USED + """
        make(shared_at(&m), 1);
        fetch(words, p, shared_at(&m), 8);
        await(shared_at(&m), 0);""", "its mbarrier is at"),
    "box_over_stores": (1, 1, 1024, USED + """
        make(shared_at(&m), 1);
        fence();
        words[5] = 1;
        fetch(words, p, shared_at(&m), 8);
        await(shared_at(&m), 0);""", "which thread 0 stored to"),
    # one that leaves: words of 4 are swizzled by row, and rows outside of the tensor are left alone
    "box_out": (1, 32, 1024, USED + """
        for (int row = 0; row < 8; row++) words[row * 32 + (threadIdx.x ^ row * 4)] = row * 32 + threadIdx.x + 7;
        fence();
        __syncwarp();
        if (!threadIdx.x) { leave(p, words, 7); left(); }""", [*range(7, 7 + 224), *range(224, 256)]),
    "box_out_without_fence": (1, 1, 1024, USED + "words[5] = 1; leave(p, words, 8); left();",
                              "which thread 0 stored to"),
    "box_out_stored_over": (1, 1, 1024, USED + "words[5] = 1; fence(); leave(p, words, 8); words[5] = 2; left();",
                            "a product reads that is not waited for"),
    "box_out_never_waited_for": (1, 1, 1024, USED + "words[5] = 1; fence(); leave(p, words, 8);",
                                 "before its boxes left"),
    "box_out_outside": (1, 1, 1024, USED + "words[5] = 1; fence(); leave(p + 32, words, 8); left();",
                        "bytes are written: the nearest"),
    # what is still in use
    "store_after_a_product": (1, 128, 9216, READY + """
        multiply(d);
        multiplied();
        __syncthreads();
        words[threadIdx.x] = 0;
        p[threadIdx.x] = (unsigned)d[0];""", [16, 16, 16]),
    "store_under_a_product": (1, 128, 9216, READY + "multiply(d); words[threadIdx.x] = 0; multiplied();",
                              "a product reads that is not waited for"),
    "copy_under_a_product": (1, 128, 9216, READY + "multiply(d); copy(words, p); multiplied(); wait();",
                             "a product reads that is not waited for"),
    "box_under_a_product": (1, 128, 9216, READY + """
        multiply(d);
        if (!threadIdx.x) fetch(words, p, shared_at(&m), 8);
        multiplied();""", "a product reads that is not waited for"),
    "product_never_waited_for": (1, 128, 9216, READY + "multiply(d);", "before the products of its warp"),
    "product_of_a_copy_under_way": (1, 128, 9216, READY + "if (!threadIdx.x) copy(words, p); multiply(d);",
                                    "to which a copy is under way"),
    # global memory
    "read_outside": (1, 1, 0, "p[0] = p[256];", "bytes are read: the nearest memory before"),
    "write_outside": (1, 1, 0, "p[p[255] + 1] = 1;", "bytes are written: the nearest memory before"),
    "read_of_nothing": (1, 1, 0, "p[0] = *(const unsigned *)(unsigned long long)(p[8] * 8);", "no memory was"),
    "copy_from_outside": (1, 1, 0, "__shared__ uint4 s; copy(&s, p + 256); wait();", "bytes are read: the nearest"),
    "box_from_outside": (1, 1, 1024, USED + """
        make(shared_at(&m), 1);
        fence();
        fetch(words, p, shared_at(&m), 9);
        await(shared_at(&m), 0);""", "bytes are read: the nearest"),
    # races, and what orders accesses
    "warps_in_turn": (1, 64, 0, """
        __shared__ unsigned s[64];
        s[threadIdx.x] = threadIdx.x;
        __syncthreads();
        const unsigned x = s[63 - threadIdx.x];
        __syncthreads();
        s[threadIdx.x] = x;
        __syncwarp();
        p[threadIdx.x] = s[threadIdx.x ^ 1];""", [62, 63, 60]),
    "lanes_without_syncwarp": (1, 32, 0, """
        __shared__ unsigned s[32];
        s[threadIdx.x] = threadIdx.x;
        __shfl_xor_sync(~0u, threadIdx.x, 1);
        p[threadIdx.x] = s[threadIdx.x ^ 1];""", RACE + "shared memory"),
    "written_while_others_read": (1, 64, 0, """
        __shared__ unsigned s[64];
        s[threadIdx.x] = threadIdx.x;
        __syncthreads();
        p[threadIdx.x] = s[63 - threadIdx.x];
        s[threadIdx.x] = 1;""", RACE + "shared memory"),
    "two_warps_write_one_place": (1, 64, 0, """
        __shared__ unsigned s;
        if (threadIdx.x == 3 || threadIdx.x == 40) s = threadIdx.x;""", RACE + "shared memory"),
    "a_byte_of_each_thread": (1, 64, 0, """
        __shared__ unsigned s[16];
        if (threadIdx.x < 16) s[threadIdx.x] = 0;
        __syncthreads();
        ((unsigned char *)s)[threadIdx.x] = (unsigned char)threadIdx.x;
        __syncthreads();
        if (threadIdx.x < 16) p[threadIdx.x] = s[threadIdx.x];""", [0x03020100, 0x07060504]),
    "a_byte_of_another_thread": (1, 64, 0, """
        __shared__ unsigned s[16];
        ((unsigned char *)s)[threadIdx.x] = (unsigned char)threadIdx.x;
        __syncwarp();
        ((unsigned char *)s)[threadIdx.x ^ 32] = 1;""", RACE + "shared memory"),
    "a_pair_and_a_byte_of_it": (1, 64, 0, """
        __shared__ unsigned s[16];
        if (threadIdx.x == 1) ((unsigned char *)s)[1] = 7;
        if (threadIdx.x == 40) s[0] = 9;""", RACE + "shared memory"),
    "in_place_of_another_thread": (1, 64, 0, "p[threadIdx.x] = p[(threadIdx.x + 1) % 64];", RACE + "memory"),
    "mbarrier_of_a_warp": (1, 64, 0, """
        __shared__ unsigned long long m;
        __shared__ unsigned s[32];
        if (!threadIdx.x) make(shared_at(&m), 32);
        __syncthreads();
        if (threadIdx.x < 32) s[threadIdx.x] = threadIdx.x + 5;
        if (threadIdx.x < 32) arrive(shared_at(&m));
        else await(shared_at(&m), 0);
        if (threadIdx.x >= 32) p[threadIdx.x - 32] = s[63 - threadIdx.x];""", [36, 35, 34]),
    "mbarrier_made_by_another_warp": (1, 64, 0, """
        __shared__ unsigned long long m;
        if (!threadIdx.x) make(shared_at(&m), 1);
        if (threadIdx.x == 32) arrive(shared_at(&m));""", RACE + "shared memory"),
    "stores_after_the_arrival": (1, 64, 0, """
        __shared__ unsigned long long m;
        __shared__ unsigned s[32];
        if (!threadIdx.x) make(shared_at(&m), 32);
        __syncthreads();
        if (threadIdx.x < 32) arrive(shared_at(&m));
        else await(shared_at(&m), 0);
        if (threadIdx.x < 32) s[threadIdx.x] = threadIdx.x + 5;
        else p[threadIdx.x - 32] = s[63 - threadIdx.x];""", RACE + "shared memory"),
    "copies_of_a_warp_by_mbarrier": (1, 64, 0, """
        __shared__ unsigned long long m;
        __shared__ uint4 s[32];
        if (!threadIdx.x) make(shared_at(&m), 32);
        __syncthreads();
        if (threadIdx.x < 32) {
            copy(&s[threadIdx.x], p + threadIdx.x * 4);
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(&m)) : "memory");
        } else {
            await(shared_at(&m), 0);
            p[threadIdx.x + 128] = s[63 - threadIdx.x].y;
        }""", [0, 1, 2]),
    "a_block_tells_another": (2, 64, 0, TOLD + """
        __syncthreads();
        if (!threadIdx.x) { __threadfence(); say(p + 255, 1000); }""", [0, 1, 2]),
    "told_without_fence": (2, 64, 0, TOLD + """
        __syncthreads();
        if (!threadIdx.x) say(p + 255, 1000);""", RACE + "memory"),
    "told_after_a_fence_of_the_block_alone": (2, 64, 0, TOLD + """
        __syncthreads();
        if (!threadIdx.x) { __threadfence_block(); say(p + 255, 1000); }""", RACE + "memory"),
    "told_before_others_are_done": (2, 64, 0, TOLD + """
        if (!threadIdx.x) { __threadfence(); say(p + 255, 1000); }""", RACE + "memory"),
    "the_last_block_adds_up": (4, 48, 0, """
        __shared__ bool last;
        p[blockIdx.x * 48 + threadIdx.x] = 3;
        __syncthreads();
        __threadfence();
        if (!threadIdx.x) last = atomicAdd(p + 200, 1) == 203;
        __syncthreads();
        if (!last) return;
        __threadfence();
        if (!threadIdx.x) p[0] = p[1] + p[49] + p[97] + p[145];""", [12, 3, 3]),
}


class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("params", ctypes.c_int),
                ("bytes", ctypes.c_void_p), ("beside", ctypes.c_int)]


class Range(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("bytes", ctypes.c_ulong)]


class Launch(ctypes.Structure):
    _fields_ = [("kernel", ctypes.POINTER(Kernel)), ("args", ctypes.POINTER(ctypes.c_void_p)),
                ("size", ctypes.c_uint * 6), ("shared", ctypes.c_uint), ("ranges", ctypes.c_uint),
                ("cluster", ctypes.c_uint), ("memory", ctypes.POINTER(Range))]


def compiled(engine, folder):
    path = os.path.join(folder, "kernels.cu")
    with open(path, "w", encoding="utf-8") as f:
        f.write(MBARRIER + COPY + POLL + PRODUCT)
        for name, case in CASES.items():
            f.write(f'extern "C" __global__ void __launch_bounds__(128) {name}(unsigned *p) {{{case[3]}}}\n')
    done = subprocess.run([sys.executable, os.path.join(HERE, "compile.py"), path, "90", folder], text=True,
                          capture_output=True, env=dict(os.environ, SIMT_ENGINE=engine))
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.strip()


def run(library, name):
    """Prints the array that the kernel leaves."""
    so = ctypes.CDLL(library)
    array = (ctypes.c_uint * (WORDS + 4))()
    at = (ctypes.addressof(array) + 15) // 16 * 16
    words = (ctypes.c_uint * WORDS).from_address(at)
    words[:] = range(WORDS)
    pointer = ctypes.c_void_p(at)
    args = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
    blocks, threads, shared = CASES[name][:3]
    kernels = (Kernel * len(CASES)).in_dll(so, "simt_kernels")
    memory = Range(at, 4 * WORDS)
    launch = Launch(ctypes.pointer(kernels[list(CASES).index(name)]), args, (blocks, 1, 1, threads, 1, 1), shared, 1,
                    1, ctypes.pointer(memory))
    so.simt_run(ctypes.byref(launch))
    print(*words, flush=True)


def ran(library, name, order, races=0):
    """In a process of its own, which an error of the kernel ends: its status, and what it says."""
    out, into = os.pipe()
    process = os.fork()
    if not process:
        os.dup2(into, 1)
        os.dup2(into, 2)
        os.environ.update(FAKE_CUDA_SIMT_ORDER=str(order), FAKE_CUDA_SIMT_RACES=str(races))
        signal.alarm(600)  # a hang
        try:
            run(library, name)
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    os.close(into)
    with open(out, encoding="utf-8") as said:
        text = said.read()
    return os.waitpid(process, 0)[1], text


def wrong(library, name):
    """What is not as expected; None: all is."""
    expected, seen = CASES[name][4], set()
    status, said = ran(library, name, 0, races=1)
    if expected == "differs" or RACE in expected:
        if RACE not in said or expected != "differs" and expected not in said:
            return f"no race in: {said[:600]}"
    elif isinstance(expected, list) and status:
        return f"looking for races: {said}"
    for order in ORDERS if RACE not in expected else ():
        status, said = ran(library, name, order)
        if isinstance(expected, str) and expected != "differs":
            if not status or expected not in said:
                return f"order {order}: no '{expected}' in: {said[:400]}"
            continue
        if status:
            return f"order {order}: {said}"
        words = [int(w) for w in said.split()]
        if expected != "differs" and words[:len(expected)] != expected:
            return f"order {order}: {words[:8]} instead of {expected}"
        seen.add(said)
    if isinstance(expected, list) and len(seen) != 1 or expected == "differs" and len(seen) == 1:
        return f"{len(seen)} different results"
    return None


def main():
    engine, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    library = compiled(engine, folder)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bad = {name: why for name in CASES if (why := wrong(library, name))}
    for name, why in bad.items():
        print(f"{name}: {why}")
    print(f"{len(CASES)} kernels, failed: {' '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
