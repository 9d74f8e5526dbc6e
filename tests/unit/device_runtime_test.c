/* SPDX-License-Identifier: MIT
 *
 * The device over a runtime with no driver below it: which runtimes will do, and that calls are made on the block's own
 * device, with the program's device and last error as before.
 */
#include "testing.h"

#include <stdbool.h>

#include "device/runtime_only.h"

static struct {
    int device;    /* that is set */
    int called_on; /* device of the last call of memory or waiting, -1: none */
    void *waited;  /* stream of the last wait for one */
    void *filled;  /* address of the last fill */
    size_t fill_bytes;
    int fill_value, waits_after_fill;
    int last_error;       /* as the program would find it */
    int fails, set_fails; /* what calls of memory and waiting, and of cudaSetDevice answer */
} runtime;

static int called(void) {
    runtime.called_on = runtime.device;
    if (runtime.fails) runtime.last_error = runtime.fails;
    return runtime.fails;
}

static int cuda_malloc(void **out, size_t bytes) {
    *out = (void *)(0x70000000 + bytes);
    return called();
}

static int cuda_free(void *address) {
    assert_ptr_equal(address, (void *)0x70000000);
    return called();
}

static int memory_info(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = 3;
    *total_bytes = 4;
    return called();
}

static int memory_fill(void *address, int value, size_t bytes) {
    runtime.filled = address;
    runtime.fill_bytes = bytes;
    runtime.fill_value = value;
    runtime.waits_after_fill = 0;
    return called();
}

static int synchronize(void) {
    runtime.waits_after_fill++;
    return called();
}

static int stream_synchronize(void *stream) {
    runtime.waited = stream;
    return called();
}

static int get_device(int *out) {
    *out = runtime.device;
    return 0;
}

static int set_device(int device) {
    if (runtime.set_fails) return runtime.set_fails;
    runtime.device = device;
    return 0;
}

static int get_last_error(void) {
    int error = runtime.last_error;
    runtime.last_error = 0;
    return error;
}

static const struct {
    const char *name;
    void *function;
} functions[] = {{"cudaMalloc", (void *)cuda_malloc},
                 {"cudaFree", (void *)cuda_free},
                 {"cudaMemset", (void *)memory_fill},
                 {"cudaDeviceSynchronize", (void *)synchronize},
                 {"cudaStreamSynchronize", (void *)stream_synchronize},
                 {"cudaMemGetInfo", (void *)memory_info},
                 {"cudaGetDevice", (void *)get_device},
                 {"cudaSetDevice", (void *)set_device},
                 {"cudaGetLastError", (void *)get_last_error}};

struct exports {
    const char *missing, *starts_work; /* NULL: none */
};

static void *look_up(void *arg, const char *symbol) {
    const struct exports *exports = arg;
    if (exports->missing && strcmp(exports->missing, symbol) == 0) return NULL;
    if (exports->starts_work && strcmp(exports->starts_work, symbol) == 0) return (void *)called;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, symbol) == 0) return functions[i].function;
    return NULL;
}

static struct runtime_only device;
static const struct device_ops *const ops = &device.ops;

static bool begin(struct exports exports) {
    memset(&runtime, 0, sizeof runtime);
    memset(&device, 0, sizeof device);
    runtime.called_on = -1;
    return runtime_only_bind(&device, look_up, &exports);
}

static struct device_context context_of(int ordinal) {
    return (struct device_context){(void *)(uintptr_t)(ordinal + 1), ordinal};
}

static void a_runtime_must_allocate_and_free(void **state) {
    (void)state;
    assert_true(begin((struct exports){NULL, NULL}));
    assert_false(begin((struct exports){"cudaMalloc", NULL}));
    assert_false(begin((struct exports){"cudaFree", NULL}));
}

