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
    uint64_t most_live, most_requested;   /* what they may become before the pool's peaks rise: front_allow */
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

#endif
