/* SPDX-License-Identifier: MIT
 *
 * Fixed-size pools: what they serve and what they leave to others, how their blocks come back by every kind of free,
 * and that they are reserved once for each life of a context and never given back.
 */
#include "pool/internal.h"

#include "pool_fixture.h"
#include "pool_insides.h"

#include <pthread.h>

#define BIG (8 * MIB_BYTES)
#define ODD ((size_t)5000) /* rounded to 5,120 */
#define ROUND ((size_t)5120)

static struct pool_options with_fixed(bool free_event) {
    struct pool_options options = fixture_options();
    options.free_event = free_event;
    options.fixed = (struct config_fixed){2, {{BIG, 4}, {ODD, 3}}};
    return options;
}

static void begin(struct fixture *f, bool free_event) {
    fixture_begin(f, 4096 * MIB_BYTES, with_fixed(free_event));
    f->device.passes_at_once = true;
}

/* The figures of a fixed-size pool of the first open pool. */
static const struct poolcuda_fixed *fixed_figures(size_t size) {
    const struct poolcuda_header *header = stats_header();
    const struct poolcuda_pool *pool = figures_of_pool();
    for (uint32_t i = 0; i < header->fixed.count; i++) {
        const struct poolcuda_fixed *fixed = figures_record(&header->fixed, i);
        if (fixed->pool && figures_record(&header->pools, fixed->pool - 1) == pool && fixed->size_bytes == size)
            return fixed;
    }
    fail_msg("no fixed-size pool of %zu bytes", size);
    return NULL;
}

static struct segment *segment_of(struct fixture *f, uint64_t address) {
    return registry_segment(&f->pool->registry, address);
}

static bool is_fixed(struct fixture *f, uint64_t address) {
    return segment_of(f, address)->fixed != NULL;
}

static void one_segment_for_each_size_at_the_first_allocation(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    assert_int_equal(f.device.allocs, 0);
    must_alloc(&f, 100); /* of another size: takes a segment of its own */
    assert_int_equal(f.device.allocs, 3);
    assert_int_equal(f.device.in_use[0], 4 * BIG + 3 * ROUND + 16 * MIB_BYTES);
    assert_int_equal(fixed_figures(BIG)->blocks, 4);
    assert_int_equal(fixed_figures(ROUND)->blocks, 3);
    assert_int_equal(fixed_figures(ROUND)->asked_blocks, 3);
    assert_int_equal(figures_of_pool()->fixed_free_bytes, 4 * BIG + 3 * ROUND);
    assert_int_equal(figures_of_pool()->growths, 0); /* what the first allocation takes is none */
    must_alloc(&f, 100);
    assert_int_equal(f.device.allocs, 3);
    fixture_end(&f);
}

static void exactly_its_size_is_served_and_nothing_else(void **state) {
    (void)state;
    struct fixture f;
    static const size_t others[] = {BIG - 512, BIG + 1, ODD - 512, ROUND + 1, 512, 1};
    begin(&f, false);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) assert_false(is_fixed(&f, must_alloc(&f, others[i])));
    assert_true(is_fixed(&f, must_alloc(&f, BIG)));
    assert_true(is_fixed(&f, must_alloc(&f, BIG - 511))); /* what is rounded to it */
    assert_true(is_fixed(&f, must_alloc(&f, ROUND)));
    assert_int_equal(fixed_figures(BIG)->in_use, 2);
    assert_int_equal(fixed_figures(BIG)->hits, 2);
    assert_int_equal(fixed_figures(BIG)->misses, 0);
    assert_int_equal(fixed_figures(BIG)->peak_in_use, 2);
    assert_int_equal(fixed_figures(ROUND)->in_use, 1);
    fixture_end(&f);
}

static void one_too_many_is_a_miss_and_served_by_the_ordinary_pool(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[5];
    begin(&f, false);
    for (unsigned i = 0; i < 4; i++) blocks[i] = must_alloc(&f, BIG);
    for (unsigned i = 1; i < 4; i++) assert_int_equal(blocks[i], blocks[i - 1] + BIG); /* by address */
    assert_int_equal(pool_counters(figures_of_pool()).hits, 4);
    blocks[4] = must_alloc(&f, BIG);
    assert_false(is_fixed(&f, blocks[4]));
    assert_int_equal(fixed_figures(BIG)->misses, 1);
    assert_int_equal(fixed_figures(BIG)->in_use, 4);
    assert_int_equal(pool_counters(figures_of_pool()).misses, 1);
    for (unsigned i = 0; i < 5; i++) must_free(&f, blocks[i]);
    assert_int_equal(fixed_figures(BIG)->in_use, 0);
    assert_int_equal(fixed_figures(BIG)->peak_in_use, 4);
    fixture_end(&f);
}

