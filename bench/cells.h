/* SPDX-License-Identifier: MIT
 *
 * A cell of the table of pairs: one load, played with one way of allocating and freeing and with malloc/free of glibc.
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
    CELL_EVENT, /* cudaMalloc and cudaFree, in a process that runs with POOL_FREE=event */
    CELL_WAYS
};
extern const char *const cell_way_names[CELL_WAYS];

struct cell_options {
    enum cell_way way;
    enum churn_order order;
    size_t live;
    unsigned streams; /* that exist; of CELL_EVENT each has work before each slice, so that fences span them */
    size_t slices;    /* to be measured */
};

/* Nanoseconds of the thread's processor time a pair, the clock's own taken off; medians and means over the slices.
 * Counts are of all that was measured, and 0 when the process is not on the pool. */
struct cell {
    double ns, host_ns, mean_ns, host_mean_ns;
    double synchronise_ns; /* the driver's, one of which each cudaFree of CELL_SYNC makes */
    double current_ns;     /* the driver's question for the current context, which cudaMalloc and cudaFree ask */
    uint64_t pairs, allocs, misses, fences, miss_fences, stream_marks, waits;
    uint64_t peak_live_bytes, peak_reserved_bytes; /* since the process began */
    bool pooled;
};

/* False: it could not be measured, and stderr says why. */
bool cell_measure(const struct cell_options *options, const struct cell_sizes *sizes, struct cell *cell);

#endif
