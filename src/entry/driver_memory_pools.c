/* SPDX-License-Identifier: MIT
 *
 * The driver door for memory pools: which one a device's stream-ordered segments come from, and its trimming and end.
 */
#include "device/driver.h"
#include "entry/process.h"

static CUresult set(CUresult result) {
    struct pool_system *pool = result == CUDA_SUCCESS ? process_pool() : NULL;
    if (pool) pool_memory_pool_set(pool);
    return result;
}

CUresult entry_cuDeviceSetMemPool(CUdevice device, CUmemoryPool memory_pool) {
    if (!symbols_driver() || !REAL(cuDeviceSetMemPool)) return PROCESS_NO_DRIVER;
    return set(REAL(cuDeviceSetMemPool)(device, memory_pool));
}

CUresult entry_cuMemSetMemPool(void *location, int type, CUmemoryPool memory_pool) {
    if (!symbols_driver() || !REAL(cuMemSetMemPool)) return PROCESS_NO_DRIVER;
    return set(REAL(cuMemSetMemPool)(location, type, memory_pool));
}

CUresult entry_cuMemPoolSetAccess(CUmemoryPool memory_pool, const CUmemAccessDesc *access, size_t count) {
    if (!symbols_driver() || !REAL(cuMemPoolSetAccess)) return PROCESS_NO_DRIVER;
    const CUresult result = REAL(cuMemPoolSetAccess)(memory_pool, access, count);
    if (result != CUDA_SUCCESS || !process_pool()) return result;
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            device_driver_access_given(process_driver(), -1, access[i].location.id);
    return result;
}

/* What we hold of it and nobody uses goes first, so that the driver finds it free. */
CUresult entry_cuMemPoolTrimTo(CUmemoryPool memory_pool, size_t keep_bytes) {
    if (!symbols_driver() || !REAL(cuMemPoolTrimTo)) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    if (pool) pool_trim_memory_pool(pool, memory_pool, keep_bytes);
    return REAL(cuMemPoolTrimTo)(memory_pool, keep_bytes);
}

/* A destroyed memory pool goes when its last allocation does; the handle may come back before. */
CUresult entry_cuMemPoolDestroy(CUmemoryPool memory_pool) {
    if (!symbols_driver() || !REAL(cuMemPoolDestroy)) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    if (pool) pool_memory_pool_destroyed(pool, memory_pool);
    const CUresult result = REAL(cuMemPoolDestroy)(memory_pool);
    if (pool && result != CUDA_SUCCESS) pool_memory_pool_kept(pool, memory_pool);
    return set(result);
}

/* The driver exports whole allocations: only a block that starts its segment, never silently other memory. */
CUresult entry_cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
    if (!symbols_driver() || !REAL(cuMemPoolExportPointer)) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    struct pool_block_info info;
    const int code = pool ? pool_find(pool, (uint64_t)address, &info) : POOL_PASS;
    if (code == POOL_PASS || (code == DEVICE_OK && (info.kind != SEGMENT_ASYNC || !info.offset_in_segment)))
        return REAL(cuMemPoolExportPointer)(data, address);
    struct device_context context;
    const int refusal = process_context(&context);
    return refusal == DEVICE_OK ? CUDA_ERROR_INVALID_VALUE : (CUresult)refusal;
}
