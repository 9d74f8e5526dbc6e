/* SPDX-License-Identifier: MIT
 *
 * A steady load on an allocator: a number of blocks stays live while a tenth of them at a time is freed, in a given
 * order, and allocated anew. The plan is made beforehand, so that two allocators do exactly the same.
 */
#ifndef BENCH_CHURN_H
#define BENCH_CHURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum churn_order { CHURN_LIFO, CHURN_FIFO, CHURN_RANDOM, CHURN_ORDERS };
extern const char *const churn_order_names[CHURN_ORDERS];

struct churn_pair {
    uint32_t slot; /* whose block is freed and allocated anew */
    uint32_t host_size;
    size_t size;
};

struct churn_plan {
    size_t live, batch;
    size_t *first_sizes; /* of the `live` blocks that are allocated at first */
    struct churn_pair *pairs;
    size_t pair_count; /* a multiple of `live`: then the order holds from one pass over the plan to the next, too */
};

enum { CHURN_PARTS = 10 }; /* batches that make up the live blocks */

/* `live` is a multiple of CHURN_PARTS; `pair_count` is rounded up. Sizes are drawn from `sizes`; the host's are these
 * divided by 1,024, and 16 to 1,024 bytes. False: out of memory. */
bool churn_plan_make(struct churn_plan *plan, enum churn_order order, size_t live, size_t pair_count,
                     const size_t *sizes, size_t size_count);
void churn_plan_free(struct churn_plan *plan);

/* One allocator's blocks: an array of `live` pointers that the caller keeps. `failures` counts allocations that failed.
 * churn_run plays `count` pairs from number `first` on, both multiples of `batch`, and answers the nanoseconds a pair.
 */
enum churn_calls {
    CHURN_HOST,  /* malloc and free */
    CHURN_PLAIN, /* cudaMalloc and cudaFree */
    CHURN_ASYNC  /* cudaMallocAsync and cudaFreeAsync */
};
enum { CHURN_CALLS = CHURN_ASYNC + 1 };
extern const char *const churn_calls_names[CHURN_CALLS];

struct churn_side {
    enum churn_calls calls;
    struct CUstream_st *stream; /* of CHURN_ASYNC */
    void **blocks;
    size_t failures;
};
void churn_fill(const struct churn_plan *plan, struct churn_side *side);
double churn_run(const struct churn_plan *plan, size_t first, size_t count, struct churn_side *side);
void churn_empty(const struct churn_plan *plan, struct churn_side *side);

#endif
