/* SPDX-License-Identifier: MIT
 *
 * The last error of a thread, and the names and texts of the codes.
 */
#include <pthread.h>

#include "fixture.h"

static void failure_is_kept_until_it_is_taken(void **state) {
    (void)state;
    assert_int_equal(cudaMalloc(NULL, 16), cudaErrorInvalidValue);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void success_does_not_clear_a_failure(void **state) {
    (void)state;
    void *pointer;
    assert_int_equal(cudaMalloc(&pointer, SIZE_MAX / 2), cudaErrorMemoryAllocation);
    CHECK_CUDA(cudaMalloc(&pointer, 16));
    CHECK_CUDA(cudaFree(pointer));
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
}

static void next_failure_replaces_the_last(void **state) {
    (void)state;
    void *pointer;
    assert_int_equal(cudaMalloc(&pointer, SIZE_MAX / 2), cudaErrorMemoryAllocation);
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void block_the_stream(void *data) {
    pthread_mutex_lock(data);
    pthread_mutex_unlock(data);
}

static void not_ready_is_not_kept(void **state) {
    (void)state;
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    pthread_mutex_lock(&gate);
    CHECK_CUDA(cudaLaunchHostFunc(stream, block_the_stream, &gate));
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    pthread_mutex_unlock(&gate);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaStreamQuery(stream));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

static void *last_error_here(void *result) {
    *(cudaError_t *)result = cudaGetLastError();
    return NULL;
}

static void each_thread_has_its_own(void **state) {
    (void)state;
    pthread_t thread;
    cudaError_t there = cudaErrorUnknown;
    assert_int_equal(cudaMalloc(NULL, 16), cudaErrorInvalidValue);
    assert_int_equal(pthread_create(&thread, NULL, last_error_here, &there), 0);
    pthread_join(thread, NULL);
    assert_int_equal(there, cudaSuccess);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

static void codes_have_names_and_texts(void **state) {
    (void)state;
    static const struct {
        int code;
        const char *name, *text;
    } expected[] = {
        {0, "cudaSuccess", "no error"},
        {1, "cudaErrorInvalidValue", "invalid argument"},
        {2, "cudaErrorMemoryAllocation", "out of memory"},
        {4, "cudaErrorCudartUnloading", "driver shutting down"},
        {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
        {201, "cudaErrorDeviceUninitialized", "invalid device context"},
        {600, "cudaErrorNotReady", "device not ready"},
        {801, "cudaErrorNotSupported", "operation not supported"},
        {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
        {999, "cudaErrorUnknown", "unknown error"},
        {11, "unrecognized error code", "unrecognized error code"},
        {-1, "unrecognized error code", "unrecognized error code"},
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_string_equal(cudaGetErrorName((cudaError_t)expected[i].code), expected[i].name);
        assert_string_equal(cudaGetErrorString((cudaError_t)expected[i].code), expected[i].text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(failure_is_kept_until_it_is_taken), cmocka_unit_test(success_does_not_clear_a_failure),
    cmocka_unit_test(next_failure_replaces_the_last),    cmocka_unit_test(not_ready_is_not_kept),
    cmocka_unit_test(each_thread_has_its_own),           cmocka_unit_test(codes_have_names_and_texts),
};

TESTING_MAIN(tests)
