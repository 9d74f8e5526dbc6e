/* SPDX-License-Identifier: MIT
 *
 * A program over the driver (-lcuda) that prints what its calls answer, for comparing a native run with a pooled one:
 * codes and yes/no, no addresses and no amounts. The first argument says which calls.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "sequence.h"

#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static const CUdeviceptr garbage = 0x123456789000;
static CUcontext primary;

static void begin(void) {
    SAY(cuInit(0));
    SAY(cuDevicePrimaryCtxRetain(&primary, 0));
    SAY(cuCtxSetCurrent(primary));
}

/* ---- answers to calls that are wrong or empty ---- */

static void say_memory(void) {
    CUdeviceptr p = 0, q = 0;
    SAY(cuMemAlloc(&p, 0));
    SAY(cuMemAlloc(NULL, 16));
    SAY(cuMemAlloc(NULL, 0));
    SAY(cuMemAlloc(&p, SIZE_MAX));
    SAY(cuMemFree(0));
    SAY(cuMemFree(garbage));
    SAY(cuMemFreeAsync(0, NULL));
    SAY(cuMemAlloc(&p, 1000));
    SAY(cuMemAlloc(&q, 1000));
    SAY(cuMemFree(p + 1));
    SAY(cuMemFree(p + 512));
    SAY(cuMemFreeAsync(p + 512, NULL));
    SAY(cuMemFree(p));
    SAY(cuMemFree(p));
    SAY(cuMemFree(q));
    SAY(cuMemFree(q));
    SAY(cuMemAlloc(&p, 1000));
    SAY(cuMemFreeAsync(p, CU_STREAM_LEGACY));
    SAY(cuMemAlloc(&p, 1000));
    SAY(cuMemFreeAsync(p, CU_STREAM_PER_THREAD));
    SAY(cuMemFreeAsync(p, CU_STREAM_PER_THREAD));
    size_t a, b;
    SAY(cuMemGetInfo(&a, &b));
    SAY(cuMemGetInfo(NULL, &b));
    SAY(cuMemGetInfo(&a, NULL));
    SAY(cuMemGetInfo(NULL, NULL));
}

static void say_range(const char *what, CUdeviceptr p, CUdeviceptr start) {
    CUdeviceptr base = 0;
    size_t size = 0;
    const CUresult result = cuMemGetAddressRange(&base, &size, p);
    printf("range %s: %d, size %zu, starts there %d\n", what, (int)result, size, base == start);
    printf("range %s, size alone: %d\n", what, (int)cuMemGetAddressRange(NULL, &size, p));
    printf("range %s, base alone: %d\n", what, (int)cuMemGetAddressRange(&base, NULL, p));
    printf("range %s, nothing: %d\n", what, (int)cuMemGetAddressRange(NULL, NULL, p));
}

