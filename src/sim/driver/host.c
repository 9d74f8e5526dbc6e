/* SPDX-License-Identifier: MIT
 *
 * Pinned host memory: allocated, or registered. Host and device see it at the same address.
 */
#include <sys/mman.h>

#include "driver.h"

enum { HOST_PAGE = 4096 };

static CUresult host_alloc(const struct thread *thread, void **pointer, size_t bytes, unsigned flags) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (pointer == NULL || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    if (bytes == 0) {
        *pointer = NULL;
        return CUDA_SUCCESS;
    }
    if (bytes > SIZE_MAX - HOST_PAGE) return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t taken = (bytes + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE;
    void *const host = mmap(NULL, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    struct allocation *const allocation =
        memory_add((uint64_t)(uintptr_t)host, bytes, ALLOCATION_HOST, context->device, context);
    if (allocation != NULL) {
        allocation->taken_bytes = taken;
        allocation->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    }
    pthread_mutex_unlock(&memory_lock);
    if (allocation == NULL) {
        munmap(host, taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = host;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuMemAllocHost_v2, (void **pointer, size_t bytes), host_alloc(thread, pointer, bytes, 0))
DRIVER_CALL(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags), host_alloc(thread, pointer, bytes, flags))

/* Ends an allocation or a registration that begins at the address, after the work of its context. `otherwise`: the
 * answer where there is none. */
static CUresult host_end(const struct thread *thread, const void *pointer, enum allocation_kind kind,
                         CUresult otherwise) {
    const uint64_t address = (uint64_t)(uintptr_t)pointer;
    struct context *owner = NULL;
    uint64_t buffer_id = 0;
    const CUresult result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&memory_lock);
    struct allocation *const allocation = memory_find(address);
    if (allocation != NULL && allocation->address == address && allocation->kind == kind && !allocation->leaving) {
        allocation->leaving = true;
        owner = allocation->context;
        buffer_id = allocation->buffer_id;
    } else if (allocation != NULL) {
        otherwise = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&memory_lock);
    if (owner == NULL) return otherwise;
    scheduler_wait_context(owner);
    async_discard(address, buffer_id, NULL);
    return CUDA_SUCCESS;
}

static CUresult host_free(const struct thread *thread, void *pointer) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS || pointer == NULL) return result;
    return host_end(thread, pointer, ALLOCATION_HOST, CUDA_ERROR_INVALID_VALUE);
}
DRIVER_CALL(cuMemFreeHost, (void *pointer), host_free(thread, pointer))

static CUresult host_register(const struct thread *thread, void *pointer, size_t bytes, unsigned flags) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t address = (uint64_t)(uintptr_t)pointer;
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                           CU_MEMHOSTREGISTER_READ_ONLY;
    if (pointer == NULL || bytes == 0 || (flags & ~known) != 0 || address + bytes < address)
        return CUDA_ERROR_INVALID_VALUE;
    if (backing_device(address) != NULL) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&memory_lock);
    if (memory_find_overlap(address, bytes) != NULL) {
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else {
        struct allocation *const allocation =
            memory_add(address, bytes, ALLOCATION_REGISTERED, context->device, context);
        if (allocation != NULL)
            allocation->flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuMemHostRegister, (void *pointer, size_t bytes, unsigned flags),
            host_register(thread, pointer, bytes, flags))
DRIVER_CALL(cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned flags),
            host_register(thread, pointer, bytes, flags))

static CUresult host_unregister(const struct thread *thread, void *pointer) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (pointer == NULL) return CUDA_ERROR_INVALID_VALUE;
    return host_end(thread, pointer, ALLOCATION_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}
DRIVER_CALL(cuMemHostUnregister, (void *pointer), host_unregister(thread, pointer))

/* Under memory_lock. */
static const struct allocation *host_find(const void *pointer) {
    const struct allocation *const allocation = memory_find((uint64_t)(uintptr_t)pointer);
    const bool host =
        allocation != NULL && (allocation->kind == ALLOCATION_HOST || allocation->kind == ALLOCATION_REGISTERED);
    return host ? allocation : NULL;
}

static CUresult host_device_pointer(const struct thread *thread, CUdeviceptr *address, void *pointer, unsigned flags) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    if (host_find(pointer) == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *address = (uint64_t)(uintptr_t)pointer;
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuMemHostGetDevicePointer_v2, (CUdeviceptr * address, void *pointer, unsigned flags),
            host_device_pointer(thread, address, pointer, flags))

static CUresult host_get_flags(const struct thread *thread, unsigned *flags, void *pointer) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = host_find(pointer);
    if (allocation == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *flags = allocation->flags;
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_CALL(cuMemHostGetFlags, (unsigned *flags, void *pointer), host_get_flags(thread, flags, pointer))
