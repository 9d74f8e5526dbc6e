/* SPDX-License-Identifier: MIT
 *
 * Batches of frees, and the fences that prove them. Every free joins the batch that is open, at the cost of reading its
 * number. A fence is recorded for a batch that was sealed before: so all work that was submitted before a free of that
 * batch was submitted before the fence, which covers every stream of every live context. When it has passed, so has all
 * that, for this batch and every earlier one.
 *
 * The number may be read long before the block carries it: a free that read a number reads it before the batch is
 * sealed, and so before the fence is recorded; its block is idle from the first moment if the fence has passed
 * meanwhile. tests/model checks this.
 */
#include "pool/internal.h"

#include <errno.h>
#include <time.h>

#include "config/log.h"

void fences_init(struct pool_system *system) {
    struct fences *fences = &system->fences;
    pthread_mutex_init(&fences->lock, NULL);
    atomic_store(&fences->open, 1);
    atomic_store(&fences->unsupported, !system->ops->fences_supported(system->ops->self));
}

void fences_destroy(struct pool_system *system) {
    struct fences *fences = &system->fences;
    for (unsigned i = 0; i < fences->count; i++)
        system->ops->fence_drop(system->ops->self, fences->queue[(fences->first + i) % FENCES_MOST].fence);
    pthread_mutex_destroy(&fences->lock);
}

static void raise_to(_Atomic uint64_t *passed, uint64_t batch) {
    uint64_t before = atomic_load(passed);
    while (before < batch && !atomic_compare_exchange_weak(passed, &before, batch)) continue;
}

void fences_prove(struct fences *fences, uint64_t batch) {
    raise_to(&fences->passed, batch);
}

static void count_fence(struct pool *pool, bool for_miss) {
    lock_take(&pool->lock);
    figures_begin(pool);
    stats_add(&pool->figures->fences, 1);
    if (for_miss) stats_add(&pool->figures->miss_fences, 1);
    figures_end(pool);
    lock_give(&pool->lock);
}

/* A fence is gone that has not passed everywhere: what it was to prove, and is not retired, is to be marked anew. */
static void want_another(struct fences *fences) {
    atomic_store_explicit(&fences->marked, atomic_load(&fences->passed), memory_order_release);
}

bool fences_close(struct pool *pool, bool for_miss) {
    struct pool_system *system = pool->system;
    struct fences *fences = &system->fences;
    if (atomic_load_explicit(&fences->unsupported, memory_order_relaxed) || !capture_record_begin(system)) return false;

    pthread_mutex_lock(&fences->lock);
    /* Where too many have not passed, the last one gives way to this, which proves as much. */
    const bool full = fences->count == FENCES_MOST;
    bool begun = !fences->recording && !(full && fences->asking);
    struct device_fence *replaced = NULL;
    if (begun) fences->recording = true;
    if (begun && full) replaced = fences->queue[(fences->first + --fences->count) % FENCES_MOST].fence;
    pthread_mutex_unlock(&fences->lock);
    if (!begun) {
        capture_record_end(system);
        return false;
    }
    if (replaced) system->ops->fence_drop(system->ops->self, replaced);

    const uint64_t batch = fences_seal(fences);
    struct device_fence *fence = NULL;
    const int code = system->ops->fence_record(system->ops->self, &fence);

    pthread_mutex_lock(&fences->lock);
    fences->recording = false;
    if (code == DEVICE_OK) {
        const unsigned at = (fences->first + fences->count++) % FENCES_MOST;
        fences->queue[at].fence = fence;
        fences->queue[at].batch = batch;
        atomic_store_explicit(&fences->marked, batch, memory_order_release);
    } else if (replaced) {
        want_another(fences);
    }
    pthread_mutex_unlock(&fences->lock);
    capture_record_end(system);

    if (code == DEVICE_OK) {
        count_fence(pool, for_miss);
    } else if (code != DEVICE_NOT_READY) {
        log_line(LOG_WARNING, "a fence could not be recorded: the driver answered %d", code);
    }
    return code == DEVICE_OK;
}

