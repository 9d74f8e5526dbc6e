/* SPDX-License-Identifier: MIT
 *
 * A program whose malloc fails for the pool, and for nobody else, while it begins captures. Prints how often it failed,
 * and how many of the allocations after the captures' ends went to the driver.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "sim.h"

enum { CAPTURES = 40, PAIRS = 50 }; /* more captures in all than there are spare records of them */

extern void *__libc_malloc(size_t size);
void *malloc(size_t size);

static int scarce;
static unsigned failures;

void *malloc(size_t size) {
    Dl_info info;
    if (scarce && dladdr(__builtin_return_address(0), &info) && info.dli_fname &&
        strstr(info.dli_fname, "libpoolcuda")) {
        failures++;
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CUstream streams[2];
    CUgraph graph;
    CUdeviceptr block;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
        cuCtxSetCurrent(context) || cuMemAlloc(&block, 4096) || cuMemFree(block))
        return 1;
    for (int i = 0; i < 2; i++)
        if (cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING)) return 1;
    for (int i = 0; i < CAPTURES; i++) {
        scarce = 1;
        for (int k = 0; k < 2; k++)
            if (cuStreamBeginCapture(streams[k], CU_STREAM_CAPTURE_MODE_RELAXED)) return 1;
        scarce = 0;
        for (int k = 0; k < 2; k++)
            if (cuStreamEndCapture(streams[k], &graph) || cuGraphDestroy(graph)) return 1;
    }
    const unsigned long long before = sim_calls("cuMemAlloc");
    for (int i = 0; i < PAIRS; i++)
        if (cuMemAlloc(&block, 4096) || cuMemFree(block)) return 1;
    printf("failures: %u\nallocations by the driver: %llu\n", failures,
           (unsigned long long)sim_calls("cuMemAlloc") - before);
    return 0;
}