static void free_neighbours_stay_apart(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[4];
    begin(&f, false);
    for (unsigned i = 0; i < 4; i++) blocks[i] = must_alloc(&f, BIG);
    for (unsigned i = 0; i < 4; i++) {
        must_free(&f, blocks[i]);
        assert_pool_whole(&f);
    }
    const struct poolcuda_pool *figures = figures_of_pool();
    assert_int_equal(pool_figures(figures).idle_bytes, 0); /* nobody else can have them, */
    assert_int_equal(figures->largest_free_bytes, 0);
    assert_int_equal(figures->fixed_free_bytes, 4 * BIG + 3 * ROUND);
    assert_false(is_fixed(&f, must_alloc(&f, 2 * BIG)));
    must_alloc(&f, BIG);
    assert_int_equal(fixed_figures(BIG)->hits, 5);
    fixture_end(&f);
}

static void event_mode_waits_for_a_fence_and_asks_for_one(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[4];
    begin(&f, true);
    f.device.passes_at_once = false;
    for (unsigned i = 0; i < 4; i++) blocks[i] = must_alloc(&f, BIG);
    must_free(&f, blocks[2]);
    assert_int_equal(pool_figures(figures_of_pool()).waiting_bytes, BIG);
    assert_int_equal(fixed_figures(BIG)->in_use, 4); /* nobody can have it yet */
    assert_false(is_fixed(&f, must_alloc(&f, BIG)));
    assert_int_equal(f.device.synchronizes, 0);
    assert_true(f.device.fences > 0);
    f.device.passed = f.device.recorded;
    assert_int_equal(must_alloc(&f, BIG), blocks[2]);
    assert_int_equal(pool_figures(figures_of_pool()).waiting_bytes, 0);
    assert_int_equal(fixed_figures(BIG)->misses, 1);
    fixture_end(&f);
}

/* A fence costs driver calls: none is recorded for a size of which no block waits. */
static void a_miss_records_no_fence_for_others(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    f.device.passes_at_once = false;
    for (unsigned i = 0; i < 5; i++) must_alloc(&f, BIG);
    must_free(&f, must_alloc(&f, 4096));
    const unsigned fences = f.device.fences;
    must_free(&f, must_alloc(&f, 4096));
    for (unsigned i = 0; i < 3; i++) must_alloc(&f, ODD);
    must_alloc(&f, ODD); /* a miss, that the ordinary pool serves out of a segment */
    assert_int_equal(f.device.fences, fences);
    fixture_end(&f);
}

static void a_free_in_the_order_of_a_stream_waits_for_a_fence(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    f.device.passes_at_once = false;
    uint64_t blocks[4];
    for (unsigned i = 0; i < 4; i++) blocks[i] = must_alloc(&f, BIG);
    must_free_on(&f, STREAM(1), blocks[1]);
    assert_int_equal(pool_figures(figures_of_pool()).ordered_bytes, 0);
    assert_int_equal(pool_figures(figures_of_pool()).waiting_bytes, BIG);
    assert_pool_whole(&f);
    assert_false(is_fixed(&f, must_alloc(&f, BIG)));
    f.device.passed = f.device.recorded;
    assert_int_equal(must_alloc(&f, BIG), blocks[1]);
    f.device.no_streams = true; /* one that cannot be told from others is waited for */
    must_free_on(&f, STREAM(2), blocks[1]);
    assert_int_equal(figures_of_pool()->fixed_free_bytes, BIG + 3 * ROUND);
    fixture_end(&f);
}

/* Of a size that is asked for over and over, whose ordinary blocks are kept whole in bins. */
static void a_block_comes_back_to_its_own_and_to_no_bin(void **state) {
    (void)state;
    for (unsigned free_event = 0; free_event <= 1; free_event++) {
        struct fixture f;
        uint64_t blocks[3 + 8];
        begin(&f, free_event);
        for (unsigned i = 0; i < 3 + 8; i++) blocks[i] = must_alloc(&f, ODD);
        assert_true(is_fixed(&f, blocks[2]) && !is_fixed(&f, blocks[3]));
        must_free(&f, blocks[3]);
        must_free(&f, blocks[1]);
        assert_pool_whole(&f);
        if (free_event) pool_trim(f.pool, 0, 0); /* what waits is proved */
        assert_int_equal(fixed_figures(ROUND)->in_use, 2);
        assert_int_equal(figures_of_pool()->fixed_free_bytes, 4 * BIG + ROUND);
        assert_int_equal(must_alloc(&f, ODD), blocks[1]);
        fixture_end(&f);
    }
}

