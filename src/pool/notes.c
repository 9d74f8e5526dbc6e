/* SPDX-License-Identifier: MIT
 *
 * What a program did with a live block that outlasts its free, noted in the block: SYNC_MEMOPS, which the driver sets
 * on the whole segment and which goes with the last block that asked for it; and exports to other processes, which may
 * have the block open after its free, so that it is given out again only when none has. A block that was exported by
 * the driver's own handle leaves no trace of who opened it: it is never given out again, and goes with its segment.
 */
#include "pool/hits.h"

#include "config/log.h"

static uint64_t notes_of(const struct block *block) {
    return block_tag(block).batch;
}

static uint64_t export_of(const struct block *block) {
    return notes_of(block) >> NOTE_BITS;
}

/* Of a live block; with its front's lock. */
static void set_notes(struct block *block, uint64_t notes) {
    struct block_tag tag = block_tag(block);
    tag.batch = notes & ((UINT64_C(1) << 44) - 1);
    block_set_tag(block, tag);
}

/* ---- SYNC_MEMOPS ---- */

/* One at a time is in the driver with a segment's mark. The segment stays, for it has a block that is not free. Under
 * pool->lock, which it leaves meanwhile. */
static int set_mark(struct pool *pool, struct segment *segment, struct device_context context, uint64_t address,
                    bool on) {
    const struct device_ops *ops = pool->system->ops;
    segment->marking = true;
    pool_enter(pool);
    lock_give(&pool->lock);
    const int code = ops->set_sync_memops(ops->self, context, address, on);
    lock_take(&pool->lock);
    segment->marking = false;
    pool_change(pool);
    pool_leave(pool);
    return code;
}

static void await_marking(struct pool *pool, const struct segment *segment) {
    while (segment->marking) pool_await_change(pool);
}

/* With the front's lock, which it gives up. */
static int set_sync(struct pool *pool, struct block *block, struct front *front, bool on) {
    static const struct device_context callers = {NULL, -1};
    struct segment *segment = segment_whole(block->segment);
    const uint64_t address = block->address, notes = notes_of(block);
    const bool was = notes & NOTE_SYNC, done = on == was && segment->marked;
    const bool left = !on && segment->marked > 1; /* others keep the segment's */
    /* Noted before the driver sets it, so that a free meanwhile takes it back. */
    if (on && !done) {
        set_notes(block, notes | NOTE_SYNC);
        segment->marked++;
    } else if (left && !done) {
        set_notes(block, notes & ~NOTE_SYNC);
        segment->marked--;
    }
    lock_give(&front->lock);
    if (done || left) return DEVICE_OK;
    const int code = set_mark(pool, segment, callers, address, on);
    if (on == (code == DEVICE_OK)) return code;
    block = front_live_at(pool, address, &front);
    if (!block) return code;
    if (notes_of(block) & NOTE_SYNC) {
        set_notes(block, notes_of(block) & ~NOTE_SYNC);
        segment->marked--;
    }
    lock_give(&front->lock);
    return code;
}

int pool_set_sync_memops(struct pool_system *system, uint64_t address, bool on) {
    struct pool *pool = registry_pool(&system->registry, address);
    if (!pool || !system->ops->set_sync_memops) return POOL_PASS;
    int code = POOL_PASS;
    lock_take(&pool->lock);
    for (;;) {
        const struct segment *segment = pool->status == POOL_OPEN ? registry_segment(&system->registry, address) : NULL;
        if (!segment || segment->pool != pool) break;
        code = DEVICE_INVALID_VALUE;
        struct front *front;
        struct block *block = heap_live_at(pool, segment, address, &front);
        if (!block) break;
        if (!segment->marking) {
            code = set_sync(pool, block, front, on);
            break;
        }
        lock_give(&front->lock);
        pool_await_change(pool);
    }
    lock_give(&pool->lock);
    return code;
}

