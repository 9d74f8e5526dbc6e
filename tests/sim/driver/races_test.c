/* SPDX-License-Identifier: MIT
 *
 * The race detector: a planted race of each kind is found, with both sides; the same program with the missing order in
 * place is clean (SIM_RACES=1, SIM_DEVICES=2).
 */
#include <pthread.h>
#include <stdatomic.h>

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

/* Uses that nothing orders. */

static void conflict(bool first_writes, bool second_writes, bool ordered) {
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    use(a, "one", memory, 512, first_writes);
    if (ordered) order(a, b);
    use(b, "other", memory + 511, 512, second_writes);
    use(b, "beyond", memory + 2048, 512, true);
    if (ordered || !(first_writes || second_writes)) {
        no_race();
        return;
    }
    const struct sim_race race = one_race(SIM_RACE_CONFLICT, "one", "other");
    unsigned long long id;
    assert_int_equal(race.earlier.address, memory);
    assert_int_equal(race.earlier.bytes, 512);
    assert_int_equal(race.earlier.writes, first_writes);
    CHECK(cuStreamGetId(a, &id));
    assert_int_equal(race.earlier.stream, id);
    assert_int_equal(race.earlier.sequence, 1);
    assert_int_equal(race.earlier.life, 1);
    assert_int_equal(race.later.address, memory + 511);
    assert_int_equal(race.later.writes, second_writes);
    CHECK(cuStreamGetId(b, &id));
    assert_int_equal(race.later.stream, id);
    assert_int_equal(race.later.sequence, 1);
}

static void two_unordered_uses_one_of_them_a_write(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) conflict((i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
}

static void one_stream_orders_what_it_is_given(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "one", memory);
    reads(a, "two", memory);
    writes(a, "three", memory);
    no_race();
}

static void a_write_is_judged_against_every_reader(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream streams[4];
    for (int i = 0; i < 4; i++) streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    static const char *const names[] = {"first", "second", "third"};
    for (int i = 0; i < 3; i++) reads(streams[i], names[i], memory);
    order(streams[0], streams[3]);
    order(streams[2], streams[3]);
    writes(streams[3], "writer", memory);
    one_race(SIM_RACE_CONFLICT, "second", "writer");
}

static void work_that_ended_by_itself_is_not_ordered(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "one", memory);
    while (sim_pending(NULL) > 0) continue;
    writes(b, "other", memory);
    one_race(SIM_RACE_CONFLICT, "one", "other");
}

static void an_event_orders_what_was_there_when_it_was_recorded(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    allocated(memory);
    writes(a, "before", memory);
    CHECK(cuEventRecord(event, a));
    writes(a, "after", memory);
    CHECK(cuStreamWaitEvent(b, event, 0));
    reads(b, "reader", memory);
    one_race(SIM_RACE_CONFLICT, "after", "reader");
}

static void an_event_recorded_again_orders_the_later_work_too(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    allocated(memory);
    CHECK(cuEventRecord(event, a));
    writes(a, "after", memory);
    CHECK(cuEventRecord(event, a));
    CHECK(cuStreamWaitEvent(b, event, 0));
    reads(b, "reader", memory);
    no_race();
    CHECK(cuEventRecord(event, b)); /* the wait goes on meaning the former record */
    writes(a, "next", memory);
    one_race(SIM_RACE_CONFLICT, "reader", "next");
}

static void an_order_may_go_through_many_streams(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream streams[16];
    for (int i = 0; i < 16; i++) streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(streams[0], "first", memory);
    for (int i = 1; i < 16; i++) order(streams[i - 1], streams[i]);
    writes(streams[15], "last", memory);
    no_race();
    writes(streams[14], "late", memory);
    one_race(SIM_RACE_CONFLICT, "last", "late");
}

/* Legacy, blocking, non-blocking and per-thread streams. */

static void the_legacy_stream_orders_blocking_streams(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(0), b = new_stream(0);
    allocated(memory);
    writes(a, "one", memory);
    writes(NULL, "legacy", memory);
    writes(b, "other", memory);
    writes(CU_STREAM_PER_THREAD, "own", memory);
    one_race(SIM_RACE_CONFLICT, "other", "own");
}

