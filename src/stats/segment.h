/* SPDX-License-Identifier: MIT
 *
 * The shared-memory file behind the figures: its shape, its name, its creation, and the removal of what dead processes
 * have left. Internal to src/stats.
 */
#ifndef POOLCUDA_STATS_SEGMENT_H
#define POOLCUDA_STATS_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "poolcuda/stats.h"
#include "stats/shm.h"

/* All sections in a row, in shared and in private memory alike. */
struct segment_storage {
    struct poolcuda_header header;
    struct poolcuda_config_entry config[POOLCUDA_MAX_CONFIG];
    struct poolcuda_pool pools[POOLCUDA_MAX_POOLS];
    struct poolcuda_cell cells[POOLCUDA_MAX_CELLS];
    struct poolcuda_event events[POOLCUDA_MAX_EVENTS];
    struct poolcuda_fixed fixed[POOLCUDA_MAX_FIXED];
    struct poolcuda_map_row map[POOLCUDA_MAX_MAP_ROWS];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct segment_storage) <= POOLCUDA_SHM_MAX_BYTES, "the segment keeps its bound");

enum { SEGMENT_NAME_BYTES = SHM_NAME_BYTES };

uint64_t segment_clock_ns(void); /* CLOCK_MONOTONIC */

/* Fill in all that does not change: who the process is, the sections, the configuration in force. `storage` is zero
 * but for counters. */
void segment_describe(struct segment_storage *storage);

/* Make and map the file for the process of `identity`, zeroed, and write its name (for segment_unlink) to `name`.
 * Removes segments that dead processes of the same user left. NULL when there can be none; the reason has been logged.
 * Call inside a guard. */
struct segment_storage *segment_create(const struct poolcuda_header *identity, char name[SEGMENT_NAME_BYTES]);

void segment_unlink(const char *name);

#endif
