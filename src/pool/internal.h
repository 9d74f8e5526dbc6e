/* SPDX-License-Identifier: MIT
 *
 * The map of src/pool: its structures, and each file's functions for the others under the file that owns them.
 *
 * Locks, in the order in which they may be taken together; none is ever held across a driver call:
 *
 *   system->contexts_lock   the table of contexts, and the making of pools and devices
 *   pool->lock              the pool's blocks, segments, indexes, stream lists, sums and its records of the figures
 *   front->lock             what hits touch: see front.h. Several together only under pool->lock
 *   pool->change_lock       the number of changes that threads wait for
 *   device->lock            what is reserved on a device
 *   registry->lock          the sorted table of segments (read-write)
 *
 * Taken alone: fences.lock (the queue of fences), probes_lock (capture.c).
 *
 * Without a lock: the table of live blocks (live_table.c); the number of the open batch and of the last proved one, the
 * number of captures, and the counts of waits and recordings, by which those and captures exclude one another
 * (capture.c). tests/model has them as a model.
 *
 * A call that leaves pool->lock for the driver is counted in pool->inside (pool_enter), so that a context can be closed
 * only when nobody is there; one that has an event of a stream list in hand makes the list busy, so that the stream is
 * destroyed only when nobody is.
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
#include "pool/lock.h"
#include "config/config.h"
#include "poolcuda/stats.h"
#include "stats/writer.h"

#define UNIT ((size_t)512)                /* blocks are multiples of it, aligned to it within their segment */
#define GRANULE ((size_t)2 * 1024 * 1024) /* segments are multiples of it */
#define MIB ((uint64_t)1024 * 1024)

enum block_state {
    BLOCK_LIVE = 1, /* the program's; in the pool's table */
    BLOCK_IDLE,     /* free, the GPU is known to have finished with it; in the pool's index */
    BLOCK_ORDERED,  /* free in the order of one stream; in the index of that stream's list */
    BLOCK_WAITING,  /* free once a fence has passed; in pool->waiting */
    BLOCK_RETIRED,  /* the proof for it failed: never given out again */
    BLOCK_EXPORTED, /* freed, but other processes may have it open; in pool->exported */
    BLOCK_FIXED,    /* free in a fixed-size pool (fixed.c), by next */
    BLOCK_BINNED,   /* free as one that is idle or ordered, but in a bin of its front, and still in the table */
    BLOCK_ENDING    /* live no more; in the hands of the thread that has pool->lock, and in the table */
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
        struct { /* IDLE, ORDERED: the list of its class; BINNED (next alone): its bin; WAITING, EXPORTED:
                    pool->waiting, ->exported; unused record: the next one */
            struct block *previous, *next;
        };
    };
    struct block_tag {        /* read and written as a whole: block_tag, block_set_tag */
        uint64_t state : 4;   /* enum block_state */
        uint64_t number : 16; /* LIVE, BINNED, ENDING: its front's; ORDERED: the pool's list that holds it; WAITING:
                                 its front's while it is still in the table, else 0 */
        uint64_t batch : 44;  /* ORDERED, BINNED, WAITING: idle once this batch is proved (fences.c); LIVE, ENDING,
                                 EXPORTED: its notes (notes.c) */
    } tag;
};

_Static_assert(sizeof(struct block) == 64, "a block's record is one cache line");

/* Others may read the tag, the address and the size meanwhile: front.h. */
static inline uint64_t block_tag_word(const struct block *block) {
    return __atomic_load_n((const uint64_t *)(const void *)&block->tag, __ATOMIC_RELAXED);
}
static inline void block_set_tag_word(struct block *block, uint64_t word) {
    __atomic_store_n((uint64_t *)(void *)&block->tag, word, __ATOMIC_RELAXED);
}
static inline struct block_tag block_tag(const struct block *block) {
    const union {
        uint64_t word;
        struct block_tag tag;
    } it = {.word = block_tag_word(block)};
    return it.tag;
}
static inline uint64_t block_word_of(struct block_tag tag) {
    const union {
        struct block_tag tag;
        uint64_t word;
    } it = {.tag = tag};
    return it.word;
}
static inline void block_set_tag(struct block *block, struct block_tag tag) {
    block_set_tag_word(block, block_word_of(tag));
}
static inline uint64_t block_address(const struct block *block) {
    return __atomic_load_n(&block->address, __ATOMIC_RELAXED);
}
static inline size_t block_size(const struct block *block) {
    return __atomic_load_n(&block->size, __ATOMIC_RELAXED);
}
static inline void block_set_size(struct block *block, size_t size) {
    __atomic_store_n(&block->size, size, __ATOMIC_RELAXED);
}
static inline void block_set_address(struct block *block, uint64_t address) {
    __atomic_store_n(&block->address, address, __ATOMIC_RELAXED);
}

struct segment {
    uint64_t address;
    size_t size;
    struct pool *pool;
    struct block *first;
    struct segment *previous, *next;           /* pool->segments, or a caller's list of segments to release */
    struct segment *free_previous, *free_next; /* wholly free: in pool->free_segments */
    unsigned marked;                           /* LIVE blocks with NOTE_SYNC */
    unsigned untraceable;                      /* EXPORTED blocks with NOTE_UNTRACEABLE */
    bool marking;                              /* somebody is in the driver to set or take back the mark */
    struct fixed_size *fixed;                  /* whose blocks it holds, else NULL: fixed.c */

    /* Of what was preallocated (prealloc.c). A whole is what the driver gave: it has no blocks and is in
     * pool->wholes, by next, and in the registry. Its parts are segments that have blocks, and are in pool->segments:
     * `address`, `size`, `first` and `untraceable` are theirs, `marked` and `marking` the whole's. */
    struct segment *whole;     /* a part's; else NULL */
    struct segment *parts;     /* a whole's, by part_next, in the order of addresses */
    struct segment *part_next; /* of the same whole */
    size_t unused;             /* a whole's bytes in no part */
};

/* What the driver marks, exports and takes back. */
static inline struct segment *segment_whole(struct segment *segment) {
    return segment->whole ? segment->whole : segment;
}

