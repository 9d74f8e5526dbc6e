/* SPDX-License-Identifier: MIT
 *
 * The contexts that live, and marks behind their work, over a driver that keeps count: what a fence covers, what the
 * end of a context does to it, who excludes whom, and that nothing is left behind where something fails.
 */
#include "mock_driver.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

static struct device_fence *must_record(void) {
    struct device_fence *fence = NULL;
    assert_int_equal(ops->fence_record(ops->self, &fence), DEVICE_OK);
    assert_non_null(fence);
    assert_ptr_equal(mock_current(), CONTEXT(0));
    assert_int_equal(mock_depth(), 0);
    return fence;
}

static int query(struct device_fence *fence) {
    return ops->fence_query(ops->self, fence, -1);
}

static void drop(struct device_fence *fence) {
    ops->fence_drop(ops->self, fence);
}

static void know(int number, enum live_kind kind) {
    mock.alive[number] = true;
    assert_true(device_driver_context_known(&device, mock_context(number), kind));
}

/* ---- what a fence covers ---- */

static void a_fence_covers_every_live_context(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    know(5, LIVE_CREATED);
    struct device_fence *fence = must_record();
    static const int covered[] = {0, 1, 4, 5};
    for (size_t i = 0; i < 4; i++) assert_int_equal(mock_recorded(covered[i]), 1);
    assert_int_equal(mock.records, 4);
    /* The last to be done decides, whichever it is. */
    for (size_t last = 0; last < 4; last++) {
        struct device_fence *another = must_record();
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(query(another), DEVICE_NOT_READY);
            if (i != last) mock_complete(covered[i]);
        }
        assert_int_equal(query(another), DEVICE_NOT_READY);
        mock_complete(covered[last]);
        assert_int_equal(query(another), DEVICE_OK);
        assert_int_equal(query(another), DEVICE_OK);
        drop(another);
    }
    mock_complete(-1);
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
}

static void primary_contexts_that_came_to_life_unseen_are_found(void **state) {
    (void)state;
    mock_begin(NULL);
    drop(must_record());
    assert_int_equal(mock_recorded(0), 1);
    assert_int_equal(mock_recorded(1), 1);
    assert_int_equal(mock_recorded(2), 0);
    mock.active[2] = true;
    drop(must_record());
    assert_int_equal(mock_recorded(2), 1);
    for (int i = 0; i < MOCK_DEVICES; i++) assert_int_equal(mock.retained[i], 0);
}

static void a_green_context_is_covered_by_its_primary_one(void **state) {
    (void)state;
    mock_begin(NULL);
    know(6, LIVE_GREEN);
    drop(must_record());
    assert_int_equal(mock_recorded(0), 1);
    assert_int_equal(mock_recorded(6), 0);
    /* No event is made in it. */
    struct device_fence *mark = NULL;
    assert_int_equal(
        ops->fence_record_stream(ops->self, mock_context(6), (struct device_stream){STREAM(1), false}, &mark),
        DEVICE_NOT_SUPPORTED);
    assert_null(mark);
    assert_int_equal(mock.events_made, 2);
    assert_true(device_driver_context_green(&device, CONTEXT(6)));
    for (int i = 0; i < 2; i++) assert_false(device_driver_context_green(&device, CONTEXT(i)));
    mock_end_context(6);
    assert_false(device_driver_context_green(&device, CONTEXT(6)));
}

static void a_stream_is_marked_in_its_own_context(void **state) {
    (void)state;
    mock_begin(NULL);
    know(0, LIVE_PRIMARY);
    know(4, LIVE_CREATED);
    static const struct {
        struct device_stream called;
        CUstream recorded;
    } names[] = {
        {{STREAM(1), false}, STREAM(1)}, {{NULL, false}, CU_STREAM_LEGACY}, {{NULL, true}, CU_STREAM_PER_THREAD}};
    for (int number = 0; number <= 4; number += 4) {
        for (size_t i = 0; i < 3; i++) {
            struct device_fence *mark = NULL;
            assert_int_equal(ops->fence_record_stream(ops->self, mock_context(number), names[i].called, &mark), 0);
            assert_int_equal(mock_depth(), 0);
            struct mock_event *event = &mock.events[number / 4];
            assert_ptr_equal(event->context, CONTEXT(number));
            assert_ptr_equal(event->stream, names[i].recorded);
            assert_false(event->of_context);
            assert_int_equal(query(mark), DEVICE_NOT_READY);
            event->done = true;
            assert_int_equal(query(mark), DEVICE_OK);
            drop(mark);
        }
    }
    struct device_fence *mark = NULL;
    assert_int_equal(ops->fence_record_stream(ops->self, mock_context(5), names[0].called, &mark),
                     DEVICE_INVALID_CONTEXT);
    assert_null(mark);
}

