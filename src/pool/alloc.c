/* SPDX-License-Identifier: MIT
 *
 * Allocations. The common way (a fitting free block) is short and leaves by few branches; what is rare is in functions
 * marked cold, and in grow.c.
 */
#include "pool/hits.h"

#include "config/log.h"

/* A runtime makes a context current; then the request comes back by the driver door. */
static int COLD pass_without_context(enum pool_door door) {
    return door == POOL_DOOR_RUNTIME ? POOL_PASS : pool_pass(POOLCUDA_PASS_no_context);
}

static _Thread_local unsigned alloc_calls __attribute__((tls_model("initial-exec")));

/* More than the device has, or a size that overflows when rounded: no cached byte is worth giving back for it. */
static int COLD alloc_absurd(struct pool *pool, size_t bytes) {
    lock_take(&pool->lock);
    figures_begin(pool);
    stats_add(&pool->figures->oom_failures, 1);
    figures_end(pool);
    figures_event(pool, POOLCUDA_EVENT_oom, bytes, UINT64_MAX, POOLCUDA_OOM_DRIVER);
    lock_give(&pool->lock);
    return DEVICE_OUT_OF_MEMORY;
}

static int COLD alloc_filled(const struct request *request, const struct block *block) {
    const int code = fill_block(request, block);
    return code == DEVICE_NOT_READY ? pool_pass(POOLCUDA_PASS_capture) : code;
}

/* The block was handed out: with pool->lock, which it gives up. */
static inline int alloc_done(const struct request *request, const struct block *block, bool took_segment) {
    const struct pool_system *system = request->pool->system;
    const struct watch_block told = {block->address, block->id};
    int code = DEVICE_OK;
    if (__builtin_expect(system->options.fill != CONFIG_FILL_NONE, 0))
        code = alloc_filled(request, block);
    else
        lock_give(&request->pool->lock);
    if (__builtin_expect(system->watched && code == DEVICE_OK, 0)) watch_alloc(request, told, took_segment);
    return code;
}

/* With pool->lock, which it gives up. `began` may be 0. */
static int COLD alloc_miss(const struct request *wanted, uint64_t began, uint64_t *address) {
    struct request request = *wanted;
    request.front = NULL; /* the lock is left meanwhile */
    struct pool *pool = request.pool;
    if (!began) began = figures_clock();
    struct block *block = NULL;
    bool took_segment = false;
    pool_enter(pool);
    enum poolcuda_oom_reason reason = POOLCUDA_OOM_NONE;
    int code = grow_and_hand_out(&request, &block, &took_segment, &reason);
    if (code == DEVICE_OK) {
        *address = block->address;
        if (took_segment) {
            figures_begin(pool);
            figures_miss(pool, block);
            stats_add(&pool->figures->miss_ns[stats_latency_bucket(figures_clock() - began)], 1);
            figures_end(pool);
            map_hurry(pool);
        }
        map_step(pool, figures_clock());
    }
    pool_leave(pool);
    if (code != DEVICE_OK) {
        lock_give(&pool->lock);
        if (code == DEVICE_OUT_OF_MEMORY) {
            map_refresh(pool->system, pool->device);
            log_line(LOG_WARNING, "device %d: out of memory: %zu bytes asked for%s", pool->device->ordinal,
                     request.requested, reason == POOLCUDA_OOM_LIMIT ? ", more than POOL_LIMIT_MB allows" : "");
        }
        return code == POOL_PASS ? pool_pass(POOLCUDA_PASS_no_host_memory) : code;
    }
    code = alloc_done(&request, block, took_segment);
    return code;
}

/* A block for the request that its bin does not have: from the index, into which the bins are merged if need be. */
static struct block *take_from_index(const struct request *request, struct stream_list *list) {
    struct pool *pool = request->pool;
    struct block *block = heap_take(pool, list, request->size, false);
    if (block) return block;
    bins_merge_idle(pool);
    if (list && list->front) bins_merge_front(pool, list->front);
    return heap_take(pool, list, request->size, false);
}

/* A block out of the bins of the request's front, NULL when they have none. Inside figures_begin … figures_end. */
static struct block *take_from_bins(const struct request *request) {
    struct front *front = request->front;
    const unsigned class = index_class(request->size);
    struct block *block = NULL;
    if (class >= BIN_CLASSES) return NULL;
    lock_take(&front->lock);
    struct block **bin = bins_find(&front->bins, class, request->size);
    if (bin) {
        front_allow(request->pool, front, (*bin)->size, request->requested);
        block = hit_alloc(front, class, request->size, request->requested, request->door);
    } else if (front->number) {
        bins_note_request(&front->bins, class);
    }
    lock_give(&front->lock);
    return block;
}

