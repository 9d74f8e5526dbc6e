/* SPDX-License-Identifier: MIT
 *
 * What the pool says of itself: its record and cell, the reasons why calls pass, the events of the ring, and what it
 * times.
 */
#include "pool_fixture.h"

#include <pthread.h>
#include <unistd.h>

static void figures_follow_the_pool(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 1000);
    uint64_t b = 0;
    assert_int_equal(pool_alloc(f.pool, 3 * MIB_BYTES, POOL_DOOR_RUNTIME, &b), 0);
    must_free(&f, a);
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), 1);
    const struct poolcuda_pool *pool = figures_of_pool();
    assert_non_null(pool);
    const struct cell_sums counters = pool_counters(pool);
    assert_int_equal(counters.allocs, 2);
    assert_int_equal(counters.hits, 1);
    assert_int_equal(counters.misses, 1);
    assert_int_equal(counters.frees, 1);
    assert_int_equal(pool->bad_frees, 1);
    assert_int_equal(counters.runtime_door, 1);
    assert_int_equal(counters.alloc_requested_bytes, 1000 + 3 * MIB_BYTES);
    assert_int_equal(counters.freed_live_bytes, 1024);
    assert_int_equal(pool->peak_live_bytes, 1024 + 3 * MIB_BYTES);
    assert_int_equal(pool->reserved_bytes, 16 * MIB_BYTES);
    assert_int_equal(pool->segment_allocs, 1);
    assert_int_equal(counters.classes[1].allocs, 1); /* 1,000 bytes, rounded to 1,024 */
    assert_int_equal(pool_figures(pool).waits, 1);
    fixture_end(&f);
}

static void wait_a_little(void *arg) {
    (void)arg;
    usleep(200);
}

static void wait_long(void *arg) {
    (void)arg;
    usleep(20000);
}

static void *free_once(void *fixture) {
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_free(fixture, must_alloc(fixture, 4096));
    return NULL;
}

static void a_threads_first_wait_stands_for_itself(void **state) {
    (void)state;
    struct fixture f;
    pthread_t thread;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 4096));
    const uint64_t before = figures_of_pool()->driver_ns;
    f.device.during_synchronize = wait_long;
    assert_int_equal(pthread_create(&thread, NULL, free_once, &f), 0);
    pthread_join(thread, NULL);
    f.device.during_synchronize = NULL;
    assert_in_range(figures_of_pool()->driver_ns - before, 20000000, 64 * UINT64_C(20000000) - 1);
    fixture_end(&f);
}

static void waits_and_hits_are_timed_by_samples(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 4096));
    const struct poolcuda_pool *pool = figures_of_pool();
    assert_non_null(pool);
    uint64_t before = pool->driver_ns, heartbeat = stats_header()->heartbeat_ns, hits = 0;
    f.device.during_synchronize = wait_a_little;
    for (int i = 0; i < 128; i++) must_free(&f, must_alloc(&f, 4096));
    f.device.during_synchronize = NULL;
    uint64_t waited = pool->driver_ns - before;
    assert_in_range(waited, 128 * 200000 / 2, 128 * UINT64_C(200000) * 100);
    for (unsigned i = 0; i < POOLCUDA_LATENCY_BUCKETS; i++) hits += pool->hit_ns[i];
    assert_in_range(hits, 2, 3);
    assert_true(stats_header()->heartbeat_ns > heartbeat);
    fixture_end(&f);
}

static uint64_t sum(const uint64_t *buckets) {
    uint64_t all = 0;
    for (unsigned i = 0; i < POOLCUDA_LATENCY_BUCKETS; i++) all += buckets[i];
    return all;
}

