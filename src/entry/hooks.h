/* SPDX-License-Identifier: MIT
 *
 * The hooked driver entry points: one table, from which come the declarations of the hooks, the pointers to the real
 * functions and the search by name and by address. libpoolcuda.map lists the same names.
 *
 * A hook is called entry_NAME here and exported as NAME, so that programs linked with -lcuda find it, whatever the CUDA
 * header in use declares or renames.
 */
#ifndef POOLCUDA_ENTRY_HOOKS_H
#define POOLCUDA_ENTRY_HOOKS_H

#include <stdint.h>

#include <cuda.h>

/* The header renames these to their newest variants; here a name is the exported symbol. */
#undef cuCtxCreate
#undef cuCtxDestroy
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuGraphInstantiate
#undef cuIpcOpenMemHandle
#undef cuGraphLaunch
#undef cuGraphUpload
#undef cuGraphicsMapResources
#undef cuLaunchCooperativeKernel
#undef cuLaunchKernel
#undef cuLaunchKernelEx
#undef cuStreamBeginCapture
#undef cuStreamDestroy

/* X(exported symbol, name for cuGetProcAddress, its version there, stream flag there, arguments).
 * Never the 32-bit entry points of version 2000 (cuMemAlloc, cuMemFree, …). */
#define ENTRY_LEGACY 1     /* CU_GET_PROC_ADDRESS_LEGACY_STREAM */
#define ENTRY_PER_THREAD 2 /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

#define ENTRY_HOOKS(X)     \
    ENTRY_LOOKUP_HOOKS(X)  \
    ENTRY_MEMORY_HOOKS(X)  \
    ENTRY_QUERY_HOOKS(X)   \
    ENTRY_IPC_HOOKS(X)     \
    ENTRY_STARVED_HOOKS(X) \
    ENTRY_CODE_HOOKS(X)    \
    ENTRY_CONTEXT_HOOKS(X) \
    ENTRY_CAPTURE_HOOKS(X) \
    ENTRY_STREAM_HOOKS(X)  \
    ENTRY_MEMORY_POOL_HOOKS(X)

#define ENTRY_LOOKUP_HOOKS(X)                                        \
    X(cuGetProcAddress, "cuGetProcAddress", 11030, ENTRY_LEGACY,     \
      (const char *name, void **out, int version, cuuint64_t flags)) \
    X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, ENTRY_LEGACY,  \
      (const char *name, void **out, int version, cuuint64_t flags, void *status))

#define ENTRY_MEMORY_HOOKS(X)                                                                                      \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, ENTRY_LEGACY, (CUdeviceptr * out, size_t bytes))                          \
    X(cuMemFree_v2, "cuMemFree", 3020, ENTRY_LEGACY, (CUdeviceptr address))                                        \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, ENTRY_LEGACY, (CUdeviceptr * out, size_t bytes, CUstream stream)) \
    X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, ENTRY_PER_THREAD,                                            \
      (CUdeviceptr * out, size_t bytes, CUstream stream))                                                          \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, ENTRY_LEGACY, (CUdeviceptr address, CUstream stream))               \
    X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, ENTRY_PER_THREAD, (CUdeviceptr address, CUstream stream))

#define ENTRY_QUERY_HOOKS(X)                                                                            \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, ENTRY_LEGACY, (size_t * free_bytes, size_t * total_bytes)) \
    X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, ENTRY_LEGACY,                              \
      (CUdeviceptr * base, size_t * size, CUdeviceptr address))                                         \
    X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, ENTRY_LEGACY,                               \
      (void *data, CUpointer_attribute attribute, CUdeviceptr address))                                 \
    X(cuPointerGetAttributes, "cuPointerGetAttributes", 7000, ENTRY_LEGACY,                             \
      (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address))          \
    X(cuPointerSetAttribute, "cuPointerSetAttribute", 6000, ENTRY_LEGACY,                               \
      (const void *value, CUpointer_attribute attribute, CUdeviceptr address))                          \
    X(cuMemPoolExportPointer, "cuMemPoolExportPointer", 11020, ENTRY_LEGACY,                            \
      (CUmemPoolPtrExportData * data, CUdeviceptr address))

