/* SPDX-License-Identifier: MIT
 *
 * From an address to what the pool knows of it: the table of live blocks by their exact address (uthash, in shards that
 * are locked one by one), and the sorted table of segments for any address. The second is asked only when the first has
 * no answer.
 */
#include <stdbool.h>
#include <stdint.h>

/* Multiplication by 2^64 / golden ratio; the low bits of the product's upper half name the bucket. */
#define HASH_FUNCTION(key, length, hash)                                            \
    do {                                                                            \
        uint64_t hashed_address;                                                    \
        memcpy(&hashed_address, (key), sizeof hashed_address);                      \
        (hash) = (unsigned)((hashed_address * UINT64_C(0x9E3779B97F4A7C15)) >> 32); \
    } while (0)
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->hh.tbl = NULL)

#include "pool/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The top bits of the product choose the shard: the buckets inside use the bits below them. */
static struct registry_shard *shard_of(struct registry *registry, uint64_t address) {
    uint64_t mixed = (address / UNIT) * UINT64_C(0xD6E8FEB86659FD93);
    return &registry->shards[mixed >> 58];
}

bool registry_init(struct registry *registry) {
    *registry = (struct registry){0};
    for (unsigned i = 0; i < REGISTRY_SHARDS; i++) pthread_mutex_init(&registry->shards[i].lock, NULL);
    return pthread_rwlock_init(&registry->segments_lock, NULL) == 0;
}

void registry_destroy(struct registry *registry) {
    for (unsigned i = 0; i < REGISTRY_SHARDS; i++) {
        HASH_CLEAR(hh, registry->shards[i].live);
        pthread_mutex_destroy(&registry->shards[i].lock);
    }
    pthread_rwlock_destroy(&registry->segments_lock);
    free(registry->segments);
}

bool registry_add(struct registry *registry, struct block *block) {
    struct registry_shard *shard = shard_of(registry, block->address);
    pthread_mutex_lock(&shard->lock);
    HASH_ADD(hh, shard->live, address, sizeof block->address, block);
    bool added = block->hh.tbl != NULL;
    pthread_mutex_unlock(&shard->lock);
    return added;
}

void registry_remove(struct registry *registry, struct block *block) {
    struct registry_shard *shard = shard_of(registry, block->address);
    pthread_mutex_lock(&shard->lock);
    HASH_DELETE(hh, shard->live, block);
    pthread_mutex_unlock(&shard->lock);
}

struct block *registry_claim(struct registry *registry, uint64_t address, struct pool **closed) {
    struct registry_shard *shard = shard_of(registry, address);
    struct block *block = NULL;
    *closed = NULL;
    pthread_mutex_lock(&shard->lock);
    HASH_FIND(hh, shard->live, &address, sizeof address, block);
    if (block) {
        /* Counted first, asked afterwards: a close that was not seen here sees the count. */
        struct pool *pool = block->segment->pool;
        atomic_fetch_add(&pool->inside, 1);
        if (__builtin_expect(atomic_load(&pool->status) == POOL_OPEN, 1)) {
            HASH_DELETE(hh, shard->live, block);
            block_set_state(block, BLOCK_LEAVING);
        } else {
            *closed = pool;
            block = NULL;
        }
    }
    pthread_mutex_unlock(&shard->lock);
    if (__builtin_expect(*closed != NULL, 0)) pool_leave(*closed);
    return block;
}

bool registry_holds(struct registry *registry, const struct block *block) {
    struct registry_shard *shard = shard_of(registry, block->address);
    struct block *found = NULL;
    pthread_mutex_lock(&shard->lock);
    HASH_FIND(hh, shard->live, &block->address, sizeof block->address, found);
    pthread_mutex_unlock(&shard->lock);
    return found == block;
}

bool registry_find(struct registry *registry, uint64_t address, struct pool_block_info *info) {
    struct registry_shard *shard = shard_of(registry, address);
    struct block *block = NULL;
    pthread_mutex_lock(&shard->lock);
    HASH_FIND(hh, shard->live, &address, sizeof address, block);
    if (block)
        *info = (struct pool_block_info){.base = block->address,
                                         .requested = block->requested,
                                         .offset_in_segment = block->address - block->segment->address,
                                         .id = block->id,
                                         .context = block->segment->pool->context};
    pthread_mutex_unlock(&shard->lock);
    return block != NULL;
}

size_t registry_count(struct registry *registry) {
    size_t count = 0;
    for (unsigned i = 0; i < REGISTRY_SHARDS; i++) {
        pthread_mutex_lock(&registry->shards[i].lock);
        count += HASH_COUNT(registry->shards[i].live);
        pthread_mutex_unlock(&registry->shards[i].lock);
    }
    return count;
}

/* Number of segments that begin at or below `address`. Under segments_lock. */
static size_t segments_below(const struct registry *registry, uint64_t address) {
    size_t low = 0, high = registry->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (registry->segments[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool registry_add_segment(struct registry *registry, struct segment *segment) {
    bool added = true;
    pthread_rwlock_wrlock(&registry->segments_lock);
    if (registry->segment_count == registry->segment_room) {
        size_t room = registry->segment_room ? 2 * registry->segment_room : 256;
        struct segment **grown = realloc(registry->segments, room * sizeof(struct segment *));
        if (grown) {
            registry->segments = grown;
            registry->segment_room = room;
        } else {
            added = false;
        }
    }
    if (added) {
        size_t at = segments_below(registry, segment->address);
        memmove(&registry->segments[at + 1], &registry->segments[at],
                (registry->segment_count - at) * sizeof(struct segment *));
        registry->segments[at] = segment;
        registry->segment_count++;
    }
    pthread_rwlock_unlock(&registry->segments_lock);
    return added;
}

void registry_remove_segment(struct registry *registry, struct segment *segment) {
    pthread_rwlock_wrlock(&registry->segments_lock);
    size_t at = segments_below(registry, segment->address);
    assert(at > 0 && registry->segments[at - 1] == segment && "a segment stands in the table until it is removed");
    memmove(&registry->segments[at - 1], &registry->segments[at],
            (registry->segment_count - at) * sizeof(struct segment *));
    registry->segment_count--;
    pthread_rwlock_unlock(&registry->segments_lock);
}

/* Under segments_lock. */
static struct segment *segment_holding(const struct registry *registry, uint64_t address) {
    size_t at = segments_below(registry, address);
    if (at == 0) return NULL;
    struct segment *segment = registry->segments[at - 1];
    return address - segment->address < segment->size ? segment : NULL;
}

struct segment *registry_segment(struct registry *registry, uint64_t address) {
    pthread_rwlock_rdlock(&registry->segments_lock);
    struct segment *segment = segment_holding(registry, address);
    pthread_rwlock_unlock(&registry->segments_lock);
    return segment;
}

struct pool *registry_segment_pool(struct registry *registry, uint64_t address) {
    pthread_rwlock_rdlock(&registry->segments_lock);
    const struct segment *segment = segment_holding(registry, address);
    struct pool *pool = segment ? segment->pool : NULL;
    pthread_rwlock_unlock(&registry->segments_lock);
    return pool;
}
