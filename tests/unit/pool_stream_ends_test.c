/* SPDX-License-Identifier: MIT
 *
 * The lives of stream lists: streams that end, come back or were never seen; contexts that end with them; marks that
 * fail, pend, or are in another thread's hands meanwhile.
 */
#include "pool/internal.h"

#include "pool_fixture.h"

#include <stdatomic.h>
#include <time.h>

#define BIG (20 * MIB_BYTES) /* has a segment of its own */
#define A STREAM(1)
#define B STREAM(2)
#define ELSEWHERE \
    ((struct device_stream){(void *)(uintptr_t)0x10, false}) /* its handle has another place in the cache */

static void begin(struct fixture *f) {
    fixture_begin(f, 65536 * MIB_BYTES, fixture_options());
    f->device.passes_at_once = false;
}

static void pass_all(struct fixture *f) {
    f->device.passed = f->device.recorded;
}

/* Frees a block of its own in the order of the stream. */
static uint64_t leave_block(struct fixture *f, struct device_stream stream) {
    const uint64_t address = must_alloc_on(f, stream, BIG);
    must_free_on(f, stream, address);
    return address;
}

static struct pool *async_pool(struct fixture *f) {
    struct pool *pool = atomic_load(&f->pool->pools);
    while (pool->source.kind != SEGMENT_ASYNC) pool = pool->next;
    return pool;
}

/* ---- who a stream is ---- */

static void the_default_streams_have_each_two_names(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const struct device_stream own = {NULL, true}, legacy = {NULL, false};
    const uint64_t a = leave_block(&f, own);
    assert_int_not_equal(must_alloc_on(&f, legacy, BIG), a);
    assert_int_equal(must_alloc_on(&f, (struct device_stream){(void *)2, false}, BIG), a);
    fixture_end(&f);
}

static void a_default_stream_is_that_of_the_current_context(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_alloc_on(&f, PER_THREAD, BIG);
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_alloc_on(&f, PER_THREAD, BIG);
    assert_int_equal(totals_of(&f, 0).live, BIG);
    assert_int_equal(totals_of(&f, 1).live, BIG);
    fixture_end(&f);
}

static void streams_whose_handles_share_a_place_are_told_apart(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_alloc_on(&f, A, BIG);
    fake_set_current(FAKE_PRIMARY(1), 1);
    must_alloc_on(&f, B, BIG);
    assert_int_equal(totals_of(&f, 0).live, BIG);
    assert_int_equal(totals_of(&f, 1).live, BIG);
    fixture_end(&f);
}

static void a_stream_whose_end_nobody_tells_is_identified_each_time(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.unseen = true;
    const uint64_t a = leave_block(&f, A);
    assert_int_equal(must_alloc_on(&f, A, BIG), a);
    must_free_on(&f, A, a);
    f.device.stream_generation++;
    assert_int_not_equal(must_alloc_on(&f, A, BIG), a);
    assert_int_equal(f.device.stream_marks, 0);
    fixture_end(&f);
}

static void a_handle_that_comes_back_may_be_another_devices(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    leave_block(&f, A);
    pool_stream_end(f.pool, A.handle);
    fake_set_current(FAKE_PRIMARY(1), 1);
    f.device.stream_generation++;
    must_alloc_on(&f, A, BIG);
    assert_int_equal(totals_of(&f, 1).live, BIG);
    fixture_end(&f);
}

/* ---- lists are used again ---- */

static void a_list_that_is_used_again_is_the_new_streams(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.passes_at_once = true;
    leave_block(&f, A);
    pool_stream_end(f.pool, A.handle);
    must_free_on(&f, B, must_alloc_on(&f, B, 4096)); /* finds A's block idle: A's list is free now */
    f.device.passes_at_once = false;
    fake_set_current(FAKE_CREATED, 0);
    for (unsigned i = 3; i < 5; i++) {
        leave_block(&f, STREAM(i));
        const struct pool *pool = async_pool(&f);
        const struct stream_list *list = streams_find(pool, (uint64_t)(uintptr_t)STREAM(i).handle);
        assert_int_equal(list->front->cell->stream, list->id);
        f.device.marked = f.device.marked_in = NULL;
        pool_stream_end(f.pool, STREAM(i).handle);
        assert_ptr_equal(f.device.marked, STREAM(i).handle);
        assert_ptr_equal(f.device.marked_in, FAKE_CREATED);
    }
    fixture_end(&f);
}

