/* SPDX-License-Identifier: MIT
 *
 * Copies and fills, synchronous and asynchronous. They are checked here and run by the scheduler. Host memory that CUDA
 * does not know may change or vanish as soon as the call returns, so a copy from it is staged or waited for, as the
 * driver does.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { STAGED_BYTES = 64 << 10 };

/* Whether the call returns before the work is done. */
enum timing { ASYNCHRONOUS, SYNCHRONOUS };

/* Whether the work is known to be over when its call has waited. The simulator waits for every synchronous call, but
 * CUDA promises it only where the host's memory is concerned. */
static void observe(const struct operation *operation) {
    if (operation->kind == OPERATION_COPY &&
        (backing_device(operation->copy.to.address) == NULL || backing_device(operation->copy.from.address) == NULL))
        races_operation_observed(operation);
}

static CUresult finish(struct thread *thread, struct stream *stream, struct operation *operation, enum timing timing) {
    CUresult result = CUDA_SUCCESS;
    if (timing == SYNCHRONOUS) {
        result = capture_refuse_synchronous(thread, stream);
    }
    if (result != CUDA_SUCCESS) {
        operation_drop(operation);
        return result;
    }
    operation->awaited = timing == SYNCHRONOUS;
    operation_hold(operation);
    result = capture_or_submit(stream, operation, NULL, 0);
    if (result == CUDA_SUCCESS && timing == SYNCHRONOUS) {
        scheduler_wait(operation);
        observe(operation);
    }
    operation_drop(operation);
    return result;
}

static bool is_pageable(uint64_t address) {
    return backing_device(address) == NULL && !memory_is_pinned(address);
}

/* The bytes from the first to the last of a box. */
static bool box_span(const struct operation_box *box, size_t width, size_t height, size_t depth, size_t *span) {
    size_t rows, slices;
    if (__builtin_mul_overflow(box->pitch, height - 1, &rows) || __builtin_mul_overflow(box->slice, depth - 1, &slices))
        return false;
    return !__builtin_add_overflow(rows, slices, span) && !__builtin_add_overflow(*span, width, span);
}

static CUresult box_check(const struct operation_box *box, size_t width, size_t height, size_t depth, size_t *span) {
    if (!box_span(box, width, height, depth, span)) return CUDA_ERROR_INVALID_VALUE;
    return memory_check_range(box->address, *span);
}

/* Replaces the source by a copy of it, if it is small and in one piece. */
static bool stage(struct operation *copy, size_t span) {
    if (span > STAGED_BYTES) return false;
    copy->copy.staged = malloc(span);
    if (copy->copy.staged == NULL) return false;
    memcpy(copy->copy.staged, (const void *)(uintptr_t)copy->copy.from.address, span);
    copy->copy.from.address = (uint64_t)(uintptr_t)copy->copy.staged;
    return true;
}

