/* SPDX-License-Identifier: MIT
 *
 * The pool's invariants as code: a walk over every segment, block, list and sum, and over the figures that should say
 * the same. In every unit test, and after every call in builds with -Dcheck_every_call=true.
 */
#include "pool/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums of a walk, to be compared with what the pool keeps. */
struct walk {
    uint64_t reserved, idle, waiting, ordered, retired, exported, releasable, in_table, fixed, parts, idle_blocks,
        ordered_blocks, segments;
    size_t largest, ordered_largest;
    uint64_t held_by_class[POOLCUDA_SIZE_CLASSES], cached_by_class[POOLCUDA_SIZE_CLASSES]; /* by fronts; else */
    struct front_walk {
        uint64_t live, requested, live_blocks, binned, binned_blocks, waiting;
    } fronts[FRONTS_MOST];
};

#define HOLDS(condition) \
    if (!(condition)) return #condition

/* A block that is its front's. */
static const char *check_fronts_block(const struct pool *pool, const struct block *block, struct walk *walk) {
    const struct block_tag tag = block_tag(block);
    HOLDS(tag.number < pool->front_count && pool->fronts[tag.number] && "a block's front is one of its pool");
    HOLDS(live_table_entry(&pool->table, block->address) == block && "a block of a front is in the table");
    struct front_walk *front = &walk->fronts[tag.number];
    walk->in_table++;
    walk->held_by_class[stats_size_class(block->size)] += block->size;
    if (tag.state == BLOCK_LIVE) {
        HOLDS(block->requested > 0 && block->requested <= block->size && "a request fits its block");
        front->live += block->size;
        front->requested += block->requested;
        front->live_blocks++;
    } else if (tag.state == BLOCK_WAITING) {
        front->waiting += block->size;
    } else {
        front->binned += block->size;
        front->binned_blocks++;
    }
    return NULL;
}

static const char *check_block(const struct pool *pool, const struct segment *segment, const struct block *block,
                               struct walk *walk) {
    const struct block_tag tag = block_tag(block);
    const unsigned class = stats_size_class(block->size);
    HOLDS(block->segment == segment && "a block knows its segment");
    HOLDS(block->size >= UNIT && block->size % UNIT == 0 && "a block is a positive number of units");
    HOLDS((!block->before || block->before->after == block) && "neighbours know each other");
    HOLDS((!block->after || block->after->address == block->address + block->size) && "neighbours touch");
    HOLDS((!segment->fixed || (block->size == segment->fixed->size && tag.state != BLOCK_IDLE)) &&
          "a block of a fixed size is neither split nor merged nor given to others");
    switch ((enum block_state)tag.state) {
    case BLOCK_LIVE:
    case BLOCK_BINNED:
        return check_fronts_block(pool, block, walk);
    case BLOCK_IDLE:
        HOLDS((!block->after || block_tag(block->after).state != BLOCK_IDLE) && "idle neighbours are merged");
        walk->idle += block->size;
        walk->cached_by_class[class] += block->size;
        walk->idle_blocks++;
        if (block->size > walk->largest) walk->largest = block->size;
        if (block->size == segment->size) walk->releasable += block->size;
        return NULL;
    case BLOCK_ORDERED:
        HOLDS(tag.number > 0 && tag.number < pool->list_count && "an ordered block is in a list");
        HOLDS((!block->after || block_tag(block->after).state != BLOCK_ORDERED ||
               block_tag(block->after).number != tag.number) &&
              "neighbours in one list are merged");
        HOLDS(tag.batch <= fences_open_batch(&pool->system->fences) && "no batch is later than the open one");
        walk->ordered += block->size;
        walk->cached_by_class[class] += block->size;
        walk->ordered_blocks++;
        if (block->size > walk->ordered_largest) walk->ordered_largest = block->size;
        return NULL;
    case BLOCK_WAITING:
        if (tag.number) return check_fronts_block(pool, block, walk);
        walk->waiting += block->size;
        walk->cached_by_class[class] += block->size;
        return NULL;
    case BLOCK_RETIRED:
        walk->retired += block->size;
        return NULL;
    case BLOCK_EXPORTED:
        HOLDS(tag.batch & ~NOTE_WAITED && "a block is kept for a reason");
        walk->exported += block->size;
        return NULL;
    case BLOCK_FIXED:
        HOLDS(segment->fixed && "only a fixed-size pool has such blocks");
        walk->fixed += block->size;
        return NULL;
    case BLOCK_ENDING: /* only with the lock, which is ours */
        break;
    }
    return "a block is in one of its states";
}