static void lists_that_streams_left_behind_are_used_again(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    for (unsigned way = 0; way < 5; way++) {
        for (unsigned i = 0; i < 20; i++) {
            const struct device_stream stream = STREAM(10 + 20 * way + i);
            const uint64_t a = leave_block(&f, stream);
            switch (way) {
            case 0: /* its last mark passes */
                pool_stream_end(f.pool, stream.handle);
                break;
            case 1: /* it has no block any more */
                must_alloc_on(&f, stream, BIG);
                pool_stream_end(f.pool, stream.handle);
                must_free_on(&f, B, a);
                break;
            case 2: /* nor when its mark passes */
                must_alloc_on(&f, B, 2 * BIG);
                must_alloc_on(&f, stream, BIG);
                pool_stream_end(f.pool, stream.handle);
                must_free_on(&f, B, a);
                break;
            case 3: /* it goes with its context */
                pool_streams_closing(f.pool, FAKE_PRIMARY(0));
                pool_streams_settled(f.pool, FAKE_PRIMARY(0), true);
                break;
            default: /* a fence covers it */
                must_free(&f, must_alloc_on(&f, B, 2 * BIG));
                must_alloc_on(&f, B, 4 * BIG);
                pool_stream_end(f.pool, stream.handle);
            }
            pass_all(&f);
            must_alloc_on(&f, B, 8 * BIG); /* asks */
        }
        assert_true(async_pool(&f)->list_count <= 8);
    }
    fixture_end(&f);
}

static void beyond_many_streams_an_empty_list_changes_hands(void **state) {
    (void)state;
    enum { COUNT = 100 };
    uint64_t blocks[COUNT];
    struct fixture f;
    begin(&f);
    const uint64_t first = leave_block(&f, ELSEWHERE);
    must_alloc_on(&f, ELSEWHERE, BIG);
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = leave_block(&f, STREAM(i + 1));
        assert_int_not_equal(blocks[i], first);
        for (unsigned k = 0; k < i; k++) assert_int_not_equal(blocks[i], blocks[k]);
    }
    assert_null(streams_find(async_pool(&f), 0x10));
    const uint64_t last = must_alloc_on(&f, ELSEWHERE, BIG);
    for (unsigned i = 0; i < COUNT; i++) assert_int_not_equal(last, blocks[i]);
    for (unsigned i = 0; i < COUNT; i++) assert_int_equal(must_alloc_on(&f, STREAM(i + 1), BIG), blocks[i]);
    pass_all(&f);
    must_alloc_on(&f, ELSEWHERE, BIG); /* asks */
    for (unsigned i = COUNT; i < 2 * COUNT; i++) must_free_on(&f, STREAM(i + 1), must_alloc_on(&f, STREAM(i + 1), BIG));
    assert_true(async_pool(&f)->list_count <= COUNT + 10);
    fixture_end(&f);
}

static void a_list_whose_context_ends_does_not_change_hands(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    leave_block(&f, ELSEWHERE);
    must_alloc_on(&f, ELSEWHERE, BIG);
    fake_set_current(FAKE_CREATED, 0);
    for (unsigned i = 1; i < 64; i++) leave_block(&f, STREAM(i));
    pool_streams_closing(f.pool, FAKE_PRIMARY(0));
    const uint64_t ordered = totals_of(&f, 0).ordered;
    for (unsigned i = 64; i < 70; i++) {
        const uint64_t a = leave_block(&f, STREAM(i));
        must_free_on(&f, STREAM(i), must_alloc_on(&f, STREAM(i), BIG));
        assert_int_equal(must_alloc_on(&f, STREAM(i), BIG), a);
    }
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    assert_int_equal(totals_of(&f, 0).ordered, ordered);
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), true);
    fixture_end(&f);
}

