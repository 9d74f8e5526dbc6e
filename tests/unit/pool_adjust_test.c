/* SPDX-License-Identifier: MIT
 *
 * What somebody outside asks of the pools: memory given back on every device from a thread without a context, a limit
 * that changes and all that follows it, and peaks that begin anew.
 */
#include "pool/internal.h"

#include "pool_fixture.h"
#include "pool_insides.h"

#include <pthread.h>
#include <stdatomic.h>

#define BIG (20 * MIB_BYTES) /* has a segment of its own */
#define S STREAM(1)

/* In a thread that has no context. */
struct asked {
    struct fixture *f;
    uint64_t value, result;
    struct pool_limit_change change;
};

static void *trim_there(void *argument) {
    struct asked *asked = argument;
    fake_set_current(NULL, 0);
    asked->result = pool_trim_all(asked->f->pool, asked->value);
    return NULL;
}

static void *limit_there(void *argument) {
    struct asked *asked = argument;
    fake_set_current(NULL, 0);
    pool_set_limit(asked->f->pool, asked->value, &asked->change);
    return NULL;
}

static void in_thread(void *(*body)(void *), struct asked *asked) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, asked), 0);
    pthread_join(thread, NULL);
}

static uint64_t trim(struct fixture *f, uint64_t keep) {
    struct asked asked = {.f = f, .value = keep};
    in_thread(trim_there, &asked);
    return asked.result;
}

static struct pool_limit_change limit(struct fixture *f, uint64_t bytes) {
    struct asked asked = {.f = f, .value = bytes};
    in_thread(limit_there, &asked);
    return asked.change;
}

static void begin(struct fixture *f) {
    fixture_begin(f, 4096 * MIB_BYTES, fixture_options());
}

/* So many segments, cached. */
static void cache(struct fixture *f, int ordinal, unsigned count) {
    uint64_t blocks[8];
    fake_set_current(FAKE_PRIMARY(ordinal), ordinal);
    for (unsigned i = 0; i < count; i++) blocks[i] = must_alloc(f, BIG);
    for (unsigned i = 0; i < count; i++) must_free(f, blocks[i]);
}

/* ---- trim ---- */

static void assert_nothing_borrowed(const struct fixture *f) {
    for (int i = 0; i < FAKE_DEVICES; i++) assert_int_equal(f->device.borrowed[i], 0);
}

static void every_device_gives_back_what_is_beyond_what_it_may_keep(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    cache(&f, 0, 3);
    cache(&f, 1, 2);
    assert_int_equal(trim(&f, BIG), 3 * BIG);
    assert_int_equal(totals_of(&f, 0).reserved, BIG);
    assert_int_equal(totals_of(&f, 1).reserved, BIG);
    assert_int_equal(trim(&f, BIG), 0);
    assert_int_equal(trim(&f, 0), 2 * BIG);
    assert_int_equal(totals_of(&f, -1).reserved, 0);
    assert_true(f.device.borrows >= 3);
    assert_nothing_borrowed(&f);
    assert_int_equal(last_event(POOLCUDA_EVENT_trim).requested_bytes, BIG);
    fixture_end(&f);
}

static bool returned_early;

static void look_at_the_loan(void *fixture) {
    const struct fixture *f = fixture;
    if (f->device.borrowed[0] != 1) returned_early = true;
}

static void a_context_is_borrowed_until_all_is_given_back(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    cache(&f, 0, 3);
    returned_early = false;
    f.device.during_release = look_at_the_loan;
    f.device.during_arg = &f;
    assert_int_equal(trim(&f, 0), 3 * BIG);
    f.device.during_release = NULL;
    assert_false(returned_early);
    assert_nothing_borrowed(&f);
    fixture_end(&f);
}

static void where_no_context_lives_memory_stays(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_free_on(&f, S, must_alloc_on(&f, S, BIG));
    f.device.alive[0] = false;
    assert_int_equal(trim(&f, 0), 0);
    assert_int_equal(totals_of(&f, 0).reserved, BIG);
    f.device.alive[0] = true;
    assert_int_equal(trim(&f, 0), BIG);
    fixture_end(&f);
}

static void pass_now(void *fixture) {
    struct fixture *f = fixture;
    f->device.passed = f->device.recorded;
}

