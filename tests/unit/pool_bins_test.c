/* SPDX-License-Identifier: MIT
 *
 * Small freed blocks that are kept whole for their next request: which, for whom, and when they are merged after all.
 */
#include "pool_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define S STREAM(1)
#define T STREAM(2)
#define SMALL (4 * KIB)
#define SEGMENT (16 * MIB_BYTES)

enum { WARM = 8 }; /* requests of a size after which it is kept */

static void begin(struct fixture *f) {
    fixture_begin(f, 4096 * MIB_BYTES, fixture_options());
    f->device.passes_at_once = false;
}

/* Live blocks of one size, so many that what is freed of it is kept from now on. */
static void warm(struct fixture *f, size_t size, uint64_t blocks[WARM]) {
    for (unsigned i = 0; i < WARM; i++) blocks[i] = must_alloc(f, size);
}

static void warm_on(struct fixture *f, struct device_stream stream, size_t size, uint64_t blocks[WARM]) {
    for (unsigned i = 0; i < WARM; i++) blocks[i] = must_alloc_on(f, stream, size);
}

static uint64_t merges(void) {
    return figures_of_pool()->merges;
}

static void the_block_freed_last_serves_the_next_request(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    begin(&f);
    warm(&f, SMALL, blocks);
    const uint64_t before = merges();
    for (unsigned i = 0; i < 100; i++) {
        must_free(&f, blocks[2]);
        must_free(&f, blocks[3]); /* a neighbour */
        assert_pool_whole(&f);
        assert_int_equal(must_alloc(&f, SMALL), blocks[3]);
        assert_int_equal(must_alloc(&f, SMALL), blocks[2]);
        assert_pool_whole(&f);
    }
    assert_int_equal(merges(), before);
    assert_int_equal(totals_of(&f, 0).live, WARM * SMALL);
    assert_int_equal(totals_of(&f, 0).idle, SEGMENT - WARM * SMALL);
    assert_int_equal(pool_counters(figures_of_pool()).hits, WARM - 1 + 200);
    fixture_end(&f);
}

static void a_little_less_is_served_too(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    begin(&f);
    warm(&f, 33 * KIB, blocks);
    must_free(&f, blocks[1]);
    assert_int_equal(must_alloc(&f, 33 * KIB - 512), blocks[1]); /* 1.5 % */
    assert_int_equal(totals_of(&f, 0).requested, WARM * 33 * KIB - 512);
    assert_int_equal(totals_of(&f, 0).live, WARM * 33 * KIB);
    must_free(&f, blocks[1]);
    assert_int_not_equal(must_alloc(&f, 31 * KIB), blocks[1]); /* 6.1 % */
    assert_int_not_equal(must_alloc(&f, 33 * KIB + 512), blocks[1]);
    warm(&f, KIB, blocks);
    must_free(&f, blocks[1]);
    assert_int_not_equal(must_alloc(&f, 512), blocks[1]); /* a half */
    assert_int_equal(must_alloc(&f, 513), blocks[1]);
    fixture_end(&f);
}

static void the_largest_size_below_the_bound_is_served(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    begin(&f);
    warm(&f, 128 * KIB - 512, blocks);
    must_free(&f, blocks[1]);
    must_free(&f, blocks[3]);
    assert_int_equal(must_alloc(&f, 128 * KIB - 512), blocks[3]);
    assert_int_equal(must_alloc(&f, 128 * KIB - 512), blocks[1]);
    must_free(&f, blocks[1]);
    assert_int_not_equal(must_alloc(&f, 128 * KIB), blocks[1]);
    fixture_end(&f);
}

static void rare_sizes_are_merged_at_once(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    begin(&f);
    for (unsigned i = 0; i < WARM - 1; i++) blocks[i] = must_alloc(&f, SMALL);
    for (unsigned i = 0; i < WARM - 1; i++) must_free(&f, blocks[i]);
    assert_int_equal(totals_of(&f, 0).largest_free, SEGMENT);
    assert_int_equal(totals_of(&f, 0).releasable, SEGMENT);
    fixture_end(&f);
}

