/* SPDX-License-Identifier: MIT
 *
 * Which stream is which. Handles come back after a stream is destroyed, so each stream has a number that never does:
 * of our own where its creation was seen; for the legacy stream, one per life of a context; for the per-thread default
 * streams, one per thread and life of a context; else the driver's cuStreamGetId, where it has that.
 */
#include "device/driver.h"

#include <errno.h>
#include <stdlib.h>

#include "poolcuda/stats.h"

#define BUCKETS 256

struct known_stream {
    struct known_stream *next;
    void *handle;
    uint64_t id;
    struct device_context context;
};

static struct device_driver *driver_of(void *self) {
    return self;
}

CUstream device_driver_stream_handle(struct device_stream stream) {
    if (stream.handle) return (CUstream)stream.handle;
    return stream.per_thread_default ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

static size_t bucket_of(const void *handle) {
    return (size_t)(((uintptr_t)handle >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 56) % BUCKETS;
}

/* ---- the table ---- */

/* Under streams_lock. */
static struct known_stream *take(struct device_driver *driver, const void *handle) {
    if (!driver->streams) return NULL;
    struct known_stream **link = &driver->streams[bucket_of(handle)];
    while (*link && (*link)->handle != handle) link = &(*link)->next;
    struct known_stream *known = *link;
    if (known) *link = known->next;
    return known;
}

void device_driver_stream_created(struct device_driver *driver, void *handle, struct device_context context) {
    const int error = errno;
    struct known_stream *fresh = calloc(1, sizeof *fresh);
    pthread_mutex_lock(&driver->streams_lock);
    /* Whatever had this handle was destroyed by a call that no hook saw. */
    free(take(driver, handle));
    if (!driver->streams) driver->streams = calloc(BUCKETS, sizeof(struct known_stream *));
    if (fresh && driver->streams) {
        struct known_stream **bucket = &driver->streams[bucket_of(handle)];
        *fresh = (struct known_stream){*bucket, handle, ++driver->next_stream_id, context};
        *bucket = fresh;
        fresh = NULL;
    }
    pthread_mutex_unlock(&driver->streams_lock);
    free(fresh);
    errno = error;
}

void device_driver_stream_destroyed(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->streams_lock);
    struct known_stream *known = take(driver, handle);
    pthread_mutex_unlock(&driver->streams_lock);
    free(known);
}

void device_driver_streams_gone(struct device_driver *driver, const void *context) {
    pthread_mutex_lock(&driver->streams_lock);
    for (size_t i = 0; driver->streams && i < BUCKETS; i++) {
        for (struct known_stream **link = &driver->streams[i]; *link;) {
            struct known_stream *known = *link;
            if (known->context.handle != context) {
                link = &known->next;
                continue;
            }
            *link = known->next;
            free(known);
        }
    }
    pthread_mutex_unlock(&driver->streams_lock);
}

/* ---- identity ---- */

static uint64_t thread_number(void) {
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t number __attribute__((tls_model("initial-exec")));
    if (!number) number = atomic_fetch_add(&threads, 1) + 1;
    return number;
}

static int identify_default(struct device_driver *driver, CUstream stream, struct device_stream_identity *identity) {
    const int code = driver->ops.context_current(driver, &identity->context);
    if (code != DEVICE_OK) return code;
    if (!identity->context.handle) return DEVICE_INVALID_CONTEXT;
    if (!device_driver_context_known(driver, identity->context, LIVE_FOUND)) return DEVICE_OK;
    const uint64_t serial = device_driver_context_serial(driver, identity->context.handle);
    if (!serial) return DEVICE_OK;
    identity->id = stream == CU_STREAM_LEGACY
                       ? POOLCUDA_STREAM_LEGACY | serial
                       : POOLCUDA_STREAM_PER_THREAD | thread_number() << POOLCUDA_STREAM_THREAD_SHIFT |
                             (serial & (((uint64_t)1 << POOLCUDA_STREAM_THREAD_SHIFT) - 1));
    /* A green context's is a stream like any other. */
    identity->orders_others =
        stream == CU_STREAM_LEGACY && !device_driver_context_green(driver, identity->context.handle);
    /* Of the one only its thread may call; an event on the other would hold up every blocking stream. */
    identity->recordable = false;
    identity->lasting = true;
    return DEVICE_OK;
}

static int context_of(struct device_driver *driver, CUstream stream, struct device_context *context) {
    CUcontext handle = NULL;
    if (!driver->call.stream_get_context) return DEVICE_NOT_SUPPORTED;
    CUresult result = driver->call.stream_get_context(stream, &handle);
    if (result != CUDA_SUCCESS) return (int)result;
    bool pushed;
    struct device_context guess = {handle, -1};
    result = device_driver_enter(driver, guess, &pushed);
    if (result != CUDA_SUCCESS) return (int)result;
    const int code = driver->ops.context_current(driver, context);
    device_driver_leave(driver, pushed);
    return code;
}

static int stream_identify(void *self, struct device_stream stream, struct device_stream_identity *identity) {
    struct device_driver *driver = driver_of(self);
    const CUstream handle = device_driver_stream_handle(stream);
    *identity = (struct device_stream_identity){0};
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return identify_default(driver, handle, identity);

    pthread_mutex_lock(&driver->streams_lock);
    const struct known_stream *known = driver->streams ? driver->streams[bucket_of(handle)] : NULL;
    while (known && known->handle != (void *)handle) known = known->next;
    if (known) *identity = (struct device_stream_identity){.id = known->id, .context = known->context, .lasting = true};
    pthread_mutex_unlock(&driver->streams_lock);
    if (identity->id) {
        identity->recordable = !device_driver_context_green(driver, identity->context.handle);
        return DEVICE_OK;
    }

    unsigned long long id = 0;
    if (!driver->call.stream_get_id) return DEVICE_OK;
    const CUresult result = driver->call.stream_get_id(handle, &id);
    if (result != CUDA_SUCCESS) return (int)result;
    const int code = context_of(driver, handle, &identity->context);
    if (code != DEVICE_OK) return code;
    if (!device_driver_context_known(driver, identity->context, LIVE_FOUND)) return DEVICE_OK;
    /* Nobody tells when it ends, so only its own calls may touch it. */
    identity->id = POOLCUDA_STREAM_DRIVER | id;
    return DEVICE_OK;
}

/* The address itself may begin a segment: one beside it is no allocation of anybody. */
static int free_captured(void *self, struct device_stream stream, uint64_t address) {
    const struct device_driver *driver = driver_of(self);
    if (!driver->call.memory_free_async) return DEVICE_INVALID_VALUE;
    const CUresult result =
        driver->call.memory_free_async((CUdeviceptr)address + 1, device_driver_stream_handle(stream));
    return result == CUDA_SUCCESS ? DEVICE_INVALID_VALUE : (int)result;
}

static int stream_capturing(void *self, struct device_stream stream) {
    struct device_driver *driver = driver_of(self);
    if (!driver->call.stream_is_capturing) return DEVICE_OK;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver->call.stream_is_capturing(device_driver_stream_handle(stream), &status);
    if (result != CUDA_SUCCESS) return (int)result;
    return status == CU_STREAM_CAPTURE_STATUS_NONE ? DEVICE_OK : DEVICE_NOT_READY;
}

void device_streams_bind(struct device_driver *driver) {
    pthread_mutex_init(&driver->streams_lock, NULL);
    driver->ops.stream_identify = stream_identify;
    driver->ops.free_captured = free_captured;
    driver->ops.stream_capturing = stream_capturing;
}
