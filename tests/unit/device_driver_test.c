/* SPDX-License-Identifier: MIT
 *
 * The device over a driver that keeps count: every call is made in the block's own context and the caller's stack of
 * contexts is as before; contexts, devices and streams are told apart; memory is filled where it should be.
 */
#include "testing.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "device/driver.h"

#define CONTEXT(number) ((CUcontext)(uintptr_t)(0x1000 + (number)))
#define DEVICES 2

static struct {
    CUcontext stack[8]; /* of contexts; [0] is cuCtxSetCurrent's */
    unsigned depth, most_depth;
    CUcontext primary[DEVICES];
    int retained[DEVICES]; /* 0: inactive */
    int device_of_current; /* what cuCtxGetDevice answers */
    unsigned asked;        /* how often it was asked */
    CUcontext called_in;   /* the context of the last call of memory or waiting */
    CUstreamCaptureMode called_mode;
    CUstream waited; /* the stream of the last wait */
    CUresult fails, push_fails;
    CUstreamCaptureMode mode; /* of the thread */
    struct {
        CUdeviceptr address;
        size_t bytes;
        unsigned char value;
        CUstream stream;
        CUstreamCaptureMode mode;
        CUresult fails;
    } fill;                             /* the last one */
    unsigned streams, destroyed, flags; /* streams made, how; `destroyed`: the last one's number */
    bool beside;                        /* another thread's fill makes a stream meanwhile */
    CUresult create_fails;
} driver;

static CUcontext current(void) {
    return driver.stack[driver.depth];
}

static CUresult called(void) {
    driver.called_in = current();
    driver.called_mode = driver.mode;
    return driver.fails;
}

static CUresult get_current(CUcontext *out) {
    *out = current();
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *out) {
    driver.asked++;
    *out = driver.device_of_current;
    return driver.fails;
}

static CUresult push(CUcontext context) {
    if (driver.push_fails) return driver.push_fails;
    driver.stack[++driver.depth] = context;
    if (driver.depth > driver.most_depth) driver.most_depth = driver.depth;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *out) {
    assert_true(driver.depth > 0);
    *out = driver.stack[driver.depth--];
    return CUDA_SUCCESS;
}

