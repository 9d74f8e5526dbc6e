/* SPDX-License-Identifier: MIT
 *
 * What is noted of live blocks: SYNC_MEMOPS, which belongs to the segment and goes with the last block that asked for
 * it, and exports, which keep a freed block from everybody until nobody has it open.
 */
#include "pool/internal.h"

#include <time.h>

#include "pool_fixture.h"

#define A STREAM(1)

/* ---- SYNC_MEMOPS ---- */

static void must_mark(struct fixture *f, uint64_t address, bool on) {
    assert_int_equal(pool_set_sync_memops(f->pool, address, on), 0);
}

static bool is_marked(struct fixture *f, uint64_t address) {
    struct pool_block_info info;
    assert_int_equal(pool_find(f->pool, address, &info), 0);
    return info.sync_memops;
}

static void hazard_22_the_driver_is_told_when_the_last_block_of_a_segment_is_freed(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    const uint64_t one = must_alloc(&f, 4 * KIB), two = must_alloc(&f, 4 * KIB), three = must_alloc(&f, 4 * KIB);
    must_mark(&f, one + 100, true);
    assert_int_equal(f.device.sync_calls, 1);
    assert_int_equal(f.device.sync_ordinal, -1); /* as the program asked */
    must_mark(&f, two, true);
    must_mark(&f, two, true);
    assert_true(is_marked(&f, one) && is_marked(&f, two) && !is_marked(&f, three));
    const unsigned calls = f.device.sync_calls;
    must_free(&f, one);
    must_free(&f, three);
    assert_int_equal(f.device.sync_calls, calls);
    must_free(&f, two);
    assert_int_equal(f.device.sync_calls, calls + 1);
    assert_false(f.device.sync_on);
    assert_int_equal(f.device.sync_ordinal, 0); /* under the block's context */
    assert_true(f.device.sync_address == two);
    assert_int_equal(totals_of(&f, 0).retired, 0);
    assert_false(is_marked(&f, must_alloc(&f, 4 * KIB)));
    fixture_end(&f);
}

static void a_block_takes_its_mark_back_for_itself(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    const uint64_t one = must_alloc(&f, 4 * KIB), two = must_alloc(&f, 4 * KIB);
    must_mark(&f, one, true);
    must_mark(&f, two, true);
    must_mark(&f, one, false);
    assert_true(f.device.sync_on); /* for the other */
    assert_false(is_marked(&f, one));
    must_mark(&f, one, false);
    assert_true(f.device.sync_on);
    must_mark(&f, two, false);
    assert_false(f.device.sync_on);
    const unsigned calls = f.device.sync_calls;
    must_free(&f, one);
    must_free(&f, two);
    assert_int_equal(f.device.sync_calls, calls); /* nothing was left to take back */
    fixture_end(&f);
}

static void a_mark_that_the_driver_refuses_is_none(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    const uint64_t one = must_alloc(&f, 4 * KIB);
    f.device.sync_fails_with = 801;
    assert_int_equal(pool_set_sync_memops(f.pool, one, true), 801);
    assert_false(is_marked(&f, one));
    f.device.sync_fails_with = 0;
    must_mark(&f, one, true);
    f.device.sync_fails_with = 999;
    assert_int_equal(pool_set_sync_memops(f.pool, one, false), 999);
    assert_true(is_marked(&f, one));
    must_free(&f, one); /* whatever the driver says */
    assert_int_equal(totals_of(&f, 0).idle, totals_of(&f, 0).reserved);
    fixture_end(&f);
}

static void what_is_no_live_block_is_not_marked(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    const uint64_t one = must_alloc(&f, 1000);
    assert_int_equal(pool_set_sync_memops(f.pool, one + 1000, true), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_set_sync_memops(f.pool, 0x42, true), POOL_PASS);
    must_free(&f, one);
    assert_int_equal(pool_set_sync_memops(f.pool, one, true), DEVICE_INVALID_VALUE);
    assert_int_equal(f.device.sync_calls, 0);
    fixture_end(&f);
}

