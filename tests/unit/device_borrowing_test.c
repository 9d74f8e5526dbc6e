/* SPDX-License-Identifier: MIT
 *
 * A thread without a context borrows one of a device: which one, that its end waits for the return, and that nothing of
 * it is left in the thread.
 */
#include "mock_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void know(int number, enum live_kind kind) {
    mock.alive[number] = true;
    assert_true(device_driver_context_known(&device, mock_context(number), kind));
}

static void a_live_context_of_the_device_is_current_until_the_return(void **state) {
    (void)state;
    struct device_context borrowed;
    mock_begin(NULL);
    know(0, LIVE_PRIMARY);
    know(1, LIVE_PRIMARY);
    mock_make_current(NULL);
    for (int ordinal = 0; ordinal < 2; ordinal++) {
        assert_true(ops->borrow_context(ops->self, ordinal, &borrowed));
        assert_int_equal(borrowed.ordinal, ordinal);
        assert_ptr_equal(mock_current(), CONTEXT(ordinal));
        ops->return_context(ops->self, borrowed);
        assert_null(mock_current());
        assert_int_equal(mock_depth(), 0);
    }
}

static void what_was_current_is_so_again(void **state) {
    (void)state;
    struct device_context borrowed;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    assert_true(ops->borrow_context(ops->self, 0, &borrowed));
    assert_ptr_equal(mock_current(), CONTEXT(4));
    ops->return_context(ops->self, borrowed);
    assert_ptr_equal(mock_current(), CONTEXT(0));
    assert_int_equal(mock_depth(), 0);
}

static void green_contexts_ending_ones_and_other_devices_lend_none(void **state) {
    (void)state;
    struct device_context borrowed;
    mock_begin(NULL);
    mock_make_current(NULL);
    assert_false(ops->borrow_context(ops->self, 0, &borrowed));
    know(1, LIVE_PRIMARY);
    know(4, LIVE_GREEN);
    assert_false(ops->borrow_context(ops->self, 0, &borrowed));
    know(5, LIVE_CREATED);
    device_driver_context_closing(&device, CONTEXT(5));
    assert_false(ops->borrow_context(ops->self, 0, &borrowed));
    device_driver_context_settled(&device, CONTEXT(5), false);
    assert_true(ops->borrow_context(ops->self, 0, &borrowed));
    ops->return_context(ops->self, borrowed);
    assert_null(mock_current());
}

static void a_context_that_cannot_be_made_current_is_not_held(void **state) {
    (void)state;
    struct device_context borrowed;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    mock.failing = "cuCtxPushCurrent_v2";
    mock.failing_code = CUDA_ERROR_INVALID_CONTEXT;
    assert_false(ops->borrow_context(ops->self, 0, &borrowed));
    mock.failing = NULL;
    mock_end_context(4); /* returns */
}

static atomic_bool begun, ended;

static void *end_context(void *unused) {
    (void)unused;
    atomic_store(&begun, true);
    mock_end_context(4);
    atomic_store(&ended, true);
    return NULL;
}

static void the_end_of_a_context_waits_for_its_return(void **state) {
    (void)state;
    pthread_t thread;
    struct device_context borrowed;
    mock_begin(NULL);
    know(4, LIVE_CREATED);
    atomic_store(&begun, false);
    atomic_store(&ended, false);
    assert_true(ops->borrow_context(ops->self, 0, &borrowed));
    assert_ptr_equal(borrowed.handle, CONTEXT(4));
    pthread_create(&thread, NULL, end_context, NULL);
    while (!atomic_load(&begun)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_false(atomic_load(&ended));
    ops->return_context(ops->self, borrowed);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&ended));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_live_context_of_the_device_is_current_until_the_return),
    cmocka_unit_test(what_was_current_is_so_again),
    cmocka_unit_test(green_contexts_ending_ones_and_other_devices_lend_none),
    cmocka_unit_test(a_context_that_cannot_be_made_current_is_not_held),
    cmocka_unit_test(the_end_of_a_context_waits_for_its_return),
};
TESTING_MAIN(tests)
