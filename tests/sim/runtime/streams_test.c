/* SPDX-License-Identifier: MIT
 *
 * Streams, events and captures through the runtime, in both meanings of stream 0, and threads at once.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "fixture.h"

extern __typeof__(cudaStreamGetId) cudaStreamGetId_ptsz;
extern __typeof__(cudaStreamQuery) cudaStreamQuery_ptsz;
extern __typeof__(cudaLaunchHostFunc) cudaLaunchHostFunc_ptsz;
extern __typeof__(cudaStreamSynchronize) cudaStreamSynchronize_ptsz;

struct gate {
    pthread_mutex_t lock;
    _Atomic int passed;
};

static void pass(void *data) {
    struct gate *gate = data;
    pthread_mutex_lock(&gate->lock);
    atomic_fetch_add(&gate->passed, 1);
    pthread_mutex_unlock(&gate->lock);
}

static void events_follow_their_stream(void **state) {
    (void)state;
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    cudaStream_t one, other;
    cudaEvent_t event;
    CHECK_CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0));
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventQuery(event));
    pthread_mutex_lock(&gate.lock);
    CHECK_CUDA(cudaLaunchHostFunc(one, pass, &gate));
    CHECK_CUDA(cudaEventRecord(event, one));
    CHECK_CUDA(cudaStreamWaitEvent(other, event, 0));
    assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    assert_int_equal(cudaStreamQuery(other), cudaErrorNotReady);
    pthread_mutex_unlock(&gate.lock);
    CHECK_CUDA(cudaStreamSynchronize(other));
    assert_int_equal(atomic_load(&gate.passed), 1);
    CHECK_CUDA(cudaEventQuery(event));
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(one));
    CHECK_CUDA(cudaStreamDestroy(other));
}

static void elapsed_time_is_measured_between_events(void **state) {
    (void)state;
    cudaEvent_t start, end;
    float milliseconds = -1;
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&end));
    CHECK_CUDA(cudaEventRecord(start, NULL));
    CHECK_CUDA(cudaEventRecord(end, NULL));
    CHECK_CUDA(cudaEventSynchronize(end));
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
    assert_true(milliseconds >= 0);
    CHECK_FAILS(cudaEventElapsedTime(NULL, start, end), cudaErrorInvalidValue);
    CHECK_CUDA(cudaEventDestroy(start));
    CHECK_CUDA(cudaEventDestroy(end));
}

static void null_handles_are_refused(void **state) {
    (void)state;
    CHECK_FAILS(cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
    CHECK_FAILS(cudaEventQuery(NULL), cudaErrorInvalidResourceHandle);
    CHECK_FAILS(cudaEventRecord(NULL, NULL), cudaErrorInvalidResourceHandle);
    CHECK_FAILS(cudaStreamWaitEvent(NULL, NULL, 0), cudaErrorInvalidResourceHandle);
    CHECK_FAILS(cudaStreamCreate(NULL), cudaErrorInvalidValue);
    CHECK_FAILS(cudaLaunchHostFunc(NULL, NULL, NULL), cudaErrorInvalidValue);
}

static void stream_0_has_the_meaning_of_its_variant(void **state) {
    (void)state;
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    unsigned long long legacy, per_thread, named_legacy, named_per_thread;
    CHECK_CUDA(cudaStreamGetId(NULL, &legacy));
    CHECK_CUDA(cudaStreamGetId_ptsz(NULL, &per_thread));
    CHECK_CUDA(cudaStreamGetId(cudaStreamLegacy, &named_legacy));
    CHECK_CUDA(cudaStreamGetId(cudaStreamPerThread, &named_per_thread));
    assert_int_equal(legacy, named_legacy);
    assert_int_equal(per_thread, named_per_thread);
    assert_int_not_equal(legacy, per_thread);

    pthread_mutex_lock(&gate.lock);
    CHECK_CUDA(cudaLaunchHostFunc_ptsz(NULL, pass, &gate));
    assert_int_equal(cudaStreamQuery_ptsz(NULL), cudaErrorNotReady);
    pthread_mutex_unlock(&gate.lock);
    CHECK_CUDA(cudaStreamSynchronize_ptsz(NULL));
    assert_int_equal(atomic_load(&gate.passed), 1);
}

static void capture_makes_a_graph(void **state) {
    (void)state;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    void *pointer;
    enum cudaStreamCaptureStatus status;
    size_t nodes = 0;
    CHECK_CUDA(cudaMalloc(&pointer, 4096));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_CUDA(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    CHECK_CUDA(cudaMemsetAsync(pointer, 1, 4096, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    assert_non_null(graph);
    CHECK_CUDA(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusNone);
    CHECK_CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 1);
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(pointer));
}

static void allocation_in_a_capture_is_refused_unless_relaxed(void **state) {
    (void)state;
    cudaStream_t stream;
    cudaGraph_t graph = (cudaGraph_t)1;
    void *pointer;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeGlobal);
    CHECK_CUDA(cudaMalloc(&pointer, 4096));
    CHECK_CUDA(cudaFree(pointer));
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK_FAILS(cudaMalloc(&pointer, 4096), cudaErrorStreamCaptureUnsupported);
    CHECK_FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    assert_null(graph);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

enum { THREADS = 4, ROUNDS = 300 };

static void *work(void *failures) {
    for (int i = 0; i < ROUNDS; i++) {
        void *pointer, *ordered;
        int bad = cudaMalloc(&pointer, (size_t)(i % 7 + 1) * 1000) != cudaSuccess;
        bad += cudaMallocAsync(&ordered, 4096, cudaStreamPerThread) != cudaSuccess;
        bad += cudaMemsetAsync(ordered, i, 4096, cudaStreamPerThread) != cudaSuccess;
        bad += cudaFreeAsync(ordered, cudaStreamPerThread) != cudaSuccess;
        bad += cudaFree(pointer) != cudaSuccess;
        bad += cudaSetDevice(i % 2) != cudaSuccess;
        bad += cudaMalloc(NULL, 1) != cudaErrorInvalidValue || cudaGetLastError() != cudaErrorInvalidValue;
        atomic_fetch_add((_Atomic int *)failures, bad);
    }
    return NULL;
}

static void threads_work_at_once(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    _Atomic int failures = 0;
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &failures), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_work_at_once), /* first, so that they initialise at once too */
    cmocka_unit_test(events_follow_their_stream), cmocka_unit_test(elapsed_time_is_measured_between_events),
    cmocka_unit_test(null_handles_are_refused),   cmocka_unit_test(stream_0_has_the_meaning_of_its_variant),
    cmocka_unit_test(capture_makes_a_graph),      cmocka_unit_test(allocation_in_a_capture_is_refused_unless_relaxed),
};

TESTING_MAIN(tests)
