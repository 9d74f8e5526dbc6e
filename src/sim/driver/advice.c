/* SPDX-License-Identifier: MIT
 *
 * Calls that only advise the device, or watch it: accepted where their arguments are right, without effect.
 */
#include "driver.h"

#include <cudaProfiler.h>

static CUresult needs_context(const struct thread *thread) {
    struct context *context;
    return context_current(thread, &context);
}

static CUresult get_cache_config(const struct thread *thread, CUfunc_cache *config) {
    const CUresult result = needs_context(thread);
    if (result != CUDA_SUCCESS) return result;
    if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxGetCacheConfig, (CUfunc_cache * config), get_cache_config(thread, config))
DRIVER_CALL(cuCtxSetCacheConfig, (CUfunc_cache config), ((void)config, needs_context(thread)))
DRIVER_CALL(cuCtxResetPersistingL2Cache, (void), needs_context(thread))
DRIVER_CALL(cuProfilerStart, (void), needs_context(thread))
DRIVER_CALL(cuProfilerStop, (void), needs_context(thread))

/* Advice is for managed memory. */
static CUresult check_managed(uint64_t address, size_t bytes) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    const bool managed = allocation != NULL && allocation->kind == ALLOCATION_MANAGED &&
                         address + bytes <= allocation->address + allocation->bytes;
    pthread_mutex_unlock(&memory_lock);
    return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER_CALL(cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
            ((void)advice, (void)device, check_managed(address, bytes)))
DRIVER_CALL(cuMemAdvise_v2, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location),
            ((void)advice, (void)location, check_managed(address, bytes)))

/* In a stream it keeps its place, as a wait for nothing. */
static CUresult submit_nothing(struct thread *thread, CUdeviceptr address, size_t bytes, CUstream handle) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result == CUDA_SUCCESS) result = check_managed(address, bytes);
    if (result == CUDA_SUCCESS && stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const operation = operation_new(OPERATION_WAIT);
    if (operation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    return capture_or_submit(stream, operation, NULL, 0);
}
DRIVER_STREAM_CALL(cuMemPrefetchAsync, _ptsz, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
                   ((void)device, submit_nothing(thread, address, bytes, STREAM(stream))))
DRIVER_STREAM_CALL(cuMemPrefetchAsync_v2, _ptsz,
                   (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
                   ((void)location,
                    flags != 0 ? CUDA_ERROR_INVALID_VALUE : submit_nothing(thread, address, bytes, STREAM(stream))))
DRIVER_STREAM_CALL(cuStreamAttachMemAsync, _ptsz, (CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags),
                   ((void)flags, submit_nothing(thread, address, bytes != 0 ? bytes : 1, STREAM(stream))))
