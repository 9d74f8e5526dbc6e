/* SPDX-License-Identifier: MIT
 *
 * The calls that make, set and ask memory pools.
 */
#include "driver.h"

static CUresult pool_create(const struct thread *thread, CUmemoryPool *handle, const CUmemPoolProps *properties) {
    if (handle == NULL || properties == NULL || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUmemLocationType location = properties->location.type;
    if (location == CU_MEM_LOCATION_TYPE_HOST && properties->handleTypes != 0) return CUDA_ERROR_INVALID_VALUE;
    if (location == CU_MEM_LOCATION_TYPE_HOST || location == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_NOT_SUPPORTED;
    if ((properties->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct device *const device = device_of(properties->location.id);
    if (location != CU_MEM_LOCATION_TYPE_DEVICE || device == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    struct pool *const pool = pool_make(device);
    if (pool == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pool->exportable = properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    pool->most = (properties->maxSize + CHUNK_BYTES - 1) >> CHUNK_SHIFT << CHUNK_SHIFT;
    *handle = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *properties),
            pool_create(thread, pool, properties))

static CUresult pool_destroy(const struct thread *thread, CUmemoryPool handle) {
    struct pool *pool;
    CUresult result = pool_named(handle, &pool);
    if (result != CUDA_SUCCESS || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    if (!handle_kill(pool)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    if (pool->device->current_pool == pool) pool->device->current_pool = pool->device->default_pool;
    pool->destroyed = true;
    if (pool->live == 0) pool_end(pool);
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemPoolDestroy, (CUmemoryPool pool), pool_destroy(thread, pool))

static CUresult pool_trim_to(const struct thread *thread, CUmemoryPool handle, size_t keep) {
    struct pool *pool;
    CUresult result = pool_named(handle, &pool);
    if (result == CUDA_SUCCESS) result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&memory_lock);
    pool_trim(pool, keep);
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), pool_trim_to(thread, pool, keep))

/* Attributes: where an attribute's value lies, by its type. */

static int *int_attribute(struct pool *pool, CUmemPool_attribute attribute) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->internal_dependencies;
    default:
        return NULL;
    }
}

static uint64_t *wide_attribute(struct pool *pool, CUmemPool_attribute attribute) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static CUresult pool_get_attribute(const struct thread *thread, CUmemoryPool handle, CUmemPool_attribute attribute,
                                   void *value) {
    struct pool *pool;
    CUresult result = pool_named(handle, &pool);
    if (result != CUDA_SUCCESS || value == NULL) return CUDA_ERROR_INVALID_VALUE;
    const int *const number = int_attribute(pool, attribute);
    const uint64_t *const wide = wide_attribute(pool, attribute);
    if (number == NULL && wide == NULL) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&memory_lock);
    if (number != NULL)
        *(int *)value = *number;
    else
        *(cuuint64_t *)value = *wide;
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
            pool_get_attribute(thread, pool, attribute, value))

/* A high-water mark can only be set to zero, which means: to the current value. Under memory_lock. */
static CUresult set_wide(struct pool *pool, CUmemPool_attribute attribute, uint64_t value) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (value == 0) pool->reserved_high = pool->reserved;
        return value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (value == 0) pool->used_high = pool->used;
        return value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult pool_set_attribute(const struct thread *thread, CUmemoryPool handle, CUmemPool_attribute attribute,
                                   const void *value) {
    struct pool *pool;
    CUresult result = pool_named(handle, &pool);
    if (result != CUDA_SUCCESS || value == NULL) return CUDA_ERROR_INVALID_VALUE;
    int *const number = int_attribute(pool, attribute);
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&memory_lock);
    if (number != NULL)
        *number = *(const int *)value;
    else
        result = wide_attribute(pool, attribute) != NULL ? set_wide(pool, attribute, *(const cuuint64_t *)value)
                                                         : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
            pool_set_attribute(thread, pool, attribute, value))

/* Access by other devices. */

static CUresult pool_set_access(const struct thread *thread, CUmemoryPool handle, const CUmemAccessDesc *access,
                                size_t count) {
    struct pool *pool;
    CUresult result = pool_named(handle, &pool);
    if (result != CUDA_SUCCESS || access == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const struct device *const device = device_of(access[i].location.id);
        const CUmemAccess_flags flags = access[i].flags;
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
            return CUDA_ERROR_INVALID_VALUE;
        if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
        if (device == pool->device && flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
    }
    result = capture_refuse_unsafe(thread);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const uint32_t bit = UINT32_C(1) << access[i].location.id;
        if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            atomic_fetch_and(&pool->readers_writers, ~bit);
        else
            atomic_fetch_or(&pool->readers_writers, bit);
    }
    return result;
}
DRIVER_CALL(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count),
            pool_set_access(thread, pool, access, count))

static CUresult pool_get_access(CUmemAccess_flags *flags, CUmemoryPool handle, const CUmemLocation *location) {
    struct pool *pool;
    const CUresult result = pool_named(handle, &pool);
    if (result != CUDA_SUCCESS || flags == NULL || location == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    const struct device *const device = device_of(location->id);
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    *flags = pool_may_access(pool, device) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location),
            pool_get_access(flags, pool, location))

/* The pool of a device. */

enum which { CURRENT_POOL, DEFAULT_POOL };

static CUresult device_pool(CUmemoryPool *handle, CUdevice ordinal, enum which which) {
    struct device *const device = device_of(ordinal);
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&memory_lock);
    *handle = (CUmemoryPool)(which == DEFAULT_POOL ? device->default_pool : device->current_pool);
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}

static CUresult device_set_pool(CUdevice ordinal, CUmemoryPool handle) {
    struct device *const device = device_of(ordinal);
    struct pool *pool;
    const CUresult result = pool_named(handle, &pool);
    if (result != CUDA_SUCCESS || device == NULL || pool->device != device || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    device->current_pool = pool;
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}

DRIVER_CALL(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device), device_pool(pool, device, DEFAULT_POOL))
DRIVER_CALL(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device), device_pool(pool, device, CURRENT_POOL))
DRIVER_CALL(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), device_set_pool(device, pool))

/* The same by location and kind of memory; only pinned memory of devices has pools here. */
static CUresult location_device(const CUmemLocation *location, CUmemAllocationType type, CUdevice *device) {
    if (location == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    *device = location->id;
    return CUDA_SUCCESS;
}

static CUresult location_pool(CUmemoryPool *pool, const CUmemLocation *location, CUmemAllocationType type,
                              enum which which) {
    CUdevice device;
    const CUresult result = location_device(location, type, &device);
    return result == CUDA_SUCCESS ? device_pool(pool, device, which) : result;
}

static CUresult location_set_pool(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    CUdevice device;
    const CUresult result = location_device(location, type, &device);
    return result == CUDA_SUCCESS ? device_set_pool(device, pool) : result;
}

DRIVER_CALL(cuMemGetDefaultMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
            location_pool(pool, location, type, DEFAULT_POOL))
DRIVER_CALL(cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
            location_pool(pool, location, type, CURRENT_POOL))
DRIVER_CALL(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),
            location_set_pool(location, type, pool))
