/* SPDX-License-Identifier: MIT
 *
 * Two contexts of one device, current in turn on one thread: each block is of the context in which it was allocated,
 * whichever is current when it is freed.
 */
#include <stdint.h>

#include <cuda.h>

#include "sequence.h"

#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static CUcontext contexts[2];

static int index_of(CUdeviceptr address) {
    CUcontext context = NULL;
    if (cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address) != CUDA_SUCCESS) return -1;
    return context == contexts[0] ? 0 : context == contexts[1] ? 1 : -2;
}

int main(int argc, char **argv) {
    CUdeviceptr p[2][3], again;
    CUcontext popped;
    (void)argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    SAY(cuInit(0));
    for (int i = 0; i < 2; i++) {
        SAY(cuCtxCreate(&contexts[i], NULL, 0, 0));
        SAY(cuCtxPopCurrent(&popped));
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            SAY(cuCtxSetCurrent(contexts[i]));
            SAY(cuMemAlloc(&p[i][round], (size_t)(round + 1) * 100000));
            SAY(cuMemsetD8(p[i][round], (unsigned char)(10 * i + round), 100000));
        }
    }
    for (int i = 0; i < 2; i++)
        for (int round = 0; round < 3; round++) printf("block of context %d\n", index_of(p[i][round]));
    SAY(cuCtxSetCurrent(contexts[1]));
    SAY(cuMemFree(p[0][0]));
    SAY(cuMemAlloc(&again, 100000));
    printf("block of context %d\n", index_of(again));
    SAY(cuMemFree(again));
    SAY(cuCtxPushCurrent(contexts[0]));
    SAY(cuMemFree(p[1][0]));
    SAY(cuMemAlloc(&again, 100000));
    printf("block of context %d\n", index_of(again));
    SAY(cuMemFree(again));
    SAY(cuCtxPopCurrent(&popped));
    SAY(cuCtxSetCurrent(NULL));
    SAY(cuMemFree(p[1][1]));
    SAY(cuMemAlloc(&again, 100000));
    SAY(cuCtxDestroy(contexts[0])); /* with two blocks */
    SAY(cuCtxSetCurrent(contexts[1]));
    SAY(cuMemFree(p[0][1]));
    SAY(cuMemFree(p[1][1]));
    SAY(cuMemFree(p[1][2]));
    if (argc == 2) wait_for_reader();
    SAY(cuCtxDestroy(contexts[1]));
    return 0;
}