struct meanwhile {
    struct fixture *fixture;
    uint64_t other;
    pthread_t thread;
    bool begun;
};

static void *mark_other(void *arg) {
    const struct meanwhile *meanwhile = arg;
    must_mark(meanwhile->fixture, meanwhile->other, true);
    return NULL;
}

/* Called while the driver takes the mark back: another thread sets it for its own block. */
static void begin_mark(void *arg) {
    struct meanwhile *meanwhile = arg;
    if (meanwhile->begun) return;
    meanwhile->begun = true;
    fake_set_current(FAKE_PRIMARY(0), 0);
    assert_int_equal(pthread_create(&meanwhile->thread, NULL, mark_other, meanwhile), 0);
    const struct timespec a_while = {0, 20 * 1000 * 1000};
    nanosleep(&a_while, NULL);
}

static void a_mark_that_is_set_while_the_last_is_taken_back_stays(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    const uint64_t one = must_alloc(&f, 4 * KIB), two = must_alloc(&f, 4 * KIB);
    must_mark(&f, one, true);
    struct meanwhile meanwhile = {.fixture = &f, .other = two};
    f.device.during_arg = &meanwhile;
    f.device.during_sync = begin_mark;
    must_free(&f, one);
    assert_int_equal(pthread_join(meanwhile.thread, NULL), 0);
    assert_true(f.device.sync_on);
    assert_true(is_marked(&f, two));
    must_free(&f, two);
    assert_false(f.device.sync_on);
    fixture_end(&f);
}

/* ---- exports ---- */

static bool is_open[8];
static unsigned asked[8];

static bool export_over(uint64_t export) {
    asked[export]++;
    return !is_open[export];
}

static void begin(struct fixture *f, bool event) {
    struct pool_options options = fixture_options();
    options.export_over = export_over;
    options.free_event = event;
    memset(is_open, 0, sizeof is_open);
    memset(asked, 0, sizeof asked);
    fixture_begin(f, 1024 * MIB_BYTES, options);
}

static uint64_t note_export(struct fixture *f, uint64_t address, uint64_t export) {
    struct pool_block_info info;
    assert_int_equal(pool_find(f->pool, address, &info), 0);
    return pool_note_export(f->pool, &info, export);
}

static void hazard_34_an_open_block_is_nobodys_until_it_is_closed(void **state) {
    (void)state;
    for (int event = 0; event < 2; event++) {
        struct fixture f;
        begin(&f, event);
        f.device.passes_at_once = false;
        must_alloc(&f, 4 * MIB_BYTES);
        const uint64_t block = must_alloc(&f, 4 * MIB_BYTES);
        assert_int_equal(note_export(&f, block, 3), 3);
        is_open[3] = true;
        must_free(&f, block);
        assert_int_equal(asked[3], 1);
        assert_int_equal(totals_of(&f, 0).exported, 4 * MIB_BYTES);
        assert_int_equal(figures_of_pool()->exported_bytes, 4 * MIB_BYTES);
        assert_int_equal(pool_free(f.pool, block, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE); /* a second time */
        assert_true(pool_knows_export(f.pool, 3, block));
        for (int i = 0; i < 3; i++) assert_true(must_alloc(&f, 4 * MIB_BYTES) != block);
        is_open[3] = false;
        pool_releasable(f.pool, 0, NULL);
        assert_false(pool_knows_export(f.pool, 3, block));
        assert_int_equal(totals_of(&f, 0).exported, 0);
        if (event) { /* work of this process may still use it */
            assert_int_equal(totals_of(&f, 0).waiting, 4 * MIB_BYTES);
            f.device.passed = f.device.recorded;
            pool_releasable(f.pool, 0, NULL);
        }
        assert_true(must_alloc(&f, 4 * MIB_BYTES) == block);
        fixture_end(&f);
    }
}

static void what_is_closed_before_the_free_is_free_at_once(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    must_alloc(&f, 4 * KIB);
    const uint64_t block = must_alloc(&f, 4 * KIB);
    note_export(&f, block, 1);
    must_free(&f, block);
    assert_true(must_alloc(&f, 4 * KIB) == block);
    assert_int_equal(asked[1], 1);
    struct pool_block_info info;
    assert_int_equal(pool_find(f.pool, block, &info), 0);
    assert_int_equal(info.export, 0); /* the next owner has exported nothing */
    fixture_end(&f);
}

static void a_stream_ordered_free_of_an_open_block_keeps_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    f.device.passes_at_once = false;
    must_alloc(&f, 4 * MIB_BYTES);
    const uint64_t block = must_alloc(&f, 4 * MIB_BYTES);
    note_export(&f, block, 2);
    is_open[2] = true;
    must_free_on(&f, A, block);
    assert_int_equal(totals_of(&f, 0).exported, 4 * MIB_BYTES);
    is_open[2] = false;
    pool_releasable(f.pool, 0, NULL);
    assert_int_equal(totals_of(&f, 0).waiting, 4 * MIB_BYTES); /* the stream's work is not proved */
    f.device.passed = f.device.recorded;
    pool_releasable(f.pool, 0, NULL);
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    fixture_end(&f);
}

