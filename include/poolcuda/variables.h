/* SPDX-License-Identifier: MIT
 *
 * The POOL_* environment variables, each declared once: names, defaults, accepted values and help. The library parses
 * them from this table; poolstat and the manual print it.
 */
#ifndef POOLCUDA_VARIABLES_H
#define POOLCUDA_VARIABLES_H

#include <stdint.h>

/* Values that are no number. Users may write both words: "none" and "auto" (decided from the device). */
#define POOLCUDA_VALUE_NONE UINT64_MAX
#define POOLCUDA_VALUE_AUTO (UINT64_MAX - 1)

/* X(NAME, field, kind, default, low, high, range text, help). kind: FLAG (0 or 1), SIZE_MB (whole MiB, kept in bytes),
 * LEVEL (small number), WORD (one of the words in the range text, kept as its index), PATH (text, kept as a pointer
 * into the reader's own copy), FIXED (sizes with a number of blocks each, kept as a list). */
#define POOLCUDA_VARIABLES(X)                                                                                         \
    X(POOL_ENABLE, enable, FLAG, 1, 0, 1, "0 or 1", "0: pass every call through to the driver")                       \
    X(POOL_FREE, free_mode, WORD, 0, 0, 0, "sync or event",                                                           \
      "what cudaFree waits for: sync: the device, as the driver does; event: nothing, its memory is given out again " \
      "when the GPU has finished with it")                                                                            \
    X(POOL_ASYNC, async, FLAG, 1, 0, 1, "0 or 1", "0: leave cudaMallocAsync to the driver")                           \
    X(POOL_MAX_SPLIT_MB, max_split, SIZE_MB, POOLCUDA_VALUE_AUTO, 2, 1u << 24, "auto, none, or 2 to 16777216",        \
      "blocks above this are never split, and larger requests get a segment of their own")                            \
    X(POOL_SEGMENT_MB, segment, SIZE_MB, 16, 2, 1u << 20, "2 to 1048576",                                             \
      "size of the segments that requests below half of it share; at most POOL_MAX_SPLIT_MB")                         \
    X(POOL_PREALLOC_MB, prealloc, SIZE_MB, 0, 0, 1u << 24, "0 to 16777216",                                           \
      "memory for cudaMalloc that is reserved at the first allocation on each device, so that a service does not "    \
      "grow while it runs; as much of it as the limit and the headroom leave")                                        \
    X(POOL_FIXED, fixed, FIXED, POOLCUDA_VALUE_NONE, 0, 0,                                                            \
      "none, or up to 16 different SIZE*COUNT with B, KiB, MiB or GiB, as 64MiB*32,1MiB*256",                         \
      "blocks for cudaMalloc that are reserved likewise: requests of exactly that size are served from them first")   \
    X(POOL_CONTROL, control, FLAG, 0, 0, 1, "0 or 1",                                                                 \
      "1: accept `poolstat ctl`: others of the same user may have memory given back, change the limit and reset "     \
      "peaks; costs a thread that sleeps")                                                                            \
    X(POOL_LIMIT_MB, limit, SIZE_MB, POOLCUDA_VALUE_NONE, 2, 1u << 24, "none, or 2 to 16777216",                      \
      "most that may be reserved per device")                                                                         \
    X(POOL_HEADROOM_MB, headroom, SIZE_MB, 256, 0, 1u << 24, "0 to 16777216",                                         \
      "device memory that cached memory and growth leave free")                                                       \
    X(POOL_TRIM_MB, trim, SIZE_MB, POOLCUDA_VALUE_NONE, 0, 1u << 24, "none, or 0 to 16777216",                        \
      "cached memory above this is given back")                                                                       \
    X(POOL_FILL, fill, WORD, 0, 0, 0, "none, zero or poison",                                                         \
      "fill each block before it is handed out, to find programs that read what they never wrote: zero, or poison: "  \
      "bytes 0xFF, which as floating point are NaN; every allocation then waits for that")                            \
    X(POOL_STATS, stats, FLAG, 1, 0, 1, "0 or 1", "0: publish no figures")                                            \
    X(POOL_TRACE, trace, PATH, 0, 0, 0, "a path; %p is replaced by the process id",                                   \
      "file that records every allocation and free (default: none)")                                                  \
    X(POOL_LOG, log_level, LEVEL, 0, 0, 3, "0 to 3", "0 silent, 1 warnings, 2 events, 3 everything")                  \
    X(POOL_LOG_FILE, log_file, PATH, 0, 0, 0, "a path; %p is replaced by the process id",                             \
      "where the log goes (default: stderr)")

#endif