static void the_record_says_which_device_and_which_bounds(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    must_alloc(&f, 1000);
    const struct poolcuda_pool *pool = figures_of_pool();
    assert_non_null(pool);
    assert_int_equal(pool->kind, POOLCUDA_KIND_PLAIN);
    assert_int_equal(pool->context, (uintptr_t)FAKE_PRIMARY(0));
    assert_int_equal(pool->device, 0);
    assert_int_equal(pool->device_total_bytes, 1024 * MIB_BYTES);
    assert_int_equal(pool->max_split_bytes, 1024 * MIB_BYTES / 24);
    assert_int_equal(pool->uuid[0], 1);
    assert_string_equal(pool->pci, "0000:00:00.0");
    assert_int_equal(pool->limited, 0);
    assert_int_equal(pool->limit_bytes, 0);
    fixture_end(&f);
    options.limit_bytes = 64 * MIB_BYTES;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    must_alloc(&f, 1000);
    pool = figures_of_pool();
    assert_int_equal(pool->limited, 1);
    assert_int_equal(pool->limit_bytes, 64 * MIB_BYTES);
    fixture_end(&f);
}

static void gauges_peaks_and_classes_follow(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 1000), b = must_alloc(&f, 1000), c = must_alloc(&f, 512);
    const struct poolcuda_pool *pool = figures_of_pool();
    assert_int_equal(pool->segments, 1);
    assert_int_equal(pool->free_blocks, 1);
    assert_int_equal(pool->splits, 3);
    must_free(&f, a);
    assert_int_equal(pool->free_blocks, 2);
    assert_int_equal(pool->merges, 0);
    must_free(&f, b);
    assert_int_equal(pool->free_blocks, 2);
    assert_int_equal(pool->merges, 1);
    must_free(&f, c);
    assert_int_equal(pool->merges, 3); /* with both neighbours */
    assert_int_equal(pool->free_blocks, 1);
    assert_int_equal(pool->peak_live_bytes, 2 * 1024 + 512);
    assert_int_equal(pool->peak_requested_bytes, 2 * 1000 + 512);
    assert_int_equal(pool_figures(pool).peak_cached_bytes, 16 * MIB_BYTES);
    assert_int_equal(pool_figures(pool).peak_idle_bytes, 16 * MIB_BYTES);
    const struct cell_sums counters = pool_counters(pool);
    assert_int_equal(counters.classes[1].allocs, 2);
    assert_int_equal(counters.classes[1].misses, 1);
    assert_int_equal(counters.classes[1].frees, 2);
    assert_int_equal(counters.classes[0].misses, 0);
    assert_int_equal(sum(pool->miss_ns), 1);
    must_free(&f, must_alloc(&f, 2048));
    assert_int_equal(pool->peak_live_bytes, 2 * 1024 + 512);
    fixture_end(&f);
}

static void waiting_and_retired_blocks_are_told(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 1000), b = must_alloc(&f, 2000);
    const struct poolcuda_pool *pool = figures_of_pool();
    pool_capture_begin(f.pool);
    must_free(&f, a);
    pool_capture_end(f.pool);
    f.device.synchronize_fails_with = 700;
    assert_int_equal(pool_free(f.pool, b, POOL_DOOR_DRIVER), 700);
    f.device.synchronize_fails_with = 0;
    assert_int_equal(pool_figures(pool).waiting_bytes, 1024);
    assert_int_equal(pool->retired_bytes, 2048);
    uint64_t waits = pool_figures(pool).waits;
    pool_relieve(f.pool, 0);
    assert_int_equal(pool_figures(pool).waits, waits + 1);
    assert_int_equal(pool_figures(pool).waiting_bytes, 0);
    assert_int_equal(pool_figures(pool).peak_waiting_bytes, 1024);
    fixture_end(&f);
}

static uint64_t passes(enum poolcuda_pass_reason reason) {
    return stats_header()->pass_through[reason];
}

