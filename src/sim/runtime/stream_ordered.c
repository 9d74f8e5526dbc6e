/* SPDX-License-Identifier: MIT
 *
 * Memory in stream order, and the pools that it comes from. Properties, locations and access descriptors have one
 * layout in both interfaces.
 */
#include <stdint.h>

#include "runtime.h"

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "the pool's properties have one layout");
_Static_assert(offsetof(struct cudaMemPoolProps, location) == offsetof(CUmemPoolProps, location), "as above");
_Static_assert(offsetof(struct cudaMemPoolProps, maxSize) == offsetof(CUmemPoolProps, maxSize), "as above");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "access descriptors have one layout");
_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation), "locations have one layout");
_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData), "as is exported data");

static int allocate(void **pointer, size_t size, cudaStream_t stream, PFN_cuMemAllocAsync_v11020 driver_call) {
    if (!pointer) return cudaErrorInvalidValue;
    if (size == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return (int)driver_call((CUdeviceptr *)pointer, size, stream);
}

static int allocate_from(void **pointer, size_t size, cudaMemPool_t pool, cudaStream_t stream,
                         PFN_cuMemAllocFromPoolAsync_v11020 driver_call) {
    if (!pointer || !pool) return cudaErrorInvalidValue;
    if (size == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return (int)driver_call((CUdeviceptr *)pointer, size, pool, stream);
}

__typeof__(cudaMallocAsync) cudaMallocAsync_ptsz SIMRT_EXPORT;
__typeof__(cudaMallocFromPoolAsync) cudaMallocFromPoolAsync_ptsz SIMRT_EXPORT;

cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(allocate(pointer, size, stream, simrt_driver.cuMemAllocAsync));
}

cudaError_t cudaMallocAsync_ptsz(void **pointer, size_t size, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(allocate(pointer, size, stream, simrt_driver.cuMemAllocAsync_ptsz));
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(allocate_from(pointer, size, pool, stream, simrt_driver.cuMemAllocFromPoolAsync));
}

cudaError_t cudaMallocFromPoolAsync_ptsz(void **pointer, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(allocate_from(pointer, size, pool, stream, simrt_driver.cuMemAllocFromPoolAsync_ptsz));
}

SIMRT_STREAM_CALL(cudaFreeAsync, (void *pointer, cudaStream_t stream), cuMemFreeAsync, ((CUdeviceptr)pointer, stream))

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemPoolTrimTo(pool, keep));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *descriptors, size_t count) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)(const void *)descriptors, count));
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool, struct cudaMemLocation *location) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemPoolGetAccess((CUmemAccess_flags *)(void *)flags, pool, (CUmemLocation *)(void *)location));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemPoolCreate(pool, (const CUmemPoolProps *)(const void *)properties));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemPoolDestroy(pool));
}

cudaError_t cudaMemPoolExportToShareableHandle(void *handle, cudaMemPool_t pool, enum cudaMemAllocationHandleType type,
                                               unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemPoolExportToShareableHandle(handle, pool, (CUmemAllocationHandleType)type, flags));
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t *pool, void *handle,
                                                 enum cudaMemAllocationHandleType type, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemPoolImportFromShareableHandle(pool, handle, (CUmemAllocationHandleType)type, flags));
}

cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *data, void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemPoolExportPointer((CUmemPoolPtrExportData *)(void *)data, (CUdeviceptr)pointer));
}

cudaError_t cudaMemPoolImportPointer(void **pointer, cudaMemPool_t pool, struct cudaMemPoolPtrExportData *data) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemPoolImportPointer((CUdeviceptr *)pointer, pool, (CUmemPoolPtrExportData *)(void *)data));
}

/* ---- the pools of devices ---- */

typedef CUresult device_pool_call(CUmemoryPool *pool, CUdevice device);

static int device_pool(cudaMemPool_t *pool, int device, device_pool_call *driver_call) {
    return simrt_device_is_valid(device) ? (int)driver_call(pool, device) : (int)cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    SIMRT_RETURN_IN_CONTEXT(device_pool(pool, device, simrt_driver.cuDeviceGetDefaultMemPool));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    SIMRT_RETURN_IN_CONTEXT(device_pool(pool, device, simrt_driver.cuDeviceGetMemPool));
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    SIMRT_RETURN_IN_CONTEXT(simrt_device_is_valid(device) ? (int)simrt_driver.cuDeviceSetMemPool(device, pool)
                                                          : (int)cudaErrorInvalidDevice);
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *pool, struct cudaMemLocation *location,
                                     enum cudaMemAllocationType type) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemGetDefaultMemPool(pool, (CUmemLocation *)(void *)location, (CUmemAllocationType)type));
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t *pool, struct cudaMemLocation *location, enum cudaMemAllocationType type) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemGetMemPool(pool, (CUmemLocation *)(void *)location, (CUmemAllocationType)type));
}

cudaError_t cudaMemSetMemPool(struct cudaMemLocation *location, enum cudaMemAllocationType type, cudaMemPool_t pool) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuMemSetMemPool((CUmemLocation *)(void *)location, (CUmemAllocationType)type, pool));
}
