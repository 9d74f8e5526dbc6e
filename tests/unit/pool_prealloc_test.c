/* SPDX-License-Identifier: MIT
 *
 * Preallocated memory: taken at the first allocation in as few pieces as the driver makes of it, used by requests of
 * every size under the ordinary rules, kept while anything else can be given back; and growth, which it is to save.
 */
#include "pool/internal.h"

#include "pool_fixture.h"
#include "pool_insides.h"

#include <pthread.h>
#include <unistd.h>

#define SOME (256 * MIB_BYTES)

static void begin_with(struct fixture *f, uint64_t memory, uint64_t prealloc, struct pool_options options) {
    options.prealloc_bytes = prealloc;
    fixture_begin(f, memory, options);
    f->device.passes_at_once = true;
}

static void begin(struct fixture *f) {
    begin_with(f, 4096 * MIB_BYTES, SOME, fixture_options());
}

static struct pool *only_pool(struct fixture *f) {
    return atomic_load(&f->pool->pools);
}

static struct segment *whole_at(struct fixture *f, uint64_t address) {
    return registry_segment(&f->pool->registry, address);
}

static void one_driver_allocation_serves_what_fits_in_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    assert_int_equal(f.device.allocs, 0);
    static const size_t sizes[] = {1, 512, 4096, 900 * KIB, 3 * MIB_BYTES, 20 * MIB_BYTES, 100 * MIB_BYTES};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint64_t block = must_alloc(&f, sizes[i]);
        assert_int_equal(whole_at(&f, block)->size, SOME);
    }
    assert_int_equal(f.device.allocs, 1);
    const struct poolcuda_pool *figures = figures_of_pool();
    assert_int_equal(figures->reserved_bytes, SOME);
    assert_int_equal(figures->prealloc_bytes, SOME);
    assert_true(figures->prealloc_unused_bytes > 0 && figures->prealloc_unused_bytes < SOME);
    assert_int_equal(figures->segments, 1);
    assert_int_equal(figures->segment_allocs, 1);
    assert_int_equal(figures->growths, 0);
    assert_int_equal(pool_counters(figures).misses, 0); /* no driver allocation was for them */
    fixture_end(&f);
}

/* They share segments of the ordinary size there too, so a large block fits beside them. */
static void small_requests_do_not_strand_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    for (unsigned i = 0; i < 100; i++) {
        must_free(&f, must_alloc(&f, 30 * MIB_BYTES));
        must_alloc(&f, 4 * KIB);
    }
    must_alloc(&f, 200 * MIB_BYTES);
    assert_int_equal(f.device.allocs, 1);
    fixture_end(&f);
}

static void what_is_free_again_is_joined_for_larger_requests(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[8];
    begin(&f);
    for (unsigned i = 0; i < 8; i++) blocks[i] = must_alloc(&f, 32 * MIB_BYTES);
    assert_int_equal(figures_of_pool()->prealloc_unused_bytes, 0);
    for (unsigned i = 0; i < 8; i++) must_free(&f, blocks[i]);
    assert_int_equal(must_alloc(&f, SOME), blocks[0]);
    assert_int_equal(f.device.allocs, 1);
    assert_int_equal(f.device.releases, 0);
    fixture_end(&f);
}

/* Freed blocks of a size that is asked for over and over are kept whole, but not from it. */
static void what_was_kept_for_its_next_request_is_joined_too(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[200];
    for (unsigned relieve = 0; relieve < 2; relieve++) {
        begin(&f);
        for (unsigned round = 0; round < 3; round++) {
            for (unsigned i = 0; i < 200; i++) blocks[i] = must_alloc(&f, 4 * KIB);
            for (unsigned i = 0; i < 200; i++) must_free(&f, blocks[i]);
        }
        assert_true(binned_bytes(only_pool(&f)) > 0);
        if (relieve) {
            assert_true(pool_relieve(f.pool, 0));
            assert_int_equal(f.device.in_use[0], 0);
        } else {
            must_alloc(&f, SOME);
            assert_int_equal(f.device.allocs, 1);
        }
        fixture_end(&f);
    }
}

static void the_smallest_gap_that_holds_a_request_is_taken(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_alloc(&f, 20 * MIB_BYTES);
    const uint64_t small = must_alloc(&f, 34 * MIB_BYTES);
    must_alloc(&f, 20 * MIB_BYTES);
    must_free(&f, small);
    must_alloc(&f, 150 * MIB_BYTES); /* behind them */
    assert_int_equal(must_alloc(&f, 34 * MIB_BYTES), small);
    assert_int_equal(f.device.allocs, 1);
    fixture_end(&f);
}