/* ---- index.c: the free blocks of one state, by size, in two levels of classes (segregated fit) ---- */

#define INDEX_FIRST_LEVELS 40 /* powers of two of units */
#define INDEX_SECOND_LEVELS 32
#define INDEX_LISTS (INDEX_FIRST_LEVELS * INDEX_SECOND_LEVELS)
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
/* A block of the index gets another size of the same class. */
void index_resize(struct free_index *index, struct block *block, size_t size);
/* What a request may take: the largest block, and the largest segment that the block may be in. SIZE_MAX: any. */
struct fit_bounds {
    size_t block, segment;
};
/* A block of at least `size` bytes: of the lowest class that holds one; there the lowest address among the first
 * INDEX_SCAN. NULL when none is found. */
struct block *index_find(const struct free_index *index, size_t size, struct fit_bounds most);
/* The list that a block of this size belongs to, as first * INDEX_SECOND_LEVELS + second. Sizes below 32 units have a
 * class each; above, five bits behind the leading one name the second level. */
static inline unsigned index_class(size_t size) {
    const uint64_t units = size / UNIT;
    const unsigned shift = 58u - (unsigned)__builtin_clzll(units | INDEX_SECOND_LEVELS);
    const uint64_t class = INDEX_SECOND_LEVELS * shift + (units >> shift);
    return class < INDEX_LISTS ? (unsigned)class : INDEX_LISTS - 1;
}

#include "pool/front.h"

/* ---- bins.c ---- */

struct pool;

/* What the bins of a front hold is merged into the index: its list's, or that of idle blocks. Under pool->lock, inside
 * figures_begin … figures_end. */
void bins_merge_front(struct pool *pool, struct front *front);
/* The same for the fronts of threads; for all fronts of a pool. */
void bins_merge_idle(struct pool *pool);
void bins_merge(struct pool *pool);

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

/* ---- live_table.c: pointer → block of one pool: the LIVE, ENDING, BINNED and some WAITING ones. Changed under
 * pool->lock ---- */

struct live_slot {
    uint64_t address;
    struct block *block; /* NULL: empty */
};

/* Made once, and then it stays. */
struct live_room {
    struct live_slot *slots; /* a power of two of them */
    size_t mask;             /* their number less one */
    unsigned shift;
};

#define LIVE_ROOMS 40u /* each twice as large as the one before */

/* What hits read stands apart from what each change writes. */
struct live_table {
    _Alignas(64) struct live_room *room; /* in use; NULL: none yet */
    struct live_room rooms[LIVE_ROOMS];
    _Alignas(64) size_t count;
};

static inline const struct live_room *live_table_room(const struct live_table *table) {
    return __atomic_load_n(&table->room, __ATOMIC_ACQUIRE);
}
/* Where the probes for an address begin. Multiplication by 2^64 / golden ratio: the top bits are well mixed. */
static inline size_t live_table_home(const struct live_room *room, uint64_t address) {
    return (size_t)((address / UNIT * UINT64_C(0x9E3779B97F4A7C15)) >> room->shift);
}

/* False when host memory ran out. */
bool live_table_add(struct live_table *table, struct block *block);
/* The block that begins at exactly `address`, NULL when there is none; without the lock also one that began there. */
static inline struct block *live_table_entry(const struct live_table *table, uint64_t address) {
    const struct live_room *room = live_table_room(table);
    if (__builtin_expect(!room, 0)) return NULL;
    for (size_t at = live_table_home(room, address);; at = (at + 1) & room->mask) {
        const struct live_slot *slot = &room->slots[at];
        const uint64_t found = __atomic_load_n(&slot->address, __ATOMIC_RELAXED);
        struct block *block = __atomic_load_n(&slot->block, __ATOMIC_ACQUIRE);
        if (found == address || !block) return block;
    }
}
/* The same only if it is live. */
struct block *live_table_find(const struct live_table *table, uint64_t address);
struct block *live_table_remove(struct live_table *table, uint64_t address);
void live_table_clear(struct live_table *table);
void live_table_free(struct live_table *table);

/* ---- registry.c: any address → segment, over all pools ---- */

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

/* ---- policy.c: how large. Pure functions ---- */

/* Rounded size of a request; 0 when it overflows. */
size_t policy_round(size_t bytes);
/* POOL_MAX_SPLIT_MB in force on a device with this much memory (0: unknown). */
uint64_t policy_max_split(const struct pool_options *options, uint64_t device_total);
/* Bytes reserved above which little is left of such a device, or of POOL_LIMIT_MB; UINT64_MAX where neither is known.
 */
uint64_t policy_crowded_above(const struct pool_options *options, uint64_t device_total);
/* Is it one of those that share segments of the ordinary size, and have no part of larger ones? */
bool policy_is_small(size_t size, const struct pool_options *options);
/* What a request of `size` may take. `saves`: rather a block that is somewhat large than a call of the driver. */
struct fit_bounds policy_fit(size_t size, uint64_t max_split, bool saves, const struct pool_options *options);
/* Shall `block_size` be split for `size`? */
bool policy_split(size_t block_size, size_t size, uint64_t max_split);
/* Least segment for `size`, and the segment wanted when there is room. */
size_t policy_exact_segment(size_t size);
size_t policy_segment(size_t size, uint64_t reserved, uint64_t max_split, const struct pool_options *options);

/* ---- fences.c: batches of frees, and the proofs that their work has ended ---- */

/* Every free joins the batch that is open. A batch is proved by a mark that was recorded after it was sealed: a fence,
 * behind all work of the process, or for ordered blocks a mark on their stream. */
#define FENCES_MOST 16          /* recorded and not passed */
#define FENCE_FREES 64          /* frees that close a batch */
#define FENCE_BYTES (256 * MIB) /* waiting bytes that do, where an eighth of the live ones is less */

