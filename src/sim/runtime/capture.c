/* SPDX-License-Identifier: MIT
 *
 * Stream capture, and what a program does with the captured graph. Building graphs node by node is not simulated.
 */
#include "runtime.h"

_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "the data of an edge has one layout");

SIMRT_STREAM_CALL(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode), cuStreamBeginCapture,
                  (stream, (CUstreamCaptureMode)mode))
SIMRT_STREAM_CALL(cudaStreamBeginCaptureToGraph,
                  (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                   const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode),
                  cuStreamBeginCaptureToGraph,
                  (stream, graph, dependencies, (const CUgraphEdgeData *)(const void *)edges, count,
                   (CUstreamCaptureMode)mode))
SIMRT_STREAM_CALL(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), cuStreamEndCapture, (stream, graph))
SIMRT_STREAM_CALL(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
                  cuStreamIsCapturing, (stream, (CUstreamCaptureStatus *)(void *)status))
SIMRT_STREAM_CALL(cudaStreamGetCaptureInfo,
                  (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                   cudaGraph_t *graph, const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                   size_t *count),
                  cuStreamGetCaptureInfo,
                  (stream, (CUstreamCaptureStatus *)(void *)status, (cuuint64_t *)(void *)id, graph, dependencies,
                   (const CUgraphEdgeData **)(void *)edges, count))
SIMRT_STREAM_CALL(cudaStreamUpdateCaptureDependencies,
                  (cudaStream_t stream, cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges, size_t count,
                   unsigned flags),
                  cuStreamUpdateCaptureDependencies,
                  (stream, dependencies, (const CUgraphEdgeData *)(const void *)edges, count, flags))

/* The thread's mode is no matter of a context. */
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    SIMRT_RETURN_IN_PROCESS(simrt_driver.cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)(void *)mode));
}

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphCreate(graph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphDestroy(graph));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphGetNodes(graph, nodes, count));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphInstantiateWithFlags(executable, graph, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphInstantiateWithFlags(executable, graph, flags));
}

SIMRT_STREAM_CALL(cudaGraphUpload, (cudaGraphExec_t executable, cudaStream_t stream), cuGraphUpload,
                  (executable, stream))
SIMRT_STREAM_CALL(cudaGraphLaunch, (cudaGraphExec_t executable, cudaStream_t stream), cuGraphLaunch,
                  (executable, stream))

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphExecDestroy(executable));
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
    SIMRT_RETURN_IN_CONTEXT(simrt_device_is_valid(device) ? (int)simrt_driver.cuDeviceGraphMemTrim(device)
                                                          : (int)cudaErrorInvalidDevice);
}
