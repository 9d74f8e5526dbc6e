/* SPDX-License-Identifier: MIT
 *
 * A program over the driver that works steadily, on many streams, beside a kernel that goes on for long, and while
 * streams and contexts end. Its figures tell how much memory it held; the first argument says what to do.
 */
#include <pthread.h>
#include <time.h>

#include "stream_guest.h"

static const struct sim_kernel endless = {.until_released = true};

/* ---- one stream runs for long, others work steadily ---- */

enum { WORKERS = 4, ROUNDS = 1500 };

static size_t size_of_round(unsigned worker, unsigned round) {
    return (size_t)1 << (16 + (round * 7 + worker * 3) % 10);
}

static void use(CUdeviceptr p, size_t bytes, CUstream stream) {
    const struct sim_range range = {p, bytes, true};
    must((CUresult)sim_launch(&(struct sim_kernel){.ranges = &range, .range_count = 1}, stream));
}

static pthread_barrier_t step; /* however the threads are scheduled, they hold the same at the same time */

/* Allocates, uses and frees, with some blocks kept for a while; now and then waits for its own work, as programs do. */
static void work(unsigned worker, CUstream stream) {
    enum { KEPT = 8 };
    CUdeviceptr kept[KEPT] = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        CUdeviceptr *p = &kept[round % KEPT];
        pthread_barrier_wait(&step);
        if (*p) must(cuMemFreeAsync(*p, stream));
        const size_t bytes = size_of_round(worker, round);
        *p = take(bytes, stream);
        use(*p, bytes, stream);
        if (round % 16 == 0) must(cuStreamSynchronize(stream));
    }
    for (unsigned i = 0; i < KEPT; i++) must(cuMemFreeAsync(kept[i], stream));
    must(cuStreamSynchronize(stream));
}

static void *work_on_a_stream(void *number) {
    must(cuCtxSetCurrent(primary));
    work((unsigned)(uintptr_t)number, stream_new());
    return NULL;
}

static void *work_on_ones_own(void *number) {
    must(cuCtxSetCurrent(primary));
    work((unsigned)(uintptr_t)number, CU_STREAM_PER_THREAD);
    return NULL;
}

static void all_work(void *(*body)(void *), bool beside_a_kernel) {
    pthread_t threads[WORKERS];
    CUstream busy = stream_new();
    CUdeviceptr block = take(MIB, busy);
    if (beside_a_kernel) must((CUresult)sim_launch(&endless, busy));
    must(cuMemFreeAsync(block, busy));
    pthread_barrier_init(&step, NULL, WORKERS);
    for (uintptr_t i = 0; i < WORKERS; i++) pthread_create(&threads[i], NULL, body, (void *)i);
    for (unsigned i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    printf("the kernel: %s\n", state_of(busy));
}

static void say_steady(void) {
    all_work(work_on_a_stream, false);
}

static void say_steady_beside_a_kernel(void) {
    all_work(work_on_a_stream, true);
}

static void say_own_steady(void) {
    all_work(work_on_ones_own, false);
}

static void say_own_steady_beside_a_kernel(void) {
    all_work(work_on_ones_own, true);
}

/* One thread hands its streams' work from one to the next, so that memory goes round. */
static void say_round(bool beside_a_kernel) {
    CUstream streams[WORKERS], busy = stream_new();
    CUevent event;
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned i = 0; i < WORKERS; i++) streams[i] = stream_new();
    if (beside_a_kernel) must((CUresult)sim_launch(&endless, busy));
    for (unsigned round = 0; round < ROUNDS; round++) {
        const size_t bytes = size_of_round(0, round);
        CUstream one = streams[round % WORKERS], other = streams[(round + 1) % WORKERS];
        CUdeviceptr p = take(bytes, one);
        use(p, bytes, one);
        must(cuEventRecord(event, one));
        must(cuStreamWaitEvent(other, event, 0));
        use(p, bytes, other);
        must(cuMemFreeAsync(p, other));
        if (round % 16 == 0) must(cuStreamSynchronize(other));
    }
    printf("the kernel: %s\n", state_of(busy));
}

static void say_round_alone(void) {
    say_round(false);
}

static void say_round_beside_a_kernel(void) {
    say_round(true);
}

/* Plain memory in event mode: what waits for the kernel is bounded, and then a free waits after all. */
static void say_bound(void) {
    CUstream busy = stream_new();
    const struct sim_kernel kernel = {.microseconds = 1500000};
    must((CUresult)sim_launch(&kernel, busy));
    unsigned frees = 0;
    while (cuStreamQuery(busy) == CUDA_ERROR_NOT_READY) {
        CUdeviceptr p = take_plain(8 * MIB);
        must(cuMemFree(p));
        frees++;
    }
    printf("many: %d\n", frees > 8);
}

/* ---- what is created once ---- */

/* Every kind of allocation, free and stream; marks and fences are recorded all the time. */
static void make_rounds(const CUstream *streams, unsigned count) {
    for (unsigned round = 0; round < count; round++) {
        for (int i = 0; i < 4; i++) {
            CUdeviceptr p = take((size_t)4096 << round % 4, streams[i]), q = take_plain(4096), r = take_plain(4096);
            must(cuMemsetD8Async(p, 1, 4096, streams[i]));
            must(cuMemFreeAsync(p, streams[i]));
            must(cuMemFree(q));
            must(cuMemFreeAsync(r, streams[i]));
        }
        if (round % 32 == 0) must(cuCtxSynchronize());
    }
    must(cuCtxSynchronize());
}