/* Sums over one index. */
struct index_sums {
    size_t count, bytes, largest;
    uint64_t oldest, newest; /* batches */
};

/* `state` and `number`: of every block in it. */
static const char *check_index(const struct free_index *index, enum block_state state, unsigned number,
                               struct index_sums *sums) {
    *sums = (struct index_sums){.oldest = UINT64_MAX};
    for (unsigned first = 0; first < INDEX_FIRST_LEVELS; first++) {
        HOLDS(((index->first_map >> first & 1) != 0) == (index->second_map[first] != 0) &&
              "the first map sums up the second");
        for (unsigned second = 0; second < INDEX_SECOND_LEVELS; second++) {
            const struct block *head = index->heads[first][second];
            HOLDS(((index->second_map[first] >> second & 1) != 0) == (head != NULL) &&
                  "the map shows which lists are empty");
            for (const struct block *block = head; block; block = block->next) {
                const struct block_tag tag = block_tag(block);
                HOLDS(tag.state == state && "only free blocks of one state are in an index");
                HOLDS((state == BLOCK_IDLE || tag.number == number) && "an ordered block is in its own list");
                HOLDS(index_class(block->size) == first * INDEX_SECOND_LEVELS + second &&
                      "a block is in the list of its class");
                HOLDS((block->previous ? block->previous->next == block : block == head) &&
                      "the list is linked both ways");
                sums->count++;
                sums->bytes += block->size;
                if (block->size > sums->largest) sums->largest = block->size;
                if (tag.batch < sums->oldest) sums->oldest = tag.batch;
                if (tag.batch > sums->newest) sums->newest = tag.batch;
            }
        }
    }
    HOLDS(sums->count == index->count && "the index counts its blocks");
    HOLDS(index->largest == sums->largest && "the index knows its largest block");
    return NULL;
}

static const char *check_queue(const struct waiting_queue *waiting, unsigned number, uint64_t bytes) {
    uint64_t sum = 0, batch = 0;
    for (const struct block *block = waiting->first; block; block = block->next) {
        const struct block_tag tag = block_tag(block);
        HOLDS(tag.state == BLOCK_WAITING && tag.number == number && "only waiting blocks are in their queue");
        HOLDS(tag.batch >= batch && "the queue is in the order of batches");
        HOLDS((block->next || block == waiting->last) && "the queue knows its end");
        batch = tag.batch;
        sum += block->size;
    }
    HOLDS(sum == bytes && sum == waiting->bytes && "every waiting block is in its queue");
    return NULL;
}

static const char *check_bins(const struct front *front, const struct front_walk *walk) {
    uint64_t count = 0;
    for (unsigned class = 0; class <= BIN_CLASSES; class ++) {
        for (const struct block *block = front->bins.heads[class]; block; block = block->next, count++) {
            const struct block_tag tag = block_tag(block);
            HOLDS(class < BIN_CLASSES && tag.state == BLOCK_BINNED && tag.number == front->number &&
                  "a bin has its own blocks");
            HOLDS(index_class(block->size) == class && "a block is in the bin of its class");
            HOLDS(tag.batch <= front->newest && "a front bounds the batches of its bins");
            HOLDS((front->number <= FRONTS_OF_THREADS || tag.batch >= front->since) &&
                  "a front bounds the batches of its bins from below");
        }
    }
    HOLDS(count == walk->binned_blocks && "every binned block is in a bin");
    return NULL;
}

