/* SPDX-License-Identifier: MIT
 *
 * Captures in each mode that use pooled memory: a copy, a fill, a kernel and an allocation of the graph's own, replayed
 * with other inputs, while other memory comes and goes. Prints what each call answers and whether the results are
 * right; natively and pooled it must print the same.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "busy.h"

enum { BYTES = 1 << 20, REPLAYS = 8, OTHERS = 16 };

static cudaStream_t stream;
static void *from, *to, *filled, *others[OTHERS];
static unsigned char host[BYTES];

static bool holds(const void *block, unsigned char byte) {
    if (cudaMemcpy(host, block, BYTES, cudaMemcpyDeviceToHost) != cudaSuccess) return false;
    for (size_t i = 0; i < BYTES; i++)
        if (host[i] != byte) return false;
    return true;
}

/* Others' memory, taken and freed again between the replays: what a graph may not touch, and what may not be its. */
static bool others_renew(unsigned char byte) {
    for (int i = 0; i < OTHERS; i++) {
        if (others[i] && cudaFree(others[i]) != cudaSuccess) return false;
        if (cudaMalloc(&others[i], BYTES) != cudaSuccess || cudaMemset(others[i], byte, BYTES) != cudaSuccess)
            return false;
    }
    return true;
}

static bool others_hold(unsigned char byte) {
    for (int i = 0; i < OTHERS; i++)
        if (!holds(others[i], byte)) return false;
    return true;
}

static int work(bool kernels) {
    void *own = NULL;
    int failed = cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, stream);
    if (!failed) failed = cudaMemsetAsync(filled, 7, BYTES, stream);
    if (!failed) failed = cudaMallocAsync(&own, BYTES, stream);
    if (!failed) failed = cudaMemsetAsync(own, 9, BYTES, stream);
    if (!failed && kernels) failed = busy(stream, 50, own);
    if (!failed) failed = cudaFreeAsync(own, stream);
    return failed;
}

static bool capture(const char *name, enum cudaStreamCaptureMode mode, bool kernels) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    void *amid = NULL;
    printf("%s: begin %d\n", name, (int)cudaStreamBeginCapture(stream, mode));
    printf("%s: work %d\n", name, work(kernels));
    if (mode == cudaStreamCaptureModeRelaxed) {
        printf("%s: cudaMalloc amid it %d\n", name, (int)cudaMalloc(&amid, BYTES));
        printf("%s: cudaFree amid it %d\n", name, (int)cudaFree(amid));
    }
    printf("%s: end %d\n", name, (int)cudaStreamEndCapture(stream, &graph));
    printf("%s: instantiate %d\n", name, (int)cudaGraphInstantiate(&executable, graph, 0));
    bool right = graph != NULL;
    for (int i = 0; i < REPLAYS && right; i++) {
        right = others_renew((unsigned char)(100 + i)) && cudaMemset(from, i + 1, BYTES) == cudaSuccess &&
                cudaMemset(to, 0, BYTES) == cudaSuccess && cudaMemset(filled, 0, BYTES) == cudaSuccess &&
                cudaDeviceSynchronize() == cudaSuccess && cudaGraphLaunch(executable, stream) == cudaSuccess &&
                cudaStreamSynchronize(stream) == cudaSuccess;
        right = right && holds(to, (unsigned char)(i + 1)) && holds(filled, 7) && others_hold((unsigned char)(100 + i));
    }
    printf("%s: results %s\n", name, right ? "right" : "WRONG");
    if (executable) cudaGraphExecDestroy(executable);
    if (graph) cudaGraphDestroy(graph);
    return right;
}

/* A cudaMalloc that the mode refuses: the capture is lost, and the next one works. */
static void refused(const char *name, enum cudaStreamCaptureMode mode) {
    cudaGraph_t graph = NULL;
    void *block = NULL;
    cudaStreamBeginCapture(stream, mode);
    printf("%s: cudaMalloc %d", name, (int)cudaMalloc(&block, BYTES));
    printf(", end %d, last error %d\n", (int)cudaStreamEndCapture(stream, &graph), (int)cudaGetLastError());
    if (graph) cudaGraphDestroy(graph);
}

int main(void) {
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaMalloc(&from, BYTES) ||
        cudaMalloc(&to, BYTES) || cudaMalloc(&filled, BYTES))
        return 2;
    const bool kernels = busy_load();
    bool right = true;
    refused("global", cudaStreamCaptureModeGlobal);
    refused("thread-local", cudaStreamCaptureModeThreadLocal);
    right &= capture("global", cudaStreamCaptureModeGlobal, kernels);
    right &= capture("thread-local", cudaStreamCaptureModeThreadLocal, kernels);
    right &= capture("relaxed", cudaStreamCaptureModeRelaxed, kernels);
    return !right;
}
