/* SPDX-License-Identifier: MIT
 *
 * cudaGetDeviceProperties: the structure filled from the driver's attributes, by one table. Limits of textures and
 * surfaces, which are not simulated, stay 0.
 */
#include <string.h>

#include "runtime.h"

/* NUMBER(field, attribute): an int or unsigned field; BYTES: a size_t field. */
#define PROPERTIES(NUMBER, BYTES)                                                                \
    BYTES(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK)                                        \
    NUMBER(regsPerBlock, MAX_REGISTERS_PER_BLOCK)                                                \
    NUMBER(warpSize, WARP_SIZE)                                                                  \
    BYTES(memPitch, MAX_PITCH)                                                                   \
    NUMBER(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK)                                            \
    NUMBER(maxThreadsDim[0], MAX_BLOCK_DIM_X)                                                    \
    NUMBER(maxThreadsDim[1], MAX_BLOCK_DIM_Y)                                                    \
    NUMBER(maxThreadsDim[2], MAX_BLOCK_DIM_Z)                                                    \
    NUMBER(maxGridSize[0], MAX_GRID_DIM_X)                                                       \
    NUMBER(maxGridSize[1], MAX_GRID_DIM_Y)                                                       \
    NUMBER(maxGridSize[2], MAX_GRID_DIM_Z)                                                       \
    BYTES(totalConstMem, TOTAL_CONSTANT_MEMORY)                                                  \
    NUMBER(major, COMPUTE_CAPABILITY_MAJOR)                                                      \
    NUMBER(minor, COMPUTE_CAPABILITY_MINOR)                                                      \
    BYTES(textureAlignment, TEXTURE_ALIGNMENT)                                                   \
    BYTES(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT)                                        \
    NUMBER(multiProcessorCount, MULTIPROCESSOR_COUNT)                                            \
    NUMBER(integrated, INTEGRATED)                                                               \
    NUMBER(canMapHostMemory, CAN_MAP_HOST_MEMORY)                                                \
    BYTES(surfaceAlignment, SURFACE_ALIGNMENT)                                                   \
    NUMBER(concurrentKernels, CONCURRENT_KERNELS)                                                \
    NUMBER(ECCEnabled, ECC_ENABLED)                                                              \
    NUMBER(pciBusID, PCI_BUS_ID)                                                                 \
    NUMBER(pciDeviceID, PCI_DEVICE_ID)                                                           \
    NUMBER(pciDomainID, PCI_DOMAIN_ID)                                                           \
    NUMBER(tccDriver, TCC_DRIVER)                                                                \
    NUMBER(asyncEngineCount, ASYNC_ENGINE_COUNT)                                                 \
    NUMBER(unifiedAddressing, UNIFIED_ADDRESSING)                                                \
    NUMBER(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH)                                              \
    NUMBER(l2CacheSize, L2_CACHE_SIZE)                                                           \
    NUMBER(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE)                               \
    NUMBER(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR)                          \
    NUMBER(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED)                               \
    NUMBER(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED)                                    \
    NUMBER(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED)                                      \
    BYTES(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)                      \
    NUMBER(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR)                              \
    NUMBER(managedMemory, MANAGED_MEMORY)                                                        \
    NUMBER(isMultiGpuBoard, MULTI_GPU_BOARD)                                                     \
    NUMBER(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID)                                       \
    NUMBER(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED)                              \
    NUMBER(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS)                                         \
    NUMBER(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS)                                   \
    NUMBER(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED)                             \
    NUMBER(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)           \
    NUMBER(cooperativeLaunch, COOPERATIVE_LAUNCH)                                                \
    BYTES(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)                             \
    NUMBER(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) \
    NUMBER(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)                  \
    NUMBER(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR)                            \
    NUMBER(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE)                             \
    BYTES(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK)                           \
    NUMBER(hostRegisterSupported, HOST_REGISTER_SUPPORTED)                                       \
    NUMBER(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED)                                \
    NUMBER(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED)                     \
    NUMBER(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED)              \
    NUMBER(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED)                                         \
    NUMBER(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED)                                    \
    NUMBER(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)                \
    NUMBER(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING)                         \
    NUMBER(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES)                       \
    NUMBER(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED)             \
    NUMBER(ipcEventSupported, IPC_EVENT_SUPPORTED)                                               \
    NUMBER(clusterLaunch, CLUSTER_LAUNCH)                                                        \
    NUMBER(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS)                                   \
    NUMBER(deviceNumaConfig, NUMA_CONFIG)                                                        \
    NUMBER(deviceNumaId, NUMA_ID)                                                                \
    NUMBER(mpsEnabled, MPS_ENABLED)                                                              \
    NUMBER(hostNumaId, HOST_NUMA_ID)

#define SET_NUMBER(field, attribute) \
    properties->field = simrt_device_attribute(CU_DEVICE_ATTRIBUTE_##attribute, device);
#define SET_BYTES(field, attribute) \
    properties->field = (size_t)simrt_device_attribute(CU_DEVICE_ATTRIBUTE_##attribute, device);

static int fill_properties(struct cudaDeviceProp *properties, int device) {
    if (!properties) return cudaErrorInvalidValue;
    if (!simrt_device_is_valid(device)) return cudaErrorInvalidDevice;
    memset(properties, 0, sizeof(*properties));
    PROPERTIES(SET_NUMBER, SET_BYTES)
    CUresult result = simrt_driver.cuDeviceGetName(properties->name, sizeof(properties->name), device);
    if (result == CUDA_SUCCESS) result = simrt_driver.cuDeviceGetUuid(&properties->uuid, device);
    if (result == CUDA_SUCCESS) result = simrt_driver.cuDeviceTotalMem(&properties->totalGlobalMem, device);
    return (int)result;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    SIMRT_RETURN_IN_PROCESS(fill_properties(properties, device));
}