static void say_warm(void) {
    CUcontext other;
    const CUstream streams[] = {stream_new(), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, stream_new()};
    must(cuDevicePrimaryCtxRetain(&other, 1));
    must(cuCtxSetCurrent(other));
    must(cuCtxEnablePeerAccess(primary, 0)); /* so that it counts */
    must(cuCtxSetCurrent(primary));
    make_rounds(streams, 1000);
    sim_reset_calls();
    make_rounds(streams, 1000);
    printf("events: %llu created, %d recorded on streams\n", (unsigned long long)sim_calls("cuEventCreate"),
           sim_calls("cuEventRecord") > 0);
    printf("contexts' events: %d\n", sim_calls("cuCtxRecordEvent") > 0);
    printf("segments: %d\n", (int)(sim_calls("cuMemAlloc") + sim_calls("cuMemAllocFromPoolAsync")));
}

/* ---- another device runs for long ---- */

/* It has no access to this one's memory, so nothing waits for it. */
static void say_other_device(void) {
    CUcontext other;
    CUstream busy;
    must(cuDevicePrimaryCtxRetain(&other, 1));
    must(cuCtxSetCurrent(other));
    busy = stream_new();
    must((CUresult)sim_launch(&endless, busy));
    must(cuCtxSetCurrent(primary));
    CUstream stream = stream_new();
    for (int i = 0; i < 200; i++) {
        must(cuMemFree(take_plain(8 * MIB)));
        must(cuMemFreeAsync(take_plain(8 * MIB), stream));
        must(cuMemFreeAsync(take(8 * MIB, CU_STREAM_LEGACY), CU_STREAM_LEGACY));
        must(cuMemFree(take(8 * MIB, stream)));
        must(cuCtxSynchronize());
    }
    printf("the other: %s\n", state_of(busy));
}

/* ---- everything at once ---- */

static _Atomic bool stop;
static _Atomic unsigned rounds[3];

static void use_noted(CUdeviceptr p, size_t bytes, CUstream stream) {
    const struct sim_range range = {p, bytes, true};
    must((CUresult)sim_launch(&(struct sim_kernel){.microseconds = 50, .ranges = &range, .range_count = 1}, stream));
}

/* Plain memory on a stream of its own, in the current context. */
static void use_plain(CUstream stream, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const size_t bytes = (size_t)512 << i % 8;
        const CUdeviceptr p = take_plain(bytes);
        must((CUresult)sim_block_allocated(p, bytes));
        use_noted(p, bytes, stream);
        must((CUresult)sim_block_freed(p));
        must(cuMemFree(p));
    }
}

static void use_ordered(CUstream stream, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const size_t bytes = (size_t)512 << i % 8;
        const CUdeviceptr p = take_noted(bytes, stream);
        use_noted(p, bytes, stream);
        release_noted(p, stream);
    }
}

static void *with_plain_memory(void *number) {
    must(cuCtxSetCurrent(primary));
    CUstream stream = stream_new();
    for (; !stop; rounds[(uintptr_t)number]++) use_plain(stream, 8);
    return NULL;
}

static void *with_streams_that_end(void *number) {
    must(cuCtxSetCurrent(primary));
    for (; !stop; rounds[(uintptr_t)number]++) {
        CUstream stream = stream_new();
        use_ordered(stream, 8);
        must(cuStreamDestroy(stream));
        use_ordered(CU_STREAM_PER_THREAD, 8);
        must(cuStreamSynchronize(CU_STREAM_PER_THREAD)); /* so that who waits for the context gets a turn */
    }
    return NULL;
}

static void *with_contexts_that_end(void *number) {
    for (; !stop; rounds[(uintptr_t)number]++) {
        CUcontext created;
        must(cuCtxCreate(&created, NULL, 0, 0));
        CUstream stream = stream_new();
        use_plain(stream, 8);
        use_ordered(stream, 8);
        must(cuCtxSynchronize());
        must(cuCtxDestroy(created));
    }
    return NULL;
}

static void say_turmoil(void) {
    void *(*const bodies[])(void *) = {with_plain_memory, with_streams_that_end, with_contexts_that_end};
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, bodies[i], (void *)i);
    for (int ms = 0; ms < 20000; ms += 10) {
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        if (rounds[0] > 60 && rounds[1] > 60 && rounds[2] > 60) break;
    }
    stop = true;
    for (unsigned i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 3; i++)
        if (rounds[i] <= 60) printf("thread %u made %u rounds only\n", i, rounds[i]);
    say_races();
}

static const struct guest_part parts[] = {{"steady", say_steady},
                                          {"steady_beside_a_kernel", say_steady_beside_a_kernel},
                                          {"own_steady", say_own_steady},
                                          {"own_steady_beside_a_kernel", say_own_steady_beside_a_kernel},
                                          {"round", say_round_alone},
                                          {"round_beside_a_kernel", say_round_beside_a_kernel},
                                          {"bound", say_bound},
                                          {"warm", say_warm},
                                          {"other_device", say_other_device},
                                          {"turmoil", say_turmoil}};
GUEST_MAIN(parts)
