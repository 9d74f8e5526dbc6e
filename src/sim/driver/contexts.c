/* SPDX-License-Identifier: MIT
 *
 * Contexts: the primary one of each device, which starts when it is first retained, created ones, and which of them is
 * current to a thread.
 */
#include <stdlib.h>

#include "driver.h"

enum { API_VERSION = 3020, CONTEXT_MAX = 65536 };

/* A thread may go on holding a destroyed context, so a handle that comes back at once would revive it there. */
struct handle_table context_table = HANDLE_TABLE(struct context, CONTEXT_MAX, true);

static _Atomic(uint64_t) context_ids;

static const size_t limit_defaults[CONTEXT_LIMITS] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128,
};

static CUresult context_activate(struct context *context) {
    struct stream *const legacy = stream_new(context, NULL, 0, 0, true);
    if (legacy == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    context->legacy = legacy;
    for (int i = 0; i < CONTEXT_LIMITS; i++) atomic_store(&context->limits[i], limit_defaults[i]);
    atomic_store(&context->error, CUDA_SUCCESS);
    atomic_store(&context->peers, 0);
    atomic_store(&context->id, atomic_fetch_add(&context_ids, 1) + 1);
    atomic_store_explicit(&context->active, true, memory_order_release);
    return CUDA_SUCCESS;
}

/* Waits for the context's work, then forgets all that it owns. Under no lock; the context is no longer active. */
static void context_discard(struct context *context) {
    scheduler_wait_context(context);
    if (races_are_on()) races_context_ended(context);
    memory_context_discard(context);
    events_context_discard(context);
    modules_context_discard(context);
    pthread_mutex_lock(&scheduler_lock);
    streams_context_discard(context);
    context->legacy = NULL;
    races_forget(&context->race);
    pthread_mutex_unlock(&scheduler_lock);
}

CUresult contexts_start(void) {
    for (int i = 0; i < device_count; i++) {
        struct context *const primary = handle_new(&context_table);
        if (primary == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
        primary->device = &devices[i];
        primary->primary = true;
        primary->api_version = API_VERSION;
        devices[i].primary = primary;
        handle_publish(primary);
    }
    return CUDA_SUCCESS;
}

/* What stands behind a handle: for a green context's, its primary context. */
static CUresult context_behind(struct context *handle, struct context **context) {
    *context = handle;
    if (handle == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_load_explicit(&handle->active, memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (UNLIKELY(handle->green != NULL)) {
        *context = handle->green->primary;
        const CUresult result = green_usable(handle->green);
        if (result != CUDA_SUCCESS) return result;
    }
    return (CUresult)atomic_load_explicit(&(*context)->error, memory_order_relaxed);
}

CUresult context_current(const struct thread *thread, struct context **context) {
    return context_behind(thread->current, context);
}

CUresult context_named(const struct thread *thread, CUcontext handle, struct context **context) {
    if (handle == NULL) return context_current(thread, context);
    *context = (struct context *)handle;
    switch (handle_state_of(&context_table, handle)) {
    case HANDLE_LIVE:
        return context_behind((struct context *)handle, context);
    case HANDLE_DEAD:
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    default:
        return CUDA_ERROR_INVALID_CONTEXT;
    }
}

struct green *context_green(const struct thread *thread, CUcontext handle) {
    const struct context *const context = handle != NULL ? (const struct context *)handle : thread->current;
    return context != NULL ? context->green : NULL;
}

void context_fail(struct context *context, CUresult error) {
    int none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&context->error, &none, (int)error);
}

/* The primary context of a device. */

CUresult primary_retain(CUcontext *context, CUdevice ordinal) {
    struct device *const device = device_of(ordinal);
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&device->primary_lock);
    CUresult result = CUDA_SUCCESS;
    if (!atomic_load(&device->primary->active)) result = context_activate(device->primary);
    if (result == CUDA_SUCCESS) {
        device->primary->retains++;
        *context = (CUcontext)device->primary;
    }
    pthread_mutex_unlock(&device->primary_lock);
    return result;
}
DRIVER_CALL(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice ordinal), primary_retain(context, ordinal))

/* Under primary_lock, so that the context does not start again before it has gone. */
static void primary_end(struct device *device) {
    if (atomic_exchange(&device->primary->active, false)) context_discard(device->primary);
}

CUresult primary_release(CUdevice ordinal) {
    struct device *const device = device_of(ordinal);
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&device->primary_lock);
    if (device->primary->retains > 0) {
        if (--device->primary->retains == 0) primary_end(device);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&device->primary_lock);
    return result;
}
DRIVER_CALL(cuDevicePrimaryCtxRelease, (CUdevice ordinal), primary_release(ordinal))
DRIVER_CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice ordinal), primary_release(ordinal))

static CUresult primary_reset(CUdevice ordinal) {
    struct device *const device = device_of(ordinal);
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&device->primary_lock);
    primary_end(device);
    pthread_mutex_unlock(&device->primary_lock);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDevicePrimaryCtxReset, (CUdevice ordinal), primary_reset(ordinal))
