/* SPDX-License-Identifier: MIT
 *
 * Streams: created ones, and the two that need no creation, legacy (one per context) and per-thread (one per context
 * and thread).
 */
#include <stdlib.h>

#include "driver.h"

enum { STREAM_MAX = 65536 };

struct handle_table stream_table = HANDLE_TABLE(struct stream, STREAM_MAX, false);

static _Atomic(uint64_t) stream_ids;

struct stream *stream_new(struct context *context, struct green *green, unsigned flags, int priority, bool legacy) {
    struct stream *const stream = handle_new(&stream_table);
    if (stream == NULL) return NULL;
    stream->context = context;
    stream->green = green;
    stream->flags = flags;
    stream->priority = priority;
    stream->legacy = legacy;
    stream->id = atomic_fetch_add(&stream_ids, 1) + 1;
    atomic_store(&stream->references, 1);
    pthread_mutex_lock(&scheduler_lock);
    stream->following = context->streams;
    if (context->streams != NULL) context->streams->previous = stream;
    context->streams = stream;
    pthread_mutex_unlock(&scheduler_lock);
    return stream;
}

void stream_drop(struct stream *stream) {
    if (atomic_fetch_sub(&stream->references, 1) > 1) return;
    if (stream->race.epoch != 0) races_stream_gone(stream);
    if (stream->following != NULL) stream->following->previous = stream->previous;
    if (stream->previous != NULL)
        stream->previous->following = stream->following;
    else
        stream->context->streams = stream->following;
    handle_release(&stream_table, stream);
}

/* Its handle is no longer valid; work left in it goes on. */
static void stream_leave(struct stream *stream) {
    pthread_mutex_lock(&scheduler_lock);
    capture_stream_gone(stream);
    stream_drop(stream);
    pthread_mutex_unlock(&scheduler_lock);
}

/* All work is done, so that each stream has only the reference of its handle or context. */
void streams_context_discard(struct context *context) {
    while (context->streams != NULL) {
        struct stream *const stream = context->streams;
        handle_kill(stream);
        capture_stream_gone(stream);
        stream_drop(stream);
    }
}

void streams_thread_discard(struct thread *thread) {
    while (thread->streams != NULL) {
        struct thread_stream *const entry = thread->streams;
        thread->streams = entry->next;
        if (atomic_load(&entry->context->active) && atomic_load(&entry->context->id) == entry->context_id)
            stream_leave(entry->stream);
        free(entry);
    }
}

