/* SPDX-License-Identifier: MIT
 *
 * Which stream is which, over a driver that hands handles out again: every stream has a number that never comes back,
 * or none, and then it is treated like any other that is not known.
 */
#include "mock_driver.h"

#include <errno.h>
#include <pthread.h>

static struct device_stream_identity identify(CUstream handle, bool per_thread, int code) {
    struct device_stream_identity identity = {.id = 77, .lasting = true, .recordable = true};
    assert_int_equal(ops->stream_identify(ops->self, (struct device_stream){handle, per_thread}, &identity), code);
    assert_int_equal(mock_depth(), 0);
    return identity;
}

static uint64_t id_of(CUstream handle) {
    return identify(handle, false, 0).id;
}

static void create(unsigned number, int context) {
    static unsigned long long ids;
    mock.stream_ids[number] = ++ids;
    mock.stream_contexts[number] = CONTEXT(context);
}

static void create_seen(unsigned number, int context) {
    create(number, context);
    device_driver_stream_created(&device, STREAM(number), mock_context(context));
}

static void a_created_stream_is_known_without_a_question(void **state) {
    (void)state;
    mock_begin(NULL);
    create_seen(1, 0);
    create_seen(2, 1);
    for (int per_thread = 0; per_thread < 2; per_thread++) {
        const struct device_stream_identity one = identify(STREAM(1), per_thread, 0),
                                            two = identify(STREAM(2), per_thread, 0);
        assert_true(one.id != 0 && two.id != 0 && one.id != two.id);
        assert_true(one.lasting && one.recordable && two.lasting && two.recordable);
        assert_ptr_equal(one.context.handle, CONTEXT(0));
        assert_ptr_equal(two.context.handle, CONTEXT(1));
        assert_int_equal(two.context.ordinal, 1);
        assert_int_equal(id_of(STREAM(1)), one.id);
    }
    assert_int_equal(mock.stream_ids_asked, 0);
}

static void a_green_contexts_stream_is_not_recorded_on(void **state) {
    (void)state;
    mock_begin(NULL);
    mock.alive[6] = true;
    assert_true(device_driver_context_known(&device, mock_context(6), LIVE_GREEN));
    create_seen(1, 6);
    create(2, 6);
    for (unsigned i = 1; i <= 2; i++) {
        const struct device_stream_identity identity = identify(STREAM(i), false, 0);
        assert_true(identity.id != 0);
        assert_false(identity.recordable);
        assert_int_equal(identity.lasting, i == 1);
        assert_ptr_equal(identity.context.handle, CONTEXT(6));
    }
    mock_make_current(CONTEXT(6));
    assert_false(identify(NULL, false, 0).orders_others);
    assert_false(identify(NULL, false, 0).recordable);
    assert_false(identify(NULL, true, 0).orders_others);
}

static void the_legacy_stream_alone_orders_others(void **state) {
    (void)state;
    mock_begin(NULL);
    create_seen(1, 0);
    create(2, 0);
    assert_false(identify(STREAM(1), false, 0).orders_others);
    assert_false(identify(STREAM(2), false, 0).orders_others);
    assert_false(identify(NULL, true, 0).orders_others);
    assert_true(identify(NULL, false, 0).orders_others);
    assert_true(identify(CU_STREAM_LEGACY, true, 0).orders_others);
    for (int number = 0; number < 2; number++) {
        for (int i = 0; i < 3; i++) {
            const struct mock_event *event = &mock.events[number];
            mock_make_current(CONTEXT(1 - number)); /* whatever is current */
            assert_true(device_driver_context_known(&device, mock_context(number), LIVE_FOUND));
            assert_int_equal(ops->stream_touch(ops->self, mock_context(number), (struct device_stream){0}), DEVICE_OK);
            assert_ptr_equal(event->context, CONTEXT(number));
            assert_ptr_equal(event->stream, CU_STREAM_LEGACY);
            assert_int_equal(mock.records, 3 * number + i + 1);
            assert_int_equal(mock.events_made, number + 1);
            assert_int_equal(mock_depth(), 0);
        }
    }
    device_driver_context_closing(&device, CONTEXT(0));
    assert_int_equal(ops->stream_touch(ops->self, mock_context(0), (struct device_stream){0}), DEVICE_OK);
    assert_int_equal(mock.records, 6);
    device_driver_context_settled(&device, CONTEXT(0), false);
    mock.failing = "cuEventRecord";
    mock.failing_code = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(ops->stream_touch(ops->self, mock_context(0), (struct device_stream){0}),
                     CUDA_ERROR_LAUNCH_FAILED);
    mock.failing = NULL;
    mock_end_context(0);
}

