/* SPDX-License-Identifier: MIT
 *
 * The driver door for stream captures. A capture is announced to the pool before the driver begins it; it is known by
 * its stream until the driver says that it has ended, or its stream or context is destroyed.
 */
#include "entry/captures.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "device/driver.h"
#include "entry/process.h"

struct capture {
    struct capture *next;
    CUstream stream; /* CU_STREAM_PER_THREAD: that of `thread` in `context` */
    pthread_t thread;
    const void *context;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* never held across a call of the driver or the pool */
static struct capture *list;
static _Atomic unsigned announced; /* captures that the pool counts */

/* For when host memory has run out: what is announced must be found again when it ends. Under list_lock. */
enum { SPARES = 16 };
static struct capture spares[SPARES];
static bool spare_taken[SPARES];

static struct capture *capture_new(void) {
    const int error = errno;
    struct capture *capture = malloc(sizeof *capture);
    errno = error;
    if (capture) return capture;
    pthread_mutex_lock(&list_lock);
    for (unsigned i = 0; i < SPARES && !capture; i++) {
        if (spare_taken[i]) continue;
        spare_taken[i] = true;
        capture = &spares[i];
    }
    pthread_mutex_unlock(&list_lock);
    return capture;
}

static void capture_free(struct capture *capture) {
    if (capture < spares || capture >= spares + SPARES) {
        free(capture);
        return;
    }
    pthread_mutex_lock(&list_lock);
    spare_taken[capture - spares] = false;
    pthread_mutex_unlock(&list_lock);
}

bool captures_any(void) {
    return __builtin_expect(atomic_load_explicit(&announced, memory_order_acquire) != 0, 0);
}

static CUresult is_capturing(struct device_stream stream, CUstreamCaptureStatus *status) {
    const struct driver_functions *call = &process_driver()->call;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream.per_thread_default && call->stream_is_capturing_ptsz)
        return call->stream_is_capturing_ptsz(stream.handle, status);
    return call->stream_is_capturing ? call->stream_is_capturing(stream.handle, status) : CUDA_ERROR_NOT_FOUND;
}

/* ---- the list ---- */

static CUstream key_of(struct device_stream stream) {
    return stream.per_thread_default && !stream.handle ? CU_STREAM_PER_THREAD : (CUstream)stream.handle;
}

static const void *current_context(void) {
    struct device_context context = {0};
    return process_context(&context) == DEVICE_OK ? context.handle : NULL;
}

static bool matches(const struct capture *capture, CUstream stream, const void *context) {
    if (capture->stream != stream) return false;
    return stream != CU_STREAM_PER_THREAD ||
           (pthread_equal(capture->thread, pthread_self()) && capture->context == context);
}

/* Take the capture of a stream out of the list; NULL when it has none. */
static struct capture *take(struct device_stream stream) {
    const CUstream key = key_of(stream);
    const void *context = key == CU_STREAM_PER_THREAD ? current_context() : NULL;
    pthread_mutex_lock(&list_lock);
    struct capture **link = &list;
    while (*link && !matches(*link, key, context)) link = &(*link)->next;
    struct capture *found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&list_lock);
    return found;
}

static void put(struct capture *capture) {
    pthread_mutex_lock(&list_lock);
    capture->next = list;
    list = capture;
    pthread_mutex_unlock(&list_lock);
}

static void end_one(struct pool_system *pool, struct capture *capture) {
    capture_free(capture);
    atomic_fetch_sub(&announced, 1);
    pool_capture_end(pool);
}

void captures_forget_context(struct pool_system *pool, const void *context) {
    if (!captures_any()) return;
    pthread_mutex_lock(&list_lock);
    struct capture *ended = NULL;
    for (struct capture **link = &list; *link;) {
        struct capture *capture = *link;
        if (capture->context == context) {
            *link = capture->next;
            capture->next = ended;
            ended = capture;
        } else {
            link = &capture->next;
        }
    }
    pthread_mutex_unlock(&list_lock);
    while (ended) {
        struct capture *capture = ended;
        ended = capture->next;
        end_one(pool, capture);
    }
}

void captures_after_fork(void) {
    list_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    list = NULL;
    atomic_store(&announced, 0);
}

/* ---- begin ---- */

