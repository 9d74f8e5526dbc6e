/* SPDX-License-Identifier: MIT
 *
 * The start and the end of the runtime in a process. The driver is found as the real runtime finds it: dlopen of
 * libcuda.so.1, dlsym of cuGetProcAddress_v2, a probe with the empty name and no status, cuInit, then one look-up for
 * every entry point, with fixed version and flags. So whoever interposes dlsym or cuGetProcAddress sees it all.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime.h"

_Atomic int simrt_state = SIMRT_NEW;
int simrt_version = 13000;
int simrt_device_count;
struct simrt_driver simrt_driver;

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
/* Why simrt_state is FAILED; written before it is published. */
static _Atomic int start_error;

struct look_up {
    const char *name;
    int version;
    cuuint64_t flags;
    size_t offset; /* of the function's pointer in struct simrt_driver */
};

#define PLAIN_LOOK_UP(name, version) {#name, version, CU_GET_PROC_ADDRESS_DEFAULT, offsetof(struct simrt_driver, name)},
#define PER_THREAD_LOOK_UP(name, version, suffix) \
    {#name, version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, offsetof(struct simrt_driver, name##_##suffix)},

static const struct look_up look_ups[] = {SIMRT_DRIVER_CALLS(PLAIN_LOOK_UP, PER_THREAD_LOOK_UP)};

/* Stands for every entry point that the driver lacks, whatever its arguments. */
static CUresult missing_call(void) {
    return (CUresult)cudaErrorCallRequiresNewerDriver;
}

CUresult simrt_look_up(const char *name, void **function, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status) {
    if (simrt_driver.get_proc_address) return simrt_driver.get_proc_address(name, function, version, flags, status);
    const CUresult result = simrt_driver.get_proc_address_v1(name, function, version, flags);
    if (status)
        *status =
            result == CUDA_SUCCESS && *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return result;
}

static void look_up_call(const struct look_up *call) {
    void *function = NULL;
    if (simrt_look_up(call->name, &function, call->version, call->flags, NULL) != CUDA_SUCCESS || !function)
        function = (void *)missing_call;
    *(void **)((char *)&simrt_driver + call->offset) = function;
}

/* SIM_RUNTIME_LOOKUP=v1 makes the runtime ask as one older than 12 does. */
static bool find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return false;
    const char *form = getenv("SIM_RUNTIME_LOOKUP");
    if (!form || form[0] != 'v' || form[1] != '1')
        *(void **)&simrt_driver.get_proc_address = dlsym(library, "cuGetProcAddress_v2");
    if (!simrt_driver.get_proc_address) {
        *(void **)&simrt_driver.get_proc_address_v1 = dlsym(library, "cuGetProcAddress");
        if (!simrt_driver.get_proc_address_v1) return false;
    }
    void *probe = NULL;
    simrt_look_up("", &probe, 0, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    return true;
}

static cudaError_t initialise_driver(void) {
    if (!find_driver()) return cudaErrorInsufficientDriver;
    look_up_call(&look_ups[0]);
    const CUresult initialised = simrt_driver.cuInit(0);
    if (initialised != CUDA_SUCCESS) return (cudaError_t)initialised;
    for (size_t i = 1; i < sizeof(look_ups) / sizeof(look_ups[0]); i++) look_up_call(&look_ups[i]);

    const char *claimed = getenv("SIM_RUNTIME_VERSION");
    if (claimed && atoi(claimed) > 0) simrt_version = atoi(claimed);
    int driver_version = 0;
    if (simrt_driver.cuDriverGetVersion(&driver_version) != CUDA_SUCCESS ||
        driver_version / 1000 < simrt_version / 1000)
        return cudaErrorInsufficientDriver;
    const CUresult counted = simrt_driver.cuDeviceGetCount(&simrt_device_count);
    if (counted != CUDA_SUCCESS) return (cudaError_t)counted;
    return simrt_device_count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

static void shut_down(void) {
    atomic_store_explicit(&simrt_state, SIMRT_UNLOADED, memory_order_release);
}

/* CUDA cannot be used in a forked child of a process that initialised it. */
static void refuse_child(void) {
    atomic_store_explicit(&start_error, cudaErrorInitializationError, memory_order_relaxed);
    atomic_store_explicit(&simrt_state, SIMRT_FAILED, memory_order_release);
}

static void start(void) {
    const cudaError_t error = initialise_driver();
    if (error) {
        atomic_store_explicit(&start_error, error, memory_order_relaxed);
        atomic_store_explicit(&simrt_state, SIMRT_FAILED, memory_order_release);
        return;
    }
    pthread_atfork(NULL, NULL, refuse_child);
    atexit(shut_down);
    atomic_store_explicit(&simrt_state, SIMRT_READY, memory_order_release);
}

cudaError_t simrt_start(void) {
    int state = atomic_load_explicit(&simrt_state, memory_order_acquire);
    if (state == SIMRT_NEW) {
        pthread_once(&start_once, start);
        state = atomic_load_explicit(&simrt_state, memory_order_acquire);
    }
    switch (state) {
    case SIMRT_READY:
        return cudaSuccess;
    case SIMRT_UNLOADED:
        return cudaErrorCudartUnloading;
    default:
        return (cudaError_t)atomic_load_explicit(&start_error, memory_order_relaxed);
    }
}
