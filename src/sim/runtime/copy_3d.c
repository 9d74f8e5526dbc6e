/* SPDX-License-Identifier: MIT
 *
 * Copies of boxes between linear memory. Arrays are not simulated.
 */
#include "runtime.h"

int simrt_describe_box(CUDA_MEMCPY3D *copy, const struct cudaMemcpy3DParms *box) {
    if (!box) return cudaErrorInvalidValue;
    if (box->kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (box->srcArray || box->dstArray) return cudaErrorNotSupported;
    if (box->extent.width > box->srcPtr.pitch || box->extent.width > box->dstPtr.pitch)
        return cudaErrorInvalidPitchValue;
    const enum cudaMemcpyKind kind = box->kind;
    const bool any = kind == cudaMemcpyDefault;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    *copy = (CUDA_MEMCPY3D){
        .srcXInBytes = box->srcPos.x,
        .srcY = box->srcPos.y,
        .srcZ = box->srcPos.z,
        .srcMemoryType = any           ? CU_MEMORYTYPE_UNIFIED
                         : from_device ? CU_MEMORYTYPE_DEVICE
                                       : CU_MEMORYTYPE_HOST,
        .srcHost = box->srcPtr.ptr,
        .srcDevice = (CUdeviceptr)box->srcPtr.ptr,
        .srcPitch = box->srcPtr.pitch,
        .srcHeight = box->srcPtr.ysize,
        .dstXInBytes = box->dstPos.x,
        .dstY = box->dstPos.y,
        .dstZ = box->dstPos.z,
        .dstMemoryType = any         ? CU_MEMORYTYPE_UNIFIED
                         : to_device ? CU_MEMORYTYPE_DEVICE
                                     : CU_MEMORYTYPE_HOST,
        .dstHost = box->dstPtr.ptr,
        .dstDevice = (CUdeviceptr)box->dstPtr.ptr,
        .dstPitch = box->dstPtr.pitch,
        .dstHeight = box->dstPtr.ysize,
        .WidthInBytes = box->extent.width,
        .Height = box->extent.height,
        .Depth = box->extent.depth,
    };
    return cudaSuccess;
}

static bool is_empty(const struct cudaMemcpy3DParms *box) {
    return box->extent.width == 0 || box->extent.height == 0 || box->extent.depth == 0;
}

static int copy_box(const struct cudaMemcpy3DParms *box, PFN_cuMemcpy3D_v3020 driver_call) {
    CUDA_MEMCPY3D copy;
    const int error = simrt_describe_box(&copy, box);
    return error || is_empty(box) ? error : (int)driver_call(&copy);
}

static int copy_box_async(const struct cudaMemcpy3DParms *box, cudaStream_t stream,
                          PFN_cuMemcpy3DAsync_v3020 driver_call) {
    CUDA_MEMCPY3D copy;
    const int error = simrt_describe_box(&copy, box);
    return error || is_empty(box) ? error : (int)driver_call(&copy, stream);
}

__typeof__(cudaMemcpy3D) cudaMemcpy3D_ptds SIMRT_EXPORT;
__typeof__(cudaMemcpy3DAsync) cudaMemcpy3DAsync_ptsz SIMRT_EXPORT;

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *box) {
    SIMRT_RETURN_IN_CONTEXT(copy_box(box, simrt_driver.cuMemcpy3D));
}

cudaError_t cudaMemcpy3D_ptds(const struct cudaMemcpy3DParms *box) {
    SIMRT_RETURN_IN_CONTEXT(copy_box(box, simrt_driver.cuMemcpy3D_ptds));
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *box, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(copy_box_async(box, stream, simrt_driver.cuMemcpy3DAsync));
}

cudaError_t cudaMemcpy3DAsync_ptsz(const struct cudaMemcpy3DParms *box, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(copy_box_async(box, stream, simrt_driver.cuMemcpy3DAsync_ptsz));
}
