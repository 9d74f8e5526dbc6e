/* SPDX-License-Identifier: MIT
 *
 * The pool's parts by themselves: the free index finds what a list of blocks would, the policy keeps its rules, host
 * memory stays small, a reset finds its pool.
 */
#include "pool_fixture.h"

#include "pool/internal.h"

#include <stdlib.h>

static struct fit_bounds up_to(size_t size) {
    return (struct fit_bounds){size, SIZE_MAX};
}

static void index_finds_a_fit_wherever_one_is(void **state) {
    (void)state;
    enum { COUNT = 200 };
    static struct free_index index;
    static struct block blocks[COUNT];
    srand(7);
    for (unsigned round = 0; round < 200; round++) {
        index = (struct free_index){0};
        size_t largest = 0;
        for (unsigned i = 0; i < COUNT; i++) {
            size_t units = 1 + (size_t)rand() % (1u << (rand() % 20));
            blocks[i] = (struct block){.address = 0x1000000u * (i + 1ull), .size = units * UNIT};
            index_insert(&index, &blocks[i]);
            if (blocks[i].size > largest) largest = blocks[i].size;
        }
        assert_int_equal(index.largest, largest);
        assert_null(index_find(&index, largest + UNIT, up_to(SIZE_MAX)));
        for (unsigned i = 0; i < COUNT; i++) {
            const struct block *fit = index_find(&index, blocks[i].size, up_to(SIZE_MAX));
            assert_non_null(fit);
            assert_true(fit->size >= blocks[i].size);
            /* Good fit: no more than one class (1/32) above the smallest that fits. */
            size_t smallest = SIZE_MAX;
            for (unsigned k = 0; k < COUNT; k++)
                if (blocks[k].size >= blocks[i].size && blocks[k].size < smallest) smallest = blocks[k].size;
            assert_true(fit->size <= smallest + smallest / 16);
            const struct block *bounded = index_find(&index, blocks[i].size, up_to(blocks[i].size));
            if (bounded) assert_int_equal(bounded->size, blocks[i].size);
        }
        for (unsigned i = 0; i < COUNT; i++) index_remove(&index, &blocks[(i * 37) % COUNT]);
        assert_int_equal(index.count, 0);
        assert_int_equal(index.largest, 0);
        assert_int_equal(index.first_map, 0);
    }
}

static void index_keeps_to_bounds_and_low_addresses(void **state) {
    (void)state;
    static struct free_index index;
    struct block blocks[4] = {{.address = 0x30000000, .size = 100 * UNIT},
                              {.address = 0x10000000, .size = 100 * UNIT},
                              {.address = 0x20000000, .size = 100 * UNIT},
                              {.address = 0x08000000, .size = 4000 * UNIT}};
    index = (struct free_index){0};
    for (unsigned i = 0; i < 4; i++) index_insert(&index, &blocks[i]);
    assert_ptr_equal(index_find(&index, 100 * UNIT, up_to(SIZE_MAX)), &blocks[1]);
    assert_ptr_equal(index_find(&index, 100 * UNIT, up_to(100 * UNIT)), &blocks[1]); /* the bound's own class counts */
    assert_ptr_equal(index_find(&index, 10 * UNIT, up_to(100 * UNIT)), &blocks[1]);
    assert_null(index_find(&index, 10 * UNIT, up_to(99 * UNIT)));
    assert_null(index_find(&index, 101 * UNIT, up_to(3999 * UNIT)));
    assert_ptr_equal(index_find(&index, 101 * UNIT, up_to(4000 * UNIT)), &blocks[3]);
}

static void index_classes_follow_sizes(void **state) {
    (void)state;
    unsigned previous = 0;
    for (size_t units = 1; units < 100000; units++) {
        unsigned class = index_class(units * UNIT);
        assert_true(class >= previous);
        if (units > 1 && units <= 32) assert_int_equal(class, previous + 1);
        previous = class;
    }
    assert_int_equal(index_class(SIZE_MAX / UNIT * UNIT), INDEX_FIRST_LEVELS * INDEX_SECOND_LEVELS - 1);
}

static void the_live_table_finds_what_it_holds(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    static struct block blocks[COUNT];
    static bool held[COUNT];
    struct live_table table = {0};
    assert_null(live_table_find(&table, 512));
    assert_null(live_table_remove(&table, 512));
    srand(11);
    /* Neighbouring addresses, and ones far apart: both must probe well. */
    for (unsigned i = 0; i < COUNT; i++)
        block_set_tag(&blocks[i], (struct block_tag){.state = BLOCK_LIVE}),
            blocks[i].address = i % 2 ? UINT64_C(0x700000000000) + i * UNIT : (uint64_t)i << 30 | 1u << 29;
    for (unsigned round = 0; round < 60000; round++) {
        unsigned i = (unsigned)rand() % COUNT;
        assert_ptr_equal(live_table_find(&table, blocks[i].address), held[i] ? &blocks[i] : NULL);
        if (held[i])
            assert_ptr_equal(live_table_remove(&table, blocks[i].address), &blocks[i]);
        else
            assert_true(live_table_add(&table, &blocks[i]));
        held[i] = !held[i];
    }
    size_t count = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        assert_ptr_equal(live_table_find(&table, blocks[i].address), held[i] ? &blocks[i] : NULL);
        count += held[i];
    }
    assert_int_equal(table.count, count);
    assert_true(table.room->mask + 1 >= 2 * count);
    live_table_free(&table);
}

