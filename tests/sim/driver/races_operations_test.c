/* SPDX-License-Identifier: MIT
 *
 * The race detector: copies, fills and graphs; the start, the stop and the texts. A planted race is found, with both
 * sides; the same program with the missing order in place is clean (SIM_RACES=1, SIM_DEVICES=2).
 */
#include "races.h"

static void the_variable_starts_it(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&memory, BLOCK_BYTES));
    allocated(memory);
    writes(a, "one", memory);
    writes(b, "other", memory);
    one_race(SIM_RACE_CONFLICT, "one", "other");
}

/* Copies and fills. */

static void rows_that_lie_between_each_other(void **state) {
    (void)state;
    for (int shift = 8; shift >= 0; shift -= 8) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        allocated(memory);
        const CUDA_MEMCPY2D left = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = memory + 2048,
                                    .srcPitch = 16,
                                    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = memory,
                                    .dstPitch = 16,
                                    .WidthInBytes = 8,
                                    .Height = 10};
        CHECK(cuMemcpy2DAsync(&left, a));
        CHECK(cuMemsetD2D8Async(memory + (CUdeviceptr)shift, 16, 7, 8, 10, b));
        if (shift > 0)
            no_race();
        else
            one_race(SIM_RACE_CONFLICT, "copy", "fill");
    }
}

static void each_form_of_copy_and_fill_is_judged(void **state) {
    (void)state;
    CUcontext context;
    const CUdeviceptr memory = races_fresh(), source = memory + BLOCK_BYTES;
    CHECK(cuCtxGetCurrent(&context));
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    const CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = source,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = memory,
                               .WidthInBytes = 8,
                               .Height = 2,
                               .Depth = 2};
    char host[64] = "";
    for (int form = 0; form < 8; form++) {
        sim_races_start();
        allocated(memory);
        writes(a, "one", memory);
        switch (form) {
        case 0:
            CHECK(cuMemcpyAsync(memory, source, 16, b));
            break;
        case 1:
            CHECK(cuMemcpyHtoDAsync(memory, host, sizeof host, b));
            break;
        case 2:
            CHECK(cuMemcpyDtoHAsync(host, memory, sizeof host, b));
            break;
        case 3:
            CHECK(cuMemcpyPeerAsync(source, context, memory, context, 16, b));
            break;
        case 4:
            CHECK(cuMemcpy3DAsync(&box, b));
            break;
        case 5:
            CHECK(cuMemsetD32Async(memory + BLOCK_BYTES - 4, 1, 1, b));
            break;
        case 6:
            CHECK(cuMemcpyDtoD(source, memory + BLOCK_BYTES - 1, 1));
            break;
        default:
            CHECK(cuMemcpyHtoD(memory, host, 1));
            break;
        }
        one_race(SIM_RACE_CONFLICT, "one", form == 5 ? "fill" : "copy");
    }
}

/* Graphs. */

