/* SPDX-License-Identifier: MIT
 *
 * Stream capture: what begins and ends it, how streams join through events, what is refused meanwhile. Captured work
 * becomes the nodes of a graph, in the order that the streams and events give it.
 */
#include <stdlib.h>

#include "graph.h"

_Atomic(unsigned) capture_running;

static struct capture *captures; /* not ended; scheduler_lock */
static uint64_t capture_ids;     /* scheduler_lock */

/* Captures. Under scheduler_lock, as all of them. */

void capture_drop(struct capture *capture) {
    if (--capture->references > 0) return;
    if (capture->graph_is_own) graph_discard(capture->graph);
    free(capture);
}

static void stream_enter(struct stream *stream, struct capture *capture) {
    stream->capture = capture;
    capture->references++;
    stream->next_captured = capture->streams;
    capture->streams = stream;
}

/* Its streams are free again; events recorded in it go on pointing to it. */
static void capture_end(struct capture *capture) {
    struct capture **link = &captures;
    while (*link != capture) link = &(*link)->next;
    *link = capture->next;
    capture->ended = true;
    atomic_fetch_sub_explicit(&capture_running, 1, memory_order_release);
    capture->references++;
    while (capture->streams != NULL) {
        struct stream *const stream = capture->streams;
        capture->streams = stream->next_captured;
        stream->capture = NULL;
        node_list_clear(&stream->tail);
        capture_drop(capture);
    }
    capture_drop(capture);
}

/* A stream that is destroyed ends the capture it began, and invalidates one that it only joined. */
void capture_stream_gone(struct stream *stream) {
    struct capture *const capture = stream->capture;
    if (capture == NULL) return;
    if (capture->origin == stream) {
        capture_end(capture);
        return;
    }
    capture->invalidated = true;
    struct stream **link = &capture->streams;
    while (*link != stream) link = &(*link)->next_captured;
    *link = stream->next_captured;
    stream->capture = NULL;
    node_list_clear(&stream->tail);
    capture_drop(capture);
}

CUresult capture_join(struct stream *stream, struct capture *capture, const struct node_list *tail) {
    if (stream->capture != NULL && stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (capture->invalidated) return CUDA_ERROR_INVALID_VALUE;
    if (capture->ended) return CUDA_ERROR_CAPTURED_EVENT;
    if (stream->legacy) {
        capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture != NULL && stream->capture != capture) {
        stream->capture->invalidated = capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->capture == NULL) stream_enter(stream, capture);
    for (size_t i = 0; i < tail->count; i++)
        if (!node_list_add(&stream->tail, tail->nodes[i])) return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult capture_record(struct stream *stream, struct operation *operation) {
    struct capture *const capture = stream->capture;
    struct node *node = NULL;
    if (!capture->invalidated) {
        operation->context = stream->context;
        node = graph_add(capture->graph, operation, &stream->tail);
        if (node != NULL && node_list_add(&stream->tail, node)) return CUDA_SUCCESS;
    }
    if (node == NULL) operation_drop(operation);
    if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture->invalidated = true;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_or_submit(struct stream *stream, struct operation *operation, struct operation *const *after,
                           size_t count) {
    CUresult result = CUDA_SUCCESS;
    bool captured = false;
    if (UNLIKELY(atomic_load_explicit(&capture_running, memory_order_acquire) > 0)) {
        if (stream->legacy) result = capture_refuse_implicit(stream->context);
        pthread_mutex_lock(&scheduler_lock);
        captured = stream->capture != NULL;
        if (captured) result = capture_record(stream, operation);
        pthread_mutex_unlock(&scheduler_lock);
    }
    if (captured) return result;
    if (result == CUDA_SUCCESS) scheduler_submit(operation, stream, after, count);
    operation_drop(operation);
    return result;
}

/* Refusals. */

static bool is_forbidden_by(const struct thread *thread, const struct capture *capture) {
    const bool own = capture->thread == thread->id && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    switch (thread->capture_mode) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL:
        return own || capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL:
        return own;
    default:
        return false;
    }
}

CUresult capture_refuse_unsafe_slow(const struct thread *thread) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&scheduler_lock);
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        if (!is_forbidden_by(thread, capture)) continue;
        capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}

/* Which captures a call on a context conflicts with. */
enum scope { BLOCKING_OF_CONTEXT, ALL_OF_CONTEXT, ALL_OF_DEVICE };

static bool is_in_scope(const struct stream *stream, const struct context *context, const struct green *green,
                        enum scope scope) {
    switch (scope) {
    case BLOCKING_OF_CONTEXT:
        return stream->context == context && stream_is_blocking(stream);
    case ALL_OF_CONTEXT:
        return stream->context == context && (green == NULL || stream->green == green);
    default:
        return stream->context->device == context->device;
    }
}

/* Invalidates them; was there any? */
static bool invalidate(const struct context *context, const struct green *green, enum scope scope) {
    bool found = false;
    if (LIKELY(atomic_load_explicit(&capture_running, memory_order_acquire) == 0)) return false;
    pthread_mutex_lock(&scheduler_lock);
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        for (const struct stream *stream = capture->streams; stream != NULL; stream = stream->next_captured) {
            if (!is_in_scope(stream, context, green, scope)) continue;
            capture->invalidated = true;
            found = true;
        }
    }
    pthread_mutex_unlock(&scheduler_lock);
    return found;
}

