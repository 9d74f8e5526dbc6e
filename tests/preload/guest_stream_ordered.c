/* SPDX-License-Identifier: MIT
 *
 * A program over the CUDA runtime that allocates and frees in the order of streams, and prints what its calls answer,
 * for comparing a native run with a pooled one: codes and yes/no, no addresses and no amounts. The first argument says
 * which calls.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "sequence.h"
#include "sim.h"

#define SAY(call)                                                                     \
    do {                                                                              \
        const int code_said = (int)(call);                                            \
        printf("%s: %d, last error %d\n", #call, code_said, (int)cudaGetLastError()); \
    } while (0)
/* Without fetching the last error. */
#define SAY_KEEPING(call)                                                                      \
    do {                                                                                       \
        const int code_said = (int)(call);                                                     \
        printf("%s: %d, last error stays %d\n", #call, code_said, (int)cudaPeekAtLastError()); \
    } while (0)

static void *const garbage = (void *)0x123456789000;
static const struct sim_kernel endless = {.until_released = true};

static int holds(const void *p, size_t bytes, char value) {
    static char copy[MIB];
    if (cudaMemcpy(copy, p, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) return 0;
    for (size_t i = 0; i < bytes; i++)
        if (copy[i] != value) return 0;
    return 1;
}

/* Does memory of either kind work, on that stream? */
static void say_works(const char *when, cudaStream_t stream) {
    char *p = NULL;
    const int allocated = (int)cudaMallocAsync((void **)&p, 5000, stream);
    const int filled = allocated ? 0 : (int)cudaMemsetAsync(p, 7, 5000, stream);
    cudaStreamSynchronize(stream);
    const int held = allocated ? 0 : holds(p, 5000, 7);
    const int freed = allocated ? 0 : (int)cudaFreeAsync(p, stream);
    printf("%s: allocate %d, fill %d, holds %d, free %d, last error %d\n", when, allocated, filled, held, freed,
           (int)cudaGetLastError());
}

/* ---- answers to calls that are wrong or empty ---- */

static void say_sizes(cudaStream_t stream) {
    void *p = garbage;
    SAY(cudaMallocAsync(&p, 0, stream));
    printf("pointer of size 0 is NULL: %d\n", p == NULL);
    SAY(cudaMallocAsync(NULL, 16, stream));
    SAY(cudaMallocAsync(NULL, 0, stream));
    SAY(cudaMallocAsync(&p, SIZE_MAX, stream));
    SAY(cudaMallocAsync(&p, SIZE_MAX / 2, stream));
    SAY(cudaMallocAsync(&p, (size_t)1 << 46, stream));
    SAY(cudaFreeAsync(NULL, stream));
    SAY(cudaFreeAsync(garbage, stream));
    SAY(cudaFreeAsync(&p, stream));
    /* An error stays until it is fetched, whatever succeeds meanwhile. */
    SAY_KEEPING(cudaMallocAsync(&p, (size_t)1 << 46, stream));
    SAY_KEEPING(cudaMallocAsync(&p, 4096, stream));
    SAY_KEEPING(cudaFreeAsync(p, stream));
    SAY_KEEPING(cudaFreeAsync(p, stream));
    SAY_KEEPING(cudaMallocAsync(&p, 4096, stream));
    SAY_KEEPING(cudaFreeAsync(p, stream));
    SAY(cudaGetLastError());
}

static void say_bad_frees(cudaStream_t stream) {
    char *p, *q;
    SAY(cudaMallocAsync((void **)&p, 3000, stream));
    SAY(cudaMallocAsync((void **)&q, 3000, stream));
    SAY(cudaMemsetAsync(q, 3, 3000, stream));
    SAY(cudaFreeAsync(p + 1, stream));
    SAY(cudaFreeAsync(p + 512, stream));
    SAY(cudaFree(p + 1024));
    SAY(cudaFree(p + 2999));
    SAY(cudaFreeAsync(p, stream));
    SAY(cudaFreeAsync(p, stream));
    SAY(cudaFree(p));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaFreeAsync(p, stream));
    SAY(cudaFree(p));
    printf("the neighbour holds: %d\n", holds(q, 3000, 3));
    SAY(cudaFree(q));
    SAY(cudaFree(q));
    SAY(cudaFreeAsync(q, stream));
    SAY(cudaFreeHost(q));
}

/* Either kind by either free, on either stream. */
static void say_crossed(cudaStream_t stream, cudaStream_t other) {
    void *p;
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaFreeAsync(p, stream));
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaFreeAsync(p, cudaStreamPerThread));
    SAY(cudaMallocAsync(&p, 4096, stream));
    SAY(cudaFree(p));
    SAY(cudaMallocAsync(&p, 4096, stream));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaFreeAsync(p, other));
    SAY(cudaMallocAsync(&p, 4096, cudaStreamLegacy));
    SAY(cudaFreeAsync(p, 0));
    SAY(cudaMallocAsync(&p, 4096, cudaStreamPerThread));
    SAY(cudaFreeAsync(p, cudaStreamPerThread));
    SAY(cudaDeviceSynchronize());
}

