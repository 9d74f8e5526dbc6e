/* SPDX-License-Identifier: MIT
 *
 * struct device_ops over the CUDA driver. It calls the driver through pointers that the owner looked up, so never
 * through our own hooks.
 */
#ifndef POOLCUDA_DEVICE_DRIVER_H
#define POOLCUDA_DEVICE_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>

#include <cuda.h>

#include "device/device.h"

/* X(field, exported symbol, needed, arguments). Without a needed one there is no pool; others are NULL on a driver that
 * lacks them. */
#define DRIVER_FUNCTIONS(X)                                                                             \
    X(context_get_current, "cuCtxGetCurrent", true, (CUcontext *))                                      \
    X(context_get_device, "cuCtxGetDevice", true, (CUdevice *))                                         \
    X(context_push, "cuCtxPushCurrent_v2", true, (CUcontext))                                           \
    X(context_pop, "cuCtxPopCurrent_v2", true, (CUcontext *))                                           \
    X(context_synchronize, "cuCtxSynchronize", true, (void))                                            \
    X(primary_get_state, "cuDevicePrimaryCtxGetState", true, (CUdevice, unsigned int *, int *))         \
    X(primary_retain, "cuDevicePrimaryCtxRetain", true, (CUcontext *, CUdevice))                        \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", true, (CUdevice))                                \
    X(memory_alloc, "cuMemAlloc_v2", true, (CUdeviceptr *, size_t))                                     \
    X(memory_free, "cuMemFree_v2", true, (CUdeviceptr))                                                 \
    X(memory_info, "cuMemGetInfo_v2", true, (size_t *, size_t *))                                       \
    X(stream_synchronize, "cuStreamSynchronize", true, (CUstream))                                      \
    X(stream_synchronize_ptsz, "cuStreamSynchronize_ptsz", false, (CUstream))                           \
    X(device_total, "cuDeviceTotalMem_v2", false, (size_t *, CUdevice))                                 \
    X(device_uuid, "cuDeviceGetUuid", false, (CUuuid *, CUdevice))                                      \
    X(device_pci, "cuDeviceGetPCIBusId", false, (char *, int, CUdevice))                                \
    X(driver_version, "cuDriverGetVersion", false, (int *))                                             \
    X(stream_is_capturing, "cuStreamIsCapturing", false, (CUstream, CUstreamCaptureStatus *))           \
    X(stream_is_capturing_ptsz, "cuStreamIsCapturing_ptsz", false, (CUstream, CUstreamCaptureStatus *)) \
    X(stream_get_context, "cuStreamGetCtx", false, (CUstream, CUcontext *))                             \
    X(stream_get_context_ptsz, "cuStreamGetCtx_ptsz", false, (CUstream, CUcontext *))                   \
    X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", false, (CUstreamCaptureMode *))

struct driver_functions {
#define DRIVER_FIELD(field, symbol, needed, arguments) CUresult(CUDAAPI *field) arguments;
    DRIVER_FUNCTIONS(DRIVER_FIELD)
#undef DRIVER_FIELD
};

#define DRIVER_CONTEXTS 32

struct device_driver {
    struct driver_functions call;
    struct device_ops ops; /* ops.self is this structure */

    /* Ordinals of the contexts seen, since the driver tells the context in one cheap call and its device in another.
     * Read without a lock; a full table only costs the second call. */
    struct {
        _Atomic(void *) handle; /* NULL: unused; written after the ordinal */
        _Atomic int ordinal;
    } contexts[DRIVER_CONTEXTS];
    pthread_mutex_t contexts_lock; /* over writing `contexts` */

    _Atomic uint64_t reset; /* bit of a device: its primary context was reset, whether or not it was revived since */
};

/* Fill the pointers by `lookup`, which returns NULL for what is not there. Returns the name of the first needed one
 * that is missing, NULL when all are there. */
const char *device_driver_bind(struct device_driver *driver, void *(*lookup)(void *arg, const char *symbol), void *arg);

/* Handle of a device's primary context, NULL when it is inactive. */
void *device_driver_primary(struct device_driver *driver, int ordinal);

/* A context may have gone: whatever comes back under its handle may belong to another device. */
void device_driver_forget_contexts(struct device_driver *driver);

/* The primary context of a device was reset (true): context_alive denies it once, even if another thread has revived it
 * in between. false, before the reset: nothing of the kind is known. */
void device_driver_note_reset(struct device_driver *driver, int ordinal, bool reset);

#endif
