/* SPDX-License-Identifier: MIT
 *
 * A kernel of a stated duration, for programs that run on a GPU and on the simulated CUDA: there by its test interface,
 * else from the file that GPU_CHECK_KERNELS names (kernels.cu, compiled).
 */
#ifndef GPU_BUSY_H
#define GPU_BUSY_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

#include "sim.h"

static int (*busy_simulated)(const struct sim_kernel *, void *);
static CUfunction busy_function;

/* With a context current; whether there are kernels. */
static inline bool busy_load(void) {
    *(void **)&busy_simulated = dlsym(RTLD_DEFAULT, "sim_launch");
    if (busy_simulated) return true;
    const char *const path = getenv("GPU_CHECK_KERNELS");
    CUmodule module;
    return path && cuModuleLoad(&module, path) == CUDA_SUCCESS &&
           cuModuleGetFunction(&busy_function, module, "touch") == CUDA_SUCCESS;
}

/* Keeps the stream busy, and then writes 1 to the byte, if one is given. */
static inline int busy(void *stream, uint32_t microseconds, void *byte) {
    if (busy_simulated) {
        const struct sim_range range = {(uint64_t)(uintptr_t)byte, 1, true};
        const struct sim_kernel kernel = {.microseconds = microseconds, .ranges = &range, .range_count = byte != NULL};
        return busy_simulated(&kernel, stream);
    }
    unsigned long long nanoseconds = 1000ull * microseconds;
    void *parameters[] = {&nanoseconds, &byte};
    return (int)cuLaunchKernel(busy_function, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, parameters, NULL);
}

#endif
