/* SPDX-License-Identifier: MIT
 *
 * The records of the figures: pools, cells, header counters and the ring of events, in the segment and without one.
 * Every case is a process of its own, since a process starts its figures once.
 */
#include "support/testing.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "child.h"
#include "config/config.h"
#include "config/log.h"
#include "stats/segment.h"
#include "stats/writer.h"

/* Start with a segment, which is gone again when the child ends. Without one the case cannot tell anything. */
static void start_published(void) {
    stats_start(true);
    if (stats_header()->state != POOLCUDA_RUNNING) CHILD_SKIP("no segment can be made in /dev/shm");
    atexit(stats_finish);
}

static struct segment_storage *published(void) {
    return (struct segment_storage *)(void *)stats_header();
}

static bool in_segment(const void *record) {
    const char *start = (const char *)published();
    return (const char *)record >= start && (const char *)record < start + sizeof(struct segment_storage);
}

static struct poolcuda_event event_of(uint64_t n) {
    return (struct poolcuda_event){.type = POOLCUDA_EVENT_growth,
                                   .device = (int32_t)(n % 7),
                                   .pool = (uint32_t)(n % 5),
                                   .reason = (uint32_t)(n % 3),
                                   .requested_bytes = n,
                                   .live_bytes = n + 1,
                                   .cached_bytes = n + 2,
                                   .largest_free_bytes = n + 3,
                                   .device_free_bytes = n + 4,
                                   .fragmentation_ppm = (uint32_t)(n % 1000000)};
}

/* ---- without and before a segment ---- */

static int figures_without_segment(void *arg) {
    (void)arg;
    CHECK(stats_header() != NULL, "no header\n");
    stats_pass(POOLCUDA_PASS_foreign);
    stats_start(false);
    stats_pass(POOLCUDA_PASS_foreign);
    CHECK_EQUAL(stats_header()->pass_through[POOLCUDA_PASS_foreign], 2);
    struct poolcuda_pool *pool = stats_pool_open();
    struct poolcuda_cell *cell = stats_cell_open(pool, 9, 4);
    stats_pool_publish(pool);
    CHECK_EQUAL(stats_pool_number(pool), 0);
    CHECK_EQUAL(pool->state, POOLCUDA_POOL_OPEN);
    CHECK_EQUAL(cell->stream, 9);
    CHECK_EQUAL(cell->thread, 4);
    const struct poolcuda_event event = event_of(3);
    stats_event(&event);
    CHECK_EQUAL(stats_header()->event_next, 1);
    CHECK_EQUAL(stats_header()->state, POOLCUDA_STARTING);
    stats_finish();
    return 0;
}

static void without_a_segment_the_figures_are_kept_privately(void **state) {
    (void)state;
    child_run(figures_without_segment, NULL);
}

static int take_over(void *arg) {
    (void)arg;
    struct poolcuda_pool *before = stats_pool_open();
    stats_pool_publish(before);
    stats_pass(POOLCUDA_PASS_capture);
    stats_pass(POOLCUDA_PASS_no_driver);
    __atomic_fetch_add(&stats_header()->symbols_hooked, 5, __ATOMIC_RELAXED);
    __atomic_fetch_add(&stats_header()->proc_address_lookups, 6, __ATOMIC_RELAXED);
    stats_header()->driver_version = 13000;
    stats_header()->runtime_only = 1;
    stats_header()->in_driver_since_ns = 8;
    const struct poolcuda_event event = event_of(77);
    stats_event(&event);
    struct poolcuda_header *private = stats_header();
    start_published();
    struct poolcuda_header *header = stats_header();
    CHECK(header != private, "still private\n");
    stats_pass(POOLCUDA_PASS_capture);
    CHECK_EQUAL(header->pass_through[POOLCUDA_PASS_capture], 2);
    CHECK_EQUAL(header->pass_through[POOLCUDA_PASS_no_driver], 1);
    CHECK_EQUAL(header->symbols_hooked, 5);
    CHECK_EQUAL(header->proc_address_lookups, 6);
    CHECK_EQUAL(header->driver_version, 13000);
    CHECK_EQUAL(header->runtime_only, 1);
    CHECK_EQUAL(header->in_driver_since_ns, 8);
    CHECK_EQUAL(header->event_next, 1);
    CHECK_EQUAL(published()->events[0].requested_bytes, 77);
    CHECK_EQUAL(published()->events[0].sequence, 1);
    CHECK_EQUAL(stats_pool_number(before), 0);
    CHECK(!in_segment(before), "a pool moved\n");
    CHECK(!in_segment(stats_cell_open(before, 0, 0)), "a private pool's cell is published\n");
    CHECK_EQUAL(stats_pool_number(stats_pool_open()), 1);
    exit(0);
}

