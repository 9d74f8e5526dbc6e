/* SPDX-License-Identifier: MIT
 *
 * Stream captures. While any runs in the process the driver decides what is permitted: allocations pass through, and
 * before a block of ours is freed the driver is asked with a small allocation, whose refusal is the answer that the
 * program would have had; and where the driver's free would wait, the small one's does.
 */
#include "pool/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct capture_probe {
    struct capture_probe *next;
    struct pool *pool;   /* of the context that the allocation was made in, so of the plain kind */
    uint64_t generation; /* of the pool: after a reset the allocation is gone */
    uint64_t address;
};

static void probes_put(struct pool_system *system, struct capture_probe *list) {
    struct capture_probe *last = list;
    while (last->next) last = last->next;
    pthread_mutex_lock(&system->probes_lock);
    last->next = system->probes;
    __atomic_store_n(&system->probes, list, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&system->probes_lock);
}

/* The pool by whose lives the life of the context is known that an allocation for `pool` is made in: for the async
 * kind, which survives contexts, that of the thread's current one. Entered, so that the context does not end meanwhile.
 * NULL where there is none, or it is just ending. */
static struct pool *enter_owner(struct pool *pool, uint64_t *generation) {
    struct pool_system *system = pool->system;
    if (pool->source.kind == SEGMENT_ASYNC) {
        void *context = NULL;
        enum poolcuda_pass_reason reason;
        if (system->ops->current_handle(system->ops->self, &context) != DEVICE_OK || !context) return NULL;
        pool = contexts_known_pool(system, context);
        if (!pool) pool = contexts_make_pool(system, context, &reason);
        if (!pool) return NULL;
    }
    lock_take(&pool->lock);
    const bool open = pool->status == POOL_OPEN;
    *generation = pool->generation;
    if (open) pool_enter(pool);
    lock_give(&pool->lock);
    return open ? pool : NULL;
}

/* Without an owner, or host memory to remember it, it stays with the driver. */
static void keep_probe(struct pool *owner, uint64_t generation, uint64_t address) {
    const int error = errno;
    struct capture_probe *probe = owner ? malloc(sizeof *probe) : NULL;
    errno = error;
    if (!probe) return;
    *probe = (struct capture_probe){.pool = owner, .generation = generation, .address = address};
    probes_put(owner->system, probe);
}

int capture_ask(struct pool *pool, bool wait) {
    const struct device_ops *ops = pool->system->ops;
    uint64_t address = 0, generation = 0;
    struct pool *owner = enter_owner(pool, &generation);
    const struct segment_source plain = {.kind = SEGMENT_PLAIN,
                                         .context = owner ? pool_context(owner) : pool_context(pool)};
    int code = ops->segment_alloc(ops->self, &plain, (struct device_stream){0}, UNIT, &address);
    const bool there = code == DEVICE_OK;
    if (there && !wait) keep_probe(owner, generation, address); /* to free it now would wait */
    if (owner) {
        lock_take(&owner->lock);
        pool_leave(owner);
        lock_give(&owner->lock);
    }
    if (there && wait) return ops->segment_release(ops->self, &plain, address, UNIT);
    return code == DEVICE_OUT_OF_MEMORY ? DEVICE_OK : code; /* permitted, only not to be had */
}

struct pool *capture_kept_for(struct pool_system *system, uint64_t address) {
    if (!__atomic_load_n(&system->probes, __ATOMIC_RELAXED)) return NULL;
    pthread_mutex_lock(&system->probes_lock);
    const struct capture_probe *probe = system->probes;
    while (probe && probe->address != address) probe = probe->next;
    struct pool *pool = probe ? probe->pool : NULL;
    const uint64_t generation = probe ? probe->generation : 0;
    pthread_mutex_unlock(&system->probes_lock);
    if (!pool) return NULL;
    lock_take(&pool->lock);
    const bool there = pool->generation == generation && pool->status == POOL_OPEN;
    lock_give(&pool->lock);
    return there ? pool : NULL;
}

