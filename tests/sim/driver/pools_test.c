/* SPDX-License-Identifier: MIT
 *
 * Stream-ordered allocation and memory pools (SIM_DEVICES=2, pools grow by 32 MiB).
 */
#include "fixture.h"

#define MIB ((size_t)1 << 20)

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute name) {
    cuuint64_t value;
    CHECK(cuMemPoolGetAttribute(pool, name, &value));
    return value;
}

static CUmemoryPool new_pool(CUdevice device) {
    CUmemoryPool pool;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CHECK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static void a_block_freed_on_a_stream_is_its_next(void **state) {
    (void)state;
    CUdeviceptr first, second;
    fresh_context();
    CUstream stream = new_stream(0);
    CHECK(cuMemAllocAsync(&first, 1000, stream));
    hold_stream(stream);
    CHECK(cuMemFreeAsync(first, stream));
    CHECK(cuMemAllocAsync(&second, 1000, stream));
    assert_int_equal(second, first);
    CHECK(cuMemFreeAsync(second, stream));
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
}

static void another_stream_gets_it_when_the_free_has_happened(void **state) {
    (void)state;
    CUdeviceptr first, second, third;
    fresh_context();
    CUmemoryPool pool = new_pool(0);
    CUstream one = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAllocFromPoolAsync(&first, 32 * MIB, pool, one));
    hold_stream(one);
    CHECK(cuMemFreeAsync(first, one));
    CHECK(cuMemAllocFromPoolAsync(&second, 32 * MIB, pool, other));
    assert_int_not_equal(second, first);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(one));
    CHECK(cuMemAllocFromPoolAsync(&third, 32 * MIB, pool, other));
    CHECK(cuMemFreeAsync(second, other));
    CHECK(cuMemFreeAsync(third, other));
    CHECK(cuMemPoolDestroy(pool));
}

static void a_full_device_makes_an_allocation_wait_for_a_free(void **state) {
    (void)state;
    CUdeviceptr first, second;
    size_t total;
    fresh_context();
    CHECK(cuMemGetInfo(NULL, &total));
    CUmemoryPool pool = new_pool(0);
    CUstream one = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAllocFromPoolAsync(&first, total, pool, one));
    CHECK_CODE(cuMemAllocFromPoolAsync(&second, MIB, pool, other), CUDA_ERROR_OUT_OF_MEMORY);
    hold_stream(one);
    CHECK(cuMemFreeAsync(first, one));
    CHECK(cuMemAllocFromPoolAsync(&second, total, pool, other));
    assert_int_equal(second, first);
    CHECK_CODE(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(other));
    CHECK(cuMemFreeAsync(second, other));
    CHECK(cuMemPoolDestroy(pool));
}

static void counters_are_exact(void **state) {
    (void)state;
    CUdeviceptr first, second, plain;
    cuuint64_t zero = 0, one = 1;
    fresh_context();
    CUmemoryPool pool = new_pool(0);
    CUstream stream = new_stream(0);
    CHECK(cuMemAllocFromPoolAsync(&first, 1000, pool, stream));
    CHECK(cuMemAllocFromPoolAsync(&second, 2048, pool, stream));
    CHECK(cuMemAlloc(&plain, 4096));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3048);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    CHECK(cuMemFreeAsync(second, stream));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3048);
    CHECK_CODE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1000);
    CHECK(cuMemFreeAsync(first, stream));
    CHECK(cuMemPoolDestroy(pool));
}

