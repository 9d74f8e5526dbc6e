/* SPDX-License-Identifier: MIT
 *
 * A program over the CUDA runtime that prints what its calls answer, for comparing a native run with a pooled one:
 * codes and yes/no, no addresses and no amounts. The first argument says which calls.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "sequence.h"

#define SAY(call)                                                                     \
    do {                                                                              \
        const int code_said = (int)(call);                                            \
        printf("%s: %d, last error %d\n", #call, code_said, (int)cudaGetLastError()); \
    } while (0)
/* Without fetching the last error. */
#define SAY_KEEPING(call)                                                                      \
    do {                                                                                       \
        const int code_said = (int)(call);                                                     \
        printf("%s: %d, last error stays %d\n", #call, code_said, (int)cudaPeekAtLastError()); \
    } while (0)

static void *const garbage = (void *)0x123456789000;

/* ---- answers to calls that are wrong or empty ---- */

static void say_sizes(void) {
    void *p = garbage;
    SAY(cudaMalloc(&p, 0));
    printf("pointer of size 0 is NULL: %d\n", p == NULL);
    SAY(cudaMalloc(NULL, 16));
    SAY(cudaMalloc(NULL, 0));
    SAY(cudaMalloc(&p, SIZE_MAX));
    SAY(cudaMalloc(&p, SIZE_MAX / 2));
    SAY(cudaMalloc(&p, (size_t)1 << 46));
    /* An error stays until it is fetched, whatever succeeds meanwhile. */
    SAY_KEEPING(cudaMalloc(&p, (size_t)1 << 46));
    SAY_KEEPING(cudaMalloc(&p, 4096));
    SAY_KEEPING(cudaFree(p));
    SAY_KEEPING(cudaFree(p));
    SAY(cudaGetLastError());
    SAY(cudaFree(NULL));
    SAY(cudaFreeAsync(NULL, 0));
    size_t a = 0, b = 0;
    SAY(cudaMemGetInfo(&a, &b));
    printf("free at most total: %d\n", a <= b && b > 0);
    SAY(cudaMemGetInfo(NULL, &b));
    SAY(cudaMemGetInfo(&a, NULL));
    SAY(cudaMemGetInfo(NULL, NULL));
}

static void say_bad_frees(void) {
    char *p, *q;
    int on_stack = 0;
    SAY(cudaMalloc((void **)&p, 3000));
    SAY(cudaMalloc((void **)&q, 3000));
    SAY(cudaFree(p + 1));
    SAY(cudaFree(p + 512));
    SAY(cudaFree(p + 2999));
    SAY(cudaFree(&on_stack));
    SAY(cudaFree(garbage));
    SAY(cudaFree(p));
    SAY(cudaFree(p));
    SAY(cudaFree(q));
    SAY(cudaFree(q));
    void *async;
    SAY(cudaMalloc((void **)&p, 3000));
    SAY(cudaFreeAsync(p, 0));
    SAY(cudaStreamSynchronize(0));
    SAY(cudaFreeAsync(p, 0));
    SAY(cudaFree(p));
    SAY(cudaMallocAsync(&async, 4096, 0));
    SAY(cudaFreeAsync(async, 0));
    SAY(cudaStreamSynchronize(0));
    SAY(cudaFreeAsync(async, 0));
}

/* Every producer × every free function. */
static void say_foreign(void) {
    void *p = NULL;
    size_t pitch;
    cudaStream_t stream;
    SAY(cudaStreamCreate(&stream));
    SAY(cudaMallocManaged(&p, 4096, cudaMemAttachGlobal));
    SAY(cudaFree(p));
    SAY(cudaFree(p));
    SAY(cudaMallocPitch(&p, &pitch, 100, 3));
    SAY(cudaFree(p));
    SAY(cudaMallocAsync(&p, 4096, stream));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaFree(p));
    SAY(cudaMallocAsync(&p, 4096, stream));
    SAY(cudaFreeAsync(p, stream));
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaFreeAsync(p, stream));
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaFreeAsync(p, cudaStreamPerThread));
    SAY(cudaMallocHost(&p, 4096));
    SAY(cudaFree(p));
    SAY(cudaFreeHost(p));
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaFreeHost(p));
    SAY(cudaFree(p));
    SAY(cudaStreamDestroy(stream));
}

