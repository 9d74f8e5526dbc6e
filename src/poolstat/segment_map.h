/* SPDX-License-Identifier: MIT
 *
 * The rows of the block map, out of a segment that its owner writes to.
 */
#ifndef POOLSTAT_SEGMENT_MAP_H
#define POOLSTAT_SEGMENT_MAP_H

#include "segment.h"

/* Copies bytes of the segment. */
typedef enum segment_result segment_bytes_reader(const void *source, void *to, uint64_t size, uint64_t offset);

/* Sets the map of `segment`, whose header and pools have been read. `source`: for `read`. */
enum segment_result segment_map_read(struct segment *segment, segment_bytes_reader *read, const void *source);

#endif
