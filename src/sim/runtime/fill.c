/* SPDX-License-Identifier: MIT
 *
 * memset in one, two and three dimensions, synchronous and in stream order.
 */
#include "runtime.h"

#define FILL_CALL(name, suffix, parameters, fill_legacy, fill_per_thread) \
    __typeof__(name) name##_##suffix SIMRT_EXPORT;                        \
    cudaError_t name parameters {                                         \
        SIMRT_RETURN_IN_CONTEXT(fill_legacy);                             \
    }                                                                     \
    cudaError_t name##_##suffix parameters {                              \
        SIMRT_RETURN_IN_CONTEXT(fill_per_thread);                         \
    }

#define FILL(function) \
    (size == 0 ? CUDA_SUCCESS : simrt_driver.function((CUdeviceptr)pointer, (unsigned char)value, size))
#define FILL_ASYNC(function) \
    (size == 0 ? CUDA_SUCCESS : simrt_driver.function((CUdeviceptr)pointer, (unsigned char)value, size, stream))

FILL_CALL(cudaMemset, ptds, (void *pointer, int value, size_t size), FILL(cuMemsetD8), FILL(cuMemsetD8_ptds))
FILL_CALL(cudaMemsetAsync, ptsz, (void *pointer, int value, size_t size, cudaStream_t stream),
          FILL_ASYNC(cuMemsetD8Async), FILL_ASYNC(cuMemsetD8Async_ptsz))

#define FILL_ROWS(function)    \
    (width == 0 || height == 0 \
         ? CUDA_SUCCESS        \
         : simrt_driver.function((CUdeviceptr)pointer, pitch, (unsigned char)value, width, height))
#define FILL_ROWS_ASYNC(function) \
    (width == 0 || height == 0    \
         ? CUDA_SUCCESS           \
         : simrt_driver.function((CUdeviceptr)pointer, pitch, (unsigned char)value, width, height, stream))

FILL_CALL(cudaMemset2D, ptds, (void *pointer, size_t pitch, int value, size_t width, size_t height),
          FILL_ROWS(cuMemsetD2D8), FILL_ROWS(cuMemsetD2D8_ptds))
FILL_CALL(cudaMemset2DAsync, ptsz,
          (void *pointer, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
          FILL_ROWS_ASYNC(cuMemsetD2D8Async), FILL_ROWS_ASYNC(cuMemsetD2D8Async_ptsz))

/* How a box is filled: as so many fills of rows, one when the slices touch. */
struct slices {
    size_t count;
    size_t rows;
    size_t distance; /* bytes from one slice to the next */
};

static struct slices slices_of(const struct cudaPitchedPtr *to, const struct cudaExtent *extent) {
    if (extent->width == 0 || extent->height == 0 || extent->depth == 0) return (struct slices){0, 0, 0};
    if (to->ysize == extent->height) return (struct slices){1, extent->height * extent->depth, 0};
    return (struct slices){extent->depth, extent->height, to->pitch * to->ysize};
}

static CUresult fill_box(const struct cudaPitchedPtr *to, int value, const struct cudaExtent *extent,
                         PFN_cuMemsetD2D8_v3020 fill) {
    const struct slices slices = slices_of(to, extent);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < slices.count && result == CUDA_SUCCESS; i++)
        result = fill((CUdeviceptr)to->ptr + i * slices.distance, to->pitch, (unsigned char)value, extent->width,
                      slices.rows);
    return result;
}

static CUresult fill_box_async(const struct cudaPitchedPtr *to, int value, const struct cudaExtent *extent,
                               cudaStream_t stream, PFN_cuMemsetD2D8Async_v3020 fill) {
    const struct slices slices = slices_of(to, extent);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < slices.count && result == CUDA_SUCCESS; i++)
        result = fill((CUdeviceptr)to->ptr + i * slices.distance, to->pitch, (unsigned char)value, extent->width,
                      slices.rows, stream);
    return result;
}

FILL_CALL(cudaMemset3D, ptds, (struct cudaPitchedPtr to, int value, struct cudaExtent extent),
          fill_box(&to, value, &extent, simrt_driver.cuMemsetD2D8),
          fill_box(&to, value, &extent, simrt_driver.cuMemsetD2D8_ptds))
FILL_CALL(cudaMemset3DAsync, ptsz, (struct cudaPitchedPtr to, int value, struct cudaExtent extent, cudaStream_t stream),
          fill_box_async(&to, value, &extent, stream, simrt_driver.cuMemsetD2D8Async),
          fill_box_async(&to, value, &extent, stream, simrt_driver.cuMemsetD2D8Async_ptsz))
