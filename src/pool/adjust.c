/* SPDX-License-Identifier: MIT
 *
 * What somebody outside may ask of the pools while the program runs: give memory back, another limit, new peaks. The
 * thread that does it may have no context, and the program does not know of it: so on each device it borrows one, whose
 * end waits until it is returned.
 */
#include "pool/internal.h"

#include <errno.h>
#include <time.h>

/* For what the GPU has finished with, but was not asked about before now: the answer takes some microseconds. */
#define TRIM_ROUNDS 10
#define TRIM_PAUSE_NS 5000000

static bool borrow(struct pool_system *system, const struct device_state *device, struct device_context *borrowed) {
    const struct device_ops *ops = system->ops;
    return !ops->borrow_context || ops->borrow_context(ops->self, device->ordinal, borrowed);
}

static void give_back(struct pool_system *system, struct device_context borrowed) {
    const struct device_ops *ops = system->ops;
    if (ops->return_context) ops->return_context(ops->self, borrowed);
}

/* Devices are added in front of the first, and stay. */
static struct device_state *first_device(struct pool_system *system) {
    pthread_mutex_lock(&system->contexts_lock);
    struct device_state *device = system->devices;
    pthread_mutex_unlock(&system->contexts_lock);
    return device;
}

/* Is memory cached beyond `keep` that may be given back once it is known to be idle? */
static bool may_become_idle(struct pool_system *system, const struct device_state *device, uint64_t keep) {
    struct pool_totals totals;
    pool_totals(system, device->ordinal, &totals);
    const uint64_t unproved = totals.ordered + totals.waiting;
    return unproved && totals.idle + unproved > keep;
}

static uint64_t trim(struct pool_system *system, struct device_state *device, uint64_t keep) {
    const struct timespec pause = {0, TRIM_PAUSE_NS};
    uint64_t released = grow_trim(system, device, keep, true);
    for (unsigned round = 1; round < TRIM_ROUNDS && may_become_idle(system, device, keep); round++) {
        nanosleep(&pause, NULL);
        released += grow_trim(system, device, keep, true);
    }
    return released;
}

uint64_t pool_trim_all(struct pool_system *system, uint64_t keep_bytes) {
    const int error = errno;
    uint64_t released = 0;
    for (struct device_state *device = first_device(system); device; device = device->next) {
        struct device_context borrowed;
        if (!borrow(system, device, &borrowed)) continue;
        released += trim(system, device, keep_bytes);
        give_back(system, borrowed);
    }
    errno = error;
    return released;
}

/* ---- the limit ---- */

uint64_t pool_limit(const struct pool_system *system) {
    return pool_limit_of(system);
}

/* What was derived from the limit before. Under contexts_lock. */
static void follow_limit(const struct pool_system *system, struct device_state *device) {
    __atomic_store_n(&device->max_split, policy_max_split(&system->options, device->total), __ATOMIC_RELAXED);
    pthread_mutex_lock(&device->lock);
    device->crowded_above = policy_crowded_above(&system->options, device->total);
    device_count(device, 0);
    pthread_mutex_unlock(&device->lock);
}

static uint64_t over_limit(struct pool_system *system, struct device_state *device) {
    const uint64_t reserved = device_reserved(device), limit = pool_limit_of(system);
    return reserved > limit ? reserved - limit : 0;
}

static uint64_t keep_to_limit(struct pool_system *system, struct device_state *device) {
    struct device_context borrowed;
    uint64_t over = over_limit(system, device), released = 0;
    if (!over || !borrow(system, device, &borrowed)) return 0;
    released += grow_give_up(system, device, over);
    if (over_limit(system, device)) released += prealloc_release(system, device);
    give_back(system, borrowed);
    return released;
}

void pool_set_limit(struct pool_system *system, uint64_t bytes, struct pool_limit_change *change) {
    const int error = errno;
    *change = (struct pool_limit_change){0};
    pthread_mutex_lock(&system->contexts_lock);
    change->before = pool_limit_of(system);
    __atomic_store_n(&system->options.limit_bytes, bytes, __ATOMIC_RELAXED);
    for (struct device_state *device = system->devices; device; device = device->next) follow_limit(system, device);
    pthread_mutex_unlock(&system->contexts_lock);
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        figures_begin(pool);
        figures_limit(pool);
        figures_end(pool);
        lock_give(&pool->lock);
    }
    for (struct device_state *device = first_device(system); device; device = device->next) {
        change->given_back += keep_to_limit(system, device);
        const uint64_t over = over_limit(system, device);
        if (over > change->over) change->over = over;
    }
    errno = error;
}

/* ---- the peaks ---- */

void pool_reset_peaks(struct pool_system *system) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        figures_reset_peaks(pool);
        lock_give(&pool->lock);
    }
}
