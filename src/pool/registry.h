/* SPDX-License-Identifier: MIT
 *
 * Any address → segment, over all pools.
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_REGISTRY_H
#define POOLCUDA_POOL_REGISTRY_H

/* Addresses below 2^49, which is what a GPU has: 2^15 leaves of 2^13 granules. */
#define MAP_ROOT ((uint64_t)1 << 15)
#define MAP_LEAF ((uint64_t)1 << 13)

struct map_leaf {
    _Atomic uintptr_t pools[MAP_LEAF]; /* MAP_NONE: no segment; MAP_SEVERAL: several; else the struct pool * */
};
enum { MAP_NONE, MAP_SEVERAL };

struct registry {
    _Atomic(struct map_leaf *) map[MAP_ROOT]; /* read without a lock */
    atomic_bool map_is_partial;               /* it lacks some segment: no answer of "none" from it counts */
    pthread_rwlock_t lock;
    struct segment **segments; /* sorted by address */
    size_t count, room;
};

/* `registry` is zeroed. */
bool registry_init(struct registry *registry);
void registry_destroy(struct registry *registry);
/* False when host memory ran out. */
bool registry_add(struct registry *registry, struct segment *segment);
void registry_remove(struct registry *registry, struct segment *segment);
/* The pool of the segment that holds `address`, NULL when none does. Pools are never freed. Takes no lock, or
 * registry->lock in its slow half, for what the map (`entry`) does not tell. */
struct pool *registry_pool_slowly(struct registry *registry, uint64_t address, uintptr_t entry);
static inline struct pool *registry_pool(struct registry *registry, uint64_t address) {
    const uint64_t granule = address / GRANULE;
    uintptr_t entry = MAP_NONE;
    if (__builtin_expect(granule < MAP_ROOT * MAP_LEAF, 1)) {
        const struct map_leaf *leaf = atomic_load_explicit(&registry->map[granule / MAP_LEAF], memory_order_acquire);
        if (__builtin_expect(leaf != NULL, 1))
            entry = atomic_load_explicit(&leaf->pools[granule % MAP_LEAF], memory_order_acquire);
    }
    if (__builtin_expect(entry > MAP_SEVERAL, 1)) return (struct pool *)entry;
    return registry_pool_slowly(registry, address, entry);
}
/* The segment itself: good as long as its pool's lock is held. */
struct segment *registry_segment(struct registry *registry, uint64_t address);

#endif