static CUgraphExec executable(CUstream captured) {
    CUgraph graph;
    CUgraphExec made;
    CHECK(cuStreamEndCapture(captured, &graph));
    CHECK(cuGraphInstantiate(&made, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return made;
}

static void branches_of_a_graph(void **state) {
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        allocated(memory);
        CHECK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
        order(a, b);
        writes(a, "one", memory);
        if (ordered) order(a, b);
        writes(b, "other", memory);
        order(b, a);
        CUgraphExec graph = executable(a);
        no_race();
        CHECK(cuGraphLaunch(graph, a));
        if (ordered)
            no_race();
        else
            one_race(SIM_RACE_CONFLICT, "one", "other");
        CHECK(cuGraphExecDestroy(graph));
    }
}

static void a_launch_comes_in_the_order_of_its_stream(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    CHECK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    writes(a, "node", memory);
    CUgraphExec graph = executable(a);
    writes(a, "before", memory);
    CHECK(cuGraphLaunch(graph, a));
    CHECK(cuGraphLaunch(graph, a));
    writes(a, "after", memory);
    no_race();
    CHECK(cuGraphLaunch(graph, b));
    one_race(SIM_RACE_CONFLICT, "after", "node");
    CHECK(cuGraphExecDestroy(graph));
}

/* Its addresses are the graph's alone, whatever they were before. */
static void memory_of_a_graph_is_judged_for_its_order_only(void **state) {
    (void)state;
    races_fresh();
    CUdeviceptr memory, own;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&own, BLOCK_BYTES));
    allocated(own);
    CHECK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&memory, BLOCK_BYTES, a));
    allocated_async(memory, a);
    order(a, b);
    writes(a, "one", memory);
    reads(b, "other", memory);
    writes(b, "mine", own);
    order(b, a);
    freed_async(memory, a);
    CHECK(cuMemFreeAsync(memory, a));
    CUgraphExec graph = executable(a);
    CHECK(cuGraphLaunch(graph, a));
    one_race(SIM_RACE_CONFLICT, "one", "other");
    while (sim_pending(NULL) > 0) continue;
    freed(own);
    allocated(own); /* that the graph's free has happened tells the host nothing */
    struct sim_race races[2];
    assert_int_equal(sim_races(races, 2), 2);
    assert_int_equal(races[1].kind, SIM_RACE_GIVEN_EARLY);
    assert_string_equal(races[1].earlier.name, "mine");
    CHECK(cuGraphExecDestroy(graph));
}

/* Texts, and a detector that is off. */

static void a_race_in_words(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    const struct sim_range range = {.address = memory, .bytes = 512, .writes = true};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1, .name = "step", .number = 7};
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    unsigned long long id;
    char text[512], expected[512];
    allocated(memory);
    freed(memory);
    CHECK((CUresult)sim_launch(&kernel, a));
    const struct sim_race race = one_race(SIM_RACE_USED_FREED, "free", "step");
    CHECK(cuStreamGetId(a, &id));
    snprintf(expected, sizeof expected,
             "after free, %d bytes at 0x%llx of block 1 comes kernel step 7 (stream %llu, 1) that writes 512 bytes at "
             "0x%llx of block 1",
             BLOCK_BYTES, memory, id, memory);
    assert_int_equal(sim_race_text(&race, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
    assert_int_equal(sim_race_text(&race, text, 8), strlen(expected));
    assert_string_equal(text, "after f");
}

static void one_fault_is_reported_once(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    for (int i = 0; i < 8; i++) use(i % 2 == 0 ? a : NULL, "pieces", memory + (CUdeviceptr)i * 512, 512, true);
    order(NULL, a);
    writes(a, "whole", memory);
    no_race();
    writes(b, "other", memory);
    one_race(SIM_RACE_CONFLICT, "whole", "other");
}

static void nothing_is_known_once_it_is_stopped(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "one", memory);
    sim_races_stop();
    CHECK((CUresult)sim_block_freed(memory + 1)); /* no note is taken */
    writes(b, "other", memory);
    no_race();
    CHECK(cuStreamDestroy(a));
    sim_races_start();
    allocated(memory);
    writes(b, "one", memory);
    writes(NULL, "other", memory);
    one_race(SIM_RACE_CONFLICT, "one", "other");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_variable_starts_it),
    cmocka_unit_test(rows_that_lie_between_each_other),
    cmocka_unit_test(each_form_of_copy_and_fill_is_judged),
    cmocka_unit_test(branches_of_a_graph),
    cmocka_unit_test(a_launch_comes_in_the_order_of_its_stream),
    cmocka_unit_test(memory_of_a_graph_is_judged_for_its_order_only),
    cmocka_unit_test(a_race_in_words),
    cmocka_unit_test(one_fault_is_reported_once),
    cmocka_unit_test(nothing_is_known_once_it_is_stopped),
};
TESTING_MAIN(tests)
