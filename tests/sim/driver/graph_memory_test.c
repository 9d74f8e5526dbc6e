/* SPDX-License-Identifier: MIT
 *
 * Memory that graphs allocate: its address, when it has memory, who may free it, what a second launch finds.
 */
#include "fixture.h"

enum { MIB = 1 << 20, BYTES = 4 * MIB };

static CUstream stream;

static void begin(void) {
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static CUgraph end(void) {
    CUgraph graph;
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static void prepare(void) {
    fresh_context();
    stream = new_stream(CU_STREAM_NON_BLOCKING);
}

/* A graph that allocates and fills, and frees or leaves that to others. */
static CUgraph allocating(CUdeviceptr *address, bool frees) {
    begin();
    CHECK(cuMemAllocAsync(address, BYTES, stream));
    CHECK(cuMemsetD8Async(*address, 7, BYTES, stream));
    if (frees) CHECK(cuMemFreeAsync(*address, stream));
    return end();
}

static CUgraphExec ready(CUgraph graph, unsigned long long flags) {
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, flags));
    return exec;
}

static uint64_t attribute(CUgraphMem_attribute attribute) {
    cuuint64_t value = 0;
    CHECK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static void uses(CUdeviceptr address, CUresult answer) {
    const struct sim_range range = {.address = address, .bytes = BYTES, .writes = true};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK_CODE(cuStreamSynchronize(stream), answer);
}

static void memory_is_taken_at_the_first_launch_and_kept_until_trimmed(void **state) {
    (void)state;
    CUdeviceptr address;
    prepare();
    const size_t before = taken_bytes();
    CUgraph graph = allocating(&address, true);
    CUgraphExec exec = ready(graph, 0);
    assert_int_equal(taken_bytes(), before);
    CHECK(cuDeviceGraphMemTrim(0));
    for (int i = 0; i < 3; i++) {
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        assert_int_equal(taken_bytes(), before + BYTES);
        assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
        assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), BYTES);
        assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), BYTES);
    }
    CHECK_CODE(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuDeviceGraphMemTrim(0));
    assert_int_equal(taken_bytes(), before);
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), BYTES);
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    assert_int_equal(taken_bytes(), before + BYTES); /* the graph is still there */
    CHECK(cuGraphDestroy(graph));
    assert_int_equal(taken_bytes(), before);
}

static void figures_are_set_back_to_what_is(void **state) {
    (void)state;
    cuuint64_t value = 1;
    prepare();
    CHECK_CODE(cuDeviceGraphMemTrim(9), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CODE(cuDeviceGetGraphMemAttribute(9, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CODE(cuDeviceGetGraphMemAttribute(0, (CUgraphMem_attribute)4, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value), CUDA_ERROR_INVALID_VALUE);
    value = 0;
    CHECK_CODE(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value));
    CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &value));
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 0);
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 0);
}

