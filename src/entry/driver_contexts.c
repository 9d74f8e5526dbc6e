/* SPDX-License-Identifier: MIT
 *
 * The driver door for contexts: one that is created or retained is known from then on; before one is reset, released or
 * destroyed, its pool and its streams are closed, and forgotten or reopened after it.
 */
#include "device/driver.h"
#include "entry/captures.h"
#include "entry/ipc.h"
#include "entry/starved.h"

/* ---- beginnings ---- */

static CUresult known(CUresult result, const CUcontext *context, int ordinal, enum live_kind kind) {
    if (result == CUDA_SUCCESS && context && process_pool())
        device_driver_context_known(process_driver(), (struct device_context){*context, ordinal}, kind);
    return result;
}

#define CREATE(symbol, values)            \
    STARVED_CALL(device, symbol, values); \
    return known(result, context, device, LIVE_CREATED)

CUresult entry_cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    CREATE(cuCtxCreate_v2, (context, flags, device));
}

CUresult entry_cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned int flags, CUdevice device) {
    CREATE(cuCtxCreate_v3, (context, affinity, count, flags, device));
}

CUresult entry_cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned int flags, CUdevice device) {
    CREATE(cuCtxCreate_v4, (context, parameters, flags, device));
}

CUresult entry_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    STARVED_CALL(device, cuDevicePrimaryCtxRetain, (context, device));
    result = known(result, context, device, LIVE_PRIMARY);
    if (result == CUDA_SUCCESS && context && process_pool())
        device_driver_primary_retained(process_driver(), device, *context);
    return result;
}

CUresult entry_cuCtxAttach(CUcontext *context, unsigned int flags) {
    if (!symbols_driver() || !REAL(cuCtxAttach)) return PROCESS_NO_DRIVER;
    const CUresult result = known(REAL(cuCtxAttach)(context, flags), context, -1, LIVE_FOUND);
    if (result == CUDA_SUCCESS && context && process_pool()) device_driver_context_attached(process_driver(), *context);
    return result;
}

CUresult entry_cuCtxFromGreenCtx(CUcontext *context, void *green) {
    if (!symbols_driver() || !REAL(cuCtxFromGreenCtx)) return PROCESS_NO_DRIVER;
    return known(REAL(cuCtxFromGreenCtx)(context, green), context, -1, LIVE_GREEN);
}

/* Work of the current context's device may use memory of the other's from now on. */
CUresult entry_cuCtxEnablePeerAccess(CUcontext context, unsigned int flags) {
    STARVED_CALL(STARVED_CURRENT_DEVICE, cuCtxEnablePeerAccess, (context, flags));
    struct device_context current;
    if (result == CUDA_SUCCESS && process_pool() && process_context(&current) == DEVICE_OK)
        device_driver_access_given(process_driver(), device_driver_context_ordinal(process_driver(), context),
                                   current.ordinal);
    return result;
}

/* ---- ends ---- */

typedef CUresult(CUDAAPI *end_device_function)(CUdevice);
typedef CUresult(CUDAAPI *end_context_function)(CUcontext);

/* The marks on a context's work and its streams; NULL: it was inactive. */
static void closing(struct pool_system *pool, const void *context) {
    if (!context) return;
    pool_streams_closing(pool, context);
    device_driver_context_closing(process_driver(), context);
}

static void settled(struct pool_system *pool, const void *context, bool gone) {
    if (!context) return;
    device_driver_context_settled(process_driver(), context, gone);
    pool_streams_settled(pool, context, gone);
}

/* The same for a device's primary context, and its pool. */
static void close_primary(struct pool_system *pool, CUdevice device, const void *context) {
    pool_context_close(pool, device, NULL);
    closing(pool, context);
}

static void settle_primary(struct pool_system *pool, CUdevice device, void *context, uint64_t serial, bool gone) {
    gone = gone && context;
    if (gone) device_driver_note_ended(context);
    if (gone) captures_forget_context(pool, context);
    settled(pool, context, gone);
    pool_context_settle(pool, device, NULL);
    if (gone) ipc_context_gone(pool, context, serial);
    device_driver_note_ended(NULL);
}

/* Is the life of a device's primary context over, that it had under this handle and number? Another thread may have
 * brought it back meanwhile. */
static bool primary_gone(struct device_driver *driver, int device, void *context, uint64_t id) {
    return !device_driver_primary_active(driver, device) || (id && device_driver_context_id(driver, context) != id);
}

