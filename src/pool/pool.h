/* SPDX-License-Identifier: MIT
 *
 * The allocator: pools of device memory, one per context and life of it, over one struct device_ops. Knows blocks,
 * streams and fences; calls no CUDA function by name and decides nothing about doors.
 *
 * Results are CUresult-style codes. POOL_PASS means: this call is not the pool's, the driver is to answer it; the
 * reason has been counted (but for an allocation by the runtime door without a context, which comes back). Sizes are
 * bytes, addresses device addresses. All functions may be called from any thread, none with a lock of the caller's that
 * a driver call might need. None changes errno.
 */
#ifndef POOLCUDA_POOL_H
#define POOLCUDA_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "device/device.h"

enum { POOL_PASS = -1 };

enum pool_door { POOL_DOOR_DRIVER, POOL_DOOR_RUNTIME }; /* by which door a call came: for the figures alone */

struct pool_options {
    uint64_t segment_bytes;    /* size of the segments that small requests share; rounded up to 2 MiB */
    uint64_t max_split_bytes;  /* CONFIG_AUTO, CONFIG_NONE, or bytes */
    uint64_t limit_bytes;      /* most that may be reserved per device, CONFIG_NONE: no limit */
    uint64_t headroom_bytes;   /* device memory that growth leaves free */
    uint64_t trim_bytes;       /* cached memory above this is given back after a free, CONFIG_NONE: never */
    uint64_t prealloc_bytes;   /* reserved at the first plain allocation in a device's primary context */
    struct config_fixed fixed; /* likewise: blocks for requests of exactly these sizes, rounded */
    bool async;                /* serve stream-ordered allocations */
    bool free_event;           /* POOL_FREE=event: a free of a plain block does not wait */
    int fill;                  /* CONFIG_FILL_…: what fills blocks, to their end, before they are handed out */

    /* An exported block was freed: from now on nobody can open it. True when nobody has it open any more; its number is
     * not asked about again. Called without a lock; NULL where nothing is exported. */
    bool (*export_over)(uint64_t export);

    /* Called where a call of the pool is slow already, without a lock; it may call what adjust.c has. NULL: nothing. */
    void (*attend)(void);
};

struct pool_system; /* all pools of a process over one device_ops */

/* `ops` must outlive the system. NULL when host memory ran out. */
struct pool_system *pool_system_create(const struct device_ops *ops, const struct pool_options *options);

/* Give every segment back to the device and free all host memory. No other call may be running. For tests; a process
 * never ends with it. */
void pool_system_destroy(struct pool_system *system);

/* Allocate in the calling thread's current context. 0 and *address (a multiple of 512 from its segment's start), filled
 * where `fill` says so; DEVICE_OUT_OF_MEMORY after the whole ladder; the code of a fill that failed; POOL_PASS for size
 * 0, NULL, no current context, a context that is not a primary one or is closed, and while a stream captures. */
int pool_alloc(struct pool_system *system, size_t bytes, enum pool_door door, uint64_t *address);

/* After the driver answered an allocation that was left to it, since a stream captures, that memory had run out: so it
 * permits the call, and a block that is idle may serve it. Answers as pool_alloc. */
int pool_alloc_cached(struct pool_system *system, size_t bytes, enum pool_door door, uint64_t *address);

/* The same in the order of `stream`, in its device's current memory pool: what was freed in the order of that stream
 * before is given out at once, what was freed elsewhere when it is proved idle. Waits for nothing, unless the next step
 * would be DEVICE_OUT_OF_MEMORY. POOL_PASS also for a stream that captures, one that cannot be told from others, one
 * that the driver has to refuse, and where there are no memory pools or POOL_ASYNC=0. */
int pool_alloc_async(struct pool_system *system, size_t bytes, struct device_stream stream, enum pool_door door,
                     uint64_t *address);

/* Free, as cuMemFree and cudaFree. A plain block: waits for its context, then the block is idle, or where other
 * contexts can reach it given out again once a fence has passed; with `free_event` returns at once, and the block waits
 * for a fence. A block of the async kind: returns at once, as the driver does. 0; POOL_PASS when the address lies in
 * none of our segments (0 included); DEVICE_INVALID_VALUE when it lies in one and is no live block;
 * DEVICE_INVALID_CONTEXT when it is ours and the thread has no current context, or what the driver says of a dead one;
 * the code of a failed wait (the block is then retired: never given out again); while a stream captures the driver's
 * refusal of a free (nothing is done). */
int pool_free(struct pool_system *system, uint64_t address, enum pool_door door);

/* Free in the order of `stream`, either kind. Answers as pool_free; or the driver's answer for a stream that is none;
 * the driver's refusal on a stream that captures (a block is no graph allocation), and nothing is done. */
int pool_free_async(struct pool_system *system, uint64_t address, struct device_stream stream, enum pool_door door);

/* A live block, as queries see it. */
struct pool_block_info {
    uint64_t base;
    size_t requested;         /* what the program asked for */
    size_t offset_in_segment; /* 0: the block starts its segment */
    uint64_t id;              /* unique in the process, never reused */
    struct device_context context;
    enum segment_kind kind;
    bool sync_memops; /* the program set SYNC_MEMOPS on it */
    uint64_t export;  /* number of its export by a handle of ours, 0: none */
};

/* The live block that holds `address` (inside its requested size). 0; POOL_PASS when the address lies in none of our
 * segments; DEVICE_NOT_FOUND when it lies in one but in no live block. Counts nothing. */
int pool_find(struct pool_system *system, uint64_t address, struct pool_block_info *info);