struct fences {
    _Atomic uint64_t open;                         /* the batch that frees join; its predecessors are sealed */
    _Atomic uint64_t passed;                       /* all up to this one are proved, for every block */
    _Atomic uint64_t marked;                       /* a fence was recorded for all up to this one */
    atomic_bool unsupported;                       /* the device cannot record fences */
    _Atomic uint64_t records_begun, records_ended; /* capture.c */
    _Atomic uint64_t marks_begun, marks_ended;     /* likewise: on one stream */
    pthread_mutex_t lock;                          /* guards the rest */
    struct queued_fence {
        struct device_fence *fence;
        uint64_t batch;
    } queue[FENCES_MOST]; /* a ring, oldest first */
    unsigned first, count;
    bool recording, asking; /* somebody is in the driver for it */
};

struct device_state;
struct pool;
struct pool_system;

void fences_init(struct pool_system *system);
/* Drops what is left of them. */
void fences_destroy(struct pool_system *system);
static inline uint64_t fences_open_batch(const struct fences *fences) {
    return atomic_load(&fences->open);
}
static inline uint64_t fences_marked(const struct fences *fences) {
    return atomic_load_explicit(&fences->marked, memory_order_acquire);
}
/* Seal the open batch: returns its number. What is recorded from now on proves it. */
static inline uint64_t fences_seal(struct fences *fences) {
    return atomic_fetch_add(&fences->open, 1);
}
/* All blocks of batches up to `batch` are proved. */
void fences_prove(struct fences *fences, uint64_t batch);
/* Seal the open batch and record a fence; false when that has to wait (a capture, another recording, too many that have
 * not passed) or failed. `pool` counts it. No lock held. */
bool fences_close(struct pool *pool, bool for_miss);
/* Ask about the recorded fences, for the blocks of a device. True when one has passed. No lock held. */
bool fences_poll(struct pool_system *system, struct device_state *device);
/* Wait for everything: all batches that are open or sealed now are proved. False when the wait failed or was not
 * possible. No lock held. */
bool fences_settle(struct pool *pool);

/* ---- streams.c: the blocks that are free in the order of a stream, and who a stream is ---- */

/* One pool's blocks that were freed in the order of one stream. Guarded by the pool's lock. */
struct stream_list {
    uint64_t id;         /* of the stream; 0: the stream is gone, or the list unused */
    struct front *front; /* the stream's, NULL where there were no more: then it has no bins */
    struct free_index *index;
    uint64_t bytes;        /* in the index, as the next two */
    uint64_t oldest;       /* no block is of an earlier batch */
    uint64_t newest;       /* none is of a later one */
    uint64_t passed;       /* blocks of batches up to it are idle, by a mark on the stream itself */
    uint64_t marked;       /* the last batch that a mark was recorded for */
    unsigned joined;       /* frees since then, */
    unsigned enough;       /* of which so many make another: more and more while nobody asks for them */
    uint64_t joined_bytes; /* bytes of those that were no hits */
    uint16_t number;
    bool recordable;           /* a thread other than the freeing one may record on the stream */
    bool busy;                 /* somebody is in the driver with its mark or its stream */
    bool ending;               /* its context is about to go */
    struct device_fence *mark; /* recorded and not passed, or NULL */
    uint64_t mark_batch;
    struct device_context context; /* the stream's */
    struct device_stream stream;
    struct stream_list *next; /* pool->list_buckets, or pool->spare_lists */
};

#define MARK_FREES_MOST 1024u /* frees that make a mark, at most */
#define LIST_BUCKETS 64
#define LISTS_FEW 64 /* beyond, empty ones are taken for other streams */
#define LISTS_MOST 65535

/* What a thread found of a stream. */
struct stream_ref {
    _Alignas(128) uint64_t epoch; /* of the system it was found in; systems share none */
    uintptr_t handle;             /* of the stream, 0 where it has to be identified each time */
    struct front *ready;          /* the stream's, where a created stream's calls need ask nothing more; else NULL */
    struct pool *pool;            /* of the async kind, NULL: not looked for, or none */
    struct stream_list *list;     /* the stream's in that pool, if it still is */
    void *context;                /* current, for the default streams */
    struct device_stream called;  /* as the driver's plain entry points know it */
    struct device_stream_identity identity;
};

#define STREAM_REFS 16
extern _Thread_local struct stream_ref stream_refs[STREAM_REFS] __attribute__((tls_model("initial-exec")));
static inline struct stream_ref *stream_ref_place(uintptr_t handle) {
    return &stream_refs[(handle >> 4 ^ handle) % STREAM_REFS];
}

/* The stream as the calling thread means it: NULL and *code, the driver's answer; or with identity.id 0, when it cannot
 * be told from others. No lock held; streams_find_ref is the slow half. */
struct stream_ref *streams_find_ref(struct pool_system *system, struct device_stream stream, int *code);

/* The list of a stream in a pool: NULL when there is none; made when there is none, NULL when it cannot be. Under
 * pool->lock. */
struct stream_list *streams_find(const struct pool *pool, uint64_t id);
struct stream_list *streams_find_list(struct pool *pool, const struct stream_ref *ref);
static inline struct stream_list *streams_list(struct pool *pool, struct stream_ref *ref) {
    struct stream_list *list = ref->list;
    if (__builtin_expect(ref->pool == pool && list && list->id == ref->identity.id && !list->ending, 1)) return list;
    list = streams_find_list(pool, ref);
    if (ref->pool == pool) ref->list = list;
    return list;
}
/* What has been proved becomes idle. True when any block did. Under pool->lock. */
bool streams_reclaim(struct pool *pool);
/* Are there blocks that are free in the order of a stream? Under pool->lock. */
bool streams_hold(const struct pool *pool);
/* Record a mark on the list's stream, for the calling thread's own stream or a recordable one. Takes over pool->lock,
 * and leaves it. */
bool streams_mark(struct pool *pool, struct stream_list *list);
/* Ask about the marks of the pool's lists. True when one has passed. No lock held. */
bool streams_poll(struct pool *pool);
/* Are there blocks, of streams or not, for which neither a mark nor a fence was recorded? Under pool->lock. */
bool streams_unmarked(const struct pool *pool);
/* Without waiting, prove what can be proved of a pool's blocks: asks about marks and fences; then with `record` records
 * them where some are missing, but for the list `own`, and asks again. True when something became idle. No lock held;
 * the caller is counted in pool->inside. */
