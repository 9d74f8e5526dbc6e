/* SPDX-License-Identifier: MIT
 *
 * Devices and contexts of threads: what is current when, after a choice, a reset, or in a thread that never chose.
 * Runs on two devices.
 */
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <pthread.h>
#include <stdlib.h>

#include "fixture.h"
#include "sim_runtime.h"

static int current_device(void) {
    int device = -1;
    CHECK_CUDA(cudaGetDevice(&device));
    return device;
}

static int device_of(const void *pointer) {
    struct cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, pointer));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    return attributes.device;
}

static CUcontext current_context(void) {
    CUcontext context = NULL;
    return cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

/* What a new thread sees; asserted by the main thread, since cmocka knows no other. */
struct sight {
    CUcontext before, between, after;
    int device;
    CUdevice context_device;
    cudaError_t error;
};

static void seen_by_thread(void *(*function)(void *), struct sight *sight) {
    pthread_t thread;
    *sight = (struct sight){.device = -1, .context_device = -1, .error = cudaErrorUnknown};
    CHECK_CUDA(cudaFree(NULL));
    assert_int_equal(pthread_create(&thread, NULL, function, sight), 0);
    pthread_join(thread, NULL);
}

static void *without_a_choice(void *data) {
    struct sight *sight = data;
    sight->before = current_context();
    sight->error = cudaGetDevice(&sight->device);
    sight->between = current_context();
    sight->error = sight->error ? sight->error : cudaFree(NULL);
    sight->after = current_context();
    return NULL;
}

static void new_thread_gets_its_context_at_the_first_call_that_needs_it(void **state) {
    (void)state;
    struct sight sight;
    seen_by_thread(without_a_choice, &sight);
    assert_int_equal(sight.error, cudaSuccess);
    assert_null(sight.before);
    assert_int_equal(sight.device, 0);
    assert_null(sight.between);
    assert_non_null(sight.after);
}

static void *choose_second(void *data) {
    struct sight *sight = data;
    sight->error = cudaSetDevice(1);
    sight->after = current_context();
    if (cuCtxGetDevice(&sight->context_device) != CUDA_SUCCESS) sight->context_device = -1;
    return NULL;
}

static void choosing_a_device_makes_its_context_current_at_once(void **state) {
    (void)state;
    struct sight sight;
    seen_by_thread(choose_second, &sight);
    assert_int_equal(sight.error, cudaSuccess);
    assert_non_null(sight.after);
    assert_int_equal(sight.context_device, 1);
    assert_int_equal(current_device(), 0);
}

static void *initialise_second(void *data) {
    struct sight *sight = data;
    sight->error = cudaInitDevice(1, 0, 0);
    sight->after = current_context();
    return NULL;
}

static void initialising_a_device_leaves_it_uncurrent(void **state) {
    (void)state;
    struct sight sight;
    seen_by_thread(initialise_second, &sight);
    assert_int_equal(sight.error, cudaSuccess);
    assert_null(sight.after);
    CHECK_FAILS(cudaInitDevice(2, 0, 0), cudaErrorInvalidDevice);
}

static void bad_ordinals_answer_101(void **state) {
    (void)state;
    int value, count = 0;
    struct cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceCount(&count));
    assert_int_equal(count, 2);
    CHECK_FAILS(cudaSetDevice(-1), cudaErrorInvalidDevice);
    CHECK_FAILS(cudaSetDevice(count), cudaErrorInvalidDevice);
    CHECK_FAILS(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, count), cudaErrorInvalidDevice);
    CHECK_FAILS(cudaGetDeviceProperties(&properties, count), cudaErrorInvalidDevice);
    CHECK_FAILS(cudaDeviceCanAccessPeer(&value, 0, count), cudaErrorInvalidDevice);
    CHECK_FAILS(cudaGetDevice(NULL), cudaErrorInvalidValue);
    CHECK_FAILS(cudaGetDeviceCount(NULL), cudaErrorInvalidValue);
    assert_int_equal(current_device(), 0);
}