static void after_a_reset_streams_have_lists_of_their_own(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    f.device.passes_at_once = true;
    must_free_on(&f, A, must_alloc(&f, BIG));
    must_free_on(&f, B, must_alloc(&f, BIG));
    pool_stream_end(f.pool, A.handle);
    must_alloc(&f, BIG);
    f.device.passes_at_once = false;
    must_free_on(&f, B, must_alloc(&f, BIG)); /* ordered, and marked, when the context goes */
    must_alloc(&f, 2 * BIG);
    fake_reset(&f.device, 0, false);
    pool_context_close(f.pool, 0, NULL);
    pool_context_settle(f.pool, 0, NULL);
    assert_pool_whole(&f);
    fake_reset(&f.device, 0, true);
    const unsigned marks = f.device.stream_marks;
    uint64_t blocks[3];
    for (unsigned i = 0; i < 3; i++) blocks[i] = must_alloc(&f, BIG);
    for (unsigned i = 0; i < 3; i++) must_free_on(&f, STREAM(i + 1), blocks[i]);
    must_alloc(&f, 2 * BIG);
    assert_int_equal(f.device.stream_marks, marks + 3);
    fixture_end(&f);
}

/* ---- marks ---- */

static void one_mark_of_a_stream_is_under_way(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc_on(&f, A, BIG), b = must_alloc_on(&f, A, BIG);
    must_free_on(&f, A, a);
    must_alloc_on(&f, B, BIG);
    assert_int_equal(f.device.stream_marks, 1);
    must_free_on(&f, A, b);
    must_alloc_on(&f, B, BIG);
    assert_int_equal(f.device.stream_marks, 1);
    pool_capture_begin(f.pool); /* no recording is left under way */
    pool_capture_end(f.pool);
    fixture_end(&f);
}

static void a_stream_is_not_marked_for_itself_or_for_nothing(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    leave_block(&f, A);
    must_alloc_on(&f, A, 2 * BIG);
    assert_int_equal(f.device.stream_marks, 0);
    must_alloc_on(&f, A, BIG);
    must_alloc_on(&f, B, BIG);
    assert_int_equal(f.device.stream_marks, 0);
    fixture_end(&f);
}

static void sixty_four_frees_later_a_stream_is_marked_again(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_free_on(&f, B, must_alloc_on(&f, B, 4096));
    for (unsigned i = 0; i < 64; i++) must_free_on(&f, A, must_alloc_on(&f, A, 4096));
    const unsigned marks = f.device.stream_marks;
    pass_all(&f);
    must_alloc_on(&f, B, BIG); /* asks */
    for (unsigned i = 0; i < 63; i++) must_free_on(&f, A, must_alloc_on(&f, A, 4096));
    assert_int_equal(f.device.stream_marks, marks);
    must_free_on(&f, A, must_alloc_on(&f, A, 4096));
    assert_int_equal(f.device.stream_marks, marks + 1);
    fixture_end(&f);
}

static void a_mark_that_cannot_be_recorded_is_tried_again(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = leave_block(&f, A);
    f.device.record_fails_with = 999;
    must_alloc_on(&f, B, BIG);
    f.device.record_fails_with = 0;
    must_alloc_on(&f, B, BIG);
    assert_int_equal(f.device.stream_marks, 1);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    fixture_end(&f);
}

static void a_mark_that_fails_proves_nothing_and_another_is_recorded(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = leave_block(&f, A);
    must_alloc_on(&f, B, BIG);
    f.device.query_fails_with = 700;
    assert_int_not_equal(must_alloc_on(&f, B, BIG), a);
    f.device.query_fails_with = 0;
    assert_int_not_equal(must_alloc_on(&f, B, BIG), a);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    fixture_end(&f);
}

static void fail_once(void *device) {
    struct fake_device *fake = device;
    fake->query_fails_with = fake->queries == 1 ? 700 : 0;
}

