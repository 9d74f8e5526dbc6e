/* SPDX-License-Identifier: MIT
 *
 * The map of src/pool: its structures, and each file's functions for the others under the file that owns them.
 *
 * Locks, in the order in which they may be taken together; none is ever held across a driver call:
 *
 *   system->contexts_lock   the table of contexts, and the making of pools and devices
 *   pool->lock              the pool's blocks, segments, index, sums and its records of the figures
 *   device->lock            what is reserved on a device
 *   registry->lock          the sorted table of segments (read-write)
 *
 * A call that leaves pool->lock for the driver is counted in pool->inside, so that a context can be closed only when
 * nobody is there.
 */
#ifndef POOLCUDA_POOL_INTERNAL_H
#define POOLCUDA_POOL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "pool/pool.h"
#include "config/config.h"
#include "poolcuda/stats.h"
#include "stats/writer.h"

#define UNIT ((size_t)512)                /* blocks are multiples of it, aligned to it within their segment */
#define GRANULE ((size_t)2 * 1024 * 1024) /* segments are multiples of it */
#define MIB ((uint64_t)1024 * 1024)

enum block_state {
    BLOCK_LIVE = 1, /* the program's; in the pool's table of live blocks */
    BLOCK_IDLE,     /* free, the GPU is known to have finished with it; in the free index */
    BLOCK_ORDERED,  /* free in the order of one stream */
    BLOCK_WAITING,  /* free once the device has been waited for; in pool->waiting */
    BLOCK_RETIRED   /* the wait for it failed: never given out again */
};

/* One cache line: an operation touches its block and neighbours and little else. */
struct block {
    _Alignas(64) uint64_t address;
    size_t size; /* rounded */
    struct segment *segment;
    struct block *before, *after; /* neighbours in the segment, in the order of addresses */
    union {
        struct {              /* LIVE */
            size_t requested; /* what the program asked for */
            uint64_t id;      /* unique in the process */
        };
        struct { /* IDLE: the list of its class; WAITING: pool->waiting; unused record: the next one */
            struct block *previous, *next;
        };
    };
    enum block_state state;
};

_Static_assert(sizeof(struct block) == 64, "a block's record is one cache line");

struct segment {
    uint64_t address;
    size_t size;
    struct pool *pool;
    struct block *first;
    struct segment *previous, *next;           /* pool->segments, or a caller's list of segments to release */
    struct segment *free_previous, *free_next; /* wholly free: in pool->free_segments */
};

/* ---- index.c: the free blocks of one state, by size, in two levels of classes (segregated fit) ---- */

#define INDEX_FIRST_LEVELS 40 /* powers of two of units */
#define INDEX_SECOND_LEVELS 32
#define INDEX_SCAN 16 /* blocks of one list that a search looks at: keeps it O(1) */

struct free_index {
    uint64_t first_map;
    uint32_t second_map[INDEX_FIRST_LEVELS];
    struct block *heads[INDEX_FIRST_LEVELS][INDEX_SECOND_LEVELS];
    size_t largest; /* size of the largest block, 0 when empty */
    size_t count;
};

void index_insert(struct free_index *index, struct block *block);
void index_remove(struct free_index *index, struct block *block);
/* A block of `size` to `largest` bytes: of the lowest class that holds one; there the lowest address among the first
 * INDEX_SCAN. NULL when none is found. */
struct block *index_find(const struct free_index *index, size_t size, size_t largest);
/* The list that a block of this size belongs to, as first * INDEX_SECOND_LEVELS + second. */
unsigned index_class(size_t size);

/* ---- records.c: host memory for block and segment records. Guarded by the pool's lock ---- */

struct record_store {
    struct block *free_blocks;     /* by next */
    struct segment *free_segments; /* by next */
    struct record_slab *slabs;
};

/* Zeroed pages; NULL when host memory ran out. Keeps errno. */
void *records_pages(size_t bytes);
/* Zeroed records; NULL when host memory ran out. */
struct block *records_block(struct record_store *store);
struct segment *records_segment(struct record_store *store);
void records_put_block(struct record_store *store, struct block *block);
void records_put_segment(struct record_store *store, struct segment *segment);
void records_free_all(struct record_store *store);

/* ---- live_table.c: pointer → live block of one pool. Guarded by the pool's lock ---- */

struct live_slot {
    uint64_t address;
    struct block *block; /* NULL: empty */
};

struct live_table {
    struct live_slot *slots;
    size_t room, count; /* room: 0 or a power of two */
    unsigned shift;
};

/* False when host memory ran out. */
bool live_table_add(struct live_table *table, struct block *block);
/* NULL when no block begins at exactly `address`. */
struct block *live_table_find(const struct live_table *table, uint64_t address);
struct block *live_table_remove(struct live_table *table, uint64_t address);
void live_table_free(struct live_table *table);

/* ---- registry.c: any address → segment, over all pools ---- */

/* Addresses below 2^49, which is what a GPU has: 2^15 leaves of 2^13 granules. */
#define MAP_ROOT ((uint64_t)1 << 15)
#define MAP_LEAF ((uint64_t)1 << 13)

