/* SPDX-License-Identifier: MIT
 *
 * Every function of the driver that the library hooks, by the names that follow the first argument: with nothing but
 * zeros, with each pointer missing in turn, and from a thread without a context. Prints what they answer.
 */
#include "guest_pointers.h"

#include <pthread.h>
#include <unistd.h>

#include <cuda.h>

/* The header renames these to their newest variants; here a name is the exported symbol. */
#undef cuCtxCreate
#undef cuCtxDestroy
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuMemAlloc
#undef cuMemAllocPitch
#undef cuMemFree
#undef cuMemGetAddressRange
#undef cuMemGetInfo
#undef cuStreamBeginCapture
#undef cuStreamDestroy

static void *driver;
static CUcontext primary;
static CUstream stream;
static CUdeviceptr plain, async;
static int names;
static char **name_list;

typedef int (*any_function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                            uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static any_function look_up(const char *name) {
    return (any_function)dlsym(driver, name);
}

/* A handle is passed as a whole, which is not everywhere as so many integers. */
typedef int (*open_handle)(uintptr_t, CUipcMemHandle, uintptr_t);

static int call_zeros(const char *name, any_function function) {
    const open_handle opens = (open_handle)dlsym(driver, name);
    if (strncmp(name, "cuIpcOpenMemHandle", 18) == 0) return opens(0, (CUipcMemHandle){{0}}, 0);
    return function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

static void say_zeros(const char *when) {
    for (int i = 0; i < names; i++) {
        const any_function function = look_up(name_list[i]);
        printf("%s, %s: ", when, name_list[i]);
        if (function)
            printf("%d\n", call_zeros(name_list[i], function));
        else
            puts("the driver lacks it");
    }
}

/* One call with these arguments, as integers. */
#define SAY(name, ...) say(#name, #__VA_ARGS__, look_up(#name), (const uintptr_t[12]){__VA_ARGS__})

static void say(const char *name, const char *arguments, any_function f, const uintptr_t a[12]) {
    printf("%s(%s): ", name, arguments);
    if (f)
        printf("%d\n", f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]));
    else
        puts("the driver lacks it");
}

static void begin(void) {
    alarm(60);
    SAY(cuInit, 0);
    SAY(cuDevicePrimaryCtxRetain, (uintptr_t)&primary, 0);
    SAY(cuCtxSetCurrent, (uintptr_t)primary);
    SAY(cuStreamCreate, (uintptr_t)&stream, 1);
    SAY(cuMemAlloc_v2, (uintptr_t)&plain, 4096);
    SAY(cuMemAllocAsync, (uintptr_t)&async, 4096, (uintptr_t)stream);
    SAY(cuStreamSynchronize, (uintptr_t)stream);
}

#define TO(object) ((uintptr_t) & (object))

