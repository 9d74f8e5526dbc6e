/* SPDX-License-Identifier: MIT
 *
 * The device layer's view of who holds a primary context, and of which use of a created one is the last, over a driver
 * of several.
 */
#include "mock_driver.h"

#include <pthread.h>
#include <unistd.h>

static unsigned retains_asked;

static void count_retains(const char *name) {
    if (strcmp(name, "cuDevicePrimaryCtxRetain") == 0) retains_asked++;
}

static int begin(void **state) {
    (void)state;
    mock_begin(NULL);
    retains_asked = 0;
    mock.during = count_retains;
    return 0;
}

static void a_handle_that_was_seen_is_told_without_a_retain(void **state) {
    (void)state;
    device_driver_primary_retained(&device, 0, CONTEXT(0));
    assert_ptr_equal(device_driver_primary(&device, 0), CONTEXT(0));
    assert_true(ops->context_primary(ops->self, mock_context(0)));
    assert_int_equal(retains_asked, 0);
    mock.active[0] = false;
    assert_null(device_driver_primary(&device, 0));
}

static void a_handle_that_was_not_is_asked_for_once(void **state) {
    (void)state;
    assert_ptr_equal(device_driver_primary(&device, 1), CONTEXT(1));
    assert_ptr_equal(device_driver_primary(&device, 1), CONTEXT(1));
    assert_int_equal(retains_asked, 1);
    assert_int_equal(mock.retained[1], 0);
    assert_null(device_driver_primary(&device, 2)); /* inactive */
    assert_int_equal(retains_asked, 1);
}

static void a_release_may_be_the_last_when_no_other_retain_was_seen(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) device_driver_primary_retained(&device, 0, CONTEXT(0));
    assert_false(device_driver_primary_ending(&device, 0, PRIMARY_GREEN));
    device_driver_primary_ended(&device, 0, false, false);
    for (int i = 0; i < 4; i++) {
        const bool may_end = device_driver_primary_ending(&device, 0, PRIMARY_RELEASE);
        assert_int_equal(may_end, i >= 2); /* the fourth was retained unseen */
        device_driver_primary_ended(&device, 0, may_end, false);
    }
    assert_true(device_driver_primary_ending(&device, 0, PRIMARY_GREEN));
    device_driver_primary_ended(&device, 0, true, true);
    assert_true(device_driver_primary_ending(&device, 99, PRIMARY_RELEASE)); /* beyond what is kept */
    device_driver_primary_ended(&device, 99, true, true);
}

static void a_reset_ends_it_whoever_holds_it(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) device_driver_primary_retained(&device, 0, CONTEXT(0));
    assert_true(device_driver_primary_ending(&device, 0, PRIMARY_RESET));
    device_driver_primary_ended(&device, 0, true, true);
    /* How many of the retains are left is not known: the next one's release may be the last. */
    device_driver_primary_retained(&device, 0, CONTEXT(0));
    assert_true(device_driver_primary_ending(&device, 0, PRIMARY_RELEASE));
    device_driver_primary_ended(&device, 0, true, true);
}

static void one_that_was_released_behind_our_back_is_held_by_nobody(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) device_driver_primary_retained(&device, 0, CONTEXT(0));
    assert_false(device_driver_primary_ending(&device, 0, PRIMARY_RELEASE));
    device_driver_primary_ended(&device, 0, false, true);
    assert_true(device_driver_primary_ending(&device, 0, PRIMARY_RELEASE));
    device_driver_primary_ended(&device, 0, true, false);
}

/* ---- threads ---- */

static _Atomic int ended;
static pthread_t thread;

static void *end(void *how) {
    const bool may_end = device_driver_primary_ending(&device, 0, (enum primary_end)(uintptr_t)how);
    ended = 1;
    device_driver_primary_ended(&device, 0, may_end, false);
    return NULL;
}

static void begin_end(enum primary_end how) {
    ended = 0;
    assert_int_equal(pthread_create(&thread, NULL, end, (void *)(uintptr_t)how), 0);
}

static void the_last_release_waits_for_those_before_it(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) device_driver_primary_retained(&device, 0, CONTEXT(0));
    assert_false(device_driver_primary_ending(&device, 0, PRIMARY_RELEASE));
    begin_end(PRIMARY_RELEASE);
    usleep(30000);
    assert_int_equal(ended, 0);
    device_driver_primary_ended(&device, 0, false, false);
    pthread_join(thread, NULL);
    assert_int_equal(ended, 1);
}

