/* SPDX-License-Identifier: MIT
 *
 * The layout of the figures that libpoolcuda.so publishes in shared memory: the one public contract of the project,
 * shared by the library (which writes) and by readers such as poolstat (which map it read-only).
 *
 * Where.   One segment per process: /dev/shm/poolcuda-UID-PID-START, mode 0600, where START is the process's start time
 *          in clock ticks after boot (field 22 of /proc/PID/stat). It appears at the process's first CUDA call and is
 *          unlinked at a normal exit; a killed process leaves it behind (compare start time and pid namespace).
 * Shape.   struct poolcuda_header at offset 0; it names the offset, count and stride of each section. Sections may be
 *          added at the end and records may grow inside their stride; a reader uses the header's strides, and refuses
 *          another `version`.
 * Units.   Bytes and nanoseconds; times are CLOCK_MONOTONIC unless the name says otherwise. Numbers are host-endian.
 * Access.  Fields that change are written with relaxed atomic stores, so read them with __atomic_load_n(…, RELAXED) or
 *          from a copy that the sequence has shown to be whole. Readers never lock and never write.
 * Truth.   Counters only grow. `sequence` of a pool record covers that record and all fixed-size pools of that pool,
 * that of a cell the cell: odd while a writer is inside. A copy of a pool (its record, its fixed-size pools, its cells)
 * is consistent when all these numbers were even, and none has changed until all had been copied. Retry for about a
 * millisecond, then use what was read as approximate: with frees read before allocations no difference is negative,
 * and what was allocated and freed between the two seems to be live, but is no more than what the cell holds.
 * Sums.    What a pool holds of one state is the record's figure and what the cells add to it. A cell counts what it
 *          holds by size class, `held_bytes`: the blocks that the program has (alloc_bytes − freed_bytes), those that
 *          wait for a fence (`waiting_bytes`, of all classes together), and the rest, free blocks that are kept whole
 *          for the next request of their size: ordered bytes in the cell of a stream, idle bytes in one of none. In a
 *          consistent copy
 *          reserved = live + idle + ordered + waiting + retired + exported + prealloc_unused + fixed_free.
 * Map.     A row of the block map shows one driver segment as it was found when its blocks were last walked, from
 *          began_ns to refreshed_ns: not at one moment, but each byte of it once, so that its sums never exceed its
 *          size. `sequence` of a row covers the row alone, in the same way. The map has the largest segments of all
 *          pools, and of each pool the largest few; how many a pool has tells its record. An address is in one row at
 *          most.
 */
#ifndef POOLCUDA_STATS_H
#define POOLCUDA_STATS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define POOLCUDA_STATIC_ASSERT static_assert
#else
#define POOLCUDA_STATIC_ASSERT _Static_assert
#endif

#define POOLCUDA_MAGIC "POOLCUDA" /* eight bytes, no terminator */
#define POOLCUDA_LAYOUT_VERSION 2u
#define POOLCUDA_SHM_PREFIX "poolcuda-" /* the file's name below /dev/shm begins so */
#define POOLCUDA_SHM_MAX_BYTES (512u * 1024u)

#define POOLCUDA_MAX_POOLS 32u       /* pool records; what finds no room is not published */
#define POOLCUDA_MAX_CELLS 160u      /* counter cells; likewise */
#define POOLCUDA_MAX_FIXED 128u      /* records of fixed-size pools; likewise */
#define POOLCUDA_MAX_EVENTS 256u     /* ring of events */
#define POOLCUDA_MAX_CONFIG 48u      /* configuration entries */
#define POOLCUDA_MAX_MAP_ROWS 128u   /* segments in the block map */
#define POOLCUDA_MAP_CELLS 64u       /* a segment's parts there, equal but for the rounding: see poolcuda_map_row */
#define POOLCUDA_MAP_PARTS 255u      /* of a cell, in which is told how much of it is in each state */
#define POOLCUDA_SIZE_CLASSES 40u    /* powers of two from 512 bytes: class k holds (256 << k, 512 << k] */
#define POOLCUDA_LATENCY_BUCKETS 32u /* powers of two: bucket k counts [1 << k, 2 << k) ns */
#define POOLCUDA_LATENCY_SAMPLE 64u  /* one call in this many is timed */

/* ---- figures, each declared once: X(name, unit, kind, help) ---------------------------------------------------------
 * unit: BYTES, COUNT, NS. kind: COUNTER (only grows), GAUGE, PEAK (highest value of a gauge), TAG (identity, not a
 * figure). */

