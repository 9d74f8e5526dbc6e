/* SPDX-License-Identifier: MIT
 *
 * Copies of one and two dimensions. The kind of a copy chooses the driver call, as in the real runtime; the default
 * kind and host-to-host copies leave it to the addresses.
 */
#include "runtime.h"

enum variant { LEGACY, PER_THREAD };

#define PICK(variant, name, suffix) ((variant) == PER_THREAD ? simrt_driver.name##_##suffix : simrt_driver.name)

static int copy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, enum variant variant) {
    if (size == 0 && kind <= cudaMemcpyDefault) return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return (int)PICK(variant, cuMemcpyHtoD, ptds)((CUdeviceptr)to, from, size);
    case cudaMemcpyDeviceToHost:
        return (int)PICK(variant, cuMemcpyDtoH, ptds)(to, (CUdeviceptr)from, size);
    case cudaMemcpyDeviceToDevice:
        return (int)PICK(variant, cuMemcpyDtoD, ptds)((CUdeviceptr)to, (CUdeviceptr)from, size);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return (int)PICK(variant, cuMemcpy, ptds)((CUdeviceptr)to, (CUdeviceptr)from, size);
    }
    return cudaErrorInvalidMemcpyDirection;
}

static int copy_async(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream,
                      enum variant variant) {
    if (size == 0 && kind <= cudaMemcpyDefault) return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return (int)PICK(variant, cuMemcpyHtoDAsync, ptsz)((CUdeviceptr)to, from, size, stream);
    case cudaMemcpyDeviceToHost:
        return (int)PICK(variant, cuMemcpyDtoHAsync, ptsz)(to, (CUdeviceptr)from, size, stream);
    case cudaMemcpyDeviceToDevice:
        return (int)PICK(variant, cuMemcpyDtoDAsync, ptsz)((CUdeviceptr)to, (CUdeviceptr)from, size, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return (int)PICK(variant, cuMemcpyAsync, ptsz)((CUdeviceptr)to, (CUdeviceptr)from, size, stream);
    }
    return cudaErrorInvalidMemcpyDirection;
}

__typeof__(cudaMemcpy) cudaMemcpy_ptds SIMRT_EXPORT;
__typeof__(cudaMemcpyAsync) cudaMemcpyAsync_ptsz SIMRT_EXPORT;

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    SIMRT_RETURN_IN_CONTEXT(copy(to, from, size, kind, LEGACY));
}

cudaError_t cudaMemcpy_ptds(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    SIMRT_RETURN_IN_CONTEXT(copy(to, from, size, kind, PER_THREAD));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(copy_async(to, from, size, kind, stream, LEGACY));
}

cudaError_t cudaMemcpyAsync_ptsz(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                                 cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(copy_async(to, from, size, kind, stream, PER_THREAD));
}

struct rows {
    void *to;
    size_t to_pitch;
    const void *from;
    size_t from_pitch;
    size_t width;
    size_t height;
    enum cudaMemcpyKind kind;
};

static int describe_rows(CUDA_MEMCPY2D *copy, const struct rows *rows) {
    if (rows->kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (rows->width > rows->to_pitch || rows->width > rows->from_pitch) return cudaErrorInvalidPitchValue;
    const bool any = rows->kind == cudaMemcpyDefault;
    const bool from_device = rows->kind == cudaMemcpyDeviceToHost || rows->kind == cudaMemcpyDeviceToDevice;
    const bool to_device = rows->kind == cudaMemcpyHostToDevice || rows->kind == cudaMemcpyDeviceToDevice;
    *copy = (CUDA_MEMCPY2D){
        .srcMemoryType = any           ? CU_MEMORYTYPE_UNIFIED
                         : from_device ? CU_MEMORYTYPE_DEVICE
                                       : CU_MEMORYTYPE_HOST,
        .srcHost = rows->from,
        .srcDevice = (CUdeviceptr)rows->from,
        .srcPitch = rows->from_pitch,
        .dstMemoryType = any         ? CU_MEMORYTYPE_UNIFIED
                         : to_device ? CU_MEMORYTYPE_DEVICE
                                     : CU_MEMORYTYPE_HOST,
        .dstHost = rows->to,
        .dstDevice = (CUdeviceptr)rows->to,
        .dstPitch = rows->to_pitch,
        .WidthInBytes = rows->width,
        .Height = rows->height,
    };
    return cudaSuccess;
}

static int copy_rows(const struct rows *rows, enum variant variant) {
    CUDA_MEMCPY2D copy_2d;
    const int error = describe_rows(&copy_2d, rows);
    if (error || rows->width == 0 || rows->height == 0) return error;
    return (int)PICK(variant, cuMemcpy2DUnaligned, ptds)(&copy_2d);
}

static int copy_rows_async(const struct rows *rows, cudaStream_t stream, enum variant variant) {
    CUDA_MEMCPY2D copy_2d;
    const int error = describe_rows(&copy_2d, rows);
    if (error || rows->width == 0 || rows->height == 0) return error;
    return (int)PICK(variant, cuMemcpy2DAsync, ptsz)(&copy_2d, stream);
}

__typeof__(cudaMemcpy2D) cudaMemcpy2D_ptds SIMRT_EXPORT;
__typeof__(cudaMemcpy2DAsync) cudaMemcpy2DAsync_ptsz SIMRT_EXPORT;

#define ROWS_PARAMETERS                                                                          \
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, \
        enum cudaMemcpyKind kind
#define ROWS                                                \
    &(struct rows) {                                        \
        to, to_pitch, from, from_pitch, width, height, kind \
    }

cudaError_t cudaMemcpy2D(ROWS_PARAMETERS) {
    SIMRT_RETURN_IN_CONTEXT(copy_rows(ROWS, LEGACY));
}
cudaError_t cudaMemcpy2D_ptds(ROWS_PARAMETERS) {
    SIMRT_RETURN_IN_CONTEXT(copy_rows(ROWS, PER_THREAD));
}

cudaError_t cudaMemcpy2DAsync(ROWS_PARAMETERS, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(copy_rows_async(ROWS, stream, LEGACY));
}

cudaError_t cudaMemcpy2DAsync_ptsz(ROWS_PARAMETERS, cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(copy_rows_async(ROWS, stream, PER_THREAD));
}
