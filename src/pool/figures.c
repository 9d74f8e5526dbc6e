/* SPDX-License-Identifier: MIT
 *
 * What the pool writes into its records of the figures. The pool's own sums decide; the records follow them inside one
 * bracket of the sequence.
 */
#include "pool/hits.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "config/log.h"

uint64_t COLD figures_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static enum poolcuda_kind kind_of(const struct pool *pool) {
    return pool->source.kind == SEGMENT_ASYNC ? POOLCUDA_KIND_ASYNC : POOLCUDA_KIND_PLAIN;
}

static void tell_limit(const struct pool *pool, struct poolcuda_pool *figures) {
    const uint64_t limit = pool_limit_of(pool->system);
    __atomic_store_n(&figures->limited, limit != CONFIG_NONE, __ATOMIC_RELAXED);
    stats_set(&figures->limit_bytes, limit != CONFIG_NONE ? limit : 0);
    stats_set(&figures->max_split_bytes, device_max_split(pool->device));
}

void figures_limit(struct pool *pool) {
    tell_limit(pool, pool->figures);
}

void figures_open(struct pool *pool) {
    struct poolcuda_pool *figures = stats_pool_open();
    const struct device_state *device = pool->device;
    figures->kind = kind_of(pool);
    figures->context = (uint64_t)(uintptr_t)(pool->source.kind == SEGMENT_ASYNC ? pool->source.memory_pool
                                                                                : pool->source.context.handle);
    figures->generation = pool->generation;
    figures->device = device->ordinal;
    tell_limit(pool, figures);
    figures->device_total_bytes = device->total;
    memcpy(figures->uuid, device->info.uuid, sizeof figures->uuid);
    memcpy(figures->pci, device->info.pci, sizeof figures->pci);
    pool->figures = figures;
    fronts_open(pool);
    stats_pool_publish(figures);
    map_open(pool);
}

void figures_begin(struct pool *pool) {
    if (pool->writing++ == 0) stats_write_begin(pool->figures);
}

void figures_end_hit(struct pool *pool) {
    struct poolcuda_pool *figures = pool->figures;
    stats_set(&figures->idle_bytes, pool->idle_bytes);
    stats_set(&figures->largest_free_bytes, heap_largest(pool));
    stats_set(&figures->releasable_bytes, pool->releasable);
    stats_set(&figures->free_blocks, pool->idle.count + pool->ordered_blocks);
    stats_set(&figures->ordered_bytes, pool->ordered_bytes);
    if (--pool->writing == 0) stats_write_end(figures);
}

void figures_end(struct pool *pool) {
    struct poolcuda_pool *figures = pool->figures;
    stats_set(&figures->reserved_bytes, pool->reserved + pool->unused_bytes);
    stats_set(&figures->waiting_bytes, pool->waiting.bytes);
    stats_set(&figures->retired_bytes, pool->retired_bytes);
    stats_set(&figures->exported_bytes, pool->exported_bytes);
    stats_set(&figures->segments, pool->segment_count);
    stats_set(&figures->prealloc_bytes, pool->prealloc_bytes);
    stats_set(&figures->prealloc_unused_bytes, pool->unused_bytes);
    stats_raise(&figures->peak_reserved_bytes, pool->reserved + pool->unused_bytes);
    figures_note_peaks(pool);
    figures_end_hit(pool);
}

/* `reset`: they become the present values, also where they were higher. */
static void note_peaks(struct pool *pool, bool reset) {
    struct poolcuda_pool *figures = pool->figures;
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    const uint64_t idle = pool->idle_bytes + fronts.idle, ordered = pool->ordered_bytes + fronts.ordered,
                   waiting = pool->waiting.bytes + fronts.waiting;
    void (*const note)(uint64_t *, uint64_t) = reset ? stats_set : stats_raise;
    note(&figures->peak_live_bytes, fronts.live);
    note(&figures->peak_requested_bytes, fronts.requested);
    note(&figures->peak_cached_bytes, idle + ordered + waiting);
    note(&figures->peak_idle_bytes, idle);
    note(&figures->peak_ordered_bytes, ordered);
    note(&figures->peak_waiting_bytes, waiting);
}

void figures_note_peaks(struct pool *pool) {
    note_peaks(pool, false);
}

void figures_reset_peaks(struct pool *pool) {
    figures_begin(pool);
    stats_set(&pool->figures->peak_reserved_bytes, pool->reserved + pool->unused_bytes);
    fixed_reset_peaks(pool);
    /* No hit is amid a change meanwhile, nor may one pass the new peaks without a look. */
    fronts_lock(pool);
    fronts_allow_nothing(pool);
    note_peaks(pool, true);
    fronts_unlock(pool);
    figures_end(pool);
}

void figures_miss(struct pool *pool, const struct block *block) {
    struct front *front = pool->fronts[block_tag(block).number];
    lock_take(&front->lock);
    const uint64_t at = cell_begin(front->cell);
    stats_add(&front->cell->classes[stats_size_class(block->size)].misses, 1);
    cell_end(front->cell, at);
    lock_give(&front->lock);
}

uint64_t COLD figures_hit_latency(struct pool *pool, uint64_t began) {
    const uint64_t now = figures_clock();
    __atomic_fetch_add(&pool->figures->hit_ns[stats_latency_bucket(now - began)], 1, __ATOMIC_RELAXED);
    stats_set(&stats_header()->heartbeat_ns, now);
    return now;
}

struct poolcuda_event figures_event_of(const struct pool *pool, enum poolcuda_event_type type) {
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    const uint64_t ready = pool->idle_bytes + fronts.idle + pool->ordered_bytes + fronts.ordered;
    const uint64_t largest = heap_largest(pool);
    return (struct poolcuda_event){
        .type = type,
        .device = pool->device->ordinal,
        .pool = stats_pool_number(pool->figures),
        .kind = kind_of(pool),
        .live_bytes = fronts.live,
        .cached_bytes = ready + pool->waiting.bytes + fronts.waiting,
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
    const char *kind = event->kind == POOLCUDA_KIND_ASYNC ? "async" : "plain";
    char number[16] = ""; /* as poolstat shows it; none without figures */
    if (event->pool) snprintf(number, sizeof number, " %u", event->pool);
    if (event->address)
        log_line(LOG_EVENT, "device %d, %s pool%s: %s of %#llx", event->device, kind, number, names[event->type],
                 (unsigned long long)event->address);
    else
        log_line(LOG_EVENT, "device %d, %s pool%s: %s: %llu bytes (live %llu, cached %llu, largest free %llu)",
                 event->device, kind, number, names[event->type], (unsigned long long)event->requested_bytes,
                 (unsigned long long)event->live_bytes, (unsigned long long)event->cached_bytes,
                 (unsigned long long)event->largest_free_bytes);
}

void figures_event(struct pool *pool, enum poolcuda_event_type type, uint64_t bytes, uint64_t device_free,
                   uint32_t reason) {
    struct poolcuda_event event = figures_event_of(pool, type);
    event.requested_bytes = bytes;
    event.device_free_bytes = device_free;
    event.reason = reason;
    figures_publish(&event);
}
