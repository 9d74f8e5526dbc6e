/* SPDX-License-Identifier: MIT
 *
 * Host memory runs out, at each place where the pool takes some: the call goes to the driver, nothing is lost, and the
 * pool works on when there is memory again; errno is kept. The pool's calls of malloc and mmap come here (see
 * meson.build).
 */
#include "pool_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* The next calls that succeed before `failing` ones fail. */
static struct shortage { unsigned succeed, failing; } heap, pages;

static bool fails(struct shortage *shortage) {
    if (!shortage->failing) return false;
    if (shortage->succeed) {
        shortage->succeed--;
        return false;
    }
    shortage->failing--;
    errno = ENOMEM;
    return true;
}

#define FOR_GOOD UINT32_MAX

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) {
    return fails(&heap) ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
    return fails(&heap) ? NULL : __real_calloc(count, size);
}

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size) {
    return fails(&heap) ? NULL : __real_realloc(memory, size);
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails(&heap) ? NULL : __real_aligned_alloc(alignment, size);
}

#define WRAP_MMAP(name)                                                                             \
    void *__real_##name(void *at, size_t size, int protection, int flags, int fd, off_t offset);    \
    void *__wrap_##name(void *at, size_t size, int protection, int flags, int fd, off_t offset);    \
    void *__wrap_##name(void *at, size_t size, int protection, int flags, int fd, off_t offset) {   \
        return fails(&pages) ? MAP_FAILED : __real_##name(at, size, protection, flags, fd, offset); \
    }
WRAP_MMAP(mmap)
WRAP_MMAP(mmap64)

static bool pages_are_locked; /* as by mlockall */

int __real_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice) {
    if (!pages_are_locked) return __real_madvise(at, size, advice);
    errno = EINVAL;
    return -1;
}

/* A pool whose limit is one segment, so that a promise that is not taken back is noticed. */
static void begin(struct fixture *f) {
    struct pool_options options = fixture_options();
    options.limit_bytes = 16 * MIB_BYTES;
    fixture_begin(f, 1024 * MIB_BYTES, options);
}

