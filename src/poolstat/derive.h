/* SPDX-License-Identifier: MIT
 *
 * What follows from the figures of a segment: what a pool's record and its cells say together, and the measures that
 * people ask for. Nothing here is negative, and a ratio without a base is unknown (NaN).
 */
#ifndef POOLSTAT_DERIVE_H
#define POOLSTAT_DERIVE_H

#include "segment.h"

/* X(name, unit, help); unit: BYTES or RATIO (0 to 1). */
#define DERIVE_MEASURES(X)                                                                                     \
    X(live_bytes, BYTES, "rounded size of the blocks that the program holds")                                  \
    X(requested_bytes, BYTES, "what the program asked for in these blocks")                                    \
    X(cached_bytes, BYTES, "free and kept for reuse: idle + ordered + waiting")                                \
    X(stranded_bytes, BYTES, "cached bytes in segments with a block that is live, or not known to be idle")    \
    X(hit_rate, RATIO, "hits / allocs; unknown without allocations")                                           \
    X(utilisation, RATIO, "live / reserved; unknown when nothing is reserved")                                 \
    X(peak_utilisation, RATIO, "peak live / peak reserved")                                                    \
    X(external_fragmentation, RATIO, "1 - largest free block / idle and ordered bytes; 0 when there are none") \
    X(internal_fragmentation, RATIO, "1 - requested / live; unknown when nothing is live")

#define DERIVE_STUCK_NS UINT64_C(10000000000)

#define DERIVE_TYPE_BYTES uint64_t
#define DERIVE_TYPE_RATIO double
#define DERIVE_FIELD(name, unit, help) DERIVE_TYPE_##unit name;
struct measures {
    DERIVE_MEASURES(DERIVE_FIELD)
};
#undef DERIVE_FIELD

#define DERIVE_FIELD(name, unit, kind, help) uint64_t name;
struct counters {
    POOLCUDA_CELL_COUNTERS(DERIVE_FIELD)
};
#undef DERIVE_FIELD

/* All cells of one stream in one pool, or of no stream. */
struct stream_sum {
    uint64_t stream;
    struct counters counters;
};

/* What a pool has of one size class. */
struct class_sum {
    uint64_t live_bytes, cached_bytes, allocs, frees, hits;
};

/* What POOL_PREALLOC_MB, with these bytes, would have saved a pool: growth after its first allocation. */
struct advice {
    uint64_t prealloc_bytes; /* whole MiB */
    uint64_t driver_calls, driver_ns;
};

/* All pools of one process on one device together. */
struct device_sum {
    int32_t device;                       /* ordinal in the process, negative when unknown */
    const struct poolcuda_pool *identity; /* a record that names the device; the segment's. NULL in a sum of several */
    size_t pools;
    struct counters counters;
    /* Sums; of largest_free_bytes the largest; the peaks were perhaps not reached at one time, so their sum is an upper
     * bound. */
    struct poolcuda_pool figures; /* as by derive_figures; only the POOLCUDA_POOL_FIGURES are set */
    struct measures measures;
    bool approximate;
};

uint64_t derive_difference(uint64_t a, uint64_t b); /* a − b, 0 when that were negative */
double derive_ratio(uint64_t part, uint64_t whole); /* within 0 to 1; NaN when whole is 0 */

/* From `time_ns` to the copy; UINT64_MAX (unknown) when the time is 0 or lies after it. */
uint64_t derive_age(const struct segment *segment, uint64_t time_ns);
uint64_t derive_snapshot_age(const struct segment *segment); /* from the copy to now */
/* The pool has been inside one driver call for over DERIVE_STUCK_NS. */
bool derive_is_stuck(const struct segment *segment);
bool derive_is_approximate(const struct segment *segment); /* some pool's figures are */

/* Bounds of a size class (its largest size) and of a latency bucket; UINT64_MAX for those without a bound. */
uint64_t derive_class_bytes(unsigned class);
uint64_t derive_bucket_start(unsigned bucket);
uint64_t derive_bucket_end(unsigned bucket);

/* The record with what its cells add to it, and, unless the copy is approximate, no peak below the present value. */
void derive_figures(const struct segment_pool *pool, struct poolcuda_pool *figures);
void derive_counters(const struct segment_pool *pool, struct counters *sum);
/* `figures`: as by derive_figures. */
void derive_measures(const struct poolcuda_pool *figures, const struct counters *counters, struct measures *measures);

/* False when the class was never used. */
bool derive_class(const struct segment_pool *pool, unsigned class, struct class_sum *total);

/* One for each stream: none, the legacy ones, those of threads, the created ones in their order, the rest. The caller
 * frees *sums. */
size_t derive_streams(const struct segment_pool *pool, struct stream_sum **sums);

/* False when it would have saved nothing. */
bool derive_advice(const struct segment_pool *pool, struct advice *advice);

/* One for each device, by ordinal. The caller frees *sums. */
size_t derive_devices(const struct segment *segment, struct device_sum **sums);

/* All of them together; of none, zero. Names a device only when there is one. */
void derive_total(const struct device_sum *sums, size_t count, struct device_sum *total);

#endif