/* What one cell has of one size class, by rounded size. */
#define POOLCUDA_CLASS_FIGURES(X)                                                \
    X(allocs, COUNT, COUNTER, "blocks handed to the program")                    \
    X(alloc_bytes, BYTES, COUNTER, "their rounded size")                         \
    X(frees, COUNT, COUNTER, "blocks freed by the program")                      \
    X(freed_bytes, BYTES, COUNTER, "their rounded size")                         \
    X(misses, COUNT, COUNTER, "allocations that took a segment from the driver") \
    X(held_bytes, BYTES, GAUGE, "live, waiting, or kept whole for the next request")

/* What one cell has of all size classes together. */
#define POOLCUDA_CELL_FIGURES(X)                                                                           \
    X(freed_requested_bytes, BYTES, COUNTER, "requested size of the blocks freed")                         \
    X(alloc_requested_bytes, BYTES, COUNTER, "requested size of the blocks handed out")                    \
    X(driver_door, COUNT, COUNTER, "allocations and frees that came by the driver door")                   \
    X(free_waits, COUNT, COUNTER, "frees that waited for the GPU; the pool's `waits` has the other waits") \
    X(waiting_bytes, BYTES, GAUGE, "freed, and waiting for a fence")

/* What readers derive from both, and show of a cell or of a sum of cells: hits = allocs - misses, and runtime_door =
 * allocs + frees - driver_door. */
#define POOLCUDA_CELL_COUNTERS(X)                                                          \
    X(frees, COUNT, COUNTER, "blocks freed by the program")                                \
    X(freed_requested_bytes, BYTES, COUNTER, "requested size of the blocks freed")         \
    X(freed_live_bytes, BYTES, COUNTER, "rounded size of the blocks freed")                \
    X(allocs, COUNT, COUNTER, "blocks handed to the program")                              \
    X(hits, COUNT, COUNTER, "allocations served without a driver allocation")              \
    X(misses, COUNT, COUNTER, "allocations that took a segment from the driver")           \
    X(alloc_requested_bytes, BYTES, COUNTER, "requested size of the blocks handed out")    \
    X(alloc_live_bytes, BYTES, COUNTER, "rounded size of the blocks handed out")           \
    X(runtime_door, COUNT, COUNTER, "allocations and frees that came by the runtime door") \
    X(driver_door, COUNT, COUNTER, "those that came by the driver door")

/* Figures of one pool (one context, one kind of segment). Live and requested are not here: they are derived from the
 * cells; idle, ordered and waiting bytes and waits are without what the cells have of them. The peak of reserved bytes
 * is exact, and so are those of live and requested bytes while one stream or thread at a time allocates and frees.
 * Where several do at once these may be up to a sixteenth too low, since not every step is looked at, or slightly above
 * what was ever live, since the cells are summed while others go on. Those of cached bytes and their parts are noted
 * whenever the pool does more than serve a block that it has kept whole, and at least once in 1,024 frees of a cell. A
 * reader raises a peak to the present value where its copy is consistent. */
