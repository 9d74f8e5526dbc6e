/* SPDX-License-Identifier: MIT
 *
 * Fronts: what stands between a pool's callers and its lock. Each stream has one, and of plain memory each few threads;
 * it has a lock, bins of free blocks, sums, and a cell of the figures of its own. A hit from its bins, and a free into
 * them, touch nothing that another front's do, so threads on streams of their own do not meet.
 *
 * Who may touch what. A block that is LIVE or BINNED, or WAITING and in the table, belongs to the front whose number is
 * in its tag: under the lock of that front. So nobody who holds pool->lock alone changes such a block's tag, and it is
 * never merged. Everything else is under pool->lock; who moves a block from or to a front holds both, pool->lock first.
 * What stands beside a block in memory is under pool->lock whatever its state. Tags, addresses and
 * sizes of blocks, and the table, are read without either lock, by who then takes the front's and looks again.
 *
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_FRONT_H
#define POOLCUDA_POOL_FRONT_H

#include "pool/bins.h"

/* Numbers: 0 is the front of what has none of its own, which serves no hit; then those of threads; then of streams. */
#define FRONTS_OF_THREADS 8u
#define FRONTS_MOST POOLCUDA_MAX_CELLS
#define FRONT_SERVES UINT64_C(1) /* serves_…, of one of threads */

struct stream_list;

/* Waiting blocks, by batch, oldest first. */
struct waiting_queue {
    struct block *first, *last;
    uint64_t bytes;
};

struct front {
    /* What a hit touches stands first: two cache lines. Lines are fetched in pairs. */
    _Alignas(128) struct quick_lock lock;
    uint16_t number;
    bool traced;                          /* hits are recorded */
    uint64_t serves_allocs, serves_frees; /* the stream whose hits it serves, or FRONT_SERVES; 0: none at present */
    uint64_t live_tag;                    /* of a LIVE block of it with nothing noted, as a word */
    uint64_t live, requested;             /* bytes of its live blocks */
    uint64_t most_live, most_requested;   /* what they may become before somebody looks: front_allow; written under
                                             pool->lock alone */
    uint64_t next_id;                     /* of blocks; unique in the process */
    struct poolcuda_cell *cell;           /* NULL: not in use */
    const atomic_uint *pressed;           /* of the device */
    uint64_t newest;                      /* no block of its bins is of a later batch */
    unsigned until_round, round;          /* frees by hits until one that looks after the rest, of so many */
    uint64_t held;                        /* bytes of live and binned blocks, and of those that wait here */
    struct waiting_queue waiting;         /* in the table; of fronts of threads */
    _Atomic uint64_t waits_begun, waits_ended; /* capture.c; the latter written under lock */
    struct bins bins;                          /* idle ones, or ordered after its stream */

    /* Under pool->lock. */
    uint64_t first_id;        /* next_id at first */
    uint64_t since;           /* no block of its bins is of an earlier batch */
    struct stream_list *list; /* whose front it is; NULL: of threads, or of a stream that is gone */
    uint64_t stream;          /* whose it is, or was last; 0: of threads, or nobody's yet */
    unsigned refused;         /* not 0: there was no cell for it, and is not asked for in so many calls */
};

/* Of a front, what others may read meanwhile: who sums over fronts takes no lock that is in constant use. */
static inline uint64_t front_get(const uint64_t *field) {
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}
static inline void front_set(uint64_t *field, uint64_t value) {
    __atomic_store_n(field, value, __ATOMIC_RELAXED);
}
static inline void front_add(uint64_t *field, uint64_t change) {
    front_set(field, front_get(field) + change);
}

/* Bytes in its bins; without its lock about so many. */
static inline uint64_t front_binned(const struct front *front) {
    const uint64_t used = front_get(&front->live) + front_get(&front->waiting.bytes), held = front_get(&front->held);
    return held > used ? held - used : 0;
}

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
/* It serves no hit until front_gate. */
void front_shut(struct front *front);
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

/* Their live and requested bytes may become no more than they are without a look. With all locks. */
void fronts_allow_nothing(struct pool *pool);

/* A block that is in the table and no front's becomes the program's, counted as a hit; inside figures_begin …
 * figures_end, as all that follow. */
void front_begin_life(struct pool *pool, struct front *front, struct block *block, size_t requested,
                      enum pool_door door);
/* The live block that begins at `address`, with its front's lock; NULL when there is none. */
struct block *front_live_at(const struct pool *pool, uint64_t address, struct front **front);
/* The live block at `address` stops being so: it is ENDING, in the table, and no front's; its tag has the number of the
 * front that it was of, and its notes. NULL when there is none. `joined`: of what the free joins, NULL for nothing. */
struct block *front_end_life(struct pool *pool, uint64_t address, enum pool_door door, unsigned *joined);
/* What its hits have freed since the last such call joins the frees that a mark on its stream, or a fence, is for. */
void front_count_joined(struct pool *pool, struct front *front);
/* A block that is in the table and no front's goes to a bin of the front (hit_may_bin), or waits in it for a fence: of
 * the batch that is open then, since hits meanwhile join no earlier one. */
void front_bin(struct front *front, struct block *block, unsigned class, uint64_t batch);
void front_wait(const struct pool *pool, struct front *front, struct block *block);
/* The oldest that waits there, ENDING and no front's, if it is of a batch up to `batch`; else NULL. */
struct block *front_take_waiting(struct front *front, uint64_t batch);
/* All such are idle: in its bins, or merged. Returns their number. */
uint64_t front_reclaim(struct pool *pool, struct front *front, uint64_t batch);
/* What waits there, and in the pool's queue: the batch of the latest, 0 when nothing waits. */
uint64_t fronts_waiting_batch(const struct pool *pool);

#endif
