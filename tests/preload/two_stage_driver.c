/* SPDX-License-Identifier: MIT
 *
 * A driver in two stages: STAGE 1 goes by the name libcuda.so.1 and finds everything in stage 2 by dlsym. STAGE 3 to 5
 * are stage 2 as a driver of its own: in 3 and 5 two names are one function; 4 gives other addresses of its functions
 * by cuGetProcAddress than by dlsym, and insists on finding itself where it looks for itself.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>

#undef cuGetProcAddress

#define FUNCTIONS(X)                                                                                            \
    X(cuInit, (unsigned int flags), (flags))                                                                    \
    X(cuDriverGetVersion, (int *version), (version))                                                            \
    X(cuCtxGetCurrent, (CUcontext * context), (context))                                                        \
    X(cuCtxSetCurrent, (CUcontext context), (context))                                                          \
    X(cuCtxGetDevice, (CUdevice * device), (device))                                                            \
    X(cuCtxPushCurrent_v2, (CUcontext context), (context))                                                      \
    X(cuCtxPopCurrent_v2, (CUcontext * context), (context))                                                     \
    X(cuCtxSynchronize, (void), ())                                                                             \
    X(cuStreamSynchronize, (CUstream stream), (stream))                                                         \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device))                      \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))                                                \
    X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active), (device, flags, active)) \
    X(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes), (out, bytes))                                           \
    X(cuMemFree_v2, (CUdeviceptr address), (address))                                                           \
    X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total), (free_bytes, total))

#if STAGE == 1

#define FORWARD(name, arguments, values)                                 \
    CUresult name arguments {                                            \
        static CUresult(*inner) arguments;                               \
        if (!inner) {                                                    \
            void *library = dlopen("libcuda_second_stage.so", RTLD_NOW); \
            *(void **)&inner = library ? dlsym(library, #name) : NULL;   \
        }                                                                \
        return inner ? inner values : CUDA_ERROR_UNKNOWN;                \
    }
FUNCTIONS(FORWARD)

#else

static __thread CUcontext current;
static CUcontext the_context = (CUcontext)0x1000;

CUresult cuInit(unsigned int flags) {
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) {
    *version = 12000;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) {
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    (void)device;
    *context = the_context;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    (void)device;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
static CUresult memory_free(CUdeviceptr address) {
    (void)address;
    return CUDA_SUCCESS;
}
#if STAGE == 4
static int finds_itself(void) {
    Dl_info found = {0}, own = {0};
    void *function = dlsym(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY), "cuMemFree_v2");
    return dladdr(function, &found) && dladdr((void *)memory_free, &own) && found.dli_fbase == own.dli_fbase;
}
#endif
static CUresult memory_alloc(CUdeviceptr *out, size_t bytes) {
#if STAGE == 4
    if (!finds_itself()) return CUDA_ERROR_UNKNOWN;
#endif
    static CUdeviceptr next = 0x100000000;
    *out = __atomic_fetch_add(&next, (bytes + 0x1fffff) & ~(CUdeviceptr)0x1fffff, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    return memory_alloc(out, bytes);
}
CUresult cuMemFree_v2(CUdeviceptr address) {
    return memory_free(address);
}
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *free_bytes = (size_t)1 << 32;
    *total = (size_t)1 << 33;
    return CUDA_SUCCESS;
}

#if STAGE == 3
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    (void)stream;
    return cuMemFree_v2(address);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) __attribute__((alias("cuMemFreeAsync")));
#endif

#if STAGE == 5
#undef cuCtxDestroy
CUresult cuCtxDestroy(CUcontext context);
CUresult cuCtxDestroy(CUcontext context) {
    (void)context;
    return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext context) __attribute__((alias("cuCtxDestroy")));
#endif

#if STAGE == 4
CUresult cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    static const struct {
        const char *name;
        void *function;
    } functions[] = {{"cuInit", (void *)cuInit},
                     {"cuDevicePrimaryCtxRetain", (void *)cuDevicePrimaryCtxRetain},
                     {"cuCtxSetCurrent", (void *)cuCtxSetCurrent},
                     {"cuMemAlloc", (void *)memory_alloc},
                     {"cuMemFree", (void *)memory_free}};
    (void)version, (void)flags, (void)status;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(functions[i].name, name) != 0) continue;
        *out = functions[i].function;
        return CUDA_SUCCESS;
    }
    *out = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
#endif

#endif
