/* SPDX-License-Identifier: MIT
 *
 * A pool over the fake device, as the pool's unit tests use it: made by `fixture_begin`, checked and taken down by
 * `fixture_end`.
 */
#ifndef POOLCUDA_POOL_FIXTURE_H
#define POOLCUDA_POOL_FIXTURE_H

#include "cell_sums.h"
#include "config/config.h"
#include "fake_device.h"
#include "pool/pool.h"
#include "stats/writer.h"
#include "testing.h"

#define KIB ((size_t)1024)
#define MIB_BYTES ((size_t)1024 * 1024)

struct fixture {
    struct fake_device device;
    struct pool_system *pool;
};

static inline struct pool_options fixture_options(void) {
    return (struct pool_options){.segment_bytes = 16 * MIB_BYTES,
                                 .max_split_bytes = CONFIG_AUTO,
                                 .limit_bytes = CONFIG_NONE,
                                 .headroom_bytes = 0,
                                 .trim_bytes = CONFIG_NONE,
                                 .async = true};
}

static inline void fixture_begin(struct fixture *fixture, uint64_t device_memory, struct pool_options options) {
    stats_start(false); /* figures in private memory, in their usual shape */
    fake_device_init(&fixture->device, device_memory);
    fixture->pool = pool_system_create(&fixture->device.ops, &options);
    assert_non_null(fixture->pool);
}

static inline void assert_pool_whole(struct fixture *fixture) {
    const char *broken = pool_check(fixture->pool);
    if (broken) fail_msg("%s", broken);
}

static inline void fixture_end(struct fixture *fixture) {
    assert_pool_whole(fixture);
    pool_system_destroy(fixture->pool);
    assert_int_equal(fixture->device.range_count, 0); /* every segment went back */
    assert_int_equal(fixture->device.bad_releases, 0);
    assert_int_equal(fixture->device.drops, fixture->device.recorded); /* no mark is left behind */
    fake_device_destroy(&fixture->device);
}

static inline uint64_t must_alloc(struct fixture *fixture, size_t bytes) {
    uint64_t address = 0;
    assert_int_equal(pool_alloc(fixture->pool, bytes, POOL_DOOR_DRIVER, &address), 0);
    assert_int_not_equal(address, 0);
    return address;
}

static inline void must_free(struct fixture *fixture, uint64_t address) {
    assert_int_equal(pool_free(fixture->pool, address, POOL_DOOR_DRIVER), 0);
}

#define STREAM(n) ((struct device_stream){(void *)(uintptr_t)(0x100 * (n)), false})
#define PER_THREAD ((struct device_stream){(void *)2, false})

static inline uint64_t must_alloc_on(struct fixture *fixture, struct device_stream stream, size_t bytes) {
    uint64_t address = 0;
    assert_int_equal(pool_alloc_async(fixture->pool, bytes, stream, POOL_DOOR_DRIVER, &address), 0);
    assert_int_not_equal(address, 0);
    return address;
}

static inline void must_free_on(struct fixture *fixture, struct device_stream stream, uint64_t address) {
    assert_int_equal(pool_free_async(fixture->pool, address, stream, POOL_DOOR_DRIVER), 0);
}

static inline struct pool_totals totals_of(struct fixture *fixture, int ordinal) {
    struct pool_totals totals;
    pool_totals(fixture->pool, ordinal, &totals);
    return totals;
}

/* ---- the figures ---- */

static inline const void *figures_record(const struct poolcuda_section *section, uint32_t index) {
    return (const char *)stats_header() + section->offset + (size_t)index * section->stride;
}

/* The record of the first open pool, NULL when there is none. */
static inline const struct poolcuda_pool *figures_of_pool(void) {
    const struct poolcuda_section *pools = &stats_header()->pools;
    for (uint32_t i = 0; i < pools->count; i++) {
        const struct poolcuda_pool *pool = figures_record(pools, i);
        if (pool->state == POOLCUDA_POOL_OPEN) return pool;
    }
    return NULL;
}

/* What the cells of a pool say together. */
static inline struct cell_sums pool_counters(const struct poolcuda_pool *pool) {
    const struct poolcuda_header *header = stats_header();
    struct cell_sums sums = {0};
    for (uint32_t i = 0; pool && i < header->cells.count; i++) {
        const struct poolcuda_cell *cell = figures_record(&header->cells, i);
        if (cell->pool && figures_record(&header->pools, cell->pool - 1) == pool) cell_sums_add(&sums, cell);
    }
    return sums;
}

/* What the record of a pool and its cells say together. */
static inline struct poolcuda_pool pool_figures(const struct poolcuda_pool *pool) {
    const struct cell_sums sums = pool_counters(pool);
    struct poolcuda_pool figures = *pool;
    cell_sums_complete(&figures, &sums);
    return figures;
}

/* The newest event of a type; its sequence is 0 when there was none. */
static inline struct poolcuda_event last_event(enum poolcuda_event_type type) {
    const struct poolcuda_section *events = &stats_header()->events;
    struct poolcuda_event last = {0};
    for (uint32_t i = 0; i < events->count; i++) {
        const struct poolcuda_event *event = figures_record(events, i);
        if (event->type == (uint32_t)type && event->sequence > last.sequence) last = *event;
    }
    return last;
}

#endif