static void the_first_export_of_a_block_stays(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    must_alloc(&f, 4 * KIB);
    const uint64_t block = must_alloc(&f, 4 * KIB);
    struct pool_block_info before;
    assert_int_equal(pool_find(f.pool, block, &before), 0);
    assert_int_equal(pool_note_export(f.pool, &before, 5), 5);
    assert_int_equal(pool_note_export(f.pool, &before, 6), 5); /* two threads export at once */
    must_free(&f, block);
    assert_true(must_alloc(&f, 4 * KIB) == block);
    assert_int_equal(pool_note_export(f.pool, &before, 7), 0); /* it was freed meanwhile: not the next owner's */
    fixture_end(&f);
}

static void hazard_34_what_nobody_can_trace_goes_with_its_segment(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t first = must_alloc(&f, 4 * MIB_BYTES), second = must_alloc(&f, 4 * MIB_BYTES);
    assert_true(note_export(&f, first, 0) != 0);
    must_free(&f, first);
    assert_int_equal(totals_of(&f, 0).exported, 4 * MIB_BYTES);
    const uint64_t taken[] = {must_alloc(&f, 4 * MIB_BYTES), must_alloc(&f, 4 * MIB_BYTES),
                              must_alloc(&f, 4 * MIB_BYTES)};
    for (int i = 0; i < 3; i++) assert_true(taken[i] != first);
    assert_int_equal(f.device.releases, 0);
    const uint64_t reserved = totals_of(&f, 0).reserved;
    for (int i = 0; i < 3; i++) must_free(&f, taken[i]);
    assert_int_equal(totals_of(&f, 0).reserved, reserved);
    must_free(&f, second);
    assert_int_equal(totals_of(&f, 0).reserved, reserved - 16 * MIB_BYTES);
    assert_int_equal(f.device.releases, 1);
    assert_int_equal(totals_of(&f, 0).exported, 0);
    fixture_end(&f);
}

static void in_need_such_segments_go_back_too(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true); /* a free waits for nothing, and so gives nothing back */
    const uint64_t first = must_alloc(&f, 4 * MIB_BYTES);
    note_export(&f, first, 0);
    must_free(&f, first);
    assert_int_equal(totals_of(&f, 0).reserved, 16 * MIB_BYTES);
    assert_true(pool_relieve(f.pool, 0));
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    fixture_end(&f);
}

