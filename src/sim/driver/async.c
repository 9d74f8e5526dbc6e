/* SPDX-License-Identifier: MIT
 *
 * Allocation and free in the order of a stream; on a capturing stream they become nodes of its graph.
 */
#include "driver.h"

void async_discard(uint64_t address, uint64_t buffer_id) {
    pthread_mutex_lock(&memory_lock);
    struct allocation *const allocation = memory_find(address);
    if (allocation != NULL && allocation->buffer_id == buffer_id) memory_discard(allocation);
    pthread_mutex_unlock(&memory_lock);
}

/* An address for captured work. It has no memory before its graph runs. */
static CUresult captured_alloc(struct stream *stream, size_t bytes, CUdeviceptr *address) {
    struct device *const device = stream->context->device;
    struct operation *const operation = operation_new(OPERATION_ALLOC);
    if (operation == NULL || bytes > device->total_bytes) {
        operation_drop(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const size_t chunks = (bytes + CHUNK_BYTES - 1) >> CHUNK_SHIFT;
    struct allocation *allocation = NULL;
    pthread_mutex_lock(&memory_lock);
    const uint64_t range = backing_take(device, chunks, false);
    if (range != 0) allocation = memory_add(range, bytes, ALLOCATION_GRAPH, device, NULL);
    if (allocation != NULL) {
        allocation->taken_bytes = chunks << CHUNK_SHIFT;
        operation->memory.address = *address = range;
        operation->memory.buffer_id = allocation->buffer_id;
    } else if (range != 0) {
        backing_give(device, range, chunks, false);
    }
    pthread_mutex_unlock(&memory_lock);
    if (allocation == NULL) {
        operation_drop(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const uint64_t buffer_id = operation->memory.buffer_id;
    const CUresult result = capture_or_submit(stream, operation, NULL, 0);
    if (result != CUDA_SUCCESS) async_discard(range, buffer_id);
    return result;
}

static CUresult alloc(struct thread *thread, CUdeviceptr *address, size_t bytes, CUmemoryPool handle, bool named,
                      CUstream stream_handle) {
    struct stream *stream;
    struct pool *pool = NULL;
    CUresult result = stream_named(thread, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || (named && pool_named(handle, &pool) != CUDA_SUCCESS)) return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) {
        *address = 0;
        return CUDA_SUCCESS;
    }
    if (stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result != CUDA_SUCCESS) return result;
    if (capture_is_running(stream)) return captured_alloc(stream, bytes, address);
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

/* Whether the stream may free it, and what the FREE has to discard. Under memory_lock. */
static CUresult begin_free(struct allocation *allocation, uint64_t address, bool captured,
                           struct operation *operation) {
    if (allocation == NULL || allocation->address != address || allocation->leaving) return CUDA_ERROR_INVALID_VALUE;
    switch (allocation->kind) {
    case ALLOCATION_GRAPH:
        if (!captured) return CUDA_ERROR_INVALID_VALUE;
        break;
    case ALLOCATION_POOL:
    case ALLOCATION_PLAIN:
        if (captured) return CUDA_ERROR_INVALID_VALUE;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (allocation->kind == ALLOCATION_PLAIN) {
        operation->memory.address = address;
        operation->memory.buffer_id = allocation->buffer_id;
    }
    allocation->leaving = true;
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

static CUresult release(struct thread *thread, CUdeviceptr address, CUstream stream_handle) {
    struct stream *stream;
    CUresult result = stream_named(thread, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result != CUDA_SUCCESS) return result;
    const bool captured = capture_is_running(stream);
    struct operation *const operation = operation_new(OPERATION_FREE);
    if (operation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    result = address != 0 ? begin_free(memory_find(address), address, captured, operation) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&memory_lock);
    if (result != CUDA_SUCCESS) {
        if (captured) capture_invalidate(stream);
        operation_drop(operation);
        return result;
    }
    if (captured) return capture_or_submit(stream, operation, NULL, 0);
    scheduler_submit(operation, stream, NULL, 0);
    return_to_pool(address, stream, operation);
    operation_drop(operation);
    return CUDA_SUCCESS;
}
DRIVER_STREAM_CALL(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream stream),
                   release(thread, address, STREAM(stream)))
