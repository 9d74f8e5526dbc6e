/* SPDX-License-Identifier: MIT
 *
 * Memory of other kinds, contexts and what belongs to them, where the pool's cache may have starved them.
 */
#include "device/driver.h"
#include "entry/starved.h"

static int ordinal_of(const CUmemLocation *location) {
    return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : STARVED_CURRENT_DEVICE;
}

/* ---- memory ---- */

CUresult entry_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    STARVED(cuMemAllocFromPoolAsync, (out, bytes, pool, stream));
}

CUresult entry_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    STARVED(cuMemAllocFromPoolAsync_ptsz, (out, bytes, pool, stream));
}

CUresult entry_cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element) {
    STARVED(cuMemAllocPitch_v2, (out, pitch, width, height, element));
}

CUresult entry_cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags) {
    STARVED(cuMemAllocManaged, (out, bytes, flags));
}

CUresult entry_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *property,
                           unsigned long long flags) {
    STARVED_CALL(ordinal_of(property ? &property->location : NULL), cuMemCreate, (handle, bytes, property, flags));
    return result;
}

CUresult entry_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
    STARVED(cuArrayCreate_v2, (array, shape));
}

CUresult entry_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    STARVED(cuArray3DCreate_v2, (array, shape));
}

CUresult entry_cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                      unsigned int levels) {
    STARVED(cuMipmappedArrayCreate, (array, shape, levels));
}

/* ---- memory that is mapped: its page tables are device memory ---- */

CUresult entry_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                        unsigned long long flags) {
    STARVED(cuMemMap, (address, bytes, offset, handle, flags));
}

CUresult entry_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    STARVED(cuMemSetAccess, (address, bytes, access, count));
}

CUresult entry_cuMulticastCreate(CUmemGenericAllocationHandle *handle, const void *property) {
    STARVED(cuMulticastCreate, (handle, property));
}

CUresult entry_cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                                  CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
                                  unsigned long long flags) {
    STARVED(cuMulticastBindMem, (multicast, multicast_offset, handle, offset, bytes, flags));
}

CUresult entry_cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset, CUdeviceptr address,
                                   size_t bytes, unsigned long long flags) {
    STARVED(cuMulticastBindAddr, (multicast, multicast_offset, address, bytes, flags));
}

/* One that the program may export is left to it (device/driver_pools.c). */
CUresult entry_cuMemPoolCreate(CUmemoryPool *memory_pool, const CUmemPoolProps *property) {
    STARVED_CALL(ordinal_of(property ? &property->location : NULL), cuMemPoolCreate, (memory_pool, property));
    if (result == CUDA_SUCCESS)
        device_driver_pool_set_exportable(*memory_pool, property->handleTypes != CU_MEM_HANDLE_TYPE_NONE);
    return result;
}

CUresult entry_cuMemPoolImportFromShareableHandle(CUmemoryPool *memory_pool, void *handle,
                                                  CUmemAllocationHandleType type, unsigned long long flags) {
    STARVED(cuMemPoolImportFromShareableHandle, (memory_pool, handle, type, flags));
}

CUresult entry_cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool memory_pool, CUmemPoolPtrExportData *data) {
    STARVED(cuMemPoolImportPointer, (out, memory_pool, data));
}

CUresult entry_cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle) {
    STARVED(cuImportExternalMemory, (memory, handle));
}

CUresult entry_cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory memory,
                                               const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer) {
    STARVED(cuExternalMemoryGetMappedBuffer, (out, memory, buffer));
}

CUresult entry_cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
                                                       const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *shape) {
    STARVED(cuExternalMemoryGetMappedMipmappedArray, (array, memory, shape));
}

CUresult entry_cuGraphicsMapResources(unsigned int count, CUgraphicsResource *resources, CUstream stream) {
    STARVED(cuGraphicsMapResources, (count, resources, stream));
}

CUresult entry_cuGraphicsMapResources_ptsz(unsigned int count, CUgraphicsResource *resources, CUstream stream) {
    STARVED(cuGraphicsMapResources_ptsz, (count, resources, stream));
}

CUresult entry_cuMemAllocHost_v2(void **out, size_t bytes) {
    STARVED(cuMemAllocHost_v2, (out, bytes));
}

CUresult entry_cuMemHostAlloc(void **out, size_t bytes, unsigned int flags) {
    STARVED(cuMemHostAlloc, (out, bytes, flags));
}

CUresult entry_cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags) {
    STARVED(cuMemHostRegister_v2, (address, bytes, flags));
}

/* ---- contexts: driver_contexts.c and driver_streams.c have the others ---- */

CUresult entry_cuCtxSetLimit(CUlimit limit, size_t value) {
    STARVED(cuCtxSetLimit, (limit, value));
}

CUresult entry_cuEventCreate(CUevent *event, unsigned int flags) {
    STARVED(cuEventCreate, (event, flags));
}

CUresult entry_cuGreenCtxCreate(void **green, void *resources, CUdevice device, unsigned int flags) {
    STARVED_CALL(device, cuGreenCtxCreate, (green, resources, device, flags));
    return result;
}

CUresult entry_cuGreenCtxStreamCreate(CUstream *stream, void *green, unsigned int flags, int priority) {
    STARVED(cuGreenCtxStreamCreate, (stream, green, flags, priority));
}
