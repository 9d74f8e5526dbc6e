/* SPDX-License-Identifier: MIT
 *
 * The same as guest_contexts.c over the runtime: blocks freed with another device chosen and in threads that never
 * touched CUDA; resets, with what they leave. Prints what the calls answer and the last error after each.
 */
#include "guest_pointers.h"

#include <pthread.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

static int said(int code) {
    printf(" %d", code);
    if (cudaPeekAtLastError() != cudaSuccess) printf("(last error %d)", (int)cudaGetLastError());
    return code;
}

static int take(int async, void **p, size_t bytes) {
    return (int)(async ? cudaMallocAsync(p, bytes, 0) : cudaMalloc(p, bytes));
}

static int device_of(const void *p) {
    struct cudaPointerAttributes attributes = {.device = 77};
    cudaPointerGetAttributes(&attributes, p);
    return attributes.device;
}

static void *in_a_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, function, argument);
    pthread_join(thread, &result);
    return result;
}

static void *free_bare(void *p) {
    said((int)cudaFree(p));
    return NULL;
}

static void *free_async_bare(void *p) {
    said((int)cudaFreeAsync(p, 0));
    said((int)cudaDeviceSynchronize());
    return NULL;
}

static void *use_bare(void *unused) {
    void *p = NULL, *q = NULL;
    size_t bytes, total;
    (void)unused;
    said((int)cudaMemGetInfo(&bytes, &total));
    said((int)cudaMallocAsync(&p, 4096, 0));
    said((int)cudaMalloc(&q, 4096));
    said((int)cudaFreeAsync(q, 0));
    said((int)cudaFree(p));
    return NULL;
}

static void devices(void) {
    void *p[4];
    for (int async = 0; async < 2; async++) {
        printf("%s:", async ? "async" : "plain");
        said((int)cudaSetDevice(0));
        for (int i = 0; i < 4; i++) said(take(async, &p[i], i ? 4096 : 40 * MIB));
        said((int)cudaDeviceSynchronize());
        said((int)cudaSetDevice(1));
        printf("; on device %d, with the other chosen:", device_of(p[0]));
        said((int)cudaFree(p[0]));
        said((int)cudaFree(p[0]));
        printf("; in bare threads:");
        in_a_thread(free_bare, p[1]);
        in_a_thread(free_bare, p[1]);
        in_a_thread(free_async_bare, p[2]);
        in_a_thread(free_bare, (void *)GARBAGE);
        in_a_thread(free_bare, NULL);
        in_a_thread(use_bare, NULL);
        printf("; on the second:");
        said((int)cudaFreeAsync(p[3], 0));
        said((int)cudaDeviceSynchronize());
        for (int device = 1; device >= 0; device--) {
            said((int)cudaSetDevice(device));
            said(take(async, &p[0], 40 * MIB));
            printf(" is on %d", device_of(p[0]));
            said((int)cudaFree(p[0]));
        }
        printf("; invariants broken: %s\n", broken_invariant());
    }
}

static void lives(void) {
    for (int round = 0; round < 4; round++) {
        char *cached, *live, *again = NULL, byte = 0;
        void *async[3];
        printf("round %d:", round);
        said((int)cudaMalloc((void **)&cached, 3 * MIB));
        said((int)cudaMalloc((void **)&live, 4096));
        for (int i = 0; i < 3; i++) said((int)cudaMallocAsync(&async[i], 4096, 0));
        said((int)cudaMemset(live, 1, 4096));
        said((int)cudaFree(cached));
        printf("; reset:");
        said((int)cudaDeviceReset());
        printf("; what survives:");
        /* The first call after it, in turn. */
        if (round == 0) said((int)cudaFree(async[0]));
        if (round == 1) said((int)cudaFreeAsync(async[0], 0));
        if (round == 2) in_a_thread(free_bare, async[0]);
        if (round == 3) in_a_thread(free_async_bare, async[0]);
        said((int)cudaFree(async[0]));
        said((int)cudaFreeAsync(async[1], 0));
        said((int)cudaFree(async[2]));
        said((int)cudaFree(async[2]));
        printf("; old:");
        said((int)cudaFree(live));
        said((int)cudaFree(cached));
        said((int)cudaFreeAsync(live, 0));
        printf("; new:");
        said((int)cudaMalloc((void **)&again, 3 * MIB));
        said((int)cudaMemset(again, 5, 3 * MIB));
        said((int)cudaMemcpy(&byte, again + 3 * MIB - 1, 1, cudaMemcpyDeviceToHost));
        said((int)cudaFree(again));
        printf("; reads %d; invariants broken: %s\n", byte, broken_invariant());
    }
}

int main(int argc, char **argv) {
    static const struct part parts[] = {{"devices", devices}, {"lives", lives}};
    alarm(60);
    return run_part(argc, argv, parts, COUNT(parts));
}