/* The mark is taken back while the block is nobody's: so its segment is still there. */
static void end_mark(struct pool *pool, struct block *block) {
    struct segment *segment = segment_whole(block->segment);
    await_marking(pool, segment);
    if (--segment->marked > 0) return;
    const int code = set_mark(pool, segment, pool->source.context, block->address, false);
    if (code != DEVICE_OK)
        log_line(LOG_WARNING, "device %d: the driver answered %d when SYNC_MEMOPS was to be taken back",
                 pool->device->ordinal, code);
}

/* ---- exports ---- */

uint64_t pool_note_export(struct pool_system *system, const struct pool_block_info *info, uint64_t export) {
    struct pool *pool = registry_pool(&system->registry, info->base);
    if (!pool) return 0;
    uint64_t in_force = 0;
    lock_take(&pool->lock);
    struct front *front;
    struct block *block = front_live_at(pool, info->base, &front);
    if (block) {
        if (block->id != info->id) {
            in_force = 0;
        } else if (!export) {
            set_notes(block, notes_of(block) | NOTE_UNTRACEABLE);
            in_force = UINT64_MAX;
        } else {
            if (!export_of(block)) set_notes(block, notes_of(block) | export << NOTE_BITS);
            in_force = export_of(block);
        }
        lock_give(&front->lock);
    }
    lock_give(&pool->lock);
    return in_force;
}

bool pool_knows_export(struct pool_system *system, uint64_t export, uint64_t address) {
    struct pool *pool = registry_pool(&system->registry, address);
    if (!pool) return false;
    lock_take(&pool->lock);
    struct front *front;
    const struct block *block = front_live_at(pool, address, &front);
    bool known = block && export_of(block) == export;
    if (block) lock_give(&front->lock);
    if (!block)
        for (block = pool->exported; block && !known; block = block->next) known = export_of(block) == export;
    lock_give(&pool->lock);
    return known;
}

bool notes_end(struct pool *pool, struct block *block, bool waited) {
    if (notes_of(block) & NOTE_SYNC) {
        heap_retire(pool, block);
        figures_end(pool);
        end_mark(pool, block);
        figures_begin(pool);
        heap_end_retired(pool, block);
        stats_set(&pool->figures->retired_bytes, pool->retired_bytes);
    }
    const uint64_t notes = notes_of(block) & ~NOTE_SYNC;
    if (!notes) return false;
    heap_make_exported(pool, block, notes | (waited ? NOTE_WAITED : 0));
    return true;
}

bool notes_ask_exports(struct pool *pool) {
    enum { MOST = 32 };
    struct block *asked[MOST];
    uint64_t exports[MOST];
    bool over[MOST];
    unsigned count = 0;
    const struct pool_options *options = &pool->system->options;
    if (!options->export_over) return false;
    lock_take(&pool->lock);
    if (!pool->asking_exports && pool->traceable)
        for (struct block *block = pool->exported; block && count < MOST; block = block->next)
            if (export_of(block)) {
                asked[count] = block;
                exports[count++] = export_of(block);
            }
    if (count) pool->asking_exports = true;
    lock_give(&pool->lock);
    if (!count) return false;

    for (unsigned i = 0; i < count; i++) over[i] = options->export_over(exports[i]);

    bool any = false;
    lock_take(&pool->lock);
    pool->asking_exports = false;
    figures_begin(pool);
    for (unsigned i = 0; i < count; i++) {
        struct block *block = asked[i];
        const uint64_t notes = notes_of(block);
        heap_end_exported(pool, block);
        if (!over[i]) {
            heap_make_exported(pool, block, notes); /* behind those that were not asked about */
        } else if (notes & NOTE_WAITED) {
            heap_make_idle(pool, block);
            any = true;
        } else {
            heap_make_waiting(pool, block, fences_open_batch(&pool->system->fences));
        }
    }
    figures_end(pool);
    lock_give(&pool->lock);
    return any;
}
