/* SPDX-License-Identifier: MIT
 *
 * Memory that graphs allocate. Its address is fixed when the node is made; it gets memory from the device at the first
 * launch, and keeps it when it is free again until it is trimmed, or nobody refers to it any more.
 */
#include <stdlib.h>

#include "graph.h"

static void use_account(struct device *device, struct graph_memory *memory, bool was_used) {
    const bool used = memory->live || memory->uses > 0;
    if (used == was_used) return;
    struct graph_memory_figures *const figures = &device->graph_figures;
    figures->used += used ? memory->allocation->taken_bytes : -memory->allocation->taken_bytes;
    if (figures->used > figures->used_high) figures->used_high = figures->used;
}

struct graph_memory *graph_memory_new(struct device *device, size_t bytes, uint64_t owner, uint32_t readers_writers) {
    if (bytes > device->total_bytes) return NULL;
    const size_t chunks = (bytes + CHUNK_BYTES - 1) >> CHUNK_SHIFT;
    struct graph_memory *const memory = calloc(1, sizeof(*memory));
    const uint64_t address = memory != NULL ? backing_take(device, chunks, false) : 0;
    struct allocation *const allocation =
        address != 0 ? memory_add(address, bytes, ALLOCATION_GRAPH, device, NULL) : NULL;
    if (allocation == NULL) {
        if (address != 0) backing_give(device, address, chunks, false);
        free(memory);
        return NULL;
    }
    allocation->taken_bytes = chunks << CHUNK_SHIFT;
    allocation->graph_memory = memory;
    memory->allocation = allocation;
    memory->owner = owner;
    memory->references = 1;
    memory->readers_writers = readers_writers;
    memory->next = device->graph_memory;
    if (device->graph_memory != NULL) device->graph_memory->previous = memory;
    device->graph_memory = memory;
    return memory;
}

static void discharge(struct graph_memory *memory) {
    if (!memory->charged) return;
    struct device *const device = memory->allocation->device;
    memory->charged = false;
    backing_discharge(device, memory->allocation->taken_bytes);
    device->graph_figures.reserved -= memory->allocation->taken_bytes;
}

/* When nothing refers to it, and nobody has it. */
static void end_if_unused(struct graph_memory *memory) {
    if (memory->references > 0 || memory->live || memory->uses > 0) return;
    struct device *const device = memory->allocation->device;
    discharge(memory);
    if (memory->next != NULL) memory->next->previous = memory->previous;
    if (memory->previous != NULL)
        memory->previous->next = memory->next;
    else
        device->graph_memory = memory->next;
    memory_discard(memory->allocation);
    free(memory);
}

struct graph_memory *graph_memory_at(uint64_t address) {
    const struct allocation *const allocation = memory_find(address);
    if (allocation == NULL || allocation->kind != ALLOCATION_GRAPH || allocation->address != address) return NULL;
    return graph_memory_hold(allocation->graph_memory);
}

struct graph_memory *graph_memory_hold(struct graph_memory *memory) {
    memory->references++;
    return memory;
}

void graph_memory_drop(struct graph_memory *memory) {
    memory->references--;
    end_if_unused(memory);
}

CUresult graph_memory_free_by(struct graph_memory *memory, const struct graph *graph) {
    const bool own = memory->owner == graph->id;
    if (memory->freed == FREED_BY_OWNER || (memory->freed == FREED_BY_OTHER && own)) return CUDA_ERROR_INVALID_VALUE;
    for (const struct node *node = graph->nodes; node != NULL; node = node->next)
        if (node->memory == memory && node->operation->kind == OPERATION_FREE) return CUDA_ERROR_INVALID_VALUE;
    memory->freed = own ? FREED_BY_OWNER : FREED_BY_OTHER;
    return CUDA_SUCCESS;
}

bool graph_memory_charge(struct graph_memory *memory) {
    struct device *const device = memory->allocation->device;
    if (memory->charged) return true;
    memory->charged = backing_charge(device, memory->allocation->taken_bytes);
    if (!memory->charged) return false;
    struct graph_memory_figures *const figures = &device->graph_figures;
    figures->reserved += memory->allocation->taken_bytes;
    if (figures->reserved > figures->reserved_high) figures->reserved_high = figures->reserved;
    return true;
}