static void large_blocks_are_merged_at_once(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    begin(&f);
    for (unsigned round = 0; round < 3; round++) {
        warm(&f, 128 * KIB, blocks);
        for (unsigned i = 0; i < WARM; i++) must_free(&f, blocks[i]);
        assert_int_equal(totals_of(&f, 0).largest_free, SEGMENT);
    }
    fixture_end(&f);
}

static void what_bins_hold_serves_a_larger_request(void **state) {
    (void)state;
    struct fixture f;
    enum { COUNT = SEGMENT / (64 * KIB) };
    uint64_t blocks[COUNT];
    begin(&f);
    for (unsigned i = 0; i < COUNT; i++) blocks[i] = must_alloc(&f, 64 * KIB);
    for (unsigned i = 0; i < COUNT; i++) must_free(&f, blocks[i]);
    assert_int_equal(totals_of(&f, 0).idle, SEGMENT);
    assert_true(totals_of(&f, 0).largest_free < SEGMENT);
    must_free(&f, must_alloc(&f, SEGMENT));
    assert_int_equal(totals_of(&f, 0).reserved, SEGMENT);

    for (unsigned i = 0; i < COUNT; i++) blocks[i] = must_alloc_on(&f, S, 64 * KIB);
    for (unsigned i = 0; i < COUNT; i++) must_free_on(&f, S, blocks[i]);
    assert_int_equal(totals_of(&f, 0).ordered, SEGMENT);
    must_free_on(&f, S, must_alloc_on(&f, S, SEGMENT));
    assert_int_equal(totals_of(&f, 0).reserved, 2 * SEGMENT);
    fixture_end(&f);
}

static void what_bins_hold_goes_back_to_the_driver(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    begin(&f);
    warm(&f, 512, blocks);
    for (unsigned i = 0; i < WARM; i++) must_free(&f, blocks[i]);
    assert_true(totals_of(&f, 0).releasable < SEGMENT);
    assert_int_equal(pool_releasable(f.pool, 0, NULL), SEGMENT);
    warm(&f, 512, blocks);
    for (unsigned i = 0; i < WARM; i++) must_free(&f, blocks[i]);
    assert_int_equal(pool_trim(f.pool, 0, 0), SEGMENT);
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    fixture_end(&f);
}

static void what_a_stream_freed_serves_others_again_and_again(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    begin(&f);
    f.device.passes_at_once = true;
    warm_on(&f, S, SMALL, blocks);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < WARM; i++) must_free_on(&f, S, blocks[i]);
        assert_pool_whole(&f);
        assert_int_equal(pool_releasable(f.pool, 0, NULL), SEGMENT);
        assert_int_equal(totals_of(&f, 0).ordered, 0);
        warm_on(&f, S, SMALL, blocks);
    }
    assert_int_equal(totals_of(&f, 0).reserved, SEGMENT);
    fixture_end(&f);
}

