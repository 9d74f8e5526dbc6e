/* SPDX-License-Identifier: MIT
 *
 * Streams: their kinds, their order, what is asked of them.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "fixture.h"

static void kinds_and_wrong_arguments(void **state) {
    (void)state;
    CUstream stream;
    unsigned flags;
    int priority;
    fresh_context();
    CHECK_CODE(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
    CHECK(cuStreamGetPriority(stream, &priority));
    assert_int_equal(priority, -5);
    CHECK(cuStreamGetFlags(stream, &flags));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    CHECK(cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
    assert_int_equal(flags, 0);
}

static void dead_and_foreign_handles(void **state) {
    (void)state;
    fresh_context();
    CUstream stream = new_stream(0);
    CUevent event;
    CUstreamCaptureStatus status;
    unsigned long long id;
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuStreamDestroy(stream));
    CHECK_CODE(cuStreamDestroy(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamSynchronize(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamIsCapturing(stream, &status), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamGetId(stream, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuStreamDestroy(CU_STREAM_LEGACY), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuStreamQuery((CUstream)0x1234), CUDA_ERROR_INVALID_HANDLE);
}

static void a_handle_comes_back_and_its_id_does_not(void **state) {
    (void)state;
    unsigned long long first, second;
    fresh_context();
    CUstream stream = new_stream(0);
    CHECK(cuStreamGetId(stream, &first));
    CHECK(cuStreamDestroy(stream));
    CUstream again = new_stream(0);
    assert_ptr_equal(again, stream);
    CHECK(cuStreamGetId(again, &second));
    assert_int_not_equal(first, second);
}

static void *per_thread_id(void *context) {
    static unsigned long long id;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
    return &id;
}

static void ids_of_default_streams(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    unsigned long long zero, legacy, per_thread, again;
    pthread_t thread;
    void *other;
    CHECK(cuStreamGetId(NULL, &zero));
    CHECK(cuStreamGetId(CU_STREAM_LEGACY, &legacy));
    CHECK(cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread));
    CHECK(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
    assert_int_equal(zero, legacy);
    assert_int_not_equal(legacy, per_thread);
    assert_int_equal(per_thread, again);
    assert_int_equal(pthread_create(&thread, NULL, per_thread_id, context), 0);
    pthread_join(thread, &other);
    assert_int_not_equal(*(unsigned long long *)other, per_thread);
}

static void context_and_device_of_a_stream(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), second, found;
    CUgreenCtx green = (CUgreenCtx)state;
    CUdevice device;
    unsigned long long id;
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuCtxSetCurrent(second));
    CUstream stream = new_stream(0);
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuStreamGetCtx(stream, &found));
    assert_ptr_equal(found, second);
    CHECK(cuStreamGetCtx_v2(stream, &found, &green));
    assert_null(green);
    CHECK(cuStreamGetDevice(stream, &device));
    assert_int_equal(device, 1);
    CHECK(cuStreamGetDevice(NULL, &device));
    assert_int_equal(device, 0);
    CHECK(cuStreamGetCtx(NULL, &found));
    assert_ptr_equal(found, primary);
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuStreamGetId(stream, &id));
    CHECK_CODE(cuStreamGetCtx(NULL, &found), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void a_stream_is_a_queue(void **state) {
    (void)state;
    CUdeviceptr memory;
    unsigned char bytes[4];
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&memory, 4));
    CHECK(cuMemsetD8(memory, 9, 4));
    hold_stream(stream);
    CHECK(cuMemsetD8Async(memory, 1, 4, stream));
    CHECK(cuMemsetD8Async(memory, 2, 2, stream));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(bytes, memory, 4));
    assert_int_equal(bytes[0], 2);
    assert_int_equal(bytes[3], 1);
}

/* Does work on `later` wait for work on `earlier`? */
static bool waits_for(CUstream later, CUstream earlier) {
    const struct sim_kernel nothing = {0};
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    hold_stream(earlier);
    CHECK((CUresult)sim_launch(&nothing, later));
    CHECK(cuEventRecord(event, later));
    const CUresult answer = cuEventQuery(event);
    sim_release_kernels();
    CHECK(cuEventSynchronize(event));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(event));
    assert_true(answer == CUDA_SUCCESS || answer == CUDA_ERROR_NOT_READY);
    return answer == CUDA_ERROR_NOT_READY;
}

static void the_legacy_stream_orders_blocking_streams_only(void **state) {
    (void)state;
    fresh_context();
    CUstream blocking = new_stream(0), other = new_stream(0), free_running = new_stream(CU_STREAM_NON_BLOCKING);
    assert_true(waits_for(CU_STREAM_LEGACY, blocking));
    assert_true(waits_for(blocking, CU_STREAM_LEGACY));
    assert_true(waits_for(CU_STREAM_PER_THREAD, CU_STREAM_LEGACY));
    assert_true(waits_for(CU_STREAM_LEGACY, CU_STREAM_PER_THREAD));
    assert_false(waits_for(CU_STREAM_LEGACY, free_running));
    assert_false(waits_for(free_running, CU_STREAM_LEGACY));
    assert_false(waits_for(blocking, other));
    assert_false(waits_for(blocking, CU_STREAM_PER_THREAD));
}

