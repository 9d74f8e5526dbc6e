/* SPDX-License-Identifier: MIT
 *
 * Handles that give memory to another process. They are made and told apart; memory of another process is not opened.
 */
#include <string.h>
#include <unistd.h>

#include "driver.h"

/* In the 64 bytes of a CUipcMemHandle. */
struct shared_memory {
    char mark[8];
    int64_t process;
    uint64_t buffer_id, address, bytes;
    int64_t device;
};

_Static_assert(sizeof(struct shared_memory) <= sizeof(CUipcMemHandle), "fits the handle");

static const char mark[8] = "SIM-IPC";

/* The handle of the whole allocation, wherever the address points into it. */
static CUresult get_memory_handle(const struct thread *thread, CUipcMemHandle *handle, CUdeviceptr address) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    struct shared_memory shared = {.process = getpid()};
    memcpy(shared.mark, mark, sizeof(mark));
    pthread_mutex_lock(&memory_lock);
    const struct allocation *const allocation = memory_find(address);
    if (allocation == NULL || allocation->kind != ALLOCATION_PLAIN) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        shared.buffer_id = allocation->buffer_id;
        shared.address = allocation->address;
        shared.bytes = allocation->bytes;
        shared.device = allocation->device->physical;
    }
    pthread_mutex_unlock(&memory_lock);
    if (result != CUDA_SUCCESS) return result;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &shared, sizeof(shared));
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address),
            get_memory_handle(thread, handle, address))

static CUresult open_memory_handle(const struct thread *thread, const CUdeviceptr *address,
                                   const CUipcMemHandle *handle) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    struct shared_memory shared;
    memcpy(&shared, handle, sizeof(shared));
    if (memcmp(shared.mark, mark, sizeof(mark)) != 0) return CUDA_ERROR_INVALID_VALUE;
    return shared.process == getpid() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_SUPPORTED;
}
DRIVER_CALL(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags),
            ((void)flags, open_memory_handle(thread, address, &handle)))
DRIVER_CALL(cuIpcOpenMemHandle_v2, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags),
            ((void)flags, open_memory_handle(thread, address, &handle)))

/* Nothing was ever opened. */
static CUresult close_memory_handle(const struct thread *thread) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}
DRIVER_CALL(cuIpcCloseMemHandle, (CUdeviceptr address), ((void)address, close_memory_handle(thread)))
