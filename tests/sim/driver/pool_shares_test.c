/* SPDX-License-Identifier: MIT
 *
 * Memory pools of another process, imported (SIM_DEVICES=2; the other process is IPC_PEER).
 */
#include "ipc_ask.h"

enum { MIB = 1 << 20 };
static const CUmemAllocationHandleType by_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct shared {
    struct peer peer;
    uint64_t theirs;
    CUmemoryPool imported;
};

static CUresult import_from(CUmemoryPool *pool, int descriptor) {
    return cuMemPoolImportFromShareableHandle(pool, (void *)(intptr_t)descriptor, by_descriptor, 0);
}

static struct shared share(void) {
    struct shared shared = {.peer = start_peer()};
    const struct peer_answer answer = ask(&shared.peer, (struct peer_command){.what = PEER_POOL});
    CHECK(answer.result);
    shared.theirs = answer.value;
    CHECK(import_from(&shared.imported, answer.descriptor));
    assert_int_equal(close(answer.descriptor), 0);
    return shared;
}

static CUmemPoolPtrExportData data_of(const struct shared *shared, CUdeviceptr address) {
    const struct peer_answer answer =
        ask(&shared->peer, (struct peer_command){.what = PEER_POOL_EXPORT, .address = address});
    CHECK(answer.result);
    return answer.data;
}

static CUdeviceptr import_well(const struct shared *shared, CUdeviceptr theirs) {
    CUmemPoolPtrExportData data = data_of(shared, theirs);
    CUdeviceptr address = 0;
    CHECK(cuMemPoolImportPointer(&address, shared->imported, &data));
    return address;
}

static int byte_at(CUdeviceptr address) {
    unsigned char byte = 0;
    CHECK(cuMemcpyDtoH(&byte, address, 1));
    return byte;
}