static const char *check_front(const struct front *front, const struct front_walk *walk) {
    HOLDS(front->live == walk->live && front->requested == walk->requested && "live sums");
    HOLDS(front_binned(front) == walk->binned && "a front knows what its bins hold");
    HOLDS((!front->list || front->list->front == front) && "a list and its front know each other");
    const char *broken = check_bins(front, walk);
    if (!broken) broken = check_queue(&front->waiting, front->number, walk->waiting);
    if (broken || !front->cell) return broken;
    uint64_t blocks = 0, live = 0;
    const struct poolcuda_cell *cell = front->cell;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        const struct poolcuda_size_class *class = &cell->classes[i];
        HOLDS(class->misses <= class->allocs && "figures: no more misses than allocations");
        blocks += class->allocs - class->frees;
        live += class->alloc_bytes - class->freed_bytes;
    }
    HOLDS(cell->sequence % 2 == 0 && "nobody writes the figures without the lock");
    HOLDS(blocks == walk->live_blocks && live == walk->live && "figures: live");
    HOLDS(cell->alloc_requested_bytes - cell->freed_requested_bytes == walk->requested && "figures: requested");
    HOLDS(cell->waiting_bytes == walk->waiting && "figures: waiting");
    return NULL;
}

static const char *check_fronts(const struct pool *pool, const struct walk *walk) {
    uint64_t live = 0, requested = 0;
    for (unsigned i = 0; i < pool->front_count; i++) {
        const struct front *front = pool->fronts[i];
        if (!front) continue;
        const char *broken = check_front(front, &walk->fronts[i]);
        if (broken) return broken;
        live += front->live;
        requested += front->requested;
    }
    const uint64_t most = pool->figures->peak_live_bytes, asked = pool->figures->peak_requested_bytes;
    HOLDS(live <= most + most / 8 && requested <= asked + asked / 8 && "the peaks are not far below what is live");
    return NULL;
}

static const char *check_lists(const struct pool *pool, const struct walk *walk) {
    uint64_t count = 0, bytes = 0;
    for (unsigned i = 1; i < pool->list_count; i++) {
        const struct stream_list *list = pool->lists[i];
        struct index_sums sums;
        const char *broken = check_index(list->index, BLOCK_ORDERED, i, &sums);
        if (broken) return broken;
        HOLDS((!list->front || (list->front->list == list && list->id)) && "a list has the front of its stream");
        HOLDS(list->number == i && "a list knows its number");
        HOLDS((!list->id || streams_find(pool, list->id) == list) && "a stream finds its list");
        HOLDS(sums.bytes == list->bytes && "a list counts its bytes");
        HOLDS((!sums.count || (sums.oldest >= list->oldest && sums.newest <= list->newest)) &&
              "a list bounds its batches");
        count += sums.count;
        bytes += sums.bytes;
    }
    HOLDS(count == walk->ordered_blocks && bytes == walk->ordered && count == pool->ordered_blocks &&
          "every ordered block is in a list");
    HOLDS(walk->ordered_largest == pool->ordered_largest && "the pool knows its largest ordered block");
    return NULL;
}

static const char *check_exported(const struct pool *pool, const struct walk *walk) {
    uint64_t bytes = 0;
    unsigned traceable = 0, untraceable = 0;
    for (const struct block *block = pool->exported; block; block = block->next) {
        HOLDS(block_tag(block).state == BLOCK_EXPORTED && "only exported blocks are in their queue");
        HOLDS((block->next ? block->next->previous == block : block == pool->exported_last) &&
              "the queue is linked both ways");
        bytes += block->size;
        if (block_tag(block).batch & NOTE_UNTRACEABLE)
            untraceable++;
        else
            traceable++;
    }
    HOLDS(bytes == walk->exported && bytes == pool->exported_bytes && "every exported block is in the queue");
    HOLDS(traceable == pool->traceable && untraceable == pool->untraceable && "exported blocks are counted");
    return NULL;
}

