/* SPDX-License-Identifier: MIT
 *
 * What happens when memory runs short, step by step: headroom, limit, trim, what is given back first, the retry, the
 * last block that fits, and the failure with its reason.
 */
#include "pool_fixture.h"

static struct poolcuda_event last_event(enum poolcuda_event_type type) {
    const struct poolcuda_header *header = stats_header();
    struct poolcuda_event last = {0};
    for (uint32_t i = 0; i < header->events.count; i++) {
        const struct poolcuda_event *event =
            (const void *)((const char *)header + header->events.offset + (size_t)i * header->events.stride);
        if (event->type == (uint32_t)type && event->sequence > last.sequence) last = *event;
    }
    return last;
}

/* Cached memory in segments of two sizes that a third cannot use. */
static void cache_two_segments(struct fixture *f, size_t one, size_t other) {
    uint64_t a = must_alloc(f, one), b = must_alloc(f, other);
    must_free(f, a);
    must_free(f, b);
}

static void growth_shrinks_to_what_is_needed(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 6 * MIB_BYTES, fixture_options()); /* less than one ordinary segment */
    must_alloc(&f, 3 * MIB_BYTES);
    assert_true(totals_of(&f, 0).reserved <= 6 * MIB_BYTES);
    fixture_end(&f);
}

static void free_segments_go_back_and_the_driver_is_asked_again(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 100 * MIB_BYTES, fixture_options());
    cache_two_segments(&f, 40 * MIB_BYTES, 40 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).reserved, 80 * MIB_BYTES);
    must_alloc(&f, 60 * MIB_BYTES);
    assert_true(f.device.releases >= 1);
    assert_int_equal(totals_of(&f, 0).live, 60 * MIB_BYTES);
    fixture_end(&f);
}

static void segments_with_live_blocks_never_go_back(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 100 * MIB_BYTES, fixture_options());
    uint64_t keep = must_alloc(&f, 512), gap = must_alloc(&f, 8 * MIB_BYTES);
    must_free(&f, gap);
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, 99 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(f.device.releases, 0);
    struct pool_block_info info;
    assert_int_equal(pool_find(f.pool, keep, &info), 0);
    fixture_end(&f);
}

static void waiting_blocks_are_waited_for_before_failing(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 40 * MIB_BYTES);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    pool_capture_end(f.pool);
    assert_int_equal(totals_of(&f, 0).waiting, 40 * MIB_BYTES);
    must_alloc(&f, 60 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    fixture_end(&f);
}

static void the_other_devices_memory_is_left_alone(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_free(&f, must_alloc(&f, 40 * MIB_BYTES));
    fake_set_current(FAKE_PRIMARY(0), 0);
    uint64_t address;
    must_alloc(&f, 40 * MIB_BYTES);
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(totals_of(&f, 1).reserved, 40 * MIB_BYTES);
    fixture_end(&f);
}

static void a_large_free_segment_goes_back_for_a_small_one(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 100 * MIB_BYTES, fixture_options()); /* blocks above 32 MiB are not split on this device */
    uint64_t large = must_alloc(&f, 98 * MIB_BYTES);
    must_free(&f, large);
    must_alloc(&f, 4 * MIB_BYTES);
    assert_int_equal(f.device.releases, 1);
    assert_true(totals_of(&f, 0).reserved < 98 * MIB_BYTES);
    fixture_end(&f);
}

static void a_large_idle_block_beside_a_live_one_serves_in_need(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.segment_bytes = 64 * MIB_BYTES;
    options.max_split_bytes = CONFIG_NONE;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, options);
    must_alloc(&f, 512); /* the rest of its segment is one block of nearly 64 MiB */
    must_alloc(&f, 63 * MIB_BYTES);
    assert_int_equal(f.device.allocs, 1);
    fixture_end(&f);
}