/* Where no free waits they would pile up. */
static void what_nobody_can_trace_is_bounded(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.free_event = true;
    fixture_begin(&f, 65536 * MIB_BYTES, options);
    for (int i = 0; i < 40; i++) {
        const uint64_t block = must_alloc(&f, 64 * MIB_BYTES);
        note_export(&f, block, 0);
        const unsigned waits = f.device.synchronizes;
        must_free(&f, block);
        assert_true(f.device.synchronizes == waits || totals_of(&f, 0).exported < 256 * MIB_BYTES);
        assert_true(totals_of(&f, 0).reserved <= 320 * MIB_BYTES);
    }
    assert_true(f.device.synchronizes > 0 && f.device.synchronizes < 40);
    assert_int_equal(pool_figures(figures_of_pool()).waits, f.device.synchronizes);
    fixture_end(&f);
}

static void a_reset_forgets_exported_blocks(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t first = must_alloc(&f, 4 * KIB), second = must_alloc(&f, 4 * KIB);
    note_export(&f, first, 0);
    note_export(&f, second, 4);
    is_open[4] = true;
    must_free(&f, first);
    must_free(&f, second);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    assert_false(pool_knows_export(f.pool, 4, second));
    assert_int_equal(totals_of(&f, 0).exported, 0);
    must_alloc(&f, 4 * KIB);
    fixture_end(&f);
}

/* One question is about so many at most; those that stay open do not keep others from being asked about. */
static void many_open_blocks_are_asked_about_in_turn(void **state) {
    (void)state;
    enum { COUNT = 100 };
    struct fixture f;
    begin(&f, false);
    uint64_t blocks[COUNT], last;
    for (int i = 0; i < COUNT; i++) blocks[i] = must_alloc(&f, 4 * KIB);
    last = must_alloc(&f, 4 * KIB);
    for (int i = 0; i < COUNT; i++) note_export(&f, blocks[i], 7);
    note_export(&f, last, 6);
    is_open[7] = is_open[6] = true;
    for (int i = 0; i < COUNT; i++) must_free(&f, blocks[i]);
    must_free(&f, last);
    is_open[6] = false;
    for (int i = 0; i < 4; i++) pool_releasable(f.pool, 0, NULL);
    assert_int_equal(totals_of(&f, 0).exported, COUNT * 4 * KIB);
    assert_true(must_alloc(&f, 4 * KIB) == last);
    fixture_end(&f);
}

/* ---- who asks, and who waits ---- */

static struct fixture *asking;
static unsigned nested;

/* Another thread asks meanwhile. */
static bool ask_again(uint64_t export) {
    asked[export]++;
    if (!nested++) pool_releasable(asking->pool, 0, NULL);
    return !is_open[export];
}

static void one_at_a_time_asks_about_exports(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.export_over = ask_again;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    asking = &f;
    must_alloc(&f, 4 * KIB);
    const uint64_t block = must_alloc(&f, 4 * KIB);
    note_export(&f, block, 3);
    is_open[3] = true;
    nested = 1;
    must_free(&f, block);
    asked[3] = nested = 0;
    pool_releasable(f.pool, 0, NULL);
    assert_int_equal(asked[3], 1);
    is_open[3] = false;
    nested = 1;
    pool_releasable(f.pool, 0, NULL);
    fixture_end(&f);
}

/* Eight blocks of 64 MiB, freed: more than may pile up. */
static void free_untraceable(struct fixture *f) {
    uint64_t blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = must_alloc(f, 64 * MIB_BYTES);
        note_export(f, blocks[i], 0);
    }
    for (int i = 0; i < 8; i++) pool_free(f->pool, blocks[i], POOL_DOOR_DRIVER);
}

static void what_nobody_can_trace_waits_for_nothing_amid_a_capture(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    uint64_t blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = must_alloc(&f, 64 * MIB_BYTES);
        note_export(&f, blocks[i], 0);
    }
    pool_capture_begin(f.pool);
    const unsigned waits = f.device.synchronizes;
    for (int i = 0; i < 8; i++) must_free(&f, blocks[i]);
    assert_int_equal(f.device.synchronizes, waits);
    pool_capture_end(f.pool);
    fixture_end(&f);
}

