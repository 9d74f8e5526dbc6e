/* SPDX-License-Identifier: MIT
 *
 * The race detector: contexts, green ones too, and devices. A planted race is found, with both sides; the same program
 * with the missing order in place is clean (SIM_RACES=1, SIM_DEVICES=2).
 */
#include "races.h"

/* Contexts and devices. */

static void the_work_of_a_peer(void **state) {
    (void)state;
    for (int observed = 0; observed < 2; observed++) {
        const CUdeviceptr memory = races_fresh();
        CUcontext own, peer;
        CHECK(cuCtxGetCurrent(&own));
        CHECK(cuDevicePrimaryCtxReset(1));
        CHECK(cuDevicePrimaryCtxRetain(&peer, 1));
        CHECK(cuCtxSetCurrent(peer));
        CHECK(cuCtxEnablePeerAccess(own, 0));
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
        allocated(memory);
        writes(a, "peer", memory);
        if (observed) CHECK(cuCtxSynchronize());
        CHECK(cuCtxSetCurrent(own));
        CHECK(cuCtxSynchronize());
        freed(memory);
        allocated(memory);
        if (observed)
            no_race();
        else
            one_race(SIM_RACE_GIVEN_EARLY, "peer", "allocation");
        CHECK(cuDevicePrimaryCtxReset(1));
        CHECK(cuDevicePrimaryCtxRelease(1));
    }
}

static void events_order_streams_of_two_devices(void **state) {
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        const CUdeviceptr memory = races_fresh();
        CUcontext own, peer;
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
        CUevent event;
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CHECK(cuCtxGetCurrent(&own));
        allocated_async(memory, a);
        writes(a, "own", memory);
        CHECK(cuEventRecord(event, a));
        CHECK(cuDevicePrimaryCtxReset(1));
        CHECK(cuDevicePrimaryCtxRetain(&peer, 1));
        CHECK(cuCtxSetCurrent(peer));
        CHECK(cuCtxEnablePeerAccess(own, 0));
        CUstream b = new_stream(CU_STREAM_NON_BLOCKING);
        if (ordered) CHECK(cuStreamWaitEvent(b, event, 0));
        reads(b, "peer", memory);
        CHECK(cuCtxSynchronize());
        CHECK(cuCtxSetCurrent(own));
        if (ordered) {
            no_race();
        } else {
            struct sim_race races[3];
            assert_int_equal(sim_races(races, 3), 2);
            assert_int_equal(races[0].kind, SIM_RACE_USED_EARLY);
            assert_int_equal(races[1].kind, SIM_RACE_CONFLICT);
        }
        CHECK(cuDevicePrimaryCtxReset(1));
        CHECK(cuDevicePrimaryCtxRelease(1));
    }
}

static void a_context_event_orders_a_context_before_another(void **state) {
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        const CUdeviceptr memory = races_fresh();
        CUcontext own, other;
        CUevent event;
        CHECK(cuCtxGetCurrent(&own));
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        allocated(memory);
        writes(a, "one", memory);
        CHECK(cuCtxRecordEvent(own, event));
        CHECK(cuCtxCreate(&other, NULL, 0, 0));
        CUstream b = new_stream(CU_STREAM_NON_BLOCKING);
        if (ordered) CHECK(cuCtxWaitEvent(other, event));
        writes(b, "other", memory);
        if (ordered)
            no_race();
        else
            one_race(SIM_RACE_CONFLICT, "one", "other");
        CHECK(cuCtxDestroy(other));
    }
}

static void the_end_of_a_context_proves_its_work_and_ends_its_blocks(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUcontext own, other;
    CUdeviceptr gone;
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuCtxCreate(&other, NULL, 0, 0));
    CHECK(cuMemAlloc(&gone, BLOCK_BYTES));
    allocated(gone);
    CUstream b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated_async(memory, b); /* outlives the context */
    writes(b, "used", memory);
    CHECK(cuCtxDestroy(other));
    CHECK(cuCtxSetCurrent(own));
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    writes(a, "used again", memory);
    no_race();
    reads(a, "late", gone);
    one_race(SIM_RACE_USED_FREED, "context end", "late");
}

