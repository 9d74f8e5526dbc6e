/* SPDX-License-Identifier: MIT
 *
 * How large: rounding, which free blocks a request may take, when a block is split, how much is taken from the driver
 * at once. Pure functions.
 *
 * One pool serves all sizes. Small live blocks must not strand large segments: so small requests keep to segments of
 * the ordinary size, and requests above `max_split` to blocks of their own size, as long as there is room for that. On
 * its own that bound follows the device's memory, since what hurts is a segment that is a large part of it; below the
 * ordinary size it would leave segments that are never split. A segment is made to hold a whole number of a repeated
 * size.
 */
#include "pool/internal.h"

#define CROWDED_SHARE 4            /* less than this part of the memory left is little */
#define SMALL_SHARE 64             /* requests below this part of an ordinary segment are small */
#define LARGE_SLACK GRANULE        /* a request above max_split takes a block at most this much larger */
#define SAVING_SHARE 8             /* where calls of the driver are saved also by this part of its own size */
#define MULTIPLE_LIMIT (128 * MIB) /* largest segment made to hold several blocks of one size */
#define GROWTH_LIMIT (64 * MIB)    /* largest segment taken only because the pool is already large */

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static uint64_t max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

size_t policy_round(size_t bytes) {
    return bytes > SIZE_MAX - GRANULE ? 0 : round_up(bytes, UNIT);
}

size_t policy_exact_segment(size_t size) {
    return round_up(size, GRANULE);
}

uint64_t policy_max_split(const struct pool_options *options, uint64_t device_total) {
    if (options->max_split_bytes == CONFIG_NONE) return UINT64_MAX;
    if (options->max_split_bytes != CONFIG_AUTO) return options->max_split_bytes;
    uint64_t limit = options->limit_bytes;
    if (device_total) limit = min_u64(limit, device_total);
    if (limit == CONFIG_NONE) return UINT64_MAX;
    return max_u64(options->segment_bytes, limit / 24);
}

uint64_t policy_crowded_above(const struct pool_options *options, uint64_t device_total) {
    uint64_t limit = options->limit_bytes;
    if (device_total) limit = min_u64(limit, device_total);
    return limit == CONFIG_NONE ? UINT64_MAX : limit - limit / CROWDED_SHARE;
}

bool policy_is_small(size_t size, const struct pool_options *options) {
    return size < options->segment_bytes / SMALL_SHARE;
}

struct fit_bounds policy_fit(size_t size, uint64_t max_split, bool saves, const struct pool_options *options) {
    struct fit_bounds most = {SIZE_MAX, SIZE_MAX};
    if (size <= max_split)
        most.block = (size_t)max_u64(max_split, policy_exact_segment(size));
    else if (size <= SIZE_MAX / 2)
        most.block = saves ? size + size / SAVING_SHARE + LARGE_SLACK : size + LARGE_SLACK;
    if (policy_is_small(size, options)) most.segment = (size_t)options->segment_bytes;
    return most;
}

bool policy_split(size_t block_size, size_t size, uint64_t max_split) {
    size_t rest = block_size - size;
    return block_size <= max_split && rest >= UNIT && rest >= size / 16;
}

__extension__ typedef unsigned __int128 wide;

/* The smallest multiple of `size` that wastes at most 1 % of its segment, or the best one below `limit`. */
static size_t multiple_segment(size_t size, size_t least, uint64_t limit) {
    size_t best = least;
    size_t best_waste = least % size;
    for (size_t k = 1; k * size <= limit && best_waste * 100 > best; k++) {
        size_t bytes = round_up(k * size, GRANULE);
        if (bytes < least) continue;
        size_t waste = bytes % size;
        /* waste / bytes < best_waste / best; not in floating point, whose exceptions are the program's to look at */
        if ((wide)waste * best < (wide)best_waste * bytes) {
            best = bytes;
            best_waste = waste;
        }
    }
    return best;
}

size_t policy_segment(size_t size, uint64_t reserved, uint64_t max_split, const struct pool_options *options) {
    size_t exact = policy_exact_segment(size);
    if (size > max_split) return exact;
    size_t bytes = exact;
    if (size < options->segment_bytes / 2 && bytes < options->segment_bytes) bytes = (size_t)options->segment_bytes;
    if (size >= MIB) bytes = multiple_segment(size, bytes, min_u64(MULTIPLE_LIMIT, reserved / 24));
    if (!policy_is_small(size, options))
        bytes = (size_t)max_u64(bytes, min_u64(reserved / 64, GROWTH_LIMIT) / GRANULE * GRANULE);
    /* A fresh segment is one block, and one above max_split would never be split. */
    uint64_t bound = max_split / GRANULE * GRANULE;
    if (bytes > bound) bytes = (size_t)max_u64(exact, bound);
    return bytes;
}