static void a_second_free_answers_1(void **state) {
    (void)state;
    struct fixture f;
    struct pool_block_info info;
    begin(&f, false);
    const uint64_t block = must_alloc(&f, BIG - 100), other = must_alloc(&f, BIG);
    assert_int_equal(pool_find(f.pool, block + BIG - 101, &info), 0);
    assert_int_equal(info.base, block);
    assert_int_equal(info.requested, BIG - 100);
    assert_int_equal(info.offset_in_segment, 0);
    assert_int_equal(pool_find(f.pool, other + 1, &info), 0);
    assert_int_equal(info.offset_in_segment, BIG);
    assert_int_equal(pool_find(f.pool, block + BIG - 100, &info), DEVICE_NOT_FOUND);
    must_free(&f, block);
    assert_int_equal(pool_free(f.pool, block, POOL_DOOR_DRIVER), 1);
    assert_int_equal(pool_free_async(f.pool, block, STREAM(1), POOL_DOOR_DRIVER), 1);
    assert_int_equal(pool_free(f.pool, other + BIG, POOL_DOOR_DRIVER), 1);
    assert_int_equal(pool_find(f.pool, block, &info), DEVICE_NOT_FOUND);
    assert_int_equal(f.device.bad_releases, 0);
    fixture_end(&f);
}

/* As freed blocks of others are, that are asked for over and over. */
static void a_freed_one_is_never_kept_for_an_ordinary_request(void **state) {
    (void)state;
    for (unsigned event = 0; event < 2; event++) {
        struct fixture f;
        uint64_t blocks[50];
        begin(&f, event);
        for (unsigned round = 0; round < 4; round++) {
            for (unsigned i = 0; i < 50; i++) blocks[i] = must_alloc(&f, ODD);
            for (unsigned i = 0; i < 50; i++) must_free(&f, blocks[i]);
        }
        assert_true(binned_bytes(atomic_load(&f.pool->pools)) > 0);
        for (unsigned i = 0; i < 50; i++) assert_int_equal(is_fixed(&f, must_alloc(&f, ODD)), i < 3);
        assert_int_equal(fixed_figures(ROUND)->in_use, 3);
        fixture_end(&f);
    }
}

static void a_failed_wait_takes_the_block_out_for_good(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t block = must_alloc(&f, BIG);
    f.device.synchronize_fails_with = 700;
    assert_int_equal(pool_free(f.pool, block, POOL_DOOR_DRIVER), 700);
    f.device.synchronize_fails_with = 0;
    for (unsigned i = 0; i < 3; i++) assert_int_not_equal(must_alloc(&f, BIG), block);
    assert_false(is_fixed(&f, must_alloc(&f, BIG)));
    assert_int_equal(fixed_figures(BIG)->in_use, 4);
    fixture_end(&f);
}

static bool still_open;

static bool over(uint64_t export) {
    (void)export;
    return !still_open;
}

static void an_exported_block_comes_back_when_nobody_has_it_open(void **state) {
    (void)state;
    struct fixture f;
    struct pool_block_info info;
    struct pool_options options = with_fixed(false);
    options.export_over = over;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    still_open = true;
    uint64_t blocks[4];
    for (unsigned i = 0; i < 4; i++) blocks[i] = must_alloc(&f, BIG);
    assert_int_equal(pool_find(f.pool, blocks[1], &info), 0);
    assert_int_equal(pool_note_export(f.pool, &info, 7), 7);
    must_free(&f, blocks[1]);
    assert_int_equal(figures_of_pool()->exported_bytes, BIG);
    assert_int_equal(figures_of_pool()->fixed_free_bytes, 3 * ROUND);
    still_open = false;
    must_free(&f, blocks[0]);
    pool_releasable(f.pool, 0, NULL); /* asks */
    assert_int_equal(figures_of_pool()->fixed_free_bytes, 2 * BIG + 3 * ROUND);
    fixture_end(&f);
}