static void a_dead_streams_handle_is_not_marked(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = leave_block(&f, A);
    pool_stream_end(f.pool, A.handle);
    f.device.during_query = fail_once;
    f.device.during_arg = &f.device;
    pool_trim(f.pool, 0, UINT64_MAX / 2); /* asks about its last mark, and then has to do without */
    assert_int_equal(f.device.stream_marks, 1);
    assert_int_equal(f.device.fences, 1);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    fixture_end(&f);
}

static void nothing_is_recorded_for_what_is_recorded_already(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc_on(&f, PER_THREAD, BIG), b = must_alloc_on(&f, PER_THREAD, BIG);
    must_free_on(&f, PER_THREAD, a);
    must_free(&f, b);
    for (unsigned i = 0; i < 3; i++) must_alloc_on(&f, A, BIG);
    assert_int_equal(f.device.fences, 1);
    const uint64_t c = must_alloc_on(&f, A, BIG);
    must_free(&f, c); /* stands behind b, which is covered */
    for (unsigned i = 0; i < 3; i++) must_alloc_on(&f, A, BIG);
    assert_int_equal(f.device.fences, 2);
    assert_int_equal(f.device.stream_marks, 0);
    leave_block(&f, B);
    pool_stream_end(f.pool, B.handle);
    for (unsigned i = 0; i < 3; i++) must_alloc_on(&f, A, BIG);
    assert_int_equal(f.device.stream_marks, 1);
    assert_int_equal(f.device.fences, 2);
    fixture_end(&f);
}

static void an_older_proof_takes_nothing_back(void **state) {
    (void)state;
    struct fences fences = {0};
    fences_prove(&fences, 5);
    fences_prove(&fences, 3);
    assert_int_equal(fences.passed, 5);
}

/* ---- ends ---- */

static void a_stream_that_was_marked_is_not_marked_again_at_its_end(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = leave_block(&f, A);
    must_alloc_on(&f, B, BIG);
    pool_stream_end(f.pool, A.handle);
    assert_int_equal(f.device.stream_marks, 1);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    fixture_end(&f);
}

static void what_was_freed_since_the_last_mark_gets_another_at_the_end(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc_on(&f, A, BIG), b = must_alloc_on(&f, A, BIG);
    must_free_on(&f, A, a);
    must_alloc_on(&f, B, BIG);
    must_free_on(&f, A, b);
    pool_stream_end(f.pool, A.handle);
    assert_int_equal(f.device.stream_marks, 2);
    assert_int_equal(totals_of(&f, 0).waiting, 0);
    pass_all(&f);
    const uint64_t c = must_alloc_on(&f, B, BIG), d = must_alloc_on(&f, B, BIG);
    assert_true((c == a && d == b) || (c == b && d == a));
    fixture_end(&f);
}

static void what_a_fence_covers_is_not_marked_at_the_end(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = leave_block(&f, A);
    for (unsigned i = 0; i < 64; i++) must_free(&f, must_alloc_on(&f, B, 4096));
    assert_int_equal(f.device.fences, 1);
    const unsigned marks = f.device.stream_marks;
    pool_stream_end(f.pool, A.handle);
    assert_int_equal(f.device.stream_marks, marks);
    assert_int_equal(totals_of(&f, 0).waiting, 64 * 4096);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    fixture_end(&f);
}

static void other_streams_live_on(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    leave_block(&f, A);
    const uint64_t b = leave_block(&f, B);
    fake_set_current(FAKE_CREATED, 0);
    const uint64_t c = leave_block(&f, STREAM(3));
    fake_set_current(FAKE_PRIMARY(0), 0);
    pool_stream_end(f.pool, A.handle);
    assert_int_equal(must_alloc_on(&f, B, BIG), b);
    must_free_on(&f, B, b);
    pool_context_streams_end(f.pool, FAKE_CREATED);
    f.device.stream_generation++;
    assert_int_not_equal(must_alloc_on(&f, STREAM(3), BIG), c);
    f.device.stream_generation--;
    pool_memory_pool_set(f.pool); /* what threads know is asked anew */
    assert_int_equal(must_alloc_on(&f, B, BIG), b);
    fixture_end(&f);
}