static void memory_belongs_to_the_chosen_device(void **state) {
    (void)state;
    void *first, *second;
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaMalloc(&first, 4096));
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaMalloc(&second, 4096));
    assert_int_equal(current_device(), 1);
    assert_int_equal(device_of(first), 0);
    assert_int_equal(device_of(second), 1);
    CHECK_CUDA(cudaFree(first));
    CHECK_CUDA(cudaFree(second));
    CHECK_CUDA(cudaSetDevice(0));
}

static void context_made_by_the_program_is_used(void **state) {
    (void)state;
    CUcontext own;
    void *pointer;
    CUcontext found = NULL;
    CHECK_CUDA(cudaSetDevice(0));
    assert_int_equal(cuCtxCreate(&own, NULL, 0, 1), CUDA_SUCCESS);
    assert_int_equal(current_device(), 1);
    CHECK_CUDA(cudaMalloc(&pointer, 4096));
    assert_int_equal(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)pointer), CUDA_SUCCESS);
    assert_ptr_equal(found, own);
    CHECK_CUDA(cudaFree(pointer));
    assert_int_equal(cuCtxDestroy(own), CUDA_SUCCESS);
    assert_int_equal(current_device(), 0);
}

static void reset_revives_the_same_context_and_forgets_memory(void **state) {
    (void)state;
    void *before, *after;
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaMalloc(&before, 4096));
    const CUcontext context = current_context();
    CHECK_CUDA(cudaDeviceReset());
    assert_ptr_equal(current_context(), context);
    unsigned flags;
    int active = 1;
    assert_int_equal(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    assert_int_equal(active, 0);
    CHECK_FAILS(cudaFree(before), cudaErrorInvalidValue);
    CHECK_CUDA(cudaMalloc(&after, 4096));
    assert_ptr_equal(current_context(), context);
    CHECK_CUDA(cudaFree(after));
}

struct relay {
    pthread_barrier_t barrier;
    cudaError_t after_reset;
};

static void *allocate_before_and_after(void *data) {
    struct relay *relay = data;
    void *pointer;
    if (cudaMalloc(&pointer, 64) != cudaSuccess) abort();
    pthread_barrier_wait(&relay->barrier);
    pthread_barrier_wait(&relay->barrier);
    relay->after_reset = cudaMalloc(&pointer, 64);
    cudaFree(pointer);
    return NULL;
}

static void reset_revives_the_context_in_other_threads_too(void **state) {
    (void)state;
    struct relay relay = {.after_reset = cudaErrorUnknown};
    pthread_t thread;
    pthread_barrier_init(&relay.barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, allocate_before_and_after, &relay), 0);
    pthread_barrier_wait(&relay.barrier);
    CHECK_CUDA(cudaFree(NULL));
    CHECK_CUDA(cudaDeviceReset());
    pthread_barrier_wait(&relay.barrier);
    pthread_join(thread, NULL);
    assert_int_equal(relay.after_reset, cudaSuccess);
}

static void reset_leaves_the_other_device_alone(void **state) {
    (void)state;
    void *pointer;
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaMalloc(&pointer, 4096));
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaDeviceReset());
    CHECK_CUDA(cudaFree(pointer));
}

static void properties_are_those_of_the_attributes(void **state) {
    (void)state;
    struct cudaDeviceProp properties;
    int value;
    size_t free_bytes, total_bytes;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 1));
    CHECK_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
    assert_true(value > 0);
    assert_int_equal(properties.multiProcessorCount, value);
    CHECK_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 1));
    assert_int_equal(properties.major, value);
    assert_int_equal(properties.memoryPoolsSupported, 1);
    assert_true(strlen(properties.name) > 0);
    CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    assert_int_equal(properties.totalGlobalMem, total_bytes);
    CHECK_FAILS(cudaGetDeviceProperties(NULL, 0), cudaErrorInvalidValue);
}

