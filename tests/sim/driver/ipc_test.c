/* SPDX-License-Identifier: MIT
 *
 * Device memory of another process, opened by its handle (SIM_DEVICES=2; the other process is IPC_PEER).
 */
#include "fixture.h"
#include "ipc_ask.h"

static CUipcMemHandle export(const struct peer *peer, CUdeviceptr address) {
    const struct peer_answer answer = ask(peer, (struct peer_command){.what = PEER_EXPORT, .address = address});
    CHECK(answer.result);
    return answer.handle;
}

static CUdeviceptr open_well(CUipcMemHandle handle) {
    CUdeviceptr opened = 0;
    CHECK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return opened;
}

static int byte_at(CUdeviceptr address) {
    unsigned char byte = 0;
    CHECK(cuMemcpyDtoH(&byte, address, 1));
    return byte;
}

static uint64_t attribute(CUpointer_attribute name, CUdeviceptr address) {
    uint64_t value = 0;
    CHECK(cuPointerGetAttribute(&value, name, address));
    return value;
}

/* Whether the host may not read there: a read would be a fault. */
static bool is_out_of_reach(CUdeviceptr address) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const ssize_t written = write(ends[1], (const void *)address, 1);
    close(ends[0]);
    close(ends[1]);
    return written < 0;
}

static void both_see_the_same_bytes(void **state) {
    (void)state;
    fresh_context();
    const struct peer peer = start_peer();
    const size_t bytes = 5 << 20;
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = bytes);
    ASK(&peer, FILL, .address = theirs, .bytes = bytes, .number = 7);
    const CUdeviceptr opened = open_well(export(&peer, theirs));
    assert_int_equal(byte_at(opened), 7);
    assert_int_equal(byte_at(opened + bytes - 1), 7);
    assert_true(is_out_of_reach(opened));
    CHECK(cuMemsetD8(opened, 8, bytes));
    assert_int_equal(ASK(&peer, READ, .address = theirs), 8);
    assert_int_equal(ASK(&peer, READ, .address = theirs + bytes - 1), 8);
    ASK(&peer, FILL, .address = theirs + 4096, .bytes = 1, .number = 9);
    assert_int_equal(byte_at(opened + 4096), 9);
    assert_int_equal(byte_at(opened + 4097), 8);
    CHECK(cuIpcCloseMemHandle(opened));
    kill_peer(&peer);
}

static void add_one(void *argument, void *const *pointers) {
    (void)argument;
    ++*(unsigned char *)pointers[0];
}

static void kernels_and_copies_reach_it(void **state) {
    (void)state;
    CUdeviceptr own;
    fresh_context();
    const struct peer peer = start_peer();
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = 3000);
    ASK(&peer, FILL, .address = theirs, .bytes = 3000, .number = 40);
    const CUdeviceptr opened = open_well(export(&peer, theirs));
    const struct sim_range range = {opened + 100, 1, true};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1, .run = add_one};
    CHECK((CUresult)sim_launch(&kernel, NULL));
    CHECK(cuCtxSynchronize());
    assert_int_equal(ASK(&peer, READ, .address = theirs + 100), 41);
    CHECK(cuMemAlloc(&own, 3000));
    CHECK(cuMemcpyDtoD(own, opened, 3000));
    assert_int_equal(byte_at(own + 100), 41);
    assert_int_equal(byte_at(own + 2999), 40);
    const struct sim_range beyond = {opened + 2999, 2, false};
    const struct sim_kernel outside = {.ranges = &beyond, .range_count = 1};
    CHECK_CODE(cuMemsetD8(opened + 2999, 0, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK((CUresult)sim_launch(&outside, NULL));
    CHECK_CODE(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    kill_peer(&peer);
}

static void small_block_is_opened_at_its_own_base(void **state) {
    (void)state;
    CUdeviceptr theirs[3], base;
    size_t size;
    fresh_context();
    const struct peer peer = start_peer();
    for (int i = 0; i < 3; i++) {
        theirs[i] = ASK(&peer, ALLOC, .bytes = 4000);
        ASK(&peer, FILL, .address = theirs[i], .bytes = 4000, .number = 1 + (uint64_t)i);
    }
    const CUipcMemHandle handle = export(&peer, theirs[1]), inside = export(&peer, theirs[1] + 512);
    assert_memory_equal(&handle, &inside, sizeof(handle));
    const CUdeviceptr opened = open_well(handle);
    assert_int_equal(opened % (2 << 20), theirs[1] % (2 << 20));
    assert_int_equal(byte_at(opened), 2);
    CHECK(cuMemGetAddressRange(&base, &size, opened + 3999));
    assert_int_equal(base, opened);
    assert_int_equal(size, 4000);
    CHECK_CODE(cuMemGetAddressRange(&base, &size, opened + 4000), CUDA_ERROR_NOT_FOUND);
    kill_peer(&peer);
}

static void attributes_are_those_of_device_memory(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    CUipcMemHandle handle;
    const struct peer peer = start_peer();
    const CUdeviceptr opened = open_well(export(&peer, ASK(&peer, ALLOC, .bytes = 1000)));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, opened), CU_MEMORYTYPE_DEVICE);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, opened + 9), (uintptr_t)context);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, opened), 0);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, opened + 999), opened);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, opened), 1000);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, opened), 0);
    CHECK_CODE(cuIpcGetMemHandle(&handle, opened), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemFree(opened), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuMemFreeAsync(opened, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemsetD8(opened, 1, 1000));
    kill_peer(&peer);
}

