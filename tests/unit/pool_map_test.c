/* SPDX-License-Identifier: MIT
 *
 * The block map: what its rows say of the pool at rest, that a walk goes on whatever the pool does between its steps,
 * what a step may cost, and which segments have a row.
 */
#include "pool/internal.h"

#include "pool_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stats/segment.h"

#define SEGMENT (16 * MIB_BYTES)
#define CELL (SEGMENT / POOLCUDA_MAP_CELLS)

static const struct poolcuda_map_row *rows(void) {
    return ((const struct segment_storage *)(const void *)stats_header())->map;
}

/* Only what is published has a map. */
static void begin_with(struct fixture *f, uint64_t memory, struct pool_options options) {
    stats_start(true);
    if (stats_header()->state != POOLCUDA_RUNNING) skip();
    atexit(stats_finish);
    fixture_begin(f, memory, options);
    f->device.passes_at_once = true;
}

static void begin(struct fixture *f) {
    begin_with(f, 4096 * MIB_BYTES, fixture_options());
}

static struct pool *newest_pool(struct fixture *f) {
    return atomic_load(&f->pool->pools);
}

/* As memory that ran out would. */
static void refresh(struct fixture *f) {
    atomic_store(&f->pool->map_refresh_due, 0);
    map_refresh(f->pool, f->pool->devices);
}

static const struct poolcuda_map_row *row_at(uint64_t address) {
    for (unsigned i = 0; i < POOLCUDA_MAX_MAP_ROWS; i++)
        if (rows()[i].pool && rows()[i].address == address) return &rows()[i];
    return NULL;
}

static const struct poolcuda_map_row *row_of(struct fixture *f, uint64_t block) {
    return row_at(registry_segment(&f->pool->registry, block)->address);
}

static unsigned row_count(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < POOLCUDA_MAX_MAP_ROWS; i++) count += rows()[i].pool != 0;
    return count;
}

/* Bytes in any state. */
static uint64_t row_bytes(const struct poolcuda_map_row *row) {
    uint64_t bytes = 0;
#define ADD(name, unit, kind, help) bytes += row->name##_bytes;
    POOLCUDA_MAP_STATES(ADD)
#undef ADD
    return bytes;
}

static unsigned cell_parts(const struct poolcuda_map_cell *cell) {
    unsigned parts = 0;
#define ADD(name, unit, kind, help) parts += cell->name;
    POOLCUDA_MAP_STATES(ADD)
#undef ADD
    return parts;
}

static void assert_row_whole(const struct poolcuda_map_row *row) {
    assert_int_equal(row->sequence % 2, 0);
    assert_true(row->began_ns <= row->refreshed_ns);
    if (row->kind == POOLCUDA_MAP_PREALLOCATED)
        assert_true(row_bytes(row) <= row->size_bytes);
    else
        assert_int_equal(row_bytes(row), row->size_bytes);
    for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++) {
        assert_true(cell_parts(&row->cells[i]) <= POOLCUDA_MAP_PARTS);
        if (row->kind != POOLCUDA_MAP_PREALLOCATED) assert_int_equal(cell_parts(&row->cells[i]), POOLCUDA_MAP_PARTS);
        assert_true(row->cells[i].size_class <= POOLCUDA_SIZE_CLASSES);
    }
}

/* At rest, just refreshed, and with no more segments than rows: the rows say what the pool does. */
static void assert_map_is_of(struct fixture *f) {
    const struct pool_totals totals = totals_of(f, -1);
    uint64_t live = 0, idle = 0, ordered = 0, waiting = 0, kept = 0, size = 0, live_blocks = 0;
    for (unsigned i = 0; i < POOLCUDA_MAX_MAP_ROWS; i++) {
        const struct poolcuda_map_row *row = &rows()[i];
        if (!row->pool) continue;
        assert_row_whole(row);
        live += row->live_bytes;
        idle += row->idle_bytes;
        ordered += row->ordered_bytes;
        waiting += row->waiting_bytes;
        kept += row->kept_bytes;
        size += row->size_bytes;
        live_blocks += row->live_blocks;
    }
    assert_int_equal(row_count(), totals.segments);
    assert_int_equal(size, totals.reserved);
    assert_int_equal(live, totals.live);
    assert_int_equal(live_blocks, totals.blocks_live);
    assert_int_equal(idle, totals.idle);
    assert_int_equal(ordered, totals.ordered);
    assert_int_equal(waiting, totals.waiting);
    assert_int_equal(kept, totals.retired + totals.exported);
}

