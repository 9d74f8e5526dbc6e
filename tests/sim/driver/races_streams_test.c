/* SPDX-License-Identifier: MIT
 *
 * The race detector: which streams and events order what, streams that come and go, threads. A planted race is found,
 * with both sides; the same program with the missing order in place is clean (SIM_RACES=1, SIM_DEVICES=2).
 */
#include <pthread.h>

#include "races.h"

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
    cmocka_unit_test(a_destroyed_stream_goes_before_the_legacy_one_if_it_blocked),
    cmocka_unit_test(a_stream_that_has_the_handle_of_another_is_not_ordered_after_it),
    cmocka_unit_test(streams_come_and_go),
    cmocka_unit_test(threads_work_at_the_same_time),
};
TESTING_MAIN(tests)
