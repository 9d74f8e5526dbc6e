/* SPDX-License-Identifier: MIT
 *
 * The driver door for the end of contexts: reset, release, destroy. The context's pool is closed before the driver's
 * call and forgotten or reopened after it.
 */
#include "device/driver.h"
#include "entry/captures.h"
#include "entry/process.h"

typedef CUresult(CUDAAPI *end_device_function)(CUdevice);
typedef CUresult(CUDAAPI *end_context_function)(CUcontext);

static CUresult end_primary(end_device_function real, CUdevice device, bool reset) {
    struct pool_system *pool = process_pool();
    if (!pool) return real(device);
    struct device_driver *driver = process_driver();
    void *context = captures_any() ? device_driver_primary(driver, device) : NULL;
    pool_context_close(pool, device, NULL);
    if (reset) device_driver_note_reset(driver, device, false);
    const CUresult result = real(device);
    device_driver_forget_contexts(driver);
    if (reset && result == CUDA_SUCCESS) device_driver_note_reset(driver, device, true);
    if (context && result == CUDA_SUCCESS && (reset || !device_driver_primary(driver, device)))
        captures_forget_context(pool, context);
    pool_context_settle(pool, device, NULL);
    if (reset) device_driver_note_reset(driver, device, false);
    return result;
}

CUresult entry_cuDevicePrimaryCtxReset(CUdevice device) {
    if (!symbols_driver() || !REAL(cuDevicePrimaryCtxReset)) return PROCESS_NO_DRIVER;
    return end_primary(REAL(cuDevicePrimaryCtxReset), device, true);
}

CUresult entry_cuDevicePrimaryCtxReset_v2(CUdevice device) {
    if (!symbols_driver() || !REAL(cuDevicePrimaryCtxReset_v2)) return PROCESS_NO_DRIVER;
    return end_primary(REAL(cuDevicePrimaryCtxReset_v2), device, true);
}

CUresult entry_cuDevicePrimaryCtxRelease(CUdevice device) {
    if (!symbols_driver() || !REAL(cuDevicePrimaryCtxRelease)) return PROCESS_NO_DRIVER;
    return end_primary(REAL(cuDevicePrimaryCtxRelease), device, false);
}

CUresult entry_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (!symbols_driver() || !REAL(cuDevicePrimaryCtxRelease_v2)) return PROCESS_NO_DRIVER;
    return end_primary(REAL(cuDevicePrimaryCtxRelease_v2), device, false);
}

static CUresult end_context(end_context_function real, CUcontext context) {
    struct pool_system *pool = process_pool();
    /* Without a handle the driver only answers; to us it would mean a device's primary context. */
    if (!pool || !context) return real(context);
    pool_context_close(pool, -1, context);
    const CUresult result = real(context);
    device_driver_forget_contexts(process_driver());
    if (result == CUDA_SUCCESS) captures_forget_context(pool, context);
    pool_context_settle(pool, -1, context);
    return result;
}

CUresult entry_cuCtxDestroy(CUcontext context) {
    if (!symbols_driver() || !REAL(cuCtxDestroy)) return PROCESS_NO_DRIVER;
    return end_context(REAL(cuCtxDestroy), context);
}

CUresult entry_cuCtxDestroy_v2(CUcontext context) {
    if (!symbols_driver() || !REAL(cuCtxDestroy_v2)) return PROCESS_NO_DRIVER;
    return end_context(REAL(cuCtxDestroy_v2), context);
}

CUresult entry_cuCtxDetach(CUcontext context) {
    if (!symbols_driver() || !REAL(cuCtxDetach)) return PROCESS_NO_DRIVER;
    return end_context(REAL(cuCtxDetach), context);
}

/* Its memory is its device's; but the context made from it is gone, and the handle may come back for another device. */
CUresult entry_cuGreenCtxDestroy(void *context) {
    if (!symbols_driver() || !REAL(cuGreenCtxDestroy)) return PROCESS_NO_DRIVER;
    const CUresult result = REAL(cuGreenCtxDestroy)(context);
    if (atomic_load_explicit(&process_driver_pool, memory_order_acquire))
        device_driver_forget_contexts(process_driver());
    return result;
}