static void what_was_exported_by_the_drivers_handle_is_lost_and_its_segment_stays(void **state) {
    (void)state;
    struct fixture f;
    struct pool_block_info info;
    struct pool_options options = fixture_options();
    options.fixed = (struct config_fixed){1, {{BIG, 1}}};
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    const uint64_t block = must_alloc(&f, BIG);
    assert_int_equal(pool_find(f.pool, block, &info), 0);
    assert_int_equal(pool_note_export(f.pool, &info, 0), UINT64_MAX);
    must_free(&f, block);
    pool_relieve(f.pool, 0);
    assert_int_equal(f.device.releases, 0);
    assert_int_equal(figures_of_pool()->exported_bytes, BIG);
    assert_false(is_fixed(&f, must_alloc(&f, BIG)));
    fixture_end(&f);
}

static void a_mark_goes_with_the_last_block_that_asked_for_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t a = must_alloc(&f, BIG), b = must_alloc(&f, BIG);
    assert_int_equal(pool_set_sync_memops(f.pool, a, true), 0);
    assert_int_equal(pool_set_sync_memops(f.pool, b, true), 0);
    must_free(&f, a);
    assert_true(f.device.sync_on);
    must_free(&f, b);
    assert_false(f.device.sync_on);
    assert_int_equal(fixed_figures(BIG)->in_use, 0);
    fixture_end(&f);
}

static void nothing_gives_a_fixed_size_back(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = with_fixed(false);
    uint64_t address;
    options.trim_bytes = 0;
    fixture_begin(&f, 64 * MIB_BYTES, options);
    must_free(&f, must_alloc(&f, BIG));
    assert_int_equal(pool_releasable(f.pool, 0, NULL), 0);
    pool_trim(f.pool, 0, 0);
    assert_false(pool_relieve(f.pool, 0));
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(f.device.releases, 0);
    assert_int_equal(f.device.in_use[0], 4 * BIG + 3 * ROUND);
    fixture_end(&f);
}

static void the_driver_gives_as_many_as_it_has(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = with_fixed(false);
    fixture_begin(&f, 3 * BIG + 2 * ROUND + 100, options);
    assert_true(is_fixed(&f, must_alloc(&f, BIG)));
    assert_int_equal(fixed_figures(BIG)->blocks, 3);
    assert_int_equal(fixed_figures(BIG)->asked_blocks, 4);
    assert_int_equal(fixed_figures(ROUND)->blocks, 2);
    fixture_end(&f);
    options.limit_bytes = 2 * BIG + 1;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    assert_true(is_fixed(&f, must_alloc(&f, BIG)));
    assert_int_equal(fixed_figures(BIG)->blocks, 2);
    assert_int_equal(fixed_figures(ROUND)->blocks, 0);
    fixture_end(&f);
    options.limit_bytes = CONFIG_NONE;
    options.headroom_bytes = 4080 * MIB_BYTES;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    assert_true(is_fixed(&f, must_alloc(&f, BIG)));
    assert_int_equal(fixed_figures(BIG)->blocks, 2);
    fixture_end(&f);
}

static void a_reset_forgets_them_and_the_next_first_allocation_makes_them_anew(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    must_alloc(&f, BIG);
    must_alloc(&f, ODD);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    assert_int_equal(figures_of_pool()->fixed_free_bytes, 0);
    assert_pool_whole(&f);
    const unsigned allocs = f.device.allocs;
    assert_true(is_fixed(&f, must_alloc(&f, BIG)));
    assert_int_equal(f.device.allocs, allocs + 2);
    assert_int_equal(fixed_figures(BIG)->hits, 1);
    assert_int_equal(fixed_figures(BIG)->blocks, 4);
    fixture_end(&f);
}

static void each_device_has_its_own_and_the_async_kind_none(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    must_alloc(&f, BIG);
    fake_set_current(FAKE_PRIMARY(1), 1);
    assert_true(is_fixed(&f, must_alloc(&f, BIG)));
    assert_int_equal(f.device.in_use[1], 4 * BIG + 3 * ROUND);
    fake_set_current(FAKE_PRIMARY(0), 0);
    assert_false(is_fixed(&f, must_alloc_on(&f, STREAM(1), BIG))); /* of the async kind */
    fixture_end(&f);
}

static void a_block_that_could_not_be_filled_comes_back(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    struct pool_options options = with_fixed(false);
    options.fill = CONFIG_FILL_ZERO;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    f.device.passes_at_once = true;
    must_alloc(&f, BIG);
    assert_int_equal(f.device.filled.bytes, BIG);
    f.device.fill_fails_with = 700;
    for (unsigned i = 0; i < 5; i++) assert_int_equal(pool_alloc(f.pool, ODD, POOL_DOOR_DRIVER, &address), 700);
    f.device.fill_fails_with = 0;
    assert_true(is_fixed(&f, must_alloc(&f, ODD)));
    assert_int_equal(f.device.filled.bytes, ROUND);
    fixture_end(&f);
}

