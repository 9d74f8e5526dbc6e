/* SPDX-License-Identifier: MIT
 *
 * Sums over a pool's fronts, for tests that look inside.
 */
#ifndef POOLCUDA_TESTS_POOL_INSIDES_H
#define POOLCUDA_TESTS_POOL_INSIDES_H

#include "pool/internal.h"

/* What the bins of a pool hold. */
static inline uint64_t binned_bytes(const struct pool *pool) {
    struct front_sums sums;
    fronts_sum(pool, &sums);
    return sums.idle + sums.ordered;
}

/* Waits for the device that have begun and not ended. */
static inline uint64_t waits_under_way(const struct pool *pool) {
    uint64_t count = atomic_load(&pool->waits_begun) - atomic_load(&pool->waits_ended);
    for (unsigned i = 0; i < pool->front_count; i++)
        if (pool->fronts[i])
            count += atomic_load(&pool->fronts[i]->waits_begun) - atomic_load(&pool->fronts[i]->waits_ended);
    return count;
}

#endif
