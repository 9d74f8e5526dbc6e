/* SPDX-License-Identifier: MIT
 *
 * A steady load on an allocator; see churn.h.
 */
#include "churn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "measure.h"

const char *const churn_order_names[CHURN_ORDERS] = {"LIFO", "FIFO", "random"};
const char *const churn_calls_names[CHURN_CALLS] = {"malloc", "plain", "async"};

/* A fixed generator (xorshift64*), so that every run makes the same plan. */
static uint64_t random_below(uint64_t *state, uint64_t limit) {
    assert(limit > 0 && "there is a number below the limit");
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * UINT64_C(0x2545F4914F6CDD1D) >> 32) % limit;
}

static uint32_t host_size(size_t size) {
    size_t scaled = size / 1024;
    if (scaled < 16) return 16;
    return scaled > 1024 ? 1024 : (uint32_t)scaled;
}

/* The slots whose blocks the next `batch` pairs free, out of `age`, which holds those of all live blocks from the
 * oldest to the newest; they become the newest. */
static void take_victims(struct churn_pair *pairs, uint32_t *age, const struct churn_plan *plan, enum churn_order order,
                         uint64_t *state) {
    const size_t rest = plan->live - plan->batch;
    for (size_t i = 0; i < plan->batch; i++) {
        const size_t last = plan->live - 1 - i;
        const size_t at = order == CHURN_LIFO ? last : order == CHURN_FIFO ? i : random_below(state, last + 1);
        pairs[i].slot = age[at];
        if (order == CHURN_RANDOM) age[at] = age[last]; /* nobody asks for the age */
    }
    if (order == CHURN_FIFO) memmove(age, age + plan->batch, rest * sizeof *age);
    for (size_t i = 0; i < plan->batch; i++) age[rest + i] = pairs[i].slot;
}

bool churn_plan_make(struct churn_plan *plan, enum churn_order order, size_t live, size_t pair_count,
                     const size_t *sizes, size_t size_count) {
    uint64_t state = UINT64_C(88172645463325252);
    size_t batch = live / CHURN_PARTS;
    uint32_t *age = malloc(live * sizeof *age);

    *plan = (struct churn_plan){.live = live, .batch = batch, .pair_count = (pair_count + live - 1) / live * live};
    plan->first_sizes = malloc(live * sizeof *plan->first_sizes);
    plan->pairs = malloc(plan->pair_count * sizeof *plan->pairs);
    bool made = age != NULL && plan->first_sizes != NULL && plan->pairs != NULL;
    for (size_t i = 0; made && i < live; i++) {
        age[i] = (uint32_t)i;
        plan->first_sizes[i] = sizes[random_below(&state, size_count)];
    }
    for (size_t start = 0; made && start < plan->pair_count; start += batch) {
        struct churn_pair *pairs = plan->pairs + start;
        for (size_t i = 0; i < batch; i++) {
            pairs[i].size = sizes[random_below(&state, size_count)];
            pairs[i].host_size = host_size(pairs[i].size);
        }
        take_victims(pairs, age, plan, order, &state);
    }
    free(age);
    if (!made) churn_plan_free(plan);
    return made;
}

void churn_plan_free(struct churn_plan *plan) {
    free(plan->first_sizes);
    free(plan->pairs);
    *plan = (struct churn_plan){0};
}

static void *plain_take(size_t size) {
    void *block;
    return cudaMalloc(&block, size) == cudaSuccess ? block : NULL;
}

static void *async_take(size_t size, cudaStream_t stream) {
    void *block;
    return cudaMallocAsync(&block, size, stream) == cudaSuccess ? block : NULL;
}

static void *take(const struct churn_side *side, size_t size) {
    switch (side->calls) {
    case CHURN_PLAIN:
        return plain_take(size);
    case CHURN_ASYNC:
        return async_take(size, side->stream);
    case CHURN_HOST:
        break;
    }
    return malloc(host_size(size));
}

static void give(const struct churn_side *side, void *block) {
    switch (side->calls) {
    case CHURN_PLAIN:
        cudaFree(block);
        break;
    case CHURN_ASYNC:
        cudaFreeAsync(block, side->stream);
        break;
    case CHURN_HOST:
        free(block);
    }
}

void churn_fill(const struct churn_plan *plan, struct churn_side *side) {
    for (size_t i = 0; i < plan->live; i++) {
        side->blocks[i] = take(side, plan->first_sizes[i]);
        side->failures += side->blocks[i] == NULL;
    }
}

void churn_empty(const struct churn_plan *plan, struct churn_side *side) {
    for (size_t i = 0; i < plan->live; i++) {
        give(side, side->blocks[i]);
        side->blocks[i] = NULL;
    }
}

/* The loops differ in nothing but the calls, which the compiler sees through: none pays for an indirection. */
#define RUN(TAKE, GIVE)                                                                             \
    for (const struct churn_pair *pairs = plan->pairs + first; pairs < end; pairs += plan->batch) { \
        for (size_t i = 0; i < plan->batch; i++) GIVE(side->blocks[pairs[i].slot]);                 \
        for (size_t i = 0; i < plan->batch; i++) {                                                  \
            void *block = TAKE(pairs[i]);                                                           \
            side->failures += block == NULL;                                                        \
            side->blocks[pairs[i].slot] = block;                                                    \
        }                                                                                           \
    }
#define PLAIN_TAKE(pair) plain_take((pair).size)
#define ASYNC_TAKE(pair) async_take((pair).size, stream)
#define ASYNC_GIVE(block) cudaFreeAsync(block, stream)
#define HOST_TAKE(pair) malloc((pair).host_size)

double churn_run(const struct churn_plan *plan, size_t first, size_t count, struct churn_side *side) {
    const struct churn_pair *end = plan->pairs + first + count;
    const cudaStream_t stream = side->stream;
    uint64_t start_ns = measure_thread_ns();
    switch (side->calls) {
    case CHURN_PLAIN:
        RUN(PLAIN_TAKE, cudaFree)
        break;
    case CHURN_ASYNC:
        RUN(ASYNC_TAKE, ASYNC_GIVE)
        break;
    case CHURN_HOST:
        RUN(HOST_TAKE, free)
    }
    return (double)(measure_thread_ns() - start_ns) / (double)count;
}
