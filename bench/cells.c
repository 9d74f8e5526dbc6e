/* SPDX-License-Identifier: MIT
 *
 * A cell of the table of pairs; see cells.h.
 */
#include "cells.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "measure.h"
#include "own_figures.h"

/* A slice is short, so that few are disturbed by other work on the machine and the median is of undisturbed ones. */
enum { PAIRS = 20000, SLICE = 2000, CALLS = 500, WARM_PASSES = 2 };

const char *const cell_way_names[CELL_WAYS] = {"sync", "async", "event"};

/* The driver's own part of a pair. */
typedef CUresult (*synchronize_function)(void);
typedef CUresult (*current_function)(CUcontext *);

struct driver {
    synchronize_function synchronize;
    current_function current;
};

static bool find_driver(struct driver *driver) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (library != NULL) {
        driver->synchronize = (synchronize_function)dlsym(library, "cuCtxSynchronize");
        driver->current = (current_function)dlsym(library, "cuCtxGetCurrent");
    }
    const bool found = driver->synchronize != NULL && driver->current != NULL;
    if (!found) fputs("pair: no driver (libcuda.so.1) to measure the calls of\n", stderr);
    return found;
}

/* What reading the clock twice adds to what is measured between. */
static double clock_ns(void) {
    double samples[101];
    for (size_t i = 0; i < 101; i++) {
        uint64_t start = measure_thread_ns();
        samples[i] = (double)(measure_thread_ns() - start);
    }
    return measure_median(samples, 101);
}

static double synchronise_ns(const struct driver *driver, double clock) {
    uint64_t start = measure_thread_ns();
    for (int i = 0; i < CALLS; i++) driver->synchronize();
    return ((double)(measure_thread_ns() - start) - clock) / CALLS;
}

static double current_ns(const struct driver *driver, double clock) {
    CUcontext context;
    uint64_t start = measure_thread_ns();
    for (int i = 0; i < CALLS; i++) driver->current(&context);
    return ((double)(measure_thread_ns() - start) - clock) / CALLS;
}

/* ---- streams ---- */

static bool make_streams(cudaStream_t *streams, unsigned count) {
    cudaError_t result = cudaSuccess;
    for (unsigned i = 0; i < count && result == cudaSuccess; i++)
        result = cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
    if (result != cudaSuccess) fprintf(stderr, "pair: cudaStreamCreateWithFlags: %s\n", cudaGetErrorString(result));
    return result == cudaSuccess;
}

static void drop_streams(cudaStream_t *streams, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (streams[i] != NULL) cudaStreamDestroy(streams[i]);
    free(streams);
}

/* A byte of some block for each stream. Frees need not wait for it: the program touches no block after its free. */
static bool give_work(const cudaStream_t *streams, unsigned count, void **blocks, size_t live, size_t slice) {
    bool given = true;
    for (unsigned i = 0; i < count; i++)
        given = cudaMemsetAsync(blocks[(slice * count + i) % live], 0, 1, streams[i]) == cudaSuccess && given;
    return given;
}

/* ---- a cell ---- */

struct bench {
    const struct cell_options *options;
    struct driver driver;
    struct churn_plan plan;
    struct churn_side device, host;
    cudaStream_t *streams;
    double *times; /* of the slices: pairs, glibc's pairs, synchronises, questions for the context */
};

static void count(struct cell *cell, const struct own_figures *before, const struct own_figures *after) {
    cell->allocs = after->allocs - before->allocs;
    cell->misses = after->misses - before->misses;
    cell->fences = after->fences - before->fences;
    cell->miss_fences = after->miss_fences - before->miss_fences;
    cell->stream_marks = after->stream_marks - before->stream_marks;
    cell->waits = after->waits - before->waits;
    cell->peak_live_bytes = after->peak_live_bytes;
    cell->peak_reserved_bytes = after->peak_reserved_bytes;
}

static double mean(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return sum / (double)count;
}

