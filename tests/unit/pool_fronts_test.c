/* SPDX-License-Identifier: MIT
 *
 * Fronts: whose a block is, when hits are served, and what several of them say together.
 */
#include "pool_fixture.h"
#include "pool_insides.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool/hits.h"

#define S STREAM(1)
#define T STREAM(2)
#define SMALL (4 * KIB)

enum { WARM = 8, MANY = POOLCUDA_MAX_CELLS + 40 };

static void begin(struct fixture *f) {
    fixture_begin(f, 4096 * MIB_BYTES, fixture_options());
}

static struct pool *only_pool(struct fixture *f) {
    struct pool *pool = atomic_load(&f->pool->pools);
    assert_null(pool->next);
    return pool;
}

static void warm_on(struct fixture *f, struct device_stream stream, uint64_t blocks[WARM]) {
    for (unsigned i = 0; i < WARM; i++) blocks[i] = must_alloc_on(f, stream, SMALL);
}

static void a_hit_frees_what_is_live_there_and_nothing_else(void **state) {
    (void)state;
    struct front front = {.number = 3, .live_tag = block_word_of((struct block_tag){.state = BLOCK_LIVE, .number = 3})};
    struct block block = {0};
    block_set_address(&block, 512);
    static const struct {
        struct block_tag tag;
        uint64_t address;
        bool live;
    } cases[] = {
        {{.state = BLOCK_LIVE, .number = 3}, 512, true},
        {{.state = BLOCK_LIVE, .number = 3}, 1024, false}, /* its record is another block's by now */
        {{.state = BLOCK_LIVE, .number = 4}, 512, false},
        {{.state = BLOCK_BINNED, .number = 3}, 512, false},
        {{.state = BLOCK_WAITING, .number = 3}, 512, false},
        {{.state = BLOCK_LIVE, .number = 3, .batch = NOTE_SYNC}, 512, false},
        {{0}, 512, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        block_set_tag(&block, cases[i].tag);
        assert_ptr_equal(hit_live(&front, &block, cases[i].address), cases[i].live ? &block : NULL);
    }
}

static void a_memory_pool_that_has_ended_serves_no_hit(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[WARM], address;
    begin(&f);
    warm_on(&f, S, blocks);
    must_free_on(&f, S, blocks[0]);
    assert_int_equal(binned_bytes(only_pool(&f)), SMALL);
    const uint64_t number = pool_memory_pool_ending(f.pool, FAKE_MEMORY_POOL);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pool_alloc_async(f.pool, SMALL, S, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_memory_pool_settled(f.pool, FAKE_MEMORY_POOL, number, false);
    must_alloc_on(&f, S, SMALL);
    fixture_end(&f);
}

struct work {
    struct fixture *f;
    uint64_t blocks[WARM];
};

static void *free_all(void *arg) {
    const struct work *work = arg;
    for (unsigned i = 0; i < WARM; i++) must_free(work->f, work->blocks[i]);
    return NULL;
}

static void another_threads_free_goes_back_to_the_front_that_gave(void **state) {
    (void)state;
    struct fixture f;
    struct work work = {.f = &f};
    pthread_t thread;
    begin(&f);
    for (unsigned i = 0; i < WARM; i++) work.blocks[i] = must_alloc(&f, SMALL);
    pthread_create(&thread, NULL, free_all, &work);
    pthread_join(thread, NULL);
    assert_int_equal(waits_under_way(only_pool(&f)), 0);
    assert_int_equal(binned_bytes(only_pool(&f)), WARM * SMALL);
    assert_pool_whole(&f);
    for (unsigned i = WARM; i-- > 0;) assert_int_equal(must_alloc(&f, SMALL), work.blocks[i]);
    fixture_end(&f);
}

static void what_one_stream_gave_another_may_free(void **state) {
    (void)state;
    struct fixture f;
    uint64_t on_s[WARM], on_t[WARM];
    begin(&f);
    f.device.passes_at_once = false;
    warm_on(&f, S, on_s);
    warm_on(&f, T, on_t);
    must_free_on(&f, T, on_s[3]);
    assert_pool_whole(&f);
    assert_int_not_equal(must_alloc_on(&f, S, SMALL), on_s[3]);
    assert_int_equal(must_alloc_on(&f, T, SMALL), on_s[3]);
    assert_int_equal(totals_of(&f, 0).blocks_live, 2 * WARM + 1);
    fixture_end(&f);
}

/* A hit frees the block into its front's bin: with the front's lock. */
static void hit_frees(struct pool *pool, struct front *front, struct block *block) {
    const uint64_t at = cell_begin(front->cell);
    hit_end_life(front, block, POOL_DOOR_DRIVER);
    hit_bin(front, block, index_class(block->size), fences_open_batch(&pool->system->fences));
    cell_end(front->cell, at);
}

/* Another thread records a fence. */
static void fence_elsewhere(struct fixture *f) {
    const uint64_t batch = fences_seal(&f->pool->fences);
    atomic_store(&f->pool->fences.marked, batch);
}

struct late {
    struct fixture *f;
    uint64_t address;
    struct front *front;
    struct block *block;
    atomic_uint step;
};

static void *free_on_s(void *arg) {
    const struct late *late = arg;
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_free_on(late->f, S, late->address);
    return NULL;
}

/* A free that is no hit reads its batch, and then finds the front's lock taken by hits of later ones. */
static void a_front_knows_its_newest_batch_whoever_comes_last(void **state) {
    (void)state;
    struct fixture f;
    uint64_t on_s[WARM], on_t[WARM];
    pthread_t thread;
    begin(&f);
    f.device.passes_at_once = false;
    warm_on(&f, S, on_s);
    warm_on(&f, T, on_t);
    struct pool *pool = only_pool(&f);
    struct block *block = live_table_entry(&pool->table, on_s[0]);
    struct front *front = pool->fronts[block_tag(block).number];
    struct late late = {.f = &f, .address = on_t[0]};
    lock_take(&front->lock);
    pthread_create(&thread, NULL, free_on_s, &late);
    usleep(20000); /* it waits for the lock by then */
    fence_elsewhere(&f);
    hit_frees(pool, front, block);
    lock_give(&front->lock);
    pthread_join(thread, NULL);
    assert_pool_whole(&f);
    const unsigned marks = f.device.stream_marks;
    pool_stream_end(f.pool, S.handle);
    assert_int_equal(f.device.stream_marks, marks + 1);
    fixture_end(&f);
}

static void *wait_for_a_fence(void *arg) {
    struct late *late = arg;
    struct pool *pool = only_pool(late->f);
    lock_take(&pool->lock);
    figures_begin(pool);
    late->block = front_end_life(pool, late->address, POOL_DOOR_DRIVER, NULL);
    atomic_store(&late->step, 1);
    while (atomic_load(&late->step) == 1) usleep(100);
    front_wait(pool, late->front, late->block);
    figures_end(pool);
    lock_give(&pool->lock);
    return NULL;
}

static void blocks_wait_in_the_order_of_batches_whoever_comes_last(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[2];
    pthread_t thread;
    struct pool_options options = fixture_options();
    options.free_event = true;
    fixture_begin(&f, 4096 * MIB_BYTES, options);
    for (unsigned i = 0; i < 2; i++) blocks[i] = must_alloc(&f, SMALL);
    struct pool *pool = only_pool(&f);
    struct block *block = live_table_entry(&pool->table, blocks[1]);
    struct late late = {.f = &f, .address = blocks[0], .front = pool->fronts[block_tag(block).number]};
    pthread_create(&thread, NULL, wait_for_a_fence, &late);
    while (atomic_load(&late.step) == 0) usleep(100);
    lock_take(&late.front->lock);
    atomic_store(&late.step, 2);
    usleep(20000); /* it waits for the lock by then */
    fence_elsewhere(&f);
    const uint64_t at = cell_begin(late.front->cell), batch = fences_open_batch(&f.pool->fences);
    hit_end_life(late.front, block, POOL_DOOR_DRIVER);
    hit_wait(late.front, block, batch);
    front_add(&late.front->waiting.bytes, block->size);
    stats_set(&late.front->cell->waiting_bytes, late.front->waiting.bytes);
    cell_end(late.front->cell, at);
    lock_give(&late.front->lock);
    pthread_join(thread, NULL);
    assert_pool_whole(&f);
    lock_take(&pool->lock);
    assert_int_equal(fronts_waiting_batch(pool), batch);
    lock_give(&pool->lock);
    fixture_end(&f);
}

/* It is waited for, so the block is idle: the front that the block was of bounds the batches of its own. */
static void what_an_unknown_stream_frees_goes_to_no_streams_bin(void **state) {
    (void)state;
    struct fixture f;
    uint64_t on_s[WARM];
    begin(&f);
    f.device.passes_at_once = false;
    warm_on(&f, S, on_s);
    struct pool *pool = only_pool(&f);
    lock_take(&pool->lock);
    assert_true(streams_mark(pool, pool->lists[1])); /* of what is left of the segment */
    must_free_on(&f, S, on_s[0]);
    f.device.no_streams = true;
    must_free_on(&f, T, on_s[1]);
    f.device.no_streams = false;
    assert_pool_whole(&f);
    assert_int_equal(totals_of(&f, 0).idle, SMALL);
    const unsigned marks = f.device.stream_marks;
    pool_stream_end(f.pool, S.handle);
    assert_int_equal(f.device.stream_marks, marks + 1);
    fixture_end(&f);
}

static void ids_are_unique_over_fronts(void **state) {
    (void)state;
    struct fixture f;
    struct pool_block_info infos[3];
    begin(&f);
    const uint64_t blocks[] = {must_alloc_on(&f, S, SMALL), must_alloc_on(&f, T, SMALL), must_alloc(&f, SMALL)};
    for (unsigned i = 0; i < 3; i++) assert_int_equal(pool_find(f.pool, blocks[i], &infos[i]), 0);
    assert_true(infos[0].id != infos[1].id && infos[0].id != infos[2].id && infos[1].id != infos[2].id);
    fixture_end(&f);
}

static void streams_in_turns_do_not_add_up_to_a_peak(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[256];
    begin(&f);
    for (unsigned turn = 0; turn < 8; turn++) {
        const struct device_stream stream = turn % 2 ? S : T;
        for (unsigned i = 0; i < 256; i++) blocks[i] = must_alloc_on(&f, stream, SMALL - 1);
        for (unsigned i = 0; i < 256; i++) must_free_on(&f, stream, blocks[i]);
    }
    assert_in_range(figures_of_pool()->peak_live_bytes, 256 * SMALL * 15 / 16, 256 * SMALL);
    assert_in_range(figures_of_pool()->peak_requested_bytes, 256 * (SMALL - 1) * 15 / 16, 256 * (SMALL - 1));
    fixture_end(&f);
}

static void together_they_do(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[2][256];
    begin(&f);
    for (unsigned turn = 0; turn < 4; turn++) {
        for (unsigned i = 0; i < 256; i++) {
            blocks[0][i] = must_alloc_on(&f, S, SMALL);
            blocks[1][i] = must_alloc_on(&f, T, SMALL);
        }
        assert_pool_whole(&f);
        for (unsigned i = 0; i < 256; i++) {
            must_free_on(&f, S, blocks[0][i]);
            must_free_on(&f, T, blocks[1][i]);
        }
    }
    assert_in_range(figures_of_pool()->peak_live_bytes, 512 * SMALL * 15 / 16, 512 * SMALL);
    fixture_end(&f);
}

/* More than there are cells: the rest has no front, and no bins. */
static void more_streams_than_fronts_are_served_all_the_same(void **state) {
    (void)state;
    struct fixture f;
    static uint64_t blocks[MANY];
    begin(&f);
    for (unsigned round = 0; round < 2 * WARM; round++) {
        for (unsigned i = 0; i < MANY; i++) blocks[i] = must_alloc_on(&f, STREAM(i + 1), SMALL);
        assert_int_equal(totals_of(&f, 0).live, MANY * SMALL);
        for (unsigned i = 0; i < MANY; i++) must_free_on(&f, STREAM(i + 1), blocks[i]);
        assert_pool_whole(&f);
    }
    assert_true(only_pool(&f)->front_count <= FRONTS_MOST);
    assert_int_equal(pool_counters(figures_of_pool()).allocs, 2 * WARM * MANY);
    assert_int_equal(pool_counters(figures_of_pool()).frees, 2 * WARM * MANY);
    fixture_end(&f);
}

static void threads_are_served_beside_many_streams(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    for (unsigned i = 0; i < MANY; i++) must_alloc_on(&f, STREAM(i + 1), SMALL);
    for (unsigned i = 0; i < 2 * WARM; i++) must_free(&f, must_alloc(&f, SMALL));
    const struct front *front = NULL;
    for (struct pool *pool = atomic_load(&f.pool->pools); pool; pool = pool->next)
        if (pool->source.kind == SEGMENT_PLAIN) front = hit_front_of_thread(pool);
    assert_non_null(front);
    assert_int_not_equal(front->number, 0);
    assert_int_equal(front->serves_allocs, FRONT_SERVES);
    fixture_end(&f);
}

/* Without a cell of its own a thread shares the front of another. */
static void a_thread_without_a_cell_shares_a_front(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    for (unsigned i = 0; i < 2 * WARM; i++) must_free(&f, must_alloc(&f, SMALL));
    struct pool *pool = only_pool(&f);
    const unsigned own = front_of_thread;
    while (stats_cell_more(pool->figures, 0, 99)) continue;
    front_of_thread = own % FRONTS_OF_THREADS + 1; /* as another thread's */
    must_free(&f, must_alloc(&f, SMALL));
    assert_int_equal(front_of_thread, own);
    assert_int_equal(pool->fronts[own % FRONTS_OF_THREADS + 1]->refused > 0, true);
    must_free(&f, must_alloc(&f, SMALL));
    assert_pool_whole(&f);
    fixture_end(&f);
}

/* One after the other, each gone before the next but for a block of each second one. */
static void a_front_serves_another_stream_when_it_counts_nothing(void **state) {
    (void)state;
    struct fixture f;
    uint64_t kept[MANY];
    begin(&f);
    f.device.passes_at_once = true;
    for (unsigned i = 0; i < MANY; i++) {
        const struct device_stream stream = STREAM(i + 1);
        for (unsigned round = 0; round < 2 * WARM; round++) must_free_on(&f, stream, must_alloc_on(&f, stream, SMALL));
        kept[i] = must_alloc_on(&f, stream, SMALL);
        if (i % 2) must_free_on(&f, stream, kept[i]);
        pool_stream_end(f.pool, stream.handle);
        assert_pool_whole(&f);
    }
    assert_int_equal(pool_counters(figures_of_pool()).allocs, MANY * (2 * WARM + 1));
    assert_int_equal(totals_of(&f, 0).blocks_live, MANY / 2);
    for (unsigned i = 0; i < MANY; i += 2) must_free(&f, kept[i]);
    assert_int_equal(pool_counters(figures_of_pool()).frees, MANY * (2 * WARM + 1));
    assert_int_equal(totals_of(&f, 0).live, 0);
    fixture_end(&f);
}

/* ---- lists that are taken for other streams, beside hits ---- */

enum { TAKES = 3000, HITS_BETWEEN = 200, FIRST_FEW = 70 };

struct hammer {
    struct fixture *f;
    atomic_bool stop;
    _Atomic unsigned hits;
};

static void *hit_on_s(void *arg) {
    struct hammer *hammer = arg;
    fake_set_current(FAKE_PRIMARY(0), 0);
    while (!atomic_load(&hammer->stop)) {
        uint64_t address;
        if (pool_alloc_async(hammer->f->pool, SMALL, S, POOL_DOOR_DRIVER, &address) != 0) abort();
        const unsigned hits = atomic_fetch_add(&hammer->hits, 1);
        for (volatile unsigned i = 0; i < (hits * 2654435761u >> 24); i++) continue;
        if (pool_free_async(hammer->f->pool, address, S, POOL_DOOR_DRIVER) != 0) abort();
    }
    return NULL;
}

/* Streams whose lists hold what was never freed on them, and fronts that nobody has and that hold free blocks. */
static unsigned astray(struct pool *pool) {
    unsigned count = 0;
    lock_take(&pool->lock);
    for (unsigned i = 1; i < pool->list_count; i++) {
        const struct stream_list *list = pool->lists[i];
        count += list->id && list->stream.handle != S.handle && list->bytes > 0;
    }
    for (unsigned i = FRONTS_OF_THREADS + 1; i < pool->front_count; i++) {
        struct front *front = pool->fronts[i];
        lock_take(&front->lock);
        count += !front->list && front_binned(front) > 0;
        lock_give(&front->lock);
    }
    lock_give(&pool->lock);
    return count;
}

static void a_list_is_not_taken_from_a_stream_that_frees(void **state) {
    (void)state;
    struct fixture f;
    struct hammer hammer = {.f = &f};
    struct pool_options options = fixture_options();
    pthread_t thread;
    options.segment_bytes = 256 * MIB_BYTES;
    fixture_begin(&f, 8192 * MIB_BYTES, options);
    for (unsigned i = 0; i < 2 * WARM; i++) must_free_on(&f, S, must_alloc_on(&f, S, SMALL));
    pool_releasable(f.pool, 0, NULL); /* what the list has is idle */
    for (unsigned k = 2; k <= FIRST_FEW; k++) must_alloc_on(&f, STREAM(k), SMALL);
    pool_releasable(f.pool, 0, NULL);
    pthread_create(&thread, NULL, hit_on_s, &hammer);
    for (unsigned k = 1; k <= TAKES; k++) {
        for (unsigned from = atomic_load(&hammer.hits); atomic_load(&hammer.hits) - from < HITS_BETWEEN;) continue;
        streams_poll(only_pool(&f));
        must_alloc_on(&f, STREAM(FIRST_FEW + k), 2 * SMALL);
        assert_int_equal(astray(only_pool(&f)), 0);
    }
    atomic_store(&hammer.stop, true);
    pthread_join(thread, NULL);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_hit_frees_what_is_live_there_and_nothing_else),
    cmocka_unit_test(a_memory_pool_that_has_ended_serves_no_hit),
    cmocka_unit_test(another_threads_free_goes_back_to_the_front_that_gave),
    cmocka_unit_test(what_one_stream_gave_another_may_free),
    cmocka_unit_test(a_front_knows_its_newest_batch_whoever_comes_last),
    cmocka_unit_test(blocks_wait_in_the_order_of_batches_whoever_comes_last),
    cmocka_unit_test(what_an_unknown_stream_frees_goes_to_no_streams_bin),
    cmocka_unit_test(ids_are_unique_over_fronts),
    cmocka_unit_test(streams_in_turns_do_not_add_up_to_a_peak),
    cmocka_unit_test(together_they_do),
    cmocka_unit_test(more_streams_than_fronts_are_served_all_the_same),
    cmocka_unit_test(threads_are_served_beside_many_streams),
    cmocka_unit_test(a_thread_without_a_cell_shares_a_front),
    cmocka_unit_test(a_front_serves_another_stream_when_it_counts_nothing),
    cmocka_unit_test(a_list_is_not_taken_from_a_stream_that_frees),
};

TESTING_MAIN(tests)
