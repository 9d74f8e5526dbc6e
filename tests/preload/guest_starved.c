/* SPDX-License-Identifier: MIT
 *
 * A program that makes each driver call that takes device memory beside cuMemAlloc, with memory cached before each, and
 * prints what it answers. Some arguments are wrong: what the driver says of them tells that it was asked again. The
 * first argument is the device whose memory is cached; device 0 is current at the calls.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "sequence.h"
#include "sim.h"

static void *library;
static CUcontext contexts[2];
static int cached_on;

static void cache(void) {
    CUdeviceptr p;
    if (cuCtxSetCurrent(contexts[cached_on]) || cuMemAlloc(&p, MIB) || cuMemFree(p)) abort();
    cuCtxSetCurrent(contexts[0]);
}

/* By the exported symbol: the header knows the newest form of a name only. */
#define SAY(symbol, types, values)                                         \
    do {                                                                   \
        CUresult(*function) types;                                         \
        *(void **)&function = dlsym(library, #symbol);                     \
        cache();                                                           \
        printf("%s: %d\n", #symbol, function ? (int)function values : -1); \
    } while (0)

static void say_memory(CUstream stream) {
    static const CUDA_ARRAY_DESCRIPTOR flat = {.Width = 4, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    static const CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 4, .Height = 4, .Depth = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    const CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cached_on}};
    CUdeviceptr p;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUmipmappedArray levels;
    size_t pitch;
    cuDeviceGetDefaultMemPool(&pool, 0);
    SAY(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream), (&p, 4096, stream));
    SAY(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream), (&p, 4096, stream));
    SAY(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream), (&p, 4096, pool, stream));
    SAY(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemoryPool, CUstream), (&p, 4096, pool, stream));
    SAY(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned int), (&p, &pitch, 100, 3, 4));
    SAY(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned int), (&p, 4096, CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long),
        (&handle, 2 * MIB, &property, 0));
    SAY(cuArrayCreate_v2, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *), (&array, &flat));
    SAY(cuArray3DCreate_v2, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *), (&array, &deep));
    SAY(cuMipmappedArrayCreate, (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned int),
        (&levels, &deep, 1));
}

static void say_modules(void) {
    static const char image[64] = "no image";
    CUmodule module;
    CUlibrary code;
    SAY(cuModuleLoad, (CUmodule *, const char *), (&module, "/nonexistent"));
    SAY(cuModuleLoadData, (CUmodule *, const void *), (&module, image));
    SAY(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned int, CUjit_option *, void **),
        (&module, image, 0, NULL, NULL));
    SAY(cuModuleLoadFatBinary, (CUmodule *, const void *), (&module, image));
    SAY(cuLibraryLoadData,
        (CUlibrary *, const void *, CUjit_option *, void **, unsigned int, CUlibraryOption *, void **, unsigned int),
        (&code, image, NULL, NULL, 0, NULL, NULL, 0));
    SAY(cuLibraryLoadFromFile,
        (CUlibrary *, const char *, CUjit_option *, void **, unsigned int, CUlibraryOption *, void **, unsigned int),
        (&code, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
}

static void say_graphs(void) {
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    CUgraph graph;
    CUgraphExec exec;
    cuGraphCreate(&graph, 0);
    SAY(cuGraphInstantiate, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t), (&exec, graph, NULL, NULL, 0));
    SAY(cuGraphInstantiate_v2, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t), (&exec, graph, NULL, NULL, 0));
    SAY(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long), (&exec, graph, 0));
    SAY(cuGraphInstantiateWithParams, (CUgraphExec *, CUgraph, void *), (&exec, graph, &parameters));
    SAY(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *, CUgraph, void *), (&exec, graph, &parameters));
}

static void say_contexts(void) {
    CUcontext context;
    CUstream stream;
    SAY(cuCtxSetLimit, (CUlimit, size_t), (CU_LIMIT_PRINTF_FIFO_SIZE, MIB));
    SAY(cuStreamCreate, (CUstream *, unsigned int), (&stream, 0));
    SAY(cuStreamCreateWithPriority, (CUstream *, unsigned int, int), (&stream, 0, 0));
    SAY(cuCtxCreate_v2, (CUcontext *, unsigned int, CUdevice), (&context, 0, cached_on));
    SAY(cuCtxCreate_v3, (CUcontext *, void *, int, unsigned int, CUdevice), (&context, NULL, 0, 0, cached_on));
    SAY(cuCtxCreate_v4, (CUcontext *, void *, unsigned int, CUdevice), (&context, NULL, 0, cached_on));
}

/* Nothing can be given back while a stream captures: the driver's answer stands, and the capture holds. */
static void say_capture(void) {
    CUstream stream, other;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cache();
    printf("begin: %d\n", (int)cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    printf("create: %d\n", (int)cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    printf("asked: %d", (int)cuStreamIsCapturing(stream, &status));
    printf(", status %d\n", (int)status);
    printf("end: %d\n", (int)cuStreamEndCapture(stream, &graph));
    printf("create: %d\n", (int)cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
}

int main(int argc, char **argv) {
    CUstream stream;
    if (argc != 2) return 2;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library || cuInit(0)) return 3;
    for (int i = 0; i < 2; i++)
        if (cuDevicePrimaryCtxRetain(&contexts[i], i)) return 4;
    cuCtxSetCurrent(contexts[0]);
    if (strcmp(argv[1], "capture") == 0) {
        say_capture();
        return 0;
    }
    cached_on = atoi(argv[1]);
    if (sim_stream_create((void **)&stream, 0)) return 5;
    say_memory(stream);
    say_modules();
    say_graphs();
    say_contexts();
    return 0;
}
