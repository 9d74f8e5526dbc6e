/* SPDX-License-Identifier: MIT
 *
 * Somebody else's interposer of cudaMalloc, between the program and the runtime: says at the end how often it was
 * called.
 */
#include <dlfcn.h>
#include <stdio.h>

int cudaMalloc(void **out, size_t bytes);

static int called;

int cudaMalloc(void **out, size_t bytes) {
    int (*next)(void **, size_t);
    *(void **)&next = dlsym(RTLD_NEXT, "cudaMalloc");
    called++;
    return next ? next(out, bytes) : 99;
}

static void __attribute__((destructor)) unloaded(void) {
    printf("interposed: %d\n", called);
    fflush(stdout);
}
