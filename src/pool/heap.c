/* SPDX-License-Identifier: MIT
 *
 * Blocks within segments: split, merge, the sums over them, and which segments are wholly free. Everything here is
 * under the pool's lock and touches no device.
 */
#include "pool/internal.h"

#include <assert.h>

/* A segment is wholly free when its one block is idle. */
static bool block_is_segment(const struct block *block) {
    return block->size == block->segment->size;
}

static void free_segments_push(struct pool *pool, struct segment *segment) {
    segment->free_previous = NULL;
    segment->free_next = pool->free_segments;
    if (pool->free_segments) pool->free_segments->free_previous = segment;
    pool->free_segments = segment;
    pool->releasable += segment->size;
}

static void free_segments_remove(struct pool *pool, struct segment *segment) {
    if (segment->free_previous)
        segment->free_previous->free_next = segment->free_next;
    else
        pool->free_segments = segment->free_next;
    if (segment->free_next) segment->free_next->free_previous = segment->free_previous;
    segment->free_previous = segment->free_next = NULL;
    pool->releasable -= segment->size;
}

static void idle_insert(struct pool *pool, struct block *block) {
    block->state = BLOCK_IDLE;
    index_insert(&pool->idle, block);
    pool->idle_bytes += block->size;
    stats_add(&pool->figures->classes[stats_size_class(block->size)].cached_bytes, block->size);
    if (block_is_segment(block)) free_segments_push(pool, block->segment);
}

static void idle_remove(struct pool *pool, struct block *block) {
    index_remove(&pool->idle, block);
    pool->idle_bytes -= block->size;
    stats_add(&pool->figures->classes[stats_size_class(block->size)].cached_bytes, -(uint64_t)block->size);
    if (block_is_segment(block)) free_segments_remove(pool, block->segment);
}

/* `block` takes over the bytes of its neighbour behind it, whose record is given back. */
static void block_absorb(struct pool *pool, struct block *block) {
    struct block *gone = block->after;
    block->size += gone->size;
    block->after = gone->after;
    if (block->after) block->after->before = block;
    records_put_block(&pool->records, gone);
    stats_add(&pool->cell->merges, 1);
}

/* Cut the end of `block` off as a block of its own, in no list. False when host memory ran out. */
static bool block_split(struct pool *pool, struct block *block, size_t size) {
    struct block *rest = records_block(&pool->records);
    if (!rest) return false;
    rest->address = block->address + size;
    rest->size = block->size - size;
    rest->segment = block->segment;
    rest->before = block;
    rest->after = block->after;
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block->size = size;
    stats_add(&pool->cell->splits, 1);
    idle_insert(pool, rest);
    return true;
}

struct block *heap_take(struct pool *pool, size_t size, bool any) {
    size_t largest = any ? SIZE_MAX : policy_largest_fit(size, pool->device->max_split);
    struct block *block = index_find(&pool->idle, size, largest);
    if (block) idle_remove(pool, block);
    return block;
}

struct block *heap_hand_out(struct pool *pool, struct block *block, size_t size, size_t requested) {
    assert(block->size >= size && "a block holds what it is handed out for");
    if (policy_split(block->size, size, pool->device->max_split)) block_split(pool, block, size);
    block->state = BLOCK_LIVE;
    block->requested = requested;
    block->id = pool->generation << 40 | pool->next_id++;
    if (!live_table_add(&pool->table, block)) {
        heap_make_idle(pool, block);
        return NULL;
    }
    pool->live += block->size;
    pool->requested += requested;
    pool->live_blocks++;
    return block;
}

void heap_end_life(struct pool *pool, struct block *block) {
    assert(block->state == BLOCK_LIVE && "only a live block ends its life");
    pool->live -= block->size;
    pool->requested -= block->requested;
    pool->live_blocks--;
}

void heap_make_idle(struct pool *pool, struct block *block) {
    if (block->after && block->after->state == BLOCK_IDLE) {
        idle_remove(pool, block->after);
        block_absorb(pool, block);
    }
    if (block->before && block->before->state == BLOCK_IDLE) {
        block = block->before;
        idle_remove(pool, block);
        block_absorb(pool, block);
    }
    idle_insert(pool, block);
}

void heap_set_aside(struct pool *pool, struct block *block, enum block_state state) {
    block->state = state;
    if (state == BLOCK_WAITING) {
        block->next = pool->waiting;
        pool->waiting = block;
        pool->waiting_bytes += block->size;
    } else {
        assert(state == BLOCK_RETIRED && "a block whose life ended is idle, waiting or retired");
        pool->retired_bytes += block->size;
    }
}

struct block *heap_add_segment(struct pool *pool, uint64_t address, size_t size) {
    struct segment *segment = records_segment(&pool->records);
    struct block *block = records_block(&pool->records);
    if (segment && block) {
        *segment = (struct segment){.address = address, .size = size, .pool = pool, .first = block};
        *block = (struct block){.address = address, .size = size, .segment = segment};
        if (registry_add(&pool->system->registry, segment)) {
            segment->next = pool->segments;
            if (pool->segments) pool->segments->previous = segment;
            pool->segments = segment;
            pool->segment_count++;
            pool->reserved += size;
            return block;
        }
    }
    if (segment) records_put_segment(&pool->records, segment);
    if (block) records_put_block(&pool->records, block);
    return NULL;
}

static void unlink_segment(struct pool *pool, struct segment *segment) {
    registry_remove(&pool->system->registry, segment);
    if (segment->previous)
        segment->previous->next = segment->next;
    else
        pool->segments = segment->next;
    if (segment->next) segment->next->previous = segment->previous;
    segment->previous = segment->next = NULL;
    pool->segment_count--;
    pool->reserved -= segment->size;
}

void heap_detach_segment(struct pool *pool, struct segment *segment) {
    struct block *block = segment->first;
    assert(block->state == BLOCK_IDLE && block_is_segment(block) && "only a wholly free segment is given back");
    idle_remove(pool, block);
    records_put_block(&pool->records, block);
    segment->first = NULL;
    unlink_segment(pool, segment);
}

void heap_forget(struct pool *pool) {
    while (pool->segments) {
        struct segment *segment = pool->segments;
        for (struct block *block = segment->first, *after; block; block = after) {
            after = block->after;
            records_put_block(&pool->records, block);
        }
        unlink_segment(pool, segment);
        records_put_segment(&pool->records, segment);
    }
    live_table_free(&pool->table);
    pool->idle = (struct free_index){0};
    pool->waiting = NULL;
    pool->free_segments = NULL;
    pool->live = pool->requested = pool->live_blocks = pool->releasable = 0;
    pool->idle_bytes = pool->ordered_bytes = pool->waiting_bytes = pool->retired_bytes = 0;
}
