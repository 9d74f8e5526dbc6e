/* SPDX-License-Identifier: MIT
 *
 * The driver door for memory pools: which one a device's stream-ordered segments come from, and its trimming and end.
 */
#include "device/driver.h"
#include "entry/process.h"

#include <string.h>

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
    const uint64_t ended = pool ? pool_memory_pool_ending(pool, memory_pool) : 0;
    const bool exportable = device_driver_pool_set_exportable(memory_pool, false);
    const CUresult result = REAL(cuMemPoolDestroy)(memory_pool);
    if (result != CUDA_SUCCESS && exportable) device_driver_pool_set_exportable(memory_pool, true);
    if (pool) pool_memory_pool_settled(pool, memory_pool, ended, result == CUDA_SUCCESS);
    return set(result);
}

/* The driver counts our segments as in use, whole; the program is told of its blocks. What is reserved is so indeed. */
CUresult entry_cuMemPoolGetAttribute(CUmemoryPool memory_pool, CUmemPool_attribute attribute, void *value) {
    if (!symbols_driver() || !REAL(cuMemPoolGetAttribute)) return PROCESS_NO_DRIVER;
    const CUresult result = REAL(cuMemPoolGetAttribute)(memory_pool, attribute, value);
    struct pool_system *pool = process_pool();
    if (result != CUDA_SUCCESS || attribute != CU_MEMPOOL_ATTR_USED_MEM_CURRENT || !pool) return result;
    uint64_t reserved, requested;
    cuuint64_t used;
    pool_memory_pool_use(pool, memory_pool, &reserved, &requested);
    memcpy(&used, value, sizeof used);
    used = (used > reserved ? used - reserved : 0) + requested;
    memcpy(value, &used, sizeof used);
    return result;
}

/* The driver exports whole allocations, and so a segment. No block of ours is from a memory pool that can be exported,
 * but where that was made behind our back: then it is refused, as memory that the driver does not know. */
CUresult entry_cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
    if (!symbols_driver() || !REAL(cuMemPoolExportPointer)) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    struct pool_block_info info;
    const bool ours = pool && pool_find(pool, (uint64_t)address, &info) != POOL_PASS;
    return REAL(cuMemPoolExportPointer)(data, ours ? 0 : address);
}