bool streams_prove(struct pool *pool, uint64_t own, bool record);
/* A list that a stream has left behind goes when it is empty. Under pool->lock. */
void streams_list_emptied(struct pool *pool, struct stream_list *list);
/* The pool's blocks are no more. No list is busy. Under pool->lock. */
void streams_forget(struct pool *pool);
/* Wait until no list is busy. Under pool->lock, which it leaves meanwhile. */
void streams_await_rest(struct pool *pool);
void streams_free(struct pool *pool);

/* ---- devices and contexts (contexts.c) ---- */

#define DEVICE_TIGHT 1u   /* growth has touched the headroom: what becomes free goes back until it is whole */
#define DEVICE_CROWDED 2u /* little is left of its memory or of POOL_LIMIT_MB */

struct device_state {
    int ordinal;
    pthread_mutex_t lock;
    uint64_t reserved; /* guarded by lock: both kinds, all contexts, with what has been promised to calls that are in
                          the driver */
    uint64_t total;    /* device memory, 0 when unknown */
    uint64_t largest;  /* most that one request may be: the memory, or what an address can be */
    _Atomic uint64_t passed; /* all batches up to this one are proved for its blocks */
    atomic_uint pressed;     /* DEVICE_…: what is freed is merged at once */
    uint64_t crowded_above;  /* bytes reserved that make it so */
    uint64_t max_split;
    struct device_info info;
    struct device_state *next; /* system->devices */
};

/* ---- thrash.c: a guard against giving segments back for others over and over. Guarded by the pool's lock ---- */

struct thrash {
    uint64_t owed;    /* driver calls for segments that have not been paid off; who makes one counts it */
    uint64_t counted; /* allocations of the pool that have paid */
    bool saves;       /* calls are saved where the memory that it takes comes back */
};

/* After what the allocations since the last time have paid. */
bool thrash_saves(struct pool *pool);

enum pool_status { POOL_OPEN, POOL_CLOSED };

struct pool {
    _Alignas(64) struct quick_lock lock;
    uint8_t status;   /* enum pool_status */
    bool looks_ahead; /* something is to be reserved first (prealloc.c), or there are fixed sizes (fixed.c) */
    bool ended;       /* ASYNC: the memory pool was destroyed; no more allocations */
    unsigned inside;  /* calls that are between two holds of the lock */
    unsigned writing; /* figures_begin without its end so far */
    struct pool_system *system;
    struct device_state *device;
    struct poolcuda_pool *figures;
    struct segment_source source;
    _Atomic uint64_t waits_begun,
        waits_ended; /* capture.c, beside those of the fronts; the latter written under lock */
    uint64_t generation;

    struct live_table table;
    struct front *fronts[FRONTS_MOST]; /* by number; once made, they stay */
    unsigned front_count;              /* highest number that was made, and one */

    /* sums over the blocks that are no front's */
    uint64_t idle_bytes, releasable;
    uint64_t reserved, segment_count, ordered_bytes, retired_bytes, exported_bytes;

    struct record_store records;
    struct segment *free_segments; /* the wholly free ones */
    struct free_index idle;

    struct segment *segments;
    uint64_t trim_above;          /* cached bytes: POOL_TRIM_MB, and beside it what was preallocated */
    struct waiting_queue waiting; /* of those that are not in the table */
    unsigned joined;              /* waiting frees, but for hits, since this pool last closed a fence, or tried to */
    uint64_t joined_bytes;
    struct block *exported, *exported_last; /* EXPORTED blocks, those asked about longest ago first */
    unsigned traceable, untraceable;        /* of them: with an export's number, with NOTE_UNTRACEABLE */
    bool asking_exports;                    /* somebody asks who has them open */
    struct stream_list **lists;             /* by number; 0: none */
    unsigned list_count, list_room;
    struct stream_list *list_buckets[LIST_BUCKETS]; /* by stream id */
    struct stream_list *spare_lists;
    uint64_t ordered_blocks, ordered_largest;               /* number, and size of the largest */
    enum { AHEAD_NOTHING, AHEAD_WANTED, AHEAD_BUSY } ahead; /* is something to be reserved, or just being so? */
    bool has_grown;                                         /* has what a first allocation takes */
    struct segment *wholes, *free_parts;                    /* prealloc.c; the latter as free_segments */
    uint64_t prealloc_bytes, unused_bytes;                  /* of the wholes, and of them in no part */
    struct fixed_size {
        size_t size;           /* rounded */
        uint64_t asked;        /* blocks wanted, */
        uint64_t blocks, idle; /* had, and free */
        struct block *free;    /* FIXED, the last freed first */
        struct poolcuda_fixed *figures;
    } fixed[CONFIG_FIXED_MOST];
    unsigned fixed_count;
    uint64_t fixed_free_bytes;
    bool primary;                /* PLAIN: of a primary context */
    bool gone;                   /* PLAIN: of a context that is no more */
    unsigned closers;            /* pool_context_close calls that await their settle */
    pthread_mutex_t change_lock; /* guards changes; taken inside `lock`, or alone */
    struct thrash thrash;
    pthread_cond_t changed; /* status became OPEN, inside became 0 while CLOSED or ended, a marking ended */
    uint64_t changes;       /* how often */
    struct pool *next;      /* system->pools */
};

/* The context of a pool of the plain kind. Without the lock it may be that of an earlier life, where the address that
 * led to the pool is nobody's any more. */
static inline struct device_context pool_context(const struct pool *pool) {
    return (struct device_context){__atomic_load_n(&pool->source.context.handle, __ATOMIC_RELAXED),
                                   pool->source.context.ordinal};
}

struct context_entry {
    void *handle;
    struct pool *pool; /* NULL: not pooled */
};

#define CONTEXTS_MAX 256
#define MEMORY_POOLS_ENDING 8 /* told apart at a time */

struct capture_probe; /* capture.c */