static void what_starts_work_must_be_waited_for(void **state) {
    (void)state;
    static const char *const names[] = {
        "cudaLaunch",           "cudaLaunchKernel",          "cudaLaunchKernel_ptsz",
        "cudaLaunchKernelExC",  "cudaLaunchKernelExC_ptsz",  "cudaLaunchCooperativeKernel",
        "cudaLaunchHostFunc",   "cudaGraphLaunch",           "cudaGraphLaunch_ptsz",
        "cudaStreamCreate",     "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority",
        "cudaMallocAsync",      "cudaMallocAsync_ptsz",      "cudaMallocFromPoolAsync",
        "cudaMemcpyAsync",      "cudaMemcpyAsync_ptsz",      "cudaMemcpy2DAsync",
        "cudaMemcpy3DAsync",    "cudaMemcpyPeerAsync",       "cudaMemsetAsync",
        "cudaMemsetAsync_ptsz", "cudaMemPrefetchAsync"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(begin((struct exports){"cudaDeviceSynchronize", names[i]}));
        assert_true(begin((struct exports){NULL, names[i]}));
        assert_int_equal(ops->current_synchronize(ops->self), 0);
        assert_int_equal(runtime.called_on, 0);
        runtime.called_on = -1;
        assert_int_equal(ops->context_synchronize(ops->self, context_of(0)), 0);
        assert_int_equal(runtime.called_on, 0);
    }
    assert_true(begin((struct exports){"cudaDeviceSynchronize", NULL})); /* nothing is ever under way */
    assert_int_equal(ops->current_synchronize(ops->self), 0);
    assert_int_equal(ops->context_synchronize(ops->self, context_of(0)), 0);
    assert_int_equal(ops->stream_synchronize(ops->self, context_of(0), (struct device_stream){(void *)0x5000, false}),
                     0);
    assert_int_equal(runtime.called_on, -1);
}

static void streams_are_waited_for_alone_where_that_can_be(void **state) {
    (void)state;
    const struct device_stream stream = {(void *)0x5000, false}, none = {NULL, true};
    begin((struct exports){NULL, "cudaLaunchKernel"});
    ops->stream_synchronize(ops->self, context_of(0), stream);
    assert_ptr_equal(runtime.waited, stream.handle);
    runtime.waited = NULL;
    runtime.called_on = -1;
    ops->stream_synchronize(ops->self, context_of(1), none); /* whichever is meant: the whole device */
    assert_null(runtime.waited);
    assert_int_equal(runtime.called_on, 1);
    begin((struct exports){"cudaStreamSynchronize", "cudaLaunchKernel"});
    ops->stream_synchronize(ops->self, context_of(0), stream);
    assert_int_equal(runtime.called_on, 0);
}

static void a_fill_is_waited_for_where_work_may_be_under_way(void **state) {
    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        begin((struct exports){NULL, asynchronous ? "cudaLaunchKernel" : NULL});
        assert_int_equal(ops->fill(ops->self, context_of(1), NULL, 0x70000000, 1024, 0xFF), 0);
        assert_ptr_equal(runtime.filled, (void *)0x70000000);
        assert_int_equal(runtime.fill_bytes, 1024);
        assert_int_equal(runtime.fill_value, 0xFF);
        assert_int_equal(runtime.waits_after_fill, asynchronous);
        assert_int_equal(runtime.called_on, 1);
        assert_int_equal(runtime.device, 0);
        runtime.fails = 700;
        assert_int_equal(ops->fill(ops->self, context_of(1), NULL, 0x70000000, 1024, 0xFF), 700);
        assert_int_equal(runtime.last_error, 0); /* not the program's */
    }
    begin((struct exports){"cudaMemset", NULL});
    assert_null(ops->fill);
}

