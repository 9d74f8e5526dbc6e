/* SPDX-License-Identifier: MIT
 *
 * What is known of memory: how much is free, and what an address is.
 */
#include "runtime.h"

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuMemGetInfo(free_bytes, total_bytes));
}

static int pointer_attributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    if (!pointer) return cudaErrorInvalidValue;
    unsigned type = 0, managed = 0;
    int ordinal = cudaInvalidDeviceId;
    CUdeviceptr device_pointer = 0;
    void *host_pointer = NULL;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *values[] = {&type, &managed, &ordinal, &device_pointer, &host_pointer};
    const CUresult result =
        simrt_driver.cuPointerGetAttributes(sizeof(names) / sizeof(names[0]), names, values, (CUdeviceptr)pointer);
    if (result != CUDA_SUCCESS) return (int)result;
    *attributes = (struct cudaPointerAttributes){
        .type = managed                        ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered,
        .device = ordinal,
        .devicePointer = (void *)device_pointer,
        .hostPointer = host_pointer,
    };
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(pointer_attributes(attributes, pointer));
}