struct pool_system {
    const struct device_ops *ops;
    struct pool_options options;
    bool log_all;         /* POOL_LOG=3 */
    bool traced;          /* POOL_TRACE */
    bool watched;         /* logged or recorded: watch.c */
    bool attended_allocs; /* each has more to do than to be served and recorded: logged, POOL_FILL, checks in every call
                           */
    bool attended_frees;  /* likewise: logged, POOL_TRIM_MB, checks in every call */
    struct registry registry;
    struct fences fences;
    _Atomic uint64_t streams_epoch; /* changes when a stream ends or a memory pool is set: likewise */
    _Atomic uint64_t epoch;         /* changes with the table of contexts: threads cache what they found */
    _Atomic unsigned captures;      /* stream captures in progress in the process */
    _Atomic uint64_t next_generation;
    pthread_mutex_t contexts_lock;
    struct context_entry contexts[CONTEXTS_MAX]; /* guarded by contexts_lock */
    size_t context_count;
    _Atomic uint64_t memory_pool_ends;       /* changes when one is about to be destroyed, and when it was */
    const void *ending[MEMORY_POOLS_ENDING]; /* those in between; guarded by contexts_lock */
    unsigned ending_count, ending_unlisted;  /* likewise; the latter found no place */
    _Atomic(struct pool *) pools;            /* by next; grows only */
    struct device_state *devices;            /* guarded by contexts_lock; grows only */
    pthread_mutex_t probes_lock;             /* guards probes; no other lock is taken inside */
    struct capture_probe *probes;            /* guarded by probes_lock */
};

/* After streams_list for the ref's pool. Under pool->lock. */
static inline void streams_make_ready(struct stream_ref *ref) {
    ref->ready = ref->handle > 2 && ref->list ? ref->list->front : NULL;
}

/* The calling thread's ref of a created stream whose calls need ask nothing more, NULL where streams_ref has to tell.
 */
static inline struct stream_ref *streams_ready(struct pool_system *system, struct device_stream stream) {
    struct stream_ref *ref = stream_ref_place((uintptr_t)stream.handle);
    const uint64_t epoch = atomic_load_explicit(&system->streams_epoch, memory_order_acquire);
    return __builtin_expect(ref->handle == (uintptr_t)stream.handle && ref->epoch == epoch && ref->ready, 1) ? ref
                                                                                                             : NULL;
}

static inline struct stream_ref *streams_ref(struct pool_system *system, struct device_stream stream, int *code) {
    struct stream_ref *ref = stream_ref_place((uintptr_t)stream.handle);
    if (__builtin_expect((uintptr_t)stream.handle > 2 && ref->handle == (uintptr_t)stream.handle &&
                             ref->epoch == atomic_load_explicit(&system->streams_epoch, memory_order_acquire),
                         1))
        return ref;
    return streams_find_ref(system, stream, code);
}

/* The driver's own calls on the legacy stream are work there, between that of the blocking streams: so what was freed
 * after work of one may be used on another without more ado. */
static inline int streams_touch(struct pool_system *system, const struct stream_ref *ref) {
    return system->ops->stream_touch(system->ops->self, ref->identity.context, ref->called);
}

/* All batches up to this one are proved for the pool's blocks. */
static inline uint64_t fences_passed(const struct pool *pool) {
    const uint64_t all = atomic_load_explicit(&pool->system->fences.passed, memory_order_acquire);
    const uint64_t own = atomic_load_explicit(&pool->device->passed, memory_order_acquire);
    return all > own ? all : own;
}

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
/* The pool for stream-ordered allocations of a device, NULL when there is none. No lock held. */
struct pool *contexts_async_pool(struct pool_system *system, struct device_context context);
/* Before a thread leaves the lock for the driver: the pool's context is not closed until the thread leaves the pool,
 * and the thread is not cancelled, for it could not leave then. Under pool->lock. */
void pool_enter(struct pool *pool);
void pool_leave(struct pool *pool);
/* Wait for the next pool_change. Under pool->lock, which it leaves meanwhile. */
void pool_await_change(struct pool *pool);
/* Wake those who wait. Under pool->lock. */
void pool_change(struct pool *pool);

/* ---- front.c. All under pool->lock ---- */

/* The number of the calling thread's front in each pool, 0: none yet. */
extern _Thread_local unsigned front_of_thread __attribute__((tls_model("initial-exec")));

/* Of a new pool: its first front; false when host memory ran out. Figures for a new generation; and no more figures. */
bool fronts_init(struct pool *pool);
void fronts_open(struct pool *pool);
void fronts_close(struct pool *pool);
void fronts_free(struct pool *pool);
/* What decides whether hits are served has changed: status, looks_ahead, ended, untraceable; of a front its list. */
void fronts_gate(struct pool *pool);
void front_gate(struct pool *pool, struct front *front);
/* The front that counts what the calling thread allocates; never NULL. */
struct front *fronts_of_thread(struct pool *pool);
/* One for a list that has got its stream, NULL when there are no more. */
struct front *fronts_of_stream(struct pool *pool, struct stream_list *list);
/* Its stream is gone, or its list is used for another. Its bins are empty. */
void front_leave(struct pool *pool, struct front *front);
/* All locks, in the order of numbers. */
void fronts_lock(const struct pool *pool);
void fronts_unlock(const struct pool *pool);
/* The pool's blocks are no more. With all locks. */
void fronts_forget(struct pool *pool);

struct front_sums {
    uint64_t live, requested, idle, ordered, waiting; /* bytes */
    uint64_t served;                                  /* allocations */
};
void fronts_sum(const struct pool *pool, struct front_sums *sums);
/* As the figures have it. */
uint64_t fronts_live_blocks(const struct pool *pool);
/* The front's live and requested bytes may become so many more: the pool's peaks rise where need be. With the front's
 * lock, inside figures_begin … figures_end. */
void front_allow(struct pool *pool, struct front *front, size_t live, size_t requested);

/* A block that is in the table and no front's becomes the program's, counted as a hit; inside figures_begin …
 * figures_end, as all that follow. */
void front_begin_life(struct pool *pool, struct front *front, struct block *block, size_t requested,
                      enum pool_door door);
/* The live block at `address` stops being so: it is ENDING, in the table, and no front's; its tag has the number of the
 * front that it was of, and its notes. NULL when there is none. `joined`: of what the free joins, NULL for nothing. */