static void in_halves_where_the_driver_gives_no_more(void **state) {
    (void)state;
    struct fixture f;
    begin_with(&f, 200 * MIB_BYTES, SOME, fixture_options()); /* 128, 64, and no 16 */
    must_alloc(&f, 4096);
    assert_int_equal(figures_of_pool()->prealloc_bytes, 192 * MIB_BYTES);
    assert_int_equal(figures_of_pool()->segments, 2);
    assert_int_equal(whole_at(&f, must_alloc(&f, 120 * MIB_BYTES))->size, 128 * MIB_BYTES);
    must_alloc(&f, 40 * MIB_BYTES);
    fixture_end(&f);
}

static void never_beyond_the_limit_or_into_the_headroom(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.limit_bytes = 100 * MIB_BYTES;
    begin_with(&f, 4096 * MIB_BYTES, SOME, options);
    must_alloc(&f, 4096);
    assert_int_equal(figures_of_pool()->prealloc_bytes, 100 * MIB_BYTES);
    assert_int_equal(f.device.allocs, 1);
    fixture_end(&f);
    options.limit_bytes = CONFIG_NONE;
    options.headroom_bytes = 4000 * MIB_BYTES;
    begin_with(&f, 4096 * MIB_BYTES, SOME, options);
    must_alloc(&f, 4096);
    assert_int_equal(figures_of_pool()->prealloc_bytes, 96 * MIB_BYTES);
    assert_int_equal(f.device.allocs, 1);
    fixture_end(&f);
}

static void less_than_a_segment_is_reserved_too(void **state) {
    (void)state;
    struct fixture f;
    begin_with(&f, 4096 * MIB_BYTES, 3 * MIB_BYTES, fixture_options());
    must_alloc(&f, 4096);
    assert_int_equal(figures_of_pool()->prealloc_bytes, 4 * MIB_BYTES); /* the driver's steps */
    assert_int_equal(f.device.allocs, 1);
    fixture_end(&f);
}

static void trims_keep_it_and_give_the_rest_back(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.trim_bytes = 0;
    begin_with(&f, 4096 * MIB_BYTES, SOME, options);
    const uint64_t inside = must_alloc(&f, SOME), beside = must_alloc(&f, 64 * MIB_BYTES);
    assert_int_equal(f.device.allocs, 2);
    must_free(&f, inside);
    assert_int_equal(f.device.releases, 0);
    must_free(&f, beside);
    assert_int_equal(f.device.releases, 1);
    assert_int_equal(totals_of(&f, 0).reserved, SOME);
    pool_trim(f.pool, 0, 0);
    assert_int_equal(totals_of(&f, 0).reserved, SOME);
    assert_int_equal(pool_releasable(f.pool, 0, NULL), SOME); /* the program can have it */
    fixture_end(&f);
}

/* Where the headroom has been touched every free looks what there is to give back: not what is kept. */
static void the_headroom_does_not_take_it(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.headroom_bytes = 64 * MIB_BYTES;
    begin_with(&f, 512 * MIB_BYTES, SOME, options);
    const uint64_t inside = must_alloc(&f, SOME);
    const uint64_t beside = must_alloc(&f, 220 * MIB_BYTES);
    assert_true(atomic_load(&only_pool(&f)->device->pressed) & DEVICE_TIGHT);
    must_free(&f, inside);
    assert_int_equal(totals_of(&f, 0).reserved, SOME + 220 * MIB_BYTES);
    must_free(&f, beside);
    assert_int_equal(totals_of(&f, 0).reserved, SOME);
    fixture_end(&f);
}

static void it_is_given_back_before_memory_runs_out(void **state) {
    (void)state;
    struct fixture f;
    begin_with(&f, 400 * MIB_BYTES, SOME, fixture_options());
    must_free(&f, must_alloc(&f, 4096));
    must_alloc(&f, 300 * MIB_BYTES); /* more than either */
    assert_int_equal(figures_of_pool()->prealloc_bytes, 0);
    assert_int_equal(figures_of_pool()->oom_retries, 1);
    fixture_end(&f);
    begin_with(&f, 400 * MIB_BYTES, SOME, fixture_options());
    must_free(&f, must_alloc(&f, 4096));
    must_alloc_on(&f, STREAM(1), 300 * MIB_BYTES); /* of the other kind */
    assert_int_equal(figures_of_pool()->prealloc_bytes, 0);
    fixture_end(&f);
    begin_with(&f, 400 * MIB_BYTES, SOME, fixture_options());
    must_free(&f, must_alloc(&f, 4096));
    assert_true(pool_relieve(f.pool, 0)); /* another call of the program's */
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    assert_int_equal(f.device.in_use[0], 0);
    must_alloc(&f, 4096);
    assert_int_equal(figures_of_pool()->prealloc_bytes, 0); /* it is made once */
    fixture_end(&f);
}