static void say_attributes_of(const char *what, const void *p) {
    struct cudaPointerAttributes attributes = {.type = (enum cudaMemoryType)77, .device = 77};
    const int code = cudaPointerGetAttributes(&attributes, p);
    printf("%s: %d, type %d, device %d, is device pointer %d, is host pointer %d\n", what, code, (int)attributes.type,
           attributes.device, code == 0 && attributes.devicePointer == p, code == 0 && attributes.hostPointer == p);
}

static void say_attributes(void) {
    char *p, *first;
    int on_stack;
    SAY(cudaMalloc((void **)&first, 1000));
    SAY(cudaMalloc((void **)&p, 1000));
    say_attributes_of("start", p);
    say_attributes_of("inside", p + 999);
    say_attributes_of("host", &on_stack);
    printf("aligned: %d\n", (uintptr_t)p % 512 == 0);
    SAY(cudaFree(p));
    say_attributes_of("freed", p);
    SAY(cudaFree(first));
}

static void say_answers(void) {
    SAY(cudaFree(NULL));
    say_sizes();
    say_bad_frees();
    say_foreign();
    say_attributes();
}

/* ---- out of memory: more than the device has ---- */

static void say_out_of_memory(void) {
    enum { COUNT = 64 };
    void *p[COUNT], *one;
    int taken = 0, code = 0;
    while (taken < COUNT && (code = cudaMalloc(&p[taken], 2 * MIB)) == 0) taken++;
    printf("full: %d\n", code);
    SAY_KEEPING(cudaSuccess);
    SAY(cudaSuccess);
    SAY(cudaSuccess);
    SAY(cudaMalloc(&one, 2 * MIB));
    for (int i = 0; i < taken; i++) code |= cudaFree(p[i]);
    printf("freed: %d, last error %d\n", code, (int)cudaGetLastError());
    /* Fits only if what was freed has been given back. */
    SAY(cudaMalloc(&one, 40 * MIB));
    SAY(cudaFree(one));
    size_t pitch;
    SAY(cudaMallocPitch(&one, &pitch, 1 * MIB, 40));
    SAY(cudaFree(one));
    SAY(cudaMallocManaged(&one, 8 * MIB, cudaMemAttachGlobal));
    SAY(cudaFree(one));
    SAY(cudaMalloc(&one, 40 * MIB));
    SAY(cudaFree(one));
}

/* ---- neighbours stay whole ---- */