/* ---- what a row says ---- */

static int use_without_figures(void) {
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.passes_at_once = true;
    for (int i = 0; i < 200; i++) must_free(&f, must_alloc(&f, 4096));
    if (newest_pool(&f)->map.segment || newest_pool(&f)->map.began_ns) return 1;
    refresh(&f);
    if (newest_pool(&f)->map.began_ns || row_count()) return 2;
    fixture_end(&f);
    return 0;
}

static void without_figures_there_is_no_map(void **state) {
    (void)state;
    int status = -1;
    const pid_t child = fork();
    if (child == 0) _exit(use_without_figures());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_row_shows_where_blocks_are(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t first = must_alloc(&f, CELL), middle = must_alloc(&f, CELL), half = must_alloc(&f, CELL / 2),
                   small = must_alloc(&f, 512);
    must_free(&f, middle);
    refresh(&f);
    const struct poolcuda_map_row *row = row_of(&f, first);
    assert_non_null(row);
    assert_map_is_of(&f);
    assert_int_equal(row->kind, POOLCUDA_MAP_ORDINARY);
    assert_int_equal(row->size_bytes, SEGMENT);
    assert_int_equal(row->live_bytes, CELL + CELL / 2 + 512);
    assert_int_equal(row->live_blocks, 3);
    assert_int_equal(row->free_blocks, 2);
    assert_int_equal(row->largest_free_bytes, SEGMENT - 2 * CELL - CELL / 2 - 512);
    assert_int_equal(row->cells[0].live, 255);
    assert_int_equal(row->cells[0].blocks, 1);
    assert_int_equal(row->cells[0].size_class, 1 + stats_size_class(CELL));
    assert_int_equal(row->cells[1].idle, 255);
    assert_in_range(row->cells[2].live, 127, 129); /* half of it and a little */
    assert_int_equal(row->cells[2].idle, 255 - row->cells[2].live);
    assert_int_equal(row->cells[2].blocks, 3);
    assert_int_equal(row->cells[2].size_class, 1 + stats_size_class(CELL / 2));
    assert_int_equal(row->cells[3].idle, 255);
    assert_int_equal(row->cells[3].blocks, 0);
    assert_int_equal(row->cells[63].idle, 255);
    must_free(&f, half);
    must_free(&f, first);
    refresh(&f);
    assert_int_equal(row_of(&f, small)->cells[2].live, 1); /* the smallest is seen */
    must_free(&f, small);
    fixture_end(&f);
}

static void a_large_block_fills_its_cells(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t block = must_alloc(&f, 100 * MIB_BYTES);
    refresh(&f);
    const struct poolcuda_map_row *row = row_of(&f, block);
    for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++) assert_int_equal(row->cells[i].live, 255);
    assert_int_equal(row->cells[0].blocks, 1);
    assert_int_equal(row->cells[1].blocks, 0);
    must_free(&f, block);
    fixture_end(&f);
}

static void every_state_is_told_apart(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    struct fixture f;
    options.free_event = true;
    begin_with(&f, 4096 * MIB_BYTES, options);
    f.device.passes_at_once = false;
    const uint64_t live = must_alloc(&f, MIB_BYTES), waits = must_alloc(&f, MIB_BYTES),
                   waits_in_front = must_alloc(&f, 4096);
    must_free(&f, waits);
    must_free(&f, waits_in_front);
    const uint64_t ours = must_alloc_on(&f, STREAM(1), MIB_BYTES), ordered = must_alloc_on(&f, STREAM(1), MIB_BYTES);
    must_free_on(&f, STREAM(1), ordered);
    for (int i = 0; i < 20; i++) must_free_on(&f, STREAM(1), must_alloc_on(&f, STREAM(1), 4096)); /* in its bin */
    refresh(&f);
    assert_map_is_of(&f);
    assert_int_equal(row_of(&f, live)->waiting_bytes, MIB_BYTES + 4096);
    assert_int_equal(row_of(&f, ours)->ordered_bytes, SEGMENT - MIB_BYTES);
    assert_int_equal(row_of(&f, ours)->live_bytes, MIB_BYTES);
    f.device.passed = f.device.recorded;
    f.device.passes_at_once = true;
    must_free(&f, live);
    must_free_on(&f, STREAM(1), ours);
    fixture_end(&f);
}

