/* SPDX-License-Identifier: MIT
 *
 * Walks the pool's blocks for the block map, and writes a row when all blocks of its segment have been looked at. A
 * step ends amid a segment, and the pool goes on: what is split, merged or handed out then is counted as it is found,
 * each byte once. Hits do nothing for it. They change the tags of blocks without pool->lock, so tags are read as they
 * are at that moment; all else is under pool->lock (front.h).
 */
#include "pool/internal.h"

#include <limits.h>
#include <string.h>

/* ---- the cells of a row ---- */

/* Where a cell begins. A segment has more bytes than cells, so none is empty. */
static uint64_t place_of(uint64_t size, unsigned cell) {
    return size / POOLCUDA_MAP_CELLS * cell + size % POOLCUDA_MAP_CELLS * cell / POOLCUDA_MAP_CELLS;
}

static void cell_open(struct map_walk *walk, unsigned number) {
    walk->cell.number = number;
    walk->cell.begin = place_of(walk->row.size_bytes, number);
    walk->cell.end = place_of(walk->row.size_bytes, number + 1);
    walk->cell.most = walk->cell.blocks = walk->cell.most_class = 0;
    memset(walk->cell.bytes, 0, sizeof walk->cell.bytes);
}

static void cell_write(struct map_walk *walk, const uint8_t parts[MAP_STATES + 1], unsigned size_class) {
    struct poolcuda_map_cell *cell = &walk->row.cells[walk->cell.number];
#define SET(name, unit, kind, help) cell->name = parts[MAP_##name];
    POOLCUDA_MAP_STATES(SET)
#undef SET
    cell->size_class = (uint8_t)size_class;
    cell->blocks = (uint8_t)(walk->cell.blocks < UINT8_MAX ? walk->cell.blocks : UINT8_MAX);
}

static void cell_close(struct map_walk *walk) {
    const uint64_t size = walk->cell.end - walk->cell.begin;
    uint8_t parts[MAP_STATES + 1] = {0};
    unsigned left = POOLCUDA_MAP_PARTS, largest = 0;
    for (unsigned i = 0; i <= MAP_STATES; i++) {
        const uint64_t bytes = walk->cell.bytes[i];
        if (!bytes) continue;
        const unsigned part = (unsigned)(bytes * POOLCUDA_MAP_PARTS / size); /* bytes of an address: no overflow */
        parts[i] = (uint8_t)(part ? part : 1);
        left -= parts[i];
        if (bytes > walk->cell.bytes[largest]) largest = i;
    }
    parts[largest] = (uint8_t)(parts[largest] + left); /* what rounding has left, or taken (modulo 2^32) */
    cell_write(walk, parts, walk->cell.most_class);
}

/* The next `bytes` of the segment are of one block, or unused. size_class: 1 + that of the block. `begins`: the block
 * does here. */
static void count(struct map_walk *walk, enum map_state state, uint64_t bytes, unsigned size_class, bool begins) {
    walk->bytes[state] += bytes;
    walk->cell.blocks += begins;
    while (bytes > 0) {
        const uint64_t left = walk->cell.end - walk->at, own = bytes < left ? bytes : left;
        if (own == walk->cell.end - walk->cell.begin) { /* most cells of large blocks */
            uint8_t parts[MAP_STATES + 1] = {0};
            parts[state] = POOLCUDA_MAP_PARTS;
            cell_write(walk, parts, size_class);
        } else {
            walk->cell.bytes[state] += own;
            if (own > walk->cell.most) {
                walk->cell.most = own;
                walk->cell.most_class = size_class;
            }
            if (own == left) cell_close(walk);
        }
        walk->at += own;
        bytes -= own;
        if (own == left && walk->cell.number + 1 < POOLCUDA_MAP_CELLS) cell_open(walk, walk->cell.number + 1);
    }
}

/* ---- blocks ---- */

static enum map_state state_of(const struct block_tag tag) {
    switch ((enum block_state)tag.state) {
    case BLOCK_IDLE:
        return MAP_idle;
    case BLOCK_ORDERED:
        return MAP_ordered;
    case BLOCK_BINNED:
        return tag.number > FRONTS_OF_THREADS ? MAP_ordered : MAP_idle;
    case BLOCK_WAITING:
        return MAP_waiting;
    case BLOCK_FIXED:
        return MAP_fixed;
    case BLOCK_RETIRED:
    case BLOCK_EXPORTED:
        return MAP_kept;
    case BLOCK_LIVE:
    case BLOCK_ENDING:
        break;
    }
    return MAP_live;
}