static void a_second_free_into_a_bin_is_refused(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    struct pool_block_info info;
    begin(&f);
    warm(&f, SMALL, blocks);
    must_free(&f, blocks[0]);
    assert_int_equal(pool_free(f.pool, blocks[0], POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free_async(f.pool, blocks[0], S, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_find(f.pool, blocks[0], &info), DEVICE_NOT_FOUND);
    assert_int_equal(totals_of(&f, 0).live, (WARM - 1) * SMALL);
    assert_int_equal(must_alloc(&f, SMALL), blocks[0]);
    assert_int_not_equal(must_alloc(&f, SMALL), blocks[0]);
    fixture_end(&f);
}

static void another_stream_has_no_part_of_a_streams_bins(void **state) {
    (void)state;
    struct fixture f;
    uint64_t of_s[WARM], of_t[WARM];
    begin(&f);
    warm_on(&f, S, SMALL, of_s);
    warm_on(&f, T, SMALL, of_t);
    must_free_on(&f, S, of_s[3]);
    for (unsigned i = 0; i < 3000; i++) assert_int_not_equal(must_alloc_on(&f, T, SMALL), of_s[3]);
    assert_int_equal(must_alloc_on(&f, S, SMALL), of_s[3]);
    fixture_end(&f);
}

static void what_a_stream_frees_of_anothers_is_its_own(void **state) {
    (void)state;
    struct fixture f;
    uint64_t of_s[WARM], of_t[WARM];
    begin(&f);
    warm_on(&f, S, SMALL, of_s);
    warm_on(&f, T, SMALL, of_t);
    must_free_on(&f, T, of_s[3]);
    assert_pool_whole(&f);
    assert_int_not_equal(must_alloc_on(&f, S, SMALL), of_s[3]);
    assert_int_equal(must_alloc_on(&f, T, SMALL), of_s[3]);
    fixture_end(&f);
}

static void bins_of_a_stream_that_ends_wait_for_a_fence(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    begin(&f);
    warm_on(&f, S, SMALL, blocks);
    for (unsigned i = 0; i < WARM; i++) must_free_on(&f, S, blocks[i]);
    pool_stream_end(f.pool, S.handle);
    assert_int_equal(totals_of(&f, 0).idle, 0);
    uint64_t one = must_alloc_on(&f, T, SMALL);
    assert_true(one < blocks[0] || one >= blocks[0] + SEGMENT);
    f.device.passed = f.device.recorded;
    assert_int_equal(pool_releasable(f.pool, 0, NULL), SEGMENT);
    must_free_on(&f, T, one);
    fixture_end(&f);
}

static void bins_of_a_stream_whose_context_ends_take_and_give_nothing(void **state) {
    (void)state;
    for (unsigned frees = 0; frees <= 1; frees++) {
        struct fixture f;
        uint64_t blocks[WARM], address;
        begin(&f);
        warm_on(&f, S, SMALL, blocks);
        must_free_on(&f, S, blocks[0]);
        pool_streams_closing(f.pool, FAKE_PRIMARY(0));
        if (frees)
            must_free_on(&f, S, blocks[1]);
        else
            assert_int_equal(pool_alloc_async(f.pool, SMALL, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
        assert_int_equal(totals_of(&f, 0).blocks_live, WARM - 1 - frees);
        assert_int_equal(totals_of(&f, 0).ordered, SEGMENT - (WARM - 1) * SMALL);
        pool_streams_settled(f.pool, FAKE_PRIMARY(0), true);
        assert_int_equal(totals_of(&f, 0).ordered, 0);
        fixture_end(&f);
    }
}

static void what_waited_for_a_fence_is_kept_again(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[2 * WARM];
    struct pool_options options = fixture_options();
    options.free_event = true;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    f.device.passes_at_once = true;
    warm(&f, SMALL, blocks);
    for (unsigned i = 0; i < 128; i++) { /* two batches: the second finds that the first has passed */
        must_free(&f, blocks[0]);
        assert_int_equal(pool_free(f.pool, blocks[0], POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
        assert_pool_whole(&f);
        blocks[0] = must_alloc(&f, SMALL);
    }
    assert_int_equal(totals_of(&f, 0).waiting, 64 * SMALL);
    const uint64_t before = merges();
    for (unsigned i = 0; i < 32; i++) must_alloc(&f, SMALL);
    assert_int_equal(merges(), before);
    fixture_end(&f);
}

static void what_cannot_be_served_leaves_the_bins_alone(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM], on_s[WARM], address;
    begin(&f);
    warm(&f, SMALL, blocks);
    warm_on(&f, S, SMALL, on_s);
    must_free(&f, blocks[0]);
    must_free_on(&f, S, on_s[0]);
    assert_int_equal(pool_alloc(f.pool, SMALL, POOL_DOOR_DRIVER, NULL), POOL_PASS);
    assert_int_equal(pool_alloc_async(f.pool, SMALL, S, POOL_DOOR_DRIVER, NULL), POOL_PASS);
    assert_int_equal(pool_alloc(f.pool, 0, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(pool_alloc_async(f.pool, 0, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
    for (size_t over = 0; over < 3; over++) {
        assert_int_equal(pool_alloc(f.pool, SIZE_MAX - over, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
        assert_int_equal(pool_alloc_async(f.pool, SIZE_MAX - over, S, POOL_DOOR_DRIVER, &address),
                         DEVICE_OUT_OF_MEMORY);
    }
    assert_int_equal(must_alloc(&f, SMALL), blocks[0]);
    assert_int_equal(must_alloc_on(&f, S, SMALL), on_s[0]);
    fixture_end(&f);
}

/* Its place in the table went with the note. */
static void what_was_noted_and_waited_comes_into_no_bin(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    struct pool_options options = fixture_options();
    options.free_event = true;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    f.device.passes_at_once = true;
    warm(&f, SMALL, blocks);
    assert_int_equal(pool_set_sync_memops(f.pool, blocks[0], true), DEVICE_OK);
    must_free(&f, blocks[0]);
    assert_int_equal(totals_of(&f, 0).waiting, SMALL);
    for (unsigned i = 0; i < 128; i++) must_free(&f, must_alloc(&f, 64 * KIB)); /* two batches */
    assert_pool_whole(&f);
    must_free(&f, must_alloc(&f, SMALL));
    fixture_end(&f);
}

static void nothing_is_served_from_a_bin_amid_a_capture(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM], on_s[WARM], address;
    begin(&f);
    warm(&f, SMALL, blocks);
    warm_on(&f, S, SMALL, on_s);
    must_free(&f, blocks[0]);
    must_free_on(&f, S, on_s[0]);
    pool_capture_begin(f.pool);
    assert_int_equal(pool_alloc(f.pool, SMALL, POOL_DOOR_DRIVER, &address), POOL_PASS);
    f.device.capturing = S.handle;
    assert_int_equal(pool_alloc_async(f.pool, SMALL, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_not_equal(pool_free_async(f.pool, on_s[1], S, POOL_DOOR_DRIVER), DEVICE_OK);
    f.device.capturing = NULL;
    pool_capture_end(f.pool);
    assert_int_equal(must_alloc(&f, SMALL), blocks[0]);
    assert_int_equal(must_alloc_on(&f, S, SMALL), on_s[0]);
    fixture_end(&f);
}

static void nothing_is_kept_whole_while_the_headroom_is_touched(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    struct pool_options options = fixture_options();
    options.headroom_bytes = 300 * MIB_BYTES;
    fixture_begin(&f, 512 * MIB_BYTES, options);
    warm(&f, SMALL, blocks);
    const uint64_t large = must_alloc(&f, 200 * MIB_BYTES); /* into the headroom, with much left */
    for (unsigned i = 0; i < WARM; i++) must_free(&f, blocks[i]);
    assert_int_equal(totals_of(&f, 0).reserved, 200 * MIB_BYTES);
    must_free(&f, large);
    fixture_end(&f);
}

static void nothing_is_kept_whole_where_little_memory_is_left(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    fixture_begin(&f, 128 * MIB_BYTES, fixture_options());
    warm(&f, SMALL, blocks);
    must_free(&f, blocks[1]);
    assert_int_equal(totals_of(&f, 0).largest_free, SEGMENT - WARM * SMALL);
    const uint64_t large = must_alloc(&f, 84 * MIB_BYTES); /* 100 of 128 are reserved */
    for (unsigned i = 0; i < WARM; i++)
        if (i != 1) must_free(&f, blocks[i]);
    assert_int_equal(totals_of(&f, 0).largest_free, SEGMENT);
    must_free(&f, large);
    assert_int_equal(pool_trim(f.pool, 0, 0), 100 * MIB_BYTES);
    warm(&f, SMALL, blocks);
    for (unsigned i = 0; i < WARM; i++) must_free(&f, blocks[i]);
    assert_int_equal(totals_of(&f, 0).largest_free, SEGMENT - WARM * SMALL);
    fixture_end(&f);
}

static void bins_keep_no_segment_of_which_an_export_is_left(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM];
    struct pool_block_info info;
    begin(&f);
    const uint64_t exported = must_alloc(&f, SMALL);
    warm(&f, SMALL, blocks);
    assert_int_equal(pool_find(f.pool, exported, &info), DEVICE_OK);
    assert_int_equal(pool_note_export(f.pool, &info, 0), UINT64_MAX); /* by the driver's handle */
    must_free(&f, exported);
    for (unsigned i = 0; i < WARM; i++) must_free(&f, blocks[i]);
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    fixture_end(&f);
}

static void nothing_is_served_from_a_bin_amid_a_reset(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM], address;
    begin(&f);
    warm(&f, SMALL, blocks);
    must_free(&f, blocks[0]);
    pool_context_close(f.pool, 0, NULL);
    assert_int_equal(pool_alloc(f.pool, SMALL, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_context_settle(f.pool, 0, NULL);
    assert_int_equal(must_alloc(&f, SMALL), blocks[0]); /* the context stays */
    fixture_end(&f);
}

struct overtaken_free {
    struct fixture f;
    uint64_t blocks[WARM];
    atomic_bool closed, done;
    int code;
};

static void close_in_the_wait(void *arg) {
    struct overtaken_free *call = arg;
    call->f.device.during_synchronize = NULL;
    pool_context_close(call->f.pool, 0, NULL);
    atomic_store(&call->closed, true);
}

static void *free_amid_a_reset(void *arg) {
    struct overtaken_free *call = arg;
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_free(&call->f, call->blocks[0]); /* a thread's first is timed, and no common one */
    call->f.device.during_arg = call;
    call->f.device.during_synchronize = close_in_the_wait;
    call->code = pool_free(call->f.pool, call->blocks[1], POOL_DOOR_DRIVER);
    atomic_store(&call->done, true);
    return NULL;
}

static void a_free_into_a_bin_amid_a_reset_awaits_its_outcome(void **state) {
    (void)state;
    for (unsigned gone = 0; gone <= 1; gone++) {
        struct overtaken_free call = {0};
        struct fixture *f = &call.f;
        pthread_t thread;
        begin(f);
        warm(f, SMALL, call.blocks);
        pthread_create(&thread, NULL, free_amid_a_reset, &call);
        while (!atomic_load(&call.closed)) usleep(1000);
        usleep(20000);
        assert_false(atomic_load(&call.done));
        if (gone) fake_reset(&f->device, 0, false);
        pool_context_settle(f->pool, 0, NULL);
        pthread_join(thread, NULL);
        f->device.alive[0] = true;
        assert_int_equal(call.code, gone ? POOL_PASS : DEVICE_OK);
        assert_int_equal(totals_of(f, 0).live, gone ? 0 : (WARM - 2) * SMALL);
        fixture_end(f);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_block_freed_last_serves_the_next_request),
    cmocka_unit_test(a_little_less_is_served_too),
    cmocka_unit_test(the_largest_size_below_the_bound_is_served),
    cmocka_unit_test(rare_sizes_are_merged_at_once),
    cmocka_unit_test(large_blocks_are_merged_at_once),
    cmocka_unit_test(what_bins_hold_serves_a_larger_request),
    cmocka_unit_test(what_bins_hold_goes_back_to_the_driver),
    cmocka_unit_test(what_a_stream_freed_serves_others_again_and_again),
    cmocka_unit_test(a_second_free_into_a_bin_is_refused),
    cmocka_unit_test(another_stream_has_no_part_of_a_streams_bins),
    cmocka_unit_test(what_a_stream_frees_of_anothers_is_its_own),
    cmocka_unit_test(bins_of_a_stream_that_ends_wait_for_a_fence),
    cmocka_unit_test(bins_of_a_stream_whose_context_ends_take_and_give_nothing),
    cmocka_unit_test(what_waited_for_a_fence_is_kept_again),
    cmocka_unit_test(what_cannot_be_served_leaves_the_bins_alone),
    cmocka_unit_test(what_was_noted_and_waited_comes_into_no_bin),
    cmocka_unit_test(nothing_is_served_from_a_bin_amid_a_capture),
    cmocka_unit_test(bins_keep_no_segment_of_which_an_export_is_left),
    cmocka_unit_test(nothing_is_served_from_a_bin_amid_a_reset),
    cmocka_unit_test(a_free_into_a_bin_amid_a_reset_awaits_its_outcome),
    cmocka_unit_test(nothing_is_kept_whole_where_little_memory_is_left),
    cmocka_unit_test(nothing_is_kept_whole_while_the_headroom_is_touched),
};

TESTING_MAIN(tests)