static void say_attributes(cudaStream_t stream) {
    char *p;
    struct cudaPointerAttributes attributes = {.type = (enum cudaMemoryType)77, .device = 77};
    SAY(cudaMallocAsync((void **)&p, 1000, stream));
    SAY(cudaPointerGetAttributes(&attributes, p + 999));
    printf("type %d, device %d, device pointer %d, host pointer %d\n", (int)attributes.type, attributes.device,
           attributes.devicePointer == p + 999, attributes.hostPointer != NULL);
    printf("aligned: %d\n", (uintptr_t)p % 512 == 0);
    SAY(cudaFreeAsync(p, stream));
}

static void say_answers(void) {
    cudaStream_t streams[3];
    SAY(cudaStreamCreate(&streams[0]));
    SAY(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
    SAY(cudaStreamCreateWithPriority(&streams[2], cudaStreamNonBlocking, -1));
    say_sizes(0);
    say_bad_frees(0);
    say_sizes(cudaStreamPerThread);
    for (int i = 0; i < 3; i++) {
        say_sizes(streams[i]);
        say_bad_frees(streams[i]);
        say_crossed(streams[i], streams[(i + 1) % 3]);
        say_attributes(streams[i]);
    }
    for (int i = 0; i < 3; i++) SAY(cudaStreamDestroy(streams[i]));
}

/* ---- handles that mean no stream ---- */

/* The handle of a destroyed stream. */
static cudaStream_t destroyed(void) {
    cudaStream_t stream;
    void *p;
    SAY(cudaStreamCreate(&stream));
    SAY(cudaMallocAsync(&p, 4096, stream));
    SAY(cudaFreeAsync(p, stream));
    SAY(cudaStreamDestroy(stream));
    return stream;
}

static void say_destroyed_alloc(void) {
    void *p = garbage;
    const cudaStream_t stream = destroyed();
    SAY(cudaMallocAsync(&p, 4096, stream));
    printf("pointer is as it was: %d\n", p == garbage);
}

static void say_destroyed_free(void) {
    void *p;
    SAY(cudaMallocAsync(&p, 4096, 0));
    const cudaStream_t stream = destroyed();
    SAY(cudaFreeAsync(p, stream));
    SAY(cudaFreeAsync(p, 0));
}

static void say_garbage_alloc(void) {
    void *p = garbage;
    SAY(cudaMallocAsync(&p, 4096, (cudaStream_t)garbage));
    printf("pointer is as it was: %d\n", p == garbage);
}

static void say_garbage_free(void) {
    void *p;
    SAY(cudaMallocAsync(&p, 4096, 0));
    SAY(cudaFreeAsync(p, (cudaStream_t)garbage));
    SAY(cudaFreeAsync(p, 0));
}

/* A stream is destroyed while its kernel uses a block that was freed on it; when that has ended, unobserved, the handle
 * comes back. The simulator judges whether the next stream is given the block in order. */
static void say_handle(void) {
    int came_back = 0;
    for (int round = 0; round < 10; round++) {
        cudaStream_t old, made[500];
        int count = 0;
        void *p;
        int code = (int)cudaStreamCreateWithFlags(&old, cudaStreamNonBlocking);
        code |= (int)cudaMallocAsync(&p, 4096, old);
        code |= sim_block_allocated_async((uint64_t)(uintptr_t)p, 4096, old);
        const struct sim_range range = {(uint64_t)(uintptr_t)p, 4096, true};
        code |= sim_launch(&(struct sim_kernel){.microseconds = 5000, .ranges = &range, .range_count = 1}, old);
        code |= sim_block_freed_async((uint64_t)(uintptr_t)p, old);
        code |= (int)cudaFreeAsync(p, old);
        code |= (int)cudaStreamDestroy(old);
        do {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
            code |= (int)cudaStreamCreateWithFlags(&made[count++], cudaStreamNonBlocking);
        } while (count < 500 && made[count - 1] != old);
        came_back += made[count - 1] == old;
        code |= (int)cudaMallocAsync(&p, 4096, made[count - 1]);
        code |= sim_block_allocated_async((uint64_t)(uintptr_t)p, 4096, made[count - 1]);
        code |= (int)cudaMemsetAsync(p, 1, 4096, made[count - 1]);
        code |= sim_block_freed_async((uint64_t)(uintptr_t)p, made[count - 1]);
        code |= (int)cudaFreeAsync(p, made[count - 1]);
        while (count > 0) code |= (int)cudaStreamDestroy(made[--count]);
        if (code) printf("code %d\n", code);
    }
    printf("the handle came back: %d, races: %zu\n", came_back, sim_races(NULL, 0));
}

/* ---- captures ---- */

static void say_capture(enum cudaStreamCaptureMode mode) {
    cudaStream_t stream, other;
    cudaGraph_t graph = NULL;
    void *before, *beside = NULL, *inside = NULL, *p = NULL;
    printf("mode %d\n", (int)mode);
    SAY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SAY(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    SAY(cudaMallocAsync(&before, 4096, other));
    SAY(cudaStreamBeginCapture(stream, mode));
    SAY(cudaMallocAsync(&inside, 4096, stream));
    SAY(cudaMemsetAsync(inside, 1, 4096, stream));
    SAY(cudaFreeAsync(inside, stream));
    SAY(cudaMallocAsync(&beside, 4096, other));
    SAY(cudaMemsetAsync(beside, 1, 4096, other));
    SAY(cudaFreeAsync(beside, other));
    SAY(cudaFreeAsync(before, other));
    SAY(cudaMallocAsync(&p, 4096, cudaStreamPerThread));
    SAY(cudaFreeAsync(p, cudaStreamPerThread));
    SAY(cudaFreeAsync(p, cudaStreamPerThread));
    SAY_KEEPING(cudaStreamEndCapture(stream, &graph));
    printf("graph: %d\n", graph != NULL);
    if (graph) SAY(cudaGraphDestroy(graph));
    SAY(cudaFreeAsync(before, other));
    say_works("after the capture", stream);
    SAY(cudaStreamDestroy(stream));
    SAY(cudaStreamDestroy(other));
}

static void say_captures(void) {
    say_capture(cudaStreamCaptureModeGlobal);
    say_capture(cudaStreamCaptureModeThreadLocal);
    say_capture(cudaStreamCaptureModeRelaxed);
}

/* ---- the free of one's memory on another's stream ---- */

static void say_devices(void) {
    cudaStream_t streams[2];
    void *p, *q;
    for (int i = 0; i < 2; i++) {
        SAY(cudaSetDevice(i));
        SAY(cudaStreamCreate(&streams[i]));
    }
    /* The stream's device counts, not the current one. */
    struct cudaPointerAttributes attributes;
    SAY(cudaMallocAsync(&p, 4096, streams[0]));
    SAY(cudaMallocAsync(&q, 4096, streams[1]));
    cudaPointerGetAttributes(&attributes, p);
    printf("on device %d\n", attributes.device);
    cudaPointerGetAttributes(&attributes, q);
    printf("on device %d\n", attributes.device);
    SAY(cudaStreamSynchronize(streams[0]));
    SAY(cudaStreamSynchronize(streams[1]));
    SAY(cudaFreeAsync(p, streams[1]));
    SAY(cudaFreeAsync(q, streams[0]));
    SAY(cudaMallocAsync(&p, 4096, streams[0]));
    cudaPointerGetAttributes(&attributes, p);
    printf("again on device %d\n", attributes.device);
    SAY(cudaFree(p));
    SAY(cudaMalloc(&q, 4096));
    SAY(cudaFreeAsync(q, streams[0]));
    for (int i = 0; i < 2; i++) {
        SAY(cudaSetDevice(i));
        SAY(cudaDeviceSynchronize());
    }
}

/* ---- what outlives what ---- */

static void say_reset(void) {
    char *p, *q;
    cudaStream_t stream;
    SAY(cudaMallocAsync((void **)&p, 5000, 0));
    SAY(cudaMallocAsync((void **)&q, 5000, 0));
    SAY(cudaMemsetAsync(p, 5, 5000, 0));
    SAY(cudaFreeAsync(q, 0));
    SAY(cudaDeviceReset());
    SAY(cudaFree(0));
    printf("the block of before holds: %d\n", holds(p, 5000, 5));
    say_works("after the reset", 0);
    SAY(cudaFreeAsync(p, 0));
    SAY(cudaFreeAsync(p, 0));
    SAY(cudaStreamCreate(&stream));
    say_works("after the reset", stream);
    SAY(cudaMallocAsync((void **)&p, 5000, stream));
    SAY(cudaDeviceReset());
    SAY(cudaFree(p));
    say_works("after another", 0);
}

/* ---- memory pools ---- */

static void say_memory_pools(void) {
    cudaMemPool_t first, own, now;
    const struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                                .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    char *p, *q, *r;
    size_t keep = SIZE_MAX;
    uint64_t used = 1;
    SAY(cudaDeviceGetMemPool(&first, 0));
    SAY(cudaMemPoolCreate(&own, &properties));
    SAY(cudaMallocAsync((void **)&p, 5000, 0));
    SAY(cudaDeviceSetMemPool(0, own));
    SAY(cudaDeviceGetMemPool(&now, 0));
    printf("the own one: %d\n", now == own);
    SAY(cudaMallocAsync((void **)&q, 5000, 0));
    SAY(cudaMallocFromPoolAsync((void **)&r, 5000, own, 0));
    SAY(cudaMemsetAsync(p, 1, 5000, 0));
    SAY(cudaMemsetAsync(q, 2, 5000, 0));
    SAY(cudaMemsetAsync(r, 3, 5000, 0));
    SAY(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &keep));
    SAY(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used));
    printf("the own one is used: %d\n", used > 0);
    SAY(cudaMemPoolTrimTo(own, 0));
    SAY(cudaMemPoolTrimTo(first, 0));
    printf("they hold: %d %d %d\n", holds(p, 5000, 1), holds(q, 5000, 2), holds(r, 5000, 3));
    SAY(cudaFreeAsync(r, 0));
    SAY(cudaFreeAsync(p, 0));
    SAY(cudaMallocAsync((void **)&p, 5000, 0));
    SAY(cudaMemsetAsync(p, 4, 5000, 0));
    SAY(cudaMemPoolDestroy(own)); /* with memory of it in use; it is the device's no more */
    SAY(cudaDeviceGetMemPool(&now, 0));
    printf("the first one: %d\n", now == first);
    printf("they hold: %d %d\n", holds(p, 5000, 4), holds(q, 5000, 2));
    say_works("after the destruction", 0);
    SAY(cudaFreeAsync(p, 0));
    SAY(cudaFreeAsync(q, 0));
    SAY(cudaFreeAsync(q, 0));
    SAY(cudaDeviceSynchronize());
    say_works("in the end", 0);
    SAY(cudaMemPoolDestroy(first)); /* refused */
    SAY(cudaDeviceSetMemPool(0, NULL));
    SAY(cudaDeviceSetMemPool(7, first));
    SAY(cudaMemPoolTrimTo(NULL, 0));
    SAY(cudaMemPoolDestroy(NULL));
}

