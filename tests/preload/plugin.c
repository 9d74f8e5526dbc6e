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

/* An optimiser makes this a jump: cudaMalloc returns into the program, which knows no runtime. */
int plugin_take(void **out, size_t bytes) {
    return cudaMalloc(out, bytes);
}

/* And this not. */
int plugin_give_back(void *address) {
    volatile int code = cudaFree(address);
    return code;
}