static void what_is_kept_is_told_apart(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t block = must_alloc(&f, MIB_BYTES), other = must_alloc(&f, 4096);
    f.device.synchronize_fails_with = 700;
    assert_int_equal(pool_free(f.pool, block, POOL_DOOR_DRIVER), 700);
    f.device.synchronize_fails_with = 0;
    for (int i = 0; i < 20; i++) must_free(&f, must_alloc(&f, 2048)); /* in a bin */
    refresh(&f);
    assert_map_is_of(&f);
    assert_int_equal(row_of(&f, other)->kept_bytes, MIB_BYTES);
    assert_int_equal(row_of(&f, other)->live_bytes, 4096);
    must_free(&f, other);
    fixture_end(&f);
}

static void fixed_sizes_have_rows_of_their_kind(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    struct fixture f;
    options.fixed = (struct config_fixed){1, {{8 * MIB_BYTES, 4}}};
    begin_with(&f, 4096 * MIB_BYTES, options);
    const uint64_t block = must_alloc(&f, 8 * MIB_BYTES);
    refresh(&f);
    const struct poolcuda_map_row *row = row_of(&f, block);
    assert_row_whole(row);
    assert_int_equal(row->kind, POOLCUDA_MAP_FIXED);
    assert_int_equal(row->live_bytes, 8 * MIB_BYTES);
    assert_int_equal(row->fixed_bytes, 24 * MIB_BYTES);
    assert_int_equal(row->free_blocks, 3);
    must_free(&f, block);
    fixture_end(&f);
}

static void what_was_preallocated_is_one_row(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    struct fixture f;
    options.prealloc_bytes = 256 * MIB_BYTES;
    begin_with(&f, 4096 * MIB_BYTES, options);
    const uint64_t small = must_alloc(&f, 4096), large = must_alloc(&f, 64 * MIB_BYTES);
    refresh(&f);
    assert_int_equal(row_count(), 1);
    const struct poolcuda_map_row *row = row_of(&f, small);
    assert_row_whole(row);
    assert_int_equal(row->kind, POOLCUDA_MAP_PREALLOCATED);
    assert_int_equal(row->size_bytes, 256 * MIB_BYTES);
    assert_int_equal(row->live_bytes, 4096 + 64 * MIB_BYTES);
    assert_int_equal(row->size_bytes - row_bytes(row), newest_pool(&f)->unused_bytes);
    assert_int_equal(cell_parts(&row->cells[63]), 0);
    must_free(&f, large);
    must_free(&f, small);
    fixture_end(&f);
}

/* ---- steps ---- */

/* So many blocks of half a KiB. */
static void fill(struct fixture *f, uint64_t *blocks, unsigned count) {
    for (unsigned i = 0; i < count; i++) blocks[i] = must_alloc(f, 512);
}

static void empty(struct fixture *f, const uint64_t *blocks, unsigned count) {
    for (unsigned i = 0; i < count; i++) must_free(f, blocks[i]);
}

/* Time that the test alone decides, after all that passes really. */
static uint64_t own_time(struct fixture *f) {
    const uint64_t now = figures_clock() + UINT64_C(3600) * 1000000000;
    struct pool *pool = newest_pool(f);
    lock_take(&pool->lock);
    atomic_store(&pool->map.rests_until, 0);
    atomic_store(&f->pool->map_due, now);
    lock_give(&pool->lock);
    return now;
}

static void step(struct pool *pool, uint64_t now) {
    lock_take(&pool->lock);
    map_step(pool, now);
    lock_give(&pool->lock);
}