static void opened_twice_it_is_closed_twice(void **state) {
    (void)state;
    fresh_context();
    const size_t taken = taken_bytes();
    const struct peer peer = start_peer();
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = 3 << 20);
    ASK(&peer, FILL, .address = theirs, .bytes = 3 << 20, .number = 5);
    const CUipcMemHandle handle = export(&peer, theirs);
    const CUdeviceptr opened = open_well(handle);
    assert_int_equal(open_well(handle), opened);
    assert_int_equal(taken_bytes(), taken);
    CHECK_CODE(cuIpcCloseMemHandle(opened + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcCloseMemHandle(opened));
    assert_int_equal(byte_at(opened), 5);
    CHECK(cuIpcCloseMemHandle(opened));
    CHECK_CODE(cuMemsetD8(opened, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuIpcCloseMemHandle(opened), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(ASK(&peer, READ, .address = theirs), 5);
    /* And its addresses are ordinary memory again, which the other does not see. */
    CUdeviceptr own;
    CHECK(cuMemAlloc(&own, 3 << 20));
    assert_int_equal(own, opened);
    CHECK(cuMemsetD8(own, 6, 3 << 20));
    assert_int_equal(ASK(&peer, READ, .address = theirs), 5);
    CHECK(cuMemFree(own));
    assert_int_equal(ASK(&peer, READ, .address = theirs), 5);
    kill_peer(&peer);
}

static void last_close_waits_for_work_on_it(void **state) {
    (void)state;
    fresh_context();
    const struct peer peer = start_peer();
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = 4096);
    ASK(&peer, FILL, .address = theirs, .bytes = 4096, .number = 0);
    const CUdeviceptr opened = open_well(export(&peer, theirs));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const struct sim_kernel kernel = {.microseconds = 20000};
    CHECK((CUresult)sim_launch(&kernel, stream));
    CHECK(cuMemsetD8Async(opened, 3, 4096, stream));
    CHECK(cuIpcCloseMemHandle(opened));
    assert_int_equal(ASK(&peer, READ, .address = theirs), 3);
    CHECK(cuStreamDestroy(stream));
    kill_peer(&peer);
}

static void own_handle_answers_201(void **state) {
    (void)state;
    CUdeviceptr own, opened;
    CUipcMemHandle handle;
    fresh_context();
    CHECK(cuMemAlloc(&own, 64));
    CHECK(cuIpcGetMemHandle(&handle, own));
    CHECK_CODE(cuIpcOpenMemHandle(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuIpcCloseMemHandle(own), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuIpcCloseMemHandle(0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuCtxSetCurrent(NULL));
    CHECK_CODE(cuIpcOpenMemHandle(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CODE(cuIpcCloseMemHandle(own), CUDA_ERROR_INVALID_CONTEXT);
}

static void what_no_driver_made_answers_1(void **state) {
    (void)state;
    CUdeviceptr opened;
    CUipcMemHandle handle = {{0}};
    fresh_context();
    CHECK_CODE(cuIpcOpenMemHandle(&opened, handle, 1), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < sizeof(handle); i++) handle.reserved[i] = (char)(i * 37 + 11);
    CHECK_CODE(cuIpcOpenMemHandle(&opened, handle, 1), CUDA_ERROR_INVALID_VALUE);
    const struct peer peer = start_peer();
    handle = export(&peer, ASK(&peer, ALLOC, .bytes = 64));
    CHECK_CODE(cuIpcOpenMemHandle(NULL, handle, 1), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < sizeof(handle); i++) {
        CUipcMemHandle changed = handle;
        changed.reserved[i] ^= 4;
        CHECK_CODE(cuIpcOpenMemHandle(&opened, changed, 1), CUDA_ERROR_INVALID_VALUE);
    }
    open_well(handle);
    kill_peer(&peer);
}

static void handle_is_the_allocations_as_long_as_it_lives(void **state) {
    (void)state;
    CUdeviceptr opened;
    fresh_context();
    const struct peer peer = start_peer();
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = 4096);
    const CUipcMemHandle first = export(&peer, theirs), same = export(&peer, theirs);
    assert_memory_equal(&first, &same, sizeof(first));
    ASK_CODE(&peer, CUDA_ERROR_INVALID_VALUE, EXPORT, .address = theirs + 4096);
    ASK(&peer, FREE, .address = theirs);
    ASK_CODE(&peer, CUDA_ERROR_INVALID_VALUE, EXPORT, .address = theirs);
    CHECK_CODE(cuIpcOpenMemHandle(&opened, first, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(ASK(&peer, ALLOC, .bytes = 4096), theirs);
    const CUipcMemHandle second = export(&peer, theirs);
    assert_memory_not_equal(&first, &second, sizeof(first));
    CHECK_CODE(cuIpcOpenMemHandle(&opened, first, 1), CUDA_ERROR_INVALID_VALUE);
    open_well(second);
    ASK(&peer, RESET, .address = 0);
    CHECK_CODE(cuIpcOpenMemHandle(&opened, first, 1), CUDA_ERROR_INVALID_VALUE);
    kill_peer(&peer);
}

static void freed_by_its_owner_it_stays_readable(void **state) {
    (void)state;
    fresh_context();
    const struct peer peer = start_peer();
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = 4 << 20);
    const CUdeviceptr opened = open_well(export(&peer, theirs));
    CHECK(cuMemsetD8(opened, 1, 4 << 20));
    ASK(&peer, FREE, .address = theirs);
    byte_at(opened);
    CHECK(cuMemsetD8(opened, 2, 4 << 20));
    assert_int_equal(byte_at(opened), 2);
    CHECK(cuIpcCloseMemHandle(opened));
    kill_peer(&peer);
}

static void killed_owners_memory_stays_but_opens_no_more(void **state) {
    (void)state;
    CUdeviceptr other;
    fresh_context();
    const struct peer peer = start_peer();
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = 4096), closed = ASK(&peer, ALLOC, .bytes = 4096);
    ASK(&peer, FILL, .address = theirs, .bytes = 4096, .number = 6);
    const CUipcMemHandle handle = export(&peer, closed);
    const CUdeviceptr opened = open_well(export(&peer, theirs));
    ASK(&peer, SPAWN, .address = 0); /* a child of it goes on */
    assert_int_equal(kill(peer.process, SIGKILL), 0);
    assert_int_equal(waitpid(peer.process, NULL, 0), peer.process);
    assert_int_equal(byte_at(opened), 6);
    CHECK_CODE(cuIpcOpenMemHandle(&other, handle, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemsetD8(opened, 7, 4096));
    assert_int_equal(byte_at(opened + 4095), 7);
    CHECK(cuIpcCloseMemHandle(opened));
    close(peer.connection);
}

static void many_processes_open_one(void **state) {
    (void)state;
    CUdeviceptr own, opened[3];
    CUipcMemHandle handle;
    struct peer peers[3];
    fresh_context();
    CHECK(cuMemAlloc(&own, 4096));
    CHECK(cuMemsetD8(own, 1, 4096));
    CHECK(cuIpcGetMemHandle(&handle, own));
    for (int i = 0; i < 3; i++) {
        peers[i] = start_peer();
        opened[i] = ASK(&peers[i], OPEN, .handle = handle);
        ASK(&peers[i], FILL, .address = opened[i] + (uint64_t)i, .bytes = 1, .number = 10 + (uint64_t)i);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(byte_at(own + (uint64_t)i), 10 + i);
        assert_int_equal(ASK(&peers[0], READ, .address = opened[0] + (uint64_t)i), 10 + i);
    }
    kill_peer(&peers[0]);
    assert_int_equal(byte_at(own), 10);
    ASK(&peers[1], CLOSE, .address = opened[1]);
    assert_int_equal(ASK(&peers[2], READ, .address = opened[2]), 10);
    kill_peer(&peers[1]);
    kill_peer(&peers[2]);
}

static void second_context_of_a_device_answers_400(void **state) {
    (void)state;
    CUcontext primary = fresh_context(), second, other_device;
    CUdeviceptr again;
    const struct peer peer = start_peer();
    const CUipcMemHandle handle = export(&peer, ASK(&peer, ALLOC, .bytes = 4096));
    const CUipcMemHandle neighbour = export(&peer, ASK(&peer, ALLOC, .bytes = 4096));
    const CUdeviceptr opened = open_well(handle);
    CHECK(cuCtxCreate(&second, NULL, 0, 0));
    CHECK_CODE(cuIpcOpenMemHandle(&again, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CODE(cuIpcOpenMemHandle(&again, neighbour, 1), CUDA_ERROR_INVALID_HANDLE);
    /* Of another device one context may, too; the memory lies where it lay. */
    CHECK(cuCtxCreate(&other_device, NULL, 0, 1));
    again = open_well(handle);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, again), 0);
    const struct sim_range range = {again, 1, true};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    CHECK((CUresult)sim_launch(&kernel, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxDestroy(other_device));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuIpcCloseMemHandle(opened));
    CHECK(cuCtxSetCurrent(second));
    open_well(handle);
    CHECK(cuCtxDestroy(second));
    kill_peer(&peer);
}

static void goes_with_its_context(void **state) {
    (void)state;
    fresh_context();
    const struct peer peer = start_peer();
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = 4 << 20);
    ASK(&peer, FILL, .address = theirs, .bytes = 4 << 20, .number = 4);
    const CUipcMemHandle handle = export(&peer, theirs);
    const CUdeviceptr opened = open_well(handle);
    CHECK(cuMemsetD8(opened, 5, 1));
    fresh_context();
    CHECK_CODE(cuIpcCloseMemHandle(opened), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(ASK(&peer, READ, .address = theirs), 5);
    assert_int_equal(byte_at(open_well(handle)), 5);
    kill_peer(&peer);
}

/* A program that closes what it did not open loses the sharing, but never gives other files away. */
static void descriptors_that_the_program_reused_are_never_served(void **state) {
    (void)state;
    CUdeviceptr opened;
    fresh_context();
    const struct peer peer = start_peer();
    const CUdeviceptr theirs = ASK(&peer, ALLOC, .bytes = 4 << 20);
    ASK(&peer, FILL, .address = theirs, .bytes = 4 << 20, .number = 4);
    const CUipcMemHandle handle = export(&peer, theirs);
    ASK(&peer, CLOSE_FILES, .address = 0);
    ASK(&peer, TAKE_FILES, .address = 0);
    for (int i = 0; i < 2; i++) CHECK_CODE(cuIpcOpenMemHandle(&opened, handle, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(ASK(&peer, READ, .address = theirs), 4);
    kill_peer(&peer);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(both_see_the_same_bytes),
    cmocka_unit_test(kernels_and_copies_reach_it),
    cmocka_unit_test(small_block_is_opened_at_its_own_base),
    cmocka_unit_test(attributes_are_those_of_device_memory),
    cmocka_unit_test(opened_twice_it_is_closed_twice),
    cmocka_unit_test(last_close_waits_for_work_on_it),
    cmocka_unit_test(own_handle_answers_201),
    cmocka_unit_test(what_no_driver_made_answers_1),
    cmocka_unit_test(handle_is_the_allocations_as_long_as_it_lives),
    cmocka_unit_test(freed_by_its_owner_it_stays_readable),
    cmocka_unit_test(killed_owners_memory_stays_but_opens_no_more),
    cmocka_unit_test(many_processes_open_one),
    cmocka_unit_test(second_context_of_a_device_answers_400),
    cmocka_unit_test(goes_with_its_context),
    cmocka_unit_test(descriptors_that_the_program_reused_are_never_served),
};
TESTING_MAIN(tests)
