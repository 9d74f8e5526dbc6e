/* SPDX-License-Identifier: MIT
 *
 * A thread is inside the driver for long, since it needs a segment; another one's allocations and frees, which need
 * none, go on meanwhile. Prints how many of them did, or that the machine was too busy to tell.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

enum { PAIRS = 100, SMALL = 4096, LARGE = 64 << 20 };

static int async;
static atomic_int begun, ended;
static cudaStream_t streams[2];

static int take(void **block, size_t bytes, cudaStream_t stream) {
    return async ? cudaMallocAsync(block, bytes, stream) : cudaMalloc(block, bytes);
}

static int give(void *block, cudaStream_t stream) {
    return async ? cudaFreeAsync(block, stream) : cudaFree(block);
}

static void *take_long(void *argument) {
    void *block;
    atomic_store(&begun, 1);
    if (take(&block, LARGE, streams[1])) printf("no memory\n");
    atomic_store(&ended, 1);
    return argument;
}

int main(int argc, char **argv) {
    static const struct timespec a_while = {0, 50000000};
    pthread_t thread;
    void *block;
    async = argc == 2 && strcmp(argv[1], "async") == 0;
    for (int i = 0; i < 2; i++)
        if (cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking)) return 1;
    if (take(&block, SMALL, streams[0]) || give(block, streams[0])) return 2;
    if (pthread_create(&thread, NULL, take_long, NULL)) return 3;
    while (!atomic_load(&begun)) continue;
    nanosleep(&a_while, NULL);
    const int late = atomic_load(&ended);
    int pairs = 0;
    while (pairs < PAIRS && !atomic_load(&ended)) {
        if (take(&block, SMALL, streams[0]) || give(block, streams[0])) return 4;
        pairs++;
    }
    if (late)
        printf("late\n");
    else
        printf("%d pairs, and the other one is %s\n", pairs, atomic_load(&ended) ? "done" : "in the driver");
    pthread_join(thread, NULL);
    return 0;
}
