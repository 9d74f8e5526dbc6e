/* SPDX-License-Identifier: MIT
 *
 * The pool's behaviour, one rule a case: hits, splits and merges, answers to wrong frees, contexts and their resets,
 * captures, questions.
 */
#include "pool_fixture.h"

#include <unistd.h>

static const void *record(const struct poolcuda_header *header, const struct poolcuda_section *section,
                          uint32_t index) {
    return (const char *)header + section->offset + (size_t)index * section->stride;
}

static void a_freed_block_is_a_hit(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t first = must_alloc(&f, 3000);
    must_free(&f, first);
    uint64_t second = must_alloc(&f, 3000);
    assert_int_equal(first, second);
    assert_int_equal(f.device.allocs, 1);
    must_free(&f, second);
    fixture_end(&f);
}

static void blocks_are_rounded_and_aligned_to_512(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 1), b = must_alloc(&f, 513), c = must_alloc(&f, 512);
    assert_int_equal(a % 512, 0);
    assert_int_equal(b % 512, 0);
    assert_int_equal(c % 512, 0);
    struct pool_totals totals = totals_of(&f, 0);
    assert_int_equal(totals.live, 512 + 1024 + 512);
    assert_int_equal(totals.requested, 1 + 513 + 512);
    assert_int_equal(totals.reserved, 16 * MIB_BYTES);
    fixture_end(&f);
}

static void free_neighbours_merge_to_the_whole_segment(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t blocks[8];
    for (int i = 0; i < 8; i++) blocks[i] = must_alloc(&f, 2 * MIB_BYTES);
    static const int order[8] = {1, 5, 3, 7, 0, 2, 6, 4};
    for (int i = 0; i < 8; i++) {
        must_free(&f, blocks[order[i]]);
        assert_pool_whole(&f);
    }
    struct pool_totals totals = totals_of(&f, 0);
    assert_int_equal(totals.live, 0);
    assert_int_equal(totals.releasable, totals.reserved);
    assert_int_equal(totals.idle, totals.reserved);
    fixture_end(&f);
}

static void live_blocks_never_overlap_a_reused_neighbour(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096), b = must_alloc(&f, 4096), c = must_alloc(&f, 4096);
    must_free(&f, b);
    uint64_t d = must_alloc(&f, 8192); /* does not fit between a and c */
    assert_true(d + 8192 <= a || d >= a + 4096);
    assert_true(d + 8192 <= c || d >= c + 4096);
    uint64_t e = must_alloc(&f, 4096);
    assert_int_equal(e, b);
    fixture_end(&f);
}

static void every_free_waits_for_the_device(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    for (unsigned i = 1; i <= 10; i++) {
        must_free(&f, must_alloc(&f, 4096));
        assert_int_equal(f.device.synchronizes, i);
    }
    fixture_end(&f);
}

static void a_stream_ordered_free_waits_for_its_stream_only(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096);
    assert_int_equal(pool_free_async(f.pool, a, (struct device_stream){0}, POOL_DOOR_DRIVER), 0);
    assert_int_equal(f.device.synchronizes, 0);
    assert_int_equal(f.device.stream_synchronizes, 1);
    assert_int_equal(must_alloc(&f, 4096), a);
    fixture_end(&f);
}

