/* SPDX-License-Identifier: MIT
 *
 * The pool's behaviour, one rule a case: hits, splits and merges, answers to wrong frees, contexts and their resets,
 * captures, questions.
 */
#include "pool_fixture.h"

#include <stdatomic.h>
#include <unistd.h>

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

static void a_free_on_a_stream_like_any_other_waits_for_that_stream_only(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.no_streams = true;
    uint64_t a = must_alloc(&f, 4096);
    assert_int_equal(pool_free_async(f.pool, a, (struct device_stream){0}, POOL_DOOR_DRIVER), 0);
    assert_int_equal(f.device.synchronizes, 0);
    assert_int_equal(f.device.touches,
                     1); /* the free is work there: behind that of the legacy stream, where it orders */
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
    const struct poolcuda_event event = last_event(POOLCUDA_EVENT_bad_free);
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

/* The map of granules knows neither at once: the table of segments has to be asked. */
static void segments_that_share_a_granule_are_told_apart(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.next_address += 512 * KIB;
    uint64_t a = must_alloc(&f, 16 * MIB_BYTES);
    assert_int_equal(pool_free(f.pool, a + 16 * MIB_BYTES, POOL_DOOR_DRIVER), POOL_PASS);
    assert_int_equal(pool_free(f.pool, a - 512, POOL_DOOR_DRIVER), POOL_PASS);
    fake_set_current(FAKE_PRIMARY(1), 1);
    uint64_t b = must_alloc(&f, 16 * MIB_BYTES);
    assert_int_equal(b, a + 16 * MIB_BYTES);
    assert_int_equal(pool_free(f.pool, b - 512, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    must_free(&f, a);
    assert_int_equal(totals_of(&f, 1).live, 16 * MIB_BYTES);
    assert_int_equal(pool_trim(f.pool, 0, 0), 16 * MIB_BYTES);
    assert_int_equal(pool_free(f.pool, b - 512, POOL_DOOR_DRIVER), POOL_PASS);
    must_free(&f, b);
    fixture_end(&f);
}

static void addresses_beyond_the_map_are_known(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.next_address = UINT64_C(1) << 50;
    uint64_t a = must_alloc(&f, 4096);
    struct pool_block_info info;
    assert_int_equal(pool_find(f.pool, a + 1, &info), 0);
    must_free(&f, a);
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free(f.pool, a + 16 * MIB_BYTES, POOL_DOOR_DRIVER), POOL_PASS);
    assert_int_equal(pool_free(f.pool, UINT64_MAX, POOL_DOOR_DRIVER), POOL_PASS);
    fixture_end(&f);
}

static void describe_nothing(void *self, struct device_context context, struct device_info *info) {
    (void)self;
    (void)context;
    *info = (struct device_info){0};
}

static void a_device_of_unknown_size_is_pooled(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.ops.device_describe = describe_nothing;
    uint64_t address;
    must_free(&f, must_alloc(&f, 4096));
    assert_int_equal(pool_alloc(f.pool, SIZE_MAX, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(pool_alloc(f.pool, 2048 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
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
    assert_ptr_equal(f.device.synchronized, FAKE_PRIMARY(0));
    assert_int_equal(totals_of(&f, 0).live, 0);
    assert_int_equal(totals_of(&f, 1).live, MIB_BYTES);
    assert_int_not_equal(must_alloc(&f, MIB_BYTES), on_0);
    fake_set_current(FAKE_PRIMARY(0), 0);
    assert_int_equal(must_alloc(&f, MIB_BYTES), on_0);
    must_free(&f, on_1);
    assert_ptr_equal(f.device.synchronized, FAKE_PRIMARY(1));
    fixture_end(&f);
}

static void a_failed_wait_retires_the_block(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096);
    f.device.synchronize_fails_with = 700;
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), 700);
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
    for (int code = DEVICE_CAPTURE_UNSUPPORTED; code <= 908; code++) {
        f.device.synchronize_fails_with = code;
        assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), code);
    }
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
    pool_context_close(f.pool, 0, NULL); /* the new life can end as the old one did */
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_context_settle(f.pool, 0, NULL);
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

/* As two threads' resets may come: the second finds nothing in service. */
static void resets_of_what_is_not_in_service_change_nothing(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_alloc(&f, 4096);
    for (int life = 0; life < 3; life++) {
        for (int i = 0; i < 2; i++) {
            pool_context_close(f.pool, 0, NULL);
            fake_reset(&f.device, 0, false);
            pool_context_settle(f.pool, 0, NULL);
        }
        f.device.alive[0] = true;
        must_free(&f, must_alloc(&f, 4096));
    }
    fixture_end(&f);
}

static void many_contexts_pass_and_the_primary_is_served(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096), address;
    for (int i = 0; i < 600; i++) {
        fake_set_current((char *)FAKE_CREATED + i % 300, 0);
        assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    }
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_free(&f, a);
    assert_int_equal(must_alloc(&f, 4096), a);
    fixture_end(&f);
}

static bool any_is_primary(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return true;
}

static void a_handle_that_comes_back_is_asked_about_anew(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t address;
    fake_set_current(FAKE_CREATED, 0);
    assert_int_equal(pool_alloc(f.pool, 512, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_context_close(f.pool, -1, FAKE_CREATED); /* destroyed */
    pool_context_settle(f.pool, -1, FAKE_CREATED);
    f.device.ops.context_primary = any_is_primary;
    must_free(&f, must_alloc(&f, 512));
    fixture_end(&f);
}

static void reset_in_the_wait(void *arg) {
    struct fixture *f = arg;
    f->device.during_synchronize = NULL;
    pool_context_close(f->pool, 0, NULL);
    fake_reset(&f->device, 0, false);
    pool_context_settle(f->pool, 0, NULL);
}

static void a_free_that_a_reset_overtook_is_the_drivers(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096);
    f.device.during_arg = &f;
    f.device.during_synchronize = reset_in_the_wait;
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), POOL_PASS);
    f.device.alive[0] = true;
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

static void *free_and_end(void *arg) {
    struct fixture *f = arg;
    pool_free(f->pool, UINT64_C(0x700000000000), POOL_DOOR_DRIVER);
    pthread_testcancel();
    return NULL;
}

static void a_thread_that_is_cancelled_while_it_awaits_a_reset_leaves_no_lock(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    pthread_t thread;
    void *result;
    assert_int_equal(must_alloc(&f, 4096), UINT64_C(0x700000000000));
    pool_context_close(f.pool, 0, NULL);
    pthread_create(&thread, NULL, free_and_end, &f);
    usleep(20000);
    pthread_cancel(thread);
    usleep(20000);
    alarm(20); /* a lock that was left behind would be waited for without end */
    pool_context_settle(f.pool, 0, NULL);
    pthread_join(thread, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    must_free(&f, must_alloc(&f, 4096));
    alarm(0);
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

/* A thread that begins a capture while a free waits for the device. */
struct beginner {
    struct fixture *f;
    pthread_t thread;
    unsigned wait_ms; /* how long the device's wait takes at most */
    atomic_bool begun;
    bool begun_amid; /* before the wait was over */
};

static void *begin_capture(void *arg) {
    struct beginner *b = arg;
    pool_capture_begin(b->f->pool);
    atomic_store(&b->begun, true);
    return NULL;
}

static void begin_amid(void *arg) {
    struct beginner *b = arg;
    pthread_create(&b->thread, NULL, begin_capture, b);
    for (unsigned ms = 0; ms < b->wait_ms && !atomic_load(&b->begun); ms++) usleep(1000);
    b->begun_amid = atomic_load(&b->begun);
}

static bool capture_begins_amid_a_wait_of(unsigned wait_ms) {
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    struct beginner b = {.f = &f, .wait_ms = wait_ms};
    uint64_t address = must_alloc(&f, 4096);
    f.device.during_arg = &b;
    f.device.during_synchronize = begin_amid;
    must_free(&f, address);
    f.device.during_synchronize = NULL;
    pthread_join(b.thread, NULL);
    pool_capture_end(f.pool);
    fixture_end(&f);
    return b.begun_amid;
}

static void a_capture_begins_after_the_waits_under_way(void **state) {
    (void)state;
    assert_false(capture_begins_amid_a_wait_of(20));
}

static void a_capture_begins_though_a_wait_does_not_end(void **state) {
    (void)state;
    assert_true(capture_begins_amid_a_wait_of(20000));
}

static void a_capturing_stream_frees_no_block(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    const struct device_stream capturing = {(void *)0x100, false}, other = {(void *)0x200, false};
    uint64_t address = must_alloc(&f, 4096);
    pool_capture_begin(f.pool);
    f.device.capturing = capturing.handle;
    assert_int_equal(pool_free_async(f.pool, address, capturing, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(totals_of(&f, 0).live, 4096);
    assert_int_equal(pool_free_async(f.pool, address, other, POOL_DOOR_DRIVER), 0);
    assert_int_equal(totals_of(&f, 0).ordered, 4096);
    assert_int_equal(f.device.stream_synchronizes, 0);
    pool_capture_end(f.pool);
    fixture_end(&f);
}

/* What asked the driver was made in the thread's context, and is no more when that ends: whoever has its address then
 * keeps it. The block's memory pool outlives the context. */
static void hazard_31_what_asked_for_an_async_block_ends_with_the_threads_context(void **state) {
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        struct fixture f;
        fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
        const uint64_t block = must_alloc_on(&f, STREAM(1), 4096);
        const size_t before = f.device.range_count;
        pool_capture_begin(f.pool);
        must_free(&f, block);
        assert_int_equal(f.device.range_count, before + 1);
        const struct fake_range asked = f.device.ranges[f.device.ranges[0].size == 512 ? 0 : before];
        assert_int_equal(asked.size, 512);
        pool_capture_begin(f.pool); /* another one, */
        pool_capture_end(f.pool);   /* which is not the last to end */
        assert_int_equal(f.device.range_count, before + 1);
        if (ends) {
            f.device.alive[0] = false;
            pool_context_close(f.pool, 0, NULL);
            pool_context_settle(f.pool, 0, NULL);
            f.device.alive[0] = true;
        }
        pool_capture_end(f.pool);
        assert_int_equal(f.device.range_count, before + (ends ? 1 : 0)); /* somebody else's by now */
        const struct segment_source plain = {.kind = SEGMENT_PLAIN, .context = {FAKE_PRIMARY(0), 0}};
        if (ends) f.device.ops.segment_release(&f.device, &plain, asked.address, asked.size);
        fixture_end(&f);
    }
}

static void where_the_driver_has_no_more_amid_a_capture_what_is_idle_serves(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 64 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 40 * MIB_BYTES), address = 0;
    must_free(&f, a);
    pool_capture_begin(f.pool);
    const unsigned allocs = f.device.allocs;
    assert_int_equal(pool_alloc(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), POOL_PASS);
    assert_int_equal(pool_alloc_cached(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), 0);
    assert_int_equal(address, a);
    assert_int_equal(pool_alloc_cached(f.pool, 40 * MIB_BYTES, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(f.device.allocs, allocs); /* the driver was asked before, and is not again */
    assert_int_equal(f.device.releases, 0);
    pool_capture_end(f.pool);
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

static void a_capture_without_memory_to_ask_with_permits_frees(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096);
    pool_capture_begin(f.pool);
    f.device.alloc_fails_with = DEVICE_OUT_OF_MEMORY;
    must_free(&f, a);
    f.device.alloc_fails_with = 0;
    pool_capture_end(f.pool);
    fixture_end(&f);
}

static void what_asked_the_driver_goes_with_its_context(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.free_event = true; /* what asked is kept, since to free it would wait */
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    uint64_t a = must_alloc(&f, 4096);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true;
    pool_capture_end(f.pool);
    assert_int_equal(f.device.releases, 0);
    fixture_end(&f);
}

/* The end of a context tells of its captures' end while its pool is closed. */
static void what_asked_the_driver_stays_while_its_context_is_closed(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.free_event = true;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    const uint64_t a = must_alloc(&f, 4096);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    pool_context_close(f.pool, 0, NULL);
    pool_capture_end(f.pool);
    assert_int_equal(f.device.releases, 0);
    pool_context_settle(f.pool, 0, NULL); /* it lives on */
    pool_capture_begin(f.pool);
    pool_capture_end(f.pool);
    assert_int_equal(f.device.releases, 1);
    fixture_end(&f);
}

/* The driver may give it the address of what the program has freed before. */
static void what_asked_the_driver_is_not_the_programs_to_free(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.free_event = true;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    const uint64_t a = must_alloc(&f, 4096), b = must_alloc(&f, 4096);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    assert_int_equal(f.device.range_count, 2);
    const uint64_t asked = f.device.ranges[f.device.ranges[0].address > b ? 0 : 1].address;
    assert_int_equal(pool_free(f.pool, asked, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    assert_int_equal(pool_free_async(f.pool, asked, STREAM(1), POOL_DOOR_RUNTIME), DEVICE_INVALID_VALUE);
    assert_int_equal(figures_of_pool()->bad_frees, 2);
    fake_set_current(NULL, 0);
    assert_int_equal(pool_free(f.pool, asked, POOL_DOOR_DRIVER), POOL_PASS); /* the driver names the reason */
    fake_set_current(FAKE_PRIMARY(0), 0);
    pool_context_close(f.pool, 0, NULL);
    fake_reset(&f.device, 0, false);
    pool_context_settle(f.pool, 0, NULL);
    f.device.alive[0] = true; /* and may give it to the program later */
    assert_int_equal(pool_free(f.pool, asked, POOL_DOOR_DRIVER), POOL_PASS);
    pool_capture_end(f.pool);
    fixture_end(&f);
}

static void a_free_in_a_capture_waits_as_the_drivers_does(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    uint64_t a = must_alloc(&f, 4096);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    assert_int_equal(f.device.releases, 1); /* what asked was freed, and that waited */
    assert_int_equal(f.device.synchronizes, 0);
    assert_int_equal(totals_of(&f, 0).waiting, 4096); /* no proof all the same */
    pool_capture_end(f.pool);
    assert_int_equal(f.device.releases, 1);
    fixture_end(&f);
}

static void of_two_captures_the_last_gives_back_what_asked(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.free_event = true; /* what asked is kept, since to free it would wait */
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, options);
    uint64_t a = must_alloc(&f, 4096);
    pool_capture_begin(f.pool);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    pool_capture_end(f.pool);
    assert_int_equal(f.device.releases, 0);
    pool_capture_end(f.pool);
    assert_int_equal(f.device.releases, 1);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_freed_block_is_a_hit),
    cmocka_unit_test(blocks_are_rounded_and_aligned_to_512),
    cmocka_unit_test(free_neighbours_merge_to_the_whole_segment),
    cmocka_unit_test(live_blocks_never_overlap_a_reused_neighbour),
    cmocka_unit_test(every_free_waits_for_the_device),
    cmocka_unit_test(a_free_on_a_stream_like_any_other_waits_for_that_stream_only),
    cmocka_unit_test(wrong_frees_answer_1_and_harm_nobody),
    cmocka_unit_test(foreign_addresses_are_the_drivers),
    cmocka_unit_test(segments_that_share_a_granule_are_told_apart),
    cmocka_unit_test(addresses_beyond_the_map_are_known),
    cmocka_unit_test(a_device_of_unknown_size_is_pooled),
    cmocka_unit_test(zero_null_and_no_context_pass),
    cmocka_unit_test(devices_have_their_own_pools),
    cmocka_unit_test(a_failed_wait_retires_the_block),
    cmocka_unit_test(a_refused_wait_leaves_the_block_live),
    cmocka_unit_test(a_reset_forgets_blocks_and_begins_anew),
    cmocka_unit_test(a_reset_that_failed_keeps_everything),
    cmocka_unit_test(resets_of_what_is_not_in_service_change_nothing),
    cmocka_unit_test(many_contexts_pass_and_the_primary_is_served),
    cmocka_unit_test(a_handle_that_comes_back_is_asked_about_anew),
    cmocka_unit_test(a_free_that_a_reset_overtook_is_the_drivers),
    cmocka_unit_test(a_reset_of_one_device_leaves_the_other),
    cmocka_unit_test(a_thread_that_is_cancelled_while_it_awaits_a_reset_leaves_no_lock),
    cmocka_unit_test(two_resets_at_once_reopen_after_the_second),
    cmocka_unit_test(a_capture_begins_after_the_waits_under_way),
    cmocka_unit_test(a_capture_begins_though_a_wait_does_not_end),
    cmocka_unit_test(a_capturing_stream_frees_no_block),
    cmocka_unit_test(hazard_31_what_asked_for_an_async_block_ends_with_the_threads_context),
    cmocka_unit_test(where_the_driver_has_no_more_amid_a_capture_what_is_idle_serves),
    cmocka_unit_test(a_capture_passes_allocations_and_defers_frees),
    cmocka_unit_test(a_capture_without_memory_to_ask_with_permits_frees),
    cmocka_unit_test(what_asked_the_driver_stays_while_its_context_is_closed),
    cmocka_unit_test(what_asked_the_driver_goes_with_its_context),
    cmocka_unit_test(what_asked_the_driver_is_not_the_programs_to_free),
    cmocka_unit_test(a_free_in_a_capture_waits_as_the_drivers_does),
    cmocka_unit_test(of_two_captures_the_last_gives_back_what_asked),
    cmocka_unit_test(queries_know_the_block_and_its_requested_size),
};
TESTING_MAIN(tests)