static void work_of_a_device_without_access_is_not_asked_about(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED); /* of device 0 */
    struct device_fence *fence = must_record();
    assert_int_equal(ops->fence_query(ops->self, fence, 0), DEVICE_NOT_READY);
    mock_complete(0);
    assert_int_equal(ops->fence_query(ops->self, fence, 0), DEVICE_NOT_READY);
    mock_complete(4);
    assert_int_equal(ops->fence_query(ops->self, fence, 0), DEVICE_OK);
    assert_int_equal(ops->fence_query(ops->self, fence, 1), DEVICE_NOT_READY);
    assert_int_equal(query(fence), DEVICE_NOT_READY);

    /* What was recorded before the access was given counts too. */
    device_driver_access_given(&device, 0, 1);
    assert_int_equal(ops->fence_query(ops->self, fence, 0), DEVICE_NOT_READY);
    mock_complete(1);
    assert_int_equal(ops->fence_query(ops->self, fence, 0), DEVICE_OK);
    assert_int_equal(ops->fence_query(ops->self, fence, 1), DEVICE_OK);
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
    /* Access has a direction, and there may be more devices than are told apart. */
    fence = must_record();
    mock_complete(1);
    assert_int_equal(ops->fence_query(ops->self, fence, 1), DEVICE_OK);
    device_driver_access_given(&device, -1, 0);
    assert_int_equal(ops->fence_query(ops->self, fence, 1), DEVICE_NOT_READY);
    assert_int_equal(ops->fence_query(ops->self, fence, 64), DEVICE_NOT_READY);
    device_driver_access_given(&device, 0, 64);
    device_driver_access_given(&device, 0, -1);
    mock_complete(-1);
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
}

static void contexts_that_cannot_reach_it_leave_a_context_alone(void **state) {
    (void)state;
    mock_begin(NULL);
    know(0, LIVE_PRIMARY);
    know(1, LIVE_PRIMARY);
    for (int i = 0; i < 2; i++) assert_true(ops->context_alone(ops->self, mock_context(i)));
    device_driver_access_given(&device, 0, 1);
    assert_false(ops->context_alone(ops->self, mock_context(0)));
    assert_true(ops->context_alone(ops->self, mock_context(1)));
    mock_end_context(1);
    assert_true(ops->context_alone(ops->self, mock_context(0)));
}

static void a_driver_without_context_events_has_no_fences(void **state) {
    (void)state;
    struct device_fence *fence = NULL;
    static const char *const names[] = {"cuCtxRecordEvent", "cuEventCreate", "cuEventQuery"};
    for (size_t i = 0; i < 3; i++) {
        const char *const missing[] = {names[i], NULL};
        mock_begin(missing);
        assert_false(ops->fences_supported(ops->self));
        assert_int_equal(ops->fence_record(ops->self, &fence), DEVICE_NOT_SUPPORTED);
        assert_true(device_driver_context_known(&device, mock_context(0), LIVE_PRIMARY));
        const struct device_stream stream = {STREAM(1), false};
        const int code = ops->fence_record_stream(ops->self, mock_context(0), stream, &fence);
        assert_int_equal(code, i == 0 ? DEVICE_OK : DEVICE_NOT_SUPPORTED);
        if (code == DEVICE_OK) drop(fence);
    }
    mock_begin(NULL);
    assert_true(ops->fences_supported(ops->self));
    static const char *const no_record[] = {"cuEventRecord", NULL};
    mock_begin(no_record);
    assert_int_equal(ops->fence_record_stream(ops->self, mock_context(0), (struct device_stream){0}, &fence),
                     DEVICE_NOT_SUPPORTED);
}

static void without_a_count_of_devices_what_is_known_is_covered(void **state) {
    (void)state;
    static const char *const missing[] = {"cuDeviceGetCount", NULL};
    mock_begin(missing);
    know(1, LIVE_FOUND);
    drop(must_record());
    assert_int_equal(mock_recorded(0), 0);
    assert_int_equal(mock_recorded(1), 1);
}

