/* SPDX-License-Identifier: MIT
 *
 * The pool's invariants as code: a walk over every segment, block, list and sum, and over the figures that should say
 * the same. In every unit test, and after every call in builds with -Dcheck_every_call=true.
 */
#include "pool/internal.h"

#include <stdio.h>
#include <stdlib.h>

/* Sums of a walk, to be compared with what the pool keeps. */
struct walk {
    uint64_t live, requested, reserved, idle, waiting, ordered, retired, releasable, live_blocks, in_table, idle_blocks,
        segments;
    size_t largest;
};

#define HOLDS(condition) \
    if (!(condition)) return #condition

static const char *check_block(const struct pool *pool, const struct segment *segment, const struct block *block,
                               struct walk *walk) {
    HOLDS(block->segment == segment && "a block knows its segment");
    HOLDS(block->size >= UNIT && block->size % UNIT == 0 && "a block is a positive number of units");
    HOLDS((!block->before || block->before->after == block) && "neighbours know each other");
    HOLDS((!block->after || block->after->address == block->address + block->size) && "neighbours touch");
    switch (block->state) {
    case BLOCK_LIVE:
        HOLDS(live_table_find(&pool->table, block->address) == block && "a live block is in the table");
        walk->in_table++;
        HOLDS(block->requested > 0 && block->requested <= block->size && "a request fits its block");
        walk->live += block->size;
        walk->requested += block->requested;
        walk->live_blocks++;
        return NULL;
    case BLOCK_IDLE:
        HOLDS((!block->after || block->after->state != BLOCK_IDLE) && "idle neighbours are merged");
        walk->idle += block->size;
        walk->idle_blocks++;
        if (block->size > walk->largest) walk->largest = block->size;
        if (block->size == segment->size) walk->releasable += block->size;
        return NULL;
    case BLOCK_ORDERED:
        walk->ordered += block->size;
        return NULL;
    case BLOCK_WAITING:
        walk->waiting += block->size;
        return NULL;
    case BLOCK_RETIRED:
        walk->retired += block->size;
        return NULL;
    }
    return "a block is in one of its states";
}

static const char *check_index(const struct free_index *index, const struct walk *walk) {
    size_t count = 0;
    for (unsigned first = 0; first < INDEX_FIRST_LEVELS; first++) {
        HOLDS(((index->first_map >> first & 1) != 0) == (index->second_map[first] != 0) &&
              "the first map sums up the second");
        for (unsigned second = 0; second < INDEX_SECOND_LEVELS; second++) {
            const struct block *head = index->heads[first][second];
            HOLDS(((index->second_map[first] >> second & 1) != 0) == (head != NULL) &&
                  "the map shows which lists are empty");
            for (const struct block *block = head; block; block = block->next, count++) {
                HOLDS(block->state == BLOCK_IDLE && "only idle blocks are in the index");
                HOLDS(index_class(block->size) == first * INDEX_SECOND_LEVELS + second &&
                      "a block is in the list of its class");
                HOLDS((block->previous ? block->previous->next == block : block == head) &&
                      "the list is linked both ways");
            }
        }
    }
    HOLDS(count == walk->idle_blocks && count == index->count && "every idle block is in the index");
    HOLDS(index->largest == walk->largest && "the index knows its largest block");
    return NULL;
}

static const char *check_figures(const struct pool *pool) {
    const struct poolcuda_pool *figures = pool->figures;
    const struct poolcuda_cell *cell = pool->cell;
    HOLDS(figures->sequence % 2 == 0 && "nobody writes the figures without the lock");
    HOLDS(figures->reserved_bytes == pool->reserved && "figures: reserved");
    HOLDS(figures->idle_bytes == pool->idle_bytes && figures->waiting_bytes == pool->waiting_bytes &&
          "figures: cached");
    HOLDS(figures->releasable_bytes == pool->releasable && "figures: releasable");
    HOLDS(figures->largest_free_bytes == pool->idle.largest && "figures: largest free block");
    HOLDS(figures->segment_alloc_bytes - figures->segment_release_bytes >= pool->reserved && "figures: segment bytes");
    HOLDS(figures->segment_allocs - figures->segment_releases >= pool->segment_count && "figures: segments");
    HOLDS(cell->alloc_live_bytes - cell->freed_live_bytes == pool->live && "figures: live");
    HOLDS(cell->alloc_requested_bytes - cell->freed_requested_bytes == pool->requested && "figures: requested");
    HOLDS(cell->allocs - cell->frees == pool->live_blocks && "figures: live blocks");
    HOLDS(cell->allocs == cell->hits + cell->misses && "figures: every allocation is a hit or a miss");
    uint64_t live = 0, cached = 0;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        live += figures->classes[i].alloc_bytes - figures->classes[i].freed_bytes;
        cached += figures->classes[i].cached_bytes;
    }
    HOLDS(live == pool->live && "figures: live by size class");
    HOLDS(cached == pool->idle_bytes && "figures: cached by size class");
    return NULL;
}

/* Under pool->lock. */
static const char *check_pool(const struct pool *pool) {
    struct walk walk = {0};
    for (const struct segment *segment = pool->segments; segment; segment = segment->next) {
        HOLDS(segment->pool == pool && "a segment knows its pool");
        HOLDS(registry_segment(&pool->system->registry, segment->address) == segment && "a segment is in the table");
        HOLDS(segment->first && segment->first->address == segment->address && !segment->first->before &&
              "blocks begin with their segment");
        uint64_t sum = 0;
        for (const struct block *block = segment->first; block; block = block->after) {
            const char *broken = check_block(pool, segment, block, &walk);
            if (broken) return broken;
            sum += block->size;
        }
        HOLDS(sum == segment->size && "blocks fill their segment");
        walk.reserved += segment->size;
        walk.segments++;
    }
    HOLDS(walk.live == pool->live && walk.requested == pool->requested && walk.live_blocks == pool->live_blocks &&
          "live sums");
    HOLDS(walk.in_table == pool->table.count && "only live blocks are in the table");
    HOLDS(walk.reserved == pool->reserved && walk.segments == pool->segment_count && "reserved sums");
    HOLDS(walk.idle == pool->idle_bytes && walk.retired == pool->retired_bytes && walk.ordered == pool->ordered_bytes &&
          "cached sums");
    /* Blocks whose wait is under way are in no list, but they are waiting. */
    HOLDS(walk.waiting == pool->waiting_bytes && "waiting sums");
    HOLDS(walk.releasable == pool->releasable && "releasable sums");
    HOLDS(walk.live + walk.idle + walk.waiting + walk.ordered + walk.retired == walk.reserved &&
          "every byte is accounted for");
    const char *broken = check_index(&pool->idle, &walk);
    return broken ? broken : check_figures(pool);
}

const char *pool_check(struct pool_system *system) {
    const char *broken = NULL;
    for (struct pool *pool = atomic_load(&system->pools); pool && !broken; pool = pool->next) {
        pthread_mutex_lock(&pool->lock);
        broken = check_pool(pool);
        pthread_mutex_lock(&pool->device->lock);
        if (!broken && pool->device->reserved < pool->reserved)
            broken = "a device counts its pools' segments as reserved";
        pthread_mutex_unlock(&pool->device->lock);
        pthread_mutex_unlock(&pool->lock);
    }
    return broken;
}

#ifdef POOL_CHECK_EVERY_CALL
void check_or_abort(struct pool_system *system) {
    const char *broken = pool_check(system);
    if (!broken) return;
    fprintf(stderr, "poolcuda: an invariant is broken: %s\n", broken);
    abort();
}
#endif
