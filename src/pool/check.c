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
    uint64_t live, requested, reserved, idle, waiting, ordered, retired, exported, releasable, live_blocks, in_table,
        fixed, parts, idle_blocks, ordered_blocks, segments, binned;
    size_t largest, ordered_largest;
};

#define HOLDS(condition) \
    if (!(condition)) return #condition

static const char *check_block(const struct pool *pool, const struct segment *segment, const struct block *block,
                               struct walk *walk) {
    HOLDS(block->segment == segment && "a block knows its segment");
    HOLDS(block->size >= UNIT && block->size % UNIT == 0 && "a block is a positive number of units");
    HOLDS((!block->before || block->before->after == block) && "neighbours know each other");
    HOLDS((!block->after || block->after->address == block->address + block->size) && "neighbours touch");
    HOLDS((!segment->fixed || (block->size == segment->fixed->size && block->state != BLOCK_IDLE)) &&
          "a block of a fixed size is neither split nor merged nor given to others");
    switch ((enum block_state)block->state) {
    case BLOCK_LIVE:
        HOLDS(block->number < pool->cell_count && "a live block is counted by a cell of its pool");
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
        HOLDS(block->number > 0 && block->number < pool->list_count && "an ordered block is in a list");
        HOLDS((!block->after || block->after->state != BLOCK_ORDERED || block->after->number != block->number) &&
              "neighbours in one list are merged");
        HOLDS(block->batch <= fences_open_batch(&pool->system->fences) && "no batch is later than the open one");
        walk->ordered += block->size;
        walk->ordered_blocks++;
        if (block->size > walk->ordered_largest) walk->ordered_largest = block->size;
        return NULL;
    case BLOCK_WAITING:
        if (block->number) {
            HOLDS(live_table_entry(&pool->table, block->address) == block && "a kept block is in the table");
            walk->in_table++;
        }
        walk->waiting += block->size;
        return NULL;
    case BLOCK_BINNED:
        HOLDS(live_table_entry(&pool->table, block->address) == block && "a block of a bin is in the table");
        HOLDS(block->number < pool->list_count + !pool->list_count && "a block of a bin is of a list or idle");
        walk->in_table++;
        walk->binned++;
        if (block->number) {
            walk->ordered += block->size;
            walk->ordered_blocks++;
        } else {
            walk->idle += block->size;
        }
        return NULL;
    case BLOCK_RETIRED:
        walk->retired += block->size;
        return NULL;
    case BLOCK_EXPORTED:
        HOLDS(block->batch & ~NOTE_WAITED && "a block is kept for a reason");
        walk->exported += block->size;
        return NULL;
    case BLOCK_FIXED:
        HOLDS(segment->fixed && "only a fixed-size pool has such blocks");
        walk->fixed += block->size;
        return NULL;
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
                HOLDS(block->state == state && "only free blocks of one state are in an index");
                HOLDS((state == BLOCK_IDLE || block->number == number) && "an ordered block is in its own list");
                HOLDS(index_class(block->size) == first * INDEX_SECOND_LEVELS + second &&
                      "a block is in the list of its class");
                HOLDS((block->previous ? block->previous->next == block : block == head) &&
                      "the list is linked both ways");
                sums->count++;
                sums->bytes += block->size;
                if (block->size > sums->largest) sums->largest = block->size;
                if (block->batch < sums->oldest) sums->oldest = block->batch;
                if (block->batch > sums->newest) sums->newest = block->batch;
            }
        }
    }
    HOLDS(sums->count == index->count && "the index counts its blocks");
    HOLDS(index->largest == sums->largest && "the index knows its largest block");
    return NULL;
}

/* `number`: of every block in them. */
static const char *check_bins(const struct bins *bins, unsigned number, struct index_sums *sums) {
    *sums = (struct index_sums){.oldest = UINT64_MAX};
    for (unsigned class = 0; class < BIN_CLASSES; class ++) {
        for (const struct block *block = bins->heads[class]; block; block = block->next) {
            HOLDS(block->state == BLOCK_BINNED && block->number == number && "a bin has its own blocks");
            HOLDS(index_class(block->size) == class && "a block is in the bin of its class");
            sums->count++;
            sums->bytes += block->size;
            if (block->batch < sums->oldest) sums->oldest = block->batch;
            if (block->batch > sums->newest) sums->newest = block->batch;
        }
    }
    HOLDS(sums->count == bins->count && "bins count their blocks");
    return NULL;
}

static const char *check_lists(const struct pool *pool, const struct walk *walk, uint64_t *in_bins) {
    uint64_t count = 0, bytes = 0;
    for (unsigned i = 1; i < pool->list_count; i++) {
        const struct stream_list *list = pool->lists[i];
        struct index_sums sums, binned;
        const char *broken = check_index(list->index, BLOCK_ORDERED, i, &sums);
        if (!broken) broken = check_bins(list->bins, i, &binned);
        if (broken) return broken;
        HOLDS((!binned.count || (binned.oldest >= list->oldest && binned.newest <= list->newest)) &&
              "a list bounds the batches of its bins");
        HOLDS(list->number == i && "a list knows its number");
        HOLDS((!list->id || streams_find(pool, list->id) == list) && "a stream finds its list");
        HOLDS(sums.bytes + binned.bytes == list->bytes && "a list counts its bytes");
        HOLDS((!sums.count || (sums.oldest >= list->oldest && sums.newest <= list->newest)) &&
              "a list bounds its batches");
        count += sums.count + binned.count;
        bytes += sums.bytes + binned.bytes;
        *in_bins += binned.count;
    }
    HOLDS(count == walk->ordered_blocks && bytes == walk->ordered && count == pool->ordered_blocks &&
          "every ordered block is in a list");
    HOLDS(walk->ordered_largest == pool->ordered_largest && "the pool knows its largest ordered block");
    return NULL;
}