static void the_legacy_stream_does_not_order_non_blocking_ones(void **state) {
    (void)state;
    for (int before = 0; before < 2; before++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
        allocated(memory);
        writes(before ? a : NULL, "one", memory);
        writes(before ? NULL : a, "other", memory);
        one_race(SIM_RACE_CONFLICT, "one", "other");
    }
}

static void blocking_streams_are_not_ordered_without_the_legacy_one(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(0), b = new_stream(0);
    allocated(memory);
    writes(a, "one", memory);
    use(NULL, "elsewhere", memory + BLOCK_BYTES, 64, false);
    writes(b, "two", memory);
    no_race();
    writes(a, "three", memory);
    one_race(SIM_RACE_CONFLICT, "two", "three");
}

static void *use_own_stream(void *argument) {
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    writes(CU_STREAM_PER_THREAD, "other", *(CUdeviceptr *)argument);
    return NULL;
}

static void each_thread_has_a_stream_of_its_own(void **state) {
    (void)state;
    CUdeviceptr memory = races_fresh();
    pthread_t thread;
    allocated(memory);
    writes(CU_STREAM_PER_THREAD, "one", memory);
    writes(CU_STREAM_PER_THREAD, "again", memory);
    no_race();
    assert_int_equal(pthread_create(&thread, NULL, use_own_stream, &memory), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    one_race(SIM_RACE_CONFLICT, "again", "other");
}

/* The twin: a synchronise before the other thread begins. */
static void a_synchronise_orders_other_threads_too(void **state) {
    (void)state;
    CUdeviceptr memory = races_fresh();
    pthread_t thread;
    allocated(memory);
    writes(CU_STREAM_PER_THREAD, "one", memory);
    CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    assert_int_equal(pthread_create(&thread, NULL, use_own_stream, &memory), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    no_race();
    writes(NULL, "legacy", memory); /* the other's stream is gone, and was a blocking one */
    no_race();
}

static void a_stream_that_no_hook_has_seen_is_a_stream(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    void *hidden;
    CHECK((CUresult)sim_stream_create(&hidden, CU_STREAM_NON_BLOCKING));
    allocated(memory);
    writes(hidden, "hidden", memory);
    writes(NULL, "legacy", memory);
    one_race(SIM_RACE_CONFLICT, "hidden", "legacy");
}

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

/* Blocks. */

static void a_use_after_the_free(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "in time", memory);
    freed(memory);
    no_race();
    reads(a, "late", memory);
    const struct sim_race race = one_race(SIM_RACE_USED_FREED, "free", "late");
    assert_int_equal(race.earlier.life, 1);
    assert_int_equal(race.earlier.bytes, BLOCK_BYTES);
}

static void a_use_after_an_async_free_on_another_stream(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated_async(memory, a);
    writes(a, "in time", memory);
    freed_async(memory, a);
    no_race();
    reads(b, "late", memory);
    const struct sim_race race = one_race(SIM_RACE_USED_FREED, "free", "late");
    unsigned long long id;
    CHECK(cuStreamGetId(a, &id));
    assert_int_equal(race.earlier.stream, id);
    assert_int_equal(race.earlier.sequence, 3);
}

static void an_async_free_that_a_use_does_not_precede(void **state) {
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        allocated(memory);
        reads(a, "reader", memory);
        if (ordered) order(a, b);
        freed_async(memory, b);
        if (ordered)
            no_race();
        else
            one_race(SIM_RACE_FREED_EARLY, "reader", "free");
    }
}

static void an_async_free_that_the_allocation_does_not_precede(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 2; i++) { /* the second time the block was used in its former life only */
        allocated_async(memory, a);
        if (i == 0) writes(a, "user", memory);
        if (i == 0) freed(memory);
    }
    freed_async(memory, b);
    one_race(SIM_RACE_FREED_EARLY, "allocation", "free");
}

static void a_use_of_two_blocks(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    allocated(memory + BLOCK_BYTES);
    use(a, "both", memory, 2 * BLOCK_BYTES, true);
    freed_async(memory + BLOCK_BYTES, b);
    const struct sim_race race = one_race(SIM_RACE_FREED_EARLY, "both", "free");
    assert_int_equal(race.earlier.life, 2);
}