static CUresult per_thread_stream(struct thread *thread, struct context *context, struct stream **stream) {
    struct thread_stream **link = &thread->streams;
    while (*link != NULL) {
        struct thread_stream *const entry = *link;
        if (entry->context == context && entry->context_id == atomic_load(&context->id)) {
            *stream = entry->stream;
            return CUDA_SUCCESS;
        }
        if (entry->context == context) { /* of an earlier life of the context */
            *link = entry->next;
            free(entry);
        } else {
            link = &entry->next;
        }
    }
    struct thread_stream *const entry = malloc(sizeof(*entry));
    *stream = entry != NULL ? stream_new(context, NULL, 0, 0, false) : NULL;
    if (*stream == NULL) {
        free(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *entry = (struct thread_stream){context, atomic_load(&context->id), *stream, thread->streams};
    thread->streams = entry;
    return CUDA_SUCCESS;
}

CUresult stream_named(struct thread *thread, CUstream handle, struct stream **stream) {
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct context *context;
        const CUresult result = context_current(thread, &context);
        if (result != CUDA_SUCCESS) return result;
        const struct green *const green = thread->current->green;
        if (handle == CU_STREAM_PER_THREAD) {
            if (UNLIKELY(green != NULL)) return CUDA_ERROR_INVALID_HANDLE;
            return per_thread_stream(thread, context, stream);
        }
        *stream = LIKELY(green == NULL) ? context->legacy : green->default_stream;
        return CUDA_SUCCESS;
    }
    const CUresult result = handle_check(&stream_table, handle);
    if (result != CUDA_SUCCESS) return result;
    *stream = (struct stream *)handle;
    return (CUresult)atomic_load_explicit(&(*stream)->context->error, memory_order_relaxed);
}

static bool is_created(CUstream handle) {
    return handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD;
}

CUresult stream_create_in(struct context *context, struct green *green, CUstream *handle, unsigned flags,
                          int priority) {
    if (handle == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (priority > 0) priority = 0;
    if (priority < STREAM_PRIORITY_GREATEST) priority = STREAM_PRIORITY_GREATEST;
    struct stream *const stream = stream_new(context, green, flags, priority, false);
    if (stream == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    handle_publish(stream);
    *handle = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult stream_create(const struct thread *thread, CUstream *handle, unsigned flags, int priority) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    return stream_create_in(context, context_green(thread, NULL), handle, flags, priority);
}
DRIVER_CALL(cuStreamCreate, (CUstream * stream, unsigned flags), stream_create(thread, stream, flags, 0))
DRIVER_CALL(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),
            stream_create(thread, stream, flags, priority))

CUresult stream_destroy(CUstream handle) {
    if (!is_created(handle)) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = handle_check(&stream_table, handle);
    if (result != CUDA_SUCCESS) return result;
    if (!handle_kill((void *)handle)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    stream_leave((struct stream *)handle);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuStreamDestroy, (CUstream stream), stream_destroy(stream))
DRIVER_CALL(cuStreamDestroy_v2, (CUstream stream), stream_destroy(stream))

static CUresult stream_query(struct thread *thread, CUstream handle) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    result = capture_refuse_synchronous(thread, stream);
    if (result != CUDA_SUCCESS) return result;
    return scheduler_stream_is_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
DRIVER_STREAM_CALL(cuStreamQuery, _ptsz, (CUstream stream), stream_query(thread, STREAM(stream)))

static CUresult stream_synchronize(struct thread *thread, CUstream handle) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    result = capture_refuse_synchronous(thread, stream);
    if (result != CUDA_SUCCESS) return result;
    struct context *const context = stream->context;
    scheduler_wait_stream(stream);
    pools_after_synchronize();
    return (CUresult)atomic_load(&context->error);
}
DRIVER_STREAM_CALL(cuStreamSynchronize, _ptsz, (CUstream stream), stream_synchronize(thread, STREAM(stream)))

/* Questions about a stream. */

static CUresult stream_get_flags(struct thread *thread, CUstream handle, unsigned *flags) {
    struct stream *stream;
    const CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}
DRIVER_STREAM_CALL(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned *flags),
                   stream_get_flags(thread, STREAM(stream), flags))

static CUresult stream_get_priority(struct thread *thread, CUstream handle, int *priority) {
    struct stream *stream;
    const CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (priority == NULL) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}
DRIVER_STREAM_CALL(cuStreamGetPriority, _ptsz, (CUstream stream, int *priority),
                   stream_get_priority(thread, STREAM(stream), priority))

static CUresult stream_get_id(struct thread *thread, CUstream handle, unsigned long long *id) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_stream(stream, true);
    if (result != CUDA_SUCCESS) return result;
    *id = stream->id;
    return CUDA_SUCCESS;
}
DRIVER_STREAM_CALL(cuStreamGetId, _ptsz, (CUstream stream, unsigned long long *id),
                   stream_get_id(thread, STREAM(stream), id))

static CUresult stream_get_device(struct thread *thread, CUstream handle, CUdevice *device) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_stream(stream, true);
    if (result != CUDA_SUCCESS) return result;
    *device = stream->context->device->ordinal;
    return CUDA_SUCCESS;
}
DRIVER_STREAM_CALL(cuStreamGetDevice, _ptsz, (CUstream stream, CUdevice *device),
                   stream_get_device(thread, STREAM(stream), device))

/* By what handle a program knows the context; of a green context's stream, that is the green one's. */
static CUresult stream_get_context(struct thread *thread, CUstream handle, CUcontext *context) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    result = capture_refuse_stream(stream, true);
    if (result != CUDA_SUCCESS) return result;
    *context = (CUcontext)(stream->green != NULL ? stream->green->context : stream->context);
    return CUDA_SUCCESS;
}
DRIVER_STREAM_CALL(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext *context),
                   stream_get_context(thread, STREAM(stream), context))

/* The primary context, and the green one within it; `context` NULL: only that. */
static CUresult stream_get_contexts(struct thread *thread, CUstream handle, CUcontext *context, CUgreenCtx *green) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result == CUDA_SUCCESS) result = capture_refuse_stream(stream, true);
    if (result != CUDA_SUCCESS) return result;
    if (context != NULL) *context = (CUcontext)stream->context;
    if (green != NULL) *green = (CUgreenCtx)stream->green;
    return CUDA_SUCCESS;
}
DRIVER_STREAM_CALL(cuStreamGetCtx_v2, _ptsz, (CUstream stream, CUcontext *context, CUgreenCtx *green),
                   context == NULL ? CUDA_ERROR_INVALID_VALUE
                                   : stream_get_contexts(thread, STREAM(stream), context, green))

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green) {
    DRIVER_ENTER(cuStreamGetGreenCtx);
    if (green == NULL) return CUDA_ERROR_INVALID_VALUE;
    return stream_get_contexts(thread, stream != NULL ? stream : CU_STREAM_LEGACY, NULL, green);
}
