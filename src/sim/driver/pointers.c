/* SPDX-License-Identifier: MIT
 *
 * Pointer attributes: what is known of the memory behind an address.
 */
#include <string.h>

#include "driver.h"

/* The value of an attribute, before it is written in the attribute's own type. */
union value {
    const void *pointer;
    uint64_t wide;
    int number;
};

enum { ORDINAL_UNKNOWN = -2 };

static size_t attribute_size(CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 4;
    default:
        return 0; /* no such attribute, or none that is simulated */
    }
}

static bool is_host(const struct allocation *allocation) {
    return allocation->kind == ALLOCATION_HOST || allocation->kind == ALLOCATION_REGISTERED;
}

/* Of memory that CUDA knows. Under memory_lock. */
static CUresult attribute_value(const struct allocation *allocation, const struct context *context, uint64_t address,
                                CUpointer_attribute attribute, union value *value) {
    const bool device_only = !is_host(allocation) && allocation->kind != ALLOCATION_MANAGED;
    value->wide = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        value->pointer = allocation->context;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        value->number = is_host(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
        value->wide = address;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (device_only) return CUDA_ERROR_INVALID_VALUE;
        value->wide = address;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        value->number = allocation->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        value->wide = allocation->buffer_id;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        value->number = allocation->kind == ALLOCATION_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        value->number = allocation->device->ordinal;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        value->number = allocation->kind == ALLOCATION_PLAIN;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        value->wide = allocation->address;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        value->wide = allocation->bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        value->number = 1;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
        value->number = memory_may_use(allocation, context) ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                                            : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        value->pointer = allocation->pool;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        if (allocation->kind == ALLOCATION_POOL && allocation->pool->exportable)
            value->wide = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        break;
    default:
        break; /* not allowed, not capable */
    }
    return CUDA_SUCCESS;
}

static const struct context *usable_context(const struct thread *thread) {
    struct context *context;
    return context_current(thread, &context) == CUDA_SUCCESS ? context : NULL;
}

static CUresult get_attribute(const struct thread *thread, void *data, CUpointer_attribute attribute,
                              CUdeviceptr address) {
    const size_t size = attribute_size(attribute);
    if (data == NULL || size == 0) return CUDA_ERROR_INVALID_VALUE;
    union value value;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    if (allocation != NULL) result = attribute_value(allocation, usable_context(thread), address, attribute, &value);
    pthread_mutex_unlock(&memory_lock);
    if (result == CUDA_SUCCESS) memcpy(data, &value, size);
    return result;
}
DRIVER_CALL(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr address),
            get_attribute(thread, data, attribute, address))

/* Of memory that CUDA does not know, and where a single question would be an error. */
static union value default_value(uint64_t address, bool known, CUpointer_attribute attribute) {
    union value value = {.wide = 0};
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) value.number = ORDINAL_UNKNOWN;
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && !known) value.wide = address;
    return value;
}

static CUresult get_attributes(const struct thread *thread, unsigned count, const CUpointer_attribute *attributes,
                               void **data, CUdeviceptr address) {
    if (count == 0 || attributes == NULL || data == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (attribute_size(attributes[i]) == 0 || data[i] == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct context *const context = usable_context(thread);
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    for (unsigned i = 0; i < count; i++) {
        union value value;
        if (allocation == NULL || attribute_value(allocation, context, address, attributes[i], &value) != CUDA_SUCCESS)
            value = default_value(address, allocation != NULL, attributes[i]);
        memcpy(data[i], &value, attribute_size(attributes[i]));
    }
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuPointerGetAttributes, (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address),
            get_attributes(thread, count, attributes, data, address))

static CUresult set_attribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    struct allocation *const allocation = memory_find(address);
    if (allocation != NULL && !is_host(allocation)) {
        unsigned on;
        memcpy(&on, value, sizeof(on));
        allocation->sync_memops = on != 0;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr address),
            set_attribute(value, attribute, address))
