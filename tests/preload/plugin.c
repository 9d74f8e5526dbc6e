/* SPDX-License-Identifier: MIT
 *
 * A plug-in bound to a CUDA runtime of its own: the program loads it RTLD_LOCAL and lets it make the calls.
 */
#include "sequence.h"

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);
int plugin_sequence(void);
int plugin_take(void **out, size_t bytes);
int plugin_give_back(void *address);

int plugin_sequence(void) {
    return run_sequence(cudaMalloc, cudaFree);
}

int plugin_take(void **out, size_t bytes) {
    const int code = cudaMalloc(out, bytes);
    return code;
}

int plugin_give_back(void *address) {
    const int code = cudaFree(address);
    return code;
}
