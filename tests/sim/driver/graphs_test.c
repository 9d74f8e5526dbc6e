/* SPDX-License-Identifier: MIT
 *
 * Graphs: built node by node or captured, made ready, launched; their order with other work and among themselves.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "fixture.h"

enum { BYTES = 4096 };

static CUdeviceptr block_of(unsigned char value) {
    CUdeviceptr block;
    CHECK(cuMemAlloc(&block, BYTES));
    CHECK(cuMemsetD8(block, value, BYTES));
    return block;
}

static unsigned char byte_at(CUdeviceptr address) {
    unsigned char byte;
    CHECK(cuMemcpyDtoH(&byte, address, 1));
    return byte;
}

static CUgraph new_graph(void) {
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    return graph;
}

static CUgraphExec ready(CUgraph graph) {
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static CUgraphNode fill_node(CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr block, unsigned value,
                             size_t bytes) {
    CUgraphNode node;
    CUcontext context;
    const CUDA_MEMSET_NODE_PARAMS parameters = {
        .dst = block, .value = value, .elementSize = 1, .width = bytes, .height = 1};
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuGraphAddMemsetNode(&node, graph, after, count, &parameters, context));
    return node;
}

static CUgraphNode empty_node(CUgraph graph, const CUgraphNode *after, size_t count) {
    CUgraphNode node;
    CHECK(cuGraphAddEmptyNode(&node, graph, after, count));
    return node;
}

/* One on the host that notes when it ran. */
struct step {
    _Atomic(int) *clock;
    int at, runs;
};

static void CUDA_CB note_step(void *argument) {
    struct step *const step = argument;
    step->at = atomic_fetch_add(step->clock, 1) + 1;
    step->runs++;
}

static CUgraphNode step_node(CUgraph graph, const CUgraphNode *after, size_t count, struct step *step) {
    CUgraphNode node;
    const CUDA_HOST_NODE_PARAMS parameters = {note_step, step};
    CHECK(cuGraphAddHostNode(&node, graph, after, count, &parameters));
    return node;
}

static CUgraphNodeType type_of(CUgraphNode node) {
    CUgraphNodeType type = (CUgraphNodeType)99;
    CHECK(cuGraphNodeGetType(node, &type));
    return type;
}

/* Building. */

