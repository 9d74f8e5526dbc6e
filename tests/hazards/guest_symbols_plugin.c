/* SPDX-License-Identifier: MIT
 *
 * A plug-in bound to a CUDA runtime of its own. With THREAD, its constructor waits for a thread that makes calls:
 * through the runtime, or with DRIVER through the driver.
 */
#include <pthread.h>
#include <stdio.h>

#include "sequence.h"

#ifdef DRIVER
#include <cuda.h>
#endif

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);
int cudaGetLastError(void);
int plugin_sequence(void);
int plugin_take(void **out, size_t bytes);
int plugin_give_back(void *address);
int plugin_last_error(void);

#ifdef DRIVER

static int first_use(void) {
    CUcontext context;
    return (int)cuInit(0) || (int)cuDevicePrimaryCtxRetain(&context, 0) || (int)cuCtxSetCurrent(context);
}

static int take(void **out, size_t bytes) {
    return (int)cuMemAlloc((CUdeviceptr *)out, bytes);
}

static int give_back(void *address) {
    return (int)cuMemFree((CUdeviceptr)address);
}

#else

static int first_use(void) {
    return 0;
}

static int take(void **out, size_t bytes) {
    const volatile int code = cudaMalloc(out, bytes); /* no jump: the call is to return to here */
    return code;
}

static int give_back(void *address) {
    const volatile int code = cudaFree(address);
    return code;
}

int plugin_last_error(void) {
    return cudaGetLastError();
}

#endif

int plugin_sequence(void) {
    return run_sequence(take, give_back);
}

int plugin_take(void **out, size_t bytes) {
    return take(out, bytes);
}

int plugin_give_back(void *address) {
    return give_back(address);
}

#ifdef THREAD

static void *use(void *unused) {
    (void)unused;
    if (first_use()) puts("not to be used");
    printf("thread's sequence: %d\n", plugin_sequence());
    return NULL;
}

static void __attribute__((constructor)) loaded(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, use, NULL) == 0) pthread_join(thread, NULL);
    puts("the constructor ends");
}

#else

void *plugin_unused = (void *)first_use;

#endif