static void count_block(struct map_walk *walk, const struct block *block, uint64_t from) {
    const enum map_state state = state_of(block_tag(block));
    const uint64_t behind = from - block->address; /* what was counted, of a block that has grown since */
    if (behind == 0 && state == MAP_live) walk->row.live_blocks++;
    if (behind == 0 && state != MAP_live && state != MAP_kept) walk->row.free_blocks++;
    if ((state == MAP_idle || state == MAP_ordered) && block->size > walk->row.largest_free_bytes)
        walk->row.largest_free_bytes = block->size;
    count(walk, state, block->size - behind, 1 + stats_size_class(block->size), behind == 0);
}

/* Up to *budget blocks of `holder`, the segment or a part of it. True when the end is reached. */
static bool walk_blocks(struct pool *pool, const struct segment *holder, unsigned *budget) {
    struct map_walk *walk = &pool->map;
    const uint64_t base = walk->segment->address;
    struct block *block = pool->records.walked ? pool->records.walked : holder->first;
    /* Blocks may have come before it, and it may have grown, since it was to be the next. */
    while (*budget && block->address > base + walk->at) {
        block = block->before;
        --*budget;
    }
    for (; *budget && block; --*budget) {
        if (block->address + block->size > base + walk->at) count_block(walk, block, base + walk->at);
        block = block->after;
    }
    pool->records.walked = block;
    return !block;
}

/* A whole has its parts, and what lies between them. */
static bool walk_parts(struct pool *pool, unsigned *budget) {
    struct map_walk *walk = &pool->map;
    const struct segment *whole = walk->segment;
    while (walk->part) {
        const uint64_t begin = walk->part->address - whole->address;
        if (begin > walk->at) count(walk, MAP_UNUSED, begin - walk->at, 0, false);
        if (!walk_blocks(pool, walk->part, budget)) return false;
        walk->part = walk->part->part_next;
    }
    count(walk, MAP_UNUSED, whole->size - walk->at, 0, false);
    return true;
}

/* ---- segments ---- */

static bool is_whole(const struct segment *segment) {
    return !segment->first;
}

/* The pool's segments, then its wholes. */
static struct segment *segment_after(const struct pool *pool, const struct segment *segment) {
    if (segment->next || is_whole(segment)) return segment->next;
    return pool->wholes;
}

static void go_on(struct pool *pool, struct segment *segment) {
    pool->map.segment = segment;
    pool->map.begun = false;
    pool->map.part = NULL;
    pool->records.walked = NULL;
}

static void row_begin(struct pool *pool, uint64_t now) {
    struct map_walk *walk = &pool->map;
    const struct segment *segment = walk->segment;
    walk->begun = true;
    walk->part = segment->parts;
    walk->at = 0;
    memset(walk->bytes, 0, sizeof walk->bytes);
    memset(&walk->row, 0, sizeof walk->row);
    walk->row.kind = segment->fixed      ? POOLCUDA_MAP_FIXED
                     : is_whole(segment) ? POOLCUDA_MAP_PREALLOCATED
                                         : POOLCUDA_MAP_ORDINARY;
    walk->row.address = segment->address;
    walk->row.size_bytes = segment->size;
    walk->row.began_ns = now;
    cell_open(walk, 0);
}

static void row_end(struct pool *pool, uint64_t now) {
    struct map_walk *walk = &pool->map;
#define SET(name, unit, kind, help) walk->row.name##_bytes = walk->bytes[MAP_##name];
    POOLCUDA_MAP_STATES(SET)
#undef SET
    walk->row.refreshed_ns = now;
    stats_map_put(pool->figures, &walk->row);
}