static void a_wait_for_it_is_over_when_it_ends(void **state) {
    (void)state;
    struct fixture f;
    struct timespec before, after;
    begin(&f, true);
    free_untraceable(&f);
    assert_true(f.device.synchronizes > 0);
    clock_gettime(CLOCK_MONOTONIC, &before);
    pool_capture_begin(f.pool);
    clock_gettime(CLOCK_MONOTONIC, &after);
    pool_capture_end(f.pool);
    const int64_t ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    assert_true(ms < 90);
    fixture_end(&f);
}

static void after_a_wait_that_failed_nothing_goes_back(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    f.device.synchronize_fails_with = 700;
    free_untraceable(&f);
    assert_int_equal(f.device.releases, 0);
    f.device.synchronize_fails_with = 0;
    fixture_end(&f);
}

static void what_is_open_elsewhere_and_known_is_not_waited_for(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    must_alloc(&f, 4 * KIB);
    for (int i = 0; i < 8; i++) {
        const uint64_t block = must_alloc(&f, 64 * MIB_BYTES);
        note_export(&f, block, 5);
        is_open[5] = true;
        must_free(&f, block);
    }
    assert_int_equal(f.device.synchronizes, 0);
    fixture_end(&f);
}

static void a_stream_ordered_free_gives_nothing_back(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t block = must_alloc(&f, 4 * MIB_BYTES);
    note_export(&f, block, 0);
    must_free_on(&f, A, block);
    assert_int_equal(f.device.releases, 0);
    assert_int_equal(f.device.synchronizes, 0);
    fixture_end(&f);
}

static void frees_that_do_not_wait_ask_about_exports_too(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    must_alloc(&f, 4 * KIB);
    const uint64_t block = must_alloc(&f, 4 * KIB);
    note_export(&f, block, 2);
    is_open[2] = true;
    must_free(&f, block);
    is_open[2] = false;
    for (int i = 0; i < 2 * FENCE_FREES; i++) must_free(&f, must_alloc(&f, 4 * KIB));
    assert_int_equal(totals_of(&f, 0).exported, 0);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hazard_22_the_driver_is_told_when_the_last_block_of_a_segment_is_freed),
    cmocka_unit_test(a_block_takes_its_mark_back_for_itself),
    cmocka_unit_test(a_mark_that_the_driver_refuses_is_none),
    cmocka_unit_test(what_is_no_live_block_is_not_marked),
    cmocka_unit_test(a_mark_that_is_set_while_the_last_is_taken_back_stays),
    cmocka_unit_test(hazard_34_an_open_block_is_nobodys_until_it_is_closed),
    cmocka_unit_test(what_is_closed_before_the_free_is_free_at_once),
    cmocka_unit_test(a_stream_ordered_free_of_an_open_block_keeps_it),
    cmocka_unit_test(the_first_export_of_a_block_stays),
    cmocka_unit_test(hazard_34_what_nobody_can_trace_goes_with_its_segment),
    cmocka_unit_test(in_need_such_segments_go_back_too),
    cmocka_unit_test(what_nobody_can_trace_is_bounded),
    cmocka_unit_test(a_reset_forgets_exported_blocks),
    cmocka_unit_test(many_open_blocks_are_asked_about_in_turn),
    cmocka_unit_test(one_at_a_time_asks_about_exports),
    cmocka_unit_test(what_nobody_can_trace_waits_for_nothing_amid_a_capture),
    cmocka_unit_test(a_wait_for_it_is_over_when_it_ends),
    cmocka_unit_test(after_a_wait_that_failed_nothing_goes_back),
    cmocka_unit_test(what_is_open_elsewhere_and_known_is_not_waited_for),
    cmocka_unit_test(a_stream_ordered_free_gives_nothing_back),
    cmocka_unit_test(frees_that_do_not_wait_ask_about_exports_too),
};

TESTING_MAIN(tests)
