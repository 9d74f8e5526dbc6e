/* SPDX-License-Identifier: MIT
 *
 * Looks the stream-ordered functions up as the argument says, each plain and for per-thread default streams, and prints
 * whose stream a 0 is to them: memory freed on a busy stream is given out at once on that stream only.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>

#include "sim.h"

typedef CUresult take_function(CUdeviceptr *, size_t, CUstream);
typedef CUresult give_back_function(CUdeviceptr, CUstream);

static void *look_up(const char *how, const char *name, int per_thread) {
    char symbol[64];
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
    snprintf(symbol, sizeof symbol, "%s%s", name, per_thread ? "_ptsz" : "");
    if (!library || strcmp(how, "dlsym") == 0) return library ? dlsym(library, symbol) : NULL;
    const cuuint64_t flags =
        per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    if (strcmp(how, "v1") == 0) {
        CUresult (*v1)(const char *, void **, int, cuuint64_t);
        *(void **)&v1 = dlsym(library, "cuGetProcAddress");
        return v1 && v1(name, &found, 12000, flags) == CUDA_SUCCESS ? found : NULL;
    }
    CUresult (*v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    *(void **)&v2 = dlsym(library, "cuGetProcAddress_v2");
    return v2 && v2(name, &found, 12000, flags, NULL) == CUDA_SUCCESS ? found : NULL;
}

static int say(const char *what, take_function *take, give_back_function *give_back, CUstream stream) {
    const struct sim_kernel kernel = {.until_released = true};
    CUdeviceptr block, on_legacy, on_own;
    if (take(&block, 4096, 0) || sim_launch(&kernel, stream) || give_back(block, 0)) return 1;
    if (cuMemAllocAsync(&on_own, 4096, CU_STREAM_PER_THREAD)) return 2;
    const int own = on_own == block;
    if (own && (cuMemFreeAsync(on_own, CU_STREAM_PER_THREAD))) return 3;
    if (cuMemAllocAsync(&on_legacy, 4096, CU_STREAM_LEGACY)) return 4;
    printf("%s: %s\n", what, own ? "its thread's" : on_legacy == block ? "the legacy stream" : "neither");
    sim_release_kernels();
    if (cuCtxSynchronize() || cuMemFree(on_legacy) || (!own && cuMemFree(on_own))) return 5;
    return cuCtxSynchronize() != CUDA_SUCCESS;
}

int main(int argc, char **argv) {
    CUcontext context;
    if (argc != 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    for (int per_thread = 0; per_thread < 2; per_thread++) {
        take_function *take = (take_function *)look_up(argv[1], "cuMemAllocAsync", per_thread);
        give_back_function *give_back = (give_back_function *)look_up(argv[1], "cuMemFreeAsync", per_thread);
        if (!take || !give_back) return 3;
        const int failed = say(per_thread ? "for per-thread streams" : "plain", take, give_back,
                               per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY);
        if (failed) return 10 + failed;
    }
    return 0;
}