/* The stream's own context. Asked before the capture: to ask a capturing stream breaks its capture. */
static const void *context_of(struct device_stream stream) {
    const struct driver_functions *call = &process_driver()->call;
    CUstreamCaptureStatus status;
    CUcontext context = NULL;
    if (key_of(stream) == CU_STREAM_PER_THREAD || !call->stream_get_context ||
        is_capturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE ||
        call->stream_get_context(stream.handle, &context) != CUDA_SUCCESS)
        return current_context();
    return context;
}

/* Before the driver's call. When even the spare ones are taken, the capture is announced for good: memory can be had,
 * but nothing is proved idle any more. */
static struct capture *announce(struct pool_system *pool, struct device_stream stream) {
    if (!pool) return NULL;
    struct capture *capture = capture_new();
    if (capture)
        *capture = (struct capture){.stream = key_of(stream), .thread = pthread_self(), .context = context_of(stream)};
    atomic_fetch_add(&announced, 1);
    pool_capture_begin(pool);
    return capture;
}

static CUresult begun(CUresult result, struct pool_system *pool, struct capture *capture, struct device_stream stream) {
    if (!pool) return result;
    if (result != CUDA_SUCCESS) {
        end_one(pool, capture);
        return result;
    }
    /* The driver has begun a capture here, so an earlier one has ended without our notice. */
    struct capture *earlier = take(stream);
    if (earlier) end_one(pool, earlier);
    if (capture) put(capture);
    return result;
}

#define BEGIN(symbol, per_thread, values)                             \
    if (!symbols_driver() || !REAL(symbol)) return PROCESS_NO_DRIVER; \
    struct pool_system *pool = process_pool();                        \
    const struct device_stream where = {stream, per_thread};          \
    struct capture *capture = announce(pool, where);                  \
    return begun(REAL(symbol) values, pool, capture, where)

CUresult entry_cuStreamBeginCapture(CUstream stream) {
    BEGIN(cuStreamBeginCapture, false, (stream));
}

CUresult entry_cuStreamBeginCapture_ptsz(CUstream stream) {
    BEGIN(cuStreamBeginCapture_ptsz, true, (stream));
}

CUresult entry_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    BEGIN(cuStreamBeginCapture_v2, false, (stream, mode));
}

CUresult entry_cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
    BEGIN(cuStreamBeginCapture_v2_ptsz, true, (stream, mode));
}

CUresult entry_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges,
                                           size_t count, CUstreamCaptureMode mode) {
    BEGIN(cuStreamBeginCaptureToGraph, false, (stream, graph, nodes, edges, count, mode));
}

CUresult entry_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                                const void *edges, size_t count, CUstreamCaptureMode mode) {
    BEGIN(cuStreamBeginCaptureToGraph_ptsz, true, (stream, graph, nodes, edges, count, mode));
}

/* ---- end ---- */

/* Has the capture ended after an EndCapture that answered `result`? An answer that says nothing about captures (a bad
 * handle) is no reason to ask about the stream. */
static bool has_ended(CUresult result, struct device_stream stream) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) return true;
    if (result < CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || result > CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) return false;
    CUstreamCaptureStatus status;
    return is_capturing(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult ended(CUresult result, struct device_stream stream) {
    struct pool_system *pool = process_pool();
    if (!pool || !captures_any() || !has_ended(result, stream)) return result;
    struct capture *capture = take(stream);
    if (capture) end_one(pool, capture);
    return result;
}

CUresult entry_cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    if (!symbols_driver() || !REAL(cuStreamEndCapture)) return PROCESS_NO_DRIVER;
    return ended(REAL(cuStreamEndCapture)(stream, graph), (struct device_stream){stream, false});
}

CUresult entry_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    if (!symbols_driver() || !REAL(cuStreamEndCapture_ptsz)) return PROCESS_NO_DRIVER;
    return ended(REAL(cuStreamEndCapture_ptsz)(stream, graph), (struct device_stream){stream, true});
}

/* The handle may come back at once, in another thread: its capture is taken out of the list before. */
CUresult captures_destroy_stream(CUresult(CUDAAPI *real)(CUstream), CUstream stream) {
    struct pool_system *pool = captures_any() ? process_pool() : NULL;
    struct capture *capture = pool ? take((struct device_stream){stream, false}) : NULL;
    const CUresult result = real(stream);
    if (capture && result == CUDA_SUCCESS) {
        end_one(pool, capture);
    } else if (capture) {
        put(capture);
    }
    return result;
}
