/* SPDX-License-Identifier: MIT
 *
 * What the pool says of this process, read from the segment that it publishes: so a measurement can show that it
 * measured the pool, and hits.
 */
#ifndef BENCH_OWN_FIGURES_H
#define BENCH_OWN_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

struct own_figures {
    uint64_t allocs, hits, misses; /* over all pools */
    uint64_t segment_bytes;        /* of shared memory, for the figures themselves */
};

/* False: this process publishes none (it does not run on the pool, or has made no CUDA call yet). */
bool own_figures_read(struct own_figures *figures);

#endif