static void a_use_before_its_async_allocation(void **state) {
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        if (!ordered) order(a, b); /* too early */
        allocated_async(memory, a);
        if (ordered) order(a, b);
        writes(b, "user", memory);
        if (ordered)
            no_race();
        else
            one_race(SIM_RACE_USED_EARLY, "allocation", "user");
    }
}

static void given_to_another_stream_too_early(void **state) {
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        allocated_async(memory, a);
        writes(a, "used", memory);
        freed_async(memory, a);
        if (ordered) order(a, b);
        allocated_async(memory, b);
        writes(b, "used again", memory);
        if (ordered) {
            no_race();
        } else {
            const struct sim_race race = one_race(SIM_RACE_GIVEN_EARLY, "used", "allocation");
            assert_int_equal(race.earlier.life, 1);
            assert_int_equal(race.later.life, 2);
        }
    }
}

static void given_again_on_the_same_stream(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 3; i++) {
        allocated_async(memory, a);
        writes(a, "used", memory);
        freed_async(memory, a);
    }
    no_race();
}

static void ordered_by_an_event_is_not_enough_for_a_plain_allocation(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "used", memory);
    freed_async(memory, a);
    order(a, b);
    allocated(memory);
    one_race(SIM_RACE_GIVEN_EARLY, "used", "allocation");
}

static void a_part_of_a_freed_block_given_too_early(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    use(a, "left", memory, 2048, true);
    use(a, "right", memory + 2048, 2048, true);
    freed(memory);
    CHECK((CUresult)sim_block_allocated(memory + 2560, 512));
    const struct sim_race race = one_race(SIM_RACE_GIVEN_EARLY, "right", "allocation");
    assert_int_equal(race.later.address, memory + 2560);
    CHECK((CUresult)sim_block_allocated(memory, 512));
    struct sim_race races[2];
    assert_int_equal(sim_races(races, 2), 2);
    assert_string_equal(races[1].earlier.name, "left");
}

static void memory_that_still_lives_given_again(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    allocated(memory);
    CHECK((CUresult)sim_block_allocated(memory + BLOCK_BYTES - 512, 1024));
    one_race(SIM_RACE_GIVEN_TWICE, "allocation", "allocation");
}

static void memory_beyond_the_block(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    use(a, "within", memory, BLOCK_BYTES, true);
    use(a, "elsewhere", memory + 2 * BLOCK_BYTES, BLOCK_BYTES, true);
    no_race();
    use(a, "beyond", memory, BLOCK_BYTES + 1, true);
    one_race(SIM_RACE_NOT_ALLOCATED, "nothing", "beyond");
}

static void memory_that_was_never_noted_where_all_is(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    sim_races_all_noted();
    allocated(memory);
    writes(a, "within", memory);
    no_race();
    use(a, "elsewhere", memory + 2 * BLOCK_BYTES, BLOCK_BYTES, true);
    one_race(SIM_RACE_NOT_ALLOCATED, "nothing", "elsewhere");
}

