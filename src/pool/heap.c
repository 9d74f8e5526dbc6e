/* SPDX-License-Identifier: MIT
 *
 * Blocks within segments: split, merge, the sums over them, and which segments are wholly free. Everything here is
 * under the pool's lock and touches no device.
 */
#include "pool/internal.h"

#include <assert.h>

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

static void segment_use(struct pool *pool, struct segment *segment, size_t bytes) {
    if (segment->used == 0) free_segments_remove(pool, segment);
    segment->used += bytes;
}

static void segment_unuse(struct pool *pool, struct segment *segment, size_t bytes) {
    segment->used -= bytes;
    if (segment->used == 0) free_segments_push(pool, segment);
}

/* Idle bytes come or go: the sums. */
static void idle_count(struct pool *pool, const struct block *block) {
    pool->idle_bytes += block->size;
    stats_add(&pool->figures->class_cached_bytes[stats_size_class(block->size)], block->size);
}

static void idle_uncount(struct pool *pool, const struct block *block) {
    pool->idle_bytes -= block->size;
    stats_add(&pool->figures->class_cached_bytes[stats_size_class(block->size)], -(uint64_t)block->size);
}

static void idle_insert(struct pool *pool, struct block *block) {
    block->state = BLOCK_IDLE;
    index_insert(&pool->idle, block);
    idle_count(pool, block);
}

static void idle_remove(struct pool *pool, struct block *block) {
    index_remove(&pool->idle, block);
    idle_uncount(pool, block);
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

/* A block in no list goes into the index, merged with its neighbours there. */
static void settle(struct pool *pool, struct block *block) {
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

static void settle_resting(struct pool *pool, struct block *block) {
    rest_remove(&pool->rest, block);
    idle_uncount(pool, block);
    settle(pool, block);
}

static void settle_all(struct pool *pool) {
    while (pool->rest.count) settle_resting(pool, rest_any(&pool->rest));
}

struct block *heap_take(struct pool *pool, size_t size, bool any) {
    struct block *block = rest_find(&pool->rest, size);
    if (block) {
        rest_remove(&pool->rest, block);
        idle_uncount(pool, block);
        return block;
    }
    size_t largest = any ? SIZE_MAX : policy_largest_fit(size, pool->device->max_split);
    block = index_find(&pool->idle, size, largest);
    if (!block && pool->rest.count) {
        settle_all(pool);
        block = index_find(&pool->idle, size, largest);
    }
    if (block) idle_remove(pool, block);
    return block;
}

struct block *heap_hand_out(struct pool *pool, struct block *block, size_t size, size_t requested, bool whole) {
    assert(block->size >= size && "a block holds what it is handed out for");
    if (!whole && policy_split(block->size, size, pool->device->max_split)) block_split(pool, block, size);
    block->state = BLOCK_LIVE;
    block->requested = requested;
    block->id = pool->generation << 40 | pool->next_id++;
    if (!live_table_add(&pool->table, block)) {
        settle(pool, block);
        return NULL;
    }
    segment_use(pool, block->segment, block->size);
    pool->live += block->size;
    pool->requested += requested;
    pool->live_blocks++;
    return block;
}

void heap_end_life(struct pool *pool, struct block *block) {
    assert(block->state == BLOCK_LEAVING && "a block leaves before its life ends");
    pool->live -= block->size;
    pool->requested -= block->requested;
    pool->live_blocks--;
}

void heap_make_idle(struct pool *pool, struct block *block) {
    segment_unuse(pool, block->segment, block->size);
    settle(pool, block);
}

void heap_rest(struct pool *pool, struct block *block) {
    if (!rest_takes(block->size)) {
        heap_make_idle(pool, block);
        return;
    }
    if (!rest_has_room(&pool->rest, block->size)) settle_all(pool);
    segment_unuse(pool, block->segment, block->size);
    block->state = BLOCK_RESTING;
    rest_insert(&pool->rest, block);
    idle_count(pool, block);
}

size_t heap_largest(const struct pool *pool) {
    return pool->rest.largest > pool->idle.largest ? pool->rest.largest : pool->idle.largest;
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
            free_segments_push(pool, segment);
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
    assert(segment->used == 0 && "only a wholly free segment is given back");
    for (struct block *block = segment->first; block; block = block->after) {
        if (block->state != BLOCK_RESTING) continue;
        settle_resting(pool, block);
        block = segment->first; /* idle: the loop goes on behind it */
    }
    struct block *block = segment->first;
    assert(block->size == segment->size && "idle blocks of a wholly free segment are one when all are merged");
    idle_remove(pool, block);
    records_put_block(&pool->records, block);
    segment->first = NULL;
    free_segments_remove(pool, segment);
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
    pool->rest = (struct rest){0};
    pool->waiting = NULL;
    pool->free_segments = NULL;
    pool->live = pool->requested = pool->live_blocks = pool->releasable = 0;
    pool->idle_bytes = pool->ordered_bytes = pool->waiting_bytes = pool->retired_bytes = 0;
}
