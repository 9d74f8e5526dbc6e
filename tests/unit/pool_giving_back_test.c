/* SPDX-License-Identifier: MIT
 *
 * Memory of both kinds on its way back to the driver, and what captures and fences have to do with it: who may wait for
 * the device, what is proved before, and that nothing counts as under way when it is over.
 */
#include "pool/internal.h"

#include "pool_fixture.h"
#include "pool_insides.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define BIG (20 * MIB_BYTES) /* has a segment of its own */
#define A STREAM(1)
#define B STREAM(2)

static struct device_ops real;
static unsigned calls;

static void begin_with(struct fixture *f, uint64_t memory, struct pool_options options) {
    fixture_begin(f, memory, options);
    f->device.passes_at_once = false;
    real = f->device.ops;
    calls = 0;
}

static void begin(struct fixture *f, bool free_event) {
    struct pool_options options = fixture_options();
    options.free_event = free_event;
    begin_with(f, 65536 * MIB_BYTES, options);
}

static void pass_all(struct fixture *f) {
    f->device.passed = f->device.recorded;
}

/* No call that is over counts as one that waits, records or is in the driver. */
static void end(struct fixture *f) {
    const struct fences *fences = &f->pool->fences;
    assert_int_equal(atomic_load(&fences->records_begun), atomic_load(&fences->records_ended));
    assert_int_equal(atomic_load(&fences->marks_begun), atomic_load(&fences->marks_ended));
    for (struct pool *pool = atomic_load(&f->pool->pools); pool; pool = pool->next) {
        assert_int_equal(waits_under_way(pool), 0);
        assert_int_equal(pool->inside, 0);
    }
    fixture_end(f);
}

/* ---- memory pools ---- */

static void a_memory_pools_trim_leaves_what_may_stay(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[4];
    begin(&f, false);
    for (unsigned i = 0; i < 4; i++) blocks[i] = must_alloc_on(&f, A, BIG);
    for (unsigned i = 0; i < 3; i++) must_free_on(&f, A, blocks[i]);
    pool_trim_memory_pool(f.pool, FAKE_MEMORY_POOL, UINT64_MAX); /* marks */
    pass_all(&f);
    assert_int_equal(pool_trim_memory_pool(f.pool, FAKE_MEMORY_POOL, 3 * BIG), 0);
    assert_int_equal(totals_of(&f, 0).idle, 3 * BIG);
    must_free_on(&f, A, blocks[3]); /* counts too, though it cannot go yet */
    assert_int_equal(pool_trim_memory_pool(f.pool, &f, 0), 0);
    pool_capture_begin(f.pool);
    assert_int_equal(pool_trim_memory_pool(f.pool, FAKE_MEMORY_POOL, 0), 0);
    pool_capture_end(f.pool);
    assert_int_equal(pool_trim_memory_pool(f.pool, FAKE_MEMORY_POOL, 3 * BIG), BIG);
    assert_int_equal(pool_trim_memory_pool(f.pool, FAKE_MEMORY_POOL, 0), 2 * BIG);
    pass_all(&f);
    assert_int_equal(pool_trim_memory_pool(f.pool, FAKE_MEMORY_POOL, 0), BIG);
    end(&f);
}

static void a_memory_pool_that_has_ended_meanwhile_gives_out_nothing(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    begin(&f, false);
    must_alloc_on(&f, A, BIG);
    struct pool *pool = atomic_load(&f.pool->pools);
    pool->ended = true; /* as this thread, on its way, cannot know yet */
    fronts_gate(pool);
    assert_int_equal(pool_alloc_async(f.pool, BIG, A, POOL_DOOR_DRIVER, &address), POOL_PASS);
    end(&f);
}

/* ---- trims ---- */

static void what_has_passed_is_proved_before_it_is_counted_or_trimmed(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    must_free(&f, must_alloc_on(&f, A, BIG));
    must_free_on(&f, A, must_alloc_on(&f, A, BIG));
    assert_int_equal(pool_releasable(f.pool, 0, NULL), 0); /* marks and fences are recorded */
    pass_all(&f);
    assert_int_equal(pool_releasable(f.pool, 0, NULL), 2 * BIG);
    must_free_on(&f, A, must_alloc_on(&f, A, BIG));
    assert_int_equal(pool_trim(f.pool, 0, 2 * BIG), 0);
    assert_int_equal(pool_trim(f.pool, 0, BIG), BIG); /* what is ordered is cached too */
    pass_all(&f);
    assert_int_equal(pool_trim(f.pool, 0, 0), BIG);
    end(&f);
}

