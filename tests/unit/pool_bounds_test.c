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
        pool_releasable(f.pool, 0, NULL); /* what has passed is proved */
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

/* ---- the time of an operation ---- */

enum { MOST_BLOCKS = 100000, PAIRS = 2000, ROUNDS = 15 };

static double thread_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Of a free and an allocation of any of the blocks, in the best of some rounds. */
static double time_pairs(struct fixture *f, bool async, uint64_t *blocks, size_t count) {
    double best = 1e9;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const double began = thread_seconds();
        for (unsigned i = 0; i < PAIRS; i++) {
            uint64_t *block = &blocks[below(count)];
            give(f, async, *block);
            *block = take(f, async, 4096);
        }
        const double spent = thread_seconds() - began;
        if (spent < best) best = spent;
    }
    return best;
}

/* Blocks of one size, each beside another that is free, of the same size: none of the holes merge, and all are in one
 * list. Where the time grew with what is live or free, it would a thousandfold. What it may grow by are misses of the
 * processor's caches. */
static void hazard_40_a_pair_costs_the_same_beside_many_blocks(void **state) {
    (void)state;
#ifdef POOL_CHECK_EVERY_CALL
    skip(); /* each call looks at every block */
#endif
    static uint64_t blocks[2 * MOST_BLOCKS];
    for (unsigned async = 0; async < 2; async++) {
        double few = 0;
        for (size_t count = 100; count <= MOST_BLOCKS; count *= 10) {
            struct fixture f;
            fixture_begin(&f, 65536 * MIB_BYTES, fixture_options());
            for (size_t i = 0; i < 2 * count; i++) blocks[i] = take(&f, async, 4096);
            for (size_t i = count; i < 2 * count; i++) {
                const size_t odd = 2 * (i - count) + 1;
                give(&f, async, blocks[odd]);
                blocks[odd] = 0;
            }
            for (size_t i = 0; i < count; i++) blocks[i] = blocks[2 * i];
            const double spent = time_pairs(&f, async, blocks, count);
            if (count == 100) few = spent;
            if (spent > 25 * few)
                fail_msg("beside %zu blocks a pair takes %.0f ns, beside 100 %.0f", count, spent / PAIRS * 1e9,
                         few / PAIRS * 1e9);
            print_message("# %s, %zu live, as many free: %.0f ns a pair\n", async ? "async" : "plain", count,
                          spent / PAIRS * 1e9);
            for (size_t i = 0; i < count; i++) give(&f, async, blocks[i]);
            fixture_end(&f);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hazard_40_a_pair_costs_the_same_beside_many_blocks),
    cmocka_unit_test(hazard_39_small_blocks_that_stay_keep_little_of_what_large_ones_leave),
    cmocka_unit_test(hazard_39_in_need_small_blocks_take_what_large_ones_leave),
};
TESTING_MAIN(tests)
