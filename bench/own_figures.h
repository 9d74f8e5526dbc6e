/* SPDX-License-Identifier: MIT
 *
 * What the pool says of this process, read from the segment that it publishes: so a measurement can show that it
 * measured the pool, and hits.
 */
#ifndef BENCH_OWN_FIGURES_H
#define BENCH_OWN_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

/* Summed over all pools; the names are those of poolcuda/stats.h. */
#define OWN_FIGURES_CELLS(X) X(allocs) X(hits) X(misses) X(frees) X(freed_live_bytes)
#define OWN_FIGURES_POOLS(X) \
    X(peak_live_bytes)       \
    X(peak_reserved_bytes)   \
    X(peak_waiting_bytes)    \
    X(peak_ordered_bytes)    \
    X(segment_allocs)        \
    X(fences)                \
    X(miss_fences)           \
    X(stream_marks)          \
    X(proved_blocks)         \
    X(waits)

struct own_figures {
#define OWN_FIGURES_FIELD(name) uint64_t name;
    OWN_FIGURES_CELLS(OWN_FIGURES_FIELD)
    OWN_FIGURES_POOLS(OWN_FIGURES_FIELD)
#undef OWN_FIGURES_FIELD
    uint64_t segment_bytes; /* of shared memory, for the figures themselves */
};

/* False: this process publishes none (it does not run on the pool, or has made no CUDA call yet). */
bool own_figures_read(struct own_figures *figures);

#endif