static void policy_rounds_and_refuses_overflow(void **state) {
    (void)state;
    assert_int_equal(policy_round(1), 512);
    assert_int_equal(policy_round(512), 512);
    assert_int_equal(policy_round(513), 1024);
    assert_int_equal(policy_round(SIZE_MAX), 0);
    assert_int_equal(policy_round(SIZE_MAX - 511), 0);
}

static void policy_bounds_splits(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    assert_int_equal(policy_max_split(&options, 24 * 1024 * MIB), 1024 * MIB);
    assert_int_equal(policy_max_split(&options, 100 * MIB), 16 * MIB); /* an ordinary segment is split */
    assert_int_equal(policy_max_split(&options, 0), UINT64_MAX);
    options.limit_bytes = 48 * 1024 * MIB;
    assert_int_equal(policy_max_split(&options, 96 * 1024 * MIB), 2048 * MIB);
    options.max_split_bytes = 5 * MIB;
    assert_int_equal(policy_max_split(&options, 96 * 1024 * MIB), 5 * MIB);
    options.max_split_bytes = CONFIG_NONE;
    assert_int_equal(policy_max_split(&options, 96 * 1024 * MIB), UINT64_MAX);

    assert_false(policy_split(64 * MIB, MIB, 32 * MIB));
    assert_true(policy_split(32 * MIB, MIB, 32 * MIB));
    assert_false(policy_split(1024, 1024, 32 * MIB));
    assert_false(policy_split(17 * MIB - 512, 16 * MIB, 32 * MIB)); /* the rest is under a sixteenth */
    assert_true(policy_split(17 * MIB, 16 * MIB, 32 * MIB));
}

static void policy_bounds_what_fits(void **state) {
    (void)state;
    const struct pool_options options = fixture_options();
    for (int saves = 0; saves <= 1; saves++) {
        assert_int_equal(policy_fit(MIB, 32 * MIB, saves, &options).block, 32 * MIB);
        assert_int_equal(policy_fit(MIB, UINT64_MAX, saves, &options).block, SIZE_MAX);
        assert_int_equal(policy_fit(SIZE_MAX / UNIT * UNIT, 32 * MIB, saves, &options).block, SIZE_MAX);
        assert_int_equal(policy_fit(MIB / 4 - 512, 32 * MIB, saves, &options).segment, 16 * MIB); /* a small one */
        assert_int_equal(policy_fit(MIB / 4, 32 * MIB, saves, &options).segment, SIZE_MAX);
    }
    assert_int_equal(policy_fit(40 * MIB, 32 * MIB, false, &options).block, 42 * MIB);
    assert_int_equal(policy_fit(40 * MIB, 32 * MIB, true, &options).block, 47 * MIB);
}

/* What the configuration says of it is what a small request gets. */
static void policy_sizes_the_ordinary_segment_as_is_told(void **state) {
    (void)state;
    for (uint64_t segment = 2; segment < 40; segment += 3) {
        for (uint64_t most = 2; most < 40; most += 3) {
            const struct config config = {.segment = segment * MIB, .max_split = most * MIB};
            struct pool_options options = fixture_options();
            options.segment_bytes = policy_exact_segment(config.segment); /* as a system rounds it */
            options.max_split_bytes = config.max_split;
            const uint64_t bound = policy_max_split(&options, 8192 * MIB);
            assert_int_equal(policy_segment(512, 0, bound, &options), config_segment(&config));
        }
    }
}

