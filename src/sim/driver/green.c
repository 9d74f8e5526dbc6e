/* SPDX-License-Identifier: MIT
 *
 * Green contexts: parts of a device's primary context that have streams of their own. Memory, events and errors are the
 * primary context's; a part of the multiprocessors is promised and makes no difference here. A green context has a
 * second handle, a CUcontext, by which it can be made current.
 */
#include <string.h>

#include "driver.h"

enum { GREEN_MAX = 4096, DESCRIPTION_MAX = 65536, PARTITION_LEAST = 8 };

/* Resources that a program describes, and never takes back. */
struct description {
    struct handle handle;
    struct device *device;
    CUdevSmResource part;
};

static struct handle_table green_table = HANDLE_TABLE(struct green, GREEN_MAX, false);
static struct handle_table description_table = HANDLE_TABLE(struct description, DESCRIPTION_MAX, false);
static _Atomic(uint64_t) green_ids;

/* Resources. The device, and the split that a part comes from, are written where the program does not look. */

struct origin {
    int32_t device;
    uint64_t split;
};
static _Atomic(uint64_t) splits;

static struct origin origin_of(const CUdevResource *resource) {
    struct origin origin;
    memcpy(&origin, resource->_internal_padding, sizeof(origin));
    return origin;
}

static void resource_write(CUdevResource *resource, CUdevSmResource part, struct origin origin) {
    memset(resource, 0, sizeof(*resource));
    resource->type = part.smCount > 0 ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID;
    resource->sm = part;
    memcpy(resource->_internal_padding, &origin, sizeof(origin));
}

static CUdevSmResource part_of(unsigned count) {
    return (CUdevSmResource){count, PARTITION_LEAST, PARTITION_LEAST};
}

static CUresult whole(const struct device *device, CUdevResource *resource, CUdevResourceType type,
                      CUdevSmResource part) {
    if (resource == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    resource_write(resource, part, (struct origin){.device = device->ordinal});
    return CUDA_SUCCESS;
}

static CUresult device_resource(CUdevice ordinal, CUdevResource *resource, CUdevResourceType type) {
    const struct device *const device = device_of(ordinal);
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    return whole(device, resource, type, part_of(DEVICE_MULTIPROCESSORS));
}
DRIVER_CALL(cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource, CUdevResourceType type),
            device_resource(device, resource, type))