static const char *check_fixed(const struct pool *pool, const struct walk *walk) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < pool->fixed_count; i++) {
        const struct fixed_size *fixed = &pool->fixed[i];
        uint64_t count = 0;
        for (const struct block *block = fixed->free; block; block = block->next, count++)
            HOLDS(block_tag(block).state == BLOCK_FIXED && block->segment->fixed == fixed &&
                  "a free block is of its size");
        HOLDS(count == fixed->idle && count <= fixed->blocks && fixed->blocks <= fixed->asked && "blocks are counted");
        HOLDS(fixed->figures->blocks == fixed->blocks && fixed->figures->in_use == fixed->blocks - fixed->idle &&
              "figures: fixed-size blocks");
        bytes += count * fixed->size;
    }
    HOLDS(bytes == walk->fixed && bytes == pool->fixed_free_bytes && "every free block of a fixed size is in its list");
    HOLDS(pool->figures->fixed_free_bytes == bytes && "figures: free fixed-size blocks");
    return NULL;
}

static const char *check_wholes(const struct pool *pool, const struct walk *walk) {
    uint64_t unused = 0, bytes = 0, parts = 0;
    for (struct segment *whole = pool->wholes; whole; whole = whole->next) {
        uint64_t used = 0, end = whole->address;
        HOLDS(registry_segment(&pool->system->registry, whole->address) == whole && "a whole is in the table");
        for (const struct segment *part = whole->parts; part; part = part->part_next) {
            HOLDS(part->whole == whole && part->address >= end && "parts lie in their whole, apart");
            end = part->address + part->size;
            used += part->size;
        }
        HOLDS(end <= whole->address + whole->size && whole->unused == whole->size - used && "a whole knows its room");
        parts += used;
        unused += whole->unused;
        bytes += whole->size;
    }
    HOLDS(parts == walk->parts && "every part is in its whole");
    HOLDS(unused == pool->unused_bytes && bytes == pool->prealloc_bytes && "sums over the wholes");
    HOLDS(pool->figures->prealloc_bytes == bytes && pool->figures->prealloc_unused_bytes == unused &&
          "figures: preallocated");
    return NULL;
}

static bool is_in(const struct segment *segment, const struct segment *list) {
    while (list && list != segment) list = list->next;
    return list != NULL;
}

static const char *check_map(const struct pool *pool) {
    const struct map_walk *walk = &pool->map;
    const struct block *next = pool->records.walked;
    uint64_t counted = 0;
    HOLDS((walk->segment || (!walk->part && !next)) && "a walk that is at no segment goes on with no block");
    if (!walk->segment) return NULL;
    HOLDS((is_in(walk->segment, pool->segments) || is_in(walk->segment, pool->wholes)) && "a walk is at a segment");
    HOLDS((!walk->part || (is_in(walk->part, pool->segments) && walk->part->whole == walk->segment)) &&
          "or at a part of it");
    HOLDS((!next || next->segment == (walk->part ? walk->part : walk->segment)) && "and at a block there");
    for (unsigned i = 0; walk->begun && i <= MAP_STATES; i++) counted += walk->bytes[i];
    HOLDS((!walk->begun || (counted == walk->at && walk->at <= walk->segment->size)) && "each byte is counted once");
    return NULL;
}

