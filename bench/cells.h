/* SPDX-License-Identifier: MIT
 *
 * The cells of pair's table: one load, played with one way of allocating and freeing and with malloc/free of glibc.
 */
#ifndef BENCH_CELLS_H
#define BENCH_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cell_sizes.h"
#include "churn.h"

enum cell_way {
    CELL_SYNC,  /* cudaMalloc and cudaFree, which waits */
    CELL_ASYNC, /* cudaMallocAsync and cudaFreeAsync on one stream */
    CELL_EVENT, /* cudaMalloc and cudaFree in a process that runs with POOL_FREE=event */
    CELL_WAYS
};
extern const char *const cell_way_names[CELL_WAYS];

enum { CELL_LIVE_COUNTS = 3, CELLS_PER_WAY = CELL_LIVE_COUNTS * CHURN_ORDERS };

/* Nanoseconds are medians over the slices of all repetitions; counts are of all that was measured, and 0 when the
 * process is not on the pool. */
struct cell {
    enum cell_way way;
    enum churn_order order;
    size_t live;
    double pair_ns, host_ns;
    double sync_ns; /* of CELL_SYNC: the driver's synchronise, which each cudaFree makes; else 0 */
    uint64_t pairs;
    uint64_t allocs, hits, misses, fences, miss_fences, stream_marks;
};

double cell_net_ns(const struct cell *cell);
double cell_ratio(const struct cell *cell); /* to glibc's */

/* All loads, one way, in this process: CELLS_PER_WAY cells. False: it could not be measured, and stderr says why. */
bool cells_measure(enum cell_way way, const struct cell_sizes *sizes, size_t repetitions, struct cell *cells);

#endif