/* Each pointer missing, each size 0. */
static void say_nulls(void) {
    CUdeviceptr p = 0;
    size_t bytes = 0, total = 0;
    CUstream made;
    CUgraph graph;
    CUcontext context;
    unsigned int value = 0;
    CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *data = &value, *function, *nothing = NULL;
    int status;
    CUmemoryPool pool = NULL;
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    SAY(cuDeviceGetDefaultMemPool, TO(pool), 0);

    SAY(cuMemAlloc_v2, 0, 16);
    SAY(cuMemAlloc_v2, TO(p), 0);
    SAY(cuMemAllocAsync, 0, 16, (uintptr_t)stream);
    SAY(cuMemAllocAsync, TO(p), 0, (uintptr_t)stream);
    printf("an empty allocation is NULL: %d\n", p == 0);
    SAY(cuMemAllocAsync, TO(p), 16, 0);
    SAY(cuMemFreeAsync, p, 0);
    SAY(cuMemAllocAsync_ptsz, 0, 16, 0);
    SAY(cuMemAllocAsync_ptsz, TO(p), 0, 0);
    SAY(cuMemAllocAsync_ptsz, TO(p), 16, 0);
    SAY(cuMemFreeAsync_ptsz, p, 0);
    SAY(cuMemFreeAsync_ptsz, 0, 0);
    SAY(cuMemAllocFromPoolAsync, 0, 16, (uintptr_t)pool, (uintptr_t)stream);
    SAY(cuMemAllocFromPoolAsync, TO(p), 0, (uintptr_t)pool, (uintptr_t)stream);
    SAY(cuMemAllocFromPoolAsync, TO(p), 16, 0, (uintptr_t)stream);
    SAY(cuMemAllocPitch_v2, 0, TO(bytes), 16, 1, 4);
    SAY(cuMemAllocPitch_v2, TO(p), 0, 16, 1, 4);
    SAY(cuMemAllocPitch_v2, TO(p), TO(bytes), 0, 1, 4);
    SAY(cuMemAllocPitch_v2, TO(p), TO(bytes), 16, 0, 4);
    SAY(cuMemAllocManaged, 0, 16, CU_MEM_ATTACH_GLOBAL);
    SAY(cuMemAllocManaged, TO(p), 0, CU_MEM_ATTACH_GLOBAL);

    SAY(cuMemGetInfo_v2, 0, TO(total));
    SAY(cuMemGetInfo_v2, TO(bytes), 0);
    printf("free at most total: %d\n", bytes <= total);
    for (int i = 0; i < 3; i++) {
        const CUdeviceptr of = i == 0 ? plain : i == 1 ? async : GARBAGE;
        printf("of %s:\n", i == 0 ? "plain" : i == 1 ? "async" : "garbage");
        SAY(cuMemGetAddressRange_v2, 0, TO(bytes), of);
        SAY(cuMemGetAddressRange_v2, TO(p), 0, of);
        SAY(cuMemGetAddressRange_v2, 0, 0, of);
        SAY(cuPointerGetAttribute, 0, CU_POINTER_ATTRIBUTE_RANGE_SIZE, of);
        SAY(cuPointerGetAttribute, TO(bytes), 0, of);
        SAY(cuPointerGetAttributes, 0, TO(asked), TO(data), of);
        SAY(cuPointerGetAttributes, 1, 0, TO(data), of);
        SAY(cuPointerGetAttributes, 1, TO(asked), 0, of);
        SAY(cuPointerGetAttributes, 1, TO(asked), TO(nothing), of);
        SAY(cuPointerSetAttribute, 0, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, of);
        SAY(cuPointerSetAttribute, TO(value), 0, of);
    }
    SAY(cuIpcGetMemHandle, 0, plain);
    SAY(cuMemPoolExportPointer, 0, async);

    SAY(cuGetProcAddress_v2, (uintptr_t) "cuMemAlloc", 0, 12000, 0, TO(status));
    SAY(cuGetProcAddress_v2, 0, TO(function), 12000, 0, TO(status));
    SAY(cuGetProcAddress_v2, (uintptr_t) "cuMemAlloc", TO(function), 12000, 0, 0);
    SAY(cuGetProcAddress_v2, (uintptr_t) "", TO(function), 0, 0, 0);
    SAY(cuGetProcAddress, (uintptr_t) "cuMemAlloc", 0, 12000, 0);
    SAY(cuGetProcAddress, 0, TO(function), 12000, 0);

    SAY(cuStreamCreate, 0, 0);
    SAY(cuStreamCreateWithPriority, 0, 0, 0);
    SAY(cuStreamCreateWithPriority, TO(made), 0, 0);
    SAY(cuStreamDestroy_v2, (uintptr_t)made);
    SAY(cuCtxCreate_v2, 0, 0, 0);
    SAY(cuCtxCreate_v3, 0, 0, 0, 0, 0);
    SAY(cuCtxCreate_v4, 0, 0, 0, 0);
    SAY(cuCtxCreate_v2, TO(context), 0, 77);
    SAY(cuDevicePrimaryCtxRetain, 0, 0);
    SAY(cuDevicePrimaryCtxRetain, TO(context), 77);
    SAY(cuCtxAttach, 0, 0);
    SAY(cuCtxAttach, TO(context), 1);
    SAY(cuCtxDetach, 0);
    SAY(cuCtxEnablePeerAccess, 0, 0);
    SAY(cuStreamEndCapture, (uintptr_t)stream, TO(graph));
    SAY(cuStreamEndCapture, (uintptr_t)stream, 0);
    SAY(cuStreamBeginCapture_v2, (uintptr_t)stream, 77);
    SAY(cuStreamBeginCaptureToGraph, (uintptr_t)stream, 0, 0, 0, 0, 0);
    SAY(cuDeviceSetMemPool, 0, 0);
    SAY(cuDeviceSetMemPool, 77, (uintptr_t)pool);
    SAY(cuMemPoolSetAccess, 0, TO(access), 1);
    SAY(cuMemPoolSetAccess, (uintptr_t)pool, TO(access), 0);
    SAY(cuMemPoolTrimTo, 0, 0);
    SAY(cuMemPoolTrimTo, (uintptr_t)pool, 0);
    SAY(cuMemPoolDestroy, 0);
    SAY(cuMemPoolDestroy, (uintptr_t)pool);
}

static void null_arguments(void) {
    say_zeros("before cuInit");
    begin();
    say_nulls();
    say_zeros("current context");
    SAY(cuMemFree_v2, async);
    printf("invariants broken: %s\n", broken_invariant());
}

/* ---- without a context ---- */