static void say_attributes(const char *what, CUdeviceptr p, CUdeviceptr start) {
    CUdeviceptr base = 0, device_pointer = 0;
    size_t size = 0;
    unsigned int type = 77, managed = 77;
    int ordinal = 77;
    void *host = NULL, *context = NULL, *pool = &host;
    unsigned long long id = 0;
    printf("%s: memory type %d", what, (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    printf(" is %u\n", type);
    printf("%s: managed %d", what, (int)cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    printf(" is %u\n", managed & 0xff);
    printf("%s: ordinal %d", what, (int)cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    printf(" is %d\n", ordinal);
    printf("%s: start %d", what, (int)cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
    printf(" is right %d\n", base == start);
    printf("%s: size %d", what, (int)cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    printf(" is %zu\n", size);
    printf("%s: device pointer %d", what,
           (int)cuPointerGetAttribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p));
    printf(" is the pointer %d\n", device_pointer == p);
    printf("%s: host pointer %d\n", what, (int)cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
    printf("%s: context %d", what, (int)cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    printf(" is the primary %d\n", context == primary);
    printf("%s: pool %d", what, (int)cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    printf(" is none %d\n", pool == NULL);
    printf("%s: id %d\n", what, (int)cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    printf("%s: no data %d\n", what, (int)cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    printf("%s: no such attribute %d\n", what, (int)cuPointerGetAttribute(&size, (CUpointer_attribute)999, p));

    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&type, &base, &size, &host, &ordinal};
    type = 77, base = 1, size = 1, host = NULL, ordinal = 77;
    printf("%s: all at once %d", what, (int)cuPointerGetAttributes(5, asked, data, p));
    printf(" are %u %d %zu %d %d\n", type, base == start, size, host == (void *)(uintptr_t)p, ordinal);
}

static unsigned long long id_of(CUdeviceptr p) {
    unsigned long long id = 0;
    cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
    return id;
}

static void say_queries(void) {
    CUdeviceptr p, q, odd;
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuMemAlloc(&odd, 1000));
    SAY(cuMemAlloc(&q, 4096));
    say_range("at the start", odd, odd);
    say_range("inside", odd + 999, odd);
    say_range("past the end", odd + 1000, 0);
    say_range("of garbage", garbage, 0);
    say_range("of NULL", 0, 0);
    say_attributes("start", odd, odd);
    say_attributes("inside", odd + 999, odd);
    say_attributes("past the end", odd + 1000, 0);
    say_attributes("garbage", garbage, 0);
    const unsigned long long id = id_of(odd);
    printf("ids differ: %d\n", id != id_of(p) && id != id_of(q) && id_of(p) != id_of(q) && id == id_of(odd + 999));
    unsigned int yes = 1;
    SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, odd));
    SAY(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, odd));
    SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, odd));
    SAY(cuMemFree(odd));
    SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, odd));
    say_range("of freed memory", odd, 0);
    say_attributes("freed", odd, 0);
    CUdeviceptr again;
    SAY(cuMemAlloc(&again, 1000));
    printf("id is new: %d\n", id_of(again) != id);
    SAY(cuMemFree(again));
    SAY(cuMemFree(p));
    SAY(cuMemFree(q));
}

/* Every producer × every free function. */
static void say_foreign(void) {
    CUdeviceptr p = 0;
    size_t pitch;
    CUstream stream;
    SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemFree(p));
    SAY(cuMemFree(p));
    SAY(cuMemAllocPitch(&p, &pitch, 100, 3, 4));
    SAY(cuMemFree(p));
    SAY(cuMemAllocAsync(&p, 4096, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFree(p));
    SAY(cuMemAllocAsync(&p, 4096, stream));
    SAY(cuMemFreeAsync(p, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFreeAsync(p, stream));
    SAY(cuStreamDestroy(stream));
}

static void *no_context(void *argument) {
    const CUdeviceptr block = *(CUdeviceptr *)argument;
    CUdeviceptr p = 0;
    size_t a, b;
    CUipcMemHandle handle;
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuIpcGetMemHandle(&handle, block));
    SAY(cuMemGetAddressRange(&p, &a, block));
    SAY(cuMemGetAddressRange(&p, &a, block + 4096));
    SAY(cuMemFree(block));
    SAY(cuMemFree(garbage));
    SAY(cuMemFree(0));
    SAY(cuMemFreeAsync(block, NULL));
    SAY(cuMemGetInfo(&a, &b));
    SAY(cuMemAllocAsync(&p, 4096, NULL));
    SAY(cuCtxSetCurrent(primary));
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuMemFree(p));
    return NULL;
}

static void say_bare_thread(void) {
    pthread_t thread;
    CUdeviceptr block;
    CUdeviceptr first;
    SAY(cuMemAlloc(&first, 4096));
    SAY(cuMemAlloc(&block, 4096));
    pthread_create(&thread, NULL, no_context, &block);
    pthread_join(thread, NULL);
    SAY(cuMemFree(block));
    SAY(cuMemFree(first));
}

static void say_before_init(void) {
    CUdeviceptr p = 0;
    size_t a, b;
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuMemFree(garbage));
    SAY(cuMemFree(0));
    SAY(cuMemGetInfo(&a, &b));
    SAY(cuMemGetAddressRange(&p, &a, garbage));
}

static void say_answers(void) {
    say_before_init();
    begin();
    say_memory();
    say_queries();
    say_foreign();
    say_bare_thread();
}

/* ---- the ends of contexts ---- */

static void say_alloc_write_free(const char *when) {
    CUdeviceptr p = 0;
    int code = (int)cuMemAlloc(&p, 4096);
    char byte = 0;
    int written = code ? 0 : (int)cuMemsetD8(p, 7, 4096) || (int)cuMemcpyDtoH(&byte, p + 4095, 1);
    printf("%s: allocate %d, write %d, reads back %d, free %d\n", when, code, written, code || byte == 7,
           code ? 0 : (int)cuMemFree(p));
}

