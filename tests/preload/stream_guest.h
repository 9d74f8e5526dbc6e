/* SPDX-License-Identifier: MIT
 *
 * What the guests over the driver that use streams have in common: calls that have to succeed, blocks that the
 * simulator is told of so that it judges what the program is given, and the parts of a guest.
 */
#ifndef PRELOAD_STREAM_GUEST_H
#define PRELOAD_STREAM_GUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "sequence.h"
#include "sim.h"

#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static CUcontext primary;

static inline void must(CUresult result) {
    if (result == CUDA_SUCCESS) return;
    printf("failed: %d\n", (int)result);
    exit(3);
}

static inline CUstream stream_new(void) {
    CUstream stream = NULL;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline CUdeviceptr take(size_t bytes, CUstream stream) {
    CUdeviceptr p = 0;
    must(cuMemAllocAsync(&p, bytes, stream));
    return p;
}

static inline CUdeviceptr take_plain(size_t bytes) {
    CUdeviceptr p = 0;
    must(cuMemAlloc(&p, bytes));
    return p;
}

static inline const char *which(bool same) {
    return same ? "the same memory" : "other memory";
}

static inline const char *state_of(CUstream stream) {
    return cuStreamQuery(stream) == CUDA_SUCCESS ? "idle" : "busy";
}

/* Noted by the simulator. */
static inline CUdeviceptr take_noted(size_t bytes, CUstream stream) {
    const CUdeviceptr p = take(bytes, stream);
    must((CUresult)sim_block_allocated_async(p, bytes, stream));
    return p;
}

static inline void release_noted(CUdeviceptr p, CUstream stream) {
    must((CUresult)sim_block_freed_async(p, stream));
    must(cuMemFreeAsync(p, stream));
}

static inline void say_races(void) {
    struct sim_race race;
    char text[256] = "";
    const size_t races = sim_races(&race, 1);
    if (races) sim_race_text(&race, text, sizeof text);
    printf("races: %zu %s\n", races, text);
}

struct guest_part {
    const char *name;
    void (*say)(void);
};

/* With the primary context of device 0 current; with a second argument, waits for a reader of its figures. */
static inline int guest_main(int argc, char **argv, const struct guest_part *parts, size_t count) {
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc >= 2 && i < count; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        must(cuInit(0));
        must(cuDevicePrimaryCtxRetain(&primary, 0));
        must(cuCtxSetCurrent(primary));
        parts[i].say();
        if (argc == 3) wait_for_reader();
        sim_release_kernels();
        return 0;
    }
    return 2;
}

#define GUEST_MAIN(parts)                                                         \
    int main(int argc, char **argv) {                                             \
        return guest_main(argc, argv, parts, sizeof(parts) / sizeof((parts)[0])); \
    }

#endif
