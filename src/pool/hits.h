/* SPDX-License-Identifier: MIT
 *
 * What a hit that stays within the bins does to a block, the pool's sums and its figures: the whole of it, in one place
 * and written for speed. What alloc.c and free.c do by way of the index ends in the same state, by way of heap.c and
 * figures.c; check.c holds both to it. All under the pool's lock.
 */
#ifndef POOLCUDA_POOL_HITS_H
#define POOLCUDA_POOL_HITS_H

#include "pool/internal.h"

static inline struct poolcuda_size_class *hit_class(const struct pool *pool, size_t size) {
    return &pool->figures->classes[stats_size_class(size)];
}

/* `list`: whose bin the block was in or comes to, NULL where it is idle. */
static inline void hit_count_cached(struct pool *pool, struct stream_list *list, uint64_t change, uint64_t blocks) {
    struct poolcuda_pool *figures = pool->figures;
    if (list) {
        list->bytes += change;
        pool->ordered_bytes += change;
        pool->ordered_blocks += blocks;
        stats_set(&figures->ordered_bytes, pool->ordered_bytes);
    } else {
        pool->idle_bytes += change;
        stats_set(&figures->idle_bytes, pool->idle_bytes);
    }
    stats_add(&figures->free_blocks, blocks);
}

/* A block that was taken out of a bin becomes the program's. */
static inline void hit_alloc(struct pool *pool, struct stream_list *list, struct block *block, size_t requested,
                             unsigned number, enum pool_door door) {
    const size_t size = block->size;
    figures_begin(pool);
    heap_begin_life(pool, block, requested, number);
    hit_count_cached(pool, list, -(uint64_t)size, UINT64_MAX);

    struct poolcuda_cell *cell = pool->cells[number];
    stats_add(&cell->allocs, 1);
    stats_add(&cell->hits, 1);
    stats_add(&cell->alloc_requested_bytes, requested);
    stats_add(&cell->alloc_live_bytes, size);
    stats_add(&cell->runtime_door, door == POOL_DOOR_RUNTIME);
    struct poolcuda_size_class *class = hit_class(pool, size);
    stats_add(&class->allocs, 1);
    stats_add(&class->hits, 1);
    stats_add(&class->alloc_bytes, size);
    stats_add(&class->cached_bytes, -(uint64_t)size);
    stats_raise(&pool->figures->peak_requested_bytes, pool->requested);
    stats_raise(&pool->figures->peak_live_bytes, pool->live);
}

/* A live block stops being so: the half of its free that does not depend on where it goes. */
static inline void hit_end_life(struct pool *pool, struct block *block, enum pool_door door) {
    const size_t size = block->size, requested = block->requested;
    figures_begin(pool);
    heap_end_life(pool, block);
    struct poolcuda_cell *cell = pool->cells[block->number];
    stats_add(&cell->frees, 1);
    stats_add(&cell->freed_requested_bytes, requested);
    stats_add(&cell->freed_live_bytes, size);
    stats_add(&cell->runtime_door, door == POOL_DOOR_RUNTIME);
    struct poolcuda_size_class *class = hit_class(pool, size);
    stats_add(&class->frees, 1);
    stats_add(&class->freed_bytes, size);
    stats_add(&class->cached_bytes, size);
}

/* The block, which is in the table, goes to a bin of the pool's, or to one of `list` in the order of its stream. */
static inline void hit_bin(struct pool *pool, struct stream_list *list, struct block *block, unsigned class,
                           uint64_t batch) {
    block->tag = (struct block_tag){.state = BLOCK_BINNED, .number = list ? list->number : 0, .batch = batch};
    bins_push(list ? list->bins : &pool->bins, class, block);
    if (list) {
        if (!list->bytes) list->oldest = batch;
        if (!list->bytes || batch > list->newest) list->newest = batch;
    }
    hit_count_cached(pool, list, block->size, 1);
    struct poolcuda_pool *figures = pool->figures;
    if (list)
        stats_raise(&figures->peak_ordered_bytes, pool->ordered_bytes);
    else
        stats_raise(&figures->peak_idle_bytes, pool->idle_bytes);
    stats_raise(&figures->peak_cached_bytes, pool->idle_bytes + pool->ordered_bytes + pool->waiting_bytes);
}

/* The figures of a hit are whole. */
static inline void hit_end(struct pool *pool) {
    stats_write_end(pool->figures);
}

/* The block, which is in the table, waits for a fence. */
static inline void hit_wait(struct pool *pool, struct block *block, uint64_t batch) {
    block->tag = (struct block_tag){.state = BLOCK_WAITING, .number = 1, .batch = batch};
    block->next = NULL;
    if (pool->waiting)
        pool->waiting_last->next = block;
    else
        pool->waiting = block;
    pool->waiting_last = block;
    pool->waiting_bytes += block->size;
    struct poolcuda_pool *figures = pool->figures;
    stats_set(&figures->waiting_bytes, pool->waiting_bytes);
    stats_raise(&figures->peak_waiting_bytes, pool->waiting_bytes);
    stats_raise(&figures->peak_cached_bytes, pool->idle_bytes + pool->ordered_bytes + pool->waiting_bytes);
}

/* Is the device short of memory, so that what becomes free goes back? */
static inline bool hit_is_tight(const struct pool *pool) {
    return atomic_load_explicit(&pool->device->tight, memory_order_relaxed);
}

/* Is little left of the device's memory? Then a good fit is worth more than a quick one. */
static inline bool hit_is_crowded(const struct pool *pool) {
    return atomic_load_explicit(&pool->device->crowded, memory_order_relaxed);
}

/* May a freed block of the class stay in a bin? What is to go back to the driver soon is merged at once. */
static inline bool hit_may_bin(const struct pool *pool, const struct bins *bins, unsigned class) {
    return bins_keep(bins, class) && !hit_is_tight(pool) && !hit_is_crowded(pool);
}

#endif