/* Trimming a pool gives back all of it that nobody uses. */
static void say_trim(void) {
    cudaMemPool_t pool;
    void *p[8];
    uint64_t reserved = 1, used = 1;
    SAY(cudaDeviceGetMemPool(&pool, 0));
    for (int i = 0; i < 8; i++) SAY(cudaMallocAsync(&p[i], 8 * MIB, 0));
    for (int i = 0; i < 8; i++) SAY(cudaFreeAsync(p[i], 0));
    SAY(cudaDeviceSynchronize());
    SAY(cudaMemPoolTrimTo(pool, 0));
    SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    printf("nothing reserved: %d, nothing used: %d\n", reserved == 0, used == 0);
    SAY(cudaMallocAsync(&p[0], 8 * MIB, 0));
    SAY(cudaMallocAsync(&p[1], 8 * MIB, 0));
    SAY(cudaFreeAsync(p[0], 0));
    SAY(cudaDeviceSynchronize());
    SAY(cudaMemPoolTrimTo(pool, 0));
    SAY(cudaMemsetAsync(p[1], 3, MIB, 0));
    printf("what is used holds: %d\n", holds(p[1], MIB, 3));
    SAY(cudaFreeAsync(p[1], 0));
}

/* Memory that was freed and is not used any more is there for others. */
static void say_memory_info(void) {
    enum { COUNT = 3 };
    size_t before, during, after, total;
    void *p[COUNT];
    cudaStream_t stream;
    SAY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SAY(cudaMemGetInfo(&before, &total));
    for (int i = 0; i < COUNT; i++) SAY(cudaMallocAsync(&p[i], 64 * MIB, i == 1 ? 0 : stream));
    SAY(cudaMemGetInfo(&during, &total));
    printf("gone while live: %d\n", before - during >= COUNT * 64 * MIB);
    for (int i = 0; i < COUNT; i++) SAY(cudaFreeAsync(p[i], i == 1 ? 0 : stream));
    SAY(cudaDeviceSynchronize());
    SAY(cudaMemGetInfo(&after, &total));
    printf("free after the frees as before: %d\n", after == before);
    SAY(cudaMalloc(&p[0], 64 * MIB));
    SAY(cudaFreeAsync(p[0], stream));
    SAY(cudaDeviceSynchronize());
    SAY(cudaMemGetInfo(&after, &total));
    printf("free after the free as before: %d\n", after == before);
    SAY(cudaStreamDestroy(stream));
}

