/* SPDX-License-Identifier: MIT
 *
 * Blocks that are free in the order of a stream: who is given them, and when.
 */
#include <stdatomic.h>
#include <time.h>

#include "pool_fixture.h"

#define BIG (20 * MIB_BYTES) /* has a segment of its own */
#define S STREAM(1)
#define T STREAM(2)

static void begin(struct fixture *f) {
    fixture_begin(f, 4096 * MIB_BYTES, fixture_options());
    f->device.passes_at_once = false;
}

static void pass_all(struct fixture *f) {
    f->device.passed = f->device.recorded;
}

static void the_same_stream_is_served_at_once(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, a);
    assert_int_equal(totals_of(&f, 0).ordered, BIG);
    assert_int_equal(must_alloc_on(&f, S, BIG), a);
    assert_int_equal(f.device.recorded, 0);
    assert_int_equal(f.device.synchronizes + f.device.stream_synchronizes, 0);
    fixture_end(&f);
}

static void another_stream_is_served_when_an_event_on_the_first_has_passed(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, a);
    uint64_t b = must_alloc_on(&f, T, BIG);
    assert_int_not_equal(a, b);
    assert_int_equal(f.device.stream_marks, 1);
    assert_ptr_equal(f.device.marked, S.handle);
    assert_int_equal(f.device.fences, 0);
    assert_int_equal(f.device.synchronizes, 0); /* an async miss waits for nobody */
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, T, BIG), a);
    assert_int_equal(f.device.stream_marks, 1);
    fixture_end(&f);
}

static void an_event_proves_what_was_freed_before_it_only(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG), b = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, a);
    must_alloc_on(&f, T, BIG); /* marks S */
    must_free_on(&f, S, b);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, T, BIG), a);
    assert_int_not_equal(must_alloc_on(&f, T, BIG), b); /* marks S again */
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, T, BIG), b);
    fixture_end(&f);
}

static void the_rest_of_a_fresh_segment_is_ordered_after_its_stream(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, 4096);
    assert_ptr_equal(f.device.alloc_stream.handle, S.handle);
    assert_int_equal(totals_of(&f, 0).ordered, 16 * MIB_BYTES - 4096);
    assert_int_equal(totals_of(&f, 0).idle, 0);
    uint64_t b = must_alloc_on(&f, T, 4096);
    assert_true(b < a || b >= a + 16 * MIB_BYTES);
    assert_int_equal(must_alloc_on(&f, S, 4096), a + 4096);
    fixture_end(&f);
}

static void sixty_four_frees_mark_the_stream_where_there_are_others(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    for (unsigned i = 0; i < 200; i++) must_free_on(&f, S, must_alloc_on(&f, S, 4096));
    assert_int_equal(f.device.stream_marks, 0); /* nobody else wants its blocks */
    must_free_on(&f, T, must_alloc_on(&f, T, 4096));
    unsigned marks = f.device.stream_marks;
    pass_all(&f);
    for (unsigned i = 0; i < 64; i++) must_free_on(&f, T, must_alloc_on(&f, T, 4096));
    assert_int_equal(f.device.stream_marks, marks + 1);
    assert_ptr_equal(f.device.marked, T.handle);
    for (unsigned i = 0; i < 640; i++) must_free_on(&f, T, must_alloc_on(&f, T, 4096));
    assert_int_equal(f.device.stream_marks, marks + 1); /* one at a time */
    fixture_end(&f);
}

static void a_per_thread_stream_is_marked_by_a_fence(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const struct device_stream own = {(void *)2, false};
    uint64_t a = must_alloc_on(&f, own, BIG);
    must_free_on(&f, own, a);
    must_alloc_on(&f, T, BIG);
    assert_int_equal(f.device.stream_marks, 0);
    assert_int_equal(f.device.fences, 1);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, T, BIG), a);
    fixture_end(&f);
}

static void a_destroyed_streams_blocks_are_not_those_of_the_next_with_its_handle(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, a);
    pool_stream_end(f.pool, S.handle);
    assert_int_equal(f.device.stream_marks, 1);
    assert_ptr_equal(f.device.marked, S.handle);
    f.device.stream_generation++;
    assert_int_not_equal(must_alloc_on(&f, S, BIG), a);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, S, BIG), a);
    assert_int_equal(f.device.stream_marks, 1);
    fixture_end(&f);
}