static void before_a_stream_goes_what_waits_is_fenced(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = leave_block(&f, A);
    f.device.stream_record_fails_with = 999;
    pool_stream_end(f.pool, A.handle);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_equal(f.device.fences, 1);
    pool_stream_end(f.pool, B.handle);
    assert_int_equal(f.device.fences, 1);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    fixture_end(&f);
}

static void while_a_context_ends_its_streams_are_left_alone(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc_on(&f, A, BIG), b = must_alloc_on(&f, A, BIG), c = must_alloc_on(&f, A, BIG);
    must_free_on(&f, A, a);
    pool_streams_closing(f.pool, FAKE_PRIMARY(0));
    fake_set_current(FAKE_CREATED, 0);
    must_alloc_on(&f, B, BIG);
    assert_int_equal(f.device.stream_marks, 0);
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), false);
    must_alloc_on(&f, B, BIG);
    assert_int_equal(f.device.stream_marks, 1);

    pool_streams_closing(f.pool, FAKE_PRIMARY(0));
    const unsigned queries = f.device.queries;
    must_alloc_on(&f, B, BIG);
    assert_int_equal(f.device.queries, queries);
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_free_on(&f, A, b); /* belongs to no list that is about to go */
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_equal(totals_of(&f, 0).ordered, BIG);
    pool_streams_settled(f.pool, FAKE_PRIMARY(1), true); /* another */
    assert_int_equal(totals_of(&f, 0).ordered, BIG);
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), false);
    must_free_on(&f, A, c);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    assert_int_equal(totals_of(&f, 0).ordered, 2 * BIG);
    pool_streams_closing(f.pool, FAKE_PRIMARY(1));
    must_free_on(&f, A, must_alloc_on(&f, A, BIG));
    assert_int_equal(totals_of(&f, 0).ordered, 2 * BIG);
    pool_streams_settled(f.pool, FAKE_PRIMARY(1), true);
    fixture_end(&f);
}

static void a_mark_goes_with_its_context(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    leave_block(&f, A);
    must_alloc_on(&f, B, BIG);
    const unsigned drops = f.device.drops;
    pool_streams_closing(f.pool, FAKE_PRIMARY(0));
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), true);
    assert_int_equal(f.device.drops, drops + 1);
    assert_int_equal(totals_of(&f, 0).waiting, BIG);
    fixture_end(&f);
}

static void a_list_that_was_left_behind_does_not_end_with_a_context(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_alloc_on(&f, A, BIG);
    must_free_on(&f, A, must_alloc_on(&f, A, 512));
    f.device.passes_at_once = true;
    pool_stream_end(f.pool, A.handle);
    must_alloc_on(&f, B, 2 * BIG);
    f.device.passes_at_once = false;
    pool_streams_closing(f.pool, FAKE_PRIMARY(0));
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), true);
    uint64_t blocks[3];
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = leave_block(&f, STREAM(3 + i));
        for (unsigned k = 0; k < i; k++) assert_int_not_equal(blocks[i], blocks[k]);
    }
    for (unsigned i = 0; i < 3; i++) assert_int_equal(must_alloc_on(&f, STREAM(3 + i), BIG), blocks[i]);
    fixture_end(&f);
}

/* ---- meanwhile ---- */

/* What happens once inside a call of the device, in the thread that makes it or in another. */
static struct {
    struct fixture *f;
    void (*what)(struct fixture *f);
    bool in_thread, done;
    pthread_t thread;
    atomic_bool begun, ended, seen_ended;
} other;

static void *run_other(void *unused) {
    (void)unused;
    atomic_store(&other.begun, true);
    other.what(other.f);
    atomic_store(&other.ended, true);
    return NULL;
}