static void must_pass(struct fixture *f) {
    uint64_t address = 7, passes = stats_header()->pass_through[POOLCUDA_PASS_no_host_memory];
    errno = 77;
    assert_int_equal(pool_alloc(f->pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(errno, 77);
    assert_int_equal(address, 7);
    assert_int_equal(stats_header()->pass_through[POOLCUDA_PASS_no_host_memory], passes + 1);
}

static void a_context_without_host_memory_is_pooled_later(void **state) {
    (void)state;
    for (unsigned succeed = 0; succeed < 3; succeed++) { /* the device's, the pool's, its first front's */
        struct fixture f;
        fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
        heap = (struct shortage){succeed, 1};
        must_pass(&f);
        assert_int_equal(heap.failing, 0);
        must_free(&f, must_alloc(&f, 512));
        fixture_end(&f);
    }
}

static void a_thread_without_a_front_is_served_all_the_same(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    heap = (struct shortage){3, 1};
    must_free(&f, must_alloc(&f, 512));
    assert_int_equal(heap.failing, 0);
    assert_pool_whole(&f);
    assert_int_equal(totals_of(&f, 0).idle, 16 * MIB_BYTES);
    fixture_end(&f);
}

static void a_segment_without_records_goes_back(void **state) {
    (void)state;
    for (unsigned succeed = 0; succeed < 2; succeed++) { /* the segment's record, the block's */
        struct fixture f;
        begin(&f);
        pages = (struct shortage){succeed, 1};
        must_pass(&f);
        assert_int_equal(pages.failing, 0);
        assert_int_equal(f.device.range_count, 0);
        assert_pool_whole(&f);
        must_alloc(&f, 16 * MIB_BYTES);
        fixture_end(&f);
    }
}

static void a_segment_that_cannot_be_registered_goes_back(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.range_room = 64; /* the fake device's own */
    f.device.ranges = __real_malloc(f.device.range_room * sizeof *f.device.ranges);
    heap = (struct shortage){4, 1}; /* after those of the device, the pool, and its two fronts */
    must_pass(&f);
    assert_int_equal(heap.failing, 0);
    assert_int_equal(f.device.range_count, 0);
    assert_pool_whole(&f);
    must_free(&f, must_alloc(&f, 16 * MIB_BYTES));
    fixture_end(&f);
}

static void a_segment_that_the_map_has_no_room_for_is_found(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    pages = (struct shortage){2, 1}; /* after the records */
    errno = 77;
    uint64_t a = must_alloc(&f, 4096);
    assert_int_equal(pages.failing, 0);
    assert_int_equal(errno, 77);
    struct pool_block_info info;
    assert_int_equal(pool_find(f.pool, a + 4095, &info), 0);
    must_free(&f, a);
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free(f.pool, a + 16 * MIB_BYTES, POOL_DOOR_DRIVER), POOL_PASS);
    fixture_end(&f);
}

static void a_block_that_cannot_be_remembered_stays_idle(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t first = must_alloc(&f, 512);
    for (int i = 1; i < 128; i++) must_alloc(&f, 512);
    pages = (struct shortage){0, 1}; /* the table of live blocks is half full */
    must_pass(&f);
    assert_int_equal(pages.failing, 0);
    assert_pool_whole(&f);
    assert_int_equal(totals_of(&f, 0).blocks_live, 128);
    must_alloc(&f, 512);
    must_free(&f, first);
    fixture_end(&f);
}

static void a_fresh_segment_whose_block_cannot_be_remembered_stays(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    pages = (struct shortage){3, 1}; /* after the records and the map */
    must_pass(&f);
    assert_int_equal(pages.failing, 0);
    assert_int_equal(totals_of(&f, 0).releasable, 16 * MIB_BYTES);
    assert_pool_whole(&f);
    unsigned allocs = f.device.allocs;
    must_alloc(&f, 512);
    assert_int_equal(f.device.allocs, allocs);
    fixture_end(&f);
}

static void a_block_that_cannot_be_split_is_given_whole(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    pages = (struct shortage){7, FOR_GOOD}; /* records, the map, the table of live blocks and its growth */
    errno = 77;
    do must_alloc(&f, 512);
    while (totals_of(&f, 0).idle);
    assert_int_equal(errno, 77);
    pages.failing = 0;
    const struct pool_totals totals = totals_of(&f, 0);
    assert_in_range(totals.blocks_live, 513, 1024); /* before the table grows again */
    assert_int_equal(totals.requested, 512 * totals.blocks_live);
    assert_int_equal(totals.live, 16 * MIB_BYTES);
    assert_pool_whole(&f);
    fixture_end(&f);
}

static void a_free_in_a_capture_without_host_memory_is_done(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.free_event = true;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    uint64_t a = must_alloc(&f, 512), before = f.device.range_count;
    pool_capture_begin(f.pool);
    heap = (struct shortage){0, 1};
    errno = 77;
    must_free(&f, a);
    assert_int_equal(errno, 77);
    assert_int_equal(heap.failing, 0);
    pool_capture_end(f.pool);
    /* What asked the driver is not remembered: it stays. */
    assert_int_equal(f.device.range_count, before + 1);
    f.device.ops.segment_release(&f.device, &(struct segment_source){.kind = SEGMENT_PLAIN},
                                 f.device.ranges[before].address, 512);
    fixture_end(&f);
}

static void a_system_without_host_memory_is_none(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    heap = (struct shortage){0, 1};
    assert_null(pool_system_create(&f.device.ops, &options));
    fixture_end(&f);
}

static void lives_of_a_context_share_their_host_memory(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    for (int life = 0; life < 100; life++) {
        must_alloc(&f, 512);
        pool_context_close(f.pool, 0, NULL);
        fake_reset(&f.device, 0, false);
        pool_context_settle(f.pool, 0, NULL);
        f.device.alive[0] = true;
        heap = (struct shortage){0, FOR_GOOD};
        pages = (struct shortage){1, FOR_GOOD}; /* the table of live blocks goes with each life */
    }
    heap.failing = pages.failing = 0;
    fixture_end(&f);
}

/* The call itself is served: there is memory for it. */
static void what_cannot_be_recorded_is_not_reserved_ahead(void **state) {
    (void)state;
    for (unsigned succeed = 0; succeed < 6; succeed++) { /* records of blocks, of segments; leaves of the map */
        struct fixture f;
        struct pool_options options = fixture_options();
        options.prealloc_bytes = 64 * MIB_BYTES;
        options.fixed = (struct config_fixed){1, {{4096, 3000}}};
        fixture_begin(&f, 1024 * MIB_BYTES, options);
        pages = (struct shortage){succeed, 1};
        errno = 77;
        must_alloc(&f, 512);
        assert_int_equal(errno, 77);
        assert_int_equal(pages.failing, 0);
        assert_int_equal(totals_of(&f, 0).reserved, f.device.in_use[0]);
        assert_pool_whole(&f);
        must_free(&f, must_alloc(&f, 4096));
        must_alloc(&f, 64 * MIB_BYTES);
        fixture_end(&f);
    }
}

static void a_whole_that_cannot_be_registered_goes_back(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.prealloc_bytes = 64 * MIB_BYTES;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    f.device.range_room = 64; /* the fake device's own */
    f.device.ranges = __real_malloc(f.device.range_room * sizeof *f.device.ranges);
    heap = (struct shortage){3, 1}; /* after the records of the device, of the pool and of its first front */
    must_alloc(&f, 512);
    assert_int_equal(heap.failing, 0);
    assert_int_equal(figures_of_pool()->prealloc_bytes, 0);
    assert_int_equal(f.device.in_use[0], 16 * MIB_BYTES);
    fixture_end(&f);
}

static void a_reset_forgets_the_blocks_of_a_program_that_locks_its_memory(void **state) {
    (void)state;
    enum { BLOCKS = 300, RESETS = 20 }; /* the table grows too */
    struct fixture f;
    uint64_t old[BLOCKS], blocks[BLOCKS];
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    pages_are_locked = true;
    for (unsigned i = 0; i < BLOCKS; i++) old[i] = must_alloc(&f, 4096);
    for (unsigned reset = 0; reset < RESETS; reset++) {
        pool_context_close(f.pool, 0, NULL);
        fake_reset(&f.device, 0, false);
        pool_context_settle(f.pool, 0, NULL);
        f.device.alive[0] = true;
        for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = must_alloc(&f, 4096);
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (old[i] >= blocks[0] && old[i] <= blocks[BLOCKS - 1]) continue; /* the device gave the address again */
            assert_int_not_equal(pool_free(f.pool, old[i], POOL_DOOR_DRIVER), 0);
        }
        assert_int_equal(totals_of(&f, 0).live, BLOCKS * 4096);
        assert_pool_whole(&f);
        memcpy(old, blocks, sizeof old);
    }
    pages_are_locked = false;
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_context_without_host_memory_is_pooled_later),
    cmocka_unit_test(a_thread_without_a_front_is_served_all_the_same),
    cmocka_unit_test(a_segment_without_records_goes_back),
    cmocka_unit_test(a_segment_that_cannot_be_registered_goes_back),
    cmocka_unit_test(a_segment_that_the_map_has_no_room_for_is_found),
    cmocka_unit_test(a_block_that_cannot_be_remembered_stays_idle),
    cmocka_unit_test(a_fresh_segment_whose_block_cannot_be_remembered_stays),
    cmocka_unit_test(a_block_that_cannot_be_split_is_given_whole),
    cmocka_unit_test(a_free_in_a_capture_without_host_memory_is_done),
    cmocka_unit_test(a_system_without_host_memory_is_none),
    cmocka_unit_test(lives_of_a_context_share_their_host_memory),
    cmocka_unit_test(what_cannot_be_recorded_is_not_reserved_ahead),
    cmocka_unit_test(a_whole_that_cannot_be_registered_goes_back),
    cmocka_unit_test(a_reset_forgets_the_blocks_of_a_program_that_locks_its_memory),
};
TESTING_MAIN(tests)