static void say_contexts(void) {
    CUdeviceptr kept = 0, in_created = 0;
    begin();
    SAY(cuMemAlloc(&kept, 4096));
    say_alloc_write_free("primary");
    SAY(cuDevicePrimaryCtxReset(0));
    SAY(cuDevicePrimaryCtxRetain(&primary, 0));
    SAY(cuCtxSetCurrent(primary));
    SAY(cuMemFree(kept)); /* of the life before */
    say_alloc_write_free("after a reset");
    SAY(cuMemAlloc(&kept, 4096));
    SAY(cuDevicePrimaryCtxRetain(&primary, 0));
    SAY(cuDevicePrimaryCtxRelease(0)); /* not the last */
    say_alloc_write_free("after a release");
    char byte = 1;
    SAY(cuMemsetD8(kept, 3, 4096));
    SAY(cuMemcpyDtoH(&byte, kept, 1));
    printf("kept block reads %d\n", byte);
    SAY(cuMemFree(kept));

    CUcontext created;
    SAY(cuCtxCreate(&created, NULL, 0, 0));
    say_alloc_write_free("created");
    SAY(cuMemAlloc(&in_created, 4096));
    SAY(cuCtxDestroy(created));
    SAY(cuCtxSetCurrent(primary));
    say_alloc_write_free("primary again");

    int active = 1;
    unsigned int flags;
    for (int i = 0; active && i < 8; i++) {
        SAY(cuDevicePrimaryCtxRelease(0));
        SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    }
    printf("active: %d\n", active);
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuDevicePrimaryCtxRetain(&primary, 0));
    SAY(cuCtxSetCurrent(primary));
    say_alloc_write_free("revived");
    SAY(cuDevicePrimaryCtxReset(5));
    SAY(cuDevicePrimaryCtxRelease(5));
    SAY(cuCtxDestroy(NULL));
    SAY(cuCtxDestroy(primary)); /* not the program's to destroy */
    say_alloc_write_free("after all");
}

/* Allocate on one device, free with another current, and with none. */
static void say_devices(void) {
    CUcontext other;
    CUdeviceptr p;
    int ordinal = 7;
    begin();
    SAY(cuDevicePrimaryCtxRetain(&other, 1));
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuCtxSetCurrent(other));
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    printf("on device %d\n", ordinal);
    SAY(cuMemFree(p));
    say_alloc_write_free("on the other");
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    printf("on device %d\n", ordinal);
    SAY(cuCtxSetCurrent(primary));
    SAY(cuMemFree(p));
    SAY(cuDevicePrimaryCtxReset(1));
    say_alloc_write_free("on the first");
}

/* ---- captures ---- */

static void say_capture(CUstreamCaptureMode mode) {
    CUstream stream;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUdeviceptr before, p = 0, async = 0;
    printf("mode %d\n", (int)mode);
    SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuMemAlloc(&before, 4096));
    SAY(cuStreamBeginCapture(stream, mode));
    SAY(cuMemAllocAsync(&async, 4096, stream));
    SAY(cuMemFreeAsync(async, stream));
    SAY(cuStreamIsCapturing(stream, &status));
    printf("status %d\n", (int)status);
    const int code = (int)cuMemAlloc(&p, 4096);
    printf("allocate: %d\n", code);
    SAY(cuStreamIsCapturing(stream, &status));
    printf("status %d\n", (int)status);
    printf("free: %d\n", (int)cuMemFree(code ? before : p));
    SAY(cuStreamIsCapturing(stream, &status));
    printf("status %d\n", (int)status);
    SAY(cuStreamEndCapture(stream, &graph));
    printf("graph: %d\n", graph != NULL);
    if (graph) SAY(cuGraphDestroy(graph));
    SAY(cuMemFree(before));
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(cuStreamBeginCapture(NULL, mode));
    SAY(cuStreamDestroy(stream));
    say_alloc_write_free("after the capture");
}

/* Stream-ordered frees of blocks beside a capture and inside it. */
static void say_frees_beside_a_capture(CUstreamCaptureMode mode) {
    CUstream capturing, other;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUdeviceptr p, q, r;
    printf("mode %d\n", (int)mode);
    SAY(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuMemAlloc(&q, 4096));
    SAY(cuMemAlloc(&r, 4096));
    SAY(cuMemsetD8Async(p, 1, 4096, other));
    SAY(cuStreamBeginCapture(capturing, mode));
    SAY(cuMemFreeAsync(p, other));
    SAY(cuMemFreeAsync(q, CU_STREAM_PER_THREAD));
    SAY(cuStreamIsCapturing(capturing, &status));
    printf("status %d\n", (int)status);
    SAY(cuStreamEndCapture(capturing, &graph));
    SAY(cuMemFreeAsync(p, other));
    SAY(cuStreamBeginCapture(capturing, mode));
    SAY(cuMemFreeAsync(r, capturing)); /* refused */
    printf("ended: %d\n", cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS || graph == NULL);
    SAY(cuMemFree(r));
    SAY(cuStreamDestroy(other));
    SAY(cuStreamDestroy(capturing));
}

