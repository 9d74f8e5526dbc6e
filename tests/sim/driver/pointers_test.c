/* SPDX-License-Identifier: MIT
 *
 * Pointer attributes and handles for other processes (SIM_DEVICES=2).
 */
#include "fixture.h"

static uint64_t attribute(CUpointer_attribute name, CUdeviceptr address) {
    uint64_t value = 0;
    CHECK(cuPointerGetAttribute(&value, name, address));
    return value;
}

static void of_device_memory(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    CUdeviceptr memory;
    uint64_t value;
    CHECK(cuMemAlloc(&memory, 1000));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, memory + 5), (uintptr_t)context);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory), CU_MEMORYTYPE_DEVICE);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory + 5), memory + 5);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, memory), 0);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory), 0);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory), 1);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 999), memory);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory), 1000);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, memory), 1);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, memory), 0);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory), 0);
    CHECK_CODE(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_CONTEXT, memory + 1000), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_CONTEXT, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuPointerGetAttribute(&value, (CUpointer_attribute)99, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuCtxSetCurrent(NULL));
    CHECK_CODE(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory), CUDA_ERROR_INVALID_CONTEXT);
}

static void of_managed_host_and_pool_memory(void **state) {
    (void)state;
    CUdeviceptr managed, pooled;
    CUmemoryPool pool;
    void *host;
    fresh_context();
    CHECK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, managed), CU_MEMORYTYPE_DEVICE);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed), 1);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, managed), managed);
    CHECK(cuMemAllocHost(&host, 64));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host), CU_MEMORYTYPE_HOST);
    CHECK(cuMemAllocAsync(&pooled, 64, NULL));
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled), (uintptr_t)pool);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pooled), 0);
    CHECK(cuMemFree(pooled));
    CHECK(cuMemFree(managed));
    CHECK(cuMemFreeHost(host));
}

static void buffer_ids_are_never_reused(void **state) {
    (void)state;
    CUdeviceptr memory, again;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 64));
    const uint64_t first = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory);
    CHECK(cuMemFree(memory));
    CHECK(cuMemAlloc(&again, 64));
    assert_int_equal(again, memory);
    assert_int_not_equal(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, again), first);
}

static void many_at_once_of_unknown_memory_give_defaults(void **state) {
    (void)state;
    unsigned type = 7, managed = 7;
    int ordinal = 7;
    CUdeviceptr device = 7;
    void *host = NULL;
    CUcontext context = (CUcontext)state;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_CONTEXT};
    void *data[] = {&type, &managed, &ordinal, &device, &host, &context};
    fresh_context();
    CHECK(cuPointerGetAttributes(6, names, data, (CUdeviceptr)&type));
    assert_int_equal(type, 0);
    assert_int_equal(managed, 0);
    assert_int_equal(ordinal, -2);
    assert_int_equal(device, 0);
    assert_ptr_equal(host, &type);
    assert_null(context);
    CHECK(cuPointerGetAttributes(6, names, data, 0));
    assert_null(host);
    names[0] = (CUpointer_attribute)99;
    CHECK_CODE(cuPointerGetAttributes(6, names, data, 0), CUDA_ERROR_INVALID_VALUE);
}

static void many_at_once_of_device_memory(void **state) {
    (void)state;
    CUdeviceptr memory, device = 0;
    void *host = &memory;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *data[] = {&device, &host};
    fresh_context();
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(cuPointerGetAttributes(2, names, data, memory + 3));
    assert_int_equal(device, memory + 3);
    assert_null(host);
}

static void only_sync_memops_can_be_set(void **state) {
    (void)state;
    CUdeviceptr memory;
    unsigned on = 1;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory + 8));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory), 1);
    CHECK_CODE(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(memory));
    CHECK_CODE(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory), CUDA_ERROR_INVALID_VALUE);
}

static void access_flags_follow_peer_access(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), other;
    CUdeviceptr memory;
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuMemAlloc(&memory, 64));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    CHECK(cuCtxSetCurrent(other));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
    CHECK(cuCtxEnablePeerAccess(primary, 0));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void ipc_handle_is_of_the_whole_block(void **state) {
    (void)state;
    CUdeviceptr memory, pooled, opened;
    CUipcMemHandle base, inside, later;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuIpcGetMemHandle(&base, memory));
    CHECK(cuIpcGetMemHandle(&inside, memory + 100));
    assert_memory_equal(&base, &inside, sizeof(base));
    CHECK_CODE(cuIpcGetMemHandle(&inside, memory + 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuIpcOpenMemHandle(&opened, base, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuIpcCloseMemHandle(0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(memory));
    CHECK_CODE(cuIpcGetMemHandle(&inside, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuIpcGetMemHandle(&later, memory));
    assert_memory_not_equal(&base, &later, sizeof(base));
    CHECK(cuMemAllocAsync(&pooled, 64, NULL));
    CHECK_CODE(cuIpcGetMemHandle(&inside, pooled), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(pooled));
    memset(&inside, 0, sizeof(inside));
    CHECK_CODE(cuIpcOpenMemHandle(&opened, inside, 0), CUDA_ERROR_INVALID_VALUE);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(of_device_memory),
    cmocka_unit_test(of_managed_host_and_pool_memory),
    cmocka_unit_test(buffer_ids_are_never_reused),
    cmocka_unit_test(many_at_once_of_unknown_memory_give_defaults),
    cmocka_unit_test(many_at_once_of_device_memory),
    cmocka_unit_test(only_sync_memops_can_be_set),
    cmocka_unit_test(access_flags_follow_peer_access),
    cmocka_unit_test(ipc_handle_is_of_the_whole_block),
};
TESTING_MAIN(tests)
