/* SPDX-License-Identifier: MIT
 *
 * The stream calls of CUDA in their two families, for the legacy and for per-thread default streams: calls.c is
 * compiled once for each.
 */
#ifndef RANDOM_CALLS_H
#define RANDOM_CALLS_H

#include <cuda.h>
#include <cuda_runtime_api.h>

struct calls {
    cudaError_t (*malloc_async)(void **address, size_t bytes, cudaStream_t stream);
    cudaError_t (*free_async)(void *address, cudaStream_t stream);
    cudaError_t (*malloc_from_pool)(void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
    CUresult (*driver_malloc_from_pool)(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream);
    CUresult (*driver_malloc_async)(CUdeviceptr *address, size_t bytes, CUstream stream);
    CUresult (*driver_free_async)(CUdeviceptr address, CUstream stream);
    cudaError_t (*memset_async)(void *address, int value, size_t bytes, cudaStream_t stream);
    cudaError_t (*copy_async)(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
    cudaError_t (*event_record)(cudaEvent_t event, cudaStream_t stream);
    cudaError_t (*stream_wait)(cudaStream_t stream, cudaEvent_t event, unsigned flags);
    cudaError_t (*stream_synchronize)(cudaStream_t stream);
    cudaError_t (*stream_query)(cudaStream_t stream);
    cudaError_t (*begin_capture)(cudaStream_t stream, enum cudaStreamCaptureMode mode);
    cudaError_t (*end_capture)(cudaStream_t stream, cudaGraph_t *graph);
    cudaError_t (*graph_launch)(cudaGraphExec_t graph, cudaStream_t stream);
};

extern const struct calls calls_legacy, calls_per_thread;

#endif