CUresult copy_operation(struct operation_box to, struct operation_box from, size_t width, size_t height, size_t depth,
                        struct operation **operation) {
    size_t to_span, from_span;
    CUresult result = box_check(&to, width, height, depth, &to_span);
    if (result == CUDA_SUCCESS) result = box_check(&from, width, height, depth, &from_span);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const copy = operation_new(OPERATION_COPY);
    if (copy == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    copy->copy.to = to;
    copy->copy.from = from;
    copy->copy.width = width;
    copy->copy.height = height;
    copy->copy.depth = depth;
    if (!operation_uses(copy, to.address, to_span, true) || !operation_uses(copy, from.address, from_span, false)) {
        operation_drop(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *operation = copy;
    return CUDA_SUCCESS;
}

static CUresult copy_box(struct thread *thread, CUstream handle, struct operation_box to, struct operation_box from,
                         size_t width, size_t height, size_t depth, enum timing timing) {
    struct stream *stream;
    struct operation *copy;
    CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (width == 0 || height == 0 || depth == 0) return CUDA_SUCCESS;
    result = copy_operation(to, from, width, height, depth, &copy);
    if (result != CUDA_SUCCESS) return result;
    bool waits = false;
    if (timing == ASYNCHRONOUS && !capture_is_running(stream)) {
        if (is_pageable(from.address)) waits = !stage(copy, copy->ranges[1].bytes);
        waits = waits || is_pageable(to.address);
    }
    copy->awaited = waits;
    operation_hold(copy);
    result = finish(thread, stream, copy, timing);
    if (result == CUDA_SUCCESS && waits) {
        scheduler_wait(copy);
        observe(copy);
    }
    operation_drop(copy);
    return result;
}

static CUresult copy(struct thread *thread, CUstream handle, uint64_t to, uint64_t from, size_t bytes,
                     enum timing timing) {
    return copy_box(thread, handle, (struct operation_box){to, bytes, bytes},
                    (struct operation_box){from, bytes, bytes}, bytes, 1, 1, timing);
}

#define HOST(pointer) ((uint64_t)(uintptr_t)(pointer))

DRIVER_STREAM_CALL(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
                   copy(thread, default_stream, to, from, bytes, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void *from, size_t bytes),
                   copy(thread, default_stream, to, HOST(from), bytes, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpyDtoH_v2, _ptds, (void *to, CUdeviceptr from, size_t bytes),
                   copy(thread, default_stream, HOST(to), from, bytes, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
                   copy(thread, default_stream, to, from, bytes, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
                   copy(thread, STREAM(stream), to, from, bytes, ASYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
                   copy(thread, STREAM(stream), to, HOST(from), bytes, ASYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpyDtoHAsync_v2, _ptsz, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
                   copy(thread, STREAM(stream), HOST(to), from, bytes, ASYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
                   copy(thread, STREAM(stream), to, from, bytes, ASYNCHRONOUS))

/* Between contexts: each must live. */
static CUresult copy_peer(struct thread *thread, CUstream handle, uint64_t to, CUcontext to_context, uint64_t from,
                          CUcontext from_context, size_t bytes, enum timing timing) {
    struct context *context;
    if (to_context == NULL || from_context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = context_named(thread, to_context, &context);
    if (result == CUDA_SUCCESS) result = context_named(thread, from_context, &context);
    return result == CUDA_SUCCESS ? copy(thread, handle, to, from, bytes, timing) : result;
}
DRIVER_STREAM_CALL(cuMemcpyPeer, _ptds,
                   (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
                   copy_peer(thread, default_stream, to, to_context, from, from_context, bytes, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpyPeerAsync, _ptsz,
                   (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                    CUstream stream),
                   copy_peer(thread, STREAM(stream), to, to_context, from, from_context, bytes, ASYNCHRONOUS))

/* One side of a copy in two or three dimensions. Arrays are not simulated. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, pitch, height;
};

static CUresult side_box(const struct side *side, size_t width, size_t height, size_t depth,
                         struct operation_box *box) {
    uint64_t base;
    switch (side->type) {
    case CU_MEMORYTYPE_HOST:
        base = HOST(side->host);
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        base = side->device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    const size_t pitch = side->pitch != 0 ? side->pitch : side->x + width;
    const size_t rows = side->height != 0 ? side->height : side->y + height;
    if (pitch < side->x + width || (depth > 1 && rows < side->y + height)) return CUDA_ERROR_INVALID_VALUE;
    box->pitch = pitch;
    if (__builtin_mul_overflow(pitch, rows, &box->slice)) return CUDA_ERROR_INVALID_VALUE;
    box->address = base + side->z * box->slice + side->y * pitch + side->x;
    return CUDA_SUCCESS;
}

static CUresult copy_sides(struct thread *thread, CUstream stream, const struct side *to, const struct side *from,
                           size_t width, size_t height, size_t depth, enum timing timing) {
    struct operation_box to_box, from_box;
    CUresult result = side_box(to, width, height, depth, &to_box);
    if (result == CUDA_SUCCESS) result = side_box(from, width, height, depth, &from_box);
    if (result != CUDA_SUCCESS) return result;
    return copy_box(thread, stream, to_box, from_box, width, height, depth, timing);
}

static CUresult copy_2d(struct thread *thread, CUstream stream, const CUDA_MEMCPY2D *c, enum timing timing) {
    if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct side to = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, 0, c->dstPitch, 0};
    const struct side from = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, 0, c->srcPitch, 0};
    return copy_sides(thread, stream, &to, &from, c->WidthInBytes, c->Height, 1, timing);
}
DRIVER_STREAM_CALL(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *c), copy_2d(thread, default_stream, c, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *c),
                   copy_2d(thread, default_stream, c, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *c, CUstream stream),
                   copy_2d(thread, STREAM(stream), c, ASYNCHRONOUS))

static struct side side_to(const CUDA_MEMCPY3D *c) {
    return (struct side){c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes,
                         c->dstY,          c->dstZ,    c->dstPitch,  c->dstHeight};
}

static struct side side_from(const CUDA_MEMCPY3D *c) {
    return (struct side){c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes,
                         c->srcY,          c->srcZ,    c->srcPitch,  c->srcHeight};
}

CUresult copy_operation_3d(const CUDA_MEMCPY3D *c, struct operation **operation) {
    struct operation_box to_box, from_box;
    if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct side to = side_to(c), from = side_from(c);
    CUresult result = side_box(&to, c->WidthInBytes, c->Height, c->Depth, &to_box);
    if (result == CUDA_SUCCESS) result = side_box(&from, c->WidthInBytes, c->Height, c->Depth, &from_box);
    if (result != CUDA_SUCCESS) return result;
    if (c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0) return CUDA_ERROR_INVALID_VALUE;
    return copy_operation(to_box, from_box, c->WidthInBytes, c->Height, c->Depth, operation);
}

static CUresult copy_3d(struct thread *thread, CUstream stream, const CUDA_MEMCPY3D *c, enum timing timing) {
    if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct side to = side_to(c), from = side_from(c);
    return copy_sides(thread, stream, &to, &from, c->WidthInBytes, c->Height, c->Depth, timing);
}
DRIVER_STREAM_CALL(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *c), copy_3d(thread, default_stream, c, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *c, CUstream stream),
                   copy_3d(thread, STREAM(stream), c, ASYNCHRONOUS))

static CUresult copy_3d_peer(struct thread *thread, CUstream stream, const CUDA_MEMCPY3D_PEER *c, enum timing timing) {
    if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct side to = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes,
                            c->dstY,          c->dstZ,    c->dstPitch,  c->dstHeight};
    const struct side from = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes,
                              c->srcY,          c->srcZ,    c->srcPitch,  c->srcHeight};
    return copy_sides(thread, stream, &to, &from, c->WidthInBytes, c->Height, c->Depth, timing);
}
DRIVER_STREAM_CALL(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *c),
                   copy_3d_peer(thread, default_stream, c, SYNCHRONOUS))
DRIVER_STREAM_CALL(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *c, CUstream stream),
                   copy_3d_peer(thread, STREAM(stream), c, ASYNCHRONOUS))

/* Fills. */

CUresult fill_operation(uint64_t address, size_t pitch, uint32_t value, unsigned element, size_t width, size_t height,
                        struct operation **operation) {
    size_t bytes, span;
    *operation = NULL;
    if (__builtin_mul_overflow(width, (size_t)element, &bytes) || address % element != 0 ||
        (height > 1 && pitch < bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0 || height == 0) return CUDA_SUCCESS;
    const struct operation_box box = {address, height > 1 ? pitch : bytes, 0};
    const CUresult result = box_check(&box, bytes, height, 1, &span);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const fill = operation_new(OPERATION_FILL);
    if (fill == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    fill->fill.to = box;
    fill->fill.width = width;
    fill->fill.height = height;
    fill->fill.value = value;
    fill->fill.element = element;
    if (!operation_uses(fill, address, span, true)) {
        operation_drop(fill);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *operation = fill;
    return CUDA_SUCCESS;
}

static CUresult fill(struct thread *thread, CUstream handle, uint64_t address, size_t pitch, uint32_t value,
                     unsigned element, size_t width, size_t height, enum timing timing) {
    struct stream *stream;
    struct operation *operation;
    CUresult result = stream_named(thread, handle, &stream);
    if (result == CUDA_SUCCESS) result = fill_operation(address, pitch, value, element, width, height, &operation);
    if (result != CUDA_SUCCESS || operation == NULL) return result;
    return finish(thread, stream, operation, timing);
}

#define FILLS(bits, type, element)                                                                                 \
    DRIVER_STREAM_CALL(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr to, type value, size_t count),                    \
                       fill(thread, default_stream, to, 0, value, element, count, 1, SYNCHRONOUS))                 \
    DRIVER_STREAM_CALL(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr to, type value, size_t count, CUstream stream), \
                       fill(thread, STREAM(stream), to, 0, value, element, count, 1, ASYNCHRONOUS))                \
    DRIVER_STREAM_CALL(cuMemsetD2D##bits##_v2, _ptds,                                                              \
                       (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),                    \
                       fill(thread, default_stream, to, pitch, value, element, width, height, SYNCHRONOUS))        \
    DRIVER_STREAM_CALL(cuMemsetD2D##bits##Async, _ptsz,                                                            \
                       (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),   \
                       fill(thread, STREAM(stream), to, pitch, value, element, width, height, ASYNCHRONOUS))

FILLS(8, unsigned char, 1)
FILLS(16, unsigned short, 2)
FILLS(32, unsigned int, 4)