static void wrong_frees_answer_1_and_harm_nobody(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t base = must_alloc(&f, 4096), neighbour = must_alloc(&f, 4096);
    must_free(&f, base);
    assert_int_equal(pool_free(f.pool, base, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE); /* at the segment's base */
    assert_int_equal(pool_free(f.pool, neighbour + 512, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free(f.pool, neighbour + 1, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free_async(f.pool, base, (struct device_stream){0}, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free(f.pool, base + 16 * MIB_BYTES - 512, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(f.device.releases, 0);
    struct poolcuda_event event = {0};
    const struct poolcuda_header *header = stats_header();
    memcpy(&event, record(header, &header->events, (header->event_next - 1) % header->events.count), sizeof event);
    assert_int_equal(event.type, POOLCUDA_EVENT_bad_free);
    assert_int_equal(event.address, base + 16 * MIB_BYTES - 512);
    assert_int_equal(event.requested_bytes, 0);
    struct pool_block_info info;
    assert_int_equal(pool_find(f.pool, neighbour, &info), 0);
    must_free(&f, neighbour);
    fixture_end(&f);
}

static void foreign_addresses_are_the_drivers(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096);
    assert_int_equal(pool_free(f.pool, 0, POOL_DOOR_DRIVER), POOL_PASS);
    assert_int_equal(pool_free(f.pool, a - 512, POOL_DOOR_DRIVER), POOL_PASS);
    assert_int_equal(pool_free(f.pool, a + 16 * MIB_BYTES, POOL_DOOR_DRIVER), POOL_PASS); /* one past the segment */
    struct pool_block_info info;
    assert_int_equal(pool_find(f.pool, a + 16 * MIB_BYTES, &info), POOL_PASS);
    fixture_end(&f);
}

static void zero_null_and_no_context_pass(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t address = 7, block = must_alloc(&f, 512);
    assert_int_equal(pool_alloc(f.pool, 0, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, NULL), POOL_PASS);
    fake_set_current(NULL, 0);
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(address, 7);
    assert_int_equal(pool_free(f.pool, block, POOL_DOOR_DRIVER), DEVICE_INVALID_CONTEXT);
    assert_int_equal(pool_free(f.pool, 0x1234, POOL_DOOR_DRIVER), POOL_PASS);
    fake_set_current(FAKE_CREATED, 0);
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    must_free(&f, block); /* from any current context */
    assert_int_equal(stats_header()->pass_through[POOLCUDA_PASS_created_context], 1);
    fixture_end(&f);
}

static void devices_have_their_own_pools(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t on_0 = must_alloc(&f, MIB_BYTES);
    fake_set_current(FAKE_PRIMARY(1), 1);
    uint64_t on_1 = must_alloc(&f, MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).live, MIB_BYTES);
    assert_int_equal(totals_of(&f, 1).live, MIB_BYTES);
    must_free(&f, on_0); /* with device 1 current: it goes back to device 0 */
    assert_int_equal(totals_of(&f, 0).live, 0);
    assert_int_equal(totals_of(&f, 1).live, MIB_BYTES);
    assert_int_not_equal(must_alloc(&f, MIB_BYTES), on_0);
    fake_set_current(FAKE_PRIMARY(0), 0);
    assert_int_equal(must_alloc(&f, MIB_BYTES), on_0);
    must_free(&f, on_1);
    fixture_end(&f);
}

static void a_failed_wait_retires_the_block(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096);
    f.device.synchronize_fails_with = 700;
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), 700);
    f.device.synchronize_fails_with = 0;
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    for (int i = 0; i < 64; i++) assert_int_not_equal(must_alloc(&f, 4096), a);
    assert_int_equal(totals_of(&f, 0).retired, 4096);
    fixture_end(&f);
}

static void a_refused_wait_leaves_the_block_live(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096);
    f.device.synchronize_fails_with = DEVICE_CAPTURE_UNSUPPORTED;
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), DEVICE_CAPTURE_UNSUPPORTED);
    f.device.synchronize_fails_with = 0;
    must_free(&f, a);
    fixture_end(&f);
}

static void a_reset_forgets_blocks_and_begins_anew(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t live = must_alloc(&f, 4096), cached = must_alloc(&f, 4096);
    must_free(&f, cached);
    pool_context_close(f.pool, 0, NULL);
    uint64_t address;
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    assert_int_equal(totals_of(&f, 0).reserved, 0);
    assert_int_equal(pool_free(f.pool, live, POOL_DOOR_DRIVER), POOL_PASS); /* nothing of ours any more */
    uint64_t fresh = must_alloc(&f, 4096);
    assert_int_not_equal(fresh, cached);
    assert_int_not_equal(fresh, live);
    assert_int_equal(f.device.allocs, 2);
    assert_int_equal(f.device.releases, 0); /* the reset freed the segment: freeing it again would be a fault */
    must_free(&f, fresh);
    fixture_end(&f);
}