static void upload_takes_the_memory(void **state) {
    (void)state;
    CUdeviceptr address;
    prepare();
    const size_t before = taken_bytes();
    CUgraph graph = allocating(&address, true);
    CUgraphExec exec = ready(graph, 0);
    CHECK(cuGraphUpload(exec, stream));
    assert_int_equal(taken_bytes(), before + BYTES);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void what_a_graph_leaves_is_freed_by_a_call(void **state) {
    (void)state;
    CUdeviceptr address;
    unsigned char byte;
    prepare();
    const size_t before = taken_bytes();
    for (int call = 0; call < 2; call++) {
        CUgraph graph = allocating(&address, false);
        CUgraphExec exec = ready(graph, 0);
        CHECK_CODE(call == 0 ? cuMemFree(address) : cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
        CHECK(cuGraphLaunch(exec, stream));
        CHECK_CODE(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE); /* not freed */
        CHECK(cuMemcpyDtoHAsync(&byte, address + BYTES - 1, 1, stream));
        CHECK(cuStreamSynchronize(stream));
        assert_int_equal(byte, 7);
        assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), BYTES);
        uses(address, CUDA_SUCCESS);
        CHECK(call == 0 ? cuMemFree(address) : cuMemFreeAsync(address, stream));
        CHECK_CODE(call == 0 ? cuMemFree(address) : cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
        CHECK(cuStreamSynchronize(stream));
        assert_int_equal(taken_bytes(), before + BYTES); /* outlives its graph */
        uses(address, CUDA_SUCCESS);
        CHECK(call == 0 ? cuMemFree(address) : cuMemFreeAsync(address, stream));
        CHECK(cuStreamSynchronize(stream));
        assert_int_equal(taken_bytes(), before);
        CHECK_CODE(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    }
}

static void a_free_in_the_order_of_a_stream_leaves_earlier_work_its_memory(void **state) {
    (void)state;
    CUdeviceptr address;
    prepare();
    CUgraph graph = allocating(&address, false);
    CUgraphExec exec = ready(graph, 0);
    const struct sim_range range = {.address = address, .bytes = BYTES, .writes = true};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    CHECK(cuGraphLaunch(exec, stream));
    hold_stream(stream);
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuMemFreeAsync(address, stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), BYTES);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
}

static void what_is_free_cannot_be_used(void **state) {
    (void)state;
    CUdeviceptr address;
    prepare();
    CUgraph graph = allocating(&address, true);
    CUgraphExec exec = ready(graph, 0);
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    uses(address, CUDA_ERROR_ILLEGAL_ADDRESS);
    fresh_context();
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void a_launch_frees_first_when_asked_to(void **state) {
    (void)state;
    CUdeviceptr address;
    prepare();
    CUgraph graph = allocating(&address, false);
    CUgraphExec exec = ready(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; i++) CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    uses(address, CUDA_SUCCESS);
    CHECK(cuMemFree(address));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), BYTES);
    CHECK(cuMemFree(address));
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void another_graph_may_free_it(void **state) {
    (void)state;
    CUdeviceptr address;
    CUgraphNode node;
    prepare();
    CUgraph graph = allocating(&address, false), freeing;
    begin();
    CHECK(cuMemFreeAsync(address, stream));
    freeing = end();
    CHECK_CODE(cuGraphAddMemFreeNode(&node, graph, NULL, 0, address), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddMemFreeNode(&node, freeing, NULL, 0, address), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = ready(graph, 0), freeing_exec = ready(freeing, 0);
    CHECK_CODE(cuGraphLaunch(freeing_exec, stream), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 2; i++) {
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuGraphLaunch(freeing_exec, stream));
        CHECK_CODE(cuGraphLaunch(freeing_exec, stream), CUDA_ERROR_INVALID_VALUE);
        CHECK_CODE(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    }
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphExecDestroy(freeing_exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(freeing));
}

static void a_graph_with_memory_has_one_executable_and_no_copy(void **state) {
    (void)state;
    CUdeviceptr address;
    CUgraphExec second;
    CUgraph copy, other;
    CUgraphNode nodes[3], node;
    size_t count = 3;
    prepare();
    CUgraph graph = allocating(&address, true);
    CUgraphExec exec = ready(graph, 0);
    CHECK_CODE(cuGraphInstantiate(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_CODE(cuGraphClone(&copy, graph), CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuGraphCreate(&other, 0));
    CHECK_CODE(cuGraphAddChildGraphNode(&node, other, NULL, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuGraphGetNodes(graph, nodes, &count));
    CHECK_CODE(cuGraphDestroyNode(nodes[1]), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_CODE(cuGraphRemoveDependencies(graph, &nodes[0], &nodes[1], NULL, 1), CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph)); /* before what was made of it */
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(other));
}

static void nodes_made_by_hand(void **state) {
    (void)state;
    CUgraph graph;
    CUgraphNode allocates, frees, node;
    CUgraphNodeType type;
    CUdeviceptr found;
    CUDA_MEM_ALLOC_NODE_PARAMS asked = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = BYTES};
    CUDA_MEM_ALLOC_NODE_PARAMS told;
    CUcontext context;
    prepare();
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuGraphCreate(&graph, 0));
    asked.poolProps.location.id = 9;
    CHECK_CODE(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &asked), CUDA_ERROR_INVALID_VALUE);
    asked.poolProps.location.id = 0;
    CHECK(cuGraphAddMemAllocNode(&allocates, graph, NULL, 0, &asked));
    CHECK_CODE(cuGraphAddMemAllocNode(&node, graph, NULL, 1, &asked), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphNodeGetType(allocates, &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    CHECK(cuGraphMemAllocNodeGetParams(allocates, &told));
    assert_int_equal(told.bytesize, BYTES);
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = told.dptr, .elementSize = 4, .width = BYTES / 4, .height = 1};
    CHECK(cuGraphAddMemsetNode(&node, graph, &allocates, 1, &fill, context));
    CHECK(cuGraphAddMemFreeNode(&frees, graph, &node, 1, told.dptr));
    CHECK(cuGraphMemFreeNodeGetParams(frees, &found));
    assert_int_equal(found, told.dptr);
    CHECK_CODE(cuGraphAddMemFreeNode(&node, graph, NULL, 0, told.dptr), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddMemFreeNode(&node, graph, NULL, 0, told.dptr + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGraphAddMemFreeNode(&node, graph, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = ready(graph, 0);
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void a_launch_without_memory_answers_2(void **state) {
    (void)state;
    CUdeviceptr address, rest, idle;
    size_t free_bytes, total_bytes;
    prepare();
    CUgraph graph = allocating(&address, true), kept = allocating(&idle, true);
    CUgraphExec exec = ready(graph, 0), kept_exec = ready(kept, 0);
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    CHECK(cuMemAlloc(&rest, free_bytes - BYTES + MIB));
    CHECK_CODE(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_CODE(cuGraphUpload(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemFree(rest));
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    CHECK(cuMemAlloc(&rest, free_bytes - BYTES));
    CHECK(cuGraphLaunch(kept_exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphLaunch(exec, stream)); /* with what the other one kept */
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(rest));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphExecDestroy(kept_exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(kept));
}

static void frees_that_a_capture_refuses(void **state) {
    (void)state;
    CUdeviceptr address, pooled, plain;
    CUgraph graph;
    prepare();
    CHECK(cuMemAlloc(&plain, BYTES));
    CHECK(cuMemAllocAsync(&pooled, BYTES, stream));
    for (int which = 0; which < 4; which++) {
        begin();
        CHECK(cuMemAllocAsync(&address, BYTES, stream));
        CHECK(cuMemFreeAsync(address, stream));
        const CUdeviceptr wrong = which == 0 ? address : which == 1 ? pooled : which == 2 ? plain : 0;
        CHECK_CODE(cuMemFreeAsync(wrong, stream), CUDA_ERROR_INVALID_VALUE);
        CHECK_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        CHECK_CODE(cuMemGetAddressRange(NULL, NULL, address), CUDA_ERROR_NOT_FOUND);
    }
    CHECK(cuMemFreeAsync(pooled, stream));
    CHECK(cuMemFree(plain));
}

static void the_pools_access_is_the_graphs(void **state) {
    (void)state;
    CUmemoryPool pool;
    CUcontext primary, second;
    CUdeviceptr address;
    prepare();
    CHECK(cuCtxGetCurrent(&primary));
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (int allowed = 1; allowed >= 0; allowed--) {
        access.flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        CHECK(cuMemPoolSetAccess(pool, &access, 1));
        CUgraph graph = allocating(&address, false);
        CUgraphExec exec = ready(graph, 0);
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuCtxSetCurrent(second));
        const struct sim_range range = {.address = address, .bytes = BYTES};
        const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
        CHECK((CUresult)sim_launch(&kernel, NULL));
        CHECK_CODE(cuCtxSynchronize(), allowed ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(cuCtxSetCurrent(primary));
        CHECK(cuMemFree(address));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
    }
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_is_taken_at_the_first_launch_and_kept_until_trimmed),
    cmocka_unit_test(figures_are_set_back_to_what_is),
    cmocka_unit_test(upload_takes_the_memory),
    cmocka_unit_test(what_a_graph_leaves_is_freed_by_a_call),
    cmocka_unit_test(a_free_in_the_order_of_a_stream_leaves_earlier_work_its_memory),
    cmocka_unit_test(what_is_free_cannot_be_used),
    cmocka_unit_test(a_launch_frees_first_when_asked_to),
    cmocka_unit_test(another_graph_may_free_it),
    cmocka_unit_test(a_graph_with_memory_has_one_executable_and_no_copy),
    cmocka_unit_test(nodes_made_by_hand),
    cmocka_unit_test(a_launch_without_memory_answers_2),
    cmocka_unit_test(frees_that_a_capture_refuses),
    cmocka_unit_test(the_pools_access_is_the_graphs),
};
TESTING_MAIN(tests)