static void a_step_is_bounded_and_so_is_their_number(void **state) {
    (void)state;
    enum { BLOCKS = 2000 };
    static uint64_t blocks[BLOCKS];
    struct fixture f;
    begin(&f);
    fill(&f, blocks, BLOCKS);
    struct pool *pool = newest_pool(&f);
    uint64_t now = own_time(&f);
    step(pool, now); /* ends what was going on */
    while (pool->map.segment) step(pool, now += MAP_STEP_NS);
    now += MAP_REST_NS;
    const uint64_t began = now, before = row_of(&f, blocks[0])->sequence;
    unsigned steps = 0;
    do {
        const uint64_t at = pool->map.begun ? pool->map.at : 0;
        step(pool, now);
        assert_pool_whole(&f);
        if (!pool->map.segment) break;
        steps++;
        assert_in_range(pool->map.at - at, 1, MAP_STEP_BLOCKS * 512);
        const uint64_t then = pool->map.at;
        step(pool, now + MAP_STEP_NS - 1); /* too early */
        assert_int_equal(pool->map.at, then);
        now += MAP_STEP_NS;
    } while (steps < BLOCKS);
    assert_in_range(steps, BLOCKS / MAP_STEP_BLOCKS, BLOCKS / MAP_STEP_BLOCKS + 1);
    assert_int_equal(row_of(&f, blocks[0])->sequence, before + 2); /* written once, as a whole */
    assert_int_equal(row_of(&f, blocks[0])->live_blocks, BLOCKS);
    assert_int_equal(row_of(&f, blocks[0])->refreshed_ns, now);
    step(pool, began + MAP_REST_NS - 1);
    assert_null(pool->map.segment);
    step(pool, began + MAP_REST_NS + MAP_STEP_NS);
    assert_non_null(pool->map.segment);
    empty(&f, blocks, BLOCKS);
    fixture_end(&f);
}

static void a_new_segment_is_soon_in_the_map(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t first = must_alloc(&f, 100);
    assert_non_null(row_of(&f, first));
    atomic_store(&f.pool->map_due, 0); /* however long the machine took */
    atomic_store(&newest_pool(&f)->map.rests_until, MAP_NEVER - 1);
    const uint64_t second = must_alloc(&f, 100 * MIB_BYTES);
    assert_non_null(row_of(&f, second));
    must_free(&f, first);
    must_free(&f, second);
    fixture_end(&f);
}

static void a_hit_does_nothing_but_one_in_64(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t block = must_alloc(&f, MIB_BYTES);
    uint64_t hits = 0, longest = 0;
    for (int i = 0; i < 20; i++) must_free(&f, must_alloc(&f, 4096));
    const struct poolcuda_map_row *row = row_of(&f, block);
    for (unsigned writes = 0; writes < 3; hits++) {
        struct pool *pool = newest_pool(&f);
        atomic_store(&pool->map.rests_until, 0);
        atomic_store(&f.pool->map_due, 0);
        const uint64_t before = row->sequence;
        uint64_t hit = 0;
        assert_int_equal(pool_alloc(f.pool, 4096, POOL_DOOR_DRIVER, &hit), 0);
        if (row->sequence != before) {
            if (writes++) assert_int_equal(hits, POOLCUDA_LATENCY_SAMPLE - 1);
            hits = UINT64_MAX;
        }
        atomic_store(&f.pool->map_due, UINT64_MAX); /* frees have theirs */
        must_free(&f, hit);
        if (++longest > 4 * (uint64_t)POOLCUDA_LATENCY_SAMPLE) fail_msg("no hit refreshes the map");
    }
    must_free(&f, block);
    fixture_end(&f);
}

static void idle_pools_have_their_turn(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t plain = must_alloc(&f, 4096), async = must_alloc_on(&f, STREAM(1), 4096);
    refresh(&f);
    const uint64_t first = row_of(&f, plain)->sequence, second = row_of(&f, async)->sequence;
    uint64_t now = own_time(&f);
    for (unsigned i = 0; i < 4; i++) {
        atomic_store(&newest_pool(&f)->map.rests_until, 0);
        atomic_store(&newest_pool(&f)->next->map.rests_until, 0);
        map_beat(f.pool, now += MAP_STEP_NS);
    }
    assert_int_equal(row_of(&f, plain)->sequence, first + 4);
    assert_int_equal(row_of(&f, async)->sequence, second + 4);
    must_free(&f, plain);
    must_free_on(&f, STREAM(1), async);
    fixture_end(&f);
}

