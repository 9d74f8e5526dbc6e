/* SPDX-License-Identifier: MIT
 *
 * Memory pools: what they hold, in arenas, and how a freed block comes to be used again: at once by later work of the
 * stream that freed it, by all others when the free has happened, or by making an allocation wait for that.
 */
#include <stdlib.h>

#include "bits.h"
#include "driver.h"

enum { POOL_MAX = 4096, BIN_STEPS = 16, BIN_LOOKS = 64 };

/* What a pool took from the device at a time. */
struct pool_arena {
    struct pool *pool;
    uint64_t address;
    size_t chunks;
    struct pool_block *first; /* in the order of addresses */
    struct pool_arena *next;
};

static struct handle_table pool_table = HANDLE_TABLE(struct pool, POOL_MAX, false);
static struct pool *pools; /* memory_lock */
static uint64_t pool_ids;  /* memory_lock */
_Atomic(bool) pools_over_threshold;

/* Free blocks are in a list: those whose free has not happened in one, the others by their size, in sixteen steps from
 * one power of two to the next. */

static size_t bin_of(size_t bytes) {
    const size_t units = bytes / MEMORY_UNIT;
    if (units < BIN_STEPS) return units;
    const size_t power = 63 - (size_t)__builtin_clzll(units);
    return (power - 3) * BIN_STEPS + (units >> (power - 4) & (BIN_STEPS - 1));
}

static struct pool_block **list_of(const struct pool_block *block) {
    struct pool *const pool = block->arena->pool;
    return block->freed_on != 0 ? &pool->pending : &pool->bins[bin_of(block->bytes)];
}

static void list_add(struct pool_block *block) {
    struct pool_block **const list = list_of(block);
    block->previous_free = NULL;
    block->next_free = *list;
    if (*list != NULL) (*list)->previous_free = block;
    *list = block;
    if (block->freed_on == 0) bits_set_run(block->arena->pool->bins_used, bin_of(block->bytes), 1, true);
}

static void list_remove(struct pool_block *block) {
    struct pool_block **const list = list_of(block);
    if (block->next_free != NULL) block->next_free->previous_free = block->previous_free;
    if (block->previous_free != NULL)
        block->previous_free->next_free = block->next_free;
    else
        *list = block->next_free;
    if (*list == NULL && block->freed_on == 0)
        bits_set_run(block->arena->pool->bins_used, bin_of(block->bytes), 1, false);
}

/* Blocks. */

static bool block_may_join(const struct pool_block *block, const struct pool_block *other) {
    return other != NULL && other->free && other->freed_on == block->freed_on;
}

/* Swallows the block behind it. */
static void block_absorb_next(struct pool_block *block) {
    struct pool_block *const next = block->after;
    block->bytes += next->bytes;
    block->after = next->after;
    if (block->after != NULL) block->after->before = block;
    operation_drop(next->freed);
    free(next);
}

/* Joins a free block, which is in no list yet, with its neighbours in the same state, and lists it. Its own free is the
 * latest of them, so it speaks for all. */
static void block_list(struct pool_block *block) {
    if (block_may_join(block, block->after)) {
        list_remove(block->after);
        block_absorb_next(block);
    }
    if (block_may_join(block, block->before)) {
        struct pool_block *const before = block->before;
        list_remove(before);
        operation_drop(before->freed);
        before->freed = block->freed;
        block->freed = NULL;
        block_absorb_next(before);
        block = before;
    }
    list_add(block);
}

/* What has been freed by now, anybody may use. */
static void pool_settle(struct pool *pool) {
    for (struct pool_block *block = pool->pending, *next; block != NULL; block = next) {
        next = block->next_free;
        if (!operation_is_done(block->freed)) continue;
        races_released(block->address, block->bytes, block->freed);
        list_remove(block);
        operation_drop(block->freed);
        block->freed = NULL;
        block->freed_on = 0;
        block_list(block);
    }
}

/* Cuts a block that is in no list; the rest is listed. */
static void block_split(struct pool_block *block, size_t bytes) {
    struct pool_block *const rest = block->bytes > bytes ? calloc(1, sizeof(*rest)) : NULL;
    if (rest == NULL) return; /* without memory for it, the block stays larger than asked */
    rest->arena = block->arena;
    rest->address = block->address + bytes;
    rest->bytes = block->bytes - bytes;
    rest->free = true;
    rest->freed_on = block->freed_on;
    rest->freed = block->freed != NULL ? operation_hold(block->freed) : NULL;
    rest->before = block;
    rest->after = block->after;
    if (rest->after != NULL) rest->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    list_add(rest);
}