static void passes_tell_their_reason(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address, before[POOLCUDA_PASS_COUNT];
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t block = must_alloc(&f, 512);
    for (unsigned i = 0; i < POOLCUDA_PASS_COUNT; i++) before[i] = passes(i);
    assert_int_equal(pool_alloc(f.pool, 0, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(pool_free(f.pool, 0, POOL_DOOR_DRIVER), POOL_PASS);
    assert_int_equal(passes(POOLCUDA_PASS_zero_or_null), before[POOLCUDA_PASS_zero_or_null] + 2);
    assert_int_equal(pool_free(f.pool, 0x1234, POOL_DOOR_DRIVER), POOL_PASS);
    assert_int_equal(passes(POOLCUDA_PASS_foreign), before[POOLCUDA_PASS_foreign] + 1);
    fake_set_current(NULL, 0);
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(passes(POOLCUDA_PASS_no_context), before[POOLCUDA_PASS_no_context] + 1);
    fake_set_current(FAKE_CREATED, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(passes(POOLCUDA_PASS_created_context), before[POOLCUDA_PASS_created_context] + 2);
    fake_set_current(FAKE_PRIMARY(0), 0);
    pool_capture_begin(f.pool);
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_capture_end(f.pool);
    assert_int_equal(passes(POOLCUDA_PASS_capture), before[POOLCUDA_PASS_capture] + 1);
    pool_context_close(f.pool, 0, NULL);
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(passes(POOLCUDA_PASS_closed_context), before[POOLCUDA_PASS_closed_context] + 1);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    assert_int_equal(pool_free(f.pool, block, POOL_DOOR_DRIVER), POOL_PASS); /* of the life before */
    assert_int_equal(passes(POOLCUDA_PASS_foreign), before[POOLCUDA_PASS_foreign] + 2);
    fixture_end(&f);
}

static void growth_release_and_trim_are_events(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_alloc(&f, 512);
    struct poolcuda_event growth = last_event(POOLCUDA_EVENT_growth);
    assert_int_equal(growth.requested_bytes, 16 * MIB_BYTES);
    assert_int_equal(growth.device, 0);
    assert_int_equal(growth.kind, POOLCUDA_KIND_PLAIN);
    assert_int_equal(growth.live_bytes, 512);
    assert_int_equal(growth.device_free_bytes, UINT64_MAX); /* not asked */
    uint64_t large = must_alloc(&f, 50 * MIB_BYTES);
    must_free(&f, large);
    uint64_t heartbeat = stats_header()->heartbeat_ns;
    assert_int_equal(pool_trim(f.pool, 0, 0), 50 * MIB_BYTES);
    assert_true(stats_header()->heartbeat_ns > heartbeat);
    assert_int_equal(last_event(POOLCUDA_EVENT_release).requested_bytes, 50 * MIB_BYTES);
    struct poolcuda_event trim = last_event(POOLCUDA_EVENT_trim);
    assert_int_equal(trim.requested_bytes, 50 * MIB_BYTES);
    assert_int_equal(trim.cached_bytes, 16 * MIB_BYTES - 512);
    const struct poolcuda_pool *pool = figures_of_pool();
    assert_int_equal(pool->trims, 1);
    assert_int_equal(pool->segment_releases, 1);
    assert_int_equal(pool->segment_release_bytes, 50 * MIB_BYTES);
    assert_int_equal(pool_trim(f.pool, 0, 0), 0); /* nothing to give back is no trim */
    assert_int_equal(pool->trims, 1);
    fixture_end(&f);
}

static void what_was_tried_before_a_failure_is_told(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 7 * MIB_BYTES), b = must_alloc(&f, 4096), c = must_alloc(&f, 8 * MIB_BYTES);
    must_free(&f, a);
    must_free(&f, c);
    must_free(&f, must_alloc(&f, 20 * MIB_BYTES)); /* goes back before the retry */
    const struct poolcuda_pool *pool = figures_of_pool();
    assert_int_equal(pool_alloc(f.pool, 60 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(pool->oom_retries, 1);
    assert_int_equal(pool->oom_failures, 1);
    struct poolcuda_event retry = last_event(POOLCUDA_EVENT_oom_retry), oom = last_event(POOLCUDA_EVENT_oom);
    assert_int_equal(retry.requested_bytes, 60 * MIB_BYTES);
    assert_int_equal(retry.reason, POOLCUDA_OOM_DRIVER);
    assert_int_equal(oom.requested_bytes, 60 * MIB_BYTES);
    assert_int_equal(oom.cached_bytes, 16 * MIB_BYTES - 4096);
    assert_int_equal(oom.largest_free_bytes, 9 * MIB_BYTES - 4096);
    assert_int_equal(oom.fragmentation_ppm, 437606); /* 7 of nearly 16 MiB are not in the largest block */
    assert_int_equal(pool_alloc(f.pool, 65 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(pool->oom_failures, 2);
    assert_int_equal(pool->oom_retries, 1); /* more than there is: nothing is tried */
    must_free(&f, b);
    fixture_end(&f);
}

static void a_reset_begins_a_new_record(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t block = must_alloc(&f, 4096);
    struct pool_block_info before, after;
    assert_int_equal(pool_find(f.pool, block, &before), 0);
    const struct poolcuda_pool *old = figures_of_pool();
    uint64_t generation = old->generation;
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    assert_int_equal(old->state, POOLCUDA_POOL_GONE);
    assert_int_equal(last_event(POOLCUDA_EVENT_reset).requested_bytes, 16 * MIB_BYTES);
    block = must_alloc(&f, 4096);
    const struct poolcuda_pool *pool = figures_of_pool();
    assert_non_null(pool);
    assert_int_not_equal(pool->generation, generation);
    assert_int_equal(pool->reserved_bytes, 16 * MIB_BYTES);
    assert_int_equal(pool->segment_allocs, 1);
    assert_int_equal(pool_find(f.pool, block, &after), 0);
    assert_int_not_equal(after.id, before.id);
    fixture_end(&f);
}

static void note_call(void *arg) {
    *(uint64_t *)arg = stats_header()->in_driver_since_ns;
    usleep(2000);
}

static void a_driver_call_is_told_while_it_lasts_and_timed(void **state) {
    (void)state;
    struct fixture f;
    uint64_t since = 0;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.during_arg = &since;
    f.device.during_alloc = note_call;
    uint64_t block = must_alloc(&f, 4096);
    f.device.during_alloc = NULL;
    assert_int_not_equal(since, 0);
    assert_int_equal(stats_header()->in_driver_since_ns, 0);
    const struct poolcuda_pool *pool = figures_of_pool();
    assert_true(pool->driver_ns >= 2000000);
    pool_capture_begin(f.pool);
    must_free(&f, block);
    pool_capture_end(f.pool);
    since = 0;
    uint64_t before = pool->driver_ns;
    f.device.during_synchronize = note_call;
    pool_relieve(f.pool, 0);
    f.device.during_synchronize = NULL;
    assert_int_not_equal(since, 0);
    assert_int_equal(stats_header()->in_driver_since_ns, 0);
    assert_true(pool->driver_ns >= before + 2000000);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(waits_and_hits_are_timed_by_samples),
    cmocka_unit_test(a_threads_first_wait_stands_for_itself),
    cmocka_unit_test(figures_follow_the_pool),
    cmocka_unit_test(the_record_says_which_device_and_which_bounds),
    cmocka_unit_test(gauges_peaks_and_classes_follow),
    cmocka_unit_test(waiting_and_retired_blocks_are_told),
    cmocka_unit_test(passes_tell_their_reason),
    cmocka_unit_test(growth_release_and_trim_are_events),
    cmocka_unit_test(what_was_tried_before_a_failure_is_told),
    cmocka_unit_test(a_reset_begins_a_new_record),
    cmocka_unit_test(a_driver_call_is_told_while_it_lasts_and_timed),
};
TESTING_MAIN(tests)