static CUresult get_state(CUdevice device, unsigned int *flags, int *active) {
    if (device >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = driver.retained[device] > 0;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *out, CUdevice device) {
    driver.retained[device]++;
    *out = driver.primary[device];
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device) {
    driver.retained[device]--;
    return CUDA_SUCCESS;
}

static CUresult mem_alloc(CUdeviceptr *out, size_t bytes) {
    *out = 0x70000000 + bytes;
    return called();
}

static CUresult mem_free(CUdeviceptr address) {
    assert_int_equal(address, 0x70000000);
    return called();
}

static CUresult mem_info(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = 3;
    *total_bytes = 4;
    return called();
}

static CUresult wait_stream(CUstream stream) {
    driver.waited = stream;
    return called();
}

static CUresult exchange_mode(CUstreamCaptureMode *mode) {
    const CUstreamCaptureMode before = driver.mode;
    driver.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult mem_fill(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream) {
    driver.fill.address = address;
    driver.fill.bytes = bytes;
    driver.fill.value = value;
    driver.fill.stream = stream;
    driver.fill.mode = driver.mode;
    driver.waited = NULL;
    driver.called_in = current();
    return driver.fill.fails;
}

#define OWN_STREAM(number) ((CUstream)(uintptr_t)(0x6000 + (number)))

static CUresult make_stream(CUstream *out, unsigned int flags);

static CUresult end_stream(CUstream stream) {
    driver.destroyed = (unsigned)((uintptr_t)stream - (uintptr_t)OWN_STREAM(0));
    return CUDA_SUCCESS;
}

static CUresult total(size_t *out, CUdevice device) {
    *out = 1000u + (unsigned)device;
    return driver.fails;
}

static CUresult uuid(CUuuid *out, CUdevice device) {
    memset(out->bytes, 0x40 + device, sizeof out->bytes);
    return driver.fails;
}

static CUresult pci(char *out, int size, CUdevice device) {
    snprintf(out, (size_t)size, "0000:AB:0%d.0", device);
    return driver.fails;
}

static const struct {
    const char *name;
    void *function;
} functions[] = {{"cuCtxGetCurrent", (void *)get_current},
                 {"cuCtxGetDevice", (void *)get_device},
                 {"cuCtxPushCurrent_v2", (void *)push},
                 {"cuCtxPopCurrent_v2", (void *)pop},
                 {"cuCtxSynchronize", (void *)called},
                 {"cuDevicePrimaryCtxGetState", (void *)get_state},
                 {"cuDevicePrimaryCtxRetain", (void *)retain},
                 {"cuDevicePrimaryCtxRelease_v2", (void *)release},
                 {"cuMemAlloc_v2", (void *)mem_alloc},
                 {"cuMemFree_v2", (void *)mem_free},
                 {"cuMemGetInfo_v2", (void *)mem_info},
                 {"cuStreamSynchronize", (void *)wait_stream},
                 {"cuDeviceTotalMem_v2", (void *)total},
                 {"cuDeviceGetUuid", (void *)uuid},
                 {"cuDeviceGetPCIBusId", (void *)pci},
                 {"cuMemsetD8Async", (void *)mem_fill},
                 {"cuStreamCreate", (void *)make_stream},
                 {"cuStreamDestroy_v2", (void *)end_stream},
                 {"cuThreadExchangeStreamCaptureMode", (void *)exchange_mode}};

/* `arg`: the name of a function that is not there, or NULL. */
static void *look_up(void *arg, const char *symbol) {
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, symbol) == 0 && (!arg || strcmp(arg, symbol) != 0)) return functions[i].function;
    return NULL;
}

static struct device_driver device;
static const struct device_ops *const ops = &device.ops;

#define MOST_CONTEXTS (2 * DRIVER_CONTEXTS)

/* Both primary contexts are active, that of device 0 is current. */
static void begin(const char *missing) {
    for (int i = 0; i < MOST_CONTEXTS; i++) device_driver_context_settled(&device, CONTEXT(i), true);
    memset(&driver, 0, sizeof driver);
    memset(&device, 0, sizeof device);
    for (int i = 0; i < DEVICES; i++) {
        driver.primary[i] = CONTEXT(i);
        driver.retained[i] = 1;
    }
    driver.stack[0] = CONTEXT(0);
    assert_null(device_driver_bind(&device, look_up, (void *)missing));
}