/* Arenas. */

static bool arena_is_free(const struct pool_arena *arena) {
    return arena->first->free && arena->first->after == NULL;
}

static void arena_discard(struct pool_arena *arena) {
    struct pool *const pool = arena->pool;
    struct pool_arena **link = &pool->arenas;
    while (*link != arena) link = &(*link)->next;
    *link = arena->next;
    pool->reserved -= arena->chunks << CHUNK_SHIFT;
    backing_give(pool->device, arena->address, arena->chunks, true);
    list_remove(arena->first);
    free(arena->first);
    free(arena);
}

static struct pool_arena *arena_make(struct pool *pool, size_t bytes) {
    struct pool_arena *const arena = calloc(1, sizeof(*arena));
    struct pool_block *const block = calloc(1, sizeof(*block));
    const size_t chunks = (bytes + CHUNK_BYTES - 1) >> CHUNK_SHIFT;
    const bool allowed = pool->most == 0 || pool->reserved + (chunks << CHUNK_SHIFT) <= pool->most;
    const uint64_t address = arena != NULL && block != NULL && allowed ? backing_take(pool->device, chunks, true) : 0;
    if (address == 0) {
        free(arena);
        free(block);
        return NULL;
    }
    *arena = (struct pool_arena){pool, address, chunks, block, pool->arenas};
    pool->arenas = arena;
    block->arena = arena;
    block->address = address;
    block->bytes = chunks << CHUNK_SHIFT;
    block->free = true;
    list_add(block);
    pool->reserved += block->bytes;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
    return arena;
}

/* Gives back free arenas as long as the pool keeps `keep` bytes. Memory that another process may have stays. */
void pool_trim(struct pool *pool, uint64_t keep) {
    if (pool->exportable) return;
    pool_settle(pool);
    for (struct pool_arena *arena = pool->arenas; arena != NULL;) {
        struct pool_arena *const next = arena->next;
        if (arena_is_free(arena) && arena->first->freed_on == 0 &&
            pool->reserved - (arena->chunks << CHUNK_SHIFT) >= keep)
            arena_discard(arena);
        arena = next;
    }
}

bool pools_hold(const struct context *context, uint64_t address, size_t bytes) {
    for (const struct pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->device != context->device && !pool_may_access(pool, context->device)) continue;
        for (const struct pool_arena *arena = pool->arenas; arena != NULL; arena = arena->next)
            if (address >= arena->address && address + bytes <= arena->address + (arena->chunks << CHUNK_SHIFT))
                return true;
    }
    return false;
}

static struct pool_arena *pool_grow(struct pool *pool, size_t bytes) {
    const size_t step = (size_t)settings.pool_step_mb << 20;
    if (bytes > pool->device->total_bytes) return NULL;
    struct pool_arena *arena = arena_make(pool, (bytes + step - 1) / step * step);
    if (arena == NULL) arena = arena_make(pool, bytes);
    if (arena != NULL) return arena;
    for (struct pool *other = pools; other != NULL; other = other->next)
        if (other->device == pool->device && (pool->most == 0 || other == pool)) pool_trim(other, 0);
    return arena_make(pool, bytes);
}

bool pool_end(struct pool *pool) {
    pool->exportable = false;
    pool_trim(pool, 0);
    if (pool->arenas != NULL) {
        atomic_store_explicit(&pools_over_threshold, true, memory_order_relaxed);
        return false;
    }
    struct pool **link = &pools;
    while (*link != pool) link = &(*link)->next;
    *link = pool->next;
    handle_release(&pool_table, pool);
    return true;
}

void pools_release_excess(void) {
    bool left = false;
    pthread_mutex_lock(&memory_lock);
    for (struct pool *pool = pools; pool != NULL;) {
        struct pool *const next = pool->next;
        if (pool->destroyed && pool->live == 0) {
            left = !pool_end(pool) || left;
        } else if (pool->reserved > pool->threshold) {
            pool_trim(pool, pool->threshold);
            left = left || pool->pending != NULL;
        }
        pool = next;
    }
    atomic_store_explicit(&pools_over_threshold, left, memory_order_relaxed);
    pthread_mutex_unlock(&memory_lock);
}

/* Allocation. */

