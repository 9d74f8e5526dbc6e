/* SPDX-License-Identifier: MIT
 *
 * Blocks that wait for a fence: when one is recorded, what it proves, and what captures do to it.
 */
#include "pool_fixture.h"

#include <stdatomic.h>
#include <time.h>

#define BIG (20 * MIB_BYTES) /* has a segment of its own */

static void begin(struct fixture *f, bool free_event) {
    struct pool_options options = fixture_options();
    options.free_event = free_event;
    fixture_begin(f, 65536 * MIB_BYTES, options);
    f->device.passes_at_once = false;
}

static void pass_all(struct fixture *f) {
    f->device.passed = f->device.recorded;
}

static void a_free_returns_at_once_and_its_block_waits(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t a = must_alloc(&f, BIG);
    must_free(&f, a);
    assert_int_equal(f.device.synchronizes, 0);
    assert_int_equal(f.device.fences, 0);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_not_equal(must_alloc(&f, BIG), a);
    assert_int_equal(f.device.fences, 1); /* the miss recorded one */
    pass_all(&f);
    assert_int_equal(must_alloc(&f, BIG), a);
    assert_int_equal(f.device.fences, 1);
    assert_int_equal(f.device.synchronizes, 0);
    assert_int_equal(figures_of_pool()->fences, 1);
    assert_int_equal(figures_of_pool()->miss_fences, 1);
    assert_int_equal(figures_of_pool()->proved_blocks, 1);
    fixture_end(&f);
}

static void a_fence_proves_what_was_freed_before_it_only(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t a = must_alloc(&f, BIG), b = must_alloc(&f, BIG);
    must_free(&f, a);
    must_alloc(&f, BIG); /* records */
    must_free(&f, b);
    pass_all(&f);
    assert_int_equal(must_alloc(&f, BIG), a);
    assert_int_not_equal(must_alloc(&f, BIG), b);
    fixture_end(&f);
}

static uint64_t freed_meanwhile;
static struct fixture *meanwhile;
static void free_meanwhile(void *arg) {
    (void)arg;
    if (freed_meanwhile) must_free(meanwhile, freed_meanwhile);
    freed_meanwhile = 0;
}

static void a_free_during_the_recording_belongs_to_the_next_fence(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t a = must_alloc(&f, BIG), b = must_alloc(&f, BIG);
    must_free(&f, a);
    f.device.during_record = free_meanwhile;
    freed_meanwhile = b;
    meanwhile = &f;
    must_alloc(&f, BIG);
    assert_int_equal(freed_meanwhile, 0);
    pass_all(&f);
    assert_int_equal(must_alloc(&f, BIG), a);
    assert_int_not_equal(must_alloc(&f, BIG), b);
    pass_all(&f);
    assert_int_equal(must_alloc(&f, BIG), b);
    fixture_end(&f);
}

/* Frees `count` blocks of `bytes`, of which it holds them all before. */
static void free_many(struct fixture *f, unsigned count, size_t bytes) {
    uint64_t blocks[256];
    for (unsigned i = 0; i < count; i++) blocks[i] = must_alloc(f, bytes);
    for (unsigned i = 0; i < count; i++) must_free(f, blocks[i]);
}

static void sixty_four_frees_close_a_fence(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    free_many(&f, 63, 512);
    assert_int_equal(f.device.fences, 0);
    free_many(&f, 1, 512);
    assert_int_equal(f.device.fences, 1);
    assert_int_equal(figures_of_pool()->miss_fences, 0);
    free_many(&f, 128, 512);
    assert_int_equal(f.device.fences, 3);
    fixture_end(&f);
}

static void many_waiting_bytes_close_a_fence(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t a = must_alloc(&f, 100 * MIB_BYTES), b = must_alloc(&f, 100 * MIB_BYTES),
             c = must_alloc(&f, 100 * MIB_BYTES);
    uint64_t kept = must_alloc(&f, 1024 * MIB_BYTES);
    must_free(&f, a);
    must_free(&f, b);
    assert_int_equal(f.device.fences, 0);
    must_free(&f, c);
    assert_int_equal(f.device.fences, 1);
    must_free(&f, kept);
    fixture_end(&f);
}

static void an_eighth_of_the_live_bytes_may_wait_where_that_is_more(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t a = must_alloc(&f, 500 * MIB_BYTES);
    must_alloc(&f, 4096 * MIB_BYTES);
    must_free(&f, a);
    assert_int_equal(f.device.fences, 0);
    fixture_end(&f);
}

static void memory_that_waits_is_bounded(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t blocks[10];
    for (unsigned i = 0; i < 10; i++) blocks[i] = must_alloc(&f, 60 * MIB_BYTES);
    unsigned waited = 0;
    for (unsigned i = 0; i < 10; i++) {
        must_free(&f, blocks[i]);
        waited = waited || f.device.synchronizes ? waited + 1 : 0;
        const struct pool_totals totals = totals_of(&f, 0);
        assert_true(totals.waiting <= 256 * MIB_BYTES || totals.waiting <= totals.live);
    }
    assert_true(waited > 0); /* the kernel that runs for ever is waited for, as the driver's free would */
    fixture_end(&f);
}