static void policy_sizes_segments(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    const uint64_t bound = 1024 * MIB;
    assert_int_equal(policy_segment(512, 0, bound, &options), 16 * MIB);
    assert_int_equal(policy_segment(12 * MIB, 0, bound, &options), 12 * MIB);
    assert_int_equal(policy_segment(13 * MIB, 0, bound, &options), 14 * MIB);
    assert_int_equal(policy_segment(2000 * MIB, 0, bound, &options), 2000 * MIB); /* its own */
    assert_int_equal(policy_segment(512, 1024 * 1024 * MIB, bound, &options), 16 * MIB);
    options.segment_bytes = 8 * MIB;
    assert_int_equal(policy_segment(MIB, 2048 * MIB, bound, &options), 32 * MIB); /* grows with the pool */
    assert_int_equal(policy_segment(MIB, 2112 * MIB, bound, &options), 32 * MIB); /* in whole granules */
    assert_int_equal(policy_segment(MIB, 1024 * 1024 * MIB, bound, &options), 64 * MIB);
    options.segment_bytes = 16 * MIB;
    /* From half an ordinary segment on a request has one of its own size. */
    assert_int_equal(policy_segment(8 * MIB - 512, 0, bound, &options), 16 * MIB);
    assert_int_equal(policy_segment(8 * MIB, 0, bound, &options), 8 * MIB);
    /* Whole numbers of a size from 1 MiB on, up to a twenty-fourth of the pool and 128 MiB. */
    assert_int_equal(policy_segment(3 * MIB, 480 * MIB, bound, &options), 18 * MIB);
    assert_int_equal(policy_segment(3 * MIB, 400 * MIB, bound, &options), 16 * MIB);
    assert_int_equal(policy_segment(MIB - 512, 4096 * MIB, 16 * MIB, &options), 16 * MIB);
    assert_int_equal(policy_segment(50 * MIB + 512, 100 * 1024 * MIB, bound, &options), 102 * MIB);
    /* 3 MiB in a large pool: a whole number of them, with at most 1 % lost. */
    size_t bytes = policy_segment(9 * MIB + 512, 100 * 1024 * MIB, bound, &options);
    assert_true(bytes % (9 * MIB + 512) * 100 <= bytes);
    /* Never above a bound that the user set, unless the request is. */
    assert_int_equal(policy_segment(5 * MIB, 0, 5 * MIB, &options), 6 * MIB);
    options.max_split_bytes = 4 * MIB;
    assert_true(policy_segment(512, 100 * 1024 * MIB, 4 * MIB, &options) <= 4 * MIB);
    for (size_t size = 512; size < 4 * MIB; size += 97 * 512) {
        size_t segment = policy_segment(size, 0, 4 * MIB, &options);
        assert_true(segment >= size && segment <= 4 * MIB && segment % GRANULE == 0);
    }
}

static void host_memory_per_live_block_is_bounded(void **state) {
    (void)state;
    /* A block's record, and its share of the table of live blocks: a quarter full at worst. */
    assert_true(sizeof(struct block) + 4 * sizeof(struct live_slot) <= 160);
    assert_true(sizeof(struct pool) + sizeof(struct pool_system) <= 512 * KIB);
}

static void a_pool_that_was_found_before_its_reset_is_reset_again(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 4096));
    must_alloc(&f, 4096);
    struct context_cache found = context_cache;
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, true);
    f.device.alive[0] = false;
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;

    /* A thread that had come as far as the pool when the reset began goes on after it. */
    found.epoch = atomic_load(&f.pool->epoch);
    context_cache = found;
    must_alloc(&f, 4096);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    must_free(&f, must_alloc(&f, 4096));
    fixture_end(&f);
}

/* A context that ends is forgotten some time after the driver can give its memory to another. */
static void a_segment_takes_the_place_of_dead_ones(void **state) {
    (void)state;
    struct registry *registry = calloc(1, sizeof *registry);
    assert_true(registry && registry_init(registry));
    static struct pool dead, living;
    struct segment old[3], beside, fresh;
    for (unsigned i = 0; i < 3; i++) {
        old[i] = (struct segment){.address = (8 + 2 * i) * GRANULE, .size = 2 * GRANULE, .pool = &dead};
        assert_true(registry_add(registry, &old[i]));
    }
    beside = (struct segment){.address = 14 * GRANULE, .size = GRANULE, .pool = &living};
    assert_true(registry_add(registry, &beside));
    fresh = (struct segment){.address = 9 * GRANULE, .size = 4 * GRANULE, .pool = &living};
    assert_true(registry_add(registry, &fresh)); /* parts of the first and last, all of the second */
    for (unsigned i = 0; i < 3; i++) registry_remove(registry, &old[i]);
    for (uint64_t address = fresh.address; address < fresh.address + fresh.size; address += GRANULE) {
        assert_ptr_equal(registry_segment(registry, address), &fresh);
        assert_ptr_equal(registry_pool(registry, address), &living);
    }
    assert_null(registry_pool(registry, old[0].address)); /* whatever comes there is not ours */
    assert_null(registry_pool(registry, old[2].address + GRANULE));
    assert_ptr_equal(registry_segment(registry, beside.address), &beside);
    assert_int_equal(registry->count, 2);
    registry_remove(registry, &fresh);
    registry_remove(registry, &beside);
    assert_int_equal(registry->count, 0);
    assert_null(registry_pool(registry, fresh.address));
    registry_destroy(registry);
    free(registry);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_segment_takes_the_place_of_dead_ones),
    cmocka_unit_test(index_finds_a_fit_wherever_one_is),
    cmocka_unit_test(index_keeps_to_bounds_and_low_addresses),
    cmocka_unit_test(index_classes_follow_sizes),
    cmocka_unit_test(the_live_table_finds_what_it_holds),
    cmocka_unit_test(policy_rounds_and_refuses_overflow),
    cmocka_unit_test(policy_bounds_splits),
    cmocka_unit_test(policy_bounds_what_fits),
    cmocka_unit_test(policy_sizes_the_ordinary_segment_as_is_told),
    cmocka_unit_test(policy_sizes_segments),
    cmocka_unit_test(host_memory_per_live_block_is_bounded),
    cmocka_unit_test(a_pool_that_was_found_before_its_reset_is_reset_again),
};
TESTING_MAIN(tests)
