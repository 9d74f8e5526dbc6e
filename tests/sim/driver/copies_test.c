/* SPDX-License-Identifier: MIT
 *
 * Copies and fills move the bytes (SIM_DEVICES=2).
 */
#include <stdlib.h>

#include "fixture.h"

#define MIB ((size_t)1 << 20)

static CUdeviceptr new_memory(size_t bytes) {
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, bytes));
    return memory;
}

static void there_and_back(void **state) {
    (void)state;
    const size_t bytes = 3 * MIB + 17;
    fresh_context();
    unsigned char *const out = malloc(bytes), *const in = calloc(1, bytes);
    for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(i * 31);
    CUdeviceptr first = new_memory(bytes), second = new_memory(bytes);
    CHECK(cuMemcpyHtoD(first, out, bytes));
    CHECK(cuMemcpyDtoD(second, first, bytes));
    CHECK(cuMemcpyDtoH(in, second, bytes));
    assert_memory_equal(in, out, bytes);
    CHECK(cuMemcpy(first, second + 1, 100));
    CHECK(cuMemcpy((CUdeviceptr)(uintptr_t)in, first, 100));
    assert_memory_equal(in, out + 1, 100);
    free(out);
    free(in);
}

static void freed_memory_is_cleared_of_its_pages(void **state) {
    (void)state;
    unsigned char byte = 1;
    fresh_context();
    CUdeviceptr memory = new_memory(4 * MIB);
    CHECK(cuMemsetD8(memory, 9, 4 * MIB));
    CHECK(cuMemFree(memory));
    assert_int_equal(new_memory(4 * MIB), memory);
    CHECK(cuMemcpyDtoH(&byte, memory + 2 * MIB, 1));
    assert_int_equal(byte, 0);
}

static void fills(void **state) {
    (void)state;
    uint32_t words[64];
    fresh_context();
    CUstream stream = new_stream(0);
    CUdeviceptr memory = new_memory(sizeof(words));
    CHECK(cuMemsetD32(memory, 0x01020304, 64));
    CHECK(cuMemsetD16(memory + 4, 0xabcd, 2));
    CHECK(cuMemsetD8(memory + 8, 0x11, 4));
    CHECK(cuMemsetD32Async(memory + 16, 7, 1, stream));
    CHECK(cuMemsetD2D8(memory + 64, 16, 0xee, 2, 3));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(words, memory, sizeof(words)));
    assert_int_equal(words[0], 0x01020304);
    assert_int_equal(words[1], 0xabcdabcd);
    assert_int_equal(words[2], 0x11111111);
    assert_int_equal(words[4], 7);
    assert_int_equal(words[16], 0x0102eeee);
    assert_int_equal(words[20], 0x0102eeee);
    assert_int_equal(words[24], 0x0102eeee);
    assert_int_equal(words[28], 0x01020304);
}

static void wrong_ranges_answer_1(void **state) {
    (void)state;
    char host[64];
    fresh_context();
    CUdeviceptr memory = new_memory(1000);
    CHECK_CODE(cuMemsetD8(memory, 0, 1001), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemsetD8(0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemsetD32(memory + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemcpyDtoH(host, memory + 990, 11), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemcpyDtoD(memory, memory + 2 * MIB, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpyDtoH(host, memory, 0));
    CHECK(cuMemFree(memory));
    CHECK_CODE(cuMemcpyDtoH(host, memory, 8), CUDA_ERROR_INVALID_VALUE);
}

static void pageable_source_may_change_after_the_call(void **state) {
    (void)state;
    unsigned char host[256], back[256];
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory = new_memory(sizeof(host));
    memset(host, 1, sizeof(host));
    hold_stream(stream);
    CHECK(cuMemcpyHtoDAsync(memory, host, sizeof(host), stream));
    memset(host, 2, sizeof(host));
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(back, memory, sizeof(back)));
    assert_int_equal(back[255], 1);
}

static void pageable_target_is_filled_when_the_call_returns(void **state) {
    (void)state;
    unsigned char back[256] = {0};
    const struct sim_kernel kernel = {.microseconds = 5000};
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory = new_memory(sizeof(back));
    CHECK(cuMemsetD8(memory, 3, sizeof(back)));
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuMemcpyDtoHAsync(back, memory, sizeof(back), stream));
    assert_int_equal(back[255], 3);
}

static void pinned_copies_do_not_wait(void **state) {
    (void)state;
    unsigned char *host;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory = new_memory(MIB);
    CHECK(cuMemAllocHost((void **)&host, MIB));
    memset(host, 0, MIB);
    hold_stream(stream);
    CHECK(cuMemsetD8Async(memory, 4, MIB, stream));
    CHECK(cuMemcpyDtoHAsync(host, memory, MIB, stream));
    assert_int_equal(host[0], 0);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(host[MIB - 1], 4);
}

static void a_synchronous_copy_comes_after_blocking_streams(void **state) {
    (void)state;
    unsigned char byte = 0;
    const struct sim_kernel kernel = {.microseconds = 10000};
    fresh_context();
    CUstream stream = new_stream(0);
    CUdeviceptr memory = new_memory(1);
    CHECK(cuMemsetD8(memory, 1, 1));
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuMemsetD8Async(memory, 2, 1, stream));
    CHECK(cuMemcpyDtoH(&byte, memory, 1));
    assert_int_equal(byte, 2);
}

