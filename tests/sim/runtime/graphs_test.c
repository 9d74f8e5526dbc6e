/* SPDX-License-Identifier: MIT
 *
 * Graphs through the runtime: captured and built, made ready, launched in both meanings of stream 0; their memory.
 */
#include "fixture.h"

enum { BYTES = 4096 };

__typeof__(cudaGraphLaunch) cudaGraphLaunch_ptsz;

static void CUDART_CB count_run(void *argument) {
    ++*(int *)argument;
}

static unsigned char byte_at(const void *pointer) {
    unsigned char byte;
    CHECK_CUDA(cudaMemcpy(&byte, pointer, 1, cudaMemcpyDeviceToHost));
    return byte;
}

static void a_captured_graph_runs_whenever_it_is_launched(void **state) {
    (void)state;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    void *pointer;
    int runs = 0;
    CHECK_CUDA(cudaMalloc(&pointer, BYTES));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_CUDA(cudaMemsetAsync(pointer, 7, BYTES, stream));
    CHECK_CUDA(cudaLaunchHostFunc(stream, count_run, &runs));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    assert_int_equal(runs, 0);
    CHECK_CUDA(cudaGraphUpload(executable, stream));
    for (int i = 1; i <= 3; i++) {
        CHECK_CUDA(cudaMemset(pointer, 0, BYTES));
        CHECK_CUDA(cudaGraphLaunch(executable, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        assert_int_equal(byte_at(pointer), 7);
        assert_int_equal(runs, i);
    }
    CHECK_CUDA(cudaGraphLaunch(executable, NULL));
    CHECK_CUDA(cudaGraphLaunch_ptsz(executable, NULL));
    CHECK_CUDA(cudaDeviceSynchronize());
    assert_int_equal(runs, 5);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_FAILS(cudaGraphExecDestroy(executable), cudaErrorInvalidValue);
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(pointer));
}

static void graphs_are_built_node_by_node(void **state) {
    (void)state;
    cudaGraph_t graph, child, found;
    cudaGraphNode_t fill, copy, host, node, listed[8], from[8], to[8];
    cudaGraphExec_t executable;
    cudaEvent_t event, found_event;
    enum cudaGraphNodeType type;
    char *pointer, *target;
    size_t count = 8;
    int runs = 0;
    struct cudaHostNodeParams asked;
    CHECK_CUDA(cudaMalloc((void **)&pointer, BYTES));
    CHECK_CUDA(cudaMalloc((void **)&target, BYTES));
    CHECK_CUDA(cudaMemset(target, 0, BYTES));
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    CHECK_CUDA(cudaGraphCreate(&child, 0));
    const struct cudaMemsetParams set = {.dst = pointer, .value = 3, .elementSize = 1, .width = BYTES, .height = 1};
    const struct cudaHostNodeParams call = {count_run, &runs};
    CHECK_CUDA(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &set));
    CHECK_CUDA(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, target, pointer, BYTES, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaGraphAddHostNode(&host, graph, &copy, 1, &call));
    CHECK_CUDA(cudaGraphAddEventRecordNode(&node, graph, &host, 1, event));
    CHECK_CUDA(cudaGraphEventRecordNodeGetEvent(node, &found_event));
    assert_ptr_equal(found_event, event);
    CHECK_CUDA(cudaGraphAddHostNode(&node, child, NULL, 0, &call));
    CHECK_CUDA(cudaGraphHostNodeGetParams(node, &asked));
    assert_ptr_equal(asked.userData, &runs);
    CHECK_CUDA(cudaGraphAddChildGraphNode(&node, graph, &host, 1, child));
    CHECK_CUDA(cudaGraphChildGraphNodeGetGraph(node, &found));
    CHECK_CUDA(cudaGraphAddEmptyNode(&node, graph, NULL, 0));
    CHECK_CUDA(cudaGraphNodeGetType(node, &type));
    assert_int_equal(type, cudaGraphNodeTypeEmpty);
    CHECK_CUDA(cudaGraphAddDependencies(graph, &node, &fill, NULL, 1));
    CHECK_CUDA(cudaGraphGetRootNodes(graph, listed, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(listed[0], node);
    count = 8;
    CHECK_CUDA(cudaGraphGetEdges(graph, from, to, NULL, &count));
    assert_int_equal(count, 5);
    CHECK_CUDA(cudaGraphNodeGetDependencies(copy, listed, NULL, &count));
    assert_int_equal(count, 1);
    CHECK_CUDA(cudaGraphNodeGetDependentNodes(host, listed, NULL, &count));
    assert_int_equal(count, 1); /* of two: there was room for one */
    CHECK_CUDA(cudaGraphRemoveDependencies(graph, &node, &fill, NULL, 1));
    CHECK_CUDA(cudaGraphDestroyNode(node));
    struct cudaKernelNodeParams kernel = {.func = (void *)byte_at, .gridDim = {1, 1, 1}, .blockDim = {1, 1, 1}};
    CHECK_FAILS(cudaGraphAddKernelNode(&node, graph, NULL, 0, &kernel), cudaErrorInvalidDeviceFunction);
    CHECK_FAILS(cudaGraphAddKernelNode(&node, graph, NULL, 0, NULL), cudaErrorInvalidValue);
    CHECK_CUDA(cudaGraphClone(&found, graph));
    CHECK_CUDA(cudaGraphNodeFindInClone(&node, host, found));
    CHECK_CUDA(cudaGraphInstantiateWithFlags(&executable, found, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, NULL));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaEventQuery(event));
    assert_int_equal(byte_at(target + BYTES - 1), 3);
    assert_int_equal(runs, 2);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(found));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaGraphDestroy(child));
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaFree(pointer));
    CHECK_CUDA(cudaFree(target));
}