struct block *front_end_life(struct pool *pool, uint64_t address, enum pool_door door, unsigned *joined);
/* What its hits have freed since the last such call joins the frees that a mark on its stream, or a fence, is for. */
void front_count_joined(struct pool *pool, struct front *front);
/* A block that is in the table and no front's goes to a bin of the front (hit_may_bin), or waits in it for a fence. */
void front_bin(struct front *front, struct block *block, unsigned class, uint64_t batch);
void front_wait(struct front *front, struct block *block, uint64_t batch);
/* The oldest that waits there, ENDING and no front's, if it is of a batch up to `batch`; else NULL. */
struct block *front_take_waiting(struct front *front, uint64_t batch);
/* All such are idle: in its bins, or merged. Returns their number. */
uint64_t front_reclaim(struct pool *pool, struct front *front, uint64_t batch);
/* What waits there, and in the pool's queue: the batch of the latest, 0 when nothing waits. */
uint64_t fronts_waiting_batch(const struct pool *pool);

/* ---- heap.c: blocks within segments. All under pool->lock ---- */

/* Hand out of the free block `block`, which is in no list any more, what the request wants: splits it where the policy
 * says so, registers it, and counts it as a hit. NULL when host memory ran out: the block is free again. */
struct request;
struct block *heap_hand_out(const struct request *request, struct block *block);
/* Take a fitting block out of its index, NULL when there is none: one of `list` (which may be NULL) before an idle one.
 * `any`: of any size, in any segment. */
struct block *heap_take(struct pool *pool, const struct stream_list *list, size_t size, bool any);
/* The same out of neighbours, some of the list, some idle, that together would fit: they become one. */
struct block *heap_take_run(struct pool *pool, const struct stream_list *list, size_t size, bool any);
/* A block that is in no list becomes free: merged with neighbours in the same state, into its index or queue. */
void heap_make_idle(struct pool *pool, struct block *block);
void heap_make_ordered(struct pool *pool, struct block *block, struct stream_list *list, uint64_t batch);
/* It is not in the table: those that are wait in their front (front_wait). */
void heap_make_waiting(struct pool *pool, struct block *block, uint64_t batch);
/* It is never given out again. */
void heap_retire(struct pool *pool, struct block *block);
/* It was meant for a while only. */
void heap_end_retired(struct pool *pool, struct block *block);
/* A freed block that others may have open, last in the queue; and out of the queue, in no list. */
void heap_make_exported(struct pool *pool, struct block *block, uint64_t notes);
void heap_end_exported(struct pool *pool, struct block *block);
/* Take an ordered block out of its list; the oldest of the pool's waiting ones out of the queue. */
void heap_unlist(struct pool *pool, struct block *block);
struct block *heap_pop_waiting(struct pool *pool);
/* Size of the largest block that may be given to somebody. */
size_t heap_largest(const struct pool *pool);
/* The live block of the segment, or of the whole, that holds `address`, with the lock of its front; NULL when none
 * does. Walks the segment unless it is a block's start. */
struct block *heap_live_at(const struct pool *pool, const struct segment *segment, uint64_t address,
                           struct front **front);
/* A fresh segment as one block in no list; NULL when host memory ran out. */
struct block *heap_add_segment(struct pool *pool, uint64_t address, size_t size);
/* The same for a part of `whole`, which prealloc.c puts in its place there. */
struct block *heap_add_part(struct pool *pool, struct segment *whole, uint64_t address, size_t size);
/* Take a wholly free segment out of the pool: nothing refers to it any more. The record is the caller's until
 * records_put_segment. */
void heap_detach_segment(struct pool *pool, struct segment *segment);
/* All blocks and segments are no more. */
void heap_forget(struct pool *pool);

/* ---- grow.c: segments from and to the driver, and what happens when there are no more ---- */

struct request {
    struct pool *pool;
    size_t size, requested; /* rounded, and as asked */
    struct stream_ref *on;  /* the stream of a stream-ordered one, else NULL */
    struct front *front;    /* that counts it, where pool->lock is held since it was found; else NULL */
    enum pool_door door;
};

/* Serve a request that found no fitting block. Called with pool->lock held and pool->inside counted; returns with the
 * lock held. 0 and *block handed out; where the answer is DEVICE_OUT_OF_MEMORY, *reason says whose it is. */
int grow_and_hand_out(const struct request *request, struct block **block, bool *took_segment,
                      enum poolcuda_oom_reason *reason);
/* `change` (modulo 2^64) bytes of the device were reserved or given back. Under device->lock. */
void device_count(struct device_state *device, uint64_t change);
/* Give back wholly free segments of all pools of a device: largest first, until `enough` bytes are back or at most
 * `keep` bytes stay cached. Without `waits` those of the async kind alone: the driver's release of a plain one waits
 * for the device. No lock held. */
uint64_t grow_release(struct pool_system *system, struct device_state *device, uint64_t enough, uint64_t keep,
                      bool waits);
/* The same of one pool, after what can be proved idle without waiting has become so. */
uint64_t grow_release_pool(struct pool *pool, uint64_t keep);
/* The same of all that belongs to memory pools that were destroyed: it serves nobody any more. */
void grow_release_ended(struct pool_system *system);
/* What can be proved idle on a device becomes so: without waiting, or else by waiting for everything. No lock held. */
void grow_prove(struct pool_system *system, const struct device_state *device);
bool grow_settle(struct pool_system *system, const struct device_state *device);
/* What the bins of a device's pools hold is merged, so that it is known which segments are wholly free. No lock held.
 */
void grow_merge(struct pool_system *system, const struct device_state *device);

/* Give back what is wholly free until at most `keep_bytes` stay cached, and count it as a trim. No lock held. */
uint64_t grow_trim(struct pool_system *system, struct device_state *device, uint64_t keep_bytes, bool waits);

/* The device's headroom was touched: give back what is wholly free until it is whole. No lock held; the
 * caller is counted in pool->inside. */
void grow_keep_headroom(struct pool *pool, bool waits);