static void what_was_counted_before_the_segment_is_in_it(void **state) {
    (void)state;
    child_run(take_over, NULL);
}

/* ---- header counters ---- */

static int count_unknown_reason(void *arg) {
    (void)arg;
    stats_pass(POOLCUDA_PASS_COUNT);
    stats_pass((enum poolcuda_pass_reason)4000);
    for (int i = 0; i < 32; i++) CHECK_EQUAL(stats_header()->pass_through[i], 0);
    CHECK_EQUAL(stats_header()->proc_address_lookups, 0);
    return 0;
}

static void an_unknown_reason_counts_nothing(void **state) {
    (void)state;
    child_run(count_unknown_reason, NULL);
}

/* ---- pools ---- */

static int open_many_pools(void *arg) {
    (void)arg;
    enum { MANY = POOLCUDA_MAX_POOLS * 2 + 3 };
    struct poolcuda_pool *pools[MANY];
    start_published();
    for (unsigned i = 0; i < MANY; i++) {
        pools[i] = stats_pool_open();
        CHECK(pools[i] != NULL, "pool %u\n", i);
        CHECK_EQUAL(pools[i]->state, POOLCUDA_POOL_UNUSED);
        pools[i]->context = i;
        stats_pool_publish(pools[i]);
        CHECK_EQUAL(stats_pool_number(pools[i]), i < POOLCUDA_MAX_POOLS ? i + 1 : 0);
        CHECK_EQUAL(in_segment(pools[i]), i < POOLCUDA_MAX_POOLS);
    }
    for (unsigned i = 0; i < MANY; i++) CHECK_EQUAL(pools[i]->context, i);
    exit(0);
}

static void pools_that_find_no_room_are_private_and_apart(void **state) {
    (void)state;
    child_run(open_many_pools, NULL);
}

static int reuse_gone_pool(void *arg) {
    (void)arg;
    struct poolcuda_pool *pools[POOLCUDA_MAX_POOLS];
    start_published();
    for (unsigned i = 0; i < POOLCUDA_MAX_POOLS; i++) {
        pools[i] = stats_pool_open();
        stats_pool_publish(pools[i]);
    }
    struct poolcuda_cell *cell = stats_cell_open(pools[7], 5, 0), *other = stats_cell_open(pools[3], 6, 0);
    stats_write_begin(pools[7]);
    CHECK_EQUAL(pools[7]->sequence & 1, 1);
    stats_set(&pools[7]->reserved_bytes, 123);
    stats_add(&cell->classes[3].allocs, 4);
    stats_write_end(pools[7]);
    const uint64_t sequence = pools[7]->sequence;
    CHECK_EQUAL(sequence & 1, 0);
    stats_pool_gone(pools[7]);
    stats_pool_gone(pools[3]);
    CHECK_EQUAL(pools[7]->state, POOLCUDA_POOL_GONE);
    CHECK_EQUAL(pools[7]->reserved_bytes, 123); /* a reader still finds its last figures */
    CHECK_EQUAL(cell->pool, 8);
    CHECK_EQUAL(cell->classes[3].allocs, 4);

    CHECK(stats_pool_open() == pools[7], "not the one that has been gone longest\n");
    CHECK_EQUAL(pools[7]->state, POOLCUDA_POOL_UNUSED);
    CHECK_EQUAL(pools[7]->reserved_bytes, 0);
    CHECK_EQUAL(cell->pool, 0);
    CHECK_EQUAL(other->pool, 4);
    CHECK_EQUAL(pools[7]->sequence & 1, 0);
    CHECK(pools[7]->sequence > sequence, "the sequence went back: a reader would take two pools for one\n");
    CHECK(stats_pool_open() == pools[3], "not the other that is gone\n");
    CHECK_EQUAL(other->pool, 0);
    CHECK_EQUAL(stats_pool_number(stats_pool_open()), 0);
    exit(0);
}

