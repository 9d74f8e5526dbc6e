/* SPDX-License-Identifier: MIT
 *
 * What happens when memory runs short, step by step: headroom, limit, trim, what is given back first, the retry, the
 * last block that fits, and the failure with its reason.
 */
#include "pool_fixture.h"

/* Cached memory in segments of two sizes that a third cannot use. */
static void cache_two_segments(struct fixture *f, size_t one, size_t other) {
    uint64_t a = must_alloc(f, one), b = must_alloc(f, other);
    must_free(f, a);
    must_free(f, b);
}

static void hazard_41_growth_shrinks_to_what_is_needed(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 6 * MIB_BYTES, fixture_options()); /* less than one ordinary segment */
    must_alloc(&f, 3 * MIB_BYTES);
    assert_true(totals_of(&f, 0).reserved <= 6 * MIB_BYTES);
    fixture_end(&f);
}

static void hazard_41_free_segments_go_back_and_the_driver_is_asked_again(void **state) {
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

static void hazard_41_segments_with_live_blocks_never_go_back(void **state) {
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

static void hazard_41_waiting_blocks_are_waited_for_before_failing(void **state) {
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
    fixture_begin(&f, 100 * MIB_BYTES, fixture_options()); /* blocks above 16 MiB are not split on this device */
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

static void hazard_41_failure_tells_its_reason(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    struct fixture f;
    options.headroom_bytes = MIB_BYTES; /* so that the device is asked for what is free */
    fixture_begin(&f, 64 * MIB_BYTES, options);
    must_alloc(&f, 40 * MIB_BYTES);
    must_free(&f, must_alloc(&f, 7 * MIB_BYTES)); /* idle: 16 MiB but for the next */
    must_alloc(&f, 4 * MIB_BYTES);
    uint64_t address = 99;
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    struct poolcuda_event event = last_event(POOLCUDA_EVENT_oom);
    assert_int_equal(event.requested_bytes, 40 * MIB_BYTES);
    assert_int_equal(event.live_bytes, 44 * MIB_BYTES);
    assert_int_equal(event.cached_bytes, 12 * MIB_BYTES);
    assert_int_equal(event.largest_free_bytes, 12 * MIB_BYTES);
    assert_int_equal(event.fragmentation_ppm, 0);
    assert_int_equal(event.device_free_bytes, 8 * MIB_BYTES);
    assert_int_equal(event.reason, POOLCUDA_OOM_DRIVER);
    assert_int_equal(pool_alloc(f.pool, SIZE_MAX, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(pool_alloc(f.pool, SIZE_MAX / 2, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    must_alloc(&f, 12 * MIB_BYTES); /* and the pool works on */
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

static void hazard_41_the_limit_refuses_only_after_cached_memory_went_back(void **state) {
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

static void the_limit_can_be_reached_and_not_passed(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.limit_bytes = 64 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    must_alloc(&f, 56 * MIB_BYTES);
    must_alloc(&f, 4096); /* an ordinary segment would pass the limit: what is left is taken */
    assert_int_equal(f.device.most_in_use[0], 64 * MIB_BYTES);
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, 10 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(f.device.most_in_use[0], 64 * MIB_BYTES);
    fixture_end(&f);
}

static void the_rest_of_the_device_is_taken_rather_than_the_least(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    must_alloc(&f, 54 * MIB_BYTES);
    must_alloc(&f, 4096);
    assert_int_equal(totals_of(&f, 0).reserved, 64 * MIB_BYTES);
    fixture_end(&f);
}

static int overstated(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes) {
    (void)self;
    (void)context;
    *free_bytes = *total_bytes = 12 * MIB_BYTES;
    return DEVICE_OK;
}

static void the_least_is_asked_for_where_the_driver_overstates_what_it_has(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 6 * MIB_BYTES, fixture_options());
    f.device.ops.memory_info = overstated;
    must_alloc(&f, 3 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).reserved, 4 * MIB_BYTES);
    fixture_end(&f);
}

/* 40 MiB lack 18; what is free is too little to be given up for it. */
static void no_more_than_what_is_lacking_goes_back(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 100 * MIB_BYTES, fixture_options());
    must_alloc(&f, 50 * MIB_BYTES);
    uint64_t a = must_alloc(&f, 20 * MIB_BYTES), b = must_alloc(&f, 8 * MIB_BYTES);
    must_free(&f, a);
    must_free(&f, b);
    must_alloc(&f, 40 * MIB_BYTES);
    assert_int_equal(f.device.releases, 1);
    assert_int_equal(totals_of(&f, 0).releasable, 8 * MIB_BYTES);
    fixture_end(&f);
}

static void in_need_an_idle_block_comes_before_what_has_to_be_waited_for(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.free_event = true;
    options.max_split_bytes = CONFIG_NONE;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, options);
    const uint64_t large = must_alloc(&f, 32 * MIB_BYTES), other = must_alloc(&f, 32 * MIB_BYTES);
    must_free(&f, large);
    must_alloc(&f, 20 * MIB_BYTES); /* of the first: 12 MiB of it are idle */
    f.device.passes_at_once = false;
    must_free(&f, other);
    const unsigned waits = f.device.synchronizes;
    assert_in_range(must_alloc(&f, 4096), large, large + 32 * MIB_BYTES);
    assert_int_equal(f.device.synchronizes, waits);
    assert_int_equal(f.device.releases, 0);
    f.device.passes_at_once = true;
    fixture_end(&f);
}

static void a_request_that_failed_counts_nothing_towards_the_limit(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.limit_bytes = 64 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    uint64_t address;
    f.device.alloc_fails_with = DEVICE_OUT_OF_MEMORY;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    f.device.alloc_fails_with = 0;
    must_alloc(&f, 40 * MIB_BYTES);
    fixture_end(&f);
}

static void what_a_reset_took_counts_nothing_towards_the_limit(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.limit_bytes = 64 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    must_alloc(&f, 40 * MIB_BYTES);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    must_alloc(&f, 40 * MIB_BYTES);
    fixture_end(&f);
}

/* Three free segments that are too little together to be given up for 100 MiB, which the limit leaves 80 for. */
static void hazard_41_the_smallest_segment_that_covers_goes_back(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.limit_bytes = 252 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    must_alloc(&f, 100 * MIB_BYTES);
    uint64_t a = must_alloc(&f, 20 * MIB_BYTES), b = must_alloc(&f, 24 * MIB_BYTES), c = must_alloc(&f, 28 * MIB_BYTES);
    must_free(&f, a);
    must_free(&f, b);
    must_free(&f, c);
    must_alloc(&f, 100 * MIB_BYTES);
    assert_int_equal(f.device.releases, 1);
    assert_int_equal(totals_of(&f, 0).releasable, 52 * MIB_BYTES);
    fixture_end(&f);
}

static bool any_is_primary(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return true;
}

static void hazard_41_of_two_pools_of_a_device_the_better_segment_goes_back(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.limit_bytes = 252 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    f.device.ops.context_primary = any_is_primary;
    fake_set_current(FAKE_CREATED, 0);
    uint64_t b = must_alloc(&f, 20 * MIB_BYTES), c = must_alloc(&f, 24 * MIB_BYTES);
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_alloc(&f, 100 * MIB_BYTES);
    uint64_t a = must_alloc(&f, 28 * MIB_BYTES);
    must_free(&f, a);
    must_free(&f, b);
    must_free(&f, c);
    must_alloc(&f, 100 * MIB_BYTES);
    assert_int_equal(f.device.releases, 1);
    assert_int_equal(totals_of(&f, 0).releasable, 52 * MIB_BYTES);
    fixture_end(&f);
}

static void a_closed_pool_keeps_its_segments_and_stops_nobody(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.ops.context_primary = any_is_primary;
    fake_set_current(FAKE_CREATED, 0);
    uint64_t a = must_alloc(&f, 40 * MIB_BYTES);
    must_free(&f, a);
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_free(&f, must_alloc(&f, 20 * MIB_BYTES));
    pool_context_close(f.pool, 0, FAKE_CREATED);
    assert_int_equal(pool_trim(f.pool, 0, 0), 20 * MIB_BYTES);
    f.device.ops.context_alive = any_is_primary;
    pool_context_settle(f.pool, 0, FAKE_CREATED);
    assert_int_equal(pool_trim(f.pool, 0, 0), 40 * MIB_BYTES);
    fixture_end(&f);
}

static void hazard_41_what_waits_in_another_pool_of_the_device_is_waited_for(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    f.device.ops.context_primary = any_is_primary;
    fake_set_current(FAKE_CREATED, 0);
    uint64_t a = must_alloc(&f, 40 * MIB_BYTES);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    pool_capture_end(f.pool);
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_alloc(&f, 60 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    fixture_end(&f);
}

static void hazard_45_headroom_is_left_free_by_growth(void **state) {
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

static void hazard_45_cached_memory_goes_back_before_headroom_is_touched(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.headroom_bytes = 32 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 128 * MIB_BYTES, options);
    must_free(&f, must_alloc(&f, 40 * MIB_BYTES)); /* too little to be given up for the next */
    must_alloc(&f, 60 * MIB_BYTES);
    assert_true(f.device.most_in_use[0] <= 96 * MIB_BYTES);
    assert_int_equal(last_event(POOLCUDA_EVENT_trim).device_free_bytes, 88 * MIB_BYTES);    /* before it */
    assert_int_equal(last_event(POOLCUDA_EVENT_growth).device_free_bytes, 128 * MIB_BYTES); /* after it */
    fixture_end(&f);
}

static void nothing_goes_back_in_a_capture(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.trim_bytes = 0;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    uint64_t large = must_alloc(&f, 40 * MIB_BYTES), small = must_alloc(&f, 512);
    pool_capture_begin(f.pool);
    must_free(&f, large);
    pool_capture_end(f.pool);
    must_alloc(&f, 100 * MIB_BYTES); /* what waited is idle from now on, above the bound */
    assert_int_equal(totals_of(&f, 0).releasable, 40 * MIB_BYTES);
    unsigned releases = f.device.releases;
    pool_capture_begin(f.pool);
    must_free(&f, small);
    assert_int_equal(f.device.releases, releases + 1); /* what asked the driver */
    pool_capture_end(f.pool);
    fixture_end(&f);
}

static void hazard_45_headroom_is_made_whole_again_by_frees(void **state) {
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

static void only_retries_are_counted_as_retries(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 40 * MIB_BYTES), address;
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(figures_of_pool()->oom_retries, 0); /* nothing was cached, so nothing was tried again */
    assert_int_equal(figures_of_pool()->oom_failures, 1);
    must_free(&f, a);
    must_alloc(&f, 64 * MIB_BYTES);
    assert_int_equal(figures_of_pool()->oom_failures, 1);
    fixture_end(&f);

    struct pool_options options = fixture_options();
    options.limit_bytes = 48 * MIB_BYTES;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    must_free(&f, must_alloc(&f, 16 * MIB_BYTES));
    must_alloc(&f, 40 * MIB_BYTES);
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

/* A block that waits, beside `cached` bytes that are idle. */
static uint64_t wait_beside(struct fixture *f, size_t waiting, size_t cached) {
    uint64_t a = must_alloc(f, waiting), b = cached ? must_alloc(f, cached) : 0;
    pool_capture_begin(f->pool);
    must_free(f, a);
    pool_capture_end(f->pool);
    if (cached) must_free(f, b);
    return a;
}

static void a_trim_counts_what_waits_and_stops_at_what_may_stay(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.passes_at_once = false;
    wait_beside(&f, 50 * MIB_BYTES, 40 * MIB_BYTES);
    assert_int_equal(pool_trim(f.pool, 0, 90 * MIB_BYTES), 0);
    assert_int_equal(pool_trim(f.pool, 0, 90 * MIB_BYTES - 512), 40 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).waiting, 50 * MIB_BYTES); /* a trim waits for nobody */
    assert_int_equal(f.device.synchronizes, 1);
    fixture_end(&f);
}

static void nothing_is_waited_for_while_a_stream_captures(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.passes_at_once = false;
    wait_beside(&f, 40 * MIB_BYTES, 0);
    pool_capture_begin(f.pool);
    unsigned synchronizes = f.device.synchronizes;
    assert_false(pool_relieve(f.pool, 0));
    assert_int_equal(f.device.synchronizes, synchronizes);
    pool_capture_end(f.pool);
    assert_true(pool_relieve(f.pool, 0));
    assert_int_equal(f.device.synchronizes, synchronizes + 1);
    assert_int_equal(f.device.in_use[0], 0);
    fixture_end(&f);
}

static void amid_a_capture_memory_goes_back_where_that_harms_none(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 40 * MIB_BYTES));
    must_free_on(&f, STREAM(1), must_alloc_on(&f, STREAM(1), 16 * MIB_BYTES));
    pool_capture_begin(f.pool);
    assert_false(pool_relieve(f.pool, 0));
    uint64_t address;
    assert_int_equal(pool_alloc_async(f.pool, 30 * MIB_BYTES, STREAM(2), POOL_DOOR_DRIVER, &address),
                     DEVICE_OUT_OF_MEMORY);
    assert_int_equal(f.device.releases, 0);
    f.device.releases_in_captures = true;
    must_alloc_on(&f, STREAM(2), 30 * MIB_BYTES);
    assert_int_equal(f.device.releases, 2);
    assert_int_equal(totals_of(&f, 0).reserved, totals_of(&f, 0).live);
    assert_int_equal(f.device.synchronizes, 1); /* of the free before */
    pool_capture_end(f.pool);
    fixture_end(&f);
}

static void blocks_whose_wait_failed_wait_on(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.passes_at_once = false;
    must_alloc(&f, 512); /* keeps the segment */
    uint64_t a = wait_beside(&f, 3 * MIB_BYTES, 0), b = must_alloc(&f, 5 * MIB_BYTES);
    pool_capture_begin(f.pool);
    must_free(&f, b);
    pool_capture_end(f.pool);
    f.device.record_fails_with = 700;
    f.device.synchronize_fails_with = 700;
    must_alloc(&f, 15 * MIB_BYTES);
    pool_relieve(f.pool, 0);
    assert_int_equal(totals_of(&f, 0).waiting, 8 * MIB_BYTES);
    assert_pool_whole(&f);
    f.device.record_fails_with = 0;
    f.device.synchronize_fails_with = 0;
    pool_relieve(f.pool, 0);
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    assert_int_equal(must_alloc(&f, 3 * MIB_BYTES), a);
    assert_int_equal(must_alloc(&f, 5 * MIB_BYTES), b);
    fixture_end(&f);
}

static void a_block_that_was_waited_for_serves_at_once(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = wait_beside(&f, 16 * MIB_BYTES, 0);
    unsigned allocs = f.device.allocs;
    assert_int_equal(must_alloc(&f, 16 * MIB_BYTES), a);
    assert_int_equal(f.device.allocs, allocs);
    assert_int_equal(f.device.releases, 1); /* what asked the driver in the capture */
    fixture_end(&f);
}

/* Another thread's free, made while this one is inside the driver. */
struct meanwhile {
    struct fixture *f;
    uint64_t block;
    int (*memory_info)(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes);
};
static struct meanwhile *meanwhile;

static void free_meanwhile(void *arg) {
    struct meanwhile *m = arg;
    if (m->block) must_free(m->f, m->block);
    m->block = 0;
}

static int memory_info_meanwhile(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes) {
    free_meanwhile(meanwhile);
    return meanwhile->memory_info(self, context, free_bytes, total_bytes);
}

static void a_block_freed_meanwhile_serves_before_failing(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.max_split_bytes = 20 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 16 * MIB_BYTES, options);
    must_alloc(&f, 512);
    struct meanwhile m = {.f = &f, .block = must_alloc(&f, 14 * MIB_BYTES)};
    uint64_t block = m.block;
    f.device.during_arg = &m;
    f.device.during_alloc = free_meanwhile;
    assert_int_equal(must_alloc(&f, 4 * MIB_BYTES), block);
    assert_int_equal(totals_of(&f, 0).live, 4 * MIB_BYTES + 512); /* and is split as ever */
    fixture_end(&f);
}

static void a_block_freed_meanwhile_serves_before_the_headroom_is_touched(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.headroom_bytes = 16 * MIB_BYTES;
    struct fixture f;
    fixture_begin(&f, 32 * MIB_BYTES, options);
    must_alloc(&f, 512);
    struct meanwhile m = {.f = &f, .block = must_alloc(&f, 14 * MIB_BYTES), .memory_info = f.device.ops.memory_info};
    uint64_t block = m.block;
    meanwhile = &m;
    f.device.ops.memory_info = memory_info_meanwhile;
    assert_int_equal(must_alloc(&f, 4 * MIB_BYTES), block);
    assert_int_equal(f.device.in_use[0], 16 * MIB_BYTES);
    fixture_end(&f);
}

static void relief_gives_everything_back_once(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 256 * MIB_BYTES, fixture_options());
    cache_two_segments(&f, 40 * MIB_BYTES, 60 * MIB_BYTES);
    assert_int_equal(pool_releasable(f.pool, 0, NULL), 100 * MIB_BYTES);
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

static void too_few_free_segments_stay(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 4096 * MIB_BYTES, fixture_options());
    cache_two_segments(&f, 16 * MIB_BYTES, 30 * MIB_BYTES); /* under three quarters of what comes */
    must_alloc(&f, 64 * MIB_BYTES);
    assert_int_equal(f.device.releases, 0);
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
    cmocka_unit_test(hazard_41_growth_shrinks_to_what_is_needed),
    cmocka_unit_test(hazard_41_free_segments_go_back_and_the_driver_is_asked_again),
    cmocka_unit_test(hazard_41_segments_with_live_blocks_never_go_back),
    cmocka_unit_test(hazard_41_waiting_blocks_are_waited_for_before_failing),
    cmocka_unit_test(the_other_devices_memory_is_left_alone),
    cmocka_unit_test(a_large_free_segment_goes_back_for_a_small_one),
    cmocka_unit_test(a_large_idle_block_beside_a_live_one_serves_in_need),
    cmocka_unit_test(hazard_41_failure_tells_its_reason),
    cmocka_unit_test(an_absurd_request_gives_nothing_back),
    cmocka_unit_test(hazard_41_the_limit_refuses_only_after_cached_memory_went_back),
    cmocka_unit_test(the_limit_can_be_reached_and_not_passed),
    cmocka_unit_test(the_rest_of_the_device_is_taken_rather_than_the_least),
    cmocka_unit_test(the_least_is_asked_for_where_the_driver_overstates_what_it_has),
    cmocka_unit_test(no_more_than_what_is_lacking_goes_back),
    cmocka_unit_test(in_need_an_idle_block_comes_before_what_has_to_be_waited_for),
    cmocka_unit_test(a_request_that_failed_counts_nothing_towards_the_limit),
    cmocka_unit_test(what_a_reset_took_counts_nothing_towards_the_limit),
    cmocka_unit_test(hazard_41_the_smallest_segment_that_covers_goes_back),
    cmocka_unit_test(hazard_41_of_two_pools_of_a_device_the_better_segment_goes_back),
    cmocka_unit_test(a_closed_pool_keeps_its_segments_and_stops_nobody),
    cmocka_unit_test(hazard_41_what_waits_in_another_pool_of_the_device_is_waited_for),
    cmocka_unit_test(hazard_45_headroom_is_left_free_by_growth),
    cmocka_unit_test(hazard_45_cached_memory_goes_back_before_headroom_is_touched),
    cmocka_unit_test(nothing_goes_back_in_a_capture),
    cmocka_unit_test(hazard_45_headroom_is_made_whole_again_by_frees),
    cmocka_unit_test(an_odd_segment_size_is_rounded_up),
    cmocka_unit_test(only_retries_are_counted_as_retries),
    cmocka_unit_test(trim_bounds_what_stays_cached),
    cmocka_unit_test(a_trim_counts_what_waits_and_stops_at_what_may_stay),
    cmocka_unit_test(nothing_is_waited_for_while_a_stream_captures),
    cmocka_unit_test(amid_a_capture_memory_goes_back_where_that_harms_none),
    cmocka_unit_test(blocks_whose_wait_failed_wait_on),
    cmocka_unit_test(a_block_that_was_waited_for_serves_at_once),
    cmocka_unit_test(a_block_freed_meanwhile_serves_before_failing),
    cmocka_unit_test(a_block_freed_meanwhile_serves_before_the_headroom_is_touched),
    cmocka_unit_test(relief_gives_everything_back_once),
    cmocka_unit_test(nearly_enough_free_segments_become_one),
    cmocka_unit_test(too_few_free_segments_stay),
    cmocka_unit_test(a_bound_that_the_user_set_is_kept),
};
TESTING_MAIN(tests)
