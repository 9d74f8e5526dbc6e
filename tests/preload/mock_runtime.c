/* SPDX-License-Identifier: MIT
 *
 * A CUDA runtime with no driver below it. What it exports beside cudaMalloc, cudaFree and cudaGetErrorString depends on
 * MOCK: 0 nothing, 1 something asynchronous and nothing to wait with, 2 both, 3 a version and memory info (a runtime
 * of another soname beside the real one).
 */
#include <stdio.h>
#include <stdlib.h>

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);
const char *cudaGetErrorString(int code);

#define DEVICE_BYTES ((size_t)64 << 20)

static size_t taken;

int cudaMalloc(void **out, size_t bytes) {
    if (!out) return 1;
    if (bytes > DEVICE_BYTES - taken) return 2;
    size_t *block = bytes ? aligned_alloc(512, (bytes + 1023) / 512 * 512) : NULL;
    *out = block ? (char *)block + 512 : NULL;
    if (!block) return 0;
    *block = bytes;
    taken += bytes;
    return 0;
}

int cudaFree(void *address) {
    if (!address) return 0;
    size_t *block = (size_t *)((char *)address - 512);
    taken -= *block;
    free(block);
    return 0;
}

const char *cudaGetErrorString(int code) {
    return code == 0 ? "no error" : code == 2 ? "out of memory" : "invalid argument";
}

#if MOCK == 1 || MOCK == 2
int cudaMemsetAsync(void *address, int value, size_t bytes, void *stream);
int cudaMemsetAsync(void *address, int value, size_t bytes, void *stream) {
    (void)address, (void)value, (void)bytes, (void)stream;
    return 0;
}
#endif

#if MOCK == 2
int cudaDeviceSynchronize(void);
int cudaDeviceSynchronize(void) {
    return 0;
}
#endif

#if MOCK == 3
int cudaRuntimeGetVersion(int *version);
int cudaRuntimeGetVersion(int *version) {
    *version = 12090;
    return 0;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = DEVICE_BYTES - taken;
    *total_bytes = DEVICE_BYTES;
    return 0;
}
#endif
