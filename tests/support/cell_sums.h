/* SPDX-License-Identifier: MIT
 *
 * What cells of the figures say together: the counters that a reader derives from them, and what they add to the record
 * of their pool, as include/poolcuda/stats.h has it.
 */
#ifndef TESTS_SUPPORT_CELL_SUMS_H
#define TESTS_SUPPORT_CELL_SUMS_H

#include "poolcuda/stats.h"

struct cell_sums {
#define CELL_SUMS_FIELD(name, unit, kind, help) uint64_t name;
    POOLCUDA_CELL_COUNTERS(CELL_SUMS_FIELD)
#undef CELL_SUMS_FIELD
    struct poolcuda_size_class classes[POOLCUDA_SIZE_CLASSES];
    uint64_t idle_bytes, ordered_bytes, waiting_bytes, free_waits; /* beside what the record has */
};

static inline uint64_t cell_sums_get(const uint64_t *figure) {
    return __atomic_load_n(figure, __ATOMIC_RELAXED);
}

static inline void cell_sums_add(struct cell_sums *sums, const struct poolcuda_cell *cell) {
    const uint64_t waiting = cell_sums_get(&cell->waiting_bytes), driver_door = cell_sums_get(&cell->driver_door);
    uint64_t kept = 0;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        struct poolcuda_size_class class;
#define CELL_SUMS_CLASS(name, unit, kind, help)         \
    class.name = cell_sums_get(&cell->classes[i].name); \
    sums->classes[i].name += class.name;
        POOLCUDA_CLASS_FIGURES(CELL_SUMS_CLASS)
#undef CELL_SUMS_CLASS
        sums->allocs += class.allocs;
        sums->frees += class.frees;
        sums->misses += class.misses;
        sums->hits += class.allocs - class.misses;
        sums->alloc_live_bytes += class.alloc_bytes;
        sums->freed_live_bytes += class.freed_bytes;
        sums->runtime_door += class.allocs + class.frees;
        kept += class.held_bytes - (class.alloc_bytes - class.freed_bytes);
    }
    sums->runtime_door -= driver_door;
    sums->driver_door += driver_door;
    sums->alloc_requested_bytes += cell_sums_get(&cell->alloc_requested_bytes);
    sums->freed_requested_bytes += cell_sums_get(&cell->freed_requested_bytes);
    *(cell->stream == 0 ? &sums->idle_bytes : &sums->ordered_bytes) += kept - waiting;
    sums->waiting_bytes += waiting;
    sums->free_waits += cell_sums_get(&cell->free_waits);
}

static inline void cell_sums_raise(uint64_t *peak, uint64_t value) {
    if (*peak < value) *peak = value;
}

/* Completes a copy of a pool's record by the sums of its cells; no peak stays below what is. */
static inline void cell_sums_complete(struct poolcuda_pool *copy, const struct cell_sums *sums) {
    copy->idle_bytes += sums->idle_bytes;
    copy->ordered_bytes += sums->ordered_bytes;
    copy->waiting_bytes += sums->waiting_bytes;
    copy->waits += sums->free_waits;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        const struct poolcuda_size_class *class = &sums->classes[i];
        copy->class_cached_bytes[i] += class->held_bytes - (class->alloc_bytes - class->freed_bytes);
    }
    cell_sums_raise(&copy->peak_cached_bytes, copy->idle_bytes + copy->ordered_bytes + copy->waiting_bytes);
    cell_sums_raise(&copy->peak_idle_bytes, copy->idle_bytes);
    cell_sums_raise(&copy->peak_ordered_bytes, copy->ordered_bytes);
    cell_sums_raise(&copy->peak_waiting_bytes, copy->waiting_bytes);
}

#endif
