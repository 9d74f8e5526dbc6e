/* SPDX-License-Identifier: MIT
 *
 * Allocation and free in the order of a stream; on a capturing stream they become nodes of its graph.
 */
#include "graph.h"

void async_discard(uint64_t address, uint64_t buffer_id, const struct operation *freed) {
    pthread_mutex_lock(&memory_lock);
    struct allocation *const allocation = memory_find(address);
    if (allocation != NULL && allocation->buffer_id == buffer_id) {
        if (freed != NULL) races_released(allocation->address, allocation->bytes, freed);
        if (allocation->kind == ALLOCATION_GRAPH)
            graph_memory_free_end(allocation->graph_memory);
        else
            memory_discard(allocation);
    }
    pthread_mutex_unlock(&memory_lock);
}

/* Does the stream still capture, so that it can record? Under scheduler_lock. */
static CUresult may_record(const struct stream *stream) {
    if (stream->capture == NULL) return CUDA_ERROR_ILLEGAL_STATE;
    return stream->capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

static CUresult captured_alloc(struct stream *stream, const struct pool *pool, size_t bytes, CUdeviceptr *address) {
    struct operation *operation = NULL;
    pthread_mutex_lock(&scheduler_lock);
    CUresult result = may_record(stream);
    if (result == CUDA_SUCCESS)
        result = graph_alloc_operation(pool->device, bytes, stream->capture->graph, atomic_load(&pool->readers_writers),
                                       &operation);
    if (result == CUDA_SUCCESS) {
        const uint64_t taken = operation->memory.address;
        result = capture_record(stream, operation);
        graph_alloc_settle(taken);
        if (result == CUDA_SUCCESS) *address = taken;
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}

static CUresult alloc(struct thread *thread, CUdeviceptr *address, size_t bytes, CUmemoryPool handle, bool named,
                      CUstream stream_handle) {
    struct stream *stream;
    struct pool *pool = NULL;
    CUresult result = stream_named(thread, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || (named && (pool_named(handle, &pool) != CUDA_SUCCESS || pool->imported)))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) {
        *address = 0;
        return CUDA_SUCCESS;
    }
    if (stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result != CUDA_SUCCESS) return result;
    if (capture_is_running(stream)) {
        pthread_mutex_lock(&memory_lock);
        if (pool == NULL) pool = stream->context->device->current_pool;
        pthread_mutex_unlock(&memory_lock);
        return captured_alloc(stream, pool, bytes, address);
    }
    struct operation *const operation = operation_new(OPERATION_ALLOC);
    if (operation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    struct operation *wait_for;
    pthread_mutex_lock(&memory_lock);
    if (pool == NULL) pool = stream->context->device->current_pool;
    result = pool_alloc(pool, bytes, stream, address, &wait_for);
    pthread_mutex_unlock(&memory_lock);
    if (result == CUDA_SUCCESS) scheduler_submit(operation, stream, &wait_for, wait_for != NULL ? 1 : 0);
    operation_drop(wait_for);
    operation_drop(operation);
    return result;
}
DRIVER_STREAM_CALL(cuMemAllocAsync, _ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream),
                   alloc(thread, address, bytes, NULL, false, STREAM(stream)))
DRIVER_STREAM_CALL(cuMemAllocFromPoolAsync, _ptsz,
                   (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
                   alloc(thread, address, bytes, pool, true, STREAM(stream)))

/* Whether a stream that does not capture may free it, and what the FREE has to discard. Under memory_lock. */
static CUresult begin_free(struct allocation *allocation, uint64_t address, struct operation *operation) {
    if (allocation == NULL || allocation->address != address || allocation->leaving) return CUDA_ERROR_INVALID_VALUE;
    switch (allocation->kind) {
    case ALLOCATION_GRAPH: {
        const CUresult result = graph_memory_free_begin(allocation->graph_memory);
        if (result != CUDA_SUCCESS) return result;
        break;
    }
    case ALLOCATION_POOL:
        allocation->leaving = true;
        return CUDA_SUCCESS;
    case ALLOCATION_OPENED:
        if (allocation->pool == NULL) return CUDA_ERROR_INVALID_VALUE;
        allocation->leaving = true;
        break;
    case ALLOCATION_PLAIN:
        allocation->leaving = true;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    operation->memory.address = address;
    operation->memory.buffer_id = allocation->buffer_id;
    return CUDA_SUCCESS;
}

/* The block may go to later work of this stream from now on, and so must be in the pool after the operation is in the
 * stream. */
static void return_to_pool(uint64_t address, const struct stream *stream, struct operation *operation) {
    pthread_mutex_lock(&memory_lock);
    struct allocation *const allocation = memory_find(address);
    if (allocation != NULL && allocation->address == address && allocation->kind == ALLOCATION_POOL &&
        allocation->leaving)
        pool_free(allocation, stream, operation);
    pthread_mutex_unlock(&memory_lock);
}

static CUresult captured_release(struct stream *stream, CUdeviceptr address) {
    struct operation *operation = NULL;
    pthread_mutex_lock(&scheduler_lock);
    CUresult result = may_record(stream);
    if (result == CUDA_SUCCESS) {
        result = graph_free_operation(address, stream->capture->graph, &operation);
        if (result != CUDA_SUCCESS) stream->capture->invalidated = true;
    }
    if (result == CUDA_SUCCESS) result = capture_record(stream, operation);
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}

static CUresult release(struct thread *thread, CUdeviceptr address, CUstream stream_handle) {
    struct stream *stream;
    CUresult result = stream_named(thread, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result != CUDA_SUCCESS) return result;
    if (capture_is_running(stream)) return captured_release(stream, address);
    struct operation *const operation = operation_new(OPERATION_FREE);
    if (operation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    result = address != 0 ? begin_free(memory_find(address), address, operation) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&memory_lock);
    if (result == CUDA_SUCCESS) {
        scheduler_submit(operation, stream, NULL, 0);
        return_to_pool(address, stream, operation);
    }
    operation_drop(operation);
    return result;
}
DRIVER_STREAM_CALL(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream stream),
                   release(thread, address, STREAM(stream)))