/* False: its context is being closed, and may be gone or stay. */
static bool probe_release(const struct capture_probe *probe) {
    struct pool *pool = probe->pool;
    const struct device_ops *ops = pool->system->ops;
    const struct segment_source plain = {.kind = SEGMENT_PLAIN, .context = pool->source.context};
    lock_take(&pool->lock);
    const bool there = probe->generation == pool->generation, open = pool->status == POOL_OPEN;
    if (there && open) pool_enter(pool);
    lock_give(&pool->lock);
    if (!there || !open) return !there;
    ops->segment_release(ops->self, &plain, probe->address, UNIT);
    lock_take(&pool->lock);
    pool_leave(pool);
    lock_give(&pool->lock);
    return true;
}

void capture_release_probes(struct pool_system *system) {
    pthread_mutex_lock(&system->probes_lock);
    struct capture_probe *list = system->probes;
    __atomic_store_n(&system->probes, NULL, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&system->probes_lock);
    while (list) {
        struct capture_probe *probe = list;
        struct pool *pool = probe->pool;
        if (!capture_wait_begin(pool)) {
            probes_put(system, list);
            return;
        }
        list = probe->next;
        probe->next = NULL;
        const bool released = probe_release(probe);
        lock_take(&pool->lock);
        capture_wait_end(pool);
        lock_give(&pool->lock);
        if (released) {
            free(probe);
        } else {
            probes_put(system, probe);
        }
    }
}

static bool records_under_way(struct pool_system *system) {
    uint64_t ended = atomic_load(&system->fences.records_ended);
    return atomic_load(&system->fences.records_begun) != ended;
}

static bool marks_under_way(struct pool_system *system) {
    uint64_t ended = atomic_load(&system->fences.marks_ended);
    return atomic_load(&system->fences.marks_begun) != ended;
}

/* Each count of those that ended is read before its count of those that begun: so equal sums mean equal counts. */
static bool waits_under_way(struct pool *pool) {
    uint64_t ended = atomic_load(&pool->waits_ended), begun = 0;
    const unsigned count = __atomic_load_n(&pool->front_count, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < count; i++) {
        struct front *front = __atomic_load_n(&pool->fronts[i], __ATOMIC_SEQ_CST);
        if (front) ended += atomic_load(&front->waits_ended);
    }
    for (unsigned i = 0; i < count; i++) {
        struct front *front = __atomic_load_n(&pool->fronts[i], __ATOMIC_SEQ_CST);
        if (front) begun += atomic_load(&front->waits_begun);
    }
    return begun + atomic_load(&pool->waits_begun) != ended;
}

/* Nothing can be recorded while something captures: a fence of now proves meanwhile what was freed before. Not marks on
 * streams: those may have to wait. */
static void fence_what_is_free(struct pool_system *system) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        const bool wanted = pool->status == POOL_OPEN && streams_unmarked(pool);
        if (wanted) pool_enter(pool);
        lock_give(&pool->lock);
        if (!wanted) continue;
        const bool recorded = fences_close(pool, false);
        lock_take(&pool->lock);
        pool_leave(pool);
        lock_give(&pool->lock);
        if (recorded) return;
    }
}

void pool_capture_begin(struct pool_system *system) {
    /* What harms a capture is a wait that comes to the driver after it. One that has been there for so long may be for
     * work that ends only when the capturing thread has gone on. So may a mark, that waits for room on its stream. */
    enum { STEP_NS = 50000, STEPS = 2000 };
    const struct timespec step = {0, STEP_NS};
    const int error = errno;
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    fence_what_is_free(system);
    atomic_fetch_add(&system->captures, 1);
    unsigned steps = 0;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next)
        for (; waits_under_way(pool) && steps < STEPS; steps++) nanosleep(&step, NULL);
    for (; marks_under_way(system) && steps < STEPS; steps++) nanosleep(&step, NULL);
    while (records_under_way(system)) nanosleep(&step, NULL);
    pthread_setcancelstate(cancel_state, &cancel_state);
    errno = error;
}

void pool_capture_end(struct pool_system *system) {
    if (atomic_fetch_sub(&system->captures, 1) == 1) capture_release_probes(system);
}
