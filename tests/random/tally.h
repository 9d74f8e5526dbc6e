/* SPDX-License-Identifier: MIT
 *
 * What the programs did, counted: so that it can be seen whether they were bold enough.
 */
#ifndef RANDOM_TALLY_H
#define RANDOM_TALLY_H

#include <stdatomic.h>
#include <stdbool.h>
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
    X(contexts_created)                                                             \
    X(calls_by_other_doors)                                                         \
    X(look_ups)                                                                     \
    X(wrong_frees)                                                                  \
    X(memory_pools)                                                                 \
    X(exports)                                                                      \
    X(openings)                                                                     \
    X(openings_refused) /* by a process without the pool */                         \
    X(openings_stale)   /* refused, for the block is freed */                       \
    X(uses_elsewhere)   /* of blocks by other processes */

/* X(name): programs that did it at least once. */
#define PROGRAMS_DID(X)                                              \
    X(own_pools)                                                     \
    X(explicit_pools)       /* allocations from one that is named */ \
    X(pools_set)            /* as a device's current one */          \
    X(pool_access)          /* given to another device */            \
    X(pools_looked_at)      /* with live blocks */                   \
    X(pools_destroyed_live) /* with live blocks */                   \
    X(pools_destroyed_current)                                       \
    X(frees_after_the_pool)                                          \
    X(contexts_in_turn) /* on one thread */                          \
    X(per_thread_calls)                                              \
    X(frees_by_bare_threads)                                         \
    X(marks)                                                         \
    X(wrong_frees)                                                   \
    X(without_stream_order) /* the driver lacks it */                \
    X(sharing)                                                       \
    X(sharing_opened_pooled) /* by a process with the pool */        \
    X(sharing_opened_native) /* by one without */                    \
    X(sharing_used_freed)    /* what the exporter has freed */       \
    X(sharing_killed)        /* a process that has something open */

struct tally {
#define TALLY_FIELD(name) _Atomic(uint64_t) name;
    TALLIES(TALLY_FIELD)
#undef TALLY_FIELD
};

extern struct tally tally;

/* How many programs did it, and whether the one that runs did. */
struct programs_did {
    uint64_t programs;
    atomic_bool now;
};
struct programs_tally {
#define PROGRAMS_FIELD(name) struct programs_did name;
    PROGRAMS_DID(PROGRAMS_FIELD)
#undef PROGRAMS_FIELD
};
extern struct programs_tally programs_tally;

#define PROGRAM_DID(name) atomic_store_explicit(&programs_tally.name.now, true, memory_order_relaxed)
void tally_program_ended(void);

#define TALLY(name) atomic_fetch_add_explicit(&tally.name, 1, memory_order_relaxed)

/* A block is freed whose last work ran on `lane` (a number of a stream, never used for another; 0: none ever ran) /
 * meets its first work. */
void tally_freed(uint64_t address, uint64_t bytes, uint64_t lane);
void tally_first_use(uint64_t address, uint64_t bytes, uint64_t lane);

#endif
