/* SPDX-License-Identifier: MIT
 *
 * Driver entry points looked up through the runtime.
 */
#include "runtime.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static int entry_point(const char *name, void **function, int version, unsigned long long flags,
                       enum cudaDriverEntryPointQueryResult *status, bool per_thread) {
    if (!name || !function) return cudaErrorInvalidValue;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (flags == cudaEnableDefault && per_thread) flags = cudaEnablePerThreadDefaultStream;
    const CUresult result = simrt_look_up(name, function, version, flags, &found);
    if (result == CUDA_SUCCESS && status) *status = (enum cudaDriverEntryPointQueryResult)found;
    return (int)result;
}

__typeof__(cudaGetDriverEntryPoint) cudaGetDriverEntryPoint_ptsz SIMRT_EXPORT;
__typeof__(cudaGetDriverEntryPointByVersion) cudaGetDriverEntryPointByVersion_ptsz SIMRT_EXPORT;

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    SIMRT_RETURN_IN_PROCESS(entry_point(name, function, simrt_version, flags, status, false));
}

cudaError_t cudaGetDriverEntryPoint_ptsz(const char *name, void **function, unsigned long long flags,
                                         enum cudaDriverEntryPointQueryResult *status) {
    SIMRT_RETURN_IN_PROCESS(entry_point(name, function, simrt_version, flags, status, true));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
    SIMRT_RETURN_IN_PROCESS(entry_point(name, function, (int)version, flags, status, false));
}

cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char *name, void **function, unsigned version,
                                                  unsigned long long flags,
                                                  enum cudaDriverEntryPointQueryResult *status) {
    SIMRT_RETURN_IN_PROCESS(entry_point(name, function, (int)version, flags, status, true));
}