#define POOLCUDA_POOL_FIGURES(X)                                                                                   \
    X(reserved_bytes, BYTES, GAUGE, "device memory held from the driver")                                          \
    X(idle_bytes, BYTES, GAUGE, "cached: the GPU has finished with it")                                            \
    X(ordered_bytes, BYTES, GAUGE, "cached: free in the order of one stream")                                      \
    X(waiting_bytes, BYTES, GAUGE, "cached: waiting for a fence")                                                  \
    X(retired_bytes, BYTES, GAUGE, "never given out again, since waiting for its work failed")                     \
    X(largest_free_bytes, BYTES, GAUGE, "largest free block")                                                      \
    X(releasable_bytes, BYTES, GAUGE, "bytes of wholly free segments")                                             \
    X(segments, COUNT, GAUGE, "segments held")                                                                     \
    X(free_blocks, COUNT, GAUGE, "free blocks that may be split and merged")                                       \
    X(peak_requested_bytes, BYTES, PEAK,                                                                           \
      "highest requested bytes; up to 1/16 too low, or slightly too high, if several streams or threads allocate") \
    X(peak_live_bytes, BYTES, PEAK,                                                                                \
      "highest live bytes; up to 1/16 too low, or slightly too high, if several streams or threads allocate")      \
    X(peak_reserved_bytes, BYTES, PEAK, "highest reserved bytes")                                                  \
    X(peak_cached_bytes, BYTES, PEAK, "highest cached bytes; noted once in 1,024 frees at least")                  \
    X(peak_idle_bytes, BYTES, PEAK, "highest idle bytes; noted once in 1,024 frees at least")                      \
    X(peak_ordered_bytes, BYTES, PEAK, "highest ordered bytes; noted once in 1,024 frees at least")                \
    X(peak_waiting_bytes, BYTES, PEAK, "highest waiting bytes; noted once in 1,024 frees at least")                \
    X(segment_allocs, COUNT, COUNTER, "segments taken from the driver")                                            \
    X(segment_alloc_bytes, BYTES, COUNTER, "bytes taken from the driver")                                          \
    X(segment_releases, COUNT, COUNTER, "segments given back to the driver")                                       \
    X(segment_release_bytes, BYTES, COUNTER, "bytes given back to the driver")                                     \
    X(fences, COUNT, COUNTER, "fences recorded")                                                                   \
    X(waits, COUNT, COUNTER, "times a call waited for the GPU")                                                    \
    X(trims, COUNT, COUNTER, "times cached memory was given back by a limit, headroom or request")                 \
    X(oom_retries, COUNT, COUNTER,                                                                                 \
      "times memory had run out, cached memory was given back and the driver asked again")                         \
    X(oom_failures, COUNT, COUNTER, "allocations that failed for lack of memory")                                  \
    X(driver_ns, NS, COUNTER, "time spent in the driver by the pool; waits in frees are estimated from one in 64") \
    X(miss_fences, COUNT, COUNTER, "fences recorded because an allocation would have taken a segment")             \
    X(stream_marks, COUNT, COUNTER, "events recorded on single streams, for what was freed in their order")        \
    X(proved_blocks, COUNT, COUNTER, "blocks that a fence, an event or a wait proved idle")                        \
    X(exported_bytes, BYTES, GAUGE, "freed, but kept: other processes have it open, or may have")                  \
    X(growths, COUNT, COUNTER, "segments taken from the driver after the first allocation")                        \
    X(growth_ns, NS, COUNTER, "time that this took")                                                               \
    X(prealloc_bytes, BYTES, GAUGE, "reserved by POOL_PREALLOC_MB")                                                \
    X(prealloc_unused_bytes, BYTES, GAUGE, "of them, in no segment yet, or any more")                              \
    X(fixed_free_bytes, BYTES, GAUGE, "free in fixed-size pools: for requests of exactly their size")              \
    X(splits, COUNT, COUNTER, "free blocks split")                                                                 \
    X(merges, COUNT, COUNTER, "free neighbours merged")                                                            \
    X(bad_frees, COUNT, COUNTER, "frees refused: an address inside a segment that is no live block")

/* Figures of one fixed-size pool (POOL_FIXED). Its free blocks are no part of what the pool's record calls cached, idle
 * or free; one that waits for a fence, or is kept for other processes, counts there as any other. So at rest
 * reserved = live + idle + ordered + waiting + retired + exported + prealloc_unused + fixed_free. */
#define POOLCUDA_FIXED_FIGURES(X)                                                                                  \
    X(size_bytes, BYTES, TAG, "size of its blocks: requests that are rounded up to it are its own")                \
    X(asked_blocks, COUNT, TAG, "blocks that POOL_FIXED asks for")                                                 \
    X(blocks, COUNT, GAUGE, "blocks that the driver gave")                                                         \
    X(in_use, COUNT, GAUGE, "blocks that the program holds, or that were freed and cannot be given out again yet") \
    X(peak_in_use, COUNT, PEAK, "highest in_use")                                                                  \
    X(hits, COUNT, COUNTER, "requests of its size that it served")                                                 \
    X(misses, COUNT, COUNTER, "requests of its size that found no free block: served by the ordinary pool")

/* What a byte of a segment is, in the block map; what is in none of these states was preallocated and is unused. */
#define POOLCUDA_MAP_STATES(X)                                                            \
    X(live, BYTES, GAUGE, "the program's")                                                \
    X(idle, BYTES, GAUGE, "free: the GPU has finished with it")                           \
    X(ordered, BYTES, GAUGE, "free in the order of one stream")                           \
    X(waiting, BYTES, GAUGE, "freed, and waiting for a fence")                            \
    X(fixed, BYTES, GAUGE, "free in a fixed-size pool: for requests of exactly its size") \
    X(kept, BYTES, GAUGE, "never given out again, or kept since other processes may have it open")