static void failure_tells_its_reason(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    must_alloc(&f, 40 * MIB_BYTES);
    uint64_t address = 99;
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    struct poolcuda_event event = last_event(POOLCUDA_EVENT_oom);
    assert_int_equal(event.requested_bytes, 40 * MIB_BYTES);
    assert_int_equal(event.live_bytes, 40 * MIB_BYTES);
    assert_int_equal(event.reason, POOLCUDA_OOM_DRIVER);
    assert_int_equal(pool_alloc(f.pool, SIZE_MAX, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(pool_alloc(f.pool, SIZE_MAX / 2, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    must_alloc(&f, 20 * MIB_BYTES); /* and the pool works on */
    fixture_end(&f);
}

static void an_absurd_request_gives_nothing_back(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 20 * MIB_BYTES));
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, 65 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(f.device.releases, 0);
    fixture_end(&f);
}

static void the_limit_refuses_only_after_cached_memory_went_back(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.limit_bytes = 64 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    must_free(&f, must_alloc(&f, 40 * MIB_BYTES));
    uint64_t a = must_alloc(&f, 50 * MIB_BYTES); /* needs the cached 40 MiB gone */
    assert_true(f.device.most_in_use[0] <= 64 * MIB_BYTES);
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, 20 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(last_event(POOLCUDA_EVENT_oom).reason, POOLCUDA_OOM_LIMIT);
    must_free(&f, a);
    assert_true(totals_of(&f, 0).reserved <= 64 * MIB_BYTES);
    fixture_end(&f);
}

static void headroom_is_left_free_by_growth(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.headroom_bytes = 32 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, options);
    must_alloc(&f, 24 * MIB_BYTES);
    for (int i = 0; i < 2; i++) must_alloc(&f, 4 * MIB_BYTES); /* an ordinary segment would reach into the headroom */
    assert_int_equal(f.device.most_in_use[0], 32 * MIB_BYTES);
    must_alloc(&f, 8 * MIB_BYTES); /* would fail otherwise: the headroom is touched */
    assert_true(f.device.most_in_use[0] > 32 * MIB_BYTES);
    fixture_end(&f);
}

static void cached_memory_goes_back_before_headroom_is_touched(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.headroom_bytes = 32 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 128 * MIB_BYTES, options);
    must_free(&f, must_alloc(&f, 40 * MIB_BYTES)); /* too little to be given up for the next */
    must_alloc(&f, 60 * MIB_BYTES);
    assert_true(f.device.most_in_use[0] <= 96 * MIB_BYTES);
    fixture_end(&f);
}

static void headroom_is_made_whole_again_by_frees(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.headroom_bytes = 32 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 128 * MIB_BYTES, options);
    uint64_t a[7];
    for (int i = 0; i < 7; i++) a[i] = must_alloc(&f, 16 * MIB_BYTES); /* 16 MiB are left: the headroom is touched */
    assert_int_equal(f.device.in_use[0], 112 * MIB_BYTES);
    for (int i = 0; i < 7; i++) {
        must_free(&f, a[i]);
        assert_true(f.device.in_use[0] <= 96 * MIB_BYTES);
    }
    assert_int_equal(f.device.in_use[0], 96 * MIB_BYTES); /* and no more than that goes back */
    assert_int_equal(last_event(POOLCUDA_EVENT_trim).requested_bytes, 16 * MIB_BYTES);
    unsigned releases = f.device.releases;
    for (int i = 0; i < 5; i++) must_free(&f, must_alloc(&f, 16 * MIB_BYTES));
    assert_int_equal(f.device.releases, releases);
    fixture_end(&f);

    options.headroom_bytes = 1024 * MIB_BYTES; /* more than there is: nothing stays cached */
    fixture_begin(&f, 128 * MIB_BYTES, options);
    uint64_t keep = must_alloc(&f, 20 * MIB_BYTES);
    must_free(&f, must_alloc(&f, 40 * MIB_BYTES));
    assert_int_equal(f.device.in_use[0], 20 * MIB_BYTES);
    must_free(&f, keep);
    assert_int_equal(f.device.in_use[0], 0);
    fixture_end(&f);
}

static void an_odd_segment_size_is_rounded_up(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.segment_bytes = 3 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 128 * MIB_BYTES, options);
    must_alloc(&f, 512);
    assert_int_equal(totals_of(&f, 0).reserved, 4 * MIB_BYTES);
    fixture_end(&f);
}

static const struct poolcuda_pool *figures(void) {
    const struct poolcuda_header *header = stats_header();
    for (uint32_t i = 0; i < header->pools.count; i++) {
        const struct poolcuda_pool *pool =
            (const void *)((const char *)header + header->pools.offset + (size_t)i * header->pools.stride);
        if (pool->state == POOLCUDA_POOL_OPEN) return pool;
    }
    return NULL;
}