static void pci_address_finds_the_device(void **state) {
    (void)state;
    char bus_id[32];
    int device = -1;
    CHECK_CUDA(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), 1));
    CHECK_CUDA(cudaDeviceGetByPCIBusId(&device, bus_id));
    assert_int_equal(device, 1);
    CHECK_FAILS(cudaDeviceGetPCIBusId(NULL, 32, 1), cudaErrorInvalidValue);
}

static void devices_reach_each_other(void **state) {
    (void)state;
    int can = 0;
    char sent[] = "from one to the other", received[sizeof(sent)] = "";
    void *first, *second;
    CHECK_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaMalloc(&second, sizeof(sent)));
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaMalloc(&first, sizeof(sent)));
    CHECK_CUDA(cudaDeviceEnablePeerAccess(1, 0));
    CHECK_FAILS(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    CHECK_CUDA(cudaMemcpy(first, sent, sizeof(sent), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpyPeer(second, 1, first, 0, sizeof(sent)));
    CHECK_CUDA(cudaMemset(first, 0, sizeof(sent)));
    CHECK_CUDA(cudaMemcpyPeerAsync(first, 0, second, 1, sizeof(sent), NULL));
    CHECK_CUDA(cudaMemcpy(received, first, sizeof(sent), cudaMemcpyDeviceToHost));
    assert_string_equal(received, sent);
    CHECK_FAILS(cudaMemcpyPeer(second, 2, first, 0, 1), cudaErrorInvalidDevice);
    CHECK_CUDA(cudaDeviceDisablePeerAccess(1));
    CHECK_FAILS(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    CHECK_CUDA(cudaFree(first));
    CHECK_CUDA(cudaFree(second));
}

static void limits_and_priorities_are_told(void **state) {
    (void)state;
    size_t heap = 0, other = 0;
    int lowest = -99, greatest = -99;
    CHECK_CUDA(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    CHECK_CUDA(cudaDeviceSetLimit(cudaLimitMallocHeapSize, heap + (1 << 20)));
    CHECK_CUDA(cudaDeviceGetLimit(&other, cudaLimitMallocHeapSize));
    assert_int_equal(other, heap + (1 << 20));
    CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &greatest));
    assert_int_equal(lowest, 0);
    assert_true(greatest < 0);
    CHECK_CUDA(cudaProfilerStart());
    CHECK_CUDA(cudaProfilerStop());
}

static void unsimulated_names_answer_801_and_are_counted(void **state) {
    (void)state;
    cudaArray_t array;
    const struct cudaChannelFormatDesc format = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
    assert_int_equal(format.x, 32);
    const unsigned long long all = sim_runtime_unsimulated_calls(NULL);
    assert_int_equal(sim_runtime_unsimulated_calls("cudaMallocArray"), 0);
    CHECK_FAILS(cudaMallocArray(&array, &format, 8, 8, 0), cudaErrorNotSupported);
    CHECK_FAILS(cudaMallocArray(&array, &format, 8, 8, 0), cudaErrorNotSupported);
    assert_int_equal(sim_runtime_unsimulated_calls("cudaMallocArray"), 2);
    assert_int_equal(sim_runtime_unsimulated_calls(NULL), all + 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(new_thread_gets_its_context_at_the_first_call_that_needs_it),
    cmocka_unit_test(choosing_a_device_makes_its_context_current_at_once),
    cmocka_unit_test(initialising_a_device_leaves_it_uncurrent),
    cmocka_unit_test(bad_ordinals_answer_101),
    cmocka_unit_test(memory_belongs_to_the_chosen_device),
    cmocka_unit_test(context_made_by_the_program_is_used),
    cmocka_unit_test(reset_revives_the_same_context_and_forgets_memory),
    cmocka_unit_test(reset_revives_the_context_in_other_threads_too),
    cmocka_unit_test(reset_leaves_the_other_device_alone),
    cmocka_unit_test(properties_are_those_of_the_attributes),
    cmocka_unit_test(pci_address_finds_the_device),
    cmocka_unit_test(devices_reach_each_other),
    cmocka_unit_test(limits_and_priorities_are_told),
    cmocka_unit_test(unsimulated_names_answer_801_and_are_counted),
};

TESTING_MAIN(tests)