static CUresult end_primary(end_device_function real, CUdevice device, enum primary_end how) {
    struct pool_system *pool = process_pool();
    if (!pool) return real(device);
    struct device_driver *driver = process_driver();
    const bool reset = how == PRIMARY_RESET;
    void *context = device_driver_primary(driver, device);
    const uint64_t id = device_driver_context_id(driver, context);
    const uint64_t serial = device_driver_context_serial(driver, context);
    /* While others hold it nobody is waited for: who is in the driver may wait for what the calling thread does next.
     */
    const bool may_end = device_driver_primary_ending(driver, device, how);
    CUresult result = may_end ? CUDA_SUCCESS : real(device);
    bool gone = !may_end && primary_gone(driver, device, context, id);
    if (!may_end) device_driver_primary_ended(driver, device, false, gone);
    if (!may_end && !gone) return result;

    close_primary(pool, device, context);
    if (reset) device_driver_note_reset(driver, device, false);
    if (may_end) result = real(device);
    device_driver_forget_contexts(driver);
    if (reset && result == CUDA_SUCCESS) device_driver_note_reset(driver, device, true);
    if (may_end) {
        gone = result == CUDA_SUCCESS && (reset || primary_gone(driver, device, context, id));
        device_driver_primary_ended(driver, device, true, gone);
    }
    settle_primary(pool, device, context, serial, gone);
    if (reset) device_driver_note_reset(driver, device, false);
    return result;
}

CUresult entry_cuDevicePrimaryCtxReset(CUdevice device) {
    if (!symbols_driver() || !REAL(cuDevicePrimaryCtxReset)) return PROCESS_NO_DRIVER;
    return end_primary(REAL(cuDevicePrimaryCtxReset), device, PRIMARY_RESET);
}

CUresult entry_cuDevicePrimaryCtxReset_v2(CUdevice device) {
    if (!symbols_driver() || !REAL(cuDevicePrimaryCtxReset_v2)) return PROCESS_NO_DRIVER;
    return end_primary(REAL(cuDevicePrimaryCtxReset_v2), device, PRIMARY_RESET);
}

CUresult entry_cuDevicePrimaryCtxRelease(CUdevice device) {
    if (!symbols_driver() || !REAL(cuDevicePrimaryCtxRelease)) return PROCESS_NO_DRIVER;
    return end_primary(REAL(cuDevicePrimaryCtxRelease), device, PRIMARY_RELEASE);
}

CUresult entry_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (!symbols_driver() || !REAL(cuDevicePrimaryCtxRelease_v2)) return PROCESS_NO_DRIVER;
    return end_primary(REAL(cuDevicePrimaryCtxRelease_v2), device, PRIMARY_RELEASE);
}

static CUresult end_context(end_context_function real, CUcontext context) {
    struct pool_system *pool = process_pool();
    /* Without a handle the driver only answers; to us it would mean a device's primary context. */
    if (!pool || !context) return real(context);
    const uint64_t serial = device_driver_context_serial(process_driver(), context);
    pool_context_close(pool, -1, context);
    closing(pool, context);
    const CUresult result = real(context);
    device_driver_forget_contexts(process_driver());
    if (result == CUDA_SUCCESS) captures_forget_context(pool, context);
    if (result == CUDA_SUCCESS) device_driver_note_ended(context);
    settled(pool, context, result == CUDA_SUCCESS);
    pool_context_settle(pool, -1, context);
    if (result == CUDA_SUCCESS) ipc_context_gone(pool, context, serial);
    device_driver_note_ended(NULL);
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
    if (!process_pool() || device_driver_context_detaching(process_driver(), context))
        return end_context(REAL(cuCtxDetach), context);
    const CUresult result = REAL(cuCtxDetach)(context);
    device_driver_context_detached(process_driver(), context, result == CUDA_SUCCESS);
    return result;
}

/* Its memory is its device's primary context's, which may end with it. Its work goes on, and its streams are no more.
 */
CUresult entry_cuGreenCtxDestroy(void *green) {
    if (!symbols_driver() || !REAL(cuGreenCtxDestroy)) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    CUcontext context = NULL;
    if (!pool || !REAL(cuCtxFromGreenCtx) || REAL(cuCtxFromGreenCtx)(&context, green) != CUDA_SUCCESS)
        return REAL(cuGreenCtxDestroy)(green);
    struct device_driver *driver = process_driver();
    device_driver_context_known(driver, (struct device_context){context, -1}, LIVE_GREEN);
    const int device = device_driver_ordinal(driver, context);
    void *primary = device_driver_primary(driver, device);
    const uint64_t id = device_driver_context_id(driver, primary);
    const uint64_t serial = device_driver_context_serial(driver, primary);
    device_driver_streams_gone(driver, context);
    pool_context_streams_end(pool, context);
    const bool may_end = device_driver_primary_ending(driver, device, PRIMARY_GREEN);
    if (may_end) close_primary(pool, device, primary);
    device_driver_context_closing(driver, context);
    const CUresult result = REAL(cuGreenCtxDestroy)(green);
    device_driver_forget_contexts(driver);
    const bool gone = result == CUDA_SUCCESS, ended = gone && primary_gone(driver, device, primary, id);
    device_driver_primary_ended(driver, device, may_end, ended);
    if (gone) captures_forget_context(pool, context);
    device_driver_context_settled(driver, context, gone);
    if (!may_end && !ended) return result;
    if (!may_end) close_primary(pool, device, primary); /* it was released behind our back */
    settle_primary(pool, device, primary, serial, ended);
    return result;
}
