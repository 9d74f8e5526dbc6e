/* SPDX-License-Identifier: MIT
 *
 * Sums and measures. Additions saturate: what a garbled segment holds must not wrap around into something plausible.
 */
#include "derive.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

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

uint64_t derive_snapshot_age(const struct segment *segment) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return derive_difference((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, segment->read_ns);
}

bool derive_is_stuck(const struct segment *segment) {
    const uint64_t age = derive_age(segment, segment->header.in_driver_since_ns);
    return age != UINT64_MAX && age > DERIVE_STUCK_NS;
}

bool derive_is_approximate(const struct segment *segment) {
    for (size_t i = 0; i < segment->pool_count; i++)
        if (segment->pools[i].approximate) return true;
    return false;
}

uint64_t derive_class_bytes(unsigned class) {
    return class + 1 < POOLCUDA_SIZE_CLASSES ? (uint64_t)512 << class : UINT64_MAX;
}

uint64_t derive_bucket_start(unsigned bucket) {
    return bucket == 0 ? 0 : (uint64_t)1 << bucket; /* the first one takes 0 too */
}

uint64_t derive_bucket_end(unsigned bucket) {
    return bucket + 1 < POOLCUDA_LATENCY_BUCKETS ? (uint64_t)2 << bucket : UINT64_MAX;
}

static void add(uint64_t *to, uint64_t value) {
    *to = sum(*to, value);
}

static void raise_to(uint64_t *peak, uint64_t value) {
    if (*peak < value) *peak = value;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t class_live(const struct poolcuda_size_class *class) {
    return derive_difference(class->alloc_bytes, class->freed_bytes);
}

/* Held, and not live: kept whole for the next request, or waiting. */
static uint64_t class_cached(const struct poolcuda_size_class *class) {
    return derive_difference(class->held_bytes, class_live(class));
}

static void add_cell(struct counters *to, const struct poolcuda_cell *cell) {
    uint64_t allocs = 0, frees = 0, misses = 0;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        const struct poolcuda_size_class *class = &cell->classes[i];
        add(&allocs, class->allocs);
        add(&frees, class->frees);
        add(&misses, class->misses);
        add(&to->alloc_live_bytes, class->alloc_bytes);
        add(&to->freed_live_bytes, class->freed_bytes);
    }
    add(&to->allocs, allocs);
    add(&to->frees, frees);
    add(&to->misses, misses);
    add(&to->hits, derive_difference(allocs, misses));
    add(&to->alloc_requested_bytes, cell->alloc_requested_bytes);
    add(&to->freed_requested_bytes, cell->freed_requested_bytes);
    add(&to->runtime_door, derive_difference(sum(allocs, frees), cell->driver_door));
    add(&to->driver_door, cell->driver_door);
}

void derive_counters(const struct segment_pool *pool, struct counters *counters) {
    *counters = (struct counters){0};
    for (size_t i = 0; i < pool->cell_count; i++) add_cell(counters, &pool->cells[i]);
}

static void add_to_figures(struct poolcuda_pool *figures, const struct poolcuda_cell *cell) {
    uint64_t cached = 0;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) add(&cached, class_cached(&cell->classes[i]));
    add(cell->stream == 0 ? &figures->idle_bytes : &figures->ordered_bytes,
        derive_difference(cached, cell->waiting_bytes));
    add(&figures->waiting_bytes, cell->waiting_bytes);
    add(&figures->waits, cell->free_waits);
}

static uint64_t cached_bytes(const struct poolcuda_pool *figures) {
    return sum(sum(figures->idle_bytes, figures->ordered_bytes), figures->waiting_bytes);
}

void derive_figures(const struct segment_pool *pool, struct poolcuda_pool *figures) {
    struct counters now;
    *figures = pool->record;
    for (size_t i = 0; i < pool->cell_count; i++) add_to_figures(figures, &pool->cells[i]);
    if (pool->approximate) return; /* what seems to be now may be more than ever was */
    derive_counters(pool, &now);
    raise_to(&figures->peak_requested_bytes, derive_difference(now.alloc_requested_bytes, now.freed_requested_bytes));
    raise_to(&figures->peak_live_bytes, derive_difference(now.alloc_live_bytes, now.freed_live_bytes));
    raise_to(&figures->peak_reserved_bytes, figures->reserved_bytes);
    raise_to(&figures->peak_cached_bytes, cached_bytes(figures));
    raise_to(&figures->peak_idle_bytes, figures->idle_bytes);
    raise_to(&figures->peak_ordered_bytes, figures->ordered_bytes);
    raise_to(&figures->peak_waiting_bytes, figures->waiting_bytes);
}