DRIVER_CALL(cuDevicePrimaryCtxReset_v2, (CUdevice ordinal), primary_reset(ordinal))

static CUresult primary_set_flags(CUdevice ordinal, unsigned flags) {
    struct device *const device = device_of(ordinal);
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
    atomic_store(&device->primary->flags, flags);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDevicePrimaryCtxSetFlags, (CUdevice ordinal, unsigned flags), primary_set_flags(ordinal, flags))
DRIVER_CALL(cuDevicePrimaryCtxSetFlags_v2, (CUdevice ordinal, unsigned flags), primary_set_flags(ordinal, flags))

static CUresult primary_get_state(CUdevice ordinal, unsigned *flags, int *active) {
    struct device *const device = device_of(ordinal);
    if (flags == NULL || active == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    *flags = atomic_load(&device->primary->flags);
    *active = atomic_load(&device->primary->active);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDevicePrimaryCtxGetState, (CUdevice ordinal, unsigned *flags, int *active),
            primary_get_state(ordinal, flags, active))

/* The thread's stack of contexts; its top is thread->current. */

static CUresult current_push(struct thread *thread, CUcontext handle) {
    if (handle_state_of(&context_table, handle) != HANDLE_LIVE) return CUDA_ERROR_INVALID_CONTEXT;
    if (thread->stack_depth == CONTEXT_STACK_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
    thread->stack[thread->stack_depth++] = thread->current;
    thread->current = (struct context *)handle;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxPushCurrent, (CUcontext context), current_push(thread, context))
DRIVER_CALL(cuCtxPushCurrent_v2, (CUcontext context), current_push(thread, context))

static CUresult current_pop(struct thread *thread, CUcontext *context) {
    if (thread->current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != NULL) *context = (CUcontext)thread->current;
    thread->current = thread->stack_depth > 0 ? thread->stack[--thread->stack_depth] : NULL;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxPopCurrent, (CUcontext * context), current_pop(thread, context))
DRIVER_CALL(cuCtxPopCurrent_v2, (CUcontext * context), current_pop(thread, context))

static CUresult current_set(struct thread *thread, CUcontext handle) {
    if (handle == NULL) {
        if (thread->current != NULL) return current_pop(thread, NULL);
        return CUDA_SUCCESS;
    }
    if (handle_state_of(&context_table, handle) != HANDLE_LIVE) return CUDA_ERROR_INVALID_CONTEXT;
    thread->current = (struct context *)handle;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxSetCurrent, (CUcontext context), current_set(thread, context))

CUresult cuCtxGetCurrent(CUcontext *context) {
    DRIVER_ENTER(cuCtxGetCurrent);
    if (UNLIKELY(context == NULL)) return CUDA_ERROR_INVALID_VALUE;
    *context = (CUcontext)thread->current;
    return CUDA_SUCCESS;
}

/* Created contexts. */

static CUresult context_create(struct thread *thread, CUcontext *handle, unsigned flags, CUdevice ordinal,
                               unsigned api_version) {
    struct device *const device = device_of(ordinal);
    if (handle == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    struct context *const context = handle_new(&context_table);
    if (context == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = device;
    context->api_version = api_version;
    context->flags = flags;
    CUresult result = context_activate(context);
    if (result != CUDA_SUCCESS) {
        handle_release(&context_table, context);
        return result;
    }
    handle_publish(context);
    result = current_push(thread, (CUcontext)context);
    if (result == CUDA_SUCCESS) *handle = (CUcontext)context;
    return result;
}
DRIVER_CALL(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice ordinal),
            context_create(thread, context, flags, ordinal, 3010))
DRIVER_CALL(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice ordinal),
            context_create(thread, context, flags, ordinal, API_VERSION))
/* Affinity to some of the multiprocessors, and the other parameters of the newest form, are not simulated. */
DRIVER_CALL(cuCtxCreate_v3,
            (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice ordinal),
            affinity != NULL || count != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                           : context_create(thread, context, flags, ordinal, API_VERSION))
DRIVER_CALL(cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams *parameters, unsigned flags, CUdevice ordinal),
            parameters != NULL ? CUDA_ERROR_NOT_SUPPORTED
                               : context_create(thread, context, flags, ordinal, API_VERSION))

static CUresult context_destroy(struct thread *thread, CUcontext handle) {
    struct context *const context = (struct context *)handle;
    if (handle_state_of(&context_table, handle) != HANDLE_LIVE || context->primary || context->green != NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!handle_kill(context)) return CUDA_ERROR_INVALID_CONTEXT;
    atomic_store(&context->active, false);
    if (thread->current == context) current_pop(thread, NULL);
    context_discard(context);
    handle_release(&context_table, context);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxDestroy, (CUcontext context), context_destroy(thread, context))
DRIVER_CALL(cuCtxDestroy_v2, (CUcontext context), context_destroy(thread, context))

/* The old interface counts the uses of a created context. */

static CUresult context_attach(const struct thread *thread, CUcontext *handle, unsigned flags) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (thread->current->primary || thread->current->green != NULL) return CUDA_ERROR_INVALID_CONTEXT;
    atomic_fetch_add(&context->attached, 1);
    *handle = (CUcontext)context;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxAttach, (CUcontext * context, unsigned flags), context_attach(thread, context, flags))

