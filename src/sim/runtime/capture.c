/* SPDX-License-Identifier: MIT
 *
 * Stream capture.
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