/* Set SYNC_MEMOPS on the block that holds `address`, or take it back: the driver does so to a whole segment, so it goes
 * when no block of it asks for it any more, at the latest with the last one's free. The driver's answer;
 * DEVICE_INVALID_VALUE where no live block is; POOL_PASS when the address lies in none of our segments. */
int pool_set_sync_memops(struct pool_system *system, uint64_t address, bool on);

/* The live block that `info` tells of is given to other processes: by the export of this number (1 to 2^40), or with 0
 * by the driver's handle. After its free it is kept from others: until options.export_over says so, or else until its
 * segment goes. The number in force, which is another where the block had one already (UINT64_MAX: the driver's
 * handle); 0 when the block is no more. */
uint64_t pool_note_export(struct pool_system *system, const struct pool_block_info *info, uint64_t export);
/* Is the block at `address` live or kept with this export? */
bool pool_knows_export(struct pool_system *system, uint64_t export, uint64_t address);

/* Bytes that trimming the device would give back, and preallocated ones that no segment uses: what cuMemGetInfo has to
 * add. *of_async (may be NULL): those of the
 * async kind among them. */
uint64_t pool_releasable(struct pool_system *system, int ordinal, uint64_t *of_async);

/* Give wholly free segments of the device back until at most `keep_bytes` stay cached; what was preallocated or is of a
 * fixed size stays. Returns the bytes given back.
 * Blocks. */
uint64_t pool_trim(struct pool_system *system, int ordinal, uint64_t keep_bytes);

/* The same of every device, for a thread that needs no context of its own: so much may stay cached on each. Waits a
 * moment for what the GPUs have just finished with. */
uint64_t pool_trim_all(struct pool_system *system, uint64_t keep_bytes);

/* The most that may be reserved per device from now on (CONFIG_NONE: no limit), for the same threads. Where more is,
 * cached memory is given back, and then what was preallocated; what is in use stays. */
struct pool_limit_change {
    uint64_t before, given_back;
    uint64_t over; /* bytes reserved beyond the limit, on the device where that is most */
};
void pool_set_limit(struct pool_system *system, uint64_t bytes, struct pool_limit_change *change);
uint64_t pool_limit(const struct pool_system *system);

/* The peaks of all figures become the present values. */
void pool_reset_peaks(struct pool_system *system);

/* Another driver call on this device ran out of memory: give back all that can be given back, what was preallocated
 * too. True when anything was,
 * so that a retry makes sense. */
bool pool_relieve(struct pool_system *system, int ordinal);

/* A context is about to be reset, released or destroyed: from now on its calls pass through; returns when no call is
 * inside its pool. `handle` NULL: the primary context of `ordinal`. Then, after the real call, pool_context_settle: a
 * context that still lives is reopened, else its blocks are forgotten and a new generation begins. Calls are paired, by
 * the same thread. */
void pool_context_close(struct pool_system *system, int ordinal, void *handle);
void pool_context_settle(struct pool_system *system, int ordinal, void *handle);

/* A stream is about to be destroyed: what was freed in its order is marked for the last time, and no stream takes its
 * place, whatever handle comes back. May record an event on it. */
void pool_stream_end(struct pool_system *system, void *handle);

/* The same for all streams of a context that ends while their work goes on. */
void pool_context_streams_end(struct pool_system *system, const void *context);

/* All streams of a context are about to end with their work; then, after the real call: whether it is gone. Calls are
 * paired, outside pool_context_close … pool_context_settle. */
void pool_streams_closing(struct pool_system *system, const void *context);
void pool_streams_settled(struct pool_system *system, const void *context, bool gone);

/* The current memory pool of a device was set. */
void pool_memory_pool_set(struct pool_system *system);

/* A memory pool is about to be destroyed: its blocks live on, no more are given out, and when this returns nobody is in
 * the driver with it. What it ended has a number, 0 where there was nothing. Then, after the real call, with the same
 * number: whether it is gone; else it goes on. */
uint64_t pool_memory_pool_ending(struct pool_system *system, const void *memory_pool);
void pool_memory_pool_settled(struct pool_system *system, const void *memory_pool, uint64_t number, bool gone);

/* What the driver counts in a memory pool as in use for our segments, and what the program asked for in them. */
void pool_memory_pool_use(struct pool_system *system, const void *memory_pool, uint64_t *reserved, uint64_t *requested);

/* Give back what is wholly free of the blocks from a memory pool. Returns the bytes given back. */
uint64_t pool_trim_memory_pool(struct pool_system *system, const void *memory_pool, uint64_t keep_bytes);

/* A stream of the process begins to capture / its capture ended. Nested and from any thread; begin is called before the
 * driver's call and taken back by end if that fails. begin records a fence for what was freed before; it waits, for a
 * tenth of a second at most, until no free is waiting for the device and no event is being recorded on one stream, and
 * until no fence is. */
void pool_capture_begin(struct pool_system *system);
void pool_capture_end(struct pool_system *system);

/* Walk every invariant of every pool: NULL when all hold, else a sentence naming the broken one (static storage). Takes
 * the locks; may run beside other calls. */
const char *pool_check(struct pool_system *system);

/* Sums over all pools of a device (−1: all devices), for tests and for comparing with the figures. */
struct pool_totals {
    uint64_t live, requested, reserved, idle, ordered, waiting, retired, exported, releasable, releasable_async,
        largest_free, blocks_live, segments;
};
void pool_totals(struct pool_system *system, int ordinal, struct pool_totals *totals);

#endif