/* The first look records marks; the GPU has passed them a moment later. */
static void what_the_gpu_has_just_finished_with_is_awaited(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.passes_at_once = false;
    uint64_t p = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, p);
    f.device.during_query = pass_now; /* after this question's answer is known */
    f.device.during_arg = &f;
    const uint64_t given_back = trim(&f, 0);
    f.device.during_query = NULL;
    assert_int_equal(given_back, BIG);
    fixture_end(&f);
}

static void what_the_gpu_still_uses_stays(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.passes_at_once = false;
    must_free_on(&f, S, must_alloc_on(&f, S, BIG));
    assert_int_equal(trim(&f, 0), 0);
    assert_int_equal(f.device.synchronizes + f.device.stream_synchronizes, 0);
    pass_now(&f);
    assert_int_equal(trim(&f, 0), BIG);
    fixture_end(&f);
}

/* ---- the limit ---- */

static void a_lower_limit_gives_cached_memory_back_and_binds(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t kept = must_alloc(&f, BIG);
    cache(&f, 0, 3);
    struct pool_limit_change change = limit(&f, 2 * BIG);
    assert_true(change.before == CONFIG_NONE);
    assert_int_equal(change.given_back, 2 * BIG);
    assert_int_equal(change.over, 0);
    assert_int_equal(pool_limit(f.pool), 2 * BIG);
    assert_int_equal(totals_of(&f, 0).reserved, 2 * BIG);
    change = limit(&f, BIG / 2);
    assert_int_equal(change.before, 2 * BIG);
    assert_int_equal(change.given_back, BIG);
    assert_int_equal(change.over, BIG / 2);
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, BIG, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(last_event(POOLCUDA_EVENT_oom).reason, POOLCUDA_OOM_LIMIT);
    change = limit(&f, CONFIG_NONE);
    assert_int_equal(change.over, 0);
    must_free(&f, must_alloc(&f, BIG));
    must_free(&f, kept);
    assert_nothing_borrowed(&f);
    fixture_end(&f);
}

static void what_follows_the_limit_follows_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    cache(&f, 0, 1);
    const struct poolcuda_pool *figures = figures_of_pool();
    const struct device_state *device = f.pool->devices;
    const uint64_t split = device_max_split(device);
    assert_int_equal(figures->limited, 0);
    assert_int_equal(figures->max_split_bytes, split);
    limit(&f, 1024 * MIB_BYTES);
    assert_int_equal(figures->limited, 1);
    assert_int_equal(figures->limit_bytes, 1024 * MIB_BYTES);
    assert_int_equal(figures->max_split_bytes, 1024 * MIB_BYTES / 24);
    assert_int_equal(device_max_split(device), 1024 * MIB_BYTES / 24);
    limit(&f, 24 * MIB_BYTES); /* of which little is left */
    assert_true(atomic_load(&device->pressed) & DEVICE_CROWDED);
    limit(&f, CONFIG_NONE);
    assert_false(atomic_load(&device->pressed) & DEVICE_CROWDED);
    assert_int_equal(figures->limited, 0);
    assert_int_equal(figures->limit_bytes, 0);
    assert_int_equal(device_max_split(device), split);
    fixture_end(&f);
}

static void a_device_that_comes_later_has_the_limit_of_then(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    cache(&f, 0, 1);
    limit(&f, 2 * BIG);
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_free(&f, must_alloc(&f, BIG));
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, 3 * BIG, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    fixture_end(&f);
}

static void preallocated_memory_goes_after_what_is_cached(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.prealloc_bytes = 64 * MIB_BYTES;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    uint64_t p = must_alloc(&f, 100 * MIB_BYTES); /* beside it */
    must_free(&f, p);
    assert_int_equal(totals_of(&f, 0).reserved, 164 * MIB_BYTES);
    struct pool_limit_change change = limit(&f, 70 * MIB_BYTES);
    assert_int_equal(change.given_back, 100 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).reserved, 64 * MIB_BYTES);
    change = limit(&f, 10 * MIB_BYTES);
    assert_int_equal(change.given_back, 64 * MIB_BYTES);
    assert_int_equal(change.over, 0);
    fixture_end(&f);
}

/* ---- the peaks ---- */

static void assert_peaks_are_present_values(const struct poolcuda_pool *record) {
    const struct poolcuda_pool figures = pool_figures(record);
    const struct cell_sums sums = pool_counters(record);
    assert_int_equal(figures.peak_live_bytes, sums.alloc_live_bytes - sums.freed_live_bytes);
    assert_int_equal(figures.peak_requested_bytes, sums.alloc_requested_bytes - sums.freed_requested_bytes);
    assert_int_equal(figures.peak_reserved_bytes, figures.reserved_bytes);
    assert_int_equal(figures.peak_idle_bytes, figures.idle_bytes);
    assert_int_equal(figures.peak_ordered_bytes, figures.ordered_bytes);
    assert_int_equal(figures.peak_waiting_bytes, figures.waiting_bytes);
    assert_int_equal(figures.peak_cached_bytes, figures.idle_bytes + figures.ordered_bytes + figures.waiting_bytes);
}

