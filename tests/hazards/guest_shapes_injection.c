/* SPDX-License-Identifier: MIT
 *
 * A tool that the driver loads at cuInit (CUDA_INJECTION64_PATH). It uses memory itself, and looks functions up.
 */
#include <dlfcn.h>
#include <stdio.h>

#include <cuda.h>

int InitializeInjection(void);

int InitializeInjection(void) {
    CUcontext context;
    CUdeviceptr p = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*give_back)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))dlsym(library, "cuMemFree_v2");
    printf("tool starts: %d\n", (int)cuInit(0));
    printf("tool retains: %d\n", (int)cuDevicePrimaryCtxRetain(&context, 0));
    printf("tool enters: %d\n", (int)cuCtxPushCurrent(context));
    printf("tool allocates: %d\n", (int)cuMemAlloc(&p, 4096));
    printf("tool frees: %d\n", give_back ? (int)give_back(p) : -1);
    printf("tool leaves: %d\n", (int)cuCtxPopCurrent(&context));
    return 1;
}