/* A fence that cannot be asked about proves nothing: what is not proved yet is taken out of circulation for good. */
static void retire_batches(struct pool_system *system, const struct device_state *device, uint64_t batch, int code) {
    uint64_t bytes = 0;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device) continue;
        lock_take(&pool->lock);
        figures_begin(pool);
        streams_reclaim(pool);
        const uint64_t before = pool->retired_bytes;
        while (pool->waiting.first && block_tag(pool->waiting.first).batch <= batch)
            heap_retire(pool, heap_pop_waiting(pool));
        for (unsigned i = 1; i <= FRONTS_OF_THREADS && i < pool->front_count; i++)
            for (struct block *block; pool->fronts[i] && (block = front_take_waiting(pool->fronts[i], batch));) {
                live_table_remove(&pool->table, block->address);
                heap_retire(pool, block);
            }
        bytes += pool->retired_bytes - before;
        figures_end(pool);
        lock_give(&pool->lock);
    }
    log_line(LOG_WARNING, "the driver answered %d about a fence: the %llu bytes behind it are never given out again",
             code, (unsigned long long)bytes);
}

/* The queue as it is, for one thread to ask about; 0 when it is empty, or another does. */
static unsigned take_queue(struct fences *fences, struct queued_fence *queue) {
    unsigned count = 0;
    pthread_mutex_lock(&fences->lock);
    if (!fences->asking) {
        for (; count < fences->count; count++) queue[count] = fences->queue[(fences->first + count) % FENCES_MOST];
        fences->asking = count > 0;
    }
    pthread_mutex_unlock(&fences->lock);
    return count;
}

/* The first `dropped` are not asked about any more. */
static void put_queue(struct fences *fences, unsigned dropped) {
    pthread_mutex_lock(&fences->lock);
    fences->asking = false;
    fences->first = (fences->first + dropped) % FENCES_MOST;
    fences->count -= dropped;
    pthread_mutex_unlock(&fences->lock);
}

bool fences_poll(struct pool_system *system, struct device_state *device) {
    struct fences *fences = &system->fences;
    const struct device_ops *ops = system->ops;
    struct queued_fence queue[FENCES_MOST];
    if (!capture_ask_begin(system)) return false;
    const unsigned count = take_queue(fences, queue);
    bool passed = false;
    for (unsigned i = 0; i < count; i++) {
        if (queue[i].batch <= atomic_load(&device->passed)) continue;
        const int code = ops->fence_query(ops->self, queue[i].fence, device->ordinal);
        if (code == DEVICE_NOT_READY) break;
        if (code == DEVICE_OK) {
            raise_to(&device->passed, queue[i].batch);
            passed = true;
        } else {
            retire_batches(system, device, queue[i].batch, code);
        }
    }
    /* A fence goes when it has nothing to tell any device. */
    unsigned dropped = 0;
    for (; dropped < count; dropped++) {
        const int code = ops->fence_query(ops->self, queue[dropped].fence, -1);
        if (code == DEVICE_NOT_READY) break;
        if (code == DEVICE_OK)
            fences_prove(fences, queue[dropped].batch);
        else
            want_another(fences);
    }
    if (count) put_queue(fences, dropped);
    capture_ask_end(system);
    for (unsigned i = 0; i < dropped; i++) ops->fence_drop(ops->self, queue[i].fence);
    return passed;
}

void fences_await(struct fences *fences) {
    enum { STEP_NS = 50000, STEPS = 2000 };
    const struct timespec step = {0, STEP_NS};
    const int error = errno;
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    for (unsigned steps = 0; steps < STEPS; steps++) {
        pthread_mutex_lock(&fences->lock);
        const bool others = fences->recording || fences->asking;
        pthread_mutex_unlock(&fences->lock);
        if (!others) break;
        nanosleep(&step, NULL);
    }
    pthread_setcancelstate(cancel_state, &cancel_state);
    errno = error;
}

bool fences_settle(struct pool *pool) {
    struct pool_system *system = pool->system;
    if (!capture_wait_begin(pool)) return false;
    const uint64_t batch = fences_seal(&system->fences);
    const uint64_t began = figures_clock();
    const int code = system->ops->synchronize_all(system->ops->self);
    if (code == DEVICE_OK) fences_prove(&system->fences, batch);
    lock_take(&pool->lock);
    capture_wait_end(pool);
    figures_begin(pool);
    stats_add(&pool->figures->waits, 1);
    stats_add(&pool->figures->driver_ns, figures_clock() - began);
    figures_end(pool);
    lock_give(&pool->lock);
    return code == DEVICE_OK;
}
