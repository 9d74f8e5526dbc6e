/* SPDX-License-Identifier: MIT
 *
 * Memory pools that are shared with other processes. The shareable handle is a descriptor, of a small file that says
 * which pool it is; memory of the pool is then imported piece by piece, by data that names it, as ipc.c opens an
 * allocation. An imported pool gives out nothing: it holds what was imported, and which devices may use that.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

_Static_assert(sizeof(struct shares_handle) == sizeof(CUmemPoolPtrExportData), "is the data");

static const char pool_mark[8] = "SIM-POOL", pointer_mark[8] = "SIM-PTR";

static CUresult export_pool(const struct thread *thread, int *descriptor, CUmemoryPool handle,
                            CUmemAllocationHandleType type, unsigned long long flags) {
    struct pool *pool;
    CUresult result = pool_named(handle, &pool);
    if (result != CUDA_SUCCESS || descriptor == NULL || flags != 0 || !pool->exportable ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    struct shares_handle shared = {.pool = pool->id, .device = (uint64_t)pool->device->physical};
    if (!shares_start(&shared.process)) return CUDA_ERROR_OUT_OF_MEMORY;
    shares_seal(&shared, pool_mark);
    const int file = memfd_create("simulated-pool", MFD_CLOEXEC);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (pwrite(file, &shared, sizeof(shared), 0) != sizeof(shared)) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *descriptor = file;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemPoolExportToShareableHandle,
            (void *handle, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags),
            export_pool(thread, handle, pool, type, flags))

static CUresult import_pool(const struct thread *thread, CUmemoryPool *handle, const void *descriptor,
                            CUmemAllocationHandleType type, unsigned long long flags) {
    struct shares_handle shared;
    char bytes[sizeof(shared)];
    const CUresult result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pread((int)(intptr_t)descriptor, bytes, sizeof(bytes), 0) != sizeof(bytes) ||
        !shares_read(&shared, bytes, pool_mark))
        return CUDA_ERROR_INVALID_VALUE;
    struct device *const device = device_on_machine((int64_t)shared.device);
    if (device == NULL) return CUDA_ERROR_NOT_SUPPORTED;
    struct pool *const pool = pool_make(device);
    if (pool == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pool->imported = true;
    pool->owner = shared.process;
    pool->owner_id = shared.pool;
    *handle = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemPoolImportFromShareableHandle,
            (CUmemoryPool * pool, void *handle, CUmemAllocationHandleType type, unsigned long long flags),
            import_pool(thread, pool, handle, type, flags))

static CUresult export_pointer(const struct thread *thread, CUmemPoolPtrExportData *data, CUdeviceptr address) {
    struct shares_handle shared = {.pool = 0};
    CUresult result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    if (data == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!shares_start(&shared.process)) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    if (allocation == NULL || allocation->kind != ALLOCATION_POOL || allocation->leaving ||
        !allocation->pool->exportable) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        shared.pool = allocation->pool->id;
        shared.address = allocation->address;
        shared.buffer_id = allocation->buffer_id;
        shared.device = (uint64_t)allocation->device->physical;
    }
    pthread_mutex_unlock(&memory_lock);
    if (result != CUDA_SUCCESS) return result;
    shares_seal(&shared, pointer_mark);
    memcpy(data, &shared, sizeof(*data));
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr address),
            export_pointer(thread, data, address))

/* Under memory_lock. */
static CUresult hold(struct pool *pool, int file, const struct shares_place *place, CUdeviceptr *address) {
    struct allocation *allocation;
    if (pool->destroyed || device_on_machine(place->device) != pool->device) return CUDA_ERROR_INVALID_VALUE;
    if (shares_map(NULL, file, place, &allocation) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
    allocation->pool = pool;
    pool->live++;
    pool->used += allocation->bytes;
    pool->reserved += allocation->taken_bytes;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
    *address = allocation->address;
    return CUDA_SUCCESS;
}

void pool_import_discard(const struct allocation *allocation) {
    struct pool *const pool = allocation->pool;
    pool->live--;
    pool->used -= allocation->bytes;
    pool->reserved -= allocation->taken_bytes;
    shares_unmap(allocation);
    if (pool->destroyed && pool->live == 0) pool_end(pool);
}

static CUresult import_pointer(const struct thread *thread, CUdeviceptr *address, CUmemoryPool handle,
                               const CUmemPoolPtrExportData *data) {
    struct pool *pool;
    struct shares_handle shared;
    struct shares_place place;
    CUresult result = pool_named(handle, &pool);
    if (result != CUDA_SUCCESS || address == NULL || data == NULL || !pool->imported ||
        !shares_read(&shared, data, pointer_mark) || shared.pool != pool->owner_id ||
        memcmp(&shared.process, &pool->owner, sizeof(pool->owner)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    const int file = shares_ask(&shared, &place);
    if (file < 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    result = hold(pool, file, &place, address);
    pthread_mutex_unlock(&memory_lock);
    close(file);
    return result;
}
DRIVER_CALL(cuMemPoolImportPointer, (CUdeviceptr * address, CUmemoryPool pool, CUmemPoolPtrExportData *data),
            import_pointer(thread, address, pool, data))
