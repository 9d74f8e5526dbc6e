/* SPDX-License-Identifier: MIT
 *
 * Fills memory and waits for that. What comes after nothing is filled on a stream of our own, one for each context that
 * lives, made when it is first needed; the rest on the stream that it comes after.
 */
#include "device/driver.h"

#include <errno.h>
#include <stdlib.h>

struct fill_stream {
    struct fill_stream *next;
    const void *context;
    CUstream stream;
};

static CUstream find(struct device_driver *driver, const void *context) {
    pthread_mutex_lock(&driver->fill_lock);
    const struct fill_stream *own = driver->fill_streams;
    while (own && own->context != context) own = own->next;
    const CUstream stream = own ? own->stream : NULL;
    pthread_mutex_unlock(&driver->fill_lock);
    return stream;
}

/* Keeps the stream; false when another thread was quicker. */
static bool keep(struct device_driver *driver, struct fill_stream *made) {
    pthread_mutex_lock(&driver->fill_lock);
    const struct fill_stream *own = driver->fill_streams;
    while (own && own->context != made->context) own = own->next;
    if (!own) {
        made->next = driver->fill_streams;
        driver->fill_streams = made;
    }
    pthread_mutex_unlock(&driver->fill_lock);
    return !own;
}

/* The own stream of the context, which is current. */
static CUresult own_stream(struct device_driver *driver, const void *context, CUstream *stream) {
    *stream = find(driver, context);
    if (*stream) return CUDA_SUCCESS;
    const int error = errno;
    struct fill_stream *made = calloc(1, sizeof *made);
    errno = error;
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = context;
    const CUresult result = driver->call.stream_create(&made->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
        *stream = made->stream;
        if (keep(driver, made)) return result;
        driver->call.stream_destroy(made->stream);
        *stream = find(driver, context);
    }
    free(made);
    return result;
}

void device_driver_fill_forget(struct device_driver *driver, const void *context) {
    pthread_mutex_lock(&driver->fill_lock);
    struct fill_stream **link = &driver->fill_streams;
    while (*link && (*link)->context != context) link = &(*link)->next;
    struct fill_stream *own = *link;
    if (own) *link = own->next;
    pthread_mutex_unlock(&driver->fill_lock);
    free(own);
}

static int fill(void *self, struct device_context context, const struct device_stream *stream, uint64_t address,
                size_t bytes, uint8_t value) {
    struct device_driver *driver = self;
    /* In the mode of a capture elsewhere a wait is refused, and would break it. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool exchanged =
        driver->call.exchange_capture_mode && driver->call.exchange_capture_mode(&mode) == CUDA_SUCCESS;
    CUstream on = stream ? device_driver_stream_handle(*stream) : NULL;
    bool pushed;
    CUresult result = device_driver_enter(driver, context, &pushed);
    if (result == CUDA_SUCCESS && !stream) result = own_stream(driver, context.handle, &on);
    if (result == CUDA_SUCCESS) result = driver->call.memory_fill((CUdeviceptr)address, value, bytes, on);
    if (result == CUDA_SUCCESS) result = driver->call.stream_synchronize(on);
    device_driver_leave(driver, pushed);
    if (exchanged) driver->call.exchange_capture_mode(&mode);
    return (int)result;
}

void device_fill_bind(struct device_driver *driver) {
    pthread_mutex_init(&driver->fill_lock, NULL);
    if (driver->call.memory_fill && driver->call.stream_create && driver->call.stream_destroy) driver->ops.fill = fill;
}