static void what_is_in_use_keeps_its_piece(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    begin_with(&f, 400 * MIB_BYTES, SOME, fixture_options());
    const uint64_t kept = must_alloc(&f, 4096);
    assert_int_equal(pool_alloc(f.pool, 300 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_false(pool_relieve(f.pool, 0));
    assert_int_equal(figures_of_pool()->prealloc_bytes, SOME);
    assert_int_equal(f.device.releases, 0);
    must_free(&f, kept);
    fixture_end(&f);
}

/* What waits for the GPU is waited for before the preallocation goes, and then serves. */
static void what_is_proved_at_last_serves_before_it_goes(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.free_event = true;
    begin_with(&f, 300 * MIB_BYTES, SOME, options);
    f.device.passes_at_once = false;
    uint64_t blocks[4];
    for (unsigned i = 0; i < 4; i++) blocks[i] = must_alloc(&f, 64 * MIB_BYTES);
    for (unsigned i = 0; i < 4; i++) must_free(&f, blocks[i]);
    must_alloc(&f, 200 * MIB_BYTES);
    assert_int_equal(figures_of_pool()->prealloc_bytes, SOME);
    assert_int_equal(f.device.releases, 0);
    fixture_end(&f);
}

static void only_its_first_block_is_the_drivers_allocation(void **state) {
    (void)state;
    struct fixture f;
    struct pool_block_info info;
    begin(&f);
    const uint64_t a = must_alloc(&f, 40 * MIB_BYTES), b = must_alloc(&f, 40 * MIB_BYTES);
    assert_int_equal(pool_find(f.pool, a + 5, &info), 0);
    assert_int_equal(info.offset_in_segment, 0);
    assert_int_equal(pool_find(f.pool, b + 5, &info), 0);
    assert_int_equal(info.base, b);
    assert_int_equal(info.offset_in_segment, b - a); /* its handle would open the other's memory */
    assert_int_equal(pool_find(f.pool, whole_at(&f, a)->address + SOME - 1, &info), DEVICE_NOT_FOUND);
    fixture_end(&f);
}

static void an_address_in_it_is_never_the_drivers_to_free(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc(&f, 40 * MIB_BYTES), b = must_alloc(&f, 40 * MIB_BYTES);
    must_free(&f, a);
    must_alloc(&f, 176 * MIB_BYTES);
    must_alloc(&f, 41 * MIB_BYTES); /* finds no room, so what is free has gone back to it */
    assert_int_equal(figures_of_pool()->prealloc_unused_bytes, 40 * MIB_BYTES);
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), 1);
    assert_int_equal(pool_free(f.pool, a + SOME - 512, POOL_DOOR_DRIVER), 1);
    must_free(&f, b);
    fixture_end(&f);
}

static void a_mark_of_one_part_is_the_wholes(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc(&f, 40 * MIB_BYTES), b = must_alloc(&f, 40 * MIB_BYTES);
    assert_int_equal(pool_set_sync_memops(f.pool, a, true), 0);
    assert_int_equal(pool_set_sync_memops(f.pool, b, true), 0);
    must_free(&f, b);
    assert_true(f.device.sync_on); /* the other still asks for it */
    must_free(&f, a);
    assert_false(f.device.sync_on);
    fixture_end(&f);
}

static void what_others_may_have_open_stays(void **state) {
    (void)state;
    struct fixture f;
    struct pool_block_info info;
    begin_with(&f, 400 * MIB_BYTES, SOME, fixture_options());
    const uint64_t a = must_alloc(&f, 40 * MIB_BYTES);
    assert_int_equal(pool_find(f.pool, a, &info), 0);
    pool_note_export(f.pool, &info, 0);
    must_free(&f, a);
    pool_relieve(f.pool, 0);
    assert_int_equal(f.device.releases, 0);
    assert_int_not_equal(must_alloc(&f, 40 * MIB_BYTES), a);
    must_alloc(&f, 130 * MIB_BYTES);
    assert_int_equal(figures_of_pool()->exported_bytes, 40 * MIB_BYTES);
    fixture_end(&f);
}

static void a_reset_forgets_it_and_the_next_first_allocation_makes_it_anew(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_alloc(&f, 4096);
    must_alloc(&f, 40 * MIB_BYTES);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    assert_int_equal(only_pool(&f)->device->reserved, 0);
    assert_pool_whole(&f);
    must_alloc(&f, 4096);
    assert_int_equal(figures_of_pool()->prealloc_bytes, SOME);
    assert_int_equal(figures_of_pool()->growths, 0);
    fixture_end(&f);
}

static void each_device_has_its_own_and_the_async_kind_none(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_alloc_on(&f, STREAM(1), 4096);
    assert_int_equal(f.device.in_use[0], 16 * MIB_BYTES);
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_alloc(&f, 4096);
    assert_int_equal(f.device.in_use[1], SOME);
    fake_set_current(FAKE_PRIMARY(0), 0);
    fixture_end(&f);
}