static void say_captures(void) {
    begin();
    say_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    say_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    say_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    say_frees_beside_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    say_frees_beside_a_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    say_frees_beside_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Captures whose end nobody announces; afterwards the sequence is to be served again. */
static int take(void **out, size_t bytes) {
    CUdeviceptr p;
    const CUresult result = cuMemAlloc(&p, bytes);
    if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)p;
    return (int)result;
}

static int give_back(void *p) {
    return (int)cuMemFree((CUdeviceptr)(uintptr_t)p);
}

static void say_lost_captures(void) {
    CUstream stream;
    CUgraph graph;
    CUdeviceptr p;
    begin();
    SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED)); /* refused */
    SAY(cuMemAlloc(&p, 4096));                                         /* passes */
    SAY(cuMemFree(p));
    SAY(cuStreamDestroy(stream)); /* while it captures */
    SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(cuMemAlloc(&p, 4096)); /* refused, and breaks the capture */
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuDevicePrimaryCtxReset(0)); /* while it captures */
    SAY(cuDevicePrimaryCtxRetain(&primary, 0));
    SAY(cuCtxSetCurrent(primary));
    printf("sequence: %d\n", run_sequence(take, give_back));
}

/* ---- exports ---- */

static void say_exports(void) {
    CUdeviceptr first, second;
    CUipcMemHandle one, two;
    CUmemPoolPtrExportData data;
    begin();
    SAY(cuMemAlloc(&first, 4096));
    SAY(cuMemAlloc(&second, 4096));
    printf("a block that starts its segment: %d\n", (int)cuIpcGetMemHandle(&one, first));
    printf("an address in it: %d\n", (int)cuIpcGetMemHandle(&two, first + 100));
    printf("same handle: %d\n", memcmp(&one, &two, sizeof one) == 0);
    printf("a later block: %d\n", (int)cuIpcGetMemHandle(&two, second));
    for (int i = 0; i < 2; i++) {
        unsigned long long capable = 0;
        const int code =
            (int)cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, i ? second : first);
        printf("%s: %d, capable: %llu\n", i ? "later" : "first", code, capable & 0xff);
    }
    printf("pool export: %d %d\n", (int)cuMemPoolExportPointer(&data, first),
           (int)cuMemPoolExportPointer(&data, second));
    SAY(cuMemFree(first));
    printf("freed: %d\n", (int)cuIpcGetMemHandle(&one, first));
    SAY(cuMemFree(second));
}

/* ---- errno ---- */

static void say_errno(void) {
    CUdeviceptr p = 0, base;
    CUstream stream;
    CUgraph graph;
    size_t a, b;
    unsigned int value;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *data = &value, *function;
    begin();
#define KEEPS(call) \
    errno = 77;     \
    (void)(call);   \
    printf("%s: errno %s\n", #call, errno == 77 ? "kept" : "changed")
    KEEPS(cuMemAlloc(&p, 4096));
    KEEPS(cuMemGetAddressRange(&base, &a, p));
    KEEPS(cuPointerGetAttribute(&value, attribute, p));
    KEEPS(cuPointerGetAttributes(1, &attribute, &data, p));
    KEEPS(cuMemFree(p));
    KEEPS(cuMemFree(p));
    KEEPS(cuMemGetInfo(&a, &b));
    KEEPS(cuMemAlloc(&p, 40 * MIB));
    KEEPS(cuMemFreeAsync(p, NULL));
    KEEPS(cuMemAlloc(&p, SIZE_MAX));
    KEEPS(cuMemAllocAsync(&p, 4096, NULL));
    KEEPS(cuMemFreeAsync(p, NULL));
    KEEPS(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
    KEEPS(cuMemFree(p));
    KEEPS(cuGetProcAddress("cuMemAlloc", &function, 12000, 0, NULL));
    KEEPS(cuStreamCreate(&stream, 1));
    KEEPS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    KEEPS(cuMemAlloc(&p, 4096));
    KEEPS(cuStreamEndCapture(stream, &graph));
    KEEPS(cuStreamDestroy(stream));
    KEEPS(cuDevicePrimaryCtxReset(0));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {{"answers", say_answers},   {"contexts", say_contexts},           {"devices", say_devices},
                 {"captures", say_captures}, {"lost_captures", say_lost_captures}, {"exports", say_exports},
                 {"errno", say_errno}};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc >= 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        parts[i].say();
        if (argc == 3) wait_for_reader();
        return 0;
    }
    return 2;
}
