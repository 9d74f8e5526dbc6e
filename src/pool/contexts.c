/* SPDX-License-Identifier: MIT
 *
 * Contexts and the pools that serve them. A context is its handle plus a generation of our own, since a handle comes
 * back after a reset. Pools and devices are made at their first use and never freed, so that a pointer to one, once
 * found, stays good; threads cache what they found last.
 */
#include "pool/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/log.h"

_Thread_local struct context_cache context_cache;

static struct device_state *device_of(struct pool_system *system, struct device_context context) {
    struct device_state *device = system->devices;
    while (device && device->ordinal != context.ordinal) device = device->next;
    return device;
}

/* Under contexts_lock. NULL when host memory ran out. */
static struct device_state *device_add(struct pool_system *system, struct device_context context,
                                       const struct device_info *info) {
    struct device_state *device = calloc(1, sizeof *device);
    if (!device) return NULL;
    device->ordinal = context.ordinal;
    pthread_mutex_init(&device->lock, NULL);
    device->info = *info;
    device->total = info->total_bytes;
    device->largest = info->total_bytes ? info->total_bytes : UINT64_MAX / 2;
    device->max_split = policy_max_split(&system->options, device->total);
    device->crowded_above = policy_crowded_above(&system->options, device->total);
    device->next = system->devices;
    system->devices = device;
    return device;
}

static bool is_from(const struct pool *pool, const struct segment_source *source) {
    return !pool->ended && pool->source.kind == source->kind && pool->source.context.handle == source->context.handle &&
           pool->source.context.ordinal == source->context.ordinal && pool->source.memory_pool == source->memory_pool;
}

/* An empty pool begins a new life, and new figures. Under pool->lock. */
static void pool_rename(struct pool *pool) {
    fronts_close(pool);
    stats_pool_gone(pool->figures);
    pool->generation = atomic_fetch_add(&pool->system->next_generation, 1) + 1;
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    pool->thrash = (struct thrash){.counted = fronts.served};
    figures_open(pool);
    prealloc_open(pool);
}

/* May the pool, whose context or memory pool is gone, be used for another? Under pool->lock. */
static bool is_left_behind(const struct pool *pool) {
    if (!(pool->gone || pool->ended) || pool->segments || pool->inside || pool->closers) return false;
    for (unsigned i = 1; i < pool->list_count; i++)
        if (pool->lists[i]->busy || pool->lists[i]->ending) return false;
    return true;
}

/* Pools are never freed, so that a pointer to one stays good; but what is left behind is used again. Under
 * contexts_lock. */
static struct pool *pool_take_over(struct pool_system *system, const struct device_state *device,
                                   const struct segment_source *source, bool primary) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device || pool->source.kind != source->kind) continue;
        lock_take(&pool->lock);
        const bool taken = is_left_behind(pool);
        if (taken) {
            figures_begin(pool);
            heap_forget(pool);
            figures_end(pool);
            __atomic_store_n(&pool->source.context.handle, source->context.handle, __ATOMIC_RELAXED);
            pool->source.memory_pool = source->memory_pool; /* the rest is the same */
            pool->primary = primary;
            pool->gone = pool->ended = false;
            pool_rename(pool);
            fronts_gate(pool);
        }
        lock_give(&pool->lock);
        if (taken) return pool;
    }
    return NULL;
}

/* Under contexts_lock. A context that comes back under its old handle gets its old pool, which is empty. */
static struct pool *pool_add(struct pool_system *system, struct device_state *device,
                             const struct segment_source *source, bool primary) {
    for (struct pool *old = atomic_load(&system->pools); old; old = old->next) {
        lock_take(&old->lock);
        const bool same = is_from(old, source);
        if (same) old->gone = false;
        lock_give(&old->lock);
        if (same) return old;
    }
    struct pool *left = pool_take_over(system, device, source, primary);
    if (left) return left;
    struct pool *pool = aligned_alloc(_Alignof(struct pool), sizeof *pool);
    if (!pool) return NULL;
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->change_lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    pool->system = system;
    pool->device = device;
    pool->source = *source;
    pool->primary = primary;
    pool->generation = atomic_fetch_add(&system->next_generation, 1) + 1;
    if (!fronts_init(pool)) {
        pthread_cond_destroy(&pool->changed);
        pthread_mutex_destroy(&pool->change_lock);
        free(pool);
        return NULL;
    }
    figures_open(pool);
    prealloc_open(pool);
    pool->next = atomic_load(&system->pools);
    atomic_store(&system->pools, pool);
    return pool;
}

