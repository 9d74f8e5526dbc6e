/* SPDX-License-Identifier: MIT
 *
 * cuMemAlloc, cuMemFree, and the questions about memory (SIM_DEVICES=2).
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "fixture.h"

#define MIB ((size_t)1 << 20)

static void sizes_and_null_arguments(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CHECK_CODE(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAlloc(NULL, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAlloc(&memory, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAlloc(&memory, 16));
    CHECK(cuMemFree(memory));
}

static void small_blocks_share_a_slab_in_steps_of_512(void **state) {
    (void)state;
    CUdeviceptr first, second, third, fourth;
    fresh_context();
    CHECK(cuMemAlloc(&first, 1));
    CHECK(cuMemAlloc(&second, 65));
    CHECK(cuMemAlloc(&third, 123));
    CHECK(cuMemAlloc(&fourth, MIB));
    assert_int_equal(first % (2 * MIB), 0);
    assert_int_equal(second, first + 0x200);
    assert_int_equal(third, first + 0x400);
    assert_int_equal(fourth, first + 0x600);
    assert_int_equal(taken_bytes(), 2 * MIB);
    CHECK(cuMemFree(second));
    CHECK(cuMemAlloc(&second, 512));
    assert_int_equal(second, first + 0x200);
}

static void blocks_from_2_mib_have_a_range_of_their_own(void **state) {
    (void)state;
    CUdeviceptr small, large, larger;
    fresh_context();
    CHECK(cuMemAlloc(&small, 1));
    CHECK(cuMemAlloc(&large, 2 * MIB));
    CHECK(cuMemAlloc(&larger, 2 * MIB + 1));
    assert_int_equal(large % (2 * MIB), 0);
    assert_int_equal(larger % (2 * MIB), 0);
    assert_int_equal(taken_bytes(), (2 + 2 + 4) * MIB);
    CHECK(cuMemFree(larger));
    assert_int_equal(taken_bytes(), 4 * MIB);
    CHECK(cuMemFree(small));
    assert_int_equal(taken_bytes(), 2 * MIB);
    CHECK(cuMemFree(large));
    assert_int_equal(taken_bytes(), 0);
}

static void memory_runs_out_and_comes_back(void **state) {
    (void)state;
    static CUdeviceptr blocks[4096];
    size_t count = 0, total;
    fresh_context();
    CHECK(cuMemGetInfo(NULL, &total));
    while (cuMemAlloc(&blocks[count], 64 * MIB) == CUDA_SUCCESS) count++;
    assert_int_equal(count, total / (64 * MIB));
    CHECK_CODE(cuMemAlloc(&blocks[count], 1), CUDA_ERROR_OUT_OF_MEMORY);
    while (count > 0) CHECK(cuMemFree(blocks[--count]));
    assert_int_equal(taken_bytes(), 0);
}

static void bad_frees_answer_1_and_free_nothing(void **state) {
    (void)state;
    CUdeviceptr memory, large;
    int on_stack;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemAlloc(&large, 4 * MIB));
    CHECK(cuMemFree(0));
    CHECK_CODE(cuMemFree(memory + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemFree(memory + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemFree(large + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemFree((CUdeviceptr)(uintptr_t)&on_stack), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(memory));
    CHECK_CODE(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(large));
    CHECK_CODE(cuMemFree(large), CUDA_ERROR_INVALID_VALUE);
}

static void free_works_from_another_context(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other;
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, 4 * MIB));
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuMemFree(memory));
    CHECK(cuCtxSetCurrent(primary));
    assert_int_equal(taken_bytes(), 0);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void free_waits_for_the_context(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const struct sim_kernel kernel = {.microseconds = 20000};
    CHECK(cuMemAlloc(&memory, 512));
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK(cuMemFree(memory));
    CHECK(cuStreamQuery(stream));
}

static void free_does_not_wait_for_another_device(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other;
    CUdeviceptr memory;
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    CUstream stream = new_stream(0);
    hold_stream(stream);
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuMemAlloc(&memory, 512));
    CHECK(cuMemFree(memory));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void address_range_tells_base_and_requested_size(void **state) {
    (void)state;
    CUdeviceptr memory, base;
    size_t bytes;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 1000));
    CHECK(cuMemGetAddressRange(&base, &bytes, memory + 999));
    assert_int_equal(base, memory);
    assert_int_equal(bytes, 1000);
    CHECK(cuMemGetAddressRange(NULL, NULL, memory));
    CHECK_CODE(cuMemGetAddressRange(&base, &bytes, memory + 1000), CUDA_ERROR_NOT_FOUND);
    CHECK_CODE(cuMemGetAddressRange(&base, &bytes, 0), CUDA_ERROR_NOT_FOUND);
    CHECK(cuMemFree(memory));
    CHECK_CODE(cuMemGetAddressRange(&base, &bytes, memory), CUDA_ERROR_NOT_FOUND);
}

static void memory_info_ignores_null(void **state) {
    (void)state;
    size_t free_bytes, total_bytes;
    fresh_context();
    CHECK(cuMemGetInfo(&free_bytes, NULL));
    CHECK(cuMemGetInfo(NULL, &total_bytes));
    CHECK(cuMemGetInfo(NULL, NULL));
    assert_int_equal(free_bytes, total_bytes);
}

static void pitched_memory(void **state) {
    (void)state;
    CUdeviceptr memory, base;
    size_t pitch, bytes;
    fresh_context();
    CHECK(cuMemAllocPitch(&memory, &pitch, 513, 3, 4));
    assert_int_equal(pitch, 1024);
    CHECK(cuMemGetAddressRange(&base, &bytes, memory));
    assert_int_equal(bytes, 3072);
    CHECK_CODE(cuMemAllocPitch(&memory, &pitch, 0, 3, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAllocPitch(&memory, &pitch, 3, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAllocPitch(&memory, &pitch, 3, 3, 5), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAllocPitch(&memory, NULL, 3, 3, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAllocPitch(&memory, &pitch, 3, SIZE_MAX, 4), CUDA_ERROR_OUT_OF_MEMORY);
}

static void managed_memory_is_seen_by_the_host(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CHECK(cuMemAllocManaged(&memory, 100, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemsetD8(memory, 5, 100));
    assert_int_equal(((unsigned char *)(uintptr_t)memory)[99], 5);
    CHECK_CODE(cuMemFree(memory + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(memory));
    CHECK_CODE(cuMemAllocManaged(&memory, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAllocManaged(&memory, 100, 4), CUDA_ERROR_INVALID_VALUE);
}

static void the_host_cannot_read_device_memory(void **state) {
    (void)state;
    CUdeviceptr memory;
    int status;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 4096));
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)(uintptr_t)memory == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void *alloc_and_free(void *context) {
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 2000; i++) {
        CUdeviceptr memory;
        CHECK(cuMemAlloc(&memory, (size_t)(i % 7 + 1) * 300000));
        CHECK(cuMemFree(memory));
    }
    return NULL;
}

static void threads_share_the_device(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, alloc_and_free, context), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(taken_bytes(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_and_null_arguments),
    cmocka_unit_test(small_blocks_share_a_slab_in_steps_of_512),
    cmocka_unit_test(blocks_from_2_mib_have_a_range_of_their_own),
    cmocka_unit_test(memory_runs_out_and_comes_back),
    cmocka_unit_test(bad_frees_answer_1_and_free_nothing),
    cmocka_unit_test(free_works_from_another_context),
    cmocka_unit_test(free_waits_for_the_context),
    cmocka_unit_test(free_does_not_wait_for_another_device),
    cmocka_unit_test(address_range_tells_base_and_requested_size),
    cmocka_unit_test(memory_info_ignores_null),
    cmocka_unit_test(pitched_memory),
    cmocka_unit_test(managed_memory_is_seen_by_the_host),
    cmocka_unit_test(the_host_cannot_read_device_memory),
    cmocka_unit_test(threads_share_the_device),
};
TESTING_MAIN(tests)
