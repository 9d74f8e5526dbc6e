/* SPDX-License-Identifier: MIT
 *
 * The map of src/pool: its structures, and each file's functions for the others under the file that owns them, or in
 * the header of its name.
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

struct pool;
struct pool_system;
struct device_state;
struct request;

#include "pool/block.h"
#include "pool/index.h"
#include "pool/front.h"
#include "pool/live_table.h"
#include "pool/registry.h"
#include "pool/fences.h"
#include "pool/streams.h"
#include "pool/heap.h"
#include "pool/grow.h"
#include "pool/map.h"

/* ---- bins.c ---- */

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
    struct block *walked; /* a walk is to go on with it (map.c); a neighbour, once it is put back here */
};

/* Zeroed pages; NULL when host memory ran out. Keeps errno. */
void *records_pages(size_t bytes);
/* Zeroed records; NULL when host memory ran out. */
struct block *records_block(struct record_store *store);
struct segment *records_segment(struct record_store *store);
void records_put_block(struct record_store *store, struct block *block);
void records_put_segment(struct record_store *store, struct segment *segment);
void records_free_all(struct record_store *store);

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
    uint64_t crowded_above;  /* bytes reserved that make it so; guarded by lock */
    uint64_t max_split;      /* written under contexts_lock: device_max_split */
    struct device_info info;
    struct device_state *next; /* system->devices */
};

/* It follows the limit. */
static inline uint64_t device_max_split(const struct device_state *device) {
    return __atomic_load_n(&device->max_split, __ATOMIC_RELAXED);
}

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
    struct map_walk map;
    struct pool *next; /* system->pools */
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
    struct capture_probe *probes;            /* guarded by probes_lock; whether there are any may be read without */
    _Atomic uint64_t map_due;                /* no step of the block map, and */
    _Atomic uint64_t map_refresh_due;        /* no refresh before; ns */
    _Atomic(struct pool *) map_last;         /* that had a step by map_beat */
};

/* POOL_LIMIT_MB, or what was set since: adjust.c. It may change at any time. */
static inline uint64_t pool_limit_of(const struct pool_system *system) {
    return __atomic_load_n(&system->options.limit_bytes, __ATOMIC_RELAXED);
}

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
void fixed_reset_peaks(struct pool *pool); /* of its figures, to the present values */

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

#include "pool/capture.h"

/* ---- cancelled.c: threads that are cancelled while they wait, where no pool_enter keeps them from it ---- */

/* Where the thread waits between its capture_wait_begin and capture_wait_end. */
extern _Thread_local struct front *cancelled_wait __attribute__((tls_model("initial-exec")));
/* The thread is about to wait so: its end will end a wait that it has left. */
void cancelled_watch(void);

/* ---- figures.c: the pool's records of the figures. All under pool->lock, inside figures_begin … figures_end ---- */

/* Records for a new generation. */
void figures_open(struct pool *pool);
/* The limit and what follows it. */
void figures_limit(struct pool *pool);
void figures_begin(struct pool *pool); /* may be nested */
void figures_end(struct pool *pool);   /* gauges follow the pool's sums */
/* The same where nothing changed but that idle memory became live, or live memory idle. */
void figures_end_hit(struct pool *pool);
/* The peaks of cached memory and its parts, with what the fronts hold. */
void figures_note_peaks(struct pool *pool);
/* Peaks are the present values. */
void figures_reset_peaks(struct pool *pool);
/* A live block took a segment. */
void figures_miss(struct pool *pool, const struct block *block);
/* A hit that was timed; also the sign of life. Returns when it ended. No lock needed. */
uint64_t figures_hit_latency(struct pool *pool, uint64_t began);
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
