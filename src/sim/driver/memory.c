/* SPDX-License-Identifier: MIT
 *
 * Every allocation of the process, ordered by address; and cuMemAlloc, cuMemFree and the questions about memory. Below
 * 2 MiB an allocation shares a slab of 2 MiB with others of its context, first fit in steps of 512 bytes; from 2 MiB it
 * has a range of its own. So free memory moves by 2 MiB, as a GPU's does.
 */
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bits.h"
#include "graph.h"

enum { PITCH_ALIGNMENT = 512 };

struct slab {
    struct context *context;
    uint64_t address;
    size_t index; /* in the context's slabs */
    size_t units_taken;
    uint64_t taken[BITS_WORDS(CHUNK_UNITS)];
};

pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

/* The tree's order: ranges that overlap are equal, so that any address finds the allocation that holds it. */
static void *allocations;
static uint64_t buffer_ids;

static int compare_ranges(const void *left, const void *right) {
    const struct allocation *const a = left, *const b = right;
    if (a->address + a->bytes <= b->address) return -1;
    return a->address >= b->address + b->bytes;
}

struct allocation *memory_find_overlap(uint64_t address, size_t bytes) {
    const struct allocation key = {.address = address, .bytes = bytes};
    struct allocation *const *const found = tfind(&key, &allocations, compare_ranges);
    return found != NULL ? *found : NULL;
}

struct allocation *memory_find(uint64_t address) {
    return memory_find_overlap(address, 1);
}

struct allocation *memory_add(uint64_t address, size_t bytes, enum allocation_kind kind, struct device *device,
                              struct context *context) {
    struct allocation *const allocation = calloc(1, sizeof(*allocation));
    if (allocation == NULL) return NULL;
    allocation->address = address;
    allocation->bytes = bytes;
    allocation->kind = kind;
    allocation->device = device;
    allocation->context = context;
    allocation->buffer_id = ++buffer_ids;
    if (tsearch(allocation, &allocations, compare_ranges) == NULL) {
        free(allocation);
        return NULL;
    }
    if (context != NULL) {
        allocation->following = context->allocations;
        if (context->allocations != NULL) context->allocations->previous = allocation;
        context->allocations = allocation;
    }
    return allocation;
}

void memory_remove(struct allocation *allocation) {
    tdelete(allocation, &allocations, compare_ranges);
    if (allocation->following != NULL) allocation->following->previous = allocation->previous;
    if (allocation->previous != NULL)
        allocation->previous->following = allocation->following;
    else if (allocation->context != NULL)
        allocation->context->allocations = allocation->following;
    free(allocation);
}

/* Slabs. */

static size_t units_of(size_t bytes) {
    return (bytes + MEMORY_UNIT - 1) / MEMORY_UNIT;
}

static bool slabs_grow(struct context *context) {
    if (context->slab_count < context->slab_capacity) return true;
    const size_t capacity = context->slab_capacity == 0 ? 64 : context->slab_capacity * 2;
    struct slab **const slabs = realloc(context->slabs, capacity * sizeof(struct slab *));
    if (slabs == NULL) return false;
    context->slabs = slabs;
    uint16_t *const runs = realloc(context->slab_runs, capacity * sizeof(*runs));
    if (runs == NULL) return false;
    context->slab_runs = runs;
    context->slab_capacity = capacity;
    return true;
}

static struct slab *slab_make(struct context *context) {
    if (!slabs_grow(context)) return NULL;
    struct slab *const slab = calloc(1, sizeof(*slab));
    if (slab == NULL) return NULL;
    slab->address = backing_take(context->device, 1, true);
    if (slab->address == 0) {
        free(slab);
        return NULL;
    }
    slab->context = context;
    slab->index = context->slab_count++;
    context->slabs[slab->index] = slab;
    context->slab_runs[slab->index] = CHUNK_UNITS;
    return slab;
}