static void one_call_adds_nodes_of_all_kinds(void **state) {
    (void)state;
    cudaGraph_t graph;
    cudaGraphNode_t node, last;
    cudaGraphExec_t executable;
    cudaGraphExecUpdateResultInfo outcome;
    cudaGraphInstantiateParams instantiate = {0};
    unsigned long long flags = 9;
    int runs = 0;
    struct cudaGraphNodeParams parameters = {.type = cudaGraphNodeTypeMemAlloc};
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    parameters.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    parameters.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
    parameters.alloc.bytesize = BYTES;
    CHECK_CUDA(cudaGraphAddNode(&last, graph, NULL, NULL, 0, &parameters));
    char *const pointer = parameters.alloc.dptr;
    parameters = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeMemset};
    parameters.memset.dst = pointer;
    parameters.memset.elementSize = parameters.memset.height = 1;
    parameters.memset.width = BYTES;
    CHECK_CUDA(cudaGraphAddNode(&node, graph, &last, NULL, 1, &parameters));
    parameters = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeMemcpy};
    parameters.memcpy.copyParams.extent = (struct cudaExtent){64, 1, 1};
    parameters.memcpy.copyParams.kind = cudaMemcpyDeviceToDevice;
    parameters.memcpy.copyParams.srcPtr = (struct cudaPitchedPtr){pointer, 64, 64, 1};
    parameters.memcpy.copyParams.dstPtr = (struct cudaPitchedPtr){pointer + 64, 64, 64, 1};
    CHECK_CUDA(cudaGraphAddNode(&last, graph, &node, NULL, 1, &parameters));
    parameters = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeHost};
    parameters.host.fn = count_run;
    parameters.host.userData = &runs;
    CHECK_CUDA(cudaGraphAddNode(&node, graph, &last, NULL, 1, &parameters));
    parameters = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeMemFree};
    parameters.free.dptr = pointer;
    CHECK_CUDA(cudaGraphAddNode(&last, graph, &node, NULL, 1, &parameters));
    parameters = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeEmpty};
    CHECK_CUDA(cudaGraphAddNode(&node, graph, &last, NULL, 1, &parameters));
    parameters = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeConditional};
    CHECK_FAILS(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &parameters), cudaErrorNotSupported);
    CHECK_CUDA(cudaGraphInstantiateWithParams(&executable, graph, &instantiate));
    assert_int_equal(instantiate.result_out, cudaGraphInstantiateSuccess);
    CHECK_CUDA(cudaGraphExecGetFlags(executable, &flags));
    assert_int_equal(flags, 0);
    CHECK_CUDA(cudaGraphLaunch(executable, NULL));
    CHECK_CUDA(cudaDeviceSynchronize());
    assert_int_equal(runs, 1);
    CHECK_FAILS(cudaGraphExecUpdate(executable, graph, &outcome), cudaErrorGraphExecUpdateFailure);
    assert_int_equal(outcome.result, cudaGraphExecUpdateErrorNotSupported);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
}

static unsigned long long used(void) {
    unsigned long long bytes = 0;
    CHECK_CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes));
    return bytes;
}

static void memory_of_a_graph_is_freed_by_a_call_or_a_launch(void **state) {
    (void)state;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    void *pointer;
    unsigned long long zero = 0;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_CUDA(cudaMallocAsync(&pointer, BYTES, stream));
    CHECK_CUDA(cudaMemsetAsync(pointer, 1, BYTES, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_FAILS(cudaFree(pointer), cudaErrorInvalidValue); /* not launched */
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_FAILS(cudaGraphLaunch(executable, stream), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFreeAsync(pointer, stream));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    assert_true(used() >= BYTES);
    CHECK_CUDA(cudaFree(pointer));
    assert_int_equal(used(), 0);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int i = 0; i < 3; i++) CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaFree(pointer));
    CHECK_CUDA(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
    CHECK_CUDA(cudaDeviceGraphMemTrim(0));
    CHECK_FAILS(cudaDeviceGraphMemTrim(9), cudaErrorInvalidDevice);
    CHECK_FAILS(cudaDeviceGetGraphMemAttribute(9, cudaGraphMemAttrUsedMemHigh, &zero), cudaErrorInvalidDevice);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

static void captures_add_to_a_graph_and_may_choose_what_comes_next(void **state) {
    (void)state;
    cudaStream_t stream;
    cudaGraph_t graph, ended;
    cudaGraphNode_t root;
    cudaEvent_t event;
    cudaGraphExec_t executable;
    size_t count = 0;
    int runs = 0;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    CHECK_CUDA(cudaGraphAddEmptyNode(&root, graph, NULL, 0));
    CHECK_CUDA(cudaStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, cudaStreamCaptureModeGlobal));
    CHECK_CUDA(cudaLaunchHostFunc(stream, count_run, &runs));
    CHECK_CUDA(cudaStreamUpdateCaptureDependencies(stream, &root, NULL, 1, cudaStreamAddCaptureDependencies));
    CHECK_CUDA(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
    CHECK_CUDA(cudaStreamEndCapture(stream, &ended));
    assert_ptr_equal(ended, graph);
    CHECK_CUDA(cudaGraphGetEdges(graph, NULL, NULL, NULL, &count));
    assert_int_equal(count, 3);
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaEventSynchronize(event));
    assert_int_equal(runs, 1);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_captured_graph_runs_whenever_it_is_launched),
    cmocka_unit_test(graphs_are_built_node_by_node),
    cmocka_unit_test(one_call_adds_nodes_of_all_kinds),
    cmocka_unit_test(memory_of_a_graph_is_freed_by_a_call_or_a_launch),
    cmocka_unit_test(captures_add_to_a_graph_and_may_choose_what_comes_next),
};

TESTING_MAIN(tests)
