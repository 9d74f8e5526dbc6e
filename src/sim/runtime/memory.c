/* SPDX-License-Identifier: MIT
 *
 * Device memory: plain, pitched and managed.
 */
#include <stdint.h>

#include "runtime.h"

static int allocate(void **pointer, size_t size) {
    if (!pointer) return cudaErrorInvalidValue;
    if (size == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return (int)simrt_driver.cuMemAlloc((CUdeviceptr *)pointer, size);
}

cudaError_t cudaMalloc(void **pointer, size_t size) {
    SIMRT_RETURN_IN_CONTEXT(allocate(pointer, size));
}

/* NULL goes to the driver too: it is no call without effect while a stream captures. */
cudaError_t cudaFree(void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemFree((CUdeviceptr)pointer));
}

static int allocate_pitched(void **pointer, size_t *pitch, size_t width, size_t height) {
    if (width == 0 || height == 0) {
        *pointer = NULL;
        *pitch = 0;
        return cudaSuccess;
    }
    if (width > INT32_MAX) return cudaErrorInvalidValue; /* the greatest pitch of any device */
    if (height > SIZE_MAX / width) return cudaErrorMemoryAllocation;
    return (int)simrt_driver.cuMemAllocPitch((CUdeviceptr *)pointer, pitch, width, height, 4);
}

cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
    SIMRT_RETURN_IN_CONTEXT(pointer && pitch ? allocate_pitched(pointer, pitch, width, height)
                                             : (int)cudaErrorInvalidValue);
}

static int allocate_3d(struct cudaPitchedPtr *pitched, struct cudaExtent extent) {
    if (!pitched || extent.width > INT32_MAX) return cudaErrorInvalidValue;
    if (extent.depth != 0 && extent.height > SIZE_MAX / extent.depth) return cudaErrorMemoryAllocation;
    struct cudaPitchedPtr result = {.xsize = extent.width, .ysize = extent.height};
    const int error = allocate_pitched(&result.ptr, &result.pitch, extent.width, extent.height * extent.depth);
    if (!error) *pitched = result;
    return error;
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent) {
    SIMRT_RETURN_IN_CONTEXT(allocate_3d(pitched, extent));
}

static int allocate_managed(void **pointer, size_t size, unsigned flags) {
    if (!pointer || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) return cudaErrorInvalidValue;
    if (size == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return (int)simrt_driver.cuMemAllocManaged((CUdeviceptr *)pointer, size, flags);
}

cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(allocate_managed(pointer, size, flags));
}

static CUmemLocation driver_location(struct cudaMemLocation location) {
    return (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id};
}

cudaError_t cudaMemAdvise(const void *pointer, size_t size, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemAdvise((CUdeviceptr)pointer, size, (CUmem_advise)advice, driver_location(location)));
}

SIMRT_STREAM_CALL(cudaMemPrefetchAsync,
                  (const void *pointer, size_t size, struct cudaMemLocation location, unsigned flags,
                   cudaStream_t stream),
                  cuMemPrefetchAsync, ((CUdeviceptr)pointer, size, driver_location(location), flags, stream))
SIMRT_STREAM_CALL(cudaStreamAttachMemAsync, (cudaStream_t stream, void *pointer, size_t size, unsigned flags),
                  cuStreamAttachMemAsync, (stream, (CUdeviceptr)pointer, size, flags))
