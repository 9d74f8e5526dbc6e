/* SPDX-License-Identifier: MIT
 *
 * Modules, kernels and host functions (SIM_LAZY_MB=64, SIM_KERNEL_US=2000).
 */
#include <stdatomic.h>

#include "fixture.h"

static CUfunction new_function(CUmodule *module) {
    CUfunction function;
    CHECK(cuModuleLoadData(module, "any image"));
    CHECK(cuModuleGetFunction(&function, *module, "kernel"));
    return function;
}

static void a_kernel_takes_its_time(void **state) {
    (void)state;
    CUmodule module;
    fresh_context();
    CUfunction function = new_function(&module);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK(cuStreamSynchronize(stream));
}

static void wrong_launches(void **state) {
    (void)state;
    CUmodule module;
    fresh_context();
    CUfunction function = new_function(&module);
    CHECK_CODE(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuLaunchKernel(function, 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuLaunchKernelEx(NULL, function, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuModuleUnload(module));
    CHECK_CODE(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_CODE(cuModuleUnload(module), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void a_name_has_one_handle(void **state) {
    (void)state;
    CUmodule module;
    CUfunction again;
    const char *name;
    fresh_context();
    CUfunction function = new_function(&module);
    CHECK(cuModuleGetFunction(&again, module, "kernel"));
    assert_ptr_equal(again, function);
    CHECK(cuModuleGetFunction(&again, module, "other"));
    assert_ptr_not_equal(again, function);
    CHECK(cuFuncGetName(&name, function));
    assert_string_equal(name, "kernel");
    CHECK_CODE(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void a_library_needs_no_context(void **state) {
    (void)state;
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUcontext context = fresh_context();
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuLibraryLoadData(&library, "any image", NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "kernel"));
    CHECK_CODE(cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuKernelGetFunction(&function, kernel));
    CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    CHECK(cuLaunchKernelEx(&config, (CUfunction)kernel, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuLibraryUnload(library));
}

static void the_first_launch_takes_memory(void **state) {
    (void)state;
    CUmodule module;
    fresh_context();
    CUfunction function = new_function(&module);
    assert_int_equal(taken_bytes(), 0);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_int_equal(taken_bytes(), 64 << 20);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_int_equal(taken_bytes(), 64 << 20);
}

static void a_first_launch_on_a_full_device_answers_2(void **state) {
    (void)state;
    CUmodule module;
    CUdeviceptr memory;
    size_t free_bytes;
    fresh_context();
    CUfunction function = new_function(&module);
    CHECK(cuMemGetInfo(&free_bytes, NULL));
    CHECK(cuMemAlloc(&memory, free_bytes - (2 << 20)));
    CHECK_CODE(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemFree(memory));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static _Atomic(int) answer_inside, runs;

static void CUDA_CB call_inside(void *argument) {
    size_t bytes;
    atomic_store(&answer_inside, (int)cuMemGetInfo(&bytes, NULL));
    atomic_fetch_add(&runs, *(int *)argument);
}

static void host_functions_run_in_order_and_may_not_call(void **state) {
    (void)state;
    int one = 1;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    atomic_store(&runs, 0);
    hold_stream(stream);
    CHECK(cuLaunchHostFunc(stream, call_inside, &one));
    assert_int_equal(atomic_load(&runs), 0);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(atomic_load(&runs), 1);
    assert_int_equal(atomic_load(&answer_inside), CUDA_ERROR_NOT_PERMITTED);
    CHECK_CODE(cuLaunchHostFunc(stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void CUDA_CB note_status(CUstream stream, CUresult status, void *argument) {
    (void)stream;
    *(CUresult *)argument = status;
}

static void after_a_fault_callbacks_are_told_and_host_functions_not_run(void **state) {
    (void)state;
    int one = 1;
    CUresult status = CUDA_SUCCESS;
    fresh_context();
    const struct sim_range nowhere = {.address = 16, .bytes = 16};
    const struct sim_kernel kernel = {.microseconds = 5000, .ranges = &nowhere, .range_count = 1};
    CUstream stream = new_stream(0);
    atomic_store(&runs, 0);
    CHECK_CODE(cuStreamAddCallback(stream, note_status, &status, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamAddCallback(stream, NULL, &status, 0), CUDA_ERROR_INVALID_VALUE);
    hold_stream(stream);
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuLaunchHostFunc(stream, call_inside, &one));
    CHECK(cuStreamAddCallback(stream, note_status, &status, 0));
    sim_release_kernels();
    CHECK_CODE(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    while (sim_pending(NULL) > 0) continue;
    fresh_context();
    assert_int_equal(status, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&runs), 0);
}

static void a_free_whose_wait_meets_a_fault_answers_it(void **state) {
    (void)state;
    CUdeviceptr block;
    fresh_context();
    const struct sim_range nowhere = {.address = 16, .bytes = 16};
    const struct sim_kernel kernel = {.microseconds = 5000, .ranges = &nowhere, .range_count = 1};
    CHECK(cuMemAlloc(&block, 512));
    CHECK((CUresult)sim_launch(&kernel, new_stream(0)));
    CHECK_CODE(cuMemFree(block), CUDA_ERROR_ILLEGAL_ADDRESS);
    fresh_context();
}

struct stamp {
    unsigned char from, to;
    int *refused;
};

/* Writes `to` over what it finds to be `from`. */
static void stamp(void *argument, void *const *pointers) {
    const struct stamp *const stamp = argument;
    size_t bytes;
    unsigned char *const target = pointers[1];
    for (int i = 0; i < 512; i++)
        if (target[i] == stamp->from && *(unsigned char *)pointers[0] == 9) target[i] = stamp->to;
    if (stamp->refused != NULL) *stamp->refused = (int)cuMemGetInfo(&bytes, NULL);
}

static void launch_stamp(CUstream stream, CUdeviceptr memory, struct stamp what, uint32_t microseconds) {
    struct sim_range ranges[] = {{.address = memory, .bytes = 1},
                                 {.address = memory + 512, .bytes = 512, .writes = true}};
    struct sim_kernel kernel = {.microseconds = microseconds,
                                .ranges = ranges,
                                .range_count = 2,
                                .run = stamp,
                                .argument = &what,
                                .argument_bytes = sizeof what};
    CHECK((CUresult)sim_launch(&kernel, stream));
    memset(ranges, 0, sizeof ranges);
    memset(&what, 0, sizeof what);
}

static void a_kernel_may_compute_with_its_ranges(void **state) {
    (void)state;
    CUdeviceptr memory;
    unsigned char found[512], expected[512];
    int refused = 0;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&memory, 1024));
    CHECK(cuMemsetD8Async(memory, 9, 512, stream));
    CHECK(cuMemsetD8Async(memory + 512, 1, 512, stream));
    launch_stamp(stream, memory, (struct stamp){1, 2, &refused}, 0);
    launch_stamp(stream, memory, (struct stamp){2, 3, NULL}, 500);
    launch_stamp(stream, memory, (struct stamp){3, 4, NULL}, 0);
    CHECK(cuMemcpyDtoHAsync(found, memory + 512, sizeof found, stream));
    CHECK(cuStreamSynchronize(stream));
    memset(expected, 4, sizeof expected);
    assert_memory_equal(found, expected, sizeof found);
    assert_int_equal(refused, CUDA_ERROR_NOT_PERMITTED);
}

static void a_kernel_that_may_not_use_a_range_computes_nothing(void **state) {
    (void)state;
    CUdeviceptr memory;
    int called = -1;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&memory, 1024));
    launch_stamp(stream, memory + 1, (struct stamp){0, 1, &called}, 0);
    CHECK_CODE(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(called, -1);
    fresh_context();
}

static void attributes_and_occupancy(void **state) {
    (void)state;
    CUmodule module;
    int value;
    fresh_context();
    CUfunction function = new_function(&module);
    CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    assert_int_equal(value, 1024);
    CHECK_CODE(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, function), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 256, 0));
    assert_int_equal(value, 8);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_kernel_takes_its_time),
    cmocka_unit_test(wrong_launches),
    cmocka_unit_test(a_name_has_one_handle),
    cmocka_unit_test(a_library_needs_no_context),
    cmocka_unit_test(the_first_launch_takes_memory),
    cmocka_unit_test(a_first_launch_on_a_full_device_answers_2),
    cmocka_unit_test(host_functions_run_in_order_and_may_not_call),
    cmocka_unit_test(after_a_fault_callbacks_are_told_and_host_functions_not_run),
    cmocka_unit_test(a_free_whose_wait_meets_a_fault_answers_it),
    cmocka_unit_test(a_kernel_may_compute_with_its_ranges),
    cmocka_unit_test(a_kernel_that_may_not_use_a_range_computes_nothing),
    cmocka_unit_test(attributes_and_occupancy),
};
TESTING_MAIN(tests)