static void a_free_that_was_refused(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    CHECK_CODE((CUresult)sim_block_kept(memory), CUDA_ERROR_INVALID_VALUE);
    freed(memory);
    CHECK((CUresult)sim_block_kept(memory));
    writes(a, "user", memory);
    no_race();
    CHECK_CODE((CUresult)sim_block_freed(memory + 512), CUDA_ERROR_INVALID_VALUE);
    freed(memory);
    CHECK_CODE((CUresult)sim_block_freed(memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE((CUresult)sim_block_freed_async(memory, a), CUDA_ERROR_INVALID_VALUE);
}

static void an_allocator_may_fill_free_memory_in_order(void **state) {
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        allocated(memory);
        writes(a, "used", memory);
        freed(memory);
        if (ordered) CHECK(cuCtxSynchronize());
        sim_allocator_entered();
        CHECK(cuMemsetD8Async(memory, 0, BLOCK_BYTES, b));
        sim_allocator_left();
        CHECK(cuStreamSynchronize(b));
        allocated(memory);
        if (ordered)
            no_race();
        else
            one_race(SIM_RACE_CONFLICT, "used", "fill");
    }
}

/* The legacy stream orders blocking streams by what it is given. An allocator that gives it nothing orders nothing. */
static void a_note_on_the_legacy_stream_orders_no_others(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(0), b = new_stream(0);
    allocated_async(memory, a);
    writes(a, "used", memory);
    freed_async(memory, NULL);
    allocated_async(memory, NULL);
    no_race();
    writes(b, "used again", memory);
    one_race(SIM_RACE_CONFLICT, "used", "used again");
}

static void after_work_of_the_legacy_stream_the_same_is_ordered(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(0), b = new_stream(0);
    allocated_async(memory, a);
    writes(a, "used", memory);
    freed_async(memory, NULL);
    use(NULL, "elsewhere", memory + BLOCK_BYTES, 64, true);
    allocated_async(memory, NULL);
    writes(b, "used again", memory);
    no_race();
}

/* Memory that the driver itself gives to others. It knows when the free has happened; the host does not. */

static void the_driver_gives_memory_to_another_stream_in_order(void **state) {
    (void)state;
    enum { DONE_AT_THE_FREE, DONE_AT_THE_ALLOCATION, BUSY };
    for (int when = DONE_AT_THE_FREE; when <= BUSY; when++) {
        races_fresh();
        CUdeviceptr first, second, other;
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
        CHECK(cuMemAlloc(&other, BLOCK_BYTES));
        allocated(other);
        writes(a, "elsewhere", other);
        const size_t bytes = (size_t)8000 << 20; /* so much that there is no room for it beside itself */
        CHECK(cuMemAllocAsync(&first, bytes, a));
        allocated_async(first, a);
        if (when != DONE_AT_THE_FREE) hold_stream(a);
        writes(a, "used", first);
        freed_async(first, a);
        CHECK(cuMemFreeAsync(first, a));
        if (when == DONE_AT_THE_ALLOCATION) sim_release_kernels();
        while (when != BUSY && sim_pending(NULL) > 0) continue;
        CHECK(cuMemAllocAsync(&second, bytes, b));
        assert_int_equal(first, second);
        allocated_async(second, b);
        writes(b, "used again", second);
        no_race();
        freed(other);
        allocated(other);
        if (when == BUSY) sim_release_kernels();
        one_race(SIM_RACE_GIVEN_EARLY, "elsewhere", "allocation");
        CHECK(cuMemFreeAsync(second, b));
    }
}

static void the_driver_gives_plain_memory_that_was_freed_in_a_stream(void **state) {
    (void)state;
    races_fresh();
    CUdeviceptr first, second;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&first, BLOCK_BYTES));
    allocated(first);
    writes(a, "used", first);
    freed_async(first, a);
    CHECK(cuMemFreeAsync(first, a));
    while (sim_pending(NULL) > 0) continue;
    CHECK(cuMemAlloc(&second, BLOCK_BYTES));
    assert_int_equal(first, second);
    allocated(second);
    no_race();
}

/* The driver takes the program's word that it has finished with it. */
static void memory_of_a_pool_that_a_plain_free_gives_back_must_be_over(void **state) {
    (void)state;
    races_fresh();
    CUdeviceptr first, second;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAllocAsync(&first, BLOCK_BYTES, a));
    allocated_async(first, a);
    writes(a, "used", first);
    freed(first);
    CHECK(cuMemFree(first));
    CHECK(cuMemAllocAsync(&second, BLOCK_BYTES, b));
    assert_int_equal(first, second);
    allocated_async(second, b);
    one_race(SIM_RACE_GIVEN_EARLY, "used", "allocation");
    CHECK(cuMemFree(second));
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

/* Streams that are gone. */

static void a_destroyed_stream_goes_before_the_legacy_one_if_it_blocked(void **state) {
    (void)state;
    for (int blocking = 0; blocking < 2; blocking++) {
        const CUdeviceptr memory = races_fresh();
        CUstream a = new_stream(blocking ? 0 : CU_STREAM_NON_BLOCKING);
        allocated(memory);
        writes(a, "one", memory);
        CHECK(cuStreamDestroy(a));
        writes(NULL, "legacy", memory);
        if (blocking)
            no_race();
        else
            one_race(SIM_RACE_CONFLICT, "one", "legacy");
    }
}