/* Under contexts_lock. */
static struct context_entry *entry_of(struct pool_system *system, const void *handle) {
    for (size_t i = 0; i < system->context_count; i++)
        if (system->contexts[i].handle == handle) return &system->contexts[i];
    return NULL;
}

/* A context that was not seen before: the questions go to the driver with no lock held, so two threads may ask at once;
 * the first answer stays. */
static struct pool *context_adopt(struct pool_system *system, const void *handle, enum poolcuda_pass_reason *reason) {
    const struct device_ops *ops = system->ops;
    struct device_context context;
    if (ops->context_current(ops->self, &context) != DEVICE_OK || context.handle != handle) {
        *reason = POOLCUDA_PASS_no_context;
        return NULL;
    }
    const int error = errno;
    bool primary = ops->context_primary(ops->self, context);
    bool pooled = primary || ops->context_created(ops->self, context);
    struct device_info info = {0};
    if (pooled) ops->device_describe(ops->self, context, &info);
    const struct segment_source source = {.kind = SEGMENT_PLAIN, .context = context};

    struct pool *pool = NULL;
    pthread_mutex_lock(&system->contexts_lock);
    struct context_entry *entry = entry_of(system, context.handle);
    if (entry) {
        pool = entry->pool;
    } else if (system->context_count == CONTEXTS_MAX) {
        pooled = false;
    } else {
        if (pooled) {
            struct device_state *device = device_of(system, context);
            if (!device) device = device_add(system, context, &info);
            if (device) pool = pool_add(system, device, &source, primary);
            if (!pool) *reason = POOLCUDA_PASS_no_host_memory;
        }
        if (pool || !pooled) system->contexts[system->context_count++] = (struct context_entry){context.handle, pool};
    }
    pthread_mutex_unlock(&system->contexts_lock);
    errno = error;
    if (!pooled) *reason = POOLCUDA_PASS_created_context;
    return pool;
}

/* Under contexts_lock. */
static bool is_ending(const struct pool_system *system, const void *memory_pool) {
    for (unsigned i = 0; i < system->ending_count; i++)
        if (system->ending[i] == memory_pool) return true;
    return system->ending_unlisted > 0;
}

struct pool *contexts_async_pool(struct pool_system *system, struct device_context context) {
    const struct device_ops *ops = system->ops;
    struct segment_source source = {.kind = SEGMENT_ASYNC, .context = {NULL, context.ordinal}};
    const int error = errno;
    struct device_info info;
    struct pool *pool = NULL;
    for (bool known = false; !known;) {
        /* What was current when the driver was asked may have been destroyed since, and its handle be anything. */
        const uint64_t ends = atomic_load(&system->memory_pool_ends);
        if (ops->memory_pool(ops->self, context.ordinal, &source.memory_pool) != DEVICE_OK) break;
        ops->device_describe(ops->self, context, &info);
        pthread_mutex_lock(&system->contexts_lock);
        known = atomic_load(&system->memory_pool_ends) == ends;
        if (known && !is_ending(system, source.memory_pool)) {
            struct device_state *device = device_of(system, context);
            if (!device) device = device_add(system, context, &info);
            if (device) pool = pool_add(system, device, &source, false);
        }
        pthread_mutex_unlock(&system->contexts_lock);
    }
    errno = error;
    return pool;
}

struct pool *COLD contexts_find_pool(struct pool_system *system, void *handle) {
    uint64_t epoch = atomic_load_explicit(&system->epoch, memory_order_acquire);
    pthread_mutex_lock(&system->contexts_lock);
    struct context_entry *entry = entry_of(system, handle);
    struct pool *pool = entry ? entry->pool : NULL;
    pthread_mutex_unlock(&system->contexts_lock);
    if (pool) context_cache = (struct context_cache){system, epoch, handle, pool};
    return pool;
}