static void a_stream_that_cannot_be_marked_leaves_its_blocks_to_a_fence(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, a);
    f.device.record_fails_with = 999;
    pool_stream_end(f.pool, S.handle);
    f.device.record_fails_with = 0;
    f.device.stream_generation++;
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_not_equal(must_alloc_on(&f, S, BIG), a);
    assert_int_equal(f.device.fences, 1);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, S, BIG), a);
    fixture_end(&f);
}

static void lists_of_destroyed_streams_are_used_again(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.passes_at_once = true;
    for (unsigned i = 0; i < 1000; i++) {
        must_free_on(&f, S, must_alloc_on(&f, S, BIG));
        pool_stream_end(f.pool, S.handle);
        f.device.stream_generation++;
    }
    assert_true(totals_of(&f, 0).reserved <= 2 * BIG);
    fixture_end(&f);
}

static void streams_that_are_used_once_strand_nothing(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.passes_at_once = true;
    for (unsigned i = 1; i <= 300; i++) must_free_on(&f, STREAM(i), must_alloc_on(&f, STREAM(i), BIG));
    assert_int_equal(totals_of(&f, 0).reserved, BIG);
    fixture_end(&f);
}

static void a_plain_block_freed_in_stream_order_is_not_idle(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc(&f, BIG);
    must_free_on(&f, S, a);
    assert_int_equal(totals_of(&f, 0).ordered, BIG);
    assert_int_equal(f.device.stream_synchronizes + f.device.synchronizes, 0);
    assert_int_not_equal(must_alloc(&f, BIG), a);
    pass_all(&f);
    assert_int_equal(must_alloc(&f, BIG), a);
    fixture_end(&f);
}

static void kinds_never_mix(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.passes_at_once = true;
    uint64_t plain = must_alloc(&f, BIG), async = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, plain);
    must_free_on(&f, S, async);
    assert_int_equal(must_alloc_on(&f, S, BIG), async);
    assert_int_equal(must_alloc(&f, BIG), plain);
    must_free(&f, async);
    must_free(&f, plain);
    assert_int_equal(must_alloc(&f, BIG), plain);
    assert_int_equal(must_alloc_on(&f, T, BIG), async);
    assert_int_equal(f.device.allocs, 2);
    fixture_end(&f);
}

static void cudafree_of_an_async_block_waits_for_nobody(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    must_free(&f, a);
    assert_int_equal(f.device.synchronizes, 0);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_not_equal(must_alloc_on(&f, S, BIG), a); /* not even the stream that it was allocated on */
    assert_int_equal(f.device.fences, 1);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, S, BIG), a);
    fixture_end(&f);
}

static void a_block_freed_on_another_devices_stream_waits_for_a_fence(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_free_on(&f, T, a);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_equal(totals_of(&f, 0).ordered, 0);
    fixture_end(&f);
}

static void neighbours_ordered_and_idle_make_one_block(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, 7 * MIB_BYTES), b = must_alloc_on(&f, S, 7 * MIB_BYTES);
    must_free_on(&f, S, a);
    must_alloc_on(&f, T, BIG); /* marks S */
    pass_all(&f);
    must_free_on(&f, T, must_alloc_on(&f, T, 7 * MIB_BYTES)); /* finds it idle, and leaves it ordered after T */
    pass_all(&f);
    must_alloc_on(&f, S, BIG); /* marks T */
    pass_all(&f);
    must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, b);
    assert_int_equal(totals_of(&f, 0).idle, 9 * MIB_BYTES); /* with the rest of the segment */
    assert_int_equal(totals_of(&f, 0).ordered, 7 * MIB_BYTES);
    unsigned allocs = f.device.allocs;
    assert_int_equal(must_alloc_on(&f, S, 16 * MIB_BYTES), a);
    assert_int_equal(f.device.allocs, allocs);
    fixture_end(&f);
}

