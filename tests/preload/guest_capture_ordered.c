/* SPDX-License-Identifier: MIT
 *
 * A program over the driver that allocates and frees in the order of streams beside captures and inside them, in each
 * mode, from the capturing thread and another. Prints what its calls answer and what becomes of the capture, for
 * comparing a native run with a pooled one.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "sequence.h"

#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static CUcontext primary;
static CUstream capturing;

static void must(CUresult result) {
    if (result == CUDA_SUCCESS) return;
    printf("failed: %d\n", (int)result);
    exit(3);
}

/* ---- one call beside a capture ---- */

enum { CAPTURING, NON_BLOCKING, BLOCKING, LEGACY, OWN, STREAMS };
static const char *const stream_names[] = {"the capturing stream", "a non-blocking one", "a blocking one",
                                           "the legacy stream", "the thread's own"};
static CUstream streams[STREAMS];

static CUdeviceptr plain, ordered, other_ordered; /* blocks made before the capture */

static CUresult allocate(CUstream stream) {
    CUdeviceptr p = 0;
    return cuMemAllocAsync(&p, 4096, stream);
}

static CUresult allocate_and_free(CUstream stream) {
    CUdeviceptr p = 0;
    CUresult result = cuMemAllocAsync(&p, 4096, stream);
    if (result == CUDA_SUCCESS) result = cuMemsetD8Async(p, 1, 4096, stream);
    return result == CUDA_SUCCESS ? cuMemFreeAsync(p, stream) : result;
}

static CUresult free_plain_in_order(CUstream stream) {
    return cuMemFreeAsync(plain, stream);
}

static CUresult free_ordered(CUstream stream) {
    return cuMemFreeAsync(ordered, stream);
}

static CUresult free_ordered_plainly(CUstream stream) {
    (void)stream;
    return cuMemFree(ordered);
}

static CUresult free_twice(CUstream stream) {
    const CUresult result = cuMemFreeAsync(other_ordered, stream);
    return result == CUDA_SUCCESS ? cuMemFreeAsync(other_ordered, stream) : result;
}

static const struct {
    const char *name;
    CUresult (*make)(CUstream);
} calls[] = {{"allocate", allocate},
             {"allocate, fill, free", allocate_and_free},
             {"free plain memory in order", free_plain_in_order},
             {"free in order", free_ordered},
             {"free what was allocated in order", free_ordered_plainly},
             {"free twice", free_twice}};

struct one_call {
    CUresult (*make)(CUstream);
    CUstream stream;
    CUresult result;
};

static void *make_call(void *argument) {
    struct one_call *call = argument;
    must(cuCtxSetCurrent(primary));
    call->result = call->make(call->stream);
    return NULL;
}

static void say_call(size_t which, int stream, CUstreamCaptureMode mode, bool other_thread) {
    struct one_call call = {.make = calls[which].make, .stream = streams[stream]};
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    size_t nodes = 0;
    pthread_t thread;
    must(cuMemAlloc(&plain, 4096));
    must(cuMemAllocAsync(&ordered, 4096, streams[NON_BLOCKING]));
    must(cuMemAllocAsync(&other_ordered, 4096, capturing));
    must(cuCtxSynchronize());
    must(cuStreamBeginCapture(capturing, mode));
    if (other_thread) {
        pthread_create(&thread, NULL, make_call, &call);
        pthread_join(thread, NULL);
    } else {
        make_call(&call);
    }
    const CUresult asked = cuStreamIsCapturing(capturing, &status);
    const CUresult ended = cuStreamEndCapture(capturing, &graph);
    if (graph) must(cuGraphGetNodes(graph, NULL, &nodes));
    printf("mode %d, %s thread, on %s, %s: %d; capture: %d, status %d, ended %d, nodes %zu\n", (int)mode,
           other_thread ? "another" : "the same", stream_names[stream], calls[which].name, (int)call.result, (int)asked,
           (int)status, (int)ended, nodes);
    if (graph) must(cuGraphDestroy(graph));
    /* What was freed is no block any more. */
    printf("left: %d %d %d\n", (int)cuMemFree(plain), (int)cuMemFreeAsync(ordered, capturing),
           (int)cuMemFreeAsync(other_ordered, streams[NON_BLOCKING]));
    must(cuCtxSynchronize());
}

