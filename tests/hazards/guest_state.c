/* SPDX-License-Identifier: MIT
 *
 * Makes every call that the library hooks, with wrong arguments and with right ones, and says after each what it
 * answered and what of the process's state it has changed.
 *
 *     hazard_state all                 one after the other
 *     hazard_state first               each wrong one as the first call of a process
 *     hazard_state thread              all, in a thread that has nothing of its own
 *     hazard_state closed REPORT       all, with stdin, stdout and stderr closed; what is printed goes to a file
 *     hazard_state stack               how many bytes of stack the call of a hook takes at most: the first in a
 * process, later ones hazard_state small               blocks are taken and given back on the smallest stack that a
 * thread may have
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "entry/hooks.h"

#include "host_state.h"

#define MIB ((size_t)1 << 20)

static FILE *report;

static void note(const char *name, int code) {
    const char *changed = state_changed();
    fprintf(report, "%s: %d%s\n", name, code, changed);
}

/* A hook, by its exported symbol. */
#define CALL(symbol, values)                     \
    do {                                         \
        state_before();                          \
        const int code_ = entry_##symbol values; \
        note(#symbol, code_);                    \
    } while (0)

#define CALL_BY_NAME(symbol, values)          \
    do {                                      \
        state_before();                       \
        const int code_ = (int)symbol values; \
        note(#symbol, code_);                 \
    } while (0)

/* ---- wrong arguments: zeros, which every function of the driver can be called with ---- */

typedef uintptr_t word;
typedef CUresult any_function(word, word, word, word, word, word, word, word, word, word, word, word);
/* A handle is passed as a whole, which is not everywhere as so many integers. */
typedef CUresult open_handle(word, CUipcMemHandle, word);

static const struct hook {
    const char *symbol;
    void *function;
} hooks[] = {
#define ROW(symbol, name, version, flags, arguments) {#symbol, (void *)entry_##symbol},
    ENTRY_HOOKS(ROW)
#undef ROW
};

static int call_zeros(const struct hook *hook) {
    any_function *function;
    open_handle *opens;
    *(void **)&function = hook->function;
    *(void **)&opens = hook->function;
    if (strncmp(hook->symbol, "cuIpcOpenMemHandle", 18) == 0) return (int)opens(0, (CUipcMemHandle){{0}}, 0);
    return (int)function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

static void call_all_wrongly(void) {
    for (size_t i = 0; i < ENTRY_HOOK_COUNT; i++) {
        state_before();
        note(hooks[i].symbol, call_zeros(&hooks[i]));
    }
    CALL_BY_NAME(cudaMalloc, (NULL, 1));
    CALL_BY_NAME(cudaMallocAsync, (NULL, 1, NULL));
    CALL_BY_NAME(cudaFree, ((void *)1));
    CALL_BY_NAME(cudaFreeAsync, (NULL, NULL));
    CALL_BY_NAME(cudaMemGetInfo, (NULL, NULL));
}

static void call_first_wrongly(void) {
    for (size_t i = 0; i < ENTRY_HOOK_COUNT; i++) {
        fflush(report);
        const pid_t child = fork();
        if (child == 0) {
            state_before();
            note(hooks[i].symbol, call_zeros(&hooks[i]));
            fflush(report);
            _exit(0);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0) continue;
        if (status != 0) fprintf(report, "%s: ended with %d\n", hooks[i].symbol, status);
    }
}

/* ---- right ones ---- */

/* Another process, for memory of its own: its handle comes by the pipe; it lives until ours is closed. */
static int other_handle = -1, other_life = -1;

static void start_other(void) {
    int handles[2], life[2];
    if (pipe2(handles, O_CLOEXEC) || pipe2(life, O_CLOEXEC)) return;
    if (fork() == 0) {
        CUcontext context;
        CUdeviceptr segment, block;
        CUipcMemHandle handle;
        char end;
        close(life[1]);
        if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
            cuMemAlloc(&segment, MIB) || cuMemAlloc(&block, MIB) || cuIpcGetMemHandle(&handle, block) ||
            write(handles[1], &handle, sizeof handle) != sizeof handle)
            _exit(1);
        while (read(life[0], &end, 1) > 0) continue;
        _exit(0);
    }
    close(handles[1]);
    close(life[0]);
    /* Not where a descriptor of the library's might come to lie. */
    other_handle = fcntl(handles[0], F_DUPFD_CLOEXEC, 100);
    other_life = fcntl(life[1], F_DUPFD_CLOEXEC, 100);
    close(handles[0]);
    close(life[1]);
}

static CUcontext primary;
static CUdevice device;
static CUstream stream;

static void call_memory(void) {
    CUdeviceptr first, second, p, base;
    size_t free_bytes, total, bytes, pitch;
    void *function, *host;
    static char page[8192];
    unsigned flag = 1;
    CUdeviceptr range;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&range, &bytes};
    CUipcMemHandle handle;
    CALL(cuGetProcAddress, ("cuMemAlloc", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT));
    CALL(cuGetProcAddress_v2, ("cuMemFree", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    CALL(cuMemAlloc_v2, (&first, MIB));
    CALL(cuMemAlloc_v2, (&second, MIB));
    CALL(cuMemAlloc_v2, (&p, (size_t)1 << 50)); /* more than there is: all that can be given back is */
    CALL(cuMemGetInfo_v2, (&free_bytes, &total));
    CALL(cuMemGetAddressRange_v2, (&base, &bytes, second + 1));
    CALL(cuPointerGetAttribute, (&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, second));
    CALL(cuPointerGetAttributes, (2, names, values, second));
    CALL(cuPointerSetAttribute, (&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second));
    CALL(cuIpcGetMemHandle, (&handle, second));
    CALL(cuIpcGetMemHandle, (&handle, first));
    CALL(cuMemFree_v2, (second));
    CALL(cuMemFree_v2, (second)); /* twice */
    CALL(cuMemFree_v2, (first + 512));
    CALL(cuMemFree_v2, (first));
    CALL(cuMemAllocAsync, (&p, MIB, stream));
    CALL(cuMemAllocAsync, (&base, (size_t)1 << 50, stream));
    CALL(cuMemFreeAsync, (p, stream));
    CALL(cuMemFreeAsync, (p, stream));
    CALL(cuMemAllocAsync_ptsz, (&p, MIB, NULL));
    CALL(cuMemFreeAsync_ptsz, (p, NULL));
    CALL(cuMemAllocPitch_v2, (&p, &pitch, 100, 3, 4));
    CALL(cuMemAllocManaged, (&p, 4096, CU_MEM_ATTACH_GLOBAL));
    CALL(cuMemAllocHost_v2, (&host, 4096));
    CALL(cuMemHostAlloc, (&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
    CALL(cuMemHostRegister_v2, (page, sizeof page, 0));
    if (other_handle >= 0 && read(other_handle, &handle, sizeof handle) == sizeof handle) {
        CALL(cuIpcOpenMemHandle, (&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        CALL(cuIpcCloseMemHandle, (p));
        CALL(cuIpcOpenMemHandle_v2, (&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        CALL(cuIpcCloseMemHandle, (p));
    }
    close(other_life);
}

static void call_pools(void) {
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemPoolProps property = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     .location = location};
    const CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemLocation copy = location;
    CUmemoryPool own, given;
    CUdeviceptr p;
    CUmemPoolPtrExportData data;
    cuuint64_t figure;
    int file = -1;
    CALL(cuMemPoolCreate, (&own, &property));
    CALL(cuMemAllocFromPoolAsync, (&p, MIB, own, stream));
    CALL(cuMemPoolExportPointer, (&data, p));
    CALL(cuMemAllocFromPoolAsync_ptsz, (&p, MIB, own, NULL));
    CALL(cuMemPoolSetAccess, (own, &access, 1));
    CALL(cuDeviceSetMemPool, (device, own));
    CALL(cuMemAllocAsync, (&p, MIB, stream));
    CALL(cuMemFree_v2, (p));
    CALL(cuMemSetMemPool, (&copy, (int)CU_MEM_ALLOCATION_TYPE_PINNED, own));
    CALL(cuMemPoolTrimTo, (own, 0));
    CALL_BY_NAME(cuMemPoolGetAttribute, (own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &figure));
    if (cuMemPoolExportToShareableHandle(&file, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS) {
        CALL(cuMemPoolImportFromShareableHandle,
             (&given, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        CALL(cuMemPoolImportPointer, (&p, given, &data));
        close(file);
    }
    CALL(cuMemPoolDestroy, (own));
}

static const char image[64] = "no image";

static CUfunction call_modules(void) {
    CUmodule module = NULL;
    CUlibrary code = NULL;
    CUfunction function = NULL;
    CUkernel kernel = NULL;
    int value;
    CALL(cuModuleLoad, (&module, "/proc/self/exe"));
    CALL(cuModuleLoadDataEx, (&module, image, 0, NULL, NULL));
    CALL(cuModuleLoadFatBinary, (&module, image));
    CALL(cuModuleLoadData, (&module, image));
    CALL(cuLibraryLoadFromFile, (&code, "/proc/self/exe", NULL, NULL, 0, NULL, NULL, 0));
    CALL(cuLibraryLoadData, (&code, image, NULL, NULL, 0, NULL, NULL, 0));
    cuLibraryGetKernel(&kernel, code, "kernel");
    CALL(cuLibraryGetModule, (&module, code));
    CALL(cuModuleGetFunction, (&function, module, "kernel"));
    CALL(cuKernelGetFunction, (&function, kernel));
    CALL(cuKernelGetAttribute, (&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device));
    CALL(cuKernelSetAttribute, (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, device));
    CALL(cuFuncGetAttribute, (&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    CALL(cuFuncSetAttribute, (function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    CALL(cuFuncLoad, (function));
    return function;
}

static void call_launches(CUfunction function) {
    const CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = stream};
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    CUgraph graph;
    CUgraphExec exec = NULL;
    CALL(cuLaunchKernel, (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    CALL(cuLaunchKernel_ptsz, (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    CALL(cuLaunchKernelEx, (&config, function, NULL, NULL));
    CALL(cuLaunchKernelEx_ptsz, (&config, function, NULL, NULL));
    CALL(cuLaunchCooperativeKernel, (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL));
    CALL(cuLaunchCooperativeKernel_ptsz, (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL));
    if (cuGraphCreate(&graph, 0)) return;
    CALL(cuGraphInstantiate, (&exec, graph, NULL, NULL, 0));
    CALL(cuGraphInstantiate_v2, (&exec, graph, NULL, NULL, 0));
    CALL(cuGraphInstantiateWithFlags, (&exec, graph, 0));
    CALL(cuGraphInstantiateWithParams, (&exec, graph, &parameters));
    CALL(cuGraphInstantiateWithParams_ptsz, (&exec, graph, &parameters));
    CALL(cuGraphUpload, (exec, stream));
    CALL(cuGraphUpload_ptsz, (exec, stream));
    CALL(cuGraphLaunch, (exec, stream));
    CALL(cuGraphLaunch_ptsz, (exec, stream));
}

static void call_captures(void) {
    const CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUgraph graph;
    CUdeviceptr p;
    CALL(cuStreamBeginCapture, (stream));
    CALL(cuMemAllocAsync, (&p, MIB, stream));
    CALL(cuMemFreeAsync, (p, stream));
    CALL(cuStreamEndCapture, (stream, &graph));
    CALL(cuStreamBeginCapture_ptsz, (stream));
    CALL(cuStreamEndCapture_ptsz, (stream, &graph));
    CALL(cuStreamBeginCapture_v2, (stream, mode));
    CALL(cuMemAlloc_v2, (&p, MIB));
    CALL(cuMemFree_v2, (p));
    CALL(cuStreamEndCapture, (stream, &graph));
    CALL(cuStreamBeginCapture_v2_ptsz, (stream, mode));
    CALL(cuStreamEndCapture, (stream, &graph));
    if (cuGraphCreate(&graph, 0)) return;
    CALL(cuStreamBeginCaptureToGraph, (stream, graph, NULL, NULL, 0, mode));
    CALL(cuStreamEndCapture, (stream, &graph));
    if (cuGraphCreate(&graph, 0)) return;
    CALL(cuStreamBeginCaptureToGraph_ptsz, (stream, graph, NULL, NULL, 0, mode));
    CALL(cuStreamEndCapture, (stream, &graph));
}

static void call_contexts(void) {
    CUcontext context, second;
    CUstream made;
    CUevent event;
    CUdevResource resource;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CALL(cuCtxSetLimit, (CU_LIMIT_PRINTF_FIFO_SIZE, MIB));
    CALL(cuEventCreate, (&event, 0));
    CALL(cuStreamCreate, (&made, 0));
    CALL(cuStreamDestroy, (made));
    CALL(cuStreamCreateWithPriority, (&made, 0, 0));
    CALL(cuStreamDestroy_v2, (made));
    if (cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
        cuDevResourceGenerateDesc(&description, &resource, 1) == CUDA_SUCCESS) {
        CALL(cuGreenCtxCreate, ((void *)&green, (void *)description, device, CU_GREEN_CTX_DEFAULT_STREAM));
        CALL(cuCtxFromGreenCtx, (&context, (void *)green));
        CALL(cuGreenCtxStreamCreate, (&made, (void *)green, CU_STREAM_NON_BLOCKING, 0));
        CALL(cuGreenCtxDestroy, ((void *)green));
    }
    CALL(cuCtxCreate_v2, (&context, 0, device));
    CALL(cuCtxAttach, (&second, 0));
    CALL(cuCtxDetach, (second));
    CALL(cuCtxDestroy, (context));
    CALL(cuCtxCreate_v3, (&context, NULL, 0, 0, device));
    CALL(cuCtxDestroy_v2, (context));
    CALL(cuCtxCreate_v4, (&context, NULL, 0, device));
    cuCtxDestroy_v2(context);
    cuCtxSetCurrent(primary);
    CALL(cuDevicePrimaryCtxRetain, (&second, device + 1));
    CALL(cuCtxEnablePeerAccess, (second, 0));
    CALL(cuDevicePrimaryCtxRelease, (device + 1));
    CALL(cuDevicePrimaryCtxRetain, (&second, device + 1));
    CALL(cuDevicePrimaryCtxRelease_v2, (device + 1));
    CALL(cuDevicePrimaryCtxReset, (device));
    CALL(cuDevicePrimaryCtxReset_v2, (device));
}

static void call_runtime(void) {
    void *p, *q;
    size_t free_bytes, total;
    cudaStream_t made;
    if (cudaSetDevice(0) || cudaStreamCreate(&made)) return;
    CALL_BY_NAME(cudaMalloc, (&p, MIB));
    CALL_BY_NAME(cudaFree, (p));
    CALL_BY_NAME(cudaFree, (p));
    CALL_BY_NAME(cudaMalloc, (&p, (size_t)1 << 50));
    CALL_BY_NAME(cudaMallocAsync, (&q, MIB, made));
    CALL_BY_NAME(cudaFreeAsync, (q, made));
    CALL_BY_NAME(cudaMallocAsync, (&q, (size_t)1 << 50, made));
    CALL_BY_NAME(cudaMemGetInfo, (&free_bytes, &total));
    CALL_BY_NAME(cudaDeviceReset, ());
}

static bool initialise(void) {
    CUdeviceptr p;
    return !cuInit(0) && !cuDeviceGet(&device, 0) && !cuDevicePrimaryCtxRetain(&primary, device) &&
           !cuCtxSetCurrent(primary) && !cuMemAlloc(&p, MIB);
}

static void *call_all(void *unused) {
    if (!initialise()) return NULL;
    call_all_wrongly();
    /* These have let go of the context. */
    if (!initialise() || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) return NULL;
    call_memory();
    call_pools();
    const CUfunction function = call_modules();
    call_launches(function);
    call_captures();
    call_contexts();
    call_runtime();
    fprintf(report, "all\n");
    return unused;
}

/* ---- the stack ---- */

enum { STACK = 1 << 20, PAINT = 0xa5 };

static const struct hook *measured;

static void *call_measured(void *unused) {
    if (measured) {
        call_zeros(measured);
        return NULL;
    }
    CUdeviceptr p, q;
    cuCtxSetCurrent(primary);
    if (!cuMemAlloc(&p, MIB) && !cuMemAllocAsync(&q, 40 * MIB, stream)) {
        cuMemFreeAsync(q, stream);
        cuMemFree(p);
    }
    return unused;
}

static void *call_nothing(void *unused) {
    return unused;
}

/* Bytes of stack that a thread which runs `body` touches, beyond those that any thread does. */
static size_t depth_of(void *(*body)(void *), unsigned char *stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    memset(stack, PAINT, STACK);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK);
    if (pthread_create(&thread, &attributes, body, NULL)) exit(1);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    size_t untouched = 0;
    while (untouched < STACK && stack[untouched] == PAINT) untouched++;
    return STACK - untouched;
}

static void measure_stack(void) {
    unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    depth_of(call_nothing, stack);
    const size_t nothing = depth_of(call_nothing, stack);
    for (size_t i = 0; i < ENTRY_HOOK_COUNT; i++) {
        fflush(report);
        if (fork() == 0) {
            measured = &hooks[i];
            const size_t first = depth_of(call_measured, stack);
            if (!initialise()) _exit(1);
            const size_t later = depth_of(call_measured, stack);
            fprintf(report, "%s: %zu %zu\n", hooks[i].symbol, first - nothing, later - nothing);
            fflush(report);
            _exit(0);
        }
        wait(NULL);
    }
    if (!initialise() || cuStreamCreate(&stream, 0)) exit(1);
    const size_t first = depth_of(call_measured, stack);
    fprintf(report, "blocks: %zu %zu\n", first - nothing, depth_of(call_measured, stack) - nothing);
}

/* The process's first call of a hook is made here too. */
static void *take_and_give(void *out) {
    CUdeviceptr p, q;
    int *codes = out;
    codes[0] = (int)cuCtxSetCurrent(primary);
    codes[1] = (int)cuStreamCreate(&stream, 0);
    codes[2] = (int)cuMemAlloc(&p, MIB);
    codes[3] = (int)cuMemAllocAsync(&q, 40 * MIB, stream);
    codes[4] = (int)cuMemFreeAsync(q, stream);
    codes[5] = (int)cuMemFree(p);
    codes[6] = (int)cuMemAlloc(&p, (size_t)1 << 50);
    return NULL;
}

static int run_on_small_stack(void) {
    int codes[7] = {-1, -1, -1, -1, -1, -1, -1};
    pthread_attr_t attributes;
    pthread_t thread;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&primary, device)) return 1;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    if (pthread_create(&thread, &attributes, take_and_give, codes)) return 1;
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    for (int i = 0; i < 7; i++) fprintf(report, "call %d: %d\n", i, codes[i]);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    static char left[8192];
    report = stdout;
    if (strcmp(what, "stack") == 0) {
        measure_stack();
        return 0;
    }
    if (strcmp(what, "small") == 0) return run_on_small_stack();
    start_other();
    if (argc > 2) {
        for (int i = 0; i < 3; i++) close(i);
        const int file = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        report = fdopen(fcntl(file, F_DUPFD_CLOEXEC, 110), "w");
        close(file);
        if (!report) return 1;
    }
    state_unusual();
    if (strcmp(what, "first") == 0) {
        call_first_wrongly();
    } else if (strcmp(what, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, call_all, NULL);
        pthread_join(thread, NULL);
    } else {
        call_all(NULL);
    }
    state_descriptors(left, sizeof left);
    fprintf(report, "%ssignals raised: %u\n", left, state_signals());
    return fflush(report) != 0;
}