static void a_handle_that_comes_back_means_another_stream(void **state) {
    (void)state;
    mock_begin(NULL);
    uint64_t seen[20];
    for (int i = 0; i < 20; i++) {
        create_seen(1, i % 2);
        seen[i] = id_of(STREAM(1));
        for (int k = 0; k < i; k++) assert_int_not_equal(seen[i], seen[k]);
        if (i % 3) device_driver_stream_destroyed(&device, STREAM(1)); /* else by a call that no hook sees */
    }
    device_driver_stream_destroyed(&device, STREAM(1));
    device_driver_stream_destroyed(&device, STREAM(1)); /* by an error of the program's */
    mock.stream_ids[1] = 0;
    assert_int_equal(identify(STREAM(1), false, DEVICE_INVALID_HANDLE).id, 0);
}

static void many_streams_are_told_apart(void **state) {
    (void)state;
    enum { COUNT = MOCK_STREAMS };
    static uint64_t ids[COUNT];
    mock_begin(NULL);
    for (unsigned i = 0; i < COUNT; i++) create_seen(i, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        ids[i] = id_of(STREAM(i));
        for (unsigned k = 0; k < i; k++) assert_int_not_equal(ids[i], ids[k]);
    }
    for (unsigned i = 0; i < COUNT; i += 2) device_driver_stream_destroyed(&device, STREAM(i));
    for (unsigned i = 1; i < COUNT; i += 2) assert_int_equal(id_of(STREAM(i)), ids[i]);
    assert_int_equal(mock.stream_ids_asked, 0);
}

static void a_stream_that_no_hook_saw_is_asked_for_its_number_each_time(void **state) {
    (void)state;
    mock_begin(NULL);
    create(3, 1);
    create_seen(4, 0);
    const struct device_stream_identity unseen = identify(STREAM(3), false, 0);
    assert_true(unseen.id != 0 && unseen.id != id_of(STREAM(4)));
    assert_false(unseen.lasting);
    assert_false(unseen.recordable);
    assert_ptr_equal(unseen.context.handle, CONTEXT(1));
    assert_int_equal(unseen.context.ordinal, 1);
    assert_int_equal(id_of(STREAM(3)), unseen.id);
    create(3, 1); /* and again, unseen */
    assert_int_not_equal(id_of(STREAM(3)), unseen.id);
    assert_int_equal(mock.stream_ids_asked, 3);
    /* Its context lives, so fences cover it. */
    assert_true(device_driver_context_serial(&device, CONTEXT(1)) != 0);
}

static void the_drivers_numbers_and_our_own_are_never_equal(void **state) {
    (void)state;
    mock_begin(NULL);
    create_seen(1, 0);
    create(2, 0);
    for (unsigned long long id = 1; id < 100; id++) {
        mock.stream_ids[2] = id;
        assert_int_not_equal(id_of(STREAM(2)), id_of(STREAM(1)));
        assert_int_not_equal(id_of(STREAM(2)), id_of(NULL));
        assert_int_not_equal(id_of(STREAM(2)), id_of(CU_STREAM_PER_THREAD));
    }
}

static void an_old_driver_does_not_tell_streams_apart_that_no_hook_saw(void **state) {
    (void)state;
    static const char *const missing[] = {"cuStreamGetId", NULL};
    mock_begin(missing);
    create(1, 0);
    create_seen(2, 0);
    assert_int_equal(id_of(STREAM(1)), 0);
    assert_true(id_of(STREAM(2)) != 0);
    assert_true(id_of(NULL) != 0);
    assert_true(id_of(CU_STREAM_PER_THREAD) != 0);
    static const char *const no_context[] = {"cuStreamGetCtx", NULL};
    mock_begin(no_context);
    create(1, 0);
    assert_int_equal(identify(STREAM(1), false, DEVICE_NOT_SUPPORTED).id, 0);
}