/* ---- other devices' access ---- */

static int access_of(cudaMemPool_t pool, int device) {
    enum cudaMemAccessFlags flags = (enum cudaMemAccessFlags)77;
    struct cudaMemLocation location = {.type = cudaMemLocationTypeDevice, .id = device};
    return cudaMemPoolGetAccess(&flags, pool, &location) == cudaSuccess ? (int)flags : -1;
}

static void say_peers(void) {
    cudaMemPool_t pool;
    cudaStream_t streams[2];
    char *p, *q;
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = 1},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    for (int i = 0; i < 2; i++) {
        SAY(cudaSetDevice(i));
        SAY(cudaStreamCreate(&streams[i]));
    }
    SAY(cudaDeviceGetMemPool(&pool, 0));
    SAY(cudaMallocAsync((void **)&p, 5000, streams[0]));
    printf("access: %d\n", access_of(pool, 1));
    SAY(cudaMemPoolSetAccess(pool, &access, 1));
    printf("access: %d\n", access_of(pool, 1));
    SAY(cudaMallocAsync((void **)&q, 5000, streams[0]));
    SAY(cudaStreamSynchronize(streams[0]));
    /* Blocks of before and after may be used now. */
    SAY(cudaMemsetAsync(p, 1, 5000, streams[1]));
    SAY(cudaMemsetAsync(q, 2, 5000, streams[1]));
    SAY(cudaStreamSynchronize(streams[1]));
    printf("they hold: %d %d\n", holds(p, 5000, 1), holds(q, 5000, 2));
    SAY(cudaFreeAsync(p, streams[1]));
    SAY(cudaFreeAsync(q, streams[0]));
    SAY(cudaStreamSynchronize(streams[1]));
    SAY(cudaMallocAsync((void **)&p, 5000, streams[0]));
    SAY(cudaStreamSynchronize(streams[0]));
    SAY(cudaMemsetAsync(p, 3, 5000, streams[1]));
    SAY(cudaStreamSynchronize(streams[1]));
    printf("it holds: %d\n", holds(p, 5000, 3));
    SAY(cudaFreeAsync(p, streams[0]));
    SAY(cudaStreamSynchronize(streams[0]));
    SAY(cudaGetLastError());
}

