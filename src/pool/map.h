/* SPDX-License-Identifier: MIT
 *
 * The pool's part of the block map (poolcuda/stats.h): a walk over its blocks that goes on a little at a time.
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_MAP_H
#define POOLCUDA_POOL_MAP_H

/* Bounds of what the map may cost: one step in so much time in the whole process, of so many blocks, and no more than
 * this part of all time. A pool that has been walked is left alone for a while. */
#define MAP_STEP_NS UINT64_C(1000000)
#define MAP_SHARE 100u
/* At most, after a step that took long: the thread may have lost its processor. */
#define MAP_PAUSE_MOST_NS UINT64_C(1000000000)
#define MAP_STEP_BLOCKS 256u
#define MAP_ROW_BLOCKS 16u /* beginning and writing a row count as so many, */
#define MAP_REST_NS UINT64_C(10000000)
#define MAP_REFRESH_SHARE 50u /* walks of everything take at most about this part of the time */
#define MAP_NEVER UINT64_MAX

#define MAP_COUNT_STATE(name, unit, kind, help) MAP_##name,
enum map_state { POOLCUDA_MAP_STATES(MAP_COUNT_STATE) MAP_STATES, MAP_UNUSED = MAP_STATES };
#undef MAP_COUNT_STATE

/* Under pool->lock but for `rests_until`. The block to go on with is records.walked. */
struct map_walk {
    struct segment *segment;    /* whose row is made; NULL: none */
    bool begun;                 /* what follows is of it */
    const struct segment *part; /* of a whole: the one to go on with, NULL behind the last */
    uint64_t at;                /* bytes of it that are counted */
    uint64_t bytes[MAP_STATES + 1];
    struct { /* the cell that `at` is in */
        unsigned number;
        uint64_t begin, end, bytes[MAP_STATES + 1];
        uint64_t most; /* bytes that one block has of it */
        unsigned most_class, blocks;
    } cell;
    struct poolcuda_map_row row;  /* as far as it is made */
    uint64_t began_ns;            /* when this walk over the pool did */
    _Atomic uint64_t rests_until; /* ns, CLOCK_MONOTONIC; MAP_NEVER: the pool's figures are not published */
};

/* The pool has new figures. */
void map_open(struct pool *pool);
/* A step, if it is time for one: on the pool, whose lock is held; or on whichever pool it is the turn of, no lock held.
 * `now`: figures_clock. */
void map_step(struct pool *pool, uint64_t now);
void map_beat(struct pool_system *system, uint64_t now);
/* A segment was taken: the walk does not rest. Under pool->lock. */
void map_hurry(struct pool *pool);
/* All pools of the device, at once: memory ran out. No lock held. */
void map_refresh(struct pool_system *system, const struct device_state *device);
/* The segment, or the part, is about to leave its list. Under pool->lock. */
void map_forget(struct pool *pool, const struct segment *segment);

#endif