static void a_context_alone_is_known_as_such(void **state) {
    (void)state;
    mock_begin(NULL);
    know(0, LIVE_FOUND);
    assert_true(ops->context_alone(ops->self, mock_context(0)));
    know(0, LIVE_PRIMARY);
    assert_true(ops->context_alone(ops->self, mock_context(0)));
    know(6, LIVE_GREEN); /* no memory or work that its primary context has not */
    assert_true(ops->context_alone(ops->self, mock_context(0)));
    know(7, LIVE_FOUND);
    assert_false(ops->context_alone(ops->self, mock_context(0)));
    know(7, LIVE_GREEN); /* it was current before it was known to be one */
    assert_true(ops->context_alone(ops->self, mock_context(0)));
    know(4, LIVE_CREATED);
    know(4, LIVE_FOUND);
    assert_false(ops->context_alone(ops->self, mock_context(0)));
    mock_end_context(6);
    mock_end_context(7);
    assert_false(ops->context_alone(ops->self, mock_context(0)));
    mock_end_context(4);
    assert_true(ops->context_alone(ops->self, mock_context(0)));
}

static void contexts_whose_creation_was_seen_are_known(void **state) {
    (void)state;
    mock_begin(NULL);
    know(0, LIVE_PRIMARY);
    know(4, LIVE_CREATED);
    know(5, LIVE_FOUND);
    know(6, LIVE_GREEN);
    assert_true(ops->context_created(ops->self, mock_context(4)));
    assert_true(ops->context_alive(ops->self, mock_context(4)));
    for (int i = 5; i < 8; i++) {
        assert_false(ops->context_created(ops->self, mock_context(i)));
        assert_false(ops->context_alive(ops->self, mock_context(i)));
    }
    assert_false(ops->context_created(ops->self, mock_context(0)));
    assert_true(ops->context_alive(ops->self, mock_context(0)));
    const uint64_t serial = device_driver_context_serial(&device, CONTEXT(4));
    assert_true(serial > 0);
    assert_int_equal(device_driver_context_serial(&device, CONTEXT(8)), 0);
    mock_end_context(4);
    assert_false(ops->context_created(ops->self, mock_context(4)));
    assert_false(ops->context_alive(ops->self, mock_context(4)));
    assert_int_equal(device_driver_context_serial(&device, CONTEXT(4)), 0);
    know(4, LIVE_CREATED);
    assert_true(device_driver_context_serial(&device, CONTEXT(4)) > serial);
}

/* A handle that is handed out anew was given up before, seen or not. */
static void a_created_context_of_a_green_ones_handle_is_a_context_of_its_own(void **state) {
    (void)state;
    mock_begin(NULL);
    know(0, LIVE_PRIMARY);
    know(6, LIVE_GREEN);
    const uint64_t serial = device_driver_context_serial(&device, CONTEXT(6));
    know(6, LIVE_CREATED);
    assert_true(ops->context_created(ops->self, mock_context(6)));
    assert_true(device_driver_context_serial(&device, CONTEXT(6)) > serial);
    assert_false(ops->context_alone(ops->self, mock_context(0)));
    drop(must_record());
    assert_int_equal(mock_recorded(6), 1);
    mock_end_context(6);
    mock_end_context(1);
    assert_true(ops->context_alone(ops->self, mock_context(0)));
    know(4, LIVE_CREATED);
    assert_false(ops->context_alone(ops->self, mock_context(0)));
}

static void a_created_context_is_kept_when_the_last_of_its_handle_is_settled_late(void **state) {
    (void)state;
    mock_begin(NULL);
    know(0, LIVE_PRIMARY);
    know(4, LIVE_CREATED);
    struct device_fence *fence = must_record();
    mock_complete(0);
    mock_complete(1);
    const uint64_t serial = device_driver_context_serial(&device, CONTEXT(4));
    device_driver_stream_created(&device, STREAM(1), mock_context(4));
    device_driver_context_closing(&device, CONTEXT(4));
    for (unsigned i = 0; i < MOCK_EVENTS; i++)
        if (mock.events[i].context == CONTEXT(4)) mock.events[i].dead = true;
    know(4, LIVE_CREATED); /* by another thread, while the first one returns from the driver */
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
    struct device_stream_identity identity;
    mock.stream_ids[1] = 0;
    assert_int_equal(ops->stream_identify(ops->self, (struct device_stream){STREAM(1), false}, &identity),
                     DEVICE_INVALID_HANDLE);
    device_driver_stream_created(&device, STREAM(2), mock_context(4));
    device_driver_context_settled(&device, CONTEXT(4), true);
    assert_true(ops->context_created(ops->self, mock_context(4)));
    assert_true(device_driver_context_serial(&device, CONTEXT(4)) > serial);
    assert_int_equal(ops->stream_identify(ops->self, (struct device_stream){STREAM(2), false}, &identity), 0);
    assert_true(identity.lasting);
    drop(must_record());
    assert_int_equal(mock_recorded(4), 1);
    assert_false(ops->context_alone(ops->self, mock_context(0)));
    mock_end_context(4);
    mock_end_context(1);
    assert_true(ops->context_alone(ops->self, mock_context(0)));
}