static void a_reset_that_failed_keeps_everything(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t live = must_alloc(&f, 4096);
    pool_context_close(f.pool, 0, FAKE_PRIMARY(0));
    pool_context_settle(f.pool, 0, FAKE_PRIMARY(0));
    must_free(&f, live);
    assert_int_equal(must_alloc(&f, 4096), live);
    fixture_end(&f);
}

static void a_reset_of_one_device_leaves_the_other(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    fake_set_current(FAKE_PRIMARY(1), 1);
    uint64_t on_1 = must_alloc(&f, 4096);
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_alloc(&f, 4096);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, true);
    f.device.alive[0] = false;
    pool_context_settle(f.pool, 0, NULL);
    assert_int_equal(totals_of(&f, 1).live, 4096);
    must_free(&f, on_1);
    fixture_end(&f);
}

static void two_resets_at_once_reopen_after_the_second(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_alloc(&f, 4096);
    uint64_t address;
    pool_context_close(f.pool, 0, NULL);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    must_free(&f, must_alloc(&f, 4096));
    fixture_end(&f);
}

static void a_capture_passes_allocations_and_defers_frees(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096), b = must_alloc(&f, 4096), address;
    unsigned synchronizes = f.device.synchronizes;
    pool_capture_begin(f.pool);
    assert_int_equal(pool_alloc(f.pool, 4096, POOL_DOOR_DRIVER, &address), POOL_PASS);
    f.device.alloc_fails_with = DEVICE_CAPTURE_UNSUPPORTED; /* the driver refuses: so do we, and the block stays */
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), DEVICE_CAPTURE_UNSUPPORTED);
    f.device.alloc_fails_with = 0;
    must_free(&f, b);
    assert_int_equal(f.device.synchronizes, synchronizes);
    assert_int_equal(totals_of(&f, 0).waiting, 4096);
    assert_pool_whole(&f);
    pool_capture_end(f.pool);
    assert_int_equal(f.device.range_count, 1); /* what asked the driver has been given back */
    assert_int_not_equal(must_alloc(&f, 4096), b);
    must_free(&f, a);
    /* A miss waits for the device, and the block comes back. */
    must_alloc(&f, 15 * MIB_BYTES);
    must_alloc(&f, 15 * MIB_BYTES);
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    fixture_end(&f);
}

static void queries_know_the_block_and_its_requested_size(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 1000), b = must_alloc(&f, 70000);
    struct pool_block_info info, other;
    assert_int_equal(pool_find(f.pool, b + 69999, &info), 0);
    assert_int_equal(info.base, b);
    assert_int_equal(info.requested, 70000);
    assert_int_equal(info.offset_in_segment, b - a);
    assert_ptr_equal(info.context.handle, FAKE_PRIMARY(0));
    assert_int_equal(pool_find(f.pool, a + 999, &other), 0);
    assert_int_equal(other.offset_in_segment, 0);
    assert_int_not_equal(other.id, info.id);
    assert_int_equal(pool_find(f.pool, a + 1000, &info), DEVICE_NOT_FOUND); /* past the request, inside the block */
    must_free(&f, b);
    assert_int_equal(pool_find(f.pool, b, &info), DEVICE_NOT_FOUND);
    uint64_t again = must_alloc(&f, 70000);
    assert_int_equal(pool_find(f.pool, again, &info), 0);
    assert_int_not_equal(info.id, other.id);
    fixture_end(&f);
}

