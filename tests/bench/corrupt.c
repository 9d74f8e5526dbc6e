/* SPDX-License-Identifier: MIT
 *
 * A library to preload that breaks memory on purpose, so that a test can see whether replay notices. CORRUPT says how:
 *
 *   start   the second cudaMalloc gives the first one's block again
 *   middle  the second cudaMalloc gives an address inside the first one's block, away from its ends
 *   write   every cudaMemsetAsync after the first also writes the first bytes of the first block
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

enum { MIDDLE_OFFSET = 2048, WRITTEN_BYTES = 8 };

static char *first_block, *lent_block;
static unsigned mallocs, memsets;

static bool wanted(const char *way) {
    const char *chosen = getenv("CORRUPT");
    return chosen != NULL && strcmp(chosen, way) == 0;
}

cudaError_t cudaMalloc(void **block, size_t size) {
    cudaError_t (*real)(void **, size_t) = (cudaError_t(*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
    mallocs++;
    if (mallocs == 2 && (wanted("start") || wanted("middle"))) {
        lent_block = first_block + (wanted("middle") ? MIDDLE_OFFSET : 0);
        *block = lent_block;
        return cudaSuccess;
    }
    cudaError_t result = real(block, size);
    if (mallocs == 1) first_block = *block;
    return result;
}

cudaError_t cudaFree(void *block) {
    cudaError_t (*real)(void *) = (cudaError_t(*)(void *))dlsym(RTLD_NEXT, "cudaFree");
    if (block != NULL && block == lent_block) { /* the lent one is freed before its owner */
        lent_block = NULL;
        return cudaSuccess;
    }
    return real(block);
}

cudaError_t cudaMemsetAsync(void *block, int value, size_t size, cudaStream_t stream) {
    cudaError_t (*real)(void *, int, size_t, cudaStream_t) =
        (cudaError_t(*)(void *, int, size_t, cudaStream_t))dlsym(RTLD_NEXT, "cudaMemsetAsync");
    if (++memsets > 1 && wanted("write")) real(first_block, 0, WRITTEN_BYTES, stream);
    return real(block, value, size, stream);
}