static void a_full_device_takes_what_is_ordered_elsewhere(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 50 * MIB_BYTES, fixture_options());
    f.device.passes_at_once = false;
    must_free_on(&f, S, must_alloc_on(&f, S, BIG));
    must_free_on(&f, T, must_alloc_on(&f, T, BIG));
    assert_int_equal(f.device.synchronizes, 0);
    must_alloc(&f, 40 * MIB_BYTES); /* of the other kind: both go back */
    assert_int_equal(f.device.synchronizes, 1);
    assert_int_equal(f.device.releases, 2);
    fixture_end(&f);
}

static void the_memory_pool_that_is_set_serves_from_then_on(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, a);
    f.device.memory_pool = &f;
    pool_memory_pool_set(f.pool);
    uint64_t b = must_alloc_on(&f, S, BIG);
    assert_int_not_equal(a, b);
    f.device.memory_pool = FAKE_MEMORY_POOL;
    pool_memory_pool_set(f.pool);
    assert_int_equal(must_alloc_on(&f, S, BIG), a);
    must_free_on(&f, S, b); /* into the list of its own pool */
    assert_int_equal(totals_of(&f, 0).ordered, BIG);
    fixture_end(&f);
}

static void a_destroyed_memory_pool_gives_out_no_more(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.passes_at_once = true;
    uint64_t a = must_alloc_on(&f, S, BIG), b = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, a);
    const uint64_t number = pool_memory_pool_ending(f.pool, FAKE_MEMORY_POOL);
    assert_int_equal(f.device.releases, 1); /* what was wholly free */
    pool_memory_pool_settled(f.pool, FAKE_MEMORY_POOL, number, true);
    must_free_on(&f, S, b);
    assert_int_not_equal(must_alloc_on(&f, S, BIG), b); /* its handle came back at once */
    fixture_end(&f);
}

static void a_memory_pool_whose_end_is_refused_goes_on(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    const uint64_t number = pool_memory_pool_ending(f.pool, FAKE_MEMORY_POOL);
    assert_int_not_equal(number, 0);
    assert_int_equal(pool_memory_pool_ending(f.pool, FAKE_MEMORY_POOL), 0);
    pool_memory_pool_settled(f.pool, FAKE_MEMORY_POOL, 0, false);
    pool_memory_pool_settled(f.pool, FAKE_MEMORY_POOL, number, false);
    must_free_on(&f, S, a);
    assert_int_equal(must_alloc_on(&f, S, BIG), a);
    fixture_end(&f);
}

