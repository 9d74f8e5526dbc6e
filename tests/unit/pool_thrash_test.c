/* SPDX-License-Identifier: MIT
 *
 * The guard against thrashing: a program whose large requests need another segment each time, near the end of the
 * device's memory.
 */
#include "pool_fixture.h"

#define STEPS 4
#define CALLS 2048 /* that may be owed */
#define PAYING 16  /* allocations that pay for one */

/* No segment of one size serves the next, and the device has room for one of them. */
static size_t size_of(unsigned step) {
    return (100 + 4 * (step % STEPS)) * MIB_BYTES;
}

static void begin(struct fixture *f) {
    fixture_begin(f, 300 * MIB_BYTES, fixture_options());
    must_alloc(f, 150 * MIB_BYTES);
}

static unsigned calls_of(const struct fixture *f) {
    return f->device.allocs + f->device.releases;
}

/* Returns the calls of the driver. */
static unsigned swap(struct fixture *f, unsigned times) {
    const unsigned before = calls_of(f);
    for (unsigned i = 0; i < times; i++) must_free(f, must_alloc(f, size_of(i)));
    return calls_of(f) - before;
}

static void below_the_bound_memory_comes_first(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    swap(&f, STEPS);
    assert_int_equal(swap(&f, 600), 1200);                                /* two calls each */
    assert_int_equal(totals_of(&f, 0).reserved, (150 + 112) * MIB_BYTES); /* and no more than is needed */
    fixture_end(&f);
}

static void calls_for_segments_are_bounded_in_the_long_run(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    swap(&f, 2 * CALLS);
    assert_int_equal(swap(&f, CALLS), 0);
    /* Half of what is owed is paid off; at the next call it is known, and spent again. */
    unsigned calls = 0;
    enum { ROUNDS = 4, TIMES = PAYING * CALLS / 2 + CALLS };
    for (unsigned round = 0; round < ROUNDS; round++) {
        calls += swap(&f, TIMES);
        must_free(&f, must_alloc(&f, 140 * MIB_BYTES));
    }
    assert_in_range(calls, ROUNDS * CALLS / 4, ROUNDS * TIMES / 8);
    fixture_end(&f);
}

static void a_larger_block_that_saves_a_call_stays_whole(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    swap(&f, 2 * CALLS);
    const uint64_t block = must_alloc(&f, 100 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).live, (150 + 112) * MIB_BYTES);
    must_free(&f, block);
    assert_int_equal(must_alloc(&f, 112 * MIB_BYTES), block);
    fixture_end(&f);
}

static void a_request_that_would_fail_has_its_calls(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    swap(&f, 2 * CALLS);
    const unsigned before = calls_of(&f);
    must_free(&f, must_alloc(&f, 140 * MIB_BYTES)); /* more than an eighth above what is free */
    assert_true(calls_of(&f) > before);
    must_alloc(&f, 150 * MIB_BYTES);
    fixture_end(&f);
}

static void a_pool_that_saves_calls_gives_no_segments_up_for_a_larger_one(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    swap(&f, 2 * CALLS);
    must_alloc(&f, 112 * MIB_BYTES);
    const uint64_t a = must_alloc(&f, 12 * MIB_BYTES), b = must_alloc(&f, 8 * MIB_BYTES);
    must_free(&f, a);
    must_free(&f, b);
    const unsigned releases = f.device.releases;
    must_alloc(&f, 18 * MIB_BYTES);
    assert_int_equal(f.device.releases, releases);
    fixture_end(&f);
}

static void a_new_life_of_the_context_owes_nothing(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    swap(&f, 2 * CALLS);
    assert_int_equal(swap(&f, 100), 0);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    must_alloc(&f, 150 * MIB_BYTES);
    assert_true(swap(&f, 100) > 150);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(below_the_bound_memory_comes_first),
    cmocka_unit_test(calls_for_segments_are_bounded_in_the_long_run),
    cmocka_unit_test(a_larger_block_that_saves_a_call_stays_whole),
    cmocka_unit_test(a_request_that_would_fail_has_its_calls),
    cmocka_unit_test(a_pool_that_saves_calls_gives_no_segments_up_for_a_larger_one),
    cmocka_unit_test(a_new_life_of_the_context_owes_nothing),
};
TESTING_MAIN(tests)
