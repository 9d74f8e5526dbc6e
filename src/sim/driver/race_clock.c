/* SPDX-License-Identifier: MIT
 *
 * What comes after what: tracks, clocks, and what the host has observed.
 */
#include <stdlib.h>

#include "race.h"

struct track {
    uint64_t last;     /* position given last */
    uint64_t observed; /* up to which the host knows that all is complete */
    uint64_t joined;   /* the entry of the clock in the making; 0: none */
    bool retired;
};

static struct track *tracks;
static uint32_t track_count, track_capacity;
static uint32_t *joined; /* tracks with an entry in the clock in the making; as many as there are tracks */
static uint32_t joined_count;
static uint32_t retired_count;
static uint64_t epoch;

void race_clocks_reset(void) {
    track_count = joined_count = retired_count = 0;
    epoch++;
}

uint64_t race_epoch(void) {
    return epoch;
}

/* A retired track goes on where it was, so that what was done on it stays observed. */
static bool track_revive(uint32_t *track) {
    for (uint32_t i = 0; i < track_count && retired_count > 0; i++) {
        if (!tracks[i].retired || tracks[i].observed < tracks[i].last) continue;
        tracks[i].retired = false;
        retired_count--;
        *track = i;
        return true;
    }
    return false;
}

uint32_t race_track_new(void) {
    uint32_t track;
    if (track_revive(&track)) return track;
    if (track_count == track_capacity) {
        track_capacity = track_capacity == 0 ? 64 : track_capacity * 2;
        tracks = realloc(tracks, track_capacity * sizeof(*tracks));
        joined = realloc(joined, track_capacity * sizeof(*joined));
        if (tracks == NULL || joined == NULL) abort(); /* going on would lose an order */
    }
    tracks[track_count] = (struct track){0};
    return track_count++;
}

void race_track_retire(uint32_t track) {
    tracks[track].retired = true;
    retired_count++;
}

void race_clock_begin(void) {
    while (joined_count > 0) tracks[joined[--joined_count]].joined = 0;
}

static void join(uint32_t track, uint64_t position) {
    if (position <= tracks[track].observed || position <= tracks[track].joined) return;
    if (tracks[track].joined == 0) joined[joined_count++] = track;
    tracks[track].joined = position;
}

void race_clock_join(const struct race_clock *clock) {
    if (clock == NULL || clock->epoch != epoch) return;
    for (uint32_t i = 0; i < clock->count; i++) join(clock->entries[i].track, clock->entries[i].position);
}

uint64_t race_clock_step(uint32_t track) {
    const uint64_t position = ++tracks[track].last;
    join(track, position);
    return position;
}

struct race_clock *race_clock_make(void) {
    struct race_clock *const clock = malloc(sizeof(*clock) + joined_count * sizeof(clock->entries[0]));
    if (clock == NULL) abort(); /* going on would lose an order */
    atomic_init(&clock->references, 1);
    clock->epoch = epoch;
    clock->count = joined_count;
    for (uint32_t i = 0; i < joined_count; i++)
        clock->entries[i] = (struct race_clock_entry){joined[i], tracks[joined[i]].joined};
    return clock;
}

bool race_clock_observed(uint32_t track, uint64_t position) {
    return track == RACE_NO_TRACK || position <= tracks[track].observed;
}

bool race_clock_covers(uint32_t track, uint64_t position) {
    return race_clock_observed(track, position) || position <= tracks[track].joined;
}

void race_clock_observe(const struct race_clock *clock) {
    if (clock == NULL || clock->epoch != epoch) return;
    for (uint32_t i = 0; i < clock->count; i++) {
        struct track *const track = &tracks[clock->entries[i].track];
        if (clock->entries[i].position > track->observed) track->observed = clock->entries[i].position;
    }
}

struct race_clock *race_clock_hold(struct race_clock *clock) {
    if (clock != NULL) atomic_fetch_add_explicit(&clock->references, 1, memory_order_relaxed);
    return clock;
}

void race_clock_release(struct race_clock *clock) {
    if (clock != NULL && atomic_fetch_sub_explicit(&clock->references, 1, memory_order_acq_rel) == 1) free(clock);
}
