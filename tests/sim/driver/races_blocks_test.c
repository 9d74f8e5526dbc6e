/* SPDX-License-Identifier: MIT
 *
 * The race detector: blocks that are given, used and freed, by the program's notes and by the driver. A planted race is
 * found, with both sides; the same program with the missing order in place is clean (SIM_RACES=1, SIM_DEVICES=2).
 */
#include "races.h"

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

static const struct CMUnitTest tests[] = {
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
    cmocka_unit_test(many_blocks),
};
TESTING_MAIN(tests)
