/* SPDX-License-Identifier: MIT
 *
 * Memory and events shared with other processes by 64-byte handles, the same bytes in both interfaces.
 */
#include <string.h>

#include "runtime.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "handles have one layout");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle), "handles have one layout");

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuIpcGetMemHandle((CUipcMemHandle *)(void *)handle, (CUdeviceptr)pointer));
}

cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags) {
    CUipcMemHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof(handle));
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuIpcOpenMemHandle((CUdeviceptr *)pointer, driver_handle, flags));
}

cudaError_t cudaIpcCloseMemHandle(void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuIpcCloseMemHandle((CUdeviceptr)pointer));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuIpcGetEventHandle((CUipcEventHandle *)(void *)handle, event));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
    CUipcEventHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof(handle));
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuIpcOpenEventHandle(event, driver_handle));
}