struct pool *contexts_make_pool(struct pool_system *system, void *handle, enum poolcuda_pass_reason *reason) {
    pthread_mutex_lock(&system->contexts_lock);
    bool known = entry_of(system, handle) != NULL;
    pthread_mutex_unlock(&system->contexts_lock);
    if (!known) return context_adopt(system, handle, reason);
    *reason = POOLCUDA_PASS_created_context;
    return NULL;
}

/* How often the thread is inside a pool, and whether it could be cancelled before. */
static _Thread_local struct { int times, state; } entered __attribute__((tls_model("initial-exec")));

void pool_enter(struct pool *pool) {
    if (entered.times++ == 0) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &entered.state);
    pool->inside++;
}

void pool_leave(struct pool *pool) {
    if (--pool->inside == 0 && (pool->status == POOL_CLOSED || pool->ended)) pool_change(pool);
    if (--entered.times == 0) pthread_setcancelstate(entered.state, &entered.state);
}

void pool_change(struct pool *pool) {
    pthread_mutex_lock(&pool->change_lock);
    pool->changes++;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->change_lock);
}

void pool_await_change(struct pool *pool) {
    /* A thread that was cancelled here would take the lock with it. */
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&pool->change_lock);
    const uint64_t changes = pool->changes;
    lock_give(&pool->lock);
    while (pool->changes == changes) pthread_cond_wait(&pool->changed, &pool->change_lock);
    pthread_mutex_unlock(&pool->change_lock);
    lock_take(&pool->lock);
    pthread_setcancelstate(cancel_state, &cancel_state);
}

static bool pool_is_of(const struct pool *pool, int ordinal, const void *handle) {
    if (pool->source.kind != SEGMENT_PLAIN) return false;
    return handle ? pool->source.context.handle == handle : pool->primary && pool->source.context.ordinal == ordinal;
}

/* The pool in service for a handle, or for the device's primary context. A pool that the table has forgotten is in
 * service too: a thread that had found it before may have gone on with it since. */
static struct pool *pool_in_service(struct pool_system *system, int ordinal, const void *handle) {
    struct pool *pool = NULL;
    pthread_mutex_lock(&system->contexts_lock);
    for (size_t i = 0; i < system->context_count && !pool; i++)
        if (system->contexts[i].pool && pool_is_of(system->contexts[i].pool, ordinal, handle))
            pool = system->contexts[i].pool;
    pthread_mutex_unlock(&system->contexts_lock);
    if (pool) return pool;
    for (pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        const bool found = pool_is_of(pool, ordinal, handle);
        lock_give(&pool->lock);
        if (found) break;
    }
    return pool;
}

void pool_context_close(struct pool_system *system, int ordinal, void *handle) {
    struct pool *pool = pool_in_service(system, ordinal, handle);
    if (!pool) return;
    lock_take(&pool->lock);
    pool->closers++;
    pool->status = POOL_CLOSED;
    fronts_gate(pool);
    while (pool->inside > 0) pool_await_change(pool);
    lock_give(&pool->lock);
}

/* The context is gone, and with it all that it had from the driver. */
static void pool_begin_generation(struct pool *pool) {
    const uint64_t reserved = pool->reserved + pool->unused_bytes;
    figures_event(pool, POOLCUDA_EVENT_reset, reserved, UINT64_MAX, 0);
    pthread_mutex_lock(&pool->device->lock);
    device_count(pool->device, -reserved);
    pthread_mutex_unlock(&pool->device->lock);
    figures_begin(pool);
    heap_forget(pool);
    figures_end(pool);
    pool_rename(pool);
    pool->gone = !pool->primary; /* a primary context comes back under its handle */
}

/* The table forgets the context: whatever comes back under its handle is asked about anew. */
static void entry_forget(struct pool_system *system, const void *handle) {
    pthread_mutex_lock(&system->contexts_lock);
    struct context_entry *entry = entry_of(system, handle);
    if (entry) {
        *entry = system->contexts[--system->context_count];
        atomic_fetch_add(&system->epoch, 1);
    }
    pthread_mutex_unlock(&system->contexts_lock);
}