static void slab_discard(struct context *context, struct slab *slab) {
    const size_t last = --context->slab_count;
    context->slabs[slab->index] = context->slabs[last];
    context->slabs[slab->index]->index = slab->index;
    context->slab_runs[slab->index] = context->slab_runs[last];
    if (slab->index < context->slab_roomy) context->slab_roomy = slab->index;
    backing_give(context->device, slab->address, 1, true);
    free(slab);
}

/* The first slab with room, and where; the bounds that turn out too large are corrected on the way. */
static struct slab *slab_find(struct context *context, size_t units, size_t *first) {
    while (context->slab_roomy < context->slab_count && context->slab_runs[context->slab_roomy] == 0)
        context->slab_roomy++;
    for (size_t i = context->slab_roomy; i < context->slab_count; i++) {
        if (context->slab_runs[i] < units) continue;
        *first = bits_find_run(context->slabs[i]->taken, 0, CHUNK_UNITS, units);
        if (*first < CHUNK_UNITS) return context->slabs[i];
        context->slab_runs[i] = (uint16_t)(units - 1);
    }
    *first = 0;
    return slab_make(context);
}

static struct allocation *slab_alloc(struct context *context, size_t bytes) {
    size_t first;
    struct slab *const slab = slab_find(context, units_of(bytes), &first);
    if (slab == NULL) return NULL;
    struct allocation *const allocation =
        memory_add(slab->address + first * MEMORY_UNIT, bytes, ALLOCATION_PLAIN, context->device, context);
    if (allocation == NULL) {
        if (slab->units_taken == 0) slab_discard(context, slab);
        return NULL;
    }
    allocation->slab = slab;
    slab->units_taken += units_of(bytes);
    bits_set_run(slab->taken, first, units_of(bytes), true);
    if (slab->units_taken == CHUNK_UNITS) context->slab_runs[slab->index] = 0;
    return allocation;
}

static void slab_free(struct allocation *allocation) {
    struct slab *const slab = allocation->slab;
    const size_t units = units_of(allocation->bytes);
    bits_set_run(slab->taken, (allocation->address - slab->address) / MEMORY_UNIT, units, false);
    slab->units_taken -= units;
    struct context *const context = slab->context;
    context->slab_runs[slab->index] = (uint16_t)(CHUNK_UNITS - slab->units_taken);
    if (slab->index < context->slab_roomy) context->slab_roomy = slab->index;
    if (slab->units_taken == 0) slab_discard(context, slab);
}

/* Ranges of their own. */

static struct allocation *range_alloc(struct context *context, size_t bytes) {
    if (bytes > context->device->total_bytes) return NULL;
    const size_t chunks = (bytes + CHUNK_BYTES - 1) >> CHUNK_SHIFT;
    const uint64_t address = backing_take(context->device, chunks, true);
    if (address == 0) return NULL;
    struct allocation *const allocation = memory_add(address, bytes, ALLOCATION_PLAIN, context->device, context);
    if (allocation == NULL) {
        backing_give(context->device, address, chunks, true);
        return NULL;
    }
    allocation->taken_bytes = chunks << CHUNK_SHIFT;
    return allocation;
}

