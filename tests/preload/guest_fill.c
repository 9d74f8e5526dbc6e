/* SPDX-License-Identifier: MIT
 *
 * Writes to memory, frees it, allocates it again, and prints what it holds, by each door and on streams that are busy.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "sequence.h"
#include "sim.h"

enum { BYTES = 5000, TO_THE_END = 5120 }; /* of its block */

static CUstream stream, reader;

static void write_pattern(void *argument, void *const *pointers) {
    (void)argument;
    memset(pointers[0], 0x5A, TO_THE_END);
}

/* Ends long after its launch. */
static int launch(CUdeviceptr block, CUstream on) {
    const struct sim_range range = {block, TO_THE_END, true};
    const struct sim_kernel kernel = {.microseconds = 100000, .ranges = &range, .range_count = 1, .run = write_pattern};
    return sim_launch(&kernel, on);
}

/* What the block holds, read in the order of nothing. */
static const char *content(CUdeviceptr block) {
    static unsigned char bytes[TO_THE_END];
    static char text[8];
    if (cuMemcpyDtoHAsync(bytes, block, TO_THE_END, reader) || cuStreamSynchronize(reader)) return "unreadable";
    for (int i = 1; i < TO_THE_END; i++)
        if (bytes[i] != bytes[0]) return "mixed";
    snprintf(text, sizeof text, "%02x", bytes[0]);
    return text;
}

static int driver_alloc(CUdeviceptr *out) {
    return cuMemAlloc(out, BYTES);
}
static int driver_free(CUdeviceptr block) {
    return cuMemFree(block);
}
static int driver_alloc_async(CUdeviceptr *out) {
    return cuMemAllocAsync(out, BYTES, stream);
}
static int driver_free_async(CUdeviceptr block) {
    return cuMemFreeAsync(block, stream);
}
static int runtime_alloc(CUdeviceptr *out) {
    return cudaMalloc((void **)out, BYTES);
}
static int runtime_free(CUdeviceptr block) {
    return cudaFree((void *)block);
}
static int runtime_alloc_async(CUdeviceptr *out) {
    return cudaMallocAsync((void **)out, BYTES, stream);
}
static int runtime_free_async(CUdeviceptr block) {
    return cudaFreeAsync((void *)block, stream);
}

static const struct {
    const char *name;
    int (*alloc)(CUdeviceptr *);
    int (*free)(CUdeviceptr);
} ways[] = {{"cuMemAlloc", driver_alloc, driver_free},
            {"cudaMalloc", runtime_alloc, runtime_free},
            {"cuMemAllocAsync", driver_alloc_async, driver_free_async},
            {"cudaMallocAsync", runtime_alloc_async, runtime_free_async}};

static int reuse(void) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        CUdeviceptr first, again;
        if (ways[i].alloc(&first) || launch(first, stream) || ways[i].free(first) || ways[i].alloc(&again)) return 1;
        const char *ended = cuStreamQuery(stream) == CUDA_SUCCESS ? "after" : "before";
        if (cuStreamSynchronize(stream)) return 2;
        printf("%s: %s, %s the kernel's end, holds %s\n", ways[i].name, again == first ? "the same memory" : "other",
               ended, content(again));
        if (ways[i].free(again) || cuStreamSynchronize(stream)) return 3;
    }
    return 0;
}

/* A stream captures in this thread; an allocation on another goes on, and so does the capture. */
static int amid_a_capture(CUstreamCaptureMode mode) {
    CUstream capturing;
    CUgraph graph;
    CUdeviceptr block;
    if (cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING) || cuStreamBeginCapture(capturing, mode)) return 1;
    const int allocated = cuMemAllocAsync(&block, BYTES, stream);
    size_t nodes = 7;
    const int ended = cuStreamEndCapture(capturing, &graph);
    if (!ended && cuGraphGetNodes(graph, NULL, &nodes)) return 2;
    printf("amid a capture: %d, holds %s; capture: %d, %zu nodes\n", allocated, allocated ? "nothing" : content(block),
           ended, nodes);
    return cuMemFreeAsync(block, stream) || cuStreamDestroy(capturing);
}

static int after_a_reset(void) {
    CUdeviceptr block;
    if (cudaDeviceReset() || cudaMalloc((void **)&block, BYTES)) return 1;
    if (cuStreamCreate(&reader, CU_STREAM_NON_BLOCKING)) return 2;
    printf("after a reset: holds %s\n", content(block));
    return cudaFree((void *)block) != 0;
}

int main(int argc, char **argv) {
    (void)argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cudaFree(NULL)) return 9;
    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) || cuStreamCreate(&reader, CU_STREAM_NON_BLOCKING)) return 9;
    const int failed = reuse() || amid_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL) ||
                       amid_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED) || after_a_reset();
    if (argc == 2) wait_for_reader();
    return failed;
}
