/* SPDX-License-Identifier: MIT
 *
 * What the programs did, counted: so that it can be seen whether they were bold enough.
 */
#ifndef RANDOM_TALLY_H
#define RANDOM_TALLY_H

#include <stdatomic.h>
#include <stdint.h>

/* X(name) */
#define TALLIES(X)                                                                  \
    X(operations)                                                                   \
    X(kernels)                                                                      \
    X(plain_allocations)                                                            \
    X(async_allocations)                                                            \
    X(plain_frees_in_stream_order)                                                  \
    X(async_frees_by_cudafree)                                                      \
    X(out_of_memory)                                                                \
    X(reuses)         /* blocks whose first use met bytes that were freed before */ \
    X(reuses_crossed) /* of them, those last used on another stream */              \
    X(captures)                                                                     \
    X(graphs_unsupported)                                                           \
    X(graph_launches)                                                               \
    X(resets)                                                                       \
    X(contexts_created)

struct tally {
#define TALLY_FIELD(name) _Atomic(uint64_t) name;
    TALLIES(TALLY_FIELD)
#undef TALLY_FIELD
};

extern struct tally tally;

#define TALLY(name) atomic_fetch_add_explicit(&tally.name, 1, memory_order_relaxed)

/* A block is freed whose last work ran on `lane` (a number of a stream, never used for another; 0: none ever ran) /
 * meets its first work. */
void tally_freed(uint64_t address, uint64_t bytes, uint64_t lane);
void tally_first_use(uint64_t address, uint64_t bytes, uint64_t lane);

#endif
