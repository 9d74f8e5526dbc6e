/* SPDX-License-Identifier: MIT
 *
 * An ordinary program over the CUDA runtime: both kinds of memory, streams, captures, threads. Prints what its calls
 * answer. The first argument says which part; with a second, it waits for its figures to be read.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "sequence.h"

#define SAY(call)                                                                     \
    do {                                                                              \
        const int code_said = (int)(call);                                            \
        printf("%s: %d, last error %d\n", #call, code_said, (int)cudaGetLastError()); \
    } while (0)

static int holds(const void *p, size_t bytes, char value) {
    static char copy[MIB];
    if (cudaMemcpy(copy, p, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) return 0;
    for (size_t i = 0; i < bytes; i++)
        if (copy[i] != value) return 0;
    return 1;
}

/* ---- 5 allocations by cudaMalloc, 5 frees that are right ---- */

static void say_plain(void) {
    char *a, *b, *c;
    SAY(cudaMalloc((void **)&a, MIB));
    SAY(cudaMalloc((void **)&b, 3000));
    SAY(cudaMemset(a, 1, MIB));
    SAY(cudaMemset(b, 2, 3000));
    SAY(cudaFree(b + 512));
    SAY(cudaFree(b));
    SAY(cudaFree(b));
    SAY(cudaMalloc((void **)&b, 3000));
    SAY(cudaMemset(b, 3, 3000));
    SAY(cudaMalloc((void **)&c, 20 * MIB));
    printf("they hold: %d %d\n", holds(a, MIB, 1), holds(b, 3000, 3));
    SAY(cudaFree(a));
    SAY(cudaFree(b));
    SAY(cudaFree(c));
    SAY(cudaMalloc((void **)&a, (size_t)1 << 46));
    SAY(cudaMalloc((void **)&a, 0));
    SAY(cudaMalloc((void **)&a, MIB));
    SAY(cudaFree(a));
}

/* ---- 4 allocations by cudaMallocAsync, each freed in another way ---- */

static void say_ordered(void) {
    cudaStream_t stream;
    char *a = NULL, *b = NULL, *c = NULL, *d = NULL;
    SAY(cudaStreamCreate(&stream));
    SAY(cudaMallocAsync((void **)&a, 70000, stream));
    if (!a) return;
    SAY(cudaMallocAsync((void **)&b, 70000, 0));
    SAY(cudaMemsetAsync(a, 5, 70000, stream));
    SAY(cudaMemsetAsync(b, 6, 70000, 0));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaStreamSynchronize(0));
    printf("they hold: %d %d\n", holds(a, 70000, 5), holds(b, 70000, 6));
    SAY(cudaFreeAsync(a, stream));
    SAY(cudaMallocAsync((void **)&c, 70000, stream));
    SAY(cudaMemsetAsync(c, 7, 70000, stream));
    SAY(cudaMallocAsync((void **)&d, 70000, stream));
    SAY(cudaStreamSynchronize(stream));
    printf("they hold: %d %d\n", holds(c, 70000, 7), holds(b, 70000, 6));
    SAY(cudaFreeAsync(b, 0));
    SAY(cudaFree(c));
    SAY(cudaFreeAsync(d, stream));
    SAY(cudaDeviceSynchronize());
    SAY(cudaFreeAsync(d, stream));
    SAY(cudaStreamDestroy(stream));
}

/* ---- captures: what is allocated in them is the graph's ---- */

static void say_capture_in(const char *what, enum cudaStreamCaptureMode mode) {
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;
    void *before = NULL, *amid = NULL, *nodes = NULL;
    printf("-- %s\n", what);
    SAY(cudaMalloc(&before, 4096));
    SAY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SAY(cudaStreamBeginCapture(stream, mode));
    SAY(cudaMallocAsync(&nodes, 4096, stream));
    if (nodes) {
        SAY(cudaMemsetAsync(nodes, 1, 4096, stream));
        SAY(cudaFreeAsync(nodes, stream));
    }
    if (mode == cudaStreamCaptureModeRelaxed) {
        SAY(cudaMalloc(&amid, 4096));
        SAY(cudaFree(before));
        SAY(cudaFree(amid));
    }
    SAY(cudaStreamEndCapture(stream, &graph));
    if (graph) {
        SAY(cudaGraphInstantiate(&exec, graph, 0));
        SAY(cudaGraphLaunch(exec, stream));
        SAY(cudaStreamSynchronize(stream));
        SAY(cudaGraphExecDestroy(exec));
        SAY(cudaGraphDestroy(graph));
    }
    if (mode != cudaStreamCaptureModeRelaxed) SAY(cudaFree(before));
    SAY(cudaStreamDestroy(stream));
}

static void say_captures(void) {
    say_capture_in("global", cudaStreamCaptureModeGlobal);
    say_capture_in("of the thread", cudaStreamCaptureModeThreadLocal);
    say_capture_in("relaxed", cudaStreamCaptureModeRelaxed);
}

static void say_work(void) {
    say_plain();
    say_ordered();
    say_captures();
    SAY(cudaDeviceReset());
    say_plain();
}

/* ---- threads whose first call is a free ---- */

static void *frees_first(void *p) {
    SAY(cudaFree(p));
    SAY(cudaFree(p));
    return NULL;
}

static void *frees_nothing_first(void *unused) {
    (void)unused;
    SAY(cudaFree(NULL));
    return NULL;
}

static void *frees_in_order_first(void *p) {
    SAY(cudaFreeAsync(p, 0));
    SAY(cudaStreamSynchronize(0));
    return NULL;
}

static void in_a_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument) == 0) pthread_join(thread, NULL);
}

static void say_bare(void) {
    void *p, *q, *r;
    in_a_thread(frees_nothing_first, NULL);
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaMalloc(&q, 4096));
    SAY(cudaMallocAsync(&r, 4096, 0));
    SAY(cudaStreamSynchronize(0));
    in_a_thread(frees_first, p);
    in_a_thread(frees_in_order_first, q);
    in_a_thread(frees_in_order_first, r);
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaFree(p));
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(argv[1], "work") == 0) say_work();
    if (strcmp(argv[1], "bare") == 0) say_bare();
    if (argc == 3) wait_for_reader();
    return 0;
}
