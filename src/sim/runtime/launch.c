/* SPDX-License-Identifier: MIT
 *
 * Kernel launches. A registered kernel is handed to the driver, which lets it take its time; it computes nothing.
 */
#include <stdint.h>

#include "compiled.h"
#include "registry.h"

/* ---- the configuration between <<< and >>> ---- */

enum { CONFIGURATIONS_MAX = 16 };

/* Launches nest where an argument of one is a call that launches another. */
static _Thread_local struct {
    unsigned count;
    struct {
        dim3 grid, block;
        size_t shared_bytes;
        cudaStream_t stream;
    } entries[CONFIGURATIONS_MAX];
} configurations;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream) {
    if (configurations.count == CONFIGURATIONS_MAX) return 1;
    const unsigned top = configurations.count++;
    configurations.entries[top].grid = grid;
    configurations.entries[top].block = block;
    configurations.entries[top].shared_bytes = shared_bytes;
    configurations.entries[top].stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
    if (configurations.count == 0) return simrt_result(cudaErrorMissingConfiguration);
    const unsigned top = --configurations.count;
    *grid = configurations.entries[top].grid;
    *block = configurations.entries[top].block;
    *shared_bytes = configurations.entries[top].shared_bytes;
    *(cudaStream_t *)stream = configurations.entries[top].stream;
    return cudaSuccess;
}

/* ---- launches ---- */

struct launch {
    const void *function;
    dim3 grid, block;
    void **arguments;
    size_t shared_bytes;
    cudaStream_t stream;
    bool per_thread;
};

static bool shape_is_valid(const struct launch *launch) {
    enum { BLOCK_MAX = 1024 };
    const dim3 *grid = &launch->grid, *block = &launch->block;
    return grid->x && grid->y && grid->z && block->x && block->y && block->z && block->x <= BLOCK_MAX &&
           block->y <= BLOCK_MAX && block->z <= BLOCK_MAX &&
           (unsigned long long)block->x * block->y * block->z <= BLOCK_MAX;
}

static int function_of(const struct launch *launch, CUfunction *function) {
    CUkernel handle;
    struct simrt_kernel *kernel = simrt_kernel_of(launch->function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (!shape_is_valid(launch)) return cudaErrorInvalidConfiguration;
    const cudaError_t error = simrt_kernel_handle(kernel, &handle);
    *function = (CUfunction)handle;
    return (int)error;
}

static int run(const struct launch *launch, PFN_cuLaunchKernel_v4000 driver_call) {
    CUfunction function;
    const int error = function_of(launch, &function);
    if (error) return error;
    return (int)driver_call(function, launch->grid.x, launch->grid.y, launch->grid.z, launch->block.x, launch->block.y,
                            launch->block.z, (unsigned)launch->shared_bytes, launch->stream, launch->arguments, NULL);
}

static int run_cooperative(const struct launch *launch, PFN_cuLaunchCooperativeKernel_v9000 driver_call) {
    CUfunction function;
    const int error = function_of(launch, &function);
    if (error) return error;
    return (int)driver_call(function, launch->grid.x, launch->grid.y, launch->grid.z, launch->block.x, launch->block.y,
                            launch->block.z, (unsigned)launch->shared_bytes, launch->stream, launch->arguments);
}

static int run_configured(const cudaLaunchConfig_t *config, const void *function, void **arguments,
                          PFN_cuLaunchKernelEx_v11060 driver_call) {
    if (!config) return cudaErrorInvalidValue;
    const struct launch launch = {.function = function, .grid = config->gridDim, .block = config->blockDim};
    CUfunction driver_function;
    const int error = function_of(&launch, &driver_function);
    if (error) return error;
    const CUlaunchConfig driver_config = {
        .gridDimX = config->gridDim.x,
        .gridDimY = config->gridDim.y,
        .gridDimZ = config->gridDim.z,
        .blockDimX = config->blockDim.x,
        .blockDimY = config->blockDim.y,
        .blockDimZ = config->blockDim.z,
        .sharedMemBytes = (unsigned)config->dynamicSmemBytes,
        .hStream = config->stream,
        .attrs = (CUlaunchAttribute *)(void *)config->attrs, /* one layout in both interfaces */
        .numAttrs = config->numAttrs,
    };
    return (int)driver_call(&driver_config, driver_function, arguments, NULL);
}

_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "launch attributes have one layout");

#define LAUNCH_PARAMETERS \
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream
#define LAUNCH                                                                                                    \
    &(struct launch) {                                                                                            \
        .function = function, .grid = grid, .block = block, .arguments = arguments, .shared_bytes = shared_bytes, \
        .stream = stream                                                                                          \
    }

__typeof__(cudaLaunchKernel) cudaLaunchKernel_ptsz SIMRT_EXPORT;
__typeof__(cudaLaunchCooperativeKernel) cudaLaunchCooperativeKernel_ptsz SIMRT_EXPORT;
__typeof__(cudaLaunchKernelExC) cudaLaunchKernelExC_ptsz SIMRT_EXPORT;

cudaError_t cudaLaunchKernel(LAUNCH_PARAMETERS) {
    SIMRT_RETURN_IN_CONTEXT(run(LAUNCH, simrt_driver.cuLaunchKernel));
}

cudaError_t cudaLaunchKernel_ptsz(LAUNCH_PARAMETERS) {
    SIMRT_RETURN_IN_CONTEXT(run(LAUNCH, simrt_driver.cuLaunchKernel_ptsz));
}

cudaError_t cudaLaunchCooperativeKernel(LAUNCH_PARAMETERS) {
    SIMRT_RETURN_IN_CONTEXT(run_cooperative(LAUNCH, simrt_driver.cuLaunchCooperativeKernel));
}

cudaError_t cudaLaunchCooperativeKernel_ptsz(LAUNCH_PARAMETERS) {
    SIMRT_RETURN_IN_CONTEXT(run_cooperative(LAUNCH, simrt_driver.cuLaunchCooperativeKernel_ptsz));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    SIMRT_RETURN_IN_CONTEXT(run_configured(config, function, arguments, simrt_driver.cuLaunchKernelEx));
}

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    SIMRT_RETURN_IN_CONTEXT(run_configured(config, function, arguments, simrt_driver.cuLaunchKernelEx_ptsz));
}

/* Compiled code launches by the handle from below. */
cudaError_t __cudaLaunchKernel(cudaKernel_t function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                               cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(run(LAUNCH, simrt_driver.cuLaunchKernel));
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                    cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(run(LAUNCH, simrt_driver.cuLaunchKernel_ptsz));
}

static int kernel_by_function(cudaKernel_t *handle, const void *function) {
    if (!handle) return cudaErrorInvalidValue;
    struct simrt_kernel *kernel = simrt_kernel_of(function);
    return kernel ? (int)simrt_kernel_handle(kernel, handle) : (int)cudaErrorInvalidDeviceFunction;
}

/* Compiled code asks once and keeps the answer, so this must not fail for want of a context or of memory: the host
 * function serves as its handle, and the kernel is loaded by the launch. */
cudaError_t __cudaGetKernel(cudaKernel_t *handle, const void *function) {
    if (!handle || !simrt_kernel_of(function)) return simrt_result(cudaErrorInvalidDeviceFunction);
    *handle = (cudaKernel_t)(uintptr_t)function;
    return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t *handle, const void *function) {
    SIMRT_RETURN_IN_CONTEXT(kernel_by_function(handle, function));
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *handle, const void *function) {
    SIMRT_RETURN_IN_CONTEXT(kernel_by_function((cudaKernel_t *)(void *)handle, function));
}