static void a_context_event_comes_after_destroyed_streams(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "used", memory);
    CHECK(cuStreamDestroy(a));
    freed(memory);
    by_context_event(NULL);
    allocated(memory);
    no_race();
}

static void a_stream_that_has_the_handle_of_another_is_not_ordered_after_it(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
    allocated(memory);
    writes(a, "one", memory);
    CHECK(cuStreamDestroy(a));
    CUstream b = new_stream(CU_STREAM_NON_BLOCKING);
    assert_ptr_equal(a, b);
    writes(b, "other", memory);
    one_race(SIM_RACE_CONFLICT, "one", "other");
}

static void streams_come_and_go(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    allocated(memory);
    for (int i = 0; i < 500; i++) {
        CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
        writes(a, "used", memory);
        CHECK(cuStreamSynchronize(a));
        CHECK(cuStreamDestroy(a));
    }
    no_race();
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

/* So many that blocks which are gone are no longer told apart. */
static void many_blocks(void **state) {
    (void)state;
    enum { MANY = 80000, SMALL = 512 };
    fresh_context();
    CUdeviceptr memory;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&memory, (size_t)MANY * SMALL));
    sim_races_start();
    for (int i = 0; i < MANY; i++) {
        const CUdeviceptr block = memory + (CUdeviceptr)i * SMALL;
        CHECK((CUresult)sim_block_allocated(block, SMALL));
        if (i % 10000 == 0) use(a, "used", block, SMALL, true);
        if (i % 20000 != 0) CHECK((CUresult)sim_block_freed(block));
    }
    use(a, "again", memory + (CUdeviceptr)20000 * SMALL, SMALL, true);
    no_race();
    use(b, "other", memory + (CUdeviceptr)20000 * SMALL, SMALL, true);
    CHECK((CUresult)sim_block_allocated(memory + (CUdeviceptr)10000 * SMALL, SMALL));
    CHECK((CUresult)sim_block_allocated(memory + (CUdeviceptr)10001 * SMALL, SMALL));
    use(a, "late", memory + (CUdeviceptr)39999 * SMALL, SMALL, true);
    struct sim_race races[4];
    assert_int_equal(sim_races(races, 4), 3);
    assert_int_equal(races[0].kind, SIM_RACE_CONFLICT);
    assert_string_equal(races[0].earlier.name, "again");
    assert_int_equal(races[1].kind, SIM_RACE_GIVEN_EARLY);
    assert_string_equal(races[1].earlier.name, "used");
    assert_int_equal(races[2].kind, SIM_RACE_USED_FREED);
    assert_string_equal(races[2].later.name, "late");
}

/* Threads that share the detector, each with memory of its own. */

static void *work_alone(void *argument) {
    CUdeviceptr memory = *(CUdeviceptr *)argument;
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(0);
    for (int i = 0; i < 200; i++) {
        allocated_async(memory, a);
        writes(a, "first", memory);
        order(a, b);
        reads(b, "second", memory);
        if (i % 5 == 0) CHECK(cuStreamSynchronize(b));
        order(b, a);
        freed_async(memory, a);
        if (i % 7 == 0) CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }
    CHECK(cuStreamDestroy(a));
    CHECK(cuStreamDestroy(b));
    return NULL;
}

