/* SPDX-License-Identifier: MIT
 *
 * Devices of the simulated driver (SIM_DEVICES=2).
 */
#include "fixture.h"

static void count_and_ordinals(void **state) {
    (void)state;
    int count;
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    for (int i = 0; i < count; i++) {
        CHECK(cuDeviceGet(&device, i));
        assert_int_equal(device, i);
    }
}

static void bad_ordinal_answers_101(void **state) {
    (void)state;
    CUdevice device;
    CUcontext context;
    CUuuid uuid;
    char name[32];
    int value;
    unsigned flags;
    size_t bytes;
    CHECK(cuInit(0));
    for (int ordinal = -1; ordinal <= 2; ordinal += 3) {
        CHECK_CODE(cuDeviceGet(&device, ordinal), CUDA_ERROR_INVALID_DEVICE);
        CHECK_CODE(cuDeviceGetName(name, sizeof(name), ordinal), CUDA_ERROR_INVALID_DEVICE);
        CHECK_CODE(cuDeviceGetUuid(&uuid, ordinal), CUDA_ERROR_INVALID_DEVICE);
        CHECK_CODE(cuDeviceTotalMem(&bytes, ordinal), CUDA_ERROR_INVALID_DEVICE);
        CHECK_CODE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, ordinal), CUDA_ERROR_INVALID_DEVICE);
        CHECK_CODE(cuDeviceGetPCIBusId(name, sizeof(name), ordinal), CUDA_ERROR_INVALID_DEVICE);
        CHECK_CODE(cuDevicePrimaryCtxRetain(&context, ordinal), CUDA_ERROR_INVALID_DEVICE);
        CHECK_CODE(cuDevicePrimaryCtxGetState(ordinal, &flags, &value), CUDA_ERROR_INVALID_DEVICE);
        CHECK_CODE(cuDeviceCanAccessPeer(&value, ordinal, 0), CUDA_ERROR_INVALID_DEVICE);
    }
}

static void null_arguments_answer_1(void **state) {
    (void)state;
    CHECK(cuInit(0));
    CHECK_CODE(cuDeviceGet(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceGetCount(NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceGetName(NULL, 8, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDriverGetVersion(NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDevicePrimaryCtxRetain(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

static void init_flags_answer_1(void **state) {
    (void)state;
    CHECK_CODE(cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

static void attributes(void **state) {
    (void)state;
    int value;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    assert_int_equal(value, 1);
    CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 0));
    assert_int_equal(value, 512);
    CHECK_CODE(cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
}

static void identity_differs_between_devices(void **state) {
    (void)state;
    CUuuid first, second;
    char bus[16];
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetUuid(&first, 0));
    CHECK(cuDeviceGetUuid(&second, 1));
    assert_memory_not_equal(&first, &second, sizeof(first));
    CHECK(cuDeviceGetPCIBusId(bus, sizeof(bus), 1));
    assert_string_equal(bus, "0000:18:00.0");
    CHECK(cuDeviceGetByPCIBusId(&device, bus));
    assert_int_equal(device, 1);
    CHECK_CODE(cuDeviceGetByPCIBusId(&device, "0000:99:00.0"), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CODE(cuDeviceGetPCIBusId(bus, 4, 1), CUDA_ERROR_INVALID_VALUE);
}

static void name_is_cut_to_the_buffer(void **state) {
    (void)state;
    char name[10];
    CHECK(cuInit(0));
    CHECK(cuDeviceGetName(name, sizeof(name), 0));
    assert_string_equal(name, "Simulated");
}

static void total_memory(void **state) {
    (void)state;
    size_t bytes, free_bytes, total_bytes;
    fresh_context();
    CHECK(cuDeviceTotalMem(&bytes, 0));
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    assert_int_equal(bytes, total_bytes);
    assert_int_equal(free_bytes, total_bytes);
}

static void peers_see_each_other(void **state) {
    (void)state;
    int can;
    CHECK(cuInit(0));
    CHECK(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    CHECK(cuDeviceCanAccessPeer(&can, 0, 0));
    assert_int_equal(can, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(count_and_ordinals),
    cmocka_unit_test(bad_ordinal_answers_101),
    cmocka_unit_test(null_arguments_answer_1),
    cmocka_unit_test(init_flags_answer_1),
    cmocka_unit_test(attributes),
    cmocka_unit_test(identity_differs_between_devices),
    cmocka_unit_test(name_is_cut_to_the_buffer),
    cmocka_unit_test(total_memory),
    cmocka_unit_test(peers_see_each_other),
};
TESTING_MAIN(tests)
