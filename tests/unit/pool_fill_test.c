/* SPDX-License-Identifier: MIT
 *
 * POOL_FILL: what is filled, with what and where, before the allocation returns; and what comes of a fill that fails,
 * or that a capture forbids.
 */
#include "pool_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

static struct pool_options filled_with(int fill) {
    struct pool_options options = fixture_options();
    options.fill = fill;
    options.async = true;
    return options;
}

static void begin(struct fixture *f, int fill) {
    fixture_begin(f, 1024 * MIB_BYTES, filled_with(fill));
}

static void assert_filled(const struct fake_fill *filled, uint64_t address, size_t bytes, uint8_t value,
                          const void *stream) {
    assert_int_equal(filled->address, address);
    assert_int_equal(filled->bytes, bytes);
    assert_int_equal(filled->value, value);
    assert_ptr_equal(filled->context, FAKE_PRIMARY(0));
    assert_ptr_equal(filled->stream, stream);
}

static void nothing_is_filled_unless_asked_for(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, CONFIG_FILL_NONE);
    for (int i = 0; i < 3; i++) must_free(&f, must_alloc(&f, 4096));
    for (int i = 0; i < 3; i++) must_free_on(&f, STREAM(1), must_alloc_on(&f, STREAM(1), 4096));
    assert_int_equal(f.device.fills, 0);
    fixture_end(&f);
}

static void hazard_44_fresh_and_reused_blocks_are_filled_to_their_end(void **state) {
    (void)state;
    static const struct {
        int fill;
        uint8_t value;
    } fills[] = {{CONFIG_FILL_ZERO, 0}, {CONFIG_FILL_POISON, 0xFF}};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        begin(&f, fills[i].fill);
        const uint64_t fresh = must_alloc(&f, 3000);
        assert_int_equal(f.device.fills, 1);
        assert_filled(&f.device.filled, fresh, 3072, fills[i].value, NULL);
        must_free(&f, fresh);
        assert_int_equal(must_alloc(&f, 1), fresh);
        assert_int_equal(f.device.fills, 2);
        assert_filled(&f.device.filled, fresh, 512, fills[i].value, NULL);
        must_free(&f, fresh);
        /* A block that is handed out whole, though it is larger. */
        const uint64_t whole = must_alloc(&f, 16 * MIB_BYTES - 512);
        assert_int_equal(f.device.allocs, 1);
        assert_filled(&f.device.filled, whole, 16 * MIB_BYTES, fills[i].value, NULL);
        fixture_end(&f);
    }
}

static void what_is_allocated_on_a_stream_is_filled_on_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, CONFIG_FILL_POISON);
    const uint64_t fresh = must_alloc_on(&f, STREAM(1), 5000);
    assert_filled(&f.device.filled, fresh, 5120, 0xFF, STREAM(1).handle);
    must_free_on(&f, STREAM(1), fresh);
    assert_int_equal(must_alloc_on(&f, STREAM(1), 5000), fresh);
    assert_int_equal(f.device.fills, 2);
    assert_filled(&f.device.filled, fresh, 5120, 0xFF, STREAM(1).handle);
    const uint64_t other = must_alloc_on(&f, PER_THREAD, 512);
    assert_filled(&f.device.filled, other, 512, 0xFF, (void *)2); /* as the driver's plain entry points know it */
    assert_int_equal(f.device.synchronizes, 0);
    fixture_end(&f);
}

/* ---- while it is filled ---- */

static struct fixture *shared;
static struct pool_block_info seen;
static int seen_code;

/* The block is taken, and no lock of the pool's is held: another thread's calls go on. */
static void *look(void *arg) {
    const struct fake_device *device = arg;
    struct pool_totals totals = totals_of(shared, 0);
    assert_true(totals.live > 0);
    seen_code = pool_find(shared->pool, device->next_address - 16 * MIB_BYTES, &seen);
    assert_pool_whole(shared);
    return NULL;
}