/* ---- out of memory ---- */

static void say_out_of_memory(void) {
    enum { COUNT = 64 };
    void *p[COUNT], *one;
    int taken = 0, code = 0;
    while (taken < COUNT && (code = cudaMallocAsync(&p[taken], 2 * MIB, 0)) == 0) taken++;
    printf("full: %d\n", code);
    SAY_KEEPING(cudaSuccess);
    SAY(cudaSuccess);
    SAY(cudaMallocAsync(&one, 2 * MIB, 0));
    SAY(cudaMalloc(&one, 2 * MIB));
    for (int i = 0; i < taken; i++) code |= cudaFreeAsync(p[i], 0);
    printf("freed: %d, last error %d\n", code, (int)cudaGetLastError());
    /* Fits only if what was freed has been given back. */
    SAY(cudaMallocAsync(&one, 40 * MIB, 0));
    SAY(cudaFreeAsync(one, 0));
    SAY(cudaDeviceSynchronize());
    SAY(cudaMalloc(&one, 40 * MIB));
    SAY(cudaFree(one));
    SAY(cudaMallocAsync(&one, 40 * MIB, 0));
    SAY(cudaFree(one));
}

/* ---- beside a kernel that goes on for ever ---- */

static void say_busy(void) {
    cudaStream_t busy, other;
    void *p, *q, *r;
    SAY(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    SAY(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    SAY(cudaMallocAsync(&p, 4096, busy));
    SAY(cudaMallocAsync(&r, 4096, busy));
    SAY(sim_launch(&endless, busy));
    /* None of these waits. */
    SAY(cudaFreeAsync(p, busy));
    for (int i = 0; i < 100; i++) {
        int code = (int)cudaMallocAsync(&q, MIB << i % 6, other);
        code |= (int)cudaMemsetAsync(q, 1, MIB, other);
        code |= (int)cudaFreeAsync(q, other);
        if (code) printf("code %d\n", code);
    }
    SAY(cudaStreamSynchronize(other));
    say_works("beside it", other);
    SAY(cudaMallocAsync(&q, 4096, busy));
    SAY(cudaFreeAsync(q, busy));
    SAY(cudaFree(r)); /* of stream-ordered memory: the driver does not wait either */
    SAY(cudaStreamQuery(busy));
    sim_release_kernels();
    SAY(cudaStreamSynchronize(busy));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {{"answers", say_answers},
                 {"destroyed_alloc", say_destroyed_alloc},
                 {"destroyed_free", say_destroyed_free},
                 {"garbage_alloc", say_garbage_alloc},
                 {"garbage_free", say_garbage_free},
                 {"handle", say_handle},
                 {"captures", say_captures},
                 {"devices", say_devices},
                 {"reset", say_reset},
                 {"memory_pools", say_memory_pools},
                 {"trim", say_trim},
                 {"memory_info", say_memory_info},
                 {"peers", say_peers},
                 {"out_of_memory", say_out_of_memory},
                 {"busy", say_busy}};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc >= 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        parts[i].say();
        if (argc == 3) wait_for_reader();
        return 0;
    }
    return 2;
}
