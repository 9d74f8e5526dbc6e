/* SPDX-License-Identifier: MIT
 *
 * Writes the figures of include/poolcuda/stats.h. The storage is the shared-memory segment once it exists, else private
 * memory of the same shape, so that writers never ask which: a segment that cannot be created costs the program nothing
 * but its figures.
 *
 * Thread rules. Every record has one writer at a time: records of pools and of fixed-size pools are guarded by the lock
 * of the pool that opened them, a cell by whoever it was opened for. Header counters and events may be written by
 * anybody. Nothing here decides anything from what the segment holds: other processes of the user could write to it.
 */
#ifndef POOLCUDA_STATS_WRITER_H
#define POOLCUDA_STATS_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "poolcuda/stats.h"

/* Create the segment, once, at the process's first CUDA call; later calls cost a load. `enabled` is POOL_STATS. Keeps
 * errno. Never fails: without a segment the figures stay private. Pools opened before keep their private records. */
void stats_start(bool enabled);

/* The process ends: mark the segment as ended and unlink it. */
void stats_finish(void);

/* In a new process: let go of the parent's segment without touching it; figures are private from then on, and begin at
 * zero. Pointers to the parent's records stay writable and lead to private pages. With `anew`, or where the parent had
 * not started, stats_start makes a segment of this process's own; `anew` needs a parent that has opened no pool.
 * Async-signal-safe. */
void stats_forget_in_child(bool anew);

/* Does this process have a segment that others see? */
bool stats_published(void);

/* The header in force, shared or private. Never NULL. */
struct poolcuda_header *stats_header(void);

/* A call went to the driver for this reason. */
void stats_pass(enum poolcuda_pass_reason reason);

/* A record for a new pool: identity fields are the caller's to fill before the state becomes OPEN (stats_pool_publish).
 * Takes an unused record, else the one that has been GONE longest, else private memory. Never NULL: with no host memory
 * left, one shared dummy record that is not published. */
struct poolcuda_pool *stats_pool_open(void);
void stats_pool_publish(struct poolcuda_pool *pool);

/* A cell of `pool`. Same rules. stream: 0 for what belongs to no stream; thread: which of several such cells. */
struct poolcuda_cell *stats_cell_open(struct poolcuda_pool *pool, uint64_t stream, uint64_t thread);

/* A further cell of `pool` beside its first, NULL when too few are left: then what it would count goes to another. For
 * streams there are fewer than for threads. */
struct poolcuda_cell *stats_cell_more(struct poolcuda_pool *pool, uint64_t stream, uint64_t thread);

/* A record of a fixed-size pool of `pool`. Same rules as for its first cell. */
struct poolcuda_fixed *stats_fixed_open(struct poolcuda_pool *pool);

/* The pool is no more: its record may be reused, its cells and fixed-size pools with it. */
void stats_pool_gone(struct poolcuda_pool *pool);

/* Append to the ring. `event` needs neither sequence nor time. */
void stats_event(const struct poolcuda_event *event);

/* Index of a pool's record + 1 for events, 0 when it is private. */
uint32_t stats_pool_number(const struct poolcuda_pool *pool);

/* ---- map.c: the block map. Each segment has one writer at a time. Keep errno; take a lock for moments, which may be
 * taken inside that of a pool ---- */

/* Has the map a row for the pool's segment at `address`, or would it get one? Never where the pool's record is private.
 */
bool stats_map_admits(const struct poolcuda_pool *pool, uint64_t address, uint64_t size);

/* The row of a segment of the pool: of `row` all but pool and sequence. Nothing happens where it is not admitted; where
 * all rows are taken, one that it is admitted for goes. */
void stats_map_put(const struct poolcuda_pool *pool, const struct poolcuda_map_row *row);

/* The segment is the pool's no more. */
void stats_map_drop(const struct poolcuda_pool *pool, uint64_t address);

/* ---- single-writer updates ---- */

static inline uint64_t stats_get(const uint64_t *field) {
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}
static inline void stats_set(uint64_t *field, uint64_t value) {
    __atomic_store_n(field, value, __ATOMIC_RELAXED);
}
static inline void stats_add(uint64_t *field, uint64_t n) {
    stats_set(field, stats_get(field) + n);
}
static inline void stats_raise(uint64_t *peak, uint64_t value) {
    if (stats_get(peak) < value) stats_set(peak, value);
}

/* Bracket a change of a pool's record or fixed-size pools: the sequence is odd inside. */
static inline void stats_write_begin(struct poolcuda_pool *pool) {
    stats_set(&pool->sequence, pool->sequence + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the odd number is seen before any change */
}
static inline void stats_write_end(struct poolcuda_pool *pool) {
    __atomic_store_n(&pool->sequence, pool->sequence + 1,
                     __ATOMIC_RELEASE); /* every change is seen before the even number */
}

/* Size class of a rounded size, as in the layout. */
static inline unsigned stats_size_class(uint64_t bytes) {
    unsigned class = 55u - (unsigned)__builtin_clzll((bytes - (bytes > 0)) | 511);
    return class < POOLCUDA_SIZE_CLASSES ? class : POOLCUDA_SIZE_CLASSES - 1u;
}

/* Bucket of a latency. */
static inline unsigned stats_latency_bucket(uint64_t ns) {
    unsigned bucket = ns == 0 ? 0 : 63u - (unsigned)__builtin_clzll(ns);
    return bucket < POOLCUDA_LATENCY_BUCKETS ? bucket : POOLCUDA_LATENCY_BUCKETS - 1u;
}

#endif