static void what_has_passed_is_not_waited_for(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    f.device.passes_at_once = true;
    for (unsigned round = 0; round < 20; round++) free_many(&f, 10, 60 * MIB_BYTES);
    assert_int_equal(f.device.synchronizes, 0);
    fixture_end(&f);
}

static void a_device_without_fences_waits_in_every_free(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.free_event = true;
    stats_start(false);
    fake_device_init(&f.device, 1024 * MIB_BYTES);
    f.device.no_fences = true;
    f.pool = pool_system_create(&f.device.ops, &options);
    assert_non_null(f.pool);
    uint64_t a = must_alloc(&f, 4096);
    must_free(&f, a);
    assert_int_equal(f.device.synchronizes, 1);
    assert_int_equal(must_alloc(&f, 4096), a);
    f.device.not_alone = true; /* others' work is waited for too */
    must_free(&f, a);
    assert_int_equal(f.device.synchronizes, 3);
    assert_int_equal(f.device.recorded, 0);
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    fixture_end(&f);
}

static void beside_other_contexts_a_waited_for_block_waits_for_a_fence_too(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    f.device.not_alone = true;
    uint64_t a = must_alloc(&f, BIG);
    must_free(&f, a);
    assert_int_equal(f.device.synchronizes, 1);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_not_equal(must_alloc(&f, BIG), a);
    pass_all(&f);
    assert_int_equal(must_alloc(&f, BIG), a);
    fixture_end(&f);
}

static void hazard_30_nothing_is_recorded_while_a_stream_captures(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t a = must_alloc(&f, BIG), b = must_alloc_on(&f, STREAM(1), BIG), address;
    must_free(&f, a);
    must_free_on(&f, STREAM(1), b);
    pool_capture_begin(f.pool);
    const uint64_t recorded = f.device.recorded;
    assert_int_equal(recorded, 1); /* before it, for what was freed before */
    assert_int_equal(pool_alloc(f.pool, BIG, POOL_DOOR_DRIVER, &address), POOL_PASS);
    uint64_t c = must_alloc_on(&f, STREAM(2), BIG);
    for (unsigned i = 0; i < 200; i++) must_free_on(&f, STREAM(1), must_alloc_on(&f, STREAM(1), 512));
    pool_stream_end(f.pool, STREAM(1).handle);
    must_free(&f, c);
    assert_int_equal(f.device.recorded, recorded);
    assert_int_equal(f.device.releases, 0);
    pool_capture_end(f.pool);
    must_alloc_on(&f, STREAM(2), 2 * BIG);
    assert_int_equal(f.device.fences, 2); /* what had to wait is recorded afterwards */
    pass_all(&f);
    assert_int_equal(must_alloc(&f, BIG), a);
    fixture_end(&f);
}