static struct device_context context_of(int ordinal) {
    return (struct device_context){CONTEXT(ordinal), ordinal};
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    static const char *const needed[] = {"cuCtxGetCurrent", "cuDevicePrimaryCtxRelease_v2", "cuStreamSynchronize"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        assert_string_equal(device_driver_bind(&device, look_up, (void *)needed[i]), needed[i]);
    begin("cuDeviceGetUuid");
}

static void calls_are_made_in_their_context_and_leave_the_stack(void **state) {
    (void)state;
    begin(NULL);
    for (int ordinal = 0; ordinal < DEVICES; ordinal++) {
        for (int code = 0; code < 3; code += 2) {
            const struct device_context context = context_of(ordinal);
            const struct segment_source plain = {.kind = SEGMENT_PLAIN, .context = context};
            uint64_t address = 7;
            size_t a, b;
            driver.fails = (CUresult)code;
            assert_int_equal(ops->segment_alloc(ops->self, &plain, (struct device_stream){0}, 512, &address), code);
            assert_int_equal(address, code ? 7 : 0x70000200);
            assert_ptr_equal(driver.called_in, context.handle);
            driver.called_in = NULL;
            assert_int_equal(ops->segment_release(ops->self, &plain, 0x70000000, 512), code);
            assert_ptr_equal(driver.called_in, context.handle);
            driver.called_in = NULL;
            assert_int_equal(ops->context_synchronize(ops->self, context), code);
            assert_ptr_equal(driver.called_in, context.handle);
            driver.called_in = NULL;
            assert_int_equal(ops->stream_synchronize(ops->self, context, (struct device_stream){0}), code);
            assert_ptr_equal(driver.called_in, context.handle);
            driver.called_in = NULL;
            assert_int_equal(ops->memory_info(ops->self, context, &a, &b), code);
            assert_ptr_equal(driver.called_in, context.handle);
            assert_int_equal(driver.depth, 0);
            assert_int_equal(driver.most_depth, ordinal); /* the current context is not pushed again */
        }
    }
    driver.fails = CUDA_SUCCESS;
    assert_int_equal(ops->current_synchronize(ops->self), 0);
    assert_ptr_equal(driver.called_in, CONTEXT(0));
}

static void a_context_that_cannot_be_entered_is_the_answer(void **state) {
    (void)state;
    begin(NULL);
    uint64_t address;
    driver.push_fails = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    const struct segment_source plain = {.kind = SEGMENT_PLAIN, .context = context_of(1)};
    assert_int_equal(ops->segment_alloc(ops->self, &plain, (struct device_stream){0}, 512, &address),
                     DEVICE_CONTEXT_DESTROYED);
    assert_int_equal(ops->context_synchronize(ops->self, context_of(1)), DEVICE_CONTEXT_DESTROYED);
    assert_null(driver.called_in);
    assert_int_equal(driver.depth, 0);
}

static void without_memory_pools_there_are_no_segments_of_theirs(void **state) {
    (void)state;
    begin(NULL);
    uint64_t address;
    void *memory_pool;
    const struct segment_source async = {.kind = SEGMENT_ASYNC, .context = context_of(0), .memory_pool = &address};
    assert_int_equal(ops->memory_pool(ops->self, 0, &memory_pool), DEVICE_NOT_SUPPORTED);
    assert_int_equal(ops->segment_alloc(ops->self, &async, (struct device_stream){0}, 512, &address),
                     DEVICE_NOT_SUPPORTED);
    assert_null(driver.called_in);
}

static void which_memory_pools_can_be_exported_is_known(void **state) {
    (void)state;
    char pools[200];
    for (size_t i = 0; i < sizeof pools; i++) assert_false(device_driver_pool_set_exportable(&pools[i], i % 2 == 0));
    for (size_t i = 0; i < sizeof pools; i++) assert_int_equal(device_driver_pool_exportable(&pools[i]), i % 2 == 0);
    for (size_t i = 0; i < sizeof pools; i++)
        assert_int_equal(device_driver_pool_set_exportable(&pools[i], false), i % 2 == 0);
    for (size_t i = 0; i < sizeof pools; i++) assert_false(device_driver_pool_exportable(&pools[i]));
}

static void streams_are_named_as_the_plain_entry_points_know_them(void **state) {
    (void)state;
    begin(NULL);
    const CUstream stream = (CUstream)(uintptr_t)0x5000;
    const struct {
        struct device_stream called;
        CUstream waited;
    } names[] = {{{stream, false}, stream},
                 {{stream, true}, stream},
                 {{NULL, false}, CU_STREAM_LEGACY},
                 {{NULL, true}, CU_STREAM_PER_THREAD},
                 {{CU_STREAM_PER_THREAD, false}, CU_STREAM_PER_THREAD},
                 {{CU_STREAM_LEGACY, true}, CU_STREAM_LEGACY}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(ops->stream_synchronize(ops->self, context_of(0), names[i].called), 0);
        assert_ptr_equal(driver.waited, names[i].waited);
    }
}

/* ---- fills ---- */

static CUresult make_stream(CUstream *out, unsigned int flags) {
    if (driver.create_fails) return driver.create_fails;
    const unsigned number = ++driver.streams;
    driver.flags = flags;
    if (driver.beside) {
        driver.beside = false;
        assert_int_equal(ops->fill(ops->self, context_of(0), NULL, 0x70000000, 512, 1), 0);
    }
    *out = OWN_STREAM(number);
    return CUDA_SUCCESS;
}

static void assert_filled(uint64_t address, size_t bytes, uint8_t value, CUstream stream, const void *context) {
    assert_int_equal(driver.fill.address, address);
    assert_int_equal(driver.fill.bytes, bytes);
    assert_int_equal(driver.fill.value, value);
    assert_ptr_equal(driver.fill.stream, stream);
    assert_ptr_equal(driver.waited, stream);
    assert_ptr_equal(driver.called_in, context);
    assert_int_equal(driver.depth, 0);
}

static void hazard_44_a_plain_block_is_filled_on_a_stream_of_our_own_in_its_context(void **state) {
    (void)state;
    begin(NULL);
    for (int round = 0; round < 2; round++) {
        for (int ordinal = 0; ordinal < DEVICES; ordinal++) {
            const struct device_context context = context_of(ordinal);
            assert_int_equal(ops->fill(ops->self, context, NULL, 0x70000000, 1536, 0xFF), 0);
            assert_filled(0x70000000, 1536, 0xFF, OWN_STREAM(1 + ordinal), context.handle);
        }
    }
    assert_int_equal(driver.streams, DEVICES);
    assert_int_equal(driver.flags, CU_STREAM_NON_BLOCKING); /* waits for nobody's legacy stream */
    /* The stream goes with its context, and not before. */
    device_driver_context_settled(&device, CONTEXT(0), false);
    assert_int_equal(ops->fill(ops->self, context_of(0), NULL, 0x70000000, 512, 0), 0);
    assert_filled(0x70000000, 512, 0, OWN_STREAM(1), CONTEXT(0));
    device_driver_context_settled(&device, CONTEXT(0), true);
    assert_int_equal(ops->fill(ops->self, context_of(1), NULL, 0x70000000, 512, 0), 0);
    assert_filled(0x70000000, 512, 0, OWN_STREAM(2), CONTEXT(1));
    assert_int_equal(ops->fill(ops->self, context_of(0), NULL, 0x70000000, 512, 0), 0);
    assert_filled(0x70000000, 512, 0, OWN_STREAM(3), CONTEXT(0));
    assert_int_equal(driver.destroyed, 0);
}

static void a_block_of_a_stream_is_filled_on_it(void **state) {
    (void)state;
    begin(NULL);
    const struct device_stream created = {(void *)0x5000, false}, per_thread = {NULL, true};
    assert_int_equal(ops->fill(ops->self, context_of(1), &created, 0x70000000, 512, 0), 0);
    assert_filled(0x70000000, 512, 0, (CUstream)created.handle, CONTEXT(1));
    assert_int_equal(ops->fill(ops->self, context_of(0), &per_thread, 0x70000000, 512, 0), 0);
    assert_filled(0x70000000, 512, 0, CU_STREAM_PER_THREAD, CONTEXT(0));
    assert_int_equal(driver.streams, 0);
}

static void a_fill_harms_no_capture_and_leaves_the_threads_mode(void **state) {
    (void)state;
    begin(NULL);
    driver.mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    assert_int_equal(ops->fill(ops->self, context_of(0), NULL, 0x70000000, 512, 0), 0);
    assert_int_equal(driver.fill.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(driver.mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void a_release_harms_no_capture_and_leaves_the_threads_mode(void **state) {
    (void)state;
    begin(NULL);
    const struct segment_source plain = {.kind = SEGMENT_PLAIN, .context = context_of(0)};
    for (int failing = 0; failing < 2; failing++) {
        driver.mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        driver.fails = failing ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
        assert_int_equal(ops->segment_release(ops->self, &plain, 0x70000000, 512), (int)driver.fails);
        assert_int_equal(driver.called_mode, CU_STREAM_CAPTURE_MODE_RELAXED);
        assert_int_equal(driver.mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }
    assert_true(ops->releases_in_captures(ops->self));
    begin("cuThreadExchangeStreamCaptureMode");
    assert_false(ops->releases_in_captures(ops->self));
    assert_int_equal(ops->segment_release(ops->self, &plain, 0x70000000, 512), 0);
}

static void of_two_first_fills_one_makes_the_stream(void **state) {
    (void)state;
    begin(NULL);
    driver.beside = true;
    assert_int_equal(ops->fill(ops->self, context_of(0), NULL, 0x70000000, 1024, 0), 0);
    assert_filled(0x70000000, 1024, 0, OWN_STREAM(2), CONTEXT(0));
    assert_int_equal(driver.streams, 2);
    assert_int_equal(driver.destroyed, 1);
}

static void a_fill_that_fails_says_so(void **state) {
    (void)state;
    begin(NULL);
    driver.create_fails = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(ops->fill(ops->self, context_of(1), NULL, 0x70000000, 512, 0), DEVICE_OUT_OF_MEMORY);
    assert_int_equal(driver.fill.bytes, 0);
    driver.create_fails = CUDA_SUCCESS;
    driver.fill.fails = CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_int_equal(ops->fill(ops->self, context_of(1), NULL, 0x70000000, 512, 0), 700);
    driver.fill.fails = CUDA_SUCCESS;
    driver.fails = CUDA_ERROR_ILLEGAL_ADDRESS; /* the wait */
    assert_int_equal(ops->fill(ops->self, context_of(1), NULL, 0x70000000, 512, 0), 700);
    driver.push_fails = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    assert_int_equal(ops->fill(ops->self, context_of(1), NULL, 0x70000000, 512, 0), DEVICE_CONTEXT_DESTROYED);
    assert_int_equal(driver.depth, 0);
    assert_int_equal(driver.streams, 1);
    static const char *const needed[] = {"cuMemsetD8Async", "cuStreamCreate", "cuStreamDestroy_v2"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        begin(needed[i]);
        assert_null(ops->fill);
    }
    begin("cuThreadExchangeStreamCaptureMode");
    assert_int_equal(ops->fill(ops->self, context_of(0), NULL, 0x70000000, 512, 0), 0);
}

/* ---- contexts and devices ---- */

static int ordinal_of_current(void) {
    struct device_context context = {.ordinal = 77};
    assert_int_equal(ops->context_current(ops->self, &context), 0);
    assert_ptr_equal(context.handle, current());
    return context.ordinal;
}

static void the_device_of_a_context_is_asked_for_once(void **state) {
    (void)state;
    begin(NULL);
    assert_int_equal(ordinal_of_current(), 0);
    driver.stack[0] = CONTEXT(1);
    driver.device_of_current = 1;
    assert_int_equal(ordinal_of_current(), 1);
    driver.stack[0] = CONTEXT(0);
    assert_int_equal(ordinal_of_current(), 0);
    assert_int_equal(driver.asked, 2);
    driver.stack[0] = NULL;
    assert_int_equal(ordinal_of_current(), -1);
    assert_int_equal(driver.asked, 2);

    /* A handle that comes back may be another device's. */
    driver.stack[0] = CONTEXT(0);
    device_driver_forget_contexts(&device);
    assert_int_equal(ordinal_of_current(), 1);
    assert_int_equal(driver.asked, 3);
}

static void more_contexts_than_are_remembered_are_asked_about(void **state) {
    (void)state;
    begin(NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MOST_CONTEXTS; i++) {
            driver.stack[0] = CONTEXT(i);
            driver.device_of_current = i % 7;
            assert_int_equal(ordinal_of_current(), i % 7);
        }
    }
    assert_int_equal(driver.asked, 3 * DRIVER_CONTEXTS);
}

static void a_device_that_the_driver_does_not_tell_is_an_error(void **state) {
    (void)state;
    struct device_context context = {.ordinal = 77};
    begin(NULL);
    driver.fails = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    assert_int_equal(ops->context_current(ops->self, &context), DEVICE_CONTEXT_DESTROYED);
    driver.fails = CUDA_SUCCESS;
    assert_int_equal(ordinal_of_current(), 0);
}

static void primary_contexts_are_known_and_left_as_they_are(void **state) {
    (void)state;
    begin(NULL);
    assert_true(ops->context_primary(ops->self, context_of(0)));
    assert_true(ops->context_primary(ops->self, context_of(1)));
    assert_false(ops->context_primary(ops->self, (struct device_context){CONTEXT(1), 0}));
    assert_true(ops->context_alive(ops->self, context_of(1)));
    assert_int_equal(driver.retained[0], 1);
    assert_int_equal(driver.retained[1], 1);
    driver.retained[1] = 0;
    assert_null(device_driver_primary(&device, 1));
    assert_false(ops->context_alive(ops->self, context_of(1)));
    assert_int_equal(driver.retained[1], 0); /* and is not made */
    assert_null(device_driver_primary(&device, 5));
}

static void a_context_that_was_reset_is_dead_once(void **state) {
    (void)state;
    begin(NULL);
    device_driver_note_reset(&device, 1, true);
    assert_true(ops->context_alive(ops->self, context_of(0)));
    assert_false(ops->context_alive(ops->self, context_of(1)));
    assert_true(ops->context_alive(ops->self, context_of(1)));
    device_driver_note_reset(&device, 1, true);
    device_driver_note_reset(&device, 1, false);
    assert_true(ops->context_alive(ops->self, context_of(1)));
    device_driver_note_reset(&device, 64, true); /* beyond what is kept */
    device_driver_note_reset(&device, -1, true);
    assert_true(ops->context_alive(ops->self, context_of(0)));
}

static void a_device_is_described_as_far_as_it_is_known(void **state) {
    (void)state;
    struct device_info info;
    begin(NULL);
    ops->device_describe(ops->self, context_of(1), &info);
    assert_int_equal(info.total_bytes, 1001);
    assert_int_equal(info.uuid[0], 0x41);
    assert_int_equal(info.uuid[15], 0x41);
    assert_string_equal(info.pci, "0000:ab:01.0");
    driver.fails = CUDA_ERROR_UNKNOWN;
    ops->device_describe(ops->self, context_of(1), &info);
    assert_int_equal(info.total_bytes, 0);
    assert_int_equal(info.uuid[0], 0);
    assert_string_equal(info.pci, "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_missing_is_named),
    cmocka_unit_test(calls_are_made_in_their_context_and_leave_the_stack),
    cmocka_unit_test(a_context_that_cannot_be_entered_is_the_answer),
    cmocka_unit_test(without_memory_pools_there_are_no_segments_of_theirs),
    cmocka_unit_test(which_memory_pools_can_be_exported_is_known),
    cmocka_unit_test(streams_are_named_as_the_plain_entry_points_know_them),
    cmocka_unit_test(hazard_44_a_plain_block_is_filled_on_a_stream_of_our_own_in_its_context),
    cmocka_unit_test(a_block_of_a_stream_is_filled_on_it),
    cmocka_unit_test(a_fill_harms_no_capture_and_leaves_the_threads_mode),
    cmocka_unit_test(a_release_harms_no_capture_and_leaves_the_threads_mode),
    cmocka_unit_test(of_two_first_fills_one_makes_the_stream),
    cmocka_unit_test(a_fill_that_fails_says_so),
    cmocka_unit_test(the_device_of_a_context_is_asked_for_once),
    cmocka_unit_test(more_contexts_than_are_remembered_are_asked_about),
    cmocka_unit_test(a_device_that_the_driver_does_not_tell_is_an_error),
    cmocka_unit_test(primary_contexts_are_known_and_left_as_they_are),
    cmocka_unit_test(a_context_that_was_reset_is_dead_once),
    cmocka_unit_test(a_device_is_described_as_far_as_it_is_known),
};
TESTING_MAIN(tests)