static void only_retries_are_counted_as_retries(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 40 * MIB_BYTES), address;
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(figures()->oom_retries, 0); /* nothing was cached, so nothing was tried again */
    assert_int_equal(figures()->oom_failures, 1);
    must_free(&f, a);
    must_alloc(&f, 64 * MIB_BYTES);
    assert_int_equal(figures()->oom_failures, 1);
    fixture_end(&f);

    struct pool_options options = fixture_options();
    options.limit_bytes = 48 * MIB_BYTES;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    must_free(&f, must_alloc(&f, 16 * MIB_BYTES));
    a = must_alloc(&f, 40 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).live, 40 * MIB_BYTES);
    fixture_end(&f);
}

static void trim_bounds_what_stays_cached(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.trim_bytes = 20 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    uint64_t a[4];
    for (int i = 0; i < 4; i++) a[i] = must_alloc(&f, 16 * MIB_BYTES);
    for (int i = 0; i < 4; i++) {
        must_free(&f, a[i]);
        assert_true(totals_of(&f, 0).idle <= 20 * MIB_BYTES);
    }
    assert_int_equal(last_event(POOLCUDA_EVENT_trim).type, POOLCUDA_EVENT_trim);
    fixture_end(&f);
}

static void relief_gives_everything_back_once(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 256 * MIB_BYTES, fixture_options());
    cache_two_segments(&f, 40 * MIB_BYTES, 60 * MIB_BYTES);
    assert_int_equal(pool_releasable(f.pool, 0), 100 * MIB_BYTES);
    assert_true(pool_relieve(f.pool, 0));
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    assert_int_equal(f.device.in_use[0], 0);
    assert_false(pool_relieve(f.pool, 0));
    fixture_end(&f);
}

static void nearly_enough_free_segments_become_one(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 4096 * MIB_BYTES, fixture_options());
    uint64_t a[4];
    for (int i = 0; i < 4; i++) a[i] = must_alloc(&f, 16 * MIB_BYTES);
    for (int i = 0; i < 4; i++) must_free(&f, a[i]);
    must_alloc(&f, 64 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).reserved, 64 * MIB_BYTES);
    fixture_end(&f);
}

static void a_bound_that_the_user_set_is_kept(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.max_split_bytes = 20 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    uint64_t small = must_alloc(&f, MIB_BYTES), large = must_alloc(&f, 30 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).reserved, 46 * MIB_BYTES); /* the large one has a segment of its own */
    must_free(&f, large);
    uint64_t other = must_alloc(&f, MIB_BYTES);
    assert_true(other < large || other >= large + 30 * MIB_BYTES); /* not cut from the large block */
    assert_int_equal(must_alloc(&f, 29 * MIB_BYTES), large);       /* one of nearly its size may have it, whole */
    assert_int_equal(totals_of(&f, 0).live, 32 * MIB_BYTES);
    must_free(&f, small);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(growth_shrinks_to_what_is_needed),
    cmocka_unit_test(free_segments_go_back_and_the_driver_is_asked_again),
    cmocka_unit_test(segments_with_live_blocks_never_go_back),
    cmocka_unit_test(waiting_blocks_are_waited_for_before_failing),
    cmocka_unit_test(the_other_devices_memory_is_left_alone),
    cmocka_unit_test(a_large_free_segment_goes_back_for_a_small_one),
    cmocka_unit_test(a_large_idle_block_beside_a_live_one_serves_in_need),
    cmocka_unit_test(failure_tells_its_reason),
    cmocka_unit_test(an_absurd_request_gives_nothing_back),
    cmocka_unit_test(the_limit_refuses_only_after_cached_memory_went_back),
    cmocka_unit_test(headroom_is_left_free_by_growth),
    cmocka_unit_test(cached_memory_goes_back_before_headroom_is_touched),
    cmocka_unit_test(headroom_is_made_whole_again_by_frees),
    cmocka_unit_test(an_odd_segment_size_is_rounded_up),
    cmocka_unit_test(only_retries_are_counted_as_retries),
    cmocka_unit_test(trim_bounds_what_stays_cached),
    cmocka_unit_test(relief_gives_everything_back_once),
    cmocka_unit_test(nearly_enough_free_segments_become_one),
    cmocka_unit_test(a_bound_that_the_user_set_is_kept),
};
TESTING_MAIN(tests)
