/* SPDX-License-Identifier: MIT
 *
 * The calls through the driver. How it is reached, by the first argument: `linked` (-lcuda), `dlsym`, `v1` or `v2`
 * (cuGetProcAddress in its two forms).
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>

#include "sequence.h"

static struct {
    CUresult (*init)(unsigned int);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*free)(CUdeviceptr);
} driver = {cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc, cuMemFree};

static void *library;
static CUresult (*get_v1)(const char *, void **, int, cuuint64_t);
static CUresult (*get_v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void *look_up(const char *how, const char *name, const char *symbol, int version) {
    void *found = NULL;
    if (strcmp(how, "dlsym") == 0) return dlsym(library, symbol);
    if (strcmp(how, "v1") == 0) return get_v1(name, &found, version, 0) == CUDA_SUCCESS ? found : NULL;
    return get_v2(name, &found, version, 0, NULL) == CUDA_SUCCESS ? found : NULL;
}

static int look_up_all(const char *how) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 1;
    *(void **)&get_v1 = dlsym(library, "cuGetProcAddress");
    *(void **)&get_v2 = dlsym(library, "cuGetProcAddress_v2");
    *(void **)&driver.init = look_up(how, "cuInit", "cuInit", 2000);
    *(void **)&driver.retain = look_up(how, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000);
    *(void **)&driver.set_current = look_up(how, "cuCtxSetCurrent", "cuCtxSetCurrent", 4000);
    *(void **)&driver.alloc = look_up(how, "cuMemAlloc", "cuMemAlloc_v2", 3020);
    *(void **)&driver.free = look_up(how, "cuMemFree", "cuMemFree_v2", 3020);
    /* A program that looks for the end of contexts too. */
    const int ends = (dlsym(library, "cuCtxDestroy") != NULL) + (dlsym(library, "cuCtxDestroy_v2") != NULL);
    return ends == 1 || !driver.init || !driver.retain || !driver.set_current || !driver.alloc || !driver.free;
}

static int take(void **out, size_t bytes) {
    CUdeviceptr address;
    const CUresult result = driver.alloc(&address, bytes);
    if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)address;
    return (int)result;
}

static int give_back(void *address) {
    return (int)driver.free((CUdeviceptr)(uintptr_t)address);
}

int main(int argc, char **argv) {
    CUcontext context;
    if (argc != 2) return 2;
    int failed = strcmp(argv[1], "linked") == 0 ? 0 : look_up_all(argv[1]);
    failed = failed || driver.init(0) || driver.retain(&context, 0) || driver.set_current(context)
                 ? 16
                 : run_sequence(take, give_back);
    if (failed) printf("call %d failed\n", failed);
    wait_for_reader();
    return failed;
}
