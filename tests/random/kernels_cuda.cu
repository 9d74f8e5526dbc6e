/* SPDX-License-Identifier: MIT
 *
 * Kernels for a GPU. There is no judge of races: what the stamps show is all that is known.
 */
#include <cuda_runtime.h>

#define STAMP_FUNCTION static __host__ __device__ inline
#include "kernels.h"
#include "stamp.h"

enum { THREADS = 128, TICKS_PER_US = 1000, HELD_US = 500 };

struct found {
    unsigned count;
    struct kernel_wrong wrongs[KERNEL_WRONG_MAX];
};

__device__ struct found found; /* in each context */

__global__ static void stamp_and_check(struct kernel kernel) {
    __shared__ unsigned wrong;
    const long long begin = clock64();
    const long long ticks = (long long)kernel.microseconds * TICKS_PER_US;
    while (clock64() - begin < ticks) {}
    for (uint32_t t = 0; t < kernel.touch_count; t++) {
        const struct kernel_touch touch = kernel.touches[t];
        unsigned char *memory = (unsigned char *)touch.address;
        const uint64_t samples = stamp_samples(touch.bytes);
        if (threadIdx.x == 0) wrong = 0;
        __syncthreads();
        for (uint64_t i = threadIdx.x; touch.expected != 0 && i < samples; i += blockDim.x) {
            const uint64_t offset = stamp_sample(touch.bytes, i);
            const unsigned char should = stamp_byte(touch.expected, offset), is = memory[offset];
            if (is == should || atomicExch(&wrong, 1) != 0) continue;
            const unsigned k = atomicAdd(&found.count, 1);
            if (k >= KERNEL_WRONG_MAX) continue;
            found.wrongs[k].number = kernel.number;
            found.wrongs[k].block = touch.block;
            found.wrongs[k].expected = touch.expected;
            found.wrongs[k].should = should;
            found.wrongs[k].is = is;
            found.wrongs[k].offset = offset;
        }
        __syncthreads();
        for (uint64_t i = threadIdx.x; touch.stamp != 0 && i < samples; i += blockDim.x) {
            const uint64_t offset = stamp_sample(touch.bytes, i);
            memory[offset] = stamp_byte(touch.stamp, offset);
        }
        __syncthreads();
    }
}

int kernels_launch(const struct kernel *kernel, void *stream) {
    struct kernel launched = *kernel;
    if (launched.until_released) launched.microseconds = HELD_US;
    stamp_and_check<<<1, THREADS, 0, (cudaStream_t)stream>>>(launched);
    return (int)cudaGetLastError();
}

void kernels_release(void) {}

size_t kernels_wrong(struct kernel_wrong *out) {
    struct found seen, none = {};
    if (cudaMemcpyFromSymbol(&seen, found, sizeof seen) != cudaSuccess) return 0;
    const size_t count = seen.count < KERNEL_WRONG_MAX ? seen.count : KERNEL_WRONG_MAX;
    for (size_t i = 0; i < count; i++) out[i] = seen.wrongs[i];
    if (count > 0) cudaMemcpyToSymbol(found, &none, sizeof none);
    return count;
}

bool kernels_unseen_stream_create(void **) {
    return false;
}

void kernels_unseen_stream_destroy(void *) {}
void kernels_judge_begin(void) {}
void kernels_allocator_entered(void) {}
void kernels_allocator_left(void) {}
void kernels_allocated(uint64_t, uint64_t) {}
void kernels_allocated_async(uint64_t, uint64_t, void *) {}
void kernels_freed(uint64_t) {}
void kernels_freed_async(uint64_t, void *) {}

size_t kernels_races(void) {
    return 0;
}

bool kernels_race_text(size_t, char *, size_t) {
    return false;
}