static CUresult split(CUdevResource *parts, unsigned *count, const CUdevResource *input, CUdevResource *rest,
                      unsigned least) {
    if (count == NULL || input == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    const struct origin source = origin_of(input);
    if (source.split != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (least > input->sm.smCount) return CUDA_ERROR_INVALID_VALUE;
    const unsigned size =
        least > 0 ? (least + PARTITION_LEAST - 1) / PARTITION_LEAST * PARTITION_LEAST : PARTITION_LEAST;
    const unsigned possible = input->sm.smCount / size;
    if (parts == NULL || *count > possible) *count = possible;
    const struct origin origin = {.device = source.device, .split = atomic_fetch_add(&splits, 1) + 1};
    const unsigned left = input->sm.smCount - *count * size;
    for (unsigned i = 0; i < *count && parts != NULL; i++) resource_write(&parts[i], part_of(size), origin);
    if (rest != NULL) resource_write(rest, part_of(left), origin);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDevSmResourceSplitByCount,
            (CUdevResource * parts, unsigned *count, const CUdevResource *input, CUdevResource *rest, unsigned flags,
             unsigned least),
            ((void)flags, split(parts, count, input, rest, least)))

static CUresult describe(CUdevResourceDesc *handle, const CUdevResource *resources, unsigned count) {
    if (handle == NULL || resources == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
    const struct origin origin = origin_of(&resources[0]);
    unsigned multiprocessors = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct origin other = origin_of(&resources[i]);
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (other.device != origin.device || other.split != origin.split || (i > 0 && origin.split == 0))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        multiprocessors += resources[i].sm.smCount;
    }
    struct device *const device = device_of(origin.device);
    if (device == NULL) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    struct description *const description = handle_new(&description_table);
    if (description == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    description->device = device;
    description->part = part_of(multiprocessors);
    handle_publish(description);
    *handle = (CUdevResourceDesc)description;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDevResourceGenerateDesc, (CUdevResourceDesc * handle, CUdevResource *resources, unsigned count),
            describe(handle, resources, count))

/* Life. */

CUresult green_usable(const struct green *green) {
    if (handle_state_of(&green_table, green) != HANDLE_LIVE || !atomic_load(&green->primary->active) ||
        atomic_load(&green->primary->id) != green->primary_id)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return CUDA_SUCCESS;
}

static CUresult green_named(CUgreenCtx handle, struct green **green) {
    *green = (struct green *)handle;
    switch (handle_state_of(&green_table, handle)) {
    case HANDLE_LIVE:
        return green_usable(*green);
    case HANDLE_DEAD:
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    default:
        return CUDA_ERROR_INVALID_CONTEXT;
    }
}

static CUresult green_make(struct green *green, const struct description *description) {
    struct context *const context = handle_new(&context_table);
    if (context == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    green->primary = description->device->primary;
    green->primary_id = atomic_load(&green->primary->id);
    green->part = description->part;
    green->id = atomic_fetch_add(&green_ids, 1) + 1;
    green->default_stream = stream_new(green->primary, green, 0, 0, false);
    if (green->default_stream == NULL) {
        handle_release(&context_table, context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->device = description->device;
    context->green = green;
    context->api_version = green->primary->api_version;
    atomic_store(&context->active, true);
    green->context = context;
    handle_publish(context);
    handle_publish(green);
    return CUDA_SUCCESS;
}

static CUresult green_create(CUgreenCtx *handle, CUdevResourceDesc description_handle, CUdevice ordinal,
                             unsigned flags) {
    const struct description *const description = (const struct description *)description_handle;
    CUcontext primary;
    if (handle == NULL || flags != CU_GREEN_CTX_DEFAULT_STREAM ||
        handle_state_of(&description_table, description) != HANDLE_LIVE)
        return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    if (description->device != device_of(ordinal)) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = primary_retain(&primary, ordinal);
    if (result != CUDA_SUCCESS) return result;
    struct green *const green = handle_new(&green_table);
    result = green != NULL ? green_make(green, description) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *handle = (CUgreenCtx)green;
        return result;
    }
    if (green != NULL) handle_release(&green_table, green);
    primary_release(ordinal);
    return result;
}
DRIVER_CALL(cuGreenCtxCreate, (CUgreenCtx * green, CUdevResourceDesc description, CUdevice device, unsigned flags),
            green_create(green, description, device, flags))

/* Its streams' handles are no longer valid; work left in them goes on. Under scheduler_lock. */
static void streams_forget(const struct green *green) {
    for (struct stream *stream = green->primary->streams, *following; stream != NULL; stream = following) {
        following = stream->following;
        if (stream->green != green) continue;
        stream->green = NULL;
        if (!handle_kill(stream) && stream != green->default_stream) continue; /* destroyed before, with work left */
        capture_stream_gone(stream);
        stream_drop(stream);
    }
}

static CUresult green_destroy(CUgreenCtx handle) {
    struct green *green;
    const CUresult result = green_named(handle, &green);
    const bool primary_is_gone =
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED && handle_state_of(&green_table, handle) == HANDLE_LIVE;
    if (result != CUDA_SUCCESS && !primary_is_gone) return result;
    if (!handle_kill(green)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    handle_kill(green->context);
    pthread_mutex_lock(&scheduler_lock);
    if (!primary_is_gone) streams_forget(green);
    operation_drop(green->barrier);
    races_forget(&green->race);
    pthread_mutex_unlock(&scheduler_lock);
    atomic_store(&green->context->active, false);
    handle_release(&context_table, green->context);
    const CUdevice ordinal = green->primary->device->ordinal;
    handle_release(&green_table, green);
    primary_release(ordinal);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGreenCtxDestroy, (CUgreenCtx green), green_destroy(green))

/* Questions. */

static CUresult green_context(CUcontext *context, CUgreenCtx handle) {
    struct green *green;
    const CUresult result = green_named(handle, &green);
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    *context = (CUcontext)green->context;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx green), green_context(context, green))

static CUresult green_resource(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type) {
    struct green *green;
    const CUresult result = green_named(handle, &green);
    return result == CUDA_SUCCESS ? whole(green->primary->device, resource, type, green->part) : result;
}
DRIVER_CALL(cuGreenCtxGetDevResource, (CUgreenCtx green, CUdevResource *resource, CUdevResourceType type),
            green_resource(green, resource, type))

static CUresult context_resource(const struct thread *thread, CUcontext handle, CUdevResource *resource,
                                 CUdevResourceType type) {
    struct context *context;
    const CUresult result = context_named(thread, handle, &context);
    if (result != CUDA_SUCCESS) return result;
    const struct green *const green = context_green(thread, handle);
    return whole(context->device, resource, type, green != NULL ? green->part : part_of(DEVICE_MULTIPROCESSORS));
}
DRIVER_CALL(cuCtxGetDevResource, (CUcontext context, CUdevResource *resource, CUdevResourceType type),
            context_resource(thread, context, resource, type))

static CUresult green_id(const struct thread *thread, CUgreenCtx handle, unsigned long long *id) {
    struct green *green = handle == NULL ? context_green(thread, NULL) : (struct green *)handle;
    const CUresult result = green != NULL ? green_named((CUgreenCtx)green, &green) : CUDA_ERROR_INVALID_CONTEXT;
    if (result != CUDA_SUCCESS) return result;
    if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
    *id = green->id;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGreenCtxGetId, (CUgreenCtx green, unsigned long long *id), green_id(thread, green, id))

/* Streams and events. */

static CUresult green_stream_create(CUstream *stream, CUgreenCtx handle, unsigned flags, int priority) {
    struct green *green;
    const CUresult result = green_named(handle, &green);
    if (result != CUDA_SUCCESS) return result;
    if (stream == NULL || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    return stream_create_in(green->primary, green, stream, flags, priority);
}
DRIVER_CALL(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx green, unsigned flags, int priority),
            green_stream_create(stream, green, flags, priority))

static CUresult green_record(CUgreenCtx handle, CUevent event) {
    struct green *green;
    const CUresult result = green_named(handle, &green);
    return result == CUDA_SUCCESS ? event_record_context(event, green->primary, green) : result;
}
DRIVER_CALL(cuGreenCtxRecordEvent, (CUgreenCtx green, CUevent event), green_record(green, event))

static CUresult green_wait(CUgreenCtx handle, CUevent event) {
    struct green *green;
    const CUresult result = green_named(handle, &green);
    return result == CUDA_SUCCESS ? event_wait_context(event, green->primary, green) : result;
}
DRIVER_CALL(cuGreenCtxWaitEvent, (CUgreenCtx green, CUevent event), green_wait(green, event))