#define ENTRY_IPC_HOOKS(X)                                                                                        \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, ENTRY_LEGACY, (CUipcMemHandle * handle, CUdeviceptr address)) \
    X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, ENTRY_LEGACY,                                               \
      (CUdeviceptr * out, CUipcMemHandle handle, unsigned int flags))                                             \
    X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, ENTRY_LEGACY,                                           \
      (CUdeviceptr * out, CUipcMemHandle handle, unsigned int flags))                                             \
    X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, ENTRY_LEGACY, (CUdeviceptr address))

/* Calls that take device memory beside us: out of memory, they are made once more after cached memory went back. Not
 * those that take host memory alone (nodes of graphs, links, reserved addresses). */
#define ENTRY_STARVED_HOOKS(X)                                                                                       \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, ENTRY_LEGACY,                                       \
      (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream))                                         \
    X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, ENTRY_PER_THREAD,                              \
      (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream))                                         \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, ENTRY_LEGACY,                                                     \
      (CUdeviceptr * out, size_t * pitch, size_t width, size_t height, unsigned int element))                        \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, ENTRY_LEGACY,                                                    \
      (CUdeviceptr * out, size_t bytes, unsigned int flags))                                                         \
    X(cuMemCreate, "cuMemCreate", 10020, ENTRY_LEGACY,                                                               \
      (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *property,                     \
       unsigned long long flags))                                                                                    \
    X(cuArrayCreate_v2, "cuArrayCreate", 3020, ENTRY_LEGACY, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *shape))  \
    X(cuArray3DCreate_v2, "cuArray3DCreate", 3020, ENTRY_LEGACY,                                                     \
      (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape))                                                       \
    X(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, ENTRY_LEGACY,                                          \
      (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels))                         \
    X(cuMemMap, "cuMemMap", 10020, ENTRY_LEGACY,                                                                     \
      (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,                        \
       unsigned long long flags))                                                                                    \
    X(cuMemSetAccess, "cuMemSetAccess", 10020, ENTRY_LEGACY,                                                         \
      (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count))                              \
    X(cuMulticastCreate, "cuMulticastCreate", 12010, ENTRY_LEGACY,                                                   \
      (CUmemGenericAllocationHandle * handle, const void *property))                                                 \
    X(cuMulticastBindMem, "cuMulticastBindMem", 12010, ENTRY_LEGACY,                                                 \
      (CUmemGenericAllocationHandle multicast, size_t multicast_offset, CUmemGenericAllocationHandle handle,         \
       size_t offset, size_t bytes, unsigned long long flags))                                                       \
    X(cuMulticastBindAddr, "cuMulticastBindAddr", 12010, ENTRY_LEGACY,                                               \
      (CUmemGenericAllocationHandle multicast, size_t multicast_offset, CUdeviceptr address, size_t bytes,           \
       unsigned long long flags))                                                                                    \
    X(cuMemPoolCreate, "cuMemPoolCreate", 11020, ENTRY_LEGACY,                                                       \
      (CUmemoryPool * memory_pool, const CUmemPoolProps *property))                                                  \
    X(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", 11020, ENTRY_LEGACY,                 \
      (CUmemoryPool * memory_pool, void *handle, CUmemAllocationHandleType type, unsigned long long flags))          \
    X(cuMemPoolImportPointer, "cuMemPoolImportPointer", 11020, ENTRY_LEGACY,                                         \
      (CUdeviceptr * out, CUmemoryPool memory_pool, CUmemPoolPtrExportData * data))                                  \
    X(cuImportExternalMemory, "cuImportExternalMemory", 10000, ENTRY_LEGACY,                                         \
      (CUexternalMemory * memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle))                                   \
    X(cuExternalMemoryGetMappedBuffer, "cuExternalMemoryGetMappedBuffer", 10000, ENTRY_LEGACY,                       \
      (CUdeviceptr * out, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer))                  \
    X(cuExternalMemoryGetMappedMipmappedArray, "cuExternalMemoryGetMappedMipmappedArray", 10000, ENTRY_LEGACY,       \
      (CUmipmappedArray * array, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *shape))   \
    X(cuGraphicsMapResources, "cuGraphicsMapResources", 3000, ENTRY_LEGACY,                                          \
      (unsigned int count, CUgraphicsResource *resources, CUstream stream))                                          \
    X(cuGraphicsMapResources_ptsz, "cuGraphicsMapResources", 7000, ENTRY_PER_THREAD,                                 \
      (unsigned int count, CUgraphicsResource *resources, CUstream stream))                                          \
    X(cuMemAllocHost_v2, "cuMemAllocHost", 3020, ENTRY_LEGACY, (void **out, size_t bytes))                           \
    X(cuMemHostAlloc, "cuMemHostAlloc", 2020, ENTRY_LEGACY, (void **out, size_t bytes, unsigned int flags))          \
    X(cuMemHostRegister_v2, "cuMemHostRegister", 6050, ENTRY_LEGACY,                                                 \
      (void *address, size_t bytes, unsigned int flags))                                                             \
    X(cuCtxSetLimit, "cuCtxSetLimit", 3010, ENTRY_LEGACY, (CUlimit limit, size_t value))                             \
    X(cuEventCreate, "cuEventCreate", 2000, ENTRY_LEGACY, (CUevent * event, unsigned int flags))                     \
    X(cuGreenCtxCreate, "cuGreenCtxCreate", 12040, ENTRY_LEGACY,                                                     \
      (void **green, void *resources, CUdevice device, unsigned int flags))                                          \
    X(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050, ENTRY_LEGACY,                                         \
      (CUstream * stream, void *green, unsigned int flags, int priority))                                            \
    X(cuStreamCreate, "cuStreamCreate", 2000, ENTRY_LEGACY, (CUstream * stream, unsigned int flags))                 \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, ENTRY_LEGACY,                                  \
      (CUstream * stream, unsigned int flags, int priority))                                                         \
    X(cuCtxCreate_v2, "cuCtxCreate", 3020, ENTRY_LEGACY, (CUcontext * context, unsigned int flags, CUdevice device)) \
    X(cuCtxCreate_v3, "cuCtxCreate", 11040, ENTRY_LEGACY,                                                            \
      (CUcontext * context, void *affinity, int count, unsigned int flags, CUdevice device))                         \
    X(cuCtxCreate_v4, "cuCtxCreate", 12050, ENTRY_LEGACY,                                                            \
      (CUcontext * context, void *parameters, unsigned int flags, CUdevice device))

/* The same of code: loads, what loads lazily, and launches, which may too. */
#define ENTRY_LAUNCH                                                                                            \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,  \
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters, \
     void **extra)