static void one_free_in_sixty_four_gives_back_what_was_freed_in_order(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.trim_bytes = 4 * MIB_BYTES;
    begin_with(&f, 4096 * MIB_BYTES, options);
    f.device.passes_at_once = true;
    uint64_t kept = must_alloc_on(&f, A, 4096);
    must_free_on(&f, A, must_alloc_on(&f, A, BIG));
    for (unsigned i = 1; i < 63; i++) must_free_on(&f, A, must_alloc_on(&f, A, 4096));
    assert_int_equal(f.device.releases, 0);
    must_free_on(&f, A, must_alloc_on(&f, A, 4096));
    assert_int_equal(f.device.releases, 1);
    must_free_on(&f, A, kept);
    end(&f);
}

/* Frees 64 small blocks of their own segment: the last one closes a fence. */
static void free_round(struct fixture *f) {
    uint64_t blocks[64];
    for (unsigned i = 0; i < 64; i++) blocks[i] = must_alloc(f, 4096);
    for (unsigned i = 0; i < 64; i++) must_free(f, blocks[i]);
}

static void only_a_free_that_waits_gives_plain_memory_back(void **state) {
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        struct fixture f;
        struct pool_options options = fixture_options();
        options.trim_bytes = 16 * MIB_BYTES - 64 * 4096; /* what stays idle of the segment */
        options.free_event = !waits;
        begin_with(&f, 4096 * MIB_BYTES, options);
        f.device.passes_at_once = true;
        f.device.not_alone = true; /* so that what was waited for waits for a fence too */
        free_round(&f);
        assert_int_equal(f.device.fences, 1);
        assert_int_equal(f.device.releases, waits);
        end(&f);
    }
}

static void what_was_freed_by_cudafree_is_given_back_by_the_round(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    uint64_t blocks[64];
    options.trim_bytes = 0;
    begin_with(&f, 4096 * MIB_BYTES, options);
    f.device.passes_at_once = true;
    for (unsigned i = 0; i < 64; i++) blocks[i] = must_alloc_on(&f, A, 4096);
    must_free_on(&f, A, must_alloc_on(&f, A, BIG - 4096));
    for (unsigned i = 0; i < 63; i++) must_free(&f, blocks[i]);
    assert_int_equal(f.device.releases, 0);
    must_free(&f, blocks[63]);
    assert_int_equal(f.device.releases, 2);
    end(&f);
}

static void headroom_is_made_whole_only_by_a_free_that_waits(void **state) {
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        struct fixture f;
        struct pool_options options = fixture_options();
        options.headroom_bytes = 100 * MIB_BYTES;
        options.free_event = !waits;
        begin_with(&f, 1000 * MIB_BYTES, options);
        f.device.passes_at_once = true;
        const uint64_t kept = must_alloc(&f, 4096), a = must_alloc(&f, 800 * MIB_BYTES),
                       b = must_alloc(&f, 150 * MIB_BYTES);
        f.device.passes_at_once = false;
        must_free(&f, a);
        must_free(&f, b);
        if (!waits) {
            pool_releasable(f.pool, 0, NULL);
            pass_all(&f);
            assert_int_equal(pool_releasable(f.pool, 0, NULL), 950 * MIB_BYTES);
        }
        must_free(&f, kept);
        assert_int_equal(f.device.releases > 0, waits);
        end(&f);
    }
}

/* ---- the ladder ---- */

/* Idle memory of both kinds: BIG each. */
static void fill_with_idle(struct fixture *f) {
    const uint64_t async = must_alloc_on(f, A, BIG), plain = must_alloc(f, BIG);
    must_free_on(f, A, async);
    must_free(f, plain);
    pool_releasable(f->pool, 0, NULL);
    pass_all(f);
    assert_int_equal(pool_releasable(f->pool, 0, NULL), 2 * BIG);
}