struct map_leaf {
    _Atomic uintptr_t pools[MAP_LEAF]; /* 0: no segment; 1: shared by several; else the struct pool * */
};

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
 * registry->lock. */
struct pool *registry_pool(struct registry *registry, uint64_t address);
/* The segment itself: good as long as its pool's lock is held. */
struct segment *registry_segment(struct registry *registry, uint64_t address);

/* ---- policy.c: how large. Pure functions ---- */

/* Rounded size of a request; 0 when it overflows. */
size_t policy_round(size_t bytes);
/* POOL_MAX_SPLIT_MB in force on a device with this much memory (0: unknown). */
uint64_t policy_max_split(const struct pool_options *options, uint64_t device_total);
/* Largest free block that a request of `size` may take; SIZE_MAX when any. */
size_t policy_largest_fit(size_t size, uint64_t max_split);
/* Shall `block_size` be split for `size`? */
bool policy_split(size_t block_size, size_t size, uint64_t max_split);
/* Least segment for `size`, and the segment wanted when there is room. */
size_t policy_exact_segment(size_t size);
size_t policy_segment(size_t size, uint64_t reserved, uint64_t max_split, const struct pool_options *options);

/* ---- devices and contexts (contexts.c) ---- */

struct device_state {
    int ordinal;
    pthread_mutex_t lock;
    uint64_t reserved; /* guarded by lock: both kinds, all contexts, with what has been promised to calls that are in
                          the driver */
    uint64_t total;    /* device memory, 0 when unknown */
    uint64_t largest;  /* most that one request may be: the memory, or what an address can be */
    atomic_bool tight; /* growth has touched the headroom: what becomes free goes back until it is whole */
    uint64_t max_split;
    struct device_info info;
    struct device_state *next; /* system->devices */
};

enum pool_status { POOL_OPEN, POOL_CLOSED };

/* What a hit touches stands first. */
struct pool {
    _Alignas(64) pthread_mutex_t lock;
    enum pool_status status;
    unsigned inside; /* calls that are between two holds of the lock */
    struct pool_system *system;
    struct device_state *device;
    struct poolcuda_pool *figures;
    struct poolcuda_cell *cell;
    struct device_context context;
    _Atomic uint64_t waits_begun, waits_ended; /* capture.c; the latter written under lock */
    uint64_t generation, next_id;

    /* sums over the blocks */
    uint64_t live, requested, live_blocks, idle_bytes, releasable;
    uint64_t reserved, segment_count, ordered_bytes, waiting_bytes, retired_bytes;

    struct live_table table; /* LIVE blocks */
    struct record_store records;
    struct segment *free_segments; /* the wholly free ones */
    struct free_index idle;

    struct segment *segments;
    struct block *waiting; /* WAITING blocks, newest first */
    enum segment_kind kind;
    unsigned closers;       /* pool_context_close calls that await their settle */
    pthread_cond_t changed; /* status became OPEN, or inside became 0 while CLOSED */
    struct pool *next;      /* system->pools */
};

struct context_entry {
    void *handle;
    struct pool *pool; /* NULL: not pooled */
};

#define CONTEXTS_MAX 256

struct capture_probe; /* capture.c */

struct pool_system {
    const struct device_ops *ops;
    struct pool_options options;
    bool log_all; /* POOL_LOG=3 */
    struct registry registry;
    _Atomic uint64_t epoch;    /* changes with the table of contexts: threads cache what they found */
    _Atomic unsigned captures; /* stream captures in progress in the process */
    _Atomic uint64_t next_generation;
    pthread_mutex_t contexts_lock;
    struct context_entry contexts[CONTEXTS_MAX]; /* guarded by contexts_lock */
    size_t context_count;
    _Atomic(struct pool *) pools; /* by next; grows only */
    struct device_state *devices; /* guarded by contexts_lock; grows only */
    pthread_mutex_t probes_lock;  /* guards probes; no other lock is taken inside */
    struct capture_probe *probes; /* guarded by probes_lock */
};

/* What a thread found last. */
struct context_cache {
    const struct pool_system *system;
    uint64_t epoch;
    void *handle;
    struct pool *pool;
};
extern _Thread_local struct context_cache context_cache __attribute__((tls_model("initial-exec")));

/* The pool of a context, NULL when it has none; contexts_find_pool is its slow half. */
struct pool *contexts_find_pool(struct pool_system *system, void *handle);
static inline struct pool *contexts_known_pool(struct pool_system *system, void *handle) {
    const struct context_cache *cache = &context_cache;
    if (__builtin_expect(cache->handle == handle && cache->system == system &&
                             cache->epoch == atomic_load_explicit(&system->epoch, memory_order_acquire),
                         1))
        return cache->pool;
    return contexts_find_pool(system, handle);
}
/* For the calling thread's current context, which has none yet: NULL when it is not to be pooled (*reason says why). */
struct pool *contexts_make_pool(struct pool_system *system, void *handle, enum poolcuda_pass_reason *reason);
/* Leave the pool after a driver call: counterpart of pool->inside++. Under pool->lock. */
void pool_leave(struct pool *pool);
/* Wait for pool->changed. Under pool->lock. */
void pool_await_change(struct pool *pool);