void graph_memory_use(struct graph_memory *memory) {
    const bool was_used = memory->live || memory->uses > 0;
    memory->uses++;
    memory->live = memory->freed != FREED_BY_OWNER;
    use_account(memory->allocation->device, memory, was_used);
}

CUresult graph_memory_free_begin(struct graph_memory *memory) {
    if (!memory->live) return CUDA_ERROR_INVALID_VALUE;
    memory->live = false; /* a use is left, so that it goes on being accounted as used */
    return CUDA_SUCCESS;
}

void graph_memory_free_end(struct graph_memory *memory) {
    memory->uses--;
    use_account(memory->allocation->device, memory, true);
    end_if_unused(memory);
}

void graph_memory_trim(struct device *device) {
    for (struct graph_memory *memory = device->graph_memory; memory != NULL; memory = memory->next)
        if (!memory->live && memory->uses == 0) discharge(memory);
}

/* Operations of nodes. Under scheduler_lock. */

CUresult graph_alloc_operation(struct device *device, size_t bytes, const struct graph *graph, uint32_t readers_writers,
                               struct operation **operation) {
    struct operation *const alloc = operation_new(OPERATION_ALLOC);
    if (alloc == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    const struct graph_memory *const memory = graph_memory_new(device, bytes, graph->id, readers_writers);
    if (memory != NULL) {
        alloc->memory.address = memory->allocation->address;
        alloc->memory.buffer_id = memory->allocation->buffer_id;
    }
    pthread_mutex_unlock(&memory_lock);
    if (memory == NULL) {
        operation_drop(alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *operation = alloc;
    return CUDA_SUCCESS;
}

void graph_alloc_settle(uint64_t address) {
    pthread_mutex_lock(&memory_lock);
    struct graph_memory *const memory = graph_memory_at(address);
    memory->references--;
    graph_memory_drop(memory);
    pthread_mutex_unlock(&memory_lock);
}

CUresult graph_free_operation(uint64_t address, const struct graph *graph, struct operation **operation) {
    struct operation *const release = operation_new(OPERATION_FREE);
    if (release == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    struct graph_memory *const memory = graph_memory_at(address);
    const CUresult result = memory != NULL ? graph_memory_free_by(memory, graph) : CUDA_ERROR_INVALID_VALUE;
    if (memory != NULL) {
        release->memory.address = address;
        release->memory.buffer_id = memory->allocation->buffer_id;
        graph_memory_drop(memory);
    }
    pthread_mutex_unlock(&memory_lock);
    if (result == CUDA_SUCCESS)
        *operation = release;
    else
        operation_drop(release);
    return result;
}

/* The calls. */

static CUresult trim(CUdevice ordinal) {
    struct device *const device = device_of(ordinal);
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&memory_lock);
    graph_memory_trim(device);
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceGraphMemTrim, (CUdevice device), trim(device))

static CUresult get_attribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value) {
    struct device *const device = device_of(ordinal);
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    const struct graph_memory_figures figures = device->graph_figures;
    pthread_mutex_unlock(&memory_lock);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = figures.used;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = figures.used_high;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = figures.reserved;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = figures.reserved_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
DRIVER_CALL(cuDeviceGetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attribute, void *value),
            get_attribute(device, attribute, value))

/* A high-water mark can only be set to zero, which means: to the current value. */
static CUresult set_attribute(CUdevice ordinal, CUgraphMem_attribute attribute, const void *value) {
    struct device *const device = device_of(ordinal);
    CUresult result = CUDA_SUCCESS;
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL || *(const cuuint64_t *)value != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        device->graph_figures.used_high = device->graph_figures.used;
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        device->graph_figures.reserved_high = device->graph_figures.reserved;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuDeviceSetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attribute, void *value),
            set_attribute(device, attribute, value))
