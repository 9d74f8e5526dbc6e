/* SPDX-License-Identifier: MIT
 *
 * Captures of every kind of stream, into graphs of their own and into others'; their order; streams that go away.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "fixture.h"

static void launch(CUstream stream) {
    const struct sim_kernel kernel = {0};
    CHECK((CUresult)sim_launch(&kernel, stream));
}

static CUstreamCaptureStatus status_of(CUstream stream) {
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)99;
    CHECK(cuStreamIsCapturing(stream, &status));
    return status;
}

static size_t nodes_of(CUgraph graph) {
    size_t count = 99;
    CHECK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static size_t edges_of(CUgraph graph) {
    size_t count = 99;
    CHECK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    return count;
}

static CUevent new_event(void) {
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static void every_kind_of_stream_captures(void **state) {
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    CUstream streams[5];
    void *unseen;
    fresh_context();
    streams[0] = new_stream(0);
    streams[1] = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuStreamCreateWithPriority(&streams[2], CU_STREAM_NON_BLOCKING, -3));
    streams[3] = CU_STREAM_PER_THREAD;
    CHECK((CUresult)sim_stream_create(&unseen, 0));
    streams[4] = unseen;
    for (int i = 0; i < 5; i++) {
        CHECK(cuStreamBeginCapture(streams[i], CU_STREAM_CAPTURE_MODE_GLOBAL));
        launch(streams[i]);
        assert_int_equal(status_of(streams[i]), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CHECK(cuStreamEndCapture(streams[i], &graph));
        assert_int_equal(nodes_of(graph), 1);
        CHECK(cuGraphInstantiate(&exec, graph, 0));
        CHECK(cuGraphLaunch(exec, streams[i]));
        CHECK(cuStreamSynchronize(streams[i]));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
    }
}

static void stream_zero_of_the_per_thread_form_captures(void **state) {
    (void)state;
    CUresult (*const begin)(CUstream, CUstreamCaptureMode) =
        (CUresult(*)(CUstream, CUstreamCaptureMode))dlsym(RTLD_DEFAULT, "cuStreamBeginCapture_v2_ptsz");
    CUresult (*const end)(CUstream, CUgraph *) =
        (CUresult(*)(CUstream, CUgraph *))dlsym(RTLD_DEFAULT, "cuStreamEndCapture_ptsz");
    CUresult (*const copy)(void *, CUdeviceptr, size_t) =
        (CUresult(*)(void *, CUdeviceptr, size_t))dlsym(RTLD_DEFAULT, "cuMemcpyDtoH_v2_ptds");
    CUgraph graph;
    CUdeviceptr memory;
    char byte;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(begin(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(status_of(CU_STREAM_PER_THREAD), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_CODE(copy(&byte, memory, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); /* on the capturing stream itself */
    CHECK_CODE(end(NULL, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* A copy on the per-thread stream is none of the legacy stream's. */
    CUstream stream = new_stream(0);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(copy(&byte, memory, 1));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_CODE(copy(&byte, memory, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void captures_go_into_a_graph_that_there_is(void **state) {
    (void)state;
    CUgraph graph, ended;
    CUgraphNode root, other, listed[4];
    size_t count = 4;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEmptyNode(&root, graph, NULL, 0));
    CHECK(cuGraphAddEmptyNode(&other, graph, NULL, 0)); /* nobody comes after it: not the capture's to join */
    const CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CHECK_CODE(cuStreamBeginCaptureToGraph(stream, NULL, &root, NULL, 1, mode), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 1, mode), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, (CUstreamCaptureMode)3),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamBeginCaptureToGraph(NULL, graph, &root, NULL, 1, mode), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cuStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, mode));
    CHECK_CODE(cuStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, mode), CUDA_ERROR_ILLEGAL_STATE);
    launch(stream);
    CHECK(cuStreamEndCapture(stream, &ended));
    assert_ptr_equal(ended, graph);
    CHECK(cuGraphGetNodes(graph, listed, &count));
    assert_int_equal(count, 3);
    CHECK(cuGraphNodeGetDependencies(listed[2], listed, NULL, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(listed[0], root);
    /* One that fails leaves the graph there. */
    CHECK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, mode));
    launch(stream);
    CHECK_CODE(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CODE(cuStreamEndCapture(stream, &ended), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_true(nodes_of(graph) >= 3);
    CHECK(cuGraphDestroy(graph));
}

static void what_comes_next_can_be_changed(void **state) {
    (void)state;
    CUstreamCaptureStatus status;
    CUgraph graph, other;
    CUgraphNode foreign, first;
    const CUgraphNode *after;
    size_t count;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuGraphCreate(&other, 0));
    CHECK(cuGraphAddEmptyNode(&foreign, other, NULL, 0));
    CHECK_CODE(cuStreamUpdateCaptureDependencies(stream, NULL, NULL, 0, 0), CUDA_ERROR_ILLEGAL_STATE);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(stream);
    CHECK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &after, NULL, &count));
    assert_int_equal(count, 1);
    first = after[0];
    launch(stream);
    CHECK_CODE(cuStreamUpdateCaptureDependencies(stream, &foreign, NULL, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamUpdateCaptureDependencies(stream, &first, NULL, 1, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamUpdateCaptureDependencies(stream, &first, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    CHECK(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &after, NULL, &count));
    assert_int_equal(count, 2);
    /* What is left out so needs no join. */
    CHECK(cuStreamUpdateCaptureDependencies(stream, &first, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    launch(stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    assert_int_equal(nodes_of(graph), 3);
    assert_int_equal(edges_of(graph), 2);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(other));
}

static void nodes_follow_their_streams_and_events(void **state) {
    (void)state;
    CUgraph graph;
    fresh_context();
    CUstream origin = new_stream(CU_STREAM_NON_BLOCKING), sides[3];
    CUevent forked = new_event(), joined[3];
    CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(origin);
    CHECK(cuEventRecord(forked, origin));
    launch(origin); /* the sides do not come after this one */
    for (int i = 0; i < 3; i++) {
        sides[i] = new_stream(i % 2 == 0 ? CU_STREAM_NON_BLOCKING : 0);
        joined[i] = new_event();
        CHECK(cuStreamWaitEvent(sides[i], forked, 0));
        launch(sides[i]);
        CHECK(cuEventRecord(joined[i], sides[i]));
    }
    for (int i = 0; i < 3; i++) CHECK(cuStreamWaitEvent(origin, joined[i], 0));
    launch(origin);
    CHECK(cuStreamEndCapture(origin, &graph));
    assert_int_equal(nodes_of(graph), 6);
    assert_int_equal(edges_of(graph), 1 + 3 + 4);
    CHECK(cuGraphDestroy(graph));
}

static void a_joined_stream_is_asked_no_more_than_the_first(void **state) {
    (void)state;
    unsigned long long id;
    CUgraph graph;
    fresh_context();
    CUstream origin = new_stream(CU_STREAM_NON_BLOCKING), side = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuStreamGetId(side, &id)); /* not yet joined */
    CHECK(cuEventRecord(event, origin));
    CHECK(cuStreamWaitEvent(side, event, 0));
    CHECK_CODE(cuStreamGetId(side, &id), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(status_of(origin), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_CODE(cuStreamEndCapture(origin, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(cuStreamGetId(side, &id));
}

static void a_context_does_not_wait_for_what_is_captured(void **state) {
    (void)state;
    CUgraph graph;
    CUcontext second;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuEventRecord(event, stream));
    CHECK_CODE(cuCtxWaitEvent(second, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_CODE(cuCtxWaitEvent(second, event), CUDA_ERROR_CAPTURED_EVENT);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void a_joined_stream_that_is_destroyed_breaks_the_capture(void **state) {
    (void)state;
    CUgraph graph;
    fresh_context();
    CUstream origin = new_stream(CU_STREAM_NON_BLOCKING), side = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(origin);
    CHECK(cuEventRecord(event, origin));
    CHECK(cuStreamWaitEvent(side, event, 0));
    launch(side);
    CHECK(cuStreamDestroy(side));
    CHECK_CODE(cuStreamEndCapture(origin, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void the_first_stream_that_is_destroyed_frees_the_joined(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CUstream origin = new_stream(CU_STREAM_NON_BLOCKING), side = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuEventRecord(event, origin));
    CHECK(cuStreamWaitEvent(side, event, 0));
    launch(side);
    CHECK(cuStreamDestroy(origin));
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
    launch(side);
    CHECK(cuStreamSynchronize(side));
    CHECK(cuMemAlloc(&memory, 64)); /* nothing captures any more */
}

static void *leave_a_capture(void *context) {
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(CU_STREAM_PER_THREAD);
    return NULL;
}

static void a_thread_that_ends_ends_its_streams_capture(void **state) {
    (void)state;
    CUdeviceptr memory;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, leave_a_capture, fresh_context()), 0);
    pthread_join(thread, NULL);
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(cuCtxSynchronize());
}

static void a_context_that_ends_ends_its_captures(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), created;
    CUgraph graph;
    CUdeviceptr memory;
    CHECK(cuCtxCreate(&created, NULL, 0, 0));
    CUstream stream = new_stream(0);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(stream);
    CHECK(cuCtxDestroy(created));
    CHECK(cuCtxSetCurrent(primary));
    CHECK_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(cuCtxSynchronize());
}

static void the_pool_that_was_named_is_the_nodes(void **state) {
    (void)state;
    CUmemoryPool pool;
    CUdeviceptr here, there;
    int device;
    CUgraph graph;
    fresh_context();
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CHECK(cuMemPoolCreate(&pool, &properties));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&here, 4096, stream));
    CHECK(cuMemAllocFromPoolAsync(&there, 4096, pool, stream));
    CHECK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, here));
    assert_int_equal(device, 0);
    CHECK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
    assert_int_equal(device, 1);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemPoolDestroy(pool));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_kind_of_stream_captures),
    cmocka_unit_test(stream_zero_of_the_per_thread_form_captures),
    cmocka_unit_test(captures_go_into_a_graph_that_there_is),
    cmocka_unit_test(what_comes_next_can_be_changed),
    cmocka_unit_test(nodes_follow_their_streams_and_events),
    cmocka_unit_test(a_joined_stream_is_asked_no_more_than_the_first),
    cmocka_unit_test(a_context_does_not_wait_for_what_is_captured),
    cmocka_unit_test(a_joined_stream_that_is_destroyed_breaks_the_capture),
    cmocka_unit_test(the_first_stream_that_is_destroyed_frees_the_joined),
    cmocka_unit_test(a_thread_that_ends_ends_its_streams_capture),
    cmocka_unit_test(a_context_that_ends_ends_its_captures),
    cmocka_unit_test(the_pool_that_was_named_is_the_nodes),
};
TESTING_MAIN(tests)