/* Why a call went to the driver untouched: X(name, help). Process-wide counters, in this order. */
#define POOLCUDA_PASS_REASONS(X)                                          \
    X(disabled, "POOL_ENABLE=0")                                          \
    X(forked, "a forked child")                                           \
    X(no_context, "no current context, or a destroyed one")               \
    X(created_context, "a context that the program created itself")       \
    X(closed_context, "a context that is being reset or released")        \
    X(capture, "a stream capture is running")                             \
    X(async, "stream-ordered allocation left to the driver")              \
    X(zero_or_null, "size 0 or a NULL argument: the driver's own answer") \
    X(foreign, "a free of memory that is not the pool's")                 \
    X(tool, "compute-sanitizer is loaded")                                \
    X(no_host_memory, "host memory ran out")                              \
    X(no_driver, "a needed entry point is missing below")

/* Events of the ring: X(name, help). */
#define POOLCUDA_EVENT_TYPES(X)                                                                       \
    X(growth, "a segment was taken from the driver")                                                  \
    X(release, "a segment was given back to the driver")                                              \
    X(trim, "cached memory was given back")                                                           \
    X(oom_retry, "the driver was out of memory; cached memory was given back and it was asked again") \
    X(oom, "an allocation failed for lack of memory")                                                 \
    X(fallback, "something could not be pooled and was left to the driver")                           \
    X(reset, "a context was reset, released or destroyed")                                            \
    X(bad_free, "a free of an address that is no live block was refused")

#define POOLCUDA_ENUM_PASS(name, help) POOLCUDA_PASS_##name,
enum poolcuda_pass_reason { POOLCUDA_PASS_REASONS(POOLCUDA_ENUM_PASS) POOLCUDA_PASS_COUNT };
#undef POOLCUDA_ENUM_PASS

#define POOLCUDA_ENUM_EVENT(name, help) POOLCUDA_EVENT_##name,
enum poolcuda_event_type { POOLCUDA_EVENT_none, POOLCUDA_EVENT_TYPES(POOLCUDA_ENUM_EVENT) POOLCUDA_EVENT_COUNT };
#undef POOLCUDA_ENUM_EVENT

/* Ids of streams, unique in the process: with none of the upper bits, a created stream, by our own number. `context`
 * numbers the contexts as they came to be known. */
#define POOLCUDA_STREAM_LEGACY (UINT64_C(1) << 61)     /* + context: the legacy default stream */
#define POOLCUDA_STREAM_PER_THREAD (UINT64_C(1) << 62) /* + thread << 24 + context (24 bits of it): a thread's own */
#define POOLCUDA_STREAM_DRIVER (UINT64_C(1) << 63)     /* + the number that cuStreamGetId tells */
#define POOLCUDA_STREAM_THREAD_SHIFT 24

enum poolcuda_kind { POOLCUDA_KIND_PLAIN = 1, POOLCUDA_KIND_ASYNC = 2 }; /* of segments, never mixed */

/* What a segment of the block map is for. */
enum poolcuda_map_kind {
    POOLCUDA_MAP_ORDINARY = 0,
    POOLCUDA_MAP_PREALLOCATED = 1, /* POOL_PREALLOC_MB */
    POOLCUDA_MAP_FIXED = 2         /* POOL_FIXED */
};

enum poolcuda_state { POOLCUDA_STARTING = 0, POOLCUDA_RUNNING = 1, POOLCUDA_ENDED = 2 }; /* of the process */

enum poolcuda_pool_state { POOLCUDA_POOL_UNUSED = 0, POOLCUDA_POOL_OPEN = 1, POOLCUDA_POOL_GONE = 2 };

/* Why a request could not be met, in an out-of-memory event. */
enum poolcuda_oom_reason {
    POOLCUDA_OOM_NONE = 0,
    POOLCUDA_OOM_DRIVER = 1, /* the driver had no more */
    POOLCUDA_OOM_LIMIT = 2   /* POOL_LIMIT_MB */
};

/* ---- records ------------------------------------------------------------------------------------------------------
 */

#define POOLCUDA_FIELD(name, unit, kind, help) uint64_t name;

struct poolcuda_section {
    uint32_t offset; /* bytes from the segment's start, a multiple of 64 */
    uint32_t count;
    uint32_t stride; /* bytes from one record to the next, a multiple of 64 */
    uint32_t end;    /* of cells, changes: no record from this one on was ever in use; 0: not told, as of all others */
};

