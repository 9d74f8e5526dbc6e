/* SPDX-License-Identifier: MIT
 *
 * Pinned host memory, allocated and registered.
 */
#include <stdlib.h>

#include "fixture.h"

static void allocation_and_free(void **state) {
    (void)state;
    void *host;
    int on_stack;
    fresh_context();
    CHECK(cuMemAllocHost(&host, 4096));
    memset(host, 1, 4096);
    CHECK_CODE(cuMemFreeHost((char *)host + 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemFree((CUdeviceptr)(uintptr_t)host), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeHost(host));
    CHECK_CODE(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemFreeHost(&on_stack), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeHost(NULL));
}

static void sizes_and_null_arguments(void **state) {
    (void)state;
    void *host = &state;
    fresh_context();
    CHECK_CODE(cuMemAllocHost(NULL, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAllocHost(&host, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemHostAlloc(&host, 0, 0));
    assert_null(host);
    CHECK_CODE(cuMemHostAlloc(&host, 16, 0x100), CUDA_ERROR_INVALID_VALUE);
}

static void flags_show_the_mapping(void **state) {
    (void)state;
    void *host;
    unsigned flags;
    CUdeviceptr address;
    fresh_context();
    CHECK(cuMemHostAlloc(&host, 64, 0));
    CHECK(cuMemHostGetFlags(&flags, host));
    assert_int_equal(flags, CU_MEMHOSTALLOC_DEVICEMAP);
    CHECK(cuMemHostGetDevicePointer(&address, host, 0));
    assert_int_equal(address, (uintptr_t)host);
    CHECK_CODE(cuMemHostGetDevicePointer(&address, &flags, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeHost(host));
}

static void registration(void **state) {
    (void)state;
    void *const memory = malloc(8192);
    void *host;
    fresh_context();
    CHECK(cuMemHostRegister(memory, 4096, 0));
    CHECK_CODE(cuMemHostRegister(memory, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_CODE(cuMemHostRegister((char *)memory + 2048, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(cuMemHostUnregister(memory));
    CHECK_CODE(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CHECK_CODE(cuMemHostUnregister(NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemHostRegister(NULL, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemHostRegister(memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAllocHost(&host, 64));
    CHECK_CODE(cuMemHostUnregister(host), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeHost(host));
    free(memory);
}

static void free_waits_for_the_context(void **state) {
    (void)state;
    void *host;
    const struct sim_kernel kernel = {.microseconds = 20000};
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAllocHost(&host, 64));
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuMemFreeHost(host));
    CHECK(cuStreamQuery(stream));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(allocation_and_free),        cmocka_unit_test(sizes_and_null_arguments),
    cmocka_unit_test(flags_show_the_mapping),     cmocka_unit_test(registration),
    cmocka_unit_test(free_waits_for_the_context),
};
TESTING_MAIN(tests)