static void in_another_thread(void *arg) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look, arg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void hazard_44_a_block_is_filled_after_it_is_taken_and_without_a_lock(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, CONFIG_FILL_ZERO);
    shared = &f;
    f.device.during_fill = in_another_thread;
    f.device.during_arg = &f.device;
    for (int i = 0; i < 2; i++) { /* a miss, a hit */
        seen_code = -7;
        const uint64_t address = must_alloc(&f, 4096);
        assert_int_equal(seen_code, 0);
        assert_int_equal(seen.base, address);
        must_free(&f, address);
    }
    f.device.during_fill = NULL;
    fixture_end(&f);
}

static atomic_bool closed;

static void *close_context(void *arg) {
    (void)arg;
    pool_context_close(shared->pool, 0, NULL);
    atomic_store(&closed, true);
    pool_context_settle(shared->pool, 0, NULL);
    return NULL;
}

static pthread_t closer;

static void begin_to_close(void *arg) {
    (void)arg;
    assert_int_equal(pthread_create(&closer, NULL, close_context, NULL), 0);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    assert_false(atomic_load(&closed));
}

static void a_context_ends_after_the_fills_in_it(void **state) {
    (void)state;
    for (int failure = 0; failure < 2; failure++) {
        struct fixture f;
        begin(&f, CONFIG_FILL_ZERO);
        shared = &f;
        must_free(&f, must_alloc(&f, 4096));
        atomic_store(&closed, false);
        f.device.during_fill = begin_to_close;
        f.device.fill_fails_with = failure ? 700 : 0;
        uint64_t address = 0;
        assert_int_equal(pool_alloc(f.pool, 4096, POOL_DOOR_DRIVER, &address), failure ? 700 : 0);
        assert_int_equal(pthread_join(closer, NULL), 0);
        assert_true(atomic_load(&closed));
        fixture_end(&f);
    }
}

/* ---- what goes wrong ---- */

static void a_fill_that_fails_is_the_answer_and_the_block_is_free_again(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, CONFIG_FILL_ZERO);
    const uint64_t neighbour = must_alloc(&f, 4096);
    f.device.fill_fails_with = 700;
    f.device.passes_at_once = false;
    for (int miss = 0; miss < 2; miss++) {
        const size_t bytes = miss ? 20 * MIB_BYTES : 4096;
        uint64_t address;
        assert_int_equal(pool_alloc(f.pool, bytes, POOL_DOOR_DRIVER, &address), 700);
        assert_int_equal(pool_alloc_async(f.pool, bytes, STREAM(1), POOL_DOOR_DRIVER, &address), 700);
    }
    struct pool_totals totals = totals_of(&f, 0);
    assert_int_equal(totals.blocks_live, 1);
    assert_int_equal(totals.live, 4096);
    /* Part of it may be under way: not given out before a fence has passed. */
    assert_int_equal(totals.waiting, 2 * (4096 + 20 * MIB_BYTES));
    assert_pool_whole(&f);
    const struct cell_sums counters = pool_counters(figures_of_pool());
    assert_int_equal(counters.allocs - counters.frees, 1);
    f.device.fill_fails_with = 0;
    must_free(&f, neighbour);
    fixture_end(&f);
}

static void a_fill_for_which_memory_ran_out_is_tried_again(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, CONFIG_FILL_ZERO);
    const uint64_t first = must_alloc(&f, 20 * MIB_BYTES), second = must_alloc(&f, 20 * MIB_BYTES);
    must_free(&f, first);
    must_free(&f, second);
    f.device.fills = 0;
    f.device.fill_fails_with = DEVICE_OUT_OF_MEMORY;
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, 4096, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(f.device.fills, 2);
    assert_int_equal(f.device.releases, 2); /* what was cached went back in between */
    assert_int_equal(totals_of(&f, 0).live, 0);
    f.device.fill_fails_with = 0;
    fixture_end(&f);
}

