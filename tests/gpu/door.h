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
#elif DOOR == 1
#include <cuda_runtime_api.h>

static int start(void) {
    return (int)cudaFree(NULL);
}

static int take(void **out, size_t bytes) {
    return (int)cudaMalloc(out, bytes);
}

static int give_back(void *address) {
    return (int)cudaFree(address);
}

static int memory(size_t *free_bytes, size_t *total) {
    return (int)cudaMemGetInfo(free_bytes, total);
}
#else
static int (*take)(void **, size_t);
static int (*give_back)(void *);
static int (*memory)(size_t *, size_t *);

static int start(void) {
    void *const runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!runtime) return 1;
    *(void **)&take = dlsym(runtime, "cudaMalloc");
    *(void **)&give_back = dlsym(runtime, "cudaFree");
    *(void **)&memory = dlsym(runtime, "cudaMemGetInfo");
    return !take || !give_back || !memory || give_back(NULL);
}
#endif

#endif
