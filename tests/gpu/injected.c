/* SPDX-License-Identifier: MIT
 *
 * A tool that the driver loads (CUDA_INJECTION64_PATH): it allocates, and says whose functions its look-ups find.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>

int InitializeInjection(void);

int InitializeInjection(void) {
    CUcontext context;
    CUdeviceptr address = 0;
    Dl_info found = {0};
    puts("injected: yes");
    printf("injected, cuInit: %d\n", (int)cuInit(0));
    if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxPushCurrent(context) != CUDA_SUCCESS) return 1;
    printf("injected, cuMemAlloc: %d\n", (int)cuMemAlloc(&address, 4096));
    printf("injected, cuMemFree: %d\n", (int)cuMemFree(address));
    cuCtxPopCurrent(&context);
    void *const function = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    const char *name = function && dladdr(function, &found) ? found.dli_fname : "nobody";
    printf("injected, object: %s\n", strrchr(name, '/') ? strrchr(name, '/') + 1 : name);
    fflush(stdout);
    return 1;
}
