/* SPDX-License-Identifier: MIT
 *
 * The inside of the race detector: clocks say what comes after what, the map says who used which bytes, the report
 * keeps what was found. All of it is guarded by race_lock, the innermost lock, unless a comment says otherwise.
 */
#ifndef SIM_RACE_H
#define SIM_RACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../sim.h"

#pragma GCC visibility push(hidden)

extern pthread_mutex_t race_lock;

/* ---- race_clock.c ----
 * Each stream is a track, and what it is given has positions there, from 1. A clock says how far along each track
 * something comes after; what the host has observed is in every clock and not written in it, so clocks stay small. */

struct race_clock_entry {
    uint32_t track;
    uint64_t position;
};

/* Never changes once made. */
struct race_clock {
    _Atomic(unsigned) references;
    uint32_t count;
    uint64_t epoch; /* clocks from before the detector's last start say nothing */
    struct race_clock_entry entries[];
};

/* No track: observed from the beginning. */
#define RACE_NO_TRACK UINT32_MAX

void race_clocks_reset(void);

uint32_t race_track_new(void);
/* Its stream is gone; the track serves another one when all on it is observed. */
void race_track_retire(uint32_t track);
uint64_t race_epoch(void);

/* One clock at a time is in the making: empty; after all that `clock` comes after (NULL: nothing); after the next
 * position of a track, which is returned; made, held by the caller. */
void race_clock_begin(void);
void race_clock_join(const struct race_clock *clock);
uint64_t race_clock_step(uint32_t track);
struct race_clock *race_clock_make(void);

/* Does the clock in the making come after it; has the host observed it? */
bool race_clock_covers(uint32_t track, uint64_t position);
bool race_clock_observed(uint32_t track, uint64_t position);
void race_clock_observe(const struct race_clock *clock);

/* Without the lock. */
struct race_clock *race_clock_hold(struct race_clock *clock);
void race_clock_release(struct race_clock *clock);

/* ---- race_map.c ---- */

/* Something done to memory, and its place. */
struct race_use {
    unsigned references;
    uint32_t track;
    uint64_t position;
    struct sim_race_side side;
};

enum race_block_kind { RACE_PLAIN, RACE_ASYNC, RACE_GRAPH };

struct race_block {
    unsigned references; /* regions */
    enum race_block_kind kind;
    uint64_t address;
    size_t bytes;
    uint64_t life;
    const void *owner; /* PLAIN: the context with which it ends, and that one's id */
    uint64_t owner_id;
    struct race_use *allocated, *freed; /* freed: NULL while it lives */
};

/* How uses of memory in no live block are judged. */
enum race_liveness { RACE_JUDGED, RACE_ALL_NOTED, RACE_NOT_JUDGED };

struct race_use *race_use_new(uint32_t track, uint64_t position, const struct sim_race_side *side);
void race_use_drop(struct race_use *use);

void race_map_reset(void);
/* Uses of these bytes that the clock in the making comes after are over. */
void race_map_forget(uint64_t address, size_t bytes);
/* A use whose clock is in the making. Takes over the reference, as those below do. */
void race_map_use(struct race_use *use, enum race_liveness liveness);
/* PLAIN: must be observed; else must come before the clock in the making. */
void race_map_allocate(struct race_use *use, enum race_block_kind kind, const void *owner, uint64_t owner_id);
/* `ordered`: earlier uses must come before the clock in the making. False if no live block begins there. */
bool race_map_free(struct race_use *use, bool ordered);
bool race_map_unfree(uint64_t address);
void race_map_end_owner(struct race_use *use, const void *owner, uint64_t owner_id);

/* ---- race_report.c ---- */

void race_report_reset(void);
void race_report(enum sim_race_kind kind, const struct race_use *earlier, const struct race_use *later);

#pragma GCC visibility pop

#endif
