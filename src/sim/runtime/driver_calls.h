/* SPDX-License-Identifier: MIT
 *
 * Every driver entry point that the runtime uses, one table. SIMRT_DRIVER_CALLS(PLAIN, PER_THREAD) calls
 * PLAIN(name, version) for a look-up with flags 0 and PER_THREAD(name, version, suffix) for one with the per-thread
 * flag, which asks for the variant name_suffix. The version is the one in which the called interface appeared, so that
 * a newer driver cannot change it.
 */
#ifndef SIM_RUNTIME_DRIVER_CALLS_H
#define SIM_RUNTIME_DRIVER_CALLS_H

/* clang-format off */
#define SIMRT_DRIVER_CALLS(PLAIN, PER_THREAD) \
    PLAIN(cuInit, 2000) \
    PLAIN(cuDriverGetVersion, 2020) \
    PLAIN(cuDeviceGetCount, 2000) \
    PLAIN(cuDeviceGetName, 2000) \
    PLAIN(cuDeviceGetUuid, 11040) \
    PLAIN(cuDeviceTotalMem, 3020) \
    PLAIN(cuDeviceGetAttribute, 2000) \
    PLAIN(cuDeviceGetByPCIBusId, 4010) \
    PLAIN(cuDeviceGetPCIBusId, 4010) \
    PLAIN(cuDeviceGetP2PAttribute, 8000) \
    PLAIN(cuDeviceCanAccessPeer, 4000) \
    PLAIN(cuDeviceSetMemPool, 11020) \
    PLAIN(cuDeviceGetMemPool, 11020) \
    PLAIN(cuDeviceGetDefaultMemPool, 11020) \
    PLAIN(cuDeviceGraphMemTrim, 11040) \
    PLAIN(cuDeviceGetGraphMemAttribute, 11040) \
    PLAIN(cuDeviceSetGraphMemAttribute, 11040) \
    PLAIN(cuDevicePrimaryCtxRetain, 7000) \
    PLAIN(cuDevicePrimaryCtxRelease, 11000) \
    PLAIN(cuDevicePrimaryCtxSetFlags, 11000) \
    PLAIN(cuDevicePrimaryCtxGetState, 7000) \
    PLAIN(cuDevicePrimaryCtxReset, 11000) \
    PLAIN(cuCtxSetCurrent, 4000) \
    PLAIN(cuCtxGetCurrent, 4000) \
    PLAIN(cuCtxGetDevice, 2000) \
    PLAIN(cuCtxSynchronize, 2000) \
    PLAIN(cuCtxSetLimit, 3010) \
    PLAIN(cuCtxGetLimit, 3010) \
    PLAIN(cuCtxGetCacheConfig, 3020) \
    PLAIN(cuCtxSetCacheConfig, 3020) \
    PLAIN(cuCtxGetApiVersion, 3020) \
    PLAIN(cuCtxGetStreamPriorityRange, 5050) \
    PLAIN(cuCtxResetPersistingL2Cache, 11000) \
    PLAIN(cuCtxEnablePeerAccess, 4000) \
    PLAIN(cuCtxDisablePeerAccess, 4000) \
    PLAIN(cuMemGetInfo, 3020) \
    PLAIN(cuMemAlloc, 3020) \
    PLAIN(cuMemAllocPitch, 3020) \
    PLAIN(cuMemFree, 3020) \
    PLAIN(cuMemAllocHost, 3020) \
    PLAIN(cuMemFreeHost, 2000) \
    PLAIN(cuMemHostAlloc, 2020) \
    PLAIN(cuMemHostGetDevicePointer, 3020) \
    PLAIN(cuMemHostGetFlags, 2030) \
    PLAIN(cuMemHostRegister, 6050) \
    PLAIN(cuMemHostUnregister, 4000) \
    PLAIN(cuMemAllocManaged, 6000) \
    PLAIN(cuMemAdvise, 12020) \
    PLAIN(cuPointerGetAttributes, 7000) \
    PLAIN(cuMemPoolTrimTo, 11020) \
    PLAIN(cuMemPoolSetAttribute, 11020) \
    PLAIN(cuMemPoolGetAttribute, 11020) \
    PLAIN(cuMemPoolSetAccess, 11020) \
    PLAIN(cuMemPoolGetAccess, 11020) \
    PLAIN(cuMemPoolCreate, 11020) \
    PLAIN(cuMemPoolDestroy, 11020) \
    PLAIN(cuMemPoolExportToShareableHandle, 11020) \
    PLAIN(cuMemPoolImportFromShareableHandle, 11020) \
    PLAIN(cuMemPoolExportPointer, 11020) \
    PLAIN(cuMemPoolImportPointer, 11020) \
    PLAIN(cuMemGetDefaultMemPool, 13000) \
    PLAIN(cuMemGetMemPool, 13000) \
    PLAIN(cuMemSetMemPool, 13000) \
    PLAIN(cuIpcGetEventHandle, 4010) \
    PLAIN(cuIpcOpenEventHandle, 4010) \
    PLAIN(cuIpcGetMemHandle, 4010) \
    PLAIN(cuIpcOpenMemHandle, 11000) \
    PLAIN(cuIpcCloseMemHandle, 4010) \
    PLAIN(cuStreamCreate, 2000) \
    PLAIN(cuStreamCreateWithPriority, 5050) \
    PLAIN(cuStreamDestroy, 4000) \
    PLAIN(cuThreadExchangeStreamCaptureMode, 10010) \
    PLAIN(cuEventCreate, 2000) \
    PLAIN(cuEventQuery, 2000) \
    PLAIN(cuEventSynchronize, 2000) \
    PLAIN(cuEventDestroy, 4000) \
    PLAIN(cuEventElapsedTime, 12080) \
    PLAIN(cuGraphCreate, 10000) \
    PLAIN(cuGraphDestroy, 10000) \
    PLAIN(cuGraphAddKernelNode, 12000) \
    PLAIN(cuGraphAddMemcpyNode, 10000) \
    PLAIN(cuGraphAddMemsetNode, 10000) \
    PLAIN(cuGraphAddHostNode, 10000) \
    PLAIN(cuGraphHostNodeGetParams, 10000) \
    PLAIN(cuGraphAddChildGraphNode, 10000) \
    PLAIN(cuGraphChildGraphNodeGetGraph, 10000) \
    PLAIN(cuGraphAddEmptyNode, 10000) \
    PLAIN(cuGraphAddEventRecordNode, 11010) \
    PLAIN(cuGraphEventRecordNodeGetEvent, 11010) \
    PLAIN(cuGraphAddEventWaitNode, 11010) \
    PLAIN(cuGraphEventWaitNodeGetEvent, 11010) \
    PLAIN(cuGraphAddMemAllocNode, 11040) \
    PLAIN(cuGraphMemAllocNodeGetParams, 11040) \
    PLAIN(cuGraphAddMemFreeNode, 11040) \
    PLAIN(cuGraphMemFreeNodeGetParams, 11040) \
    PLAIN(cuGraphClone, 10000) \
    PLAIN(cuGraphNodeFindInClone, 10000) \
    PLAIN(cuGraphNodeGetType, 10000) \
    PLAIN(cuGraphGetNodes, 10000) \
    PLAIN(cuGraphGetRootNodes, 10000) \
    PLAIN(cuGraphGetEdges, 12030) \
    PLAIN(cuGraphNodeGetDependencies, 12030) \
    PLAIN(cuGraphNodeGetDependentNodes, 12030) \
    PLAIN(cuGraphAddDependencies, 12030) \
    PLAIN(cuGraphRemoveDependencies, 12030) \
    PLAIN(cuGraphDestroyNode, 10000) \
    PLAIN(cuGraphInstantiateWithFlags, 11040) \
    PLAIN(cuGraphExecGetFlags, 12000) \
    PLAIN(cuGraphExecUpdate, 12000) \
    PLAIN(cuGraphExecDestroy, 10000) \
    PLAIN(cuLibraryLoadData, 12000) \
    PLAIN(cuLibraryUnload, 12000) \
    PLAIN(cuLibraryGetKernel, 12000) \
    PLAIN(cuMemcpy, 4000)                        PER_THREAD(cuMemcpy, 7000, ptds) \
    PLAIN(cuMemcpyHtoD, 3020)                    PER_THREAD(cuMemcpyHtoD, 7000, ptds) \
    PLAIN(cuMemcpyDtoH, 3020)                    PER_THREAD(cuMemcpyDtoH, 7000, ptds) \
    PLAIN(cuMemcpyDtoD, 3020)                    PER_THREAD(cuMemcpyDtoD, 7000, ptds) \
    PLAIN(cuMemcpy2DUnaligned, 3020)             PER_THREAD(cuMemcpy2DUnaligned, 7000, ptds) \
    PLAIN(cuMemcpy3D, 3020)                      PER_THREAD(cuMemcpy3D, 7000, ptds) \
    PLAIN(cuMemcpyPeer, 4000) \
    PLAIN(cuMemcpyAsync, 4000)                   PER_THREAD(cuMemcpyAsync, 7000, ptsz) \
    PLAIN(cuMemcpyHtoDAsync, 3020)               PER_THREAD(cuMemcpyHtoDAsync, 7000, ptsz) \
    PLAIN(cuMemcpyDtoHAsync, 3020)               PER_THREAD(cuMemcpyDtoHAsync, 7000, ptsz) \
    PLAIN(cuMemcpyDtoDAsync, 3020)               PER_THREAD(cuMemcpyDtoDAsync, 7000, ptsz) \
    PLAIN(cuMemcpy2DAsync, 3020)                 PER_THREAD(cuMemcpy2DAsync, 7000, ptsz) \
    PLAIN(cuMemcpy3DAsync, 3020)                 PER_THREAD(cuMemcpy3DAsync, 7000, ptsz) \
    PLAIN(cuMemcpyPeerAsync, 4000) \
    PLAIN(cuMemsetD8, 3020)                      PER_THREAD(cuMemsetD8, 7000, ptds) \
    PLAIN(cuMemsetD2D8, 3020)                    PER_THREAD(cuMemsetD2D8, 7000, ptds) \
    PLAIN(cuMemsetD8Async, 3020)                 PER_THREAD(cuMemsetD8Async, 7000, ptsz) \
    PLAIN(cuMemsetD2D8Async, 3020)               PER_THREAD(cuMemsetD2D8Async, 7000, ptsz) \
    PLAIN(cuMemAllocAsync, 11020)                PER_THREAD(cuMemAllocAsync, 11020, ptsz) \
    PLAIN(cuMemFreeAsync, 11020)                 PER_THREAD(cuMemFreeAsync, 11020, ptsz) \
    PLAIN(cuMemAllocFromPoolAsync, 11020)        PER_THREAD(cuMemAllocFromPoolAsync, 11020, ptsz) \
    PLAIN(cuMemPrefetchAsync, 12020)             PER_THREAD(cuMemPrefetchAsync, 12020, ptsz) \
    PLAIN(cuStreamGetPriority, 5050)             PER_THREAD(cuStreamGetPriority, 7000, ptsz) \
    PLAIN(cuStreamGetFlags, 5050)                PER_THREAD(cuStreamGetFlags, 7000, ptsz) \
    PLAIN(cuStreamGetId, 12000)                  PER_THREAD(cuStreamGetId, 12000, ptsz) \
    PLAIN(cuStreamGetDevice, 12080)              PER_THREAD(cuStreamGetDevice, 12080, ptsz) \
    PLAIN(cuStreamWaitEvent, 3020)               PER_THREAD(cuStreamWaitEvent, 7000, ptsz) \
    PLAIN(cuStreamAddCallback, 5000)             PER_THREAD(cuStreamAddCallback, 7000, ptsz) \
    PLAIN(cuStreamAttachMemAsync, 6000)          PER_THREAD(cuStreamAttachMemAsync, 7000, ptsz) \
    PLAIN(cuStreamSynchronize, 2000)             PER_THREAD(cuStreamSynchronize, 7000, ptsz) \
    PLAIN(cuStreamQuery, 2000)                   PER_THREAD(cuStreamQuery, 7000, ptsz) \
    PLAIN(cuStreamCopyAttributes, 11000)         PER_THREAD(cuStreamCopyAttributes, 11000, ptsz) \
    PLAIN(cuStreamGetAttribute, 11000)           PER_THREAD(cuStreamGetAttribute, 11000, ptsz) \
    PLAIN(cuStreamSetAttribute, 11000)           PER_THREAD(cuStreamSetAttribute, 11000, ptsz) \
    PLAIN(cuStreamBeginCapture, 10010)           PER_THREAD(cuStreamBeginCapture, 10010, ptsz) \
    PLAIN(cuStreamBeginCaptureToGraph, 12030)    PER_THREAD(cuStreamBeginCaptureToGraph, 12030, ptsz) \
    PLAIN(cuStreamEndCapture, 10000)             PER_THREAD(cuStreamEndCapture, 10000, ptsz) \
    PLAIN(cuStreamIsCapturing, 10000)            PER_THREAD(cuStreamIsCapturing, 10000, ptsz) \
    PLAIN(cuStreamGetCaptureInfo, 12030)         PER_THREAD(cuStreamGetCaptureInfo, 12030, ptsz) \
    PLAIN(cuStreamUpdateCaptureDependencies, 12030) \
    PER_THREAD(cuStreamUpdateCaptureDependencies, 12030, ptsz) \
    PLAIN(cuEventRecord, 2000)                   PER_THREAD(cuEventRecord, 7000, ptsz) \
    PLAIN(cuEventRecordWithFlags, 11010)         PER_THREAD(cuEventRecordWithFlags, 11010, ptsz) \
    PLAIN(cuLaunchHostFunc, 10000)               PER_THREAD(cuLaunchHostFunc, 10000, ptsz) \
    PLAIN(cuLaunchKernel, 4000)                  PER_THREAD(cuLaunchKernel, 7000, ptsz) \
    PLAIN(cuLaunchKernelEx, 11060)               PER_THREAD(cuLaunchKernelEx, 11060, ptsz) \
    PLAIN(cuLaunchCooperativeKernel, 9000)       PER_THREAD(cuLaunchCooperativeKernel, 9000, ptsz) \
    PLAIN(cuGraphInstantiateWithParams, 12000)   PER_THREAD(cuGraphInstantiateWithParams, 12000, ptsz) \
    PLAIN(cuGraphUpload, 11010)                  PER_THREAD(cuGraphUpload, 11010, ptsz) \
    PLAIN(cuGraphLaunch, 10000)                  PER_THREAD(cuGraphLaunch, 10000, ptsz)
/* clang-format on */

#endif