static void who_would_have_to_wait_comes_another_time(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t block = must_alloc(&f, 4096);
    refresh(&f);
    const uint64_t now = own_time(&f);
    const uint64_t before = row_of(&f, block)->sequence;
    struct pool *pool = newest_pool(&f);
    lock_take(&pool->lock);
    map_beat(f.pool, now); /* would not return if it waited */
    lock_give(&pool->lock);
    assert_int_equal(row_of(&f, block)->sequence, before);
    map_beat(f.pool, now + MAP_STEP_NS);
    assert_int_equal(row_of(&f, block)->sequence, before + 2);
    must_free(&f, block);
    fixture_end(&f);
}

/* ---- what goes on meanwhile ---- */

static uint64_t random_next(uint64_t *random) {
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *random >> 33;
}

/* The next block of a walk, and those beside it, are merged while it is not under way: all, or some of them, with what
 * is idle on either side. */
static void a_walk_goes_on_when_its_next_block_is_merged(void **state) {
    (void)state;
    enum { BLOCKS = 600, BESIDE = 2, ALL = 2 * BESIDE + 1 };
    static uint64_t blocks[BLOCKS];
    for (unsigned freed = 1; freed < 1u << ALL; freed++) {
        struct fixture f;
        begin(&f);
        fill(&f, blocks, BLOCKS);
        struct pool *pool = newest_pool(&f);
        refresh(&f);
        uint64_t now = own_time(&f);
        step(pool, now);
        assert_non_null(pool->records.walked);
        unsigned next = 0;
        while (next < BLOCKS && blocks[next] != pool->records.walked->address) next++;
        assert_in_range(next, BESIDE, BLOCKS - BESIDE - 1);
        for (unsigned i = 0; i < ALL; i++)
            if (freed >> i & 1) must_free(&f, blocks[next - BESIDE + i]);
        pool_trim(f.pool, 0, 0); /* merges what the bins keep */
        assert_pool_whole(&f);
        const uint64_t before = row_of(&f, blocks[0])->sequence;
        for (unsigned i = 0; i < BLOCKS && row_of(&f, blocks[0])->sequence == before; i++)
            step(pool, now += MAP_STEP_NS);
        assert_int_equal(row_of(&f, blocks[0])->sequence, before + 2);
        assert_row_whole(row_of(&f, blocks[0]));
        for (unsigned i = 0; i < ALL; i++)
            if (freed >> i & 1) blocks[next - BESIDE + i] = 0;
        for (unsigned i = 0; i < BLOCKS; i++)
            if (blocks[i]) must_free(&f, blocks[i]);
        fixture_end(&f);
    }
}

/* What was cut off the beginning of the next block lies before it. */
static void a_walk_goes_back_to_what_was_split_off(void **state) {
    (void)state;
    enum { BLOCKS = 600, LATER = 300 };
    static uint64_t blocks[BLOCKS], later[LATER];
    struct fixture f;
    begin(&f);
    fill(&f, blocks, MAP_STEP_BLOCKS - MAP_ROW_BLOCKS);
    struct pool *pool = newest_pool(&f);
    refresh(&f);
    uint64_t now = own_time(&f);
    step(pool, now);
    assert_int_equal(block_tag(pool->records.walked).state, BLOCK_IDLE); /* the rest of the segment */
    fill(&f, later, LATER);
    assert_true(later[0] < pool->records.walked->address);
    for (unsigned i = 0; i < LATER && pool->map.begun; i++) {
        step(pool, now += MAP_STEP_NS);
        assert_pool_whole(&f);
    }
    assert_row_whole(row_of(&f, blocks[0]));
    assert_int_equal(row_of(&f, blocks[0])->live_blocks, MAP_STEP_BLOCKS - MAP_ROW_BLOCKS + LATER);
    empty(&f, later, LATER);
    empty(&f, blocks, MAP_STEP_BLOCKS - MAP_ROW_BLOCKS);
    fixture_end(&f);
}

