/* SPDX-License-Identifier: MIT
 *
 * What a hit that stays within the bins of a front does to a block, the front's sums and its cell of the figures: the
 * whole of it, in one place and written for speed. All under the front's lock. front.c has what goes by way of the
 * pool's lock and ends in the same state; check.c holds both to it.
 */
#ifndef POOLCUDA_POOL_HITS_H
#define POOLCUDA_POOL_HITS_H

#include "pool/internal.h"

/* Bracket a change of a cell, as stats_write_begin and _end do of a pool's record; what begin returned is end's. */
static inline uint64_t cell_begin(struct poolcuda_cell *cell) {
    const uint64_t sequence = stats_get(&cell->sequence);
    stats_set(&cell->sequence, sequence + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return sequence + 2;
}
static inline void cell_end(struct poolcuda_cell *cell, uint64_t sequence) {
    __atomic_store_n(&cell->sequence, sequence, __ATOMIC_RELEASE);
}

static inline void hit_count_alloc(struct poolcuda_cell *cell, struct poolcuda_size_class *class, size_t size,
                                   size_t requested, enum pool_door door) {
    stats_add(&class->allocs, 1);
    stats_add(&class->alloc_bytes, size);
    stats_add(&cell->alloc_requested_bytes, requested);
    if (door == POOL_DOOR_DRIVER) stats_add(&cell->driver_door, 1);
}

static inline void hit_count_free(struct poolcuda_cell *cell, struct poolcuda_size_class *class, size_t size,
                                  size_t requested, enum pool_door door) {
    stats_add(&class->frees, 1);
    stats_add(&class->freed_bytes, size);
    stats_add(&cell->freed_requested_bytes, requested);
    if (door == POOL_DOOR_DRIVER) stats_add(&cell->driver_door, 1);
}

/* A block of the table that is in no list becomes the program's. */
static inline void hit_begin_life(struct front *front, struct block *block, size_t size, size_t requested) {
    block_set_tag_word(block, front->live_tag);
    block->requested = requested;
    block->id = front_get(&front->next_id);
    front_set(&front->next_id, block->id + 1);
    front_add(&front->live, size);
    front_add(&front->requested, requested);
}

/* A block for the request out of its bin, live and counted; NULL: all is as it was. */
static inline struct block *hit_alloc(struct front *front, unsigned class, size_t size, size_t requested,
                                      enum pool_door door) {
    struct block **bin = bins_find(&front->bins, class, size);
    if (__builtin_expect(!bin, 0)) return NULL;
    const size_t bytes = (*bin)->size;
    if (__builtin_expect(front_get(&front->live) + bytes > front_get(&front->most_live) ||
                             front_get(&front->requested) + requested > front_get(&front->most_requested),
                         0))
        return NULL;
    struct block *block = bins_take(bin);
    struct poolcuda_cell *cell = front->cell;
    const uint64_t at = cell_begin(cell);
    hit_begin_life(front, block, bytes, requested);
    hit_count_alloc(cell, &cell->classes[stats_size_class(bytes)], bytes, requested, door);
    cell_end(cell, at);
    return block;
}

/* The live block at `address` that a hit may free, NULL when it is for the pool's lock to tell. `block`: what the table
 * says, at that moment or an earlier one. */
static inline struct block *hit_live(const struct front *front, struct block *block, uint64_t address) {
    return __builtin_expect(block_tag_word(block) == front->live_tag && block_address(block) == address, 1) ? block
                                                                                                            : NULL;
}

/* A live block stops being so: the half of its free that does not depend on where it goes. */
static inline void hit_end_life(struct front *front, struct block *block, enum pool_door door) {
    const size_t size = block->size, requested = block->requested;
    front_add(&front->live, -(uint64_t)size);
    front_add(&front->requested, -(uint64_t)requested);
    struct poolcuda_cell *cell = front->cell;
    hit_count_free(cell, &cell->classes[stats_size_class(size)], size, requested, door);
}

/* The block, which is in the table, goes to a bin. */
static inline void hit_bin(struct front *front, struct block *block, unsigned class, uint64_t batch) {
    block_set_tag(block, (struct block_tag){.state = BLOCK_BINNED, .number = front->number, .batch = batch});
    bins_push(&front->bins, class, block);
    front_set(&front->newest, batch);
}

/* The block, which is in the table, waits for a fence. */
static inline void hit_wait(struct front *front, struct block *block, uint64_t batch) {
    struct waiting_queue *waiting = &front->waiting;
    block_set_tag(block, (struct block_tag){.state = BLOCK_WAITING, .number = front->number, .batch = batch});
    block->next = NULL;
    if (waiting->first)
        waiting->last->next = block;
    else
        waiting->first = block;
    waiting->last = block;
}

/* Is the device short of memory, so that what becomes free goes back, or is little left of it, so that a good fit is
 * worth more than a quick one? */
static inline bool hit_is_pressed(const struct front *front) {
    return atomic_load_explicit(front->pressed, memory_order_relaxed) != 0;
}

/* Is it still of the size that was read without the lock? A record may have become another block's in between. */
static inline bool hit_is_of_size(const struct block *block, size_t size) {
    return __builtin_expect(block_size(block) == size, 1);
}

/* May a freed block of the class stay in a bin? What is to go back to the driver soon is merged at once. */
static inline bool hit_may_bin(const struct front *front, unsigned class) {
    return bins_keep(&front->bins, class) && !hit_is_pressed(front);
}

/* The calling thread's front of a pool of the plain kind: one that serves nobody where it has none yet. */
static inline struct front *hit_front_of_thread(const struct pool *pool) {
    struct front *front = __atomic_load_n(&pool->fronts[front_of_thread], __ATOMIC_ACQUIRE);
    return __builtin_expect(front != NULL, 1) ? front : pool->fronts[0];
}

#endif