static CUresult take_plain(struct context *context, size_t bytes, CUdeviceptr *address) {
    struct allocation *const allocation =
        bytes < CHUNK_BYTES ? slab_alloc(context, bytes) : range_alloc(context, bytes);
    if (allocation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = allocation->address;
    return CUDA_SUCCESS;
}

void memory_discard(struct allocation *allocation) {
    struct device *const device = allocation->device;
    switch (allocation->kind) {
    case ALLOCATION_PLAIN:
        if (allocation->taken_bytes == 0)
            slab_free(allocation);
        else
            backing_give(device, allocation->address, allocation->taken_bytes >> CHUNK_SHIFT, true);
        break;
    case ALLOCATION_GRAPH:
        backing_give(device, allocation->address, allocation->taken_bytes >> CHUNK_SHIFT, false);
        break;
    case ALLOCATION_MANAGED:
    case ALLOCATION_HOST:
        munmap((void *)(uintptr_t)allocation->address, allocation->taken_bytes);
        break;
    case ALLOCATION_OPENED:
        if (allocation->pool != NULL)
            pool_import_discard(allocation);
        else
            ipc_discard(allocation);
        break;
    case ALLOCATION_REGISTERED:
    case ALLOCATION_POOL:
        break;
    }
    memory_remove(allocation);
}

bool memory_take_for_driver(struct context *context, size_t bytes) {
    if (!backing_charge(context->device, bytes)) return false;
    context->driver_bytes += bytes;
    return true;
}

void memory_context_discard(struct context *context) {
    pthread_mutex_lock(&memory_lock);
    while (context->allocations != NULL) memory_discard(context->allocations);
    backing_discharge(context->device, context->driver_bytes);
    context->driver_bytes = 0;
    context->lazy_taken = false;
    free(context->slabs);
    free(context->slab_runs);
    context->slabs = NULL;
    context->slab_runs = NULL;
    context->slab_count = context->slab_capacity = context->slab_roomy = 0;
    pthread_mutex_unlock(&memory_lock);
}

CUresult memory_check_range(uint64_t address, size_t bytes) {
    if (bytes == 0) return CUDA_SUCCESS;
    if (address == 0 || address + bytes < address) return CUDA_ERROR_INVALID_VALUE;
    if (backing_device(address) == NULL && backing_device(address + bytes - 1) == NULL) return CUDA_SUCCESS;
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    const bool inside = allocation != NULL && address + bytes <= allocation->address + allocation->bytes;
    pthread_mutex_unlock(&memory_lock);
    return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool memory_may_use(const struct allocation *allocation, const struct context *context) {
    if (allocation->device == context->device) return true;
    switch (allocation->kind) {
    case ALLOCATION_PLAIN:
        return (atomic_load(&context->peers) >> allocation->device->ordinal & 1) != 0;
    case ALLOCATION_POOL:
        return pool_may_access(allocation->pool, context->device);
    case ALLOCATION_GRAPH:
        return (allocation->graph_memory->readers_writers >> context->device->ordinal & 1) != 0;
    case ALLOCATION_OPENED:
        return allocation->pool != NULL ? pool_may_access(allocation->pool, context->device)
                                        : allocation->context == context;
    default:
        return true;
    }
}

bool memory_accessible(const struct context *context, uint64_t address, size_t bytes) {
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    const bool accessible = (allocation != NULL && address + bytes <= allocation->address + allocation->bytes &&
                             (allocation->kind != ALLOCATION_GRAPH || allocation->graph_memory->uses > 0) &&
                             memory_may_use(allocation, context)) ||
                            pools_hold(context, address, bytes);
    pthread_mutex_unlock(&memory_lock);
    return accessible;
}

bool memory_is_pinned(uint64_t address) {
    pthread_mutex_lock(&memory_lock);
    const bool pinned = memory_find(address) != NULL;
    pthread_mutex_unlock(&memory_lock);
    return pinned;
}

/* The calls. */

static CUresult plain_alloc(struct thread *thread, CUdeviceptr *address, size_t bytes) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    entry_delay(settings.alloc_us);
    if (settings.alloc_waits) scheduler_wait_context(context);
    pthread_mutex_lock(&memory_lock);
    result = take_plain(context, bytes, address);
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), plain_alloc(thread, address, bytes))