/* Splits, merges, segments that come and go, between any two steps; with and without what was preallocated. */
static void walk_beside_random_calls(struct pool_options options) {
    enum { HELD = 3000, CALLS = 40000 };
    static uint64_t held[HELD];
    struct fixture f;
    uint64_t random = 1;
    unsigned written = 0;
    begin_with(&f, 4096 * MIB_BYTES, options);
    memset(held, 0, sizeof held);
    held[0] = must_alloc(&f, 1);
    held[1] = must_alloc_on(&f, STREAM(1), 1);
    uint64_t now = own_time(&f), sequences = 0;
    for (unsigned call = 0; call < CALLS; call++) {
        uint64_t *at = &held[random_next(&random) % HELD];
        const bool async = (at - held) % 2;
        const uint64_t draw = random_next(&random);
        const size_t size = draw % 200 == 0 ? draw % (40 * MIB_BYTES) + 1
                            : draw % 4 == 0 ? draw % (MIB_BYTES / 2) + 1
                                            : draw % 4000 + 1;
        if (*at && async)
            must_free_on(&f, STREAM(1), *at);
        else if (*at)
            must_free(&f, *at);
        *at = *at ? 0 : async ? must_alloc_on(&f, STREAM(1), size) : must_alloc(&f, size);
        if (call % 997 == 0) pool_trim(f.pool, 0, 0);
        if (call % 5 == 0) {
            step(newest_pool(&f), now += MAP_STEP_NS);
            step(newest_pool(&f)->next, now += MAP_STEP_NS);
        }
        if (call % 10 == 0) assert_pool_whole(&f);
        if (call % 5 != 0) continue;
        uint64_t sum = 0;
        for (unsigned i = 0; i < POOLCUDA_MAX_MAP_ROWS; i++) {
            if (rows()[i].pool) assert_row_whole(&rows()[i]);
            sum += rows()[i].sequence;
        }
        written += sum != sequences;
        sequences = sum;
    }
    assert_true(written > CALLS / 5 / 8);
    refresh(&f);
    assert_map_is_of(&f);
    for (unsigned i = 0; i < HELD; i++) {
        if (held[i] && i % 2) must_free_on(&f, STREAM(1), held[i]);
        if (held[i] && i % 2 == 0) must_free(&f, held[i]);
    }
    fixture_end(&f);
    assert_int_equal(row_count(), 0);
}

static void a_walk_goes_on_beside_splits_and_merges(void **state) {
    (void)state;
    walk_beside_random_calls(fixture_options());
}

static void a_walk_goes_on_beside_parts(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.prealloc_bytes = 512 * MIB_BYTES;
    walk_beside_random_calls(options);
}

/* A step that ends amid the segment of `blocks`. Returns the time. */
static uint64_t stop_amid(struct fixture *f) {
    refresh(f);
    const uint64_t now = own_time(f);
    step(newest_pool(f), now);
    assert_non_null(newest_pool(f)->records.walked);
    return now;
}

static void end_walk(struct pool *pool, uint64_t now) {
    for (unsigned i = 0; i < 100 && pool->map.segment; i++) step(pool, now += MAP_STEP_NS);
    assert_null(pool->map.segment);
}

static void a_walk_goes_on_when_its_segment_is_gone(void **state) {
    (void)state;
    enum { BLOCKS = 600 };
    static uint64_t blocks[BLOCKS];
    struct fixture f;
    begin(&f);
    const uint64_t other = must_alloc(&f, 40 * MIB_BYTES);
    fill(&f, blocks, BLOCKS);
    const uint64_t now = stop_amid(&f), before = row_of(&f, other)->sequence;
    empty(&f, blocks, BLOCKS);
    pool_trim(f.pool, 0, 0);
    assert_int_equal(totals_of(&f, 0).segments, 1);
    assert_pool_whole(&f);
    end_walk(newest_pool(&f), now);
    assert_int_equal(row_of(&f, other)->sequence, before + 2);
    assert_int_equal(row_count(), 1);
    must_free(&f, other);
    fixture_end(&f);
}

/* The part goes back to its whole, and its record becomes an ordinary segment's. */
static void a_walk_begins_anew_when_its_part_is_gone(void **state) {
    (void)state;
    enum { BLOCKS = 600 };
    static uint64_t blocks[BLOCKS];
    struct pool_options options = fixture_options();
    struct fixture f;
    options.prealloc_bytes = 256 * MIB_BYTES;
    begin_with(&f, 4096 * MIB_BYTES, options);
    fill(&f, blocks, BLOCKS);
    const uint64_t large = must_alloc(&f, 200 * MIB_BYTES), now = stop_amid(&f);
    assert_non_null(newest_pool(&f)->map.part);
    empty(&f, blocks, BLOCKS);
    const uint64_t more = must_alloc(&f, 100 * MIB_BYTES);
    assert_int_equal(newest_pool(&f)->segment_count, 2);
    assert_pool_whole(&f);
    end_walk(newest_pool(&f), now);
    assert_row_whole(row_of(&f, large));
    assert_int_equal(row_of(&f, large)->live_bytes, 200 * MIB_BYTES);
    must_free(&f, large);
    must_free(&f, more);
    fixture_end(&f);
}

