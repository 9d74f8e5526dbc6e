/* SPDX-License-Identifier: MIT
 *
 * Copies the block map: rows between two looks at their sequence numbers, equal and even, retried for about a
 * millisecond, and then as they come. Rows that do not add up are left out: what remains may be drawn without a doubt.
 */
#include "segment_map.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"

#define RETRY_NS 1000000u /* for consistent copies of all rows together */

/* The section as it was at several times, one after the other. */
enum look { BEFORE, ROWS, AFTER, LOOKS };

struct map_reading {
    const struct poolcuda_section *section;
    segment_bytes_reader *read;
    const void *source;
    size_t used; /* no row from this one on is in use */
    char *looks[LOOKS];
    bool *settled; /* by row: the copy in `segment` is whole */
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct poolcuda_map_row row_of(const struct map_reading *reading, enum look look, size_t index) {
    struct poolcuda_map_row row;
    memcpy(&row, reading->looks[look] + index * reading->section->stride, sizeof(row));
    return row;
}

static enum segment_result take_look(const struct map_reading *reading, enum look look) {
    const uint64_t bytes = (uint64_t)reading->used * reading->section->stride;
    const enum segment_result result =
        bytes == 0 ? SEGMENT_READ
                   : reading->read(reading->source, reading->looks[look], bytes, reading->section->offset);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return result;
}

/* Keeps the rows that nobody has written to meanwhile. True when all are kept. */
static bool keep_settled(struct map_reading *reading, struct poolcuda_map_row *rows, bool all) {
    bool settled = true;
    for (size_t i = 0; i < reading->used; i++) {
        if (reading->settled[i]) continue;
        const uint64_t sequence = row_of(reading, BEFORE, i).sequence;
        reading->settled[i] = sequence % 2 == 0 && sequence == row_of(reading, AFTER, i).sequence;
        if (reading->settled[i] || all) rows[i] = row_of(reading, ROWS, i);
        settled &= reading->settled[i];
    }
    return settled;
}

static enum segment_result read_rows(struct map_reading *reading, struct poolcuda_map_row *rows) {
    enum segment_result result = take_look(reading, BEFORE);
    while (reading->used > 0 && row_of(reading, BEFORE, reading->used - 1).pool == 0) reading->used--;
    for (const uint64_t deadline = now_ns() + RETRY_NS; result == SEGMENT_READ;) {
        result = take_look(reading, ROWS);
        if (result == SEGMENT_READ) result = take_look(reading, AFTER);
        const bool late = now_ns() >= deadline;
        if (result != SEGMENT_READ || keep_settled(reading, rows, late) || late) break;
        char *const before = reading->looks[BEFORE];
        reading->looks[BEFORE] = reading->looks[AFTER];
        reading->looks[AFTER] = before;
        sched_yield(); /* a writer is inside for nanoseconds, unless it lost its processor there */
    }
    return result;
}

static bool cell_adds_up(const struct poolcuda_map_cell *cell) {
    unsigned parts = 0;
#define ADD(name, unit, kind, help) parts += cell->name;
    POOLCUDA_MAP_STATES(ADD)
#undef ADD
    return parts <= POOLCUDA_MAP_PARTS && cell->size_class <= POOLCUDA_SIZE_CLASSES;
}

static bool row_adds_up(const struct poolcuda_map_row *row) {
    uint64_t sum = 0;
#define ADD(name, unit, kind, help) \
    if (__builtin_add_overflow(sum, row->name##_bytes, &sum)) return false;
    POOLCUDA_MAP_STATES(ADD)
#undef ADD
    if (row->size_bytes == 0 || row->size_bytes > UINT64_MAX - row->address || sum > row->size_bytes ||
        row->largest_free_bytes > row->size_bytes || row->kind > POOLCUDA_MAP_FIXED ||
        row->refreshed_ns < row->began_ns)
        return false;
    for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++)
        if (!cell_adds_up(&row->cells[i])) return false;
    return true;
}

/* NULL when it is of no open one. */
static struct segment_pool *pool_of(const struct segment *segment, const struct poolcuda_map_row *row) {
    for (size_t i = 0; i < segment->pool_count; i++)
        if (segment->pools[i].number == row->pool) return &segment->pools[i];
    return NULL;
}

static int by_place(const void *a, const void *b) {
    const struct poolcuda_map_row *left = a, *right = b;
    if (left->pool != right->pool) return left->pool < right->pool ? -1 : 1;
    return left->address < right->address ? -1 : left->address > right->address;
}

static void keep_rows(const struct map_reading *reading, struct segment *segment) {
    for (size_t i = 0; i < reading->used; i++) {
        const struct poolcuda_map_row row = segment->map[i];
        struct segment_pool *pool = row.pool == 0 ? NULL : pool_of(segment, &row);
        if (pool == NULL) continue;
        const bool adds_up = row_adds_up(&row);
        pool->map_approximate |= !adds_up || !reading->settled[i];
        if (adds_up) segment->map[segment->map_count++] = row;
    }
    qsort(segment->map, segment->map_count, sizeof(*segment->map), by_place);
}

enum segment_result segment_map_read(struct segment *segment, segment_bytes_reader *read, const void *source) {
    const struct poolcuda_section *section = &segment->header.map;
    struct map_reading reading = {.section = section, .read = read, .source = source, .used = section->count};
    segment->map = memory_raw(section->count, sizeof(*segment->map));
    reading.settled = memory_new(section->count, sizeof(*reading.settled));
    for (unsigned i = 0; i < LOOKS; i++) reading.looks[i] = memory_raw((uint64_t)section->count * section->stride, 1);
    const enum segment_result result = read_rows(&reading, segment->map);
    if (result == SEGMENT_READ) keep_rows(&reading, segment);
    for (unsigned i = 0; i < LOOKS; i++) free(reading.looks[i]);
    free(reading.settled);
    segment->map = memory_grow(segment->map, segment->map_count, sizeof(*segment->map)); /* to its size */
    return result;
}
