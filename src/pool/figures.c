/* SPDX-License-Identifier: MIT
 *
 * What the pool writes into its records of the figures. The pool's own sums decide; the records follow them inside one
 * bracket of the sequence.
 */
#include "pool/internal.h"

#include <string.h>
#include <time.h>

#include "config/log.h"

uint64_t COLD figures_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void figures_open(struct pool *pool) {
    struct poolcuda_pool *figures = stats_pool_open();
    const struct device_state *device = pool->device;
    figures->kind = pool->source.kind == SEGMENT_ASYNC ? POOLCUDA_KIND_ASYNC : POOLCUDA_KIND_PLAIN;
    figures->context = (uint64_t)(uintptr_t)(pool->source.kind == SEGMENT_ASYNC ? pool->source.memory_pool
                                                                                : pool->source.context.handle);
    figures->generation = pool->generation;
    figures->device = device->ordinal;
    figures->limited = pool->system->options.limit_bytes != CONFIG_NONE;
    figures->limit_bytes = figures->limited ? pool->system->options.limit_bytes : 0;
    figures->device_total_bytes = device->total;
    figures->max_split_bytes = device->max_split;
    memcpy(figures->uuid, device->info.uuid, sizeof figures->uuid);
    memcpy(figures->pci, device->info.pci, sizeof figures->pci);
    pool->figures = figures;
    pool->cell = stats_cell_open(figures, 0);
    pool->cells[0] = pool->cell;
    pool->cell_count = 1;
    stats_pool_publish(figures);
}

void figures_begin(struct pool *pool) {
    stats_write_begin(pool->figures);
}

/* What both an allocation and a free change. */
static void end_hit(struct pool *pool) {
    struct poolcuda_pool *figures = pool->figures;
    stats_set(&figures->idle_bytes, pool->idle_bytes);
    stats_set(&figures->largest_free_bytes, heap_largest(pool));
    stats_set(&figures->releasable_bytes, pool->releasable);
    stats_set(&figures->free_blocks, pool->idle.count + pool->bins.count + pool->ordered_blocks);
    stats_set(&figures->ordered_bytes, pool->ordered_bytes);
}

void figures_end_alloc(struct pool *pool) {
    end_hit(pool);
    stats_raise(&pool->figures->peak_requested_bytes, pool->requested);
    stats_raise(&pool->figures->peak_live_bytes, pool->live);
    stats_write_end(pool->figures);
}

void figures_end_free(struct pool *pool) {
    end_hit(pool);
    stats_raise(&pool->figures->peak_cached_bytes, pool->idle_bytes + pool->ordered_bytes + pool->waiting_bytes);
    stats_raise(&pool->figures->peak_idle_bytes, pool->idle_bytes);
    stats_raise(&pool->figures->peak_ordered_bytes, pool->ordered_bytes);
    stats_write_end(pool->figures);
}

void figures_end(struct pool *pool) {
    struct poolcuda_pool *figures = pool->figures;
    uint64_t cached = pool->idle_bytes + pool->ordered_bytes + pool->waiting_bytes;
    stats_set(&figures->reserved_bytes, pool->reserved + pool->unused_bytes);
    stats_set(&figures->idle_bytes, pool->idle_bytes);
    stats_set(&figures->ordered_bytes, pool->ordered_bytes);
    stats_set(&figures->waiting_bytes, pool->waiting_bytes);
    stats_set(&figures->retired_bytes, pool->retired_bytes);
    stats_set(&figures->exported_bytes, pool->exported_bytes);
    stats_set(&figures->largest_free_bytes, heap_largest(pool));
    stats_set(&figures->releasable_bytes, pool->releasable);
    stats_set(&figures->segments, pool->segment_count);
    stats_set(&figures->prealloc_bytes, pool->prealloc_bytes);
    stats_set(&figures->prealloc_unused_bytes, pool->unused_bytes);
    stats_set(&figures->free_blocks, pool->idle.count + pool->bins.count + pool->ordered_blocks);
    stats_raise(&figures->peak_requested_bytes, pool->requested);
    stats_raise(&figures->peak_live_bytes, pool->live);
    stats_raise(&figures->peak_reserved_bytes, pool->reserved + pool->unused_bytes);
    stats_raise(&figures->peak_cached_bytes, cached);
    stats_raise(&figures->peak_idle_bytes, pool->idle_bytes);
    stats_raise(&figures->peak_ordered_bytes, pool->ordered_bytes);
    stats_raise(&figures->peak_waiting_bytes, pool->waiting_bytes);
    stats_write_end(figures);
}

