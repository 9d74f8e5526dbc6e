/* SPDX-License-Identifier: MIT
 *
 * The race detector: what the host learns, and what tells it nothing. A planted race is found, with both sides; the
 * same program with the missing order in place is clean (SIM_RACES=1, SIM_DEVICES=2).
 */
#include <stdatomic.h>

#include "races.h"

/* What the host learns. Each of these proves that the stream's work is complete. */

static void by_event_query(CUstream stream) {
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, stream));
    while (cuEventQuery(event) != CUDA_SUCCESS) continue;
}

static void by_event_synchronise(CUstream stream) {
    CUevent event;
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventSynchronize(event));
}

static void by_elapsed_time(CUstream stream) {
    CUevent event;
    float milliseconds;
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuEventRecord(event, stream));
    while (cuEventElapsedTime(&milliseconds, event, event) != CUDA_SUCCESS) continue;
}

static void by_stream_query(CUstream stream) {
    while (cuStreamQuery(stream) != CUDA_SUCCESS) continue;
}

static void by_stream_synchronise(CUstream stream) {
    CHECK(cuStreamSynchronize(stream));
}

static void by_context_synchronise(CUstream stream) {
    (void)stream;
    CHECK(cuCtxSynchronize());
}

static void by_context_event(CUstream stream) {
    CUcontext context;
    CUevent event;
    (void)stream;
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuCtxRecordEvent(context, event));
    while (cuEventQuery(event) != CUDA_SUCCESS) continue;
}

static void by_a_free_that_waits(CUstream stream) {
    CUdeviceptr other;
    (void)stream;
    CHECK(cuMemAlloc(&other, 512));
    CHECK(cuMemFree(other));
}

static void by_a_copy_to_the_host(CUstream stream) {
    CUdeviceptr other;
    char host[16];
    CHECK(cuMemAlloc(&other, 512));
    order(stream, NULL);
    CHECK(cuMemcpyDtoH(host, other, sizeof host));
}

static _Atomic(int) told;

static void CUDA_CB tell(void *argument) {
    if (argument != NULL) sim_observed();
    atomic_store(&told, 1);
}

static void by_a_host_function(CUstream stream) {
    atomic_store(&told, 0);
    CHECK(cuLaunchHostFunc(stream, tell, &told));
    while (atomic_load(&told) == 0) continue;
}

static void by_an_async_copy_to_pageable_memory(CUstream stream) {
    CUdeviceptr other;
    char host[16];
    CHECK(cuMemAlloc(&other, 512));
    CHECK(cuMemcpyDtoHAsync(host, other, sizeof host, stream));
}

typedef void (*observation)(CUstream stream);

static const observation observations[] = {
    by_event_query,
    by_event_synchronise,
    by_elapsed_time,
    by_stream_query,
    by_stream_synchronise,
    by_context_synchronise,
    by_context_event,
    by_a_free_that_waits,
    by_a_copy_to_the_host,
    by_a_host_function,
    by_an_async_copy_to_pageable_memory,
};

static void each_observation_proves_what_came_before_it(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof observations / sizeof observations[0]; i++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        allocated(memory);
        writes(a, "used", memory);
        freed(memory);
        observations[i](a);
        allocated(memory);
        writes(b, "used again", memory);
        no_race();
        /* ...and nothing that came after it. */
        freed(memory);
        allocated(memory);
        one_race(SIM_RACE_GIVEN_EARLY, "used again", "allocation");
    }
}

static void observing_another_stream_proves_nothing(void **state) {
    (void)state;
    static const observation of_one_stream[] = {by_event_query,        by_event_synchronise,  by_stream_query,
                                                by_stream_synchronise, by_a_copy_to_the_host, by_a_host_function};
    for (size_t i = 0; i < sizeof of_one_stream / sizeof of_one_stream[0]; i++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        allocated(memory);
        writes(a, "used", memory);
        of_one_stream[i](b);
        freed(memory);
        allocated(memory);
        one_race(SIM_RACE_GIVEN_EARLY, "used", "allocation");
    }
}

static void a_query_that_says_not_ready_proves_nothing(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    CHECK(cuEventCreate(&event, 0));
    allocated(memory);
    hold_stream(a);
    writes(a, "used", memory);
    CHECK(cuEventRecord(event, a));
    CHECK_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK_CODE(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    freed(memory);
    allocated(memory);
    sim_release_kernels();
    one_race(SIM_RACE_GIVEN_EARLY, "used", "allocation");
}

static void synchronising_the_legacy_stream_proves_blocking_ones(void **state) {
    (void)state;
    for (int blocking = 0; blocking < 2; blocking++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(blocking ? 0 : CU_STREAM_NON_BLOCKING);
        allocated(memory);
        writes(a, "used", memory);
        CHECK(cuStreamSynchronize(NULL));
        CHECK(cuStreamQuery(NULL));
        freed(memory);
        allocated(memory);
        if (blocking)
            no_race();
        else
            one_race(SIM_RACE_GIVEN_EARLY, "used", "allocation");
    }
}

static void a_host_function_that_tells_nobody_proves_nothing(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "used", memory);
    atomic_store(&told, 0);
    CHECK(cuLaunchHostFunc(a, tell, NULL));
    while (atomic_load(&told) == 0) continue;
    freed(memory);
    allocated(memory);
    one_race(SIM_RACE_GIVEN_EARLY, "used", "allocation");
}

static void fills_and_copies_within_the_device_prove_nothing(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    CHECK(cuMemsetD8(memory, 1, 512));
    CHECK(cuMemcpyDtoD(memory + 1024, memory, 512));
    use(a, "other", memory + 1024, 16, true);
    struct sim_race race = one_race(SIM_RACE_CONFLICT, "copy", "other");
    assert_int_equal(race.earlier.address, memory + 1024);
    use(a, "another", memory + 511, 1, true);
    struct sim_race races[4];
    assert_int_equal(sim_races(races, 4), 3); /* read by the copy, written by the fill */
    assert_string_equal(races[1].later.name, "another");
    assert_string_equal(races[2].later.name, "another");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_observation_proves_what_came_before_it),
    cmocka_unit_test(observing_another_stream_proves_nothing),
    cmocka_unit_test(a_query_that_says_not_ready_proves_nothing),
    cmocka_unit_test(synchronising_the_legacy_stream_proves_blocking_ones),
    cmocka_unit_test(a_host_function_that_tells_nobody_proves_nothing),
    cmocka_unit_test(fills_and_copies_within_the_device_prove_nothing),
};
TESTING_MAIN(tests)