/* One per segment, at offset 0. Written once before `state` leaves STARTING, except where a comment says otherwise. */
struct poolcuda_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes; /* sizeof(struct poolcuda_header) of the writer */
    uint64_t total_bytes;  /* size of the whole segment */
    uint32_t pid;          /* in the owner's pid namespace */
    uint32_t uid;
    uint64_t start_ticks;   /* process start, clock ticks after boot (/proc/PID/stat, field 22) */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid, 0 when unknown */
    uint64_t created_ns;
    uint64_t created_unix_ns;
    uint64_t heartbeat_ns; /* changes: the last time that the library did anything slow, or one call in 64 */
    uint64_t ended_ns;     /* changes: 0 until the process ended normally */
    uint64_t
        in_driver_since_ns;  /* changes: start of the pool's driver call in progress (the latest one), 0 when none */
    uint32_t state;          /* changes: enum poolcuda_state */
    uint32_t driver_version; /* changes: as cuDriverGetVersion gives it, 0 when unknown */
    uint32_t runtime_only;   /* changes: 1 when no driver lies beneath the runtime */
    uint32_t event_next;     /* changes: number of events ever written; the newest is (event_next − 1) mod count */
    char library_version[24];
    char command[64]; /* base name of the executable, terminated */
    struct poolcuda_section config, pools, cells, events;
    uint64_t pass_through[32];     /* changes: counters by enum poolcuda_pass_reason */
    uint64_t proc_address_lookups; /* changes: counter of cuGetProcAddress calls seen */
    uint64_t symbols_hooked;       /* changes: counter of look-ups answered with a hook (dlsym and cuGetProcAddress) */
    struct poolcuda_section fixed; /* count 0 in segments of a writer that did not know it */
    struct poolcuda_section map;   /* likewise */
    uint64_t reserved[10];
};

struct poolcuda_config_entry {
    char name[32];             /* as in the environment, terminated */
    char value[88];            /* the value at the start, as text with its unit, terminated */
    uint32_t from_environment; /* 1: set by the user, 0: default */
    uint32_t reserved;
};

struct poolcuda_size_class {
    POOLCUDA_CLASS_FIGURES(POOLCUDA_FIELD)
};

struct poolcuda_pool {
    uint64_t sequence;           /* changes; see Truth above */
    uint32_t state;              /* enum poolcuda_pool_state */
    uint32_t kind;               /* enum poolcuda_kind */
    uint64_t context;            /* handle of the context, of the async kind that of the memory pool: opaque numbers */
    uint64_t generation;         /* 1, 2, … for each life of a handle; unique in the process */
    int32_t device;              /* ordinal in the process, −1 when unknown */
    uint32_t limited;            /* 1 when `limit_bytes` is in force */
    uint64_t limit_bytes;        /* POOL_LIMIT_MB, or what was set since (control.h) */
    uint64_t device_total_bytes; /* 0 when unknown */
    uint64_t max_split_bytes;    /* blocks above this are never split, UINT64_MAX when unlimited */
    uint8_t uuid[16];            /* zero when unknown */
    char pci[16];                /* "0000:17:00.0", empty when unknown */
    POOLCUDA_POOL_FIGURES(POOLCUDA_FIELD)
    uint64_t class_cached_bytes[POOLCUDA_SIZE_CLASSES]; /* gauges: free blocks whose size is in the class, without those
                                                           that cells hold */
    uint64_t hit_ns[POOLCUDA_LATENCY_BUCKETS];          /* sampled; written at any time, not under the sequence */
    uint64_t miss_ns[POOLCUDA_LATENCY_BUCKETS];         /* every one */
    uint64_t reserved[22];
};

/* What a pool counts for one stream, or for some of the threads that use memory of no stream (plain memory). Summed
 * over a pool's cells by the reader. A writer's own: no two share a line of it. */
struct poolcuda_cell {
    uint32_t pool; /* index of its pool record + 1; 0: unused */
    uint32_t reserved0;
    uint64_t sequence; /* changes; see Truth above */
    POOLCUDA_CELL_FIGURES(POOLCUDA_FIELD)
    uint64_t stream; /* the stream's id; 0 for what belongs to no stream, and for streams that found no cell */
    uint64_t thread; /* among several cells of no stream, which: 0, 1, … */
    uint64_t reserved[7];
    struct poolcuda_size_class classes[POOLCUDA_SIZE_CLASSES];
};