static void two_and_three_dimensions(void **state) {
    (void)state;
    unsigned char host[4 * 8 * 16], back[4 * 8 * 16] = {0};
    fresh_context();
    for (size_t i = 0; i < sizeof(host); i++) host[i] = (unsigned char)i;
    CUdeviceptr memory = new_memory(sizeof(host) * 2);
    CUDA_MEMCPY3D volume = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                            .srcHost = host,
                            .srcPitch = 16,
                            .srcHeight = 8,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .dstDevice = memory,
                            .dstPitch = 32,
                            .dstHeight = 8,
                            .WidthInBytes = 16,
                            .Height = 8,
                            .Depth = 4};
    CHECK(cuMemcpy3D(&volume));
    CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = memory,
                           .srcPitch = 32,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = back,
                           .dstPitch = 16,
                           .WidthInBytes = 16,
                           .Height = 32};
    CHECK(cuMemcpy2D(&plane));
    assert_memory_equal(back, host, sizeof(host));
    plane = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = memory,
                            .srcPitch = 32,
                            .srcXInBytes = 3,
                            .srcY = 2,
                            .dstMemoryType = CU_MEMORYTYPE_HOST,
                            .dstHost = back,
                            .dstPitch = 4,
                            .WidthInBytes = 4,
                            .Height = 2};
    CHECK(cuMemcpy2DUnaligned(&plane));
    assert_int_equal(back[0], host[2 * 16 + 3]);
    assert_int_equal(back[4], host[3 * 16 + 3]);
    plane.srcPitch = 2;
    CHECK_CODE(cuMemcpy2D(&plane), CUDA_ERROR_INVALID_VALUE);
    plane.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    CHECK_CODE(cuMemcpy2D(&plane), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_CODE(cuMemcpy2D(NULL), CUDA_ERROR_INVALID_VALUE);
}

static void between_devices(void **state) {
    (void)state;
    CUcontext first = fresh_context(), second;
    unsigned char byte = 0;
    CUdeviceptr here = new_memory(64);
    CHECK(cuMemsetD8(here, 6, 64));
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuCtxSetCurrent(second));
    CUdeviceptr there = new_memory(64);
    CHECK(cuMemcpyPeer(there, second, here, first, 64));
    CHECK(cuMemcpyDtoH(&byte, there + 63, 1));
    assert_int_equal(byte, 6);
    CHECK_CODE(cuMemcpyPeer(there, NULL, here, first, 64), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(there_and_back),
    cmocka_unit_test(freed_memory_is_cleared_of_its_pages),
    cmocka_unit_test(fills),
    cmocka_unit_test(wrong_ranges_answer_1),
    cmocka_unit_test(pageable_source_may_change_after_the_call),
    cmocka_unit_test(pageable_target_is_filled_when_the_call_returns),
    cmocka_unit_test(pinned_copies_do_not_wait),
    cmocka_unit_test(a_synchronous_copy_comes_after_blocking_streams),
    cmocka_unit_test(two_and_three_dimensions),
    cmocka_unit_test(between_devices),
};
TESTING_MAIN(tests)
