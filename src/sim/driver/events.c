/* SPDX-License-Identifier: MIT
 *
 * Events. An event holds the operation that recorded it last; to query it is to ask whether that is done, to wait for
 * it is to come after that.
 */
#include <stdlib.h>

#include "graph.h"

enum { EVENT_MAX = 1 << 18 };

static struct handle_table event_table = HANDLE_TABLE(struct event, EVENT_MAX, false);

CUresult event_named(CUevent handle, struct event **event) {
    const CUresult result = handle_check(&event_table, handle);
    *event = (struct event *)handle;
    return result;
}

static CUresult event_create(const struct thread *thread, CUevent *handle, unsigned flags) {
    struct context *context;
    const CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL ||
        (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)) ||
        ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0))
        return CUDA_ERROR_INVALID_VALUE;
    struct event *const event = handle_new(&event_table);
    if (event == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->flags = flags;
    pthread_mutex_lock(&scheduler_lock);
    event->following = context->events;
    if (context->events != NULL) context->events->previous = event;
    context->events = event;
    pthread_mutex_unlock(&scheduler_lock);
    handle_publish(event);
    *handle = (CUevent)event;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuEventCreate, (CUevent * event, unsigned flags), event_create(thread, event, flags))

/* Forgets what was recorded. Under scheduler_lock. */
static void event_clear(struct event *event) {
    operation_drop(event->recorded);
    event->recorded = NULL;
    if (event->capture != NULL) capture_drop(event->capture);
    event->capture = NULL;
    free(event->tail.nodes);
    event->tail = (struct node_list){NULL, 0};
}

/* Under scheduler_lock. */
static void event_discard(struct event *event) {
    event_clear(event);
    if (event->following != NULL) event->following->previous = event->previous;
    if (event->previous != NULL)
        event->previous->following = event->following;
    else
        event->context->events = event->following;
    handle_release(&event_table, event);
}