/* What may be reserved ahead of requests: within the limit, and with the headroom left free. No lock held. */
uint64_t grow_room(struct pool *pool);
/* Ask the driver for so much: 0 and *address, or a driver's code. No lock held; the caller is counted in pool->inside.
 */
int grow_reserve(struct pool *pool, size_t bytes, uint64_t *address);
/* There is no host memory to keep a record of what the driver gave. No lock held. */
void grow_refuse(struct pool *pool, uint64_t address, size_t bytes);
/* A segment that pool->lock holders cannot find any more goes to the driver: a wait of the pool's, which is announced
 * (capture_release_begin). No lock held; ends the wait and leaves the pool once. */
void grow_give_back(struct pool *pool, struct segment *segment);
/* May the pool give a segment back? One that is to be closed stays as it is as long as nobody is inside. Under
 * pool->lock. */
bool grow_may_release(const struct pool *pool);

/* A segment that is free but for blocks which were exported without a trace goes back to the driver, as it would have
 * gone at the last of its frees: a release that waits. Returns its size, 0 when there is none. No lock held. */
uint64_t grow_release_untraceable(struct pool *pool);

/* ---- prealloc.c: what a primary context's pool reserves at its first allocation, and segments out of it ---- */

/* A life of the pool begins: what its options ask for is to be reserved. Under pool->lock, or of a new pool. */
void prealloc_open(struct pool *pool);
/* Reserve it, once; who comes meanwhile waits. Under pool->lock, which it leaves meanwhile: look at the status after
 * it, not before. */
void prealloc_begin(struct pool *pool);
/* A segment out of what was preallocated, of `wanted` bytes or at least `exact`, and a block of it for the request;
 * NULL when there is no room. Under pool->lock, inside figures_begin … figures_end. */
struct block *prealloc_hand_out(const struct request *request, size_t exact, size_t wanted);
/* Is there room for one of `size` by now? No lock held. */
bool prealloc_has_room(struct pool *pool, size_t size);
/* Give back to the driver what is wholly unused. Returns the bytes given back. No lock held. */
uint64_t prealloc_release(struct pool_system *system, const struct device_state *device);
/* What was preallocated is no more, nor are its parts. */
void prealloc_forget(struct pool *pool);
/* The part that holds `address`, NULL when none does. */
const struct segment *prealloc_part(const struct segment *whole, uint64_t address);
void prealloc_count(struct pool *pool, uint64_t bytes); /* figures of a reservation of so much */

/* ---- fixed.c: fixed-size pools, POOL_FIXED. All under pool->lock but for fixed_reserve ---- */

void fixed_open(struct pool *pool);
/* Take what the driver gives. The caller is counted in pool->inside. */
void fixed_reserve(struct pool *pool);
/* A block for a request of exactly its size, handed out: NULL when there is none. The first leaves the lock meanwhile
 * to ask what can be proved idle. */
struct block *fixed_take(const struct request *request);
struct block *fixed_take_idle(const struct request *request);
/* A block that is in no list and idle returns to its fixed-size pool; false when it is of none. Inside figures_begin …
 * figures_end. */
bool fixed_put(struct pool *pool, struct block *block);
static inline bool fixed_owns(const struct pool *pool, const struct block *block) {
    return __builtin_expect(pool->looks_ahead, 0) && block->segment->fixed;
}
void fixed_forget(struct pool *pool);

/* ---- notes.c: what the program did with a live block that its next owner must not find. In the block's tag ---- */

#define NOTE_SYNC UINT64_C(1)        /* set SYNC_MEMOPS on it, which the driver does to the whole segment */
#define NOTE_UNTRACEABLE UINT64_C(2) /* exported it by the driver's handle: nobody can tell who has it open */
#define NOTE_WAITED UINT64_C(4)      /* EXPORTED: its free has waited, so it is idle once it is closed */
#define NOTE_BITS 3                  /* above them: the number of an export by a handle of ours, 0: none */

/* A block with notes is being freed: in no list and not live. Takes its marks back. True when the block is kept for
 * whoever has it open; `waited`: else it would be idle. Under pool->lock, which it leaves meanwhile. */
bool notes_end(struct pool *pool, struct block *block, bool waited);
/* Exported blocks that nobody has open any more become free: waiting, or idle. True when any did. No lock held; the
 * caller is counted in pool->inside. */
bool notes_ask_exports(struct pool *pool);

/* ---- fill.c ---- */

/* Fill a block that was handed out. Called with pool->lock, which it gives up. 0, or the block is free again:
 * DEVICE_NOT_READY when a capture has begun that forbids it, else the driver's code. */
int fill_block(const struct request *request, const struct block *block);

/* ---- capture.c ---- */

/* A wait for the device breaks the captures on it, though the free that waits would have harmed none: so the two
 * exclude one another. False while a stream of the process captures; else captures that begin from now on wait for
 * capture_wait_end. */
static inline bool capture_counted_begin(struct pool_system *system, _Atomic uint64_t *begun) {
    atomic_fetch_add(begun, 1);
    if (__builtin_expect(atomic_load(&system->captures) == 0, 1)) return true;
    atomic_fetch_sub(begun, 1);
    return false;
}
static inline bool capture_wait_begin(struct pool *pool) {
    return capture_counted_begin(pool->system, &pool->waits_begun);
}
/* The same, counted by a front. */
static inline bool capture_front_wait_begin(struct pool_system *system, struct front *front) {
    return capture_counted_begin(system, &front->waits_begun);
}
/* To give memory back harms no capture where the device says so; captures that begin meanwhile wait all the same. */
static inline bool capture_release_begin(struct pool *pool) {
    const struct device_ops *ops = pool->system->ops;
    if (capture_wait_begin(pool)) return true;
    if (!ops->releases_in_captures(ops->self)) return false;
    atomic_fetch_add(&pool->waits_begun, 1);
    return true;
}
/* The same for a recording, which breaks captures too. */
static inline bool capture_record_begin(struct pool_system *system) {
    atomic_fetch_add(&system->fences.records_begun, 1);
    if (__builtin_expect(atomic_load(&system->captures) == 0, 1)) return true;
    atomic_fetch_add(&system->fences.records_ended, 1);
    return false;
}
static inline void capture_record_end(struct pool_system *system) {
    atomic_fetch_add(&system->fences.records_ended, 1);
}
/* Where the thread cannot leave the mode of a capture for it, a question about an event would break it. */
static inline bool capture_ask_begin(struct pool_system *system) {
    return system->ops->releases_in_captures(system->ops->self) || capture_record_begin(system);
}
static inline void capture_ask_end(struct pool_system *system) {
    if (!system->ops->releases_in_captures(system->ops->self)) capture_record_end(system);
}
/* The same for a recording on one created stream: it may wait for room there, so captures wait for it for a while only.
 * It harms none but a capture on that very stream, and then it proves nothing. */