static void a_segment_that_goes_leaves_no_row(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t small = must_alloc(&f, 4096), large = must_alloc(&f, 100 * MIB_BYTES);
    refresh(&f);
    const uint64_t segment = row_of(&f, large)->address;
    must_free(&f, large);
    pool_trim(f.pool, 0, 0);
    assert_null(row_at(segment));
    assert_non_null(row_of(&f, small));
    assert_int_equal(row_count(), 1);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    assert_int_equal(row_count(), 0);
    f.device.alive[0] = true;
    fixture_end(&f);
}

static void memory_that_runs_out_shows_all_as_it_is_then(void **state) {
    (void)state;
    enum { BLOCKS = 3000 };
    static uint64_t blocks[BLOCKS];
    struct fixture f;
    begin_with(&f, 64 * MIB_BYTES, fixture_options());
    fill(&f, blocks, BLOCKS);
    struct pool *pool = newest_pool(&f);
    own_time(&f); /* no step by itself from now on */
    atomic_store(&f.pool->map_refresh_due, 0);
    uint64_t more[2] = {must_alloc(&f, 20 * MIB_BYTES), must_alloc(&f, 20 * MIB_BYTES)}, none = 0;
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &none), DEVICE_OUT_OF_MEMORY);
    assert_null(pool->map.segment);
    assert_map_is_of(&f);
    assert_int_equal(row_of(&f, blocks[0])->live_blocks, BLOCKS);
    /* Who asks on and on does not have it all the time. */
    const uint64_t before = row_of(&f, blocks[0])->sequence;
    atomic_store(&f.pool->map_refresh_due, UINT64_MAX);
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &none), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(row_of(&f, blocks[0])->sequence, before);
    empty(&f, more, 2);
    empty(&f, blocks, BLOCKS);
    fixture_end(&f);
}

/* ---- rows ---- */

static void the_largest_segments_have_rows_and_each_pool_some(void **state) {
    (void)state;
    enum { MANY = POOLCUDA_MAX_MAP_ROWS + 20, LARGE = 10 };
    static uint64_t blocks[MANY], large[LARGE];
    struct fixture f;
    begin_with(&f, UINT64_C(1) << 40, fixture_options());
    for (unsigned i = 0; i < MANY; i++) blocks[i] = must_alloc(&f, 32 * MIB_BYTES);
    refresh(&f);
    assert_int_equal(row_count(), POOLCUDA_MAX_MAP_ROWS);
    for (unsigned i = 0; i < LARGE; i++) large[i] = must_alloc(&f, 64 * MIB_BYTES);
    refresh(&f);
    assert_int_equal(row_count(), POOLCUDA_MAX_MAP_ROWS);
    for (unsigned i = 0; i < LARGE; i++) assert_non_null(row_of(&f, large[i]));
    const uint64_t small = must_alloc_on(&f, STREAM(1), 4096);
    refresh(&f);
    assert_non_null(row_of(&f, small));
    /* One that goes makes room for another. */
    const uint64_t gone = row_of(&f, large[0])->address;
    must_free(&f, large[0]);
    pool_trim(f.pool, 0, 0);
    assert_null(row_at(gone));
    assert_int_equal(row_count(), POOLCUDA_MAX_MAP_ROWS - 1);
    refresh(&f);
    assert_int_equal(row_count(), POOLCUDA_MAX_MAP_ROWS);
    for (unsigned i = 0; i < POOLCUDA_MAX_MAP_ROWS; i++) assert_row_whole(&rows()[i]);
    must_free_on(&f, STREAM(1), small);
    empty(&f, blocks, MANY);
    empty(&f, large + 1, LARGE - 1);
    fixture_end(&f);
}

/* ---- threads ---- */

struct worker {
    struct fixture *f;
    pthread_t thread;
    unsigned number;
};