/* ---- growth ---- */

static void wait_a_little(void *argument) {
    (void)argument;
    usleep(2000);
}

static void growth_after_the_first_allocation_is_counted_and_timed(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 4096 * MIB_BYTES, fixture_options());
    f.device.during_alloc = wait_a_little;
    must_alloc(&f, 4096);
    const struct poolcuda_pool *figures = figures_of_pool();
    assert_int_equal(figures->growths, 0);
    assert_int_equal(figures->growth_ns, 0);
    must_alloc(&f, 64 * MIB_BYTES);
    must_alloc(&f, 64 * MIB_BYTES);
    must_alloc(&f, 4096);
    assert_int_equal(figures->growths, 2);
    assert_in_range(figures->growth_ns, 4000000, UINT64_C(2000000000));
    assert_true(figures->growth_ns < figures->driver_ns);
    f.device.during_alloc = NULL;
    fixture_end(&f);
    begin(&f);
    must_alloc(&f, 4096);
    must_alloc(&f, SOME);
    assert_int_equal(figures_of_pool()->growths, 1); /* beyond what was preallocated */
    fixture_end(&f);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 1000 };

static void *use(void *argument) {
    struct fixture *f = argument;
    fake_set_current(FAKE_PRIMARY(0), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const uint64_t a = must_alloc(f, (1 + i % 40) * MIB_BYTES), b = must_alloc(f, 4096);
        must_free(f, a);
        must_free(f, b);
    }
    return NULL;
}

static void threads_that_come_first_together_take_it_once(void **state) {
    (void)state;
    struct fixture f;
    pthread_t threads[THREADS];
    begin(&f);
    f.device.during_alloc = wait_a_little;
    for (unsigned i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, use, &f), 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(f.device.allocs, 1);
    assert_int_equal(totals_of(&f, 0).live, 0);
    fixture_end(&f);
}

static void *reset(void *argument) {
    struct fixture *f = argument;
    pool_context_close(f->pool, 0, NULL);
    fake_reset(&f->device, 0, false);
    pool_context_settle(f->pool, 0, NULL);
    f->device.alive[0] = true;
    return NULL;
}

static pthread_t resetting;

static void begin_a_reset(void *argument) {
    struct fixture *f = argument;
    f->device.during_alloc = NULL;
    assert_int_equal(pthread_create(&resetting, NULL, reset, f), 0);
    struct pool *pool = only_pool(f);
    for (bool closed = false; !closed; usleep(100)) {
        lock_take(&pool->lock);
        closed = pool->status == POOL_CLOSED;
        lock_give(&pool->lock);
    }
}

static void a_reset_waits_until_it_is_taken(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address = 0;
    begin(&f);
    f.device.during_alloc = begin_a_reset;
    f.device.during_arg = &f;
    assert_int_equal(pool_alloc(f.pool, 4096, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pthread_join(resetting, NULL);
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    must_alloc(&f, 4096);
    assert_int_equal(figures_of_pool()->prealloc_bytes, SOME);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_driver_allocation_serves_what_fits_in_it),
    cmocka_unit_test(small_requests_do_not_strand_it),
    cmocka_unit_test(what_is_free_again_is_joined_for_larger_requests),
    cmocka_unit_test(what_was_kept_for_its_next_request_is_joined_too),
    cmocka_unit_test(the_smallest_gap_that_holds_a_request_is_taken),
    cmocka_unit_test(in_halves_where_the_driver_gives_no_more),
    cmocka_unit_test(never_beyond_the_limit_or_into_the_headroom),
    cmocka_unit_test(less_than_a_segment_is_reserved_too),
    cmocka_unit_test(trims_keep_it_and_give_the_rest_back),
    cmocka_unit_test(the_headroom_does_not_take_it),
    cmocka_unit_test(it_is_given_back_before_memory_runs_out),
    cmocka_unit_test(what_is_in_use_keeps_its_piece),
    cmocka_unit_test(what_is_proved_at_last_serves_before_it_goes),
    cmocka_unit_test(only_its_first_block_is_the_drivers_allocation),
    cmocka_unit_test(an_address_in_it_is_never_the_drivers_to_free),
    cmocka_unit_test(a_mark_of_one_part_is_the_wholes),
    cmocka_unit_test(what_others_may_have_open_stays),
    cmocka_unit_test(a_reset_forgets_it_and_the_next_first_allocation_makes_it_anew),
    cmocka_unit_test(each_device_has_its_own_and_the_async_kind_none),
    cmocka_unit_test(growth_after_the_first_allocation_is_counted_and_timed),
    cmocka_unit_test(threads_that_come_first_together_take_it_once),
    cmocka_unit_test(a_reset_waits_until_it_is_taken),
};
TESTING_MAIN(tests)