static void *bare(void *unused) {
    CUdeviceptr p = 0, base;
    size_t bytes, total;
    unsigned int value = 1;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    CUdeviceptr found;
    void *data[] = {&value, &found}, *function;
    CUmemoryPool pool = NULL;
    CUipcMemHandle handle;
    CUmemPoolPtrExportData exported;
    CUstream made = NULL;
    CUcontext context;
    CUgraph graph;
    (void)unused;
    SAY(cuDeviceGetDefaultMemPool, TO(pool), 0);
    SAY(cuMemAlloc_v2, TO(p), 4096);
    SAY(cuMemAlloc_v2, TO(p), 0);
    SAY(cuMemAllocPitch_v2, TO(p), TO(bytes), 16, 1, 4);
    SAY(cuMemAllocManaged, TO(p), 4096, CU_MEM_ATTACH_GLOBAL);
    SAY(cuMemAllocAsync, TO(p), 4096, 0);
    SAY(cuMemAllocAsync_ptsz, TO(p), 4096, 0);
    SAY(cuMemAllocAsync, TO(p), 4096, 2);
    SAY(cuMemAllocAsync, TO(p), 4096, (uintptr_t)stream);
    SAY(cuMemFree_v2, p);
    SAY(cuMemFreeAsync, p, 0);
    SAY(cuMemFreeAsync_ptsz, p, 0);
    SAY(cuMemFreeAsync, p, (uintptr_t)stream);
    SAY(cuMemAllocFromPoolAsync, TO(p), 4096, (uintptr_t)pool, 0);
    SAY(cuMemAllocFromPoolAsync, TO(p), 4096, (uintptr_t)pool, (uintptr_t)stream);
    SAY(cuMemFreeAsync, p, (uintptr_t)stream);
    SAY(cuMemGetInfo_v2, TO(bytes), TO(total));
    for (int i = 0; i < 4; i++) {
        static const char *const kinds[] = {"plain", "async", "past its end", "garbage"};
        const CUdeviceptr of = i == 0 ? plain : i == 1 ? async : i == 2 ? plain + 4096 : GARBAGE;
        printf("of %s:\n", kinds[i]);
        SAY(cuMemGetAddressRange_v2, TO(base), TO(bytes), of);
        SAY(cuPointerGetAttribute, TO(value), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, of);
        SAY(cuPointerGetAttribute, TO(found), CU_POINTER_ATTRIBUTE_DEVICE_POINTER, of);
        SAY(cuPointerGetAttribute, TO(bytes), CU_POINTER_ATTRIBUTE_RANGE_SIZE, of);
        SAY(cuPointerGetAttributes, 1, TO(asked), TO(data), of);
        SAY(cuPointerGetAttributes, 2, TO(asked), TO(data), of);
        SAY(cuPointerSetAttribute, TO(value), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, of);
        SAY(cuIpcGetMemHandle, TO(handle), of);
        if (i < 2) SAY(cuMemPoolExportPointer, TO(exported), of);
    }
    SAY(cuMemFree_v2, plain);
    SAY(cuMemFree_v2, async);
    SAY(cuMemFree_v2, 0);
    SAY(cuMemFree_v2, GARBAGE);
    SAY(cuMemFreeAsync, GARBAGE, (uintptr_t)stream);
    SAY(cuGetProcAddress, (uintptr_t) "cuMemAlloc", TO(function), 12000, 0);
    SAY(cuStreamCreate, TO(made), 0);
    SAY(cuStreamBeginCapture_v2, (uintptr_t)stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    SAY(cuMemAlloc_v2, TO(p), 4096);
    SAY(cuMemFree_v2, plain);
    SAY(cuMemAllocAsync, TO(p), 4096, (uintptr_t)stream);
    SAY(cuStreamEndCapture, (uintptr_t)stream, TO(graph));
    SAY(cuStreamBeginCapture_v2, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
    SAY(cuStreamBeginCapture_v2, 2, CU_STREAM_CAPTURE_MODE_RELAXED);
    SAY(cuCtxEnablePeerAccess, (uintptr_t)primary, 0);
    SAY(cuMemPoolTrimTo, (uintptr_t)pool, 0);
    SAY(cuDeviceSetMemPool, 0, (uintptr_t)pool);
    SAY(cuDevicePrimaryCtxRetain, TO(context), 0);
    SAY(cuDevicePrimaryCtxRelease_v2, 0);
    SAY(cuCtxDestroy_v2, (uintptr_t)primary);
    SAY(cuCtxDetach, (uintptr_t)primary);
    SAY(cuCtxAttach, TO(context), 0);
    say_zeros("no context");
    return NULL;
}

static void bare_thread(void) {
    pthread_t thread;
    begin();
    pthread_create(&thread, NULL, bare, NULL);
    pthread_join(thread, NULL);
    SAY(cuMemFree_v2, async);
    SAY(cuMemFree_v2, plain);
    printf("invariants broken: %s\n", broken_invariant());
}

int main(int argc, char **argv) {
    static const struct part parts[] = {{"null", null_arguments}, {"bare", bare_thread}};
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    names = argc > 2 ? argc - 2 : 0;
    name_list = argv + 2;
    return run_part(argc, argv, parts, COUNT(parts));
}