static void the_record_that_has_been_gone_longest_is_reused_with_its_cells(void **state) {
    (void)state;
    child_run(reuse_gone_pool, NULL);
}

static int unused_before_gone(void *arg) {
    (void)arg;
    start_published();
    struct poolcuda_pool *first = stats_pool_open();
    stats_pool_publish(first);
    stats_pool_gone(first);
    CHECK(stats_pool_open() != first, "a gone record was taken while unused ones are left\n");
    CHECK_EQUAL(first->state, POOLCUDA_POOL_GONE);
    exit(0);
}

static void an_unused_record_is_taken_before_one_that_is_gone(void **state) {
    (void)state;
    child_run(unused_before_gone, NULL);
}

/* ---- cells ---- */

static int open_many_cells(void *arg) {
    (void)arg;
    enum { MANY = POOLCUDA_MAX_CELLS * 3 };
    struct poolcuda_cell *cells[MANY];
    start_published();
    stats_pool_publish(stats_pool_open());
    struct poolcuda_pool *pool = stats_pool_open();
    for (unsigned i = 0; i < MANY; i++) {
        cells[i] = stats_cell_open(pool, i, i % 3);
        CHECK_EQUAL(in_segment(cells[i]), i < POOLCUDA_MAX_CELLS);
        CHECK_EQUAL(stats_header()->cells.end, i < POOLCUDA_MAX_CELLS ? i + 1 : POOLCUDA_MAX_CELLS);
        CHECK_EQUAL(cells[i]->pool, 2);
        CHECK_EQUAL(cells[i]->stream, i);
        CHECK_EQUAL(cells[i]->thread, i % 3);
        CHECK_EQUAL(cells[i]->classes[3].allocs, 0);
        stats_set(&cells[i]->classes[3].allocs, i);
    }
    for (unsigned i = 0; i < MANY; i++) CHECK_EQUAL(cells[i]->classes[3].allocs, i);
    exit(0);
}

static void cells_that_find_no_room_are_private_and_apart(void **state) {
    (void)state;
    child_run(open_many_cells, NULL);
}

static int open_further_cells(void *arg) {
    (void)arg;
    start_published();
    struct poolcuda_pool *pool = stats_pool_open(), *gone = stats_pool_open();
    stats_cell_open(pool, 0, 0);
    stats_cell_open(gone, 0, 0);
    unsigned further = 0, of_streams = 0;
    struct poolcuda_cell *cell;
    while ((cell = stats_cell_more(pool, of_streams + 1, 0)) != NULL) CHECK_EQUAL(cell->stream, ++of_streams);
    CHECK(of_streams >= 100, "only %u streams have a cell\n", of_streams);
    while ((cell = stats_cell_more(pool, 0, further + 1)) != NULL) {
        CHECK(in_segment(cell), "a further cell is private\n");
        CHECK_EQUAL(cell->pool, 1);
        CHECK_EQUAL(cell->stream, 0);
        CHECK_EQUAL(cell->thread, ++further);
    }
    CHECK_EQUAL(of_streams + further, POOLCUDA_MAX_CELLS - POOLCUDA_MAX_POOLS - 2);
    CHECK(further >= 2 * 8, "only %u are left for threads without streams\n", further);
    stats_pool_publish(gone);
    stats_pool_gone(gone);
    CHECK(stats_cell_more(pool, 7, 0) == NULL, "a stream takes what is left for threads\n");
    CHECK(stats_cell_more(pool, 0, 7) != NULL, "the gone pool's cell makes no room\n");
    CHECK(stats_cell_more(pool, 0, 8) == NULL, "more than there may be\n");
    for (unsigned i = 2; i <= POOLCUDA_MAX_POOLS; i++)
        CHECK(in_segment(stats_cell_open(stats_pool_open(), 0, 0)), "the first cell of pool %u is lost\n", i);
    exit(0);
}