static void figures_follow_the_pool(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 1000);
    uint64_t b = 0;
    assert_int_equal(pool_alloc(f.pool, 3 * MIB_BYTES, POOL_DOOR_RUNTIME, &b), 0);
    must_free(&f, a);
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), 1);
    const struct poolcuda_pool *pool = NULL;
    const struct poolcuda_cell *cell = NULL;
    const struct poolcuda_header *header = stats_header();
    for (uint32_t i = 0; i < header->pools.count && !pool; i++) {
        const struct poolcuda_pool *each = record(header, &header->pools, i);
        if (each->state != POOLCUDA_POOL_OPEN) continue;
        pool = each;
        for (uint32_t k = 0; k < header->cells.count && !cell; k++) {
            const struct poolcuda_cell *one = record(header, &header->cells, k);
            if (one->pool == i + 1) cell = one;
        }
    }
    assert_non_null(pool);
    assert_non_null(cell);
    assert_int_equal(cell->allocs, 2);
    assert_int_equal(cell->hits, 1);
    assert_int_equal(cell->misses, 1);
    assert_int_equal(cell->frees, 1);
    assert_int_equal(cell->bad_frees, 1);
    assert_int_equal(cell->runtime_door, 1);
    assert_int_equal(cell->alloc_requested_bytes, 1000 + 3 * MIB_BYTES);
    assert_int_equal(cell->freed_live_bytes, 1024);
    assert_int_equal(pool->peak_live_bytes, 1024 + 3 * MIB_BYTES);
    assert_int_equal(pool->reserved_bytes, 16 * MIB_BYTES);
    assert_int_equal(pool->segment_allocs, 1);
    assert_int_equal(pool->classes[1].allocs, 1); /* 1,000 bytes, rounded to 1,024 */
    assert_int_equal(pool->waits, 1);
    fixture_end(&f);
}

static void wait_a_little(void *arg) {
    (void)arg;
    usleep(200);
}

static const struct poolcuda_pool *open_pool(void) {
    const struct poolcuda_header *header = stats_header();
    for (uint32_t i = 0; i < header->pools.count; i++) {
        const struct poolcuda_pool *pool = record(header, &header->pools, i);
        if (pool->state == POOLCUDA_POOL_OPEN) return pool;
    }
    return NULL;
}

static void waits_and_hits_are_timed_by_samples(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 4096));
    const struct poolcuda_pool *pool = open_pool();
    assert_non_null(pool);
    uint64_t before = pool->driver_ns, heartbeat = stats_header()->heartbeat_ns, hits = 0;
    f.device.during_synchronize = wait_a_little;
    for (int i = 0; i < 128; i++) must_free(&f, must_alloc(&f, 4096));
    f.device.during_synchronize = NULL;
    uint64_t waited = pool->driver_ns - before;
    assert_in_range(waited, 128 * 200000 / 2, 128 * UINT64_C(200000) * 100);
    for (unsigned i = 0; i < POOLCUDA_LATENCY_BUCKETS; i++) hits += pool->hit_ns[i];
    assert_in_range(hits, 2, 3);
    assert_true(stats_header()->heartbeat_ns > heartbeat);
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(waits_and_hits_are_timed_by_samples),
    cmocka_unit_test(a_freed_block_is_a_hit),
    cmocka_unit_test(blocks_are_rounded_and_aligned_to_512),
    cmocka_unit_test(free_neighbours_merge_to_the_whole_segment),
    cmocka_unit_test(live_blocks_never_overlap_a_reused_neighbour),
    cmocka_unit_test(every_free_waits_for_the_device),
    cmocka_unit_test(a_stream_ordered_free_waits_for_its_stream_only),
    cmocka_unit_test(wrong_frees_answer_1_and_harm_nobody),
    cmocka_unit_test(foreign_addresses_are_the_drivers),
    cmocka_unit_test(zero_null_and_no_context_pass),
    cmocka_unit_test(devices_have_their_own_pools),
    cmocka_unit_test(a_failed_wait_retires_the_block),
    cmocka_unit_test(a_refused_wait_leaves_the_block_live),
    cmocka_unit_test(a_reset_forgets_blocks_and_begins_anew),
    cmocka_unit_test(a_reset_that_failed_keeps_everything),
    cmocka_unit_test(a_reset_of_one_device_leaves_the_other),
    cmocka_unit_test(two_resets_at_once_reopen_after_the_second),
    cmocka_unit_test(a_capture_passes_allocations_and_defers_frees),
    cmocka_unit_test(queries_know_the_block_and_its_requested_size),
    cmocka_unit_test(figures_follow_the_pool),
};
TESTING_MAIN(tests)
