/* SPDX-License-Identifier: MIT
 *
 * Many threads at once; above all for the thread sanitizer.
 */
#include <pthread.h>
#include <stdlib.h>

#include "fixture.h"

enum { THREADS = 4, ROUNDS = 150, BYTES = 4096 };

static CUcontext shared;

static void everyone(void *(*work)(void *)) {
    pthread_t threads[THREADS];
    shared = fresh_context();
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* Each thread fills memory of its own on its own stream, and finds there what it wrote. */
static void *fill_and_check(void *argument) {
    const unsigned char value = (unsigned char)(intptr_t)argument;
    unsigned char *host;
    CHECK(cuCtxSetCurrent(shared));
    CUstream stream = new_stream(value % 2 == 0 ? CU_STREAM_NON_BLOCKING : 0);
    CHECK(cuMemAllocHost((void **)&host, BYTES));
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr memory;
        CHECK(cuMemAllocAsync(&memory, BYTES, stream));
        CHECK(cuMemsetD8Async(memory, value, BYTES, stream));
        CHECK(cuMemcpyDtoHAsync(host, memory, BYTES, stream));
        CHECK(cuMemFreeAsync(memory, stream));
        CHECK(cuStreamSynchronize(stream));
        assert_int_equal(host[0], value);
        assert_int_equal(host[BYTES - 1], value);
        memset(host, 0, BYTES);
    }
    CHECK(cuMemFreeHost(host));
    CHECK(cuStreamDestroy(stream));
    return NULL;
}

static void streams_of_their_own(void **state) {
    (void)state;
    everyone(fill_and_check);
}

/* A buffer handed from stream to stream by events. */
static CUdeviceptr passed;
static CUevent handed_over;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *pass_on(void *argument) {
    const struct sim_kernel kernel = {.microseconds = 50};
    CHECK(cuCtxSetCurrent(shared));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&turn);
        CHECK(cuStreamWaitEvent(stream, handed_over, 0));
        CHECK((CUresult)sim_launch(&kernel, stream));
        CHECK(cuMemsetD8Async(passed, (unsigned char)(intptr_t)argument, 256 << 10, stream));
        CHECK(cuEventRecord(handed_over, stream));
        pthread_mutex_unlock(&turn);
    }
    CHECK(cuStreamSynchronize(stream));
    return NULL;
}

static void events_order_streams(void **state) {
    (void)state;
    unsigned char first = 0, last = 0;
    shared = fresh_context();
    CHECK(cuMemAlloc(&passed, 256 << 10));
    CHECK(cuEventCreate(&handed_over, CU_EVENT_DISABLE_TIMING));
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pass_on, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(cuMemcpyDtoH(&first, passed, 1));
    CHECK(cuMemcpyDtoH(&last, passed + (256 << 10) - 1, 1));
    assert_int_equal(first, last);
}

static void *synchronise_much(void *argument) {
    const struct sim_kernel kernel = {.microseconds = 20};
    CUevent event;
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        CHECK((CUresult)sim_launch(&kernel, stream));
        CHECK((CUresult)sim_launch(&kernel, CU_STREAM_PER_THREAD));
        CHECK((CUresult)sim_launch(&kernel, round % 8 == 0 ? CU_STREAM_LEGACY : stream));
        CHECK(cuCtxRecordEvent(shared, event));
        CHECK(cuStreamDestroy(stream));
        if (round % 3 == 0) CHECK(cuCtxSynchronize());
        CHECK(cuEventSynchronize(event));
    }
    CHECK(cuEventDestroy(event));
    return argument;
}

static void contexts_are_synchronised_from_all_sides(void **state) {
    (void)state;
    everyone(synchronise_much);
    CHECK(cuCtxSynchronize());
    assert_int_equal(sim_pending(NULL), 0);
}

static void *capture_and_allocate(void *argument) {
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    const struct sim_kernel kernel = {0};
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuThreadExchangeStreamCaptureMode(&relaxed));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr memory;
        CUgraph graph;
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK((CUresult)sim_launch(&kernel, stream));
        CHECK(cuMemAlloc(&memory, 100000));
        CHECK(cuMemFree(memory));
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
    }
    return argument;
}