static void who_may_not_wait_gives_plain_memory_back_last(void **state) {
    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        struct fixture f;
        struct pool_options options = fixture_options();
        const bool plain = round >= 2;
        options.free_event = plain;
        options.limit_bytes = round % 2 ? 50 * MIB_BYTES : CONFIG_NONE;
        begin_with(&f, (round % 2 ? 4096 : 50) * MIB_BYTES, options);
        fill_with_idle(&f);
        const unsigned waits = f.device.synchronizes;
        if (plain)
            must_alloc(&f, 28 * MIB_BYTES);
        else
            must_alloc_on(&f, A, 28 * MIB_BYTES);
        assert_int_equal(f.device.releases, 1);
        const struct pool *kept = atomic_load(&f.pool->pools);
        while (kept->source.kind != SEGMENT_PLAIN) kept = kept->next;
        assert_int_equal(kept->idle_bytes, BIG);
        assert_int_equal(f.device.synchronizes, waits);
        end(&f);
    }
}

static void hazard_41_in_need_plain_memory_goes_back_for_anybody(void **state) {
    (void)state;
    struct fixture f;
    begin_with(&f, 50 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 2 * BIG));
    must_alloc_on(&f, A, 2 * BIG);
    assert_int_equal(f.device.releases, 1);
    end(&f);
}

static void hazard_41_what_has_passed_is_not_waited_for_in_need(void **state) {
    (void)state;
    for (unsigned limited = 0; limited < 2; limited++) {
        struct fixture f;
        struct pool_options options = fixture_options();
        if (limited) options.limit_bytes = 50 * MIB_BYTES;
        begin_with(&f, (limited ? 4096 : 50) * MIB_BYTES, options);
        f.device.passes_at_once = true;
        must_free(&f, must_alloc_on(&f, A, BIG));
        must_alloc(&f, 2 * BIG);
        assert_int_equal(f.device.synchronizes, 0);
        assert_int_equal(f.device.releases, 1);
        const struct pool *pool = atomic_load(&f.pool->pools);
        assert_int_equal(pool->figures->oom_retries, !limited);
        end(&f);
    }
}

static void one_wait_in_need_serves_all_pools(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.free_event = true;
    begin_with(&f, 50 * MIB_BYTES, options);
    const uint64_t a = must_alloc_on(&f, A, BIG), b = must_alloc(&f, BIG);
    must_free(&f, a);
    must_free(&f, b);
    must_alloc(&f, 2 * BIG);
    assert_int_equal(f.device.synchronizes, 1);
    end(&f);
}

static void segments_become_one_where_nobody_waits_for_that(void **state) {
    (void)state;
    for (unsigned async = 0; async < 2; async++) {
        struct fixture f;
        begin(&f, true);
        uint64_t blocks[2];
        for (unsigned i = 0; i < 2; i++) blocks[i] = async ? must_alloc_on(&f, A, BIG) : must_alloc(&f, BIG);
        for (unsigned i = 0; i < 2; i++) must_free(&f, blocks[i]);
        pool_releasable(f.pool, 0, NULL);
        pass_all(&f);
        assert_int_equal(pool_releasable(f.pool, 0, NULL), 2 * BIG);
        if (async)
            must_alloc_on(&f, A, 38 * MIB_BYTES);
        else
            must_alloc(&f, 38 * MIB_BYTES);
        assert_int_equal(f.device.releases, async ? 2 : 0);
        end(&f);
    }
}

static void close_streams(void *pool) {
    pool_streams_closing(pool, FAKE_PRIMARY(0));
}

static void a_segment_whose_stream_ends_meanwhile_waits(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    begin(&f, false);
    must_free_on(&f, A, must_alloc_on(&f, A, 4096));
    f.device.during_alloc = close_streams;
    f.device.during_arg = f.pool;
    assert_int_equal(pool_alloc_async(f.pool, BIG, A, POOL_DOOR_DRIVER, &address), POOL_PASS);
    f.device.during_alloc = NULL;
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_equal(totals_of(&f, 0).idle, 0);
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), true);
    end(&f);
}

/* ---- fences ---- */