static void threads_work_at_the_same_time(void **state) {
    (void)state;
    const CUdeviceptr memory = races_fresh();
    pthread_t threads[4];
    CUdeviceptr blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = memory + (CUdeviceptr)i * BLOCK_BYTES;
        assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &blocks[i]), 0);
    }
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    no_race();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_variable_starts_it),
    cmocka_unit_test(two_unordered_uses_one_of_them_a_write),
    cmocka_unit_test(one_stream_orders_what_it_is_given),
    cmocka_unit_test(a_write_is_judged_against_every_reader),
    cmocka_unit_test(work_that_ended_by_itself_is_not_ordered),
    cmocka_unit_test(an_event_orders_what_was_there_when_it_was_recorded),
    cmocka_unit_test(an_event_recorded_again_orders_the_later_work_too),
    cmocka_unit_test(an_order_may_go_through_many_streams),
    cmocka_unit_test(the_legacy_stream_orders_blocking_streams),
    cmocka_unit_test(the_legacy_stream_does_not_order_non_blocking_ones),
    cmocka_unit_test(blocking_streams_are_not_ordered_without_the_legacy_one),
    cmocka_unit_test(each_thread_has_a_stream_of_its_own),
    cmocka_unit_test(a_synchronise_orders_other_threads_too),
    cmocka_unit_test(a_stream_that_no_hook_has_seen_is_a_stream),
    cmocka_unit_test(each_observation_proves_what_came_before_it),
    cmocka_unit_test(observing_another_stream_proves_nothing),
    cmocka_unit_test(a_query_that_says_not_ready_proves_nothing),
    cmocka_unit_test(synchronising_the_legacy_stream_proves_blocking_ones),
    cmocka_unit_test(a_host_function_that_tells_nobody_proves_nothing),
    cmocka_unit_test(fills_and_copies_within_the_device_prove_nothing),
    cmocka_unit_test(a_use_after_the_free),
    cmocka_unit_test(a_use_after_an_async_free_on_another_stream),
    cmocka_unit_test(an_async_free_that_a_use_does_not_precede),
    cmocka_unit_test(an_async_free_that_the_allocation_does_not_precede),
    cmocka_unit_test(a_use_of_two_blocks),
    cmocka_unit_test(a_use_before_its_async_allocation),
    cmocka_unit_test(given_to_another_stream_too_early),
    cmocka_unit_test(given_again_on_the_same_stream),
    cmocka_unit_test(ordered_by_an_event_is_not_enough_for_a_plain_allocation),
    cmocka_unit_test(a_part_of_a_freed_block_given_too_early),
    cmocka_unit_test(memory_that_still_lives_given_again),
    cmocka_unit_test(memory_beyond_the_block),
    cmocka_unit_test(memory_that_was_never_noted_where_all_is),
    cmocka_unit_test(a_free_that_was_refused),
    cmocka_unit_test(an_allocator_may_fill_free_memory_in_order),
    cmocka_unit_test(a_note_on_the_legacy_stream_orders_no_others),
    cmocka_unit_test(after_work_of_the_legacy_stream_the_same_is_ordered),
    cmocka_unit_test(the_driver_gives_memory_to_another_stream_in_order),
    cmocka_unit_test(the_driver_gives_plain_memory_that_was_freed_in_a_stream),
    cmocka_unit_test(memory_of_a_pool_that_a_plain_free_gives_back_must_be_over),
    cmocka_unit_test(branches_of_a_graph),
    cmocka_unit_test(a_launch_comes_in_the_order_of_its_stream),
    cmocka_unit_test(memory_of_a_graph_is_judged_for_its_order_only),
    cmocka_unit_test(the_work_of_a_peer),
    cmocka_unit_test(events_order_streams_of_two_devices),
    cmocka_unit_test(a_context_event_orders_a_context_before_another),
    cmocka_unit_test(the_end_of_a_context_proves_its_work_and_ends_its_blocks),
    cmocka_unit_test(a_reset_proves_the_work_before_it),
    cmocka_unit_test(an_event_of_a_green_context_covers_its_streams_alone),
    cmocka_unit_test(a_green_context_may_wait_alone),
    cmocka_unit_test(a_destroyed_stream_goes_before_the_legacy_one_if_it_blocked),
    cmocka_unit_test(a_context_event_comes_after_destroyed_streams),
    cmocka_unit_test(a_stream_that_has_the_handle_of_another_is_not_ordered_after_it),
    cmocka_unit_test(streams_come_and_go),
    cmocka_unit_test(rows_that_lie_between_each_other),
    cmocka_unit_test(each_form_of_copy_and_fill_is_judged),
    cmocka_unit_test(a_race_in_words),
    cmocka_unit_test(one_fault_is_reported_once),
    cmocka_unit_test(nothing_is_known_once_it_is_stopped),
    cmocka_unit_test(many_blocks),
    cmocka_unit_test(threads_work_at_the_same_time),
};
TESTING_MAIN(tests)