static void captures_side_by_side(void **state) {
    (void)state;
    everyone(capture_and_allocate);
}

/* Graphs with memory of their own, and of what is around them; green contexts that come and go beside. */
static void *launch_graphs(void *argument) {
    const struct sim_kernel kernel = {.microseconds = 10};
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent forked, joined;
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuThreadExchangeStreamCaptureMode(&relaxed));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), side = new_stream(0);
    CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < ROUNDS / 4; round++) {
        CUdeviceptr memory;
        CUgraph graph;
        CUgraphExec exec;
        const bool left = round % 2 == 0;
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(cuMemAllocAsync(&memory, 3 << 20, stream));
        CHECK(cuEventRecord(forked, stream));
        CHECK(cuStreamWaitEvent(side, forked, 0));
        CHECK((CUresult)sim_launch(&kernel, side));
        CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
        CHECK(cuEventRecord(joined, side));
        CHECK(cuStreamWaitEvent(stream, joined, 0));
        if (!left) CHECK(cuMemFreeAsync(memory, stream));
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuGraphLaunch(exec, round % 4 == 0 ? CU_STREAM_PER_THREAD : stream));
        if (round % 8 == 0) CHECK(cuStreamSynchronize(stream));
        if (round % 3 == 0) CHECK(cuDeviceGraphMemTrim(0));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
        if (left) CHECK(cuMemFreeAsync(memory, round % 4 == 0 ? CU_STREAM_PER_THREAD : stream));
    }
    CHECK(cuEventDestroy(forked));
    CHECK(cuEventDestroy(joined));
    return argument;
}

static void *come_and_go_in_green(void *argument) {
    const struct sim_kernel kernel = {.microseconds = 10};
    CUdevResource all;
    CUdevResourceDesc description;
    CUevent event;
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevResourceGenerateDesc(&description, &all, 1));
    for (int round = 0; round < ROUNDS / 4; round++) {
        CUgreenCtx green;
        CUstream stream;
        CUcontext context;
        CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK(cuCtxFromGreenCtx(&context, green));
        CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        CHECK((CUresult)sim_launch(&kernel, stream));
        CHECK(cuGreenCtxWaitEvent(green, event));
        CHECK(cuCtxSetCurrent(context));
        CHECK((CUresult)sim_launch(&kernel, NULL));
        CHECK(cuGreenCtxRecordEvent(green, event));
        CHECK(cuCtxSetCurrent(shared));
        CHECK(cuGreenCtxDestroy(green));
    }
    CHECK(cuEventSynchronize(event));
    CHECK(cuEventDestroy(event));
    return argument;
}

static void *half_of_each(void *argument) {
    return (intptr_t)argument % 2 == 0 ? launch_graphs(argument) : come_and_go_in_green(argument);
}

static void graphs_and_green_contexts_side_by_side(void **state) {
    (void)state;
    everyone(half_of_each);
    CHECK(cuCtxSynchronize());
    assert_int_equal(sim_pending(NULL), 0);
    cuuint64_t used;
    CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    assert_int_equal(used, 0);
    CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &used));
    assert_int_equal(used, 0);
}

/* Threads come and go; their per-thread streams with them. */
static void *work_once(void *argument) {
    const struct sim_kernel kernel = {.microseconds = 10};
    CHECK(cuCtxSetCurrent(shared));
    CHECK((CUresult)sim_launch(&kernel, CU_STREAM_PER_THREAD));
    return argument;
}

static void threads_end_before_their_work(void **state) {
    (void)state;
    for (int round = 0; round < 30; round++) everyone(work_once);
    CHECK(cuCtxSynchronize());
    assert_int_equal(sim_pending(NULL), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(streams_of_their_own),
    cmocka_unit_test(events_order_streams),
    cmocka_unit_test(contexts_are_synchronised_from_all_sides),
    cmocka_unit_test(captures_side_by_side),
    cmocka_unit_test(graphs_and_green_contexts_side_by_side),
    cmocka_unit_test(threads_end_before_their_work),
};
TESTING_MAIN(tests)