static void a_reset_proves_the_work_before_it(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUcontext context;
    CUdeviceptr again;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "used", memory);
    CHECK(cuDevicePrimaryCtxReset(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&again, 64 * BLOCK_BYTES));
    assert_int_equal(again, memory);
    allocated(memory);
    writes(new_stream(CU_STREAM_NON_BLOCKING), "used again", memory);
    no_race();
}

static CUgreenCtx new_green(CUcontext *context) {
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned parts = 1;
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevSmResourceSplitByCount(&part, &parts, &all, NULL, 0, 16));
    CHECK(cuDevResourceGenerateDesc(&description, &part, 1));
    CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(cuCtxFromGreenCtx(context, green));
    return green;
}

static void an_event_of_a_green_context_covers_its_streams_alone(void **state) {
    (void)state;
    for (int of_green = 0; of_green < 2; of_green++) {
        const CUdeviceptr memory = races_fresh();
        CUcontext part, context;
        CUstream inside, outside = new_stream(CU_STREAM_NON_BLOCKING);
        CUevent event;
        CHECK(cuCtxGetCurrent(&context));
        CUgreenCtx green = new_green(&part);
        CHECK(cuGreenCtxStreamCreate(&inside, green, CU_STREAM_NON_BLOCKING, 0));
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        allocated(memory);
        allocated(memory + BLOCK_BYTES);
        writes(inside, "inside", memory);
        CHECK(cuStreamDestroy(inside));
        writes(outside, "outside", memory + BLOCK_BYTES);
        CHECK(cuStreamDestroy(outside));
        CHECK(cuCtxRecordEvent(of_green ? part : context, event));
        CHECK(cuEventSynchronize(event));
        freed(memory);
        allocated(memory);
        no_race();
        freed(memory + BLOCK_BYTES);
        allocated(memory + BLOCK_BYTES);
        if (of_green)
            one_race(SIM_RACE_GIVEN_EARLY, "outside", "allocation");
        else
            no_race();
        CHECK(cuGreenCtxDestroy(green));
    }
}

static void a_green_context_may_wait_alone(void **state) {
    (void)state;
    for (int of_green = 0; of_green < 2; of_green++) {
        const CUdeviceptr memory = races_fresh();
        CUcontext part, context;
        CUstream inside, outside = new_stream(CU_STREAM_NON_BLOCKING), first = new_stream(CU_STREAM_NON_BLOCKING);
        CUevent event;
        CHECK(cuCtxGetCurrent(&context));
        CUgreenCtx green = new_green(&part);
        CHECK(cuGreenCtxStreamCreate(&inside, green, CU_STREAM_NON_BLOCKING, 0));
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        allocated(memory);
        writes(first, "first", memory);
        CHECK(cuEventRecord(event, first));
        CHECK(cuCtxWaitEvent(of_green ? part : context, event));
        reads(inside, "inside", memory);
        no_race();
        reads(outside, "outside", memory);
        if (of_green)
            one_race(SIM_RACE_CONFLICT, "first", "outside");
        else
            no_race();
        CHECK(cuGreenCtxDestroy(green));
    }
}

static void a_context_event_comes_after_destroyed_streams(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUcontext context;
    CUevent event;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    allocated(memory);
    writes(a, "used", memory);
    CHECK(cuStreamDestroy(a));
    freed(memory);
    CHECK(cuCtxRecordEvent(context, event));
    CHECK(cuEventSynchronize(event));
    allocated(memory);
    no_race();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_work_of_a_peer),
    cmocka_unit_test(events_order_streams_of_two_devices),
    cmocka_unit_test(a_context_event_orders_a_context_before_another),
    cmocka_unit_test(the_end_of_a_context_proves_its_work_and_ends_its_blocks),
    cmocka_unit_test(a_reset_proves_the_work_before_it),
    cmocka_unit_test(an_event_of_a_green_context_covers_its_streams_alone),
    cmocka_unit_test(a_green_context_may_wait_alone),
    cmocka_unit_test(a_context_event_comes_after_destroyed_streams),
};
TESTING_MAIN(tests)