static uint64_t pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    CHECK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void both_see_the_same_bytes(void **state) {
    (void)state;
    CUdeviceptr base;
    size_t size;
    uint64_t value = 0;
    fresh_context();
    const struct shared shared = share();
    const CUdeviceptr first = ASK(&shared.peer, POOL_ALLOC, .bytes = 3 * MIB, .number = shared.theirs);
    const CUdeviceptr second = ASK(&shared.peer, POOL_ALLOC, .bytes = 1000, .number = shared.theirs);
    ASK(&shared.peer, FILL, .address = first, .bytes = 3 * MIB, .number = 1);
    ASK(&shared.peer, FILL, .address = second, .bytes = 1000, .number = 2);
    const CUdeviceptr own_first = import_well(&shared, first), own_second = import_well(&shared, second + 5);
    assert_int_equal(byte_at(own_first + 3 * MIB - 1), 1);
    assert_int_equal(byte_at(own_second), 2);
    CHECK(cuMemsetD8(own_second, 3, 1000));
    assert_int_equal(ASK(&shared.peer, READ, .address = second + 999), 3);
    CHECK(cuMemGetAddressRange(&base, &size, own_second + 1));
    assert_int_equal(base, own_second);
    assert_int_equal(size, 1000);
    CHECK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, own_second));
    assert_int_equal(value, (uintptr_t)shared.imported);
    CHECK_CODE(cuMemsetD8(own_second, 3, 1001), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(pool_attribute(shared.imported, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * MIB + 1000);
    kill_peer(&shared.peer);
    assert_int_equal(byte_at(own_second), 3);
    CHECK(cuMemFree(own_first));
    CHECK(cuMemFree(own_second));
    CHECK(cuMemPoolDestroy(shared.imported));
}

static void it_is_freed_by_either_free(void **state) {
    (void)state;
    CUipcMemHandle handle;
    fresh_context();
    const size_t taken = taken_bytes();
    const struct shared shared = share();
    const CUdeviceptr theirs = ASK(&shared.peer, POOL_ALLOC, .bytes = 4096, .number = shared.theirs);
    ASK(&shared.peer, FILL, .address = theirs, .bytes = 4096, .number = 0);
    CUdeviceptr own = import_well(&shared, theirs);
    assert_int_equal(taken_bytes(), taken);
    CHECK_CODE(cuIpcGetMemHandle(&handle, own), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuIpcCloseMemHandle(own), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(own));
    CHECK_CODE(cuMemFree(own), CUDA_ERROR_INVALID_VALUE);
    own = import_well(&shared, theirs);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const struct sim_kernel kernel = {.microseconds = 10000};
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuMemsetD8Async(own, 9, 4096, stream));
    CHECK(cuMemFreeAsync(own, stream));
    CHECK_CODE(cuMemFreeAsync(own, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamSynchronize(stream));
    assert_int_equal(ASK(&shared.peer, READ, .address = theirs + 4095), 9);
    CHECK_CODE(cuMemsetD8(own, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(pool_attribute(shared.imported, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemPoolDestroy(shared.imported));
    kill_peer(&shared.peer);
}

static void an_imported_pool_gives_out_nothing(void **state) {
    (void)state;
    CUdeviceptr memory;
    int descriptor;
    fresh_context();
    const struct shared shared = share();
    CHECK_CODE(cuMemAllocFromPoolAsync(&memory, 64, shared.imported, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceSetMemPool(0, shared.imported), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolExportToShareableHandle(&descriptor, shared.imported, by_descriptor, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPoolTrimTo(shared.imported, 0));
    CHECK(cuMemPoolDestroy(shared.imported));
    kill_peer(&shared.peer);
}

static void access_is_the_importers_own(void **state) {
    (void)state;
    CUcontext other;
    fresh_context();
    const struct shared shared = share();
    const CUdeviceptr own = import_well(&shared, ASK(&shared.peer, POOL_ALLOC, .bytes = 64, .number = shared.theirs));
    const struct sim_range range = {own, 1, true};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    const CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemPoolSetAccess(shared.imported, &access, 1));
    CHECK(cuCtxCreate(&other, NULL, 0, 1));
    CHECK((CUresult)sim_launch(&kernel, NULL));
    CHECK(cuCtxSynchronize());
    const CUmemAccessDesc none = {access.location, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CHECK(cuMemPoolSetAccess(shared.imported, &none, 1));
    CHECK((CUresult)sim_launch(&kernel, NULL));
    CHECK_CODE(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuCtxDestroy(other));
    kill_peer(&shared.peer);
}

static void what_was_not_exported_answers_1(void **state) {
    (void)state;
    CUmemoryPool pool;
    CUdeviceptr memory, own;
    CUmemPoolPtrExportData data = {{0}};
    int descriptor = -1;
    fresh_context();
    const struct shared shared = share(), other = share();
    const CUmemPoolProps plain = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CHECK(cuMemPoolCreate(&pool, &plain));
    CHECK_CODE(cuMemPoolExportToShareableHandle(&descriptor, pool, by_descriptor, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAllocFromPoolAsync(&memory, 64, pool, NULL));
    CHECK_CODE(cuMemPoolExportPointer(&data, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(memory));
    CHECK(cuMemPoolDestroy(pool));
    CHECK(cuMemAlloc(&memory, 64));
    CHECK_CODE(cuMemPoolExportPointer(&data, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(import_from(&pool, STDOUT_FILENO), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(import_from(&pool, -1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemPoolImportPointer(&own, shared.imported, &data), CUDA_ERROR_INVALID_VALUE);
    const CUdeviceptr theirs = ASK(&shared.peer, POOL_ALLOC, .bytes = 64, .number = shared.theirs);
    data = data_of(&shared, theirs);
    CHECK_CODE(cuMemPoolImportPointer(&own, other.imported, &data), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < sizeof(data); i++) {
        CUmemPoolPtrExportData changed = data;
        changed.reserved[i] ^= 32;
        CHECK_CODE(cuMemPoolImportPointer(&own, shared.imported, &changed), CUDA_ERROR_INVALID_VALUE);
    }
    CHECK(cuMemPoolImportPointer(&own, shared.imported, &data));
    ASK(&shared.peer, FREE, .address = theirs);
    CHECK_CODE(cuMemPoolImportPointer(&memory, shared.imported, &data), CUDA_ERROR_INVALID_VALUE);
    kill_peer(&shared.peer);
    CHECK_CODE(cuMemPoolImportPointer(&memory, shared.imported, &data), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(own));
    kill_peer(&other.peer);
}

static void destroyed_pools_go_with_their_last_memory(void **state) {
    (void)state;
    fresh_context();
    const struct shared shared = share();
    const CUdeviceptr theirs = ASK(&shared.peer, POOL_ALLOC, .bytes = 64, .number = shared.theirs);
    ASK(&shared.peer, FILL, .address = theirs, .bytes = 64, .number = 5);
    const CUdeviceptr own = import_well(&shared, theirs);
    CHECK(cuMemPoolDestroy(shared.imported));
    ASK(&shared.peer, POOL_DESTROY, .number = shared.theirs);
    assert_int_equal(byte_at(own), 5);
    CHECK(cuMemFree(own));
    assert_int_equal(ASK(&shared.peer, READ, .address = theirs), 5);
    kill_peer(&shared.peer);
}

static void a_pool_that_can_be_exported_is_not_trimmed(void **state) {
    (void)state;
    CUmemoryPool pool;
    CUdeviceptr memory;
    uint64_t types = 0;
    int supported = 0;
    fresh_context();
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = by_descriptor,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
    assert_int_equal(supported, by_descriptor);
    CHECK(cuMemPoolCreate(&pool, &properties));
    const size_t taken = taken_bytes();
    CHECK(cuMemAllocFromPoolAsync(&memory, 64, pool, NULL));
    CHECK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, memory));
    assert_int_equal(types, by_descriptor);
    CHECK(cuMemFreeAsync(memory, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemPoolTrimTo(pool, 0));
    assert_true(taken_bytes() > taken);
    CHECK(cuMemPoolDestroy(pool));
    assert_int_equal(taken_bytes(), taken);
}

static void the_most_that_a_pool_may_hold_is_kept(void **state) {
    (void)state;
    CUmemoryPool pool;
    CUdeviceptr one, other;
    fresh_context();
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                       .maxSize = 6 * MIB};
    CHECK(cuMemPoolCreate(&pool, &properties));
    CHECK_CODE(cuMemAllocFromPoolAsync(&one, 7 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAllocFromPoolAsync(&one, 4 * MIB, pool, NULL));
    CHECK_CODE(cuMemAllocFromPoolAsync(&other, 3 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAllocFromPoolAsync(&other, 2 * MIB, pool, NULL));
    assert_int_equal(pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 6 * MIB);
    CHECK(cuMemFreeAsync(one, NULL));
    CHECK(cuMemFreeAsync(other, NULL));
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuMemAllocFromPoolAsync(&one, 6 * MIB, pool, NULL));
    CHECK(cuMemFree(one));
    CHECK(cuMemPoolDestroy(pool));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(both_see_the_same_bytes),
    cmocka_unit_test(it_is_freed_by_either_free),
    cmocka_unit_test(an_imported_pool_gives_out_nothing),
    cmocka_unit_test(access_is_the_importers_own),
    cmocka_unit_test(what_was_not_exported_answers_1),
    cmocka_unit_test(destroyed_pools_go_with_their_last_memory),
    cmocka_unit_test(a_pool_that_can_be_exported_is_not_trimmed),
    cmocka_unit_test(the_most_that_a_pool_may_hold_is_kept),
};
TESTING_MAIN(tests)
