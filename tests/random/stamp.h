/* SPDX-License-Identifier: MIT
 *
 * What a stamped block holds: each byte follows from the stamp and its offset, so that bytes of another block, or of
 * another place, are known as such. Of a large block only samples are written and checked.
 */
#ifndef RANDOM_STAMP_H
#define RANDOM_STAMP_H

#include <stdint.h>

#ifndef STAMP_FUNCTION
#define STAMP_FUNCTION static inline
#endif

enum { STAMP_WHOLE = 512, STAMP_EDGE = 128, STAMP_INNER = 64 };

/* Below 256: as a memset leaves it. */
STAMP_FUNCTION unsigned char stamp_byte(uint32_t stamp, uint64_t offset) {
    if (stamp < 256) return (unsigned char)stamp;
    const uint32_t mixed = (stamp * 2654435761u) ^ (uint32_t)(offset * 40503u);
    return (unsigned char)(mixed >> 13 ^ mixed >> 24);
}

/* How many bytes of a block are looked at, and where the `i`-th of them is: all of a small one; both edges and some
 * between. */
STAMP_FUNCTION uint64_t stamp_samples(uint64_t bytes) {
    return bytes <= STAMP_WHOLE ? bytes : 2 * STAMP_EDGE + STAMP_INNER;
}

STAMP_FUNCTION uint64_t stamp_sample(uint64_t bytes, uint64_t i) {
    if (bytes <= STAMP_WHOLE || i < STAMP_EDGE) return i;
    if (i < 2 * STAMP_EDGE) return bytes - 1 - (i - STAMP_EDGE);
    return STAMP_EDGE + (bytes - 2 * STAMP_EDGE) / (STAMP_INNER + 1) * (i - 2 * STAMP_EDGE + 1);
}

#endif
