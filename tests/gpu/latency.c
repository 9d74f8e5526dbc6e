/* SPDX-License-Identifier: MIT
 *
 * What allocations and frees cost: cudaMalloc and cudaFree, cudaMallocAsync and cudaFreeAsync, from 1 KiB to a largest
 * size (the first argument, MiB), on an idle device and behind a kernel of 200 microseconds. Prints one JSON object:
 * for each case its name and all times, in nanoseconds, of allocation and free.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "busy.h"

enum { SAMPLES = 120, WARM_UP = 4, CASE_MS = 60, KERNEL_US = 200 };

struct sample {
    double take_ns, give_back_ns;
};

static cudaStream_t stream, other;
static bool first_case = true;

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

/* `behind`: a kernel runs on another stream, or on the same one where memory is ordered by it. */
static bool pair(bool async, bool behind, size_t bytes, struct sample *sample) {
    void *block = NULL;
    int failed = behind ? busy(async ? stream : other, KERNEL_US, NULL) : 0;
    const double begin = now_ns();
    failed = failed || (async ? cudaMallocAsync(&block, bytes, stream) : cudaMalloc(&block, bytes));
    const double middle = now_ns();
    failed = failed || (async ? cudaFreeAsync(block, stream) : cudaFree(block));
    *sample = (struct sample){middle - begin, now_ns() - middle};
    return cudaDeviceSynchronize() == cudaSuccess && !failed;
}

static void print_times(const char *name, const struct sample *samples, int count, bool take) {
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++)
        printf("%s%.0f", i ? ", " : "", take ? samples[i].take_ns : samples[i].give_back_ns);
    printf("]");
}

static bool measure(bool async, bool behind, size_t bytes) {
    struct sample samples[SAMPLES];
    int count = 0;
    for (int i = 0; i < WARM_UP; i++)
        if (!pair(async, behind, bytes, &samples[0])) return false;
    const double begin = now_ns();
    while (count < SAMPLES && (count < 8 || now_ns() - begin < 1e6 * CASE_MS))
        if (!pair(async, behind, bytes, &samples[count++])) return false;
    printf("%s{\"calls\": \"%s\", \"device\": \"%s\", \"bytes\": %zu, ", first_case ? "" : ", ",
           async ? "async" : "plain", behind ? "busy" : "idle", bytes);
    print_times("take", samples, count, true);
    printf(", ");
    print_times("give_back", samples, count, false);
    printf("}");
    first_case = false;
    return true;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30};
    const size_t largest = (size_t)(argc > 1 ? atoi(argv[1]) : 1024) << 20;
    bool good = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess;
    const bool kernels = good && busy_load();
    printf("{\"cases\": [");
    for (int async = 0; async < 2; async++)
        for (int behind = 0; behind <= kernels; behind++)
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
                if (sizes[i] <= largest) good = good && measure(async, behind, sizes[i]);
    printf("], \"kernels\": %s, \"good\": %s}\n", kernels ? "true" : "false", good ? "true" : "false");
    return !good;
}