/* With pool->lock, which it gives up: the pool is open. */
static int __attribute__((noinline)) HOT alloc_slowly(const struct request *request, struct stream_list *list,
                                                      uint64_t began, uint64_t *address) {
    struct pool *pool = request->pool;
    struct pool_system *system = pool->system;
    figures_begin(pool);
    struct block *block = take_from_bins(request);
    if (!block) {
        block = take_from_index(request, list);
        if (__builtin_expect(!block, 0)) {
            figures_end(pool);
            int code = alloc_miss(request, began, address);
            check_or_abort(system);
            return code;
        }
        block = heap_hand_out(request, block);
        if (__builtin_expect(!block, 0)) {
            figures_end(pool);
            lock_give(&pool->lock);
            return pool_pass(POOLCUDA_PASS_no_host_memory);
        }
    }
    if (__builtin_expect(began != 0, 0)) began = figures_hit_latency(pool, began);
    figures_end_hit(pool);
    if (__builtin_expect(began != 0, 0)) map_step(pool, began);
    *address = block->address;
    const int code = alloc_done(request, block, false);
    check_or_abort(system);
    return code;
}

static void COLD hit_beat(struct pool *pool, uint64_t began) {
    map_beat(pool->system, figures_hit_latency(pool, began));
}

/* A hit from a bin, with nothing else to do. False: it is as it was. `serves`: what a front that serves it says;
 * `stream`: 0, or whose order it is in. */
static inline bool alloc_hit(struct pool *pool, struct front *front, uint64_t serves, size_t size, size_t requested,
                             uint64_t stream, enum pool_door door, uint64_t began, uint64_t *address) {
    const unsigned class = index_class(size);
    lock_take(&front->lock);
    struct block *block =
        __builtin_expect(front->serves_allocs == serves, 1) ? hit_alloc(front, class, size, requested, door) : NULL;
    if (__builtin_expect(!block, 0)) {
        lock_give(&front->lock);
        return false;
    }
    /* Once the lock is given up, a reset may forget the block. */
    const struct watch_block told = {block->address, block->id};
    const bool traced = front->traced;
    lock_give(&front->lock);
    *address = told.address;
    if (__builtin_expect(began != 0, 0)) hit_beat(pool, began);
    if (__builtin_expect(traced, 0)) watch_hit(pool, told, requested, stream, door);
    return true;
}

/* With pool->lock, which it gives up: something is to be reserved first, or there are fixed sizes. */
static int COLD alloc_ahead(struct request *request, uint64_t began, uint64_t *address) {
    struct pool *pool = request->pool;
    prealloc_begin(pool);
    if (pool->status != POOL_OPEN) {
        lock_give(&pool->lock);
        return pool_pass(POOLCUDA_PASS_closed_context);
    }
    const struct block *block = fixed_take(request);
    if (!block) {
        request->front = fronts_of_thread(pool);
        return alloc_slowly(request, NULL, began, address);
    }
    *address = block->address;
    if (began) map_step(pool, figures_hit_latency(pool, began));
    const int code = alloc_done(request, block, false);
    check_or_abort(pool->system);
    return code;
}

static int __attribute__((noinline))
alloc_plain_slowly(struct pool_system *system, size_t bytes, enum pool_door door, uint64_t began, uint64_t *address) {
    if (!bytes || !address) return pool_pass(POOLCUDA_PASS_zero_or_null);
    if (atomic_load_explicit(&system->captures, memory_order_relaxed)) return pool_pass(POOLCUDA_PASS_capture);
    void *context = NULL;
    if (system->ops->current_handle(system->ops->self, &context) != DEVICE_OK || !context)
        return pass_without_context(door);
    struct pool *pool = contexts_known_pool(system, context);
    if (__builtin_expect(!pool, 0)) {
        enum poolcuda_pass_reason reason;
        pool = contexts_make_pool(system, context, &reason);
        if (!pool) return reason == POOLCUDA_PASS_no_context ? pass_without_context(door) : pool_pass(reason);
    }
    struct request request = {.pool = pool, .size = policy_round(bytes), .requested = bytes, .door = door};
    if (__builtin_expect(request.size - 1 >= pool->device->largest, 0)) return alloc_absurd(pool, bytes);

    lock_take(&pool->lock);
    if (__builtin_expect(pool->looks_ahead, 0)) return alloc_ahead(&request, began, address);
    if (__builtin_expect(pool->status != POOL_OPEN, 0)) {
        lock_give(&pool->lock);
        return pool_pass(POOLCUDA_PASS_closed_context);
    }
    request.front = fronts_of_thread(pool);
    return alloc_slowly(&request, NULL, began, address);
}

