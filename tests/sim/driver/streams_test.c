/* SPDX-License-Identifier: MIT
 *
 * Streams: their kinds, their order, what is asked of them.
 */
#include <dlfcn.h>
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

static void CUDA_CB no_work(void *unused) {
    (void)unused;
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
    CUdeviceptr memory;
    CUcontext context;
    CUdevice device;
    CUgraph graph;
    unsigned flags;
    const struct sim_kernel nothing = {0};
    CHECK_CODE(cuStreamGetCtx(stream, &context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamGetDevice(stream, &device), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamGetFlags(stream, &flags), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuLaunchHostFunc(stream, no_work, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE((CUresult)sim_launch(&nothing, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuEventRecord(event, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuMemAllocAsync(&memory, 64, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuMemAllocAsync(&memory, 64, NULL));
    CHECK_CODE(cuMemFreeAsync(memory, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuMemFreeAsync(memory, NULL));
    CHECK(cuEventDestroy(event));
    CHECK_CODE(cuEventRecord(event, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuEventSynchronize(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuStreamWaitEvent(NULL, event, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
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

static void ids_through_the_per_thread_form(void **state) {
    (void)state;
    CUresult (*const get_id)(CUstream, unsigned long long *) =
        (CUresult(*)(CUstream, unsigned long long *))dlsym(RTLD_DEFAULT, "cuStreamGetId_ptsz");
    unsigned long long zero, legacy, per_thread, expected;
    fresh_context();
    CHECK(get_id(NULL, &zero));
    CHECK(get_id(CU_STREAM_LEGACY, &legacy));
    CHECK(get_id(CU_STREAM_PER_THREAD, &per_thread));
    CHECK(cuStreamGetId(CU_STREAM_PER_THREAD, &expected));
    assert_int_equal(zero, expected);
    assert_int_equal(per_thread, expected);
    CHECK(cuStreamGetId(NULL, &expected));
    assert_int_equal(legacy, expected);
}

static void *release_soon(void *unused) {
    usleep(20000);
    sim_release_kernels();
    return unused;
}

static void a_full_stream_blocks_a_graph_too(void **state) {
    (void)state;
    enum { DEPTH = 1024 };
    const struct sim_kernel nothing = {0};
    CUgraph graph;
    CUgraphExec exec;
    pthread_t thread;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    hold_stream(stream);
    for (int i = 1; i < DEPTH; i++) CHECK((CUresult)sim_launch(&nothing, stream));
    assert_int_equal(pthread_create(&thread, NULL, release_soon, NULL), 0);
    CHECK(cuGraphLaunch(exec, stream)); /* no sooner than the release */
    assert_true(sim_pending(NULL) < DEPTH);
    pthread_join(thread, NULL);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
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

static _Atomic(int) arrivals;

static void note_arrival(void *argument, void *const *pointers) {
    int *arrived;
    (void)pointers;
    memcpy(&arrived, argument, sizeof(arrived));
    *arrived = atomic_fetch_add(&arrivals, 1) + 1;
}

/* The device runs 128 things at once; only then does it matter who is first in the queue. */
static void the_higher_priority_goes_first_on_a_busy_device(void **state) {
    (void)state;
    enum { AT_ONCE = 128 };
    static int low_arrived, high_arrived;
    int *const low_place = &low_arrived, *const high_place = &high_arrived;
    CUstream low, high;
    fresh_context();
    CHECK(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, 0));
    CHECK(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, -5));
    const struct sim_kernel some_time = {.microseconds = 50000};
    for (int i = 1; i < AT_ONCE; i++) hold_stream(new_stream(CU_STREAM_NON_BLOCKING));
    CHECK((CUresult)sim_launch(&some_time, new_stream(CU_STREAM_NON_BLOCKING)));
    struct sim_kernel noted = {
        .microseconds = 1000, .run = note_arrival, .argument = &low_place, .argument_bytes = sizeof(low_place)};
    CHECK((CUresult)sim_launch(&noted, low));
    noted.argument = &high_place;
    CHECK((CUresult)sim_launch(&noted, high));
    CHECK(cuStreamSynchronize(low));
    sim_release_kernels();
    CHECK(cuCtxSynchronize());
    assert_int_equal(high_arrived, 1);
    assert_int_equal(low_arrived, 2);
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

/* The answer of a kernel in device 1's context that uses the memory, and of the context after it. */
static CUresult used_by_the_other(CUcontext other, CUdeviceptr memory, bool writes) {
    const struct sim_range range = {.address = memory, .bytes = 4096, .writes = writes};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    CHECK(cuCtxPushCurrent(other));
    CHECK((CUresult)sim_launch(&kernel, NULL));
    const CUresult answer = cuCtxSynchronize();
    CHECK(cuCtxPopCurrent(NULL));
    return answer;
}

static void a_kernel_reaches_a_pools_memory_as_the_pool_says(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other, second;
    CUmemoryPool pool;
    CUdeviceptr memory;
    CUmemAccess_flags flags;
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemAllocAsync(&memory, 4096, NULL));
    CHECK(cuCtxSynchronize());
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemPoolSetAccess(pool, &access, 1));
    CHECK(cuMemPoolGetAccess(&flags, pool, &access.location));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(used_by_the_other(other, memory, true));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CHECK(cuMemPoolSetAccess(pool, &access, 1));
    CHECK(cuCtxPushCurrent(other));
    CHECK(cuCtxEnablePeerAccess(primary, 0)); /* is for cuMemAlloc's memory, not a pool's */
    CHECK(cuCtxPopCurrent(NULL));
    CHECK_CODE(used_by_the_other(other, memory, false), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuDevicePrimaryCtxRelease(1));
    /* A second context of the memory's own device needs no leave. */
    CHECK(cuCtxCreate(&second, NULL, 0, 0));
    CHECK(used_by_the_other(second, memory, true));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuMemFreeAsync(memory, NULL));
}

static void peer_access_is_a_contexts_own(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other, second;
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuCtxEnablePeerAccess(primary, 0));
    CHECK(cuCtxCreate(&second, NULL, 0, 1));
    CHECK(used_by_the_other(other, memory, true));
    CHECK_CODE(used_by_the_other(second, memory, true), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(used_by_the_other(other, memory, true)); /* the failure is the other one's */
    CHECK(cuCtxDestroy(second));
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void access_is_that_of_the_time_when_a_kernel_runs(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other;
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    const struct sim_range range = {.address = memory, .bytes = 4096};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    hold_stream(stream);
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuCtxEnablePeerAccess(primary, 0));
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(kinds_and_wrong_arguments),
    cmocka_unit_test(dead_and_foreign_handles),
    cmocka_unit_test(a_handle_comes_back_and_its_id_does_not),
    cmocka_unit_test(ids_of_default_streams),
    cmocka_unit_test(ids_through_the_per_thread_form),
    cmocka_unit_test(context_and_device_of_a_stream),
    cmocka_unit_test(a_stream_is_a_queue),
    cmocka_unit_test(the_legacy_stream_orders_blocking_streams_only),
    cmocka_unit_test(a_destroyed_stream_finishes_its_work),
    cmocka_unit_test(synchronise_of_the_legacy_stream_waits_for_blocking_ones),
    cmocka_unit_test(a_full_stream_blocks_the_submitter),
    cmocka_unit_test(a_full_stream_blocks_a_graph_too),
    cmocka_unit_test(streams_run_side_by_side),
    cmocka_unit_test(the_higher_priority_goes_first_on_a_busy_device),
    cmocka_unit_test(a_stream_unseen_by_hooks_works_alike),
    cmocka_unit_test(kernel_fault_fails_the_context),
    cmocka_unit_test(a_kernel_reaches_a_peers_memory_only_when_enabled),
    cmocka_unit_test(a_kernel_reaches_a_pools_memory_as_the_pool_says),
    cmocka_unit_test(peer_access_is_a_contexts_own),
    cmocka_unit_test(access_is_that_of_the_time_when_a_kernel_runs),
};
TESTING_MAIN(tests)
