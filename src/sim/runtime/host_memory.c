/* SPDX-License-Identifier: MIT
 *
 * Pinned host memory: allocated, or registered by the program.
 */
#include "runtime.h"

static int allocate_host(void **pointer, size_t size, unsigned flags, bool with_flags) {
    if (!pointer) return cudaErrorInvalidValue;
    if (size == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return with_flags ? (int)simrt_driver.cuMemHostAlloc(pointer, size, flags)
                      : (int)simrt_driver.cuMemAllocHost(pointer, size);
}

cudaError_t cudaMallocHost(void **pointer, size_t size) {
    SIMRT_RETURN_IN_CONTEXT(allocate_host(pointer, size, 0, false));
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(allocate_host(pointer, size, flags, true));
}

cudaError_t cudaFreeHost(void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(pointer ? simrt_driver.cuMemFreeHost(pointer) : CUDA_SUCCESS);
}

cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemHostRegister(pointer, size, flags));
}

cudaError_t cudaHostUnregister(void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemHostUnregister(pointer));
}

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemHostGetDevicePointer((CUdeviceptr *)device_pointer, pointer, flags));
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemHostGetFlags(flags, pointer));
}
