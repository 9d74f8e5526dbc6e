/* SPDX-License-Identifier: MIT
 *
 * Calls after main has returned: in an atexit handler that was registered before CUDA's own, and in a destructor.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

static void *of_runtime[2];
static CUdeviceptr of_driver[2];

static void call_all(const char *when, int i) {
    void *other;
    printf("%s, cudaFree: %d\n", when, (int)cudaFree(of_runtime[i]));
    printf("%s, cuMemFree: %d\n", when, (int)cuMemFree(of_driver[i]));
    printf("%s, cudaMalloc: %d\n", when, (int)cudaMalloc(&other, 4096));
}

static void at_exit(void) {
    call_all("atexit handler", 0);
}

static void __attribute__((destructor)) destructor(void) {
    call_all("static destructor", 1);
    fflush(stdout);
}

int main(void) {
    atexit(at_exit);
    for (int i = 0; i < 2; i++)
        if (cudaMalloc(&of_runtime[i], 4096) || cuMemAlloc(&of_driver[i], 4096)) return 1;
    return 0;
}