static const char *check_waiting(const struct pool *pool, const struct walk *walk) {
    uint64_t bytes = 0, batch = 0;
    for (const struct block *block = pool->waiting; block; block = block->next) {
        HOLDS(block->state == BLOCK_WAITING && "only waiting blocks are in the queue");
        HOLDS(block->batch >= batch && "the queue is in the order of batches");
        HOLDS((block->next || block == pool->waiting_last) && "the queue knows its end");
        batch = block->batch;
        bytes += block->size;
    }
    HOLDS(bytes == walk->waiting && bytes == pool->waiting_bytes && "every waiting block is in the queue");
    return NULL;
}

static const char *check_exported(const struct pool *pool, const struct walk *walk) {
    uint64_t bytes = 0;
    unsigned traceable = 0, untraceable = 0;
    for (const struct block *block = pool->exported; block; block = block->next) {
        HOLDS(block->state == BLOCK_EXPORTED && "only exported blocks are in their queue");
        HOLDS((block->next ? block->next->previous == block : block == pool->exported_last) &&
              "the queue is linked both ways");
        bytes += block->size;
        if (block->batch & NOTE_UNTRACEABLE)
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
            HOLDS(block->state == BLOCK_FIXED && block->segment->fixed == fixed && "a free block is of its size");
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

static const char *check_figures(const struct pool *pool) {
    const struct poolcuda_pool *figures = pool->figures;
    struct poolcuda_cell sum = {0};
    const struct poolcuda_cell *cell = &sum;
    for (unsigned i = 0; i < pool->cell_count; i++) {
#define CELL_SUM(name, unit, kind, help) sum.name += pool->cells[i]->name;
        POOLCUDA_CELL_COUNTERS(CELL_SUM)
#undef CELL_SUM
        HOLDS(pool->cells[i]->alloc_live_bytes >= pool->cells[i]->freed_live_bytes && "figures: no cell is negative");
    }
    HOLDS(figures->sequence % 2 == 0 && "nobody writes the figures without the lock");
    HOLDS(figures->reserved_bytes == pool->reserved + pool->unused_bytes && "figures: reserved");
    HOLDS(figures->idle_bytes == pool->idle_bytes && figures->waiting_bytes == pool->waiting_bytes &&
          "figures: cached");
    HOLDS(figures->releasable_bytes == pool->releasable && "figures: releasable");
    HOLDS(figures->ordered_bytes == pool->ordered_bytes && "figures: ordered");
    HOLDS(figures->retired_bytes == pool->retired_bytes && figures->exported_bytes == pool->exported_bytes &&
          "figures: kept");
    HOLDS(figures->largest_free_bytes == heap_largest(pool) && "figures: largest free block");
    HOLDS(figures->free_blocks == pool->idle.count + pool->bins.count + pool->ordered_blocks && "figures: free blocks");
    HOLDS(figures->peak_requested_bytes >= pool->requested && figures->peak_live_bytes >= pool->live &&
          figures->peak_idle_bytes >= pool->idle_bytes && figures->peak_ordered_bytes >= pool->ordered_bytes &&
          figures->peak_waiting_bytes >= pool->waiting_bytes &&
          figures->peak_cached_bytes >= pool->idle_bytes + pool->ordered_bytes + pool->waiting_bytes &&
          figures->peak_reserved_bytes >= pool->reserved + pool->unused_bytes && "figures: peaks");
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
    HOLDS(cached == pool->idle_bytes + pool->ordered_bytes + pool->waiting_bytes && "figures: cached by size class");
    return NULL;
}

/* Under pool->lock. */
static const char *check_pool(const struct pool *pool) {
    struct walk walk = {0};
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
    HOLDS(walk.live == pool->live && walk.requested == pool->requested && walk.live_blocks == pool->live_blocks &&
          "live sums");
    HOLDS(walk.in_table == pool->table.count && "the table has live and kept blocks, and no other");
    HOLDS(walk.reserved == pool->reserved && walk.segments == pool->segment_count && "reserved sums");
    HOLDS(walk.idle == pool->idle_bytes && walk.retired == pool->retired_bytes && walk.ordered == pool->ordered_bytes &&
          "cached sums");
    HOLDS(walk.releasable == pool->releasable && "releasable sums");
    HOLDS(walk.live + walk.idle + walk.waiting + walk.ordered + walk.retired + walk.exported + walk.fixed ==
              walk.reserved &&
          "every byte is accounted for");
    struct index_sums idle;
    const char *broken = check_index(&pool->idle, BLOCK_IDLE, 0, &idle);
    if (broken) return broken;
    HOLDS(idle.count == walk.idle_blocks && idle.largest == walk.largest && "every idle block is in the index");
    struct index_sums binned;
    broken = check_bins(&pool->bins, 0, &binned);
    if (broken) return broken;
    uint64_t in_bins = binned.count;
    broken = check_lists(pool, &walk, &in_bins);
    if (broken) return broken;
    HOLDS(in_bins == walk.binned && "every binned block is in a bin");
    broken = check_waiting(pool, &walk);
    if (!broken) broken = check_exported(pool, &walk);
    if (!broken) broken = check_fixed(pool, &walk);
    if (!broken) broken = check_wholes(pool, &walk);
    return broken ? broken : check_figures(pool);
}

const char *pool_check(struct pool_system *system) {
    const char *broken = NULL;
    for (struct pool *pool = atomic_load(&system->pools); pool && !broken; pool = pool->next) {
        lock_take(&pool->lock);
        broken = check_pool(pool);
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