static void *work(void *arg) {
    enum { HELD = 200, CALLS = 30000 };
    const struct worker *w = arg;
    const struct device_stream stream = STREAM(w->number);
    uint64_t held[HELD] = {0}, random = w->number;
    const bool async = w->number % 2;
    fake_set_current(FAKE_PRIMARY(0), 0);
    for (unsigned i = 0; i < CALLS; i++) {
        uint64_t *at = &held[random_next(&random) % HELD];
        const size_t size = random_next(&random) % 50 ? random_next(&random) % 4000 + 1 : MIB_BYTES;
        if (*at && async)
            must_free_on(w->f, stream, *at);
        else if (*at)
            must_free(w->f, *at);
        *at = *at ? 0 : async ? must_alloc_on(w->f, stream, size) : must_alloc(w->f, size);
    }
    for (unsigned i = 0; i < HELD; i++) {
        if (held[i] && async) must_free_on(w->f, stream, held[i]);
        if (held[i] && !async) must_free(w->f, held[i]);
    }
    return NULL;
}

/* A copy as readers make it; false when the row was being written. */
static bool copy_row(const struct poolcuda_map_row *row, struct poolcuda_map_row *copy) {
    const uint64_t before = __atomic_load_n(&row->sequence, __ATOMIC_ACQUIRE);
    for (size_t i = 0; i < sizeof *row / sizeof(uint64_t); i++)
        ((uint64_t *)(void *)copy)[i] = __atomic_load_n((const uint64_t *)(const void *)row + i, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return before % 2 == 0 && __atomic_load_n(&row->sequence, __ATOMIC_RELAXED) == before;
}

static void every_copy_of_a_row_adds_up_while_threads_work(void **state) {
    (void)state;
    enum { THREADS = 4 };
    struct worker workers[THREADS];
    struct fixture f;
    unsigned copies = 0;
    begin(&f);
    must_free(&f, must_alloc(&f, 512));
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.f = &f, .number = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned round = 0; round < 200; round++) {
        for (struct pool *pool = newest_pool(&f); pool; pool = pool->next) atomic_store(&pool->map.rests_until, 0);
        if (round % 2)
            refresh(&f);
        else
            map_beat(f.pool, figures_clock());
        for (unsigned i = 0; i < POOLCUDA_MAX_MAP_ROWS; i++) {
            struct poolcuda_map_row copy;
            if (!copy_row(&rows()[i], &copy) || !copy.pool) continue;
            assert_row_whole(&copy);
            copies++;
        }
        usleep(200);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    assert_true(copies > 200);
    refresh(&f);
    assert_map_is_of(&f);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(without_figures_there_is_no_map),
    cmocka_unit_test(a_row_shows_where_blocks_are),
    cmocka_unit_test(a_large_block_fills_its_cells),
    cmocka_unit_test(every_state_is_told_apart),
    cmocka_unit_test(what_is_kept_is_told_apart),
    cmocka_unit_test(fixed_sizes_have_rows_of_their_kind),
    cmocka_unit_test(what_was_preallocated_is_one_row),
    cmocka_unit_test(a_step_is_bounded_and_so_is_their_number),
    cmocka_unit_test(a_new_segment_is_soon_in_the_map),
    cmocka_unit_test(a_hit_does_nothing_but_one_in_64),
    cmocka_unit_test(idle_pools_have_their_turn),
    cmocka_unit_test(who_would_have_to_wait_comes_another_time),
    cmocka_unit_test(a_walk_goes_on_when_its_next_block_is_merged),
    cmocka_unit_test(a_walk_goes_back_to_what_was_split_off),
    cmocka_unit_test(a_walk_goes_on_beside_splits_and_merges),
    cmocka_unit_test(a_walk_goes_on_beside_parts),
    cmocka_unit_test(a_walk_goes_on_when_its_segment_is_gone),
    cmocka_unit_test(a_walk_begins_anew_when_its_part_is_gone),
    cmocka_unit_test(a_segment_that_goes_leaves_no_row),
    cmocka_unit_test(memory_that_runs_out_shows_all_as_it_is_then),
    cmocka_unit_test(the_largest_segments_have_rows_and_each_pool_some),
    cmocka_unit_test(every_copy_of_a_row_adds_up_while_threads_work),
};

TESTING_MAIN(tests)