unsigned figures_cell(struct pool *pool, uint64_t stream) {
    for (unsigned i = 1; i < pool->cell_count; i++)
        if (stats_get(&pool->cells[i]->stream) == stream) return i;
    if (pool->cell_count == POOLCUDA_MAX_CELLS) return 0;
    struct poolcuda_cell *cell = stats_cell_more(pool->figures, stream);
    if (!cell) return 0;
    pool->cells[pool->cell_count] = cell;
    return pool->cell_count++;
}

void figures_alloc(struct pool *pool, const struct block *block, bool hit, enum pool_door door) {
    struct poolcuda_cell *cell = pool->cells[block->number];
    struct poolcuda_size_class *class = &pool->figures->classes[stats_size_class(block->size)];
    stats_add(&cell->allocs, 1);
    stats_add(hit ? &cell->hits : &cell->misses, 1);
    stats_add(&cell->alloc_requested_bytes, block->requested);
    stats_add(&cell->alloc_live_bytes, block->size);
    if (door == POOL_DOOR_RUNTIME) stats_add(&cell->runtime_door, 1);
    stats_add(&class->allocs, 1);
    if (hit) stats_add(&class->hits, 1);
    stats_add(&class->alloc_bytes, block->size);
}

void COLD figures_hit_latency(struct pool *pool, uint64_t began) {
    uint64_t now = figures_clock();
    stats_add(&pool->figures->hit_ns[stats_latency_bucket(now - began)], 1);
    stats_set(&stats_header()->heartbeat_ns, now);
}

void figures_free(struct pool *pool, const struct block *block, enum pool_door door) {
    struct poolcuda_cell *cell = pool->cells[block->number]; /* the one that counted its allocation */
    struct poolcuda_size_class *class = &pool->figures->classes[stats_size_class(block->size)];
    stats_add(&cell->frees, 1);
    stats_add(&cell->freed_requested_bytes, block->requested);
    stats_add(&cell->freed_live_bytes, block->size);
    if (door == POOL_DOOR_RUNTIME) stats_add(&cell->runtime_door, 1);
    stats_add(&class->frees, 1);
    stats_add(&class->freed_bytes, block->size);
}

struct poolcuda_event figures_event_of(const struct pool *pool, enum poolcuda_event_type type) {
    const uint64_t ready = pool->idle_bytes + pool->ordered_bytes;
    const uint64_t largest = heap_largest(pool);
    return (struct poolcuda_event){
        .type = type,
        .device = pool->device->ordinal,
        .pool = stats_pool_number(pool->figures),
        .live_bytes = pool->live,
        .cached_bytes = ready + pool->waiting_bytes,
        .largest_free_bytes = largest,
        .device_free_bytes = UINT64_MAX,
        .fragmentation_ppm = ready ? (uint32_t)((ready - largest) * 1000000 / ready) : 0,
    };
}

void figures_publish(const struct poolcuda_event *event) {
#define EVENT_NAME(name, help) [POOLCUDA_EVENT_##name] = #name,
    static const char *const names[POOLCUDA_EVENT_COUNT] = {POOLCUDA_EVENT_TYPES(EVENT_NAME)};
#undef EVENT_NAME
    stats_event(event);
    stats_set(&stats_header()->heartbeat_ns, figures_clock());
    if (!log_wants(LOG_EVENT)) return;
    if (event->address)
        log_line(LOG_EVENT, "device %d: %s of %#llx", event->device, names[event->type],
                 (unsigned long long)event->address);
    else
        log_line(LOG_EVENT, "device %d: %s: %llu bytes (live %llu, cached %llu, largest free %llu)", event->device,
                 names[event->type], (unsigned long long)event->requested_bytes, (unsigned long long)event->live_bytes,
                 (unsigned long long)event->cached_bytes, (unsigned long long)event->largest_free_bytes);
}

void figures_event(struct pool *pool, enum poolcuda_event_type type, uint64_t bytes, uint64_t device_free,
                   uint32_t reason) {
    struct poolcuda_event event = figures_event_of(pool, type);
    event.requested_bytes = bytes;
    event.device_free_bytes = device_free;
    event.reason = reason;
    figures_publish(&event);
}