static void what_was_freed_before_a_capture_is_proved_amid_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    const uint64_t a = must_alloc(&f, BIG), b = must_alloc_on(&f, STREAM(1), BIG);
    uint64_t address = 0;
    must_free(&f, a);
    must_free_on(&f, STREAM(1), b);
    pool_capture_begin(f.pool);
    pool_capture_begin(f.pool); /* what has a fence needs no other */
    assert_int_equal(f.device.fences, 1);
    assert_int_equal(pool_alloc_cached(f.pool, BIG, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    pass_all(&f);
    assert_int_equal(pool_alloc_cached(f.pool, BIG, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(f.device.queries, 0); /* which would break the capture */
    f.device.releases_in_captures = true;
    assert_int_equal(pool_alloc_cached(f.pool, BIG, POOL_DOOR_DRIVER, &address), 0);
    assert_int_equal(address, a);
    assert_int_equal(must_alloc_on(&f, STREAM(2), BIG), b);
    pool_capture_end(f.pool);
    pool_capture_begin(f.pool); /* nothing is free */
    assert_int_equal(f.device.recorded, 1);
    pool_capture_end(f.pool);
    pool_capture_end(f.pool);
    fixture_end(&f);
}

static pthread_t capturer;
static atomic_bool recording, capturing, seen_capturing;
static struct fixture *recorded_in;

static void *begin_capture(void *arg) {
    (void)arg;
    pool_capture_begin(recorded_in->pool);
    atomic_store(&capturing, true);
    return NULL;
}

/* Inside the driver's recording: a capture that begins now waits. */
static void linger(void *arg) {
    (void)arg;
    if (atomic_exchange(&recording, true)) return;
    pthread_create(&capturer, NULL, begin_capture, NULL);
    const struct timespec pause = {0, 150000000}; /* longer than a begin waits for a free */
    nanosleep(&pause, NULL);
    atomic_store(&seen_capturing, atomic_load(&capturing));
}

static void a_capture_begins_after_the_recordings_under_way(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    recorded_in = &f;
    atomic_store(&recording, false);
    atomic_store(&capturing, false);
    f.device.during_record = linger;
    must_free(&f, must_alloc(&f, BIG));
    must_alloc(&f, BIG);
    assert_true(atomic_load(&recording));
    assert_false(atomic_load(&seen_capturing));
    pthread_join(capturer, NULL);
    pool_capture_end(f.pool);
    fixture_end(&f);
}

/* The driver lets a mark wait for room on its stream, which the capturing thread may have to make. */
static void until_captured(void *arg) {
    (void)arg;
    if (atomic_exchange(&recording, true)) return;
    pthread_create(&capturer, NULL, begin_capture, NULL);
    for (unsigned ms = 0; ms < 60000 && !atomic_load(&capturing); ms++) nanosleep(&(struct timespec){0, 1000000}, NULL);
    atomic_store(&seen_capturing, atomic_load(&capturing));
}

static void a_capture_begins_though_a_mark_waits_for_room(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    recorded_in = &f;
    atomic_store(&recording, false);
    atomic_store(&capturing, false);
    must_free_on(&f, STREAM(1), must_alloc_on(&f, STREAM(1), BIG));
    f.device.during_record = until_captured;
    must_alloc_on(&f, STREAM(2), BIG);
    assert_int_equal(f.device.stream_marks, 1);
    assert_true(atomic_load(&seen_capturing));
    pthread_join(capturer, NULL);
    pool_capture_end(f.pool);
    fixture_end(&f);
}

static void a_fence_that_fails_retires_what_it_was_to_prove(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t a = must_alloc(&f, BIG), b = must_alloc(&f, BIG);
    must_free(&f, a);
    must_alloc(&f, BIG); /* records */
    must_free(&f, b);
    f.device.query_fails_with = 700;
    must_alloc(&f, BIG);
    assert_int_equal(totals_of(&f, 0).retired, 2 * BIG); /* the same miss recorded for b, and asked */
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    f.device.query_fails_with = 0;
    pass_all(&f);
    uint64_t c = must_alloc(&f, BIG);
    assert_true(c != a && c != b);
    fixture_end(&f);
}

static void a_recording_that_fails_leaves_blocks_to_the_next(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t a = must_alloc(&f, BIG);
    must_free(&f, a);
    f.device.record_fails_with = 2;
    assert_int_not_equal(must_alloc(&f, BIG), a);
    assert_int_equal(figures_of_pool()->fences, 0);
    f.device.record_fails_with = 0;
    f.device.passes_at_once = true;
    assert_int_equal(must_alloc(&f, BIG), a);
    fixture_end(&f);
}

static void fences_that_do_not_pass_are_bounded(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    free_many(&f, 200, 512);
    for (unsigned i = 0; i < 40; i++) free_many(&f, 200, 512);
    assert_true(f.device.fences - f.device.drops <= 16);
    pass_all(&f);
    f.device.passes_at_once = true;
    must_alloc(&f, BIG);
    assert_int_equal(f.device.fences, f.device.drops);
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    fixture_end(&f);
}

static void the_work_of_another_device_holds_nothing_back(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    f.device.passes_at_once = true;
    f.device.busy_elsewhere = true;
    for (unsigned round = 0; round < 200; round++) free_many(&f, 100, 64 * 1024);
    assert_true(totals_of(&f, 0).reserved <= 64 * MIB_BYTES);
    assert_true(f.device.recorded - f.device.drops <= 16);
    assert_int_equal(f.device.synchronizes, 0);
    f.device.busy_elsewhere = false;
    must_alloc(&f, BIG);
    must_free(&f, must_alloc(&f, BIG));
    must_alloc(&f, 2 * BIG);
    assert_true(f.device.recorded - f.device.drops <= 1);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_work_of_another_device_holds_nothing_back),
    cmocka_unit_test(a_free_returns_at_once_and_its_block_waits),
    cmocka_unit_test(a_fence_proves_what_was_freed_before_it_only),
    cmocka_unit_test(a_free_during_the_recording_belongs_to_the_next_fence),
    cmocka_unit_test(sixty_four_frees_close_a_fence),
    cmocka_unit_test(many_waiting_bytes_close_a_fence),
    cmocka_unit_test(an_eighth_of_the_live_bytes_may_wait_where_that_is_more),
    cmocka_unit_test(memory_that_waits_is_bounded),
    cmocka_unit_test(what_has_passed_is_not_waited_for),
    cmocka_unit_test(a_device_without_fences_waits_in_every_free),
    cmocka_unit_test(beside_other_contexts_a_waited_for_block_waits_for_a_fence_too),
    cmocka_unit_test(hazard_30_nothing_is_recorded_while_a_stream_captures),
    cmocka_unit_test(what_was_freed_before_a_capture_is_proved_amid_it),
    cmocka_unit_test(a_capture_begins_though_a_mark_waits_for_room),
    cmocka_unit_test(a_capture_begins_after_the_recordings_under_way),
    cmocka_unit_test(a_fence_that_fails_retires_what_it_was_to_prove),
    cmocka_unit_test(a_recording_that_fails_leaves_blocks_to_the_next),
    cmocka_unit_test(fences_that_do_not_pass_are_bounded),
};
TESTING_MAIN(tests)