int pool_alloc(struct pool_system *system, size_t bytes, enum pool_door door, uint64_t *address) {
    const uint64_t began = sample_begin(&alloc_calls);
    const size_t size = policy_round(bytes); /* 0 where it overflows too */
    void *context = NULL;
    if (__builtin_expect(system->ops->current_handle(system->ops->self, &context) == DEVICE_OK && context, 1)) {
        struct pool *pool = contexts_known_pool(system, context);
        const bool captures = atomic_load_explicit(&system->captures, memory_order_relaxed) != 0;
        if (__builtin_expect(pool && address && !captures && size - 1 < BIN_BYTES - 1, 1) &&
            __builtin_expect(
                alloc_hit(pool, hit_front_of_thread(pool), FRONT_SERVES, size, bytes, 0, door, began, address), 1))
            return DEVICE_OK;
    }
    return alloc_plain_slowly(system, bytes, door, began, address);
}

int pool_alloc_cached(struct pool_system *system, size_t bytes, enum pool_door door, uint64_t *address) {
    void *context = NULL;
    if (system->ops->current_handle(system->ops->self, &context) != DEVICE_OK || !context) return POOL_PASS;
    struct pool *pool = contexts_known_pool(system, context);
    const struct request request = {.pool = pool, .size = policy_round(bytes), .requested = bytes, .door = door};
    if (!pool || !request.size) return POOL_PASS;
    lock_take(&pool->lock);
    if (pool->status != POOL_OPEN) {
        lock_give(&pool->lock);
        return DEVICE_OUT_OF_MEMORY;
    }
    pool_enter(pool);
    lock_give(&pool->lock);
    streams_prove(pool, 0, false);
    lock_take(&pool->lock);
    figures_begin(pool);
    struct block *block = fixed_take_idle(&request);
    if (!block) {
        bins_merge(pool);
        block = heap_take(pool, NULL, request.size, true);
        if (block) block = heap_hand_out(&request, block);
    }
    if (block) *address = block->address;
    figures_end(pool);
    pool_leave(pool);
    if (block) {
        const int code = alloc_done(&request, block, false);
        return code;
    }
    lock_give(&pool->lock);
    return DEVICE_OUT_OF_MEMORY;
}

/* May the pool serve the stream while something captures in the process? */
static bool COLD stream_captures(struct pool_system *system, struct device_stream stream) {
    return system->ops->stream_capturing(system->ops->self, stream) != DEVICE_OK;
}

static int __attribute__((noinline))
alloc_async_slowly(struct pool_system *system, size_t bytes, struct device_stream stream, enum pool_door door,
                   uint64_t began, uint64_t *address) {
    if (!bytes || !address) return pool_pass(POOLCUDA_PASS_zero_or_null);
    if (!system->options.async) return pool_pass(POOLCUDA_PASS_async);
    if (__builtin_expect(atomic_load(&system->captures) != 0, 0) && stream_captures(system, stream))
        return pool_pass(POOLCUDA_PASS_capture);
    int code;
    struct stream_ref *ref = streams_ref(system, stream, &code);
    if (__builtin_expect(!ref, 0)) return pass_without_context(door);
    if (__builtin_expect(!ref->pool && ref->identity.id, 0))
        ref->pool = contexts_async_pool(system, ref->identity.context);
    struct pool *pool = ref->pool;
    if (__builtin_expect(!pool || !ref->identity.id, 0)) return pool_pass(POOLCUDA_PASS_async);
    if (ref->identity.orders_others && streams_touch(system, ref) != DEVICE_OK) return pool_pass(POOLCUDA_PASS_async);
    const size_t size = policy_round(bytes);
    if (__builtin_expect(size - 1 >= pool->device->largest, 0)) return alloc_absurd(pool, bytes);

    lock_take(&pool->lock);
    if (__builtin_expect(pool->ended, 0)) {
        lock_give(&pool->lock);
        return pool_pass(POOLCUDA_PASS_closed_context);
    }
    struct stream_list *list = streams_list(pool, ref);
    if (!ref->identity.orders_others) streams_make_ready(ref);
    const struct request request = {.pool = pool,
                                    .size = size,
                                    .requested = bytes,
                                    .on = ref,
                                    .front = list && list->front ? list->front : pool->fronts[0],
                                    .door = door};
    return alloc_slowly(&request, list, began, address);
}

int pool_alloc_async(struct pool_system *system, size_t bytes, struct device_stream stream, enum pool_door door,
                     uint64_t *address) {
    const uint64_t began = sample_begin(&alloc_calls);
    const size_t size = policy_round(bytes); /* 0 where it overflows too */
    const struct stream_ref *ref = streams_ready(system, stream);
    if (__builtin_expect(ref && address && atomic_load(&system->captures) == 0 && size - 1 < BIN_BYTES - 1, 1) &&
        __builtin_expect(
            alloc_hit(ref->pool, ref->ready, ref->identity.id, size, bytes, ref->identity.id, door, began, address), 1))
        return DEVICE_OK;
    return alloc_async_slowly(system, bytes, stream, door, began, address);
}
