/* SPDX-License-Identifier: MIT
 *
 * The pool as a whole: its making and end, and the questions about it. Allocations are in alloc.c, frees in free.c.
 */
#include "pool/internal.h"

#include <stdlib.h>

#include "config/log.h"
#include "trace/trace.h"

struct pool_system *pool_system_create(const struct device_ops *ops, const struct pool_options *options) {
    struct pool_system *system = calloc(1, sizeof *system);
    if (!system) return NULL;
    system->ops = ops;
    system->options = *options;
    system->options.segment_bytes = (options->segment_bytes + GRANULE - 1) / GRANULE * GRANULE;
    if (options->fill != CONFIG_FILL_NONE && !ops->fill) {
        log_line(LOG_WARNING, "POOL_FILL: what fills memory is missing below: blocks are handed out as they are");
        system->options.fill = CONFIG_FILL_NONE;
    }
    system->log_all = log_wants(LOG_ALL);
    system->traced = trace_is_on();
    system->watched = system->log_all || system->traced;
    system->attended_allocs = CHECKS_EVERY_CALL || system->log_all || system->options.fill != CONFIG_FILL_NONE;
    system->attended_frees = CHECKS_EVERY_CALL || system->log_all || options->trim_bytes != CONFIG_NONE;
    pthread_mutex_init(&system->contexts_lock, NULL);
    pthread_mutex_init(&system->probes_lock, NULL);
    fences_init(system);
    if (options->free_event && atomic_load(&system->fences.unsupported))
        log_line(LOG_WARNING,
                 "POOL_FREE=event needs cuCtxRecordEvent, which the driver lacks: cudaFree waits as with sync");
    /* Distinct for each system: threads remember their last context by it. */
    static _Atomic uint64_t systems;
    const uint64_t epoch = (atomic_fetch_add(&systems, 1) + 1) << 32;
    atomic_store(&system->epoch, epoch);
    atomic_store(&system->streams_epoch, epoch);
    if (!registry_init(&system->registry)) {
        free(system);
        return NULL;
    }
    return system;
}

void pool_system_destroy(struct pool_system *system) {
    const struct device_ops *ops = system->ops;
    atomic_store(&system->captures, 0);
    capture_release_probes(system);
    for (struct pool *pool = atomic_load(&system->pools), *next; pool; pool = next) {
        next = pool->next;
        for (struct segment *segment = pool->segments; segment; segment = segment->next)
            if (!segment->whole) ops->segment_release(ops->self, &pool->source, segment->address, segment->size);
        for (struct segment *whole = pool->wholes; whole; whole = whole->next)
            ops->segment_release(ops->self, &pool->source, whole->address, whole->size);
        heap_forget(pool);
        streams_free(pool);
        stats_pool_gone(pool->figures);
        records_free_all(&pool->records);
        live_table_free(&pool->table);
        fronts_free(pool);
        pthread_cond_destroy(&pool->changed);
        pthread_mutex_destroy(&pool->change_lock);
        free(pool);
    }
    while (system->devices) {
        struct device_state *device = system->devices;
        system->devices = device->next;
        pthread_mutex_destroy(&device->lock);
        free(device);
    }
    fences_destroy(system);
    registry_destroy(&system->registry);
    pthread_mutex_destroy(&system->contexts_lock);
    pthread_mutex_destroy(&system->probes_lock);
    free(system);
}

int COLD pool_pass(enum poolcuda_pass_reason reason) {
#define PASS_NAME(name, help) [POOLCUDA_PASS_##name] = #name,
    static const char *const names[POOLCUDA_PASS_COUNT] = {POOLCUDA_PASS_REASONS(PASS_NAME)};
#undef PASS_NAME
    stats_pass(reason);
    log_line(LOG_ALL, "passed to the driver: %s", names[reason]);
    return POOL_PASS;
}

int pool_find(struct pool_system *system, uint64_t address, struct pool_block_info *info) {
    struct pool *pool = registry_pool(&system->registry, address);
    if (!pool) return POOL_PASS;
    int code = POOL_PASS;
    lock_take(&pool->lock);
    const struct segment *segment = registry_segment(&system->registry, address);
    if (segment && segment->pool == pool) {
        code = DEVICE_NOT_FOUND;
        struct front *front;
        const struct block *block = heap_live_at(pool, segment, address, &front);
        if (block) {
            const uint64_t notes = block_tag(block).batch;
            *info = (struct pool_block_info){
                .base = block->address,
                .requested = block->requested,
                .offset_in_segment = block->address - segment->address,
                .id = block->id,
                .context = pool->source.context,
                .kind = pool->source.kind,
                .sync_memops = notes & NOTE_SYNC,
                .export = notes >> NOTE_BITS,
            };
            lock_give(&front->lock);
            code = DEVICE_OK;
        }
    }
    lock_give(&pool->lock);
    return code;
}

static struct device_state *device_by_ordinal(struct pool_system *system, int ordinal) {
    pthread_mutex_lock(&system->contexts_lock);
    struct device_state *device = system->devices;
    while (device && device->ordinal != ordinal) device = device->next;
    pthread_mutex_unlock(&system->contexts_lock);
    return device;
}

uint64_t pool_releasable(struct pool_system *system, int ordinal, uint64_t *of_async) {
    struct pool_totals totals;
    struct device_state *device = device_by_ordinal(system, ordinal);
    if (device) grow_prove(system, device);
    if (device) grow_merge(system, device);
    pool_totals(system, ordinal, &totals);
    if (of_async) *of_async = totals.releasable_async;
    return totals.releasable;
}

uint64_t pool_trim(struct pool_system *system, int ordinal, uint64_t keep_bytes) {
    struct device_state *device = device_by_ordinal(system, ordinal);
    return device ? grow_trim(system, device, keep_bytes, true) : 0;
}

bool pool_relieve(struct pool_system *system, int ordinal) {
    struct device_state *device = device_by_ordinal(system, ordinal);
    if (!device) return false;
    grow_settle(system, device);
    const uint64_t preallocated = prealloc_release(system, device);
    return pool_trim(system, ordinal, 0) + preallocated > 0;
}

void pool_totals(struct pool_system *system, int ordinal, struct pool_totals *totals) {
    *totals = (struct pool_totals){0};
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (ordinal >= 0 && pool->device->ordinal != ordinal) continue;
        lock_take(&pool->lock);
        struct front_sums fronts;
        fronts_sum(pool, &fronts);
        totals->live += fronts.live;
        totals->requested += fronts.requested;
        totals->reserved += pool->reserved + pool->unused_bytes;
        totals->idle += pool->idle_bytes + fronts.idle;
        totals->ordered += pool->ordered_bytes + fronts.ordered;
        totals->waiting += pool->waiting.bytes + fronts.waiting;
        totals->retired += pool->retired_bytes;
        totals->exported += pool->exported_bytes;
        totals->releasable += pool->releasable + pool->unused_bytes;
        if (pool->source.kind == SEGMENT_ASYNC) totals->releasable_async += pool->releasable;
        totals->blocks_live += fronts_live_blocks(pool);
        totals->segments += pool->segment_count;
        if (heap_largest(pool) > totals->largest_free) totals->largest_free = heap_largest(pool);
        lock_give(&pool->lock);
    }
}
