/* SPDX-License-Identifier: MIT
 *
 * Compiled for per-thread default streams, so that stream 0 of its calls is its thread's own. Frees memory in the order
 * of a stream that is busy, and prints whether the call waited, and whether a further allocation on some stream is
 * given the same memory.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>

#include "sim.h"

static int free_and_allocate(const char *what, CUstream freed, CUstream busy, CUstream wanted) {
    const struct sim_kernel kernel = {.until_released = true};
    CUdeviceptr block, next;
    if (cuMemAllocAsync(&block, 4096, freed) || sim_launch(&kernel, busy)) return 1;
    if (cuMemFreeAsync(block, freed)) return 2;
    const char *waited = cuStreamQuery(busy) == CUDA_SUCCESS ? "waited" : "did not wait";
    if (cuMemAllocAsync(&next, 4096, wanted)) return 3;
    printf("%s: %s, %s\n", what, waited, next == block ? "the same memory" : "other memory");
    sim_release_kernels();
    return cuCtxSynchronize() != CUDA_SUCCESS || cuMemFreeAsync(next, wanted) || cuCtxSynchronize() != CUDA_SUCCESS;
}

static CUdeviceptr others_block;

static void *free_on_its_own(void *context) {
    const struct sim_kernel kernel = {.until_released = true};
    if (cuCtxSetCurrent(context) || sim_launch(&kernel, CU_STREAM_PER_THREAD) || cuMemFreeAsync(others_block, 0))
        puts("failed");
    return NULL;
}

/* Stream 0 of a thread is not that of another. */
static int free_in_a_thread(CUcontext context) {
    pthread_t thread;
    CUdeviceptr next;
    if (cuMemAllocAsync(&others_block, 4096, 0) || pthread_create(&thread, NULL, free_on_its_own, context)) return 1;
    pthread_join(thread, NULL);
    if (cuMemAllocAsync(&next, 4096, 0)) return 2;
    printf("another thread's stream 0: %s\n", next == others_block ? "the same memory" : "other memory");
    sim_release_kernels();
    return cuCtxSynchronize() != CUDA_SUCCESS;
}

int main(void) {
    CUcontext context;
    CUstream stream, blocking;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 3;
    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) || cuStreamCreate(&blocking, CU_STREAM_DEFAULT)) return 3;
    return free_and_allocate("stream 0, then stream 0", 0, CU_STREAM_PER_THREAD, 0) ||
           free_and_allocate("stream 0, then its name", 0, CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD) ||
           free_and_allocate("stream 0, then the legacy stream", 0, CU_STREAM_PER_THREAD, CU_STREAM_LEGACY) ||
           free_and_allocate("a stream, then that stream", stream, stream, stream) ||
           free_and_allocate("a stream, then another", blocking, blocking, stream) || free_in_a_thread(context);
}
