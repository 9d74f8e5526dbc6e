/* SPDX-License-Identifier: MIT
 *
 * Sums and measures. Additions saturate: what a garbled segment holds must not wrap around into something plausible.
 */
#include "derive.h"

#include <math.h>
#include <stdlib.h>

#include "memory.h"

static uint64_t sum(uint64_t a, uint64_t b) {
    uint64_t result;
    return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}

uint64_t derive_difference(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

double derive_ratio(uint64_t part, uint64_t whole) {
    if (whole == 0) return NAN;
    return part >= whole ? 1 : (double)part / (double)whole;
}

uint64_t derive_age(const struct segment *segment, uint64_t time_ns) {
    return time_ns == 0 || time_ns > segment->read_ns ? UINT64_MAX : segment->read_ns - time_ns;
}

bool derive_is_approximate(const struct segment *segment) {
    for (size_t i = 0; i < segment->pool_count; i++)
        if (segment->pools[i].approximate) return true;
    return false;
}

uint64_t derive_class_bytes(unsigned class) {
    return class + 1 < POOLCUDA_SIZE_CLASSES ? (uint64_t)512 << class : UINT64_MAX;
}

bool derive_class_is_used(const struct poolcuda_pool *record, unsigned class) {
    return record->classes[class].allocs != 0 || record->classes[class].cached_bytes != 0;
}

uint64_t derive_bucket_start(unsigned bucket) {
    return bucket == 0 ? 0 : (uint64_t)1 << bucket; /* the first one takes 0 too */
}

uint64_t derive_bucket_end(unsigned bucket) {
    return bucket + 1 < POOLCUDA_LATENCY_BUCKETS ? (uint64_t)2 << bucket : UINT64_MAX;
}

static void add_cell(struct counters *to, const struct poolcuda_cell *cell) {
#define ADD(name, unit, kind, help) to->name = sum(to->name, cell->name);
    POOLCUDA_CELL_COUNTERS(ADD)
#undef ADD
}

void derive_cell_counters(const struct poolcuda_cell *cell, struct counters *counters) {
    *counters = (struct counters){0};
    add_cell(counters, cell);
}

void derive_counters(const struct segment_pool *pool, struct counters *counters) {
    *counters = (struct counters){0};
    for (size_t i = 0; i < pool->cell_count; i++) add_cell(counters, &pool->cells[i]);
}

void derive_measures(const struct poolcuda_pool *figures, const struct counters *counters, struct measures *measures) {
    const uint64_t live = derive_difference(counters->alloc_live_bytes, counters->freed_live_bytes);
    const uint64_t requested = derive_difference(counters->alloc_requested_bytes, counters->freed_requested_bytes);
    const uint64_t ready = sum(figures->idle_bytes, figures->ordered_bytes),
                   cached = sum(ready, figures->waiting_bytes);
    *measures = (struct measures){
        .live_bytes = live,
        .requested_bytes = requested,
        .cached_bytes = cached,
        .stranded_bytes = derive_difference(cached, figures->releasable_bytes),
        .hit_rate = derive_ratio(counters->hits, counters->allocs),
        .utilisation = derive_ratio(live, figures->reserved_bytes),
        .peak_utilisation = derive_ratio(figures->peak_live_bytes, figures->peak_reserved_bytes),
        .external_fragmentation = ready == 0 ? 0 : 1 - derive_ratio(figures->largest_free_bytes, ready),
        .internal_fragmentation = 1 - derive_ratio(requested, live),
    };
}

bool derive_advice(const struct segment_pool *pool, struct advice *advice) {
    const struct poolcuda_pool *record = &pool->record;
    uint64_t bytes = record->peak_reserved_bytes;
    for (size_t i = 0; i < pool->fixed_count; i++) {
        uint64_t fixed;
        if (__builtin_mul_overflow(pool->fixed[i].size_bytes, pool->fixed[i].blocks, &fixed)) return false;
        bytes = derive_difference(bytes, fixed);
    }
    *advice = (struct advice){.prealloc_bytes = ((bytes >> 20) + (bytes % (1u << 20) != 0)) << 20,
                              .driver_calls = record->growths,
                              .driver_ns = record->growth_ns};
    return record->kind == POOLCUDA_KIND_PLAIN && record->growths != 0 && bytes != 0;
}

static struct device_sum *device_of(struct device_sum *sums, size_t *count, const struct poolcuda_pool *record) {
    size_t i = 0;
    while (i < *count && sums[i].device != record->device) i++;
    if (i == *count) sums[(*count)++] = (struct device_sum){.device = record->device, .identity = record};
    return &sums[i];
}

static int by_device(const void *a, const void *b) {
    const int32_t left = ((const struct device_sum *)a)->device, right = ((const struct device_sum *)b)->device;
    return left < right ? -1 : left > right;
}

size_t derive_devices(const struct segment *segment, struct device_sum **sums) {
    size_t count = 0;
    *sums = memory_new(segment->pool_count, sizeof(**sums));
    for (size_t i = 0; i < segment->pool_count; i++) {
        const struct segment_pool *pool = &segment->pools[i];
        struct device_sum *device = device_of(*sums, &count, &pool->record);
        const uint64_t largest = device->figures.largest_free_bytes;
#define ADD(name, unit, kind, help) device->figures.name = sum(device->figures.name, pool->record.name);
        POOLCUDA_POOL_FIGURES(ADD)
#undef ADD
        device->figures.largest_free_bytes =
            pool->record.largest_free_bytes > largest ? pool->record.largest_free_bytes : largest;
        for (size_t j = 0; j < pool->cell_count; j++) add_cell(&device->counters, &pool->cells[j]);
        device->approximate |= pool->approximate;
        device->pools++;
    }
    for (size_t i = 0; i < count; i++) derive_measures(&(*sums)[i].figures, &(*sums)[i].counters, &(*sums)[i].measures);
    qsort(*sums, count, sizeof(**sums), by_device);
    return count;
}
