/* SPDX-License-Identifier: MIT
 *
 * Kernels and host functions. A kernel takes the time that is set for it and computes nothing.
 */
#include <stdlib.h>

#include "driver.h"

enum { BLOCK_THREADS_MAX = 1024 };

static bool blocks_launches(void) {
    static _Atomic(int) known = -1;
    int blocking = atomic_load_explicit(&known, memory_order_relaxed);
    if (blocking < 0) {
        const char *const text = getenv("CUDA_LAUNCH_BLOCKING");
        blocking = text != NULL && atoi(text) != 0;
        atomic_store_explicit(&known, blocking, memory_order_relaxed);
    }
    return blocking != 0;
}

/* The memory that a context's first launch takes. */
static CUresult take_lazy_memory(struct context *context) {
    if (settings.lazy_mb == 0) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory_lock);
    if (!context->lazy_taken) {
        context->lazy_taken = memory_take_for_driver(context, (size_t)settings.lazy_mb << 20);
        if (!context->lazy_taken) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&memory_lock);
    return result;
}

CUresult launch_submit(struct stream *stream, struct operation *kernel) {
    CUresult result = take_lazy_memory(stream->context);
    if (result == CUDA_SUCCESS && stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result != CUDA_SUCCESS) {
        operation_drop(kernel);
        return result;
    }
    operation_hold(kernel);
    result = capture_or_submit(stream, kernel, NULL, 0);
    if (result == CUDA_SUCCESS && blocks_launches() && atomic_load(&capture_running) == 0) {
        scheduler_wait(kernel);
        races_operation_observed(kernel);
    }
    operation_drop(kernel);
    return result;
}

CUresult launch_check(const void *function, const struct context *context, const unsigned grid[3],
                      const unsigned block[3]) {
    const CUresult result = module_function_check(function, context);
    if (result != CUDA_SUCCESS) return result;
    for (int i = 0; i < 3; i++)
        if (grid[i] == 0 || block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    return (uint64_t)block[0] * block[1] * block[2] > BLOCK_THREADS_MAX ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult launch(struct thread *thread, CUfunction function, const unsigned grid[3], const unsigned block[3],
                       CUstream handle) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result == CUDA_SUCCESS) result = launch_check(function, stream->context, grid, block);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const kernel = operation_new(OPERATION_KERNEL);
    if (kernel == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->kernel.microseconds = settings.kernel_us;
    return launch_submit(stream, kernel);
}

#define TRIPLE(x, y, z) ((const unsigned[3]){x, y, z})

DRIVER_STREAM_CALL(
    cuLaunchKernel, _ptsz,
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
     unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra),
    ((void)shared_bytes, (void)parameters, (void)extra,
     launch(thread, function, TRIPLE(grid_x, grid_y, grid_z), TRIPLE(block_x, block_y, block_z), STREAM(stream))))
DRIVER_STREAM_CALL(cuLaunchCooperativeKernel, _ptsz,
                   (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters),
                   ((void)shared_bytes, (void)parameters,
                    launch(thread, function, TRIPLE(grid_x, grid_y, grid_z), TRIPLE(block_x, block_y, block_z),
                           STREAM(stream))))
DRIVER_STREAM_CALL(
    cuLaunchKernelEx, _ptsz, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
    ((void)parameters, (void)extra,
     config == NULL ? CUDA_ERROR_INVALID_VALUE
                    : launch(thread, function, TRIPLE(config->gridDimX, config->gridDimY, config->gridDimZ),
                             TRIPLE(config->blockDimX, config->blockDimY, config->blockDimZ), STREAM(config->hStream))))

static CUresult launch_host_function(struct thread *thread, CUstream handle, CUhostFn function, void *argument) {
    struct stream *stream;
    const CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct operation *const host = operation_new(OPERATION_HOST_FUNCTION);
    if (host == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    host->host.function = function;
    host->host.argument = argument;
    return capture_or_submit(stream, host, NULL, 0);
}
DRIVER_STREAM_CALL(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void *argument),
                   launch_host_function(thread, STREAM(stream), function, argument))

/* A stream that captures cannot take one. */
static CUresult add_callback(struct thread *thread, CUstream handle, CUstreamCallback function, void *argument,
                             unsigned flags) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (function == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_stream(stream, false);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const callback = operation_new(OPERATION_CALLBACK);
    if (callback == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    callback->host.callback = function;
    callback->host.handle = handle;
    callback->host.argument = argument;
    return capture_or_submit(stream, callback, NULL, 0);
}
DRIVER_STREAM_CALL(cuStreamAddCallback, _ptsz,
                   (CUstream stream, CUstreamCallback function, void *argument, unsigned flags),
                   add_callback(thread, STREAM(stream), function, argument, flags))
