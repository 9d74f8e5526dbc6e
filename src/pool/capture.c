/* SPDX-License-Identifier: MIT
 *
 * Stream captures. While any runs in the process the driver decides what is permitted: allocations pass through, and
 * before a block of ours is freed the driver is asked with a small allocation, whose refusal is the answer that the
 * program would have had.
 */
#include "pool/internal.h"

#include <stdlib.h>

struct capture_probe {
    struct capture_probe *next;
    struct pool *pool;
    uint64_t generation; /* of the pool: after a reset the allocation is gone */
    uint64_t address;
};

int capture_ask(struct pool *pool) {
    struct pool_system *system = pool->system;
    struct capture_probe *probe = malloc(sizeof *probe);
    uint64_t address = 0;
    int code = system->ops->segment_alloc(system->ops->self, pool->context, SEGMENT_PLAIN, (struct device_stream){0},
                                          UNIT, &address);
    if (code != DEVICE_OK) {
        free(probe);
        return code == DEVICE_OUT_OF_MEMORY ? DEVICE_OK : code; /* permitted, only not to be had */
    }
    /* To free it now would be a second call that a capture may refuse; without host memory to remember it, it stays
     * with the driver. */
    if (probe) {
        *probe = (struct capture_probe){.pool = pool, .generation = pool->generation, .address = address};
        pthread_mutex_lock(&system->probes_lock);
        probe->next = system->probes;
        system->probes = probe;
        pthread_mutex_unlock(&system->probes_lock);
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
        list = probe->next;
        if (probe->generation == probe->pool->generation)
            system->ops->segment_release(system->ops->self, probe->pool->context, SEGMENT_PLAIN, probe->address);
        free(probe);
    }
}

void pool_capture_begin(struct pool_system *system) {
    atomic_fetch_add(&system->captures, 1);
}

void pool_capture_end(struct pool_system *system) {
    if (atomic_fetch_sub(&system->captures, 1) == 1) capture_release_probes(system);
}
