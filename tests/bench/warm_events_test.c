/* SPDX-License-Identifier: MIT
 *
 * A program under the pool, with POOL_FREE=event: once as many proofs were under way as ever can be, frees of either
 * kind create no event any more, however the work goes. The simulated driver counts.
 */
#include "testing.h"

#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "sim.h"

enum {
    STREAMS = 8,
    LIVE = 256,
    BLOCK_BYTES = 4096,
    LARGE_BYTES = 65536,
    PAIRS = 20000,
    MANY_FREES = 64 * 64,
    ROUNDS = 64
};

static cudaStream_t streams[STREAMS];
static void *blocks[MANY_FREES];

static void must(cudaError_t result) {
    if (result != cudaSuccess) fail_msg("%s", cudaGetErrorString(result));
}

static void *take(bool async, size_t bytes, cudaStream_t stream) {
    void *block;
    must(async ? cudaMallocAsync(&block, bytes, stream) : cudaMalloc(&block, bytes));
    return block;
}

static void give(bool async, void *block, cudaStream_t stream) {
    must(async ? cudaFreeAsync(block, stream) : cudaFree(block));
}

/* Frees of both kinds behind work that does not end: nothing passes, so each place of an event is taken. */
static void warm_up(void) {
    static const struct sim_kernel endless = {.until_released = true};
    for (int i = 0; i < STREAMS; i++) {
        must(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        assert_int_equal(sim_launch(&endless, streams[i]), 0);
    }
    for (int async = 0; async <= 1; async++) {
        for (int i = 0; i < MANY_FREES; i++) blocks[i] = take(async, BLOCK_BYTES, streams[i % STREAMS]);
        for (int i = 0; i < MANY_FREES; i++) give(async, blocks[i], streams[i % STREAMS]);
    }
    sim_release_kernels();
    must(cudaDeviceSynchronize());
}

static void launch_brief(cudaStream_t stream) {
    static const struct sim_kernel brief = {.microseconds = 1};
    assert_int_equal(sim_launch(&brief, stream), 0);
}

static void churn_plain(void) {
    void *live[LIVE] = {0};
    unsigned state = 1;
    for (int i = 0; i < PAIRS; i++) {
        state = state * 1664525 + 1013904223;
        void **block = &live[state >> 16 & (LIVE - 1)];
        if (*block != NULL) give(false, *block, NULL);
        *block = take(false, BLOCK_BYTES, NULL);
        launch_brief(streams[state >> 24 & (STREAMS - 1)]);
    }
    for (int i = 0; i < LIVE; i++) {
        if (live[i] != NULL) give(false, live[i], NULL);
    }
}

/* Each stream in turn takes what the one before it has freed, when that has ended: marks are needed. */
static void churn_async(void) {
    for (int round = 0; round < ROUNDS; round++) {
        cudaStream_t stream = streams[round % STREAMS];
        for (int i = 0; i < MANY_FREES; i++) blocks[i] = take(true, LARGE_BYTES, stream);
        launch_brief(stream);
        for (int i = 0; i < MANY_FREES; i++) give(true, blocks[i], stream);
        must(cudaDeviceSynchronize());
    }
}

static void hazard_43_frees_create_events_at_first_and_none_once_warm(void **state) {
    (void)state;
    warm_up();
    const uint64_t warm = sim_calls("cuEventCreate");
    assert_in_range(warm, 1 + STREAMS, 16 + STREAMS); /* a fence at least; a mark on each stream */
    const uint64_t fences = sim_calls("cuCtxRecordEvent"), marks = sim_calls("cuEventRecord");
    churn_plain();
    assert_in_range(sim_calls("cuCtxRecordEvent") - fences, 4, PAIRS / 64 + 64); /* some of them before misses */
    churn_async();
    assert_in_range(sim_calls("cuEventRecord") - marks, ROUNDS / 2, ROUNDS * MANY_FREES / 64);
    assert_int_equal(sim_calls("cuEventCreate"), warm);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hazard_43_frees_create_events_at_first_and_none_once_warm),
};

TESTING_MAIN(tests)
