/* SPDX-License-Identifier: MIT
 *
 * From any address to the segment that holds it. A map of granules (2 MiB of addresses each) to pools, in two levels,
 * is read without a lock: every free asks it whether an address is ours. A table of all segments, sorted by address,
 * answers for granules that the map cannot tell, and names the segment itself; it is written when a segment comes or
 * goes.
 */
#include "pool/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A granule that a segment shares with something else: the sorted table knows. Never a pool's address. */

bool registry_init(struct registry *registry) {
    return pthread_rwlock_init(&registry->lock, NULL) == 0;
}

void registry_destroy(struct registry *registry) {
    for (size_t i = 0; i < MAP_ROOT; i++) {
        struct map_leaf *leaf = atomic_load(&registry->map[i]);
        if (leaf) munmap(leaf, sizeof *leaf);
    }
    pthread_rwlock_destroy(&registry->lock);
    free(registry->segments);
}

/* ---- the map. Written under registry->lock ---- */

/* NULL when host memory ran out. */
static struct map_leaf *leaf_for(struct registry *registry, uint64_t granule) {
    _Atomic(struct map_leaf *) *place = &registry->map[granule / MAP_LEAF];
    struct map_leaf *leaf = atomic_load_explicit(place, memory_order_relaxed);
    if (leaf) return leaf;
    leaf = records_pages(sizeof *leaf);
    if (!leaf) return NULL;
    atomic_store_explicit(place, leaf, memory_order_release);
    return leaf;
}

static void map_set(struct registry *registry, const struct segment *segment, struct pool *pool) {
    const uint64_t end = segment->address + segment->size;
    for (uint64_t granule = segment->address / GRANULE; granule * GRANULE < end; granule++) {
        bool whole = granule * GRANULE >= segment->address && (granule + 1) * GRANULE <= end;
        struct map_leaf *leaf = granule < MAP_ROOT * MAP_LEAF ? leaf_for(registry, granule) : NULL;
        if (!leaf) {
            atomic_store(&registry->map_is_partial, true);
            return;
        }
        atomic_store_explicit(&leaf->pools[granule % MAP_LEAF], whole ? (uintptr_t)pool : MAP_SEVERAL,
                              memory_order_release);
    }
}

/* ---- the sorted table ---- */

/* Number of segments that begin at or below `address`. Under registry->lock. */
static size_t segments_below(const struct registry *registry, uint64_t address) {
    size_t low = 0, high = registry->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (registry->segments[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What lies where the driver has now given out another segment is of a context that is gone, and not yet forgotten.
 * Under registry->lock. */
static void forget_overlapped(struct registry *registry, const struct segment *segment) {
    size_t first = segments_below(registry, segment->address);
    if (first > 0 && segment->address - registry->segments[first - 1]->address < registry->segments[first - 1]->size)
        first--;
    size_t end = first;
    for (; end < registry->count && registry->segments[end]->address < segment->address + segment->size; end++)
        map_set(registry, registry->segments[end], NULL);
    memmove(&registry->segments[first], &registry->segments[end], (registry->count - end) * sizeof(struct segment *));
    registry->count -= end - first;
}

bool registry_add(struct registry *registry, struct segment *segment) {
    bool added = true;
    const int error = errno;
    pthread_rwlock_wrlock(&registry->lock);
    if (registry->count == registry->room) {
        size_t room = registry->room ? 2 * registry->room : 256;
        struct segment **grown = realloc(registry->segments, room * sizeof(struct segment *));
        if (grown) {
            registry->segments = grown;
            registry->room = room;
        } else {
            added = false;
            errno = error;
        }
    }
    if (added) {
        forget_overlapped(registry, segment);
        size_t at = segments_below(registry, segment->address);
        memmove(&registry->segments[at + 1], &registry->segments[at],
                (registry->count - at) * sizeof(struct segment *));
        registry->segments[at] = segment;
        registry->count++;
        map_set(registry, segment, segment->pool);
    }
    pthread_rwlock_unlock(&registry->lock);
    return added;
}

void registry_remove(struct registry *registry, struct segment *segment) {
    pthread_rwlock_wrlock(&registry->lock);
    size_t at = segments_below(registry, segment->address);
    /* Where it does not stand, another has taken its place, in the map too. */
    if (at > 0 && registry->segments[at - 1] == segment) {
        memmove(&registry->segments[at - 1], &registry->segments[at],
                (registry->count - at) * sizeof(struct segment *));
        registry->count--;
        map_set(registry, segment, NULL);
    }
    pthread_rwlock_unlock(&registry->lock);
}

/* Under registry->lock. */
static struct segment *segment_holding(const struct registry *registry, uint64_t address) {
    size_t at = segments_below(registry, address);
    if (at == 0) return NULL;
    struct segment *segment = registry->segments[at - 1];
    return address - segment->address < segment->size ? segment : NULL;
}

struct segment *registry_segment(struct registry *registry, uint64_t address) {
    pthread_rwlock_rdlock(&registry->lock);
    struct segment *segment = segment_holding(registry, address);
    pthread_rwlock_unlock(&registry->lock);
    return segment;
}

static struct pool *pool_from_table(struct registry *registry, uint64_t address) {
    pthread_rwlock_rdlock(&registry->lock);
    const struct segment *segment = segment_holding(registry, address);
    struct pool *pool = segment ? segment->pool : NULL;
    pthread_rwlock_unlock(&registry->lock);
    return pool;
}

struct pool *registry_pool_slowly(struct registry *registry, uint64_t address, uintptr_t entry) {
    if (entry == MAP_NONE && !atomic_load_explicit(&registry->map_is_partial, memory_order_acquire)) return NULL;
    return pool_from_table(registry, address);
}