static void what_the_driver_answers_for_a_bad_handle_is_the_answer(void **state) {
    (void)state;
    mock_begin(NULL);
    identify(STREAM(5), false, DEVICE_INVALID_HANDLE);
    create(5, 0);
    static const char *const calls[] = {"cuStreamGetId", "cuStreamGetCtx", "cuCtxGetDevice"};
    for (size_t i = 0; i < 3; i++) {
        mock.failing = calls[i];
        mock.failing_code = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        assert_int_equal(identify(STREAM(5), false, DEVICE_CONTEXT_DESTROYED).id, 0);
    }
    mock.failing = NULL;
    assert_true(id_of(STREAM(5)) != 0);
}

/* ---- default streams ---- */

static void the_legacy_stream_is_one_for_each_life_of_a_context(void **state) {
    (void)state;
    mock_begin(NULL);
    const uint64_t first = id_of(NULL);
    assert_true(first != 0);
    assert_int_equal(id_of(CU_STREAM_LEGACY), first);
    assert_int_equal(identify(CU_STREAM_LEGACY, true, 0).id, first);
    assert_true(identify(NULL, false, 0).lasting);
    assert_false(identify(NULL, false, 0).recordable);
    assert_ptr_equal(identify(NULL, false, 0).context.handle, CONTEXT(0));
    mock_make_current(CONTEXT(1));
    const uint64_t other = id_of(NULL);
    assert_true(other != 0 && other != first);
    assert_int_equal(identify(NULL, false, 0).context.ordinal, 1);
    mock_make_current(CONTEXT(0));
    assert_int_equal(id_of(NULL), first);
    mock_end_context(0);
    mock.active[0] = true;
    assert_int_not_equal(id_of(NULL), first);
    assert_int_not_equal(id_of(NULL), other);
    mock_make_current(NULL);
    identify(NULL, false, DEVICE_INVALID_CONTEXT);
    identify(NULL, true, DEVICE_INVALID_CONTEXT);
}

static uint64_t others[2];

static void *identify_own(void *unused) {
    (void)unused;
    mock_make_current(CONTEXT(0));
    struct device_stream_identity identity = {0};
    ops->stream_identify(ops->self, (struct device_stream){NULL, true}, &identity);
    others[0] = identity.id;
    ops->stream_identify(ops->self, (struct device_stream){NULL, false}, &identity);
    others[1] = identity.id;
    return NULL;
}

static void every_thread_has_a_default_stream_in_each_life_of_a_context(void **state) {
    (void)state;
    mock_begin(NULL);
    const uint64_t own = identify(NULL, true, 0).id, legacy = id_of(NULL);
    assert_true(own != 0 && own != legacy);
    assert_int_equal(identify(CU_STREAM_PER_THREAD, false, 0).id, own);
    assert_int_equal(identify(CU_STREAM_PER_THREAD, true, 0).id, own);
    assert_true(identify(NULL, true, 0).lasting);
    assert_false(identify(NULL, true, 0).recordable); /* another thread cannot name it */
    uint64_t before = own;
    for (int i = 0; i < 2; i++) { /* a thread that comes after another has not its stream either */
        pthread_t thread;
        pthread_create(&thread, NULL, identify_own, NULL);
        pthread_join(thread, NULL);
        assert_true(others[0] != 0 && others[0] != own && others[0] != before);
        assert_int_equal(others[1], legacy);
        before = others[0];
    }
    mock_make_current(CONTEXT(1));
    assert_int_not_equal(identify(NULL, true, 0).id, own);
    mock_make_current(CONTEXT(0));
    assert_int_equal(identify(NULL, true, 0).id, own);
    mock_end_context(0);
    mock.active[0] = true;
    assert_int_not_equal(identify(NULL, true, 0).id, own);
}

/* ---- ends ---- */

static void the_streams_of_a_context_that_is_gone_are_forgotten(void **state) {
    (void)state;
    mock_begin(NULL);
    mock.alive[4] = true;
    assert_true(device_driver_context_known(&device, mock_context(4), LIVE_CREATED));
    for (unsigned i = 0; i < 40; i++) create_seen(i, i % 2 ? 4 : 1);
    uint64_t ids[40];
    for (unsigned i = 0; i < 40; i++) ids[i] = id_of(STREAM(i));
    device_driver_context_closing(&device, CONTEXT(4));
    device_driver_context_settled(&device, CONTEXT(4), false); /* it lives on */
    for (unsigned i = 0; i < 40; i++) assert_int_equal(id_of(STREAM(i)), ids[i]);
    mock_end_context(4);
    for (unsigned i = 0; i < 40; i++) {
        if (i % 2) mock.stream_ids[i] = 0;
        assert_int_equal(identify(STREAM(i), false, i % 2 ? DEVICE_INVALID_HANDLE : 0).id, i % 2 ? 0 : ids[i]);
    }
}

