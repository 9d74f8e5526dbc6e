// SPDX-License-Identifier: MIT
//
// The calls through the CUDA runtime, in a program that nvcc compiled, with a kernel on each block.
#include <cuda_runtime.h>

#include "sequence.h"

__global__ void touch(char *bytes) {
    bytes[0] = 1;
}

static int take(void **out, size_t bytes) {
    int code = cudaMalloc(out, bytes);
    if (!code) touch<<<1, 1>>>((char *)*out);
    return code ? code : cudaGetLastError();
}

static int give_back(void *address) {
    return cudaFree(address);
}

int main(void) {
    const int failed = run_sequence(take, give_back);
    if (failed) printf("call %d failed\n", failed);
    wait_for_reader();
    return failed;
}