static void in_a_capture_a_free_one_serves_what_the_driver_cannot(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address = 0;
    begin(&f, false);
    const uint64_t block = must_alloc(&f, BIG);
    pool_capture_begin(f.pool);
    assert_int_equal(pool_free(f.pool, block, POOL_DOOR_DRIVER), 0);
    assert_int_equal(pool_figures(figures_of_pool()).waiting_bytes, BIG);
    assert_int_equal(pool_alloc(f.pool, BIG, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(pool_alloc_cached(f.pool, BIG, POOL_DOOR_DRIVER, &address), 0);
    assert_true(is_fixed(&f, address));
    pool_capture_end(f.pool);
    fixture_end(&f);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 2000 };

static void *use(void *argument) {
    struct fixture *f = argument;
    fake_set_current(FAKE_PRIMARY(0), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const uint64_t a = must_alloc(f, BIG), b = must_alloc(f, ODD);
        if (i % 2)
            must_free(f, a);
        else
            must_free_on(f, STREAM(1), a);
        must_free(f, b);
    }
    return NULL;
}

static void threads_reserve_once_and_share(void **state) {
    (void)state;
    for (unsigned event = 0; event < 2; event++) {
        struct fixture f;
        pthread_t threads[THREADS];
        begin(&f, event);
        for (unsigned i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, use, &f), 0);
        for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        const struct poolcuda_fixed *big = fixed_figures(BIG);
        assert_int_equal(big->blocks, 4);
        assert_int_equal(big->hits + big->misses, THREADS * ROUNDS);
        assert_true(big->hits > 0);
        assert_int_equal(totals_of(&f, 0).live, 0);
        fixture_end(&f);
    }
}

static void close_context(void *argument) {
    struct fixture *f = argument;
    f->device.during_alloc = NULL;
    f->device.alloc_fails_with = 700; /* as in a context that is being torn down */
}

static void a_driver_that_fails_otherwise_gives_none(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    begin(&f, false);
    f.device.during_alloc = close_context;
    f.device.during_arg = &f;
    assert_int_equal(pool_alloc(f.pool, BIG, POOL_DOOR_DRIVER, &address), 700);
    assert_int_equal(fixed_figures(BIG)->misses, 1);
    f.device.alloc_fails_with = 0;
    must_alloc(&f, BIG); /* it is not tried again */
    assert_int_equal(fixed_figures(BIG)->misses, 2);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_segment_for_each_size_at_the_first_allocation),
    cmocka_unit_test(exactly_its_size_is_served_and_nothing_else),
    cmocka_unit_test(one_too_many_is_a_miss_and_served_by_the_ordinary_pool),
    cmocka_unit_test(free_neighbours_stay_apart),
    cmocka_unit_test(event_mode_waits_for_a_fence_and_asks_for_one),
    cmocka_unit_test(a_miss_records_no_fence_for_others),
    cmocka_unit_test(a_free_in_the_order_of_a_stream_waits_for_a_fence),
    cmocka_unit_test(a_block_comes_back_to_its_own_and_to_no_bin),
    cmocka_unit_test(a_second_free_answers_1),
    cmocka_unit_test(a_freed_one_is_never_kept_for_an_ordinary_request),
    cmocka_unit_test(a_failed_wait_takes_the_block_out_for_good),
    cmocka_unit_test(an_exported_block_comes_back_when_nobody_has_it_open),
    cmocka_unit_test(what_was_exported_by_the_drivers_handle_is_lost_and_its_segment_stays),
    cmocka_unit_test(a_mark_goes_with_the_last_block_that_asked_for_it),
    cmocka_unit_test(nothing_gives_a_fixed_size_back),
    cmocka_unit_test(the_driver_gives_as_many_as_it_has),
    cmocka_unit_test(a_reset_forgets_them_and_the_next_first_allocation_makes_them_anew),
    cmocka_unit_test(each_device_has_its_own_and_the_async_kind_none),
    cmocka_unit_test(a_block_that_could_not_be_filled_comes_back),
    cmocka_unit_test(in_a_capture_a_free_one_serves_what_the_driver_cannot),
    cmocka_unit_test(threads_reserve_once_and_share),
    cmocka_unit_test(a_driver_that_fails_otherwise_gives_none),
};
TESTING_MAIN(tests)