static CUresult event_destroy(CUevent handle) {
    struct event *event;
    const CUresult result = event_named(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    if (!handle_kill(event)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    pthread_mutex_lock(&scheduler_lock);
    event_discard(event);
    pthread_mutex_unlock(&scheduler_lock);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuEventDestroy, (CUevent event), event_destroy(event))
DRIVER_CALL(cuEventDestroy_v2, (CUevent event), event_destroy(event))

void events_context_discard(struct context *context) {
    pthread_mutex_lock(&scheduler_lock);
    while (context->events != NULL) {
        struct event *const event = context->events;
        handle_kill(event);
        event_discard(event);
    }
    pthread_mutex_unlock(&scheduler_lock);
}

/* Recording. */

static struct operation *record_new(const struct event *event) {
    struct operation *const record = operation_new(OPERATION_RECORD);
    if (record != NULL) record->timed = (event->flags & CU_EVENT_DISABLE_TIMING) == 0;
    return record;
}

void event_note(struct event *event, struct operation *record) {
    pthread_mutex_lock(&scheduler_lock);
    event_clear(event);
    event->recorded = record;
    pthread_mutex_unlock(&scheduler_lock);
}

/* The record in a capture: nothing but a place in its order. False when the stream does not capture. */
static bool event_note_captured(struct event *event, struct stream *stream, CUresult *result) {
    if (atomic_load(&capture_running) == 0) return false;
    pthread_mutex_lock(&scheduler_lock);
    struct capture *const capture = stream->capture;
    if (capture != NULL) {
        *result = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
        if (*result == CUDA_SUCCESS) {
            event_clear(event);
            event->capture = capture;
            capture->references++;
            if (!node_list_copy(&event->tail, &stream->tail)) *result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&scheduler_lock);
    return capture != NULL;
}

static CUresult event_record(struct thread *thread, CUevent handle, CUstream stream_handle, unsigned flags) {
    struct event *event;
    struct stream *stream;
    CUresult result = event_named(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    result = stream_named(thread, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if ((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result != CUDA_SUCCESS) return result;
    const bool external = (flags & CU_EVENT_RECORD_EXTERNAL) != 0;
    if (external && !capture_is_running(stream)) return CUDA_ERROR_INVALID_VALUE;
    if (!external && event_note_captured(event, stream, &result)) return result;
    struct operation *const record = record_new(event);
    if (record == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    if (external) { /* a node that records it whenever the graph is launched */
        record->event = event;
        return capture_or_submit(stream, record, NULL, 0);
    }
    scheduler_submit(record, stream, NULL, 0);
    event_note(event, record);
    return CUDA_SUCCESS;
}
DRIVER_STREAM_CALL(cuEventRecord, _ptsz, (CUevent event, CUstream stream),
                   event_record(thread, event, STREAM(stream), 0))
DRIVER_STREAM_CALL(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags),
                   event_record(thread, event, STREAM(stream), flags))

CUresult event_record_context(CUevent handle, struct context *context, const struct green *green) {
    struct event *event;
    CUresult result = event_named(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    if (event->context != context) return CUDA_ERROR_INVALID_HANDLE;
    result = capture_refuse_context(context, green);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const record = record_new(event);
    if (record == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    scheduler_submit_after_context(record, context, green);
    event_note(event, record);
    return CUDA_SUCCESS;
}

static CUresult context_record_event(const struct thread *thread, CUcontext handle, CUevent event) {
    struct context *context;
    const CUresult result = context_named(thread, handle, &context);
    return result == CUDA_SUCCESS ? event_record_context(event, context, context_green(thread, handle)) : result;
}
DRIVER_CALL(cuCtxRecordEvent, (CUcontext context, CUevent event), context_record_event(thread, context, event))

/* Waiting. */

struct operation *event_recorded(struct event *event) {
    pthread_mutex_lock(&scheduler_lock);
    struct operation *const record = event->recorded != NULL ? operation_hold(event->recorded) : NULL;
    pthread_mutex_unlock(&scheduler_lock);
    return record;
}

static CUresult wait_captured(struct stream *stream, struct event *event, bool external) {
    pthread_mutex_lock(&scheduler_lock);
    CUresult result = CUDA_ERROR_NOT_READY; /* no capture forbids it */
    if (event->capture != NULL) {
        result = capture_join(stream, event->capture, &event->tail);
    } else if (stream->capture == NULL) {
        if (external) result = CUDA_ERROR_INVALID_VALUE;
    } else if (stream->capture->invalidated) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (!external) {
        stream->capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}

static CUresult stream_wait_event(struct thread *thread, CUstream stream_handle, CUevent handle, unsigned flags) {
    struct event *event;
    struct stream *stream;
    CUresult result = event_named(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    result = stream_named(thread, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if ((flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result != CUDA_SUCCESS) return result;
    const bool external = (flags & CU_EVENT_WAIT_EXTERNAL) != 0;
    result = wait_captured(stream, event, external);
    if (result != CUDA_ERROR_NOT_READY) return result;
    if (external) { /* a node that waits for what is recorded last when the graph is launched */
        struct operation *const node = operation_new(OPERATION_WAIT);
        if (node == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
        node->event = event;
        return capture_or_submit(stream, node, NULL, 0);
    }
    struct operation *const record = event_recorded(event);
    if (record == NULL || (operation_is_done(record) && !races_are_on())) {
        operation_drop(record);
        return CUDA_SUCCESS;
    }
    struct operation *const wait = operation_new(OPERATION_WAIT);
    result = wait != NULL ? capture_or_submit(stream, wait, &record, record != NULL ? 1 : 0) : CUDA_ERROR_OUT_OF_MEMORY;
    operation_drop(record);
    return result;
}
DRIVER_STREAM_CALL(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags),
                   stream_wait_event(thread, STREAM(stream), event, flags))

/* 900 if the event was recorded in a capture that goes on, which that ends; 907 after its end. */
static CUresult refuse_captured(struct event *event) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&scheduler_lock);
    if (event->capture != NULL) {
        result = event->capture->ended ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        event->capture->invalidated = true;
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}

CUresult event_wait_context(CUevent handle, struct context *context, struct green *green) {
    struct event *event;
    CUresult result = event_named(handle, &event);
    if (result == CUDA_SUCCESS) result = refuse_captured(event);
    if (result == CUDA_SUCCESS) result = capture_refuse_context(context, green);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const record = event_recorded(event);
    if (record == NULL) return CUDA_SUCCESS;
    struct operation *const wait = operation_new(OPERATION_WAIT);
    if (wait != NULL) scheduler_submit_before_context(wait, context, green, record);
    operation_drop(wait);
    operation_drop(record);
    return wait != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult context_wait_event(const struct thread *thread, CUcontext handle, CUevent event) {
    struct context *context;
    const CUresult result = context_named(thread, handle, &context);
    return result == CUDA_SUCCESS ? event_wait_context(event, context, context_green(thread, handle)) : result;
}
DRIVER_CALL(cuCtxWaitEvent, (CUcontext context, CUevent event), context_wait_event(thread, context, event))

/* Questions. An event recorded in a capture has no state to ask for. */

static CUresult event_ask(const struct thread *thread, CUevent handle, struct operation **record) {
    struct event *event;
    CUresult result = event_named(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&scheduler_lock);
    if (event->capture != NULL) result = CUDA_ERROR_CAPTURED_EVENT;
    pthread_mutex_unlock(&scheduler_lock);
    if (result == CUDA_SUCCESS) result = capture_refuse_unsafe(thread);
    if (result == CUDA_SUCCESS) *record = event_recorded(event);
    return result;
}

static CUresult event_query(const struct thread *thread, CUevent handle) {
    struct operation *record;
    CUresult result = event_ask(thread, handle, &record);
    if (result != CUDA_SUCCESS) return result;
    if (record != NULL && !operation_is_done(record)) result = CUDA_ERROR_NOT_READY;
    if (record != NULL && result == CUDA_SUCCESS) races_operation_observed(record);
    operation_drop(record);
    return result;
}
DRIVER_CALL(cuEventQuery, (CUevent event), event_query(thread, event))

static CUresult event_synchronize(const struct thread *thread, CUevent handle) {
    struct operation *record;
    const CUresult result = event_ask(thread, handle, &record);
    if (result != CUDA_SUCCESS) return result;
    if (record != NULL) {
        scheduler_wait(record);
        races_operation_observed(record);
    }
    operation_drop(record);
    pools_after_synchronize();
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuEventSynchronize, (CUevent event), event_synchronize(thread, event))

static CUresult elapsed_time(float *milliseconds, CUevent start_handle, CUevent end_handle) {
    struct event *start, *end;
    if (milliseconds == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = event_named(start_handle, &start);
    if (result == CUDA_SUCCESS) result = event_named(end_handle, &end);
    if (result != CUDA_SUCCESS) return result;
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 || start->context->device != end->context->device)
        return CUDA_ERROR_INVALID_HANDLE;
    struct operation *const first = event_recorded(start), *const last = event_recorded(end);
    if (first == NULL || last == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (!operation_is_done(first) || !operation_is_done(last))
        result = CUDA_ERROR_NOT_READY;
    else
        *milliseconds = (float)((double)(int64_t)(last->finished_ns - first->finished_ns) / 1e6);
    if (result == CUDA_SUCCESS) {
        races_operation_observed(first);
        races_operation_observed(last);
    }
    operation_drop(first);
    operation_drop(last);
    return result;
}
DRIVER_CALL(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end),
            elapsed_time(milliseconds, start, end))
DRIVER_CALL(cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end),
            elapsed_time(milliseconds, start, end))
