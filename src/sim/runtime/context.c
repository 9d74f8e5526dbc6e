/* SPDX-License-Identifier: MIT
 *
 * Which context a thread's calls run on. The runtime holds one reference to the primary context of each device that it
 * has used; a thread without a context gets its device's one, and a context that the program made current by itself is
 * used as it is. After a reset the driver gives the same handle again, so a thread that still has it is revived.
 */
#include <pthread.h>
#include <stdlib.h>

#include "runtime.h"

enum { MAX_DEVICES = 64 };

_Atomic unsigned simrt_epoch;

/* Guarded by devices_lock. */
static struct device {
    CUcontext primary; /* kept after a reset, since threads go on having it current */
    bool retained;
} devices[MAX_DEVICES];
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult retain_locked(int device) {
    if (devices[device].retained) return CUDA_SUCCESS;
    CUcontext context = NULL;
    const CUresult result = simrt_driver.cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS) return result;
    devices[device].primary = context;
    devices[device].retained = true;
    return CUDA_SUCCESS;
}

CUresult simrt_primary_context(int device, CUcontext *context) {
    pthread_mutex_lock(&devices_lock);
    const CUresult result = retain_locked(device);
    *context = devices[device].primary;
    pthread_mutex_unlock(&devices_lock);
    return result;
}

static void remember(CUcontext context) {
    simrt_thread.context = context;
    simrt_thread.epoch = atomic_load_explicit(&simrt_epoch, memory_order_relaxed);
}

static CUresult bind_device(int device) {
    CUcontext context;
    CUresult result = simrt_primary_context(device, &context);
    if (result == CUDA_SUCCESS) result = simrt_driver.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) remember(context);
    return result;
}

/* The device whose primary context this is and has been seen before, else -1. */
static int known_primary_locked(CUcontext context) {
    for (int i = 0; i < simrt_device_count; i++)
        if (devices[i].primary == context) return i;
    return -1;
}

/* A context that the program made current: the runtime takes a reference if it is the primary one of its device. */
static void retain_if_primary_locked(CUcontext context, int device) {
    unsigned flags;
    int active = 0;
    if (devices[device].retained || simrt_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
        !active || retain_locked(device) != CUDA_SUCCESS || devices[device].primary == context)
        return;
    simrt_driver.cuDevicePrimaryCtxRelease(device);
    devices[device].retained = false;
}

static cudaError_t adopt(CUcontext context) {
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&devices_lock);
    int device = known_primary_locked(context);
    if (device >= 0) {
        error = (cudaError_t)retain_locked(device);
    } else {
        unsigned version = 0;
        if (simrt_driver.cuCtxGetApiVersion(context, &version) != CUDA_SUCCESS || version < 3020 ||
            simrt_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
            error = cudaErrorIncompatibleDriverContext;
        else
            retain_if_primary_locked(context, device);
    }
    pthread_mutex_unlock(&devices_lock);
    if (!error) remember(context);
    return error;
}

cudaError_t simrt_enter_context_slow(void) {
    const cudaError_t entered = simrt_enter_process();
    if (entered) return entered;
    CUcontext current = NULL;
    const CUresult result = simrt_driver.cuCtxGetCurrent(&current);
    if (result != CUDA_SUCCESS) return (cudaError_t)result;
    return current ? adopt(current) : (cudaError_t)bind_device(simrt_thread.device);
}

CUresult simrt_choose_device(int device) {
    if (simrt_version >= 12000) {
        const CUresult result = bind_device(device);
        if (result == CUDA_SUCCESS) simrt_thread.device = device;
        return result;
    }
    pthread_mutex_lock(&devices_lock);
    CUcontext context = devices[device].retained ? devices[device].primary : NULL;
    pthread_mutex_unlock(&devices_lock);
    simrt_thread.device = device;
    return simrt_driver.cuCtxSetCurrent(context);
}

int simrt_current_device(void) {
    CUcontext current = NULL;
    CUdevice device;
    if (simrt_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current) {
        pthread_mutex_lock(&devices_lock);
        device = known_primary_locked(current);
        pthread_mutex_unlock(&devices_lock);
        if (device >= 0 || simrt_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS) return device;
    }
    return simrt_thread.device;
}

CUresult simrt_reset_device(void) {
    CUcontext current = NULL;
    unsigned version;
    CUresult result = simrt_driver.cuCtxGetCurrent(&current);
    if (result != CUDA_SUCCESS) return result;
    if (current) simrt_driver.cuCtxGetApiVersion(current, &version);
    const int device = simrt_current_device();
    pthread_mutex_lock(&devices_lock);
    if (current && devices[device].primary != current) retain_if_primary_locked(current, device);
    /* Of a context that is not a primary one, only the runtime's own state would go, and there is none. */
    const bool ours = devices[device].retained && (!current || devices[device].primary == current);
    if (ours) {
        result = simrt_driver.cuDevicePrimaryCtxReset(device);
        if (result == CUDA_SUCCESS) {
            devices[device].retained = false;
            atomic_fetch_add_explicit(&simrt_epoch, 1, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&devices_lock);
    return result;
}
