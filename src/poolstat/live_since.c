/* SPDX-License-Identifier: MIT
 *
 * Subtracts counters in place, so that whatever is derived from a segment can be derived from what it counted since.
 * Sizes of blocks are left as they are although they only grow: what is live is their difference.
 */
#include "live_since.h"

#include <stdlib.h>
#include <string.h>

#include "derive.h"
#include "memory.h"

#define SUBTRACT(now, then) ((now) = derive_difference(now, then))
#define SUBTRACT_COUNTER(name) SUBTRACT(now->name, then->name);
#define SUBTRACT_GAUGE(name)
#define SUBTRACT_PEAK(name)
#define SUBTRACT_FIGURE(name, unit, kind, help) SUBTRACT_##kind(name)

static const struct segment_pool *same_pool(const struct segment *then, const struct segment_pool *pool) {
    for (size_t i = 0; i < then->pool_count; i++) {
        const struct segment_pool *other = &then->pools[i];
        if (other->number == pool->number && other->record.generation == pool->record.generation) return other;
    }
    return NULL;
}

static const struct poolcuda_cell *same_cell(const struct segment_pool *then, const struct poolcuda_cell *cell) {
    for (size_t i = 0; i < then->cell_count; i++)
        if (then->cells[i].stream == cell->stream && then->cells[i].thread == cell->thread) return &then->cells[i];
    return NULL;
}

static void subtract_cell(struct poolcuda_cell *now, const struct poolcuda_cell *then) {
    SUBTRACT(now->driver_door, then->driver_door);
    SUBTRACT(now->free_waits, then->free_waits);
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        SUBTRACT(now->classes[i].allocs, then->classes[i].allocs);
        SUBTRACT(now->classes[i].frees, then->classes[i].frees);
        SUBTRACT(now->classes[i].misses, then->classes[i].misses);
    }
}

static void subtract_record(struct poolcuda_pool *now, const struct poolcuda_pool *then) {
    POOLCUDA_POOL_FIGURES(SUBTRACT_FIGURE)
    for (unsigned i = 0; i < POOLCUDA_LATENCY_BUCKETS; i++) {
        SUBTRACT(now->hit_ns[i], then->hit_ns[i]);
        SUBTRACT(now->miss_ns[i], then->miss_ns[i]);
    }
}

static struct poolcuda_cell *copy_cells(const struct segment_pool *pool) {
    struct poolcuda_cell *cells = memory_new(pool->cell_count, sizeof(*cells));
    if (pool->cell_count != 0) memcpy(cells, pool->cells, pool->cell_count * sizeof(*cells));
    return cells;
}

struct segment *since_note(const struct segment *segment) {
    struct segment *note = memory_new(1, sizeof(*note));
    *note = (struct segment){.header = segment->header, .pool_count = segment->pool_count};
    note->pools = memory_new(segment->pool_count, sizeof(*note->pools));
    for (size_t i = 0; i < segment->pool_count; i++)
        note->pools[i] = (struct segment_pool){.number = segment->pools[i].number,
                                               .record = segment->pools[i].record,
                                               .cells = copy_cells(&segment->pools[i]),
                                               .cell_count = segment->pools[i].cell_count};
    return note;
}

struct segment *since_make(const struct segment *now, const struct segment *then) {
    struct segment *since = memory_new(1, sizeof(*since));
    *since = *now;
    since->pools = memory_new(now->pool_count, sizeof(*since->pools));
    for (unsigned i = 0; i < POOLCUDA_PASS_COUNT; i++)
        SUBTRACT(since->header.pass_through[i], then->header.pass_through[i]);
    for (size_t i = 0; i < now->pool_count; i++) {
        struct segment_pool *pool = &since->pools[i];
        *pool = now->pools[i];
        pool->cells = copy_cells(&now->pools[i]);
        const struct segment_pool *before = same_pool(then, pool);
        if (before == NULL) continue;
        subtract_record(&pool->record, &before->record);
        for (size_t j = 0; j < pool->cell_count; j++) {
            const struct poolcuda_cell *cell = same_cell(before, &pool->cells[j]);
            if (cell != NULL) subtract_cell(&pool->cells[j], cell);
        }
    }
    return since;
}

void since_free(struct segment *since) {
    if (since == NULL) return;
    for (size_t i = 0; i < since->pool_count; i++) free(since->pools[i].cells);
    free(since->pools);
    free(since);
}