/* ---- events are used again ---- */

static void no_event_is_created_after_the_first_ones(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    for (int round = 0; round < 50; round++) {
        struct device_fence *fences[2] = {must_record(), must_record()}, *mark;
        assert_int_equal(
            ops->fence_record_stream(ops->self, mock_context(4), (struct device_stream){STREAM(1), false}, &mark), 0);
        assert_int_equal(query(fences[0]), DEVICE_NOT_READY); /* an event of the round before is done */
        assert_int_equal(query(fences[1]), DEVICE_NOT_READY);
        assert_int_equal(query(mark), DEVICE_NOT_READY);
        mock_complete(-1);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(query(fences[i]), DEVICE_OK);
            drop(fences[i]);
        }
        assert_int_equal(query(mark), DEVICE_OK);
        drop(mark);
        assert_int_equal(mock.events_made, 7);
    }
}

static void fences_grow_with_the_contexts(void **state) {
    (void)state;
    mock_begin(NULL);
    drop(must_record());
    for (int i = 3; i < MOCK_CONTEXTS; i++) know(i, LIVE_CREATED);
    struct device_fence *fence = must_record();
    for (int i = 0; i < MOCK_CONTEXTS; i++) assert_int_equal(mock_recorded(i), i != 2);
    mock_complete(-1);
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
    for (int i = 3; i < MOCK_CONTEXTS; i++) mock_end_context(i);
    mock.records = 0;
    drop(must_record());
    assert_int_equal(mock.records, 2);
}

/* ---- captures ---- */