static void peaks_become_the_present_values_and_rise_again(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t blocks[6];
    for (unsigned i = 0; i < 6; i++) blocks[i] = must_alloc(&f, 4096);
    for (unsigned i = 1; i < 6; i++) must_free(&f, blocks[i]);
    const struct poolcuda_pool *figures = figures_of_pool();
    assert_int_equal(figures->peak_live_bytes, 6 * 4096);
    pool_reset_peaks(f.pool);
    assert_peaks_are_present_values(figures);
    assert_int_equal(figures->peak_live_bytes, 4096);
    /* Hits may not pass the new peak unseen, though they could have gone on below the old one. */
    for (unsigned i = 1; i < 4; i++) {
        blocks[i] = must_alloc(&f, 4096);
        assert_int_equal(figures->peak_live_bytes, (i + 1) * 4096);
        assert_int_equal(figures->peak_requested_bytes, (i + 1) * 4096);
        assert_pool_whole(&f);
    }
    for (unsigned i = 0; i < 4; i++) must_free(&f, blocks[i]);
    pool_reset_peaks(f.pool);
    assert_peaks_are_present_values(figures);
    fixture_end(&f);
}

static void peaks_of_fixed_sizes_too(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.fixed = (struct config_fixed){1, {{BIG, 4}}};
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    uint64_t blocks[3];
    for (unsigned i = 0; i < 3; i++) blocks[i] = must_alloc(&f, BIG);
    for (unsigned i = 0; i < 2; i++) must_free(&f, blocks[i]);
    const struct poolcuda_fixed *fixed = figures_record(&stats_header()->fixed, 0);
    assert_int_equal(fixed->peak_in_use, 3);
    pool_reset_peaks(f.pool);
    assert_int_equal(fixed->peak_in_use, 1);
    must_free(&f, blocks[2]);
    fixture_end(&f);
}

/* ---- all at once ---- */

static atomic_bool stop;
static atomic_uint served;

static void *work(void *fixture) {
    fake_set_current(FAKE_PRIMARY(0), 0);
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        must_free(fixture, must_alloc(fixture, (i % 3 + 1) * 4096));
        must_free(fixture, must_alloc(fixture, (i % 3) * MIB_BYTES + BIG));
        must_free_on(fixture, S, must_alloc_on(fixture, S, (i % 5 + 1) * MIB_BYTES));
        atomic_fetch_add(&served, 1);
    }
    return NULL;
}

/* A limit that all may live with, so that no allocation has to fail. */
static void threads_that_work_meanwhile_are_served(void **state) {
    (void)state;
    struct fixture f;
    pthread_t threads[3];
    begin(&f);
    atomic_store(&stop, false);
    atomic_store(&served, 0);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, &f);
    for (unsigned i = 0; i < 200 || atomic_load(&served) < 50; i++) {
        trim(&f, i % 3 * BIG);
        pool_reset_peaks(f.pool);
        limit(&f, i % 2 ? CONFIG_NONE : 512 * MIB_BYTES);
        assert_pool_whole(&f);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_nothing_borrowed(&f);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_device_gives_back_what_is_beyond_what_it_may_keep),
    cmocka_unit_test(a_context_is_borrowed_until_all_is_given_back),
    cmocka_unit_test(where_no_context_lives_memory_stays),
    cmocka_unit_test(what_the_gpu_has_just_finished_with_is_awaited),
    cmocka_unit_test(what_the_gpu_still_uses_stays),
    cmocka_unit_test(a_lower_limit_gives_cached_memory_back_and_binds),
    cmocka_unit_test(what_follows_the_limit_follows_it),
    cmocka_unit_test(a_device_that_comes_later_has_the_limit_of_then),
    cmocka_unit_test(preallocated_memory_goes_after_what_is_cached),
    cmocka_unit_test(peaks_become_the_present_values_and_rise_again),
    cmocka_unit_test(peaks_of_fixed_sizes_too),
    cmocka_unit_test(threads_that_work_meanwhile_are_served),
};
TESTING_MAIN(tests)