static CUresult pitched_alloc(struct thread *thread, CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                              unsigned element) {
    if (pitch == NULL || (element != 4 && element != 8 && element != 16) || height == 0 || width == 0 ||
        width > SIZE_MAX - PITCH_ALIGNMENT)
        return CUDA_ERROR_INVALID_VALUE;
    const size_t row = (width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    size_t bytes;
    if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = plain_alloc(thread, address, bytes);
    if (result == CUDA_SUCCESS) *pitch = row;
    return result;
}
DRIVER_CALL(cuMemAllocPitch_v2, (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned element),
            pitched_alloc(thread, address, pitch, width, height, element))

static CUresult managed_alloc(struct thread *thread, CUdeviceptr *address, size_t bytes, unsigned flags) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    if (bytes > context->device->total_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t taken = (bytes + 4095) & ~(size_t)4095;
    void *const host = mmap(NULL, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    struct allocation *const allocation =
        memory_add((uint64_t)(uintptr_t)host, bytes, ALLOCATION_MANAGED, context->device, context);
    if (allocation != NULL) {
        allocation->taken_bytes = taken;
        allocation->flags = flags;
        *address = allocation->address;
    }
    pthread_mutex_unlock(&memory_lock);
    if (allocation != NULL) return CUDA_SUCCESS;
    munmap(host, taken);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
DRIVER_CALL(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned flags),
            managed_alloc(thread, address, bytes, flags))

/* Whether it can be freed; if so, no other free of it can begin. Under memory_lock. */
static CUresult begin_free(struct allocation *allocation, uint64_t address) {
    if (allocation == NULL || allocation->address != address || allocation->leaving) return CUDA_ERROR_INVALID_VALUE;
    if (allocation->kind == ALLOCATION_GRAPH) return graph_memory_free_begin(allocation->graph_memory);
    const bool imported = allocation->kind == ALLOCATION_OPENED && allocation->pool != NULL;
    if (allocation->kind != ALLOCATION_PLAIN && allocation->kind != ALLOCATION_POOL &&
        allocation->kind != ALLOCATION_MANAGED && !imported)
        return CUDA_ERROR_INVALID_VALUE;
    allocation->leaving = true;
    return CUDA_SUCCESS;
}

static CUresult memory_free(struct thread *thread, CUdeviceptr address) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    if (address == 0) return CUDA_SUCCESS;
    pthread_mutex_lock(&memory_lock);
    struct allocation *allocation = memory_find(address);
    result = begin_free(allocation, address);
    /* Memory of a pool is freed without waiting. Its owner's wait leaves the lock, which is why the free has begun. */
    if (result == CUDA_SUCCESS && allocation->context != NULL) {
        struct context *const owner = allocation->context;
        const uint64_t buffer_id = allocation->buffer_id;
        pthread_mutex_unlock(&memory_lock);
        entry_delay(settings.free_us);
        if (settings.free_waits) {
            scheduler_wait_context(owner);
            result = (CUresult)atomic_load(&owner->error); /* its wait answers as any other */
        }
        pthread_mutex_lock(&memory_lock);
        /* Its context may have ended meanwhile. */
        allocation = memory_find(address);
        if (allocation == NULL || allocation->buffer_id != buffer_id)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (result != CUDA_SUCCESS)
            allocation->leaving = false;
    }
    if (result == CUDA_SUCCESS) {
        if (allocation->kind == ALLOCATION_POOL)
            pool_free(allocation, NULL, NULL);
        else if (allocation->kind == ALLOCATION_GRAPH)
            graph_memory_free_end(allocation->graph_memory);
        else
            memory_discard(allocation);
    }
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuMemFree_v2, (CUdeviceptr address), memory_free(thread, address))

static CUresult memory_info(struct thread *thread, size_t *free_bytes, size_t *total_bytes) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    const struct device *const device = context->device;
    if (free_bytes != NULL)
        *free_bytes = device->total_bytes - atomic_load_explicit(&device->used_bytes, memory_order_relaxed);
    if (total_bytes != NULL) *total_bytes = device->total_bytes;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total_bytes), memory_info(thread, free_bytes, total_bytes))

static CUresult address_range(const struct thread *thread, CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    result = CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    if (allocation != NULL && allocation->kind != ALLOCATION_REGISTERED) {
        if (base != NULL) *base = allocation->address;
        if (bytes != NULL) *bytes = allocation->bytes;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address),
            address_range(thread, base, bytes, address))