static void further_cells_leave_one_for_every_pool_to_come(void **state) {
    (void)state;
    child_run(open_further_cells, NULL);
}

static int cells_of_gone_pool(void *arg) {
    (void)arg;
    start_published();
    struct poolcuda_pool *gone = stats_pool_open(), *live = stats_pool_open();
    struct poolcuda_cell *of_live = stats_cell_open(live, 1, 0);
    stats_set(&of_live->classes[3].allocs, 11);
    for (unsigned i = 0; i < POOLCUDA_MAX_CELLS - 1; i++) {
        struct poolcuda_cell *cell = stats_cell_open(gone, i, 0);
        stats_set(&cell->classes[3].frees, 12);
        stats_set(&cell->sequence, 3);
    }
    stats_pool_publish(gone);
    stats_pool_publish(live);
    CHECK(!in_segment(stats_cell_open(live, 2, 0)), "more cells than there are\n");
    stats_pool_gone(gone);
    struct poolcuda_cell *cell = stats_cell_open(live, 3, 0);
    CHECK(in_segment(cell), "the gone pool's cells were not reused\n");
    CHECK_EQUAL(cell->classes[3].frees, 0);
    CHECK_EQUAL(cell->sequence, 0);
    CHECK_EQUAL(cell->pool, 2);
    CHECK_EQUAL(of_live->classes[3].allocs, 11);
    CHECK_EQUAL(gone->state, POOLCUDA_POOL_UNUSED);
    exit(0);
}

static void cells_of_a_gone_pool_make_room_for_others(void **state) {
    (void)state;
    child_run(cells_of_gone_pool, NULL);
}

static int exhaust_private_memory(void *arg) {
    (void)arg;
    struct poolcuda_pool *pool = NULL, *before;
    int pools = 0;
    do {
        before = pool;
        pool = stats_pool_open();
        CHECK(pool != NULL, "pool %d\n", pools);
        pools++;
    } while (pool != before && pools < 100000);
    CHECK(pool == before, "private memory without bound\n");
    CHECK(pools > 500, "only %d\n", pools);
    CHECK_EQUAL(stats_pool_number(pool), 0);
    struct poolcuda_cell *cell = stats_cell_open(pool, 1, 0);
    CHECK(cell != NULL, "no cell\n");
    stats_write_begin(pool);
    stats_add(&cell->classes[3].allocs, 1);
    stats_write_end(pool);
    stats_pool_publish(pool);
    stats_pool_gone(pool);
    return 0;
}

static void when_private_memory_has_run_out_there_is_still_a_record(void **state) {
    (void)state;
    child_run(exhaust_private_memory, NULL);
}

/* ---- the ring ---- */

