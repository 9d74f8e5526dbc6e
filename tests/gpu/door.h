/* SPDX-License-Identifier: MIT
 *
 * How a program gets device memory, by DOOR: 1 the runtime that it is linked with, 2 the driver that it is linked with,
 * 3 a runtime that it opens. start() comes first; each answers the code of what it calls.
 */
#ifndef GPU_DOOR_H
#define GPU_DOOR_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#if DOOR == 2
#include <cuda.h>

static int start(void) {
    CUcontext context;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

static int take(void **out, size_t bytes) {
    CUdeviceptr address = 0;
    const int code = (int)cuMemAlloc(&address, bytes);
    *out = (void *)(uintptr_t)address;
    return code;
}

static int give_back(void *address) {
    return (int)cuMemFree((CUdeviceptr)(uintptr_t)address);
}

static int memory(size_t *free_bytes, size_t *total) {
    return (int)cuMemGetInfo(free_bytes, total);
}
#else
#ifdef __cplusplus
extern "C" {
#endif
typedef int malloc_function(void **, size_t);
typedef int free_function(void *);
typedef int memory_function(size_t *, size_t *);
#if DOOR == 1
malloc_function cudaMalloc;
free_function cudaFree;
memory_function cudaMemGetInfo;
#endif
#ifdef __cplusplus
}
#endif

static malloc_function *take;
static free_function *give_back;
static memory_function *memory;

static int start(void) {
#if DOOR == 1
    take = cudaMalloc;
    give_back = cudaFree;
    memory = cudaMemGetInfo;
#else
    void *const runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!runtime) return 1;
    take = (malloc_function *)dlsym(runtime, "cudaMalloc");
    give_back = (free_function *)dlsym(runtime, "cudaFree");
    memory = (memory_function *)dlsym(runtime, "cudaMemGetInfo");
#endif
    return !take || !give_back || !memory || give_back(NULL);
}
#endif

#endif
