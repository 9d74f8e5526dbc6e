/* SPDX-License-Identifier: MIT
 *
 * From any address to the segment that holds it: a table of all pools' segments, sorted by address. Asked only about
 * addresses that are no live block of the pool at hand; written when a segment comes or goes.
 */
#include "pool/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool registry_init(struct registry *registry) {
    *registry = (struct registry){0};
    return pthread_rwlock_init(&registry->lock, NULL) == 0;
}

void registry_destroy(struct registry *registry) {
    pthread_rwlock_destroy(&registry->lock);
    free(registry->segments);
}

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

bool registry_add(struct registry *registry, struct segment *segment) {
    bool added = true;
    pthread_rwlock_wrlock(&registry->lock);
    if (registry->count == registry->room) {
        size_t room = registry->room ? 2 * registry->room : 256;
        struct segment **grown = realloc(registry->segments, room * sizeof(struct segment *));
        if (grown) {
            registry->segments = grown;
            registry->room = room;
        } else {
            added = false;
        }
    }
    if (added) {
        size_t at = segments_below(registry, segment->address);
        memmove(&registry->segments[at + 1], &registry->segments[at],
                (registry->count - at) * sizeof(struct segment *));
        registry->segments[at] = segment;
        registry->count++;
    }
    pthread_rwlock_unlock(&registry->lock);
    return added;
}

void registry_remove(struct registry *registry, struct segment *segment) {
    pthread_rwlock_wrlock(&registry->lock);
    size_t at = segments_below(registry, segment->address);
    assert(at > 0 && registry->segments[at - 1] == segment && "a segment stands in the table until it is removed");
    memmove(&registry->segments[at - 1], &registry->segments[at], (registry->count - at) * sizeof(struct segment *));
    registry->count--;
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

struct pool *registry_pool(struct registry *registry, uint64_t address) {
    pthread_rwlock_rdlock(&registry->lock);
    const struct segment *segment = segment_holding(registry, address);
    struct pool *pool = segment ? segment->pool : NULL;
    pthread_rwlock_unlock(&registry->lock);
    return pool;
}