static void calls_are_made_on_their_device_and_leave_the_programs(void **state) {
    (void)state;
    begin((struct exports){NULL, "cudaLaunchKernel"});
    for (int ordinal = 0; ordinal < 3; ordinal++) {
        for (int code = 0; code < 3; code += 2) {
            const struct device_context context = context_of(ordinal);
            const struct segment_source plain = {.kind = SEGMENT_PLAIN, .context = context};
            uint64_t address = 7;
            size_t a, b;
            runtime.device = 1;
            runtime.fails = code;
            assert_int_equal(ops->segment_alloc(ops->self, &plain, (struct device_stream){0}, 512, &address), code);
            assert_int_equal(address, code ? 7 : 0x70000200);
            assert_int_equal(runtime.last_error, 0); /* of a call that the program did not make */
            assert_int_equal(runtime.called_on, ordinal);
            runtime.called_on = -1;
            assert_int_equal(ops->segment_release(ops->self, &plain, 0x70000000, 512), code);
            assert_int_equal(runtime.called_on, ordinal);
            runtime.called_on = -1;
            assert_int_equal(ops->context_synchronize(ops->self, context), code);
            assert_int_equal(runtime.called_on, ordinal);
            runtime.called_on = -1;
            assert_int_equal(ops->memory_info(ops->self, context, &a, &b), code);
            assert_int_equal(runtime.called_on, ordinal);
            assert_int_equal(runtime.device, 1);
            runtime.last_error = 0;
        }
    }
    runtime.fails = 0;
    runtime.called_on = -1;
    runtime.set_fails = 101;
    assert_int_equal(ops->context_synchronize(ops->self, context_of(0)), 101);
    assert_int_equal(runtime.called_on, -1);
}

static void a_runtime_of_one_device_needs_no_calls_for_it(void **state) {
    (void)state;
    static const char *const missing[] = {"cudaGetDevice", "cudaSetDevice"};
    for (int i = 0; i < 2; i++) {
        begin((struct exports){missing[i], "cudaLaunchKernel"});
        struct device_context context;
        assert_int_equal(ops->context_current(ops->self, &context), 0);
        assert_int_equal(context.ordinal, 0);
        assert_non_null(context.handle);
        assert_int_equal(ops->context_synchronize(ops->self, context), 0);
        assert_int_equal(runtime.called_on, 0);
    }
}

static void contexts_are_devices(void **state) {
    (void)state;
    struct device_context context;
    void *handle;
    begin((struct exports){NULL, NULL});
    runtime.device = 1;
    assert_int_equal(ops->context_current(ops->self, &context), 0);
    assert_int_equal(context.ordinal, 1);
    assert_int_equal(ops->current_handle(ops->self, &handle), 0);
    assert_ptr_equal(handle, context.handle);
    assert_true(ops->context_primary(ops->self, context));
    runtime.device = 0;
    assert_int_equal(ops->current_handle(ops->self, &handle), 0);
    assert_ptr_not_equal(handle, context.handle);
}

static void a_device_that_was_reset_is_dead_once(void **state) {
    (void)state;
    begin((struct exports){NULL, NULL});
    assert_true(ops->context_alive(ops->self, context_of(1)));
    runtime_only_note_reset(&device, 1);
    assert_true(ops->context_alive(ops->self, context_of(0)));
    assert_false(ops->context_alive(ops->self, context_of(1)));
    assert_true(ops->context_alive(ops->self, context_of(1)));
}

static void the_memory_of_a_device_is_known_where_the_runtime_tells_it(void **state) {
    (void)state;
    struct device_info info;
    size_t a, b;
    begin((struct exports){NULL, NULL});
    ops->device_describe(ops->self, context_of(0), &info);
    assert_int_equal(info.total_bytes, 4);
    runtime.fails = 3;
    ops->device_describe(ops->self, context_of(0), &info);
    assert_int_equal(info.total_bytes, 0);
    begin((struct exports){"cudaMemGetInfo", NULL});
    ops->device_describe(ops->self, context_of(0), &info);
    assert_int_equal(info.total_bytes, 0);
    assert_int_equal(ops->memory_info(ops->self, context_of(0), &a, &b), DEVICE_NOT_SUPPORTED);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_runtime_must_allocate_and_free),
    cmocka_unit_test(what_starts_work_must_be_waited_for),
    cmocka_unit_test(streams_are_waited_for_alone_where_that_can_be),
    cmocka_unit_test(a_fill_is_waited_for_where_work_may_be_under_way),
    cmocka_unit_test(calls_are_made_on_their_device_and_leave_the_programs),
    cmocka_unit_test(a_runtime_of_one_device_needs_no_calls_for_it),
    cmocka_unit_test(contexts_are_devices),
    cmocka_unit_test(a_device_that_was_reset_is_dead_once),
    cmocka_unit_test(the_memory_of_a_device_is_known_where_the_runtime_tells_it),
};
TESTING_MAIN(tests)
