/* SPDX-License-Identifier: MIT
 *
 * A program whose calls are known, to be recorded: trace_guest MODE. It prints a line for each call: what, the address,
 * the size, the runtime's answer; and `thread N` where another thread goes on.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

static void *allocate(size_t bytes) {
    void *address = NULL;
    const cudaError_t code = cudaMalloc(&address, bytes);
    printf("a %p %zu %d\n", address, bytes, (int)code);
    return address;
}

static void release(void *address) {
    printf("f %p 0 %d\n", address, (int)cudaFree(address));
}

static void *allocate_async(size_t bytes, cudaStream_t stream) {
    void *address = NULL;
    const cudaError_t code = cudaMallocAsync(&address, bytes, stream);
    printf("a %p %zu %d\n", address, bytes, (int)code);
    return address;
}

static void release_async(void *address, cudaStream_t stream) {
    printf("f %p 0 %d\n", address, (int)cudaFreeAsync(address, stream));
}

static void *in_thread(void *arg) {
    printf("thread %ld\n", (long)gettid());
    release(arg);
    return allocate(4000);
}

/* Every door's outcome by the runtime: hits, a miss, out of memory, wrong frees, two streams, another thread. */
static void calls(void) {
    cudaStream_t streams[2];
    void *blocks[3], *moved;
    pthread_t thread;
    printf("thread %ld\n", (long)gettid());
    blocks[0] = allocate(1000);
    blocks[1] = allocate(2000);
    blocks[2] = allocate(40u << 20);
    release(blocks[0]);
    release(blocks[0]);
    allocate((size_t)1 << 45);
    release((void *)0x1234);
    release(NULL);
    for (int i = 0; i < 2; i++) cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
    moved = allocate_async(3000, streams[0]);
    release_async(moved, streams[1]);
    moved = allocate_async(5000, streams[1]);
    release(moved);
    fflush(stdout);
    pthread_create(&thread, NULL, in_thread, blocks[1]);
    pthread_join(thread, &moved);
    printf("thread %ld\n", (long)gettid());
    release(moved);
    release(blocks[2]);
}

/* By the driver's own functions, as a static runtime calls them. */
static void driver(void) {
    CUdeviceptr address = 0;
    CUstream stream;
    cudaFree(NULL);
    printf("thread %ld\n", (long)gettid());
    const CUresult code = cuMemAlloc(&address, 1000);
    printf("a %p 1000 %d\n", (void *)(uintptr_t)address, (int)code);
    printf("f %p 0 %d\n", (void *)(uintptr_t)address, (int)cuMemFree(address));
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    const CUresult ordered = cuMemAllocAsync(&address, 2000, stream);
    printf("a %p 2000 %d\n", (void *)(uintptr_t)address, (int)ordered);
    printf("f %p 0 %d\n", (void *)(uintptr_t)address, (int)cuMemFreeAsync(address, stream));
}

/* In a capture the calls are the driver's; so is a cudaMalloc beside it. */
static void capture(void) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaFree(NULL);
    printf("thread %ld\n", (long)gettid());
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    void *node = allocate_async(1000, stream);
    release_async(node, stream);
    void *plain = allocate(3 << 20);
    release(plain);
    cudaStreamEndCapture(stream, &graph);
}

static void many(size_t pairs) {
    void *blocks[64];
    for (int i = 0; i < 64; i++) cudaMalloc(&blocks[i], 1000);
    for (size_t i = 0; i < pairs; i++) {
        cudaFree(blocks[i % 64]);
        cudaMalloc(&blocks[i % 64], 1000 + i % 1000);
    }
}

static void run(const char *mode, char **argv) {
    if (strcmp(mode, "calls") == 0) calls();
    if (strcmp(mode, "driver") == 0) driver();
    if (strcmp(mode, "capture") == 0) capture();
    if (strcmp(mode, "many") == 0) many(20000);
    if (strcmp(mode, "kill") == 0) {
        many(20000);
        kill(getpid(), SIGKILL);
    }
    if (strcmp(mode, "exec") == 0) {
        allocate(1000);
        fflush(stdout);
        execl(argv[0], argv[0], "many", NULL);
    }
    if (strcmp(mode, "fork") == 0) {
        /* A child before the first call is pooled as any process; one after it passes everything through. */
        if (fork() == 0) {
            printf("child %ld\n", (long)getpid());
            allocate(7000);
            exit(0);
        }
        wait(NULL);
        allocate(1000);
        fflush(stdout);
        if (fork() == 0) {
            printf("child %ld\n", (long)getpid());
            allocate(8000);
            exit(0);
        }
        wait(NULL);
        allocate(2000);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    run(argv[1], argv);
    return 0;
}
