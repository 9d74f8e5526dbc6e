/* SPDX-License-Identifier: MIT
 *
 * POOL_TRACE: every allocation and free of the process goes into a file (poolcuda/trace.h). Each thread fills a block
 * of its own without a lock or a system call; a block that is full, or has been open for about a second when the next
 * record comes, is written out. So a process that is killed loses the last block of each thread. A file that cannot be
 * written costs one warning on the log; the program goes on without a trace.
 *
 * A forked child, and a program that another one became (exec), begin a file of their own. A file that exists is never
 * written over.
 *
 * None of these changes errno; all may be called by any thread. No lock of the caller's that a system call might need
 * is held, but for trace_time.
 */
#ifndef POOLCUDA_TRACE_TRACE_H
#define POOLCUDA_TRACE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "poolcuda/trace.h"
#include "trace/counter.h"

/* What is recorded of a call. */
struct trace_call {
    uint64_t time; /* trace_time */
    uint64_t address, size, number, stream;
    uint64_t where; /* trace_where */
    uint16_t code;
    uint8_t operation; /* enum poolcuda_trace_operation */
    uint8_t served;    /* enum poolcuda_trace_served */
    bool runtime_door;
};

/* The bits of a struct poolcuda_trace_where: made and compared as one. */
static inline uint64_t trace_where(int device, enum poolcuda_trace_memory memory,
                                   enum poolcuda_trace_stream_kind stream_kind) {
    return (uint32_t)device | (uint64_t)memory << 32 | (uint64_t)stream_kind << 40;
}

extern bool trace_flag;
extern enum poolcuda_trace_counter trace_counter; /* set before the flag */

/* Is a trace wanted, and to be had? */
static inline bool trace_is_on(void) {
    return __builtin_expect(__atomic_load_n(&trace_flag, __ATOMIC_RELAXED), 0);
}

/* The counter now. */
static inline uint64_t trace_time(void) {
    return counter_now(trace_counter);
}

/* Read POOL_TRACE. The file is made with the first record. */
void trace_start(void);

/* While the trace is on. */
void trace_record(const struct trace_call *call);

/* What a thread fills; the rest of it is writer.c's. */
struct trace_block {
    uint64_t base;
    uint64_t *last; /* from here on there is no room for every record */
    _Atomic(uint64_t *) next;
    struct trace_place {
        uint64_t first, stream, where;
    } places[POOLCUDA_TRACE_PLACES];
};
extern _Thread_local struct trace_block *trace_own __attribute__((tls_model("initial-exec")));

static inline unsigned trace_place_number(uint64_t number, uint64_t stream) {
    return (unsigned)(stream ^ number >> 40) % POOLCUDA_TRACE_PLACES;
}

#define TRACE_NEAR (UINT64_C(1) << (POOLCUDA_TRACE_FREE_BITS - 1))

/* trace_record of a hit, where it fits into two words: else false, and nothing is done. Cannot block. */
static inline bool trace_put_hit(struct trace_block *block, uint64_t now, uint64_t address, uint64_t size,
                                 uint64_t number, uint64_t stream, uint64_t where, bool runtime_door) {
    const unsigned n = trace_place_number(number, stream);
    const struct trace_place *place = &block->places[n];
    const uint64_t time = (now - block->base) >> COUNTER_SHIFT, ahead = number - place->first, unit = address / 512;
    uint64_t *at = atomic_load_explicit(&block->next, memory_order_relaxed);
    if (__builtin_expect((time >> POOLCUDA_TRACE_TIME_BITS | ahead >> 16 | (place->stream ^ stream) |
                          (place->where ^ where) | size >> 32 | unit >> 40 | address % 512) != 0 ||
                             at >= block->last,
                         0))
        return false;
    at[0] = time | (uint64_t)POOLCUDA_TRACE_HIT << POOLCUDA_TRACE_KIND_SHIFT |
            (uint64_t)runtime_door << POOLCUDA_TRACE_DOOR_SHIFT | (uint64_t)n << POOLCUDA_TRACE_PLACE_SHIFT |
            unit >> 32 << 40 | ahead << 48;
    at[1] = size | unit << 32;
    atomic_store_explicit(&block->next, at + 2, memory_order_release);
    return true;
}

/* The same of a free of the pool's memory, in one word. */
static inline bool trace_put_free(struct trace_block *block, uint64_t now, uint64_t number, uint64_t stream,
                                  uint64_t where, bool runtime_door) {
    const unsigned n = trace_place_number(number, stream);
    const struct trace_place *place = &block->places[n];
    const uint64_t time = (now - block->base) >> COUNTER_SHIFT;
    uint64_t *at = atomic_load_explicit(&block->next, memory_order_relaxed);
    if (__builtin_expect((time >> POOLCUDA_TRACE_TIME_BITS |
                          (number - place->first + TRACE_NEAR) >> POOLCUDA_TRACE_FREE_BITS | (place->stream ^ stream) |
                          (place->where ^ where)) != 0 ||
                             at >= block->last,
                         0))
        return false;
    at[0] = time | (uint64_t)POOLCUDA_TRACE_FREE << POOLCUDA_TRACE_KIND_SHIFT |
            (uint64_t)runtime_door << POOLCUDA_TRACE_DOOR_SHIFT | (uint64_t)n << POOLCUDA_TRACE_PLACE_SHIFT |
            number << (64 - POOLCUDA_TRACE_FREE_BITS);
    atomic_store_explicit(&block->next, at + 1, memory_order_release);
    return true;
}

/* The process ends: what its threads have recorded is written. Later records are written one by one. */
void trace_finish(void);

/* In a new process: its parent's records are none of its own. Async-signal-safe, as trace_start is where the
 * configuration has been read; that begins anew. */
void trace_forget_in_child(void);

#endif
