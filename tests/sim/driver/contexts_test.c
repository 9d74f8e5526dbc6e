/* SPDX-License-Identifier: MIT
 *
 * Primary and created contexts, and which is current (SIM_DEVICES=2).
 */
#include <pthread.h>

#include "fixture.h"

static int is_active(CUdevice device) {
    unsigned flags;
    int active;
    CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    return active;
}

static void retain_starts_but_does_not_make_current(void **state) {
    (void)state;
    CUcontext context, current;
    fresh_context();
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuDevicePrimaryCtxRelease(0));
    assert_int_equal(is_active(0), 0);
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    assert_int_equal(is_active(0), 1);
    CHECK(cuCtxGetCurrent(&current));
    assert_null(current);
}

static void last_release_ends_it_and_one_more_answers_201(void **state) {
    (void)state;
    CUcontext context;
    fresh_context();
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuDevicePrimaryCtxRelease(0));
    assert_int_equal(is_active(0), 1);
    CHECK(cuDevicePrimaryCtxRelease(0));
    assert_int_equal(is_active(0), 0);
    CHECK_CODE(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

static void reset_keeps_the_handle_and_answers_709_until_a_retain(void **state) {
    (void)state;
    CUcontext context = fresh_context(), current, again;
    CUdeviceptr memory, other;
    unsigned version;
    CHECK(cuMemAlloc(&memory, 100));
    CHECK(cuDevicePrimaryCtxReset(0));
    CHECK(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, context);
    assert_int_equal(is_active(0), 0);
    CHECK_CODE(cuMemAlloc(&other, 100), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuMemFree(memory), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamQuery(NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuCtxGetApiVersion(context, &version), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuDevicePrimaryCtxRetain(&again, 0));
    assert_ptr_equal(again, context);
    CHECK_CODE(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAlloc(&other, 100));
}

static void reset_keeps_the_retain_count(void **state) {
    (void)state;
    CUcontext context;
    fresh_context();
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuDevicePrimaryCtxReset(0));
    CHECK(cuDevicePrimaryCtxRelease(0));
    CHECK(cuDevicePrimaryCtxRelease(0));
    CHECK_CODE(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void a_created_context_ends_with_the_last_detach(void **state) {
    (void)state;
    CUcontext context, attached = NULL, current;
    CUdeviceptr memory;
    fresh_context();
    CHECK_CODE(cuCtxAttach(&attached, 0), CUDA_ERROR_INVALID_CONTEXT); /* a primary one */
    CHECK(cuCtxCreate(&context, NULL, 0, 0));
    CHECK(cuMemAlloc(&memory, 100));
    CHECK_CODE(cuCtxAttach(&attached, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuCtxAttach(&attached, 0));
    assert_ptr_equal(attached, context);
    CHECK(cuCtxDetach(context));
    CHECK(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, context);
    CHECK(cuMemFree(memory));
    CHECK(cuCtxDetach(context));
    CHECK(cuCtxGetCurrent(&current));
    assert_ptr_not_equal(current, context);
    CHECK_CODE(cuCtxDetach(context), CUDA_ERROR_INVALID_CONTEXT);
}
#pragma GCC diagnostic pop

static void a_context_that_comes_back_has_a_new_id(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    unsigned long long before, after;
    CHECK(cuCtxGetId(context, &before));
    CHECK(cuDevicePrimaryCtxReset(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxGetId(NULL, &after));
    assert_int_not_equal(before, after);
}

static void without_a_current_context_201(void **state) {
    (void)state;
    CUdevice device;
    CUdeviceptr memory;
    unsigned long long id;
    size_t bytes;
    fresh_context();
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuCtxSetCurrent(NULL));
    CHECK_CODE(cuCtxPopCurrent(NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuCtxGetId(NULL, &id), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuMemAlloc(&memory, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuMemFree(0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuMemGetInfo(&bytes, NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuMemAllocAsync(&memory, 1, NULL), CUDA_ERROR_INVALID_CONTEXT);
}

static void push_and_pop(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), second, popped;
    CUdevice device;
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuCtxPushCurrent(second));
    CHECK(cuCtxGetDevice(&device));
    assert_int_equal(device, 1);
    CHECK(cuCtxPopCurrent(&popped));
    assert_ptr_equal(popped, second);
    CHECK(cuCtxGetCurrent(&popped));
    assert_ptr_equal(popped, primary);
    CHECK_CODE(cuCtxPushCurrent((CUcontext)0x1234), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuCtxSetCurrent((CUcontext)0x1234), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void a_created_context_is_current_and_its_end_pops_it(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), created, current;
    CUdeviceptr memory;
    CHECK(cuCtxCreate(&created, NULL, 0, 1));
    CHECK(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, created);
    CHECK(cuMemAlloc(&memory, 4 << 20));
    assert_int_equal(sim_bytes_in_use(1), 4 << 20);
    CHECK(cuCtxDestroy(created));
    CHECK(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, primary);
    assert_int_equal(sim_bytes_in_use(1), 0);
    CHECK_CODE(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuCtxDestroy(created), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuCtxSetCurrent(created), CUDA_ERROR_INVALID_CONTEXT);
}

static void a_primary_context_is_not_destroyed(void **state) {
    (void)state;
    CHECK_CODE(cuCtxDestroy(fresh_context()), CUDA_ERROR_INVALID_CONTEXT);
}

static void *destroy_context(void *context) {
    return (void *)(intptr_t)cuCtxDestroy((CUcontext)context);
}

static void a_thread_that_holds_a_dead_context_gets_709(void **state) {
    (void)state;
    CUcontext created, replacement;
    CUdeviceptr memory;
    pthread_t thread;
    void *answer;
    fresh_context();
    CHECK(cuCtxCreate(&created, NULL, 0, 0));
    assert_int_equal(pthread_create(&thread, NULL, destroy_context, created), 0);
    pthread_join(thread, &answer);
    assert_int_equal((intptr_t)answer, CUDA_SUCCESS);
    CHECK_CODE(cuMemAlloc(&memory, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuCtxPopCurrent(NULL));
    CHECK(cuCtxCreate(&replacement, NULL, 0, 0));
    assert_ptr_not_equal(replacement, created);
    CHECK(cuCtxDestroy(replacement));
}

static void versions_flags_and_limits(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    unsigned version, flags;
    size_t value;
    int least, greatest;
    CHECK(cuCtxGetApiVersion(context, &version));
    assert_int_equal(version, 3020);
    CHECK(cuCtxSetFlags(CU_CTX_SCHED_YIELD));
    CHECK(cuCtxGetFlags(&flags));
    assert_int_equal(flags, CU_CTX_SCHED_YIELD);
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    CHECK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    assert_int_equal(value, 4096);
    CHECK_CODE(cuCtxGetLimit(&value, CU_LIMIT_MAX), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    assert_int_equal(least, 0);
    assert_int_equal(greatest, -5);
}

static void peer_access_is_enabled_once(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other;
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_CODE(cuCtxEnablePeerAccess(primary, 0), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CODE(cuCtxDisablePeerAccess(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CHECK(cuCtxEnablePeerAccess(other, 0));
    CHECK_CODE(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CHECK(cuCtxDisablePeerAccess(other));
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void the_end_of_a_context_waits_for_its_work(void **state) {
    (void)state;
    CUcontext created;
    const struct sim_kernel kernel = {.microseconds = 20000};
    fresh_context();
    CHECK(cuCtxCreate(&created, NULL, 0, 0));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuCtxDestroy(created));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(retain_starts_but_does_not_make_current),
    cmocka_unit_test(last_release_ends_it_and_one_more_answers_201),
    cmocka_unit_test(reset_keeps_the_handle_and_answers_709_until_a_retain),
    cmocka_unit_test(reset_keeps_the_retain_count),
    cmocka_unit_test(a_created_context_ends_with_the_last_detach),
    cmocka_unit_test(a_context_that_comes_back_has_a_new_id),
    cmocka_unit_test(without_a_current_context_201),
    cmocka_unit_test(push_and_pop),
    cmocka_unit_test(a_created_context_is_current_and_its_end_pops_it),
    cmocka_unit_test(a_primary_context_is_not_destroyed),
    cmocka_unit_test(a_thread_that_holds_a_dead_context_gets_709),
    cmocka_unit_test(versions_flags_and_limits),
    cmocka_unit_test(peer_access_is_enabled_once),
    cmocka_unit_test(the_end_of_a_context_waits_for_its_work),
};
TESTING_MAIN(tests)