/* Both sides and the driver's calls take turns, so that what disturbs the machine disturbs all. */
static bool play(struct bench *bench, struct cell *cell) {
    const struct cell_options *options = bench->options;
    struct churn_plan *plan = &bench->plan;
    const size_t slice = plan->batch < SLICE ? SLICE / plan->batch * plan->batch : plan->batch;
    const size_t a_pass = plan->pair_count / slice, count_of = options->slices;
    double *ns = bench->times, *host_ns = ns + count_of, *sync_ns = host_ns + count_of, *now_ns = sync_ns + count_of;
    const double clock = clock_ns(), clock_a_pair = clock / (double)slice;
    struct own_figures before = {0}, after = {0};
    bool worked = true;

    churn_fill(plan, &bench->device);
    churn_fill(plan, &bench->host);
    for (int i = 0; i < WARM_PASSES; i++) {
        churn_run(plan, 0, plan->pair_count, &bench->device);
        churn_run(plan, 0, plan->pair_count, &bench->host);
    }
    if (bench->device.failures + bench->host.failures > 0) return false;
    cell->pooled = own_figures_read(&before);
    for (size_t i = 0; worked && i < count_of; i++) {
        const size_t first = i % a_pass * slice;
        if (options->way == CELL_EVENT)
            worked = give_work(bench->streams, options->streams, bench->device.blocks, options->live, i);
        ns[i] = churn_run(plan, first, slice, &bench->device) - clock_a_pair;
        if (options->way == CELL_SYNC) sync_ns[i] = synchronise_ns(&bench->driver, clock);
        if (options->way != CELL_ASYNC) now_ns[i] = current_ns(&bench->driver, clock);
        host_ns[i] = churn_run(plan, first, slice, &bench->host) - clock_a_pair;
    }
    if (cell->pooled) own_figures_read(&after);
    cudaDeviceSynchronize();
    churn_empty(plan, &bench->device);
    churn_empty(plan, &bench->host);
    cell->pairs = count_of * slice;
    count(cell, &before, &after);
    cell->mean_ns = mean(ns, count_of);
    cell->host_mean_ns = mean(host_ns, count_of);
    cell->ns = measure_median(ns, count_of);
    cell->host_ns = measure_median(host_ns, count_of);
    cell->synchronise_ns = measure_median(sync_ns, count_of);
    cell->current_ns = measure_median(now_ns, count_of);
    return worked;
}

bool cell_measure(const struct cell_options *options, const struct cell_sizes *sizes, struct cell *cell) {
    struct bench bench = {.options = options,
                          .device = {.calls = options->way == CELL_ASYNC ? CHURN_ASYNC : CHURN_PLAIN},
                          .host = {.calls = CHURN_HOST}};
    bool measured = false;

    if (!find_driver(&bench.driver)) return false;
    bench.times = calloc(4 * options->slices, sizeof *bench.times);
    bench.streams = calloc(options->streams, sizeof(cudaStream_t));
    bench.device.blocks = calloc(options->live, sizeof(void *));
    bench.host.blocks = calloc(options->live, sizeof(void *));
    if (bench.times == NULL || bench.streams == NULL || bench.device.blocks == NULL || bench.host.blocks == NULL ||
        !churn_plan_make(&bench.plan, options->order, options->live, PAIRS, sizes->values, sizes->count)) {
        fputs("pair: out of memory\n", stderr);
    } else if (make_streams(bench.streams, options->streams)) {
        bench.device.stream = bench.streams[0];
        measured = play(&bench, cell);
        const size_t failures = bench.device.failures + bench.host.failures;
        if (failures > 0)
            fprintf(stderr, "pair: %zu allocations failed with %zu blocks live (the device is too small?)\n", failures,
                    options->live);
        else if (!measured)
            fputs("pair: a memset failed\n", stderr);
        measured = measured && failures == 0;
    }
    churn_plan_free(&bench.plan);
    if (bench.streams != NULL) drop_streams(bench.streams, options->streams);
    free(bench.device.blocks);
    free(bench.host.blocks);
    free(bench.times);
    return measured;
}
