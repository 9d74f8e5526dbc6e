/* SPDX-License-Identifier: MIT
 *
 * Stream capture: what begins and ends it, how streams join through events, what is refused meanwhile. Captured work
 * becomes the nodes of a graph, in the order that the streams and events give it.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { GRAPH_MAX = 65536 };

_Atomic(unsigned) capture_running;

static struct handle_table graph_table = HANDLE_TABLE(struct graph, GRAPH_MAX, false);
static struct capture *captures; /* not ended; scheduler_lock */
static uint64_t capture_ids;     /* scheduler_lock */

/* Lists of nodes. */

bool capture_tail_copy(struct node_list *to, const struct node_list *from) {
    *to = (struct node_list){NULL, 0};
    if (from->count == 0) return true;
    to->nodes = malloc(from->count * sizeof(struct node *));
    if (to->nodes == NULL) return false;
    memcpy(to->nodes, from->nodes, from->count * sizeof(struct node *));
    to->count = from->count;
    return true;
}

static bool list_holds(const struct node_list *list, const struct node *node) {
    for (size_t i = 0; i < list->count; i++)
        if (list->nodes[i] == node) return true;
    return false;
}

static bool list_add(struct node_list *list, struct node *node) {
    if (list_holds(list, node)) return true;
    struct node **const nodes = realloc(list->nodes, (list->count + 1) * sizeof(struct node *));
    if (nodes == NULL) return false;
    nodes[list->count++] = node;
    list->nodes = nodes;
    return true;
}

static void list_clear(struct node_list *list) {
    free(list->nodes);
    *list = (struct node_list){NULL, 0};
}

/* Graphs. */

static void graph_discard(struct graph *graph) {
    while (graph->nodes != NULL) {
        struct node *const node = graph->nodes;
        graph->nodes = node->next;
        if (node->operation != NULL && node->operation->kind == OPERATION_ALLOC)
            async_discard(node->operation->memory.address, node->operation->memory.buffer_id);
        operation_drop(node->operation);
        free(node->after);
        free(node);
    }
    handle_release(&graph_table, graph);
}

/* Takes over the list `after`. */
static struct node *graph_add(struct graph *graph, struct operation *operation, struct node_list *after) {
    struct node *const node = calloc(1, sizeof(*node));
    if (node == NULL) return NULL;
    node->operation = operation;
    node->after = after->nodes;
    node->after_count = after->count;
    *after = (struct node_list){NULL, 0};
    for (size_t i = 0; i < node->after_count; i++) node->after[i]->followed = true;
    if (graph->nodes == NULL) graph->end = &graph->nodes;
    *graph->end = node;
    graph->end = &node->next;
    graph->node_count++;
    return node;
}

/* Captures. Under scheduler_lock, as all of them. */

void capture_drop(struct capture *capture) {
    if (--capture->references > 0) return;
    if (capture->graph != NULL) graph_discard(capture->graph);
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
        list_clear(&stream->tail);
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
    list_clear(&stream->tail);
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
        if (!list_add(&stream->tail, tail->nodes[i])) return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

static CUresult capture_record(struct stream *stream, struct operation *operation) {
    struct capture *const capture = stream->capture;
    if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    operation->context = stream->context;
    struct node *const node = graph_add(capture->graph, operation, &stream->tail);
    if (node != NULL) operation_hold(operation);
    if (node == NULL || !list_add(&stream->tail, node)) {
        capture->invalidated = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
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
    if (!captured && result == CUDA_SUCCESS) scheduler_submit(operation, stream, after, count);
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

static bool is_in_scope(const struct stream *stream, const struct context *context, enum scope scope) {
    switch (scope) {
    case BLOCKING_OF_CONTEXT:
        return stream->context == context && stream_is_blocking(stream);
    case ALL_OF_CONTEXT:
        return stream->context == context;
    default:
        return stream->context->device == context->device;
    }
}

/* Invalidates them; was there any? */
static bool invalidate(const struct context *context, enum scope scope) {
    bool found = false;
    if (LIKELY(atomic_load_explicit(&capture_running, memory_order_acquire) == 0)) return false;
    pthread_mutex_lock(&scheduler_lock);
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        for (const struct stream *stream = capture->streams; stream != NULL; stream = stream->next_captured) {
            if (!is_in_scope(stream, context, scope)) continue;
            capture->invalidated = true;
            found = true;
        }
    }
    pthread_mutex_unlock(&scheduler_lock);
    return found;
}

CUresult capture_refuse_device(const struct context *context) {
    return invalidate(context, ALL_OF_DEVICE) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult capture_refuse_context(const struct context *context) {
    return invalidate(context, ALL_OF_CONTEXT) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult capture_refuse_implicit(const struct context *context) {
    return invalidate(context, BLOCKING_OF_CONTEXT) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
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

static CUresult capture_begin(struct stream *stream, const struct thread *thread, CUstreamCaptureMode mode) {
    struct capture *const capture = calloc(1, sizeof(*capture));
    struct graph *const graph = handle_new(&graph_table);
    if (capture == NULL || graph == NULL) {
        free(capture);
        if (graph != NULL) handle_release(&graph_table, graph);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->id = ++capture_ids;
    capture->thread = thread->id;
    capture->mode = mode;
    capture->origin = stream;
    capture->graph = graph;
    capture->next = captures;
    captures = capture;
    atomic_fetch_add_explicit(&capture_running, 1, memory_order_release);
    stream_enter(stream, capture);
    return CUDA_SUCCESS;
}

static CUresult stream_begin_capture(struct thread *thread, CUstream handle, CUstreamCaptureMode mode) {
    struct stream *stream;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if ((int)mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&scheduler_lock);
    result = stream->capture != NULL ? CUDA_ERROR_ILLEGAL_STATE : capture_begin(stream, thread, mode);
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_STREAM_CALL(cuStreamBeginCapture, _ptsz, (CUstream stream),
                   stream_begin_capture(thread, STREAM(stream), CU_STREAM_CAPTURE_MODE_GLOBAL))
DRIVER_STREAM_CALL(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
                   stream_begin_capture(thread, STREAM(stream), mode))

/* Every end of the recorded work must have come back to the origin. */
static bool is_joined(const struct capture *capture) {
    for (const struct node *node = capture->graph->nodes; node != NULL; node = node->next)
        if (!node->followed && !list_holds(&capture->origin->tail, node)) return false;
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
        handle_publish(capture->graph);
        *graph = (CUgraph)capture->graph;
        capture->graph = NULL;
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

static CUresult graph_get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    const CUresult result = handle_check(&graph_table, handle);
    if (result != CUDA_SUCCESS || count == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct graph *const graph = (const struct graph *)handle;
    if (nodes == NULL) {
        *count = graph->node_count;
        return CUDA_SUCCESS;
    }
    size_t written = 0;
    for (struct node *node = graph->nodes; node != NULL && written < *count; node = node->next)
        nodes[written++] = (CUgraphNode)node;
    for (size_t i = written; i < *count; i++) nodes[i] = NULL;
    *count = written;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count), graph_get_nodes(graph, nodes, count))

static CUresult graph_destroy(const struct thread *thread, CUgraph handle) {
    if (handle_state_of(&graph_table, handle) != HANDLE_LIVE) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    if (!handle_kill((void *)handle)) return CUDA_ERROR_INVALID_VALUE;
    graph_discard((struct graph *)handle);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphDestroy, (CUgraph graph), graph_destroy(thread, graph))