static const char *check_figures(const struct pool *pool, const struct walk *walk) {
    const struct poolcuda_pool *figures = pool->figures;
    HOLDS(figures->sequence % 2 == 0 && pool->writing == 0 && "nobody writes the figures without the lock");
    HOLDS(figures->reserved_bytes == pool->reserved + pool->unused_bytes && "figures: reserved");
    HOLDS(figures->idle_bytes == pool->idle_bytes && figures->waiting_bytes == pool->waiting.bytes &&
          "figures: cached");
    HOLDS(figures->releasable_bytes == pool->releasable && "figures: releasable");
    HOLDS(figures->ordered_bytes == pool->ordered_bytes && "figures: ordered");
    HOLDS(figures->retired_bytes == pool->retired_bytes && figures->exported_bytes == pool->exported_bytes &&
          "figures: kept");
    HOLDS(figures->largest_free_bytes == heap_largest(pool) && "figures: largest free block");
    HOLDS(figures->free_blocks == pool->idle.count + pool->ordered_blocks && "figures: free blocks");
    HOLDS(figures->peak_reserved_bytes >= pool->reserved + pool->unused_bytes && "figures: peak of reserved memory");
    HOLDS(figures->segment_alloc_bytes - figures->segment_release_bytes >= pool->reserved && "figures: segment bytes");
    HOLDS(figures->segment_allocs - figures->segment_releases >= pool->segment_count && "figures: segments");
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        uint64_t held = 0;
        for (unsigned k = 0; k < pool->front_count; k++)
            if (pool->fronts[k] && pool->fronts[k]->cell) held += pool->fronts[k]->cell->classes[i].held_bytes;
        HOLDS(held == walk->held_by_class[i] && "figures: held by size class");
        HOLDS(figures->class_cached_bytes[i] == walk->cached_by_class[i] && "figures: cached by size class");
    }
    return NULL;
}

/* Under pool->lock, with those of all fronts. */
static const char *check_pool(const struct pool *pool) {
    struct walk walk;
    memset(&walk, 0, sizeof walk);
    for (struct segment *segment = pool->segments; segment; segment = segment->next) {
        HOLDS(segment->pool == pool && "a segment knows its pool");
        HOLDS(registry_segment(&pool->system->registry, segment->address) == segment_whole(segment) &&
              "a segment is in the table");
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
        walk.segments += !segment->whole;
        if (segment->whole) walk.parts += segment->size;
    }
    for (const struct segment *whole = pool->wholes; whole; whole = whole->next) walk.segments++;
    HOLDS(walk.in_table == pool->table.count && "the table has live and kept blocks, and no other");
    HOLDS(walk.reserved == pool->reserved && walk.segments == pool->segment_count && "reserved sums");
    HOLDS(walk.idle == pool->idle_bytes && walk.retired == pool->retired_bytes && walk.ordered == pool->ordered_bytes &&
          "cached sums");
    HOLDS(walk.releasable == pool->releasable && "releasable sums");
    uint64_t held = 0;
    for (unsigned i = 0; i < FRONTS_MOST; i++)
        held += walk.fronts[i].live + walk.fronts[i].binned + walk.fronts[i].waiting;
    HOLDS(held + walk.idle + walk.waiting + walk.ordered + walk.retired + walk.exported + walk.fixed == walk.reserved &&
          "every byte is accounted for");
    struct index_sums idle;
    const char *broken = check_index(&pool->idle, BLOCK_IDLE, 0, &idle);
    if (broken) return broken;
    HOLDS(idle.count == walk.idle_blocks && idle.largest == walk.largest && "every idle block is in the index");
    broken = check_lists(pool, &walk);
    if (!broken) broken = check_fronts(pool, &walk);
    if (!broken) broken = check_queue(&pool->waiting, 0, walk.waiting);
    if (!broken) broken = check_exported(pool, &walk);
    if (!broken) broken = check_fixed(pool, &walk);
    if (!broken) broken = check_wholes(pool, &walk);
    if (!broken) broken = check_map(pool);
    return broken ? broken : check_figures(pool, &walk);
}

const char *pool_check(struct pool_system *system) {
    const char *broken = NULL;
    for (struct pool *pool = atomic_load(&system->pools); pool && !broken; pool = pool->next) {
        lock_take(&pool->lock);
        fronts_lock(pool);
        broken = check_pool(pool);
        fronts_unlock(pool);
        pthread_mutex_lock(&pool->device->lock);
        if (!broken && pool->device->reserved < pool->reserved + pool->unused_bytes)
            broken = "a device counts its pools' segments as reserved";
        pthread_mutex_unlock(&pool->device->lock);
        lock_give(&pool->lock);
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
