/* SPDX-License-Identifier: MIT
 *
 * Free neighbours, some of a stream's list and some idle, that serve one request of the stream together: what is left
 * of them is as free as the last of them was. And what splits and merges leave behind: nothing.
 */
#include "pool/internal.h"

#include "pool_fixture.h"

#define A STREAM(1)
#define B STREAM(2)
#define C STREAM(3)

static void begin(struct fixture *f) {
    fixture_begin(f, 65536 * MIB_BYTES, fixture_options());
    f->device.passes_at_once = false;
}

/* All that was freed is idle. */
static void prove_all(struct fixture *f) {
    pool_releasable(f->pool, 0, NULL); /* records */
    f->device.passed = f->device.recorded;
    pool_releasable(f->pool, 0, NULL);
    assert_int_equal(totals_of(f, 0).ordered + totals_of(f, 0).waiting, 0);
}

/* A segment of 16 MiB, live in four parts of 4 MiB. */
static void take_four(struct fixture *f, uint64_t parts[4]) {
    for (unsigned i = 0; i < 4; i++) parts[i] = must_alloc_on(f, A, 4 * MIB_BYTES);
    for (unsigned i = 1; i < 4; i++) assert_int_equal(parts[i], parts[0] + i * 4 * MIB_BYTES);
}

static void what_is_left_of_a_run_stays_the_streams(void **state) {
    (void)state;
    struct fixture f;
    uint64_t parts[4];
    begin(&f);
    take_four(&f, parts);
    must_free_on(&f, A, parts[1]);
    prove_all(&f);
    must_free_on(&f, A, parts[0]); /* ordered, beside an idle one */
    assert_int_equal(must_alloc_on(&f, A, 5 * MIB_BYTES), parts[0]);
    assert_int_equal(totals_of(&f, 0).ordered, 3 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).idle, 0);
    const uint64_t other = must_alloc_on(&f, B, 3 * MIB_BYTES); /* would prove what is proved */
    assert_true(other < parts[0] || other >= parts[0] + 16 * MIB_BYTES);
    assert_int_equal(must_alloc_on(&f, A, 3 * MIB_BYTES), parts[0] + 5 * MIB_BYTES);
    fixture_end(&f);
}

/* Ordered, idle, ordered: the one at `late` was freed after the other was marked. */
static void check_run_of_two_batches(unsigned late) {
    struct fixture f;
    uint64_t parts[4];
    begin(&f);
    take_four(&f, parts);
    must_free_on(&f, A, parts[1]);
    prove_all(&f);
    must_free_on(&f, A, parts[2 - late]);
    must_alloc_on(&f, B, 32 * MIB_BYTES); /* marks A */
    must_free_on(&f, A, parts[late]);
    assert_int_equal(must_alloc_on(&f, A, 9 * MIB_BYTES), parts[0]);
    assert_int_equal(totals_of(&f, 0).ordered, 3 * MIB_BYTES);
    f.device.passed = f.device.recorded;
    const uint64_t other = must_alloc_on(&f, B, 3 * MIB_BYTES);
    assert_true(other < parts[0] || other >= parts[0] + 16 * MIB_BYTES);
    fixture_end(&f);
}

static void a_run_is_as_late_as_its_latest_part(void **state) {
    (void)state;
    check_run_of_two_batches(0);
    check_run_of_two_batches(2);
}

static void a_run_has_nothing_of_other_streams(void **state) {
    (void)state;
    struct fixture f;
    uint64_t parts[4];
    begin(&f);
    take_four(&f, parts);
    must_free_on(&f, A, parts[0]);
    must_free_on(&f, B, parts[1]);
    must_free_on(&f, A, parts[2]);
    const uint64_t a = must_alloc_on(&f, A, 6 * MIB_BYTES);
    assert_true(a < parts[0] || a >= parts[0] + 16 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).ordered - 10 * MIB_BYTES, 12 * MIB_BYTES); /* with the rest of a new segment */
    fixture_end(&f);
}

/* The block at `later`, and then its neighbour, are freed in order; only what was freed before the mark is proved. */
static void check_joined(size_t first_bytes, size_t second_bytes, bool second_before) {
    struct fixture f;
    begin(&f);
    const uint64_t low = must_alloc_on(&f, A, second_before ? second_bytes : first_bytes),
                   high = must_alloc_on(&f, A, second_before ? first_bytes : second_bytes);
    must_alloc_on(&f, A, 16 * MIB_BYTES - first_bytes - second_bytes);
    must_free_on(&f, A, second_before ? high : low);
    must_alloc_on(&f, B, 32 * MIB_BYTES); /* marks A */
    must_free_on(&f, A, second_before ? low : high);
    f.device.passed = f.device.recorded;
    const uint64_t other = must_alloc_on(&f, B, 4096);
    assert_true(other < low || other >= low + first_bytes + second_bytes);
    f.device.passed = f.device.recorded;
    must_alloc_on(&f, C, 48 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).idle, first_bytes + second_bytes);
    fixture_end(&f);
}