/* With nothing cached, and with what the rounds before left behind. */
static void say_beside(void) {
    for (int stream = 0; stream < STREAMS; stream++)
        for (int mode = 0; mode < 3; mode++)
            for (size_t which = 0; which < sizeof calls / sizeof *calls; which++)
                for (int other = 0; other < 2; other++) say_call(which, stream, (CUstreamCaptureMode)mode, other);
}

/* ---- memory of graphs ---- */

/* Memory that a graph allocates is the driver's, whoever frees it. */
static void say_graphs(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr kept = 0, inner = 0;
    unsigned char byte = 0;
    SAY(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuMemAllocAsync(&kept, 4096, capturing));
    SAY(cuMemAllocAsync(&inner, 4096, capturing));
    SAY(cuMemsetD8Async(inner, 7, 4096, capturing));
    SAY(cuMemcpyDtoDAsync(kept, inner, 4096, capturing));
    SAY(cuMemFreeAsync(inner, capturing));
    SAY(cuStreamEndCapture(capturing, &graph));
    SAY(cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 4; round++) {
        CUdeviceptr beside = 0;
        SAY(cuGraphLaunch(exec, capturing));
        SAY(cuMemAllocAsync(&beside, 4096, capturing));
        SAY(cuMemsetD8Async(beside, 9, 4096, capturing));
        SAY(cuStreamSynchronize(capturing));
        SAY(cuMemcpyDtoH(&byte, kept + 4095, 1));
        printf("the graph's block holds %d\n", byte);
        SAY(cuMemFreeAsync(beside, capturing));
        if (round == 0) SAY(cuMemFreeAsync(kept, capturing));
        if (round == 1) SAY(cuMemFree(kept));
        if (round == 2) SAY(cuMemFreeAsync(kept, streams[NON_BLOCKING]));
        SAY(cuMemFreeAsync(inner, capturing));
        SAY(cuCtxSynchronize());
    }
    SAY(cuGraphLaunch(exec, capturing)); /* its block of the launch before was not freed */
    SAY(cuMemFreeAsync(kept, capturing));
    SAY(cuCtxSynchronize());
    SAY(cuGraphExecDestroy(exec));
    SAY(cuGraphDestroy(graph));
}

/* A graph that was captured uses memory of the pool's that was allocated before. */
static void say_used_by_a_graph(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr p, q;
    unsigned char byte = 0;
    SAY(cuMemAllocAsync(&p, 4096, capturing));
    SAY(cuMemAlloc(&q, 4096));
    SAY(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    SAY(cuMemsetD8Async(p, 3, 4096, capturing));
    SAY(cuMemcpyDtoDAsync(q, p, 4096, capturing));
    SAY(cuStreamEndCapture(capturing, &graph));
    SAY(cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        SAY(cuGraphLaunch(exec, capturing));
        SAY(cuStreamSynchronize(capturing));
        SAY(cuMemcpyDtoH(&byte, q, 1));
        printf("holds %d\n", byte);
    }
    SAY(cuGraphLaunch(exec, capturing));
    SAY(cuMemFreeAsync(p, capturing));
    SAY(cuMemFree(q));
    SAY(cuGraphExecDestroy(exec));
    SAY(cuGraphDestroy(graph));
    SAY(cuCtxSynchronize());
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {{"beside", say_beside}, {"graphs", say_graphs}, {"used", say_used_by_a_graph}};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc >= 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        must(cuInit(0));
        must(cuDevicePrimaryCtxRetain(&primary, 0));
        must(cuCtxSetCurrent(primary));
        must(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
        must(cuStreamCreate(&streams[NON_BLOCKING], CU_STREAM_NON_BLOCKING));
        must(cuStreamCreate(&streams[BLOCKING], CU_STREAM_DEFAULT));
        streams[CAPTURING] = capturing;
        streams[LEGACY] = CU_STREAM_LEGACY;
        streams[OWN] = CU_STREAM_PER_THREAD;
        parts[i].say();
        if (argc == 3) wait_for_reader();
        return 0;
    }
    return 2;
}