static void bytes_that_closed_a_fence_close_no_other(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    const uint64_t kept = must_alloc(&f, 1024 * MIB_BYTES), a = must_alloc(&f, 300 * MIB_BYTES),
                   b = must_alloc(&f, 512);
    must_free(&f, a);
    assert_int_equal(f.device.fences, 1);
    must_free(&f, b);
    assert_int_equal(f.device.fences, 1);
    must_free(&f, kept);
    end(&f);
}

static void fail_second(void *device) {
    struct fake_device *fake = device;
    fake->query_fails_with = fake->queries == 2 ? 700 : 0;
}

static void a_fence_that_fails_retires_its_own_blocks_only(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t a = must_alloc_on(&f, A, BIG), b = must_alloc_on(&f, A, BIG), c = must_alloc_on(&f, A, BIG);
    const uint64_t blocks[] = {a, b, c};
    for (unsigned i = 0; i < 3; i++) {
        must_free(&f, blocks[i]);
        if (i < 2) must_alloc_on(&f, B, BIG); /* records */
    }
    assert_int_equal(f.device.fences, 2);
    pass_all(&f);
    f.device.during_query = fail_second;
    f.device.during_arg = &f.device;
    f.device.queries = 0;
    must_alloc_on(&f, B, 2 * BIG);
    assert_true(f.device.queries >= 2);
    assert_int_equal(totals_of(&f, 0).retired, BIG);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_equal(must_alloc_on(&f, A, BIG), a);
    end(&f);
}

/* ---- frees that wait ---- */

static void a_free_that_never_waits_is_not_bounded(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[10];
    begin(&f, false);
    for (unsigned i = 0; i < 10; i++) blocks[i] = must_alloc_on(&f, A, 60 * MIB_BYTES);
    for (unsigned i = 0; i < 10; i++) must_free(&f, blocks[i]);
    assert_int_equal(f.device.synchronizes, 0);
    end(&f);
}

static void a_free_that_has_waited_does_not_wait_again(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[10];
    begin(&f, false);
    f.device.not_alone = true;
    for (unsigned i = 0; i < 10; i++) blocks[i] = must_alloc(&f, 60 * MIB_BYTES);
    for (unsigned i = 0; i < 10; i++) must_free(&f, blocks[i]);
    assert_int_equal(f.device.synchronizes, 10);
    end(&f);
}

static int refuse(void *self) {
    (void)self;
    return 700;
}

static void without_fences_a_failed_wait_for_others_retires_the_block(void **state) {
    (void)state;
    struct fixture f;
    stats_start(false);
    fake_device_init(&f.device, 1024 * MIB_BYTES);
    f.device.no_fences = f.device.not_alone = true;
    f.device.ops.synchronize_all = refuse;
    const struct pool_options options = fixture_options();
    f.pool = pool_system_create(&f.device.ops, &options);
    assert_int_equal(pool_free(f.pool, must_alloc(&f, BIG), POOL_DOOR_DRIVER), 700);
    assert_int_equal(totals_of(&f, 0).retired, BIG);
    end(&f);
}

