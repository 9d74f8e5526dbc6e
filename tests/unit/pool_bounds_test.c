/* SPDX-License-Identifier: MIT
 *
 * What the pool may cost, however long a program goes on: the memory that small live blocks keep from others, and the
 * time of an operation beside many blocks.
 */
#include "pool_fixture.h"

#include <stdlib.h>
#include <time.h>

static uint64_t state_of_random;

static uint64_t below(uint64_t bound) {
    state_of_random = state_of_random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (state_of_random >> 33) % bound;
}

/* Powers of two from `least` on, `steps` of them, and what lies between. */
static size_t size_from(size_t least, unsigned steps) {
    const size_t size = least << below(steps);
    return size + (size_t)below(size);
}

/* ---- stranded memory ---- */

enum { SMALL_KEPT = 4096, SHORT = 256, LARGE = 12, STEPS = 60000 };

/* Free bytes in segments that also hold a live block. */
static uint64_t stranded(struct fixture *f) {
    const struct pool_totals totals = totals_of(f, 0);
    return totals.idle + totals.ordered + totals.waiting - totals.releasable;
}

/* One of the two kinds of memory. */
static uint64_t take(struct fixture *f, bool async, size_t bytes) {
    return async ? must_alloc_on(f, STREAM(1), bytes) : must_alloc(f, bytes);
}

static void give(struct fixture *f, bool async, uint64_t address) {
    if (!address) return;
    if (async)
        must_free_on(f, STREAM(1), address);
    else
        must_free(f, address);
}

/* As programs do it: large temporaries come and go, small blocks between them, and some of the small ones stay. */
static void mix(struct fixture *f, bool async, uint64_t *kept) {
    uint64_t small[SHORT] = {0}, large[LARGE] = {0}, most_live = 0;
    unsigned kept_count = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        const bool is_large = step % 16 == 0;
        uint64_t *place = is_large ? &large[below(LARGE)] : &small[below(SHORT)];
        if (*place && !is_large && kept_count < SMALL_KEPT && below(8) == 0)
            kept[kept_count++] = *place;
        else
            give(f, async, *place);
        *place = take(f, async, is_large ? size_from(MIB_BYTES, 7) : size_from(512, 8));
        const uint64_t live = totals_of(f, 0).live;
        if (live > most_live) most_live = live;
        assert_in_range(stranded(f), 0, 2 * most_live + 16 * MIB_BYTES);
    }
    assert_int_equal(kept_count, SMALL_KEPT);
    for (unsigned i = 0; i < LARGE; i++) give(f, async, large[i]);
    for (unsigned i = 0; i < SHORT; i++) give(f, async, small[i]);
}

static void hazard_39_small_blocks_that_stay_keep_little_of_what_large_ones_leave(void **state) {
    (void)state;
    static uint64_t kept[SMALL_KEPT];
    for (unsigned seed = 1; seed <= 8; seed++) {
        const bool async = seed % 2 == 0;
        struct fixture f;
        state_of_random = seed;
        fixture_begin(&f, 16384 * MIB_BYTES, fixture_options());
        mix(&f, async, kept);
        pool_releasable(f.pool, 0); /* what has passed is proved */
        /* They came between, and are a tenth of, what went. */
        assert_in_range(totals_of(&f, 0).live, 64 * MIB_BYTES, 128 * MIB_BYTES);
        assert_in_range(stranded(&f), 0, totals_of(&f, 0).live / 2);
        assert_in_range(totals_of(&f, 0).releasable, 512 * MIB_BYTES, UINT64_MAX);
        for (unsigned i = 0; i < SMALL_KEPT; i++) give(&f, async, kept[i]);
        fixture_end(&f);
    }
}

/* A segment of 40 MiB, 10 of them in use, and no room for another segment. */
static void hazard_39_in_need_small_blocks_take_what_large_ones_leave(void **state) {
    (void)state;
    for (unsigned async = 0; async < 2; async++) {
        struct pool_options options = fixture_options();
        struct fixture f;
        options.max_split_bytes = CONFIG_NONE;
        fixture_begin(&f, 41 * MIB_BYTES, options);
        give(&f, async, take(&f, async, 40 * MIB_BYTES));
        const uint64_t large = take(&f, async, 10 * MIB_BYTES);
        const uint64_t small = take(&f, async, 4096);
        assert_int_equal(totals_of(&f, 0).reserved, 40 * MIB_BYTES);
        assert_in_range(small, large, large + 40 * MIB_BYTES);
        give(&f, async, small);
        give(&f, async, large);
        fixture_end(&f);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hazard_39_small_blocks_that_stay_keep_little_of_what_large_ones_leave),
    cmocka_unit_test(hazard_39_in_need_small_blocks_take_what_large_ones_leave),
};
TESTING_MAIN(tests)