static CUresult context_detach(struct thread *thread, CUcontext handle) {
    struct context *const context = (struct context *)handle;
    if (handle == NULL || thread->current != context) return CUDA_ERROR_INVALID_CONTEXT;
    unsigned attached = atomic_load(&context->attached);
    while (attached > 0)
        if (atomic_compare_exchange_weak(&context->attached, &attached, attached - 1)) return CUDA_SUCCESS;
    return context_destroy(thread, handle);
}
DRIVER_CALL(cuCtxDetach, (CUcontext context), context_detach(thread, context))

/* Questions about a context. */

static CUresult context_get_device(const struct thread *thread, CUdevice *device, CUcontext handle) {
    struct context *context;
    const CUresult result = context_named(thread, handle, &context);
    if (result != CUDA_SUCCESS) return result;
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxGetDevice, (CUdevice * device), context_get_device(thread, device, NULL))
DRIVER_CALL(cuCtxGetDevice_v2, (CUdevice * device, CUcontext context), context_get_device(thread, device, context))

static CUresult context_get_id(const struct thread *thread, CUcontext handle, unsigned long long *id) {
    struct context *context;
    const CUresult result = context_named(thread, handle, &context);
    if (result != CUDA_SUCCESS) return result;
    if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
    *id = atomic_load(&context->id);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxGetId, (CUcontext context, unsigned long long *id), context_get_id(thread, context, id))

static CUresult context_get_version(const struct thread *thread, CUcontext handle, unsigned *version) {
    struct context *context;
    const CUresult result = context_named(thread, handle, &context);
    if (result != CUDA_SUCCESS) return result;
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = context->api_version;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxGetApiVersion, (CUcontext context, unsigned *version), context_get_version(thread, context, version))

static CUresult context_get_flags(const struct thread *thread, unsigned *flags) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = atomic_load(&context->flags);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxGetFlags, (unsigned *flags), context_get_flags(thread, flags))

static CUresult context_set_flags(const struct thread *thread, unsigned flags) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
    atomic_store(&context->flags, flags);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxSetFlags, (unsigned flags), context_set_flags(thread, flags))

static CUresult context_get_limit(const struct thread *thread, size_t *value, CUlimit limit) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    if ((int)limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = atomic_load(&context->limits[limit]);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxGetLimit, (size_t * value, CUlimit limit), context_get_limit(thread, value, limit))

static CUresult context_set_limit(const struct thread *thread, CUlimit limit, size_t value) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if ((int)limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    atomic_store(&context->limits[limit], value);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxSetLimit, (CUlimit limit, size_t value), context_set_limit(thread, limit, value))

static CUresult context_priority_range(const struct thread *thread, int *least, int *greatest) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (least != NULL) *least = 0;
    if (greatest != NULL) *greatest = STREAM_PRIORITY_GREATEST;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), context_priority_range(thread, least, greatest))

static CUresult wait_for_green(struct context *context, const struct green *green) {
    struct operation *const all = operation_new(OPERATION_RECORD);
    if (all == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    scheduler_submit_after_context(all, context, green);
    scheduler_wait(all);
    races_operation_observed(all);
    operation_drop(all);
    return CUDA_SUCCESS;
}

static CUresult context_synchronize(const struct thread *thread, CUcontext handle) {
    struct context *context;
    CUresult result = context_named(thread, handle, &context);
    if (result != CUDA_SUCCESS) return result;
    result = capture_refuse_device(context);
    if (result != CUDA_SUCCESS) return result;
    const struct green *const green = context_green(thread, handle);
    if (green != NULL)
        result = wait_for_green(context, green);
    else
        scheduler_wait_context(context);
    if (result != CUDA_SUCCESS) return result;
    pools_after_synchronize();
    return (CUresult)atomic_load(&context->error);
}
DRIVER_CALL(cuCtxSynchronize, (void), context_synchronize(thread, NULL))
DRIVER_CALL(cuCtxSynchronize_v2, (CUcontext context), context_synchronize(thread, context))

/* Access to the memory of other devices. */

static CUresult peer_change(const struct thread *thread, CUcontext peer, unsigned flags, bool enable) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (handle_state_of(&context_table, peer) != HANDLE_LIVE) return CUDA_ERROR_INVALID_CONTEXT;
    const struct device *const device = ((struct context *)peer)->device;
    if (device == context->device) return CUDA_ERROR_INVALID_DEVICE;
    const uint32_t bit = UINT32_C(1) << device->ordinal;
    if (enable) {
        if ((atomic_fetch_or(&context->peers, bit) & bit) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    } else if ((atomic_fetch_and(&context->peers, ~bit) & bit) == 0) {
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), peer_change(thread, peer, flags, true))
DRIVER_CALL(cuCtxDisablePeerAccess, (CUcontext peer), peer_change(thread, peer, 0, false))
