/* SPDX-License-Identifier: MIT
 *
 * POOL_PREALLOC_MB: plain memory that the pool of a primary context reserves at its first allocation. What the driver
 * gives is a whole, one where it can be; the segments that requests need are cut out of it as parts, so that what
 * requests share, split and merge follows the same rules as without. A part that has become wholly free stays one until
 * there is no room for another: then all such go back to their wholes. Only out of memory, a whole of which nothing is
 * in use goes back to the driver.
 */
#include "pool/internal.h"

#include "config/log.h"

static void set_prealloc(struct pool *pool, uint64_t bytes) {
    const uint64_t most = pool->system->options.trim_bytes;
    pool->prealloc_bytes = bytes;
    pool->trim_above = bytes < UINT64_MAX - most ? most + bytes : UINT64_MAX;
}

void prealloc_open(struct pool *pool) {
    const struct pool_options *options = &pool->system->options;
    const bool wanted =
        pool->primary && pool->source.kind == SEGMENT_PLAIN && (options->prealloc_bytes || options->fixed.count);
    set_prealloc(pool, 0);
    fixed_open(pool);
    pool->has_grown = false;
    pool->ahead = wanted ? AHEAD_WANTED : AHEAD_NOTHING;
    pool->looks_ahead = wanted;
}

/* ---- the first allocation ---- */

void prealloc_count(struct pool *pool, uint64_t bytes) {
    stats_add(&pool->figures->segment_allocs, 1);
    stats_add(&pool->figures->segment_alloc_bytes, bytes);
}

/* False when host memory ran out, and the driver has it back. No lock held. */
static bool add_whole(struct pool *pool, uint64_t address, size_t bytes) {
    lock_take(&pool->lock);
    struct segment *whole = records_segment(&pool->records);
    if (whole) *whole = (struct segment){.address = address, .size = bytes, .pool = pool, .unused = bytes};
    const bool added = whole && registry_add(&pool->system->registry, whole);
    if (added) {
        figures_begin(pool);
        whole->next = pool->wholes;
        if (pool->wholes) pool->wholes->previous = whole;
        pool->wholes = whole;
        pool->segment_count++;
        pool->unused_bytes += bytes;
        set_prealloc(pool, pool->prealloc_bytes + bytes);
        pool->has_grown = true;
        prealloc_count(pool, bytes);
        figures_end(pool);
        figures_event(pool, POOLCUDA_EVENT_growth, bytes, UINT64_MAX, 0);
    } else if (whole) {
        records_put_segment(&pool->records, whole);
    }
    lock_give(&pool->lock);
    if (!added) grow_refuse(pool, address, bytes);
    return added;
}

static uint64_t granules(uint64_t bytes) {
    return bytes / GRANULE * GRANULE;
}

/* One whole, or else halves, down to the ordinary size of a segment. */
static void reserve(struct pool *pool) {
    const struct pool_options *options = &pool->system->options;
    const uint64_t wanted = granules(options->prealloc_bytes + GRANULE - 1);
    const uint64_t room = wanted ? grow_room(pool) : 0;
    uint64_t left = granules(room < wanted ? room : wanted), got = 0;
    for (uint64_t size = left; left > 0;) {
        uint64_t address;
        if (size > left) size = left;
        if (grow_reserve(pool, size, &address) == DEVICE_OK) {
            if (!add_whole(pool, address, size)) break;
            got += size;
            left -= size;
        } else if (size > options->segment_bytes) {
            size = granules(size / 2);
            if (size < options->segment_bytes) size = options->segment_bytes;
        } else {
            break;
        }
    }
    if (got < wanted)
        log_line(LOG_WARNING, "device %d: POOL_PREALLOC_MB: %llu of %llu MiB could be reserved", pool->device->ordinal,
                 (unsigned long long)(got / MIB), (unsigned long long)(wanted / MIB));
}

void prealloc_begin(struct pool *pool) {
    while (pool->ahead == AHEAD_BUSY) pool_await_change(pool);
    if (pool->ahead != AHEAD_WANTED || pool->status != POOL_OPEN) return;
    pool->ahead = AHEAD_BUSY;
    pool_enter(pool);
    lock_give(&pool->lock);
    fixed_reserve(pool);
    reserve(pool);
    lock_take(&pool->lock);
    pool->ahead = AHEAD_NOTHING;
    pool->looks_ahead = pool->fixed_count > 0;
    fronts_gate(pool);
    pool_change(pool);
    pool_leave(pool);
}

/* ---- parts ---- */

