/* SPDX-License-Identifier: MIT
 *
 * Two devices at once: peer access and copies between devices.
 */
#include "runtime.h"

static int can_access(int *can, int device, int peer) {
    if (!can) return cudaErrorInvalidValue;
    if (!simrt_device_is_valid(device) || !simrt_device_is_valid(peer)) return cudaErrorInvalidDevice;
    return (int)simrt_driver.cuDeviceCanAccessPeer(can, device, peer);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    SIMRT_RETURN_IN_PROCESS(can_access(can, device, peer));
}

static int peer_attribute(int *value, enum cudaDeviceP2PAttr attribute, int source, int destination) {
    if (!value) return cudaErrorInvalidValue;
    if (!simrt_device_is_valid(source) || !simrt_device_is_valid(destination)) return cudaErrorInvalidDevice;
    return (int)simrt_driver.cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attribute, source, destination);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int source, int destination) {
    SIMRT_RETURN_IN_PROCESS(peer_attribute(value, attribute, source, destination));
}

static int enable_peer(int peer, unsigned flags) {
    CUcontext context;
    if (!simrt_device_is_valid(peer)) return cudaErrorInvalidDevice;
    const CUresult result = simrt_primary_context(peer, &context);
    return (int)(result != CUDA_SUCCESS ? result : simrt_driver.cuCtxEnablePeerAccess(context, flags));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(enable_peer(peer, flags));
}

static int disable_peer(int peer) {
    CUcontext context;
    if (!simrt_device_is_valid(peer)) return cudaErrorInvalidDevice;
    const CUresult result = simrt_primary_context(peer, &context);
    return (int)(result != CUDA_SUCCESS ? result : simrt_driver.cuCtxDisablePeerAccess(context));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    SIMRT_RETURN_IN_CONTEXT(disable_peer(peer));
}

static int contexts_of(int destination, CUcontext *to, int source, CUcontext *from) {
    if (!simrt_device_is_valid(destination) || !simrt_device_is_valid(source)) return cudaErrorInvalidDevice;
    const CUresult result = simrt_primary_context(destination, to);
    return (int)(result != CUDA_SUCCESS ? result : simrt_primary_context(source, from));
}

static int copy_peer(void *to, int destination, const void *from, int source, size_t size) {
    CUcontext to_context, from_context;
    const int error = contexts_of(destination, &to_context, source, &from_context);
    if (error || size == 0) return error;
    return (int)simrt_driver.cuMemcpyPeer((CUdeviceptr)to, to_context, (CUdeviceptr)from, from_context, size);
}

cudaError_t cudaMemcpyPeer(void *to, int destination, const void *from, int source, size_t size) {
    SIMRT_RETURN_IN_CONTEXT(copy_peer(to, destination, from, source, size));
}

static int copy_peer_async(void *to, int destination, const void *from, int source, size_t size, cudaStream_t stream) {
    CUcontext to_context, from_context;
    const int error = contexts_of(destination, &to_context, source, &from_context);
    if (error || size == 0) return error;
    return (int)simrt_driver.cuMemcpyPeerAsync((CUdeviceptr)to, to_context, (CUdeviceptr)from, from_context, size,
                                               stream);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int destination, const void *from, int source, size_t size,
                                cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(copy_peer_async(to, destination, from, source, size, stream));
}
