/* SPDX-License-Identifier: MIT
 *
 * Devices: how many there are, which one a thread uses, their attributes, limits and versions.
 */
#include "runtime.h"

cudaError_t cudaDriverGetVersion(int *version) {
    if (!version) return simrt_result(cudaErrorInvalidValue);
    *version = 0; /* the answer where there is no usable driver, which is no error here */
    const cudaError_t entered = simrt_enter_process();
    if (entered == cudaErrorCudartUnloading) return entered;
    return entered ? cudaSuccess : simrt_result((int)simrt_driver.cuDriverGetVersion(version));
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    if (!version) return simrt_result(cudaErrorInvalidValue);
    simrt_enter_process();
    *version = simrt_version;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    const cudaError_t entered = simrt_enter_process();
    if (entered || !count) return simrt_result(entered ? entered : cudaErrorInvalidValue);
    *count = simrt_device_count;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    const cudaError_t entered = simrt_enter_process();
    if (entered || !device) return simrt_result(entered ? entered : cudaErrorInvalidValue);
    *device = simrt_current_device();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    SIMRT_RETURN_IN_PROCESS(simrt_device_is_valid(device) ? (int)simrt_choose_device(device)
                                                          : (int)cudaErrorInvalidDevice);
}

static int initialise_device(int device, unsigned device_flags, unsigned flags) {
    if (!simrt_device_is_valid(device)) return cudaErrorInvalidDevice;
    if (flags & ~cudaInitDeviceFlagsAreValid) return cudaErrorInvalidValue;
    if (flags & cudaInitDeviceFlagsAreValid) {
        const CUresult result = simrt_driver.cuDevicePrimaryCtxSetFlags(device, device_flags);
        if (result != CUDA_SUCCESS) return (int)result;
    }
    CUcontext context;
    return (int)simrt_primary_context(device, &context);
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    SIMRT_RETURN_IN_PROCESS(initialise_device(device, device_flags, flags));
}

cudaError_t cudaDeviceReset(void) {
    SIMRT_RETURN_IN_PROCESS(simrt_reset_device());
}

cudaError_t cudaDeviceSynchronize(void) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuCtxSynchronize());
}

int simrt_device_attribute(CUdevice_attribute attribute, int device) {
    int value = 0;
    return simrt_driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

static int device_attribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (!value) return cudaErrorInvalidValue;
    if (!simrt_device_is_valid(device)) return cudaErrorInvalidDevice;
    return (int)simrt_driver.cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    SIMRT_RETURN_IN_PROCESS(device_attribute(value, attribute, device));
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    SIMRT_RETURN_IN_PROCESS(simrt_driver.cuDevicePrimaryCtxSetFlags(simrt_current_device(), flags));
}

static int device_flags_of(unsigned *flags) {
    int active;
    if (!flags) return cudaErrorInvalidValue;
    return (int)simrt_driver.cuDevicePrimaryCtxGetState(simrt_current_device(), flags, &active);
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    SIMRT_RETURN_IN_PROCESS(device_flags_of(flags));
}

static int choose_device(int *device, const struct cudaDeviceProp *properties) {
    if (!device || !properties) return cudaErrorInvalidValue;
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *properties) {
    SIMRT_RETURN_IN_PROCESS(choose_device(device, properties));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuCtxSetLimit((CUlimit)limit, value));
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuCtxGetLimit(value, (CUlimit)limit));
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuCtxGetCacheConfig((CUfunc_cache *)config));
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuCtxSetCacheConfig((CUfunc_cache)config));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t cudaCtxResetPersistingL2Cache(void) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuCtxResetPersistingL2Cache());
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *bus_id) {
    SIMRT_RETURN_IN_PROCESS(simrt_driver.cuDeviceGetByPCIBusId(device, bus_id));
}

static int bus_id_of(char *bus_id, int length, int device) {
    if (!bus_id || length <= 0) return cudaErrorInvalidValue;
    if (!simrt_device_is_valid(device)) return cudaErrorInvalidDevice;
    return (int)simrt_driver.cuDeviceGetPCIBusId(bus_id, length, device);
}

cudaError_t cudaDeviceGetPCIBusId(char *bus_id, int length, int device) {
    SIMRT_RETURN_IN_PROCESS(bus_id_of(bus_id, length, device));
}

/* There is no profiler to be told. */
cudaError_t cudaProfilerStart(void) {
    SIMRT_RETURN_IN_CONTEXT(cudaSuccess);
}

cudaError_t cudaProfilerStop(void) {
    SIMRT_RETURN_IN_CONTEXT(cudaSuccess);
}