static inline bool capture_mark_begin(struct pool_system *system) {
    atomic_fetch_add(&system->fences.marks_begun, 1);
    if (__builtin_expect(atomic_load(&system->captures) == 0, 1)) return true;
    atomic_fetch_add(&system->fences.marks_ended, 1);
    return false;
}
static inline void capture_mark_end(struct pool_system *system) {
    atomic_fetch_add(&system->fences.marks_ended, 1);
}
static inline void capture_counted_end(_Atomic uint64_t *ended) {
    const uint64_t before = atomic_load_explicit(ended, memory_order_relaxed);
    atomic_store_explicit(ended, before + 1, memory_order_release);
}
/* Under pool->lock; the other under the front's. */
static inline void capture_wait_end(struct pool *pool) {
    capture_counted_end(&pool->waits_ended);
}
static inline void capture_front_wait_end(struct front *front) {
    capture_counted_end(&front->waits_ended);
}

/* May the thread free memory now? Asks the driver with a small allocation, which is freed at once (`wait`: so the
 * driver's free waits as it would for the program), or else kept until the captures end. 0, or the driver's refusal. No
 * lock held. */
int capture_ask(struct pool *pool, bool wait);
/* What is left when a capture begins meanwhile, or while its context is being closed, is kept until the next one ends.
 */
void capture_release_probes(struct pool_system *system);

/* ---- cancelled.c: threads that are cancelled while they wait, where no pool_enter keeps them from it ---- */

/* Where the thread waits between its capture_wait_begin and capture_wait_end. */
extern _Thread_local struct front *cancelled_wait __attribute__((tls_model("initial-exec")));
/* The thread is about to wait so: its end will end a wait that it has left. */
void cancelled_watch(void);

/* ---- figures.c: the pool's records of the figures. All under pool->lock, inside figures_begin … figures_end ---- */

/* Records for a new generation. */
void figures_open(struct pool *pool);
void figures_begin(struct pool *pool); /* may be nested */
void figures_end(struct pool *pool);   /* gauges follow the pool's sums */
/* The same where nothing changed but that idle memory became live, or live memory idle. */
void figures_end_hit(struct pool *pool);
/* The peaks of cached memory and its parts, with what the fronts hold. */
void figures_note_peaks(struct pool *pool);
/* A live block took a segment. */
void figures_miss(struct pool *pool, const struct block *block);
/* A hit that was timed; also the sign of life. No lock needed. */
void figures_hit_latency(struct pool *pool, uint64_t began);
/* An event with the pool's sums, to be completed; and its publication, in the ring and in the log. */
struct poolcuda_event figures_event_of(const struct pool *pool, enum poolcuda_event_type type);
void figures_publish(const struct poolcuda_event *event);
/* Both. device_free: UINT64_MAX when not asked. */
void figures_event(struct pool *pool, enum poolcuda_event_type type, uint64_t bytes, uint64_t device_free,
                   uint32_t reason);
uint64_t figures_clock(void); /* ns, CLOCK_MONOTONIC */

/* ---- pool.c, alloc.c, free.c ---- */

#define COLD __attribute__((cold, noinline))
/* What a hit calls becomes part of it: a tenth of its time were the calls. */
#define HOT __attribute__((hot, flatten))

/* The driver is to serve the call: counts why. POOL_PASS. */
int pool_pass(enum poolcuda_pass_reason reason);
/* One call in POOLCUDA_LATENCY_SAMPLE is timed, a thread's first among them. */
static inline bool sample_is_next(unsigned *calls) {
    return (*calls)++ % POOLCUDA_LATENCY_SAMPLE == 0;
}
/* 0, or when it began. */
static inline uint64_t sample_begin(unsigned *calls) {
    return __builtin_expect(sample_is_next(calls), 0) ? figures_clock() : 0;
}

/* ---- watch.c: the log's line of each call, and its record in the trace. Where system->watched ---- */

/* What is told of a block after the lock was given up. */
struct watch_block {
    uint64_t address, id;
};

/* After an allocation; no lock held. */
void watch_alloc(const struct request *request, struct watch_block block, bool took_segment);
/* The same of a hit from a bin, on the stream of this number (0: none). */
void watch_hit(const struct pool *pool, struct watch_block block, size_t requested, uint64_t stream,
               enum pool_door door);
/* A block is about to be freed by a hit: under its front's lock. False: its record needs the other way. */
bool watch_free_hit(const struct block *block, uint64_t stream, enum pool_door door);
/* What the thread is about to free, and how: in the order of a stream, or it never comes back. */
#define WATCH_KEPT UINT64_MAX
struct watch_asked {
    uint64_t address, stream; /* the number of a stream, or WATCH_KEPT */
};
extern _Thread_local struct watch_asked watch_asked __attribute__((tls_model("initial-exec")));
static inline void watch_ask(uint64_t address, uint64_t stream) {
    watch_asked = (struct watch_asked){address, stream};
}
/* A block is about to be live no more: under pool->lock and its front's. Then, without them, after that. */
void watch_free(const struct pool *pool, const struct block *block, enum pool_door door);
void watch_freed(const struct pool *pool, uint64_t address);

/* ---- check.c ---- */

#ifdef POOL_CHECK_EVERY_CALL
#define CHECKS_EVERY_CALL true
void check_or_abort(struct pool_system *system);
#else
#define CHECKS_EVERY_CALL false
static inline void check_or_abort(struct pool_system *system) {
    (void)system;
}
#endif

#endif
