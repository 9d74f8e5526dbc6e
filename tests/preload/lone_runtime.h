/* SPDX-License-Identifier: MIT
 *
 * What the runtime without a driver exports, and two questions for tests.
 */
#ifndef PRELOAD_LONE_RUNTIME_H
#define PRELOAD_LONE_RUNTIME_H

#include <stddef.h>

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);
int cudaMallocAsync(void **out, size_t bytes, void *stream);
int cudaFreeAsync(void *address, void *stream);
int cudaLaunchKernel(const void *function);
int cudaDeviceSynchronize(void);
int cudaGetDevice(int *out);
int cudaSetDevice(int device);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int cudaDeviceReset(void);
int cudaGetLastError(void);

/* The ordinal + 1 of the device that has memory at `address`, 0 when none has. */
int lone_holds(const void *address);
int lone_pending(int device);

#endif
