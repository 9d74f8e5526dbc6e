/* SPDX-License-Identifier: MIT
 *
 * Green contexts: what they are made of, whose their memory and events are, what covers their streams, their end.
 */
#include "fixture.h"

enum { PART = 16 };

static CUdevResourceDesc described(unsigned count) {
    CUdevResource all, part;
    CUdevResourceDesc description;
    unsigned parts = 1;
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevSmResourceSplitByCount(&part, &parts, &all, NULL, 0, count));
    CHECK(cuDevResourceGenerateDesc(&description, &part, 1));
    return description;
}

static CUgreenCtx new_green(void) {
    CUgreenCtx green;
    CHECK(cuGreenCtxCreate(&green, described(PART), 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static CUcontext context_of(CUgreenCtx green) {
    CUcontext context;
    CHECK(cuCtxFromGreenCtx(&context, green));
    return context;
}

static CUstream green_stream(CUgreenCtx green) {
    CUstream stream;
    CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

static CUevent new_event(void) {
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static void resources_are_split_and_described(void **state) {
    (void)state;
    CUdevResource all, parts[4], rest;
    CUdevResourceDesc description;
    unsigned count = 0;
    fresh_context();
    CHECK_CODE(cuDeviceGetDevResource(9, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CODE(cuDeviceGetDevResource(0, NULL, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_INVALID), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(all.sm.smCount, 132);
    CHECK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 33));
    assert_int_equal(count, 3); /* of 40 */
    count = 2;
    CHECK(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 33));
    assert_int_equal(parts[1].sm.smCount, 40);
    assert_int_equal(rest.sm.smCount, 132 - 80);
    count = 4;
    CHECK(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 33));
    assert_int_equal(count, 3);
    CHECK_CODE(cuDevSmResourceSplitByCount(NULL, &count, &parts[0], NULL, 0, 8),
               CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CHECK_CODE(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 133), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuDevResourceGenerateDesc(&description, parts, 3));
    const CUdevResource mixed[] = {parts[0], all};
    CHECK_CODE(cuDevResourceGenerateDesc(&description, (CUdevResource *)(void *)(uintptr_t)mixed, 2),
               CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CHECK_CODE(cuDevResourceGenerateDesc(&description, parts, 0), CUDA_ERROR_INVALID_VALUE);
}

static void wrong_arguments(void **state) {
    (void)state;
    CUgreenCtx green;
    CUstream stream;
    CUcontext context = fresh_context();
    CUdevResourceDesc description = described(PART);
    CHECK_CODE(cuGreenCtxCreate(NULL, description, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGreenCtxCreate(&green, description, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGreenCtxCreate(&green, description, 1, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGreenCtxCreate(&green, description, 9, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CODE(cuGreenCtxDestroy(NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuGreenCtxDestroy((CUgreenCtx)context), CUDA_ERROR_INVALID_CONTEXT);
    green = new_green();
    CHECK_CODE(cuGreenCtxStreamCreate(&stream, green, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGreenCtxStreamCreate(NULL, green, CU_STREAM_NON_BLOCKING, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuCtxFromGreenCtx(NULL, green), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuCtxDestroy(context_of(green)), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuGreenCtxDestroy(green));
    CHECK_CODE(cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void it_keeps_the_primary_context_alive(void **state) {
    (void)state;
    unsigned flags;
    int active;
    fresh_context();
    CHECK(cuDevicePrimaryCtxRelease(0));
    CUgreenCtx green = new_green();
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_true(active);
    CHECK(cuGreenCtxDestroy(green));
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_false(active);
}

static void memory_and_errors_are_the_primary_contexts(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), current, owner;
    CUdeviceptr memory;
    CUdevice device;
    CUgreenCtx green = new_green();
    CHECK(cuCtxPushCurrent(context_of(green)));
    CHECK(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, context_of(green));
    assert_ptr_not_equal(current, primary);
    CHECK(cuCtxGetDevice(&device));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    assert_ptr_equal(owner, primary);
    CHECK(cuCtxPopCurrent(NULL));
    CHECK(cuGreenCtxDestroy(green));
    CHECK(cuMemsetD8(memory, 1, 4096));
    CHECK(cuMemFree(memory));
}

static void streams_and_what_they_belong_to(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), context;
    CUgreenCtx green = new_green(), found;
    CUstream own, ordinary = new_stream(0), other;
    unsigned long long id, default_id, legacy_id, green_id;
    CHECK(cuStreamGetId(NULL, &legacy_id));
    own = green_stream(green);
    CHECK(cuStreamGetGreenCtx(own, &found));
    assert_ptr_equal(found, green);
    CHECK(cuStreamGetCtx_v2(own, &context, &found));
    assert_ptr_equal(context, primary);
    assert_ptr_equal(found, green);
    typedef CUresult old_form(CUstream, CUcontext *);
    void *function;
    CHECK(cuGetProcAddress("cuStreamGetCtx", &function, 9020, 0, NULL));
    CHECK(((old_form *)function)(own, &context));
    assert_ptr_equal(context, context_of(green));
    CHECK(cuStreamGetGreenCtx(ordinary, &found));
    assert_null(found);
    CHECK(cuStreamGetGreenCtx(NULL, &found));
    assert_null(found);
    CHECK_CODE(cuGreenCtxGetId(NULL, &id), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxPushCurrent(context_of(green)));
    CHECK(cuStreamGetGreenCtx(NULL, &found));
    assert_ptr_equal(found, green);
    CHECK(cuStreamGetId(NULL, &default_id));
    assert_int_not_equal(default_id, legacy_id);
    CHECK_CODE(cuStreamGetId(CU_STREAM_PER_THREAD, &id), CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuGreenCtxGetId(NULL, &green_id));
    CHECK(cuGreenCtxGetId(green, &id));
    assert_int_equal(green_id, id);
    other = new_stream(0);
    CHECK(cuStreamGetGreenCtx(other, &found));
    assert_ptr_equal(found, green);
    CHECK(cuCtxPopCurrent(NULL));
    CHECK(cuGreenCtxDestroy(green));
}

/* Is an event of the primary context, or of this green one, complete while the stream is held? */
static bool covers(CUgreenCtx recorded, CUstream stream) {
    CUevent event = new_event();
    hold_stream(stream);
    CHECK(recorded != NULL ? cuGreenCtxRecordEvent(recorded, event) : cuCtxRecordEvent(NULL, event));
    const CUresult answer = cuEventQuery(event);
    sim_release_kernels();
    CHECK(cuEventSynchronize(event));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(event));
    return answer == CUDA_ERROR_NOT_READY;
}

static void an_event_of_the_primary_context_covers_all_of_a_green_one_its_own(void **state) {
    (void)state;
    CUcontext primary = fresh_context();
    CUgreenCtx green = new_green(), other = new_green();
    CUstream own = green_stream(green), ordinary = new_stream(CU_STREAM_NON_BLOCKING);
    assert_true(covers(NULL, own));
    assert_true(covers(NULL, ordinary));
    assert_true(covers(green, own));
    assert_false(covers(green, ordinary));
    assert_false(covers(other, own));
    CUevent event = new_event();
    hold_stream(ordinary);
    CHECK(cuCtxRecordEvent(context_of(green), event));
    CHECK(cuEventQuery(event));
    CHECK(cuCtxPushCurrent(context_of(green)));
    hold_stream(NULL); /* the green one's own */
    CHECK(cuCtxRecordEvent(NULL, event));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK(cuCtxRecordEvent(primary, event));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuCtxPopCurrent(NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventQuery(event));
    CHECK(cuGreenCtxDestroy(green));
    CHECK(cuGreenCtxDestroy(other));
}

static void synchronise_of_a_green_context_waits_for_its_own(void **state) {
    (void)state;
    fresh_context();
    CUgreenCtx green = new_green();
    CUstream own = green_stream(green), ordinary = new_stream(CU_STREAM_NON_BLOCKING);
    const struct sim_kernel kernel = {.microseconds = 10000};
    hold_stream(ordinary);
    CHECK((CUresult)sim_launch(&kernel, own));
    CHECK(cuCtxPushCurrent(context_of(green)));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxPopCurrent(NULL));
    CHECK(cuStreamQuery(own));
    CHECK_CODE(cuStreamQuery(ordinary), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuCtxSynchronize());
    CHECK(cuGreenCtxDestroy(green));
}

static void a_green_context_waits_and_others_do_not(void **state) {
    (void)state;
    fresh_context();
    CUgreenCtx green = new_green();
    CUstream own = green_stream(green), ordinary = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream busy = new_stream(CU_STREAM_NON_BLOCKING);
    const struct sim_kernel nothing = {0};
    CUevent event = new_event();
    CHECK(cuGreenCtxWaitEvent(green, event)); /* never recorded */
    hold_stream(busy);
    CHECK(cuEventRecord(event, busy));
    CHECK(cuGreenCtxWaitEvent(green, event));
    CHECK((CUresult)sim_launch(&nothing, own));
    CHECK((CUresult)sim_launch(&nothing, ordinary));
    CHECK_CODE(cuStreamQuery(own), CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(ordinary));
    sim_release_kernels();
    CHECK(cuStreamSynchronize(own));
    CHECK(cuGreenCtxDestroy(green));
}

static void captures_conflict_with_their_own_context(void **state) {
    (void)state;
    CUgraph graph;
    CUstreamCaptureStatus status;
    fresh_context();
    CUgreenCtx green = new_green(), other = new_green();
    CUstream own = green_stream(green);
    CUevent event = new_event(), inside = new_event();
    for (int call = 0; call < 5; call++) {
        CHECK(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK(cuEventRecord(inside, own));
        CHECK(cuGreenCtxRecordEvent(other, event));
        CHECK(cuGreenCtxWaitEvent(other, event));
        CHECK(cuStreamIsCapturing(own, &status));
        assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CHECK_CODE(call == 0   ? cuGreenCtxRecordEvent(green, event)
                   : call == 1 ? cuGreenCtxWaitEvent(green, event)
                   : call == 2 ? cuCtxRecordEvent(NULL, event)
                   : call == 3 ? cuGreenCtxWaitEvent(other, inside)
                               : cuStreamGetGreenCtx(own, &(CUgreenCtx){NULL}),
                   call == 4 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK_CODE(cuStreamEndCapture(own, &graph), call == 4 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    CHECK(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CODE(cuStreamGetGreenCtx(own, &green), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CODE(cuStreamEndCapture(own, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuGreenCtxDestroy(green));
    CHECK(cuGreenCtxDestroy(other));
}

static void its_end_forgets_its_streams_and_not_their_work(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), context;
    CUdeviceptr memory;
    unsigned char byte;
    CUgreenCtx green = new_green();
    CUstream own = green_stream(green);
    CUevent event = new_event();
    context = context_of(green);
    CHECK(cuMemAlloc(&memory, 64));
    hold_stream(own);
    CHECK(cuMemsetD8Async(memory, 3, 64, own));
    CHECK(cuGreenCtxDestroy(green));
    CHECK_CODE(cuStreamQuery(own), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamDestroy(own), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuGreenCtxRecordEvent(green, event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuCtxRecordEvent(context, event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuCtxSetCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxRecordEvent(primary, event));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuEventSynchronize(event));
    CHECK(cuMemcpyDtoH(&byte, memory, 1));
    assert_int_equal(byte, 3);
}

static void a_reset_ends_it(void **state) {
    (void)state;
    CUcontext primary = fresh_context();
    CUstream stream;
    CUgreenCtx green = new_green();
    CUstream own = green_stream(green);
    CHECK(cuCtxSetCurrent(context_of(green)));
    CHECK(cuDevicePrimaryCtxReset(0));
    CHECK_CODE(cuStreamQuery(NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK_CODE(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamQuery(own), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuGreenCtxDestroy(green));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuStreamQuery(NULL));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(resources_are_split_and_described),
    cmocka_unit_test(wrong_arguments),
    cmocka_unit_test(it_keeps_the_primary_context_alive),
    cmocka_unit_test(memory_and_errors_are_the_primary_contexts),
    cmocka_unit_test(streams_and_what_they_belong_to),
    cmocka_unit_test(an_event_of_the_primary_context_covers_all_of_a_green_one_its_own),
    cmocka_unit_test(synchronise_of_a_green_context_waits_for_its_own),
    cmocka_unit_test(a_green_context_waits_and_others_do_not),
    cmocka_unit_test(captures_conflict_with_their_own_context),
    cmocka_unit_test(its_end_forgets_its_streams_and_not_their_work),
    cmocka_unit_test(a_reset_ends_it),
};
TESTING_MAIN(tests)
