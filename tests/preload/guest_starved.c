/* SPDX-License-Identifier: MIT
 *
 * A program that makes each driver call that takes device memory beside cuMemAlloc, with memory cached before each, and
 * prints what it answers, how often the driver was called, how often before, and how much of the device was taken
 * before. Where arguments are wrong, or zeros, what the driver says of them tells that it was asked again.
 *
 *     preload_starved calls DEVICE CACHE   DEVICE: whose memory is cached; device 0 is current at the calls
 *                                          CACHE: none, little, full, async (full, of stream-ordered memory)
 *     preload_starved capture
 *     preload_starved first WAY CACHE      the first launches of a context, on a device that was full. WAY: by
 *                                          `driver` calls, or `itself`, by what no hook sees
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "sequence.h"
#include "sim.h"

enum { BLOCKS = 4096 };

static void *library;
static CUcontext contexts[2];
static CUstream stream;
static int cached_on;
static const char *cached;

static void *symbol_of(const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) abort();
    return symbol;
}

/* Takes all of the device, and frees it. */
static void fill(void) {
    static CUdeviceptr blocks[BLOCKS];
    const int async = strcmp(cached, "async") == 0;
    int count = 0;
    while (count < BLOCKS && (async ? cuMemAllocAsync(&blocks[count], 2 * MIB, stream)
                                    : cuMemAlloc(&blocks[count], 2 * MIB)) == CUDA_SUCCESS)
        count++;
    if (count == BLOCKS) abort();
    for (int i = 0; i < count; i++)
        if (async ? cuMemFreeAsync(blocks[i], stream) : cuMemFree(blocks[i])) abort();
    if (cuStreamSynchronize(stream)) abort();
}

static void cache(void) {
    CUdeviceptr p;
    if (strcmp(cached, "none") == 0) return;
    if (cuCtxSetCurrent(contexts[cached_on])) abort();
    if (strcmp(cached, "little") == 0) {
        if (cuMemAlloc(&p, MIB) || cuMemFree(p)) abort();
    } else {
        fill();
    }
    cuCtxSetCurrent(contexts[0]);
}

static uint64_t calls_before, taken_before;

static void begin(const char *name) {
    cache();
    calls_before = sim_calls(name);
    taken_before = sim_bytes_in_use(cached_on) / MIB;
}

static void end(const char *name, CUresult answer) {
    printf("%s: %d, %d calls, %d before, %d MiB\n", name, (int)answer, (int)(sim_calls(name) - calls_before),
           (int)calls_before, (int)taken_before);
}

/* By the exported symbol: the header knows the newest form of a name only. */
#define SAY(symbol, types, values)               \
    do {                                         \
        CUresult(*called_) types;                \
        *(void **)&called_ = symbol_of(#symbol); \
        begin(#symbol);                          \
        end(#symbol, called_ values);            \
    } while (0)

#define ZERO (uintptr_t)0
static void say_zeros(const char *name) {
    typedef uintptr_t word;
    CUresult (*function)(word, word, word, word, word, word, word, word, word, word, word, word);
    *(void **)&function = symbol_of(name);
    begin(name);
    end(name, function(ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO));
}

static void say_memory(void) {
    static const CUDA_ARRAY_DESCRIPTOR flat = {.Width = 4, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    static const CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 4, .Height = 4, .Depth = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cached_on};
    const CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    const CUmemPoolProps pool_property = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    CUdeviceptr p;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUmipmappedArray levels;
    size_t pitch;
    cuDeviceGetDefaultMemPool(&pool, 0);
    /* Else they are what fills the device. */
    if (strcmp(cached, "async") != 0) {
        SAY(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream), (&p, 4096, stream));
        SAY(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream), (&p, 4096, stream));
        SAY(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream), (&p, 4096, pool, stream));
        SAY(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemoryPool, CUstream), (&p, 4096, pool, stream));
    }
    SAY(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned int), (&p, &pitch, 100, 3, 4));
    SAY(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned int), (&p, 4096, CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long),
        (&handle, 2 * MIB, &property, 0));
    SAY(cuArrayCreate_v2, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *), (&array, &flat));
    SAY(cuArray3DCreate_v2, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *), (&array, &deep));
    SAY(cuMipmappedArrayCreate, (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned int),
        (&levels, &deep, 1));
    SAY(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *), (&pool, &pool_property));
}