bool derive_class(const struct segment_pool *pool, unsigned class, struct class_sum *total) {
    *total = (struct class_sum){.cached_bytes = pool->record.class_cached_bytes[class]};
    for (size_t i = 0; i < pool->cell_count; i++) {
        const struct poolcuda_size_class *of_cell = &pool->cells[i].classes[class];
        add(&total->live_bytes, class_live(of_cell));
        add(&total->cached_bytes, class_cached(of_cell));
        add(&total->allocs, of_cell->allocs);
        add(&total->frees, of_cell->frees);
        add(&total->hits, derive_difference(of_cell->allocs, of_cell->misses));
    }
    return total->allocs != 0 || total->cached_bytes != 0;
}

/* Of no stream; legacy; of threads; created, in that order; not seen to be created. */
static unsigned stream_rank(uint64_t stream) {
    if (stream & POOLCUDA_STREAM_DRIVER) return 4;
    if (stream & POOLCUDA_STREAM_PER_THREAD) return 2;
    if (stream & POOLCUDA_STREAM_LEGACY) return 1;
    return stream == 0 ? 0 : 3;
}

static int by_stream(const void *a, const void *b) {
    const uint64_t left = ((const struct stream_sum *)a)->stream, right = ((const struct stream_sum *)b)->stream;
    const unsigned left_rank = stream_rank(left), right_rank = stream_rank(right);
    if (left_rank != right_rank) return left_rank < right_rank ? -1 : 1;
    return left < right ? -1 : left > right;
}

size_t derive_streams(const struct segment_pool *pool, struct stream_sum **sums) {
    size_t count = 0;
    *sums = memory_new(pool->cell_count, sizeof(**sums));
    for (size_t i = 0; i < pool->cell_count; i++) {
        size_t at = 0;
        while (at < count && (*sums)[at].stream != pool->cells[i].stream) at++;
        if (at == count) (*sums)[count++].stream = pool->cells[i].stream;
        add_cell(&(*sums)[at].counters, &pool->cells[i]);
    }
    qsort(*sums, count, sizeof(**sums), by_stream);
    return count;
}

void derive_measures(const struct poolcuda_pool *figures, const struct counters *counters, struct measures *measures) {
    /* The bounds bind in approximate copies alone: what does not add up is one. */
    const uint64_t live = least(derive_difference(counters->alloc_live_bytes, counters->freed_live_bytes),
                                least(figures->reserved_bytes, figures->peak_live_bytes));
    const uint64_t requested =
        least(derive_difference(counters->alloc_requested_bytes, counters->freed_requested_bytes),
              least(live, figures->peak_requested_bytes));
    const uint64_t cached = least(cached_bytes(figures), figures->reserved_bytes - live);
    const uint64_t ready = sum(figures->idle_bytes, figures->ordered_bytes);
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

/* The measures are to be derived again afterwards. */
static void add_to_device(struct device_sum *device, const struct poolcuda_pool *figures,
                          const struct counters *counters) {
    const uint64_t largest = device->figures.largest_free_bytes;
#define ADD(name, unit, kind, help) add(&device->figures.name, figures->name);
    POOLCUDA_POOL_FIGURES(ADD)
#undef ADD
#define ADD_COUNTER(name, unit, kind, help) add(&device->counters.name, counters->name);
    POOLCUDA_CELL_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    device->figures.largest_free_bytes = largest;
    raise_to(&device->figures.largest_free_bytes, figures->largest_free_bytes);
}

size_t derive_devices(const struct segment *segment, struct device_sum **sums) {
    size_t count = 0;
    *sums = memory_new(segment->pool_count, sizeof(**sums));
    for (size_t i = 0; i < segment->pool_count; i++) {
        const struct segment_pool *pool = &segment->pools[i];
        struct device_sum *device = device_of(*sums, &count, &pool->record);
        struct poolcuda_pool figures;
        struct counters counters;
        derive_figures(pool, &figures);
        derive_counters(pool, &counters);
        add_to_device(device, &figures, &counters);
        device->approximate |= pool->approximate;
        device->pools++;
    }
    for (size_t i = 0; i < count; i++) derive_measures(&(*sums)[i].figures, &(*sums)[i].counters, &(*sums)[i].measures);
    qsort(*sums, count, sizeof(**sums), by_device);
    return count;
}

void derive_total(const struct device_sum *sums, size_t count, struct device_sum *total) {
    *total = (struct device_sum){.device = -1};
    for (size_t i = 0; i < count; i++) {
        add_to_device(total, &sums[i].figures, &sums[i].counters);
        total->approximate |= sums[i].approximate;
        total->pools += sums[i].pools;
    }
    if (count == 1) {
        total->device = sums[0].device;
        total->identity = sums[0].identity;
    }
    derive_measures(&total->figures, &total->counters, &total->measures);
}
