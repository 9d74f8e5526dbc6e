/* SPDX-License-Identifier: MIT
 *
 * Events: recording, asking, waiting, time; and those of a whole context.
 */
#include "fixture.h"

static CUevent new_event(unsigned flags) {
    CUevent event;
    CHECK(cuEventCreate(&event, flags));
    return event;
}

static void flags_and_dead_handles(void **state) {
    (void)state;
    CUevent event;
    fresh_context();
    CHECK_CODE(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuEventCreate(&event, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventDestroy(event));
    CHECK_CODE(cuEventDestroy(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuEventRecord(NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuEventQuery(NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuEventSynchronize(NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuEventDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuStreamWaitEvent(NULL, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
}

static void one_that_was_never_recorded_is_complete(void **state) {
    (void)state;
    fresh_context();
    CUevent event = new_event(0);
    CHECK(cuEventQuery(event));
    CHECK(cuEventSynchronize(event));
    CHECK(cuStreamWaitEvent(NULL, event, 0));
    CHECK_CODE(cuStreamWaitEvent(NULL, event, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamWaitEvent(NULL, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
}

static void a_record_is_ready_when_the_work_before_it_is(void **state) {
    (void)state;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event(0);
    hold_stream(stream);
    CHECK(cuEventRecord(event, stream));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuEventSynchronize(event));
    CHECK(cuEventQuery(event));
    CHECK(cuEventDestroy(event));
}

static void the_last_record_counts(void **state) {
    (void)state;
    fresh_context();
    CUstream busy = new_stream(CU_STREAM_NON_BLOCKING), idle = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    hold_stream(busy);
    CHECK(cuEventRecord(event, busy));
    CHECK(cuEventRecord(event, idle));
    CHECK(cuEventQuery(event));
    CHECK(cuEventRecord(event, busy));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuCtxSynchronize());
}

static void a_stream_waits_for_another(void **state) {
    (void)state;
    fresh_context();
    CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    hold_stream(first);
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(second, event, 0));
    CHECK_CODE(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    CHECK(cuEventDestroy(event));
    sim_release_kernels();
    CHECK(cuStreamSynchronize(second));
    CHECK(cuStreamQuery(first));
}

static void event_and_stream_of_different_contexts(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other;
    CUevent event = new_event(0);
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    CUstream stream = new_stream(0);
    CHECK_CODE(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuCtxSetCurrent(primary));
    CUstream busy = new_stream(CU_STREAM_NON_BLOCKING);
    hold_stream(busy);
    CHECK(cuEventRecord(event, busy));
    CHECK(cuStreamWaitEvent(stream, event, 0));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void elapsed_time(void **state) {
    (void)state;
    float milliseconds;
    const struct sim_kernel kernel = {.microseconds = 20000};
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent start = new_event(0), end = new_event(0), untimed = new_event(CU_EVENT_DISABLE_TIMING);
    CHECK_CODE(cuEventElapsedTime(NULL, start, end), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuEventElapsedTime(&milliseconds, NULL, end), CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuEventRecord(start, stream));
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuEventRecord(end, stream));
    CHECK(cuEventRecord(untimed, stream));
    CHECK_CODE(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
    CHECK(cuEventSynchronize(end));
    CHECK(cuEventElapsedTime(&milliseconds, start, end));
    assert_true(milliseconds >= 20);
    CHECK_CODE(cuEventElapsedTime(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
}

static void a_context_event_covers_every_stream(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    CUstream kinds[] = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, new_stream(0), new_stream(CU_STREAM_NON_BLOCKING),
                        NULL};
    CHECK((CUresult)sim_stream_create((void **)&kinds[4], CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        CHECK(cuCtxRecordEvent(context, event));
        CHECK(cuEventQuery(event));
        hold_stream(kinds[i]);
        CHECK(cuCtxRecordEvent(context, event));
        CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        sim_release_kernels();
        CHECK(cuEventSynchronize(event));
    }
}

static void a_context_event_covers_a_destroyed_stream(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    hold_stream(stream);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuCtxRecordEvent(context, event));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuEventSynchronize(event));
}

static void a_context_event_of_another_context_answers_400(void **state) {
    (void)state;
    CUcontext other;
    fresh_context();
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_CODE(cuCtxRecordEvent(other, event), CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void a_context_waits_for_an_event(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other;
    CUstream busy = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    hold_stream(busy);
    CHECK(cuEventRecord(event, busy));
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuCtxWaitEvent(other, event));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const struct sim_kernel nothing = {0};
    CHECK((CUresult)sim_launch(&nothing, stream));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(flags_and_dead_handles),
    cmocka_unit_test(one_that_was_never_recorded_is_complete),
    cmocka_unit_test(a_record_is_ready_when_the_work_before_it_is),
    cmocka_unit_test(the_last_record_counts),
    cmocka_unit_test(a_stream_waits_for_another),
    cmocka_unit_test(event_and_stream_of_different_contexts),
    cmocka_unit_test(elapsed_time),
    cmocka_unit_test(a_context_event_covers_every_stream),
    cmocka_unit_test(a_context_event_covers_a_destroyed_stream),
    cmocka_unit_test(a_context_event_of_another_context_answers_400),
    cmocka_unit_test(a_context_waits_for_an_event),
};
TESTING_MAIN(tests)