const struct segment *prealloc_part(const struct segment *whole, uint64_t address) {
    const struct segment *part = whole->parts;
    while (part && address - part->address >= part->size) part = part->part_next;
    return part;
}

/* A place between parts: of `bytes` at `address`, in front of *link. */
struct gap {
    struct segment *whole, **link;
    uint64_t address, bytes;
};

/* The smallest gap for `size`; bytes 0: there is none. */
static struct gap find_gap(struct pool *pool, size_t size) {
    struct gap best = {0};
    for (struct segment *whole = pool->wholes; whole; whole = whole->next) {
        if (whole->unused < size) continue;
        uint64_t at = whole->address;
        for (struct segment **link = &whole->parts;; link = &(*link)->part_next) {
            const uint64_t end = *link ? (*link)->address : whole->address + whole->size;
            if (end - at >= size && (!best.bytes || end - at < best.bytes))
                best = (struct gap){whole, link, at, end - at};
            if (!*link) break;
            at = (*link)->address + (*link)->size;
        }
    }
    return best;
}

/* Its block, in no list; NULL when there is no room, or no host memory. */
static struct block *take_part(struct pool *pool, size_t size) {
    const struct gap gap = find_gap(pool, size);
    struct block *block = gap.bytes ? heap_add_part(pool, gap.whole, gap.address, size) : NULL;
    if (!block) return NULL;
    block->segment->part_next = *gap.link;
    *gap.link = block->segment;
    gap.whole->unused -= size;
    pool->unused_bytes -= size;
    block_set_tag(block, (struct block_tag){.state = BLOCK_IDLE});
    return block;
}

/* The wholly free parts go back to their wholes. False when there are none. */
static bool gather(struct pool *pool) {
    bins_merge(pool);
    const bool any = pool->free_parts != NULL;
    while (pool->free_parts) {
        struct segment *part = pool->free_parts, **link = &part->whole->parts;
        heap_detach_segment(pool, part);
        while (*link != part) link = &(*link)->part_next;
        *link = part->part_next;
        part->whole->unused += part->size;
        pool->unused_bytes += part->size;
        records_put_segment(&pool->records, part);
    }
    return any;
}

struct block *prealloc_hand_out(const struct request *request, size_t exact, size_t wanted) {
    struct pool *pool = request->pool;
    struct block *block;
    do {
        block = take_part(pool, wanted);
        if (!block && exact < wanted) block = take_part(pool, exact);
    } while (!block && gather(pool));
    return block ? heap_hand_out(request, block) : NULL;
}

bool prealloc_has_room(struct pool *pool, size_t size) {
    lock_take(&pool->lock);
    figures_begin(pool);
    gather(pool);
    figures_end(pool);
    const bool room = find_gap(pool, size).bytes > 0;
    lock_give(&pool->lock);
    return room;
}

/* ---- the end ---- */

static void unlink_whole(struct pool *pool, struct segment *whole) {
    map_forget(pool, whole);
    registry_remove(&pool->system->registry, whole);
    if (whole->previous)
        whole->previous->next = whole->next;
    else
        pool->wholes = whole->next;
    if (whole->next) whole->next->previous = whole->previous;
    whole->next = whole->previous = NULL;
    pool->segment_count--;
    pool->unused_bytes -= whole->unused;
    set_prealloc(pool, pool->prealloc_bytes - whole->size);
}

/* Take a whole that is wholly unused out of the pool, and enter it; NULL when there is none, or a capture forbids it.
 * Under pool->lock. */
static struct segment *detach_whole(struct pool *pool) {
    if (!pool->wholes || !grow_may_release(pool)) return NULL;
    figures_begin(pool);
    gather(pool);
    struct segment *whole = pool->wholes;
    while (whole && whole->unused < whole->size) whole = whole->next;
    if (whole && !capture_release_begin(pool)) whole = NULL;
    if (whole) {
        unlink_whole(pool, whole);
        pool_enter(pool);
    }
    figures_end(pool);
    return whole;
}

uint64_t prealloc_release(struct pool_system *system, const struct device_state *device) {
    uint64_t released = 0;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device) continue;
        for (;;) {
            lock_take(&pool->lock);
            struct segment *whole = detach_whole(pool);
            lock_give(&pool->lock);
            if (!whole) break;
            released += whole->size;
            grow_give_back(pool, whole);
        }
    }
    return released;
}

void prealloc_forget(struct pool *pool) {
    while (pool->wholes) {
        struct segment *whole = pool->wholes;
        unlink_whole(pool, whole);
        records_put_segment(&pool->records, whole);
    }
    pool->unused_bytes = 0;
}