static void defaults_and_wrong_arguments(void **state) {
    (void)state;
    int number;
    cuuint64_t value;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    fresh_context();
    CUmemoryPool pool = new_pool(0), other;
    for (int name = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; name < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD; name++) {
        CHECK(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)name, &number));
        assert_int_equal(number, 1);
    }
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    CHECK_CODE(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)9, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)9, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolTrimTo(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolCreate(NULL, &properties), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolCreate(&other, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolCreate(&other, &properties), CUDA_ERROR_INVALID_VALUE);
    properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 7};
    CHECK_CODE(cuMemPoolCreate(&other, &properties), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPoolDestroy(pool));
    CHECK_CODE(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK_CODE(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

static void memory_over_the_threshold_goes_back_at_a_synchronise(void **state) {
    (void)state;
    CUdeviceptr memory;
    cuuint64_t threshold = 64 * MIB;
    fresh_context();
    CUmemoryPool pool = new_pool(0);
    CUstream stream = new_stream(0);
    CHECK(cuMemAllocFromPoolAsync(&memory, MIB, pool, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CHECK(cuMemAllocFromPoolAsync(&memory, MIB, pool, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuCtxSynchronize());
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    CHECK(cuMemPoolTrimTo(pool, 32 * MIB));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    CHECK(cuMemPoolTrimTo(pool, 0));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    CHECK(cuMemPoolDestroy(pool));
    assert_int_equal(taken_bytes(), 0);
}

static void a_free_that_has_not_happened_keeps_its_memory(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CUmemoryPool pool = new_pool(0);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAllocFromPoolAsync(&memory, MIB, pool, stream));
    hold_stream(stream);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuMemPoolTrimTo(pool, 0));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    CHECK(cuMemPoolDestroy(pool));
    assert_int_equal(taken_bytes(), 32 * MIB);
    sim_release_kernels();
    CHECK(cuCtxSynchronize());
    assert_int_equal(taken_bytes(), 0);
}

static void a_destroyed_pool_lives_as_long_as_its_memory(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CUmemoryPool pool = new_pool(0), current;
    CHECK(cuDeviceSetMemPool(0, pool));
    CHECK(cuMemAllocAsync(&memory, MIB, NULL));
    CHECK(cuMemPoolDestroy(pool));
    CHECK(cuDeviceGetMemPool(&current, 0));
    CUmemoryPool default_pool;
    CHECK(cuDeviceGetDefaultMemPool(&default_pool, 0));
    assert_ptr_equal(current, default_pool);
    CHECK(cuMemsetD8(memory, 1, MIB));
    CHECK(cuMemFreeAsync(memory, NULL));
    CHECK(cuCtxSynchronize());
    assert_int_equal(taken_bytes(), 0);
}

static void wrong_arguments_of_alloc_and_free(void **state) {
    (void)state;
    CUdeviceptr memory, zero = 1;
    fresh_context();
    CUstream stream = new_stream(0);
    CHECK_CODE(cuMemAllocAsync(NULL, 16, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAllocAsync(&memory, SIZE_MAX, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAllocAsync(&zero, 0, stream));
    assert_int_equal(zero, 0);
    CHECK_CODE(cuMemAllocFromPoolAsync(&memory, 16, NULL, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemAllocAsync(&memory, 16, (CUstream)&memory), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuMemFreeAsync(0, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAllocAsync(&memory, 4096, stream));
    CHECK_CODE(cuMemFreeAsync(memory + 512, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK_CODE(cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamDestroy(stream));
    CHECK_CODE(cuMemAllocAsync(&memory, 16, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void plain_memory_is_freed_in_the_order_of_the_stream(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAlloc(&memory, 4 * MIB));
    hold_stream(stream);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK_CODE(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(taken_bytes(), 4 * MIB);
    sim_release_kernels();
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(taken_bytes(), 0);
}

static void cumemfree_of_pool_memory_does_not_wait(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAllocAsync(&memory, MIB, stream));
    hold_stream(stream);
    CHECK(cuMemFree(memory));
    CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    sim_release_kernels();
    CHECK(cuCtxSynchronize());
}

static void pool_memory_survives_reset_and_destroy(void **state) {
    (void)state;
    CUcontext created;
    CUdeviceptr first, second;
    fresh_context();
    CHECK(cuCtxCreate(&created, NULL, 0, 0));
    CHECK(cuMemAllocAsync(&first, MIB, NULL));
    CHECK(cuCtxDestroy(created));
    CHECK(cuMemAllocAsync(&second, MIB, NULL));
    CHECK(cuMemsetD8(first, 1, MIB));
    fresh_context();
    CHECK(cuMemsetD8(second, 1, MIB));
    CHECK(cuMemFree(first));
    CHECK(cuMemFreeAsync(second, NULL));
    CHECK(cuCtxSynchronize());
    assert_int_equal(taken_bytes(), 0);
}

static void access_by_peers(void **state) {
    (void)state;
    CUmemAccess_flags flags;
    CUmemLocation own = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemLocation peer = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    CUmemAccessDesc access = {.location = peer, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    fresh_context();
    CUmemoryPool pool = new_pool(0);
    CHECK(cuMemPoolGetAccess(&flags, pool, &own));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(cuMemPoolGetAccess(&flags, pool, &peer));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK(cuMemPoolSetAccess(pool, &access, 1));
    CHECK(cuMemPoolGetAccess(&flags, pool, &peer));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    access = (CUmemAccessDesc){.location = own, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CHECK_CODE(cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_VALUE);
    access.location.id = 9;
    CHECK_CODE(cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_DEVICE);
    access.flags = (CUmemAccess_flags)2;
    CHECK_CODE(cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolSetAccess(NULL, &access, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPoolDestroy(pool));
}

static void pools_by_location(void **state) {
    (void)state;
    CUmemoryPool by_device, by_location;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    fresh_context();
    CHECK(cuDeviceGetMemPool(&by_device, 1));
    CHECK(cuMemGetMemPool(&by_location, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
    assert_ptr_equal(by_location, by_device);
    CHECK(cuMemGetDefaultMemPool(&by_location, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
    assert_ptr_equal(by_location, by_device);
    location.type = CU_MEM_LOCATION_TYPE_HOST;
    CHECK_CODE(cuMemGetMemPool(&by_location, &location, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_NOT_SUPPORTED);
}

/* Random allocations and frees: no two live blocks overlap, and all comes back. */
static void random_use_never_overlaps(void **state) {
    (void)state;
    enum { BLOCKS = 64, ROUNDS = 4000 };
    CUdeviceptr block[BLOCKS] = {0};
    size_t bytes[BLOCKS] = {0};
    unsigned random = 1;
    fresh_context();
    CUmemoryPool pool = new_pool(0);
    CUstream streams[3] = {new_stream(0), new_stream(CU_STREAM_NON_BLOCKING), NULL};
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1103515245 + 12345;
        const int i = random >> 16 & (BLOCKS - 1);
        CUstream stream = streams[(random >> 8) % 3];
        if (block[i] != 0) {
            CHECK(cuMemFreeAsync(block[i], stream));
            block[i] = 0;
            continue;
        }
        bytes[i] = random % (3 * MIB) + 1;
        CHECK(cuMemAllocFromPoolAsync(&block[i], bytes[i], pool, stream));
        for (int j = 0; j < BLOCKS; j++) {
            if (j == i || block[j] == 0) continue;
            assert_true(block[j] + bytes[j] <= block[i] || block[i] + bytes[i] <= block[j]);
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        if (block[i] != 0) CHECK(cuMemFreeAsync(block[i], streams[0]));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    CHECK(cuCtxSynchronize());
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    CHECK(cuMemPoolDestroy(pool));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_block_freed_on_a_stream_is_its_next),
    cmocka_unit_test(another_stream_gets_it_when_the_free_has_happened),
    cmocka_unit_test(a_full_device_makes_an_allocation_wait_for_a_free),
    cmocka_unit_test(counters_are_exact),
    cmocka_unit_test(defaults_and_wrong_arguments),
    cmocka_unit_test(memory_over_the_threshold_goes_back_at_a_synchronise),
    cmocka_unit_test(a_free_that_has_not_happened_keeps_its_memory),
    cmocka_unit_test(a_destroyed_pool_lives_as_long_as_its_memory),
    cmocka_unit_test(wrong_arguments_of_alloc_and_free),
    cmocka_unit_test(plain_memory_is_freed_in_the_order_of_the_stream),
    cmocka_unit_test(cumemfree_of_pool_memory_does_not_wait),
    cmocka_unit_test(pool_memory_survives_reset_and_destroy),
    cmocka_unit_test(access_by_peers),
    cmocka_unit_test(pools_by_location),
    cmocka_unit_test(random_use_never_overlaps),
};
TESTING_MAIN(tests)