static void a_destroyed_stream_finishes_its_work(void **state) {
    (void)state;
    CUdeviceptr memory;
    unsigned char byte = 0;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&memory, 1));
    hold_stream(stream);
    CHECK(cuMemsetD8Async(memory, 7, 1, stream));
    CHECK(cuStreamDestroy(stream));
    sim_release_kernels();
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&byte, memory, 1));
    assert_int_equal(byte, 7);
}

static void synchronise_of_the_legacy_stream_waits_for_blocking_ones(void **state) {
    (void)state;
    const struct sim_kernel kernel = {.microseconds = 10000};
    fresh_context();
    CUstream blocking = new_stream(0);
    CHECK((CUresult)sim_launch(&kernel, blocking));
    CHECK_CODE(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuStreamQuery(blocking));
    CHECK(cuStreamQuery(NULL));
}

static void *release_soon(void *unused) {
    usleep(20000);
    sim_release_kernels();
    return unused;
}

static void a_full_stream_blocks_the_submitter(void **state) {
    (void)state;
    enum { DEPTH = 1024 };
    const struct sim_kernel nothing = {0};
    pthread_t thread;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    hold_stream(stream);
    for (int i = 1; i < DEPTH; i++) CHECK((CUresult)sim_launch(&nothing, stream));
    assert_int_equal(sim_pending(NULL), DEPTH);
    assert_int_equal(pthread_create(&thread, NULL, release_soon, NULL), 0);
    CHECK((CUresult)sim_launch(&nothing, stream));
    CHECK(cuStreamSynchronize(stream));
    pthread_join(thread, NULL);
    assert_int_equal(sim_pending(NULL), 0);
}

static void streams_run_side_by_side(void **state) {
    (void)state;
    enum { STREAMS = 16 };
    CUstream streams[STREAMS];
    fresh_context();
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < STREAMS - 1; i++) hold_stream(streams[i]);
    const struct sim_kernel kernel = {.microseconds = 100};
    CHECK((CUresult)sim_launch(&kernel, streams[STREAMS - 1]));
    CHECK(cuStreamSynchronize(streams[STREAMS - 1]));
    CHECK_CODE(cuStreamQuery(streams[0]), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuCtxSynchronize());
}

static void a_stream_unseen_by_hooks_works_alike(void **state) {
    (void)state;
    void *stream;
    fresh_context();
    sim_reset_calls();
    CHECK((CUresult)sim_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamSynchronize(stream));
    CHECK((CUresult)sim_stream_destroy(stream));
    assert_int_equal(sim_calls("cuStreamCreate"), 0);
    assert_int_equal(sim_calls("cuStreamSynchronize"), 1);
}

static void kernel_fault_fails_the_context(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemFree(memory));
    const struct sim_range range = {.address = memory, .bytes = 16, .writes = true};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    CHECK((CUresult)sim_launch(&kernel, NULL));
    CHECK_CODE(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CODE(cuMemAlloc(&memory, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
    fresh_context();
    CHECK(cuMemAlloc(&memory, 4096));
}

static void a_kernel_reaches_a_peers_memory_only_when_enabled(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other;
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    const struct sim_range range = {.address = memory, .bytes = 4096};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    CHECK(cuCtxEnablePeerAccess(primary, 0));
    CHECK((CUresult)sim_launch(&kernel, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxDisablePeerAccess(primary));
    CHECK((CUresult)sim_launch(&kernel, NULL));
    CHECK_CODE(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(kinds_and_wrong_arguments),
    cmocka_unit_test(dead_and_foreign_handles),
    cmocka_unit_test(a_handle_comes_back_and_its_id_does_not),
    cmocka_unit_test(ids_of_default_streams),
    cmocka_unit_test(context_and_device_of_a_stream),
    cmocka_unit_test(a_stream_is_a_queue),
    cmocka_unit_test(the_legacy_stream_orders_blocking_streams_only),
    cmocka_unit_test(a_destroyed_stream_finishes_its_work),
    cmocka_unit_test(synchronise_of_the_legacy_stream_waits_for_blocking_ones),
    cmocka_unit_test(a_full_stream_blocks_the_submitter),
    cmocka_unit_test(streams_run_side_by_side),
    cmocka_unit_test(a_stream_unseen_by_hooks_works_alike),
    cmocka_unit_test(kernel_fault_fails_the_context),
    cmocka_unit_test(a_kernel_reaches_a_peers_memory_only_when_enabled),
};
TESTING_MAIN(tests)