/* ---- captures ---- */

static void a_stream_says_whether_it_captures(void **state) {
    (void)state;
    mock_begin(NULL);
    create(1, 0);
    const struct device_stream stream = {STREAM(1), false}, legacy = {0};
    assert_int_equal(ops->stream_capturing(ops->self, stream), DEVICE_OK);
    mock.capturing[1] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    assert_int_equal(ops->stream_capturing(ops->self, stream), DEVICE_NOT_READY);
    mock.capturing[1] = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    assert_int_equal(ops->stream_capturing(ops->self, stream), DEVICE_NOT_READY);
    assert_int_equal(ops->stream_capturing(ops->self, legacy), DEVICE_OK);
    mock.legacy_capturing = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    assert_int_equal(ops->stream_capturing(ops->self, legacy), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    static const char *const missing[] = {"cuStreamIsCapturing", NULL};
    mock_begin(missing);
    assert_int_equal(ops->stream_capturing(ops->self, stream), DEVICE_OK);
}

/* ---- host memory ---- */

static void a_stream_without_host_memory_is_like_one_that_no_hook_saw(void **state) {
    (void)state;
    for (unsigned succeeds = 0; succeeds < 2; succeeds++) { /* the stream's record, the table */
        mock_begin(NULL);
        mock.memory_fails = 1;
        mock.memory_succeeds = succeeds;
        errno = 77;
        create_seen(1, 0);
        assert_int_equal(errno, 77);
        assert_int_equal(mock.memory_fails, 0);
        const struct device_stream_identity identity = identify(STREAM(1), false, 0);
        assert_true(identity.id != 0);
        assert_false(identity.lasting);
        create_seen(2, 0);
        assert_true(identify(STREAM(2), false, 0).lasting);
    }
    /* One whose handle was known is not taken for that. */
    mock_begin(NULL);
    create_seen(1, 0);
    const uint64_t before = id_of(STREAM(1));
    mock.memory_fails = 1;
    create_seen(1, 0);
    assert_int_equal(mock.memory_fails, 0);
    assert_int_not_equal(id_of(STREAM(1)), before);
    assert_false(identify(STREAM(1), false, 0).lasting);
}

static void a_stream_in_a_context_without_host_memory_is_not_told_apart(void **state) {
    (void)state;
    const CUstream handles[] = {NULL, CU_STREAM_PER_THREAD, STREAM(1)};
    for (size_t i = 0; i < 3; i++) {
        mock_begin(NULL);
        create(1, 1);
        mock.memory_fails = 2; /* where the context's device is remembered, and where it has to be known */
        errno = 77;
        assert_int_equal(id_of(handles[i]), 0);
        assert_int_equal(errno, 77);
        assert_int_equal(mock.memory_fails, 0);
        assert_true(id_of(handles[i]) != 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_created_stream_is_known_without_a_question),
    cmocka_unit_test(a_green_contexts_stream_is_not_recorded_on),
    cmocka_unit_test(the_legacy_stream_alone_orders_others),
    cmocka_unit_test(a_handle_that_comes_back_means_another_stream),
    cmocka_unit_test(many_streams_are_told_apart),
    cmocka_unit_test(a_stream_that_no_hook_saw_is_asked_for_its_number_each_time),
    cmocka_unit_test(the_drivers_numbers_and_our_own_are_never_equal),
    cmocka_unit_test(an_old_driver_does_not_tell_streams_apart_that_no_hook_saw),
    cmocka_unit_test(what_the_driver_answers_for_a_bad_handle_is_the_answer),
    cmocka_unit_test(the_legacy_stream_is_one_for_each_life_of_a_context),
    cmocka_unit_test(every_thread_has_a_default_stream_in_each_life_of_a_context),
    cmocka_unit_test(the_streams_of_a_context_that_is_gone_are_forgotten),
    cmocka_unit_test(a_stream_says_whether_it_captures),
    cmocka_unit_test(a_stream_without_host_memory_is_like_one_that_no_hook_saw),
    cmocka_unit_test(a_stream_in_a_context_without_host_memory_is_not_told_apart),
};
TESTING_MAIN(tests)