/* The smallest that is large enough, of the first few of its bin; else any of the next bin. */
static struct pool_block *find_settled(struct pool *pool, size_t bytes) {
    const size_t own_bin = bin_of(bytes);
    struct pool_block *best = NULL;
    int looks = 0;
    for (struct pool_block *block = pool->bins[own_bin]; block != NULL && looks < BIN_LOOKS; block = block->next_free) {
        if (block->bytes >= bytes && (best == NULL || block->bytes < best->bytes)) best = block;
        if (block->bytes == bytes) break;
        looks++;
    }
    if (best != NULL) return best;
    const size_t bin = bits_next(pool->bins_used, own_bin + 1, POOL_BINS, true);
    return bin < POOL_BINS ? pool->bins[bin] : NULL;
}

/* The smallest of those whose free has not happened: of this stream, which comes after it anyway, or of any (0). */
static struct pool_block *find_pending(struct pool *pool, size_t bytes, uint64_t stream_id) {
    struct pool_block *best = NULL;
    for (struct pool_block *block = pool->pending; block != NULL; block = block->next_free)
        if (block->bytes >= bytes && (stream_id == 0 || block->freed_on == stream_id) &&
            (best == NULL || block->bytes < best->bytes))
            best = block;
    return best;
}

static struct pool_block *pool_find(struct pool *pool, size_t bytes, uint64_t stream_id) {
    struct pool_block *const own = find_pending(pool, bytes, stream_id), *const settled = find_settled(pool, bytes);
    if (own == NULL || settled == NULL) return own != NULL ? own : settled;
    return own->bytes <= settled->bytes ? own : settled;
}

CUresult pool_alloc(struct pool *pool, size_t bytes, const struct stream *stream, CUdeviceptr *address,
                    struct operation **wait_for) {
    *wait_for = NULL;
    if (bytes > pool->device->total_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t rounded = (bytes + MEMORY_UNIT - 1) / MEMORY_UNIT * MEMORY_UNIT;
    if (pool->opportunistic) pool_settle(pool);
    struct pool_block *block = pool_find(pool, rounded, stream->id);
    if (block == NULL) {
        struct pool_arena *const arena = pool_grow(pool, rounded);
        if (arena != NULL) block = arena->first;
    }
    if (block == NULL && pool->internal_dependencies) block = find_pending(pool, rounded, 0);
    if (block == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    struct allocation *const allocation = memory_add(block->address, bytes, ALLOCATION_POOL, pool->device, NULL);
    if (allocation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    list_remove(block);
    block_split(block, rounded);
    allocation->block = block;
    allocation->pool = pool;
    if (block->freed_on != stream->id)
        *wait_for = block->freed;
    else
        operation_drop(block->freed);
    block->freed = NULL;
    block->freed_on = 0;
    block->free = false;
    pool->live++;
    pool->used += bytes;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    *address = allocation->address;
    return CUDA_SUCCESS;
}

void pool_free(struct allocation *allocation, const struct stream *stream, struct operation *freed) {
    struct pool *const pool = allocation->pool;
    struct pool_block *const block = allocation->block;
    const bool pending = freed != NULL && !operation_is_done(freed);
    if (freed != NULL && !pending) races_released(block->address, block->bytes, freed);
    block->free = true;
    block->freed_on = pending ? stream->id : 0;
    block->freed = pending ? operation_hold(freed) : NULL;
    block_list(block);
    pool->live--;
    pool->used -= allocation->bytes;
    memory_remove(allocation);
    if (pool->reserved > pool->threshold || pool->destroyed)
        atomic_store_explicit(&pools_over_threshold, true, memory_order_relaxed);
    if (pool->destroyed && pool->live == 0) pool_end(pool);
}

/* The pools themselves. */

struct pool *pool_make(struct device *device) {
    struct pool *const pool = handle_new(&pool_table);
    if (pool == NULL) return NULL;
    pool->device = device;
    pool->follow_events = pool->opportunistic = pool->internal_dependencies = 1;
    pthread_mutex_lock(&memory_lock);
    pool->id = ++pool_ids;
    pool->next = pools;
    pools = pool;
    pthread_mutex_unlock(&memory_lock);
    handle_publish(pool);
    return pool;
}

CUresult pools_start(struct device *device) {
    device->default_pool = device->current_pool = pool_make(device);
    if (device->default_pool == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    device->default_pool->is_default = true;
    return CUDA_SUCCESS;
}

CUresult pool_named(CUmemoryPool handle, struct pool **pool) {
    *pool = (struct pool *)handle;
    return handle_state_of(&pool_table, handle) == HANDLE_LIVE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool pool_may_access(const struct pool *pool, const struct device *device) {
    return pool->device == device || (atomic_load(&pool->readers_writers) >> device->ordinal & 1) != 0;
}