#define ENTRY_LAUNCH_COOPERATIVE                                                                               \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters)

#define ENTRY_CODE_HOOKS(X)                                                                                         \
    X(cuModuleLoad, "cuModuleLoad", 2000, ENTRY_LEGACY, (CUmodule * module, const char *path))                      \
    X(cuModuleLoadData, "cuModuleLoadData", 2000, ENTRY_LEGACY, (CUmodule * module, const void *image))             \
    X(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, ENTRY_LEGACY,                                                 \
      (CUmodule * module, const void *image, unsigned int count, CUjit_option *options, void **values))             \
    X(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, ENTRY_LEGACY, (CUmodule * module, const void *image))   \
    X(cuLibraryLoadData, "cuLibraryLoadData", 12000, ENTRY_LEGACY,                                                  \
      (CUlibrary * library, const void *code, CUjit_option *jit_options, void **jit_values, unsigned int jit_count, \
       CUlibraryOption *options, void **values, unsigned int count))                                                \
    X(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, ENTRY_LEGACY,                                          \
      (CUlibrary * library, const char *path, CUjit_option *jit_options, void **jit_values, unsigned int jit_count, \
       CUlibraryOption *options, void **values, unsigned int count))                                                \
    X(cuLibraryGetModule, "cuLibraryGetModule", 12000, ENTRY_LEGACY, (CUmodule * module, CUlibrary library))        \
    X(cuLibraryGetGlobal, "cuLibraryGetGlobal", 12000, ENTRY_LEGACY,                                                \
      (CUdeviceptr * out, size_t * bytes, CUlibrary library, const char *name))                                     \
    X(cuLibraryGetManaged, "cuLibraryGetManaged", 12000, ENTRY_LEGACY,                                              \
      (CUdeviceptr * out, size_t * bytes, CUlibrary library, const char *name))                                     \
    X(cuLibraryGetUnifiedFunction, "cuLibraryGetUnifiedFunction", 12000, ENTRY_LEGACY,                              \
      (void **out, CUlibrary library, const char *name))                                                            \
    X(cuModuleGetFunction, "cuModuleGetFunction", 2000, ENTRY_LEGACY,                                               \
      (CUfunction * function, CUmodule module, const char *name))                                                   \
    X(cuModuleGetGlobal_v2, "cuModuleGetGlobal", 3020, ENTRY_LEGACY,                                                \
      (CUdeviceptr * out, size_t * bytes, CUmodule module, const char *name))                                       \
    X(cuKernelGetFunction, "cuKernelGetFunction", 12000, ENTRY_LEGACY, (CUfunction * function, CUkernel kernel))    \
    X(cuKernelGetAttribute, "cuKernelGetAttribute", 12000, ENTRY_LEGACY,                                            \
      (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device))                               \
    X(cuKernelSetAttribute, "cuKernelSetAttribute", 12000, ENTRY_LEGACY,                                            \
      (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device))                                \
    X(cuFuncGetAttribute, "cuFuncGetAttribute", 2020, ENTRY_LEGACY,                                                 \
      (int *value, CUfunction_attribute attribute, CUfunction function))                                            \
    X(cuFuncSetAttribute, "cuFuncSetAttribute", 9000, ENTRY_LEGACY,                                                 \
      (CUfunction function, CUfunction_attribute attribute, int value))                                             \
    X(cuFuncLoad, "cuFuncLoad", 12040, ENTRY_LEGACY, (CUfunction function))                                         \
    X(cuGraphInstantiate, "cuGraphInstantiate", 10000, ENTRY_LEGACY,                                                \
      (CUgraphExec * exec, CUgraph graph, CUgraphNode * node, char *log, size_t bytes))                             \
    X(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, ENTRY_LEGACY,                                             \
      (CUgraphExec * exec, CUgraph graph, CUgraphNode * node, char *log, size_t bytes))                             \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, ENTRY_LEGACY,                              \
      (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                                                \
    X(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, ENTRY_LEGACY,                            \
      (CUgraphExec * exec, CUgraph graph, void *parameters))                                                        \
    X(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, ENTRY_PER_THREAD,                   \
      (CUgraphExec * exec, CUgraph graph, void *parameters))                                                        \
    X(cuGraphUpload, "cuGraphUpload", 11010, ENTRY_LEGACY, (CUgraphExec exec, CUstream stream))                     \
    X(cuGraphUpload_ptsz, "cuGraphUpload", 11010, ENTRY_PER_THREAD, (CUgraphExec exec, CUstream stream))            \
    X(cuGraphLaunch, "cuGraphLaunch", 10000, ENTRY_LEGACY, (CUgraphExec exec, CUstream stream))                     \
    X(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, ENTRY_PER_THREAD, (CUgraphExec exec, CUstream stream))            \
    X(cuLaunchKernel, "cuLaunchKernel", 4000, ENTRY_LEGACY, ENTRY_LAUNCH)                                           \
    X(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, ENTRY_PER_THREAD, ENTRY_LAUNCH)                                  \
    X(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, ENTRY_LEGACY,                                                    \
      (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))                         \
    X(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, ENTRY_PER_THREAD,                                           \
      (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))                         \
    X(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, ENTRY_LEGACY, ENTRY_LAUNCH_COOPERATIVE)         \
    X(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, ENTRY_PER_THREAD, ENTRY_LAUNCH_COOPERATIVE)

#define ENTRY_CONTEXT_HOOKS(X)                                                                                     \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, ENTRY_LEGACY,                                    \
      (CUcontext * context, CUdevice device))                                                                      \
    X(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", 4000, ENTRY_LEGACY, (CUcontext context, unsigned int flags)) \
    X(cuCtxAttach, "cuCtxAttach", 2000, ENTRY_LEGACY, (CUcontext * context, unsigned int flags))                   \
    X(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040, ENTRY_LEGACY, (CUcontext * context, void *green))             \
    X(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, ENTRY_LEGACY, (CUdevice device))                   \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, ENTRY_LEGACY, (CUdevice device))               \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, ENTRY_LEGACY, (CUdevice device))               \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, ENTRY_LEGACY, (CUdevice device))           \
    X(cuCtxDestroy, "cuCtxDestroy", 2000, ENTRY_LEGACY, (CUcontext context))                                       \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, ENTRY_LEGACY, (CUcontext context))                                    \
    X(cuCtxDetach, "cuCtxDetach", 2000, ENTRY_LEGACY, (CUcontext context))                                         \
    X(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, ENTRY_LEGACY, (void *context))

#define ENTRY_CAPTURE_HOOKS(X)                                                                           \
    X(cuStreamBeginCapture, "cuStreamBeginCapture", 10000, ENTRY_LEGACY, (CUstream stream))              \
    X(cuStreamBeginCapture_ptsz, "cuStreamBeginCapture", 10000, ENTRY_PER_THREAD, (CUstream stream))     \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, ENTRY_LEGACY,                              \
      (CUstream stream, CUstreamCaptureMode mode))                                                       \
    X(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, ENTRY_PER_THREAD,                     \
      (CUstream stream, CUstreamCaptureMode mode))                                                       \
    X(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, ENTRY_LEGACY,                   \
      (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges, size_t count,        \
       CUstreamCaptureMode mode))                                                                        \
    X(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, ENTRY_PER_THREAD,          \
      (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges, size_t count,        \
       CUstreamCaptureMode mode))                                                                        \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, ENTRY_LEGACY, (CUstream stream, CUgraph * graph)) \
    X(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, ENTRY_PER_THREAD, (CUstream stream, CUgraph * graph))

