/* SPDX-License-Identifier: MIT
 *
 * Memory pools of the program's own, and the default ones.
 */
#include <inttypes.h>
#include <string.h>

#include "doors.h"
#include "execute.h"
#include "tally.h"

bool memory_pools_begin(size_t number) {
    for (unsigned i = 0; running.program->settings.async && i < running.program->devices; i++) {
        running.memory_pools[i].device = (uint8_t)i;
        if (!DO(cudaDeviceGetDefaultMemPool(&running.memory_pools[i].handle, (int)i))) return false;
    }
    return true;
}

static bool create(const struct operation *operation, size_t number) {
    struct live_memory_pool *pool = &running.memory_pools[operation->memory_pool];
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = operation->other}};
    PROGRAM_DID(own_pools);
    TALLY(memory_pools);
    pool->device = operation->other;
    return DO(cuMemPoolCreate(&pool->handle, &properties));
}

static bool current_is(size_t number, unsigned device, CUmemoryPool handle, bool expected) {
    CUmemoryPool current = NULL;
    if (!DO(cuDeviceGetMemPool(&current, (int)device))) return false;
    if ((current == handle) == expected) return true;
    fail(number, "the current memory pool of device %u is %p", device, (void *)current);
    return false;
}

static bool set(const struct operation *operation, size_t number) {
    const struct live_memory_pool *pool = &running.memory_pools[operation->memory_pool];
    if (operation->memory_pool >= DEVICES_MAX) PROGRAM_DID(pools_set);
    return (operation->by_driver
                ? DO(BY_DOOR(operation, cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020)(pool->device, pool->handle))
                : DO(BY_RUNTIME_DOOR(operation, cudaDeviceSetMemPool)(pool->device, pool->handle))) &&
           current_is(number, pool->device, pool->handle, true);
}

static bool give_access(const struct operation *operation, size_t number) {
    const struct live_memory_pool *pool = &running.memory_pools[operation->memory_pool];
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = operation->other};
    const CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    PROGRAM_DID(pool_access);
    if (!DO(BY_DOOR(operation, cuMemPoolSetAccess, "cuMemPoolSetAccess", 11020)(pool->handle, &access, 1)) ||
        !DO(cuMemPoolGetAccess(&flags, pool->handle, &location)))
        return false;
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return true;
    fail(number, "device %u has access %d", operation->other, (int)flags);
    return false;
}

static bool adjust(const struct operation *operation, size_t number) {
    static const CUmemPool_attribute attributes[ADJUSTMENTS] = {
        [ADJUST_THRESHOLD] = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        [ADJUST_FOLLOW_EVENTS] = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        [ADJUST_OPPORTUNISTIC] = CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        [ADJUST_INTERNAL_DEPENDENCIES] = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
    const CUmemoryPool pool = running.memory_pools[operation->memory_pool].handle;
    cuuint64_t threshold = operation->bytes, is_threshold = 0;
    int flag = operation->bytes % 2 == 0, is_flag = -1;
    const bool wide = operation->other == ADJUST_THRESHOLD;
    if (!DO(cuMemPoolSetAttribute(pool, attributes[operation->other], wide ? (void *)&threshold : (void *)&flag)) ||
        !DO(cuMemPoolGetAttribute(pool, attributes[operation->other], wide ? (void *)&is_threshold : (void *)&is_flag)))
        return false;
    if (wide ? is_threshold == threshold : is_flag == flag) return true;
    fail(number, "attribute %d of a memory pool is not what was set", (int)attributes[operation->other]);
    return false;
}

/* What the program has live in a pool is in use there, by whoever asks. */
static bool look(const struct operation *operation, size_t number) {
    const CUmemoryPool pool = running.memory_pools[operation->memory_pool].handle;
    const uint64_t live = atomic_load(&running.memory_pools[operation->memory_pool].live_bytes);
    cuuint64_t used = 0, reserved = 0;
    if (!DO(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used)) ||
        !DO(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved)))
        return false;
    if (live > 0) PROGRAM_DID(pools_looked_at);
    if (live <= used && live <= reserved) return true;
    fail(number, "memory pool %u: %" PRIu64 " bytes are live, and %" PRIu64 " said to be used, %" PRIu64 " reserved",
         operation->memory_pool, live, (uint64_t)used, (uint64_t)reserved);
    return false;
}

static bool destroy(const struct operation *operation, size_t number) {
    struct live_memory_pool *pool = &running.memory_pools[operation->memory_pool];
    const CUmemoryPool destroyed = pool->handle;
    CUmemoryPool current = NULL;
    if (!DO(cuDeviceGetMemPool(&current, pool->device))) return false;
    if (current == destroyed) PROGRAM_DID(pools_destroyed_current);
    if (atomic_load(&pool->live_bytes) > 0) PROGRAM_DID(pools_destroyed_live);
    pool->handle = NULL;
    const bool done = operation->by_driver
                          ? DO(BY_DOOR(operation, cuMemPoolDestroy, "cuMemPoolDestroy", 11020)(destroyed))
                          : DO(cudaMemPoolDestroy(destroyed));
    return done && (current != destroyed || current_is(number, pool->device, destroyed, false));
}

bool memory_pool_operation(const struct operation *operation, size_t number) {
    switch (operation->kind) {
    case DO_POOL_CREATE:
        return create(operation, number);
    case DO_POOL_SET:
        return set(operation, number);
    case DO_POOL_ACCESS:
        return give_access(operation, number);
    case DO_POOL_ADJUST:
        return adjust(operation, number);
    case DO_POOL_TRIM:
        return DO(BY_DOOR(operation, cuMemPoolTrimTo, "cuMemPoolTrimTo",
                          11020)(running.memory_pools[operation->memory_pool].handle, operation->bytes));
    case DO_POOL_LOOK:
        return look(operation, number);
    default:
        return destroy(operation, number);
    }
}

bool memory_pools_end(size_t number) {
    bool done = true;
    if (!running.program->settings.async) return true;
    for (unsigned i = DEVICES_MAX; i < MEMORY_POOLS_MAX; i++) {
        const struct operation last = {.kind = DO_POOL_DESTROY, .memory_pool = (uint8_t)i, .by_driver = i % 2 == 0};
        if (running.memory_pools[i].handle != NULL)
            done = use_context(number, running.memory_pools[i].device) && destroy(&last, number) && done;
    }
    for (unsigned i = 0; i < running.program->devices; i++) {
        const struct live_memory_pool *pool = &running.memory_pools[i];
        done = use_context(number, i) && DO(cuDeviceSetMemPool((int)i, pool->handle)) && done;
        for (unsigned k = 0; k < ADJUSTMENTS; k++) {
            const struct operation back = {.kind = DO_POOL_ADJUST, .memory_pool = (uint8_t)i, .other = (uint8_t)k};
            done = adjust(&back, number) && done;
        }
    }
    return done;
}
