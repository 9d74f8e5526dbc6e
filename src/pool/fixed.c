/* SPDX-License-Identifier: MIT
 *
 * POOL_FIXED: blocks of a few sizes, reserved at the first allocation in a primary context and kept for requests of
 * exactly these sizes. Such a block is never split or merged, and its segment is never given back: the program's memory
 * may run out first. A block that is not known to be idle waits for a fence, however it was freed. A request that finds
 * none is served as any other.
 */
#include "pool/internal.h"

#include "config/log.h"

#define WAITING_SCAN 64 /* waiting blocks that a request looks at */

/* Under pool->lock, or of a new pool. */
void fixed_open(struct pool *pool) {
    const struct config_fixed *sizes = &pool->system->options.fixed;
    const bool wanted = pool->primary && pool->source.kind == SEGMENT_PLAIN;
    pool->fixed_count = wanted ? sizes->count : 0;
    for (unsigned i = 0; i < pool->fixed_count; i++) {
        struct fixed_size *fixed = &pool->fixed[i];
        *fixed = (struct fixed_size){.size = policy_round(sizes->sizes[i].bytes),
                                     .asked = sizes->sizes[i].blocks,
                                     .figures = stats_fixed_open(pool->figures)};
        figures_begin(pool);
        stats_set(&fixed->figures->size_bytes, fixed->size);
        stats_set(&fixed->figures->asked_blocks, fixed->asked);
        figures_end(pool);
    }
}

/* Inside figures_begin … figures_end. */
static void count_blocks(struct pool *pool, struct fixed_size *fixed) {
    stats_set(&fixed->figures->blocks, fixed->blocks);
    stats_set(&fixed->figures->in_use, fixed->blocks - fixed->idle);
    stats_raise(&fixed->figures->peak_in_use, fixed->blocks - fixed->idle);
    stats_set(&pool->figures->fixed_free_bytes, pool->fixed_free_bytes);
}

/* ---- the reservation ---- */

/* Records for so many blocks, by next; false when host memory ran out. */
static bool take_records(struct pool *pool, uint64_t count, struct block **list) {
    for (*list = NULL; count > 0; count--) {
        struct block *block = records_block(&pool->records);
        if (!block) return false;
        block->next = *list;
        *list = block;
    }
    return true;
}

static void put_records(struct pool *pool, struct block *list) {
    while (list) {
        struct block *next = list->next;
        records_put_block(&pool->records, list);
        list = next;
    }
}

/* The segment's one block becomes many, all but the first with the records by next. Returns the last. */
static struct block *cut(const struct fixed_size *fixed, struct block *block, struct block *records) {
    for (block_set_size(block, fixed->size); records; block = block->after) {
        struct block *after = records;
        records = after->next;
        block_set_address(after, block->address + fixed->size);
        block_set_size(after, fixed->size);
        after->segment = block->segment;
        after->before = block;
        after->next = NULL;
        block->after = after;
    }
    return block;
}

/* A segment of `count` blocks; false when host memory ran out, and the driver has it back. No lock held. */
static bool add_blocks(struct pool *pool, struct fixed_size *fixed, uint64_t address, uint64_t count) {
    const size_t bytes = count * fixed->size;
    struct block *records, *block = NULL;
    lock_take(&pool->lock);
    figures_begin(pool);
    if (take_records(pool, count - 1, &records)) block = heap_add_segment(pool, address, bytes);
    const bool added = block != NULL;
    if (added) {
        block->segment->fixed = fixed;
        block = cut(fixed, block, records);
        /* The last one first, so that they are taken in the order of addresses. */
        for (struct block *before; block; block = before) {
            before = block->before;
            fixed->blocks++;
            fixed_put(pool, block);
        }
        prealloc_count(pool, bytes);
    } else {
        put_records(pool, records);
    }
    figures_end(pool);
    if (added) figures_event(pool, POOLCUDA_EVENT_growth, bytes, UINT64_MAX, 0);
    lock_give(&pool->lock);
    if (!added) grow_refuse(pool, address, bytes);
    return added;
}