static int wrap_ring(void *arg) {
    (void)arg;
    enum { EVENTS = POOLCUDA_MAX_EVENTS * 3 + 17 };
    start_published();
    for (uint64_t n = 0; n < EVENTS; n++) {
        const struct poolcuda_event event = event_of(n);
        stats_event(&event);
    }
    CHECK_EQUAL(stats_header()->event_next, EVENTS);
    uint64_t time = stats_header()->created_ns;
    for (uint64_t n = EVENTS - POOLCUDA_MAX_EVENTS; n < EVENTS; n++) {
        const struct poolcuda_event *record = &published()->events[n % POOLCUDA_MAX_EVENTS];
        struct poolcuda_event expected = event_of(n);
        expected.sequence = n + 1;
        CHECK(record->time_ns >= time, "time went back\n");
        time = expected.time_ns = record->time_ns;
        CHECK(memcmp(record, &expected, sizeof expected) == 0, "event %llu differs\n", (unsigned long long)n);
    }
    exit(0);
}

static void the_ring_holds_the_last_events_in_order(void **state) {
    (void)state;
    child_run(wrap_ring, NULL);
}

enum { WRITERS = 6 };

static bool ring_done;

/* Returns how many it wrote. */
static void *write_events(void *arg) {
    uintptr_t written = 0;
    for (; !__atomic_load_n(&ring_done, __ATOMIC_RELAXED); written++) {
        const struct poolcuda_event event = event_of((uint64_t)(uintptr_t)arg << 32 | written);
        stats_event(&event);
    }
    return (void *)written;
}

/* Copy a record as a reader does; false when it was being written. */
static bool read_event(const struct poolcuda_event *record, struct poolcuda_event *copy) {
    const uint64_t sequence = __atomic_load_n(&record->sequence, __ATOMIC_ACQUIRE);
    const uint64_t *words = (const uint64_t *)(const void *)record;
    uint64_t *to = (uint64_t *)(void *)copy;
    for (size_t i = 1; i < sizeof *record / sizeof *words; i++) to[i] = stats_get(&words[i]);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    copy->sequence = stats_get(&record->sequence);
    return sequence != 0 && copy->sequence == sequence;
}

static void check_event(const struct poolcuda_event *copy, unsigned slot) {
    struct poolcuda_event expected = event_of(copy->requested_bytes);
    expected.sequence = copy->sequence;
    expected.time_ns = copy->time_ns;
    CHECK(memcmp(copy, &expected, sizeof expected) == 0, "a torn event in record %u\n", slot);
    CHECK_EQUAL((copy->sequence - 1) % POOLCUDA_MAX_EVENTS, slot);
}

/* Returns how many whole records it saw. */
static void *read_events(void *arg) {
    (void)arg;
    uintptr_t whole = 0;
    uint64_t newest[POOLCUDA_MAX_EVENTS] = {0};
    while (!__atomic_load_n(&ring_done, __ATOMIC_RELAXED)) {
        for (unsigned slot = 0; slot < POOLCUDA_MAX_EVENTS; slot++) {
            struct poolcuda_event copy;
            if (!read_event(&published()->events[slot], &copy)) continue;
            check_event(&copy, slot);
            CHECK(copy.sequence >= newest[slot], "record %u went back to an older event\n", slot);
            newest[slot] = copy.sequence;
            whole++;
        }
    }
    return (void *)whole;
}

/* Long enough for writers to be stopped in the middle of a record and overtaken by a whole turn of the ring. */
static int wrap_ring_in_threads(void *arg) {
    (void)arg;
    pthread_t writers[WRITERS], reader;
    uint64_t total = 0;
    void *count;
    start_published();
    pthread_create(&reader, NULL, read_events, NULL);
    for (uintptr_t i = 0; i < WRITERS; i++) pthread_create(&writers[i], NULL, write_events, (void *)i);
    usleep(500000);
    __atomic_store_n(&ring_done, true, __ATOMIC_RELAXED);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i], &count);
        total += (uintptr_t)count;
    }
    pthread_join(reader, &count);
    CHECK((uintptr_t)count > 0, "the reader saw nothing\n");
    CHECK(total > POOLCUDA_MAX_EVENTS, "only %llu events\n", (unsigned long long)total);
    CHECK_EQUAL(stats_header()->event_next, total);
    for (unsigned slot = 0; slot < POOLCUDA_MAX_EVENTS; slot++) {
        struct poolcuda_event copy;
        CHECK(read_event(&published()->events[slot], &copy), "record %u was left half written\n", slot);
        check_event(&copy, slot);
    }
    const struct poolcuda_event event = event_of(5); /* the ring goes on where it was */
    stats_event(&event);
    CHECK_EQUAL(published()->events[total % POOLCUDA_MAX_EVENTS].sequence, total + 1);
    exit(0);
}

