/* SPDX-License-Identifier: MIT
 *
 * Compiled for per-thread default streams, so that stream 0 of its calls is its thread's own. Frees memory of
 * cuMemAlloc in the order of a stream that is busy, and prints whether the stream's work had ended when the call
 * returned.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuda.h>
#include <stdio.h>

#include "sim.h"

static int free_behind_a_kernel(const char *what, CUstream given, CUstream busy) {
    const struct sim_kernel kernel = {.microseconds = 200000};
    CUdeviceptr block;
    if (cuMemAlloc(&block, 4096) || sim_launch(&kernel, busy)) return 1;
    if (cuMemFreeAsync(block, given)) return 2;
    printf("%s: %s\n", what, cuStreamQuery(busy) == CUDA_SUCCESS ? "waited" : "did not wait");
    return cuCtxSynchronize() != CUDA_SUCCESS;
}

int main(void) {
    CUcontext context;
    CUstream stream, blocking;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 3;
    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) || cuStreamCreate(&blocking, CU_STREAM_DEFAULT)) return 3;
    return free_behind_a_kernel("stream 0", 0, CU_STREAM_PER_THREAD) ||
           free_behind_a_kernel("stream 0 beside one that the legacy stream waits for", 0, blocking) ||
           free_behind_a_kernel("a stream", stream, stream) ||
           free_behind_a_kernel("another's stream", stream, CU_STREAM_PER_THREAD);
}
