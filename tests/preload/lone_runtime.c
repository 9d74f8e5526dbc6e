/* SPDX-License-Identifier: MIT
 *
 * A CUDA runtime with no driver below it, of two devices of 64 MiB: it knows its allocations, has work under way, keeps
 * the last error, and can be reset. Not thread-safe.
 */
#include <stdlib.h>

#include "lone_runtime.h"

#define DEVICES 2
#define DEVICE_BYTES ((size_t)64 << 20)
#define MOST 256

static struct {
    char *address;
    size_t bytes;
    int device;
} taken[MOST];

static int current, pending[DEVICES], last_error;

static int answer(int code) {
    if (code) last_error = code;
    return code;
}

static size_t bytes_taken(int device) {
    size_t sum = 0;
    for (int i = 0; i < MOST; i++) sum += taken[i].address && taken[i].device == device ? taken[i].bytes : 0;
    return sum;
}

int lone_holds(const void *address) {
    for (int i = 0; i < MOST; i++)
        if (taken[i].address && (size_t)((const char *)address - taken[i].address) < taken[i].bytes)
            return taken[i].device + 1;
    return 0;
}

int lone_pending(int device) {
    return pending[device];
}

static int take(void **out, size_t bytes) {
    if (!out) return answer(1);
    *out = NULL;
    if (!bytes) return 0;
    if (bytes > DEVICE_BYTES - bytes_taken(current)) return answer(2);
    for (int i = 0; i < MOST; i++) {
        if (taken[i].address) continue;
        taken[i].address = aligned_alloc(512, (bytes + 511) / 512 * 512);
        taken[i].bytes = bytes;
        taken[i].device = current;
        *out = taken[i].address;
        return 0;
    }
    return answer(2);
}

int cudaMalloc(void **out, size_t bytes) {
    return take(out, bytes);
}

static int release(const void *address) {
    for (int i = 0; i < MOST; i++) {
        if (!taken[i].address || taken[i].address != address) continue;
        free(taken[i].address);
        taken[i].address = NULL;
        return 0;
    }
    return answer(1);
}

int cudaFree(void *address) {
    if (!address) return 0;
    const int device = lone_holds(address) - 1;
    if (device >= 0) pending[device] = 0; /* it waits */
    return release(address);
}

int cudaMallocAsync(void **out, size_t bytes, void *stream) {
    (void)stream;
    return take(out, bytes);
}

int cudaFreeAsync(void *address, void *stream) {
    (void)stream;
    return address ? release(address) : 0;
}

int cudaLaunchKernel(const void *function) {
    (void)function;
    pending[current] = 1;
    return 0;
}

int cudaDeviceSynchronize(void) {
    pending[current] = 0;
    return 0;
}

int cudaGetDevice(int *out) {
    *out = current;
    return 0;
}

int cudaSetDevice(int device) {
    if (device < 0 || device >= DEVICES) return answer(101);
    current = device;
    return 0;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    if (!free_bytes || !total_bytes) return answer(1);
    *free_bytes = DEVICE_BYTES - bytes_taken(current);
    *total_bytes = DEVICE_BYTES;
    return 0;
}

int cudaDeviceReset(void) {
    for (int i = 0; i < MOST; i++)
        if (taken[i].address && taken[i].device == current) release(taken[i].address);
    pending[current] = 0;
    return 0;
}

int cudaGetLastError(void) {
    const int error = last_error;
    last_error = 0;
    return error;
}