#define ENTRY_STREAM_HOOKS(X)                                                    \
    X(cuStreamDestroy, "cuStreamDestroy", 2000, ENTRY_LEGACY, (CUstream stream)) \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, ENTRY_LEGACY, (CUstream stream))

#define ENTRY_MEMORY_POOL_HOOKS(X)                                                                                   \
    X(cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, ENTRY_LEGACY, (CUdevice device, CUmemoryPool memory_pool))    \
    X(cuMemSetMemPool, "cuMemSetMemPool", 13000, ENTRY_LEGACY, (void *location, int type, CUmemoryPool memory_pool)) \
    X(cuMemPoolSetAccess, "cuMemPoolSetAccess", 11020, ENTRY_LEGACY,                                                 \
      (CUmemoryPool memory_pool, const CUmemAccessDesc *access, size_t count))                                       \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, ENTRY_LEGACY, (CUmemoryPool memory_pool, size_t keep_bytes))        \
    X(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, ENTRY_LEGACY, (CUmemoryPool memory_pool))                         \
    X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020, ENTRY_LEGACY,                                           \
      (CUmemoryPool memory_pool, CUmemPool_attribute attribute, void *value))

#define ENTRY_EXPORT __attribute__((visibility("default")))

#define ENTRY_DECLARE(symbol, name, version, flags, arguments) \
    ENTRY_EXPORT CUresult entry_##symbol arguments __asm__(#symbol);
ENTRY_HOOKS(ENTRY_DECLARE)
#undef ENTRY_DECLARE

enum entry_hook {
#define ENTRY_NUMBER(symbol, name, version, flags, arguments) ENTRY_HOOK_##symbol,
    ENTRY_HOOKS(ENTRY_NUMBER)
#undef ENTRY_NUMBER
        ENTRY_HOOK_COUNT
};

#endif