/* The driver may still tell its handle as that of the current one. */
static void a_memory_pool_that_is_being_destroyed_serves_nobody(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    begin(&f);
    void *const others[] = {(void *)1, (void *)2, (void *)3, (void *)4, (void *)5, (void *)6, (void *)7, (void *)8};
    assert_int_equal(pool_memory_pool_ending(f.pool, FAKE_MEMORY_POOL), 0); /* nobody had used it */
    assert_int_equal(pool_alloc_async(f.pool, BIG, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_memory_pool_settled(f.pool, FAKE_MEMORY_POOL, 0, true);
    must_alloc_on(&f, S, BIG);
    pool_memory_pool_set(f.pool);
    for (int i = 0; i < 8; i++) pool_memory_pool_ending(f.pool, others[i]);
    must_alloc_on(&f, S, BIG);
    pool_memory_pool_set(f.pool);
    pool_memory_pool_ending(f.pool, (void *)9); /* one more than are told apart */
    assert_int_equal(pool_alloc_async(f.pool, BIG, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_memory_pool_settled(f.pool, (void *)9, 0, true);
    must_alloc_on(&f, S, BIG);
    for (int i = 0; i < 8; i++) pool_memory_pool_settled(f.pool, others[i], 0, true);
    fixture_end(&f);
}

struct ending {
    struct fixture *fixture;
    pthread_t thread;
    uint64_t number;
    atomic_bool ended, ended_early;
};

static void *end_memory_pool(void *arg) {
    struct ending *ending = arg;
    ending->number = pool_memory_pool_ending(ending->fixture->pool, FAKE_MEMORY_POOL);
    atomic_store(&ending->ended, true);
    return NULL;
}

static void end_meanwhile(void *arg) {
    struct ending *ending = arg;
    const struct timespec a_while = {0, 20 * 1000 * 1000};
    ending->fixture->device.during_alloc = NULL;
    assert_int_equal(pthread_create(&ending->thread, NULL, end_memory_pool, ending), 0);
    nanosleep(&a_while, NULL);
    atomic_store(&ending->ended_early, atomic_load(&ending->ended));
}

static void a_memory_pool_is_destroyed_when_nobody_is_in_the_driver_with_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_alloc_on(&f, S, BIG);
    struct ending ending = {.fixture = &f};
    f.device.during_arg = &ending;
    f.device.during_alloc = end_meanwhile;
    must_alloc_on(&f, S, BIG);
    assert_int_equal(pthread_join(ending.thread, NULL), 0);
    assert_false(atomic_load(&ending.ended_early));
    pool_memory_pool_settled(f.pool, FAKE_MEMORY_POOL, ending.number, true);
    fixture_end(&f);
}

static void what_is_left_of_a_destroyed_memory_pool_goes_with_the_next_segment(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc_on(&f, S, BIG);
    const uint64_t number = pool_memory_pool_ending(f.pool, FAKE_MEMORY_POOL);
    pool_memory_pool_settled(f.pool, FAKE_MEMORY_POOL, number, true);
    must_free_on(&f, S, a);
    must_alloc_on(&f, S, BIG);
    assert_int_equal(f.device.releases, 0);
    pass_all(&f);
    must_alloc_on(&f, S, BIG);
    assert_int_equal(f.device.releases, 1);
    assert_ptr_equal(f.device.released_to, NULL); /* the driver knows the handle no more */
    fixture_end(&f);
}

static void a_context_that_is_gone_leaves_its_blocks_to_a_fence(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, BIG);
    must_free_on(&f, S, a);
    pool_streams_closing(f.pool, FAKE_PRIMARY(0));
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), false);
    assert_int_equal(totals_of(&f, 0).ordered, BIG);
    pool_streams_closing(f.pool, FAKE_PRIMARY(0));
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), true);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_not_equal(must_alloc_on(&f, S, BIG), a);
    assert_int_equal(f.device.fences, 1);
    assert_int_equal(f.device.stream_marks, 0);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, S, BIG), a);
    fixture_end(&f);
}

static void calls_on_the_legacy_stream_are_work_there(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const struct device_stream legacy = {(void *)1, false};
    uint64_t a = must_alloc_on(&f, legacy, BIG), address;
    assert_int_equal(f.device.touches, 1);
    must_free_on(&f, legacy, a);
    assert_int_equal(f.device.touches, 2);
    must_free_on(&f, S, must_alloc_on(&f, S, BIG));
    must_free_on(&f, PER_THREAD, must_alloc_on(&f, PER_THREAD, BIG));
    assert_int_equal(f.device.touches, 2); /* other streams order nobody */
    uint64_t b = must_alloc_on(&f, legacy, BIG);
    f.device.touch_fails_with = 906; /* the driver would refuse too: the block stays the program's */
    assert_int_equal(pool_free_async(f.pool, b, legacy, POOL_DOOR_DRIVER), 906);
    assert_int_equal(totals_of(&f, 0).live, BIG);
    f.device.touch_fails_with = 999; /* ours alone: nothing is known of the order */
    const uint64_t waiting = totals_of(&f, 0).waiting;
    must_free_on(&f, legacy, b);
    assert_int_equal(totals_of(&f, 0).waiting, waiting + BIG);
    assert_int_equal(pool_alloc_async(f.pool, BIG, legacy, POOL_DOOR_DRIVER, &address), POOL_PASS);
    fixture_end(&f);
}