static void wrong_arguments(void **state) {
    (void)state;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUgraphNodeType type;
    size_t count;
    fresh_context();
    CHECK_CODE(cuGraphCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
    graph = new_graph();
    const CUgraphNode first = empty_node(graph, NULL, 0);
    const CUgraphNode twice[] = {first, first};
    CHECK_CODE(cuGraphAddEmptyNode(NULL, graph, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddEmptyNode(&node, graph, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddEmptyNode(&node, graph, twice, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddEmptyNode(&node, NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CUgraph other = new_graph();
    CHECK_CODE(cuGraphAddEmptyNode(&node, other, &first, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddHostNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddEventRecordNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphGetNodes(graph, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphNodeGetType(first, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphGetNodes(other, NULL, &count));
    assert_int_equal(count, 0);
    CHECK_CODE(cuGraphInstantiate(NULL, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphInstantiate(&exec, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphInstantiate(&exec, graph, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphLaunch(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphExecDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
    exec = ready(graph);
    CHECK(cuGraphExecDestroy(exec));
    CHECK_CODE(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphDestroy(graph));
    CHECK_CODE(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphNodeGetType(first, &type), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphDestroy(other));
}

static void nodes_edges_and_types(void **state) {
    (void)state;
    CUgraphNode listed[4], from[4], to[4];
    size_t count = 4;
    fresh_context();
    const CUdeviceptr block = block_of(0);
    CUgraph graph = new_graph();
    const CUgraphNode root = empty_node(graph, NULL, 0);
    const CUgraphNode left = fill_node(graph, &root, 1, block, 1, 8), right = fill_node(graph, &root, 1, block, 1, 8);
    CHECK(cuGraphGetNodes(graph, listed, &count));
    assert_int_equal(count, 3);
    assert_ptr_equal(listed[0], root);
    assert_null(listed[3]);
    count = 1;
    CHECK(cuGraphGetNodes(graph, listed, &count));
    assert_int_equal(count, 1);
    CHECK(cuGraphGetRootNodes(graph, NULL, &count));
    assert_int_equal(count, 1);
    count = 4;
    CHECK(cuGraphGetEdges(graph, from, to, NULL, &count));
    assert_int_equal(count, 2);
    assert_ptr_equal(from[1], root);
    assert_ptr_equal(to[1], right);
    assert_null(to[2]);
    CHECK_CODE(cuGraphGetEdges(graph, from, NULL, NULL, &count), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(type_of(root), CU_GRAPH_NODE_TYPE_EMPTY);
    assert_int_equal(type_of(left), CU_GRAPH_NODE_TYPE_MEMSET);
    CHECK(cuGraphNodeGetDependentNodes(root, NULL, NULL, &count));
    assert_int_equal(count, 2);
    CHECK(cuGraphNodeGetDependencies(left, listed, NULL, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(listed[0], root);
    CHECK(cuGraphDestroyNode(root));
    CHECK(cuGraphGetRootNodes(graph, NULL, &count));
    assert_int_equal(count, 2);
    CHECK(cuGraphDestroyNode(right));
    const CUgraphNode last = empty_node(graph, NULL, 0);
    count = 4;
    CHECK(cuGraphGetNodes(graph, listed, &count));
    assert_int_equal(count, 2);
    assert_ptr_equal(listed[1], last);
    CHECK(cuGraphDestroy(graph));
}

static void nodes_in_a_circle_cannot_be_instantiated(void **state) {
    (void)state;
    CUgraphExec exec;
    fresh_context();
    CUgraph graph = new_graph();
    const CUgraphNode first = empty_node(graph, NULL, 0), second = empty_node(graph, &first, 1);
    CHECK(cuGraphAddDependencies(graph, &second, &first, NULL, 1));
    CHECK_CODE(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphRemoveDependencies(graph, &second, &first, NULL, 1));
    CHECK_CODE(cuGraphRemoveDependencies(graph, &second, &first, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddDependencies(graph, &first, &second, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddDependencies(graph, &first, &first, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void every_kind_of_node_by_one_call(void **state) {
    (void)state;
    CUgraphNode node;
    CUmodule module;
    CUevent event, found;
    CUDA_HOST_NODE_PARAMS host;
    CUcontext context = fresh_context();
    const CUdeviceptr block = block_of(0), other = block_of(5);
    _Atomic(int) clock = 0;
    struct step step = {.clock = &clock};
    CUgraph graph = new_graph(), child = new_graph();
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuModuleLoadData(&module, "image"));
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    CHECK(cuModuleGetFunction(&parameters.kernel.func, module, "kernel"));
    CHECK_CODE(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters), CUDA_ERROR_INVALID_VALUE);
    parameters.kernel.gridDimX = parameters.kernel.gridDimY = parameters.kernel.gridDimZ = 1;
    parameters.kernel.blockDimX = parameters.kernel.blockDimY = parameters.kernel.blockDimZ = 1;
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    assert_int_equal(type_of(node), CU_GRAPH_NODE_TYPE_KERNEL);
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    parameters.memcpy.copyCtx = context;
    parameters.memcpy.copyParams = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                                   .srcDevice = other,
                                                   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                                   .dstDevice = block,
                                                   .WidthInBytes = 8,
                                                   .Height = 1,
                                                   .Depth = 1};
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    assert_int_equal(type_of(node), CU_GRAPH_NODE_TYPE_MEMCPY);
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET};
    parameters.memset.dst = block + 16;
    parameters.memset.elementSize = 2;
    parameters.memset.value = 0x0707;
    parameters.memset.width = parameters.memset.height = 1;
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST};
    parameters.host.fn = note_step;
    parameters.host.userData = &step;
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    CHECK(cuGraphHostNodeGetParams(node, &host));
    assert_ptr_equal(host.userData, &step);
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    parameters.eventRecord.event = event;
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    CHECK(cuGraphEventRecordNodeGetEvent(node, &found));
    assert_ptr_equal(found, event);
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    parameters.eventWait.event = event;
    CHECK(cuGraphAddNode(&node, graph, &node, NULL, 1, &parameters));
    CHECK_CODE(cuGraphEventRecordNodeGetEvent(node, &found), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphEventWaitNodeGetEvent(node, &found));
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    fill_node(child, NULL, 0, block + 32, 9, 8);
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_GRAPH};
    parameters.graph.graph = child;
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    assert_int_equal(type_of(node), CU_GRAPH_NODE_TYPE_GRAPH);
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CHECK_CODE(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters), CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuGraphDestroy(child));
    CUgraphExec exec = ready(graph);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphLaunch(exec, NULL));
    CHECK(cuCtxSynchronize());
    assert_int_equal(step.runs, 1);
    assert_int_equal(byte_at(block), 5);
    assert_int_equal(byte_at(block + 17), 7);
    assert_int_equal(byte_at(block + 32), 9);
    CHECK(cuEventQuery(event));
    CHECK(cuGraphExecDestroy(exec));
}

static void a_clone_is_independent(void **state) {
    (void)state;
    CUgraph clone;
    CUgraphNode found;
    size_t count;
    fresh_context();
    const CUdeviceptr block = block_of(0);
    CUgraph graph = new_graph();
    const CUgraphNode first = fill_node(graph, NULL, 0, block, 1, 8);
    const CUgraphNode second = fill_node(graph, &first, 1, block, 2, 8);
    CHECK(cuGraphClone(&clone, graph));
    CHECK(cuGraphNodeFindInClone(&found, second, clone));
    assert_int_equal(type_of(found), CU_GRAPH_NODE_TYPE_MEMSET);
    CHECK_CODE(cuGraphNodeFindInClone(&found, second, graph), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphGetEdges(clone, NULL, NULL, NULL, &count));
    assert_int_equal(count, 1);
    CUgraphExec exec = ready(clone);
    CHECK(cuGraphLaunch(exec, NULL));
    assert_int_equal(byte_at(block), 2);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(clone));
}

/* Launching. */

static void nodes_run_in_their_order(void **state) {
    (void)state;
    enum { STEPS = 6 };
    _Atomic(int) clock = 0;
    struct step steps[STEPS];
    CUgraphNode nodes[STEPS];
    fresh_context();
    for (int i = 0; i < STEPS; i++) steps[i] = (struct step){.clock = &clock};
    CUgraph graph = new_graph();
    /* Added against their order: 5, and then 0 and 1 before it, through an empty node; 2 and 3 before both. */
    nodes[5] = step_node(graph, NULL, 0, &steps[5]);
    for (int i = 0; i < 4; i++) nodes[i] = step_node(graph, NULL, 0, &steps[i]);
    const CUgraphNode join = empty_node(graph, nodes, 2);
    CHECK(cuGraphAddDependencies(graph, &join, &nodes[5], NULL, 1));
    for (int late = 0; late < 2; late++)
        for (int early = 2; early < 4; early++)
            CHECK(cuGraphAddDependencies(graph, &nodes[early], &nodes[late], NULL, 1));
    CUgraphExec exec = ready(graph);
    CHECK(cuGraphDestroy(graph));
    for (int round = 1; round <= 3; round++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        for (int late = 0; late < 2; late++)
            for (int early = 2; early < 4; early++) assert_true(steps[early].at < steps[late].at);
        assert_true(steps[0].at < steps[5].at && steps[1].at < steps[5].at);
        assert_int_equal(steps[5].runs, round);
        CHECK(cuStreamDestroy(stream));
    }
    CHECK(cuGraphExecDestroy(exec));
}

static void a_launch_keeps_the_order_of_its_stream(void **state) {
    (void)state;
    fresh_context();
    const CUdeviceptr block = block_of(0);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = new_graph();
    fill_node(graph, NULL, 0, block, 1, 8);
    fill_node(graph, NULL, 0, block + 8, 1, 8);
    CUgraphExec exec = ready(graph);
    hold_stream(stream);
    CHECK(cuMemsetD8Async(block, 9, 16, stream));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuMemsetD8Async(block + 8, 3, 4, stream));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(block), 1);
    assert_int_equal(byte_at(block + 8), 3);
    assert_int_equal(byte_at(block + 12), 1);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

/* Captures a kernel that waits for its release. */
static CUgraphExec holding_exec(void) {
    CUgraph graph;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    hold_stream(stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = ready(graph);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    return exec;
}

static void the_legacy_stream_and_context_events_cover_a_launch(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    CUevent event;
    CHECK(cuEventCreate(&event, 0));
    CUgraphExec exec = holding_exec();
    CUstream blocking = new_stream(0), other = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuGraphLaunch(exec, blocking));
    const struct sim_kernel nothing = {0};
    CHECK((CUresult)sim_launch(&nothing, NULL));
    CHECK_CODE(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(other));
    CHECK(cuCtxRecordEvent(context, event));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuEventSynchronize(event));
    CHECK(cuStreamQuery(NULL));
    CHECK(cuGraphExecDestroy(exec));
}

static void launches_of_one_executable_follow_each_other(void **state) {
    (void)state;
    fresh_context();
    CUgraphExec exec = holding_exec(), other = holding_exec();
    CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuGraphLaunch(exec, first));
    sim_release_kernels(); /* the first launch's kernel */
    CHECK(cuStreamSynchronize(first));
    CHECK(cuGraphLaunch(exec, first));
    CHECK(cuGraphLaunch(exec, second));
    CHECK(cuEventRecord(event, second));
    CHECK(cuStreamSynchronize(new_stream(CU_STREAM_NON_BLOCKING)));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK(cuGraphLaunch(other, new_stream(CU_STREAM_NON_BLOCKING)));
    CHECK(cuGraphExecDestroy(exec)); /* what is on its way goes on */
    sim_release_kernels();
    CHECK(cuCtxSynchronize());
    CHECK(cuEventQuery(event));
    CHECK(cuGraphExecDestroy(other));
}

static void forks_run_side_by_side(void **state) {
    (void)state;
    CUevent forked, joined, done;
    CUgraph graph;
    fresh_context();
    CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    CUstream origin = new_stream(CU_STREAM_NON_BLOCKING), side = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuEventRecord(forked, origin));
    CHECK(cuStreamWaitEvent(side, forked, 0));
    hold_stream(origin);
    CHECK(cuEventRecordWithFlags(done, side, CU_EVENT_RECORD_EXTERNAL));
    CHECK(cuEventRecord(joined, side));
    CHECK(cuStreamWaitEvent(origin, joined, 0));
    CHECK(cuStreamEndCapture(origin, &graph));
    CUgraphExec exec = ready(graph);
    CHECK(cuGraphLaunch(exec, origin));
    CHECK(cuEventSynchronize(done)); /* while the other branch is held */
    CHECK_CODE(cuStreamQuery(origin), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(origin));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void events_recorded_and_awaited_by_nodes(void **state) {
    (void)state;
    CUgraph graph;
    CUgraphNode recorded, waits;
    CUevent inside, outside;
    fresh_context();
    _Atomic(int) clock = 0;
    struct step step = {.clock = &clock};
    CHECK(cuEventCreate(&inside, 0));
    CHECK(cuEventCreate(&outside, 0));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), busy = new_stream(CU_STREAM_NON_BLOCKING);
    graph = new_graph();
    CHECK(cuGraphAddEventWaitNode(&waits, graph, NULL, 0, outside));
    const CUgraphNode ran = step_node(graph, &waits, 1, &step);
    CHECK(cuGraphAddEventRecordNode(&recorded, graph, &ran, 1, inside));
    CUgraphExec exec = ready(graph);
    CHECK(cuGraphLaunch(exec, stream)); /* never recorded: nothing to wait for */
    CHECK(cuEventSynchronize(inside));
    assert_int_equal(step.runs, 1);
    hold_stream(busy);
    CHECK(cuEventRecord(outside, busy));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK_CODE(cuEventQuery(inside), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuEventSynchronize(inside));
    assert_int_equal(step.runs, 2);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamWaitEvent(stream, outside, CU_EVENT_WAIT_EXTERNAL));
    CHECK(cuStreamEndCapture(stream, &graph));
    exec = ready(graph);
    hold_stream(busy);
    CHECK(cuEventRecord(outside, busy));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void child_graphs_run_as_one_node(void **state) {
    (void)state;
    enum { STEPS = 4 };
    _Atomic(int) clock = 0;
    struct step steps[STEPS];
    CUgraph found;
    CUgraphNode node;
    size_t count;
    fresh_context();
    for (int i = 0; i < STEPS; i++) steps[i] = (struct step){.clock = &clock};
    CUgraph child = new_graph(), graph = new_graph(), empty = new_graph();
    step_node(child, NULL, 0, &steps[1]);
    step_node(child, NULL, 0, &steps[2]);
    const CUgraphNode first = step_node(graph, NULL, 0, &steps[0]);
    CHECK(cuGraphAddChildGraphNode(&node, graph, &first, 1, child));
    CHECK(cuGraphChildGraphNodeGetGraph(node, &found));
    CHECK(cuGraphGetNodes(found, NULL, &count));
    assert_int_equal(count, 2);
    CHECK_CODE(cuGraphDestroy(found), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddChildGraphNode(&node, graph, NULL, 0, graph), CUDA_ERROR_INVALID_VALUE);
    CUgraphNode nothing;
    CHECK(cuGraphAddChildGraphNode(&nothing, graph, &node, 1, empty));
    step_node(graph, &nothing, 1, &steps[3]);
    CUgraphExec exec = ready(graph);
    CHECK(cuGraphLaunch(exec, NULL));
    CHECK(cuCtxSynchronize());
    assert_int_equal(steps[0].at, 1);
    assert_int_equal(steps[3].at, 4);
    assert_int_equal(steps[1].runs + steps[2].runs, 2);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(child));
    CHECK(cuGraphDestroy(empty));
}

static void an_executable_takes_other_work_in_the_same_order(void **state) {
    (void)state;
    CUgraphExecUpdateResultInfo outcome;
    fresh_context();
    const CUdeviceptr block = block_of(0);
    CUgraph graph = new_graph(), other = new_graph(), longer = new_graph();
    fill_node(graph, NULL, 0, block, 1, 8);
    fill_node(other, NULL, 0, block, 2, 16);
    const CUgraphNode first = fill_node(longer, NULL, 0, block, 2, 16);
    empty_node(longer, &first, 1);
    CUgraphExec exec = ready(graph);
    CHECK(cuGraphExecUpdate(exec, other, &outcome));
    assert_int_equal(outcome.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    CHECK(cuGraphLaunch(exec, NULL));
    assert_int_equal(byte_at(block + 15), 2);
    fill_node(longer, &first, 1, block, 3, 16);
    CHECK_CODE(cuGraphExecUpdate(exec, longer, &outcome), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(outcome.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    CHECK(cuGraphLaunch(exec, NULL));
    assert_int_equal(byte_at(block + 15), 2);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(other));
    CHECK(cuGraphDestroy(longer));
}

static void all_forms_of_instantiate(void **state) {
    (void)state;
    CUgraphExec exec;
    CUgraphNode node = (CUgraphNode)state;
    cuuint64_t flags = 9;
    char text[8] = "text";
    fresh_context();
    CUgraph graph = new_graph();
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .hErrNode_out = node};
    CHECK(cuGraphInstantiateWithParams(&exec, graph, &parameters));
    assert_int_equal(parameters.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    assert_null(parameters.hErrNode_out);
    CHECK(cuGraphExecGetFlags(exec, &flags));
    assert_int_equal(flags, 0);
    CHECK(cuGraphUpload(exec, NULL));
    CHECK(cuGraphLaunch(exec, NULL));
    CHECK(cuGraphExecDestroy(exec));
    typedef CUresult old_form(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
    for (int version = 10000; version <= 11000; version += 1000) {
        void *function;
        CHECK(cuGetProcAddress("cuGraphInstantiate", &function, version, 0, NULL));
        CHECK(((old_form *)function)(&exec, graph, &node, text, sizeof(text)));
        assert_null(node);
        assert_string_equal(text, "");
        CHECK(cuGraphExecDestroy(exec));
    }
    CHECK_CODE(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
    parameters.flags = 64;
    CHECK_CODE(cuGraphInstantiateWithParams(&exec, graph, &parameters), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(parameters.result_out, CUDA_GRAPH_INSTANTIATE_ERROR);
    CHECK(cuGraphDestroy(graph));
}

static void graphs_in_a_capture(void **state) {
    (void)state;
    CUgraph captured;
    CUstreamCaptureStatus status;
    fresh_context();
    CUgraph graph = new_graph();
    CUgraphExec exec = ready(graph);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
    for (int call = 0; call < 5; call++) {
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK(cuGraphLaunch(exec, other));
        const CUresult answer = call == 0   ? cuGraphLaunch(exec, stream)
                                : call == 1 ? cuGraphUpload(exec, stream)
                                : call == 2 ? cuGraphExecDestroy(exec)
                                : call == 3 ? cuGraphDestroy(graph)
                                            : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        CHECK_CODE(answer, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(cuStreamIsCapturing(stream, &status));
        assert_int_equal(status, call < 4 ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CHECK_CODE(cuStreamEndCapture(stream, &captured), call < 4 ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : 0);
    }
    CUstream blocking = new_stream(0);
    CHECK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CODE(cuGraphLaunch(exec, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_CODE(cuStreamEndCapture(blocking, &captured), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void a_graph_over_two_devices(void **state) {
    (void)state;
    CUcontext context = fresh_context(), second;
    CUgraph graph;
    CUevent forked, joined;
    const CUdeviceptr here = block_of(0);
    CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuCtxSetCurrent(second));
    const CUdeviceptr there = block_of(0);
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(here, 1, 8, stream));
    CHECK(cuEventRecord(forked, stream));
    CHECK(cuStreamWaitEvent(other, forked, 0));
    hold_stream(other);
    CHECK(cuMemsetD8Async(there, 2, 8, other));
    CHECK(cuEventRecord(joined, other));
    CHECK(cuStreamWaitEvent(stream, joined, 0));
    CHECK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = ready(graph);
    CHECK(cuGraphLaunch(exec, stream));
    assert_true(sim_pending(second) > 0);
    sim_release_kernels();
    CHECK(cuCtxSynchronize()); /* the second device's */
    assert_int_equal(byte_at(there), 2);
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(here), 1);
    CHECK(cuDevicePrimaryCtxReset(1));
    CHECK_CODE(cuGraphLaunch(exec, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuDevicePrimaryCtxRelease(1));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

/* Several threads. */

enum { LAUNCHES = 200 };
struct launcher {
    CUcontext context;
    CUgraphExec exec;
    CUstream stream;
};

static void *launch_often(void *argument) {
    const struct launcher *const launcher = argument;
    CHECK(cuCtxSetCurrent(launcher->context));
    for (int i = 0; i < LAUNCHES; i++) CHECK(cuGraphLaunch(launcher->exec, launcher->stream));
    return NULL;
}

static void CUDA_CB add_one(void *argument) {
    ++*(int *)argument; /* not atomic: launches must not overlap */
}

static void launches_from_two_threads_do_not_overlap(void **state) {
    (void)state;
    static int counts[2];
    CUcontext context = fresh_context();
    CUgraph graph = new_graph();
    CUgraphNode node;
    pthread_t threads[2];
    struct launcher launchers[2];
    counts[0] = counts[1] = 0;
    for (int i = 0; i < 2; i++) {
        const CUDA_HOST_NODE_PARAMS parameters = {add_one, &counts[i]};
        CHECK(cuGraphAddHostNode(&node, graph, NULL, 0, &parameters));
    }
    CUgraphExec exec = ready(graph);
    for (int i = 0; i < 2; i++) {
        launchers[i] = (struct launcher){context, exec, new_stream(CU_STREAM_NON_BLOCKING)};
        assert_int_equal(pthread_create(&threads[i], NULL, launch_often, &launchers[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(cuCtxSynchronize());
    assert_int_equal(counts[0], 2 * LAUNCHES);
    assert_int_equal(counts[1], 2 * LAUNCHES);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(wrong_arguments),
    cmocka_unit_test(nodes_edges_and_types),
    cmocka_unit_test(nodes_in_a_circle_cannot_be_instantiated),
    cmocka_unit_test(every_kind_of_node_by_one_call),
    cmocka_unit_test(a_clone_is_independent),
    cmocka_unit_test(nodes_run_in_their_order),
    cmocka_unit_test(a_launch_keeps_the_order_of_its_stream),
    cmocka_unit_test(the_legacy_stream_and_context_events_cover_a_launch),
    cmocka_unit_test(launches_of_one_executable_follow_each_other),
    cmocka_unit_test(forks_run_side_by_side),
    cmocka_unit_test(events_recorded_and_awaited_by_nodes),
    cmocka_unit_test(child_graphs_run_as_one_node),
    cmocka_unit_test(an_executable_takes_other_work_in_the_same_order),
    cmocka_unit_test(all_forms_of_instantiate),
    cmocka_unit_test(graphs_in_a_capture),
    cmocka_unit_test(a_graph_over_two_devices),
    cmocka_unit_test(launches_from_two_threads_do_not_overlap),
};
TESTING_MAIN(tests)