static void threads_that_overtake_each_other_leave_whole_events(void **state) {
    (void)state;
    child_run(wrap_ring_in_threads, NULL);
}

/* ---- threads ---- */

static void *open_and_close_pools(void *arg) {
    for (int i = 0; i < 300; i++) {
        struct poolcuda_pool *pool = stats_pool_open();
        struct poolcuda_cell *cell = stats_cell_open(pool, 1, 0);
        stats_pool_publish(pool);
        for (int n = 0; n < 10; n++) {
            stats_write_begin(pool);
            stats_add(&pool->waits, 1);
            stats_add(&cell->classes[3].allocs, 1);
            stats_write_end(pool);
            stats_pass(POOLCUDA_PASS_capture);
        }
        if (stats_get(&pool->waits) != 10 || stats_get(&cell->classes[3].allocs) != 10) *(bool *)arg = true;
        stats_pool_gone(pool);
    }
    return NULL;
}

static int open_pools_in_threads(void *arg) {
    (void)arg;
    pthread_t threads[WRITERS];
    bool shared[WRITERS] = {false};
    start_published();
    for (int i = 0; i < WRITERS; i++) pthread_create(&threads[i], NULL, open_and_close_pools, &shared[i]);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(!shared[i], "two pools shared a record\n");
    }
    CHECK_EQUAL(stats_header()->pass_through[POOLCUDA_PASS_capture], WRITERS * 300 * 10);
    exit(0);
}

static void pools_of_many_threads_share_no_record(void **state) {
    (void)state;
    child_run(open_pools_in_threads, NULL);
}

/* ---- manners ---- */

static int keep_errno_and_heap(void *arg) {
    (void)arg;
    setenv("POOL_LOG", "3", 1);
    setenv("POOL_LOG_FILE", "/dev/null", 1);
    setenv("POOL_ENABLE", "perhaps", 1);
    const size_t heap = mallinfo2().uordblks;
    errno = 4321;
    config_get();
    start_published();
    struct poolcuda_pool *pool = NULL;
    for (unsigned i = 0; i < POOLCUDA_MAX_POOLS * 3; i++) pool = stats_pool_open();
    stats_cell_open(pool, 1, 0);
    stats_pool_publish(pool);
    stats_pool_gone(pool);
    const struct poolcuda_event event = event_of(1);
    stats_event(&event);
    stats_pass(POOLCUDA_PASS_async);
    log_line(LOG_EVENT, "an event of %d bytes", 5);
    stats_finish();
    stats_forget_in_child(false);
    CHECK_EQUAL(errno, 4321);
    CHECK_EQUAL(mallinfo2().uordblks, heap);
    return 0;
}

static void errno_and_the_heap_stay_as_they_were(void **state) {
    (void)state;
    child_run(keep_errno_and_heap, NULL);
}

/* ---- classes and buckets ---- */

static void a_size_class_ends_at_its_power_of_two(void **state) {
    (void)state;
    assert_int_equal(stats_size_class(0), 0);
    assert_int_equal(stats_size_class(1), 0);
    assert_int_equal(stats_size_class(512), 0);
    assert_int_equal(stats_size_class(513), 1);
    for (unsigned k = 1; k < POOLCUDA_SIZE_CLASSES; k++) {
        assert_int_equal(stats_size_class(((uint64_t)256 << k) + 1), k);
        assert_int_equal(stats_size_class((uint64_t)512 << k), k);
    }
    assert_int_equal(stats_size_class(UINT64_MAX), POOLCUDA_SIZE_CLASSES - 1);
}