static void what_the_pool_leaves_alone(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    uint64_t address;
    begin(&f);
    assert_int_equal(pool_alloc_async(f.pool, 0, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(pool_alloc_async(f.pool, 512, S, POOL_DOOR_DRIVER, NULL), POOL_PASS);
    f.device.no_streams = true;
    assert_int_equal(pool_alloc_async(f.pool, 512, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
    f.device.no_streams = false;
    f.device.memory_pool = NULL;
    assert_int_equal(pool_alloc_async(f.pool, 512, T, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(pool_free_async(f.pool, 0x1000, T, POOL_DOOR_DRIVER), POOL_PASS);
    pool_capture_begin(f.pool);
    f.device.capturing = STREAM(3).handle;
    f.device.memory_pool = FAKE_MEMORY_POOL;
    assert_int_equal(pool_alloc_async(f.pool, 512, STREAM(3), POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(pool_alloc_async(f.pool, 512, STREAM(4), POOL_DOOR_DRIVER, &address), 0);
    pool_capture_end(f.pool);
    fixture_end(&f);
    options.async = false;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    assert_int_equal(pool_alloc_async(f.pool, 512, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
    fixture_end(&f);
}

static void bad_frees_in_stream_order_answer_1(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, 4096);
    must_free_on(&f, S, a);
    assert_int_equal(pool_free_async(f.pool, a, S, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free_async(f.pool, a + 512, T, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    fixture_end(&f);
}

static void figures_count_by_stream(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t a = must_alloc_on(&f, S, 4096), b = must_alloc_on(&f, T, 8192);
    must_free_on(&f, T, a); /* counts where it was allocated */
    const struct poolcuda_pool *pool = figures_of_pool();
    const struct poolcuda_header *header = stats_header();
    unsigned found = 0;
    for (uint32_t i = 0; i < header->cells.count; i++) {
        const struct poolcuda_cell *cell = figures_record(&header->cells, i);
        if (!cell->pool || figures_record(&header->pools, cell->pool - 1) != pool || !cell->stream) continue;
        const bool first = cell->stream == (uint64_t)(uintptr_t)S.handle;
        struct cell_sums counters = {0};
        cell_sums_add(&counters, cell);
        assert_int_equal(counters.allocs, 1);
        assert_int_equal(counters.frees, first);
        assert_int_equal(counters.alloc_live_bytes - counters.freed_live_bytes, first ? 0 : 8192);
        found++;
    }
    assert_int_equal(found, 2);
    must_free_on(&f, T, b);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_same_stream_is_served_at_once),
    cmocka_unit_test(another_stream_is_served_when_an_event_on_the_first_has_passed),
    cmocka_unit_test(an_event_proves_what_was_freed_before_it_only),
    cmocka_unit_test(the_rest_of_a_fresh_segment_is_ordered_after_its_stream),
    cmocka_unit_test(sixty_four_frees_mark_the_stream_where_there_are_others),
    cmocka_unit_test(a_per_thread_stream_is_marked_by_a_fence),
    cmocka_unit_test(a_destroyed_streams_blocks_are_not_those_of_the_next_with_its_handle),
    cmocka_unit_test(a_stream_that_cannot_be_marked_leaves_its_blocks_to_a_fence),
    cmocka_unit_test(lists_of_destroyed_streams_are_used_again),
    cmocka_unit_test(streams_that_are_used_once_strand_nothing),
    cmocka_unit_test(a_plain_block_freed_in_stream_order_is_not_idle),
    cmocka_unit_test(kinds_never_mix),
    cmocka_unit_test(cudafree_of_an_async_block_waits_for_nobody),
    cmocka_unit_test(a_block_freed_on_another_devices_stream_waits_for_a_fence),
    cmocka_unit_test(neighbours_ordered_and_idle_make_one_block),
    cmocka_unit_test(a_full_device_takes_what_is_ordered_elsewhere),
    cmocka_unit_test(the_memory_pool_that_is_set_serves_from_then_on),
    cmocka_unit_test(a_destroyed_memory_pool_gives_out_no_more),
    cmocka_unit_test(a_memory_pool_that_is_being_destroyed_serves_nobody),
    cmocka_unit_test(a_memory_pool_is_destroyed_when_nobody_is_in_the_driver_with_it),
    cmocka_unit_test(a_memory_pool_whose_end_is_refused_goes_on),
    cmocka_unit_test(what_is_left_of_a_destroyed_memory_pool_goes_with_the_next_segment),
    cmocka_unit_test(a_context_that_is_gone_leaves_its_blocks_to_a_fence),
    cmocka_unit_test(calls_on_the_legacy_stream_are_work_there),
    cmocka_unit_test(what_the_pool_leaves_alone),
    cmocka_unit_test(bad_frees_in_stream_order_answer_1),
    cmocka_unit_test(figures_count_by_stream),
};
TESTING_MAIN(tests)
