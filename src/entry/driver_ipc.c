/* SPDX-License-Identifier: MIT
 *
 * The driver door for memory that processes share by handles. The driver's handle stands for a whole segment, so it is
 * given for a block that starts one; another block has a handle of ours (ipc/handle.h), which opens in every process
 * that has this library, pooled or not. The driver is asked first in any case: its refusals come before ours.
 */
#include "entry/ipc.h"

#include <string.h>

#include "config/log.h"
#include "device/driver.h"
#include "ipc/exports.h"
#include "ipc/imports.h"

_Static_assert(sizeof(CUipcMemHandle) == IPC_HANDLE_BYTES, "the driver's handles are as long as ours");

/* ---- the exporter ---- */

static CUresult export_segment(struct pool_system *pool, CUipcMemHandle *handle, CUdeviceptr address,
                               const struct pool_block_info *info) {
    const CUresult result = REAL(cuIpcGetMemHandle)(handle, address);
    if (result != CUDA_SUCCESS || pool_note_export(pool, info, 0)) return result;
    return CUDA_ERROR_INVALID_VALUE; /* it was freed meanwhile */
}

static CUresult export_block(struct pool_system *pool, CUipcMemHandle *handle, CUdeviceptr address,
                             const struct pool_block_info *info) {
    CUipcMemHandle segment;
    if (!handle) return REAL(cuIpcGetMemHandle)(handle, address);
    const CUresult result = REAL(cuIpcGetMemHandle)(&segment, address);
    if (result != CUDA_SUCCESS) return result;
    unsigned char ours[IPC_HANDLE_BYTES];
    uint64_t number = info->export;
    if (!number) {
        const struct ipc_export export = {info->base, info->offset_in_segment, info->requested, &segment};
        const uint64_t added = exports_add(&export, ours);
        if (!added) return CUDA_ERROR_INVALID_VALUE;
        number = pool_note_export(pool, info, added);
        exports_noted(added);
        if (number != added) exports_over(added); /* another thread was faster, or it was freed meanwhile */
    }
    if (!number || !exports_handle(number, ours)) return CUDA_ERROR_INVALID_VALUE;
    memcpy(handle, ours, sizeof ours);
    return CUDA_SUCCESS;
}

CUresult entry_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    if (!symbols_driver() || !REAL(cuIpcGetMemHandle)) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    struct pool_block_info info;
    const int code = pool ? pool_find(pool, (uint64_t)address, &info) : POOL_PASS;
    if (code == POOL_PASS) return REAL(cuIpcGetMemHandle)(handle, address);
    /* Of address 0 the driver knows nothing either. */
    if (code != DEVICE_OK) return REAL(cuIpcGetMemHandle)(handle, 0);
    if (info.kind != SEGMENT_PLAIN) return REAL(cuIpcGetMemHandle)(handle, address);
    return info.offset_in_segment ? export_block(pool, handle, address, &info)
                                  : export_segment(pool, handle, address, &info);
}

static bool known(void *pool, uint64_t export, uint64_t address) {
    return pool_knows_export(pool, export, address);
}

void ipc_context_gone(struct pool_system *pool, const void *context, uint64_t serial) {
    exports_sweep(known, pool);
    imports_context_gone((struct import_life){context, serial});
}

/* ---- the importer ---- */

typedef CUresult(CUDAAPI *open_function)(CUdeviceptr *, CUipcMemHandle, unsigned int);

/* What the driver answers to any other refusal: no current context first. */
static CUresult refuse(const char *why) {
    struct device_context context;
    log_line(LOG_WARNING, "IPC: memory of another process cannot be opened: %s", why);
    const int code = process_pool() ? process_context(&context) : DEVICE_OK;
    return code == DEVICE_OK ? CUDA_ERROR_INVALID_VALUE : (CUresult)code;
}

static CUresult open_segment(open_function real, CUdeviceptr *out, const CUipcMemHandle *handle, unsigned int flags) {
    const CUresult result = real(out, *handle, flags);
    return result == CUDA_ERROR_OUT_OF_MEMORY && process_relieve(-1) ? real(out, *handle, flags) : result;
}

/* What is opened under a green context is its primary one's. */
static struct import_life current_life(void) {
    struct device_driver *driver = process_driver();
    struct device_context current = {0};
    if (driver->ops.context_current(driver->ops.self, &current) != DEVICE_OK) return (struct import_life){0};
    if (device_driver_context_green(driver, current.handle))
        current.handle = device_driver_primary(driver, current.ordinal);
    return (struct import_life){current.handle, device_driver_context_serial(driver, current.handle)};
}

static CUresult open_block(open_function real, CUdeviceptr *out, const CUipcMemHandle *bytes, unsigned int flags) {
    struct ipc_handle handle;
    struct import_hold hold;
    const char *why = NULL;
    if (!ipc_handle_read(bytes, &handle)) return refuse("its handle is damaged, or of another version of this library");
    if (exports_is_own(&handle)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!imports_hold(&handle, &hold, &why)) return refuse(why);
    CUipcMemHandle segment;
    CUdeviceptr base = 0;
    memcpy(&segment, hold.driver_handle, sizeof segment);
    /* Before the driver opens it: what is opened in a life that ends meanwhile is not the next one's. */
    const struct import_life life = current_life();
    CUresult result = open_segment(real, &base, &segment, flags);
    if (result == CUDA_SUCCESS) {
        if (imports_opened(&hold, (uint64_t)base, life)) {
            *out = base + hold.offset;
            return CUDA_SUCCESS;
        }
        if (REAL(cuIpcCloseMemHandle)) REAL(cuIpcCloseMemHandle)(base);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    imports_give_up(&hold);
    return result;
}

static CUresult open_handle(open_function real, CUdeviceptr *out, const CUipcMemHandle *handle, unsigned int flags) {
    if (!real) return PROCESS_NO_DRIVER;
    process_pool(); /* binds the driver */
    if (ipc_handle_is_ours(handle)) return open_block(real, out, handle, flags);
    return open_segment(real, out, handle, flags);
}

CUresult entry_cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags) {
    return open_handle(symbols_driver() ? REAL(cuIpcOpenMemHandle) : NULL, out, &handle, flags);
}

CUresult entry_cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags) {
    return open_handle(symbols_driver() ? REAL(cuIpcOpenMemHandle_v2) : NULL, out, &handle, flags);
}

CUresult entry_cuIpcCloseMemHandle(CUdeviceptr address) {
    if (!symbols_driver() || !REAL(cuIpcCloseMemHandle)) return PROCESS_NO_DRIVER;
    struct import_info info;
    if (!imports_close((uint64_t)address, &info)) return REAL(cuIpcCloseMemHandle)(address);
    const CUresult result = REAL(cuIpcCloseMemHandle)((CUdeviceptr)info.base);
    imports_close_ended(&info, result == CUDA_SUCCESS);
    return result;
}