static void meanwhile(void *unused) {
    (void)unused;
    if (other.done) return;
    other.done = true;
    if (!other.in_thread) {
        other.what(other.f);
        return;
    }
    pthread_create(&other.thread, NULL, run_other, NULL);
    const struct timespec pause = {0, 50000000};
    nanosleep(&pause, NULL);
    atomic_store(&other.seen_ended, atomic_load(&other.ended));
}

static void prepare(struct fixture *f, void (*what)(struct fixture *f), bool in_thread) {
    other.f = f;
    other.what = what;
    other.in_thread = in_thread;
    other.done = false;
    atomic_store(&other.begun, false);
    atomic_store(&other.ended, false);
    atomic_store(&other.seen_ended, false);
}

/* It waited until the call returned. */
static void assert_it_waited(void) {
    assert_true(other.done);
    pthread_join(other.thread, NULL);
    assert_true(atomic_load(&other.ended));
    assert_false(atomic_load(&other.seen_ended));
}

static uint64_t held;
static void free_held(struct fixture *f) {
    must_free_on(f, A, held);
}

static void a_free_during_the_recording_belongs_to_the_next_mark(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc_on(&f, A, BIG);
    held = must_alloc_on(&f, A, BIG);
    must_free_on(&f, A, a);
    prepare(&f, free_held, false);
    f.device.during_record = meanwhile;
    must_alloc_on(&f, B, BIG);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    assert_int_not_equal(must_alloc_on(&f, B, BIG), held);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), held);
    fixture_end(&f);
}

static void miss(struct fixture *f) {
    must_alloc_on(f, B, BIG);
}

static void two_threads_do_not_mark_a_stream_at_once(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = leave_block(&f, A);
    prepare(&f, miss, false);
    f.device.during_record = meanwhile;
    must_alloc_on(&f, B, BIG);
    assert_true(other.done);
    assert_int_equal(f.device.stream_marks, 1);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    fixture_end(&f);
}

static void two_threads_do_not_ask_about_one_mark_at_once(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    leave_block(&f, A);
    must_alloc_on(&f, B, BIG);
    pass_all(&f);
    prepare(&f, miss, false);
    f.device.during_query = meanwhile;
    const unsigned queries = f.device.queries;
    must_alloc_on(&f, B, BIG);
    assert_true(other.done);
    assert_int_equal(f.device.queries, queries + 1);
    fixture_end(&f);
}

static void two_threads_do_not_ask_about_one_fence_at_once(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    must_free(&f, must_alloc_on(&f, A, BIG));
    must_alloc_on(&f, B, BIG);
    assert_int_equal(f.device.fences, 1);
    pass_all(&f);
    prepare(&f, miss, false);
    f.device.during_query = meanwhile;
    const unsigned queries = f.device.queries;
    must_alloc_on(&f, B, BIG);
    assert_true(other.done);
    assert_int_equal(f.device.queries, queries + 2); /* for the device, and for all */
    fixture_end(&f);
}

static void two_threads_do_not_record_fences_at_once(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t a = must_alloc_on(&f, A, BIG);
    must_free(&f, a);
    prepare(&f, miss, false);
    f.device.during_record = meanwhile;
    must_alloc_on(&f, B, BIG);
    assert_true(other.done);
    assert_int_equal(f.device.fences, 1);
    pool_capture_begin(f.pool); /* no recording is left under way */
    pool_capture_end(f.pool);
    pass_all(&f);
    assert_int_equal(must_alloc_on(&f, B, BIG), a);
    fixture_end(&f);
}

static void end_a(struct fixture *f) {
    pool_stream_end(f->pool, A.handle);
}

static void a_stream_ends_when_nobody_is_in_the_driver_with_it(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    leave_block(&f, A);
    prepare(&f, end_a, true);
    f.device.during_record = meanwhile;
    must_alloc_on(&f, B, BIG);
    assert_it_waited();
    fixture_end(&f);
}

static void close_streams(struct fixture *f) {
    pool_streams_closing(f->pool, FAKE_PRIMARY(0));
}