static void questions_are_asked_in_relaxed_mode_and_it_is_put_back(void **state) {
    (void)state;
    static const char *const missing[] = {"cuThreadExchangeStreamCaptureMode", NULL};
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    mock_begin(NULL);
    struct device_fence *fence = must_record();
    for (size_t i = 0; i < 3; i++) {
        *mock_mode() = modes[i];
        assert_int_equal(query(fence), DEVICE_NOT_READY); /* the driver checks the mode */
        assert_int_equal(*mock_mode(), modes[i]);
    }
    assert_int_equal(mock.queries, 3);
    mock.failing = "cuEventQuery";
    mock.failing_code = CUDA_ERROR_LAUNCH_FAILED;
    *mock_mode() = CU_STREAM_CAPTURE_MODE_GLOBAL;
    assert_int_equal(query(fence), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(*mock_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
    drop(fence);

    mock_begin(missing);
    *mock_mode() = CU_STREAM_CAPTURE_MODE_RELAXED;
    fence = must_record();
    mock_complete(-1);
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
}

/* ---- the end of contexts ---- */

static void a_context_that_is_gone_counts_as_passed(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    struct device_fence *fence = must_record(), *mark;
    assert_int_equal(
        ops->fence_record_stream(ops->self, mock_context(4), (struct device_stream){STREAM(1), false}, &mark), 0);
    mock_complete(0);
    mock_complete(1);
    assert_int_equal(query(fence), DEVICE_NOT_READY);
    assert_int_equal(query(mark), DEVICE_NOT_READY);
    mock_end_context(4); /* its events are dead: the driver does not forgive a question */
    const unsigned asked = mock.queries;
    assert_int_equal(query(fence), DEVICE_OK);
    assert_int_equal(query(mark), DEVICE_OK);
    assert_int_equal(mock.queries, asked);
    drop(fence);
    drop(mark);

    /* Its handle comes back, and has nothing of the events of before. */
    know(4, LIVE_CREATED);
    const unsigned made = mock.events_made;
    fence = must_record();
    assert_int_equal(mock.events_made, made + 1);
    assert_int_equal(mock_recorded(4), 1);
    mock_complete(-1);
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
}

static void the_others_still_decide_when_a_context_is_gone(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    struct device_fence *fence = must_record();
    mock_complete(0);
    mock_end_context(4);
    assert_int_equal(query(fence), DEVICE_NOT_READY);
    mock_end_context(0);
    mock_make_current(CONTEXT(1));
    assert_int_equal(query(fence), DEVICE_NOT_READY);
    mock_complete(1);
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
}

static void fences_outlive_the_context_in_any_order(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    struct device_fence *fences[3] = {must_record(), must_record(), must_record()};
    mock_complete(-1);
    drop(fences[1]); /* its event is left over, and goes with the context */
    mock_end_context(4);
    drop(fences[0]);
    assert_int_equal(query(fences[2]), DEVICE_OK);
    drop(fences[2]);
    mock.records = 0;
    drop(must_record());
    assert_int_equal(mock.records, 2);
}

static void while_a_context_ends_nothing_is_recorded_or_asked(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    struct device_fence *fence = must_record(), *mark, *other = NULL;
    const struct device_stream stream = {STREAM(1), false};
    assert_int_equal(ops->fence_record_stream(ops->self, mock_context(1), stream, &mark), 0);
    mock_complete(-1);

    device_driver_context_closing(&device, CONTEXT(4));
    const unsigned records = mock.records, queries = mock.queries;
    assert_int_equal(ops->fence_record(ops->self, &other), DEVICE_NOT_READY);
    assert_int_equal(ops->fence_record_stream(ops->self, mock_context(4), stream, &other), DEVICE_NOT_READY);
    assert_null(other);
    assert_int_equal(query(fence), DEVICE_NOT_READY);
    assert_int_equal(mock.records, records);
    assert_int_equal(mock.queries, queries);
    /* Others go on. */
    assert_int_equal(query(mark), DEVICE_OK);
    drop(mark);
    assert_int_equal(ops->fence_record_stream(ops->self, mock_context(0), stream, &mark), 0);
    drop(mark);

    /* The driver refused to destroy it. */
    device_driver_context_settled(&device, CONTEXT(4), false);
    assert_true(ops->context_created(ops->self, mock_context(4)));
    assert_int_equal(query(fence), DEVICE_OK);
    drop(fence);
    drop(must_record());
    assert_int_equal(ops->synchronize_all(ops->self), DEVICE_OK);
}

static void two_ends_at_once_are_both_awaited(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    struct device_fence *fence = NULL;
    device_driver_context_closing(&device, CONTEXT(1));
    device_driver_context_closing(&device, CONTEXT(4)); /* 1 is not known, and cannot be waited for */
    device_driver_context_closing(&device, CONTEXT(4)); /* two threads destroy it; one will be refused */
    device_driver_context_settled(&device, CONTEXT(1), true);
    device_driver_context_settled(&device, CONTEXT(4), false);
    assert_int_equal(ops->fence_record(ops->self, &fence), DEVICE_NOT_READY);
    device_driver_context_settled(&device, CONTEXT(4), true);
    mock.alive[4] = false;
    drop(must_record());

    know(4, LIVE_CREATED);
    device_driver_context_closing(&device, CONTEXT(4));
    device_driver_context_closing(&device, CONTEXT(4));
    device_driver_context_settled(&device, CONTEXT(4), true);
    mock.alive[4] = false;
    drop(must_record());
    device_driver_context_settled(&device, CONTEXT(4), false);
    drop(must_record());
}

/* What `during` and the threads of the next cases share. */
static struct {
    const char *call;
    pthread_t thread;
    _Atomic bool begun, ended;
} closer;

static void *close_context(void *unused) {
    (void)unused;
    closer.begun = true;
    device_driver_context_closing(&device, CONTEXT(4));
    closer.ended = true;
    return NULL;
}

static void pause_a_while(void) {
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

static void close_meanwhile(const char *name) {
    if (strcmp(name, closer.call) != 0 || closer.begun) return;
    pthread_create(&closer.thread, NULL, close_context, NULL);
    while (!closer.begun) pause_a_while();
    pause_a_while();
    assert_false(closer.ended);
}

static void an_end_awaits_who_is_in_the_driver_with_an_event(void **state) {
    (void)state;
    static const char *const calls[] = {"cuCtxRecordEvent", "cuEventCreate", "cuEventRecord", "cuEventQuery",
                                        "cuCtxSynchronize"};
    for (size_t i = 0; i < 5; i++) {
        struct device_fence *fence = NULL, *before;
        mock_begin(NULL);
        know(4, LIVE_CREATED);
        before = i == 1 ? NULL : must_record();
        closer.call = calls[i];
        closer.begun = closer.ended = false;
        mock.during = close_meanwhile;
        int code;
        if (i == 2)
            code =
                ops->fence_record_stream(ops->self, mock_context(4), (struct device_stream){STREAM(1), false}, &fence);
        else if (i == 3)
            code = query(before);
        else if (i == 4)
            code = ops->synchronize_all(ops->self);
        else
            code = ops->fence_record(ops->self, &fence);
        assert_true(closer.begun);
        /* Of contexts that come after it, the last sees that it ends. */
        assert_true(code == DEVICE_OK || code == DEVICE_NOT_READY);
        pthread_join(closer.thread, NULL);
        assert_true(closer.ended);
        mock.during = NULL;
        mock.alive[4] = false;
        device_driver_context_settled(&device, CONTEXT(4), true);
        if (fence) drop(fence);
        if (before) drop(before);
    }
}

/* ---- failures ---- */

static void a_recording_that_fails_leaves_nothing_behind(void **state) {
    (void)state;
    static const char *const calls[] = {"cuEventCreate", "cuCtxRecordEvent", "cuCtxPushCurrent_v2", "cuCtxGetCurrent"};
    for (size_t i = 0; i < 4; i++) {
        for (unsigned after = 0; after < 3; after++) {
            struct device_fence *fence = NULL;
            mock_begin(NULL);
            know(4, LIVE_CREATED);
            mock.failing = calls[i];
            mock.failing_after = after;
            mock.failing_code = CUDA_ERROR_UNKNOWN;
            const int code = ops->fence_record(ops->self, &fence);
            assert_int_equal(mock_depth(), 0);
            mock.failing = NULL;
            if (code == DEVICE_OK) { /* the current context need not be pushed */
                assert_true(i == 2 && after == 2);
                drop(fence);
            } else {
                assert_int_equal(code, CUDA_ERROR_UNKNOWN);
                assert_null(fence);
            }
            drop(must_record());
            assert_int_equal(mock.events_made, 3); /* what was made before the failure is used */
            mock_end_context(4);                   /* nobody is left in the driver */
        }
    }
}

/* Its work has ended, if badly. */
static void a_context_that_has_failed_counts_as_passed(void **state) {
    (void)state;
    static const CUresult codes[] = {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ASSERT, CUDA_ERROR_LAUNCH_FAILED};
    for (size_t i = 0; i < 3; i++) {
        mock_begin(NULL);
        mock.failing = "cuCtxRecordEvent";
        mock.failing_code = codes[i];
        mock.failing_after = 1; /* the last of two */
        struct device_fence *fence = must_record();
        assert_int_equal(mock.records, 1);
        assert_int_equal(query(fence), DEVICE_NOT_READY);
        mock_complete(-1);
        assert_int_equal(query(fence), DEVICE_OK);
        drop(fence);
        mock.failing = "cuCtxSynchronize";
        mock.failing_after = 0;
        assert_int_equal(ops->synchronize_all(ops->self), DEVICE_OK);
    }
}

static void a_mark_that_fails_leaves_nothing_behind(void **state) {
    (void)state;
    static const char *const calls[] = {"cuEventCreate", "cuEventRecord", "cuCtxPushCurrent_v2", "cuCtxGetCurrent"};
    const struct device_stream stream = {STREAM(1), false};
    for (size_t i = 0; i < 4; i++) {
        struct device_fence *mark = NULL;
        mock_begin(NULL);
        know(4, LIVE_CREATED);
        mock.failing = calls[i];
        mock.failing_code = CUDA_ERROR_INVALID_HANDLE;
        assert_int_equal(ops->fence_record_stream(ops->self, mock_context(4), stream, &mark), DEVICE_INVALID_HANDLE);
        assert_null(mark);
        assert_int_equal(mock_depth(), 0);
        mock.failing = NULL;
        assert_int_equal(ops->fence_record_stream(ops->self, mock_context(4), stream, &mark), 0);
        drop(mark);
        assert_int_equal(mock.events_made, 1);
        mock_end_context(4);
    }
}

static void a_question_that_fails_is_the_answer(void **state) {
    (void)state;
    mock_begin(NULL);
    struct device_fence *fence = must_record();
    mock_complete(-1);
    mock.failing = "cuEventQuery";
    mock.failing_after = 1;
    mock.failing_code = CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_int_equal(query(fence), CUDA_ERROR_ILLEGAL_ADDRESS);
    drop(fence);
    mock.failing = NULL;
    mock_end_context(1);
}

static void without_host_memory_nothing_is_recorded(void **state) {
    (void)state;
    const struct device_stream stream = {STREAM(1), false};
    /* The records of two primary contexts, of the fence, and of two events. */
    for (unsigned succeeds = 0; succeeds < 5; succeeds++) {
        struct device_fence *fence = NULL;
        mock_begin(NULL);
        mock.memory_fails = 1;
        mock.memory_succeeds = succeeds;
        errno = 77;
        assert_int_equal(ops->fence_record(ops->self, &fence), DEVICE_OUT_OF_MEMORY);
        assert_int_equal(errno, 77);
        assert_int_equal(mock.memory_fails, 0);
        assert_null(fence);
        drop(must_record());
        assert_int_equal(mock.events_made, 2);
        mock_end_context(1);
    }
    for (unsigned succeeds = 0; succeeds < 2; succeeds++) {
        struct device_fence *mark = NULL;
        mock_begin(NULL);
        know(0, LIVE_PRIMARY);
        mock.memory_fails = 1;
        mock.memory_succeeds = succeeds;
        errno = 77;
        assert_int_equal(ops->fence_record_stream(ops->self, mock_context(0), stream, &mark), DEVICE_OUT_OF_MEMORY);
        assert_int_equal(errno, 77);
        assert_null(mark);
        assert_int_equal(ops->fence_record_stream(ops->self, mock_context(0), stream, &mark), 0);
        drop(mark);
    }
    mock_begin(NULL);
    mock.memory_fails = 1;
    errno = 77;
    assert_int_equal(ops->synchronize_all(ops->self), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(mock.synchronised, 0);
    assert_int_equal(errno, 77);
}

static void a_context_without_host_memory_is_known_later(void **state) {
    (void)state;
    mock_begin(NULL);
    mock.alive[4] = true;
    mock.memory_fails = 1;
    errno = 77;
    assert_false(device_driver_context_known(&device, mock_context(4), LIVE_CREATED));
    assert_int_equal(errno, 77);
    assert_false(ops->context_created(ops->self, mock_context(4)));
    know(4, LIVE_CREATED);
    assert_true(ops->context_created(ops->self, mock_context(4)));
}

/* ---- waiting for everything ---- */

static void all_contexts_are_waited_for(void **state) {
    (void)state;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    know(6, LIVE_GREEN);
    assert_int_equal(ops->synchronize_all(ops->self), DEVICE_OK);
    assert_int_equal(mock.synchronised, 3);
    for (int number = 0; number <= 4; number += number == 1 ? 3 : 1) {
        unsigned count = 0;
        for (unsigned i = 0; i < mock.synchronised; i++) count += mock.synchronised_in[i] == CONTEXT(number);
        assert_int_equal(count, 1);
    }
    assert_ptr_equal(mock_current(), CONTEXT(0));
    assert_int_equal(mock_depth(), 0);
}

static void a_wait_that_fails_proves_nothing(void **state) {
    (void)state;
    static const char *const calls[] = {"cuCtxSynchronize", "cuCtxPushCurrent_v2"};
    for (size_t i = 0; i < 2; i++) {
        for (unsigned after = 0; after < (i == 0 ? 3u : 2u); after++) {
            mock_begin(NULL);
            know(4, LIVE_CREATED);
            mock.failing = calls[i];
            mock.failing_after = after;
            mock.failing_code = CUDA_ERROR_UNKNOWN;
            assert_int_equal(ops->synchronize_all(ops->self), CUDA_ERROR_UNKNOWN);
            assert_int_equal(mock_depth(), 0);
            mock.failing = NULL;
            mock_end_context(4);
        }
    }
}

static void *wait_for_all(void *result) {
    mock_make_current(CONTEXT(0));
    *(int *)result = ops->synchronize_all(ops->self);
    closer.ended = true;
    return NULL;
}

static void a_wait_for_all_awaits_ends_under_way(void **state) {
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        pthread_t thread;
        int result = -1;
        mock_begin(NULL);
        know(4, LIVE_CREATED);
        device_driver_context_closing(&device, CONTEXT(4));
        closer.ended = false;
        pthread_create(&thread, NULL, wait_for_all, &result);
        pause_a_while();
        assert_false(closer.ended);
        device_driver_context_settled(&device, CONTEXT(4), gone);
        pthread_join(thread, NULL);
        assert_int_equal(result, DEVICE_OK);
        assert_int_equal(mock.synchronised, 3 - gone);
    }
}

static void come_to_life(const char *name) {
    if (strcmp(name, "cuCtxSynchronize") != 0 || mock.alive[7]) return;
    know(7, LIVE_CREATED);
}

static void a_context_that_comes_meanwhile_is_waited_for_too(void **state) {
    (void)state;
    mock_begin(NULL);
    mock.during = come_to_life;
    assert_int_equal(ops->synchronize_all(ops->self), DEVICE_OK);
    assert_int_equal(mock.synchronised, 3);
    assert_ptr_equal(mock.synchronised_in[2], CONTEXT(7));
}

/* ---- threads ---- */

static _Atomic bool stop;
static _Atomic unsigned passed, refused;

static void *record_and_ask(void *unused) {
    (void)unused;
    mock_make_current(CONTEXT(0));
    while (!stop) {
        struct device_fence *fence = NULL;
        if (ops->fence_record(ops->self, &fence) == DEVICE_OK) {
            mock_complete(-1);
            for (int i = 0; i < 1000 && query(fence) != DEVICE_OK; i++) mock_complete(-1);
            drop(fence);
            passed++;
        } else {
            refused++;
        }
    }
    return NULL;
}

static void recorders_askers_and_ends_exclude_each_other(void **state) {
    (void)state;
    pthread_t threads[3];
    mock_begin(NULL);
    stop = false;
    passed = refused = 0;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, record_and_ask, NULL);
    for (int round = 0; round < 8; round++) {
        know(4, LIVE_CREATED);
        const unsigned before = passed;
        for (int i = 0; i < 1000 && passed < before + 3; i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
        mock_end_context(4);
    }
    stop = true;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_true(passed > 0);
    print_message("# %u fences passed, %u were refused\n", passed, refused);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_fence_covers_every_live_context),
    cmocka_unit_test(primary_contexts_that_came_to_life_unseen_are_found),
    cmocka_unit_test(a_green_context_is_covered_by_its_primary_one),
    cmocka_unit_test(a_stream_is_marked_in_its_own_context),
    cmocka_unit_test(work_of_a_device_without_access_is_not_asked_about),
    cmocka_unit_test(contexts_that_cannot_reach_it_leave_a_context_alone),
    cmocka_unit_test(a_driver_without_context_events_has_no_fences),
    cmocka_unit_test(without_a_count_of_devices_what_is_known_is_covered),
    cmocka_unit_test(a_context_alone_is_known_as_such),
    cmocka_unit_test(contexts_whose_creation_was_seen_are_known),
    cmocka_unit_test(a_created_context_of_a_green_ones_handle_is_a_context_of_its_own),
    cmocka_unit_test(a_created_context_is_kept_when_the_last_of_its_handle_is_settled_late),
    cmocka_unit_test(no_event_is_created_after_the_first_ones),
    cmocka_unit_test(fences_grow_with_the_contexts),
    cmocka_unit_test(questions_are_asked_in_relaxed_mode_and_it_is_put_back),
    cmocka_unit_test(a_context_that_is_gone_counts_as_passed),
    cmocka_unit_test(the_others_still_decide_when_a_context_is_gone),
    cmocka_unit_test(fences_outlive_the_context_in_any_order),
    cmocka_unit_test(while_a_context_ends_nothing_is_recorded_or_asked),
    cmocka_unit_test(two_ends_at_once_are_both_awaited),
    cmocka_unit_test(an_end_awaits_who_is_in_the_driver_with_an_event),
    cmocka_unit_test(a_recording_that_fails_leaves_nothing_behind),
    cmocka_unit_test(a_context_that_has_failed_counts_as_passed),
    cmocka_unit_test(a_mark_that_fails_leaves_nothing_behind),
    cmocka_unit_test(a_question_that_fails_is_the_answer),
    cmocka_unit_test(without_host_memory_nothing_is_recorded),
    cmocka_unit_test(a_context_without_host_memory_is_known_later),
    cmocka_unit_test(all_contexts_are_waited_for),
    cmocka_unit_test(a_wait_that_fails_proves_nothing),
    cmocka_unit_test(a_wait_for_all_awaits_ends_under_way),
    cmocka_unit_test(a_context_that_comes_meanwhile_is_waited_for_too),
    cmocka_unit_test(recorders_askers_and_ends_exclude_each_other),
};
TESTING_MAIN(tests)