static void joined_neighbours_are_as_late_as_the_later(void **state) {
    (void)state;
    const size_t sizes[] = {512, 64 * KIB, 4 * MIB_BYTES, 5 * MIB_BYTES}; /* with and without a change of class */
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 4; k++)
            for (unsigned before = 0; before < 2; before++) check_joined(sizes[i], sizes[k], before);
}

static void a_block_between_two_joins_both(void **state) {
    (void)state;
    for (unsigned late = 0; late < 3; late++) {
        struct fixture f;
        uint64_t parts[4];
        begin(&f);
        take_four(&f, parts);
        for (unsigned i = 0; i < 3; i++)
            if (i != late) must_free_on(&f, A, parts[i]);
        must_alloc_on(&f, B, 32 * MIB_BYTES); /* marks A */
        must_free_on(&f, A, parts[late]);
        f.device.passed = f.device.recorded;
        const uint64_t other = must_alloc_on(&f, B, 12 * MIB_BYTES);
        assert_int_not_equal(other, parts[0]);
        assert_int_equal(must_alloc_on(&f, A, 12 * MIB_BYTES), parts[0]);
        fixture_end(&f);
    }
}

static void a_small_block_between_two_joins_both(void **state) {
    (void)state;
    for (unsigned ordered = 0; ordered < 2; ordered++) {
        struct fixture f;
        begin(&f);
        const size_t large = 7 * MIB_BYTES; /* a little more is of the same class */
        const size_t sizes[] = {large, 512, large};
        uint64_t parts[3];
        for (unsigned i = 0; i < 3; i++) parts[i] = ordered ? must_alloc_on(&f, A, sizes[i]) : must_alloc(&f, sizes[i]);
        for (unsigned i = 0; i < 3; i++) {
            const uint64_t part = parts[(const unsigned[]){0, 2, 1}[i]];
            if (ordered)
                must_free_on(&f, A, part);
            else
                must_free(&f, part);
            assert_pool_whole(&f);
        }
        assert_int_equal(totals_of(&f, 0).largest_free, 16 * MIB_BYTES);
        fixture_end(&f);
    }
}

/* ---- blocks that keep their place ---- */

static void a_large_segment_is_wholly_free_or_not(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.max_split_bytes = CONFIG_NONE;
    fixture_begin(&f, 65536 * MIB_BYTES, options);
    const size_t large = 130 * MIB_BYTES; /* a little less is of the same class */
    must_free(&f, must_alloc(&f, large));
    assert_int_equal(totals_of(&f, 0).releasable, large);
    const uint64_t a = must_alloc(&f, 1 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).reserved, large);
    assert_int_equal(totals_of(&f, 0).releasable, 0);
    assert_int_equal(pool_trim(f.pool, 0, 0), 0);
    must_free(&f, a);
    assert_int_equal(totals_of(&f, 0).releasable, large);
    assert_int_equal(pool_trim(f.pool, 0, 0), large);
    fixture_end(&f);
}

static size_t spare_records(const struct pool *pool) {
    size_t count = 0;
    for (const struct block *block = pool->records.free_blocks; block; block = block->next) count++;
    return count;
}

static void splits_and_merges_leave_nothing_behind(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_free_on(&f, A, must_alloc_on(&f, A, 4096));
    const struct pool *pool = atomic_load(&f.pool->pools);
    const size_t spare = spare_records(pool);
    for (unsigned i = 0; i < 100; i++) {
        const uint64_t a = must_alloc_on(&f, A, 160 * KIB), b = must_alloc_on(&f, A, 256 * KIB),
                       c = must_alloc_on(&f, A, 128 * KIB);
        must_free_on(&f, A, i % 2 ? a : c);
        must_free_on(&f, A, b);
        must_free_on(&f, A, i % 2 ? c : a);
    }
    assert_int_equal(spare_records(pool), spare);
    assert_int_equal(pool->figures->splits, 301);
    assert_int_equal(pool->figures->merges, 301);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_left_of_a_run_stays_the_streams),
    cmocka_unit_test(a_run_is_as_late_as_its_latest_part),
    cmocka_unit_test(a_run_has_nothing_of_other_streams),
    cmocka_unit_test(joined_neighbours_are_as_late_as_the_later),
    cmocka_unit_test(a_block_between_two_joins_both),
    cmocka_unit_test(a_small_block_between_two_joins_both),
    cmocka_unit_test(a_large_segment_is_wholly_free_or_not),
    cmocka_unit_test(splits_and_merges_leave_nothing_behind),
};
TESTING_MAIN(tests)