static void a_context_ends_when_nobody_is_in_the_driver_with_its_streams(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    leave_block(&f, A);
    fake_set_current(FAKE_CREATED, 0); /* which stays */
    prepare(&f, close_streams, true);
    f.device.during_record = meanwhile;
    must_alloc_on(&f, B, BIG);
    assert_it_waited();
    pool_streams_settled(f.pool, FAKE_PRIMARY(0), true);
    fixture_end(&f);
}

static void reset(struct fixture *f) {
    fake_reset(&f->device, 0, false);
    pool_context_close(f->pool, 0, NULL);
    pool_context_settle(f->pool, 0, NULL);
}

static void blocks_are_forgotten_when_no_mark_is_being_recorded(void **state) {
    (void)state;
    enum { COUNT = 64 };
    uint64_t blocks[COUNT];
    struct fixture f;
    begin(&f);
    for (unsigned i = 0; i < COUNT; i++) blocks[i] = must_alloc(&f, 4096);
    must_free_on(&f, B, must_alloc(&f, 4096));
    prepare(&f, reset, true);
    f.device.during_record = meanwhile;
    for (unsigned i = 0; i < COUNT; i++) must_free_on(&f, A, blocks[i]);
    assert_it_waited();
    fixture_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_default_streams_have_each_two_names),
    cmocka_unit_test(a_default_stream_is_that_of_the_current_context),
    cmocka_unit_test(streams_whose_handles_share_a_place_are_told_apart),
    cmocka_unit_test(a_stream_whose_end_nobody_tells_is_identified_each_time),
    cmocka_unit_test(a_handle_that_comes_back_may_be_another_devices),
    cmocka_unit_test(a_list_that_is_used_again_is_the_new_streams),
    cmocka_unit_test(lists_that_streams_left_behind_are_used_again),
    cmocka_unit_test(beyond_many_streams_an_empty_list_changes_hands),
    cmocka_unit_test(a_list_whose_context_ends_does_not_change_hands),
    cmocka_unit_test(after_a_reset_streams_have_lists_of_their_own),
    cmocka_unit_test(one_mark_of_a_stream_is_under_way),
    cmocka_unit_test(a_stream_is_not_marked_for_itself_or_for_nothing),
    cmocka_unit_test(sixty_four_frees_later_a_stream_is_marked_again),
    cmocka_unit_test(a_mark_that_cannot_be_recorded_is_tried_again),
    cmocka_unit_test(a_mark_that_fails_proves_nothing_and_another_is_recorded),
    cmocka_unit_test(a_dead_streams_handle_is_not_marked),
    cmocka_unit_test(nothing_is_recorded_for_what_is_recorded_already),
    cmocka_unit_test(an_older_proof_takes_nothing_back),
    cmocka_unit_test(a_stream_that_was_marked_is_not_marked_again_at_its_end),
    cmocka_unit_test(what_was_freed_since_the_last_mark_gets_another_at_the_end),
    cmocka_unit_test(what_a_fence_covers_is_not_marked_at_the_end),
    cmocka_unit_test(other_streams_live_on),
    cmocka_unit_test(before_a_stream_goes_what_waits_is_fenced),
    cmocka_unit_test(while_a_context_ends_its_streams_are_left_alone),
    cmocka_unit_test(a_mark_goes_with_its_context),
    cmocka_unit_test(a_list_that_was_left_behind_does_not_end_with_a_context),
    cmocka_unit_test(a_free_during_the_recording_belongs_to_the_next_mark),
    cmocka_unit_test(two_threads_do_not_mark_a_stream_at_once),
    cmocka_unit_test(two_threads_do_not_ask_about_one_mark_at_once),
    cmocka_unit_test(two_threads_do_not_ask_about_one_fence_at_once),
    cmocka_unit_test(two_threads_do_not_record_fences_at_once),
    cmocka_unit_test(a_stream_ends_when_nobody_is_in_the_driver_with_it),
    cmocka_unit_test(a_context_ends_when_nobody_is_in_the_driver_with_its_streams),
    cmocka_unit_test(blocks_are_forgotten_when_no_mark_is_being_recorded),
};
TESTING_MAIN(tests)