static void where_nothing_can_fill_blocks_are_handed_out_as_they_are(void **state) {
    (void)state;
    struct fixture f;
    stats_start(false);
    fake_device_init(&f.device, 1024 * MIB_BYTES);
    f.device.ops.fill = NULL;
    const struct pool_options options = filled_with(CONFIG_FILL_ZERO);
    f.pool = pool_system_create(&f.device.ops, &options);
    must_free(&f, must_alloc(&f, 4096));
    must_free_on(&f, STREAM(1), must_alloc_on(&f, STREAM(1), 4096));
    fixture_end(&f);
}

/* ---- captures ---- */

/* A capture begins between the question whether any runs and the fill. */
static void capture_begins(void *arg) {
    struct fake_device *device = arg;
    device->during_alloc = NULL;
    pool_capture_begin(shared->pool);
}

static void a_capture_that_has_begun_leaves_the_allocation_to_the_driver(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, CONFIG_FILL_ZERO);
    shared = &f;
    f.device.during_arg = &f.device;
    f.device.during_alloc = capture_begins;
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, 4096, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_capture_end(f.pool);
    f.device.capturing = STREAM(1).handle;
    f.device.during_alloc = capture_begins;
    assert_int_equal(pool_alloc_async(f.pool, 4096, STREAM(1), POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(f.device.fills, 0);
    assert_int_equal(totals_of(&f, 0).live, 0);
    assert_int_equal(stats_header()->pass_through[POOLCUDA_PASS_capture], 2);
    /* Another stream's is none of its concern, where the thread can leave its mode. */
    assert_int_equal(pool_alloc_async(f.pool, 4096, STREAM(2), POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(f.device.fills, 0);
    f.device.releases_in_captures = true;
    const uint64_t other = must_alloc_on(&f, STREAM(2), 4096);
    assert_filled(&f.device.filled, other, 4096, 0, STREAM(2).handle);
    pool_capture_end(f.pool);
    f.device.capturing = NULL;
    fixture_end(&f);
}

static atomic_bool begun;

static void *begin_capture(void *arg) {
    (void)arg;
    pool_capture_begin(shared->pool);
    atomic_store(&begun, true);
    pool_capture_end(shared->pool);
    return NULL;
}

static void begin_to_capture(void *arg) {
    (void)arg;
    assert_int_equal(pthread_create(&closer, NULL, begin_capture, NULL), 0);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    assert_false(atomic_load(&begun));
}

static void a_capture_begins_after_the_fills_under_way(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, CONFIG_FILL_ZERO);
    shared = &f;
    for (int async = 0; async < 2; async++) {
        atomic_store(&begun, false);
        f.device.during_fill = begin_to_capture;
        if (async) {
            must_alloc_on(&f, STREAM(1), 4096);
        } else {
            must_alloc(&f, 4096);
        }
        assert_int_equal(pthread_join(closer, NULL), 0);
        assert_true(atomic_load(&begun));
    }
    f.device.during_fill = NULL;
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_filled_unless_asked_for),
    cmocka_unit_test(hazard_44_fresh_and_reused_blocks_are_filled_to_their_end),
    cmocka_unit_test(what_is_allocated_on_a_stream_is_filled_on_it),
    cmocka_unit_test(hazard_44_a_block_is_filled_after_it_is_taken_and_without_a_lock),
    cmocka_unit_test(a_context_ends_after_the_fills_in_it),
    cmocka_unit_test(a_fill_that_fails_is_the_answer_and_the_block_is_free_again),
    cmocka_unit_test(a_fill_for_which_memory_ran_out_is_tried_again),
    cmocka_unit_test(where_nothing_can_fill_blocks_are_handed_out_as_they_are),
    cmocka_unit_test(a_capture_that_has_begun_leaves_the_allocation_to_the_driver),
    cmocka_unit_test(a_capture_begins_after_the_fills_under_way),
};
TESTING_MAIN(tests)
