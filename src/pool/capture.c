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
    struct pool *pool;
    uint64_t generation; /* of the pool: after a reset the allocation is gone */
    uint64_t address;
};

static uint64_t generation_of(struct pool *pool) {
    pthread_mutex_lock(&pool->lock);
    uint64_t generation = pool->generation;
    pthread_mutex_unlock(&pool->lock);
    return generation;
}

static void probes_put(struct pool_system *system, struct capture_probe *list) {
    struct capture_probe *last = list;
    while (last->next) last = last->next;
    pthread_mutex_lock(&system->probes_lock);
    last->next = system->probes;
    system->probes = list;
    pthread_mutex_unlock(&system->probes_lock);
}

int capture_ask(struct pool *pool, bool wait) {
    struct pool_system *system = pool->system;
    const struct segment_source plain = {.kind = SEGMENT_PLAIN, .context = pool->source.context};
    uint64_t address = 0;
    int code = system->ops->segment_alloc(system->ops->self, &plain, (struct device_stream){0}, UNIT, &address);
    if (code == DEVICE_OUT_OF_MEMORY) return DEVICE_OK; /* permitted, only not to be had */
    if (code != DEVICE_OK) return code;
    if (wait) return system->ops->segment_release(system->ops->self, &plain, address, UNIT);

    /* To free it now would wait. Without host memory to remember it, it stays with the driver. */
    const int error = errno;
    struct capture_probe *probe = malloc(sizeof *probe);
    errno = error;
    if (probe) {
        *probe = (struct capture_probe){.pool = pool, .generation = generation_of(pool), .address = address};
        probes_put(system, probe);
    }
    return DEVICE_OK;
}

void capture_release_probes(struct pool_system *system) {
    pthread_mutex_lock(&system->probes_lock);
    struct capture_probe *list = system->probes;
    system->probes = NULL;
    pthread_mutex_unlock(&system->probes_lock);
    while (list) {
        struct capture_probe *probe = list;
        struct pool *pool = probe->pool;
        if (!capture_wait_begin(pool)) {
            probes_put(system, list);
            return;
        }
        list = probe->next;
        const struct segment_source plain = {.kind = SEGMENT_PLAIN, .context = pool->source.context};
        if (probe->generation == generation_of(pool))
            system->ops->segment_release(system->ops->self, &plain, probe->address, UNIT);
        pthread_mutex_lock(&pool->lock);
        capture_wait_end(pool);
        pthread_mutex_unlock(&pool->lock);
        free(probe);
    }
}

static bool records_under_way(struct pool_system *system) {
    uint64_t ended = atomic_load(&system->fences.records_ended);
    return atomic_load(&system->fences.records_begun) != ended;
}

static bool waits_under_way(struct pool *pool) {
    uint64_t ended = atomic_load(&pool->waits_ended);
    return atomic_load(&pool->waits_begun) != ended;
}

void pool_capture_begin(struct pool_system *system) {
    /* What harms a capture is a wait that comes to the driver after it. One that has been there for so long may be for
     * work that ends only when the capturing thread has gone on. */
    enum { STEP_NS = 50000, STEPS = 2000 };
    const struct timespec step = {0, STEP_NS};
    const int error = errno;
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    atomic_fetch_add(&system->captures, 1);
    unsigned steps = 0;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next)
        for (; waits_under_way(pool) && steps < STEPS; steps++) nanosleep(&step, NULL);
    while (records_under_way(system)) nanosleep(&step, NULL);
    pthread_setcancelstate(cancel_state, &cancel_state);
    errno = error;
}

void pool_capture_end(struct pool_system *system) {
    if (atomic_fetch_sub(&system->captures, 1) == 1) capture_release_probes(system);
}
