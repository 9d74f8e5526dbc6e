/* SPDX-License-Identifier: MIT
 *
 * Memory that is given to other processes by handles of 64 bytes, and memory of others that is opened by them. A handle
 * names the allocation, which its own process looks up when it is opened: one that was freed, or of a process that is
 * gone, opens nothing. Below 2 MiB the whole slab is mapped, though only the block may be used. What is opened stays
 * readable whatever its own process does: free it, which CUDA leaves undefined, or end.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

/* What this process opened. */
struct opened_memory {
    struct shares_process process;
    uint64_t buffer_id, device; /* there */
    unsigned count;
    struct allocation *allocation;
    struct opened_memory *next;
};

_Static_assert(sizeof(struct shares_handle) == sizeof(CUipcMemHandle), "is the handle");

static const char mark[8] = "SIM-IPC";
static struct opened_memory *all_opened; /* memory_lock */

/* What every one of these calls answers first. */
static CUresult enter(const struct thread *thread, struct context **context) {
    const CUresult result = context_current(thread, context);
    return result == CUDA_SUCCESS ? capture_refuse_unsafe(thread) : result;
}

/* The handle of the whole allocation, wherever the address points into it. */
static CUresult get_memory_handle(const struct thread *thread, CUipcMemHandle *handle, CUdeviceptr address) {
    struct context *context;
    CUresult result = enter(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct shares_handle made = {.pool = 0};
    if (!shares_start(&made.process)) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    if (allocation == NULL || allocation->kind != ALLOCATION_PLAIN || allocation->leaving) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        made.address = allocation->address;
        made.buffer_id = allocation->buffer_id;
        made.device = (uint64_t)allocation->device->physical;
    }
    pthread_mutex_unlock(&memory_lock);
    if (result != CUDA_SUCCESS) return result;
    shares_seal(&made, mark);
    memcpy(handle, &made, sizeof(*handle));
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address),
            get_memory_handle(thread, handle, address))

/* Opened memory. */

static bool is_of(const struct opened_memory *opened, const struct shares_handle *handle) {
    return memcmp(&opened->process, &handle->process, sizeof(opened->process)) == 0 && opened->device == handle->device;
}

/* One context of a device may open what lies on a device of another process. False where the answer is not known yet.
 * Under memory_lock. */
static bool open_again(const struct context *context, const struct shares_handle *handle, CUdeviceptr *address,
                       CUresult *result) {
    for (struct opened_memory *opened = all_opened; opened != NULL; opened = opened->next) {
        const struct allocation *const allocation = opened->allocation;
        if (!is_of(opened, handle) || allocation->context->device != context->device) continue;
        if (allocation->context != context) {
            *result = CUDA_ERROR_INVALID_HANDLE;
            return true;
        }
        if (opened->buffer_id != handle->buffer_id || allocation->leaving) continue;
        opened->count++;
        *address = allocation->address;
        *result = CUDA_SUCCESS;
        return true;
    }
    return false;
}

/* Under memory_lock. */
static CUresult map(struct context *context, const struct shares_handle *handle, int file,
                    const struct shares_place *place, CUdeviceptr *address) {
    struct opened_memory *const opened = calloc(1, sizeof(*opened));
    struct allocation *allocation;
    const CUresult result = opened != NULL ? shares_map(context, file, place, &allocation) : CUDA_ERROR_MAP_FAILED;
    if (result != CUDA_SUCCESS) {
        free(opened);
        return result;
    }
    *opened = (struct opened_memory){handle->process, handle->buffer_id, handle->device, 1, allocation, all_opened};
    all_opened = opened;
    allocation->opened = opened;
    *address = allocation->address;
    return CUDA_SUCCESS;
}

static CUresult open_memory_handle(const struct thread *thread, CUdeviceptr *address, const CUipcMemHandle *handle) {
    struct context *context;
    CUresult result = enter(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    struct shares_handle wanted;
    if (address == NULL || !shares_read(&wanted, handle, mark)) return CUDA_ERROR_INVALID_VALUE;
    if (shares_is_self(&wanted.process)) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&memory_lock);
    const bool known = open_again(context, &wanted, address, &result);
    pthread_mutex_unlock(&memory_lock);
    if (known) return result;
    struct shares_place place;
    const int file = shares_ask(&wanted, &place);
    if (file < 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    /* Another thread may have opened it meanwhile. */
    if (!open_again(context, &wanted, address, &result)) result = map(context, &wanted, file, &place, address);
    pthread_mutex_unlock(&memory_lock);
    close(file);
    return result;
}
DRIVER_CALL(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags),
            ((void)flags, open_memory_handle(thread, address, &handle)))
DRIVER_CALL(cuIpcOpenMemHandle_v2, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags),
            ((void)flags, open_memory_handle(thread, address, &handle)))

void ipc_discard(struct allocation *allocation) {
    struct opened_memory **link = &all_opened;
    while (*link != allocation->opened) link = &(*link)->next;
    *link = allocation->opened->next;
    free(allocation->opened);
    shares_unmap(allocation);
}

/* The last close waits, as a free does. */
static CUresult close_memory_handle(const struct thread *thread, CUdeviceptr address) {
    struct context *context;
    const CUresult result = enter(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&memory_lock);
    struct allocation *const allocation = memory_find(address);
    if (allocation == NULL || allocation->kind != ALLOCATION_OPENED || allocation->pool != NULL ||
        allocation->address != address || allocation->leaving) {
        pthread_mutex_unlock(&memory_lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct context *const owner = --allocation->opened->count == 0 ? allocation->context : NULL;
    const uint64_t buffer_id = allocation->buffer_id;
    allocation->leaving = owner != NULL;
    pthread_mutex_unlock(&memory_lock);
    if (owner == NULL) return CUDA_SUCCESS;
    if (settings.free_waits) scheduler_wait_context(owner);
    async_discard(address, buffer_id, NULL);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuIpcCloseMemHandle, (CUdeviceptr address), close_memory_handle(thread, address))