/* One fixed-size pool of a pool. */
struct poolcuda_fixed {
    uint32_t pool; /* index of its pool record + 1; 0: unused */
    uint32_t reserved0;
    POOLCUDA_FIXED_FIGURES(POOLCUDA_FIELD)
};

#define POOLCUDA_MAP_PART(name, unit, kind, help) uint8_t name;
#define POOLCUDA_MAP_BYTES(name, unit, kind, help) uint64_t name##_bytes;

/* A part of a segment: how much of it is in each state, in POOLCUDA_MAP_PARTS of the cell. Together they are no more
 * than that; a state of which there is anything has one part at least. */
struct poolcuda_map_cell {
    POOLCUDA_MAP_STATES(POOLCUDA_MAP_PART)
    uint8_t size_class; /* 1 + that of the block which most of the cell belongs to; 0: none */
    uint8_t blocks;     /* that begin in it, 255: so many or more */
};

/* One segment. Its cell i is from place(i) to place(i + 1) behind `address`, where place(i) is size / cells * i +
 * size % cells * i / cells, and cells is POOLCUDA_MAP_CELLS. */
struct poolcuda_map_row {
    uint32_t pool;     /* index of its pool record + 1; 0: unused */
    uint32_t kind;     /* enum poolcuda_map_kind */
    uint64_t sequence; /* changes; see Map above */
    uint64_t address;
    uint64_t size_bytes;
    uint64_t began_ns, refreshed_ns; /* when the first and the last of its blocks were looked at */
    POOLCUDA_MAP_STATES(POOLCUDA_MAP_BYTES)
    uint64_t largest_free_bytes;       /* largest block that is idle or ordered */
    uint32_t live_blocks, free_blocks; /* the latter: idle, ordered, waiting, or free in a fixed-size pool */
    uint64_t reserved[2];
    struct poolcuda_map_cell cells[POOLCUDA_MAP_CELLS];
};

#undef POOLCUDA_MAP_PART
#undef POOLCUDA_MAP_BYTES

struct poolcuda_event {
    uint64_t sequence; /* number of the event, from 1; written last, 0 while the record is being written */
    uint64_t time_ns;
    uint32_t type; /* enum poolcuda_event_type */
    int32_t device;
    uint32_t pool;            /* index of its pool record + 1, 0 when none */
    uint32_t reason;          /* enum poolcuda_oom_reason, or the driver's result code in a fallback */
    uint64_t requested_bytes; /* what was asked: the block (oom), the segment (growth, release), given back (trim) */
    uint64_t live_bytes, cached_bytes, largest_free_bytes;
    uint64_t device_free_bytes; /* UINT64_MAX when not asked */
    uint32_t fragmentation_ppm; /* external fragmentation of idle and ordered memory, parts per million */
    uint32_t kind;              /* enum poolcuda_kind of the pool, 0 when there is none */
    uint64_t address;           /* what was freed (bad_free), else 0 */
    uint64_t reserved[5];
};

#undef POOLCUDA_FIELD

POOLCUDA_STATIC_ASSERT(sizeof(struct poolcuda_header) % 64 == 0, "the header fills cache lines");
POOLCUDA_STATIC_ASSERT(sizeof(struct poolcuda_config_entry) == 128, "a configuration entry is 128 bytes");
POOLCUDA_STATIC_ASSERT(offsetof(struct poolcuda_cell, classes) == 128, "the sums of a cell fill two cache lines");
POOLCUDA_STATIC_ASSERT(sizeof(struct poolcuda_pool) % 64 == 0, "pool records share no cache line");
POOLCUDA_STATIC_ASSERT(sizeof(struct poolcuda_cell) % 64 == 0, "cells share no cache line");
POOLCUDA_STATIC_ASSERT(sizeof(struct poolcuda_fixed) == 64, "a fixed-size pool is a cache line");
POOLCUDA_STATIC_ASSERT(sizeof(struct poolcuda_map_cell) == 8, "a cell of the map is one word");
POOLCUDA_STATIC_ASSERT(offsetof(struct poolcuda_map_row, cells) == 128, "the sums of a row fill two cache lines");
POOLCUDA_STATIC_ASSERT(sizeof(struct poolcuda_map_row) % 64 == 0, "rows of the map share no cache line");
POOLCUDA_STATIC_ASSERT(sizeof(struct poolcuda_event) == 128, "an event is 128 bytes");
POOLCUDA_STATIC_ASSERT(POOLCUDA_PASS_COUNT <= 32, "reasons fit the header's table");

#ifdef __cplusplus
}
#endif

#endif
