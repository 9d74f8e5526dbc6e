/* SPDX-License-Identifier: MIT
 *
 * A copy of one process's segment of figures, checked, in memory of our own. It is read with pread and never mapped:
 * the owner may cut it short at any moment, and a mapping would then kill the reader.
 */
#ifndef POOLSTAT_SEGMENT_H
#define POOLSTAT_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "poolcuda/stats.h"

/* One open pool with its cells and fixed-size pools. */
struct segment_pool {
    uint32_t number; /* index of its record + 1, as events name it */
    struct poolcuda_pool record;
    struct poolcuda_cell *cells;
    size_t cell_count;
    struct poolcuda_fixed *fixed;
    size_t fixed_count;
    bool map_approximate; /* a row of it was written to all the time, or was left out since it did not add up */
    bool approximate;     /* no consistent copy was had in time, or its figures do not add up */
};

struct segment {
    struct poolcuda_header header;
    struct poolcuda_config_entry *config; /* those with a name; strings terminated, but not safe to print */
    size_t config_count;
    struct segment_pool *pools;
    size_t pool_count;
    struct poolcuda_event *events; /* whole ones, oldest first */
    size_t event_count;
    struct poolcuda_map_row *map; /* of all pools, by pool and address; each adds up */
    size_t map_count;
    uint64_t read_ns; /* CLOCK_MONOTONIC, when the copy was complete */
};

enum segment_result {
    SEGMENT_READ,
    SEGMENT_STARTING, /* its owner is still making it */
    SEGMENT_DAMAGED,
    SEGMENT_FAILED /* reading answered an error */
};

#define SEGMENT_WHY_SIZE 160u

/* Copy the segment behind `fd`. On SEGMENT_READ *out is the caller's, else *out is NULL and `why` says what is wrong in
 * words that follow "the segment ". Takes a few milliseconds at most. */
enum segment_result segment_read(int fd, struct segment **out, char why[SEGMENT_WHY_SIZE]);
/* The same, with the pools that are gone and whose figures are still there: those of contexts that the program ended.
 */
enum segment_result segment_read_whole(int fd, struct segment **out, char why[SEGMENT_WHY_SIZE]);
void segment_free(struct segment *segment);

/* Of the header alone: may it be used as the layout says? Also SEGMENT_STARTING. `file_bytes`: size of the file. */
enum segment_result segment_check_header(const struct poolcuda_header *header, uint64_t file_bytes,
                                         char why[SEGMENT_WHY_SIZE]);

#endif
