/* SPDX-License-Identifier: MIT
 *
 * What one scrape tells of processes and pools. A counter that was told once is never told lower for the same pool: a
 * copy of a busy process may be approximate, and who gathers counters takes a fall for a new beginning.
 */
#ifndef POOLSTAT_SAMPLES_H
#define POOLSTAT_SAMPLES_H

#include "collect.h"
#include "derive.h"

/* Which process, whatever it is called; of a pool also which life of which record. */
struct sample_key {
    dev_t device;
    ino_t inode;
    uint64_t start_ticks;
    uint64_t generation; /* of a process 0, as the next one */
    uint32_t pool;
};

struct process_sample {
    struct sample_key key;
    const struct process *process; /* the collection's */
    uint64_t pass_through[POOLCUDA_PASS_COUNT];
};

struct pool_sample {
    struct sample_key key;
    const struct process *process; /* the collection's, as the next one */
    const struct segment_pool *pool;
    struct poolcuda_pool figures; /* as by derive_figures */
    struct counters counters;
    struct measures measures;
    struct class_sum classes[POOLCUDA_SIZE_CLASSES];
    struct poolcuda_fixed *fixed;
    size_t fixed_count;
    struct stream_sum *streams;
    size_t stream_count;
};

/* Zero is none. */
struct samples {
    struct process_sample *processes; /* that run and can be read: one for each pid, by pid */
    size_t process_count;
    struct pool_sample *pools; /* in the order of their processes */
    size_t pool_count;
    size_t denied, damaged, unseen; /* processes that are not among them */
    size_t duplicates;              /* segments that are not: of a process that has one among them */
};

/* Takes samples of `collection` and gives them back in *samples, in place of those that were taken before. They may be
 * looked at as long as the collection is there. */
void samples_take(struct samples *samples, const struct collection *collection);
void samples_free(struct samples *samples);

#endif