/* ---- heap.c: blocks within segments. All under pool->lock ---- */

/* Hand out `size` bytes of the free block `block`, which is not in the index any more: splits it where the policy says
 * so, and registers it. NULL when host memory ran out: the block is idle again. */
struct block *heap_hand_out(struct pool *pool, struct block *block, size_t size, size_t requested);
/* Take a fitting idle block out of the index, NULL when there is none. `any`: whatever POOL_MAX_SPLIT_MB says. */
struct block *heap_take(struct pool *pool, size_t size, bool any);
/* A block that is in no list becomes idle: merged with idle neighbours, into the index. */
void heap_make_idle(struct pool *pool, struct block *block);
/* The same block waits, or is retired. */
void heap_set_aside(struct pool *pool, struct block *block, enum block_state state);
/* A block that was taken out of the table stops being live. */
void heap_end_life(struct pool *pool, struct block *block);
/* A fresh segment as one block in no list; NULL when host memory ran out. */
struct block *heap_add_segment(struct pool *pool, uint64_t address, size_t size);
/* Take a wholly free segment out of the pool: nothing refers to it any more. The record is the caller's until
 * records_put_segment. */
void heap_detach_segment(struct pool *pool, struct segment *segment);
/* All blocks and segments are no more. */
void heap_forget(struct pool *pool);

/* ---- grow.c: segments from and to the driver, and what happens when there are no more ---- */

/* Serve a request that found no idle block. Called with pool->lock held and pool->inside counted; returns with the lock
 * held. 0 and *block handed out. */
int grow_and_hand_out(struct pool *pool, size_t size, size_t requested, struct block **block, bool *took_segment);
/* Give back wholly free segments of all pools of a device: largest first, until `enough` bytes are back or at most
 * `keep` bytes stay cached. No lock held. */
uint64_t grow_release(struct pool_system *system, struct device_state *device, uint64_t enough, uint64_t keep);
/* Wait for the waiting blocks of all pools of a device, so that they are idle. No lock held. True when any became idle.
 */
bool grow_settle_waiting(struct pool_system *system, struct device_state *device);

/* The device's headroom was touched: give back what is wholly free until it is whole. No lock held; leaves the pool
 * once. */
void grow_keep_headroom(struct pool *pool);

/* ---- capture.c ---- */

/* A wait for the device breaks the captures on it, though the free that waits would have harmed none: so the two
 * exclude one another. False while a stream of the process captures; else captures that begin from now on wait for
 * capture_wait_end. */
static inline bool capture_wait_begin(struct pool *pool) {
    atomic_fetch_add(&pool->waits_begun, 1);
    if (__builtin_expect(atomic_load(&pool->system->captures) == 0, 1)) return true;
    atomic_fetch_sub(&pool->waits_begun, 1);
    return false;
}
/* Under pool->lock. */
static inline void capture_wait_end(struct pool *pool) {
    uint64_t ended = atomic_load_explicit(&pool->waits_ended, memory_order_relaxed);
    atomic_store_explicit(&pool->waits_ended, ended + 1, memory_order_release);
}

/* May the thread free memory now? Asks the driver with a small allocation that is kept until the captures end. 0, or
 * the driver's refusal. No lock held. */
int capture_ask(struct pool *pool);
/* What is left when a capture begins meanwhile is kept until that ends. */
void capture_release_probes(struct pool_system *system);

/* ---- figures.c: the pool's records of the figures. All under pool->lock, inside figures_begin … figures_end ---- */

/* Records for a new generation. */
void figures_open(struct pool *pool);
void figures_begin(struct pool *pool);
void figures_end(struct pool *pool); /* gauges and peaks follow the pool's sums */
/* The same where nothing changed but that idle memory became live, or live memory idle. */
void figures_end_alloc(struct pool *pool);
void figures_end_free(struct pool *pool);
void figures_alloc(struct pool *pool, const struct block *block, bool hit, enum pool_door door);
/* A hit that was timed; also the sign of life. */
void figures_hit_latency(struct pool *pool, uint64_t began);
void figures_free(struct pool *pool, const struct block *block, enum pool_door door);
/* An event with the pool's sums, to be completed; and its publication, in the ring and in the log. */
struct poolcuda_event figures_event_of(const struct pool *pool, enum poolcuda_event_type type);
void figures_publish(const struct poolcuda_event *event);
/* Both. device_free: UINT64_MAX when not asked. */
void figures_event(struct pool *pool, enum poolcuda_event_type type, uint64_t bytes, uint64_t device_free,
                   uint32_t reason);
uint64_t figures_clock(void); /* ns, CLOCK_MONOTONIC */

/* ---- check.c ---- */

#ifdef POOL_CHECK_EVERY_CALL
void check_or_abort(struct pool_system *system);
#else
static inline void check_or_abort(struct pool_system *system) {
    (void)system;
}
#endif

#endif