static void say_mapped(void) {
    static const char *const others[] = {"cuMemMap",
                                         "cuMemSetAccess",
                                         "cuMulticastCreate",
                                         "cuMulticastBindMem",
                                         "cuMulticastBindAddr",
                                         "cuMemPoolImportFromShareableHandle",
                                         "cuMemPoolImportPointer",
                                         "cuImportExternalMemory",
                                         "cuExternalMemoryGetMappedBuffer",
                                         "cuExternalMemoryGetMappedMipmappedArray",
                                         "cuGraphicsMapResources",
                                         "cuGraphicsMapResources_ptsz"};
    static char page[8192];
    void *host;
    SAY(cuMemAllocHost_v2, (void **, size_t), (&host, 4096));
    SAY(cuMemHostAlloc, (void **, size_t, unsigned int), (&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
    SAY(cuMemHostRegister_v2, (void *, size_t, unsigned int), (page, sizeof page, 0));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) say_zeros(others[i]);
}

static const char image[64] = "no image";

static CUfunction say_modules(void) {
    CUmodule module = NULL;
    CUlibrary code = NULL;
    CUfunction function = NULL;
    CUkernel kernel = NULL;
    CUdeviceptr p;
    void *pointer;
    size_t bytes;
    int value;
    SAY(cuModuleLoad, (CUmodule *, const char *), (&module, "/nonexistent"));
    SAY(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned int, CUjit_option *, void **),
        (&module, image, 0, NULL, NULL));
    SAY(cuModuleLoadFatBinary, (CUmodule *, const void *), (&module, image));
    SAY(cuModuleLoadData, (CUmodule *, const void *), (&module, image));
    SAY(cuLibraryLoadFromFile,
        (CUlibrary *, const char *, CUjit_option *, void **, unsigned int, CUlibraryOption *, void **, unsigned int),
        (&code, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
    SAY(cuLibraryLoadData,
        (CUlibrary *, const void *, CUjit_option *, void **, unsigned int, CUlibraryOption *, void **, unsigned int),
        (&code, image, NULL, NULL, 0, NULL, NULL, 0));
    cuLibraryGetKernel(&kernel, code, "kernel");
    SAY(cuLibraryGetModule, (CUmodule *, CUlibrary), (&module, code));
    SAY(cuLibraryGetGlobal, (CUdeviceptr *, size_t *, CUlibrary, const char *), (&p, &bytes, code, "global"));
    SAY(cuLibraryGetManaged, (CUdeviceptr *, size_t *, CUlibrary, const char *), (&p, &bytes, code, "managed"));
    SAY(cuLibraryGetUnifiedFunction, (void **, CUlibrary, const char *), (&pointer, code, "function"));
    SAY(cuModuleGetGlobal_v2, (CUdeviceptr *, size_t *, CUmodule, const char *), (&p, &bytes, module, "global"));
    SAY(cuModuleGetFunction, (CUfunction *, CUmodule, const char *), (&function, module, "kernel"));
    SAY(cuKernelGetFunction, (CUfunction *, CUkernel), (&function, kernel));
    SAY(cuKernelGetAttribute, (int *, CUfunction_attribute, CUkernel, CUdevice),
        (&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0));
    SAY(cuKernelSetAttribute, (CUfunction_attribute, int, CUkernel, CUdevice),
        (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, 0));
    SAY(cuFuncGetAttribute, (int *, CUfunction_attribute, CUfunction), (&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    SAY(cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int),
        (function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    SAY(cuFuncLoad, (CUfunction), (function));
    return function;
}

static void say_graphs(CUfunction function) {
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    CUDA_KERNEL_NODE_PARAMS kernel = {
        .func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec = NULL;
    if (cuGraphCreate(&graph, 0)) abort();
    if (function) cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel);
    SAY(cuGraphInstantiate, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t), (&exec, graph, NULL, NULL, 0));
    SAY(cuGraphInstantiate_v2, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t), (&exec, graph, NULL, NULL, 0));
    SAY(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long), (&exec, graph, 0));
    SAY(cuGraphInstantiateWithParams, (CUgraphExec *, CUgraph, void *), (&exec, graph, &parameters));
    SAY(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *, CUgraph, void *), (&exec, graph, &parameters));
    SAY(cuGraphUpload, (CUgraphExec, CUstream), (exec, stream));
    SAY(cuGraphUpload_ptsz, (CUgraphExec, CUstream), (exec, stream));
    SAY(cuGraphLaunch, (CUgraphExec, CUstream), (exec, stream));
    SAY(cuGraphLaunch_ptsz, (CUgraphExec, CUstream), (exec, stream));
}

static void say_launches(CUfunction function) {
    const CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = stream};
    typedef unsigned int u;
    SAY(cuLaunchKernel, (CUfunction, u, u, u, u, u, u, u, CUstream, void **, void **),
        (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    SAY(cuLaunchKernel_ptsz, (CUfunction, u, u, u, u, u, u, u, CUstream, void **, void **),
        (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    SAY(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **), (&config, function, NULL, NULL));
    SAY(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *, CUfunction, void **, void **), (&config, function, NULL, NULL));
    SAY(cuLaunchCooperativeKernel, (CUfunction, u, u, u, u, u, u, u, CUstream, void **),
        (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL));
    SAY(cuLaunchCooperativeKernel_ptsz, (CUfunction, u, u, u, u, u, u, u, CUstream, void **),
        (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL));
}

static void say_contexts(void) {
    CUcontext context;
    CUstream made;
    CUevent event;
    SAY(cuCtxSetLimit, (CUlimit, size_t), (CU_LIMIT_PRINTF_FIFO_SIZE, MIB));
    SAY(cuEventCreate, (CUevent *, unsigned int), (&event, 0));
    SAY(cuStreamCreate, (CUstream *, unsigned int), (&made, 0));
    SAY(cuStreamCreateWithPriority, (CUstream *, unsigned int, int), (&made, 0, 0));
    SAY(cuGreenCtxCreate, (void **, void *, CUdevice, unsigned int), (NULL, NULL, cached_on, 0));
    say_zeros("cuGreenCtxStreamCreate");
    SAY(cuCtxEnablePeerAccess, (CUcontext, unsigned int), (contexts[1], 0));
    SAY(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), (&context, cached_on));
    SAY(cuCtxCreate_v2, (CUcontext *, unsigned int, CUdevice), (&context, 0, cached_on));
    SAY(cuCtxCreate_v3, (CUcontext *, void *, int, unsigned int, CUdevice), (&context, NULL, 0, 0, cached_on));
    SAY(cuCtxCreate_v4, (CUcontext *, void *, unsigned int, CUdevice), (&context, NULL, 0, cached_on));
}

static void say_capture(void) {
    CUstream capturing, other;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING);
    cache();
    printf("begin: %d\n", (int)cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const uint64_t calls = sim_calls("cuStreamCreate");
    printf("create: %d", (int)cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    printf(", %d calls\n", (int)(sim_calls("cuStreamCreate") - calls));
    printf("asked: %d", (int)cuStreamIsCapturing(capturing, &status));
    printf(", status %d\n", (int)status);
    printf("end: %d\n", (int)cuStreamEndCapture(capturing, &graph));
    printf("create: %d\n", (int)cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
}

/* Code is loaded when there is room, its function found and launched when there is none. */
static void say_first(bool itself) {
    static const struct sim_kernel brief = {.microseconds = 1};
    CUmodule module;
    CUfunction function;
    if (cuModuleLoadData(&module, image)) abort();
    cache();
    printf("function: %d\n", (int)cuModuleGetFunction(&function, module, "kernel"));
    cache();
    printf("launch: %d", itself ? sim_launch(&brief, stream)
                                : (int)cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    printf(", %d\n", (int)cuStreamSynchronize(stream));
}

int main(int argc, char **argv) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (argc < 2 || !library || cuInit(0)) return 3;
    for (int i = 0; i < 2; i++)
        if (cuDevicePrimaryCtxRetain(&contexts[i], i)) return 4;
    cuCtxSetCurrent(contexts[0]);
    cached = "little";
    if (strcmp(argv[1], "capture") == 0) {
        say_capture();
        return 0;
    }
    if (argc != 4) return 2;
    cached = argv[3];
    if (strcmp(argv[1], "first") == 0) {
        if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) return 5;
        say_first(strcmp(argv[2], "itself") == 0);
        return 0;
    }
    cached_on = atoi(argv[2]);
    if (sim_stream_create((void **)&stream, CU_STREAM_NON_BLOCKING)) return 5;
    say_memory();
    say_mapped();
    const CUfunction function = say_modules();
    say_graphs(function);
    say_launches(function);
    say_contexts();
    return 0;
}
