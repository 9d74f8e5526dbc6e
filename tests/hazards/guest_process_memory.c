/* SPDX-License-Identifier: MIT
 *
 * Asks what memory is free before allocations, amid them and after their frees, on every device and with both kinds of
 * allocation: what a program sizes itself by. Says for each whether free memory came back to what it was.
 */
#include <stdbool.h>
#include <stdio.h>

#include <cuda_runtime_api.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static cudaStream_t stream;

static size_t free_now(void) {
    size_t free_bytes = 0, total = 0;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess || free_bytes > total) return 0;
    return free_bytes;
}

static bool take(void **p, size_t bytes, bool ordered) {
    return (ordered ? cudaMallocAsync(p, bytes, stream) : cudaMalloc(p, bytes)) == cudaSuccess;
}

static bool give(void *p, bool ordered) {
    return (ordered ? cudaFreeAsync(p, stream) : cudaFree(p)) == cudaSuccess;
}

/* One after the other, several at once, and freed by the other call. */
static void go(int device, bool ordered, size_t bytes) {
    enum { BLOCKS = 5 };
    void *blocks[BLOCKS];
    bool done = true;
    const size_t before = free_now();
    done = done && take(&blocks[0], bytes, ordered) && give(blocks[0], ordered) && !cudaDeviceSynchronize();
    const size_t after_one = free_now();
    for (int i = 0; i < BLOCKS; i++) done = done && take(&blocks[i], bytes, ordered);
    done = done && !cudaDeviceSynchronize();
    const size_t amid = free_now();
    for (int i = 0; i < BLOCKS; i++) done = done && give(blocks[i], ordered);
    done = done && !cudaDeviceSynchronize();
    const size_t after_all = free_now();
    done = done && take(&blocks[0], bytes, ordered) && give(blocks[0], !ordered) && !cudaDeviceSynchronize();
    const size_t after_other = free_now();
    printf("device %d, %s of %zu: done %d, less amid %d, as before: %d %d %d\n", device,
           ordered ? "cudaMallocAsync" : "cudaMalloc", bytes, done, amid + (BLOCKS - 1) * bytes <= before,
           after_one == before, after_all == before, after_other == before);
}

int main(void) {
    static const size_t sizes[] = {1, 4 * KIB, 300 * KIB, MIB, 5 * MIB + 1, 16 * MIB, 100 * MIB, 700 * MIB};
    int devices = 0;
    if (cudaGetDeviceCount(&devices) || devices < 1) return 1;
    for (int device = 0; device < devices; device++) {
        if (cudaSetDevice(device) || cudaFree(NULL) || cudaStreamCreate(&stream)) return 1;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            go(device, false, sizes[i]);
            go(device, true, sizes[i]);
        }
        if (cudaStreamDestroy(stream)) return 1;
    }
    return 0;
}