static void a_failed_wait_is_over(void **state) {
    (void)state;
    struct fixture f;
    begin_with(&f, 50 * MIB_BYTES, fixture_options());
    const uint64_t a = must_alloc(&f, BIG);
    uint64_t address;
    f.device.synchronize_fails_with = 700;
    assert_int_equal(pool_free(f.pool, a, POOL_DOOR_DRIVER), 700);
    must_free(&f, must_alloc_on(&f, A, BIG));
    assert_int_equal(pool_alloc(f.pool, 2 * BIG, POOL_DOOR_DRIVER, &address), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    end(&f);
}

/* ---- captures ---- */

static void many_waiting_bytes_wait_on_in_a_capture(void **state) {
    (void)state;
    struct fixture f;
    uint64_t blocks[10];
    begin(&f, true);
    for (unsigned i = 0; i < 10; i++) blocks[i] = must_alloc(&f, 60 * MIB_BYTES);
    pool_capture_begin(f.pool);
    for (unsigned i = 0; i < 10; i++) must_free(&f, blocks[i]);
    assert_int_equal(f.device.synchronizes, 0);
    assert_int_equal(f.device.recorded, 0);
    pool_capture_end(f.pool);
    end(&f);
}

/* ---- a proof that another thread has begun ---- */

static atomic_bool sleeps_over_it, may_go_on;

static void sleep_over_the_first(void *arg) {
    (void)arg;
    if (atomic_exchange(&sleeps_over_it, true)) return;
    while (!atomic_load(&may_go_on)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

static void let_go_on(void *arg) {
    (void)arg;
    atomic_store(&may_go_on, true);
}

static void *free_many(void *arg) {
    struct fixture *f = arg;
    uint64_t blocks[FENCE_FREES + 1];
    fake_set_current(FAKE_PRIMARY(0), 0);
    for (unsigned i = 0; i <= FENCE_FREES; i++) blocks[i] = must_alloc(f, 4096);
    for (unsigned i = 0; i <= FENCE_FREES; i++) must_free(f, blocks[i]);
    return NULL;
}

static void many_waiting_bytes_wait_for_the_thread_that_proves_them(void **state) {
    enum { BLOCKS = 30 };
    (void)state;
    struct fixture f;
    uint64_t blocks[BLOCKS];
    pthread_t thread;
    begin(&f, true);
    f.device.passes_at_once = true;
    f.device.during_record = sleep_over_the_first;
    f.device.during_synchronize = let_go_on;
    for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = must_alloc(&f, BIG);
    pthread_create(&thread, NULL, free_many, &f);
    while (!atomic_load(&sleeps_over_it)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    for (unsigned i = 0; i < BLOCKS; i++) must_free(&f, blocks[i]);
    assert_true(f.device.synchronizes > 0);
    assert_true(totals_of(&f, 0).waiting <= FENCE_BYTES + BIG);
    pthread_join(thread, NULL);
    end(&f);
}

static void a_free_on_an_unknown_stream_waits_for_a_fence_in_a_capture(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t a = must_alloc(&f, BIG);
    f.device.no_streams = true;
    pool_capture_begin(f.pool);
    must_free_on(&f, A, a);
    assert_int_equal(f.device.stream_synchronizes, 0);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    pool_capture_end(f.pool);
    end(&f);
}

static int capture_implicit(void *self, struct device_stream stream) {
    (void)self;
    (void)stream;
    return 906;
}

static void on_a_stream_that_would_join_a_capture_the_drivers_answer_counts(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t a = must_alloc_on(&f, A, BIG);
    f.device.ops.stream_capturing = capture_implicit;
    pool_capture_begin(f.pool);
    f.device.synchronize_fails_with = 906;
    assert_int_equal(pool_free_async(f.pool, a, A, POOL_DOOR_DRIVER), 906);
    assert_int_equal(totals_of(&f, 0).live, BIG);
    f.device.synchronize_fails_with = 0;
    must_free_on(&f, A, a);
    pool_capture_end(f.pool);
    end(&f);
}

static int count_memory_info(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes) {
    calls++;
    return real.memory_info(self, context, free_bytes, total_bytes);
}

static void a_device_is_not_asked_for_room_in_a_capture(void **state) {
    (void)state;
    struct fixture f;
    struct pool_options options = fixture_options();
    options.headroom_bytes = 100 * MIB_BYTES;
    begin_with(&f, 4096 * MIB_BYTES, options);
    f.device.ops.memory_info = count_memory_info;
    pool_capture_begin(f.pool);
    must_alloc_on(&f, A, BIG);
    assert_int_equal(calls, 0);
    pool_capture_end(f.pool);
    must_alloc_on(&f, A, BIG);
    assert_true(calls > 0);
    end(&f);
}

static void what_asked_the_driver_goes_with_the_system(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    const uint64_t a = must_alloc(&f, BIG);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    end(&f);
}

static struct fixture *capturing_in;
static int begin_capture_and_release(void *self, const struct segment_source *source, uint64_t address, size_t bytes) {
    if (!calls++) pool_capture_begin(capturing_in->pool); /* waits for a while only */
    return real.segment_release(self, source, address, bytes);
}

static void what_asked_the_driver_stays_when_another_capture_begins(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, true);
    const uint64_t a = must_alloc(&f, BIG), b = must_alloc(&f, BIG);
    pool_capture_begin(f.pool);
    must_free(&f, a);
    must_free(&f, b);
    capturing_in = &f;
    f.device.ops.segment_release = begin_capture_and_release;
    pool_capture_end(f.pool);
    assert_int_equal(calls, 1);
    pool_capture_end(f.pool);
    assert_int_equal(calls, 2);
    end(&f);
}

static atomic_bool captured;
static pthread_t capturer;

static void *capture(void *pool) {
    pool_capture_begin(pool);
    atomic_store(&captured, true);
    return NULL;
}

static void capture_meanwhile(void *pool) {
    if (calls++) return;
    pthread_create(&capturer, NULL, capture, pool);
    const struct timespec pause = {0, 30000000}; /* less than what a begin waits at most */
    nanosleep(&pause, NULL);
    assert_false(atomic_load(&captured));
}

static void a_capture_begins_after_the_waits_of_all_pools(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, false);
    const uint64_t a = must_alloc(&f, BIG);
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_alloc(&f, BIG);
    f.device.during_synchronize = capture_meanwhile;
    f.device.during_arg = f.pool;
    must_free(&f, a);
    assert_int_equal(calls, 1);
    pthread_join(capturer, NULL);
    pool_capture_end(f.pool);
    end(&f);
}

static void a_context_is_closed_by_its_own_handle(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    begin(&f, false);
    must_alloc_on(&f, A, BIG);
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_alloc(&f, BIG);
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_alloc(&f, BIG);
    pool_context_close(f.pool, -1, FAKE_PRIMARY(0));
    assert_int_equal(pool_alloc(f.pool, BIG, POOL_DOOR_DRIVER, &address), POOL_PASS);
    must_alloc_on(&f, A, BIG);
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_alloc(&f, BIG);
    pool_context_settle(f.pool, -1, FAKE_PRIMARY(0));
    end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_memory_pools_trim_leaves_what_may_stay),
    cmocka_unit_test(a_memory_pool_that_has_ended_meanwhile_gives_out_nothing),
    cmocka_unit_test(what_has_passed_is_proved_before_it_is_counted_or_trimmed),
    cmocka_unit_test(one_free_in_sixty_four_gives_back_what_was_freed_in_order),
    cmocka_unit_test(only_a_free_that_waits_gives_plain_memory_back),
    cmocka_unit_test(what_was_freed_by_cudafree_is_given_back_by_the_round),
    cmocka_unit_test(headroom_is_made_whole_only_by_a_free_that_waits),
    cmocka_unit_test(who_may_not_wait_gives_plain_memory_back_last),
    cmocka_unit_test(hazard_41_in_need_plain_memory_goes_back_for_anybody),
    cmocka_unit_test(hazard_41_what_has_passed_is_not_waited_for_in_need),
    cmocka_unit_test(one_wait_in_need_serves_all_pools),
    cmocka_unit_test(segments_become_one_where_nobody_waits_for_that),
    cmocka_unit_test(a_segment_whose_stream_ends_meanwhile_waits),
    cmocka_unit_test(bytes_that_closed_a_fence_close_no_other),
    cmocka_unit_test(a_fence_that_fails_retires_its_own_blocks_only),
    cmocka_unit_test(a_free_that_never_waits_is_not_bounded),
    cmocka_unit_test(a_free_that_has_waited_does_not_wait_again),
    cmocka_unit_test(without_fences_a_failed_wait_for_others_retires_the_block),
    cmocka_unit_test(a_failed_wait_is_over),
    cmocka_unit_test(many_waiting_bytes_wait_on_in_a_capture),
    cmocka_unit_test(many_waiting_bytes_wait_for_the_thread_that_proves_them),
    cmocka_unit_test(a_free_on_an_unknown_stream_waits_for_a_fence_in_a_capture),
    cmocka_unit_test(on_a_stream_that_would_join_a_capture_the_drivers_answer_counts),
    cmocka_unit_test(a_device_is_not_asked_for_room_in_a_capture),
    cmocka_unit_test(what_asked_the_driver_goes_with_the_system),
    cmocka_unit_test(what_asked_the_driver_stays_when_another_capture_begins),
    cmocka_unit_test(a_capture_begins_after_the_waits_of_all_pools),
    cmocka_unit_test(a_context_is_closed_by_its_own_handle),
};
TESTING_MAIN(tests)