static int holds(const char *p, size_t bytes, char value) {
    static char copy[MIB];
    if (cudaMemcpy(copy, p, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) return 0;
    for (size_t i = 0; i < bytes; i++)
        if (copy[i] != value) return 0;
    return 1;
}

static void say_neighbours(void) {
    char *p[4], *again;
    for (int i = 0; i < 4; i++) {
        SAY(cudaMalloc((void **)&p[i], 4096));
        SAY(cudaMemset(p[i], i + 1, 4096));
    }
    SAY(cudaFree(p[0])); /* at its segment's base, with live neighbours */
    SAY(cudaFree(p[0]));
    SAY(cudaFreeAsync(p[0], 0));
    SAY(cudaFree(p[2]));
    SAY(cudaFree(p[2]));
    SAY(cudaFree(p[1] + 256));
    SAY(cudaFreeAsync(p[1] + 512, 0));
    printf("neighbours hold: %d %d\n", holds(p[1], 4096, 2), holds(p[3], 4096, 4));
    SAY(cudaMalloc((void **)&again, 4096));
    SAY(cudaMemset(again, 9, 4096));
    printf("neighbours hold: %d %d\n", holds(p[1], 4096, 2), holds(p[3], 4096, 4));
    SAY(cudaFree(again));
    SAY(cudaFree(p[1]));
    SAY(cudaFree(p[3]));
}

/* ---- memory info, reset, threads ---- */

static void say_memory_info(void) {
    size_t before, after, total, during;
    void *p[3];
    SAY(cudaFree(NULL));
    SAY(cudaMemGetInfo(&before, &total));
    for (int i = 0; i < 3; i++) SAY(cudaMalloc(&p[i], 20 * MIB));
    SAY(cudaMemGetInfo(&during, &total));
    printf("gone while live: %d\n", before - during >= 60 * MIB);
    for (int i = 0; i < 3; i++) SAY(cudaFree(p[i]));
    SAY(cudaMemGetInfo(&after, &total));
    printf("free after the frees as before: %d\n", after == before);
}

static void say_reset(void) {
    char *p, *q;
    SAY(cudaMalloc((void **)&p, 4096));
    SAY(cudaMalloc((void **)&q, 4096));
    SAY(cudaFree(p)); /* cached */
    SAY(cudaDeviceReset());
    SAY(cudaFree(q));
    SAY(cudaMalloc((void **)&p, 4096));
    SAY(cudaMemset(p, 5, 4096));
    printf("new memory works: %d\n", holds(p, 4096, 5));
    SAY(cudaFree(p));
    SAY(cudaDeviceReset());
    SAY(cudaDeviceReset());
    SAY(cudaMalloc((void **)&p, 4096));
    SAY(cudaFree(p));
}

static void *bare_thread(void *pointer) {
    void *p;
    SAY(cudaFree(pointer));
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaFree(p));
    return NULL;
}

static void say_threads(void) {
    pthread_t thread;
    void *p;
    SAY(cudaMalloc(&p, 4096));
    pthread_create(&thread, NULL, bare_thread, p); /* no context is current there */
    pthread_join(thread, NULL);
    SAY(cudaFree(p));
}

static void say_devices(void) {
    void *p, *q;
    struct cudaPointerAttributes attributes;
    SAY(cudaSetDevice(1));
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaSetDevice(0));
    SAY(cudaMalloc(&q, 4096));
    cudaPointerGetAttributes(&attributes, p);
    printf("first on device %d\n", attributes.device);
    cudaPointerGetAttributes(&attributes, q);
    printf("second on device %d\n", attributes.device);
    SAY(cudaFree(p)); /* with the other device current */
    SAY(cudaSetDevice(1));
    SAY(cudaMalloc(&p, 4096));
    cudaPointerGetAttributes(&attributes, p);
    printf("again on device %d\n", attributes.device);
    SAY(cudaFree(q));
    SAY(cudaFree(p));
}

/* ---- errno ---- */

static void say_errno(void) {
    void *p;
    size_t a, b;
#define KEEPS(call) \
    errno = 77;     \
    (void)(call);   \
    printf("%s: errno %s\n", #call, errno == 77 ? "kept" : "changed")
    KEEPS(cudaMalloc(&p, 4096));
    KEEPS(cudaFree(p));
    KEEPS(cudaFree(p));
    KEEPS(cudaMalloc(&p, 4096));
    KEEPS(cudaFreeAsync(p, 0));
    KEEPS(cudaMalloc(&p, SIZE_MAX));
    KEEPS(cudaMalloc(&p, 0));
    KEEPS(cudaMalloc(&p, 40 * MIB));
    KEEPS(cudaMemGetInfo(&a, &b));
    KEEPS(cudaFree(p));
    KEEPS(cudaFree(garbage));
    KEEPS(cudaMallocAsync(&p, 4096, 0));
    KEEPS(cudaFreeAsync(p, 0));
    KEEPS(cudaDeviceReset());
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {{"answers", say_answers},       {"out_of_memory", say_out_of_memory},
                 {"neighbours", say_neighbours}, {"memory_info", say_memory_info},
                 {"reset", say_reset},           {"threads", say_threads},
                 {"devices", say_devices},       {"errno", say_errno}};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc >= 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        parts[i].say();
        if (argc == 3) wait_for_reader();
        return 0;
    }
    return 2;
}