CUresult capture_refuse_device(const struct context *context) {
    return invalidate(context, NULL, ALL_OF_DEVICE) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult capture_refuse_context(const struct context *context, const struct green *green) {
    return invalidate(context, green, ALL_OF_CONTEXT) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult capture_refuse_implicit(const struct context *context) {
    return invalidate(context, NULL, BLOCKING_OF_CONTEXT) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult capture_refuse_stream(struct stream *stream, bool mode_matters) {
    CUresult result = CUDA_SUCCESS;
    if (LIKELY(atomic_load_explicit(&capture_running, memory_order_acquire) == 0)) return CUDA_SUCCESS;
    pthread_mutex_lock(&scheduler_lock);
    struct capture *const capture = stream->capture;
    if (capture != NULL && !(mode_matters && capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)) {
        capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}

bool capture_is_running(const struct stream *stream) {
    if (LIKELY(atomic_load_explicit(&capture_running, memory_order_acquire) == 0)) return false;
    pthread_mutex_lock(&scheduler_lock);
    const bool capturing = stream->capture != NULL;
    pthread_mutex_unlock(&scheduler_lock);
    return capturing;
}

void capture_invalidate(struct stream *stream) {
    pthread_mutex_lock(&scheduler_lock);
    if (stream->capture != NULL) stream->capture->invalidated = true;
    pthread_mutex_unlock(&scheduler_lock);
}

CUresult capture_refuse_synchronous(const struct thread *thread, struct stream *stream) {
    if (LIKELY(atomic_load_explicit(&capture_running, memory_order_acquire) == 0)) return CUDA_SUCCESS;
    CUresult result = capture_refuse_stream(stream, false);
    if (result == CUDA_SUCCESS && stream->legacy) result = capture_refuse_implicit(stream->context);
    if (result == CUDA_SUCCESS) result = capture_refuse_unsafe_slow(thread);
    return result;
}

/* The calls. */

/* In a graph of its own, or after some nodes of one that there is; then it takes over the list of those. */
static CUresult capture_begin(struct stream *stream, const struct thread *thread, CUstreamCaptureMode mode,
                              struct graph *given, struct node_list *after) {
    struct capture *const capture = calloc(1, sizeof(*capture));
    if (capture == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    capture->graph = given != NULL ? given : graph_new();
    if (capture->graph == NULL) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->graph_is_own = given == NULL;
    capture->nodes_before = capture->graph->node_count;
    capture->id = ++capture_ids;
    capture->thread = thread->id;
    capture->mode = mode;
    capture->origin = stream;
    capture->next = captures;
    captures = capture;
    atomic_fetch_add_explicit(&capture_running, 1, memory_order_release);
    stream_enter(stream, capture);
    stream->tail = *after;
    return CUDA_SUCCESS;
}

static bool is_mode(CUstreamCaptureMode mode) {
    return (int)mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

static CUresult stream_begin_capture(struct thread *thread, CUstream handle, CUstreamCaptureMode mode) {
    struct stream *stream;
    struct node_list after = {NULL, 0};
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
    if (handle == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&scheduler_lock);
    result = stream->capture != NULL ? CUDA_ERROR_ILLEGAL_STATE : capture_begin(stream, thread, mode, NULL, &after);
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_STREAM_CALL(cuStreamBeginCapture, _ptsz, (CUstream stream),
                   stream_begin_capture(thread, STREAM(stream), CU_STREAM_CAPTURE_MODE_GLOBAL))
DRIVER_STREAM_CALL(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
                   stream_begin_capture(thread, STREAM(stream), mode))

static CUresult begin_capture_to_graph(struct thread *thread, CUstream handle, CUgraph graph_handle,
                                       const CUgraphNode *after_handles, size_t count, CUstreamCaptureMode mode) {
    struct stream *stream;
    struct graph *graph;
    struct node_list after;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!is_mode(mode) || graph_named(graph_handle, &graph) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    if (handle == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&scheduler_lock);
    result = graph_nodes_named(graph, after_handles, count, &after);
    if (result == CUDA_SUCCESS && stream->capture != NULL) result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS) result = capture_begin(stream, thread, mode, graph, &after);
    if (result != CUDA_SUCCESS) node_list_clear(&after);
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_STREAM_CALL(cuStreamBeginCaptureToGraph, _ptsz,
                   (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
                    size_t count, CUstreamCaptureMode mode),
                   ((void)edges, begin_capture_to_graph(thread, STREAM(stream), graph, after, count, mode)))

/* What the next work of the stream comes after, besides (ADD) or instead of (SET) what it would; what is left out by
 * that needs not be joined. */
static CUresult update_dependencies(struct thread *thread, CUstream handle, CUgraphNode *after_handles, size_t count,
                                    unsigned flags) {
    struct stream *stream;
    struct node_list after;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    struct capture *const capture = stream->capture;
    if (capture == NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (capture->invalidated)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else
        result = graph_nodes_named(capture->graph, after_handles, count, &after);
    if (result == CUDA_SUCCESS) {
        for (size_t i = 0; i < stream->tail.count && result == CUDA_SUCCESS; i++) {
            if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
                stream->tail.nodes[i]->followed = true;
            else if (!node_list_add(&after, stream->tail.nodes[i]))
                result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        node_list_clear(&stream->tail);
        stream->tail = after;
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_STREAM_CALL(cuStreamUpdateCaptureDependencies, _ptsz,
                   (CUstream stream, CUgraphNode *after, size_t count, unsigned flags),
                   update_dependencies(thread, STREAM(stream), after, count, flags))
DRIVER_STREAM_CALL(cuStreamUpdateCaptureDependencies_v2, _ptsz,
                   (CUstream stream, CUgraphNode *after, const CUgraphEdgeData *edges, size_t count, unsigned flags),
                   ((void)edges, update_dependencies(thread, STREAM(stream), after, count, flags)))

/* Every end of the recorded work must have come back to the origin. */
static bool is_joined(const struct capture *capture) {
    size_t place = 0;
    for (const struct node *node = capture->graph->nodes; node != NULL; node = node->next)
        if (place++ >= capture->nodes_before && !node->followed && !node_list_holds(&capture->origin->tail, node))
            return false;
    return true;
}

/* Ends the capture, whatever the answer. */
static CUresult capture_finish(struct capture *capture, CUgraph *graph) {
    CUresult result = CUDA_SUCCESS;
    if (capture->invalidated)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = NULL;
    if (result == CUDA_SUCCESS) {
        if (capture->graph_is_own) handle_publish(capture->graph);
        capture->graph_is_own = false;
        *graph = (CUgraph)capture->graph;
    }
    capture_end(capture);
    return result;
}

static CUresult stream_end_capture(struct thread *thread, CUstream handle, CUgraph *graph) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (graph == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    struct capture *const capture = stream->capture;
    if (capture == NULL) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (capture->origin != stream) {
        capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    } else if (capture->thread != thread->id && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else {
        result = capture_finish(capture, graph);
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_STREAM_CALL(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph),
                   stream_end_capture(thread, STREAM(stream), graph))

/* 906 for the legacy stream while a blocking one captures; asking harms nothing. Under scheduler_lock. */
static CUresult implicit_state(const struct stream *stream) {
    for (const struct stream *other = stream->context->streams; stream->legacy && other != NULL;
         other = other->following)
        if (stream_is_blocking(other) && other->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return CUDA_SUCCESS;
}

static CUstreamCaptureStatus status_of(const struct stream *stream) {
    if (stream->capture == NULL) return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult stream_is_capturing(struct thread *thread, CUstream handle, CUstreamCaptureStatus *status) {
    struct stream *stream;
    /* The driver looks into what it is given, and a process that gives it garbage ends there. */
    if (handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD)
        (void)*(volatile const char *)(const void *)handle;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (LIKELY(atomic_load_explicit(&capture_running, memory_order_acquire) == 0)) {
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&scheduler_lock);
    result = implicit_state(stream);
    if (result == CUDA_SUCCESS) *status = status_of(stream);
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_STREAM_CALL(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus *status),
                   stream_is_capturing(thread, STREAM(stream), status))

/* What a caller asked to know of a capture; NULL where it did not ask. */
struct capture_info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **dependencies;
    const CUgraphEdgeData **edges;
    size_t *count;
};

static CUresult stream_capture_info(struct thread *thread, CUstream handle, struct capture_info info) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (info.status == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    result = implicit_state(stream);
    if (result == CUDA_SUCCESS) *info.status = status_of(stream);
    if (result == CUDA_SUCCESS && *info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (info.id != NULL) *info.id = stream->capture->id;
        if (info.graph != NULL) *info.graph = (CUgraph)stream->capture->graph;
        if (info.dependencies != NULL) *info.dependencies = (const CUgraphNode *)(void *)stream->tail.nodes;
        if (info.edges != NULL) *info.edges = NULL;
        if (info.count != NULL) *info.count = stream->tail.count;
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_STREAM_CALL(cuStreamGetCaptureInfo, _ptsz, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
                   stream_capture_info(thread, STREAM(stream), (struct capture_info){.status = status, .id = id}))
DRIVER_STREAM_CALL(cuStreamGetCaptureInfo_v2, _ptsz,
                   (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                    const CUgraphNode **dependencies, size_t *count),
                   stream_capture_info(thread, STREAM(stream),
                                       (struct capture_info){status, id, graph, dependencies, NULL, count}))
DRIVER_STREAM_CALL(cuStreamGetCaptureInfo_v3, _ptsz,
                   (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                    const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count),
                   stream_capture_info(thread, STREAM(stream),
                                       (struct capture_info){status, id, graph, dependencies, edges, count}))

static CUresult exchange_mode(struct thread *thread, CUstreamCaptureMode *mode) {
    if (mode == NULL || (int)*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUstreamCaptureMode before = thread->capture_mode;
    thread->capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), exchange_mode(thread, mode))