/* The pool that awaits a settle: another thread's may already have taken it out of service. */
static struct pool *pool_closed(struct pool_system *system, int ordinal, const void *handle) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        bool closed = pool->closers > 0 && pool_is_of(pool, ordinal, handle);
        lock_give(&pool->lock);
        if (closed) return pool;
    }
    return NULL;
}

void pool_context_settle(struct pool_system *system, int ordinal, void *handle) {
    struct pool *pool = pool_closed(system, ordinal, handle);
    if (!pool) {
        if (handle) entry_forget(system, handle);
        return;
    }
    bool alive = system->ops->context_alive(system->ops->self, pool->source.context);
    if (!alive) entry_forget(system, pool->source.context.handle);
    lock_take(&pool->lock);
    if (!alive) {
        streams_await_rest(pool);
        pool_begin_generation(pool);
    }
    if (--pool->closers == 0) {
        pool->status = POOL_OPEN;
        fronts_gate(pool);
        pool_change(pool);
    }
    lock_give(&pool->lock);
    if (!alive)
        log_line(LOG_EVENT, "device %d, plain pool: its context is gone, its blocks are forgotten",
                 pool->device->ordinal);
}

/* ---- memory pools ---- */

void pool_memory_pool_set(struct pool_system *system) {
    atomic_fetch_add(&system->streams_epoch, 1);
    grow_release_ended(system);
}

static struct pool *pool_from(struct pool_system *system, const void *memory_pool) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        const bool found =
            pool->source.kind == SEGMENT_ASYNC && !pool->ended && pool->source.memory_pool == memory_pool;
        lock_give(&pool->lock);
        if (found) return pool;
    }
    return NULL;
}

void pool_memory_pool_use(struct pool_system *system, const void *memory_pool, uint64_t *reserved,
                          uint64_t *requested) {
    *reserved = *requested = 0;
    struct pool *pool = pool_from(system, memory_pool);
    if (!pool) return;
    lock_take(&pool->lock);
    *reserved = pool->reserved;
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    *requested = fronts.requested;
    lock_give(&pool->lock);
}

uint64_t pool_trim_memory_pool(struct pool_system *system, const void *memory_pool, uint64_t keep_bytes) {
    struct pool *pool = pool_from(system, memory_pool);
    return pool ? grow_release_pool(pool, keep_bytes) : 0;
}

static void end_begins(struct pool_system *system, const void *memory_pool) {
    pthread_mutex_lock(&system->contexts_lock);
    if (system->ending_count < MEMORY_POOLS_ENDING) {
        system->ending[system->ending_count++] = memory_pool;
    } else {
        system->ending_unlisted++;
    }
    atomic_fetch_add(&system->memory_pool_ends, 1);
    pthread_mutex_unlock(&system->contexts_lock);
}

static void end_is_over(struct pool_system *system, const void *memory_pool) {
    pthread_mutex_lock(&system->contexts_lock);
    unsigned i = 0;
    while (i < system->ending_count && system->ending[i] != memory_pool) i++;
    if (i < system->ending_count) {
        system->ending[i] = system->ending[--system->ending_count];
    } else {
        system->ending_unlisted--;
    }
    atomic_fetch_add(&system->memory_pool_ends, 1);
    pthread_mutex_unlock(&system->contexts_lock);
}

uint64_t pool_memory_pool_ending(struct pool_system *system, const void *memory_pool) {
    end_begins(system, memory_pool);
    struct pool *pool = pool_from(system, memory_pool);
    if (!pool) return 0;
    lock_take(&pool->lock);
    pool->ended = true;
    fronts_gate(pool);
    const uint64_t number = pool->generation;
    while (pool->inside > 0) pool_await_change(pool);
    lock_give(&pool->lock);
    atomic_fetch_add(&system->streams_epoch, 1);
    grow_release_pool(pool, 0);
    return number;
}

void pool_memory_pool_settled(struct pool_system *system, const void *memory_pool, uint64_t number, bool gone) {
    for (struct pool *pool = atomic_load(&system->pools); pool && !gone && number; pool = pool->next) {
        lock_take(&pool->lock);
        if (pool->ended && pool->generation == number) {
            pool->ended = false;
            fronts_gate(pool);
        }
        lock_give(&pool->lock);
    }
    end_is_over(system, memory_pool);
    atomic_fetch_add(&system->streams_epoch, 1);
}
