/* SPDX-License-Identifier: MIT
 *
 * Allocates before main and frees after it, as static objects do, and prints what the calls answer.
 */
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "sequence.h"

static void *early[3], *late;

static void __attribute__((constructor(101))) first(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("before main: %d\n", (int)cudaMalloc(&early[0], MIB));
}

static void __attribute__((constructor)) then(void) {
    printf("before main: %d", (int)cudaMalloc(&early[1], 5000));
    printf(" %d\n", (int)cudaMallocAsync(&early[2], 5000, 0));
}

static void at_exit(void) {
    printf("at exit: %d\n", (int)cudaFree(early[1]));
}

static void __attribute__((destructor)) before_last(void) {
    printf("after main: %d", (int)cudaFree(late));
    printf(" %d\n", (int)cudaFreeAsync(early[2], 0));
}

static void __attribute__((destructor(101))) last(void) {
    void *p;
    printf("at last: %d", (int)cudaFree(early[0]));
    printf(" %d\n", (int)cudaMalloc(&p, 4096));
}

int main(int argc, char **argv) {
    void *p;
    (void)argv;
    atexit(at_exit);
    printf("main: %d %d", (int)cudaMalloc(&late, MIB), (int)cudaMalloc(&p, MIB));
    printf(" %d\n", (int)cudaFree(p));
    if (argc == 2) wait_for_reader();
    return 0;
}