/* Of the segments from the present one on, as far as the budget goes. Under pool->lock. */
static void walk_on(struct pool *pool, unsigned budget, uint64_t now) {
    struct map_walk *walk = &pool->map;
    while (walk->segment && budget) {
        struct segment *segment = walk->segment;
        if (!walk->begun) {
            budget -= budget < MAP_ROW_BLOCKS ? budget : MAP_ROW_BLOCKS;
            if (segment->whole || !stats_map_admits(pool->figures, segment->address, segment->size)) {
                go_on(pool, segment_after(pool, segment));
                continue;
            }
            row_begin(pool, now);
        }
        if (!(is_whole(segment) ? walk_parts(pool, &budget) : walk_blocks(pool, segment, &budget))) return;
        row_end(pool, now);
        go_on(pool, segment_after(pool, segment));
    }
    if (!walk->segment) atomic_store_explicit(&walk->rests_until, walk->began_ns + MAP_REST_NS, memory_order_relaxed);
}

static void walk_begin(struct pool *pool, uint64_t now) {
    go_on(pool, pool->segments ? pool->segments : pool->wholes);
    pool->map.began_ns = now;
}

/* A step that was claimed at `now`. */
static void walk_step(struct pool *pool, uint64_t now) {
    if (!pool->map.segment) walk_begin(pool, now);
    walk_on(pool, MAP_STEP_BLOCKS, now);
    const uint64_t end = figures_clock();
    uint64_t pause = end > now ? (end - now) * MAP_SHARE : 0;
    if (pause > MAP_PAUSE_MOST_NS) pause = MAP_PAUSE_MOST_NS;
    if (pause > MAP_STEP_NS) atomic_store_explicit(&pool->system->map_due, now + pause, memory_order_relaxed);
}

/* ---- when ---- */

/* No lock needed. */
static bool rests(const struct pool *pool, uint64_t now) {
    return atomic_load_explicit(&pool->map.rests_until, memory_order_relaxed) > now;
}

static bool is_due(struct pool_system *system, uint64_t now) {
    return atomic_load_explicit(&system->map_due, memory_order_relaxed) <= now;
}

/* True for one in MAP_STEP_NS. */
static bool claim(struct pool_system *system, uint64_t now) {
    uint64_t due = atomic_load_explicit(&system->map_due, memory_order_relaxed);
    return due <= now && atomic_compare_exchange_strong(&system->map_due, &due, now + MAP_STEP_NS);
}

void map_open(struct pool *pool) {
    const bool published = stats_pool_number(pool->figures) != 0;
    atomic_store_explicit(&pool->map.rests_until, published ? 0 : MAP_NEVER, memory_order_relaxed);
}

void map_hurry(struct pool *pool) {
    if (!rests(pool, MAP_NEVER - 1)) atomic_store_explicit(&pool->map.rests_until, 0, memory_order_relaxed);
}

void COLD map_step(struct pool *pool, uint64_t now) {
    if (!rests(pool, now) && claim(pool->system, now)) walk_step(pool, now);
}

void COLD map_beat(struct pool_system *system, uint64_t now) {
    if (!is_due(system, now)) return;
    struct pool *const first = atomic_load(&system->pools), *const last = atomic_load(&system->map_last);
    struct pool *const from = last ? last : first, *pool = from;
    do pool = pool->next ? pool->next : first;
    while (rests(pool, now) && pool != from);
    if (rests(pool, now) || !claim(system, now)) return;
    atomic_store(&system->map_last, pool);
    /* Who would have to wait comes another time. */
    if (!lock_try(&pool->lock)) return;
    walk_step(pool, now);
    lock_give(&pool->lock);
}

void COLD map_refresh(struct pool_system *system, const struct device_state *device) {
    const uint64_t began = figures_clock();
    if (began < atomic_load(&system->map_refresh_due)) return;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device || rests(pool, MAP_NEVER - 1)) continue;
        lock_take(&pool->lock);
        walk_begin(pool, began);
        walk_on(pool, UINT_MAX, began);
        lock_give(&pool->lock);
    }
    const uint64_t now = figures_clock();
    atomic_store(&system->map_refresh_due, now + (now - began) * MAP_REFRESH_SHARE);
}

void map_forget(struct pool *pool, const struct segment *segment) {
    struct map_walk *walk = &pool->map;
    if (!segment->whole) stats_map_drop(pool->figures, segment->address);
    if (walk->segment == segment) go_on(pool, segment_after(pool, segment));
    if (walk->part == segment) go_on(pool, walk->segment); /* from its beginning */
}