/* As few segments as the driver makes of it. */
static void reserve(struct pool *pool, struct fixed_size *fixed) {
    uint64_t left = fixed->asked, count = left;
    while (left > 0) {
        uint64_t address;
        const uint64_t room = grow_room(pool) / fixed->size;
        if (count > left) count = left;
        if (count > room) count = room;
        if (count == 0) break;
        if (grow_reserve(pool, count * fixed->size, &address) == DEVICE_OK) {
            if (!add_blocks(pool, fixed, address, count)) break;
            left -= count;
        } else {
            count /= 2;
        }
    }
    if (left)
        log_line(LOG_WARNING, "device %d: POOL_FIXED: %llu of %llu blocks of %zu bytes could be reserved",
                 pool->device->ordinal, (unsigned long long)(fixed->asked - left), (unsigned long long)fixed->asked,
                 fixed->size);
}

void fixed_reserve(struct pool *pool) {
    for (unsigned i = 0; i < pool->fixed_count; i++) reserve(pool, &pool->fixed[i]);
}

/* ---- blocks ---- */

static struct fixed_size *of_size(struct pool *pool, size_t size) {
    for (unsigned i = 0; i < pool->fixed_count; i++)
        if (pool->fixed[i].size == size) return &pool->fixed[i];
    return NULL;
}

/* Inside figures_begin … figures_end. NULL also when host memory ran out. */
static struct block *take_free(const struct request *request, struct fixed_size *fixed) {
    struct pool *pool = request->pool;
    struct block *block = fixed->free;
    if (!block) {
        stats_add(&fixed->figures->misses, 1);
        return NULL;
    }
    fixed->free = block->next;
    fixed->idle--;
    pool->fixed_free_bytes -= fixed->size;
    block = heap_hand_out(request, block);
    if (block) stats_add(&fixed->figures->hits, 1);
    count_blocks(pool, fixed);
    return block;
}

struct block *fixed_take_idle(const struct request *request) {
    struct fixed_size *fixed = of_size(request->pool, request->size);
    return fixed ? take_free(request, fixed) : NULL;
}

/* Is one of its blocks among those that have waited longest? */
static bool some_wait(const struct pool *pool, const struct fixed_size *fixed) {
    unsigned seen = 0;
    for (const struct block *block = pool->waiting.first; block && seen < WAITING_SCAN; block = block->next, seen++)
        if (block->segment->fixed == fixed) return true;
    return false;
}

struct block *fixed_take(const struct request *request) {
    struct pool *pool = request->pool;
    struct fixed_size *fixed = of_size(pool, request->size);
    if (!fixed) return NULL;
    for (unsigned record = 0; record <= 1 && !fixed->free && some_wait(pool, fixed); record++) {
        pool_enter(pool);
        lock_give(&pool->lock);
        streams_prove(pool, 0, record);
        lock_take(&pool->lock);
        pool_leave(pool);
    }
    figures_begin(pool);
    struct block *block = take_free(request, fixed);
    figures_end(pool);
    return block;
}

bool fixed_put(struct pool *pool, struct block *block) {
    struct fixed_size *fixed = block->segment->fixed;
    if (!fixed) return false;
    block_set_tag(block, (struct block_tag){.state = BLOCK_FIXED});
    block->previous = NULL;
    block->next = fixed->free;
    fixed->free = block;
    fixed->idle++;
    pool->fixed_free_bytes += block->size;
    count_blocks(pool, fixed);
    return true;
}

void fixed_reset_peaks(struct pool *pool) {
    for (unsigned i = 0; i < pool->fixed_count; i++) {
        const struct fixed_size *fixed = &pool->fixed[i];
        stats_set(&fixed->figures->peak_in_use, fixed->blocks - fixed->idle);
    }
}

void fixed_forget(struct pool *pool) {
    for (unsigned i = 0; i < pool->fixed_count; i++) {
        struct fixed_size *fixed = &pool->fixed[i];
        fixed->free = NULL;
        fixed->blocks = fixed->idle = 0;
    }
    pool->fixed_free_bytes = 0;
    for (unsigned i = 0; i < pool->fixed_count; i++) count_blocks(pool, &pool->fixed[i]);
}