static void a_latency_bucket_begins_at_its_power_of_two(void **state) {
    (void)state;
    assert_int_equal(stats_latency_bucket(0), 0);
    for (unsigned k = 0; k < POOLCUDA_LATENCY_BUCKETS; k++) {
        assert_int_equal(stats_latency_bucket((uint64_t)1 << k), k);
        assert_int_equal(stats_latency_bucket(((uint64_t)2 << k) - 1), k);
    }
    assert_int_equal(stats_latency_bucket(UINT64_MAX), POOLCUDA_LATENCY_BUCKETS - 1);
}

/* ---- fixed-size pools ---- */

static int open_many_fixed(void *arg) {
    (void)arg;
    enum { EACH = 16, POOLS = POOLCUDA_MAX_FIXED / EACH };
    struct poolcuda_fixed *first[POOLS];
    struct poolcuda_pool *pools[POOLS + 1];
    start_published();
    for (unsigned i = 0; i < POOLS; i++) {
        pools[i] = stats_pool_open();
        stats_pool_publish(pools[i]);
        for (unsigned k = 0; k < EACH; k++) {
            struct poolcuda_fixed *fixed = stats_fixed_open(pools[i]);
            if (k == 0) first[i] = fixed;
            CHECK(in_segment(fixed), "record %u of pool %u is not published\n", k, i);
            CHECK_EQUAL(fixed->pool, stats_pool_number(pools[i]));
            CHECK_EQUAL(fixed->blocks, 0);
            fixed->blocks = 7;
        }
    }
    pools[POOLS] = stats_pool_open();
    CHECK(!in_segment(stats_fixed_open(pools[POOLS])), "a record of another pool's was given away\n");
    CHECK_EQUAL(first[1]->pool, stats_pool_number(pools[1]));
    stats_pool_gone(pools[1]); /* makes room for those to come */
    struct poolcuda_fixed *fixed = stats_fixed_open(pools[POOLS]);
    CHECK(fixed == first[1], "a record that is free was not taken\n");
    CHECK_EQUAL(fixed->pool, stats_pool_number(pools[POOLS]));
    CHECK_EQUAL(fixed->blocks, 0);
    CHECK_EQUAL(first[1][1].pool, 0);
    CHECK_EQUAL(first[2]->blocks, 7);
    exit(0);
}

static void records_of_fixed_sizes_go_with_their_pool(void **state) {
    (void)state;
    child_run(open_many_fixed, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(without_a_segment_the_figures_are_kept_privately),
    cmocka_unit_test(what_was_counted_before_the_segment_is_in_it),
    cmocka_unit_test(an_unknown_reason_counts_nothing),
    cmocka_unit_test(pools_that_find_no_room_are_private_and_apart),
    cmocka_unit_test(the_record_that_has_been_gone_longest_is_reused_with_its_cells),
    cmocka_unit_test(an_unused_record_is_taken_before_one_that_is_gone),
    cmocka_unit_test(cells_that_find_no_room_are_private_and_apart),
    cmocka_unit_test(further_cells_leave_one_for_every_pool_to_come),
    cmocka_unit_test(cells_of_a_gone_pool_make_room_for_others),
    cmocka_unit_test(when_private_memory_has_run_out_there_is_still_a_record),
    cmocka_unit_test(the_ring_holds_the_last_events_in_order),
    cmocka_unit_test(threads_that_overtake_each_other_leave_whole_events),
    cmocka_unit_test(pools_of_many_threads_share_no_record),
    cmocka_unit_test(errno_and_the_heap_stay_as_they_were),
    cmocka_unit_test(a_size_class_ends_at_its_power_of_two),
    cmocka_unit_test(a_latency_bucket_begins_at_its_power_of_two),
    cmocka_unit_test(records_of_fixed_sizes_go_with_their_pool),
};

TESTING_MAIN(tests)
