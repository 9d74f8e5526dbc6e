/* SPDX-License-Identifier: MIT
 *
 * The cells of pair's table; see cells.h.
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
enum { PAIRS = 20000, SLICE = 1000, SLICES = PAIRS / SLICE, SYNCHRONISES = 1000, WARM_PASSES = 2 };

static const size_t live_counts[CELL_LIVE_COUNTS] = {100, 1000, 10000};
const char *const cell_way_names[CELL_WAYS] = {"sync", "async", "event"};

typedef CUresult (*synchronize_function)(void);

double cell_net_ns(const struct cell *cell) {
    return cell->pair_ns - cell->sync_ns;
}
double cell_ratio(const struct cell *cell) {
    return cell_net_ns(cell) / cell->host_ns;
}

static double synchronise_run(synchronize_function synchronize) {
    uint64_t start = measure_thread_ns();
    for (int i = 0; i < SYNCHRONISES; i++) synchronize();
    return (double)(measure_thread_ns() - start) / SYNCHRONISES;
}

/* What is needed of a way to measure it. */
struct bench {
    enum churn_calls calls;
    cudaStream_t stream;              /* of CHURN_ASYNC */
    synchronize_function synchronize; /* NULL where the frees make none */
    const struct cell_sizes *sizes;
    size_t repetitions;
};

static void count(struct cell *cell, const struct own_figures *before, const struct own_figures *after) {
    cell->allocs = after->allocs - before->allocs;
    cell->hits = after->hits - before->hits;
    cell->misses = after->misses - before->misses;
    cell->fences = after->fences - before->fences;
    cell->miss_fences = after->miss_fences - before->miss_fences;
    cell->stream_marks = after->stream_marks - before->stream_marks;
}

/* Both sides and the synchronise take turns, so that what disturbs the machine disturbs all three. */
static bool measure_cell(const struct bench *bench, struct cell *cell) {
    struct churn_plan plan;
    struct own_figures before = {0}, after = {0};
    size_t samples = bench->repetitions * SLICES, failures = 0;
    double *times = calloc(3 * samples, sizeof *times);
    struct churn_side device = {
        .calls = bench->calls, .stream = bench->stream, .blocks = calloc(cell->live, sizeof(void *))};
    struct churn_side host = {.calls = CHURN_HOST, .blocks = calloc(cell->live, sizeof(void *))};
    bool ready = times != NULL && device.blocks != NULL && host.blocks != NULL &&
                 churn_plan_make(&plan, cell->order, cell->live, PAIRS, bench->sizes->values, bench->sizes->count);
    if (ready) {
        double *pair_ns = times, *sync_ns = times + samples, *host_ns = times + 2 * samples;
        churn_fill(&plan, &device);
        churn_fill(&plan, &host);
        for (int i = 0; i < WARM_PASSES; i++) {
            churn_run(&plan, 0, plan.pair_count, &device);
            churn_run(&plan, 0, plan.pair_count, &host);
        }
        own_figures_read(&before);
        for (size_t i = 0; i < samples; i++) {
            size_t first = i % SLICES * SLICE;
            pair_ns[i] = churn_run(&plan, first, SLICE, &device);
            if (bench->synchronize != NULL) sync_ns[i] = synchronise_run(bench->synchronize);
            host_ns[i] = churn_run(&plan, first, SLICE, &host);
        }
        own_figures_read(&after);
        churn_empty(&plan, &device);
        churn_empty(&plan, &host);
        churn_plan_free(&plan);
        cell->pair_ns = measure_median(pair_ns, samples);
        cell->sync_ns = measure_median(sync_ns, samples);
        cell->host_ns = measure_median(host_ns, samples);
        cell->pairs = samples * SLICE;
        count(cell, &before, &after);
        failures = device.failures + host.failures;
    } else {
        fputs("pair: out of memory\n", stderr);
    }
    if (failures > 0)
        fprintf(stderr, "pair: %zu allocations failed with %zu blocks live (the device is too small?)\n", failures,
                cell->live);
    free(device.blocks);
    free(host.blocks);
    free(times);
    return ready && failures == 0;
}

static bool find_synchronize(struct bench *bench) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver != NULL) bench->synchronize = (synchronize_function)dlsym(driver, "cuCtxSynchronize");
    if (bench->synchronize == NULL) fputs("pair: no driver (libcuda.so.1) to measure a synchronise of\n", stderr);
    return bench->synchronize != NULL;
}

static bool make_stream(struct bench *bench) {
    cudaError_t result = cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking);
    if (result != cudaSuccess) fprintf(stderr, "pair: cudaStreamCreateWithFlags: %s\n", cudaGetErrorString(result));
    return result == cudaSuccess;
}

bool cells_measure(enum cell_way way, const struct cell_sizes *sizes, size_t repetitions, struct cell *cells) {
    struct bench bench = {
        .calls = way == CELL_ASYNC ? CHURN_ASYNC : CHURN_PLAIN, .sizes = sizes, .repetitions = repetitions};
    if (way == CELL_SYNC && !find_synchronize(&bench)) return false;
    if (way == CELL_ASYNC && !make_stream(&bench)) return false;
    bool measured = true;
    for (size_t i = 0; measured && i < CELLS_PER_WAY; i++) {
        cells[i] = (struct cell){.way = way, .order = i % CHURN_ORDERS, .live = live_counts[i / CHURN_ORDERS]};
        measured = measure_cell(&bench, &cells[i]);
    }
    if (bench.stream != NULL) cudaStreamDestroy(bench.stream);
    return measured;
}