static void end_amid_a_retain(const char *name) {
    if (strcmp(name, "cuDevicePrimaryCtxRetain") != 0) return;
    mock.during = NULL;
    begin_end(PRIMARY_RESET);
    usleep(30000);
    assert_int_equal(ended, 0);
}

static void no_end_begins_while_a_handle_is_asked_for(void **state) {
    (void)state;
    mock.during = end_amid_a_retain;
    assert_ptr_equal(device_driver_primary(&device, 0), CONTEXT(0));
    pthread_join(thread, NULL);
    assert_int_equal(ended, 1);
}

static void *find_it(void *found) {
    assert_int_equal(device_driver_primary_find(&device, 0, true, found), DEVICE_OK);
    return NULL;
}

static void no_handle_is_asked_for_while_it_ends(void **state) {
    (void)state;
    void *handle;
    assert_true(device_driver_primary_ending(&device, 0, PRIMARY_RESET));
    assert_int_equal(device_driver_primary_find(&device, 0, false, &handle), DEVICE_NOT_READY);
    assert_null(device_driver_primary(&device, 0));
    struct device_fence *fence;
    assert_int_equal(ops->fence_record(ops->self, &fence), DEVICE_NOT_READY);
    void *found = NULL;
    assert_int_equal(pthread_create(&thread, NULL, find_it, &found), 0);
    usleep(30000);
    assert_int_equal(retains_asked, 0);
    device_driver_primary_ended(&device, 0, true, false);
    pthread_join(thread, NULL);
    assert_ptr_equal(found, CONTEXT(0));
    assert_int_equal(retains_asked, 1);
}

/* ---- created contexts ---- */

static void the_last_detach_ends_a_context(void **state) {
    (void)state;
    const void *handle = CONTEXT(5);
    assert_true(device_driver_context_detaching(&device, handle)); /* not known */
    device_driver_context_attached(&device, handle);
    mock.alive[5] = true;
    device_driver_context_known(&device, mock_context(5), LIVE_CREATED);
    device_driver_context_attached(&device, handle);
    device_driver_context_attached(&device, handle);
    assert_false(device_driver_context_detaching(&device, handle));
    device_driver_context_detached(&device, handle, false); /* the driver refused */
    for (int i = 0; i < 2; i++) {
        assert_false(device_driver_context_detaching(&device, handle));
        device_driver_context_detached(&device, handle, true);
    }
    assert_true(device_driver_context_detaching(&device, handle));
}

static void *end_created(void *unused) {
    (void)unused;
    device_driver_context_closing(&device, CONTEXT(5));
    ended = 1;
    device_driver_context_settled(&device, CONTEXT(5), true);
    return NULL;
}

static void a_context_ends_after_the_detaches_before(void **state) {
    (void)state;
    mock.alive[5] = true;
    device_driver_context_known(&device, mock_context(5), LIVE_CREATED);
    device_driver_context_attached(&device, CONTEXT(5));
    assert_false(device_driver_context_detaching(&device, CONTEXT(5)));
    ended = 0;
    assert_int_equal(pthread_create(&thread, NULL, end_created, NULL), 0);
    usleep(30000);
    assert_int_equal(ended, 0);
    device_driver_context_detached(&device, CONTEXT(5), true);
    pthread_join(thread, NULL);
    assert_int_equal(ended, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(a_handle_that_was_seen_is_told_without_a_retain, begin),
    cmocka_unit_test_setup(a_handle_that_was_not_is_asked_for_once, begin),
    cmocka_unit_test_setup(a_release_may_be_the_last_when_no_other_retain_was_seen, begin),
    cmocka_unit_test_setup(a_reset_ends_it_whoever_holds_it, begin),
    cmocka_unit_test_setup(one_that_was_released_behind_our_back_is_held_by_nobody, begin),
    cmocka_unit_test_setup(the_last_release_waits_for_those_before_it, begin),
    cmocka_unit_test_setup(no_end_begins_while_a_handle_is_asked_for, begin),
    cmocka_unit_test_setup(no_handle_is_asked_for_while_it_ends, begin),
    cmocka_unit_test_setup(the_last_detach_ends_a_context, begin),
    cmocka_unit_test_setup(a_context_ends_after_the_detaches_before, begin),
};

TESTING_MAIN(tests)
